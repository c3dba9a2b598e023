"""What a host does to a whole run: blocks it, loses its answers, never tells it, lists it wrongly, fails some of it."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from datetime import UTC, datetime
from typing import Any

import httpx
import pytest
from standardwebhooks import Webhook
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from temporalio.client import WorkflowExecutionStatus

import worker
from faults import REASONS
from ledger import questions
from tests.programs.conftest import Programs, as_variables, changed, wait_says
from tests.run.conftest import SECRET, TOKEN, Rig
from tests.sandbox.serving import served

TRANSIENT = tuple(code for code, reason in REASONS.items() if not reason.permanent)
"""What a re-run after failures asks for: everything that may succeed by itself."""


async def pauses(rig: Rig) -> int:
    return int(await rig.engine.fetchval("select pauses from account where account = 'sandbox'") or 0)


async def test_a_block_of_five_minutes_without_a_retry_after_pauses_every_worker_and_no_row_loses_an_attempt(
    rig_factory: Any, unique: str
) -> None:
    """The block begins with the eleventh call and would last 300 s; nobody is told so. It is lifted once it has been
    seen that the workers came back to it again and again, each time later, and with few calls. Each has one of the two
    pages: neither takes two at once, and both are there from the start."""
    block = {"requests": 10, "per_s": 300.0, "block_s": 300.0}
    rig: Rig = await rig_factory(
        faults={"limits": [block], "retry_after": "absent", "refusal_body": "empty", "rate_headers": False},
        worker={"pages_at_once": 1},
    )
    programs = Programs(rig.folder)
    try:
        other = programs.start("worker.py", variables=as_variables(rig.settings))
        await asyncio.to_thread(wait_says, other, "worker ready")
        handle = await rig.start(unique, rig.manifest(rig.videos(24)), page_size=12)
        await rig.until(lambda: _at_least(rig, 3), "it came back several times, and was refused each time")
        at_first = _calls(rig)
        await rig.until(lambda: _paused_less_than(rig, 0.4), "the pause nears its end")
        assert _calls(rig) - at_first <= 6, "nobody called meanwhile, save for what was under way"
        assert rig.sandbox.stats()["creates"] <= 10
        assert rig.sandbox.stats()["refusals_429"] <= 60, "what was under way, then a few at each return"
        rig.sandbox.faults(limits=[])
        result = await asyncio.wait_for(handle.result(), 90)
    finally:
        for child in programs.children:
            child.kill()
    assert result["states"] == {"verified": 24}
    steps = await rig.engine.fetch("select attempt, outcome, worker from step where phase = 'create'")
    assert max(step["attempt"] for step in steps) == 1, "no row lost an attempt"
    assert {step["outcome"] for step in steps} <= {"created", "handed-back"}
    assert len({step["worker"] for step in steps}) == 2, "both had their share"
    assert rig.sandbox.stats()["duplicates_ever"] == 0


def _calls(rig: Rig) -> int:
    return sum(rig.sandbox.stats()["requests"].values()) + int(rig.sandbox.stats()["refusals_429"])


async def _paused_less_than(rig: Rig, seconds: float) -> bool:
    left = await rig.engine.fetchval("select extract(epoch from max(paused_until) - clock_timestamp()) from account")
    return left is None or left < seconds


async def _at_least(rig: Rig, count: int) -> bool:
    return await pauses(rig) >= count


async def test_a_second_full_run_over_a_finished_library_has_zero_creates_and_zero_failures(
    rig: Rig, unique: str
) -> None:
    manifest = rig.manifest([*rig.videos(30), ("empty", f"{rig.files}/empty.mp4")])
    await rig.migrate(unique, manifest)
    before = rig.sandbox.stats()
    again = await rig.migrate(f"{unique}-again", manifest)
    assert (again["creates"], again["states"], again["owned"]) == (0, {}, 31)
    after = rig.sandbox.stats()
    assert (after["creates"], after["requests"]) == (before["creates"], before["requests"])


async def test_a_re_run_after_failures_tries_what_was_transient_and_leaves_what_is_permanent(
    rig_factory: Any, unique: str
) -> None:
    rig: Rig = await rig_factory(faults={"ingest_error_rate": 1.0, "ingest_error_code": "fetch_failed"})
    bad = [("empty", f"{rig.files}/empty.mp4"), ("page", f"{rig.files}/page.mp4"), ("gone", f"{rig.files}/none.mp4")]
    manifest = rig.manifest([*rig.videos(6), *bad])
    first = await rig.migrate(unique, manifest)
    assert first["states"] == {"failed": 6, "rejected": 3}
    left = await _histories(rig, [name for name, _ in bad])
    rig.sandbox.faults(ingest_error_rate=0.0)

    again = await rig.migrate(f"{unique}-again", manifest, redrive={"of_run": unique, "reasons": list(TRANSIENT)})

    assert again["states"] == {"verified": 6}
    assert await rig.states() == {"verified": 6, "rejected": 3}
    assert await _histories(rig, [name for name, _ in bad]) == left, "not one step more"


async def _histories(rig: Rig, names: list[str]) -> dict[str, list[Any]]:
    found = {}
    for name in names:
        (history,) = await questions.history(rig.engine, name)
        found[name] = [history.asset["run"], history.asset["reason"], *history.steps]
    return found


@pytest.mark.parametrize("trouble", ["lost_answer", "empty_body", "garbled_body", "error_after"])
async def test_a_create_whose_answer_is_lost_in_whatever_way_is_looked_up_and_adopted(
    rig_factory: Any, unique: str, trouble: str
) -> None:
    rig: Rig = await rig_factory(faults={f"{trouble}_rate": 0.5, "operations": ["create"]})
    result = await rig.migrate(unique, rig.manifest(rig.videos(20)))
    assert result["states"] == {"verified": 20}
    assert result["adopted"] > 0
    stats = rig.sandbox.stats()
    assert (stats["creates"], stats["duplicates_ever"]) == (20, 0)


async def test_the_ledger_write_after_a_good_create_is_tried_again_and_not_the_create(
    rig_factory: Any, unique: str
) -> None:
    """PostgreSQL itself refuses the first three writes of each window's remote ids, each with another engine error."""
    rig: Rig = await rig_factory()
    await rig.engine.execute("create sequence refusals")
    await rig.engine.execute(
        """
        create function refuse() returns trigger language plpgsql as $$
        declare turn bigint := nextval('refusals');
        begin
            if turn <= 9 then
                raise exception 'not now' using errcode = (array['40001', '40P01', '57014'])[1 + turn % 3];
            end if;
            return new;
        end $$
        """
    )
    await rig.engine.execute(
        "create trigger refusing before update on asset for each row"
        " when (old.remote_id is null and new.remote_id is not null) execute function refuse()"
    )
    result = await rig.migrate(unique, rig.manifest(rig.videos(30)))
    assert await rig.engine.fetchval("select last_value from refusals") >= 9 + 30
    assert result["states"] == {"verified": 30}
    stats = rig.sandbox.stats()
    assert (stats["creates"], stats["duplicates_ever"]) == (30, 0)
    assert stats["requests"]["POST /v1/videos"] == 30
    outcomes = Counter(r["outcome"] for r in await rig.engine.fetch("select outcome from step where phase = 'create'"))
    assert set(outcomes) == {"created"}
    assert outcomes["created"] == 30


async def test_409_on_a_repeated_create_of_our_own_is_adopted(rig_factory: Any, unique: str) -> None:
    """A host that stores the video, loses the answer, and calls the next create of the same reference a conflict."""
    rig: Rig = await rig_factory(
        work=False,
        faults={"webhook_missing_rate": 1.0},  # or its event would tell whose the video is
        account={"timeout_s": 1.0, "quiet_s": 3.0, "settle_deadline_s": 1.0},
    )
    known: Counter[str] = Counter()

    async def forward(request: Request) -> Response:
        body = await request.body()
        async with httpx.AsyncClient(base_url=rig.sandbox.base_url) as inner:
            if request.method == "POST":
                ref = json.loads(body)["reference"]
                known[ref] += 1
                if known[ref] == 1:
                    await inner.post(request.url.path, content=body, headers=_own(request))
                    return Response(status_code=503, headers={"retry-after": "0"})
                return Response('{"error":{"code":"exists"}}', 409)
            if request.query_params.get("reference") and known[request.query_params["reference"]] == 1:
                # Its index lags: what was just made is not found at once.
                return Response('{"videos":[],"next_cursor":null,"total":0}')
            answer = await inner.request(
                request.method, request.url.path, params=request.url.query, headers=_own(request)
            )
            return Response(answer.content, answer.status_code)

    app = Starlette(routes=[Route("/{path:path}", forward, methods=["GET", "POST", "DELETE"])])
    async with served(app) as base:
        accounts = {"sandbox": rig.settings.accounts["sandbox"].model_copy(update={"base_url": base})}
        settings = rig.settings.model_copy(update={"accounts": accounts})
        async with worker.running(settings, rig.client):
            result = await rig.migrate(unique, rig.manifest(rig.videos(2)))
    assert result["states"] == {"verified": 2}
    assert result["adopted"] == 2
    assert set(known.values()) == {2}, "each was tried again, and answered with 409"
    stats = rig.sandbox.stats()
    assert (stats["creates"], stats["duplicates_ever"]) == (2, 0)


def _own(request: Request) -> dict[str, str]:
    return {"authorization": request.headers["authorization"], "content-type": "application/json"}


async def test_ready_after_the_video_was_deleted_gets_2xx_and_resurrects_nothing(rig: Rig, unique: str) -> None:
    await rig.migrate(unique, rig.manifest(rig.videos(1)))
    row = await rig.engine.fetchrow("select ref, remote_id from asset")
    assert row is not None
    async with httpx.AsyncClient(base_url=rig.sandbox.base_url, headers={"authorization": f"Bearer {TOKEN}"}) as host:
        assert (await host.delete(f"/v1/videos/{row['remote_id']}")).is_success
    await rig.until(lambda: _states_are(rig, {"deleted": 1}), "the deletion is known")
    for event in ("evt-late-1", "evt-late-2", "evt-late-1"):
        assert await _deliver(rig, event, {"id": row["remote_id"], "reference": row["ref"], "state": "ready"}) == 204
    assert await rig.states() == {"deleted": 1}
    assert await rig.engine.fetchval("select count(*) from inbox where dedupe_key like 'evt-late-%'") == 2


async def _deliver(rig: Rig, event: str, video: dict[str, Any]) -> int:
    """As the host would send it, to the real endpoint."""
    body = json.dumps({"type": "video.ready", "data": video})
    at = datetime.now(UTC)
    headers = {
        "webhook-id": event,
        "webhook-timestamp": str(int(at.timestamp())),
        "webhook-signature": Webhook(SECRET).sign(event, at, body),
    }
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{rig.settings.endpoint.port}") as client:
        return (await client.post("/webhooks/sandbox", content=body, headers=headers)).status_code


async def test_more_workers_than_pool_connections_and_a_slow_host_hold_no_connection_across_a_call(
    rig_factory: Any, unique: str
) -> None:
    """Two workers with a single connection each, 25 calls at once that take a second."""
    rig: Rig = await rig_factory(work=False, faults={"latency_ms": 1_000, "operations": ["create"]})
    narrow = changed(rig.settings, ledger={"pool_size": 1})
    programs = Programs(rig.folder)
    try:
        programs.start("worker.py", variables=as_variables(narrow))
        async with worker.running(narrow, rig.client):
            handle = await rig.start(unique, rig.manifest(rig.videos(75)))
            held = asyncio.create_task(_held_longest(rig, handle))
            result = await asyncio.wait_for(handle.result(), 90)
            longest = await held
    finally:
        for child in programs.children:
            child.kill()
    assert result["states"] == {"verified": 75}
    assert longest < 0.9, "no statement or transaction was open for as long as a call takes"


async def _held_longest(rig: Rig, handle: Any) -> float:
    """The longest that any statement or transaction on the ledger was seen open, in seconds."""
    longest = 0.0
    while (await handle.describe()).status is WorkflowExecutionStatus.RUNNING:
        seen = await rig.engine.fetchval(
            "select max(extract(epoch from clock_timestamp() - xact_start))::float8 from pg_stat_activity"
            " where datname = current_database() and pid <> pg_backend_pid() and xact_start is not null"
        )
        longest = max(longest, seen or 0.0)
        await asyncio.sleep(0.01)
    return longest


async def test_where_no_webhook_ever_comes_and_the_host_says_unknown_the_sweep_converges(
    rig_factory: Any, unique: str
) -> None:
    rig: Rig = await rig_factory(
        faults={"webhook_missing_rate": 1.0, "unknown_as_minus_one": True, "ingest_s": 0.3},
        account={"settle_deadline_s": 1.0},
        endpoint=False,
    )
    result = await rig.migrate(unique, rig.manifest(rig.videos(20)), page_size=10)
    assert result["states"] == {"verified": 20}
    assert await rig.engine.fetchval("select count(*) from inbox") == 0


async def test_a_destination_that_lists_its_first_page_for_ever_leaves_no_video_called_missing(
    rig_factory: Any, unique: str
) -> None:
    """Reconciliation waits for a list that can be trusted, and tells why."""
    rig: Rig = await rig_factory(faults={"list_repeats": True}, account={"options": {"list_limit": 5}})
    handle = await rig.start(unique, rig.manifest(rig.videos(12)))
    await rig.until(lambda: _states_are(rig, {"ready": 12}), "all are ready")
    await rig.until(lambda: _listed(rig, 3), "the list was asked for, and asked for again")
    assert await rig.states() == {"ready": 12}, "nothing was called missing"
    rig.sandbox.faults(list_repeats=False)
    assert (await asyncio.wait_for(handle.result(), 90))["states"] == {"verified": 12}


async def _states_are(rig: Rig, states: dict[str, int]) -> bool:
    return await rig.states() == states


def _requests(rig: Rig) -> int:
    return int(rig.sandbox.stats()["requests"].get("GET /v1/videos", 0))


async def _listed(rig: Rig, times: int) -> bool:
    return _requests(rig) >= times
