"""What becomes of a video between its create and its end."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route

from tests.sandbox.serving import served, until


class Library:
    """A server with good files, bad files and bad manners."""

    def __init__(self) -> None:
        self.url = ""
        self.requests: Counter[str] = Counter()
        self.headers: dict[str, str] = {}


@pytest_asyncio.fixture(scope="session")
async def _library(media: Any) -> AsyncIterator[Library]:
    found = Library()

    async def file(request: Request) -> Response:
        name = request.path_params["name"]
        found.requests[name] += 1
        found.headers = dict(request.headers)
        match name:
            case "page.mp4":
                return HTMLResponse("<html>Please log in</html>")
            case "moved.mp4":
                return RedirectResponse("/good.mp4")
            case "circle.mp4":
                return RedirectResponse("/circle.mp4")
            case "busy.mp4":
                return Response(status_code=503)
            case "secret.mp4":
                return Response(status_code=403)
            case "none.mp4":
                return Response(status_code=404)
            case "hangs.mp4":
                while not await request.is_disconnected():
                    await asyncio.sleep(0.01)
        return Response(media[name], media_type="video/mp4")

    async with served(Starlette(routes=[Route("/{name}", file)])) as base:
        found.url = base
        yield found


@pytest.fixture
def library(_library: Library) -> Library:
    _library.requests.clear()
    return _library


async def test_a_good_file_is_fetched_probed_and_ready_with_what_was_found(start: Any, library: Library) -> None:
    box = await start(ingest="fetch")
    video = await box.finished(await box.made(source_url=f"{library.url}/good.mp4", duration_ms=99_000))
    assert (video["state"], video["error"]) == ("ready", None)
    assert (video["duration_ms"], video["width"], video["height"]) == (2000, 320, 240)
    assert video["size"] > 1000
    assert library.requests["good.mp4"] == 1


async def test_a_moved_file_is_followed(start: Any, library: Library) -> None:
    box = await start(ingest="fetch")
    video = await box.finished(await box.made(source_url=f"{library.url}/moved.mp4"))
    assert video["state"] == "ready"


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("page.mp4", "source_is_html"),
        ("none.mp4", "fetch_not_found"),
        ("secret.mp4", "fetch_forbidden"),
        ("busy.mp4", "fetch_failed"),
        ("circle.mp4", "fetch_failed"),
        ("empty.mp4", "file_empty"),
        ("cut.mp4", "file_unreadable"),
        ("text.mp4", "file_unreadable"),
        ("still.jpg", "not_a_video"),
        ("sound.mp3", "no_video_stream"),
    ],
)
async def test_a_bad_file_ends_as_errored_with_a_code_and_words(
    start: Any, library: Library, name: str, code: str
) -> None:
    box = await start(ingest="fetch")
    video = await box.finished(await box.made(source_url=f"{library.url}/{name}"))
    assert (video["state"], video["error"]["code"]) == ("errored", code)
    assert video["error"]["message"]
    assert video["playback_url"] is None


async def test_a_source_that_nobody_serves_or_that_hangs_ends_as_errored(start: Any, library: Library) -> None:
    box = await start(ingest="fetch", fetch_timeout_s=0.2)
    hanging = await box.made(source_url=f"{library.url}/hangs.mp4")
    closed = await box.made(source_url="http://127.0.0.1:9/a.mp4")
    assert (await box.finished(hanging))["error"]["code"] == "fetch_timeout"
    assert (await box.finished(closed))["error"]["code"] == "fetch_failed"


async def test_a_file_above_the_size_limit_is_not_fetched_to_its_end(start: Any, library: Library) -> None:
    box = await start(ingest="fetch", fetch_max_bytes=1000)
    video = await box.finished(await box.made(source_url=f"{library.url}/good.mp4"))
    assert video["error"]["code"] == "file_too_large"


async def test_the_callers_headers_reach_the_source_and_no_secret_is_kept(start: Any, library: Library) -> None:
    box = await start(ingest="fetch")
    address = f"{library.url}/good.mp4?X-Amz-Signature=s3cr3t"
    video = await box.finished(await box.made(source_url=address, headers={"X-Pass": "s3cr3t"}))
    assert video["state"] == "ready"
    assert library.headers["x-pass"] == "s3cr3t"
    row = box.sandbox.api.store._db.execute("SELECT source FROM videos").fetchone()
    assert row == (None,)
    assert not any((box.sandbox.api.config.data / "incoming").iterdir())


async def test_synthesizing_never_fetches(start: Any, library: Library) -> None:
    box = await start()
    with_duration = await box.finished(await box.made(source_url=f"{library.url}/good.mp4", duration_ms=1234))
    without = await box.finished(await box.made(source_url=f"{library.url}/good.mp4"))
    assert (with_duration["duration_ms"], without["duration_ms"]) == (1234, 10_000)
    assert not library.requests


async def test_ingest_takes_its_time(start: Any) -> None:
    box = await start(ingest_s=0.1, ingest_s_per_media_s=0.05)
    began = time.monotonic()
    await box.finished(await box.made(duration_ms=4000))
    assert time.monotonic() - began >= 0.3


async def test_only_so_many_are_worked_at_once_and_in_order(start: Any) -> None:
    box = await start(ingest_s=0.05, ingest_at_once=1)
    ids = [await box.made(f"ref-{n}") for n in range(4)]
    states: list[list[str]] = []

    async def all_ready() -> bool:
        states.append([(await box.video(video_id))["state"] for video_id in ids])
        return states[-1] == ["ready"] * 4

    await until(all_ready)
    assert all(s == sorted(s, reverse=True) for s in states), "a later one was ready before an earlier one"


async def test_videos_fail_at_the_set_rate_and_code_and_the_same_ones_again(start: Any) -> None:
    box = await start(ingest_error_rate=0.5, ingest_error_code="gremlins", seed=3)

    async def outcomes() -> list[str]:
        ends = [await box.finished(await box.made(f"ref-{n}")) for n in range(12)]
        assert {video["error"]["code"] for video in ends if video["error"]} == {"gremlins"}
        return [video["state"] for video in ends]

    first = await outcomes()
    assert set(first) == {"ready", "errored"}
    await box.sandbox.reset()
    assert await outcomes() == first


async def test_duration_limits_and_wrong_durations(start: Any) -> None:
    box = await start(duration_min_ms=100, duration_max_ms=60_000)
    assert (await box.finished(await box.made(duration_ms=40)))["error"]["code"] == "too_short"
    assert (await box.finished(await box.made(duration_ms=60_001)))["error"]["code"] == "too_long"
    assert (await box.finished(await box.made(duration_ms=100)))["state"] == "ready"
    box.faults(duration_off_rate=1, duration_off_ms=500)
    assert (await box.finished(await box.made(duration_ms=1000)))["duration_ms"] == 1500


async def test_unknown_numbers_can_be_minus_one(start: Any) -> None:
    box = await start(ingest_s=60, unknown_as_minus_one=True)
    video = await box.video(await box.made())
    assert (video["duration_ms"], video["width"], video["height"], video["size"]) == (-1, -1, -1, -1)


async def test_a_lagging_index_hides_new_videos_from_lists_and_lookups_only(start: Any) -> None:
    box = await start(lookup_lag_s=60)
    video_id = await box.made("ref-1")
    assert (await box.video(video_id))["id"] == video_id
    assert (await box.http.get("/v1/videos", params={"reference": "ref-1"})).json()["videos"] == []
    assert (await box.http.get("/v1/videos")).json()["videos"] == []
    box.faults(lookup_lag_s=0)
    assert len((await box.http.get("/v1/videos", params={"reference": "ref-1"})).json()["videos"]) == 1
