"""Every way of misbehaving, each on demand."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import httpx
import pytest

from tests.sandbox.serving import until

BEFORE = ["refuse_429", "refuse_503", "error_before", "drop_before", "success_false", "html_page"]
AFTER = ["error_after", "lost_answer", "empty_body", "garbled_body", "hang_after"]


async def outcome(box: Any, reference: str = "ref-1") -> tuple[Any, ...]:
    """Status, content type and body of a create; or the kind of error that took their place."""
    try:
        answer = await box.create(reference)
    except httpx.HTTPError as error:
        return (type(error).__name__,)
    return answer.status_code, answer.headers.get("content-type", ""), answer.text


async def test_without_faults_nothing_strikes(start: Any) -> None:
    box = await start()
    for n in range(20):
        assert (await outcome(box, f"ref-{n}"))[0] == 201
    assert box.stats()["faults"] == {}


@pytest.mark.parametrize("fault", BEFORE)
async def test_a_fault_before_the_effect_makes_nothing(start: Any, fault: str) -> None:
    box = await start(**{f"{fault}_rate": 1})
    await outcome(box)
    assert box.stats()["creates"] == 0
    assert box.stats()["faults"] == {fault: 1}


@pytest.mark.parametrize("fault", AFTER)
async def test_a_fault_after_the_effect_leaves_a_video(start: Any, fault: str) -> None:
    box = await start(hang_s=0.01, **{f"{fault}_rate": 1, "operations": ["create"]})
    await outcome(box)
    assert box.stats()["creates"] == 1
    assert box.stats()["faults"] == {fault: 1}
    found = (await box.http.get("/v1/videos", params={"reference": "ref-1"})).json()["videos"]
    assert [video["reference"] for video in found] == ["ref-1"]


async def test_each_fault_looks_as_its_name_says(start: Any) -> None:
    box = await start(hang_s=0.01, script=[*BEFORE, *AFTER], retry_after="seconds", retry_after_s=3)
    seen = {fault: await outcome(box, fault) for fault in (*BEFORE, *AFTER)}
    assert (seen["refuse_429"][0], seen["refuse_503"][0]) == (429, 503)
    assert seen["error_before"][0] == seen["error_after"][0] == 500
    dropped = [seen[fault] for fault in ("drop_before", "lost_answer", "hang_after")]
    assert all(d in [("RemoteProtocolError",), ("ReadError",)] for d in dropped), dropped
    assert seen["success_false"][0] == 200
    assert '"success":false' in seen["success_false"][2]
    assert seen["html_page"][0] == 502
    assert seen["html_page"][1].startswith("text/html")
    assert seen["empty_body"] == (201, "application/json", "")
    assert seen["garbled_body"][0] == 201
    assert seen["garbled_body"][2].startswith('{"id":')
    assert not seen["garbled_body"][2].endswith("}")
    assert box.stats()["answers"]["dropped"] == 3


async def test_statuses_and_bodies_are_chosen(start: Any) -> None:
    box = await start(error_status=599, error_body="empty", html_status=200, refusal_body="html")
    box.faults(script=["error_before", "html_page", "refuse_429"], retry_after="http-date")
    assert (await outcome(box))[::2] == (599, "")
    assert (await outcome(box))[:2] == (200, "text/html; charset=utf-8")
    refused = await box.create()
    assert refused.text.startswith("<!DOCTYPE html>")
    assert refused.headers["retry-after"].endswith("GMT")


async def test_a_script_runs_once_and_in_order_and_shows_what_is_left(start: Any) -> None:
    box = await start(script=["refuse_503", "none", "error_before"])
    assert (await outcome(box))[0] == 503
    assert (await box.http.get("/_sandbox/faults")).json()["script"] == ["none", "error_before"]
    assert [(await outcome(box))[0] for _ in range(3)] == [201, 500, 201]


async def test_faults_strike_the_chosen_operations_only(start: Any) -> None:
    box = await start(error_before_rate=1, operations=["lookup", "delete"])
    video_id = await box.made()
    await box.video(video_id)
    assert (await box.http.get("/v1/videos")).status_code == 200
    assert (await box.http.get("/v1/videos", params={"reference": "ref-1"})).status_code == 500
    assert (await box.http.delete(f"/v1/videos/{video_id}")).status_code == 500


async def test_rates_are_kept_and_the_same_seed_strikes_the_same_calls(start: Any) -> None:
    async def struck(**faults: Any) -> list[int]:
        box = await start(error_before_rate=0.3, **faults)
        return [(await outcome(box))[0] for _ in range(60)]

    first = await struck(seed=7)
    assert 8 <= first.count(500) <= 28
    assert await struck(seed=7) == first
    assert await struck(seed=8) != first
    assert [status == 500 for status in await struck(seed=7, refuse_429_rate=0.001)] == [s == 500 for s in first]


async def test_latency_is_added(start: Any) -> None:
    box = await start(latency_ms=100, latency_jitter_ms=10)
    began = time.monotonic()
    assert (await outcome(box))[0] == 201
    assert time.monotonic() - began >= 0.1


async def test_a_video_can_be_ready_before_its_create_is_answered(start: Any) -> None:
    box = await start(answer_delay_ms=5_000, operations=["create"])
    create = asyncio.create_task(box.create())
    await until(lambda: box.stats()["videos"]["ready"] == 1)
    assert not create.done()
    create.cancel()


async def test_a_caller_that_gives_up_leaves_a_video_all_the_same(start: Any) -> None:
    box = await start(latency_ms=150)
    with pytest.raises(httpx.ReadTimeout):
        await box.http.post("/v1/videos", json={"source_url": "http://h/a", "reference": "r"}, timeout=0.05)
    await until(lambda: box.stats()["creates"] == 1)


async def test_a_list_can_repeat_its_first_page_for_ever(start: Any) -> None:
    box = await start(list_repeats=True)
    for n in range(3):
        await box.made(f"ref-{n}")
    first = (await box.http.get("/v1/videos", params={"limit": 2})).json()
    again = (await box.http.get("/v1/videos", params={"limit": 2, "cursor": first["next_cursor"]})).json()
    assert again == first


async def test_a_list_can_lack_its_paging(start: Any) -> None:
    box = await start(list_without_paging=True)
    assert set((await box.http.get("/v1/videos")).json()) == {"videos"}


async def test_an_error_of_the_callers_own_is_not_replaced_by_a_fault_after_the_effect(start: Any) -> None:
    box = await start(empty_body_rate=1)
    assert (await box.http.post("/v1/videos", json={})).json()["error"]["code"] == "invalid_request"
