"""Serving the sandbox: as a program of its own, or inside a test or benchmark."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Any

import uvicorn
from starlette.applications import Starlette
from uvicorn.protocols.http.h11_impl import H11Protocol

from sandbox.api import TRANSPORT, Api, application
from sandbox.config import Faults, SandboxConfig

SHUTDOWN_S = 2
"""Seconds that calls which are still being answered get at the end."""


class _Protocol(H11Protocol):
    """HTTP whose applications can reach their connection, so that a fault can drop it."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.app_state = {**self.app_state, TRANSPORT: transport}


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.begun = asyncio.Event()
        self._ended = asyncio.Event()

    def end(self) -> None:
        self.should_exit = True
        self._ended.set()

    async def main_loop(self) -> None:
        """As uvicorn's, which only looks every 0.1 s whether it should end."""
        ticks = 0
        while not await self.on_tick(ticks):
            ticks = (ticks + 1) % 864_000
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(0.1):
                    await self._ended.wait()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.begun.set()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leaves signals to whoever runs this server."""
        yield


def build_app(config: SandboxConfig) -> Starlette:
    """The sandbox as an ASGI application. Faults that drop connections need `running_sandbox` or the program."""
    return application(Api(config))


@dataclass(frozen=True, slots=True)
class Sandbox:
    """A running sandbox."""

    base_url: str
    token: str
    api: Api
    server: uvicorn.Server

    def faults(self, **changes: Any) -> Faults:
        """Changes these switches and leaves the others. Raises pydantic.ValidationError."""
        faults = Faults.model_validate({**self.api.misbehaviour.present.model_dump(), **changes})
        self.api.set_faults(faults)
        return faults

    def stats(self) -> dict[str, Any]:
        return self.api.stats()

    async def reset(self) -> None:
        await self.api.reset()


def _listener(host: str, port: int) -> socket.socket:
    """A listening TCP socket. Raises OSError.

    Its protocol is named, which `socket.create_server` doesn't do: asyncio sets TCP_NODELAY only where it is, and
    without it every answer waits 40 ms for the client's delayed acknowledgement.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(512)
    except OSError:
        listener.close()
        raise
    return listener


@contextlib.asynccontextmanager
async def running_sandbox(config: SandboxConfig) -> AsyncIterator[Sandbox]:
    """The sandbox on its port (a free one for 0), answering from the first moment in the block to its last.

    Raises OSError where the port is taken, StoreInUse where the data directory is.
    """
    listener = _listener(config.host, config.port)
    port = listener.getsockname()[1]
    host = f"[{config.host}]" if ":" in config.host else config.host
    api = Api(config.model_copy(update={"port": port}))
    server = _Server(
        uvicorn.Config(
            application(api),
            http=_Protocol,
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            timeout_keep_alive=60,
            timeout_graceful_shutdown=SHUTDOWN_S,
        )
    )
    # The storage is opened here instead of in the lifespan, so that its errors reach the caller as they are.
    try:
        async with api.running():
            serving = asyncio.create_task(server.serve(sockets=[listener]), name="sandbox server")
            serving.add_done_callback(lambda _: server.begun.set())
            try:
                await server.begun.wait()
                if serving.done():
                    serving.result()
                    raise RuntimeError("the server ended before it began")
                yield Sandbox(f"http://{host}:{port}", config.token.get_secret_value(), api, server)
            finally:
                api.closing.set()
                server.end()
                await serving
    finally:
        listener.close()
