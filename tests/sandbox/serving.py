"""What tests of HTTP parts share: waiting for conditions, and real servers on free loopback ports."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from starlette.applications import Starlette
from uvicorn import Config, Server


async def until(condition: Callable[[], Any], timeout: float = 10.0) -> Any:
    """Waits until the condition holds, and returns what it was then; it may be a coroutine function."""
    deadline = time.monotonic() + timeout
    while True:
        value = condition()
        if isinstance(value, Awaitable):
            value = await value
        if value:
            return value
        assert time.monotonic() < deadline, f"not within {timeout} s"
        await asyncio.sleep(0.005)


@contextlib.asynccontextmanager
async def served(app: Starlette) -> AsyncIterator[str]:
    """The application on a free loopback port."""
    server = Server(Config(app, port=0, lifespan="off", log_config=None, access_log=False, timeout_graceful_shutdown=1))
    server.capture_signals = contextlib.nullcontext  # type: ignore[assignment]
    task = asyncio.create_task(server.serve())
    try:
        await until(lambda: server.started)
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        await task
