"""The sandbox as the host, and small servers that answer exactly what a test wants."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
import pytest_asyncio
from pydantic import SecretStr

from destinations.generic import GenericDestination
from sandbox.config import Faults, SandboxConfig
from sandbox.server import Sandbox, running_sandbox
from settings import AccountSettings

TOKEN = "s3cret-token-of-the-account"
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


def account(base_url: str, **given: Any) -> AccountSettings:
    return AccountSettings.model_validate({"base_url": base_url, "token": TOKEN, "timeout_s": 5, **given})


Open = Callable[..., GenericDestination]


@pytest_asyncio.fixture
async def open_at() -> AsyncIterator[Open]:
    """Opens destinations at an address, and closes them."""
    opened: list[GenericDestination] = []

    def open_one(base_url: str, **given: Any) -> GenericDestination:
        clock = {"clock": given.pop("clock")} if "clock" in given else {}
        opened.append(GenericDestination(account(base_url, **given), **clock))
        return opened[-1]

    yield open_one
    for destination in opened:
        await destination.aclose()


@pytest_asyncio.fixture(scope="session")
async def _host(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Sandbox]:
    config = SandboxConfig(
        data=tmp_path_factory.mktemp("host"), token=SecretStr(TOKEN), faults=Faults(ingest="synthesize")
    )
    async with running_sandbox(config) as sandbox:
        yield sandbox


@pytest_asyncio.fixture
async def sandbox(_host: Sandbox) -> Sandbox:
    """An empty sandbox without faults, which synthesizes."""
    await _host.reset()
    return _host


@dataclass
class Rude:
    """A server that answers every request with the same bytes, and then does as it likes with the connection."""

    url: str = ""
    answer: bytes = b""
    then: str = "close"
    requests: list[bytes] = field(default_factory=list)
    stop: asyncio.Event = field(default_factory=asyncio.Event)

    def says(self, status: int, body: bytes | str = b"", *headers: str, then: str = "close") -> str:
        """Answers with this from now on; returns the address."""
        raw = body.encode() if isinstance(body, str) else body
        head = [f"HTTP/1.1 {status} Whatever", f"content-length: {len(raw)}", "connection: close", *headers]
        self.answer = "\r\n".join(head).encode("latin-1") + b"\r\n\r\n" + raw
        self.then = then
        return self.url

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            lengths = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
            body = await reader.readexactly(int(lengths[0].split(b":")[1])) if lengths else b""
            self.requests.append(head + body)
            if self.then == "drip":
                for byte in self.answer:
                    writer.write(bytes([byte]))
                    await writer.drain()
                    await asyncio.sleep(0.05)
            else:
                writer.write(self.answer)
                await writer.drain()
            if self.then == "hang":
                await self.stop.wait()
            if self.then == "reset":
                writer.transport.abort()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()


@pytest_asyncio.fixture
async def rude() -> AsyncIterator[Rude]:
    found = Rude()
    server = await asyncio.start_server(found.serve, "127.0.0.1", 0)
    found.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    yield found
    found.stop.set()
    server.close()
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(server.wait_closed(), 5)


async def gathered(*calls: Awaitable[Any]) -> list[Any]:
    """Results and errors of calls made side by side."""
    return list(await asyncio.gather(*calls, return_exceptions=True))
