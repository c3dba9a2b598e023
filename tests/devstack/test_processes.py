"""Child processes: seen when they fail, stopped with all they started, and never confused with somebody else's."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from devstack.processes import Child, Identity, ProcessFailed, Spec, launch, recall, stop_all, wait_until_ready

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Child]]:
    """Starts `python -c code` as a child; `says` waits until its log holds that word."""
    children: list[Child] = []

    def starter(code: str, *, name: str = "part", says: str | None = None, grace_s: float = 10.0) -> Child:
        spec = Spec(name, [sys.executable, "-u", "-c", code], tmp_path, dict(os.environ), grace_s=grace_s)
        child = launch(spec, tmp_path / f"{name}.log")
        children.append(child)
        if says is not None:
            wait_until_ready(child, lambda: says in child.log.read_text(), deadline_s=20)
        return child

    yield starter
    for child in children:
        child.kill()


def _wait_until(condition: Callable[[], bool], deadline_s: float = 10.0) -> None:
    deadline = time.monotonic() + deadline_s
    while not condition():
        assert time.monotonic() < deadline, "the awaited condition did not come"
        time.sleep(0.02)


def _runs(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_a_child_has_a_session_of_its_own_so_that_ctrl_c_reaches_only_us(start: Callable[..., Child]) -> None:
    child = start("import time; print('here'); time.sleep(60)", says="here")
    assert os.getsid(child.pid) == child.pid != os.getsid(0)


def test_what_a_child_writes_is_private_and_appended(start: Callable[..., Child], tmp_path: Path) -> None:
    for _ in range(2):
        child = start("open('made', 'w').close(); print('one line')", says="one line")
        _wait_until(lambda child=child: not child.alive())  # type: ignore[misc]
    assert child.log.read_text() == "one line\n" * 2
    assert {path.stat().st_mode & 0o777 for path in (child.log, tmp_path / "made")} == {0o600}


def test_a_child_that_fails_is_named_with_its_log_and_the_logs_end(start: Callable[..., Child]) -> None:
    child = start("print('\\n'.join(f'line {n}' for n in range(100))); raise SystemExit(7)", name="broken")
    with pytest.raises(ProcessFailed) as failure:
        wait_until_ready(child, lambda: False, deadline_s=20)
    text = str(failure.value)
    assert "broken ended with exit code 7" in text
    assert str(child.log) in text
    assert "line 99" in text
    assert "line 50" not in text


def test_a_child_that_is_not_ready_in_time_is_named_too(start: Callable[..., Child]) -> None:
    child = start("import time; print('working on it'); time.sleep(60)", name="slow", says="working")
    with pytest.raises(ProcessFailed, match=r"slow was not ready within 0\.1 s; its log is .*slow\.log") as failure:
        wait_until_ready(child, lambda: False, deadline_s=0.1)
    assert "working on it" in str(failure.value)


def test_a_command_that_does_not_exist_says_so(tmp_path: Path) -> None:
    child = launch(Spec("absent", ["/no/such/command"], tmp_path, {}), tmp_path / "absent.log")
    with pytest.raises(ProcessFailed, match="exit code 127") as failure:
        wait_until_ready(child, lambda: False, deadline_s=20)
    assert "/no/such/command: cannot be run: No such file or directory" in str(failure.value)


def test_a_child_that_ignores_the_stop_signal_is_killed_after_its_grace(start: Callable[..., Child]) -> None:
    code = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('deaf'); time.sleep(60)"
    child = start(code, says="deaf", grace_s=0.1)
    child.stop()
    assert child.exit_code() == -signal.SIGKILL


def test_stopping_a_child_takes_along_what_it_started(start: Callable[..., Child]) -> None:
    code = (
        "import subprocess, sys, time\n"
        "inner = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'], start_new_session=True)\n"
        "print(f'inner={inner.pid};')\n"
        "time.sleep(60)\n"
    )
    child = start(code, says=";")
    inner = int(child.log.read_text().split("=")[1].split(";")[0])
    assert _runs(inner)
    child.stop()
    assert not _runs(inner)


def test_what_a_crashed_child_left_is_found_by_its_session(start: Callable[..., Child]) -> None:
    code = (
        "import subprocess, sys, time\n"
        "inner = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])\n"
        "print(f'inner={inner.pid};')\n"
        "time.sleep(60)\n"
    )
    child = start(code, says=";")
    inner = int(child.log.read_text().split("=")[1].split(";")[0])
    os.kill(child.pid, signal.SIGKILL)
    _wait_until(lambda: not child.alive())
    assert _runs(inner)
    recall("part", child.record()).stop()
    assert not _runs(inner)


def test_children_stop_in_the_reverse_order(start: Callable[..., Child], tmp_path: Path) -> None:
    told = tmp_path / "told"
    code = (
        "import signal, sys, time\n"
        "def leave(*_):\n    print(NAME, file=open(TOLD, 'a'))\n    sys.exit()\n"
        "signal.signal(signal.SIGTERM, leave)\nprint('set')\ntime.sleep(60)\n"
    )
    names = ["first", "second", "third"]
    children = [start(f"NAME={name!r}; TOLD={str(told)!r}\n{code}", name=name, says="set") for name in names]
    stop_all(children)
    assert told.read_text().split() == ["third", "second", "first"]


def test_a_process_that_got_the_pid_of_an_earlier_one_is_left_alone(start: Callable[..., Child]) -> None:
    stranger = start("import time; print('here'); time.sleep(60)", says="here")
    earlier = replace(stranger.identity, started=stranger.identity.started - 3600)
    gone = Child("gone", earlier, stranger.log)
    assert not gone.alive()
    assert gone.family() == []
    gone.stop()
    gone.kill()
    assert stranger.alive()


def test_a_child_is_found_again_by_its_record(start: Callable[..., Child]) -> None:
    child = start("import time; print('here'); time.sleep(60)", says="here")
    again = recall("part", child.record())
    assert again.alive()
    assert not again.ours
    again.stop()
    assert not child.alive()


@pytest.mark.parametrize(("detached", "survives"), [(False, False), (True, True)])
def test_a_kill_of_the_starter_takes_along_all_but_detached_children(
    tmp_path: Path, detached: bool, survives: bool
) -> None:
    code = (
        "import os, sys, time\n"
        "from pathlib import Path\n"
        "from devstack.processes import Spec, launch, wait_until_ready\n"
        f"log = Path({str(tmp_path / 'child.log')!r})\n"
        "argv = [sys.executable, '-u', '-c', 'import time; print(\"here\"); time.sleep(60)']\n"
        f"child = launch(Spec('child', argv, log.parent, dict(os.environ)), log, detached={detached})\n"
        "wait_until_ready(child, lambda: 'here' in log.read_text(), deadline_s=20)\n"
        "print(child.pid, flush=True)\n"
        "time.sleep(60)\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE, text=True) as starter:
        assert starter.stdout is not None
        pid = int(starter.stdout.readline())
        identity = Identity.of(pid)
        starter.kill()
    try:
        if survives:
            assert _runs(pid)
        else:
            _wait_until(lambda: not _runs(pid))
    finally:
        Child("child", identity, tmp_path / "child.log").kill()
