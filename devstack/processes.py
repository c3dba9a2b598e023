"""Child processes: started in sessions of their own, watched until ready, stopped in order, never left behind.

A child has its own session, so that a terminal's Ctrl-C reaches only the program that the person sees, which then stops
its children in order. A child that is not detached is also bound to its starter by the kernel (Linux), so that even a
SIGKILL of the starter leaves nothing running. A detached child outlives its starter; it is recorded as an `Identity`,
and only a process that still has that identity is ever signalled.

POSIX only. `launch` must be called from a thread that lives as long as its children (the main thread): the kernel's
parent-death signal follows the thread, not the process.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Self

import psutil

from devstack.account import Account

POLL_S: Final = 0.02
"""Seconds between two looks at a condition."""

TAIL_LINES: Final = 15
"""Lines of a log that an error shows."""

SAME_START_S: Final = 2.0
"""Start times closer than this (seconds) are one process: the kernel counts from boot, whose wall-clock time shifts by
up to a second when the clock is set, and no system hands out a pid again that quickly."""

_SHIM: Final = Path(__file__).with_name("shim.py")


class StackError(Exception):
    """The stack, or a part of it, cannot do what was asked. The text is meant for a person."""


class ProcessFailed(StackError):
    """A process ended, or was not ready in time; the text names it, its log and the log's last lines."""

    def __init__(self, name: str, what: str, log: Path) -> None:
        self.name = name
        self.log = log
        tail = log_tail(log)
        shown = "\n".join(f"    {line}" for line in tail) if tail else "    (nothing)"
        super().__init__(f"{name} {what}; its log is {log}, ending in:\n{shown}")


@dataclass(frozen=True, slots=True)
class Identity:
    """One process, told from a later one with the same pid by its start time (seconds since the epoch)."""

    pid: int
    started: float

    @classmethod
    def of(cls, pid: int) -> Self:
        """Raises psutil.NoSuchProcess where there is none."""
        return cls(pid, psutil.Process(pid).create_time())

    def process(self) -> psutil.Process | None:
        """The process, if it still runs: None for another with its pid, and for a zombie."""
        try:
            process = psutil.Process(self.pid)
            if abs(process.create_time() - self.started) > SAME_START_S or process.status() == psutil.STATUS_ZOMBIE:
                return None
        except psutil.NoSuchProcess:
            return None
        return process


@dataclass(frozen=True, slots=True)
class Spec:
    """How a child is run. `env` is its whole environment."""

    name: str
    argv: Sequence[str]
    cwd: Path
    env: Mapping[str, str]
    account: Account | None = None
    """The system account that it runs as; None: ours."""
    stop_signal: signal.Signals = signal.SIGTERM
    death_signal: signal.Signals = signal.SIGKILL
    """What it gets when its starter dies without stopping it."""
    grace_s: float = 10.0
    """Seconds between the stop signal and SIGKILL."""


@dataclass(slots=True)
class Child:
    """A running or ended child, ours or one that an earlier program started detached."""

    name: str
    identity: Identity
    log: Path
    stop_signal: signal.Signals = signal.SIGTERM
    grace_s: float = 10.0
    _popen: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    @property
    def pid(self) -> int:
        return self.identity.pid

    @property
    def ours(self) -> bool:
        """Whether this program started it."""
        return self._popen is not None

    def alive(self) -> bool:
        if self._popen is not None and self._popen.poll() is not None:
            return False
        return self.identity.process() is not None

    def exit_code(self) -> int | None:
        """Its exit code, negative for a signal; None while it runs, or where it was not ours to wait for."""
        return None if self._popen is None else self._popen.poll()

    def signal(self, number: signal.Signals) -> None:
        """To the process itself; nothing happens where it has ended."""
        process = self.identity.process()
        if process is not None:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.send_signal(number)

    def family(self) -> list[psutil.Process]:
        """The process and all that descend from it or stayed in its process group, so far as they run."""
        return _family(self.identity)

    def stop(self) -> None:
        """The stop signal, `grace_s` for it to end, SIGKILL for what is left of its family. Returns when all ended."""
        stop_all([self])

    def kill(self) -> None:
        """SIGKILL for the whole family, at once. Returns when all ended."""
        family = self.family()
        for process in family:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        self._reap()
        _wait_gone(family, 10.0)

    def record(self) -> dict[str, Any]:
        """What `recall` needs to find this child from another program."""
        return {
            "pid": self.identity.pid,
            "started": self.identity.started,
            "log": str(self.log),
            "stop_signal": int(self.stop_signal),
            "grace_s": self.grace_s,
        }

    def _reap(self) -> None:
        if self._popen is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._popen.wait(10.0)


def recall(name: str, record: Mapping[str, Any]) -> Child:
    """The child that `Child.record` described; it may have ended since.

    Raises KeyError, TypeError or ValueError where `record` is no such description.
    """
    return Child(
        name=name,
        identity=Identity(int(record["pid"]), float(record["started"])),
        log=Path(record["log"]),
        stop_signal=signal.Signals(int(record["stop_signal"])),
        grace_s=float(record["grace_s"]),
    )


def launch(spec: Spec, log: Path, *, detached: bool = False) -> Child:
    """Starts a child with its output appended to `log` and nothing on its standard input; its files are private.

    Unless `detached`, it gets `spec.death_signal` when the calling thread dies (Linux). A command that cannot be run
    shows as a child that ended with code 127 and says why in its log.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    bound = "0" if detached else str(int(spec.death_signal))
    account = "-" if spec.account is None else f"{spec.account.uid}:{spec.account.gid}"
    # -I and -S: the shim needs nothing but the standard library, and must not read what the child's environment says.
    shim = [sys.executable, "-I", "-S", str(_SHIM), str(os.getpid()), bound, account, "--"]
    with open(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "ab") as output:
        popen = subprocess.Popen(
            [*shim, *spec.argv],
            cwd=spec.cwd,
            env=dict(spec.env),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            umask=0o077,
        )
    return Child(spec.name, Identity.of(popen.pid), log, spec.stop_signal, spec.grace_s, popen)


def wait_until_ready(child: Child, ready: Callable[[], bool], *, deadline_s: float) -> None:
    """Returns once `ready()` is true.

    Raises ProcessFailed when the child ends first, or `deadline_s` seconds pass.
    """
    deadline = time.monotonic() + deadline_s
    while not ready():
        if not child.alive():
            code = child.exit_code()
            raise ProcessFailed(child.name, _ended(code), child.log)
        if time.monotonic() > deadline:
            raise ProcessFailed(child.name, f"was not ready within {deadline_s:g} s", child.log)
        time.sleep(POLL_S)


def stop_all(children: Iterable[Child]) -> None:
    """Stops the children one after another, the last first. Returns when all have ended."""
    for child in reversed(list(children)):
        before = child.family()
        child.signal(child.stop_signal)
        # Not psutil's wait: it takes a zombie for running, and a container's first process may never collect it.
        deadline = time.monotonic() + child.grace_s
        while child.alive() and time.monotonic() < deadline:
            time.sleep(POLL_S)
        left = {p.pid: p for p in [*before, *child.family()] if _runs(p)}
        for remaining in left.values():
            with contextlib.suppress(psutil.NoSuchProcess):
                remaining.kill()
        child._reap()
        _wait_gone(list(left.values()), 10.0)


def log_tail(log: Path, lines: int = TAIL_LINES) -> list[str]:
    """The last `lines` lines of a log; none where it cannot be read."""
    try:
        with open(log, "rb") as file:
            file.seek(0, os.SEEK_END)
            file.seek(max(0, file.tell() - 16_384))
            return file.read().decode(errors="replace").splitlines()[-lines:]
    except OSError:
        return []


def _ended(code: int | None) -> str:
    if code is None:
        return "ended"
    if code < 0:
        try:
            return f"was ended by {signal.Signals(-code).name}"
        except ValueError:
            return f"was ended by signal {-code}"
    return f"ended with exit code {code}"


def _family(identity: Identity) -> list[psutil.Process]:
    leader = identity.process()
    found: dict[int, psutil.Process] = {}
    if leader is not None:
        found[leader.pid] = leader
        with contextlib.suppress(psutil.NoSuchProcess):
            found.update((p.pid, p) for p in leader.children(recursive=True))
    elif psutil.pid_exists(identity.pid) and not _is_zombie(identity.pid):
        return []  # the pid, and with it the group's number, belongs to somebody else by now
    # What lost its parent: a session keeps its number as long as one member runs, so nobody else can have it.
    for pid in psutil.pids():
        try:
            if pid in found or os.getsid(pid) != identity.pid:
                continue
            process = psutil.Process(pid)
            if process.create_time() >= identity.started - SAME_START_S and process.status() != psutil.STATUS_ZOMBIE:
                found[pid] = process
        except (psutil.Error, OSError):
            continue
    return list(found.values())


def _is_zombie(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def _runs(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _wait_gone(processes: Sequence[psutil.Process], deadline_s: float) -> None:
    deadline = time.monotonic() + deadline_s
    while any(_runs(process) for process in processes) and time.monotonic() < deadline:
        time.sleep(POLL_S)
