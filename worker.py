"""The Temporal worker: `python worker.py`. Runs workflows and activities; any subset of them can be chosen."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Annotated, Any

import structlog
import typer
from temporalio.client import Client
from temporalio.common import VersioningBehavior, WorkerDeploymentVersion
from temporalio.worker import Worker, WorkerDeploymentConfig

import program
import telemetry
from activities.accounts import Accounts
from activities.attaching import AttachActivities
from activities.creating import CreateActivities
from activities.hand import Hand
from activities.interceptor import FaultInterceptor
from activities.inventory import InventoryActivities
from activities.listing import ListingActivities
from activities.pages import Bench
from activities.reconciling import ReconcileActivities, RemoteListingActivities
from activities.runs import RunActivities
from activities.settling import SettleActivities, SweepActivities
from connection import check_namespace, connect
from faults import Fault
from ledger.engine import Engine
from media.tools import ffprobe_version, find_ffprobe
from settings import KINDS, TASK_QUEUE, Settings, load_settings, task_queue
from workflows.calls import PAGE_QUEUE
from workflows.interceptor import crossing_interceptors
from workflows.migration import MigrationWorkflow
from workflows.page import PageWorkflow
from workflows.stripe import ListStripeWorkflow

WORKFLOWS = "workflows"
ROLES = (WORKFLOWS, *KINDS)
DEPLOYMENT = "longhaul"
"""The worker deployment that all builds of these workers belong to."""
SHORT_ACTIVITIES = 20
"""Short ledger questions that one process answers side by side."""
STICKY_S = 2.0
"""Seconds that a workflow's next task waits for the worker that has the workflow in memory, before any other may take
and replay it. A dead worker costs a page this time, and then its run: with the SDK's 10 s, 20 s together."""


@dataclass(frozen=True, slots=True)
class Fleet:
    """The workers of one process, by role, and what they share."""

    workers: Sequence[Worker]
    engine: Engine


def activities_of(kind: str, bench: Bench, settings: Settings, accounts: Accounts) -> Sequence[Callable[..., Any]]:
    """The activities that one kind of worker registers."""
    match kind:
        case "ledger":
            run = RunActivities(bench.engine, settings)
            return [
                run.open_run,
                run.advance,
                run.check_listing,
                run.take_dead_letters,
                run.set_run_state,
                run.set_pace,
                run.cancel_run,
                run.estimate,
                run.finish_run,
                SettleActivities(bench.engine, settings).settle_page,
                ReconcileActivities(bench).reconcile_page,
            ]
        case "probe":
            return [
                ListingActivities(bench.engine, settings).list_pages,
                InventoryActivities(bench, settings, accounts).inventory_page,
            ]
        case "provider":
            return [
                CreateActivities(bench, settings, accounts).create_page,
                SweepActivities(bench.engine, settings, accounts).sweep_page,
                RemoteListingActivities(bench.engine, settings, accounts).list_remote,
                AttachActivities(bench, settings, accounts).attach_page,
            ]
    raise ValueError(f"no such kind of worker: {kind}")


@asynccontextmanager
async def running(settings: Settings, client: Client, *, roles: Sequence[str] = ROLES) -> AsyncIterator[Fleet]:
    """Runs the workers of these roles; on leaving, finishes what is in hand within the settings' time.

    Raises Fault where the ledger's schema, the namespace or the search attributes are not right, or ffprobe is needed
    and there is none.
    """
    await check_namespace(client, settings)
    if "probe" in roles:
        ffprobe = find_ffprobe(settings.media.ffprobe)
        structlog.get_logger().info("probes with", ffprobe=str(ffprobe), version=await ffprobe_version(ffprobe))
    async with AsyncExitStack() as stack:
        engine = await Engine.open(settings.ledger, name="longhaul-worker")
        stack.push_async_callback(engine.close)
        accounts = Accounts(engine, settings)
        stack.push_async_callback(accounts.aclose)
        identity = f"{os.getpid()}@{socket.gethostname()}"
        bench = Bench(engine, Hand(settings.worker.rows_in_hand), settings.worker, identity)
        workers = []
        for queue, workflows, activities in _shares(roles, bench, settings, accounts):
            paged = queue in (task_queue("probe"), task_queue("provider"))
            worker = Worker(
                client,
                task_queue=queue,
                workflows=workflows,
                activities=activities,
                interceptors=[FaultInterceptor(), *crossing_interceptors()],
                identity=identity,
                deployment_config=_deployment(settings, queue),
                max_concurrent_activities=settings.worker.pages_at_once if paged else SHORT_ACTIVITIES,
                graceful_shutdown_timeout=timedelta(seconds=settings.worker.shutdown_s),
                sticky_queue_schedule_to_start_timeout=timedelta(seconds=STICKY_S),
                # A rate limit on a task queue would be bypassed by eager activities.
                disable_eager_activity_execution=True,
            )
            workers.append(await stack.enter_async_context(worker))
        try:
            yield Fleet(workers, engine)
        finally:
            # Together: one after the other, the last would still claim rows while the first finishes its own, and each
            # would have the whole time for itself.
            await asyncio.gather(*(worker.shutdown() for worker in workers))


def _shares(
    roles: Sequence[str], bench: Bench, settings: Settings, accounts: Accounts
) -> Sequence[tuple[str, Sequence[type], Sequence[Callable[..., Any]]]]:
    """Task queue, workflows and activities of each worker that these roles need."""
    shares: list[tuple[str, Sequence[type], Sequence[Callable[..., Any]]]] = []
    for role in roles:
        if role == WORKFLOWS:
            shares += [(TASK_QUEUE, [MigrationWorkflow], []), (PAGE_QUEUE, [PageWorkflow, ListStripeWorkflow], [])]
        else:
            shares.append((task_queue(role), [], activities_of(role, bench, settings, accounts)))
    return shares


def _deployment(settings: Settings, queue: str) -> WorkerDeploymentConfig | None:
    """The worker deployment that this build belongs to, where the settings give it an id. The newest build takes new
    work once it is made current: `temporal worker deployment set-current-version`.

    A page is short and ends on the build that began it. A run lasts for days and moves to the newest: changes to its
    commands are made under patches.
    """
    if settings.worker.build_id is None:
        return None
    return WorkerDeploymentConfig(
        version=WorkerDeploymentVersion(deployment_name=DEPLOYMENT, build_id=settings.worker.build_id),
        use_worker_versioning=True,
        default_versioning_behavior=(
            VersioningBehavior.PINNED if queue == PAGE_QUEUE else VersioningBehavior.AUTO_UPGRADE
        ),
    )


async def serve(settings: Settings, roles: Sequence[str]) -> None:
    """Runs until SIGTERM or SIGINT."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    client = await connect(settings, "worker")
    log = structlog.get_logger()
    async with running(settings, client, roles=roles):
        log.info("worker ready", roles=",".join(roles), temporal=settings.temporal_profile.address)
        await stop.wait()
        log.info("worker stopping: finishes the rows in hand", within_s=settings.worker.shutdown_s)
    log.info("worker stopped")


def main(
    roles: Annotated[
        list[str] | None,
        typer.Argument(
            help=f"What to run: any of {', '.join(ROLES)}; all by default. 'probe' needs ffprobe and the sources, "
            "'provider' the destinations.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Run the Temporal worker. SIGTERM finishes the rows in hand, hands back the rest and ends."""
    chosen = tuple(roles or ROLES)
    wrong = [role for role in chosen if role not in ROLES]
    if wrong:
        raise typer.BadParameter(f"no such role: {', '.join(wrong)}; choose from {', '.join(ROLES)}")
    try:
        settings = load_settings()
        telemetry.configure_logging(settings.telemetry, "worker")
        asyncio.run(serve(settings, chosen))
    except Fault as fault:
        sys.exit(f"longhaul worker: {fault.detail or fault.reason.words}")
    finally:
        telemetry.flush()


if __name__ == "__main__":
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)
    app.command()(main)
    program.run(app)
