"""Dead letters, taken up again by a run of their own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from faults import Fault
from ledger.engine import Connection, Engine
from ledger.transitions import DEAD

_WANTED: Final = """
    a.state = any($1) and ($2::text is null or a.run = $2)
    and (cardinality($3::text[]) = 0 or a.reason = any($3))
    and (cardinality($4::text[]) = 0 or a.ref = any($4) or a.source_id = any($4))
"""

_TAKE: Final = f"""
with locked as (
    select a.ref, a.run, a.page, a.position from asset a join run r on r.run = $5
    where {_WANTED} and a.run <> $5 and (a.tenant, a.source, a.account) = (r.tenant, r.source, r.account)
    for update of a
), numbered as (
    select ref, row_number() over (order by run, page, position, ref) as n from locked
)
update asset a set
    run = $5, page = 1 + (numbered.n - 1) / $6, reason = null, detail = null, attempts = 0, deaths = 0,
    not_before = null, updated_at = now(),
    -- Where it goes on depends on what is known of it: an answer that never came is looked up before a second create,
    -- a video that is still processing there is waited for, one that differs is compared again.
    state = case
        when a.state = 'mismatched' and a.reason = 'remote-missing' then 'creating'
        when a.state = 'mismatched' then 'ready'
        when a.remote_id is not null and a.reason = 'not-ready-in-time' then 'processing'
        when a.remote_id is not null then 'inventoried'
        when a.intent_at is not null then 'creating'
        when a.state = 'failed' and a.facts is not null then 'inventoried'
        else 'pending' end,
    intent_at = case when a.reason = 'remote-missing' then now() else a.intent_at end,
    -- What failed there is left there: it is made anew, and the old one is told among the strays.
    remote_id = case
        when a.state = 'mismatched' and a.reason = 'remote-missing' then null
        when a.state = 'mismatched' or a.reason = 'not-ready-in-time' then a.remote_id end,
    retired = case
        when a.remote_id is null or a.state = 'mismatched' or a.reason = 'not-ready-in-time' then a.retired
        else a.retired || a.remote_id end,
    transfer = case when a.reason = 'file-changed' then null else a.transfer end,
    processing_at = case when a.reason = 'not-ready-in-time' then now() else a.processing_at end
from numbered where a.ref = numbered.ref
"""  # noqa: S608  # composed of constants

_RECORD: Final = """
with counted as (
    select count(*)::int as rows, coalesce(max(page), 0)::int as pages from asset where run = $1
), numbered as (
    update run set pages = greatest(run.pages, counted.pages) from counted where run.run = $1
)
insert into listing (run, walk, stripe, sequence, next_cursor, page, listed, added, owned, collapsed, blank)
select $1, 1, 0, 0, null, null, rows, rows, 0, 0, 0 from counted
on conflict (run, walk, stripe, sequence) do nothing
"""


async def take(
    engine: Engine, run: str, *, of_run: str | None, reasons: Sequence[str], assets: Sequence[str], page_size: int
) -> int:
    """Moves the dead letters that are asked for to `run`, at the state from which each goes on, in pages of
    `page_size`; returns how many the run has. Only those of the run's own tenant, source and account. Repeated, it
    changes nothing more: they are the run's already."""

    async def work(connection: Connection) -> int:
        await connection.execute("select 1 from run where run = $1 for update", run)
        if not await connection.fetchval("select exists (select from listing where run = $1)", run):
            await connection.execute(_TAKE, list(DEAD), of_run, list(reasons), list(assets), run, page_size)
            await connection.execute(_RECORD, run)
        rows: int = await connection.fetchval("select count(*) from asset where run = $1", run)
        return rows

    return await engine.transaction(work)


_COUNT: Final = f"""
select a.state || ': ' || coalesce(a.reason, 'unknown') as kind, count(*) as n from asset a where {_WANTED}
group by 1 order by 2 desc, 1
"""  # noqa: S608  # composed of constants


async def count(
    engine: Engine, *, of_run: str | None, reasons: Sequence[str], assets: Sequence[str]
) -> Mapping[str, int]:
    """How many dead letters are asked for, by state and reason."""
    records = await engine.fetch(_COUNT, list(DEAD), of_run, list(reasons), list(assets))
    return {record["kind"]: record["n"] for record in records}


@dataclass(frozen=True, slots=True)
class RunLike:
    """Of which tenant, source and account dead letters are, and how the source was opened."""

    run: str
    tenant: str
    source: str
    account: str
    source_spec: Mapping[str, Any]


_LIKE: Final = """
select run, tenant, source, account, source_spec from run
where run = coalesce($1, (select a.run from asset a where a.ref = any($2) or a.source_id = any($2) limit 1),
                     (select max(run) from run having count(distinct (tenant, source, account)) = 1))
"""


async def run_like(engine: Engine, run: str | None, assets: Sequence[str]) -> RunLike:
    """The run whose source and account a redrive uses: the named one, else that of the first asset, else any where all
    are alike. Raises Fault("run-unknown")."""
    record = await engine.fetchrow(_LIKE, run, list(assets))
    if record is None:
        raise Fault(
            "run-unknown",
            f"no run {run!r}" if run else "there are several sources or accounts: say which with `--of RUN`",
        )
    return RunLike(**record)
