"""What the command line and the demonstration do with runs: start them, ask them, follow them to their end."""

from __future__ import annotations

import asyncio
import contextlib
import csv
import json
import re
import sys
import time
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, Final, TextIO, TypeVar
from urllib.parse import quote

from rich.console import Console
from rich.live import Live
from temporalio.api.enums.v1 import TaskQueueType
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflowservice.v1 import DescribeTaskQueueRequest
from temporalio.client import (
    Client,
    WorkflowExecutionStatus,
    WorkflowFailureError,
    WorkflowQueryFailedError,
    WorkflowUpdateFailedError,
    WorkflowUpdateRPCTimeoutOrCancelledError,
)
from temporalio.common import WorkflowIDConflictPolicy
from temporalio.exceptions import ApplicationError, CancelledError, FailureError, WorkflowAlreadyStartedError
from temporalio.service import RPCError, RPCStatusCode

import display
from connection import no_namespace
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
PATIENCE_S: Final = 120.0
"""How long a run is followed while Temporal does not answer: a server that restarts ends nobody's view of it."""


class Ended(Exception):
    """Ends the program with an exit code, after everything was said. `state`, `reason` and `detail` are the run's."""

    def __init__(self, code: int, state: str = "", reason: str | None = None, detail: str = "") -> None:
        super().__init__(code)
        self.code = code
        self.state = state
        self.reason = reason
        self.detail = detail


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
            if (namespace := _missing_namespace(error)) is not None:
                raise no_namespace(namespace) from None
            raise Fault(
                "run-unknown",
                f"Temporal has no open run named {run!r}: it has ended, or was never started; "
                "`starter.py list` shows runs",
            ) from None
        if error.status in (RPCStatusCode.DEADLINE_EXCEEDED, RPCStatusCode.CANCELLED):
            raise Fault("worker-missing", f"no worker answers for run {run!r}; start one: python worker.py") from None
        if error.status in (RPCStatusCode.UNAVAILABLE, RPCStatusCode.UNKNOWN):
            raise Fault("temporal-unreachable", str(error)) from None
        # The server answers, and says that the workflow cannot: its task fails, or it has too much in flight.
        raise Fault("worker-missing", f"run {run!r} cannot answer: {error.message}; see the worker's log") from None
    except WorkflowUpdateRPCTimeoutOrCancelledError:
        raise Fault("worker-missing", f"no worker answers for run {run!r}; start one: python worker.py") from None
    except WorkflowUpdateFailedError as error:
        raise Fault("settings-refused", str(error.cause)) from None
    except WorkflowQueryFailedError as error:
        raise Fault("worker-missing", str(error)) from None


def _missing_namespace(error: RPCError) -> str | None:
    found = re.fullmatch(r"Namespace (\S+) is not found\.?", error.message)
    return found and found[1]


async def progress_of(client: Client, run: str) -> Progress:
    handle = client.get_workflow_handle(migration_id(run))
    return await told(run, handle.query("progress", result_type=Progress, rpc_timeout=ANSWER_S))


async def start_run(client: Client, settings: Settings, run: str, asked: MigrationInput) -> bool:
    """Starts the run, or takes up one that has ended; False where it is running already."""
    try:
        await client.start_workflow(
            "MigrationWorkflow",
            asked.model_dump(mode="json", exclude_none=True, exclude_defaults=True),
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
        if (namespace := _missing_namespace(error)) is not None:
            raise no_namespace(namespace) from None
        raise Fault("temporal-unreachable", str(error)) from None
    return True


async def execution_state(client: Client, run: str) -> tuple[str, str] | None:
    """How Temporal has the run, for one that the ledger does not know: "waiting" (for a worker), "failed" or
    "cancelled", with why; None where Temporal doesn't know it either."""
    handle = client.get_workflow_handle(migration_id(run))
    try:
        described = await told(run, handle.describe(rpc_timeout=ANSWER_S))
    except Fault as fault:
        if fault.code != "run-unknown":
            raise
        return None
    if described.status == WorkflowExecutionStatus.RUNNING:
        return "waiting", "no worker has begun it yet; start one: python worker.py"
    try:
        await handle.result(rpc_timeout=ANSWER_S)
    except WorkflowFailureError as error:
        return _end_of(error)
    return "finished", ""


async def polled(client: Client) -> bool:
    """Whether a worker has asked for workflows within the last minutes. True where Temporal does not say."""
    try:
        queue = await client.workflow_service.describe_task_queue(
            DescribeTaskQueueRequest(
                namespace=client.namespace,
                task_queue=TaskQueue(name=TASK_QUEUE),
                task_queue_type=TaskQueueType.TASK_QUEUE_TYPE_WORKFLOW,
            ),
            timeout=ANSWER_S,
        )
    except RPCError:
        return True
    return bool(queue.pollers)


async def follow(settings: Settings, client: Client, run: str, *, console: Console) -> MigrationResult:
    """Shows progress on this console until the run has ended, and returns what it came to.

    Raises Ended(2) where it failed or was cancelled, after saying why, and Ended(3) where it is parked until someone
    acts.
    """
    handle = client.get_workflow_handle(migration_id(run))
    rates, plain = display.Rates(), display.PlainProgress(console)
    live = Live(console=console, refresh_per_second=4, transient=False) if console.is_terminal else None
    try:
        engine: Engine | None = await Engine.open(settings.ledger, name="longhaul-starter")
    except Fault as fault:
        display.say(console, f"no counts of single videos: {fault.detail}", style="yellow")
        engine = None
    try:
        if live:
            live.start()
        said = ""
        answered = time.monotonic()
        while True:
            running = True
            try:
                described = await told(run, handle.describe(rpc_timeout=ANSWER_S))
                running = described.status == WorkflowExecutionStatus.RUNNING
                progress = await progress_of(client, run)
            except Fault as fault:
                silent = fault.code == "temporal-unreachable"
                if running:
                    if fault.code != "worker-missing" and not (silent and time.monotonic() - answered < PATIENCE_S):
                        raise
                    if said != fault.code:
                        said = fault.code
                        words = f"{fault.reason.words}; the view goes on when it answers" if silent else fault.detail
                        display.say(console, words, style="yellow")
            else:
                said, answered = "", time.monotonic()
                assets = dict(progress.assets)
                if engine is not None:
                    with contextlib.suppress(Fault):  # the ledger is out of reach for now; the run's own counts do
                        assets = dict(await questions.states(engine, run))
                lines = rates.rated(display.phase_lines(progress, assets))
                if live:
                    live.update(display.panel(progress, lines))
                else:
                    plain.show(progress, lines)
                if progress.state == "parked" and progress.park is not None and progress.park.wait_s is None:
                    raise Ended(3, "parked", progress.park.reason, progress.park.detail)
            if not running:
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
        return MigrationResult.model_validate(await told(run, handle.result()))
    except WorkflowFailureError as error:
        state, why = _end_of(error)
        words = f"run {run} was cancelled" if state == "cancelled" else f"longhaul: run {run} did not finish: {why}"
        display.say(console, words, style="red")
        raise Ended(2, state, detail=why) from None


def _end_of(error: WorkflowFailureError) -> tuple[str, str]:
    """State and words of a run that did not finish."""
    if isinstance(error.cause, CancelledError):
        return "cancelled", "cancelled when asked to"
    return "failed", _innermost(error)


def _innermost(error: BaseException) -> str:
    """The words of the failure at the bottom of Temporal's wrappings."""
    while isinstance(error, (WorkflowFailureError, FailureError)) and error.cause is not None:
        error = error.cause
    if isinstance(error, ApplicationError):
        worker = " (the worker says so: it reads its settings when it starts)"
        return error.message + (worker if error.type == "settings-refused" else "")
    return str(error) or type(error).__name__


async def write_map(
    settings: Settings, run: str, output: Path | None, *, as_json: bool = False, library: bool = False
) -> int:
    """Writes the id map of the run, or of its whole library, streamed; returns its rows.

    Raises Fault where the ledger has no such run, and then leaves the file as it was, or where it cannot be written.
    """
    columns = ["source_id", "remote_id", "state", "reason", "playback", "title", "duration_ms", "account", "ref"]
    count = 0
    async with ledger_of(settings) as engine:
        await questions.run_line(engine, run)
        try:
            with contextlib.nullcontext(sys.stdout) if output is None else _fresh(output) as file:
                writer = csv.writer(file, lineterminator="\n")
                if not as_json:
                    writer.writerow(columns)
                async for record in questions.id_map(engine, run, library=library):
                    count += 1
                    if as_json:
                        file.write(json.dumps({name: record[name] for name in columns}, ensure_ascii=False) + "\n")
                    else:
                        writer.writerow([record[name] for name in columns])
                file.flush()
        except BrokenPipeError:
            raise
        except OSError as error:
            place = "standard output" if output is None else str(output)
            raise Fault("settings-refused", f"{place} cannot be written: {error.strerror or error}") from None
    return count


def _fresh(path: Path) -> TextIO:
    return path.open("w", encoding="utf-8", newline="")
