"""A child process cannot outlive, outgrow or deadlock its caller, and its death is never a file's fault."""

from __future__ import annotations

import asyncio
import os
import re
import sys
from pathlib import Path

import psutil
import pytest

from faults import Fault
from media.probe import probe
from media.process import run
from media.tools import bundled_ffprobe, ffprobe_version, find_ffprobe
from settings import MediaSettings
from sources.base import Location


@pytest.fixture
def pretend(tmp_path):
    """An "ffprobe" that is a few lines of shell."""

    def make(script: str, **settings: float) -> MediaSettings:
        path = tmp_path / "ffprobe"
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)
        return MediaSettings(ffprobe=path, **{"timeout_s": 10.0, **settings})

    return make


def _runs(pid: int) -> bool:
    """A killed grandchild is reaped by whoever adopted it, in its own time."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


async def died(good: Path, settings: MediaSettings) -> Fault:
    with pytest.raises(Fault) as caught:
        await probe(Location(str(good)), settings=settings)
    assert not caught.value.permanent
    return caught.value


async def test_200_kb_on_stderr_and_then_sleep_is_ended_by_the_clock(good, pretend):
    settings = pretend("head -c 200000 /dev/zero >&2; sleep 3600", timeout_s=1.0)
    async with asyncio.timeout(60):
        assert (await died(good, settings)).code == "source-timeout"


async def test_200_kb_on_stderr_before_the_answer_is_no_deadlock(good, pretend):
    settings = pretend("""head -c 200000 /dev/zero >&2; echo '{"streams": [], "format": {}}'""")
    assert (await probe(Location(str(good)), settings=settings)).answer == {"streams": [], "format": {}}


async def test_what_the_child_started_dies_with_it(good, pretend, tmp_path):
    settings = pretend(f"sleep 3600 & echo $! > {tmp_path}/pid; wait", timeout_s=0.7)
    assert (await died(good, settings)).code == "source-timeout"
    orphan = int((tmp_path / "pid").read_text())
    while _runs(orphan):
        await asyncio.sleep(0.01)


@pytest.mark.parametrize(
    "script",
    ["kill -9 $$", "kill -SEGV $$", "exit 137", "exit 127", "exit 1", "exit 0", "echo '{\"format\"'", "echo '[]'",
     """echo '{"error": {"code": -12}}'; exit 1""", "yes"],
)  # fmt: skip
async def test_an_ffprobe_that_died_is_never_a_bad_file(good, pretend, script):
    assert (await died(good, pretend(script))).code == "probe-died"


async def test_the_last_words_of_an_ffprobe_that_cannot_run_are_passed_on(good, pretend):
    fault = await died(good, pretend("echo 'error while loading shared libraries: libx.so' >&2; exit 127"))
    assert "libx.so" in fault.detail


async def test_a_cancelled_caller_leaves_no_process(good, pretend, tmp_path):
    settings = pretend(f"sleep 3600 & echo $$ $! > {tmp_path}/made; mv {tmp_path}/made {tmp_path}/began; wait")
    task = asyncio.create_task(probe(Location(str(good)), settings=settings))
    while not (tmp_path / "began").exists():
        await asyncio.sleep(0.01)
    child, grandchild = map(int, (tmp_path / "began").read_text().split())
    assert _runs(child) and _runs(grandchild)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not psutil.pid_exists(child)
    while _runs(grandchild):
        await asyncio.sleep(0.01)


async def test_memory_is_limited():
    # The limits are set from outside; this child is quick and waits for them. One on its processor time is always set.
    waits = "import resource as r, time\nwhile r.getrlimit(r.RLIMIT_CPU)[0] < 0: time.sleep(0.01)\n"
    greedy = [sys.executable, "-c", waits + "x = bytearray(300_000_000); print(len(x))"]
    free = await run(greedy, timeout_s=20, memory_bytes=None, stdout_limit=100)
    held = await run(greedy, timeout_s=20, memory_bytes=250_000_000, stdout_limit=100)
    assert free.stdout == b"300000000\n"
    assert held.returncode != 0


async def test_too_little_memory_for_ffprobe_is_no_bad_file(good, settings):
    starved = settings.model_copy(update={"memory_bytes": 60_000_000})
    assert (await died(good, starved)).code == "probe-died"


async def test_a_child_gets_none_of_our_secrets(monkeypatch):
    monkeypatch.setenv("LONGHAUL_ACCOUNTS__MAIN__TOKEN", "s3cret")
    monkeypatch.setenv("FFREPORT", "file=report.log")
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    finished = await run(["/usr/bin/env"], timeout_s=5, memory_bytes=None, stdout_limit=100_000)
    names = {line.partition("=")[0] for line in finished.stdout.decode().splitlines()}
    assert "PATH" in names
    assert not names & {"LONGHAUL_ACCOUNTS__MAIN__TOKEN", "FFREPORT", "http_proxy"}


async def test_a_child_has_nothing_to_read_and_a_session_of_its_own():
    script = "import os, sys; print(repr(sys.stdin.read()), os.getsid(0) == os.getpid())"
    finished = await run([sys.executable, "-c", script], timeout_s=10, memory_bytes=None, stdout_limit=100)
    assert finished.stdout == b"'' True\n"


async def test_only_the_ends_of_stderr_are_kept():
    script = "import sys; sys.stderr.write('begin' + 'x' * 300_000 + 'end')"
    finished = await run([sys.executable, "-c", script], timeout_s=10, memory_bytes=None, stdout_limit=100)
    assert len(finished.stderr) == 8_192
    assert finished.stderr.startswith(b"begin")
    assert finished.stderr.endswith(b"end")


# -------------------------------------------------------------------------------------------------------- which ffprobe


def test_the_configured_ffprobe_is_the_one(tmp_path, monkeypatch):
    path = tmp_path / "mine"
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    assert find_ffprobe(path) == path


def test_a_configured_ffprobe_that_is_none_is_refused_and_not_replaced(tmp_path):
    with pytest.raises(Fault) as caught:
        find_ffprobe(tmp_path / "none")
    assert caught.value.code == "settings-refused"
    assert "LONGHAUL_MEDIA__FFPROBE" in caught.value.detail


def test_the_path_comes_before_the_wheel(tmp_path, monkeypatch):
    path = tmp_path / "ffprobe"
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    assert find_ffprobe(None) == path


def test_where_the_path_has_none_the_wheel_serves_or_the_fault_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    bundled = bundled_ffprobe()
    if bundled is not None:
        assert find_ffprobe(None) == bundled
    monkeypatch.setattr("media.tools.bundled_ffprobe", lambda: None)
    with pytest.raises(Fault) as caught:
        find_ffprobe(None)
    assert caught.value.code == "settings-refused"
    assert "install ffmpeg" in caught.value.detail


async def test_the_version_is_what_it_calls_itself(ffprobe, tmp_path):
    assert re.match(r"[nN]?-?\d", await ffprobe_version(ffprobe))
    other = tmp_path / "other"
    other.write_text("#!/bin/sh\necho hello\n")
    other.chmod(0o755)
    with pytest.raises(Fault) as caught:
        await ffprobe_version(other)
    assert caught.value.code == "settings-refused"
