"""Media made once for all tests, and every ffprobe that this machine has."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from reading import FFPROBES, MISSING, Reader

from devstack.library import find_ffmpeg
from settings import MediaSettings

Make = Callable[..., Path]


@pytest.fixture(params=list(FFPROBES))
def ffprobe(request: pytest.FixtureRequest) -> Path:
    path = FFPROBES[request.param]
    if path is None:
        pytest.skip(MISSING[request.param])
    return path


@pytest.fixture
def settings(ffprobe: Path) -> MediaSettings:
    """Each test that asks for these runs once with every ffprobe."""
    return MediaSettings(ffprobe=ffprobe, timeout_s=20, allow_private_addresses=True)


@pytest.fixture
def quick() -> MediaSettings:
    """For what does not depend on the version: the fastest ffprobe there is."""
    fastest = FFPROBES["bundled"] or FFPROBES["system"]
    assert fastest is not None, "these tests need an ffprobe: none came with the packages, and none is on the PATH"
    return MediaSettings(ffprobe=fastest, timeout_s=20, allow_private_addresses=True)


WAYS = [("system", "http"), ("bundled", "http"), ("bundled", "local")]
"""Where a file is read from makes no difference to what a version of ffprobe says of it: the slower one, whose start
takes 70 ms, reads over HTTP alone."""


@pytest.fixture(params=WAYS, ids="-".join)
def read(request: pytest.FixtureRequest) -> Reader:
    """Each test that asks for this runs on every ffprobe over HTTP, and on the bundled one with local files."""
    which, where = request.param
    path = FFPROBES[which]
    if path is None:
        pytest.skip(MISSING[which])
    return Reader(MediaSettings(ffprobe=path, timeout_s=20, allow_private_addresses=True), remote=where == "http")


@pytest.fixture(scope="session")
def media_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("media")


@pytest.fixture(scope="session")
def make(media_dir: Path) -> Make:
    """`make("x.mkv", "-i", other, …)` runs ffmpeg once for each name."""
    ffmpeg = find_ffmpeg()

    def make(name: str, *argv: str | Path, pipe: bool = False) -> Path:
        path = media_dir / name
        if not path.exists():
            command = [str(ffmpeg), "-nostdin", "-hide_banner", "-loglevel", "error", "-y", *map(str, argv)]
            if pipe:
                path.write_bytes(subprocess.run([*command, "pipe:1"], check=True, stdout=subprocess.PIPE).stdout)
            else:
                subprocess.run([*command, str(path)], check=True)
        return path

    return make


@pytest.fixture(scope="session")
def good(make: Make) -> Path:
    """Four seconds of 320x240 H.264 and AAC, its index at the end."""
    pictures = ("-f", "lavfi", "-i", "testsrc2=s=320x240:r=25:d=4", "-f", "lavfi", "-i", "sine=d=4")
    return make("good.mp4", *pictures, "-c:v", "libx264", "-preset", "veryfast", "-pix_fmt", "yuv420p", "-c:a", "aac")


@pytest.fixture(scope="session")
def fast(make: Make, good: Path) -> Path:
    """`good` with its index first."""
    return make("fast.mp4", "-i", good, "-c", "copy", "-movflags", "+faststart")


@pytest.fixture(scope="session")
def jpeg(make: Make, good: Path) -> Path:
    return make("still.jpg", "-i", good, "-frames:v", "1")


@pytest.fixture(autouse=True)
def _no_child_is_left_behind() -> Iterator[None]:
    before = {process.pid for process in psutil.Process().children(recursive=True)}
    yield
    found = psutil.Process().children(recursive=True)
    # A new child of a process that was there before is its own: a server's, that runs for the whole session.
    left = [process for process in found if process.pid not in before and process.ppid() not in before]
    assert left == []
