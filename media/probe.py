"""How ffprobe is called on one file, local or remote, and what it means when it fails.

Nothing is concluded from ffprobe's texts or codes, which differ between versions: a failure is explained by what the
source answered, by the file's first bytes (`media.sniff`) and by its outermost structure (`media.layout`).
"""

from __future__ import annotations

import asyncio
import errno
import json
import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from faults import Fault
from media.layout import Layout, LocalLook, look
from media.process import Finished, run
from media.relay import Relay
from media.sniff import Kind, sniff
from media.tools import find_ffprobe
from settings import MediaSettings
from sources.addresses import redact
from sources.base import Location

OUTPUT_LIMIT: Final = 4_194_304
"""Bytes of JSON kept. A file with a thousand tracks needs less."""
RECEIVE_BUFFER: Final = 32_768
"""Bytes that wait in ffprobe's own socket. Left to the kernel it would be megabytes that the source sends in vain."""
GROWTH_LOOK_S: Final = 0.3
"""Seconds between two looks at the size of a file that ends too early: one that is still being written grows."""

LEAST_BYTES: Final = 256
"""No container holds a picture in fewer: a file this short that begins as one is cut, whatever else is wrong."""

FORMATS: Final = (
    "mov,matroska,webm,avi,flv,live_flv,mpegts,mpeg,mpegvideo,m4v,h264,hevc,vvc,obu,av1,ivf,ogg,asf,mxf,gxf,nut,rm,dv,"
    "wtv,nsv,vc1,vc1test,cavsvideo,h261,h263,dirac,dnxhd,mjpeg,yuv4mpegpipe,mp3,aac,ac3,eac3,dts,wav,w64,flac,aiff,caf,"
    "amr,au,ape,wv,tta,truehd,mlp,loas,latm"
)
"""Containers and streams that stand alone. Playlists (hls, dash, concat, imf), picture readers and devices are left
out: they open other addresses and files, or call a picture a video."""

ENTRIES: Final = (
    "error=code:format=format_name,start_time,duration,size,probe_score,nb_streams"
    ":stream=index,codec_type,codec_name,codec_tag_string,width,height,sample_aspect_ratio,avg_frame_rate,r_frame_rate,"
    "start_time,duration,nb_frames,channels,sample_rate"
    ":stream_disposition=default,attached_pic,timed_thumbnails,still_image"
    ":stream_tags=rotate,ROTATE,DURATION,duration,language:stream_side_data=rotation"
)


@dataclass(frozen=True, slots=True)
class ProbeResult:
    """What ffprobe said (`answer`, its JSON), the file's true size in bytes where known, its layout, how many bytes the
    source sent (0 for a local file) in how many requests."""

    answer: Mapping[str, Any]
    size_bytes: int | None
    layout: Layout
    bytes_read: int = 0
    requests: int = 0


async def probe(location: Location, *, settings: MediaSettings) -> ProbeResult:
    """Runs ffprobe on the file at `location`.

    Takes at most `settings.timeout_s` seconds; no process outlives the call, cancelled or not. Raises Fault:
    "settings-refused" (no ffprobe), "source-address-refused", "source-not-found", "source-forbidden", "source-busy",
    "source-unreachable", "source-timeout", "source-returned-html", "file-empty", "file-growing", "file-incomplete",
    "not-a-video", "file-corrupt", "probe-died".
    """
    ffprobe = find_ffprobe(settings.ffprobe)
    try:
        async with asyncio.timeout(settings.timeout_s):
            if location.is_local:
                return await _probe_local(ffprobe, location, settings)
            return await _probe_remote(ffprobe, location, settings)
    except TimeoutError:
        raise Fault("source-timeout", f"{_name(location)}: not read within {settings.timeout_s:g} s") from None


async def _probe_local(ffprobe: Path, location: Location, settings: MediaSettings) -> ProbeResult:
    path = Path(location.address)
    before = await asyncio.to_thread(_look_at, location.address)
    if before.size == 0:
        raise Fault("file-empty", _name(location))
    # The prefix keeps a name such as "-x.mp4", "a:b.mp4" or "concat:…" from being anything but a name.
    answer = await _ask(ffprobe, "file", f"file:{path}", settings)

    async def grown() -> bool:
        await asyncio.sleep(GROWTH_LOOK_S)
        return await asyncio.to_thread(_size_now, path) != before.size

    if answer is not None and await asyncio.to_thread(_size_now, path) != before.size:
        raise Fault("file-growing", f"{_name(location)}: its size changed while it was read")
    finding = _finding(answer, before.head, "", before.size, before.layout, location)
    if finding is not None:
        if finding.code == "file-incomplete" and await grown():
            raise Fault("file-growing", f"{_name(location)}: it is still being written")
        raise finding
    assert answer is not None
    return ProbeResult(answer, before.size, before.layout)


async def _probe_remote(ffprobe: Path, location: Location, settings: MediaSettings) -> ProbeResult:
    ranges = True
    while True:
        async with Relay(location, allow_private=settings.allow_private_addresses, ranges=ranges) as relay:
            answer = await _ask(ffprobe, "http,tcp", relay.url, settings, "-recv_buffer_size", str(RECEIVE_BUFFER))
            seen = relay.seen
            if relay.crash is not None:
                raise relay.crash
            if seen.ranges_lie and ranges:
                # It announces ranges and doesn't keep to them: read it from the start to where ffprobe has enough.
                ranges = False
                continue
            if seen.fault is not None:
                raise seen.fault
            size = seen.ended_at if seen.size is None else seen.size
            if size == 0 or (answer is None and seen.status == 204):
                raise Fault("file-empty", _name(location))
            if seen.size_changed:
                raise Fault("file-growing", f"{_name(location)}: its size changed while it was read")
            layout = seen.walker.layout(size)
            # What the source lists is then the size of what it sends, not of the file.
            listed = replace(location, size=None) if seen.encoded else location
            finding = _finding(answer, bytes(seen.head), seen.content_type, size, layout, listed)
            if finding is not None:
                if finding.code == "file-incomplete" and not seen.encoded:
                    await asyncio.sleep(GROWTH_LOOK_S)
                    now = await relay.current_size()
                    if now is not None and now != size:
                        raise Fault("file-growing", f"{_name(location)}: it is still being written")
                raise finding
            if answer is None:
                raise Fault("probe-died", f"{_name(location)}: ffprobe asked for nothing")
            return ProbeResult(answer, None if seen.encoded else size, layout, seen.received, seen.requests)


def _finding(
    answer: Mapping[str, Any] | None,
    head: bytes,
    content_type: str,
    size: int | None,
    layout: Layout,
    location: Location,
) -> Fault | None:
    """What is wrong with a file that was read without a fault, or None. `answer` is None where ffprobe found nothing.

    The first bytes rule over ffprobe: it finds a sound of low probability in many a text.
    """
    name = _name(location)
    kind, words = sniff(head)
    html = kind is Kind.HTML or (
        answer is None
        and kind in (Kind.TEXT, Kind.UNKNOWN)
        and content_type.partition(";")[0].strip().lower() in ("text/html", "application/xhtml+xml")
    )
    if html:
        # On a disk there is no one who answered: the file holds a page where a video should be.
        reason = "not-a-video" if location.is_local else "source-returned-html"
        return Fault(reason, f"{name}: a web page")
    if kind in (Kind.PICTURE, Kind.PLAYLIST, Kind.TEXT, Kind.OTHER):
        return Fault("not-a-video", f"{name}: {words}")
    expected = location.size
    if expected is not None and size is not None and size < expected:
        return Fault("file-incomplete", f"{name}: {size} bytes of the {expected} that the source lists")
    if layout.incomplete:
        return Fault("file-incomplete", f"{name}: {layout.words}")
    if answer is None:
        if kind is Kind.MEDIA and size is not None and size < LEAST_BYTES:
            return Fault("file-incomplete", f"{name}: {size} bytes, the beginning of {words}")
        if kind is Kind.MEDIA:
            return Fault("file-corrupt", f"{name}: ffprobe cannot read it")
        return Fault("not-a-video", f"{name}: {words}")
    return None


async def _ask(
    ffprobe: Path, protocols: str, url: str, settings: MediaSettings, *more: str
) -> Mapping[str, Any] | None:
    """ffprobe's JSON, or None where it opened the input and made nothing of it. Raises Fault("probe-died") where it
    came to no conclusion, and TimeoutError."""
    argv = [
        str(ffprobe), "-v", "error", "-hide_banner", "-print_format", "json=compact=1", "-show_entries", ENTRIES,
        "-protocol_whitelist", protocols, "-format_whitelist", FORMATS, *more, "-i", url,
    ]  # fmt: skip
    try:
        finished = await run(
            argv, timeout_s=settings.timeout_s, memory_bytes=settings.memory_bytes, stdout_limit=OUTPUT_LIMIT
        )
    except OSError as error:
        raise Fault("settings-refused", f"{ffprobe} cannot be run: {error.strerror}") from error
    return _conclusion(finished)


def _conclusion(finished: Finished) -> Mapping[str, Any] | None:
    code = finished.returncode
    if finished.stdout_cut:
        raise Fault("probe-died", f"ffprobe wrote more than {OUTPUT_LIMIT} bytes, and was ended")
    if code < 0:
        raise Fault("probe-died", f"ffprobe was ended by signal {-code}")
    # 128 and more: a wrapper script's way to report a signal, and ffprobe's own after SIGTERM.
    if code >= 128:
        raise Fault("probe-died", f"ffprobe ended with {code}")
    try:
        answer = json.loads(finished.stdout)
    except (ValueError, RecursionError):
        answer = None
    if not isinstance(answer, dict):
        raise Fault("probe-died", f"ffprobe ended with {code} and no answer: {_last_words(finished)}")
    error = answer.get("error")
    if isinstance(error, dict) and error.get("code") == -errno.ENOMEM:
        raise Fault("probe-died", "ffprobe reached its memory limit (media.memory_bytes)")
    if code != 0 and error is None:
        raise Fault("probe-died", f"ffprobe ended with {code} before it opened the file: {_last_words(finished)}")
    return answer if code == 0 and error is None else None


def _last_words(finished: Finished) -> str:
    """The last line on its standard error, for whoever has to find out why ffprobe doesn't run here."""
    lines = finished.stderr.decode("utf-8", "replace").split("\n")
    return next((line.strip()[-300:] for line in reversed(lines) if line.strip()), "it said nothing")


def _look_at(address: str) -> LocalLook:
    """`look`, for what may be a file on this machine. Raises Fault."""
    path = Path(address)
    if not path.is_absolute() or "\x00" in address:
        raise Fault("source-address-refused", "neither an http(s) address nor an absolute path")
    try:
        mode = path.stat().st_mode
        if not stat.S_ISREG(mode):
            # Reading a pipe or a device may never end; a folder is no file.
            raise Fault("source-address-refused", f"{_printable(address)}: not a regular file")
        return look(path)
    except (FileNotFoundError, NotADirectoryError):
        raise Fault("source-not-found", _printable(address)) from None
    except PermissionError:
        raise Fault("source-forbidden", _printable(address)) from None
    except OSError as error:
        nowhere = error.errno in (errno.ENAMETOOLONG, errno.ELOOP)
        reason = "source-not-found" if nowhere else "source-unreachable"
        raise Fault(reason, f"{_printable(address)}: {error.strerror}") from None


def _size_now(path: Path) -> int | None:
    """The file's size in bytes; None where it is gone."""
    try:
        return path.stat().st_size
    except OSError:
        return None


def _name(location: Location) -> str:
    return _printable(location.address) if location.is_local else redact(location.address)


def _printable(path: str) -> str:
    """A path for a person: bytes that are no UTF-8 (surrogate escapes) replaced, so that it can be stored anywhere."""
    return os.fsencode(path).decode("utf-8", "replace").replace("\x00", "�")
