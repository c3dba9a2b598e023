"""A fleet on which one crossing after another is played: a process kills itself there, another takes its place."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import shutil
import signal
import sys
import time
from collections import Counter, deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

from temporalio.client import WorkflowExecutionStatus, WorkflowFailureError, WorkflowHandle, WorkflowUpdateStage
from temporalio.service import RPCError

from benchmarks.fleet import Fleet
from crossings import CRASH_VARIABLE
from devstack.processes import Child, launch, log_tail
from media.tools import bundled_ffprobe

VIDEOS = 6
HAND = 4
VARIABLES = {
    "LONGHAUL_ACCOUNTS__SANDBOX__TIMEOUT_S": "2",
    "LONGHAUL_ACCOUNTS__SANDBOX__QUIET_S": "4",
    "LONGHAUL_ACCOUNTS__SANDBOX__SETTLE_DEADLINE_S": "4",
    "LONGHAUL_ACCOUNTS__SANDBOX__OPTIONS__CAPTIONS_PATH": "/v1/videos/{id}/captions/{language}",
    "LONGHAUL_ACCOUNTS__SANDBOX__OPTIONS__UPLOADS": "tus",
    "LONGHAUL_ACCOUNTS__SANDBOX__OPTIONS__UPLOADS_CHUNK_BYTES": "4096",
    "LONGHAUL_WORKER__LEASE_S": "5",
    "LONGHAUL_WORKER__ROWS_IN_HAND": str(HAND),
    "LONGHAUL_ENDPOINT__RELAY_INTERVAL_S": "0.05",
    # The one that starts fastest.
    **({"LONGHAUL_MEDIA__FFPROBE": str(bundled)} if (bundled := bundled_ffprobe()) else {}),
}
GATED = Path(__file__).with_name("gated.py")
WORKER, ENDPOINT = "worker-0", "endpoint"
PROGRAMS = {WORKER: "worker", ENDPOINT: "webhook"}
AHEAD = 2

Handle = WorkflowHandle[Any, Any]


@dataclass(frozen=True)
class Scenario:
    """What a run must meet for its process to come to a crossing.

    `given` are fields of the run's input, `faults` the sandbox's switches, `earlier` points at which other processes
    die before. `prepare` runs before everything, `meanwhile` beside the process that is to die, `afterwards` once the
    next one has been started; `verify` awaits the run's end and returns the states that count.
    """

    program: str = WORKER
    given: Mapping[str, Any] = field(default_factory=dict)
    faults: Mapping[str, Any] = field(default_factory=dict)
    earlier: Sequence[str] = ()
    prepare: Callable[[Stage], Awaitable[None]] | None = None
    meanwhile: Callable[[Stage], Awaitable[None]] | None = None
    afterwards: Callable[[Stage], Awaitable[None]] | None = None
    verify: Callable[[Stage], Awaitable[dict[str, int]]] | None = None


@dataclass
class Stage:
    """One run on one lane. `given` may be changed before it begins."""

    lane: Lane
    run: str
    given: dict[str, Any]
    handle: Handle | None = None
    dead: list[int] = field(default_factory=list)

    @property
    def fleet(self) -> Fleet:
        return self.lane.fleet

    async def begin(self) -> Handle:
        self.handle = await self.fleet.begin(
            self.run,
            self.fleet.folder / f"{self.run}.csv",
            page_size=3,
            heartbeat_s=1,
            task_timeout=timedelta(seconds=2),
            tenant=self.lane.tenant,
            **self.given,
        )
        return self.handle

    async def result(self) -> dict[str, Any]:
        assert self.handle is not None
        result: dict[str, Any] = await asyncio.wait_for(self.handle.result(), 90)
        return result

    async def state(self) -> str | None:
        found: str | None = await self.fleet.engine.fetchval("select state from run where run = $1", self.run)
        return found


@dataclass
class Lane:
    """`starts` are all processes that the lane will need, in order; the next few are imported ahead."""

    fleet: Fleet
    starts: deque[tuple[str, str | None]]
    tenant: str = "acme"
    _waiting: deque[tuple[str, str | None, Child, Path]] = field(default_factory=deque)
    _count: int = 0
    _gone: int = 0

    @classmethod
    @contextlib.asynccontextmanager
    async def running(cls, starts: Sequence[tuple[str, str | None]]) -> AsyncIterator[Lane]:
        async with Fleet.running(variables=VARIABLES, faults={"ingest": "synthesize"}) as fleet:
            fleet.video()
            lane = cls(fleet, deque(starts))
            try:
                yield lane
            finally:
                for _, _, child, _ in lane._waiting:
                    child.kill()
                for name in PROGRAMS:
                    fleet.kill(name)

    def prepare(self) -> None:
        while self.starts and len(self._waiting) < AHEAD:
            name, point = self.starts.popleft()
            self._count += 1
            gate = self.fleet.folder / f"gate-{self._count}"
            spec = self.fleet.spec(name, **({} if point is None else {CRASH_VARIABLE: point}))
            spec = dataclasses.replace(spec, argv=[sys.executable, "-u", str(GATED), str(gate), PROGRAMS[name]])
            child = launch(spec, self.fleet.folder / f"{name}-{self._count}.log")
            self._waiting.append((name, point, child, gate))

    def next(self, name: str, point: str | None) -> Child:
        """Lets the next process go, which must be this one."""
        self.prepare()
        self._gone += 1
        *expected, child, gate = self._waiting.popleft()
        assert expected == [name, point]
        gate.touch()
        self.fleet.children[name] = child
        self.prepare()
        return child

    async def play(self, point: str, scenario: Scenario, run: str) -> Stage:
        """Has a process die at the point and another go on; returns when the run has ended as it should."""
        self.tenant, self._gone = run, 0
        stage = Stage(self, run, dict(scenario.given))
        name = scenario.program
        await self.fleet.set_faults(**scenario.faults)
        address = f"{self.fleet.url('files')}/good.mp4"
        self.manifest(run, address)
        if scenario.prepare is not None:
            await scenario.prepare(stage)
        # In order: a killed one's open polls could swallow the run's first task for a while.
        await asyncio.to_thread(self.fleet.children.pop(name).stop)
        await stage.begin()
        beside = asyncio.create_task(scenario.meanwhile(stage)) if scenario.meanwhile else None
        for where in (*scenario.earlier, point):
            child = self.next(name, where)
            await self.death(child, where, stage)
        if beside is not None:
            await beside
        self.next(name, None)
        if scenario.afterwards is not None:
            await scenario.afterwards(stage)
        states = (await stage.result())["states"] if scenario.verify is None else await scenario.verify(stage)
        assert states == {"verified": VIDEOS}
        await self.check(stage)
        return stage

    async def recover(self, starts: Sequence[tuple[str, str | None]]) -> None:
        """After a case that failed: ends its run, and has the program running again."""
        for execution in [e async for e in self.fleet.client.list_workflows("ExecutionStatus = 'Running'")]:
            with contextlib.suppress(RPCError):
                await self.fleet.client.get_workflow_handle(execution.id).terminate("its case failed")
        for name, point in starts[self._gone :]:
            self.fleet.kill(name)
            self.next(name, point)

    def manifest(self, run: str, address: str, *, caption: str | None = None) -> None:
        """Rows of one video each, under addresses of their own, or with one path for all; with `caption`, the address
        of their text track too."""
        local = address.startswith("/")
        rows = [[f"{run}-{n}", address if local else f"{address}?v={n}"] for n in range(VIDEOS)]
        head = ["id", "url"]
        if caption is not None:
            head.append("captions.en")
            rows = [[*row, caption] for row in rows]
        text = "".join(",".join(row) + "\n" for row in [head, *rows])
        (self.fleet.folder / f"{run}.csv").write_text(text, encoding="utf-8")

    async def death(self, child: Child, point: str, stage: Stage) -> None:
        """Waits until the process has killed itself; fails where the run gets by without."""
        deadline = time.monotonic() + 60
        assert stage.handle is not None
        while (code := child.exit_code()) is None:
            ended = (await stage.handle.describe()).status != WorkflowExecutionStatus.RUNNING
            assert not ended, f"the run ended and {point} was never reached"
            assert time.monotonic() < deadline, f"{point} was not reached within a minute"
            await asyncio.sleep(0.05)
        assert code == -signal.SIGKILL, f"at {point} it ended with {code}:\n" + "\n".join(log_tail(child.log))
        stage.dead.append(child.pid)

    async def check(self, stage: Stage) -> None:
        """Nothing made twice, nothing lost, no more worked again than one process may have in hand."""
        stats = await self.fleet.stats()
        assert stats["duplicates_ever"] == 0
        assert stats["videos"]["processing"] == stats["videos"]["errored"] == 0
        engine = self.fleet.engine
        left = await engine.fetch(
            "select ref, state from asset where tenant = $1 and (state <> 'verified' or claim is not null"
            " or remote_id is null)",
            self.tenant,
        )
        assert left == []
        for pid in stage.dead:
            redone = await engine.fetchval(
                # Of this case's rows: in so many processes a pid comes again.
                "select count(*) from step s join asset a using (ref) where a.tenant = $2 and s.worker like $1"
                " and (s.outcome is null or s.outcome in ('lost', 'overtaken'))",
                f"{pid}@%",
                self.tenant,
            )
            assert redone <= HAND
        # A death costs a row one attempt and a look-up; what was handed back had not been begun.
        steps = await engine.fetch(
            "select s.run, s.ref, s.phase, s.attempt, s.worker, s.outcome, s.reason, s.started_at::text"
            " from step s join asset a using (ref)"
            " where a.tenant = $1 and s.outcome is distinct from 'handed-back' order by s.started_at",
            self.tenant,
        )
        for looked_up in (True, False):
            chosen = [step for step in steps if (step["outcome"] == "looked-up") is looked_up]
            counts = Counter((step["run"], step["ref"], step["phase"]) for step in chosen)
            for row, count in counts.most_common(1):
                often = [dict(step) for step in steps if (step["run"], step["ref"], step["phase"]) == row]
                assert count <= 2 + len(stage.dead) - looked_up, often


async def when_asked(stage: Stage, state: str) -> None:
    """Returns when the ledger has the run in this state."""
    async with asyncio.timeout(60):
        while await stage.state() != state:
            await asyncio.sleep(0.05)


async def approve(stage: Stage) -> None:
    assert stage.handle is not None
    await stage.handle.signal("approve", {})


async def approve_late(stage: Stage) -> None:
    await when_asked(stage, "awaiting-approval")
    await approve(stage)


async def cancel_at_approval(stage: Stage) -> None:
    await when_asked(stage, "awaiting-approval")
    assert stage.handle is not None
    await stage.handle.cancel()


async def cancelled_and_taken_up(stage: Stage) -> dict[str, int]:
    """The cancelled run ends as cancelled, and a later one takes up what it left."""
    try:
        await stage.result()
    except WorkflowFailureError:
        pass
    else:
        raise AssertionError("a cancelled run ends as cancelled")
    assert await stage.state() == "cancelled"
    later = Stage(stage.lane, f"{stage.run}-again", {})
    shutil.copy(stage.fleet.folder / f"{stage.run}.csv", stage.fleet.folder / f"{later.run}.csv")
    await later.begin()
    states: dict[str, int] = (await later.result())["states"]
    return states


async def caption_all(stage: Stage) -> None:
    """Each video has a text track."""
    fleet = stage.fleet
    (fleet.folder / "media" / "en.srt").write_text("1\n00:00:00,000 --> 00:00:01,000\nHello\n", encoding="utf-8")
    files = fleet.url("files")
    stage.lane.manifest(stage.run, f"{files}/good.mp4", caption=f"{files}/en.srt")


async def captioned(stage: Stage) -> dict[str, int]:
    """Each video's text track is on it."""
    states: dict[str, int] = (await stage.result())["states"]
    rows = await stage.fleet.engine.fetch("select ref from asset where tenant = $1", stage.lane.tenant)
    refs = {row["ref"] for row in rows}
    found = [video["captions"] for video in await stage.fleet.videos() if video["reference"] in refs]
    assert found == [["en"]] * VIDEOS
    return states


async def send_all(stage: Stage) -> None:
    """The files are on the workers' machine alone."""
    stage.lane.manifest(stage.run, str(stage.fleet.folder / "media" / "good.mp4"))


async def sent(stage: Stage) -> dict[str, int]:
    """Every file has come, and no place to go on from is left."""
    states: dict[str, int] = (await stage.result())["states"]
    rows = await stage.fleet.engine.fetch("select ref, transfer from asset where tenant = $1", stage.lane.tenant)
    assert [row["transfer"] for row in rows] == [None] * VIDEOS
    return states


async def set_pace(stage: Stage) -> None:
    """A person's wish; whether it was heard is asked afterwards."""
    assert stage.handle is not None
    await when_asked(stage, "awaiting-approval")
    await stage.handle.start_update("pace", {"per_s": 500.0}, wait_for_stage=WorkflowUpdateStage.ACCEPTED)


async def pace_is_set(stage: Stage) -> None:
    assert stage.handle is not None
    async with asyncio.timeout(60):
        while (await stage.handle.execute_update("pace", {}))["per_s"] != 500.0:
            await asyncio.sleep(0.1)
    await approve(stage)


async def reject_all(stage: Stage) -> None:
    """A run whose files are not there yet; then they are, and its dead letters are to be taken up."""
    fleet, lane = stage.fleet, stage.lane
    first = Stage(lane, f"{stage.run}-first", {})
    lane.manifest(first.run, f"{fleet.url('files')}/{stage.run}.mp4")
    shutil.copy(fleet.folder / f"{first.run}.csv", fleet.folder / f"{stage.run}.csv")
    await first.begin()
    assert (await first.result())["states"] == {"rejected": VIDEOS}
    shutil.copy(fleet.folder / "media" / "good.mp4", fleet.folder / "media" / f"{stage.run}.mp4")
    stage.given["redrive"] = {"of_run": first.run}
