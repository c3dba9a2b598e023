"""The demonstration: a small library of real videos, through every phase, into the sandbox, on the embedded stack."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import httpx
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

import display
import telemetry
from client import Ended, follow, start_run, web_link, write_map
from connection import connect
from devstack.library import Entry, make_library, write_manifest
from devstack.processes import StackError
from devstack.stack import ACCOUNT, Stack
from faults import Fault
from ledger import budgets, questions
from ledger.engine import Engine
from settings import Settings, load_settings
from sources.spec import SourceSpec
from workflows.messages import MigrationInput, MigrationResult

TENANT: Final = "demo"
SOURCE: Final = "demo-library"
PAGE_SIZE: Final = 15
"""So small that the run has several pages to work side by side; a real one has up to 500 videos in each."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What the demonstration came to. `differences` are entries that did not end as the library says they must."""

    run: str
    result: MigrationResult
    reasons: Mapping[str, Mapping[str, int]]
    """Counts by state and reason."""
    creates: int
    duplicates: int
    requests: int
    seconds: float
    id_map: Path
    web_ui: str
    differences: Sequence[str]


def main(*, as_json: bool) -> int:
    """Runs it and returns the exit code: 0 where every video ended as expected, 1 where not, 130 after Ctrl-C."""
    console = Console(stderr=as_json)
    began = time.monotonic()
    try:
        with Stack.foreground() as stack:
            kept = not stack.started
            os.environ.update(stack.environment())
            outcome = asyncio.run(_demo(stack, console, began))
            _show(console, outcome, kept=kept)
    except (StackError, Fault) as error:
        detail = error.detail if isinstance(error, Fault) else str(error)
        console.print(f"longhaul: {detail}", style="red", highlight=False, markup=False)
        return 1
    except Ended as end:
        return end.code
    except KeyboardInterrupt:
        console.print("\ninterrupted; the stack is down. `make demo` goes on where this stopped", style="yellow")
        return 130
    if as_json:
        print(json.dumps(_as_json(outcome), ensure_ascii=False), flush=True)
    return 1 if outcome.differences else 0


async def _demo(stack: Stack, console: Console, began: float) -> Outcome:
    settings = load_settings()
    telemetry.configure_logging(settings.telemetry.model_copy(update={"log_level": "warning"}), "demo")
    entries = await _library(stack.library, console)
    manifest = stack.folder / "demo" / "library.csv"
    manifest.parent.mkdir(mode=0o700, exist_ok=True)
    write_manifest(manifest, entries, stack.url("library"))
    client = await connect(settings, "starter")
    engine = await Engine.open(settings.ledger, name="longhaul-demo")
    try:
        run = await _run_name(engine)
        before = await budgets.spent(engine, ACCOUNT)
        made_before = (await questions.summary(engine, run)).creates
        asked = MigrationInput(
            run=run,
            tenant=TENANT,
            account=ACCOUNT,
            source=SourceSpec(kind="manifest", location=str(manifest), page_size=PAGE_SIZE),
            source_name=SOURCE,
        )
        fresh = await start_run(client, settings, run, asked)
        link = web_link(settings, client, run)
        console.print(f"{'run' if fresh else 'goes on: run'} [bold]{run}[/bold]: {len(entries)} videos into {ACCOUNT}")
        console.print(link, style="dim", soft_wrap=True)
        result = await follow(settings, client, run, console=console)
        summary = await questions.summary(engine, run)
        spent = await budgets.spent(engine, ACCOUNT)
        id_map = stack.folder / "demo" / "id-map.csv"
        await write_map(settings, await _first_run(engine), id_map)
        return Outcome(
            run=run,
            result=result,
            reasons=summary.library_reasons,
            creates=summary.creates - made_before,
            duplicates=await _duplicates(settings),
            requests=spent.requests - before.requests,
            seconds=time.monotonic() - began,
            id_map=id_map,
            web_ui=link,
            differences=await _differences(engine, entries),
        )
    finally:
        await engine.close()


async def _library(folder: Path, console: Console) -> list[Entry]:
    columns = (
        TextColumn("making the library of real videos"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        task = bar.add_task("", total=None)

        def tell(done: int, total: int, name: str) -> None:
            bar.update(task, completed=done, total=total)
            if not console.is_terminal and (done == total or done % 20 == 0):
                console.print(f"making the library of real videos: {done}/{total}", highlight=False)

        return await make_library(folder, progress=tell)


async def _run_name(engine: Engine) -> str:
    """The demonstration that was interrupted, or the next one."""
    mine = [line for line in await questions.runs(engine, 10_000) if line.tenant == TENANT]
    for line in mine:
        if line.state not in ("finished", "cancelled", "failed"):
            return line.run
    return "demo" if not mine else f"demo-{len(mine) + 1}"


async def _first_run(engine: Engine) -> str:
    """The run that owns the library's videos: the first."""
    return [line.run for line in await questions.runs(engine, 10_000) if line.tenant == TENANT and line.assets][-1]


async def _duplicates(settings: Settings) -> int:
    """The destination's own count of videos beyond the first for a reference."""
    account = settings.account(ACCOUNT)
    async with httpx.AsyncClient(base_url=account.base_url or "", timeout=10, trust_env=False) as client:
        answer = await client.get(
            "/_sandbox/stats", headers={"authorization": f"Bearer {account.token.get_secret_value()}"}
        )
        return int(answer.raise_for_status().json()["duplicates"])


async def _differences(engine: Engine, entries: Sequence[Entry]) -> list[str]:
    """Entries that did not end as the library says they must."""
    found = await questions.verdicts(engine, TENANT, SOURCE)
    wrong = []
    for entry in entries:
        state, reason = found.get(entry.id, ("missing", None))
        wanted = ("verified", None) if entry.expected is None else ("rejected", entry.expected)
        if (state, reason) != wanted:
            wrong.append(f"{entry.id} ({entry.file}): {state} {reason or ''}, expected {wanted[0]} {wanted[1] or ''}")
    return wrong


def _show(console: Console, outcome: Outcome, *, kept: bool) -> None:
    result = outcome.result
    console.print()
    console.print(f"run {result.run} {result.state} in {display.duration(outcome.seconds)}", style="bold")
    console.print(f"listed {result.listed}: {result.added} new, {result.owned} there already from an earlier run")
    console.print(display.verdict_table(result.library, outcome.reasons))
    console.print(
        f"videos created {outcome.creates}, duplicates at the destination {outcome.duplicates}, "
        f"requests spent {outcome.requests}"
    )
    console.print(f"id map: {os.path.relpath(outcome.id_map)}", soft_wrap=True, highlight=False)
    console.print(f"Web UI: {outcome.web_ui}", soft_wrap=True, highlight=False)
    for difference in outcome.differences:
        console.print(f"not as expected: {difference}", style="red", highlight=False, markup=False)
    if kept:
        console.print("the stack stays up, as it was before; `make down` stops it")
    else:
        console.print("the stack goes down now; `make up` starts it again to look around, `make down` stops it")
        console.print(
            f"then: {os.path.relpath(sys.executable)} starter.py list, … report {result.run}, … show demo-001"
        )


def _as_json(outcome: Outcome) -> dict[str, Any]:
    return {
        "run": outcome.run,
        "assets": outcome.result.listed,
        "verdicts": dict(outcome.result.library),
        "reasons": {reason: n for by_reason in outcome.reasons.values() for reason, n in by_reason.items()},
        "creates": outcome.creates,
        "duplicates": outcome.duplicates,
        "requests": outcome.requests,
        "seconds": round(outcome.seconds, 2),
        "web_ui": outcome.web_ui,
        "as_expected": not outcome.differences,
        "id_map": os.path.relpath(outcome.id_map),
    }
