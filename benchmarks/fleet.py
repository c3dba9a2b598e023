"""A whole Longhaul as separate processes on loopback, for benchmarks: each part can be started, killed and asked."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, Final, Self

import httpx
from temporalio.client import Client, WorkflowHandle
from temporalio.contrib.pydantic import pydantic_data_converter

from devstack.library import find_ffmpeg
from devstack.ports import LOOPBACK, answers, free_ports
from devstack.postgres import EmbeddedPostgres
from devstack.processes import Child, Spec, launch, stop_all, wait_until_ready
from devstack.temporal import TemporalDevServer, TemporalPorts
from ledger import schema
from ledger.engine import Engine
from settings import LedgerSettings
from workflows.attributes import NAMES
from workflows.ids import migration_id

ROOT: Final = Path(__file__).resolve().parents[1]
ACCOUNT: Final = "sandbox"
_SECRET: Final = "whsec_YmVuY2htYXJrcy1zaWduLXRoZWlyLWV2ZW50cy0wMTI="


@dataclass
class Fleet:
    """Processes by name: "temporal", "postgres", "sandbox", "files", "endpoint", "worker-0", …

    `variables` are added to the environment of workers and endpoint, `faults` are the sandbox's switches. Ports stay
    the same when a part is started again. Temporal outlives its kill only with `temporal_file`.
    """

    folder: Path
    workers: int = 1
    faults: Mapping[str, Any] = field(default_factory=dict)
    variables: Mapping[str, str] = field(default_factory=dict)
    temporal_file: bool = False
    children: dict[str, Child] = field(default_factory=dict)

    def __post_init__(self) -> None:
        names = ["sandbox", "files", "endpoint", *(f"metrics-{n}" for n in range(self.workers))]
        self.ports = dict(zip(names, free_ports(len(names)), strict=True))
        self.token = secrets.token_hex(8)
        [port] = free_ports(1)
        self.postgres = EmbeddedPostgres(
            self.folder / "postgres", port=port, fast=True, preload=("pg_stat_statements",)
        )
        self.temporal = TemporalDevServer(
            search_attributes=NAMES,
            log=self.folder / "temporal.log",
            db=self.folder / "temporal.db" if self.temporal_file else None,
            ports=TemporalPorts.free(),
        )
        self._specs: dict[str, Spec] = {}

    @classmethod
    @contextlib.asynccontextmanager
    async def running(cls, **options: Any) -> AsyncIterator[Self]:
        """Starts everything, and stops it after the block."""
        folder = Path(tempfile.mkdtemp(prefix="longhaul-bench-"))
        folder.chmod(0o755)  # PostgreSQL runs as somebody else where we are root
        fleet = cls(folder, **options)
        try:
            await fleet._start()
            yield fleet
        finally:
            for child in fleet.children.values():
                child.signal(signal.SIGCONT)  # a frozen one would not hear that it shall stop
            stop_all(reversed(fleet.children.values()))
            if engine := getattr(fleet, "engine", None):
                await engine.close()
            fleet.temporal.stop()
            fleet.postgres.remove()
            shutil.rmtree(folder, ignore_errors=True)

    async def _start(self) -> None:
        self.postgres.start()
        self.temporal.start()
        dsn = self.postgres.dsn()
        await schema.migrate(dsn)
        self.engine = await Engine.open(LedgerSettings(dsn=dsn))
        await self.engine.execute("create extension if not exists pg_stat_statements")
        self.client = await Client.connect(self.temporal.address, data_converter=pydantic_data_converter)
        (self.folder / "media").mkdir()
        python = [sys.executable, "-u"]
        common = {name: value for name, value in os.environ.items() if not name.startswith(("TEMPORAL_", "LONGHAUL_"))}
        ours = {
            **common,
            "LONGHAUL_STACK": str(self.folder),
            "LONGHAUL_LEDGER__DSN": dsn,
            "LONGHAUL_MEDIA__ALLOW_PRIVATE_ADDRESSES": "true",
            "LONGHAUL_ENDPOINT__PORT": str(self.ports["endpoint"]),
            f"LONGHAUL_ACCOUNTS__{ACCOUNT.upper()}__KIND": "sandbox",
            f"LONGHAUL_ACCOUNTS__{ACCOUNT.upper()}__BASE_URL": self.url("sandbox"),
            f"LONGHAUL_ACCOUNTS__{ACCOUNT.upper()}__TOKEN": self.token,
            f"LONGHAUL_ACCOUNTS__{ACCOUNT.upper()}__WEBHOOK_SECRETS": _SECRET,
            "TEMPORAL_ADDRESS": self.temporal.address,
            "TEMPORAL_NAMESPACE": "default",
            **self.variables,
        }
        faults = [f"--fault={name}={value}" for name, value in self.faults.items()]
        webhooks = f"{self.url('endpoint')}/webhooks/{ACCOUNT}"
        self._specs = {
            "sandbox": Spec(
                "sandbox",
                [*python, "-m", "sandbox", "--port", str(self.ports["sandbox"]), "--data", str(self.folder / "sandbox")]
                + ["--token", self.token, "--webhook-url", webhooks, "--webhook-secret", _SECRET, *faults],
                ROOT,
                common,
            ),
            "files": Spec(
                "files",
                [*python, "-m", "devstack.fileserver", "--root", str(self.folder / "media")]
                + ["--host", LOOPBACK, "--port", str(self.ports["files"])],
                ROOT,
                common,
            ),
            "endpoint": Spec("endpoint", [*python, "webhook.py"], ROOT, ours),
            **{
                f"worker-{n}": Spec(
                    f"worker-{n}",
                    [*python, "worker.py"],
                    ROOT,
                    {**ours, "LONGHAUL_TELEMETRY__PROMETHEUS_BIND": f"{LOOPBACK}:{self.ports[f'metrics-{n}']}"},
                    grace_s=40.0,
                )
                for n in range(self.workers)
            },
        }
        for name in self._specs:
            self.launch(name)
        for name in self._specs:
            wait_until_ready(self.children[name], partial(self.ready, name), deadline_s=60.0)

    def spec(self, name: str, **variables: str) -> Spec:
        """How a part is run, with these variables added to its environment."""
        spec = self._specs[name]
        return replace(spec, env={**spec.env, **variables})

    def launch(self, name: str, **variables: str) -> Child:
        """Starts a part of our own that does not run, with these variables, and does not wait for it."""
        self.children[name] = launch(self.spec(name, **variables), self.folder / f"{name}.log")
        return self.children[name]

    def ready(self, name: str) -> bool:
        """Whether a part of our own answers."""
        return answers(self.ports[name.replace("worker-", "metrics-")])

    def start(self, name: str) -> None:
        """Starts a part that does not run, and waits until it is ready."""
        if name == "postgres":
            self.postgres.start()
        elif name == "temporal":
            self.temporal.start()
        else:
            wait_until_ready(self.launch(name), lambda: self.ready(name), deadline_s=60.0)

    def kill(self, name: str) -> int | None:
        """SIGKILL; returns the pid that it had, or None where it did not run."""
        if name in ("postgres", "temporal"):
            server = self.postgres if name == "postgres" else self.temporal
            pid = server.child.pid if server.child else None
            server.kill()
            return pid
        child = self.children.pop(name, None)
        if child is not None:
            child.kill()
        return None if child is None else child.pid

    def freeze(self, name: str) -> int:
        """SIGSTOP, as a machine that swaps or a paused virtual one would; returns the pid. `thaw` ends it."""
        self.children[name].signal(signal.SIGSTOP)
        return self.children[name].pid

    def thaw(self, name: str) -> None:
        self.children[name].signal(signal.SIGCONT)

    def url(self, name: str) -> str:
        return f"http://{LOOPBACK}:{self.ports[name]}"

    def video(self) -> None:
        """Puts one good video of two seconds where the file server finds it, as good.mp4."""
        target = self.folder / "media" / "good.mp4"
        subprocess.run(
            [str(find_ffmpeg()), "-v", "error", "-f", "lavfi", "-i", "testsrc2=s=160x120:r=10:d=2"]
            + ["-c:v", "libx264", "-preset", "ultrafast", "-pix_fmt", "yuv420p", "-movflags", "+faststart"]
            + [str(target)],
            check=True,
        )

    def manifest(self, assets: int, name: str = "library") -> Path:
        """A manifest of so many rows, each with an address of its own, all leading to the one good video."""
        path = self.folder / f"{name}.csv"
        rows = (f"v{n},{self.url('files')}/good.mp4?v={n}\n" for n in range(assets))
        path.write_text("id,url\n" + "".join(rows), encoding="utf-8")
        return path

    async def begin(
        self, run: str, manifest: Path, *, task_timeout: timedelta | None = None, **more: Any
    ) -> WorkflowHandle[Any, Any]:
        """Starts a migration; `more` are further fields of its input. `task_timeout`: how soon it is noticed that a
        worker died with a task of the run's workflow; None is the server's 10 s."""
        source = {"kind": "manifest", "location": str(manifest), "page_size": more.pop("page_size", 500)}
        return await self.client.start_workflow(
            "MigrationWorkflow",
            {"account": ACCOUNT, "source": source, **more},
            id=migration_id(run),
            task_queue="longhaul",
            task_timeout=task_timeout,
        )

    async def migrate(self, run: str, manifest: Path, **more: Any) -> tuple[dict[str, Any], float]:
        """Runs a migration to its end; returns its result and the seconds that it took."""
        began = time.monotonic()
        handle = await self.begin(run, manifest, **more)
        result: dict[str, Any] = await handle.result()
        return result, time.monotonic() - began

    async def stats(self) -> dict[str, Any]:
        """The sandbox's own counters."""
        return await self._ask("GET", "/_sandbox/stats")

    async def set_faults(self, **switches: Any) -> None:
        """Puts the sandbox's switches as they were at the start, except these."""
        await self._ask("PUT", "/_sandbox/faults", json=switches)

    async def videos(self) -> list[dict[str, Any]]:
        """Every video that the sandbox has, as its list gives them. Set its request faults off before."""
        found: list[dict[str, Any]] = []
        cursor: str | None = None
        while True:
            page = await self._ask(
                "GET", "/v1/videos", params={"limit": "1000", **({} if cursor is None else {"cursor": cursor})}
            )
            found += page["videos"]
            cursor = page["next_cursor"]
            if cursor is None:
                return found

    async def _ask(self, method: str, path: str, **more: Any) -> dict[str, Any]:
        async with httpx.AsyncClient(trust_env=False, timeout=10) as client:
            answer = await client.request(
                method, self.url("sandbox") + path, headers={"authorization": f"Bearer {self.token}"}, **more
            )
            found: dict[str, Any] = answer.raise_for_status().json()
            return found

    async def heartbeats(self) -> int:
        """Heartbeats that reached the server, summed over the workers' metrics."""
        total = 0.0
        async with httpx.AsyncClient(trust_env=False, timeout=10) as client:
            for n in range(self.workers):
                text = (await client.get(f"http://{LOOPBACK}:{self.ports[f'metrics-{n}']}/metrics")).text
                for line in text.splitlines():
                    if line.startswith("temporal_request{") and "RecordActivityTaskHeartbeat" in line:
                        total += float(line.rsplit(" ", 1)[1])
        return round(total)

    async def statements(self) -> int:
        """SQL statements executed in the ledger's database so far, by PostgreSQL's own count."""
        return int(
            await self.engine.fetchval(
                "select coalesce(sum(calls), 0)::bigint from pg_stat_statements s join pg_database d on d.oid = s.dbid"
                " where d.datname = current_database()"
            )
        )
