"""A real HTTP server on a free loopback port, in a task of the test's own loop."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

Answer = Callable[[Request], Response | Awaitable[Response]]


@dataclass
class Host:
    """A running host: its address, and the requests it got."""

    url: str = ""
    requests: list[Request] = field(default_factory=list)

    def asked(self, name: str) -> list[str | None]:
        """The values of one query parameter over all requests."""
        return [request.query_params.get(name) for request in self.requests]


class _Server(uvicorn.Server):
    """Ends as soon as it is told to: uvicorn's own end takes 200 ms, and each test has a host of its own."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.told = asyncio.Event()

    async def main_loop(self) -> None:
        await self.told.wait()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for listener in self.servers:
            listener.close()
        for connection in list(self.server_state.connections):
            connection.shutdown()
        if self.server_state.tasks:
            await asyncio.wait(self.server_state.tasks, timeout=5)


@asynccontextmanager
async def running(answer: Answer) -> AsyncIterator[Host]:
    host = Host()

    async def handle(request: Request) -> Response:
        host.requests.append(request)
        response = answer(request)
        return response if isinstance(response, Response) else await response

    app = Starlette(routes=[Route("/{path:path}", handle, methods=["GET", "POST", "PUT"])])
    server = _Server(uvicorn.Config(app, port=0, log_level="error", lifespan="off"))
    task = asyncio.create_task(server.serve())
    try:
        while not server.started:
            if task.done():
                await task
            await asyncio.sleep(0.005)
        port = server.servers[0].sockets[0].getsockname()[1]
        host.url = f"http://127.0.0.1:{port}"
        yield host
    finally:
        server.told.set()
        await task
