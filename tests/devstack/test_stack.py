"""The stack as a whole: idempotent, in one state folder, and gone without a trace whatever is killed.

Its servers only; the programs that run on them are in test_whole_stack.py.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from shutil import rmtree

import asyncpg
import psutil
import pytest

from devstack.ports import LOOPBACK, answers
from devstack.processes import ProcessFailed, StackError
from devstack.stack import PART_VARIABLE, Stack
from ledger import schema
from settings import load_settings

ROOT = Path(__file__).resolve().parents[2]
PARTS = ("temporal", "sandbox")
"""Enough for most questions, and quick."""
FEW = ("temporal",)
"""Enough for what goes on between programs."""
SERVERS = ("temporal", "sandbox", "postgres")


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A state folder; whatever still belongs to it after the test is stopped."""
    place = Path(tempfile.mkdtemp(prefix="longhaul-test-"))
    place.chmod(0o711)
    state = place / ".longhaul"
    monkeypatch.setenv("LONGHAUL_STACK", str(state))
    yield state
    Stack(folder=state).down()
    assert _of_the_stack(state) == []
    rmtree(place)


@pytest.fixture(scope="module")
def servers() -> Iterator[Stack]:
    """A stack of its servers that several tests look at; started from a shell that is set up for other servers."""
    place = Path(tempfile.mkdtemp(prefix="longhaul-test-"))
    place.chmod(0o711)
    with pytest.MonkeyPatch.context() as shell:
        shell.setenv("TEMPORAL_ADDRESS", "production.example:7233")
        shell.setenv("TEMPORAL_API_KEY", "secret")
        shell.setenv("TEMPORAL_PROFILE", "production")
        stack = _stack(place / ".longhaul", parts=SERVERS)
        try:
            stack.up()
            yield stack
        finally:
            stack.down()
            assert _of_the_stack(stack.folder) == []
            rmtree(place)


def _stack(folder: Path, *, parts: tuple[str, ...] = PARTS, detached: bool = True) -> Stack:
    return Stack(folder=folder, parts=parts, detached=detached, fast=True)


def _of_the_stack(folder: Path) -> list[int]:
    found = []
    for process in psutil.process_iter():
        try:
            environment = process.environ()
            if PART_VARIABLE in environment and environment.get("LONGHAUL_STACK") == str(folder):
                found.append(process.pid)
        except (psutil.Error, OSError):
            continue
    return [pid for pid in found if _runs(pid)]


def _runs(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _wait_until(condition: Callable[[], bool], deadline_s: float = 15.0) -> None:
    deadline = time.monotonic() + deadline_s
    while not condition():
        assert time.monotonic() < deadline, "the awaited condition did not come"
        time.sleep(0.02)


def _program(folder: Path, body: str, **variables: str) -> subprocess.Popen[str]:
    """Another program of this project, with a `stack` class bound to the folder."""
    code = (
        "import os, sys, time\nfrom pathlib import Path\nfrom devstack.stack import Stack\n"
        f"folder, parts = Path({str(folder)!r}), {FEW!r}\n{body}"
    )
    return subprocess.Popen(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env={**os.environ, **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


FOREGROUND = (
    "with Stack.foreground(folder=folder, parts=parts, fast=True) as stack:\n"
    "    print(*(stack.child(name).pid for name in parts), flush=True)\n"
    "    time.sleep(60)\n"
)


def _first_line(program: subprocess.Popen[str]) -> str:
    assert program.stdout is not None
    assert program.stderr is not None
    return program.stdout.readline() or pytest.fail(program.stderr.read())


def test_up_is_idempotent_and_down_leaves_only_data_ports_and_secrets(folder: Path) -> None:
    first = _stack(folder).up()
    assert (first.started, first.already_up) == (list(PARTS), [])
    running = _of_the_stack(folder)
    assert len(running) == len(PARTS)

    second = _stack(folder).up()
    assert (second.started, second.already_up) == ([], list(PARTS))
    assert _of_the_stack(folder) == running
    before = json.loads((folder / "state.json").read_text())
    settings = (folder / "stack.toml").read_text()

    assert Stack(folder=folder).down() == list(PARTS)
    assert _of_the_stack(folder) == []
    assert not (folder / "stack.toml").exists()
    assert (folder / "sandbox").is_dir()
    assert Stack(folder=folder).down() == []

    _stack(folder).up()
    after = json.loads((folder / "state.json").read_text())
    assert (after["ports"], after["secrets"]) == (before["ports"], before["secrets"])
    assert (folder / "stack.toml").read_text() == settings


def test_a_port_that_was_taken_meanwhile_is_given_up(folder: Path) -> None:
    stack = _stack(folder)
    stack.up()
    before = json.loads((folder / "state.json").read_text())["ports"]
    stack.down()
    with socket.socket() as taker:
        taker.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        taker.bind((LOOPBACK, before["sandbox"]))
        taker.listen()
        stack.up()
        after = json.loads((folder / "state.json").read_text())["ports"]
        # Of the others, one that somebody else has by now is given up too.
        assert after["sandbox"] != before["sandbox"]
        assert stack.url("sandbox") in (folder / "stack.toml").read_text()


def test_the_settings_lead_to_the_stack_and_are_private(servers: Stack, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("TEMPORAL_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("LONGHAUL_STACK", str(servers.folder))
    monkeypatch.chdir(servers.folder.parent)
    for private in ("stack.toml", "state.json", "postgres/password", "logs/postgres.log"):
        assert (servers.folder / private).stat().st_mode & 0o777 == 0o600, private
    settings = load_settings()
    assert settings.temporal_profile.address == servers.temporal_address
    assert settings.temporal.web_ui == servers.url("temporal_ui")
    assert settings.media.allow_private_addresses
    account = settings.account("sandbox")
    assert account.base_url == servers.url("sandbox")
    [secret] = account.webhook_secrets
    assert secret.get_secret_value().startswith("whsec_")
    assert settings.ledger.dsn.get_secret_value().endswith("/longhaul")


async def test_the_ledger_has_its_schema(servers: Stack) -> None:
    dsn = tomllib.loads(servers.settings_file.read_text())["ledger"]["dsn"]
    connection = await asyncpg.connect(dsn)
    try:
        assert await schema.current(connection) == schema.newest()
    finally:
        await connection.close()


def test_secrets_are_not_in_command_lines(servers: Stack) -> None:
    stored = json.loads((servers.folder / "state.json").read_text())["secrets"]
    lines = [" ".join(psutil.Process(pid).cmdline()) for pid in _of_the_stack(servers.folder)]
    assert len(lines) == len(SERVERS)
    assert not [line for line in lines for secret in stored.values() if secret in line]


def test_programs_on_the_stack_are_led_to_it_whatever_the_persons_shell_says(servers: Stack) -> None:
    sandbox = servers.child("sandbox")
    assert sandbox is not None
    for environment in (servers.environment(), psutil.Process(sandbox.pid).environ()):
        temporal = {name: value for name, value in environment.items() if name.startswith("TEMPORAL_")}
        assert temporal == {
            "TEMPORAL_ADDRESS": servers.temporal_address,
            "TEMPORAL_NAMESPACE": "default",
            "TEMPORAL_CONFIG_FILE": os.devnull,
        }


def test_a_killed_part_is_the_only_one_started_again(folder: Path) -> None:
    stack = _stack(folder)
    stack.up()
    stack.kill("sandbox")
    assert {part.name for part in stack.status() if part.pid is not None} == {"temporal"}
    assert _stack(folder).up().started == ["sandbox"]


def test_two_ups_at_once_start_one_stack(folder: Path) -> None:
    body = "changes = Stack(folder=folder, parts=parts, fast=True, detached=True).up(); print(len(changes.started))\n"
    programs = [_program(folder, body) for _ in range(2)]
    outputs = [program.communicate(timeout=60) for program in programs]
    assert [program.returncode for program in programs] == [0, 0], outputs
    assert sorted(out.strip() for out, _ in outputs) == ["0", str(len(FEW))]
    assert len(_of_the_stack(folder)) == len(FEW)


def test_down_finds_what_a_killed_command_left_without_a_record(folder: Path) -> None:
    _stack(folder).up()
    pids = _of_the_stack(folder)
    (folder / "state.json").unlink()
    assert sorted(Stack(folder=folder).down()) == sorted(PARTS)
    assert not any(_runs(pid) for pid in pids)


def test_a_damaged_state_file_says_what_to_do(folder: Path) -> None:
    folder.mkdir()
    (folder / "state.json").write_text("{")
    with pytest.raises(StackError, match=r"state\.json cannot be read .*; delete it"):
        _stack(folder).up()
    (folder / "state.json").unlink()


def test_a_part_that_fails_takes_along_only_what_came_up_with_it(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _stack(folder, parts=("temporal",)).up()
    monkeypatch.setenv("SANDBOX_LIMIT", "no-such-limit")
    with pytest.raises(ProcessFailed, match=r"sandbox ended with exit code 2; its log is .*sandbox\.log") as failure:
        _stack(folder).up()
    assert "no-such-limit" in str(failure.value)
    assert {part.name for part in Stack(folder=folder).status() if part.pid is not None} == {"temporal"}
    monkeypatch.delenv("SANDBOX_LIMIT")
    assert _stack(folder).up().started == ["sandbox"]


def test_a_killed_foreground_program_leaves_no_process(folder: Path) -> None:
    with _program(folder, FOREGROUND) as program:
        pids = [int(pid) for pid in _first_line(program).split()]
        assert all(_runs(pid) for pid in pids)
        program.kill()
    _wait_until(lambda: not any(_runs(pid) for pid in pids))
    assert _stack(folder, parts=FEW).up().started == list(FEW), "and the next start finds nothing in its way"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_foreground_program_that_is_told_to_leave_stops_in_order(folder: Path, number: signal.Signals) -> None:
    with _program(folder, FOREGROUND) as program:
        pids = [int(pid) for pid in _first_line(program).split()]
        program.send_signal(number)
        program.communicate(timeout=30)
    assert not any(_runs(pid) for pid in pids)
    assert not (folder / "stack.toml").exists()


def test_a_foreground_program_uses_what_is_up_and_leaves_it_up(folder: Path) -> None:
    _stack(folder, parts=("sandbox",)).up()
    with Stack.foreground(folder=folder, parts=PARTS, fast=True) as stack:
        temporal, sandbox = stack.child("temporal"), stack.child("sandbox")
        assert temporal is not None
        assert sandbox is not None
        assert (temporal.ours, sandbox.ours) == (True, False)
    assert (temporal.alive(), sandbox.alive()) == (False, True)
    assert (folder / "stack.toml").exists()


def test_postgres_is_shut_down_in_order_and_comes_back_after_a_crash(folder: Path) -> None:
    log = folder / "logs" / "postgres.log"
    with Stack.foreground(folder=folder, parts=("postgres",), fast=True) as stack:
        stack.kill("postgres")
        assert stack.up().started == ["postgres"]
        assert "database system was interrupted" in log.read_text()
    assert log.read_text().rstrip().endswith("database system is shut down")


def test_the_command_line_starts_shows_and_stops(folder: Path) -> None:
    def devstack(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "devstack", *arguments], cwd=ROOT, capture_output=True, text=True, timeout=60
        )

    without = [f"--without={name}" for name in ("postgres", "library", "webhook", "worker")]
    up = devstack("up", *without)
    assert up.returncode == 0, up.stderr
    stack = Stack(folder=folder)
    for said in (stack.url("temporal_ui"), f"export TEMPORAL_ADDRESS={stack.temporal_address}", str(stack.logs)):
        assert said in up.stdout
    assert "make down" in up.stdout
    assert answers(int(stack.url("temporal_ui").rsplit(":", 1)[1]))

    status = devstack("status")
    assert status.returncode == 3
    assert "temporal  up, process" in status.stdout
    assert "postgres  down" in status.stdout

    assert devstack("down").stdout.strip() == "stopped: temporal, sandbox"
    assert devstack("down").stdout.strip() == "nothing was up"
    wrong = devstack("up", "--without=nothing")
    assert wrong.returncode == 1
    assert "no such part: nothing" in wrong.stderr


def test_the_command_line_runs_in_the_foreground_and_tells_when_a_part_ends(folder: Path) -> None:
    without = [f"--without={name}" for name in ("sandbox", "library", "postgres", "webhook", "worker")]
    with subprocess.Popen(
        [sys.executable, "-m", "devstack", "run", *without],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as program:
        assert _first_line(program) == "started: temporal\n"
        Stack(folder=folder).kill("temporal")
        assert program.stderr is not None
        assert program.stderr.readline() == f"temporal has ended; its log: {folder / 'logs' / 'temporal.log'}\n"
        assert program.wait(timeout=30) == 0


def test_ctrl_c_ends_the_foreground_command_line(folder: Path) -> None:
    without = [f"--without={name}" for name in ("sandbox", "library", "postgres", "webhook", "worker")]
    with subprocess.Popen(
        [sys.executable, "-m", "devstack", "run", *without],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as program:
        _first_line(program)
        program.send_signal(signal.SIGINT)
        program.communicate(timeout=30)
        assert program.returncode == 130
    assert _of_the_stack(folder) == []
