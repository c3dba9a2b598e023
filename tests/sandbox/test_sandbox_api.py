"""The sandbox's API as a client sees it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import httpx
import pytest


async def test_every_call_needs_the_token(start: Any) -> None:
    box = await start()
    for headers in ({}, {"authorization": "Bearer wrong"}, {"authorization": "sandbox-token-1234"}):
        async with httpx.AsyncClient(base_url=box.sandbox.base_url, headers=headers) as stranger:
            for method, path in (
                ("POST", "/v1/videos"),
                ("GET", "/v1/videos"),
                ("GET", "/v1/videos/x"),
                ("DELETE", "/v1/videos/x"),
                ("PUT", "/v1/webhook"),
                ("GET", "/_sandbox/faults"),
                ("PUT", "/_sandbox/faults"),
                ("GET", "/_sandbox/stats"),
                ("POST", "/_sandbox/reset"),
                ("GET", "/nowhere"),
            ):
                answer = await stranger.request(method, path)
                assert (answer.status_code, answer.json()["error"]["code"]) == (401, "unauthorized"), (method, path)
    assert box.stats()["creates"] == 0


async def test_a_video_is_made_shown_listed_found_and_deleted(start: Any) -> None:
    box = await start()
    made = await box.create("ref-ü", title="Füße", metadata={"tenant": "a", "n": 1.5}, duration_ms=4020)
    assert made.status_code == 201
    assert made.headers["location"] == f"/v1/videos/{made.json()['id']}"
    assert made.json()["state"] == "processing"
    assert made.json()["duration_ms"] is None

    video = await box.finished(made.json()["id"])
    assert video == {
        "id": made.json()["id"],
        "reference": "ref-ü",
        "title": "Füße",
        "metadata": {"tenant": "a", "n": 1.5},
        "about": {},
        "captions": [],
        "poster": False,
        "state": "ready",
        "error": None,
        "duration_ms": 4020,
        "width": 1280,
        "height": 720,
        "size": 1_005_000,
        "playback_url": f"{box.sandbox.base_url}/play/{made.json()['id']}.m3u8",
        "created_at": video["created_at"],
    }
    assert (await box.http.get("/v1/videos")).json() == {"videos": [video], "next_cursor": None, "total": 1}
    found = await box.http.get("/v1/videos", params={"reference": "ref-ü"})
    assert found.json()["videos"] == [video]

    assert (await box.http.delete(f"/v1/videos/{video['id']}")).status_code == 204
    assert (await box.http.delete(f"/v1/videos/{video['id']}")).status_code == 404
    assert (await box.http.get(f"/v1/videos/{video['id']}")).status_code == 404
    assert (await box.http.get("/v1/videos")).json()["total"] == 0


async def test_a_playback_address_plays_once_the_video_is_ready_and_until_it_is_deleted(start: Any) -> None:
    box = await start(ingest_s=60)
    video_id = await box.made()
    async with httpx.AsyncClient(base_url=box.sandbox.base_url) as viewer:
        assert (await viewer.get(f"/play/{video_id}.m3u8")).status_code == 404
        box.faults(ingest_s=0)
        ready = await box.finished(await box.made())
        playlist = await viewer.get(ready["playback_url"])
        assert playlist.status_code == 200
        assert playlist.text.startswith("#EXTM3U")
        await box.http.delete(f"/v1/videos/{ready['id']}")
        assert (await viewer.get(ready["playback_url"])).status_code == 404


async def test_the_list_is_walked_by_cursor_without_gaps_or_repetitions(start: Any) -> None:
    box = await start()
    made = [await box.made(f"ref-{n}") for n in range(7)]
    seen: list[str] = []
    cursor = None
    sizes = []
    while True:
        params = {"limit": 3} | ({"cursor": cursor} if cursor else {})
        page = (await box.http.get("/v1/videos", params=params)).json()
        assert page["total"] == 7
        seen += [video["id"] for video in page["videos"]]
        sizes.append(len(page["videos"]))
        cursor = page["next_cursor"]
        if cursor is None:
            break
    assert seen == made
    assert sizes == [3, 3, 1]


@pytest.mark.parametrize(
    "params", [{"limit": "0"}, {"limit": "1001"}, {"limit": "x"}, {"cursor": "zz"}, {"cursor": "c-"}]
)
async def test_a_list_with_a_wrong_parameter_is_refused(start: Any, params: dict[str, str]) -> None:
    box = await start()
    answer = await box.http.get("/v1/videos", params=params)
    assert (answer.status_code, answer.json()["error"]["code"]) == (422, "invalid_request")


async def test_a_lookup_finds_exactly_the_reference_and_every_video_that_has_it(start: Any) -> None:
    box = await start()
    await box.made("ref-1")
    await box.made("ref-1")
    await box.made("ref-10")
    await box.made(None)
    found = (await box.http.get("/v1/videos", params={"reference": "ref-1"})).json()
    assert [video["reference"] for video in found["videos"]] == ["ref-1", "ref-1"]
    assert (await box.http.get("/v1/videos", params={"reference": "REF-1"})).json()["videos"] == []
    box.faults(lookup_loose=True)
    found = (await box.http.get("/v1/videos", params={"reference": "ref-1"})).json()
    assert [video["reference"] for video in found["videos"]] == ["ref-1", "ref-1", "ref-10"]


async def test_duplicates_are_the_videos_beyond_the_first_of_each_reference(start: Any) -> None:
    box = await start()
    ids = [await box.made(reference) for reference in ("a", "a", "a", "b", None, None)]
    assert (box.stats()["creates"], box.stats()["duplicates"]) == (6, 2)
    await box.http.delete(f"/v1/videos/{ids[0]}")
    assert (box.stats()["creates"], box.stats()["duplicates"], box.stats()["duplicates_ever"]) == (6, 1, 2)


async def test_without_the_switch_an_idempotency_key_is_ignored(start: Any) -> None:
    box = await start()
    for _ in range(2):
        answer = await box.http.post(
            "/v1/videos", json={"source_url": "http://h/a", "reference": "r"}, headers={"idempotency-key": "k"}
        )
        assert answer.status_code == 201
    assert box.stats()["duplicates"] == 1


async def test_with_the_switch_an_idempotency_key_makes_one_video(start: Any) -> None:
    box = await start(idempotency_keys=True)

    async def send(title: str) -> httpx.Response:
        return await box.http.post(
            "/v1/videos", json={"source_url": "http://h/a", "title": title}, headers={"idempotency-key": "k"}
        )

    answers = await asyncio.gather(*(send("one") for _ in range(5)))
    assert {answer.status_code for answer in answers} == {201}
    assert len({answer.json()["id"] for answer in answers}) == 1
    assert sorted(answer.headers.get("idempotent-replayed", "") for answer in answers) == ["", *["true"] * 4]
    other = await send("two")
    assert (other.status_code, other.json()["error"]["code"]) == (422, "idempotency_key_reused")
    assert box.stats()["creates"] == 1


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        (b"", 400, "invalid_json"),
        (b"{", 400, "invalid_json"),
        (b"[]", 422, "invalid_request"),
        (b"{}", 422, "invalid_request"),
        (b'{"source_url":""}', 422, "invalid_request"),
        (b'{"source_url":"ftp://h/a"}', 422, "source_url_refused"),
        (b'{"source_url":"/etc/passwd"}', 422, "source_url_refused"),
        (b'{"source_url":"file:///etc/passwd"}', 422, "source_url_refused"),
        (b'{"source_url":"concat:a|b"}', 422, "source_url_refused"),
        (b'{"source_url":"http://h/a","nonsense":1}', 422, "invalid_request"),
        (b'{"source_url":"http://h/a","duration_ms":-1}', 422, "invalid_request"),
        (b'{"source_url":"http://h/a","metadata":{"x":NaN}}', 422, "invalid_request"),
        (b'{"source_url":"http://h/a","title":"%s"}' % (b"x" * 513), 422, "title_too_long"),
        (b'{"source_url":"http://h/a","reference":"%s"}' % (b"x" * 256), 422, "reference_too_long"),
        (b'{"source_url":"http://h/a","metadata":{"x":"%s"}}' % (b"x" * 20_000), 422, "metadata_too_large"),
        (b'{"source_url":"http://h/a","headers":{"a b":"c"}}', 422, "invalid_request"),
        (b'{"source_url":"%s"}' % (b"x" * 1_100_000), 413, "body_too_large"),
    ],
)
async def test_a_create_that_makes_no_sense_is_refused_with_a_code_and_makes_nothing(
    start: Any, body: bytes, status: int, code: str
) -> None:
    box = await start()
    answer = await box.http.post("/v1/videos", content=body)
    assert (answer.status_code, answer.json()["error"]["code"]) == (status, code)
    assert answer.json()["error"]["message"]
    assert box.stats()["creates"] == 0


async def test_what_is_not_there_is_answered_in_json(start: Any) -> None:
    box = await start()
    assert (await box.http.get("/v1/videos/none")).json()["error"]["code"] == "not_found"
    assert (await box.http.get("/nowhere")).json()["error"]["code"] == "not_found"
    wrong = await box.http.put("/v1/videos", json={})
    assert (wrong.status_code, wrong.json()["error"]["code"]) == (405, "method_not_allowed")


async def test_health_is_open_to_everyone(start: Any) -> None:
    box = await start()
    async with httpx.AsyncClient(base_url=box.sandbox.base_url) as anyone:
        assert (await anyone.get("/healthz")).json() == {"status": "ok"}


async def test_switches_are_shown_put_and_patched_while_it_runs(start: Any) -> None:
    box = await start(ingest_s=0.5)
    shown = (await box.http.get("/_sandbox/faults")).json()
    assert (shown["ingest"], shown["ingest_s"], shown["lost_answer_rate"]) == ("synthesize", 0.5, 0.0)
    patched = (await box.http.patch("/_sandbox/faults", json={"lost_answer_rate": 0.25})).json()
    assert (patched["ingest_s"], patched["lost_answer_rate"]) == (0.5, 0.25)
    put = (await box.http.put("/_sandbox/faults", json={"ingest_s": 0.1})).json()
    assert (put["ingest"], put["ingest_s"], put["lost_answer_rate"]) == ("synthesize", 0.1, 0.0)
    assert (await box.http.put("/_sandbox/faults", json={})).json() == shown


@pytest.mark.parametrize(
    "body", [b'{"lost_answer_rate":1.5}', b'{"lost_anser_rate":0.5}', b'{"script":["explode"]}', b"[]", b"{"]
)
async def test_a_wrong_switch_is_refused_and_changes_nothing(start: Any, body: bytes) -> None:
    box = await start()
    before = (await box.http.get("/_sandbox/faults")).json()
    answer = await box.http.put("/_sandbox/faults", content=body)
    assert answer.status_code in (400, 422)
    assert (await box.http.get("/_sandbox/faults")).json() == before


async def test_requests_are_counted_by_method_and_route(start: Any) -> None:
    box = await start()
    video_id = await box.made()
    await box.video(video_id)
    await box.http.get("/v1/videos")
    await box.http.get("/v1/videos", params={"reference": "ref-1"})
    await box.http.delete(f"/v1/videos/{video_id}")
    stats = (await box.http.get("/_sandbox/stats")).json()
    assert stats["requests"] == {
        "POST /v1/videos": 1,
        "GET /v1/videos/{id}": 1,
        "GET /v1/videos": 1,
        "GET /v1/videos?reference": 1,
        "DELETE /v1/videos/{id}": 1,
    }
    assert stats["answers"] == {"200": 3, "201": 1, "204": 1}
    assert stats["videos"] == {"uploading": 0, "processing": 0, "ready": 0, "errored": 0, "deleted": 1}


async def test_a_reset_forgets_everything_and_goes_back_to_the_first_switches(start: Any) -> None:
    box = await start(ingest_s=60)
    video_id = await box.made()
    await box.http.patch("/_sandbox/faults", json={"ingest_s": 0})
    assert (await box.http.post("/_sandbox/reset")).status_code == 204
    assert (await box.http.get(f"/v1/videos/{video_id}")).status_code == 404
    stats = box.stats()
    assert (stats["creates"], stats["videos"]["processing"]) == (0, 0)
    assert (await box.http.get("/_sandbox/faults")).json()["ingest_s"] == 60


async def test_a_deleted_video_is_not_worked_on_any_more(start: Any) -> None:
    box = await start(ingest_s=60, in_flight=1)
    video_id = await box.made("a")
    assert (await box.create("b")).status_code == 429
    await box.http.delete(f"/v1/videos/{video_id}")
    assert (await box.create("b")).status_code == 201


async def test_local_files_are_taken_where_they_are_allowed(start: Any, media: Any, tmp_path: Path) -> None:
    box = await start(allow_local_files=True, ingest="fetch")
    good = media.folder / "good.mp4"
    for address in (str(good), good.as_uri()):
        video = await box.finished(await box.made(source_url=address))
        assert (video["state"], video["duration_ms"]) == ("ready", 2000)
    assert good.is_file()
    missing = await box.finished(await box.made(source_url=str(tmp_path / "none.mp4")))
    assert missing["error"]["code"] == "fetch_not_found"
