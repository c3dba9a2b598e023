"""The listing phase: pages of a source's items become rows, and one statement decides who owns each."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final

import asyncpg

from ledger.assets import VIDEO, ref_of
from ledger.engine import Connection, Engine, clean, fit
from ledger.transitions import DEAD
from sources.base import Item, ListedPage


@dataclass(frozen=True, slots=True)
class Walker:
    """One stripe's walk over the listing of a run; `fence` is the list phase's."""

    run: str
    tenant: str
    source: str
    account: str
    walk: int
    stripe: int
    fence: int


@dataclass(frozen=True, slots=True)
class Written:
    """What became of one listed page: items now owned by this run, owned by an earlier one, repeated in this run."""

    added: int
    owned: int
    collapsed: int


LONGEST_FIELD: Final = 200
"""Characters of a column's name that a problem is filed under: it is part of an index entry too."""
LONGEST_ID: Final = 2_000
"""Bytes of a source's id: PostgreSQL's B-tree takes 2704 for an entry, in which tenant and source stand too."""

_OWN: Final = """
insert into asset (ref, tenant, source, kind, source_id, run, page, position, account, title, locator, size,
                   claimed_duration_ms, metadata, about, state)
select i.ref, $1, $2, $3, i.source_id, $4, run.pages + 1, i.position, $5, i.title, i.locator, i.size, i.duration_ms,
       i.metadata, i.about, 'pending'
from run, unnest($6::text[], $7::text[], $8::bigint[], $9::text[], $10::text[], $11::bigint[], $12::bigint[],
                 $13::jsonb[], $14::jsonb[])
                 as i(ref, source_id, position, title, locator, size, duration_ms, metadata, about)
where run.run = $4
on conflict (tenant, source, kind, source_id) do update set
    run = excluded.run, page = excluded.page, position = excluded.position, account = excluded.account,
    title = excluded.title, locator = excluded.locator, size = excluded.size,
    claimed_duration_ms = excluded.claimed_duration_ms, metadata = excluded.metadata,
    about = excluded.about,
    state = coalesce(asset.skipped_from, 'pending'), skipped_from = null, reason = null, detail = null,
    attempts = 0, deaths = 0, not_before = null, updated_at = now()
where asset.state = 'skipped'
  and (asset.account = excluded.account or (asset.remote_id is null and asset.intent_at is null))
returning ref
"""
"""The one statement that decides ownership: a new row, or one that an earlier run skipped; anything else is owned."""

_CORRECT: Final = """
update asset a set
    title = i.title, locator = i.locator, size = i.size, claimed_duration_ms = i.duration_ms, metadata = i.metadata,
    about = i.about, updated_at = now()
from unnest($1::text[], $2::text[], $3::text[], $4::bigint[], $5::bigint[], $6::jsonb[], $7::jsonb[])
    as i(ref, title, locator, size, duration_ms, metadata, about)
where a.ref = i.ref and a.run <> $8 and a.state = any($9)
"""
"""A dead letter of an earlier run stays its own, but what the source now says of it is what a redrive will use."""

_KNOWN: Final = """
select ref, source_id, run = $1 as ours, position, locator, state from asset where ref = any($2)
"""

_LISTED: Final = """
with held as (
    -- Locked: the phase cannot close, nor be taken over, between this look and our commit.
    select 1 from phase where run = $1 and phase = 'list' and fence = $12 and closed_at is null for share
), numbered as (
    update run set pages = pages + 1 where run = $1 and $6 > 0 returning pages
), problems as (
    insert into problem (run, position, field, words)
    select $1, * from unnest($13::bigint[], $14::text[], $15::text[])
    on conflict do nothing
)
insert into listing (run, walk, stripe, sequence, next_cursor, page, listed, added, owned, collapsed, blank, total)
select $1, $2, $3, $4, $5, (select pages from numbered), $7, $6, $8, $9, $10, $11 from held
returning sequence
"""

_RUN_LOCK: Final = "select pages from run where run = $1 for no key update"


async def write_page(engine: Engine, walker: Walker, sequence: int, page: ListedPage) -> Written | None:
    """Writes one listed page with the cursor that leads on, in one transaction.

    None where another walker of this stripe has written that page, or holds the phase: the caller's walk is over.
    """
    first: dict[str, Item] = {}
    problems: dict[tuple[int, str], str] = {(p.position, p.column or ""): p.words for p in page.problems}
    collapsed = 0
    for listed in page.items:
        # The id as it is stored: two that differ only in what PostgreSQL refuses are the same row.
        item = replace(listed, source_id=clean(listed.source_id))
        if len(item.source_id.encode()) > LONGEST_ID:
            problems[item.position, "id"] = (
                f"an id of {len(item.source_id.encode())} bytes, at most {LONGEST_ID} are kept: give it a shorter one"
            )
            continue
        ref = ref_of(walker.tenant, walker.source, VIDEO, item.source_id)
        earlier = first.setdefault(ref, item)
        if earlier is not item:
            collapsed += 1
            _tell_twice(problems, item, earlier.position, earlier.locator)

    async def work(connection: Connection) -> Written | None:
        twice = collapsed
        seen = dict(problems)
        # Serializes the stripes of one run for these few statements, so that page numbers are dense.
        await connection.execute(_RUN_LOCK, walker.run)
        added = {r["ref"] for r in await connection.fetch(_OWN, *_items(walker, first))}
        owned = 0
        dead: dict[str, Item] = {}
        missing = [ref for ref in first if ref not in added]
        if missing:
            for known in await connection.fetch(_KNOWN, walker.run, missing):
                item = first[known["ref"]]
                if not known["ours"]:
                    owned += 1
                    if known["state"] in DEAD:
                        dead[known["ref"]] = item
                elif known["position"] != item.position and walker.walk == 1:
                    twice += 1
                    _tell_twice(seen, item, known["position"], known["locator"])
        if dead:
            refs, _, _, titles, locators, sizes, durations, metadata, about = _items(walker, dead)[5:]
            await connection.execute(
                _CORRECT, refs, titles, locators, sizes, durations, metadata, about, walker.run, list(DEAD)
            )
        written = await connection.fetchval(
            _LISTED,
            walker.run,
            walker.walk,
            walker.stripe,
            sequence,
            page.next_cursor,
            len(added),
            len(page.items),
            owned,
            twice,
            page.skipped_blank,
            page.total,
            walker.fence,
            [position for position, _ in seen],
            [clean(column, LONGEST_FIELD) for _, column in seen],
            [clean(words) for words in seen.values()],
        )
        if written is None:
            raise _Overtaken
        return Written(len(added), owned, twice)

    try:
        return await engine.transaction(work)
    except (_Overtaken, asyncpg.UniqueViolationError):
        return None


class _Overtaken(Exception):
    """Rolls the transaction back: another walker holds this place."""


def _tell_twice(problems: dict[tuple[int, str], str], item: Item, position: int, locator: str | None) -> None:
    """The same id with the same address is collapsed and counted; with another address a person has to look."""
    if item.locator != locator:
        problems[item.position, "id"] = (
            f"id {item.source_id!r} stands at {position} and at {item.position} with different addresses; "
            f"the one at {position} is used: give one of them another id, or remove it"
        )


def _items(walker: Walker, items: dict[str, Item]) -> list[Any]:
    # In the order of their references: two runs that list the same items then wait for each other, and don't deadlock.
    refs = sorted(items)
    values = [items[ref] for ref in refs]
    return [
        walker.tenant,
        walker.source,
        VIDEO,
        walker.run,
        walker.account,
        refs,
        [item.source_id for item in values],
        [item.position for item in values],
        [clean(item.title) for item in values],
        [clean(item.locator) for item in values],
        [fit(item.size) for item in values],
        [fit(item.duration_ms) for item in values],
        [dict(item.metadata) for item in values],
        [dict(item.about.to_json()) for item in values],
    ]


_PLACE: Final = """
select sequence, next_cursor from listing where run = $1 and walk = $2 and stripe = $3 order by sequence desc limit 1
"""


@dataclass(frozen=True, slots=True)
class WalkPlace:
    """Where a stripe's walk goes on: the next page's sequence number, its cursor, and whether the walk has ended."""

    sequence: int
    cursor: str | None
    ended: bool


async def place(engine: Engine, walker: Walker) -> WalkPlace:
    record = await engine.fetchrow(_PLACE, walker.run, walker.walk, walker.stripe)
    if record is None:
        return WalkPlace(0, None, False)
    return WalkPlace(record["sequence"] + 1, record["next_cursor"], record["next_cursor"] is None)


_TALLY: Final = """
select coalesce(sum(listed), 0)::bigint as listed, coalesce(sum(added), 0)::bigint as added,
       coalesce(sum(owned), 0)::bigint as owned, coalesce(sum(collapsed), 0)::bigint as collapsed, max(total) as total
from listing where run = $1 and walk = $2
"""


@dataclass(frozen=True, slots=True)
class Tally:
    """One walk over a listing: items listed, rows added, rows of earlier runs, repeats, the source's own total."""

    listed: int
    added: int
    owned: int
    collapsed: int
    total: int | None


async def tally(engine: Engine, run: str, walk: int) -> Tally:
    record = await engine.fetchrow(_TALLY, run, walk)
    assert record is not None, "an aggregate has a row"
    return Tally(**record)


async def note_problem(engine: Engine, run: str, words: str) -> None:
    """Keeps what a person should know of the listing as a whole (position 0)."""
    await engine.execute(
        "insert into problem (run, position, field, words) values ($1, 0, 'listing', $2) on conflict (run, position,"
        " field) do update set words = excluded.words",
        run,
        clean(words),
    )


async def clear_problem(engine: Engine, run: str) -> None:
    """Takes back what an earlier walk said of the listing as a whole."""
    await engine.execute("delete from problem where run = $1 and position = 0 and field = 'listing'", run)
