"""Every step that the model of the create protocol takes in the ledger is taken by the SQL, with the same result.

All different steps of some explored worlds are gathered: the row before, what is done, the row after. Each is then done
in a real PostgreSQL, to a row that was put into that condition.
"""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Iterable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any

import pytest
import pytest_asyncio
from create_cases import EXACT, HOSTS, OFFSIDE, TWICE, Explored, busy, endless, explored
from create_protocol import Host, Row, Rules, State

from destinations.base import RemoteEvent, RemoteState, RemoteVideo
from faults import ROW_ATTEMPTS
from ledger import claims, inbox, listings, redrive, runs
from ledger.assets import VIDEO, ref_of
from ledger.claims import Outcome, Place
from ledger.engine import Engine
from ledger.listings import Walker
from settings import LedgerSettings
from sources.base import Item, ListedPage

REF = ref_of("t", "library", VIDEO, "v")
PLAN = ("list", "inventory", "create", "settle", "reconcile")
QUIET_S = 3_600.0
AFTERWARDS = timedelta(hours=1)

LEDGER = {
    "claim", "claim and stop", "quarantine", "write", "write in vain", "deliver", "apply waiting", "sweep", "skip",
    "take up", "redrive",
}  # fmt: skip

WORLDS = {
    "events with our reference": lambda: [busy(EXACT), endless(EXACT), explored(*TWICE)],
    "events with an id alone": lambda: [explored(HOSTS["id-only"], Rules(), replace(OFFSIDE, deleted=True))],
    "a key": lambda: [endless(HOSTS["key-late"])],
}

Step = tuple[Any, ...]


def gather(found: Explored, steps: dict[Step, Row]) -> None:
    """Adds each different step: its name, the row before and what else decides it; with the row after it."""
    for state in found.graph.states:
        free = False
        for action, after in found.model.successors(state):
            free = free or action[0] in ("claim", "quarantine")
            if action[0] in LEDGER:
                step = (action[0], state.row, *_details(found, state, action))
                assert steps.setdefault(step, after.row) == after.row
        if not free and any(worker.node < 0 for worker in state.workers):
            steps["no claim", state.row, state.cancelled] = state.row


def _details(found: Explored, state: State, action: Step) -> Iterable[Any]:
    match action[0]:
        case "write" | "write in vain":
            worker = state.workers[action[1]]
            outcome = found.model.decisions.nodes[worker.node].outcome
            assert outcome is not None
            remote_id = None if outcome.remote_id is None else f"v{worker.video}"
            return (_bare(outcome, remote_id), worker.holds)
        case "deliver" | "apply waiting" | "sweep":
            return action[1:]
    return ()


def _bare(outcome: Outcome, remote_id: str | None) -> Outcome:
    """What of an outcome decides how the row is written."""
    return Outcome(
        REF,
        outcome.state,
        outcome.outcome,
        refund=outcome.refund,
        call_open=outcome.call_open,
        remote_id=remote_id,
    )


class Rig:
    """One row, put into any condition, and what can be done to it."""

    def __init__(self, engine: Engine, host: Host, attempts: int) -> None:
        self.engine, self.host = engine, host
        self.spent = ROW_ATTEMPTS - attempts
        self._numbers = count(1)

    async def begin(self) -> None:
        await self._run("first")
        fence = await runs.open_phase(self.engine, "first", "list", None)
        assert fence is not None
        assert await listings.write_page(self.engine, self._walker("first", fence), 0, self._listed())
        fence = await runs.open_phase(self.engine, "first", "create", None)
        assert fence is not None
        self.place = Place("first", "create", 1, fence)

    async def _run(self, run: str) -> None:
        await runs.open_run(
            self.engine, run=run, tenant="t", source="library", source_spec={}, account="main", plan=PLAN
        )

    def _walker(self, run: str, fence: int) -> Walker:
        return Walker(run, "t", "library", "main", 1, 0, fence)

    def _listed(self) -> ListedPage:
        return ListedPage([Item(source_id="v", locator="https://media.example/v.mp4", position=1)], "on")

    async def put(self, row: Row) -> None:
        now = datetime.now(UTC)
        await self.engine.execute(
            "update asset set run = 'first', page = 1, state = $1, skipped_from = $2, claim = $3, claim_key = 'k',"
            # The model has no row that gave a video up for another: each step stands for itself.
            " claim_until = $4, intent_at = $5, quiet_until = $6, attempts = $7, remote_id = $8, deaths = 0,"
            " retired = '{}', facts = '{}', not_before = null, reason = null, fence = nextval('fence_number')",
            row.state,
            row.skipped_from,
            uuid.uuid4() if row.claim else None,
            {0: None, 1: now + AFTERWARDS, 2: now - AFTERWARDS}[row.claim],
            now if row.intent else None,
            now + AFTERWARDS if row.quiet else None,
            row.attempts + self.spent,
            f"v{row.video}" if row.video >= 0 else None,
        )

    async def row(self) -> Row:
        record = await self.engine.fetchrow(
            "select *, claim_until <= now() as lapsed, coalesce(quiet_until > now(), false) as quiet from asset"
        )
        assert record is not None
        return Row(
            state=record["state"],
            skipped_from=record["skipped_from"],
            claim=0 if record["claim"] is None else 2 if record["lapsed"] else 1,
            intent=record["intent_at"] is not None,
            quiet=int(record["quiet"]),
            attempts=max(0, record["attempts"] - self.spent),
            video=-1 if record["remote_id"] is None else int(record["remote_id"][1:]),
        )

    async def take(self, name: str, *details: Any) -> None:
        match name:
            case "claim" | "claim and stop":
                window = await self._claim()
                assert window is not None
            case "quarantine" | "no claim":
                if details and details[0]:
                    await self._set_run("cancelled")
                window = await self._claim()
                await self._set_run("running")
                assert window is None
            case "write" | "write in vain":
                outcome, holds = details
                fence = await self.engine.fetchval("select fence from asset")
                taken = await claims.finish(self.engine, fence if holds else fence - 1, [outcome])
                if name == "write":
                    assert taken == {REF}
            case "deliver":
                said = await inbox.receive(self.engine, "main", self._event(*details))
                assert said in ("applied", "no-effect", "waiting")
            case "apply waiting":
                before = await self.row()
                await self.put(Row())
                await self.engine.execute("delete from inbox where applied_at is null")
                video = replace(self._video(*details), ref=None)
                key = f"waits-{next(self._numbers)}"
                assert await inbox.receive(self.engine, "main", RemoteEvent(key, video)) == "waiting"
                await self.put(before)
                assert await inbox.apply_waiting(self.engine) == 1
            case "sweep":
                assert await inbox.apply(self.engine, "main", [self._video(*details)]) == 1
            case "skip":
                await runs.cancel(self.engine, "first", "a test")
                await self._set_run("running")
            case "take up":
                run = f"later-{next(self._numbers)}"
                await self._run(run)
                fence = await runs.open_phase(self.engine, run, "list", None)
                assert fence is not None
                written = await listings.write_page(self.engine, self._walker(run, fence), 0, self._listed())
                assert written is not None
                assert written.added == 1
            case "redrive":
                run = f"again-{next(self._numbers)}"
                await self._run(run)
                taken_up = await redrive.take(self.engine, run, of_run="first", reasons=[], assets=[], page_size=500)
                assert taken_up == 1
            case _:
                raise AssertionError(name)

    async def _set_run(self, state: str) -> None:
        await self.engine.execute("update run set state = $1 where run = 'first'", state)

    async def _claim(self) -> claims.Window | None:
        quiet_s = 0.0 if self.host.key else QUIET_S
        return await claims.claim(
            self.engine, self.place, worker="w", key="k", limit=25, lease_s=QUIET_S, quiet_s=quiet_s
        )

    def _video(self, n: int, says: str) -> RemoteVideo:
        return RemoteVideo(f"v{n}", REF if self.host.event_ref else None, RemoteState(says))

    def _event(self, n: int, says: str) -> RemoteEvent:
        return RemoteEvent(f"e{next(self._numbers)}", self._video(n, says), "video.state")


@pytest_asyncio.fixture
async def engine(database: str) -> AsyncIterator[Engine]:
    engine = await Engine.open(LedgerSettings(dsn=database, pool_size=2))
    yield engine
    await engine.close()


@pytest.fixture(params=WORLDS)
def worlds(request: pytest.FixtureRequest) -> list[Explored]:
    """Explored before a loop runs: the explorer drives the code's coroutines itself."""
    return WORLDS[request.param]()


async def test_the_ledger_takes_every_step_as_the_model_does(worlds: list[Explored], engine: Engine) -> None:
    steps: dict[Step, Row] = {}
    for found in worlds:
        gather(found, steps)
    assert {name for name, *_ in steps} >= {"claim", "quarantine", "no claim", "write", "write in vain", "deliver"}
    rig = Rig(engine, worlds[0].model.host, worlds[0].model.world.attempts)
    await rig.begin()
    differ = []
    for (name, before, *details), after in steps.items():
        await rig.put(before)
        await rig.take(name, *details)
        expected, seen = after._replace(quiet=min(1, after.quiet)), await rig.row()
        if name == "redrive" and seen.state == "pending":
            seen = seen._replace(state="inventoried")  # the inventory is next
        if seen != expected:
            differ.append(f"{name} {details}\n  before {before}\n  model  {expected}\n  ledger {seen}")
    assert not differ, f"{len(differ)} of {len(steps)} steps differ:\n" + "\n".join(differ[:10])
