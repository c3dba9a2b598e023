"""Webhook events: kept and applied in one statement, and turned into hints for the workflows that wait.

The state change is conditional (`ledger.transitions`), so a duplicate, late or out-of-order event changes nothing. An
event for a video that no row knows yet stays in the inbox and is applied once the row is known.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

import asyncpg

from destinations.base import RemoteEvent, RemoteState, RemoteVideo
from faults import REASONS, Fault
from ledger.engine import Connection, Engine, clean
from ledger.remotes import measured
from ledger.transitions import steps

KEY_LIMIT: Final = 500
"""Characters of an event's key that are kept as they are: an index row takes 2704 bytes."""
WAITING_S: Final = 3600
"""Seconds that an event for an unknown video is looked at again; later the settle phase's sweep finds its state."""


def state_of(video: RemoteVideo) -> tuple[str, str | None]:
    """Our state and reason for a video's state at the destination."""
    match video.state:
        case RemoteState.READY:
            return "ready", None
        case RemoteState.DELETED:
            return "deleted", "remote-deleted"
        case RemoteState.ERRORED:
            reason = video.reason if video.reason and video.reason in REASONS else "destination-failed"
            return ("rejected" if REASONS[reason].permanent else "failed"), reason
        case RemoteState.PROCESSING:
            return "processing", None


_TARGET: Final = """
    -- The row that the video is, or else the one whose reference it carries.
    select e.*, coalesce((select a.ref from asset a where a.account = $1 and a.remote_id = e.remote_id),
                         (select a.ref from asset a where a.account = $1 and a.ref = e.ref)) as row_ref
    from event e
"""

_MOVED: Final = """
    update asset a set
        -- A skipped row stays so, and learns what it will be when a later run takes it up.
        state = case when a.skipped_from is null or t.state = 'deleted' then t.state else a.state end,
        skipped_from = case when a.skipped_from is not null and t.state <> 'deleted' then t.state end,
        reason = t.reason, detail = t.detail,
        remote_id = t.remote_id, remote_duration_ms = coalesce(t.duration_ms, a.remote_duration_ms),
        remote_width = coalesce(t.width, a.remote_width), remote_height = coalesce(t.height, a.remote_height),
        remote_size = coalesce(t.size, a.remote_size), playback = coalesce(t.playback, a.playback),
        claim = null, claim_key = null, claimed_by = null, claim_until = null, attempts = 0, deaths = 0,
        not_before = null, intent_at = null, quiet_until = null, transfer = null,
        processing_at = coalesce(a.processing_at, now()), updated_at = now()
    from target t
    where a.ref = t.row_ref
      -- A second video with our reference is a duplicate: it moves nothing, reconciliation names it.
      and (a.remote_id is null or a.remote_id = t.remote_id)
      -- A video that was given up for another has nothing more to say.
      and not t.remote_id = any(a.retired)
      -- Only a video that we made, or may have made, can be gone.
      and (t.state <> 'deleted' or a.remote_id is not null or coalesce(a.skipped_from, a.state) = 'creating')
      and coalesce(a.skipped_from, a.state) || '>' || t.state = any({legal})
    returning a.ref, a.run, a.page
"""

_FREED: Final = """
    freed as (
        update account set awaits_place = false
        where account = $1 and awaits_place and exists (select from moved) returning account
    ), told as (
        select pg_notify('longhaul_pace', json_build_object('account', account, 'freed', true)::text) from freed
    )
"""
"""Whoever waits for a place at a host that caps the videos in the making is woken, once for each time it waits."""

_EVENT: Final = f"""
with event as (
    select * from unnest($4::text[], $5::text[], $6::text[], $7::text[], $8::text[], $9::bigint[], $10::int[],
                         $11::int[], $12::bigint[], $13::text[])
        as e(remote_id, ref, state, reason, detail, duration_ms, width, height, size, playback)
), target as ({_TARGET}), moved as ({_MOVED.format(legal="$14")}), {_FREED}
insert into inbox (account, dedupe_key, kind, remote_id, ref, state, video, applied_at, outcome, run, page)
select $1, $2, $3, t.remote_id, coalesce(k.ref, t.ref), t.state, $15,
       case when k.ref is not null then now() end,
       case when m.ref is not null then 'applied' when k.ref is not null then 'no-effect' end, k.run, k.page
from target t left join moved m on true left join asset k on k.ref = t.row_ref
    cross join (select count(*) from told) as told
on conflict (account, dedupe_key) do nothing
returning outcome
"""  # noqa: S608  # composed of constants


async def receive(engine: Engine, account: str, event: RemoteEvent) -> str:
    """Stores one verified event and applies it, in one statement. Returns "applied", "no-effect" (known and already
    past), "waiting" (no row knows the video yet) or "duplicate".

    A key that comes again with other content is no second event, but what it says is applied as far as the row's state
    allows: hosts number events anew after a loss.
    Raises Fault("answer-malformed") where PostgreSQL cannot keep what the event says.
    """
    try:
        return await _received(engine, account, event)
    except (asyncpg.DataError, asyncpg.IntegrityConstraintViolationError, asyncpg.ProgramLimitExceededError) as error:
        raise Fault("answer-malformed", f"the event cannot be kept: {error}") from error


async def _received(engine: Engine, account: str, event: RemoteEvent) -> str:
    key = clean(event.dedupe_key)
    if len(key) > KEY_LIMIT:
        key = "sha256:" + hashlib.sha256(key.encode()).hexdigest()
    if event.video is None or event.video.awaits_bytes:
        # One that was announced is no news: whoever sends its bytes has the row.
        await engine.execute(
            "insert into inbox (account, dedupe_key, kind, applied_at, outcome, signalled_at)"
            " values ($1, $2, $3, now(), 'ignored', now()) on conflict do nothing",
            account,
            key,
            clean(event.kind),
        )
        return "no-effect"
    arguments = [
        account,
        key,
        clean(event.kind),
        *_columns([event.video]),
        steps([state_of(event.video)[0]]),
        asdict(event.video),
    ]
    try:
        records = await engine.fetch(_EVENT, *arguments)
    except asyncpg.UniqueViolationError:
        # Another row took this remote id while we waited for ours: now it is found by it.
        records = await engine.fetch(_EVENT, *arguments)
    if not records:
        return "duplicate"
    return records[0]["outcome"] or "waiting"


_APPLY: Final = f"""
with event as (
    select * from unnest($2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::bigint[], $8::int[],
                         $9::int[], $10::bigint[], $11::text[])
        as e(remote_id, ref, state, reason, detail, duration_ms, width, height, size, playback)
), target as ({_TARGET}), moved as ({_MOVED.format(legal="$12")}), {_FREED}
select ref from moved cross join (select count(*) from told) as told
"""  # noqa: S608  # composed of constants


async def apply(engine: Engine, account: str, videos: Sequence[RemoteVideo]) -> int:
    """Applies what the destination said when asked (a sweep, a lookup) as if it were events; returns the rows moved."""
    videos = [video for video in videos if not video.awaits_bytes]
    if not videos:
        return 0
    return len(await engine.fetch(_APPLY, *_applied(account, videos)))


def _applied(account: str, videos: Sequence[RemoteVideo]) -> list[Any]:
    return [account, *_columns(videos), steps({state_of(video)[0] for video in videos})]


def _columns(videos: Sequence[RemoteVideo]) -> list[list[Any]]:
    states = [state_of(video) for video in videos]
    return [
        [clean(video.remote_id) for video in videos],
        [clean(video.ref) for video in videos],
        [state for state, _ in states],
        [reason for _, reason in states],
        [clean(video.detail) for video in videos],
        *measured(videos),
    ]


_WAITING: Final = """
select i.id, i.account, i.video from inbox i
where i.applied_at is null and i.received_at > now() - make_interval(secs => $1)
  and exists (select from asset a where a.account = i.account and a.remote_id = i.remote_id)
order by i.id limit 500
for update skip locked
"""

_MARK: Final = """
update inbox i set applied_at = now(), outcome = 'applied-late', ref = a.ref, run = a.run, page = a.page
from asset a where i.id = any($1) and a.account = i.account and a.remote_id = i.remote_id
"""


async def apply_waiting(engine: Engine) -> int:
    """Applies events that came before their row knew its remote id; returns how many."""

    async def work(connection: Connection) -> int:
        records = await connection.fetch(_WAITING, WAITING_S)
        # One statement moves a row once: a video's first event goes into the first statement, its second into the next.
        turns: dict[tuple[int, str], list[RemoteVideo]] = {}
        seen: Counter[tuple[str, str]] = Counter()
        for record in records:
            video = RemoteVideo(**{**record["video"], "state": RemoteState(record["video"]["state"])})
            turn = seen[record["account"], video.remote_id]
            seen[record["account"], video.remote_id] += 1
            turns.setdefault((turn, record["account"]), []).append(video)
        for (_, account), videos in sorted(turns.items(), key=lambda item: item[0]):
            await connection.fetch(_APPLY, *_applied(account, videos))
        if records:
            await connection.execute(_MARK, [record["id"] for record in records])
        return len(records)

    return await engine.transaction(work)


@dataclass(frozen=True, slots=True)
class Hint:
    """Events have come for a page; `left` is how many of its rows the settle phase still waits for."""

    run: str
    page: int
    left: int
    events: int


_HINTS: Final = """
with taken as (
    update inbox set signalled_at = now()
    where id in (select id from inbox where applied_at is not null and signalled_at is null
                 order by id limit 5000 for update skip locked)
    returning run, page
), pages as (
    select run, page, count(*) as events from taken where run is not null group by run, page
)
select p.run, p.page, p.events::int,
       (select count(*) from asset a where a.run = p.run and a.page = p.page and a.state = 'processing')::int as left
from pages p join phase on phase.run = p.run and phase.phase = 'settle' and phase.closed_at is null
"""


async def take_hints(engine: Engine) -> Sequence[Hint]:
    """Takes the applied events nobody was told of, gathered by page. Marked before the signal goes out: a lost hint
    costs only the time until the page's own sweep."""
    return [Hint(r["run"], r["page"], r["left"], r["events"]) for r in await engine.fetch(_HINTS)]
