"""What the command line and the demonstration do with runs: start them, ask them, follow them to their end."""

from __future__ import annotations

import asyncio
import csv
import json
import sys
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, Final, TypeVar
from urllib.parse import quote

from rich.console import Console
from rich.live import Live
from temporalio.client import (
    Client,
    WorkflowExecutionStatus,
    WorkflowFailureError,
    WorkflowQueryFailedError,
    WorkflowUpdateFailedError,
    WorkflowUpdateRPCTimeoutOrCancelledError,
)
from temporalio.common import WorkflowIDConflictPolicy
from temporalio.exceptions import ApplicationError, FailureError, WorkflowAlreadyStartedError
from temporalio.service import RPCError, RPCStatusCode

import display
from faults import Fault
from ledger import questions
from ledger.engine import Engine
from settings import TASK_QUEUE, Settings
from workflows import attributes
from workflows.ids import migration_id
from workflows.messages import MigrationInput, MigrationResult, Progress

T = TypeVar("T")

ANSWER_S: Final = timedelta(seconds=4)
"""How long a question to a run may take: its answer needs a live worker."""
LOOK_S: Final = 0.5


class Ended(Exception):
    """Ends the program with an exit code, after everything was said."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


@asynccontextmanager
async def ledger_of(settings: Settings) -> AsyncIterator[Engine]:
    """The ledger, for a few questions. Raises Fault where it cannot be reached."""
    engine = await Engine.open(settings.ledger, name="longhaul-starter")
    try:
        yield engine
    finally:
        await engine.close()


def web_link(settings: Settings, client: Client, run: str) -> str:
    """Where the run is in the Temporal Web UI."""
    where = quote(migration_id(run), safe="")
    return f"{settings.temporal.web_ui.rstrip('/')}/namespaces/{client.namespace}/workflows/{where}"


async def told(run: str, call: Awaitable[T]) -> T:
    """Makes a call to a run, and says in one line what kept it from being answered."""
    try:
        return await call
    except RPCError as error:
        if error.status == RPCStatusCode.NOT_FOUND:
            raise Fault(
                "run-unknown", f"Temporal has no open run named {run!r}; `starter.py list` shows runs"
            ) from None
        if error.status in (RPCStatusCode.DEADLINE_EXCEEDED, RPCStatusCode.CANCELLED):
            raise Fault("worker-missing", f"no worker answers for run {run!r}; start one: python worker.py") from None
        raise Fault("temporal-unreachable", str(error)) from None
    except WorkflowUpdateRPCTimeoutOrCancelledError:
        raise Fault("worker-missing", f"no worker answers for run {run!r}; start one: python worker.py") from None
    except WorkflowUpdateFailedError as error:
        raise Fault("settings-refused", str(error.cause)) from None
    except WorkflowQueryFailedError as error:
        raise Fault("worker-missing", str(error)) from None


async def progress_of(client: Client, run: str) -> Progress:
    handle = client.get_workflow_handle(migration_id(run))
    return await told(run, handle.query("progress", result_type=Progress, rpc_timeout=ANSWER_S))


async def start_run(client: Client, settings: Settings, run: str, asked: MigrationInput) -> bool:
    """Starts the run, or takes up one that has ended; False where it is running already."""
    try:
        await client.start_workflow(
            "MigrationWorkflow",
            asked.model_dump(mode="json", exclude_none=True),
            id=migration_id(run),
            task_queue=TASK_QUEUE,
            id_conflict_policy=WorkflowIDConflictPolicy.FAIL,
            static_summary=f"{asked.tenant}: {asked.source.label} to {asked.account}"[:200],
            search_attributes=attributes.attributes(run=run, tenant=asked.tenant, phase="list", state="running"),
            rpc_timeout=timedelta(seconds=10),
        )
    except WorkflowAlreadyStartedError:
        return False
    except RPCError as error:
        raise Fault("temporal-unreachable", str(error)) from None
    return True


async def follow(settings: Settings, client: Client, run: str, *, console: Console) -> MigrationResult:
    """Shows progress on this console until the run has ended, and returns what it came to.

    Raises Ended(2) where it failed or was cancelled, after saying why, and Ended(3) where it is parked until someone
    acts.
    """
    handle = client.get_workflow_handle(migration_id(run))
    rates, plain, link = display.Rates(), display.PlainProgress(console), web_link(settings, client, run)
    live = Live(console=console, refresh_per_second=4, transient=False) if console.is_terminal else None
    try:
        engine: Engine | None = await Engine.open(settings.ledger, name="longhaul-starter")
    except Fault as fault:
        console.print(f"no counts of single videos: {fault.detail}", style="yellow", highlight=False, markup=False)
        engine = None
    try:
        if live:
            live.start()
        said_missing = False
        while True:
            described = await told(run, handle.describe(rpc_timeout=ANSWER_S))
            try:
                progress = await progress_of(client, run)
            except Fault as fault:
                if fault.code != "worker-missing" or described.status != WorkflowExecutionStatus.RUNNING:
                    if described.status == WorkflowExecutionStatus.RUNNING:
                        raise
                elif not said_missing:
                    said_missing = True
                    console.print(fault.detail, style="yellow", highlight=False, markup=False)
            else:
                assets = dict(progress.assets)
                if engine is not None:
                    assets = dict(await questions.states(engine, run))
                lines = rates.rated(display.phase_lines(progress, assets))
                if live:
                    live.update(display.panel(progress, lines, link))
                else:
                    plain.show(progress, lines)
                if progress.state == "parked" and progress.park is not None and progress.park.wait_s is None:
                    raise Ended(3)
            if described.status != WorkflowExecutionStatus.RUNNING:
                break
            await asyncio.sleep(LOOK_S)
    finally:
        if live:
            live.stop()
        if engine is not None:
            await engine.close()
    return await _ended(handle, run, console)


async def _ended(handle: Any, run: str, console: Console) -> MigrationResult:
    try:
        return MigrationResult.model_validate(await handle.result())
    except WorkflowFailureError as error:
        console.print(
            f"longhaul: run {run} did not finish: {_innermost(error)}", style="red", highlight=False, markup=False
        )
        raise Ended(2) from None


def _innermost(error: BaseException) -> str:
    """The words of the failure at the bottom of Temporal's wrappings."""
    while isinstance(error, (WorkflowFailureError, FailureError)) and error.cause is not None:
        error = error.cause
    if isinstance(error, ApplicationError):
        return error.message
    return str(error) or type(error).__name__


async def write_map(settings: Settings, run: str, output: Path | None, *, as_json: bool = False) -> int:
    """Writes the run's id map, streamed; returns its rows. Raises Fault where the ledger has no such run."""
    columns = ["source_id", "remote_id", "state", "reason", "playback", "title", "duration_ms", "account", "ref"]
    file = sys.stdout if output is None else output.open("w", encoding="utf-8", newline="")
    count = 0
    try:
        async with ledger_of(settings) as engine:
            await questions.run_line(engine, run)
            writer = csv.writer(file)
            if not as_json:
                writer.writerow(columns)
            async for record in questions.id_map(engine, run):
                count += 1
                if as_json:
                    file.write(json.dumps({name: record[name] for name in columns}, ensure_ascii=False) + "\n")
                else:
                    writer.writerow([record[name] for name in columns])
    finally:
        if output is not None:
            file.close()
    return count
