"""Runs: who owns what, the barrier between phases, and what ends and begins again."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ledger_rig import (
    ACCOUNT,
    Library,
    begin,
    item,
    items,
    ref,
    somebody_waits_for_a_lock,
    until,
    video,
    walker,
    write,
)

from destinations.base import RemoteState
from faults import Fault
from ledger import inbox, listings, questions, runs
from ledger.assets import VIDEO, ref_of
from ledger.engine import Engine
from ledger.listings import Written
from ledger.transitions import UNFINISHED

# ------------------------------------------------------------------------------------------------------ references


def test_a_reference_is_the_same_for_ever() -> None:
    assert ref_of("acme", "library", "video", "v1") == "lh-a7qaeqel7f7rzhos33q6km2tb3"


def test_a_reference_fits_every_hosts_field() -> None:
    made = ref_of("a" * 500, "b", VIDEO, "naïve 日本 \ud800 \0")
    assert len(made) == 29
    assert made.startswith("lh-")
    assert made.isascii() and made == made.lower()


@given(st.lists(st.text(alphabet="ab/\0|:1", max_size=4), min_size=4, max_size=4), st.data())
def test_no_two_assets_run_into_one_reference(parts: list[str], data: st.DataObject) -> None:
    other = data.draw(st.lists(st.text(alphabet="ab/\0|:1", max_size=4), min_size=4, max_size=4))
    assert (ref_of(*parts) == ref_of(*other)) == (parts == other)


def test_where_one_part_ends_and_the_next_begins_counts() -> None:
    quadruples = [("ab", "c", "d", "e"), ("a", "bc", "d", "e"), ("a", "b", "cd", "e"), ("", "abc", "d", "e")]
    quadruples += [("ab", "c", "", "de"), ("ab\0c", "", "d", "e"), ("ab", "c", "d", "e\0")]
    assert len({ref_of(*quadruple) for quadruple in quadruples}) == len(quadruples)


# ------------------------------------------------------------------------------------------------------ the barrier


async def test_of_two_finishers_one_closes_the_phase(library: Library, open_engine) -> None:
    await begin(library.engine)
    engines = [await open_engine(), await open_engine()]
    for round_ in range(40):
        fence = await runs.open_phase(library.engine, "first", f"round-{round_}", None)
        await library.engine.execute("update phase set phase = 'create' where phase = $1", f"round-{round_}")
        won = await asyncio.gather(*(runs.close_phase(engine, "first", "create", fence) for engine in engines))
        assert sorted(won) == [False, True]
        await library.engine.execute("update phase set phase = $1 where phase = 'create'", f"done-{round_}")


async def test_of_two_openers_only_the_newer_can_close(library: Library) -> None:
    await begin(library.engine)
    older = await runs.open_phase(library.engine, "first", "inventory", None)
    newer = await runs.open_phase(library.engine, "first", "inventory", None)
    assert older is not None and newer is not None and newer > older
    assert not await runs.holds(library.engine, "first", "inventory", older)
    assert not await runs.close_phase(library.engine, "first", "inventory", older)
    assert not await runs.is_closed(library.engine, "first", "inventory")
    assert await runs.holds(library.engine, "first", "inventory", newer)
    assert await runs.close_phase(library.engine, "first", "inventory", newer)
    assert not await runs.close_phase(library.engine, "first", "inventory", newer), "once"
    assert await runs.open_phase(library.engine, "first", "inventory", None) is None, "closed for good"


@pytest.mark.parametrize(
    ("phase", "state"),
    [
        ("inventory", "pending"),
        ("create", "inventoried"),
        ("create", "creating"),
        ("settle", "processing"),
        ("reconcile", "ready"),
    ],
)
async def test_a_phase_stays_open_while_one_asset_is_left_in_it(library: Library, phase: str, state: str) -> None:
    await library.fill(3, state="verified")
    await library.put(library.refs[1:2], state=state)
    place = await library.open(phase)
    assert not await runs.close_phase(library.engine, "first", phase, place.fence)
    await library.put(library.refs[1:2], state="rejected")
    assert await runs.close_phase(library.engine, "first", phase, place.fence)


async def test_another_runs_assets_keep_no_phase_open(library: Library) -> None:
    await library.fill(1)
    await begin(library.engine, "second")
    fence = await runs.open_phase(library.engine, "second", "inventory", None)
    assert fence is not None
    assert await runs.close_phase(library.engine, "second", "inventory", fence)


async def test_a_phase_opens_after_the_one_before_has_closed(library: Library) -> None:
    await begin(library.engine)
    assert await runs.open_phase(library.engine, "first", "inventory", "list") is None, "not even opened"
    by = await walker(library.engine)
    assert await runs.open_phase(library.engine, "first", "inventory", "list") is None, "open"
    await write(library.engine, by, 0, [], next_cursor=None)
    assert await runs.close_phase(library.engine, "first", "list", by.fence)
    assert await runs.open_phase(library.engine, "first", "inventory", "list") is not None


async def test_the_listing_cannot_close_before_anything_was_listed(library: Library) -> None:
    await begin(library.engine)
    by = await walker(library.engine)
    assert not await runs.close_phase(library.engine, "first", "list", by.fence)
    await write(library.engine, by, 0, [], next_cursor=None)
    assert await runs.close_phase(library.engine, "first", "list", by.fence), "an empty library was listed"


async def test_the_listing_closes_after_a_page_that_is_being_written_or_refuses_it(
    library: Library, connection
) -> None:
    """Whoever is second waits for the first: no page arrives behind a closed barrier."""
    await begin(library.engine)
    by = await walker(library.engine)
    await write(library.engine, by, 0, items(range(2)))
    transaction = connection.transaction()
    await transaction.start()
    await connection.execute("update phase set closed_at = now() where phase = 'list'")
    late = asyncio.create_task(write(library.engine, by, 1, items(range(2, 4))))
    await until(lambda: somebody_waits_for_a_lock(library.engine))
    await transaction.commit()
    assert await late is None
    assert await library.states() == {"pending": 2}


async def test_the_pages_that_a_phase_has_left_are_named_in_order(library: Library) -> None:
    await library.fill(10, page_size=2)
    await library.put([ref(2), ref(3)], state="inventoried")
    left = await runs.pages_left(library.engine, "first", "inventory", after=0, limit=10)
    assert [(page.page, page.wait_s) for page in left] == [(1, 0), (3, 0), (4, 0), (5, 0)]
    left = await runs.pages_left(library.engine, "first", "inventory", after=1, limit=2)
    assert [page.page for page in left] == [3, 4]


# ------------------------------------------------------------------------------------------------------ ownership


async def test_two_runs_that_list_the_same_items_at_once_own_each_once(library: Library, open_engine) -> None:
    engines = {"first": await open_engine(), "second": await open_engine()}
    for run in engines:
        await begin(library.engine, run)
    pages = [list(range(start, start + 50)) for start in range(0, 400, 50)]

    async def list_all(run: str) -> list[Written]:
        by = await walker(library.engine, run)
        # The same pages, each the other way round, so that both wait for each other's rows.
        listed = [items(page if run == "first" else page[::-1]) for page in pages]
        written = [await write(engines[run], by, number, page) for number, page in enumerate(listed)]
        return [page for page in written if page is not None]

    both = await asyncio.gather(*(list_all(run) for run in engines))
    for written in both:
        assert [page.added + page.owned for page in written] == [50] * len(pages)
    assert sum(page.added for written in both for page in written) == 400
    owners = await library.engine.fetch("select run, count(*) as n from asset group by run")
    assert sum(row["n"] for row in owners) == 400
    for run, written in zip(engines, both, strict=True):
        assert sum(page.added for page in written) == sum(row["n"] for row in owners if row["run"] == run)


async def test_a_re_run_is_refused_row_by_row(library: Library) -> None:
    await library.fill(3, state="verified", remote_id=None)
    before = [dict(await library.row(ref)) for ref in library.refs]
    await begin(library.engine, "second")
    by = await walker(library.engine, "second")
    assert await write(library.engine, by, 0, items(range(4))) == Written(added=1, owned=3, collapsed=0)
    assert [dict(await library.row(ref)) for ref in library.refs] == before


async def test_the_same_id_of_another_tenant_or_source_is_another_asset(library: Library) -> None:
    await library.fill(1)
    for tenant, source in (("other", "library"), ("acme", "elsewhere")):
        await begin(library.engine, tenant + source, tenant=tenant, source=source)
        by = await walker(library.engine, tenant + source)
        by = listings.Walker(by.run, tenant, source, ACCOUNT, 1, 0, by.fence)
        assert await write(library.engine, by, 0, items(range(1))) == Written(1, 0, 0)


@pytest.mark.parametrize("state", UNFINISHED)
async def test_what_a_cancelled_run_left_is_taken_up_where_it_was(library: Library, state: str) -> None:
    await library.fill(
        1, state=state, attempts=3, deaths=2, remote_id="r1" if state in ("processing", "ready") else None
    )
    await runs.cancel(library.engine, "first", "enough")
    assert await library.states() == {"skipped": 1}
    await begin(library.engine, "second")
    by = await walker(library.engine, "second")
    assert await write(library.engine, by, 0, [item(0, locator="https://new.example/")]) == Written(1, 0, 0)
    row = await library.row()
    assert (row["run"], row["state"], row["skipped_from"], row["attempts"], row["deaths"]) == (
        "second",
        state,
        None,
        0,
        0,
    )
    assert (row["locator"], row["detail"]) == ("https://new.example/", None)


@pytest.mark.parametrize("state", ["verified", "mismatched", "rejected", "failed", "deleted"])
async def test_what_a_cancelled_run_has_ended_stays_its_own(library: Library, state: str) -> None:
    await library.fill(1, state=state)
    await runs.cancel(library.engine, "first", "enough")
    assert await library.states() == {state: 1}
    await begin(library.engine, "second")
    assert await write(library.engine, await walker(library.engine, "second"), 0, items(range(1))) == Written(0, 1, 0)


async def test_a_video_that_is_on_another_account_is_not_taken_over(library: Library) -> None:
    """It is there: a run to this account would believe that it is here."""
    await library.fill(2, state="processing")
    await library.put(library.refs[:1], remote_id="r1")
    await runs.cancel(library.engine, "first", "enough")
    await begin(library.engine, "second", account="other")
    by = await walker(library.engine, "second", account="other")
    assert await write(library.engine, by, 0, items(range(2))) == Written(1, 1, 0)
    assert [(await library.row(r))["account"] for r in library.refs] == [ACCOUNT, "other"]


async def test_writes_of_work_under_way_change_nothing_once_the_run_was_cancelled(library: Library) -> None:
    await library.fill(2, state="inventoried")
    place = await library.open("create")
    window = await library.claimed(place)
    await runs.cancel(library.engine, "first", "enough")
    before = dict(await library.row())
    assert before["skipped_from"] == "creating"
    assert before["fence"] > window.fence
    assert before["intent_at"] is not None, "whoever takes it up looks the open call up first"
    assert await library.finish(window, state="processing", outcome="created", remote_id="r1") == frozenset()
    assert dict(await library.row()) == before
    assert await library.claim(place) is None
    line = await questions.run_line(library.engine, "first")
    assert (line.state, line.detail) == ("cancelled", "enough")


async def test_a_large_run_is_handed_back_and_taken_up_in_batches(library: Library, monkeypatch) -> None:
    monkeypatch.setattr(runs, "BATCH", 3)
    await library.fill(10)
    await library.put(library.refs[5:], state="processing")
    before = library.engine.statements
    await runs.cancel(library.engine, "first", "enough")
    assert library.engine.statements - before == 1 + 4 + 1
    assert await library.states() == {"skipped": 10}
    await begin(library.engine)
    assert await library.states() == {"pending": 5, "processing": 5}


async def test_a_cancel_that_died_half_way_goes_on_when_it_is_repeated(library: Library) -> None:
    await library.fill(4)
    await library.engine.execute("update run set state = 'cancelled'")
    await runs.cancel(library.engine, "first", "enough")
    assert await library.states() == {"skipped": 4}


async def test_a_finished_run_is_not_cancelled(library: Library) -> None:
    await library.fill(1, state="ready")
    assert await runs.set_state(library.engine, "first", "finished")
    await runs.cancel(library.engine, "first", "enough")
    assert (await questions.run_line(library.engine, "first")).state == "finished"


async def test_an_event_for_a_skipped_video_is_found_by_the_run_that_takes_it_up(library: Library) -> None:
    await library.fill(1, state="processing", remote_id="r1")
    await runs.cancel(library.engine, "first", "enough")
    assert await inbox.apply(library.engine, ACCOUNT, [video("r1", duration_ms=5)]) == 1
    assert await library.states() == {"skipped": 1}, "it stays for a run to take up"
    await begin(library.engine)
    row = await library.row()
    assert (row["state"], row["skipped_from"], row["remote_duration_ms"]) == ("ready", None, 5)


async def test_a_video_that_is_deleted_while_its_row_is_skipped_is_not_taken_up(library: Library) -> None:
    await library.fill(1, state="processing", remote_id="r1")
    await runs.cancel(library.engine, "first", "enough")
    await inbox.apply(library.engine, ACCOUNT, [video("r1", RemoteState.DELETED)])
    await begin(library.engine)
    assert await library.states() == {"deleted": 1}
    await begin(library.engine, "second")
    assert await write(library.engine, await walker(library.engine, "second"), 0, items(range(1))) == Written(0, 1, 0)


# ------------------------------------------------------------------------------------------------------ beginning


async def test_the_same_run_begun_again_takes_its_rows_back(library: Library) -> None:
    await library.fill(3)
    await library.put(library.refs[1:], state="processing")
    await runs.cancel(library.engine, "first", "enough")
    standing = await begin(library.engine)
    assert standing.state == "running"
    assert await library.states() == {"pending": 1, "processing": 2}
    row = await library.row()
    assert (row["skipped_from"], row["detail"]) == (None, None)
    assert await library.claim(await library.open("inventory")) is not None


async def test_a_run_begun_again_takes_nothing_from_the_run_that_has_it_now(library: Library) -> None:
    await library.fill(2)
    await runs.cancel(library.engine, "first", "enough")
    await begin(library.engine, "second")
    await write(library.engine, await walker(library.engine, "second"), 0, items(range(1)))
    await begin(library.engine)
    rows = [await library.row(ref) for ref in library.refs]
    assert [(row["run"], row["state"]) for row in rows] == [("second", "pending"), ("first", "pending")]


async def test_a_run_that_goes_on_knows_its_closed_phases_and_its_approval(library: Library) -> None:
    await library.fill(1, state="inventoried")
    assert await begin(library.engine) == runs.Standing("running", frozenset(), False)
    inventory = await library.open("inventory")
    assert await runs.close_phase(library.engine, "first", "inventory", inventory.fence)
    await runs.set_state(library.engine, "first", "awaiting-approval")
    await runs.set_state(library.engine, "first", "running", approved=True)
    await runs.set_state(library.engine, "first", "paused")
    assert await begin(library.engine) == runs.Standing("paused", frozenset({"inventory"}), True)


@pytest.mark.parametrize(
    ("changed", "named"),
    [({"tenant": "rival"}, "'acme'"), ({"source": "elsewhere"}, "'library'"), ({"account": "other"}, "'main'")],
)
async def test_another_run_under_the_same_name_is_refused_with_words(
    library: Library, changed: dict[str, str], named: str
) -> None:
    await library.fill(1)
    with pytest.raises(Fault, match="choose another name") as refused:
        await begin(library.engine, **changed)
    assert refused.value.code == "settings-refused"
    assert "'first'" in refused.value.detail
    assert named in refused.value.detail


async def test_a_parked_run_says_why_and_until_when(library: Library) -> None:
    await begin(library.engine)
    assert await runs.set_state(library.engine, "first", "parked", reason="plan-limit", detail="full\0", wait_s=60)
    line = await questions.run_line(library.engine, "first")
    assert (line.state, line.reason, line.detail) == ("parked", "plan-limit", "full\ufffd")
    assert line.until is not None
    assert not await runs.set_state(library.engine, "first", "finished"), "it has not gone on yet"
    assert await runs.set_state(library.engine, "first", "running")
    line = await questions.run_line(library.engine, "first")
    assert (line.state, line.reason, line.until) == ("running", None, None)


async def test_a_run_nobody_knows_is_named(engine: Engine) -> None:
    with pytest.raises(Fault, match="'nobody'"):
        await questions.run_line(engine, "nobody")


async def test_an_opener_takes_a_phase_once_however_late_its_other_attempt_comes(library: Library) -> None:
    await begin(library.engine)
    engine = library.engine
    first = await runs.open_phase(engine, "first", "list", None, "a/1")
    assert await runs.open_phase(engine, "first", "list", None, "a/1") == first
    later = await runs.open_phase(engine, "first", "list", None, "b/1")
    assert later is not None and first is not None and later > first
    assert await runs.open_phase(engine, "first", "list", None, "a/1") == later, "it takes it from nobody"
    assert await runs.holds(engine, "first", "list", later)
