"""Values that no column, index or stack takes: each costs at most its own row, and an event never more than itself."""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import Awaitable, Callable
from typing import Any, Final

import asyncpg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from ledger_rig import ACCOUNT, Library, event, item, ref, until, video, walker, write

from destinations.base import RemotePage, RemoteState
from destinations.generic import GenericDestination
from faults import Fault
from ledger import claims, inbox, listings, remotes
from ledger import engine as engine_module
from ledger.claims import Outcome
from ledger.engine import DEPTH, Connection, Engine, clean
from settings import AccountSettings, LedgerSettings
from sources.base import Problem

UNINDEXABLE = "".join(chr(0x4E00 + n * 7 % 20_000) for n in range(5_000))
"""Longer than an entry of an index may be, and of a kind that does not compress."""


def nested(depth: int) -> Any:
    value: Any = 1
    for turn in range(depth):
        value = [value] if turn % 2 else {"a": value}
    return value


# --------------------------------------------------------------------------------------------------------- text, json


AWKWARD: Final = {
    "NUL": "\0",
    "surrogate": "\ud800",
    "surrogate within": "a\ud83dz",
    "NaN": float("nan"),
    "infinities": [float("inf"), -float("inf")],
    "in keys": {"\0": {"\udfff": "\0"}},
    "deep": nested(90),
    "too deep for a stack": nested(5_000),
    "four bytes each": "🎬" * 20_000,
    "large number": 10**400,
    "many": ["x"] * 50_000,
}


@pytest.mark.parametrize("what", AWKWARD)
async def test_what_postgresql_refuses_is_stored_safely_and_the_windows_other_rows_survive(
    library: Library, what: str
) -> None:
    value = AWKWARD[what]
    await library.fill(0)
    odd = item(0, title=str(value)[:50_000] if isinstance(value, str) else "t", metadata={"x": value})
    by = await walker(library.engine)
    assert await write(library.engine, by, 0, [odd, *map(item, range(1, 25))]) == listings.Written(25, 0, 0)
    library.refs = [ref(n) for n in range(25)]
    window = await library.claimed(await library.open("inventory"))
    outcomes = [
        Outcome(
            row.ref, "inventoried", "inventoried", detail=value if isinstance(value, str) else None, facts={"x": value}
        )
        for row in window.rows
    ]
    assert await claims.finish(library.engine, window.fence, outcomes) == set(library.refs)
    assert await library.states() == {"inventoried": 25}


def test_what_is_nested_too_deeply_is_cut_there_and_no_sooner() -> None:
    assert clean(nested(DEPTH)) == nested(DEPTH)
    cut = json.dumps(clean(nested(DEPTH + 1)))
    assert "null" in cut
    assert "1" not in cut


@pytest.mark.parametrize("limit", range(60, 72))
def test_a_text_is_never_cut_inside_a_character(limit: int) -> None:
    kept = clean("🎬" * 200, limit)
    assert len(kept) <= limit
    kept.encode("utf-8")
    assert kept.startswith("🎬")
    assert kept.endswith("🎬")


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=12,
)


def _as_floats(value: Any) -> Any:
    """A jsonb number has no kind: 5e16 comes back as an integer."""
    match value:
        case bool():
            return value
        case int():
            return float(value)
        case list():
            return [_as_floats(inner) for inner in value]
        case dict():
            return {name: _as_floats(inner) for name, inner in value.items()}
    return value


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(anything)
async def test_any_value_at_all_goes_into_a_jsonb_column_and_comes_back_clean(library: Library, value: Any) -> None:
    stored = await library.engine.fetchval("select $1::jsonb", {"x": value})
    assert _as_floats(stored) == _as_floats(clean({"x": value}))


# ------------------------------------------------------------------------------------------------------------- numbers


@pytest.mark.parametrize("wild", [2**31, 2**63, -(2**63) - 1, 10**30])
async def test_a_number_out_of_range_is_unknown_wherever_it_comes_from(library: Library, wild: int) -> None:
    await library.fill(0)
    by = await walker(library.engine)
    await write(library.engine, by, 0, [item(0, size=wild, duration_ms=wild), item(1)])
    library.refs = [ref(0), ref(1)]
    row = await library.row()
    fits = wild if -(2**63) <= wild < 2**63 else None
    assert (row["size"], row["claimed_duration_ms"]) == (fits, fits)
    await library.put(library.refs, state="inventoried")
    window = await library.claimed(await library.open("create"))
    made = [
        Outcome(row.ref, "processing", "created", remote_id=row.ref, remote_duration_ms=wild, remote_width=wild)
        for row in window.rows
    ]
    assert await claims.finish(library.engine, window.fence, made) == set(library.refs)
    row = await library.row()
    assert (row["state"], row["remote_duration_ms"], row["remote_width"]) == ("processing", fits, None)


# -------------------------------------------------------------------------------------------------- names in an index


async def test_a_problem_with_a_column_of_any_name_is_kept_and_the_page_is_written(library: Library) -> None:
    await library.fill(0)
    by = await walker(library.engine)
    problems = [Problem(7, UNINDEXABLE, "is wrong"), Problem(7, "\0\ud800", "is wrong too")]
    assert await write(library.engine, by, 0, [item(1)], problems=problems) == listings.Written(1, 0, 0)
    fields = [r["field"] for r in await library.engine.fetch("select field from problem order by field")]
    assert sorted(map(len, fields)) == [2, listings.LONGEST_FIELD]


async def test_an_event_with_an_id_of_any_length_is_one_event(library: Library) -> None:
    await library.fill(1, state="processing", remote_id="r1")
    seen = [await inbox.receive(library.engine, ACCOUNT, event(video("r1"), UNINDEXABLE)) for _ in range(2)]
    assert seen == ["applied", "duplicate"]
    other = await inbox.receive(library.engine, ACCOUNT, event(None, UNINDEXABLE + "x"))
    assert other == "no-effect"
    assert await library.engine.fetchval("select count(*) from inbox") == 2


async def test_an_event_whose_video_no_index_takes_is_a_typed_fault_and_moves_nothing(library: Library) -> None:
    await library.fill(1, state="creating")
    before = dict(await library.row())
    with pytest.raises(Fault) as raised:
        await inbox.receive(library.engine, ACCOUNT, event(video(UNINDEXABLE, ref=library.refs[0])))
    assert raised.value.code == "answer-malformed"
    assert dict(await library.row()) == before
    assert await library.engine.fetchval("select count(*) from inbox") == 0


async def test_ids_that_become_the_same_when_cleaned_are_one_video_of_the_list(library: Library) -> None:
    await library.fill(0)
    walk = await remotes.begin(library.engine, ACCOUNT, "first", "reconcile")
    page = RemotePage([video("a\ud800"), video("a?"), video("a\udfff"), video("b")], None)
    await remotes.write_page(library.engine, ACCOUNT, walk, page)
    assert await library.engine.fetchval("select count(*) from remote") == 2


# -------------------------------------------------------------------------------------------------- events' own order

READY, PROCESSING, ERRORED, DELETED = (
    RemoteState.READY,
    RemoteState.PROCESSING,
    RemoteState.ERRORED,
    RemoteState.DELETED,
)


@pytest.mark.parametrize(
    ("events", "end"),
    [
        ([READY, ERRORED, READY], "ready"),
        ([ERRORED, READY, ERRORED], "ready"),
        ([READY, PROCESSING], "ready"),
        ([DELETED, PROCESSING, READY], "deleted"),
        ([DELETED, ERRORED], "deleted"),
        ([ERRORED, DELETED, READY], "deleted"),
        ([PROCESSING, PROCESSING, READY, READY], "ready"),
    ],
)
async def test_in_whatever_order_a_videos_events_come_the_row_ends_where_no_event_leads_back(
    library: Library, events: list[RemoteState], end: str
) -> None:
    await library.fill(1, state="processing", remote_id="r1")
    for n, state in enumerate(events):
        reason = "fetch-failed" if state is ERRORED else None
        await inbox.receive(library.engine, ACCOUNT, event(video("r1", state, reason=reason), f"e{n}"))
    assert await library.states() == {end: 1}


@pytest.mark.parametrize("first", [READY, DELETED, ERRORED, PROCESSING])
async def test_an_event_that_was_faster_than_the_creates_answer_is_never_taken_back_by_it(
    library: Library, first: RemoteState
) -> None:
    """The "created" event comes last of all."""
    await library.fill(1, state="inventoried")
    window = await library.claimed(await library.open("create"), quiet_s=60.0)
    seen = video("r1", first, ref=library.refs[0], reason="fetch-failed" if first is ERRORED else None)
    assert await inbox.receive(library.engine, ACCOUNT, event(seen, "fast")) == "applied"
    before = (await library.row())["state"]
    await library.finish(window, state="processing", outcome="created", remote_id="r1")
    late = event(video("r1", PROCESSING, ref=library.refs[0]), "late")
    assert await inbox.receive(library.engine, ACCOUNT, late) == "no-effect"
    assert (await library.row())["state"] == before


async def test_an_events_id_that_comes_again_with_other_content_moves_the_row_as_far_as_it_may(
    library: Library,
) -> None:
    await library.fill(1, state="processing", remote_id="r1")
    assert await inbox.receive(library.engine, ACCOUNT, event(video("r1", PROCESSING))) == "no-effect"
    assert await inbox.receive(library.engine, ACCOUNT, event(video("r1", READY))) == "duplicate"
    assert await library.states() == {"ready": 1}
    assert await inbox.receive(library.engine, ACCOUNT, event(video("r1", ERRORED))) == "duplicate"
    assert await library.states() == {"ready": 1}
    assert await library.engine.fetchval("select count(*) from inbox") == 1


@pytest.mark.parametrize("headers", [{"webhook-id": "evt-1"}, {}], ids=["with an event id", "without one"])
async def test_the_same_delivery_three_times_has_one_effect(library: Library, headers: dict[str, str]) -> None:
    """Without an id of its own, the video and its state tell an event from another; other bytes around it do not."""
    await library.fill(1, state="processing", remote_id="r1")
    host = GenericDestination(AccountSettings.model_validate({"base_url": "http://h", "token": "a-token"}))
    effects = []
    for more in ("", ' "sent": 2,', ' "sent": 3,'):
        body = f'{{{more} "type": "video.ready", "data": {{"id": "r1", "state": "ready"}}}}'.encode()
        effects.append(await inbox.receive(library.engine, ACCOUNT, host.parse_event(headers, body)))
    assert effects == ["applied", "duplicate", "duplicate"]
    assert await library.engine.fetchval("select count(*) from inbox") == 1
    assert await library.states() == {"ready": 1}


async def test_a_delivery_whose_handling_failed_leaves_no_mark_and_its_redelivery_is_handled(
    library: Library, connection: asyncpg.Connection, open_engine: Any
) -> None:
    await library.fill(1, state="processing", remote_id="r1")
    impatient = await open_engine(lock_timeout_ms=50)
    held = connection.transaction()
    await held.start()
    await connection.execute("select from asset for update")
    with pytest.raises(Fault) as raised:
        await inbox.receive(impatient, ACCOUNT, event(video("r1")))
    assert raised.value.code == "ledger-conflict"
    assert await library.engine.fetchval("select count(*) from inbox") == 0, "marked and handled together, or neither"
    await held.rollback()
    assert await inbox.receive(impatient, ACCOUNT, event(video("r1"))) == "applied"
    assert await library.states() == {"ready": 1}


# ------------------------------------------------------------------------------------- the engine's own trouble


async def test_a_server_that_takes_no_more_connections_costs_a_wait_and_no_attempt(
    library: Library, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """53300, by a role that may have a single connection, which somebody else is faster to take."""
    await library.fill(3)
    place = await library.open("inventory")
    role = f"single_{secrets.token_hex(4)}"
    await library.engine.execute(f"create role {role} login password 'x' connection limit 1")
    await library.engine.execute(f"grant all on all tables in schema public to {role}")
    await library.engine.execute(f"grant all on all sequences in schema public to {role}")
    dsn = f"{database.partition('://')[0]}://{role}:x@{database.partition('@')[2]}"
    seen: list[str | None] = []
    classify = engine_module._classify

    def noted(error: BaseException) -> str | None:
        seen.append(getattr(error, "sqlstate", None))
        return classify(error)

    monkeypatch.setattr(engine_module, "_classify", noted)
    single = await Engine.open(LedgerSettings(dsn=dsn, pool_size=1))
    try:
        window = await claims.claim(single, place, worker="w", key="k", limit=3, lease_s=60)
        assert window is not None

        async def taken() -> asyncpg.Connection | None:
            # Each time: the pool connects anew by itself, and may be faster.
            ended = "select pg_terminate_backend(pid) from pg_stat_activity where usename = $1"
            await library.engine.execute(ended, role)
            return await _connected(dsn)

        held = await until(taken)
        outcomes = [Outcome(row.ref, "inventoried", "inventoried") for row in window.rows]
        finishing = asyncio.create_task(claims.finish(single, window.fence, outcomes))
        await until(lambda: _is("53300" in seen))
        await held.close()
        assert await finishing == set(library.refs)
    finally:
        await single.close()
        await library.engine.execute(f"drop owned by {role}")
        await library.engine.execute(f"drop role {role}")
    assert [(step["attempt"], step["outcome"]) for step in await library.steps()] == [(1, "inventoried")]


async def _connected(dsn: str) -> asyncpg.Connection | None:
    try:
        return await asyncpg.connect(dsn)
    except asyncpg.TooManyConnectionsError:
        return None


async def _is(value: bool) -> bool:
    return value


@pytest.mark.parametrize("sqlstate", ["40001", "40P01", "55P03", "57014", "53300"])
async def test_the_completing_write_that_the_engine_refuses_is_written_again_and_the_work_is_not_done_again(
    library: Library, sqlstate: str
) -> None:
    """The server itself raises it, from a trigger, once for each of the first three writes."""
    await library.fill(25, state="inventoried")
    window = await library.claimed(await library.open("create"))
    await library.engine.execute("create sequence refusals")
    await library.engine.execute(
        f"""
        create function refuse() returns trigger language plpgsql as $$
        begin
            if nextval('refusals') <= 3 then raise exception 'not now' using errcode = '{sqlstate}'; end if;
            return new;
        end $$
        """
    )
    await library.engine.execute(
        "create trigger refusing before update on asset for each row execute function refuse()"
    )
    before = library.engine.statements
    try:
        outcomes = [Outcome(row.ref, "processing", "created", remote_id=f"r-{row.ref}") for row in window.rows]
        assert await claims.finish(library.engine, window.fence, outcomes) == set(library.refs)
    finally:
        await library.engine.execute("drop trigger refusing on asset; drop function refuse; drop sequence refusals")
    assert library.engine.statements - before == 4 + 1, "three refusals, one success; and the dropping"
    assert await library.states() == {"processing": 25}
    rows = await library.engine.fetch("select attempts, deaths, reason, remote_id, ref from asset")
    assert all((r["deaths"], r["reason"], r["remote_id"]) == (0, None, f"r-{r['ref']}") for r in rows)
    steps = await library.engine.fetch("select outcome, attempt from step")
    assert [(step["outcome"], step["attempt"]) for step in steps] == [("created", 1)] * 25


async def test_a_statement_timeout_in_the_middle_of_a_windows_write_costs_a_wait_and_no_attempt(
    library: Library, connection: asyncpg.Connection, open_engine: Any
) -> None:
    """57014 by the server's own clock: the write waits for a lock longer than a statement may take."""
    await library.fill(2)
    window = await library.claimed(await library.open("inventory"))
    impatient = await open_engine(statement_timeout_ms=100, lock_timeout_ms=10_000)
    held = connection.transaction()
    await held.start()
    await connection.execute("select from asset for update")
    outcomes = [Outcome(row.ref, "inventoried", "inventoried") for row in window.rows]
    finishing = asyncio.create_task(claims.finish(impatient, window.fence, outcomes))
    await until(lambda: _is(impatient.statements >= 3))
    await held.rollback()
    assert await finishing == set(library.refs)
    assert [(step["attempt"], step["outcome"]) for step in await library.steps()] == [(1, "inventoried")]


async def test_two_windows_that_lock_each_others_rows_both_end_and_no_row_pays(
    library: Library, open_engine: Any
) -> None:
    """40P01 between our own writes: the same rows, in orders that meet in the middle."""
    await library.fill(60, state="processing")
    for n, asset in enumerate(library.refs):
        await library.put([asset], remote_id=f"r{n}")
    first, second = await open_engine(), await open_engine()
    seen = [video(f"r{n}") for n in range(60)]
    moved = await asyncio.gather(
        *(
            inbox.apply(engine, ACCOUNT, order)
            for _ in range(5)
            for engine, order in ((first, seen), (second, seen[::-1]))
        )
    )
    assert sum(moved) == 60
    assert await library.states() == {"ready": 60}


@pytest.mark.parametrize("rows", [25, 64])
async def test_a_savepoint_for_each_row_stays_within_64_subtransactions(
    library: Library, monkeypatch: pytest.MonkeyPatch, rows: int
) -> None:
    """More than 64 would overflow what each backend caches, and slow every reader down. The server is asked."""
    await library.fill(rows + 1, state="inventoried")
    await library.put(library.refs[rows:], state="processing", remote_id="taken")
    window = await library.claimed(await library.open("create"), rows)
    counts: list[tuple[int, bool]] = []
    transaction = Engine.transaction

    async def watched(self: Engine, work: Callable[[Connection], Awaitable[Any]]) -> Any:
        async def looked(connection: Connection) -> Any:
            result = await work(connection)
            counts.append(
                tuple(  # type: ignore[arg-type]
                    await connection.fetchrow(
                        "select subxact_count, subxact_overflowed from pg_stat_get_backend_subxact("
                        "(select b from pg_stat_get_backend_idset() as b"
                        " where pg_stat_get_backend_pid(b) = pg_backend_pid()))"
                    )
                )
            )
            return result

        return await transaction(self, looked)

    monkeypatch.setattr(Engine, "transaction", watched)
    outcomes = [
        Outcome(row.ref, "processing", "created", remote_id="taken" if n == 3 else f"r{n}")
        for n, row in enumerate(window.rows)
    ]
    assert await claims.finish(library.engine, window.fence, outcomes) == set(library.refs[:rows])
    [(count, overflowed)] = counts
    assert 0 < count <= 64
    assert not overflowed
    assert await library.states() == {"processing": rows, "failed": 1}
