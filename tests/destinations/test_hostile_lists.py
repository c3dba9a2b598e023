"""A host whose list is odd or wrong: a walk ends, lists each video once, and never says "none" where that is not so."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
import pytest_asyncio
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from destinations.base import RemotePage
from faults import Fault
from tests.sandbox.serving import served

MOST = 3_000
"""Requests after which a walk is taken to be endless."""


@dataclass
class Shelf:
    """A host whose pages are what a test says: cursor → (ids, next cursor). Cursors may be made anew each time."""

    url: str = ""
    pages: dict[str, tuple[Sequence[str], Any]] = field(default_factory=dict)
    more: dict[str, Any] = field(default_factory=dict)
    """Further fields of each answer."""
    fresh_cursors: bool = False
    requests: int = 0

    async def answer(self, request: Request) -> Response:
        self.requests += 1
        asked = request.query_params.get("cursor", "")
        ids, after = self.pages[asked.partition("~")[0]]
        if self.fresh_cursors and isinstance(after, str):
            after = f"{after}~{self.requests}"
        videos = [{"id": name, "state": "ready", "reference": "ref"} for name in ids]
        body = {"videos": videos, "next_cursor": after, **self.more}
        return Response(json.dumps(body), media_type="application/json")

    def holds(self, *pages: Sequence[str], loop_to: int | None = None, fresh: bool = False) -> None:
        names = ["", *(f"c{n}" for n in range(1, len(pages)))]
        followers: list[str | None] = [*names[1:], None if loop_to is None else f"c{loop_to}"]
        self.pages = {name: (page, after) for name, page, after in zip(names, pages, followers, strict=True)}
        self.pages["c0"] = self.pages[""]
        self.fresh_cursors, self.requests = fresh, 0


@pytest_asyncio.fixture
async def shelf() -> AsyncIterator[Shelf]:
    made = Shelf()
    async with served(Starlette(routes=[Route("/v1/videos", made.answer)])) as base:
        made.url = base
        yield made


async def walked(host: Any, shelf: Shelf) -> list[RemotePage]:
    """Every page, each asked for as another process would, from the cursor alone."""
    pages: list[RemotePage] = []
    cursor = None
    while not pages or cursor is not None:
        assert shelf.requests < MOST, "it never ends"
        pages.append(await host.list_page(cursor))
        cursor = pages[-1].next_cursor
    return pages


def ids(pages: Sequence[RemotePage]) -> list[str]:
    return [video.remote_id for page in pages for video in page.videos]


async def fault_of(call: Any) -> Fault:
    with pytest.raises(Fault) as raised:
        await call
    return raised.value


# ------------------------------------------------------------------------------------------------------ as it should be


@pytest.mark.parametrize("fresh", [False, True])
async def test_pages_that_overlap_or_shrink_or_are_empty_between_are_walked_to_the_end(
    shelf: Shelf, open_at: Any, fresh: bool
) -> None:
    shelf.holds("abc", "cd", "", "e", "", "ef", "g", fresh=fresh)
    assert set(ids(await walked(open_at(shelf.url), shelf))) == set("abcdefg")


async def test_empty_pages_in_a_row_are_not_the_end(shelf: Shelf, open_at: Any) -> None:
    shelf.holds("a", "", "", "", "b", fresh=True)
    assert ids(await walked(open_at(shelf.url), shelf)) == ["a", "b"]


async def test_an_empty_account_is_empty(shelf: Shelf, open_at: Any) -> None:
    shelf.holds("")
    for total in (0, None, "x", -1):
        shelf.more = {"total": total}
        assert ids(await walked(open_at(shelf.url), shelf)) == []


async def test_a_total_that_changes_on_the_way_is_no_fault(shelf: Shelf, open_at: Any) -> None:
    shelf.holds("ab", "cd")
    host = open_at(shelf.url)
    shelf.more = {"total": 4}
    first = await host.list_page(None)
    shelf.more = {"total": 3}
    second = await host.list_page(first.next_cursor)
    assert (first.total, second.total, second.next_cursor) == (4, 3, None)


async def test_an_id_twice_on_a_page_or_on_two_is_looked_up_as_one_video(shelf: Shelf, open_at: Any) -> None:
    shelf.holds("aab", "bc", "ca")
    found = await open_at(shelf.url, options={"lookup": "list"}).lookup("ref")
    assert [video.remote_id for video in found] == ["a", "b", "c"]
    shelf.holds("aab")
    found = await open_at(shelf.url).lookup("ref")
    assert [video.remote_id for video in found] == ["a", "b"]


# -------------------------------------------------------------------------------------------------------- never "none"


async def test_an_empty_list_whose_total_says_otherwise_is_not_believed(shelf: Shelf, open_at: Any) -> None:
    shelf.holds("")
    shelf.more = {"total": 40}
    fault = await fault_of(open_at(shelf.url).list_page(None))
    assert (fault.code, "40" in fault.detail) == ("answer-malformed", True)


@pytest.mark.parametrize("after", [{}, {"cursor": "c1"}, [], ["c1"], True])
async def test_a_cursor_of_another_kind_is_not_the_end(shelf: Shelf, open_at: Any, after: Any) -> None:
    shelf.pages = {"": ("ab", after)}
    host = open_at(shelf.url)
    assert (await fault_of(host.list_page(None))).code == "answer-malformed"
    assert (await fault_of(host.lookup("other"))).code == "answer-malformed"


@pytest.mark.parametrize("after", [None, "", False])
async def test_null_empty_and_false_are_the_end(shelf: Shelf, open_at: Any, after: Any) -> None:
    shelf.pages = {"": ("ab", after)}
    assert (await open_at(shelf.url).list_page(None)).next_cursor is None


async def test_a_cursor_may_be_a_number_or_hold_any_sign(shelf: Shelf, open_at: Any) -> None:
    shelf.pages = {"": ("a", 0), "0": ("b", "x.y&z=ü #/%2B"), "x.y&z=ü #/%2B": ("c", None)}
    assert ids(await walked(open_at(shelf.url), shelf)) == ["a", "b", "c"]


async def test_one_entry_that_is_no_video_makes_no_list(shelf: Shelf, open_at: Any) -> None:
    shelf.pages = {"": (["a", ""], None)}
    assert (await fault_of(open_at(shelf.url).list_page(None))).code == "answer-malformed"


# --------------------------------------------------------------------------------------------------------- it ends


@pytest.mark.parametrize("fresh", [False, True], ids=["same cursors", "cursors made anew"])
@pytest.mark.parametrize(
    ("pages", "loop_to"),
    [
        (["ab"], 0),
        (["ab", "cd"], 0),
        (["ab", "cd"], 1),
        (["ab", "cd", "ef"], 1),
        (["ab", "cd", "ef", "gh"], 2),
        (["a", "b", "a", "b", "c"], 1),
        ([f"{n}" for n in range(200)], 150),
        (["ab", "", "cd"], 0),
        (["", "ab", "", "cd"], 1),
    ],
)
async def test_a_list_that_leads_back_is_noticed_wherever_it_does(
    shelf: Shelf, open_at: Any, pages: list[str], loop_to: int, fresh: bool
) -> None:
    shelf.holds(*pages, loop_to=loop_to, fresh=fresh)
    host = open_at(shelf.url)
    fault = await fault_of(walked(host, shelf))
    assert (fault.code, "repeats" in fault.detail) == ("answer-malformed", True)
    shelf.requests = 0
    listing = open_at(shelf.url, options={"lookup": "list"})
    assert (await fault_of(listing.lookup("no such reference"))).code == "answer-malformed"
    assert shelf.requests < MOST


async def test_the_first_page_for_ever_in_another_order_each_time_is_noticed(shelf: Shelf, open_at: Any) -> None:
    shelf.holds("abc", "bca", "cab", "acb", loop_to=1, fresh=True)
    assert (await fault_of(walked(open_at(shelf.url), shelf))).code == "answer-malformed"
    assert shelf.requests < 10


async def test_empty_pages_without_end_are_noticed(shelf: Shelf, open_at: Any) -> None:
    shelf.holds("a", "", loop_to=1, fresh=True)
    assert (await fault_of(walked(open_at(shelf.url), shelf))).code == "answer-malformed"


async def test_a_cursor_stays_small_however_long_the_walk(shelf: Shelf, open_at: Any) -> None:
    shelf.holds(*[[f"v{n}", f"w{n}"] for n in range(300)], fresh=True)
    pages = await walked(open_at(shelf.url), shelf)
    assert len(ids(pages)) == 600
    assert max(len(page.next_cursor or "") for page in pages) < 200


@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(
        st.tuples(st.lists(st.sampled_from("abcdef"), max_size=3), st.integers(0, 8) | st.none()),
        min_size=1,
        max_size=9,
    ),
    st.booleans(),
)
async def test_whatever_leads_where_a_walk_ends_with_all_that_is_on_the_way_or_a_fault(
    shelf: Shelf, open_at: Any, graph: list[tuple[list[str], int | None]], fresh: bool
) -> None:
    names = ["", *(f"c{n}" for n in range(1, len(graph)))]
    shelf.pages = {
        name: (page, None if after is None or after >= len(graph) else f"c{after}")
        for name, (page, after) in zip(names, graph, strict=True)
    }
    shelf.pages["c0"] = shelf.pages[""]
    shelf.fresh_cursors, shelf.requests = fresh, 0
    seen, place = set[str](), ""
    on_the_way: set[str] = set()
    ends = False
    while place not in seen:
        seen.add(place)
        page, after = shelf.pages[place]
        on_the_way |= set(page)
        if after is None:
            ends = True
            break
        place = after
    host = open_at(shelf.url, options={"lookup": "list"})
    try:
        pages = await walked(host, shelf)
    except Fault as fault:
        if fault.code != "answer-malformed":
            raise
    else:
        assert ends
        assert set(ids(pages)) == on_the_way
        assert sorted(video.remote_id for video in await host.lookup("ref")) == sorted(on_the_way)
