"""Questions that people and workflows ask of the ledger. Nothing here writes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import asyncpg

from faults import Fault
from ledger.engine import Engine


@dataclass(frozen=True, slots=True)
class RunLine:
    """One run, for a list of runs."""

    run: str
    tenant: str
    source: str
    account: str
    state: str
    reason: str | None
    detail: str | None
    until: datetime | None
    created_at: datetime
    ended_at: datetime | None
    assets: int


_RUNS: Final = """
select r.run, r.tenant, r.source, r.account, r.state, r.reason, r.detail, r.until, r.created_at, r.ended_at,
       (select count(*) from asset a where a.run = r.run) as assets
from run r where $1::text is null or r.run = $1
order by r.created_at desc, r.run limit $2
"""


async def runs(engine: Engine, limit: int = 100) -> Sequence[RunLine]:
    return [RunLine(**record) for record in await engine.fetch(_RUNS, None, limit)]


async def run_line(engine: Engine, run: str) -> RunLine:
    """Raises Fault("run-unknown") where the ledger has no such run."""
    records = await engine.fetch(_RUNS, run, 1)
    if not records:
        raise Fault("run-unknown", f"the ledger has no run named {run!r}; `starter.py list` shows those it has")
    return RunLine(**records[0])


async def states(engine: Engine, run: str) -> Mapping[str, int]:
    """How many of the run's assets are in each state."""
    records = await engine.fetch("select state, count(*) as n from asset where run = $1 group by state", run)
    return {record["state"]: record["n"] for record in records}


@dataclass(frozen=True, slots=True)
class Summary:
    """A run in numbers. `states` and `reasons` count its own assets; `owned` are listed ones that an earlier run has,
    `library` counts the states of every asset of the same tenant and source. Durations in ms, sizes in bytes."""

    run: str
    listed: int
    added: int
    owned: int
    collapsed: int
    blank: int
    problems: int
    states: Mapping[str, int]
    reasons: Mapping[str, Mapping[str, int]]
    library: Mapping[str, int]
    library_reasons: Mapping[str, Mapping[str, int]]
    creates: int
    adopted: int
    duration_ms: int
    size: int
    retries: int


_LISTED: Final = """
select coalesce(sum(listed), 0)::bigint as listed, coalesce(sum(owned), 0)::bigint as owned,
       coalesce(sum(collapsed), 0)::bigint as collapsed, coalesce(sum(blank), 0)::bigint as blank
from listing where run = $1 and walk = (select max(walk) from listing where run = $1)
"""
_ADDED: Final = "select count(*) from asset where run = $1"
_PROBLEMS: Final = "select count(*) from problem where run = $1"
_BY_REASON: Final = """
select run = $1 as own, state, reason, count(*) as n,
       coalesce(sum(duration_ms), 0)::bigint as duration_ms, coalesce(sum(size), 0)::bigint as size
from asset where (tenant, source) = (select tenant, source from run where run = $1)
group by 1, 2, 3
"""
_WORK: Final = """
select count(*) filter (where outcome = 'created') as creates, count(*) filter (where outcome = 'adopted') as adopted,
       count(*) filter (where outcome in ('again', 'lost', 'overtaken')) as retries
from step where run = $1
"""


async def summary(engine: Engine, run: str) -> Summary:
    listed = await engine.fetchrow(_LISTED, run)
    work = await engine.fetchrow(_WORK, run)
    assert listed is not None and work is not None, "aggregates have a row"
    own: dict[str, int] = {}
    library: dict[str, int] = {}
    own_reasons: dict[str, dict[str, int]] = {}
    library_reasons: dict[str, dict[str, int]] = {}
    duration = size = 0
    for record in await engine.fetch(_BY_REASON, run):
        state, reason, count = record["state"], record["reason"], record["n"]
        library[state] = library.get(state, 0) + count
        if reason:
            _add(library_reasons, state, reason, count)
        if record["own"]:
            own[state] = own.get(state, 0) + count
            duration += record["duration_ms"]
            size += record["size"]
            if reason:
                _add(own_reasons, state, reason, count)
    return Summary(
        run=run,
        listed=listed["listed"],
        added=await engine.fetchval(_ADDED, run),
        owned=listed["owned"],
        collapsed=listed["collapsed"],
        blank=listed["blank"],
        problems=await engine.fetchval(_PROBLEMS, run),
        states=own,
        reasons=own_reasons,
        library=library,
        library_reasons=library_reasons,
        creates=work["creates"],
        adopted=work["adopted"],
        duration_ms=duration,
        size=size,
        retries=work["retries"],
    )


def _add(counts: dict[str, dict[str, int]], state: str, reason: str, n: int) -> None:
    by_reason = counts.setdefault(state, {})
    by_reason[reason] = by_reason.get(reason, 0) + n


@dataclass(frozen=True, slots=True)
class Problem:
    """An entry of the source that was not taken: where it stands, the field to blame, and what to do."""

    position: int
    field: str
    words: str


async def problems(engine: Engine, run: str, limit: int = 100) -> Sequence[Problem]:
    records = await engine.fetch(
        "select position, field, words from problem where run = $1 order by position, field limit $2", run, limit
    )
    return [Problem(**record) for record in records]


@dataclass(frozen=True, slots=True)
class Example:
    """One asset that stands for all that ended with the same state and reason."""

    state: str
    reason: str
    count: int
    ref: str
    source_id: str
    detail: str | None


_EXAMPLES: Final = """
select distinct on (state, reason) state, reason, count(*) over (partition by state, reason) as count, ref, source_id,
       detail
from asset where run = $1 and reason is not null and state = any($2)
order by state, reason, position
"""


async def examples(engine: Engine, run: str, states: Sequence[str]) -> Sequence[Example]:
    """The run's assets in these states by reason, each with its count and one example."""
    return [Example(**record) for record in await engine.fetch(_EXAMPLES, run, list(states))]


_FIND: Final = """
select * from asset
where ref = $1 or source_id = $1 or remote_id = $1
order by (ref = $1) desc, updated_at desc limit 10
"""
_STEPS: Final = "select * from step where ref = $1 order by fence"
_EVENTS: Final = """
select kind, state, outcome, received_at, applied_at from inbox where ref = $1 or (account = $2 and remote_id = $3)
order by id limit 100
"""


@dataclass(frozen=True, slots=True)
class History:
    """All that is known of one asset: its row, its steps in order, the events that came for it."""

    asset: Mapping[str, Any]
    steps: Sequence[Mapping[str, Any]]
    events: Sequence[Mapping[str, Any]]


async def history(engine: Engine, name: str) -> Sequence[History]:
    """What happened to the assets with this ref, source id or remote id (tenants may use the same source id)."""
    found = []
    for record in await engine.fetch(_FIND, name):
        steps = await engine.fetch(_STEPS, record["ref"])
        events = await engine.fetch(_EVENTS, record["ref"], record["account"], record["remote_id"])
        found.append(History(dict(record), [dict(step) for step in steps], [dict(event) for event in events]))
    return found


_MAP: Final = """
select ref, source_id, remote_id, state, playback, title, duration_ms, account, reason
from asset
where ref > $2
  and case when $3 then (tenant, source) = (select r.tenant, r.source from run r where r.run = $1) else run = $1 end
order by ref limit 1000
"""


async def id_map(engine: Engine, run: str, *, library: bool = False) -> AsyncIterator[asyncpg.Record]:
    """Every asset of the run, or of the run's whole library, with its remote id, by ref, in bounded memory."""
    after = ""
    while records := await engine.fetch(_MAP, run, after, library):
        for record in records:
            yield record
        after = records[-1]["ref"]


@dataclass(frozen=True, slots=True)
class Estimate:
    """What a run is about to do, for a person's approval. Durations in ms, sizes in bytes; `unknown_duration` counts
    videos whose duration nobody knows yet."""

    to_create: int
    duration_ms: int
    unknown_duration: int
    size: int
    rejected: Mapping[str, int]
    owned: int
    have: Mapping[str, int]
    """Videos by what travels with them (fields of `sources.about.About`); under "privacy" those that are not public."""


_HAVE: Final = """
select key, count(*) as n from asset, jsonb_object_keys(about) as key
where run = $1 and ($2::text[] is null or state = any($2))
  and (key <> 'privacy' or about ->> 'privacy' <> 'public')
group by key
"""


async def have(engine: Engine, run: str, states: Sequence[str] | None = None) -> Mapping[str, int]:
    """How many of a run's videos have what travels with a video, by field of `sources.about.About`; under "privacy"
    those that are not public. `states`: only those in them."""
    return {row["key"]: row["n"] for row in await engine.fetch(_HAVE, run, states)}


_ESTIMATE: Final = """
select count(*) as n, coalesce(sum(duration_ms), 0)::bigint as duration_ms,
       count(*) filter (where duration_ms is null) as unknown_duration, coalesce(sum(size), 0)::bigint as size
from asset where run = $1 and state = any(array['inventoried', 'creating'])
"""


async def estimate(engine: Engine, run: str) -> Estimate:
    record = await engine.fetchrow(_ESTIMATE, run)
    listed = await engine.fetchrow(_LISTED, run)
    assert record is not None and listed is not None, "aggregates have a row"
    rejected = await engine.fetch(
        "select reason, count(*) as n from asset where run = $1 and state = 'rejected' group by reason", run
    )
    return Estimate(
        to_create=record["n"],
        duration_ms=record["duration_ms"],
        unknown_duration=record["unknown_duration"],
        size=record["size"],
        rejected={row["reason"] or "unknown": row["n"] for row in rejected},
        owned=listed["owned"],
        have=await have(engine, run, ["inventoried", "creating"]),
    )


async def verdicts(engine: Engine, tenant: str, source: str) -> Mapping[str, tuple[str, str | None]]:
    """State and reason of every asset of one library, by source id. For small libraries: it is held in memory."""
    records = await engine.fetch(
        "select source_id, state, reason from asset where tenant = $1 and source = $2", tenant, source
    )
    return {record["source_id"]: (record["state"], record["reason"]) for record in records}
