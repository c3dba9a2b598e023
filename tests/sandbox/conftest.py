"""A sandbox for each test, a receiver for its webhooks, a server for its sources, and small real media."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import imageio_ffmpeg
import pytest
import pytest_asyncio
from pydantic import SecretStr
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from sandbox.config import Faults, SandboxConfig
from sandbox.server import Sandbox, running_sandbox
from tests.sandbox.serving import served, until

TOKEN = "sandbox-token-1234"
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
OLD_SECRET = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD"


@dataclass
class Sandboxed:
    """A running sandbox and a client that carries its token."""

    sandbox: Sandbox
    http: httpx.AsyncClient

    async def create(self, reference: str | None = "ref-1", **body: Any) -> httpx.Response:
        return await self.http.post(
            "/v1/videos", json={"source_url": "http://127.0.0.1:9/a.mp4", "reference": reference, **body}
        )

    async def made(self, reference: str | None = "ref-1", **body: Any) -> str:
        """The id of a new video."""
        answer = await self.create(reference, **body)
        assert answer.status_code == 201, answer.text
        return str(answer.json()["id"])

    async def video(self, video_id: str) -> dict[str, Any]:
        answer = await self.http.get(f"/v1/videos/{video_id}")
        assert answer.status_code == 200, answer.text
        return dict(answer.json())

    async def finished(self, video_id: str) -> dict[str, Any]:
        """The video, once it is ready or errored."""

        async def done() -> dict[str, Any] | None:
            video = await self.video(video_id)
            return video if video["state"] != "processing" else None

        return dict(await until(done))

    def faults(self, **changes: Any) -> None:
        self.sandbox.faults(**changes)

    def stats(self) -> dict[str, Any]:
        return self.sandbox.stats()


Start = Callable[..., Awaitable[Sandboxed]]


@pytest_asyncio.fixture(scope="session")
async def _shared(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Sandboxed]:
    """One sandbox for all tests that need no configuration of their own."""
    config = SandboxConfig(data=tmp_path_factory.mktemp("shared"), token=SecretStr(TOKEN))
    async with running_sandbox(config) as sandbox, _client(sandbox) as http:
        yield Sandboxed(sandbox, http)


def _client(sandbox: Sandbox) -> httpx.AsyncClient:
    return httpx.AsyncClient(
        base_url=sandbox.base_url, headers={"authorization": f"Bearer {TOKEN}"}, timeout=10, verify=False
    )


@pytest_asyncio.fixture
async def start(tmp_path: Path, _shared: Sandboxed) -> AsyncIterator[Start]:
    """Begins with a sandbox that has these switches and this configuration. Synthesizes unless told otherwise."""
    async with contextlib.AsyncExitStack() as stack:

        async def begin(**given: Any) -> Sandboxed:
            switches = {name: given.pop(name) for name in list(given) if name in Faults.model_fields}
            faults = Faults.model_validate({"ingest": "synthesize", **switches})
            if not given:
                # As if it had just been started with these switches.
                api = _shared.sandbox.api
                api.config = api.config.model_copy(update={"faults": faults})
                await api.reset()
                return _shared
            settings = {"data": tmp_path / "sandbox", "token": TOKEN, "webhook_retry_s": 0.02, **given}
            config = SandboxConfig.model_validate({**settings, "faults": faults})
            sandbox = await stack.enter_async_context(running_sandbox(config))
            return Sandboxed(sandbox, await stack.enter_async_context(_client(sandbox)))

        yield begin


@dataclass
class Receiver:
    """Takes webhook deliveries; `answer` decides the status of each."""

    url: str
    deliveries: list[tuple[dict[str, str], bytes]] = field(default_factory=list)
    answer: Callable[[int], int] = lambda _: 204


@pytest_asyncio.fixture
async def receiver() -> AsyncIterator[Receiver]:
    found = Receiver("")

    async def take(request: Request) -> Response:
        found.deliveries.append((dict(request.headers), await request.body()))
        return Response(status_code=found.answer(len(found.deliveries)))

    async with served(Starlette(routes=[Route("/hook", take, methods=["POST"])])) as base:
        found.url = f"{base}/hook"
        yield found


# --------------------------------------------------------------------------------------------------------------- media


@dataclass(frozen=True)
class Media:
    """A folder of small files, the good ones real."""

    folder: Path

    def __getitem__(self, name: str) -> bytes:
        return (self.folder / name).read_bytes()


@pytest.fixture(scope="session")
def media(tmp_path_factory: pytest.TempPathFactory) -> Media:
    folder = tmp_path_factory.mktemp("media")
    ffmpeg = shutil.which("ffmpeg") or imageio_ffmpeg.get_ffmpeg_exe()

    def make(name: str, *arguments: str) -> None:
        subprocess.run(
            [ffmpeg, "-v", "error", "-y", *arguments, str(folder / name)], check=True, stdin=subprocess.DEVNULL
        )

    picture = ("-f", "lavfi", "-i", "testsrc2=s=320x240:r=10:d=2")
    make("good.mp4", *picture, "-c:v", "mpeg4")
    make("sound.mp3", "-f", "lavfi", "-i", "sine=d=1")
    make("still.jpg", *picture, "-frames:v", "1")
    (folder / "cut.mp4").write_bytes((folder / "good.mp4").read_bytes()[:2000])
    (folder / "text.mp4").write_text("This is no video.\n" * 50)
    (folder / "empty.mp4").touch()
    return Media(folder)
