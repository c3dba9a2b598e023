"""The inbox: each event has its effect once, in whatever order it comes, and none is lost."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from ledger_rig import ACCOUNT, Library, event, ref, somebody_waits_for_a_lock, until, video

from destinations.base import RemoteState, RemoteVideo
from ledger import claims, inbox, questions, remotes, runs
from ledger.engine import Engine
from ledger.inbox import Hint

READY, PROCESSING, ERRORED, DELETED = (
    RemoteState.READY,
    RemoteState.PROCESSING,
    RemoteState.ERRORED,
    RemoteState.DELETED,
)


async def receive(engine: Engine, seen: RemoteVideo | None, key: str = "e1") -> str:
    return await inbox.receive(engine, ACCOUNT, event(seen, key))


async def test_the_same_event_three_times_has_one_effect(library: Library) -> None:
    await library.fill(1, state="processing", remote_id="r1")
    assert await receive(library.engine, video("r1", duration_ms=4020, width=320, playback="p")) == "applied"
    before = dict(await library.row())
    assert before["state"] == "ready"
    assert (before["remote_duration_ms"], before["remote_width"], before["playback"]) == (4020, 320, "p")
    for _ in range(2):
        assert await receive(library.engine, video("r1", duration_ms=9, playback="q")) == "duplicate"
    assert await receive(library.engine, video("r1", duration_ms=9), "another-id") == "no-effect"
    assert dict(await library.row()) == before
    assert await library.engine.fetchval("select count(*) from inbox") == 2


async def test_of_eight_receivers_of_one_event_one_applies_it(library: Library, open_engine) -> None:
    await library.fill(20, state="processing")
    for n, asset in enumerate(library.refs):
        await library.put([asset], remote_id=f"r{n}")
    engines = [await open_engine() for _ in range(4)]
    for n in range(20):
        effects = await asyncio.gather(*(receive(engine, video(f"r{n}"), f"e{n}") for engine in engines * 2))
        assert sorted(effects) == ["applied"] + ["duplicate"] * 7
    assert await library.states() == {"ready": 20}


async def test_an_event_that_says_nothing_of_a_video_is_kept_and_answered(library: Library) -> None:
    assert await receive(library.engine, None) == "no-effect"
    assert await receive(library.engine, None) == "no-effect"
    assert await library.engine.fetchval("select outcome from inbox") == "ignored"


async def test_ready_before_the_creates_answer_is_stored_stays_ready(library: Library) -> None:
    await library.fill(1, state="inventoried")
    window = await library.claimed(await library.open("create"), quiet_s=60.0)
    assert await receive(library.engine, video("r1", ref=library.refs[0])) == "applied"
    before = dict(await library.row())
    assert (before["state"], before["remote_id"], before["claim"]) == ("ready", "r1", None)
    assert (before["intent_at"], before["quiet_until"]) == (None, None)
    taken = await library.finish(window, state="processing", outcome="created", remote_id="r1")
    assert taken == set(library.refs), "it is the very video that this call made"
    assert dict(await library.row()) == before
    assert (await library.steps())[0]["outcome"] == "created"


async def test_that_a_video_was_announced_takes_its_row_from_nobody_who_sends_its_bytes(library: Library) -> None:
    await library.fill(1, state="inventoried")
    window = await library.claimed(await library.open("create"), quiet_s=60.0)
    announced = replace(video("r1", PROCESSING, ref=library.refs[0]), awaits_bytes=True)
    assert await receive(library.engine, announced) == "no-effect"
    assert await inbox.apply(library.engine, ACCOUNT, [announced]) == 0
    assert await claims.keep_transfer(library.engine, library.refs[0], window.fence, {"place": "p", "sent": 1})

    assert await receive(library.engine, video("r1", ref=library.refs[0]), "e2") == "applied"
    assert (await library.row())["transfer"] is None, "what has come is gone on with by nobody"


async def test_ready_before_a_row_knows_its_video_waits_until_it_does(library: Library) -> None:
    """A host whose events carry no reference of ours."""
    await library.fill(1, state="inventoried")
    window = await library.claimed(await library.open("create"))
    assert await receive(library.engine, video("r1", duration_ms=5)) == "waiting"
    assert await inbox.apply_waiting(library.engine) == 0
    await library.finish(window, state="processing", outcome="created", remote_id="r1")
    assert await inbox.apply_waiting(library.engine) == 1
    row = await library.row()
    assert (row["state"], row["remote_duration_ms"]) == ("ready", 5)
    assert await inbox.apply_waiting(library.engine) == 0
    [history] = await questions.history(library.engine, library.refs[0])
    assert [(e["state"], e["outcome"]) for e in history.events] == [("ready", "applied-late")]


@pytest.mark.parametrize(
    ("events", "end"),
    [
        ([PROCESSING, READY], "ready"),
        ([READY, DELETED], "deleted"),
        ([ERRORED, READY], "rejected"),
        ([READY, ERRORED], "ready"),
        ([READY, PROCESSING, DELETED, READY], "deleted"),
    ],
)
async def test_events_that_waited_apply_in_the_order_they_came(
    library: Library, events: list[RemoteState], end: str
) -> None:
    await library.fill(2, state="creating")
    for n, state in enumerate(events):
        assert await receive(library.engine, video("r1", state), f"e{n}") == "waiting"
    assert await receive(library.engine, video("r2"), "other") == "waiting"
    await library.put(library.refs[:1], state="processing", remote_id="r1")
    await library.put(library.refs[1:], state="processing", remote_id="r2")
    assert await inbox.apply_waiting(library.engine) == len(events) + 1
    assert [(await library.row(r))["state"] for r in library.refs] == [end, "ready"]


async def test_an_event_of_a_strangers_video_never_has_an_effect(library: Library) -> None:
    await library.fill(1, state="processing", remote_id="r1")
    assert await receive(library.engine, video("theirs", ref="their-ref")) == "waiting"
    assert await inbox.apply_waiting(library.engine) == 0
    assert await inbox.take_hints(library.engine) == []
    await library.engine.execute(
        "update inbox set received_at = now() - make_interval(secs => $1)", inbox.WAITING_S + 1.0
    )
    await library.put(library.refs, remote_id="theirs")
    assert await inbox.apply_waiting(library.engine) == 0, "what waited for too long is left to the sweep"


async def test_ready_after_deleted_is_kept_and_resurrects_nothing(library: Library) -> None:
    await library.fill(1, state="ready", remote_id="r1")
    assert await receive(library.engine, video("r1", DELETED), "gone") == "applied"
    before = dict(await library.row())
    assert (before["state"], before["reason"]) == ("deleted", "remote-deleted")
    for key, state in (("late", READY), ("later", PROCESSING), ("latest", ERRORED)):
        assert await receive(library.engine, video("r1", state), key) == "no-effect"
    assert dict(await library.row()) == before
    assert await library.engine.fetchval("select count(*) from inbox") == 4


async def test_a_second_video_with_the_same_reference_moves_nothing(library: Library) -> None:
    await library.fill(1, state="processing", remote_id="r1")
    before = dict(await library.row())
    for n, state in enumerate(RemoteState):
        assert await receive(library.engine, video("r2", state, ref=library.refs[0]), f"e{n}") == "no-effect"
    assert dict(await library.row()) == before


async def test_a_video_that_carries_another_rows_reference_moves_the_row_that_it_is(library: Library) -> None:
    await library.fill(2, state="processing")
    await library.put(library.refs[:1], remote_id="r0")
    await library.put(library.refs[1:], state="creating")
    assert await receive(library.engine, video("r0", ref=library.refs[1])) == "applied"
    assert [(await library.row(r))["state"] for r in library.refs] == ["ready", "creating"]
    assert (await library.row(library.refs[1]))["remote_id"] is None


async def test_another_accounts_event_moves_nothing(library: Library) -> None:
    await library.fill(1, state="processing", remote_id="r1")
    assert await inbox.receive(library.engine, "other", event(video("r1", ref=library.refs[0]))) == "waiting"
    assert await library.states() == {"processing": 1}


@pytest.mark.parametrize(
    ("reason", "end"),
    [(None, "rejected"), ("file-corrupt", "rejected"), ("fetch-failed", "failed"), ("no-such-reason", "rejected")],
)
async def test_what_failed_there_ends_here_by_its_reason(library: Library, reason: str | None, end: str) -> None:
    await library.fill(1, state="processing", remote_id="r1")
    assert await receive(library.engine, video("r1", ERRORED, reason=reason, detail="bad\0")) == "applied"
    row = await library.row()
    assert row["state"] == end
    assert row["reason"] == (reason if reason in ("file-corrupt", "fetch-failed") else "destination-failed")
    assert row["detail"] == "bad\ufffd"


async def test_a_video_that_failed_and_became_ready_all_the_same_is_ready(library: Library) -> None:
    await library.fill(1, state="processing", remote_id="r1")
    await receive(library.engine, video("r1", ERRORED, reason="fetch-failed"), "failed")
    assert await receive(library.engine, video("r1"), "ready") == "applied"
    row = await library.row()
    assert (row["state"], row["reason"]) == ("ready", None)


async def test_an_event_that_waited_for_the_creates_write_is_judged_by_what_was_written(
    library: Library, connection
) -> None:
    await library.fill(1, state="creating")
    transaction = connection.transaction()
    await transaction.start()
    await connection.execute("update asset set state = 'processing', remote_id = 'r1', claim = null")
    receiving = asyncio.create_task(receive(library.engine, video("r1", ref=library.refs[0])))
    await until(lambda: somebody_waits_for_a_lock(library.engine))
    await transaction.commit()
    assert await receiving == "applied"
    assert await library.states() == {"ready": 1}


async def test_a_sweep_that_waited_for_another_write_is_judged_by_what_was_written(
    library: Library, connection
) -> None:
    await library.fill(1, state="processing", remote_id="r1")
    transaction = connection.transaction()
    await transaction.start()
    await connection.execute("update asset set state = 'failed'")
    applying = asyncio.create_task(inbox.apply(library.engine, ACCOUNT, [video("r1")]))
    await until(lambda: somebody_waits_for_a_lock(library.engine))
    await transaction.commit()
    assert await applying == 1
    assert await library.states() == {"ready": 1}


async def test_numbers_that_no_column_holds_are_unknown(library: Library) -> None:
    await library.fill(1, state="processing", remote_id="r1")
    wild = video("r1", duration_ms=2**63, width=2**31, height=-(2**40), size=2**64)
    assert await receive(library.engine, wild) == "applied"
    row = await library.row()
    assert [row[f"remote_{name}"] for name in ("duration_ms", "width", "height", "size")] == [None] * 4


async def test_what_the_destination_says_when_asked_moves_rows_as_events_do(library: Library) -> None:
    await library.fill(3, state="processing")
    for n, asset in enumerate(library.refs):
        await library.put([asset], remote_id=f"r{n}")
    seen = [video("r0"), video("r1", PROCESSING), video("r2", DELETED), video("r9")]
    assert await inbox.apply(library.engine, ACCOUNT, seen) == 2
    assert [(await library.row(r))["state"] for r in library.refs] == ["ready", "processing", "deleted"]
    assert await inbox.apply(library.engine, ACCOUNT, seen) == 0
    assert await inbox.apply(library.engine, ACCOUNT, []) == 0


async def test_a_hint_gathers_a_pages_events_and_says_what_is_left(library: Library) -> None:
    await library.fill(5, page_size=3, state="processing")
    await library.open("settle")
    for n, asset in enumerate(library.refs):
        await library.put([asset], remote_id=f"r{n}")
    for n in (0, 1, 3, 4):
        await receive(library.engine, video(f"r{n}"), f"e{n}")
    hints = sorted(await inbox.take_hints(library.engine), key=lambda hint: hint.page)
    assert hints == [Hint("first", 1, left=1, events=2), Hint("first", 2, left=0, events=2)]
    assert await inbox.take_hints(library.engine) == [], "each event is hinted at once"
    await receive(library.engine, video("r2"), "e2")
    assert await inbox.take_hints(library.engine) == [Hint("first", 1, left=0, events=1)]


async def test_nobody_is_told_where_the_settle_phase_does_not_wait(library: Library) -> None:
    await library.fill(2, state="creating")
    await receive(library.engine, video("r0", ref=ref(0)), "e0")
    assert await inbox.take_hints(library.engine) == [], "not yet open"
    place = await library.open("settle")
    await receive(library.engine, video("r1", ref=ref(1)), "e1")
    assert await runs.close_phase(library.engine, "first", "settle", place.fence)
    assert await inbox.take_hints(library.engine) == [], "closed"


async def test_two_relays_share_the_hints(library: Library, open_engine) -> None:
    await library.fill(40, page_size=1, state="processing")
    await library.open("settle")
    for n, asset in enumerate(library.refs):
        await library.put([asset], remote_id=f"r{n}")
        await receive(library.engine, video(f"r{n}"), f"e{n}")
    engines = [await open_engine() for _ in range(3)]
    taken = await asyncio.gather(*(inbox.take_hints(engine) for engine in engines))
    assert sorted(hint.page for hints in taken for hint in hints) == list(range(1, 41))


async def test_an_event_that_comes_after_the_row_was_given_up_makes_it_ready(library: Library) -> None:
    await library.fill(1, state="processing", remote_id="r1")
    await library.engine.execute("update asset set processing_at = now() - interval '1 hour'")
    assert await remotes.give_up(library.engine, "first", 1, 600) == 1
    assert await receive(library.engine, video("r1")) == "applied"
    assert await library.states() == {"ready": 1}
