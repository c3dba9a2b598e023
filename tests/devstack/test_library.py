"""The rehearsal's library is real, can be made again at no cost, and every entry ends as it says; and the server that
hands it out behaves as a good one."""

from __future__ import annotations

import asyncio
import csv
import signal
import sys
from pathlib import Path
from urllib.parse import unquote

import httpx
import pytest

from devstack.fileserver import serving
from devstack.library import LIMITS, Entry, make_library, write_manifest
from faults import REASONS, Fault
from media import inspect, read_small
from media.attachments import as_vtt, caption_format, picture_format
from settings import MediaSettings
from sources.manifest import ManifestSource

SETTINGS = MediaSettings(allow_private_addresses=True)


@pytest.fixture(scope="session")
def media_dir(tmp_path_factory):
    return tmp_path_factory.mktemp("library") / "media"


@pytest.fixture(scope="session")
async def library(media_dir) -> list[Entry]:
    steps: list[tuple[int, int, str]] = []
    entries = await make_library(media_dir, progress=lambda *step: steps.append(step))
    # The dead link is an entry and no file.
    assert [done for done, _, _ in steps] == list(range(1, len(entries)))
    return entries


@pytest.fixture
async def base(library, media_dir):
    async with serving(media_dir) as address:
        yield address


@pytest.fixture
async def client():
    async with httpx.AsyncClient(trust_env=False) as opened:
        yield opened


# ---------------------------------------------------------------------------------------------------------- the library


async def test_every_entry_ends_as_it_says(library, base, tmp_path):
    """Through the manifest, the server, ffprobe and the verdict: as a migration's inventory does it."""
    write_manifest(tmp_path / "library.csv", library, base)
    expected = {entry.id: entry.expected for entry in library}
    gate = asyncio.Semaphore(2)
    ended: dict[str, str | None] = {}

    async def one(source: ManifestSource, item) -> None:
        async with gate:
            try:
                found = await inspect(await source.locate(item), settings=SETTINGS, limits=LIMITS)
                ended[item.source_id] = found.verdict.reason
            except Fault as fault:
                ended[item.source_id] = fault.code

    async with ManifestSource(tmp_path / "library.csv") as source:
        await source.check()
        page = await source.list_page(None)
        assert not page.problems
        await asyncio.gather(*(one(source, item) for item in page.items))
    assert ended == expected


def test_the_library_holds_many_kinds(library, media_dir):
    assert len(library) >= 60
    assert len({entry.id for entry in library}) == len(library)
    assert len({entry.file for entry in library}) == len(library)
    reasons = {entry.expected for entry in library}
    assert reasons >= {
        None, "file-empty", "file-incomplete", "no-video-stream", "not-a-video", "source-returned-html",
        "source-not-found", "too-short", "file-corrupt",
    }  # fmt: skip
    assert reasons - {None} <= REASONS.keys()
    contents = [path.read_bytes() for path in media_dir.iterdir() if path.is_file()]
    assert len(contents) - len(set(contents)) == 1  # the one copy
    assert sum(map(len, contents)) < 30_000_000


async def test_some_have_text_tracks_a_poster_and_one_is_private(library, base, media_dir, tmp_path):
    write_manifest(tmp_path / "library.csv", library, base)
    async with ManifestSource(tmp_path / "library.csv") as source:
        page = await source.list_page(None)
        tracks = {(item.source_id, caption.language) for item in page.items for caption in item.about.captions}
        assert tracks == {("demo-001", "de"), ("demo-001", "en"), ("demo-002", "en")}
        assert [item.about.privacy for item in page.items if item.about.privacy] == ["private"]
        [item] = [item for item in page.items if item.about.poster]
        poster = await read_small(await source.locate_poster(item), limit=10**6, settings=SETTINGS)
        assert picture_format(poster) == "png"
        kinds = {}
        for caption in item.about.captions:
            content = await read_small(await source.locate_caption(item, caption), limit=10**6, settings=SETTINGS)
            kinds[caption.language] = caption_format(content)
            assert as_vtt(content).startswith(b"WEBVTT")
        assert kinds == {"de": "srt", "en": "vtt"}


async def test_what_is_made_is_not_made_again(library, media_dir):
    before = {path.name: path.stat().st_mtime_ns for path in media_dir.iterdir()}
    assert await make_library(media_dir) == library
    assert {path.name: path.stat().st_mtime_ns for path in media_dir.iterdir()} == before


async def test_an_interruption_leaves_nothing_half_made(library, media_dir, tmp_path):
    stopped = tmp_path / "stopped"
    some = asyncio.Event()
    task = asyncio.create_task(make_library(stopped, progress=lambda *_: some.set()))
    await some.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    left = list(stopped.iterdir())
    assert 1 <= len(left) < len(library) - 1
    assert all(path.is_file() and path.stat().st_size > 0 for path in left)


async def test_without_ffmpeg_it_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setitem(sys.modules, "imageio_ffmpeg", None)
    with pytest.raises(Fault) as caught:
        await make_library(tmp_path / "media")
    assert caught.value.code == "settings-refused"
    assert "install ffmpeg" in caught.value.detail


def test_the_manifest_encodes_each_name_exactly_once(library, tmp_path):
    write_manifest(tmp_path / "library.csv", library, "http://127.0.0.1:8070/media/")
    with (tmp_path / "library.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [row["title"] for row in rows] == [entry.title for entry in library]
    for row, entry in zip(rows, library, strict=True):
        path = row["url"].removeprefix("http://127.0.0.1:8070/media/")
        assert unquote(path) == entry.file
        assert path.isascii()
        assert not set(path) & set(" \"'<>#?&+$:")
        assert row["size"] == ("" if entry.listed_size is None else str(entry.listed_size))
    assert list(tmp_path.iterdir()) == [tmp_path / "library.csv"]


# ----------------------------------------------------------------------------------------------------------- the server


@pytest.mark.parametrize(
    ("asked", "status", "part"),
    [
        (None, 200, slice(None)),
        ("bytes=0-", 206, slice(0, None)),
        ("bytes=0-0", 206, slice(0, 1)),
        ("bytes=100-199", 206, slice(100, 200)),
        ("bytes=-10", 206, slice(-10, None)),
        ("bytes=200-99999999", 206, slice(200, None)),
    ],
)
async def test_ranges_are_served(base, client, media_dir, asked, status, part):
    whole = (media_dir / "harbour.mp4").read_bytes()
    answer = await client.get(f"{base}/harbour.mp4", headers={"Range": asked} if asked else {})
    assert answer.status_code == status
    assert answer.content == whole[part]
    assert int(answer.headers["content-length"]) == len(whole[part])
    assert answer.headers["accept-ranges"] == "bytes"
    if status == 206:
        first = range(len(whole))[part][0]
        last = first + len(answer.content) - 1
        assert answer.headers["content-range"] == f"bytes {first}-{last}/{len(whole)}"


async def test_a_range_beyond_the_end_is_not_satisfiable(base, client, media_dir):
    size = (media_dir / "harbour.mp4").stat().st_size
    answer = await client.get(f"{base}/harbour.mp4", headers={"Range": f"bytes={size}-"})
    assert (answer.status_code, answer.headers["content-range"]) == (416, f"bytes */{size}")


async def test_head_says_what_get_would(base, client):
    head, whole = await client.head(f"{base}/harbour.mp4"), await client.get(f"{base}/harbour.mp4")
    assert (head.status_code, head.content) == (200, b"")
    assert head.headers["content-length"] == whole.headers["content-length"] == str(len(whole.content))
    assert (await client.post(f"{base}/harbour.mp4")).status_code == 405


@pytest.mark.parametrize(
    ("name", "content_type"),
    [
        ("harbour.mp4", "video/mp4"),
        ("harbour.mkv", "video/x-matroska"),
        ("garden.webm", "video/webm"),
        ("harbour.ts", "video/mp2t"),
        ("song.mp3", "audio/mpeg"),
        ("shared link.mp4", "text/html; charset=utf-8"),
        ("raw.h264", "application/octet-stream"),
    ],
)
async def test_content_types_are_right(base, client, name, content_type):
    assert (await client.head(f"{base}/{name}")).headers["content-type"] == content_type


@pytest.mark.parametrize(
    "path", ["/gone.mp4", "/", "/%2e%2e/library.csv", "/..%2f..%2fetc/passwd", "/.making-x/a", "/%00"]
)
async def test_only_the_folder_s_files_are_served(base, client, media_dir, path):
    (media_dir.parent / "library.csv").write_text("secret")
    request = client.build_request("GET", base, extensions={"target": path.encode()})
    assert (await client.send(request)).status_code == 404


async def test_a_link_out_of_the_folder_is_not_followed(client, tmp_path):
    (tmp_path / "secret").write_text("x")
    root = tmp_path / "root"
    root.mkdir()
    (root / "link.mp4").symlink_to(tmp_path / "secret")
    async with serving(root) as address:
        assert (await client.get(f"{address}/link.mp4")).status_code == 404


async def test_the_server_program_ends_cleanly_on_sigterm(client, tmp_path):
    (tmp_path / "a.mp4").write_bytes(b"abc")
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "devstack.fileserver", "--root", str(tmp_path), "--port", "0",
        cwd=Path(__file__).parents[2], stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        said = (await process.stdout.readline()).decode().strip()
        assert (await client.get(f"{said.rpartition(' ')[2]}/a.mp4")).content == b"abc"
    finally:
        process.send_signal(signal.SIGTERM)
        _, errors = await process.communicate()
    assert (process.returncode, errors) == (0, b"")


async def test_a_taken_port_is_said_and_not_a_traceback(tmp_path):
    async with serving(tmp_path) as address:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "devstack.fileserver", "--root", str(tmp_path), "--port", address.rpartition(":")[2],
            cwd=Path(__file__).parents[2], stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        _, errors = await process.communicate()
    assert process.returncode == 1
    assert errors.startswith(b"cannot serve at 127.0.0.1:")
