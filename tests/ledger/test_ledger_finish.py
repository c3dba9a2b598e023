"""Finishing: only the owner's write counts, and one row's data never costs its neighbours their results."""

from __future__ import annotations

import json
from typing import Any

import pytest
from ledger_rig import ACCOUNT, Library, event, item, ref, video, walker, write
from test_ledger_claims import losing

from destinations.base import RemoteState
from ledger import claims, inbox, listings
from ledger.claims import Outcome
from ledger.engine import clean, fit


async def test_a_windows_results_are_written_in_one_statement(library: Library) -> None:
    await library.fill(25)
    window = await library.claimed(await library.open("inventory"))
    outcomes = [
        Outcome(row.ref, "inventoried", "inventoried", facts={"n": row.position}, duration_ms=row.position)
        for row in window.rows
    ]
    before = library.engine.statements
    assert await claims.finish(library.engine, window.fence, outcomes) == set(library.refs)
    assert library.engine.statements == before + 1
    row = await library.row(library.refs[7])
    assert (row["state"], row["facts"], row["duration_ms"]) == ("inventoried", {"n": 7}, 7)
    assert (row["claim"], row["claim_key"], row["claimed_by"], row["claim_until"]) == (None,) * 4
    [step] = await library.steps(library.refs[7])
    assert (step["outcome"], step["phase"], step["attempt"], step["worker"]) == ("inventoried", "inventory", 1, "w")
    assert step["ended_at"] >= step["started_at"]


async def test_a_stalled_owners_late_result_changes_nothing(library: Library) -> None:
    await library.fill(2)
    place = await library.open("inventory")
    stalled = await library.claimed(place)
    await library.lapse(library.refs[0])
    heir = await library.claimed(place)
    assert [row.ref for row in heir.rows] == library.refs[:1]
    before = dict(await library.row())
    taken = await library.finish(stalled, state="rejected", outcome="rejected", reason="file-corrupt")
    assert taken == {library.refs[1]}, "its other row is still its own"
    assert dict(await library.row()) == before
    assert await library.finish(heir, state="inventoried", outcome="inventoried", duration_ms=5) == {library.refs[0]}
    assert (await library.row())["state"] == "inventoried"
    late = await library.finish(stalled, state="rejected", outcome="rejected", reason="file-corrupt")
    assert late == {library.refs[1]}
    assert [step["outcome"] for step in await library.steps()] == ["lost", "inventoried"]


async def test_a_result_that_came_after_the_rows_end_is_told_in_its_history(library: Library) -> None:
    await library.fill(1, state="inventoried")
    window = await library.claimed(await library.open("create"))
    await library.engine.execute("update asset set state = 'deleted', claim = null")
    assert await library.finish(window, state="processing", outcome="created", remote_id="r1") == frozenset()
    [step] = await library.steps()
    assert step["outcome"] == "overtaken"


async def test_a_result_sent_again_after_a_lost_connection_is_still_reported_as_taken(library: Library) -> None:
    await library.fill(2, state="inventoried")
    window = await library.claimed(await library.open("create"))
    outcomes = [Outcome(row.ref, "processing", "created", remote_id=row.ref) for row in window.rows]
    lossy = losing(library.engine)
    assert await claims.finish(lossy, window.fence, outcomes) == set(library.refs)
    assert lossy.statements == 2
    assert [step["outcome"] for step in await library.steps()] == ["created"]


async def test_a_result_that_was_taken_stays_reported_so_when_an_event_has_moved_the_row_on(library: Library) -> None:
    await library.fill(1, state="inventoried")
    window = await library.claimed(await library.open("create"))
    made = {"state": "processing", "outcome": "created", "remote_id": "r1"}
    assert await library.finish(window, **made) == set(library.refs)
    assert await inbox.receive(library.engine, ACCOUNT, event(video("r1"))) == "applied"
    assert await library.finish(window, **made) == set(library.refs)
    assert (await library.row())["state"] == "ready"


async def test_a_second_videos_answer_is_not_taken_for_the_row_that_has_another_one(library: Library) -> None:
    await library.fill(1, state="inventoried")
    window = await library.claimed(await library.open("create"))
    other = video("r-other", RemoteState.PROCESSING, ref=library.refs[0])
    assert await inbox.receive(library.engine, ACCOUNT, event(other)) == "applied"
    assert await library.finish(window, state="processing", outcome="created", remote_id="r1") == frozenset()
    assert (await library.row())["remote_id"] == "r-other"


# ------------------------------------------------------------------------------------------------------ attempts


async def test_attempts_count_on_while_a_row_is_tried_again(library: Library) -> None:
    await library.fill(1)
    place = await library.open("inventory")
    for attempt in (1, 2, 3):
        window = await library.claimed(place)
        assert window.rows[0].attempts == attempt
        await library.finish(window, state="pending", outcome="again", reason="source-busy", wait_s=0)


async def test_a_create_that_surely_made_nothing_counts_too(library: Library) -> None:
    """It goes from creating back to inventoried: another state, but the same phase."""
    await library.fill(1, state="inventoried")
    place = await library.open("create")
    for attempt in (1, 2, 3):
        window = await library.claimed(place)
        assert window.rows[0].attempts == attempt
        await library.finish(window, state="inventoried", outcome="again", reason="destination-error", wait_s=0)
    assert (await library.row())["intent_at"] is None


async def test_deaths_are_not_forgotten_while_the_row_stays_in_its_phase(library: Library) -> None:
    await library.fill(1, state="inventoried")
    place = await library.open("create")
    await library.claimed(place)
    await library.lapse()
    window = await library.claimed(place)
    await library.finish(window, state="inventoried", outcome="again", reason="destination-error", wait_s=0)
    assert (await library.claimed(place)).rows[0].deaths == 1


async def test_a_row_begins_its_next_phase_with_all_its_attempts(library: Library) -> None:
    await library.fill(1)
    inventory = await library.open("inventory")
    await library.finish(await library.claimed(inventory), state="pending", outcome="again", wait_s=0)
    await library.finish(await library.claimed(inventory), state="inventoried", outcome="inventoried")
    assert (await library.claimed(await library.open("create"))).rows[0].attempts == 1


@pytest.mark.parametrize("back", ["inventoried", "creating"])
async def test_a_row_that_is_handed_back_gets_its_attempt_back(library: Library, back: str) -> None:
    await library.fill(1, state="inventoried")
    place = await library.open("create")
    for _ in range(3):
        window = await library.claimed(place)
        assert window.rows[0].attempts == 1
        await library.finish(window, state=back, outcome="handed-back", refund=True)


async def test_an_open_call_keeps_its_intent_and_its_quiet_time(library: Library) -> None:
    await library.fill(1, state="inventoried")
    place = await library.open("create")
    window = await library.claimed(place, quiet_s=60.0)
    await library.finish(window, state="creating", outcome="again", reason="answer-lost", wait_s=0, call_open=True)
    row = await library.row()
    assert (row["state"], row["intent_at"] is None, row["quiet_until"] is None) == ("creating", False, False)
    assert await library.claim(place) is None
    await library.put(library.refs, quiet_until=None)
    assert (await library.claimed(place)).rows[0].intent


async def test_a_call_that_surely_made_nothing_leaves_no_intent(library: Library) -> None:
    await library.fill(1, state="inventoried")
    place = await library.open("create")
    window = await library.claimed(place, quiet_s=60.0)
    await library.finish(window, state="inventoried", outcome="again", reason="destination-error", wait_s=0)
    row = await library.row()
    assert (row["intent_at"], row["quiet_until"]) == (None, None)
    assert not (await library.claimed(place)).rows[0].intent


async def test_what_is_known_is_kept_where_a_result_says_nothing_of_it(library: Library) -> None:
    await library.fill(1, facts={"a": 1}, duration_ms=7, state="ready", remote_id="r1", playback="p", remote_width=3)
    window = await library.claimed(await library.open("reconcile"))
    await library.finish(window, state="verified", outcome="verified", remote_height=2)
    row = await library.row()
    assert (row["facts"], row["duration_ms"], row["remote_id"], row["playback"]) == ({"a": 1}, 7, "r1", "p")
    assert (row["remote_width"], row["remote_height"]) == (3, 2)


# ------------------------------------------------------------------------------------------------- awkward data


async def test_one_row_whose_result_is_refused_fails_and_the_other_24_survive(library: Library) -> None:
    """The destination answers with the id of a video that another row has."""
    await library.fill(26, state="inventoried")
    await library.put(library.refs[25:], state="processing", remote_id="r25")
    window = await library.claimed(await library.open("create"))
    outcomes = [
        Outcome(row.ref, "processing", "created", remote_id="r25" if n == 12 else f"r{n}")
        for n, row in enumerate(window.rows)
    ]
    assert await claims.finish(library.engine, window.fence, outcomes) == set(library.refs[:25])
    assert await library.states() == {"processing": 25, "failed": 1}
    row = await library.row(library.refs[12])
    assert (row["reason"], row["remote_id"], row["claim"]) == ("unknown", None, None)
    assert "r25" in row["detail"], "a person can see which video it was"
    assert (await library.steps(library.refs[12]))[0]["outcome"] == "failed"


@pytest.mark.parametrize(
    "wrong",
    [{"remote_id": "".join(chr(0x4E00 + n * 7 % 20000) for n in range(5000))}, {"remote_width": "wide"}],
    ids=["longer than an index takes", "not a number"],
)
async def test_what_the_server_or_the_driver_cannot_take_costs_its_row_alone(
    library: Library, wrong: dict[str, Any]
) -> None:
    await library.fill(3, state="inventoried")
    window = await library.claimed(await library.open("create"))
    outcomes = [
        Outcome(row.ref, "processing", "created", **(wrong if n == 1 else {"remote_id": f"r{n}"}))
        for n, row in enumerate(window.rows)
    ]
    assert await claims.finish(library.engine, window.fence, outcomes) == set(library.refs)
    assert await library.states() == {"processing": 2, "failed": 1}
    assert (await library.row(library.refs[1]))["reason"] == "unknown"


async def test_a_made_videos_refused_comparison_is_for_a_person(library: Library) -> None:
    await library.fill(1, state="ready", remote_id="r0")
    window = await library.claimed(await library.open("reconcile"))
    assert await library.finish(window, state="verified", outcome="verified", remote_size="big") == set(library.refs)
    row = await library.row()
    assert (row["state"], row["reason"], row["remote_id"]) == ("mismatched", "unknown", "r0")


async def test_a_number_that_no_column_holds_is_unknown_and_the_video_is_kept(library: Library) -> None:
    await library.fill(1, state="inventoried")
    window = await library.claimed(await library.open("create"))
    await library.finish(
        window, state="processing", outcome="created", remote_id="r1", remote_width=2**31, remote_size=2**63
    )
    row = await library.row()
    assert (row["state"], row["remote_id"], row["remote_width"], row["remote_size"]) == ("processing", "r1", None, None)


async def test_text_that_postgresql_refuses_is_stored_safely(library: Library) -> None:
    await library.fill(2)
    window = await library.claimed(await library.open("inventory"))
    nasty = "a\0b\ud83dc\udfffd"
    facts = {"title\0": nasty, "deep": [{"nan": float("nan"), "inf": float("inf"), "n": 1.5, nasty: None}]}
    outcomes = [
        Outcome(library.refs[0], "rejected", "rejected", reason="file-corrupt", detail=nasty, facts=facts),
        Outcome(library.refs[1], "inventoried", "inventoried", duration_ms=3),
    ]
    assert await claims.finish(library.engine, window.fence, outcomes) == set(library.refs)
    row = await library.row()
    assert row["detail"] == "a\ufffdb?c?d"
    assert row["facts"] == {
        "title\ufffd": row["detail"],
        "deep": [{"nan": None, "inf": None, "n": 1.5, row["detail"]: None}],
    }
    assert (await library.row(library.refs[1]))["state"] == "inventoried"


async def test_a_listing_with_text_that_postgresql_refuses_is_stored_safely(library: Library) -> None:
    await library.fill(0)
    odd = item(0, title="\0\ud800", locator="https://x/\0", metadata={"\0": [float("nan"), "\udc00"]})
    by = await walker(library.engine)
    assert await write(library.engine, by, 0, [odd, item(1)]) == listings.Written(2, 0, 0)
    row = await library.row(ref(0))
    assert (row["title"], row["locator"], row["metadata"]) == ("\ufffd?", "https://x/\ufffd", {"\ufffd": [None, "?"]})


async def test_three_mebibytes_of_error_are_cut_and_head_and_tail_kept(library: Library) -> None:
    await library.fill(1)
    window = await library.claimed(await library.open("inventory"))
    error = "the head " + "x" * (3 * 2**20) + " the tail"
    await library.finish(window, state="rejected", outcome="rejected", reason="file-corrupt", detail=error)
    for kept in ((await library.row())["detail"], (await library.steps())[0]["detail"]):
        assert len(kept) <= 20_000
        assert kept.startswith("the head ")
        assert kept.endswith(" the tail")
        assert "characters left out" in kept


def test_cleaning_changes_nothing_that_can_be_stored() -> None:
    value = {"naïve 日本": ["🎬", 1, 2.5, None, True, {"x": "\n\t"}]}
    assert clean(value) == value
    assert json.loads(json.dumps(clean(value))) == value
    assert [fit(2**63 - 1), fit(2**63), fit(-(2**63)), fit(2**31 - 1, 31), fit(2**31, 31), fit(None)] == [
        2**63 - 1,
        None,
        -(2**63),
        2**31 - 1,
        None,
        None,
    ]
