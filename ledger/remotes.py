"""The destination's own view: what its list gave, kept to be compared with what we think is there."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import asyncpg

from destinations.base import RemotePage, RemoteState, RemoteVideo
from ledger.engine import Engine, clean, fit


@dataclass(frozen=True, slots=True)
class RemoteWalk:
    """A walk over a destination's list: its number, and the cursor where it goes on."""

    listing: int
    cursor: str | None
    requests: int


_BEGIN: Final = """
with open as (
    select listing, next_cursor, requests from remote_listing
    where account = $1 and run = $2 and asker = $3 and ended_at is null
    order by listing desc limit 1
), begun as (
    insert into remote_listing (account, listing, run, asker)
    select $1, nextval('fence_number'), $2, $3 where not exists (select from open)
    returning listing, next_cursor, requests
)
select * from open union all select * from begun
"""


async def begin(engine: Engine, account: str, run: str, asker: str) -> RemoteWalk:
    """Goes on with the unfinished walk of the same `asker`, else begins a new one: what an earlier question saw is too
    old for a later one. Other walks over the account go on beside it."""
    record = await engine.fetchrow(_BEGIN, account, run, asker)
    assert record is not None, "one of the two branches gives a row"
    return RemoteWalk(record["listing"], record["next_cursor"], record["requests"])


_PAGE: Final = """
with walk as (
    update remote_listing set next_cursor = $3, videos = videos + $4, requests = requests + 1,
        ended_at = case when $3::text is null then now() end
    where account = $1 and listing = $2 and ended_at is null
    returning listing
)
insert into remote (account, remote_id, ref, state, reason, detail, duration_ms, width, height, size, playback,
                    title, listing)
select $1, v.*, walk.listing
from walk, unnest($5::text[], $6::text[], $7::text[], $8::text[], $9::text[], $10::bigint[], $11::int[], $12::int[],
                  $13::bigint[], $14::text[], $15::text[]) as v (remote_id)
order by v.remote_id -- several walks lock the same rows
on conflict (account, remote_id) do update set
    ref = excluded.ref, title = excluded.title, playback = coalesce(excluded.playback, remote.playback),
    (state, reason, detail, duration_ms, width, height, size) = (
        select excluded.state, excluded.reason, excluded.detail, excluded.duration_ms, excluded.width, excluded.height,
            excluded.size
        where excluded.state is not null
        union all
        select remote.state, remote.reason, remote.detail, remote.duration_ms, remote.width, remote.height, remote.size
        where excluded.state is null),
    listing = greatest(remote.listing, excluded.listing), seen_at = now()
"""


def measured(videos: Sequence[RemoteVideo]) -> list[list[Any]]:
    """Columns of what the destination says of videos: duration_ms, width, height, size and playback."""
    return [
        [fit(video.duration_ms) for video in videos],
        [fit(video.width, 31) for video in videos],
        [fit(video.height, 31) for video in videos],
        [fit(video.size) for video in videos],
        [clean(video.playback) for video in videos],
    ]


async def write_page(
    engine: Engine, account: str, walk: RemoteWalk, page: RemotePage, *, told: Collection[str] | None = None
) -> None:
    """Keeps one page of the destination's list. Where the walk has ended, by this very call before its connection was
    lost or by a worker that had it before, nothing is left to keep.

    `told` are the ids of the videos whose state is known, None: all. Of the others what was known stays: another run's
    walk may have asked for them.
    """
    unique = {clean(video.remote_id): video for video in page.videos}
    videos = list(unique.values())
    await engine.execute(
        _PAGE,
        account,
        walk.listing,
        page.next_cursor,
        len(videos),
        [clean(video.remote_id) for video in videos],
        [clean(video.ref) for video in videos],
        [str(video.state) if told is None or video.remote_id in told else None for video in videos],
        [video.reason for video in videos],
        [clean(video.detail) for video in videos],
        *measured(videos),
        [clean(video.title) for video in videos],
    )


async def own(engine: Engine, account: str, run: str, remote_ids: Sequence[str]) -> Sequence[str]:
    """Those of these videos at the destination that are the run's."""
    found = await engine.fetch(
        "select remote_id from asset where account = $1 and run = $2 and remote_id = any($3::text[])",
        account,
        run,
        [clean(remote_id) for remote_id in remote_ids],
    )
    return [record["remote_id"] for record in found]


_SEEN: Final = """
select r.* from remote r join asset a on a.account = r.account and a.remote_id = r.remote_id
where r.account = $1 and a.run = $2 and a.page = $3
  and r.listing >= (select max(listing) from remote_listing where account = $1 and run = $2 and ended_at is not null)
"""


async def seen(engine: Engine, account: str, run: str, page: int) -> Mapping[str, RemoteVideo]:
    """What the run's newest complete walk, or any that began later, saw of this page's videos, by remote id."""
    return {r["remote_id"]: _video(r) for r in await engine.fetch(_SEEN, account, run, page)}


async def age_s(engine: Engine, account: str, run: str) -> float | None:
    """Seconds since the run's newest complete walk over the account began, or None where there was none."""
    value: float | None = await engine.fetchval(
        "select extract(epoch from clock_timestamp() - max(started_at))::float8 from remote_listing"
        " where account = $1 and run = $2 and ended_at is not null",
        account,
        run,
    )
    return value


def _video(record: asyncpg.Record) -> RemoteVideo:
    return RemoteVideo(
        remote_id=record["remote_id"],
        ref=record["ref"],
        # Not told: it is there, and that is all.
        state=RemoteState(record["state"] or RemoteState.PROCESSING),
        reason=record["reason"],
        detail=record["detail"] or "",
        duration_ms=record["duration_ms"],
        width=record["width"],
        height=record["height"],
        size=record["size"],
        playback=record["playback"],
        title=record["title"],
    )


_WAITING: Final = """
select coalesce(array_agg(remote_id order by position) filter (where state = 'processing'), '{}') as remote_ids,
       coalesce(extract(epoch from clock_timestamp() - max(updated_at)), 0)::float8 as quiet_s,
       count(*) filter (where state = 'ready') as ready
from asset where run = $1 and page = $2
"""


@dataclass(frozen=True, slots=True)
class Waiting:
    """The page's videos that are still processing as far as we know, by remote id, and the seconds since anything of
    the page last moved. `ready` counts those that are."""

    remote_ids: Sequence[str]
    quiet_s: float
    ready: int = 0


async def waiting(engine: Engine, run: str, page: int) -> Waiting:
    record = await engine.fetchrow(_WAITING, run, page)
    assert record is not None, "an aggregate has a row"
    return Waiting(record["remote_ids"], record["quiet_s"], record["ready"])


_GIVE_UP: Final = """
update asset set state = 'failed', reason = 'not-ready-in-time',
    detail = 'still processing ' || floor(extract(epoch from now() - processing_at))::bigint || ' s after its create',
    updated_at = now()
where {which} and state = 'processing' and processing_at < now() - make_interval(secs => $1)
returning ref
"""


async def give_up(engine: Engine, run: str, page: int, after_s: float) -> int:
    """Fails the page's videos that have been processing for longer; returns how many. One that becomes ready later
    still counts as ready."""
    return len(await engine.fetch(_GIVE_UP.format(which="run = $2 and page = $3"), after_s, run, page))


async def give_up_all(engine: Engine, account: str, after_s: float) -> int:
    """As `give_up`, for all videos of an account: they hold places that others wait for."""
    return len(await engine.fetch(_GIVE_UP.format(which="account = $2"), after_s, account))


_OLDEST: Final = """
select remote_id from asset where account = $1 and state = 'processing' and remote_id is not null
order by processing_at limit $2
"""


async def oldest(engine: Engine, account: str, limit: int) -> Sequence[str]:
    """The remote ids of the videos that have been processing longest, of all the account's runs."""
    return [record["remote_id"] for record in await engine.fetch(_OLDEST, account, limit)]


_STRANGERS: Final = """
select r.remote_id, r.ref, r.title, coalesce(r.state, 'unknown') as state, a.remote_id as kept
from remote r
left join asset a on a.ref = r.ref and a.account = r.account
where r.account = $1 and r.state is distinct from 'deleted'
  and r.listing >= (select max(listing) from remote_listing where account = $1 and ended_at is not null)
  and r.ref like 'lh-%' and (a.ref is null or a.remote_id is distinct from r.remote_id)
  and not exists (select from asset o where o.account = r.account and o.remote_id = r.remote_id)
order by r.ref, r.remote_id
limit $2
"""


@dataclass(frozen=True, slots=True)
class Stranger:
    """A remote video with a reference of ours that no row owns. With `kept`, its row has another video: a duplicate."""

    remote_id: str
    ref: str
    title: str | None
    state: str
    kept: str | None


async def strangers(engine: Engine, account: str, limit: int = 1000) -> Sequence[Stranger]:
    """Duplicates and orphans that the newest complete walk saw. Removing them is offered, never done unasked."""
    return [Stranger(**record) for record in await engine.fetch(_STRANGERS, account, limit)]
