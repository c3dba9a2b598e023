"""The command line: `python starter.py`. Starts runs, watches them, and says what became of each video.

Whatever it does to a run is a call to Temporal that the `temporal` command can make as well; what it tells of single
assets comes from the ledger.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import os
import re
import sys
from collections.abc import Callable, Coroutine, Mapping
from datetime import UTC, datetime
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, Final, ParamSpec, TextIO, TypeVar

import typer
from pydantic import ValidationError
from rich.console import Console
from rich.table import Table
from temporalio.client import Client

import program
import telemetry
from client import (
    ANSWER_S,
    Ended,
    execution_state,
    follow,
    ledger_of,
    polled,
    progress_of,
    start_run,
    told,
    web_link,
    write_map,
)
from connection import connect
from destinations.checking import check_account, losses_at
from display import duration, in_order, pace_lines, phase_lines, say, verdict_table, visible, waiting_for
from faults import REASONS, Fault, Scope
from ledger import budgets, questions, remotes
from ledger import redrive as letters
from settings import Settings, load_settings
from sources.registry import open_source
from sources.spec import SourceSpec
from workflows.ids import migration_id
from workflows.messages import MigrationInput, MigrationResult, Progress, Redrive, ResumeInput

P = ParamSpec("P")
T = TypeVar("T")

app = typer.Typer(
    help="Moves video libraries into hosted video APIs, survives being killed at any second, and proves that every "
    "video arrived.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object or list instead of words.")]
Run = Annotated[str, typer.Argument(help="The run's name, as `list` shows it.", show_default=False)]

WIDE: Final = 160
"""Columns of a table that goes to a file or a pipe, where the person's COLUMNS don't say otherwise."""
SPOKEN: Final = frozenset(
    {
        "settings-refused",
        "manifest-refused",
        "ledger-unreachable",
        "temporal-unreachable",
        "run-unknown",
        "asset-unknown",
        "worker-missing",
    }
)
"""Faults whose detail is a whole sentence: the reason's own words before it would say it twice."""


def _console(stream: TextIO) -> Console:
    width = None if stream.isatty() or "COLUMNS" in os.environ else WIDE
    return Console(stderr=stream is sys.stderr, width=width)


out = _console(sys.stdout)
err = _console(sys.stderr)


# ------------------------------------------------------------------------------------------------------------- plumbing


def command(function: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """An asynchronous command, whose failures are said in one line and an exit code."""

    @wraps(function)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            asyncio.run(function(*args, **kwargs))
        except Fault as fault:
            parts = (None if fault.detail and fault.code in SPOKEN else fault.reason.words, fault.detail)
            say(err, "longhaul: " + ": ".join(part for part in parts if part), style="red")
            raise SystemExit(1) from None
        except Ended as end:
            raise SystemExit(end.code) from None
        except BrokenPipeError:
            # Whoever read our output has enough of it; the interpreter would flush into the pipe once more at its end.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise SystemExit(0) from None
        except KeyboardInterrupt:
            say(err, "interrupted; a run that was started goes on", style="yellow")
            raise SystemExit(130) from None
        finally:
            telemetry.flush()

    return run


def _settings() -> Settings:
    settings = load_settings()
    # The port for metrics is the worker's, which may run beside us with the same settings.
    quiet = settings.telemetry.model_copy(update={"log_level": "warning", "prometheus_bind": None})
    telemetry.configure_logging(quiet, "starter")
    return settings.model_copy(update={"telemetry": quiet})


def _print_json(value: Any) -> None:
    print(json.dumps(value, default=_plain, ensure_ascii=False))


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat()
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.asdict(value)
    return str(value)


# ---------------------------------------------------------------------------------------------------------------- start


def _source(manifest: Path | None, folder: Path | None, source: str | None, settings: Settings) -> SourceSpec:
    if sum(given is not None for given in (manifest, folder, source)) != 1:
        raise Fault("settings-refused", "give one of: a manifest's path, --folder PATH, --source NAME")
    if manifest is not None:
        return SourceSpec(kind="manifest", location=str(manifest.absolute()))
    if folder is not None:
        return SourceSpec(kind="folder", location=str(folder.absolute()))
    assert source is not None, "one of the three is given"
    return SourceSpec(kind=settings.source(source).kind, name=source)


NAME_WORDS: Final = "use a-z, 0-9, - and _, a letter or digit first, at most 63 of them"


def _run_name(spec: SourceSpec) -> str:
    stem = re.sub(r"[^a-z0-9]+", "-", Path(spec.location or spec.name or spec.kind).stem.lower()).strip("-")[:40]
    return f"{stem or spec.kind}-{datetime.now(UTC):%Y%m%d-%H%M%S}"


def _wrong(error: Mapping[str, Any]) -> str:
    option = {"run": "--name", "account": "--destination"}.get(name := str(error["loc"][0]), f"--{name}")
    words = NAME_WORDS if error["type"] == "string_pattern_mismatch" else error["msg"]
    return f"{option.replace('_', '-')} {error['input']!r}: {words}"


@app.command()
@command
async def start(
    manifest: Annotated[
        Path | None, typer.Argument(help="A CSV or JSONL manifest (columns id and url).", show_default=False)
    ] = None,
    folder: Annotated[Path | None, typer.Option(help="Migrate the videos in a local folder instead.")] = None,
    source: Annotated[str | None, typer.Option(help="Migrate from a source named in the settings instead.")] = None,
    destination: Annotated[
        str, typer.Option("--destination", "-d", help="Destination account, as named in the settings.")
    ] = "sandbox",
    tenant: Annotated[str, typer.Option(help="Whose library it is.")] = "default",
    name: Annotated[str | None, typer.Option(help="The run's name; default: from the source and the time.")] = None,
    source_name: Annotated[
        str | None, typer.Option(help="Tells several libraries of one tenant apart; default: the source's kind.")
    ] = None,
    approval: Annotated[
        bool, typer.Option("--approval", help="Wait for `approve` between the inventory and the first create.")
    ] = False,
    lane: Annotated[
        str, typer.Option(help="`live` has the account's reserve, for what people wait for; `bulk` the rest.")
    ] = "bulk",
    stripes: Annotated[int, typer.Option(help="Walkers of a listing that can be walked in stripes.")] = 1,
    pages_at_once: Annotated[int, typer.Option(help="Pages worked side by side.")] = 8,
    page_size: Annotated[int, typer.Option(help="Videos in one page.", min=1, max=500)] = 500,
    wait: Annotated[bool, typer.Option("--wait", help="Show progress until the run ends.")] = False,
    check: Annotated[
        bool, typer.Option(help="Read the source here first; --no-check where only the workers can reach it.")
    ] = True,
    as_json: Json = False,
) -> None:
    """Start a run: list, inventory, create, settle, reconcile. One that was begun under this name goes on.

    Exit code 0: started; 1: nothing was started. With --wait those of `watch`.
    """
    settings = _settings()
    settings.account(destination)
    spec = _source(manifest, folder, source, settings).model_copy(update={"page_size": page_size})
    run = name or _run_name(spec)
    try:
        asked = MigrationInput(
            account=destination,
            source=spec,
            tenant=tenant,
            source_name=source_name,
            run=run,
            approval=approval,
            lane=lane,
            stripes=stripes,
            pages_at_once=pages_at_once,
        )
    except ValidationError as error:
        raise Fault("settings-refused", "; ".join(_wrong(dict(each)) for each in error.errors())) from None
    if check:
        opened = open_source(spec, settings)
        try:
            await opened.check()
        finally:
            await opened.aclose()
    client = await connect(settings, "starter")
    fresh = await start_run(client, settings, run, asked)
    link = web_link(settings, client, run)
    if as_json and not wait:
        _print_json({"run": run, "workflow_id": migration_id(run), "started": fresh, "web_ui": link})
    elif not as_json:
        say(out, f"{'started' if fresh else 'already running'}: run {run}  (workflow {migration_id(run)})")
        say(out, link, style="dim")
    if wait:
        await _watch(settings, client, run, as_json=as_json)
    elif not as_json:
        say(out, f"watch it: starter.py watch {run}")
        if not await polled(client):
            say(out, "no worker runs; it begins when one does: python worker.py", style="yellow")


@app.command()
@command
async def check(
    account: Annotated[str, typer.Argument(help="Account, as named in the settings.", show_default=False)],
    as_json: Json = False,
) -> None:
    """Try an account before a run: credentials, rights, webhooks, clock. Nothing is created there.

    Exit code 0: nothing stands in a run's way; 1: something does, and is said.
    """
    findings = await check_account(account, _settings())
    bad = any(finding.good is False for finding in findings)
    if as_json:
        _print_json({"account": account, "good": not bad, "findings": findings})
    else:
        for finding in findings:
            mark, style = {True: ("ok", "green"), False: ("wrong", "red"), None: ("unknown", "yellow")}[finding.good]
            say(out, f"{mark:<8} {finding.name}: {finding.words}", style=style)
    if bad:
        raise SystemExit(1)


@app.command()
@command
async def pace(
    account: Annotated[str, typer.Argument(help="Account, as named in the settings.", show_default=False)],
    factor: Annotated[
        float | None, typer.Option(help="Share of the declared pace from now on, 0 to 1.", show_default=False)
    ] = None,
    per_s: Annotated[
        float | None, typer.Option("--per-s", help="Requests a second at most; 0 stops.", show_default=False)
    ] = None,
    stop: Annotated[bool, typer.Option("--stop", help="Make no more calls until told otherwise.")] = False,
    restore: Annotated[
        bool, typer.Option("--restore", help="Back to what the settings say; ends a pause too.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Show how fast an account is called, or lower, raise, stop or restore that while runs go on.

    It reaches every worker before its next call. Nothing exceeds what the settings declare. Within a run, the Temporal
    update `pace` does the same.
    """
    settings = _settings()
    settings.account(account)
    async with ledger_of(settings) as engine:
        if factor is not None or per_s is not None or stop or restore:
            await budgets.set_pace(engine, account, factor=factor, per_s=per_s, stop=stop, restore=restore)
        found = await budgets.pace_of(engine, account)
    if as_json:
        _print_json({**dataclasses.asdict(found), "stopped": found.stopped})
        return
    for line, style in pace_lines(found):
        say(out, line, style=style)


# ---------------------------------------------------------------------------------------------------------------- watch


@app.command()
@command
async def watch(run: Run, as_json: Json = False) -> None:
    """Show a run's progress until it ends.

    Exit code 0: finished; 1: it cannot be watched; 2: failed or cancelled; 3: parked until someone acts; 130: Ctrl-C,
    which ends the view and not the run.
    """
    settings = _settings()
    client = await connect(settings, "starter")
    if not as_json:
        say(out, web_link(settings, client, run), style="dim")
    await _watch(settings, client, run, as_json=as_json)


async def _watch(settings: Settings, client: Client, run: str, *, as_json: bool) -> None:
    link = web_link(settings, client, run)
    try:
        result = await follow(settings, client, run, console=err if as_json else out)
    except Ended as end:
        if as_json:
            _print_json({"run": run, "state": end.state, "reason": end.reason, "detail": end.detail, "web_ui": link})
        raise
    if as_json:
        _print_json({**result.model_dump(mode="json"), "web_ui": link})
        return
    out.print()
    _show_result(result)
    say(out, f"details: starter.py report {run}    id map: starter.py map {run}", style="dim")


def _show_result(result: MigrationResult) -> None:
    say(out, f"run {result.run} {result.state}", style="bold")
    say(
        out,
        f"listed {result.listed}: {result.added} new, {result.owned} owned by earlier runs"
        + (f", {result.problems} problems (see the report)" if result.problems else ""),
    )
    out.print(verdict_table(result.states, result.reasons))
    say(out, f"videos created {result.creates}, adopted after a lost answer {result.adopted}")


# ------------------------------------------------------------------------------------------------------------ questions


@app.command()
@command
async def status(run: Run, as_json: Json = False) -> None:
    """Where a run stands: its state, its phases, its assets by state."""
    settings = _settings()
    try:
        async with ledger_of(settings) as engine:
            line = await questions.run_line(engine, run)
            states = dict(await questions.states(engine, run))
    except Fault as unknown:
        if unknown.code != "run-unknown":
            raise
        await _status_unlisted(settings, run, unknown, as_json=as_json)
        return
    progress: Progress | None = None
    link = ""
    note = ""
    try:
        client = await connect(settings, "starter")
        link = web_link(settings, client, run)
        progress = await progress_of(client, run)
    except Fault as fault:
        # A run that is over needs no worker.
        note = "" if fault.code == "worker-missing" and line.ended_at is not None else fault.detail
    if as_json:
        shown = None if progress is None else progress.model_dump(mode="json")
        _print_json({**dataclasses.asdict(line), "states": states, "progress": shown, "web_ui": link, "note": note})
        return
    say(out, f"run {run}: {line.state}" + (f" ({line.reason})" if line.reason else ""), style="bold")
    say(out, f"{line.assets} assets of tenant {line.tenant}, from {line.source} to account {line.account}")
    if progress is not None:
        for words in waiting_for(progress):
            say(out, words, style="yellow")
        for phase in phase_lines(progress, states):
            say(out, phase.text())
    for state in in_order(states):
        say(out, f"{state:<12} {states[state]}", indent=2)
    if note:
        say(out, note, style="yellow")
    if link:
        say(out, link, style="dim")


async def _status_unlisted(settings: Settings, run: str, unknown: Fault, *, as_json: bool) -> None:
    """A run that the ledger does not know: started while no worker ran, or failed before it wrote anything."""
    client = await connect(settings, "starter")
    found = await execution_state(client, run)
    if found is None:
        raise unknown
    state, detail = found
    link = web_link(settings, client, run)
    if as_json:
        _print_json({"run": run, "state": state, "detail": detail, "states": {}, "progress": None, "web_ui": link})
        return
    say(out, f"run {run}: {state}", style="bold")
    say(out, detail, style="yellow")
    say(out, link, style="dim")


@app.command("list")
@command
async def list_runs(
    limit: Annotated[int, typer.Option(help="How many, the newest first.", min=1)] = 50, as_json: Json = False
) -> None:
    """The runs that the ledger knows, the newest first."""
    async with ledger_of(_settings()) as engine:
        found = await questions.runs(engine, limit)
    if as_json:
        _print_json([dataclasses.asdict(line) for line in found])
        return
    if not found:
        say(out, "no runs yet; begin with: starter.py start MANIFEST")
        return
    table = Table(box=None, pad_edge=False)
    for heading in ("run", "state", "assets", "tenant", "source", "account", "begun (UTC)"):
        table.add_column(heading, justify="right" if heading == "assets" else "left")
    for line in found:
        state = line.state + (f" ({line.reason})" if line.reason else "")
        begun = f"{line.created_at:%Y-%m-%d %H:%M}"
        table.add_row(line.run, state, str(line.assets), line.tenant, line.source, line.account, begun)
    out.print(table)


@app.command()
@command
async def show(
    asset: Annotated[str, typer.Argument(help="An asset's ref, its id at the source, or its remote id.")],
    as_json: Json = False,
) -> None:
    """What happened to one video: its state, every step with its outcome, the events that came for it."""
    async with ledger_of(_settings()) as engine:
        found = await questions.history(engine, asset)
    if not found:
        raise Fault("asset-unknown", f"the ledger has no asset with ref, source id or remote id {asset!r}")
    if as_json:
        _print_json([dataclasses.asdict(history) for history in found])
        return
    for history in found:
        _show_history(history)


def _show_history(history: questions.History) -> None:
    asset = history.asset
    say(out, f"{asset['source_id']}  {asset['state']}", style="bold")
    for label, value in {
        "title": asset["title"],
        "ref": asset["ref"],
        "why": _why(asset["reason"], asset["detail"]),
        "run": f"{asset['run']}, page {asset['page']}, position {asset['position']}",
        "tenant, source": f"{asset['tenant']}, {asset['source']}",
        "at the source": asset["locator"],
        "remote id": asset["remote_id"] and f"{asset['remote_id']} at {asset['account']}",
        "plays at": asset["playback"],
        "media": _media(asset),
    }.items():
        if value:
            out.print(f"  {label:<15} {visible(str(value))}", highlight=False, markup=False, soft_wrap=True)
    told = [(step["started_at"], _step_words(step)) for step in history.steps]
    told += [
        (event["received_at"], f"event      {event['kind'] or event['state']}: {event['outcome'] or 'waiting'}")
        for event in history.events
    ]
    for when, words in sorted(told):
        out.print(f"  {when:%Y-%m-%d %H:%M:%S}  {visible(words)}", highlight=False, markup=False, soft_wrap=True)


def _step_words(step: Mapping[str, Any]) -> str:
    ended = step["ended_at"]
    took = "" if ended is None else f"{(ended - step['started_at']).total_seconds():.2f} s"
    why = _why(step["reason"], step["detail"])
    return (
        f"{step['phase']:<10} attempt {step['attempt']}  {step['outcome'] or 'under way':<11} {took:>8}  "
        f"{step['worker']}" + (f"  {why}" if why else "")
    )


def _why(reason: str | None, detail: str | None) -> str:
    if not reason:
        return ""
    words = REASONS[reason].words if reason in REASONS else reason
    return f"{reason}: {words}" + (f" ({detail})" if detail else "")


def _media(asset: Any) -> str:
    facts = asset["facts"] or {}
    parts = [facts.get("container"), facts.get("video_codec"), facts.get("audio_codec")]
    if facts.get("width"):
        parts.append(f"{facts['width']}x{facts['height']}")
    if asset["duration_ms"] is not None:
        parts.append(f"{asset['duration_ms'] / 1000:.2f} s ({facts.get('duration_origin', 'unknown')})")
    if asset["remote_duration_ms"] is not None:
        parts.append(f"there {asset['remote_duration_ms'] / 1000:.2f} s")
    return ", ".join(str(part) for part in parts if part)


@app.command()
@command
async def report(run: Run, as_json: Json = False) -> None:
    """What a run came to: counts by verdict and reason with an example of each, problems of the source, strays."""
    settings = _settings()
    async with ledger_of(settings) as engine:
        line = await questions.run_line(engine, run)
        summary = await questions.summary(engine, run)
        examples = await questions.examples(engine, run, ("rejected", "failed", "mismatched", "skipped"))
        problems = await questions.problems(engine, run)
        strays = await remotes.strangers(engine, line.account)
        lost = await losses_at(line.account, settings, await questions.have(engine, run))
    if as_json:
        _print_json(
            {
                "run": dataclasses.asdict(line),
                "summary": dataclasses.asdict(summary),
                "examples": [dataclasses.asdict(example) for example in examples],
                "problems": [dataclasses.asdict(problem) for problem in problems],
                "strays": [dataclasses.asdict(stray) for stray in strays],
                "losses": lost,
            }
        )
        return
    say(out, f"run {run}: {line.state}" + (f" ({line.reason})" if line.reason else ""), style="bold")
    say(
        out,
        f"listed {summary.listed}: {summary.added} new, {summary.owned} owned by earlier runs, "
        f"{summary.collapsed} repeated, {summary.blank} blank, {summary.problems} problems",
    )
    say(
        out,
        f"{duration(summary.duration_ms / 1000)} of video; created {summary.creates}, "
        f"adopted {summary.adopted}, attempts repeated {summary.retries}",
    )
    out.print(verdict_table(summary.states, summary.reasons))
    if lost:
        words = ", ".join(f"{name} of {count}" for name, count in sorted(lost.items()))
        say(out, f"{line.account} has no place for: {words}", style="yellow")
    for example in examples:
        reason = REASONS.get(example.reason)
        out.print()
        say(out, f"{example.state}: {example.reason} ({example.count})", style="bold")
        if reason is not None:
            say(out, f"{reason.words}; {reason.remedy}", indent=2)
        detail = f": {example.detail}" if example.detail else ""
        say(out, f"for example {example.source_id}{detail}", indent=2)
    if problems:
        out.print()
        say(out, "problems of the source", style="bold")
        for problem in problems:
            field = f", {problem.field}" if problem.field else ""
            say(out, f"at {problem.position}{field}: {problem.words}", indent=2)
    if strays:
        out.print()
        say(out, "remote videos with a reference of ours that no row owns", style="bold")
        for stray in strays:
            what = f"a duplicate; kept is {stray.kept}" if stray.kept else "of an asset that this ledger does not know"
            say(out, f"{stray.remote_id} ({stray.ref}, {stray.state}): {what}", indent=2)


@app.command("map")
@command
async def id_map(
    run: Run,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Write to this file; default: print.")] = None,
    library: Annotated[
        bool, typer.Option("--library", help="Every video of the run's library, also what other runs have.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="JSON lines instead of CSV.")] = False,
) -> None:
    """The id map: for every asset of the run its id at the source, its remote id, state and playback address."""
    count = await write_map(_settings(), run, output, as_json=as_json, library=library)
    if output is not None:
        say(err, f"{count} rows in {output}")


# ------------------------------------------------------------------------------------------------------------- messages


async def _tell(run: str, message: str, note: str, as_json: bool) -> None:
    """Sends a message as an update, whose answer says that it took effect; as a signal where no worker is there to
    answer: Temporal keeps it."""
    settings = _settings()
    client = await connect(settings, "starter")
    handle = client.get_workflow_handle(migration_id(run))
    try:
        call = handle.execute_update(message, ResumeInput(note=note), result_type=Progress, rpc_timeout=ANSWER_S)
        progress = await told(run, call)
    except Fault as fault:
        if fault.code != "worker-missing":
            raise
        await told(run, handle.signal(message, ResumeInput(note=note)))
        if as_json:
            _print_json({"run": run, "message": message, "answered": False})
        else:
            say(out, f"no worker answers; {message} is kept for run {run} until one does", style="yellow")
        return
    if as_json:
        _print_json({"run": run, "message": message, "answered": True, "state": progress.state})
    else:
        say(out, f"run {run}: {_DONE[message]} (it is {progress.state} at present)")


_DONE: Final = {
    "pause": "it begins no more videos",
    "resume": "it goes on",
    "approve": "approved, its creates may begin",
}


Note = Annotated[str, typer.Option("--note", help="Why, for the record.")]


@app.command()
@command
async def pause(run: Run, note: Note = "", as_json: Json = False) -> None:
    """Begin no more videos; what is in hand is finished. The run stays and goes on with `resume`."""
    await _tell(run, "pause", note, as_json)


@app.command()
@command
async def resume(run: Run, note: Note = "", as_json: Json = False) -> None:
    """Go on after a pause, or at once where the run is parked."""
    await _tell(run, "resume", note, as_json)


@app.command()
@command
async def approve(run: Run, note: Note = "", as_json: Json = False) -> None:
    """Let a run that was started with --approval begin its creates."""
    await _tell(run, "approve", note, as_json)


@app.command()
@command
async def cancel(run: Run, as_json: Json = False) -> None:
    """End a run. What it has not finished is handed back; a later run, or the same name again, takes it up."""
    settings = _settings()
    client = await connect(settings, "starter")
    await told(run, client.get_workflow_handle(migration_id(run)).cancel(rpc_timeout=ANSWER_S))
    if as_json:
        _print_json({"run": run, "message": "cancel"})
    else:
        say(out, f"run {run}: cancellation asked for; `starter.py status {run}` shows when it is done")


@app.command()
@command
async def redrive(
    run: Annotated[
        str | None, typer.Argument(help="Take up this run's dead letters; default: every run's.", show_default=False)
    ] = None,
    reason: Annotated[list[str] | None, typer.Option(help="Only those with this reason; repeatable.")] = None,
    transient: Annotated[
        bool, typer.Option("--transient", help="Only those that may succeed later; what can never succeed is left.")
    ] = False,
    asset: Annotated[list[str] | None, typer.Option(help="Only this asset, by ref or source id; repeatable.")] = None,
    name: Annotated[str | None, typer.Option(help="The new run's name; default: from the old one's.")] = None,
    of: Annotated[
        str | None, typer.Option("--of", help="Whose tenant, source and account, where no run is given.", metavar="RUN")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only count what would be taken up.")] = False,
    wait: Annotated[bool, typer.Option("--wait", help="Show progress until the run ends.")] = False,
    as_json: Json = False,
) -> None:
    """Take up dead letters (failed, rejected, mismatched) once what was wrong is mended, in a run of their own."""
    settings = _settings()
    reasons, assets = tuple(reason or ()), tuple(asset or ())
    unknown = [code for code in reasons if code not in REASONS]
    if unknown:
        raise Fault("settings-refused", f"no such reason: {', '.join(unknown)}; docs/reasons.md lists them")
    if transient:
        passing = [code for code, known in REASONS.items() if known.scope is Scope.ROW and not known.permanent]
        reasons = tuple(code for code in passing if not reasons or code in reasons)
        if not reasons:
            raise Fault("settings-refused", "every --reason given is a permanent one; leave --transient out")
    if not (run or reasons or assets):
        raise Fault("settings-refused", "say what to take up: a RUN, --reason or --asset")
    async with ledger_of(settings) as engine:
        like = await letters.run_like(engine, run or of, assets)
        counts = dict(await letters.count(engine, of_run=run, reasons=reasons, assets=assets))
        taken_names = {line.run for line in await questions.runs(engine, 100_000)}
    if dry_run or not counts:
        if as_json:
            _print_json({"dead_letters": counts})
        elif not counts:
            say(out, "no dead letters of that kind")
        else:
            for kind, count in counts.items():
                say(out, f"{count:>8}  {kind}")
        return
    base = f"{like.run}-redrive"[:56]
    fresh_name = next(f"{base}-{n}" for n in range(1, 100_000) if f"{base}-{n}" not in taken_names)
    try:
        asked = MigrationInput(
            run=name or fresh_name,
            account=like.account,
            tenant=like.tenant,
            source=SourceSpec.model_validate(like.source_spec),
            source_name=like.source,
            redrive=Redrive(of_run=run, reasons=reasons, assets=assets),
        )
    except ValidationError as error:
        raise Fault("settings-refused", "; ".join(_wrong(dict(each)) for each in error.errors())) from None
    client = await connect(settings, "starter")
    assert asked.run is not None, "named above"
    if not await start_run(client, settings, asked.run, asked):
        raise Fault("settings-refused", f"a run named {asked.run!r} is running already; give this one another --name")
    link = web_link(settings, client, asked.run)
    if as_json and not wait:
        _print_json({"run": asked.run, "dead_letters": counts, "web_ui": link})
    elif not as_json:
        say(out, f"started: run {asked.run} takes up {sum(counts.values())} dead letters")
        say(out, link, style="dim")
    if wait:
        await _watch(settings, client, asked.run, as_json=as_json)


# ----------------------------------------------------------------------------------------------------------------- demo


@app.command()
def demo(as_json: Json = False) -> None:
    """Migrate a small library of real videos into the sandbox, on an embedded stack.

    Repeat it: nothing is made twice.
    """
    try:
        from devstack.demo import main
    except ModuleNotFoundError as missing:
        say(err, f"longhaul: the demo needs a checkout with `make setup`: {missing}", style="red")
        raise SystemExit(1) from None
    raise SystemExit(main(as_json=as_json))


if __name__ == "__main__":
    program.run(app)
