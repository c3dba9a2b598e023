"""No field of a host's answer is relied on: whatever stands in its place is read, reported, or a fault of the row."""

from __future__ import annotations

import contextlib
import copy
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from typing import Any

import pytest
from starlette.responses import JSONResponse

from faults import Fault
from sources.about import About
from sources.base import Item, Location, Problem
from tests.sources.host_rig import HOSTS, Host, Place, once_made, placed
from tests.sources.hosts.brightcove import BrightcoveServer

FILES: dict[str, list[dict[str, Any]]] = {
    "vimeo": [{}, {"file": "best"}],
    "jwplayer": [{}, {"file": "rendition"}],
    "bunny": [{}, {"file": "mp4"}],
}
"""Ways to choose a file, of hosts that have more than one."""
ODD: list[Any] = [None, [], [None], {}, {"x": 1}, "", "x", "\x00\ud800", 0, -1, 2**70, 1.5, True, ["a", 1, None]]


def altered(value: Any, by: list[Any] = ODD) -> Iterator[Any]:
    """The value with each of its parts, and itself, replaced by each odd one."""
    for place in places(value):
        for odd in by:
            changed = copy.deepcopy(value)
            if not place:
                yield copy.deepcopy(odd)
                continue
            holder = changed
            for name in place[:-1]:
                holder = holder[name]
            holder[place[-1]] = copy.deepcopy(odd)
            yield changed


def places(value: Any, here: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield here
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, part in inner:
        yield from places(part, (*here, name))


@pytest.fixture(params=HOSTS, ids=lambda host: host.kind)
async def place(request: pytest.FixtureRequest) -> AsyncIterator[Place]:
    async with AsyncExitStack() as stack:
        yield await placed(request.param, stack)


async def test_any_entry_of_a_listing_is_an_item_or_a_problem(place: Place) -> None:
    source = await place.source(page_size=1)
    await source.list_page(None)
    listed = [json.loads(seen.answer) for seen in place.server.exchanges if seen.path == source.listing.path]
    found = listed[-1] if source.items_field is None else listed[-1][source.items_field]
    count = 0
    for entry in altered(found[0]):
        read = source.read(entry, 1)
        assert isinstance(read, Item | Problem)
        if isinstance(read, Item):
            assert About.from_json(json.loads(json.dumps(dict(read.about.to_json())))) == read.about
            json.dumps(dict(read.metadata))
        source.identify(entry)
        count += 1
    assert count > 100


@pytest.mark.parametrize("number", [1, 2])
@pytest.mark.parametrize(
    ("place", "options"),
    [(host, options) for host in HOSTS for options in FILES.get(host.kind, [{}])],
    indirect=["place"],
    ids=lambda value: value.kind if isinstance(value, Host) else value.get("file", "default"),
)
async def test_any_answer_about_one_video_is_an_address_or_a_fault(
    place: Place, number: int, options: dict[str, Any]
) -> None:
    item = (await place.items())[number]
    source = await place.source(**options)
    del place.server.exchanges[:]
    with contextlib.suppress(Fault):
        await once_made(source, item)
    asked = [json.loads(seen.answer) for seen in place.server.exchanges[-2:]]
    if isinstance(place.server, BrightcoveServer):
        asked = asked[-1:]
    faults = set()
    for position, answer in enumerate(asked):
        for changed in altered(answer, [None, {}, "x", -1, ["a"]]):
            answers = [*asked[:position], changed, *asked[position + 1 :], *asked]
            place.server.trouble = [(lambda request, value=value: JSONResponse(value)) for value in answers]
            try:
                location = await source.locate(item)
            except Fault as fault:
                faults.add(fault.code)
            else:
                assert isinstance(location, Location)
                assert location.address.startswith("http")
            place.server.trouble = []
    assert faults or options  # what a rendition's own server says stands unaltered
