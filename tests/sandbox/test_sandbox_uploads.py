"""Uploads by tus as an uploader sees them: what came is kept, and what is whole becomes a video."""

from __future__ import annotations

import asyncio
import base64
import json
import tracemalloc
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from tests.sandbox.serving import until

TUS = {"Tus-Resumable": "1.0.0"}


def told(**values: str) -> str:
    return ",".join(f"{name} {base64.b64encode(value.encode()).decode()}" for name, value in values.items())


async def announce(box: Any, length: int, **values: str) -> tuple[str, str]:
    """Where the upload is, and its video's id."""
    headers = {**TUS, "Upload-Length": str(length), "Upload-Metadata": told(**({"reference": "ref-1"} | values))}
    answer = await box.http.post("/v1/uploads", headers=headers)
    assert answer.status_code == 201, answer.text
    return answer.headers["location"], answer.headers["video-id"]


async def stands(box: Any, location: str) -> int:
    answer = await box.http.head(location, headers=TUS)
    assert (answer.status_code, answer.headers["cache-control"]) == (200, "no-store")
    return int(answer.headers["upload-offset"])


async def send(box: Any, location: str, content: Any, offset: int, **headers: str) -> httpx.Response:
    given = {**TUS, "Upload-Offset": str(offset), "Content-Type": "application/offset+octet-stream", **headers}
    answer: httpx.Response = await box.http.patch(location, content=content, headers=given)
    return answer


async def test_a_file_that_is_sent_in_parts_becomes_a_video_like_one_that_is_fetched(start: Any, media: Any) -> None:
    box = await start(ingest="fetch")
    content = media["good.mp4"]
    about = {"description": "Long ago", "tags": ["a"], "folder": "x/y", "privacy": "private"}
    location, video_id = await announce(
        box, len(content), title="Füße", metadata='{"n": 1}', about=json.dumps(about), filename="good.mp4"
    )
    waiting = await box.video(video_id)
    assert (waiting["state"], waiting["reference"], waiting["title"]) == ("uploading", "ref-1", "Füße")
    half = len(content) // 2
    assert (await send(box, location, content[:half], 0)).headers["upload-offset"] == str(half)
    assert (await box.video(video_id))["state"] == "uploading"
    assert await stands(box, location) == half
    last = await send(box, location, content[half:], half)
    assert (last.status_code, last.headers["upload-offset"]) == (204, str(len(content)))

    video = await box.finished(video_id)
    assert (video["state"], video["width"], video["duration_ms"], video["size"]) == ("ready", 320, 2000, len(content))
    assert (video["metadata"], video["about"]) == ({"n": 1}, about)
    assert await stands(box, location) == len(content)
    stats = box.stats()
    assert (stats["uploads"], stats["bytes"], stats["creates"]) == (1, len(content), 1)
    assert not list((box.sandbox.api.config.data / "uploads").iterdir()), "a file that was read is kept no longer"


async def test_what_is_no_video_is_found_out_as_if_it_had_been_fetched(start: Any, media: Any) -> None:
    box = await start(ingest="fetch")
    for name, code in (("empty.mp4", "file_empty"), ("text.mp4", "file_unreadable"), ("sound.mp3", "no_video_stream")):
        location, video_id = await announce(box, len(media[name]), reference=name)
        if media[name]:
            await send(box, location, media[name], 0)
        assert (await box.finished(video_id))["error"]["code"] == code


async def test_what_came_before_a_dropped_connection_is_kept(start: Any) -> None:
    box = await start()
    location, video_id = await announce(box, 300_000)

    async def broken() -> AsyncIterator[bytes]:
        yield b"a" * 100_000
        await until(lambda: arrived(100_000))
        raise ConnectionError

    async def arrived(count: int) -> bool:
        return box.stats()["bytes"] == count

    with pytest.raises(ConnectionError):
        await send(box, location, broken(), 0, **{"Content-Length": "300000"})
    assert await stands(box, location) == 100_000

    async def taken() -> bool:
        answer = await send(box, location, b"b" * 200_000, 100_000)
        assert answer.status_code in (204, 423), "until it has noticed, the first request still has the upload"
        return answer.status_code == 204

    await until(taken)
    assert (await box.finished(video_id))["state"] == "ready"


async def test_two_requests_never_write_to_one_upload_at_once(start: Any) -> None:
    box = await start()
    location, _ = await announce(box, 10)
    go_on = asyncio.Event()

    async def slow() -> AsyncIterator[bytes]:
        yield b"12345"
        await go_on.wait()
        yield b"67890"

    first = asyncio.create_task(send(box, location, slow(), 0, **{"Content-Length": "10"}))
    await until(lambda: box.stats()["bytes"] == 5)
    assert (await send(box, location, b"xxxxx", 5)).status_code == 423
    go_on.set()
    assert (await first).headers["upload-offset"] == "10"
    assert box.stats()["bytes"] == 10


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Upload-Length": "5"}, 412),
        ({**TUS}, 400),
        ({**TUS, "Upload-Length": "-1"}, 400),
        ({**TUS, "Upload-Defer-Length": "1"}, 400),
        ({**TUS, "Upload-Length": "99999999999999"}, 413),
        ({**TUS, "Upload-Length": "5", "Upload-Metadata": "title !!"}, 400),
        ({**TUS, "Upload-Length": "5", "Upload-Metadata": f"{told(title='a')},{told(title='b')}"}, 400),
        ({**TUS, "Upload-Length": "5", "Upload-Metadata": told(title="a" * 513)}, 422),
        ({**TUS, "Upload-Length": "5", "Upload-Metadata": told(about='{"privacy": "secret"}')}, 422),
        ({**TUS, "Upload-Length": "5", "Upload-Metadata": told(metadata='{"a": "' + "x" * 17_000 + '"}')}, 422),
        ({**TUS, "Upload-Length": "5", "Upload-Metadata": told(metadata="no json")}, 422),
    ],
)
async def test_an_announcement_that_is_none_makes_nothing(start: Any, headers: dict[str, str], status: int) -> None:
    box = await start()
    assert (await box.http.post("/v1/uploads", headers=headers)).status_code == status
    assert (box.stats()["creates"], box.stats()["uploads"]) == (0, 0)


async def test_bytes_are_taken_where_they_belong_and_nowhere_else(start: Any) -> None:
    box = await start()
    location, _ = await announce(box, 10)
    assert (await send(box, location, b"12345", 0)).status_code == 204
    assert (await send(box, location, b"12345", 0)).status_code == 409
    assert (await send(box, location, b"1", 5, **{"Content-Type": "text/plain"})).status_code == 415
    assert (await send(box, location, b"1", 5, **{"Tus-Resumable": "0.2.2"})).status_code == 412
    assert (await send(box, location, b"x" * 6, 5)).status_code == 413

    async def longer() -> AsyncIterator[bytes]:
        yield b"x" * 6

    assert (await send(box, location, longer(), 5)).status_code == 413
    assert await stands(box, location) == 10, "what fits is kept, as it is for a dropped connection"
    assert (await send(box, "/v1/uploads/none", b"x", 0)).status_code == 404


async def test_the_upload_of_a_deleted_video_is_gone(start: Any) -> None:
    box = await start()
    location, video_id = await announce(box, 10)
    await box.http.delete(f"/v1/videos/{video_id}")
    assert (await box.http.head(location, headers=TUS)).status_code == 404
    assert (await send(box, location, b"12345", 0)).status_code == 404
    assert not list((box.sandbox.api.config.data / "uploads").iterdir())


async def test_a_video_that_was_only_announced_is_no_duplicate_and_takes_a_place(start: Any) -> None:
    box = await start(in_flight=2, ingest_s=60)
    await announce(box, 3)
    location, _ = await announce(box, 3)
    refused = await box.http.post("/v1/uploads", headers={**TUS, "Upload-Length": "3"})
    assert (refused.status_code, refused.json()["error"]["code"]) == (429, "too_many_processing")
    await send(box, location, b"abc", 0)
    assert (await box.create("ref-9")).status_code == 429
    assert (box.stats()["duplicates"], box.stats()["duplicates_ever"]) == (0, 0)
    assert box.stats()["videos"]["uploading"] == 1


async def test_faults_and_limits_strike_uploads_too(start: Any) -> None:
    box = await start(operations=["upload"], script=["lost_answer", "none", "refuse_503", "lost_answer"])
    headers = {**TUS, "Upload-Length": "3", "Upload-Metadata": told(reference="ref-1")}
    with pytest.raises(httpx.RemoteProtocolError):
        await box.http.post("/v1/uploads", headers=headers)
    assert box.stats()["videos"]["uploading"] == 1
    location, video_id = await announce(box, 3, reference="ref-2")
    assert (await send(box, location, b"abc", 0)).status_code == 503
    assert box.stats()["bytes"] == 0
    with pytest.raises(httpx.RemoteProtocolError):
        await send(box, location, b"abc", 0)
    assert (await box.finished(video_id))["state"] == "ready"
    box.faults(limits=[{"requests": 1, "per_s": 60, "creates_only": True}])
    assert [(await box.http.post("/v1/uploads", headers=headers)).status_code for _ in range(2)] == [201, 429]


async def test_the_protocols_version_and_extension_are_told(start: Any) -> None:
    box = await start()
    answer = await box.http.options("/v1/uploads")
    assert answer.status_code == 204
    assert (answer.headers["tus-version"], answer.headers["tus-extension"]) == ("1.0.0", "creation")
    assert int(answer.headers["tus-max-size"]) > 10**9


async def test_a_large_upload_needs_little_memory(start: Any) -> None:
    box = await start()
    location, _ = await announce(box, 64_000_000)

    async def blocks() -> AsyncIterator[bytes]:
        for _ in range(64):
            yield b"x" * 1_000_000

    tracemalloc.start()
    try:
        answer = await send(box, location, blocks(), 0, **{"Content-Length": "64000000"})
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert answer.status_code == 204
    assert peak < 16_000_000
