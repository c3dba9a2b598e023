"""Runs and their phases: who holds them, what state they are in, and the barrier between phases."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from faults import Fault
from ledger.engine import Connection, Engine, clean
from ledger.transitions import PHASE_STATES, UNFINISHED


@dataclass(frozen=True, slots=True)
class Standing:
    """Where a run stands: its state, and the phases that are closed. `approved` says whether a person has approved."""

    state: str
    closed: frozenset[str]
    approved: bool


_OPEN: Final = """
insert into run (run, tenant, source, source_spec, account, plan) values ($1, $2, $3, $4, $5, $6)
on conflict (run) do update set
    state = case when run.state in ('cancelled', 'failed', 'finished', 'parked') then 'running' else run.state end,
    reason = null, detail = null, until = null, ended_at = null, plan = excluded.plan
where (run.tenant, run.source, run.account) = (excluded.tenant, excluded.source, excluded.account)
returning state, approved_at is not null as approved
"""

BATCH: Final = 5_000
"""Rows that one statement hands back or takes back: well within the statement time-out, however large the run."""

_TAKE_BACK: Final = """
with batch as (
    select ref from asset where run = $1 and state = 'skipped' and skipped_from is not null limit $2 for update
)
update asset a set state = a.skipped_from, skipped_from = null, reason = null, detail = null, attempts = 0, deaths = 0,
    not_before = null, updated_at = now()
from batch where a.ref = batch.ref
"""


async def open_run(
    engine: Engine,
    *,
    run: str,
    tenant: str,
    source: str,
    source_spec: Mapping[str, Any],
    account: str,
    plan: Sequence[str],
) -> Standing:
    """Writes a new run, or finds one that was begun before and takes up where it stands.

    Raises Fault("settings-refused") where a run of this name belongs to another tenant, source or account.
    """

    async def work(connection: Connection) -> Standing:
        record = await connection.fetchrow(_OPEN, run, tenant, source, source_spec, account, list(plan))
        if record is None:
            other = await connection.fetchrow("select tenant, source, account from run where run = $1", run)
            assert other is not None, "the conflicting run was there a statement ago and runs are never deleted"
            raise Fault(
                "settings-refused",
                f"a run named {run!r} exists for tenant {other['tenant']!r}, source {other['source']!r} and account "
                f"{other['account']!r}; choose another name for this one",
            )
        closed = await connection.fetch("select phase from phase where run = $1 and closed_at is not null", run)
        return Standing(record["state"], frozenset(row["phase"] for row in closed), record["approved"])

    standing = await engine.transaction(work)
    while await engine.execute(_TAKE_BACK, run, BATCH) != "UPDATE 0":
        pass
    return standing


_OPEN_PHASE: Final = """
insert into phase (run, phase, fence, openers)
select $1, $2, nextval('fence_number'), array_remove(array[$4::text], null)
where $3::text is null
   or exists (select from phase p where p.run = $1 and p.phase = $3 and p.closed_at is not null)
on conflict (run, phase) do update set
    fence = case when $4::text = any(phase.openers) then phase.fence else excluded.fence end,
    openers = case when $4::text = any(phase.openers) then phase.openers else phase.openers || excluded.openers end
where phase.closed_at is null
returning fence
"""


_TO_ATTACH: Final = """
update asset set state = 'attaching', updated_at = now()
where run = $1 and state = 'ready' and about ?| array['captions', 'poster']
"""
"""Only these rows have something to attach; the others stay ready, and cost the phase nothing."""


async def open_phase(engine: Engine, run: str, phase: str, after: str | None, opener: str | None = None) -> int | None:
    """Opens a phase, or takes it over from whoever opened it before, and returns the new fence. An `opener` takes it
    once: a worker that stalled over the same question, and comes back when another has answered it, takes it from
    nobody.

    None where it is closed already, or where the phase before it (`after`) is not.
    """

    async def work(connection: Connection) -> int | None:
        fence: int | None = await connection.fetchval(_OPEN_PHASE, run, phase, after, opener)
        if fence is not None and phase == "attach":
            await connection.execute(_TO_ATTACH, run)
        return fence

    return await engine.transaction(work) if phase == "attach" else await engine.run(work)


_CLOSE_PHASE: Final = """
update phase set closed_at = now()
where run = $1 and phase = $2 and fence = $3 and closed_at is null
  and not exists (select from asset where run = $1 and state = any($4))
  and ($2 <> 'list' or exists (select from listing where run = $1))
returning fence
"""


async def close_phase(engine: Engine, run: str, phase: str, fence: int) -> bool:
    """Closes a phase if no asset of the run is left in it and this fence still holds it. Of two finishers one wins."""
    return await engine.fetchval(_CLOSE_PHASE, run, phase, fence, list(PHASE_STATES[phase])) is not None


async def holds(engine: Engine, run: str, phase: str, fence: int) -> bool:
    """Whether this fence is the one on the phase."""
    return bool(
        await engine.fetchval(
            "select exists (select from phase where run = $1 and phase = $2 and fence = $3)", run, phase, fence
        )
    )


async def is_closed(engine: Engine, run: str, phase: str) -> bool:
    return bool(
        await engine.fetchval(
            "select exists (select from phase where run = $1 and phase = $2 and closed_at is not null)", run, phase
        )
    )


_PAGES: Final = """
select page,
       min(greatest(extract(epoch from greatest(not_before, quiet_until, claim_until) - clock_timestamp()), 0))::float8
           as wait_s
from asset where run = $1 and state = any($2) and page > $3
group by page order by page limit $4
"""


@dataclass(frozen=True, slots=True)
class PageLeft:
    """A page that a phase has yet to work, and the seconds before its first row may be."""

    page: int
    wait_s: float


async def pages_left(engine: Engine, run: str, phase: str, *, after: int, limit: int) -> Sequence[PageLeft]:
    """The next pages, by number, with rows that the phase still holds."""
    records = await engine.fetch(_PAGES, run, list(PHASE_STATES[phase]), after, limit)
    return [PageLeft(record["page"], record["wait_s"] or 0.0) for record in records]


_STATE_FROM: Final[Mapping[str, tuple[str, ...]]] = {
    "running": ("running", "paused", "parked", "awaiting-approval"),
    "paused": ("running", "paused", "parked", "awaiting-approval"),
    "parked": ("running", "parked"),
    "awaiting-approval": ("running", "awaiting-approval"),
    "finished": ("running", "paused"),
    "failed": ("running", "paused", "parked", "awaiting-approval"),
}

_SET_STATE: Final = """
update run set state = $2, reason = $3, detail = $4, until = clock_timestamp() + make_interval(secs => $5),
    approved_at = case when $6 then coalesce(approved_at, now()) else approved_at end,
    ended_at = case when $2 in ('finished', 'failed') then now() end
where run = $1 and state = any($7)
returning state
"""


async def set_state(
    engine: Engine,
    run: str,
    state: str,
    *,
    reason: str | None = None,
    detail: str | None = None,
    wait_s: float | None = None,
    approved: bool = False,
) -> bool:
    """Sets a run's state where its present one allows that; claims heed it at once. False where nothing changed."""
    return (
        await engine.fetchval(_SET_STATE, run, state, reason, clean(detail), wait_s, approved, list(_STATE_FROM[state]))
        is not None
    )


_CANCEL: Final = """
update run set state = 'cancelled', reason = null, detail = $2, until = null, ended_at = now()
where run = $1 and state <> 'finished'
"""

_HAND_BACK: Final = """
with batch as (
    select ref from asset
    where run = $1 and state = any($2) and exists (select from run where run = $1 and state = 'cancelled')
    limit $3 for update
)
update asset a set skipped_from = a.state, state = 'skipped', reason = null, detail = 'its run was cancelled',
    claim = null, claim_key = null, claimed_by = null, claim_until = null, fence = nextval('fence_number'),
    updated_at = now()
from batch where a.ref = batch.ref
"""


async def cancel(engine: Engine, run: str, why: str) -> None:
    """Ends a run: what it has not finished is skipped, with the state it was in, so that a later run takes it up there.

    No row is given out from the first statement on; the others hand the rows back, batch by batch, and their new fences
    make the writes of work still under way change nothing. Repeated after a crash, it goes on where it stopped.
    """
    await engine.execute(_CANCEL, run, clean(why))
    while await engine.execute(_HAND_BACK, run, list(UNFINISHED), BATCH) != "UPDATE 0":
        pass
