"""One child process that cannot outlive, outgrow or deadlock its caller."""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import resource
import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

_CHUNK: Final = 65_536
_REAP_S: Final = 5.0

_ENVIRONMENT: Final = ("PATH", "HOME", "TMPDIR", "LANG", "LC_ALL", "LC_CTYPE", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")
"""What a child inherits. Our tokens are none of its business, FFREPORT would write addresses into a log file, and a
proxy variable would lead it elsewhere."""


@dataclass(frozen=True, slots=True)
class Finished:
    """How a process ended. `returncode` is negative where a signal ended it. `stdout_cut` says that it wrote more than
    its limit, for which it was killed; of `stderr` only the first and last bytes are kept."""

    returncode: int
    stdout: bytes
    stdout_cut: bool
    stderr: bytes


async def run(
    argv: Sequence[str], *, timeout_s: float, memory_bytes: int | None, stdout_limit: int, stderr_limit: int = 8_192
) -> Finished:
    """Runs `argv` without a shell, in a session of its own, with nothing on its standard input.

    Both outputs are drained at the same time, so a child that writes much never blocks; one that writes more than
    `stdout_limit` bytes to its standard output is killed. After `timeout_s` seconds, or when the caller is cancelled,
    the whole process group is killed and reaped before this returns. Raises TimeoutError, and OSError where the program
    cannot be started.
    """
    process = await _started(argv)
    assert process.stdout is not None
    assert process.stderr is not None
    kill = partial(_kill, process)
    finished = False
    try:
        _limit(process.pid, memory_bytes, timeout_s)
        async with asyncio.timeout(timeout_s), asyncio.TaskGroup() as drains:
            stdout = drains.create_task(_drain_head(process.stdout, stdout_limit, kill))
            stderr = drains.create_task(_drain_ends(process.stderr, stderr_limit))
            returncode = await process.wait()
        finished = True
    finally:
        if not finished:
            kill()
            with contextlib.suppress(TimeoutError):
                await asyncio.shield(asyncio.wait_for(_bury(process), _REAP_S))
    head, cut = stdout.result()
    return Finished(returncode, head, cut, stderr.result())


async def _started(argv: Sequence[str]) -> asyncio.subprocess.Process:
    """The child, in a session of its own. Raises OSError where it cannot be started."""
    starting = asyncio.create_task(
        asyncio.create_subprocess_exec(
            *argv,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
            env={name: os.environ[name] for name in _ENVIRONMENT if name in os.environ},
        )
    )
    try:
        return await asyncio.shield(starting)
    except asyncio.CancelledError:
        # It runs before asyncio has its pipes. Cancelled there, asyncio would kill the child, and leave alive what that
        # has started by then.
        with contextlib.suppress(OSError, TimeoutError):
            process = await starting
            _kill(process)
            await asyncio.wait_for(_bury(process), _REAP_S)
        raise


def _kill(process: asyncio.subprocess.Process) -> None:
    """The group, not the child: a wrapper script's own child may hold the pipes."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)


async def _bury(process: asyncio.subprocess.Process) -> None:
    """Waits for a killed process. asyncio says that it ended only when its pipes have been read to their ends."""
    assert process.stdout is not None
    assert process.stderr is not None
    for reader in (process.stdout, process.stderr):
        while await reader.read(_CHUNK):
            pass
    await process.wait()


def _limit(pid: int, memory_bytes: int | None, timeout_s: float) -> None:
    """Limits set from outside, right after the start: a preexec_fn runs Python in a forked child of a process with
    threads, which can deadlock. Where the kernel has no prlimit (not Linux), only the clock limits."""
    if not hasattr(resource, "prlimit"):
        return
    # A worker that is killed cannot kill its children; the processor-time limit ends one that spins on alone.
    seconds = math.ceil(timeout_s) + 5
    limits = [(resource.RLIMIT_CORE, (0, 0)), (resource.RLIMIT_CPU, (seconds, seconds))]
    if memory_bytes is not None:
        limits.insert(0, (resource.RLIMIT_AS, (memory_bytes, memory_bytes)))
    for kind, value in limits:
        # Already gone; or a hard limit of the machine is lower than ours, and then it rules.
        with contextlib.suppress(ProcessLookupError, PermissionError, ValueError):
            resource.prlimit(pid, kind, value)


async def _drain_head(reader: asyncio.StreamReader, limit: int, kill: Callable[[], None]) -> tuple[bytes, bool]:
    kept = bytearray()
    cut = False
    while chunk := await reader.read(_CHUNK):
        room = limit - len(kept)
        kept += chunk[:room]
        if len(chunk) > room and not cut:
            cut = True
            kill()
    return bytes(kept), cut


async def _drain_ends(reader: asyncio.StreamReader, limit: int) -> bytes:
    half = limit // 2
    head = bytearray()
    tail = bytearray()
    while chunk := await reader.read(_CHUNK):
        room = half - len(head)
        head += chunk[:room]
        tail += chunk[room:]
        del tail[:-half]
    return bytes(head + tail)
