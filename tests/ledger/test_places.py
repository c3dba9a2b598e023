"""Places at a host that caps the videos in the making: given out exactly, and told when they are freed."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from ledger_rig import ACCOUNT, Library, event, video

from destinations.base import RemoteState
from ledger import inbox
from ledger.budgets import CHANNEL, word_of
from ledger.claims import Places

FIVE = Places(ACCOUNT, 5)


async def test_no_more_rows_are_given_out_than_there_are_places(library: Library) -> None:
    await library.fill(12, state="inventoried")
    place = await library.open("create")
    first = await library.claimed(place, 3, places=FIVE)
    second = await library.claimed(place, places=FIVE)
    assert (len(first.rows), len(second.rows)) == (3, 2)
    third = await library.claimed(place, places=FIVE)
    assert (third.rows, third.full) == ((), True)


async def test_of_many_who_claim_at_once_all_together_get_the_places_there_are(library: Library) -> None:
    await library.fill(200, page_size=25, state="inventoried")
    place = await library.open("create")
    pages = [replace(place, page=page) for page in range(1, 9)]
    windows = await asyncio.gather(*(library.claim(page, 7, places=Places(ACCOUNT, 10)) for page in pages))
    assert sum(len(window.rows) for window in windows if window) == 10


async def test_a_row_whose_call_is_open_keeps_its_place_and_is_given_out_again_where_all_are_taken(
    library: Library,
) -> None:
    await library.fill(6, state="inventoried")
    place = await library.open("create")
    await library.claimed(place, places=FIVE)
    await library.lapse()
    again = await library.claimed(place, places=FIVE)
    assert {row.state for row in again.rows} == {"creating"}
    assert len(again.rows) == 5


async def test_a_page_with_nothing_to_claim_is_not_full(library: Library) -> None:
    await library.fill(5, state="inventoried")
    place = await library.open("create")
    await library.claimed(place, places=FIVE)
    assert await library.claim(place, places=FIVE) is None


async def test_an_event_that_frees_a_place_tells_those_who_wait_once(library: Library) -> None:
    await library.fill(6, state="inventoried")
    place = await library.open("create")
    window = await library.claimed(place, places=FIVE)
    told: asyncio.Queue[str] = asyncio.Queue()
    async with library.engine.listening(CHANNEL, told.put_nowait):
        moved = await inbox.receive(
            library.engine, ACCOUNT, event(video("r0", RemoteState.READY, ref=window.rows[0].ref), "e0")
        )
        assert moved == "applied"
        # Nobody waited yet, so nobody is told; now somebody does.
        assert len((await library.claimed(place, places=FIVE)).rows) == 1
        await library.put(library.refs[5:], state="inventoried", claim=None, claim_until=None, quiet_until=None)
        await library.put(library.refs[:1], state="processing", remote_id="r0")
        assert (await library.claimed(place, places=FIVE)).full
        for number in (1, 2):
            ready = video(f"r{number}", RemoteState.READY, ref=window.rows[number].ref)
            assert await inbox.receive(library.engine, ACCOUNT, event(ready, f"e{number}")) == "applied"
        word = word_of(await asyncio.wait_for(told.get(), 10))
        assert (word.account, word.freed) == (ACCOUNT, True)
        await library.engine.execute("select pg_notify($1, $2)", CHANNEL, '{"account": "last"}')
        assert word_of(await asyncio.wait_for(told.get(), 10)).account == "last"
