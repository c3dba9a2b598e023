"""Claims: each row goes to one worker, in order, under a higher fence; what a dead worker held is taken over."""

from __future__ import annotations

import asyncio
from typing import Any

import asyncpg
import pytest
from ledger_rig import Library, until

from faults import ROW_ATTEMPTS
from ledger import claims, runs
from ledger.claims import Place
from ledger.engine import Engine


class LosesItsConnection(Engine):
    """Loses the connection once, after the server has done its work and before its answer arrives."""

    lost = False

    async def run(self, work: Any) -> Any:
        async def cut(connection: Any) -> Any:
            answer = await work(connection)
            if not self.lost:
                self.lost = True
                raise asyncpg.ConnectionDoesNotExistError("connection was closed in the middle of operation")
            return answer

        return await super().run(cut)


def losing(engine: Engine) -> Engine:
    return LosesItsConnection(engine._pool, "postgresql://ledger")


async def test_eight_claimers_get_each_of_a_thousand_rows_once(library: Library, open_engine) -> None:
    await library.fill(1000)
    first = await library.open("inventory", page=1)
    engines = [await open_engine() for _ in range(8)]
    fences: list[int] = []
    got: list[str] = []

    async def claimer(number: int) -> None:
        for page in (1, 2):
            place = Place(first.run, first.phase, page, first.fence)
            mine: list[int] = []
            while window := await claims.claim(
                engines[number], place, worker=f"w{number}", key=f"k{number}", limit=7, lease_s=60
            ):
                mine.append(window.fence)
                got.extend(row.ref for row in window.rows)
                assert [row.position for row in window.rows] == sorted(row.position for row in window.rows)
            assert mine == sorted(mine)
            fences.extend(mine)

    await asyncio.gather(*(claimer(number) for number in range(8)))
    assert sorted(got) == sorted(library.refs)
    assert len(set(fences)) == len(fences)
    rows = await library.engine.fetch("select attempts, deaths, claimed_by, fence from asset")
    assert {(row["attempts"], row["deaths"]) for row in rows} == {(1, 0)}
    assert {row["fence"] for row in rows} == set(fences)
    assert len({row["claimed_by"] for row in rows}) > 1, "they did work side by side"
    assert await library.engine.fetchval("select count(*) from step where outcome is null") == 1000


async def test_rows_are_claimed_in_the_order_of_their_positions(library: Library) -> None:
    await library.fill(12)
    place = await library.open("inventory")
    positions = []
    while window := await library.claim(place, 5):
        positions += [row.position for row in window.rows]
    assert positions == list(range(12))


@pytest.mark.parametrize("state", ["paused", "parked", "awaiting-approval", "cancelled", "finished", "failed"])
async def test_a_run_that_does_not_run_gives_out_nothing(library: Library, state: str) -> None:
    await library.fill(1)
    place = await library.open("inventory")
    await library.engine.execute("update run set state = $1", state)
    assert await library.claim(place) is None
    await library.engine.execute("update run set state = 'running'")
    assert await library.claim(place) is not None


async def test_a_phase_that_someone_else_has_opened_since_gives_out_nothing(library: Library) -> None:
    await library.fill(1)
    old = await library.open("inventory")
    new = await library.open("inventory")
    assert new.fence > old.fence
    assert await library.claim(old) is None
    assert await library.claim(new) is not None


async def test_a_closed_phase_gives_out_nothing(library: Library) -> None:
    await library.fill(1)
    place = await library.open("inventory")
    await library.engine.execute("update phase set closed_at = now() where phase = 'inventory'")
    assert await library.claim(place) is None


async def test_a_phase_gives_out_only_the_rows_it_is_about(library: Library) -> None:
    await library.fill(3)
    await library.put(library.refs[:1], state="inventoried")
    await library.put(library.refs[1:2], state="ready")
    assert [row.position for row in (await library.claimed(await library.open("inventory"))).rows] == [2]
    assert [row.position for row in (await library.claimed(await library.open("create"))).rows] == [0]
    assert [row.position for row in (await library.claimed(await library.open("reconcile"))).rows] == [1]


async def test_a_claim_sent_again_after_a_lost_connection_gives_the_same_rows_and_counts_once(
    library: Library,
) -> None:
    await library.fill(8)
    place = await library.open("inventory")
    # Rows before those that the lost claim got come free before it is sent again.
    before = await library.claimed(place, 3)
    lossy = losing(library.engine)
    window = await claims.claim(lossy, place, worker="w", key="k", limit=3, lease_s=60)
    assert window is not None
    assert [row.position for row in window.rows] == [3, 4, 5]
    assert {row.attempts for row in window.rows} == {1}
    assert lossy.statements == 2
    for row in window.rows:
        assert len(await library.steps(row.ref)) == 1
    await library.finish(before, state="pending", outcome="handed-back", refund=True)
    assert await library.finish(window, state="inventoried", outcome="inventoried") == {r.ref for r in window.rows}


async def test_a_create_claim_sent_again_is_taken_for_an_open_call(library: Library) -> None:
    """Nobody can tell any more whether an earlier intent stood: looking up first is always right."""
    await library.fill(1, state="inventoried")
    place = await library.open("create")
    window = await claims.claim(losing(library.engine), place, worker="w", key="k", limit=3, lease_s=60, quiet_s=30)
    assert window is not None
    assert [(row.state, row.intent, row.attempts) for row in window.rows] == [("creating", True, 1)]


async def test_a_claim_can_be_taken_over_when_its_lease_has_passed_and_the_death_is_counted(library: Library) -> None:
    await library.fill(1)
    place = await library.open("inventory")
    dead = await library.claimed(place, worker="dead")
    assert await library.claim(place) is None, "while the lease lasts it is nobody else's"
    await library.lapse()
    heir = await library.claimed(place, worker="heir")
    assert heir.fence > dead.fence
    assert [(row.attempts, row.deaths) for row in heir.rows] == [(2, 1)]
    first, second = await library.steps()
    assert (first["worker"], first["outcome"], first["reason"]) == ("dead", "lost", "worker-died")
    assert first["ended_at"] is not None
    assert (second["worker"], second["outcome"], second["attempt"]) == ("heir", None, 2)


async def test_the_next_attempt_of_an_execution_need_not_wait_for_the_lease_of_its_dead_one(library: Library) -> None:
    await library.fill(2)
    place = await library.open("inventory")
    await library.claimed(place, 1, key="mine")
    await library.claimed(place, 1, key="another's")
    await claims.expire(library.engine, place, "mine")
    window = await library.claimed(place)
    assert [row.position for row in window.rows] == [0]
    assert await library.claim(place) is None, "the other execution's claim stands"


async def test_a_create_is_nobodys_while_its_call_could_still_land_though_its_lease_has_passed(
    library: Library,
) -> None:
    await library.fill(1, state="inventoried")
    place = await library.open("create")
    await library.claimed(place, key="mine", quiet_s=60.0)
    await claims.expire(library.engine, place, "mine")
    assert await library.claim(place) is None
    left = await claims.left(library.engine, place)
    assert left.rows == 1
    assert 30 < left.wait_s <= 60
    await library.put(library.refs, quiet_until=None)
    assert [(row.state, row.intent) for row in (await library.claimed(place)).rows] == [("creating", True)]


async def test_a_create_claim_is_the_intent(library: Library) -> None:
    await library.fill(1, state="inventoried")
    window = await library.claimed(await library.open("create"), quiet_s=30.0)
    assert [(row.state, row.intent) for row in window.rows] == [("inventoried", False)]
    row = await library.row()
    assert row["state"] == "creating"
    assert row["intent_at"] is not None
    assert row["quiet_until"] > row["intent_at"]


async def test_a_row_with_a_later_time_waits_for_it(library: Library) -> None:
    await library.fill(2)
    place = await library.open("inventory")
    window = await library.claimed(place)
    await library.finish(window, state="pending", outcome="again", reason="source-busy", wait_s=50)
    assert await library.claim(place) is None
    left = await claims.left(library.engine, place)
    assert left.rows == 2
    assert 20 < left.wait_s <= 50
    [page] = await runs.pages_left(library.engine, library.run, "inventory", after=0, limit=10)
    assert page.page == 1
    assert 20 < page.wait_s <= 50
    await library.put(library.refs[:1], not_before=None)
    assert (await claims.left(library.engine, place)).wait_s == 0, "one of them may be worked now"


async def test_rows_that_others_work_on_are_waited_for_and_not_stumbled_over(library: Library) -> None:
    await library.fill(1)
    place = await library.open("inventory")
    await library.claimed(place, lease_s=40)
    left = await claims.left(library.engine, place)
    assert left.rows == 1
    assert 10 < left.wait_s <= 40


async def test_a_row_that_kills_its_workers_ends_by_itself_and_its_neighbours_finish(library: Library) -> None:
    await library.fill(5)
    poison = library.refs[1]
    place = await library.open("inventory")
    kills = 0

    async def work_until_dead() -> None:
        """Claims all it can, then works row by row, as one process does that dies at the poisonous one."""
        nonlocal kills
        hand = []
        while window := await library.claim(place, 5):
            hand.append(window)
        for window in hand:
            for row in window.rows:
                if row.ref == poison:
                    kills += 1
                    await library.lapse()
                    return
                await claims.finish(
                    library.engine, window.fence, [claims.Outcome(row.ref, "inventoried", "inventoried")]
                )

    async def over() -> bool:
        await work_until_dead()
        return (await library.states()).get("pending", 0) == 0

    await until(over)
    assert await library.states() == {"inventoried": 4, "failed": 1}
    row = await library.row(poison)
    assert (row["state"], row["reason"], row["attempts"]) == ("failed", "worker-died", ROW_ATTEMPTS)
    assert kills == ROW_ATTEMPTS
    assert [step["outcome"] for step in await library.steps(poison)] == ["lost"] * ROW_ATTEMPTS


async def test_a_row_whose_workers_died_is_worked_last_and_alone(library: Library) -> None:
    await library.fill(4)
    await library.put(library.refs[:2], deaths=claims.ALONE_AFTER)
    place = await library.open("inventory")
    healthy = await library.claimed(place)
    assert [row.position for row in healthy.rows] == [2, 3]
    assert await library.claim(place) is None, "not while others of its page would die with it"
    await library.finish(healthy, state="inventoried", outcome="inventoried")
    suspect = await library.claimed(place)
    assert [row.position for row in suspect.rows] == [0]
    assert await library.claim(place) is None
    await library.finish(suspect, state="inventoried", outcome="inventoried")
    assert [row.position for row in (await library.claimed(place)).rows] == [1]


async def test_a_reconciled_video_whose_workers_died_is_for_a_person_and_stays_made(library: Library) -> None:
    await library.fill(1, state="ready")
    place = await library.open("reconcile")
    await library.claimed(place)
    await library.put(library.refs, attempts=ROW_ATTEMPTS)
    await library.lapse()
    assert await library.claim(place) is None
    row = await library.row()
    assert (row["state"], row["reason"]) == ("mismatched", "worker-died")
