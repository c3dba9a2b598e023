"""A small library of real videos to rehearse a migration on: many containers and codecs, and everything that goes wrong
with files in a library that grew for years.

Each entry says how its inventory must end (`expected`: None for accepted, else a reason code), so that a rehearsal can
check itself. The files are made with ffmpeg once: about twelve seconds of two cores, and 10 MB.
"""

from __future__ import annotations

import asyncio
import contextlib
import csv
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from faults import Fault
from media.process import run
from media.verdict import Limits
from sources.addresses import encode_key

LIMITS: Final = Limits(duration_min_ms=100)
"""The destination's limits under which the entries end as they say."""
PARALLEL: Final = 2
_DEPTHS: Final = 3
_WORKSHOP: Final = ".making-"
_FFMPEG_TIMEOUT_S: Final = 120.0

Progress = Callable[[int, int, str], None]
"""Called with files done, files in all, and the name of the file just made or found."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One row of the manifest. `expected` is the reason code with which the inventory must reject it, or None where it
    must accept it. `listed_size` in bytes is what the manifest's size column says; None leaves the cell empty.
    `captions` are files by language."""

    id: str
    file: str
    title: str
    expected: str | None
    listed_size: int | None = None
    captions: Mapping[str, str] = field(default_factory=dict)
    poster: str | None = None
    privacy: str | None = None


def find_ffmpeg() -> Path:
    """The ffmpeg on the PATH, else the one in the imageio-ffmpeg wheel. Raises Fault("settings-refused")."""
    on_path = shutil.which("ffmpeg")
    if on_path is not None:
        return Path(on_path)
    with contextlib.suppress(ImportError, RuntimeError):
        import imageio_ffmpeg

        return Path(imageio_ffmpeg.get_ffmpeg_exe())
    raise Fault("settings-refused", "no ffmpeg: install ffmpeg, or Longhaul's `embedded` extra")


async def make_library(media_dir: Path, *, progress: Progress | None = None) -> list[Entry]:
    """Makes what is missing in `media_dir` and returns every entry of the library.

    A file that is there is not made again; one is put in its place by a rename when it is finished, so that an
    interruption at any time leaves nothing half made under its name. Raises Fault("settings-refused") where there is no
    ffmpeg, or one that cannot make a file.
    """
    ffmpeg = find_ffmpeg()
    recipes = _recipes()
    missing, workshop = await asyncio.to_thread(_prepare, media_dir, recipes)
    done = len(recipes) - len(missing)
    if progress is not None and not missing:
        progress(done, done, "all there")

    async def work(todo: Iterator[_Recipe]) -> None:
        nonlocal done
        for recipe in todo:
            await _make(recipe, ffmpeg, media_dir, workshop)
            done += 1
            if progress is not None:
                progress(done, len(recipes), recipe.file)

    try:
        for depth in range(_DEPTHS):
            waiting = iter([recipe for recipe in missing if _depth(recipe) == depth])
            async with asyncio.TaskGroup() as group:
                for _ in range(PARALLEL):
                    group.create_task(work(waiting))
        for recipe in _BESIDE:
            if not await asyncio.to_thread((media_dir / recipe.file).exists):
                await _make(recipe, ffmpeg, media_dir, workshop)
    except ExceptionGroup as several:
        fault = next((error for error in several.exceptions if isinstance(error, Fault)), None)
        if fault is None:
            raise
        raise fault from None
    finally:
        shutil.rmtree(workshop, ignore_errors=True)
    return _entries(recipes, media_dir)


def write_manifest(path: Path, entries: Sequence[Entry], base_url: str) -> None:
    """Writes a CSV manifest (id, url, title, size, captions by language, poster, privacy) whose addresses lead to
    `base_url`, each name encoded exactly once. Written whole under another name first, so that a reader never sees half
    of it."""
    languages = sorted({language for entry in entries for language in entry.captions})

    def address(file: str | None) -> str:
        return "" if file is None else f"{base_url.rstrip('/')}/{encode_key(file)}"

    part = path.with_name(f".{path.name}.part")
    with part.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        captions = [f"captions.{language}" for language in languages]
        writer.writerow(["id", "url", "title", "size", *captions, "poster", "privacy"])
        for entry in entries:
            size = "" if entry.listed_size is None else entry.listed_size
            tracks = [address(entry.captions.get(language)) for language in languages]
            about = [*tracks, address(entry.poster), entry.privacy or ""]
            writer.writerow([entry.id, address(entry.file), entry.title, size, *about])
    os.replace(part, path)


def _prepare(media_dir: Path, recipes: Sequence[_Recipe]) -> tuple[list[_Recipe], Path]:
    """What is still to be made, and a folder to make it in, on the same file system."""
    media_dir.mkdir(parents=True, exist_ok=True)
    missing = [recipe for recipe in recipes if not (media_dir / recipe.file).exists()]
    return missing, Path(tempfile.mkdtemp(prefix=_WORKSHOP, dir=media_dir))


def _depth(recipe: _Recipe) -> int:
    """How many files must be there before this one: its original, and that one's original."""
    return 0 if recipe.of is None else 1 if recipe.of == _BASE else 2


def _entries(recipes: Sequence[_Recipe], media_dir: Path) -> list[Entry]:
    entries = []
    for position, recipe in enumerate(recipes, 1):
        listed = recipe.of if recipe.lists_size_of_original else recipe.file
        size = (media_dir / listed).stat().st_size if listed and recipe.lists_size else None
        about = (recipe.captions, recipe.poster, recipe.privacy)
        entries.append(Entry(f"demo-{position:03d}", recipe.file, recipe.title, recipe.expected, size, *about))
    entries.append(Entry("demo-404", "gone since 2016.mp4", "A link that has been dead for years", "source-not-found"))
    return entries


async def _make(recipe: _Recipe, ffmpeg: Path, media_dir: Path, workshop: Path) -> None:
    """Makes one file: with ffmpeg, or from another's bytes."""
    # A plain name with the right suffix: ffmpeg would read a leading dash, a colon or a percent sign as its own.
    made = workshop / f"{abs(hash(recipe.file)):x}{Path(recipe.file).suffix}"
    if recipe.change is not None:
        original = (media_dir / recipe.of).read_bytes() if recipe.of else b""
        made.write_bytes(recipe.change(original))
    else:
        argv = [str(ffmpeg), "-nostdin", "-hide_banner", "-loglevel", "error", "-y", "-threads", "1"]
        original_path = str(media_dir / recipe.of) if recipe.of else ""
        argv += [original_path if word == _ORIGINAL else word for word in recipe.argv]
        if recipe.piped:
            finished = await run(
                [*argv, "pipe:1"], timeout_s=_FFMPEG_TIMEOUT_S, memory_bytes=None, stdout_limit=1 << 24
            )
            made.write_bytes(finished.stdout)
        else:
            finished = await run([*argv, str(made)], timeout_s=_FFMPEG_TIMEOUT_S, memory_bytes=None, stdout_limit=4_096)
        if finished.returncode != 0:
            said = finished.stderr.decode("utf-8", "replace").strip()
            raise Fault("settings-refused", f"{ffmpeg} could not make {recipe.file}: {said}")
    os.replace(made, media_dir / recipe.file)


# ------------------------------------------------------------------------------------------------------------ recipes

_ORIGINAL: Final = "<the original>"
_BASE: Final = "harbour.mp4"
_FAST: Final = "harbour (web).mp4"


@dataclass(frozen=True, slots=True)
class _Recipe:
    """How one file is made: by ffmpeg with `argv`, or by `change` from the bytes of the file `of`. `_ORIGINAL` in
    `argv` stands for the path of `of`. `piped` has ffmpeg write to a pipe, where it cannot fill in a duration later."""

    file: str
    title: str
    argv: tuple[str, ...] = ()
    expected: str | None = None
    of: str | None = None
    change: Callable[[bytes], bytes] | None = None
    piped: bool = False
    lists_size: bool = field(default=True)
    lists_size_of_original: bool = False
    captions: Mapping[str, str] = field(default_factory=dict)
    poster: str | None = None
    privacy: str | None = None


def _pictures(source: str = "testsrc2", size: str = "320x240", rate: str = "25", seconds: float = 2) -> tuple[str, ...]:
    return ("-f", "lavfi", "-i", f"{source}=s={size}:r={rate}:d={seconds}")


def _sound(seconds: float = 2, pitch: int = 440) -> tuple[str, ...]:
    return ("-f", "lavfi", "-i", f"sine=f={pitch}:d={seconds}:r=48000")


_X264: Final = ("-c:v", "libx264", "-preset", "ultrafast", "-pix_fmt", "yuv420p")
_AAC: Final = ("-c:a", "aac", "-b:a", "48k")
_COPY: Final = ("-i", _ORIGINAL, "-map", "0", "-c", "copy")


_SRT: Final = "1\r\n00:00:00,500 --> 00:00:01,500\r\nMöwen über dem Hafen\r\n"
_VTT: Final = "WEBVTT\n\n00:00.500 --> 00:01.500\nGulls over the harbour\n"
_GERMAN, _ENGLISH, _POSTER = "harbour.de.srt", "harbour.en.vtt", "harbour at dawn.png"
_BESIDE: Final = (
    # In the encoding that subtitles of its time are in.
    _Recipe(_GERMAN, "", change=lambda _: _SRT.encode("cp1252")),
    _Recipe(_ENGLISH, "", change=lambda _: _VTT.encode()),
    _Recipe(_POSTER, "", ("-i", _ORIGINAL, "-frames:v", "1"), of=_BASE),
)
"""What belongs to videos, and is none."""


def _recipes() -> tuple[_Recipe, ...]:
    return (*_containers(), *_shapes(), *_tracks(), *_times(), *_names(), *_rejects())


def _containers() -> Iterator[_Recipe]:
    """One of each container and codec that libraries are full of."""
    clip = (*_pictures(seconds=3), *_sound(3))
    both = {"de": _GERMAN, "en": _ENGLISH}
    yield _Recipe(_BASE, "Harbour at dawn", (*clip, *_X264, *_AAC), captions=both, poster=_POSTER)
    fast = (*_COPY, "-movflags", "+faststart")
    yield _Recipe(_FAST, "Harbour at dawn, for the web", fast, of=_BASE, captions={"en": _ENGLISH})
    yield _Recipe("harbour.mov", "Harbour, QuickTime", _COPY, of=_BASE)
    yield _Recipe("harbour.mkv", "Harbour, Matroska", _COPY, of=_BASE)
    yield _Recipe("harbour.ts", "Harbour, transport stream", _COPY, of=_BASE)
    yield _Recipe("harbour.m2ts", "Harbour, from a camcorder", _COPY, of=_BASE)
    yield _Recipe("harbour.flv", "Harbour, Flash", (*_COPY, "-f", "flv"), of=_BASE)
    fragments = ("-movflags", "+frag_keyframe+empty_moov+default_base_moof")
    yield _Recipe("harbour-fragments.mp4", "Harbour, fragmented", (*_COPY, *fragments), of=_BASE)
    vp8 = ("-c:v", "libvpx", "-deadline", "realtime", "-cpu-used", "8", "-b:v", "300k", "-c:a", "libvorbis")
    yield _Recipe("garden.webm", "Garden, VP8", (*_pictures("testsrc"), *_sound(2, 330), *vp8))
    vp9 = ("-c:v", "libvpx-vp9", "-deadline", "realtime", "-cpu-used", "8", "-b:v", "300k", "-c:a", "libopus")
    yield _Recipe("garden-vp9.webm", "Garden, VP9", (*_pictures("testsrc"), *_sound(2, 350), *vp9))
    av1 = ("-c:v", "libaom-av1", "-usage", "realtime", "-cpu-used", "8", "-b:v", "200k", "-c:a", "libopus")
    yield _Recipe("garden-av1.mkv", "Garden, AV1", (*_pictures("smptebars", "160x120", seconds=1), *_sound(1), *av1))
    hevc = ("-c:v", "libx265", "-preset", "ultrafast", "-x265-params", "log-level=none:pools=1", "-tag:v", "hvc1")
    yield _Recipe("tower-hevc.mp4", "Tower, HEVC", (*_pictures("smptehdbars"), *_sound(2, 500), *hevc, *_AAC))
    yield _Recipe("tower.avi", "Tower, from 2004", (*_pictures(), *_sound(), "-c:v", "mpeg4", "-c:a", "libmp3lame"))
    yield _Recipe("tower.m4v", "Tower, MPEG-4 part 2", (*_pictures("smptebars"), *_sound(), "-c:v", "mpeg4", *_AAC))
    yield _Recipe("tower.3gp", "Tower, from a phone", (*_pictures("testsrc", "176x144"), "-c:v", "mpeg4"))
    prores = ("-c:v", "prores", "-profile:v", "0", "-c:a", "pcm_s16le")
    yield _Recipe("master.mov", "Master, ProRes", (*_pictures("smptebars", seconds=1), *_sound(1), *prores))
    mjpeg = ("-c:v", "mjpeg", "-pix_fmt", "yuvj420p", "-c:a", "pcm_s16le")
    yield _Recipe("camera.mov", "Camera, Motion JPEG", (*_pictures(size="160x120"), *_sound(), *mjpeg))
    yield _Recipe(
        "camera.mpg", "Camera, MPEG-2", (*_pictures(seconds=3), *_sound(3), "-c:v", "mpeg2video", "-c:a", "mp2")
    )
    mxf = ("-c:v", "mpeg2video", "-c:a", "pcm_s16le")
    yield _Recipe("broadcast.mxf", "Broadcast, MXF", (*_pictures(seconds=1), *_sound(1), *mxf))
    theora = ("-c:v", "libtheora", "-q:v", "3", "-c:a", "libvorbis")
    yield _Recipe("lecture.ogv", "Lecture, Theora", (*_pictures("testsrc", "160x120"), *_sound(2, 200), *theora))
    wmv = ("-c:v", "wmv2", "-c:a", "wmav2")
    yield _Recipe("lecture.wmv", "Lecture, Windows Media", (*_pictures("testsrc", "160x120"), *_sound(2, 210), *wmv))
    flv1 = ("-c:v", "flv1", "-ar", "44100", "-c:a", "libmp3lame")
    yield _Recipe("lecture.flv", "Lecture, Sorenson", (*_pictures("testsrc", "160x120"), *_sound(2, 220), *flv1))
    lossless = ("-c:v", "ffv1", "-c:a", "flac")
    yield _Recipe(
        "archive.mkv", "Archive, lossless", (*_pictures("smptebars", "160x120", seconds=1), *_sound(1), *lossless)
    )


def _shapes() -> Iterator[_Recipe]:
    portrait = (*_pictures(size="180x320"), *_sound(), *_X264, *_AAC)
    yield _Recipe("portrait.mp4", "Portrait, for the family", portrait, privacy="private")
    yield _Recipe("square.mp4", "Square", (*_pictures("testsrc", "240x240"), *_sound(), *_X264, *_AAC))
    yield _Recipe("panorama.mp4", "Panorama", (*_pictures("smptebars", "320x80"), *_sound(), *_X264, *_AAC))
    wide = ("-vf", "setsar=16/11")
    yield _Recipe("anamorphic.mp4", "Anamorphic", (*_pictures("smptebars", "240x192"), *_sound(), *wide, *_X264, *_AAC))
    yield _Recipe("slideshow.mp4", "Slides, 5 a second", (*_pictures("testsrc", rate="5", seconds=5), *_X264))
    yield _Recipe(
        "sports.mp4", "Sports, 60 a second", (*_pictures(size="160x120", rate="60"), *_sound(), *_X264, *_AAC)
    )
    ntsc = _pictures("testsrc", rate="30000/1001")
    yield _Recipe("ntsc.mp4", "NTSC, 29.97 a second", (*ntsc, *_sound(), *_X264, *_AAC))
    for degrees, file in ((90, "phone, upright.mp4"), (180, "phone, head down.mp4"), (270, "phone, other way.mp4")):
        yield _Recipe(file, f"Phone, turned by {degrees}°", of=_BASE, change=lambda mp4, by=degrees: turn(mp4, by))  # type: ignore[misc]


def _tracks() -> Iterator[_Recipe]:
    yield _Recipe("silent.mp4", "Silent film", (*_pictures("testsrc"), *_X264))
    two = ("-map", "0", "-map", "1", "-map", "2", "-metadata:s:a:0", "language=eng", "-metadata:s:a:1", "language=deu")
    yield _Recipe("two languages.mkv", "Two languages", (*_pictures(), *_sound(), *_sound(2, 880), *two, *_X264, *_AAC))
    subtitles = "data:text/plain;base64,MQowMDowMDowMCw1MDAgLS0+IDAwOjAwOjAyLDAwMApIZWxsbwo="
    titled = ("-i", _ORIGINAL, "-f", "srt", "-i", subtitles, "-map", "0", "-map", "1", "-c", "copy")
    yield _Recipe("subtitled.mkv", "Subtitled", (*titled, "-c:s", "srt"), of=_BASE)
    yield _Recipe("subtitled.mp4", "Subtitled, MP4", (*titled, "-c:s", "mov_text"), of=_BASE)
    longer = (*_pictures("smptebars", seconds=2), *_sound(5))
    yield _Recipe("applause goes on.mp4", "Sound longer than picture", (*longer, *_X264, *_AAC))
    still = ("-f", "lavfi", "-i", "testsrc=s=160x120:r=1:d=1")
    first = (*still, *_pictures(), *_sound(), "-map", "0", "-map", "1", "-map", "2")
    coded = ("-c:v:0", "mjpeg", "-c:v:1", "libx264", "-preset:v:1", "ultrafast", "-pix_fmt", "yuvj420p", *_AAC)
    yield _Recipe("poster first.mkv", "A poster as the first track", (*first, *coded))


def _times() -> Iterator[_Recipe]:
    late = (*_COPY, "-output_ts_offset", "1000")
    yield _Recipe("from minute 16.mkv", "Time stamps from 1000 s on", late, of=_BASE)
    yield _Recipe("from minute 16.ts", "Time stamps from 1000 s on, TS", late, of=_BASE)
    early = (*_COPY, "-output_ts_offset", "-0.5", "-avoid_negative_ts", "disabled")
    yield _Recipe("before zero.mkv", "Time stamps from before zero", early, of=_BASE)
    live = ("-c:v", "libvpx", "-deadline", "realtime", "-cpu-used", "8", "-c:a", "libvorbis", "-f", "webm")
    yield _Recipe("live.webm", "Live recording, no duration", (*_pictures(), *_sound(), *live), piped=True)
    yield _Recipe("raw.h264", "Raw stream, no duration", (*_COPY[:2], "-c:v", "copy", "-an", "-f", "h264"), of=_BASE)
    yield _Recipe("unsure.mp4", "Header without a duration", of=_FAST, change=unset_duration)
    yield _Recipe("blink.mp4", "Half a second", (*_pictures(seconds=0.4), *_X264))


def _names() -> Iterator[_Recipe]:
    """Names that break a program which encodes an address twice, or not at all. Each file's bytes differ."""
    names = (
        "summer holiday 2019.mp4", "a+b=c.mp4", "100% real.mp4", "%41 is not A.mp4", "it's \"quoted\" & $HOME.mp4",
        "naïve 日本.mp4", "-starts with a dash.mp4", "what? #1; a,b.mp4", "a:b.mp4", "[draft] {v2}~final.mp4",
        f"{'long ' * 40}name.mp4",
    )  # fmt: skip
    for number, name in enumerate(names):
        title = f"metadata title={number}".removeprefix("metadata ")
        yield _Recipe(
            name, name.removesuffix(".mp4"), (*_COPY, "-metadata", title), of=_BASE, lists_size=number % 2 == 0
        )
    yield _Recipe("harbour copy.mp4", "Harbour at dawn (copy)", of=_BASE, change=bytes)


def _rejects() -> Iterator[_Recipe]:
    picture = ("-f", "lavfi", "-i", "testsrc=s=160x120:d=1:r=1", "-frames:v", "1")
    song = (*_sound(3), *picture[:4], "-map", "0", "-map", "1", "-c:v", "mjpeg", "-disposition:v", "attached_pic")
    yield _Recipe("song.mp3", "A song with cover art", (*song, "-c:a", "libmp3lame"), "no-video-stream")
    yield _Recipe("podcast.m4a", "A podcast", (*_sound(3, 150), *_AAC), "no-video-stream")
    yield _Recipe(
        "upload stopped.mp4", "An upload that stopped: no index", expected="file-incomplete", of=_BASE,
        change=lambda whole: whole[: len(whole) // 2], lists_size=False,
    )  # fmt: skip
    yield _Recipe(
        "download stopped.mp4", "A download that stopped: index, half the pictures", expected="file-incomplete",
        of=_FAST, change=lambda whole: whole[: len(whole) // 2], lists_size_of_original=True,
    )  # fmt: skip
    yield _Recipe(
        "recording stopped.ts", "Half a recording", expected="file-incomplete", of="harbour.ts",
        change=lambda whole: whole[: len(whole) // 2 // 188 * 188], lists_size_of_original=True,
    )  # fmt: skip
    yield _Recipe("empty.mp4", "Nothing at all", expected="file-empty", change=lambda _: b"", lists_size=False)
    page = b"<!DOCTYPE html>\n<html><head><title>Sign in</title></head><body>Please sign in.</body></html>\n"
    yield _Recipe(
        "shared link.mp4", "A login page", expected="source-returned-html", change=lambda _: page, lists_size=False
    )
    yield _Recipe("poster.mp4", "A JPEG named .mp4", (*picture, "-f", "mjpeg"), "not-a-video")
    note = b"The video was moved to the other drive. Ask Jo.\n" * 3
    yield _Recipe("moved.mov", "A note left behind", expected="not-a-video", change=lambda _: note)
    playlist = (
        b"#EXTM3U\n#EXT-X-TARGETDURATION:4\n#EXTINF:4,\nhttp://169.254.169.254/latest/meta-data/\n#EXT-X-ENDLIST\n"
    )
    yield _Recipe("movie.mp4", "A playlist named .mp4", expected="not-a-video", change=lambda _: playlist)
    yield _Recipe("scrambled.mp4", "A scrambled index", expected="file-corrupt", of=_FAST, change=_scramble)
    yield _Recipe("one frame.mp4", "A single frame", (*_pictures(seconds=0.04), *_X264), "too-short")


# ------------------------------------------------------------------------------------------------- changes to the bytes


def turn(mp4: bytes, degrees: int) -> bytes:
    """`mp4` with its first track to be shown turned clockwise by 0, 90, 180 or 270 degrees: the matrix in its tkhd box
    (ISO/IEC 14496-12, 8.3.2) is replaced. ffmpeg's options for this differ between versions."""
    one, minus = 0x10000, 0xFFFF0000
    a, b, c, d = {0: (one, 0, 0, one), 90: (0, one, minus, 0), 180: (minus, 0, 0, minus), 270: (0, minus, one, 0)}[
        degrees
    ]
    at = mp4.index(b"tkhd") + 4 + 40
    matrix = b"".join(value.to_bytes(4, "big") for value in (a, b, 0, c, d, 0, 0, 0, 0x40000000))
    return mp4[:at] + matrix + mp4[at + len(matrix) :]


def unset_duration(mp4: bytes) -> bytes:
    """`mp4` with the duration in its movie header (version 0 mvhd) set to all ones, which means "not known"."""
    at = mp4.index(b"mvhd") + 4 + 16
    return mp4[:at] + b"\xff" * 4 + mp4[at + 4 :]


def _scramble(mp4: bytes) -> bytes:
    """`mp4` with its index overwritten; every box keeps its place and size."""
    at = mp4.index(b"moov")
    length = int.from_bytes(mp4[at - 4 : at], "big") - 8
    return mp4[: at + 4] + b"\xa5" * length + mp4[at + 4 + length :]
