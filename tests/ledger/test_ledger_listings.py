"""Listings: pages become rows once, whoever writes them, and a killed walk goes on where it stood."""

from __future__ import annotations

import asyncio

from ledger_rig import Library, begin, item, items, ref, walker, write

from ledger import listings, questions, runs
from ledger.engine import Engine
from ledger.listings import Walker, WalkPlace, Written
from sources.base import Problem


async def problems(engine: Engine) -> list[tuple[int, str, str]]:
    return [(p.position, p.field, p.words) for p in await questions.problems(engine, "first")]


async def test_a_listed_page_becomes_rows(library: Library) -> None:
    await begin(library.engine)
    by = await walker(library.engine)
    whole = item(0, title="One", size=10, duration_ms=20, metadata={"tags": ["a"]})
    assert await write(library.engine, by, 0, [whole, item(1, locator=None)]) == Written(2, 0, 0)
    row = await library.row(ref(0))
    assert (row["state"], row["page"], row["position"], row["run"]) == ("pending", 1, 0, "first")
    assert (row["title"], row["size"], row["claimed_duration_ms"], row["metadata"]) == ("One", 10, 20, {"tags": ["a"]})
    assert (await library.row(ref(1)))["locator"] is None


async def test_the_same_id_with_the_same_address_is_collapsed_and_counted(library: Library) -> None:
    await begin(library.engine)
    by = await walker(library.engine)
    assert await write(library.engine, by, 0, [item(0), item(1), item(0, position=2)]) == Written(2, 0, 1)
    again = item(1, position=3)
    assert await write(library.engine, by, 1, [again, item(4)]) == Written(1, 0, 1)
    assert (await listings.tally(library.engine, "first", 1)) == listings.Tally(5, 3, 0, 2, None)
    assert await problems(library.engine) == []
    assert (await library.row(ref(1)))["position"] == 1, "the first one counts"


async def test_the_same_id_with_two_addresses_is_told_with_both_places(library: Library) -> None:
    await begin(library.engine)
    by = await walker(library.engine)
    within = item(0, position=7, locator="https://elsewhere/")
    assert await write(library.engine, by, 0, [item(0), within]) == Written(1, 0, 1)
    over = item(0, position=9, locator=None)
    assert await write(library.engine, by, 1, [over]) == Written(0, 0, 1)
    assert [(position, field) for position, field, _ in await problems(library.engine)] == [(7, "id"), (9, "id")]
    for position, _, words in await problems(library.engine):
        assert f"stands at 0 and at {position} with different addresses" in words
        assert "'v0'" in words
    assert (await library.row(ref(0)))["locator"] == item(0).locator


async def test_ids_that_differ_only_in_what_postgresql_refuses_are_one(library: Library) -> None:
    await begin(library.engine)
    by = await walker(library.engine)
    odd = [item(0, source_id="a\0", position=0, locator="x"), item(0, source_id="a\ufffd", position=1, locator="x")]
    assert await write(library.engine, by, 0, odd) == Written(1, 0, 1)
    assert await library.engine.fetchval("select source_id from asset") == "a\ufffd"


async def test_an_id_that_is_too_long_to_be_kept_is_told_and_the_others_are_listed(library: Library) -> None:
    await begin(library.engine)
    by = await walker(library.engine)
    long = "".join(chr(0x4E00 + n * 7919 % 20000) for n in range(3000))
    longest = long[: listings.LONGEST_ID // 3]
    listed = [item(0), item(1, source_id=long), item(2, source_id=longest), item(3, size=2**70, duration_ms=-(2**70))]
    assert await write(library.engine, by, 0, listed) == Written(3, 0, 0)
    [(position, field, words)] = await problems(library.engine)
    assert (position, field) == (1, "id")
    assert "9000 bytes" in words
    row = await library.row(ref(3))
    assert (row["size"], row["claimed_duration_ms"]) == (None, None)


async def test_what_the_source_could_not_read_is_kept_with_its_place(library: Library) -> None:
    await begin(library.engine)
    by = await walker(library.engine)
    found = [Problem(3, "url", "no address\0"), Problem(4, None, "too few cells")]
    await write(library.engine, by, 0, items(range(2)), problems=found, skipped_blank=2, total=9)
    assert await problems(library.engine) == [(3, "url", "no address\ufffd"), (4, "", "too few cells")]
    summary = await questions.summary(library.engine, "first")
    assert (summary.blank, summary.problems, summary.listed) == (2, 2, 2)
    assert (await listings.tally(library.engine, "first", 1)).total == 9


async def test_a_walk_goes_on_behind_the_last_page_that_was_written(library: Library) -> None:
    await begin(library.engine)
    by = await walker(library.engine)
    assert await listings.place(library.engine, by) == WalkPlace(0, None, False)
    await write(library.engine, by, 0, items(range(2)), next_cursor="c1")
    assert await listings.place(library.engine, by) == WalkPlace(1, "c1", False)
    await write(library.engine, by, 1, items(range(2, 3)), next_cursor=None)
    assert await listings.place(library.engine, by) == WalkPlace(2, None, True)
    other = Walker(by.run, by.tenant, by.source, by.account, by.walk, 1, by.fence)
    assert await listings.place(library.engine, other) == WalkPlace(0, None, False), "each stripe has its own place"


async def test_a_page_that_two_attempts_write_at_once_is_written_once(library: Library, open_engine) -> None:
    await begin(library.engine)
    by = await walker(library.engine)
    engines = [await open_engine() for _ in range(4)]
    for page in range(10):
        listed = items(range(page * 10, page * 10 + 10))
        written = await asyncio.gather(*(write(engine, by, page, listed) for engine in engines))
        assert [w for w in written if w is not None] == [Written(10, 0, 0)]
    assert await library.states() == {"pending": 100}
    assert await listings.tally(library.engine, "first", 1) == listings.Tally(100, 100, 0, 0, None)


async def test_page_numbers_are_dense_over_stripes_that_list_at_once(library: Library, open_engine) -> None:
    await begin(library.engine)
    first = await walker(library.engine)
    engines = [await open_engine() for _ in range(4)]

    async def walk(stripe: int) -> None:
        by = Walker(first.run, first.tenant, first.source, first.account, 1, stripe, first.fence)
        for page in range(6):
            start = (page * 4 + stripe) * 5
            await write(engines[stripe], by, page, items(range(start, start + 5)))

    await asyncio.gather(*(walk(stripe) for stripe in range(4)))
    pages = await library.engine.fetch("select page, count(*) as n from asset group by page order by page")
    assert [(row["page"], row["n"]) for row in pages] == [(number, 5) for number in range(1, 25)]
    assert await library.engine.fetchval("select pages from run") == 24


async def test_a_page_that_adds_nothing_takes_no_number(library: Library) -> None:
    await library.fill(5)
    by = await walker(library.engine)
    assert await write(library.engine, by, 1, items(range(5))) == Written(0, 0, 0), "the same places: nothing repeats"
    assert await write(library.engine, by, 2, items(range(5, 6))) == Written(1, 0, 0)
    assert (await library.row(ref(5)))["page"] == 2


async def test_a_walker_whose_phase_was_taken_over_writes_nothing(library: Library) -> None:
    await begin(library.engine)
    old = await walker(library.engine)
    new = await walker(library.engine)
    assert await write(library.engine, old, 0, items(range(3))) is None
    assert await library.states() == {}
    assert await library.engine.fetchval("select pages from run") == 0
    assert await write(library.engine, new, 0, items(range(3))) == Written(3, 0, 0)


async def test_a_second_walk_finds_what_shifted_while_the_first_one_listed(library: Library) -> None:
    await begin(library.engine)
    first = await walker(library.engine)
    await write(library.engine, first, 0, [item(0), item(1), item(3, position=2)], next_cursor=None)
    second = await walker(library.engine, walk=2)
    assert await listings.place(library.engine, second) == WalkPlace(0, None, False)
    assert await write(library.engine, second, 0, items(range(4)), next_cursor=None) == Written(1, 0, 0)
    assert await problems(library.engine) == [], "what moved is no repeat"


async def test_what_is_said_of_a_listing_as_a_whole_is_said_once_and_taken_back(library: Library) -> None:
    await begin(library.engine)
    await listings.note_problem(library.engine, "first", "5 of 6")
    await listings.note_problem(library.engine, "first", "5 of 7")
    assert await problems(library.engine) == [(0, "listing", "5 of 7")]
    await listings.clear_problem(library.engine, "first")
    assert await problems(library.engine) == []


async def test_the_list_phase_holds_no_asset_back(library: Library) -> None:
    await library.fill(3)
    assert await runs.pages_left(library.engine, "first", "list", after=0, limit=5) == []
