"""A whole Longhaul in one process, around real servers: Temporal, PostgreSQL, the sandbox, the endpoint, a worker."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import subprocess
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import uvicorn
from temporalio.client import Client, WorkflowHandle
from temporalio.service import RPCError

import webhook
import worker
from devstack.fileserver import serving
from devstack.library import find_ffmpeg
from devstack.temporal import TemporalDevServer
from ledger.engine import Engine
from media.tools import bundled_ffprobe
from sandbox.config import Faults, SandboxConfig
from sandbox.server import Sandbox, running_sandbox
from settings import LedgerSettings, Settings
from workflows.ids import migration_id

TOKEN = "a-token-for-tests"
FFPROBE = bundled_ffprobe()
"""The one that starts fastest; where it isn't made for this machine, the one on the PATH."""
SECRET = "whsec_bG9uZ2hhdWwtdGVzdHMtc2VjcmV0LTAxMjM0NTY3ODk="


class _Endpoint(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self):  # type: ignore[no-untyped-def]
        yield


@dataclass
class Rig:
    """What a test of a run works with. `options` go into the sandbox account's options."""

    settings: Settings
    client: Client
    engine: Engine
    sandbox: Sandbox
    files: str
    media: Path
    folder: Path
    started: list[str] = field(default_factory=list)

    def manifest(
        self, rows: Iterable[tuple[str, str]], name: str = "library.csv", *, caption: str | None = None
    ) -> Path:
        """Writes a manifest of (id, address) rows; `caption` is the address of an English text track for each."""
        path = self.folder / name
        head, tail = ("id,url", "") if caption is None else ("id,url,captions.en", f",{caption}")
        path.write_text(f"{head}\n" + "".join(f"{id_},{url}{tail}\n" for id_, url in rows), encoding="utf-8")
        return path

    def videos(self, count: int, prefix: str = "v") -> list[tuple[str, str]]:
        """So many rows of good videos, each under an address of its own."""
        return [(f"{prefix}{n}", f"{self.files}/good.mp4?n={n}") for n in range(count)]

    async def start(self, run: str, manifest: Path, *, page_size: int = 25, **more: Any) -> WorkflowHandle[Any, Any]:
        self.started.append(run)
        source = {"kind": "manifest", "location": str(manifest), "page_size": page_size}
        given = {"account": "sandbox", "tenant": "acme", "source": source, **more}
        return await self.client.start_workflow("MigrationWorkflow", given, id=migration_id(run), task_queue="longhaul")

    async def migrate(self, run: str, manifest: Path, **more: Any) -> dict[str, Any]:
        """Runs a migration to its end."""
        handle = await self.start(run, manifest, **more)
        result: dict[str, Any] = await asyncio.wait_for(handle.result(), 90)
        return result

    async def states(self) -> dict[str, int]:
        rows = await self.engine.fetch("select state, count(*) as n from asset group by state")
        return {row["state"]: row["n"] for row in rows}

    async def until(self, condition: Callable[[], Any], what: str, within: float = 60) -> Any:
        """Waits until the (possibly async) condition gives something true."""
        async with asyncio.timeout(within):
            while True:
                value = condition()
                if asyncio.iscoroutine(value):
                    value = await value
                if value:
                    return value
                await asyncio.sleep(0.02)
        raise AssertionError(what)

    async def progress(self, run: str) -> dict[str, Any]:
        answer: dict[str, Any] = await self.client.get_workflow_handle(migration_id(run)).query("progress")
        return answer


@pytest.fixture(scope="session")
def media(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with one good video of two seconds."""
    folder = tmp_path_factory.mktemp("media")
    subprocess.run(
        [str(find_ffmpeg()), "-v", "error", "-f", "lavfi", "-i", "testsrc2=s=160x120:r=10:d=2"]
        + ["-c:v", "libx264", "-preset", "ultrafast", "-pix_fmt", "yuv420p", str(folder / "good.mp4")],
        check=True,
    )
    (folder / "empty.mp4").touch()
    (folder / "page.mp4").write_text("<!doctype html><html><body>log in</body></html>")
    shutil.copy(folder / "good.mp4", folder / "other.mp4")
    (folder / "en.vtt").write_text("WEBVTT\n\n00:00.500 --> 00:01.500\nHello\n", encoding="utf-8")
    return folder


@pytest_asyncio.fixture
async def rig_factory(
    database: str, temporal: TemporalDevServer, media: Path, tmp_path: Path
) -> AsyncIterator[Callable[..., Any]]:
    """Makes a rig: `await rig_factory(faults={…}, account={…}, roles=…)`."""
    async with contextlib.AsyncExitStack() as stack:

        async def make(
            *,
            faults: dict[str, Any] | None = None,
            account: dict[str, Any] | None = None,
            endpoint: bool = True,
            work: bool = True,
            **sections: Any,
        ) -> Rig:
            listener = _free_socket()
            port = listener.getsockname()[1]
            sandbox = await stack.enter_async_context(
                running_sandbox(
                    SandboxConfig(
                        data=tmp_path / "sandbox",
                        token=TOKEN,
                        webhook_url=f"http://127.0.0.1:{port}/webhooks/sandbox",
                        webhook_secret=SECRET,
                        webhook_retry_s=0.2,
                        allow_local_files=True,
                        faults=Faults.model_validate({"ingest": "synthesize", **(faults or {})}),
                    )
                )
            )
            files = await stack.enter_async_context(serving(media))
            settings = Settings(
                ledger=LedgerSettings(dsn=database),
                temporal={"address": temporal.address},
                media={"allow_private_addresses": True, "ffprobe": FFPROBE, **sections.pop("media", {})},
                endpoint={"port": port, "relay_interval_s": 0.05},
                accounts={
                    "sandbox": {
                        "kind": "sandbox",
                        "base_url": sandbox.base_url,
                        "token": TOKEN,
                        "webhook_secrets": SECRET,
                        "timeout_s": 5.0,
                        "quiet_s": 7.0,
                        **(account or {}),
                    }
                },
                **sections,
            )
            engine = await Engine.open(settings.ledger)
            stack.push_async_callback(engine.close)
            client = await worker.connect(settings, "test")
            rig = Rig(settings, client, engine, sandbox, files, media, tmp_path)
            stack.push_async_callback(_terminate, rig)
            if endpoint:
                server = _Endpoint(uvicorn.Config(webhook.build_app(settings), log_config=None, lifespan="on"))
                task = asyncio.create_task(server.serve(sockets=[listener]))
                stack.push_async_callback(_stop, server, task)
                await rig.until(lambda: server.started, "the endpoint serves")
            else:
                listener.close()
            if work:
                await stack.enter_async_context(worker.running(settings, client))
            return rig

        yield make


@pytest_asyncio.fixture
async def rig(rig_factory: Callable[..., Any]) -> Rig:
    made: Rig = await rig_factory()
    return made


def _free_socket():  # type: ignore[no-untyped-def]
    import socket

    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.bind(("127.0.0.1", 0))
    listener.listen(128)
    return listener


async def _stop(server: uvicorn.Server, task: asyncio.Task[None]) -> None:
    server.should_exit = True
    await task


async def _terminate(rig: Rig) -> None:
    """No workflow of this test may meet the next one's worker."""
    for run in rig.started:
        with contextlib.suppress(RPCError):
            await rig.client.get_workflow_handle(migration_id(run)).terminate("the test is over")
