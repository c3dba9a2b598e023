"""HTTP servers that do what servers in the wild do, on free loopback ports."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Request:
    method: str
    target: str
    headers: dict[str, str]

    @property
    def range(self) -> str | None:
        return self.headers.get("range")


class Reply:
    """What a handler answers with, byte by byte if it likes."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self.writer = writer

    def head(self, status: str = "200 OK", **headers: object) -> None:
        lines = [f"HTTP/1.1 {status}", "Connection: close"]
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        self.writer.write("\r\n".join([*lines, "", ""]).encode("latin-1"))

    async def body(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def whole(self, data: bytes, status: str = "200 OK", **headers: object) -> None:
        self.head(status, **{"Content_Length": len(data), **headers})
        await self.body(data)

    async def ranged(self, data: bytes, request: Request, **headers: object) -> None:
        """As a good server answers: 206 to a range, 200 without one."""
        if request.range is None:
            await self.whole(data, Accept_Ranges="bytes", **headers)
            return
        first, _, last = request.range.removeprefix("bytes=").partition("-")
        start, end = int(first), min(int(last or len(data) - 1), len(data) - 1)
        if start >= len(data):
            await self.whole(b"", "416 Range Not Satisfiable", Content_Range=f"bytes */{len(data)}")
            return
        self.head(
            "206 Partial Content",
            Content_Range=f"bytes {start}-{end}/{len(data)}",
            Content_Length=end - start + 1,
            Accept_Ranges="bytes",
            **headers,
        )
        await self.body(data[start : end + 1])


Handler = Callable[[Request, Reply], Awaitable[None]]


@dataclass
class Server:
    base: str
    port: int
    requests: list[Request] = field(default_factory=list)
    arrived: asyncio.Event = field(default_factory=asyncio.Event)
    """set with the first request"""

    @property
    def methods(self) -> set[str]:
        return {request.method for request in self.requests}


@contextlib.asynccontextmanager
async def misbehaving(
    handler: Handler, *, host: str = "127.0.0.1", port: int = 0, tls: ssl.SSLContext | None = None
) -> AsyncIterator[Server]:
    """A server that hands each request to `handler`, records it, and closes the connection afterwards."""
    tasks: set[asyncio.Task[None]] = set()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        try:
            lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
            method, target, _ = lines[0].split(" ", 2)
            pairs = (line.partition(":") for line in lines[1:] if line)
            request = Request(method, target, {name.lower(): value.strip() for name, _, value in pairs})
            server.requests.append(request)
            server.arrived.set()
            await handler(request, Reply(writer))
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            tasks.discard(task)
            with contextlib.suppress(OSError):
                writer.close()

    listener = await asyncio.start_server(accept, host, port, ssl=tls)
    bound = listener.sockets[0].getsockname()[1]
    server = Server(f"{'https' if tls else 'http'}://{host}:{bound}", bound)
    try:
        yield server
    finally:
        listener.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
