"""The embedded stack as a whole: which parts it has, how each is run, and how they come up and go down together.

Everything it keeps is under one state folder, `.longhaul` unless LONGHAUL_STACK names another. A part's ports are
chosen once and kept, so that links stay valid over restarts. While the stack is up, `stack.toml` in the state folder
holds the settings that lead to it; `settings.py` reads it as the weakest of its files.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import astuple, dataclass, field
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Final

import httpx
import psutil

from devstack import temporal
from devstack.library import LIMITS
from devstack.ports import LOOPBACK, answers, is_free
from devstack.postgres import READY_S, EmbeddedPostgres, write_secret
from devstack.processes import (
    Child,
    Identity,
    ProcessFailed,
    Spec,
    StackError,
    launch,
    stop_all,
    wait_until_ready,
)
from devstack.state import STACK_VARIABLE, Record, State, default_folder, locked, make_folder
from devstack.temporal import NAMESPACE, TemporalDevServer, TemporalPorts
from settings import TASK_QUEUE
from workflows.attributes import NAMES as SEARCH_ATTRIBUTES

ROOT: Final = Path(__file__).resolve().parents[1]
"""The project: the working directory of its programs."""

SERVERS: Final = ("temporal", "sandbox", "library", "postgres")
"""PostgreSQL last: the others get on with starting while its data directory is made."""
PROGRAMS: Final = ("webhook", "worker")
PARTS: Final = (*SERVERS, *PROGRAMS)
"""In the order in which they start; they stop in the reverse order."""

ACCOUNT: Final = "sandbox"
"""The destination account that leads to the sandbox."""
SHORTEST_MS: Final = LIMITS.duration_min_ms
"""The sandbox's shortest video, in milliseconds: the limit under which the demo library's entries end as they say."""
WORKER_READY: Final = b"worker ready"
"""The line that worker.py writes once it polls."""
WORKER_GRACE_S: Final = 40.0
"""Seconds that a stopped worker has to finish its rows in hand: a little more than it takes by default."""
PART_VARIABLE: Final = "LONGHAUL_STACK_PART"
"""In the environment of every child: tells the stack's processes even where their record is lost."""

_TEMPORAL_PORTS: Final = ("temporal", "temporal_ui", "temporal_http", "temporal_metrics")


@dataclass(frozen=True, slots=True)
class PartStatus:
    name: str
    pid: int | None
    """None: it doesn't run."""
    address: str | None
    log: Path


@dataclass(slots=True)
class Changes:
    """What one `up` did."""

    started: list[str] = field(default_factory=list)
    already_up: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Part:
    """How a part is run here and now. `recipe` tells whether a running child is still what is wanted."""

    name: str
    recipe: str
    spawn: Callable[[], Child]
    ready: Callable[[Child], bool]
    deadline_s: float = 30.0


class Stack:
    """The embedded stack of one state folder.

    `parts`: which of `PARTS` are wanted. `detached`: they outlive this process; otherwise the kernel ends them with it
    (Linux). `fast`: nothing is kept over a machine's crash, and Temporal's executions not even over a restart: for
    tests. POSIX only; use it from the main thread.
    """

    def __init__(
        self,
        root: Path = ROOT,
        *,
        folder: Path | None = None,
        parts: Collection[str] = PARTS,
        detached: bool = False,
        fast: bool = False,
    ) -> None:
        unknown = set(parts) - set(PARTS)
        if unknown:
            raise StackError(f"no such part: {', '.join(sorted(unknown))} (known: {', '.join(PARTS)})")
        self.root = root.absolute()
        self.folder = (folder or default_folder(self.root)).absolute()
        self.parts = tuple(name for name in PARTS if name in parts)
        self.detached = detached
        self.fast = fast
        self._started: list[Child] = []

    @classmethod
    @contextlib.contextmanager
    def foreground(
        cls,
        root: Path = ROOT,
        *,
        folder: Path | None = None,
        parts: Collection[str] = PARTS,
        fast: bool = False,
    ) -> Iterator[Stack]:
        """A stack for as long as the block runs: what was up before is used and left up, the rest is stopped after it.

        SIGTERM and SIGHUP leave the block as `SystemExit`, so that both end it in order; even a SIGKILL leaves nothing
        behind (Linux). Raises StackError where the stack doesn't come up.
        """
        stack = cls(root, folder=folder, parts=parts, fast=fast)
        with _ending_in_order():
            try:
                stack.up()
                yield stack
            finally:
                stack.stop_started()

    # ------------------------------------------------------------------------------------------------- up and down

    def up(self) -> Changes:
        """Starts what is missing, and what runs in another way than wanted, and waits until everything is ready.

        Idempotent. Where a part fails, what this call started is stopped again, and ProcessFailed names the part's log;
        StackError where something is missing on this machine.
        """
        make_folder(self.folder)
        with locked(self.folder):
            state = State.load(self.folder)
            state.logs.mkdir(mode=0o700, exist_ok=True)
            state.keep_or_make_secrets()
            changes = Changes()
            mine: list[Child] = []
            try:
                self._up(state, changes, mine)
            except BaseException:
                stop_all(mine)
                for child in mine:
                    state.records.pop(child.name, None)
                if not state.running():
                    state.settings_file.unlink(missing_ok=True)
                state.save()
                raise
            self._started += mine
            return changes

    def down(self) -> list[str]:
        """Stops everything that belongs to this state folder, whoever started it, and returns the names of what ran.

        That includes what a killed command left without a record. Data, ports and secrets are kept.
        """
        if not self.folder.is_dir():
            return []
        with locked(self.folder):
            state = State.load(self.folder)
            state.settings_file.unlink(missing_ok=True)
            running = state.running()
            ran: list[str] = [name for name in PARTS if name in running]
            stop_all(state.records[name].child for name in PARTS if name in state.records)
            ran += self._stop_unrecorded(but=())
            state.records.clear()
            state.save()
            return ran

    def stop_started(self) -> None:
        """Stops what this object started and nothing else. A second Ctrl-C meanwhile ends the rest by SIGKILL."""
        if not self._started:
            return
        try:
            with locked(self.folder):
                state = State.load(self.folder)
                mine = {child.identity for child in self._started}
                left = {name for name, record in state.running().items() if record.child.identity not in mine}
                if not left & set(SERVERS):
                    state.settings_file.unlink(missing_ok=True)
                stop_all(self._started)
                state.records = {name: record for name, record in state.records.items() if name in left}
                state.save()
        except BaseException:
            for child in self._started:
                child.kill()
            raise
        finally:
            self._started.clear()

    @property
    def started(self) -> tuple[str, ...]:
        """The parts that this object has started; the others were up before, or are not wanted."""
        return tuple(child.name for child in self._started)

    def kill(self, name: str) -> None:
        """SIGKILL for one part, as a crash would; `up` starts it again. Raises StackError where it doesn't run."""
        child = self.child(name)
        if child is None:
            raise StackError(f"{name} does not run")
        child.kill()

    # ------------------------------------------------------------------------------------------------------ asking

    def child(self, name: str) -> Child | None:
        """The process of a part; None where it doesn't run."""
        own = [child for child in self._started if child.name == name and child.alive()]
        if own:
            return own[-1]
        record = State.load(self.folder).running().get(name)
        return None if record is None else record.child

    def status(self) -> list[PartStatus]:
        state = State.load(self.folder)
        running = state.running()
        return [
            PartStatus(
                name,
                running[name].child.pid if name in running else None,
                f"{LOOPBACK}:{state.ports[name]}" if name in state.ports else None,
                state.logs / f"{name}.log",
            )
            for name in PARTS
        ]

    @property
    def settings_file(self) -> Path:
        """The settings that lead to the stack, while it is up."""
        return self.folder / "stack.toml"

    @property
    def logs(self) -> Path:
        return self.folder / "logs"

    @property
    def library(self) -> Path:
        """The folder whose files the library server serves."""
        return self.folder / "library"

    def url(self, name: str) -> str:
        """The address of "sandbox", "library", "webhook" or "temporal_ui". Raises StackError where it has none."""
        ports = State.load(self.folder).ports
        if name not in ports:
            raise StackError(f"{name} has no address before the stack was up")
        return f"http://{LOOPBACK}:{ports[name]}"

    @property
    def temporal_address(self) -> str:
        """host:port of Temporal. Raises StackError before the first up."""
        return self.url("temporal").removeprefix("http://")

    def environment(self) -> dict[str, str]:
        """A whole environment for a program that is to use this stack, whatever the person's own one points at.

        Variables and profiles that lead the Temporal client elsewhere are left out or overruled.
        """
        return self._environment(State.load(self.folder))

    # ----------------------------------------------------------------------------------------------------- private

    def _up(self, state: State, changes: Changes, mine: list[Child]) -> None:
        running = state.running()
        for name, record in state.records.items():
            if name not in running:
                record.child.stop()  # what it may have left: a process of its own that still holds the port
        self._stop_unrecorded(but=running)
        for name, ports in (
            ("temporal", _TEMPORAL_PORTS),
            *((name, (name,)) for name in ("postgres", "sandbox", "library", "webhook")),
        ):
            taken = any(port in state.ports and not is_free(state.ports[port]) for port in ports)
            state.keep_or_choose_ports(*ports, keep=name in running or not taken)
        state.save()  # before anything runs: a child whose ports or secrets were lost could not be found again
        database = self._database(state)
        server = self._temporal(state)
        if "postgres" in running:
            database.prepare()
            database.child = running["postgres"].child

        self._bring_up(self._servers(state, server, database), state, changes, mine)
        if "temporal" in changes.started:
            server.settle()
        self._write_settings(state, database)
        wanted = self._programs(state, database)
        if "postgres" in self.parts and (
            "postgres" in changes.started or any(self._must_start(part, state) for part in wanted)
        ):
            self._migrate(state, database)
        self._bring_up(wanted, state, changes, mine)

    def _bring_up(self, parts: list[_Part], state: State, changes: Changes, mine: list[Child]) -> None:
        """Starts all that must be, then waits for each: they come up side by side."""
        children = []
        for part in parts:
            if self._must_start(part, state):
                if part.name in state.records:
                    state.records[part.name].child.stop()
                child = part.spawn()
                mine.append(child)
                state.records[part.name] = Record(child, part.recipe)
                state.save()
                changes.started.append(part.name)
            else:
                child = state.records[part.name].child
                changes.already_up.append(part.name)
            children.append(child)
        for part, child in zip(parts, children, strict=True):
            wait_until_ready(child, partial(part.ready, child), deadline_s=part.deadline_s)

    @staticmethod
    def _must_start(part: _Part, state: State) -> bool:
        record = state.records.get(part.name)
        return record is None or not record.child.alive() or record.recipe != part.recipe

    def _servers(self, state: State, server: TemporalDevServer, database: EmbeddedPostgres) -> list[_Part]:
        def spawn_database() -> Child:
            database.prepare()
            return database.spawn()

        sandbox = self._own_program(
            state,
            "sandbox",
            [
                *("-m", "sandbox", "--host", LOOPBACK, "--port", str(state.ports["sandbox"])),
                *("--data", str(self.folder / "sandbox")),
                *("--webhook-url", f"http://{LOOPBACK}:{state.ports['webhook']}/webhooks/{ACCOUNT}"),
                "--allow-local-files",  # so that a folder of one's own can be rehearsed with
                f"--fault=duration_min_ms={SHORTEST_MS}",
            ],
            # In the environment, as every user of the machine can read a command line.
            {
                "SANDBOX_TOKEN": state.secrets["sandbox_token"],
                "SANDBOX_WEBHOOK_SECRET": state.secrets["webhook_secret"],
            },
            lambda _: _answers_ok(f"http://{LOOPBACK}:{state.ports['sandbox']}/healthz"),
        )
        library = self._own_program(
            state,
            "library",
            [
                *("-m", "devstack.fileserver", "--root", str(self.library)),
                *("--host", LOOPBACK, "--port", str(state.ports["library"])),
            ],
            {},
            lambda _: answers(state.ports["library"]),
        )
        self.library.mkdir(mode=0o700, exist_ok=True)
        (self.folder / "sandbox").mkdir(mode=0o700, exist_ok=True)
        all_servers = [
            _Part(
                "temporal",
                _recipe(astuple(server.ports), SEARCH_ATTRIBUTES, self.fast),
                server.spawn,
                lambda _: server.ready(),
                temporal.READY_S,
            ),
            sandbox,
            library,
            _Part("postgres", _recipe(database.port, self.fast), spawn_database, lambda _: database.ready(), READY_S),
        ]
        return [part for part in all_servers if part.name in self.parts]

    def _programs(self, state: State, database: EmbeddedPostgres) -> list[_Part]:
        # The stack's programs use the stack's servers, also where longhaul.toml or the person's shell names others.
        ledger = {"LONGHAUL_LEDGER__DSN": database.dsn()} if "postgres" in self.parts else {}
        endpoint = {"LONGHAUL_ENDPOINT__HOST": LOOPBACK, "LONGHAUL_ENDPOINT__PORT": str(state.ports["webhook"])}
        webhook = self._own_program(
            state,
            "webhook",
            ["webhook.py"],
            {**ledger, **endpoint},
            lambda _: _answers_ok(f"http://{LOOPBACK}:{state.ports['webhook']}/readyz"),
        )
        said_before = _size(state.logs / "worker.log")
        worker = self._own_program(
            state,
            "worker",
            ["worker.py"],
            ledger,
            # One that ran before has said it before; one with a higher log level says nothing, but is seen polling.
            lambda child: (
                not child.ours
                or _says(child, WORKER_READY, said_before)
                or _polls(child, f"http://{LOOPBACK}:{state.ports['temporal_http']}")
            ),
            grace_s=WORKER_GRACE_S,
        )
        return [part for part in (webhook, worker) if part.name in self.parts]

    def _own_program(
        self,
        state: State,
        name: str,
        arguments: list[str],
        variables: dict[str, str],
        ready: Callable[[Child], bool],
        *,
        grace_s: float = 10.0,
    ) -> _Part:
        """A part that is a Python program of this project, with what its environment has beside `_environment`."""
        argv = [sys.executable, "-u", *arguments]  # -u: a line is in the log when it is written
        environment = {**self._environment(state), **variables, PART_VARIABLE: name}
        spec = Spec(name, argv, self.root, environment, grace_s=grace_s)
        # The rest of the person's environment is no part of the recipe: an `up` from another shell restarts nothing.
        recipe = _recipe(argv, variables, state.ports["temporal"])
        return _Part(name, recipe, lambda: launch(spec, state.logs / f"{name}.log", detached=self.detached), ready)

    def _temporal(self, state: State) -> TemporalDevServer:
        (self.folder / "temporal").mkdir(mode=0o700, exist_ok=True)
        return TemporalDevServer(
            search_attributes=SEARCH_ATTRIBUTES,
            log=state.logs / "temporal.log",
            db=None if self.fast else self.folder / "temporal" / "temporal.db",
            ports=TemporalPorts(*(state.ports[name] for name in _TEMPORAL_PORTS)),
            detached=self.detached,
            environment=self._mark("temporal"),
        )

    def _database(self, state: State) -> EmbeddedPostgres:
        return EmbeddedPostgres(
            self.folder / "postgres",
            port=state.ports["postgres"],
            fast=self.fast,
            detached=self.detached,
            log=state.logs / "postgres.log",
            environment=self._mark("postgres"),
        )

    def _mark(self, name: str) -> dict[str, str]:
        return {STACK_VARIABLE: str(self.folder), PART_VARIABLE: name}

    def _environment(self, state: State) -> dict[str, str]:
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("TEMPORAL_")}
        inherited.pop(PART_VARIABLE, None)
        return {
            **inherited,
            STACK_VARIABLE: str(self.folder),
            "TEMPORAL_ADDRESS": f"{LOOPBACK}:{state.ports['temporal']}",
            "TEMPORAL_NAMESPACE": NAMESPACE,
            # The person's profile may ask for TLS and a key, which the dev server has not.
            "TEMPORAL_CONFIG_FILE": os.devnull,
        }

    def _write_settings(self, state: State, database: EmbeddedPostgres) -> None:
        # The demo's library is on this machine.
        sections: dict[str, dict[str, object]] = {"media": {"allow_private_addresses": True}}
        if "postgres" in self.parts:
            sections["ledger"] = {"dsn": database.dsn()}
        if "temporal" in self.parts:
            sections["temporal"] = {
                "address": f"{LOOPBACK}:{state.ports['temporal']}",
                "namespace": NAMESPACE,
                "web_ui": f"http://{LOOPBACK}:{state.ports['temporal_ui']}",
            }
        if "webhook" in self.parts:
            sections["endpoint"] = {
                "host": LOOPBACK,
                "port": state.ports["webhook"],
                "public_url": f"http://{LOOPBACK}:{state.ports['webhook']}",
            }
        if "sandbox" in self.parts:
            sections[f"accounts.{ACCOUNT}"] = {
                "kind": "generic",
                "base_url": f"http://{LOOPBACK}:{state.ports['sandbox']}",
                "token": state.secrets["sandbox_token"],
                "webhook_secrets": [state.secrets["webhook_secret"]],
            }
            sections[f"accounts.{ACCOUNT}.options"] = {
                "duration_min_ms": SHORTEST_MS,
                "local_files": True,
                "captions_path": "/v1/videos/{id}/captions/{language}",
                "poster_path": "/v1/videos/{id}/poster",
                "about_field": "about",
            }
        lines = ["# Written by the embedded stack while it is up; removed when it goes down. Holds secrets."]
        for section, values in sections.items():
            lines += ["", f"[{section}]"]
            # JSON's strings, numbers, booleans and flat lists are TOML's too.
            lines += [f"{key} = {json.dumps(value)}" for key, value in values.items()]
        write_secret(state.settings_file, "\n".join(lines) + "\n")

    def _migrate(self, state: State, database: EmbeddedPostgres) -> None:
        environment = {**self._environment(state), "LONGHAUL_LEDGER__DSN": database.dsn(), PART_VARIABLE: "migrate"}
        argv = [sys.executable, "-u", "-m", "ledger", "migrate"]
        child = launch(Spec("migrate", argv, self.root, environment), state.logs / "migrate.log")
        deadline = time.monotonic() + 60.0
        while (code := child.exit_code()) is None:
            if time.monotonic() > deadline:
                child.kill()
                raise ProcessFailed("the ledger's schema migration", "did not end within 60 s", child.log)
            time.sleep(0.02)
        if code != 0:
            raise ProcessFailed("the ledger's schema migration", f"ended with exit code {code}", child.log)

    def _stop_unrecorded(self, *, but: Collection[str]) -> list[str]:
        """Stops what a command that was killed between starting a child and recording it left behind.

        Processes of the parts named in `but` are left alone. Returns the names of the others' parts.
        """
        ourselves = {os.getpid(), *(parent.pid for parent in psutil.Process().parents())}
        found: dict[str, list[Child]] = {}
        for process in psutil.process_iter():
            try:
                environment = process.environ()
                name = environment.get(PART_VARIABLE)
                if name is None or name in but or environment.get(STACK_VARIABLE) != str(self.folder):
                    continue
                if process.pid in ourselves:
                    continue
                stop_signal = signal.SIGINT if name == "postgres" else signal.SIGTERM
                child = Child(name, Identity.of(process.pid), self.logs / f"{name}.log", stop_signal)
                if child.alive():
                    found.setdefault(name, []).append(child)
            except (psutil.Error, OSError):
                continue
        ordered = sorted(found, key=lambda name: PARTS.index(name) if name in PARTS else len(PARTS))
        stop_all(child for name in ordered for child in found[name])
        return ordered


def _recipe(*parts: object) -> str:
    """A digest: a recipe has secrets in it."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True, default=str).encode()).hexdigest()[:16]


def _answers_ok(url: str) -> bool:
    try:
        return httpx.get(url, timeout=2.0, trust_env=False).status_code == httpx.codes.OK
    except httpx.HTTPError:
        return False


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _says(child: Child, words: bytes, start: int) -> bool:
    """Whether the child's log holds `words` after its first `start` bytes."""
    try:
        with open(child.log, "rb") as log:
            log.seek(start)
            return words in log.read()
    except OSError:
        return False


def _polls(child: Child, temporal_http: str) -> bool:
    """Whether the dev server has the child among the pollers of the workflows' task queue."""
    try:
        answer = httpx.get(
            f"{temporal_http}/api/v1/namespaces/{NAMESPACE}/task-queues/{TASK_QUEUE}", timeout=2.0, trust_env=False
        )
        pollers = answer.raise_for_status().json().get("pollers", [])
    except (httpx.HTTPError, ValueError):
        return False
    return any(str(poller.get("identity", "")).startswith(f"{child.pid}@") for poller in pollers)


@contextlib.contextmanager
def _ending_in_order() -> Iterator[None]:
    """SIGTERM and SIGHUP as SystemExit, as Ctrl-C is a KeyboardInterrupt: `finally` blocks run."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def leave(number: int, frame: FrameType | None) -> None:
        sys.exit(128 + number)

    before = {number: signal.signal(number, leave) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
