"""Dead letters: who takes them up, and where each goes on."""

from __future__ import annotations

import pytest
from ledger_rig import ACCOUNT, Library, begin, video

from destinations.base import RemoteState
from ledger import inbox, redrive

ALL = {"of_run": "first", "reasons": (), "assets": (), "page_size": 2}


@pytest.mark.parametrize(
    ("put", "state"),
    [
        ({"state": "rejected", "reason": "file-empty"}, "pending"),
        ({"state": "failed", "reason": "source-busy"}, "pending"),
        ({"state": "failed", "reason": "destination-error", "facts": {}}, "inventoried"),
        ({"state": "failed", "reason": "not-ready-in-time", "remote_id": "r", "facts": {}}, "processing"),
        ({"state": "rejected", "reason": "destination-failed", "remote_id": "r", "facts": {}}, "inventoried"),
        ({"state": "mismatched", "reason": "duration-differs", "remote_id": "r"}, "ready"),
        ({"state": "mismatched", "reason": "remote-missing", "remote_id": "r"}, "creating"),
    ],
)
async def test_a_dead_letter_goes_on_where_what_is_known_of_it_allows(library: Library, put, state) -> None:
    await library.fill(1, **put)
    await begin(library.engine, "second")
    assert await redrive.take(library.engine, "second", **ALL) == 1
    row = await library.row()
    assert (row["state"], row["run"], row["page"], row["attempts"], row["reason"]) == (state, "second", 1, 0, None)


async def test_what_was_taken_up_is_taken_up_once(library: Library) -> None:
    await library.fill(5, state="rejected", reason="file-empty")
    await begin(library.engine, "second")
    assert await redrive.take(library.engine, "second", **ALL) == 5
    assert await redrive.take(library.engine, "second", **ALL) == 5
    pages = await library.engine.fetch("select page, count(*) as n from asset group by page order by page")
    assert [tuple(row) for row in pages] == [(1, 2), (2, 2), (3, 1)]


async def test_late_news_of_a_video_that_was_given_up_do_not_touch_its_successor(library: Library) -> None:
    await library.fill(1, state="rejected", reason="destination-failed", remote_id="old", facts={})
    await begin(library.engine, "second")
    await redrive.take(library.engine, "second", **ALL)
    await library.put(library.refs, state="creating")
    ref = library.refs[0]
    assert await inbox.apply(library.engine, ACCOUNT, [video("old", RemoteState.ERRORED, ref=ref)]) == 0
    assert (await library.row())["state"] == "creating"
    assert await inbox.apply(library.engine, ACCOUNT, [video("new", ref=ref)]) == 1
    assert (await library.row())["remote_id"] == "new"


async def test_dead_letters_are_counted_by_state_and_reason(library: Library) -> None:
    await library.fill(3, state="rejected", reason="file-empty")
    counts = await redrive.count(library.engine, of_run="first", reasons=(), assets=())
    assert counts == {"rejected: file-empty": 3}
    assert await redrive.count(library.engine, of_run=None, reasons=("too-short",), assets=()) == {}
    assert await redrive.count(library.engine, of_run=None, reasons=(), assets=library.refs[:1]) == {
        "rejected: file-empty": 1
    }
