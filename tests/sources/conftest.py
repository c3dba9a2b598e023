"""A real HTTP server on a free loopback port for listings that misbehave."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack

import pytest

from tests.sources.hosts.serving import Answer, Host, running


@pytest.fixture
async def serve() -> AsyncIterator[Callable[[Answer], Awaitable[Host]]]:
    async with AsyncExitStack() as stack:

        async def start(answer: Answer) -> Host:
            return await stack.enter_async_context(running(answer))

        yield start


@pytest.fixture
def unused_port() -> int:
    """A loopback port on which nobody listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
