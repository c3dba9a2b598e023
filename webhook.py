"""The webhook endpoint: `python webhook.py`. Verifies, stores and applies each delivery, and answers 204."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Annotated

import structlog
import typer
import uvicorn
from opentelemetry import trace
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from temporalio.client import Client
from uvicorn.protocols.http.h11_impl import H11Protocol

import program
import telemetry
from connection import connect
from crossings import crossing
from destinations import check_webhooks, open_destination
from destinations.base import Destination, SignatureRefused
from faults import Fault, Scope
from ledger import inbox
from ledger.engine import Engine
from relay import Relay
from settings import Settings, load_settings

log = structlog.get_logger()


@dataclass(slots=True)
class Endpoint:
    """What the endpoint works with, made when it starts."""

    settings: Settings
    engine: Engine
    client: Client
    relay: Relay
    destinations: dict[str, Destination]

    async def receive(self, request: Request) -> Response:
        """POST /webhooks/{account}"""
        account = request.path_params["account"]
        destination = self.destinations.get(account)
        if destination is None:
            return _refusal(404, f"no account named {account!r}; the address ends in an account's name of the settings")
        try:
            async with asyncio.timeout(self.settings.endpoint.request_timeout_s):
                body = await _body(request, self.settings.endpoint.max_body_bytes)
        except ClientDisconnect:
            return _refusal(400, "the body ended early")  # nobody reads it
        except TimeoutError:
            # Closed, since what still comes of this body is no request.
            return _refusal(408, "the body did not come in time", close=True)
        if body is None:
            return _refusal(413, f"more than {self.settings.endpoint.max_body_bytes} bytes")
        headers = {name.lower(): value for name, value in request.headers.items()}
        with trace.get_tracer(telemetry.TRACER).start_as_current_span("webhook", attributes={"account": account}):
            try:
                destination.verify(headers, body)
                event = destination.parse_event(headers, body)
            except SignatureRefused as refused:
                log.warning("webhook refused", account=account, why=str(refused))
                return _refusal(401, "the signature does not match")
            except Fault as fault:
                log.warning("webhook not understood", account=account, detail=fault.detail)
                return _refusal(400, "the body is not an event of this provider")
            try:
                with crossing("receive"):
                    effect = await inbox.receive(self.engine, account, event)
            except Fault as fault:
                if fault.scope is Scope.ROW:
                    log.warning("webhook not storable", account=account, detail=fault.detail)
                    return _refusal(400, "the event holds what no ledger can keep")
                # Not 2xx: the provider delivers it again.
                log.warning("webhook not stored", account=account, reason=fault.code, detail=fault.detail)
                return _refusal(503, "the ledger is out of reach; deliver it again")
        log.debug("webhook", account=account, kind=event.kind, effect=effect)
        self.relay.wake()
        return Response(status_code=204)

    async def ready(self, request: Request) -> Response:
        """GET /readyz: whether the ledger and Temporal answer."""
        try:
            await asyncio.wait_for(self.engine.fetchval("select 1"), 5)
            healthy = await asyncio.wait_for(self.client.service_client.check_health(), 5)
        except (Fault, TimeoutError, RuntimeError) as error:
            return _refusal(503, str(error) or "no answer in time")
        return Response(status_code=200) if healthy else _refusal(503, "Temporal is not healthy")


def _refusal(status: int, words: str, *, close: bool = False) -> Response:
    return JSONResponse({"error": words}, status_code=status, headers={"connection": "close"} if close else None)


async def _body(request: Request, limit: int) -> bytes | None:
    """The raw bytes, or None as soon as they are more than `limit`: a large body is never held."""
    announced = request.headers.get("content-length", "")
    if announced.isascii() and announced.isdigit() and int(announced) > limit:
        return None
    parts, size = [], 0
    async for part in request.stream():
        size += len(part)
        if size > limit:
            return None
        parts.append(part)
    return b"".join(parts)


async def alive(request: Request) -> Response:
    """GET /healthz: whether the process serves."""
    return Response(status_code=200)


def check(settings: Settings) -> None:
    """Raises Fault("settings-refused") where deliveries could not be verified: an account without a secret."""
    if not settings.accounts:
        raise Fault("settings-refused", "no accounts in the settings: add [accounts.NAME] with its webhook_secrets")
    for name, account in settings.accounts.items():
        try:
            check_webhooks(account)
        except Fault as fault:
            raise Fault(fault.code, f"accounts.{name}.{fault.detail}") from None


def build_app(settings: Settings) -> Starlette:
    """The ASGI application. Raises Fault where an account has no webhook secret."""
    check(settings)
    endpoint: Endpoint | None = None

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        nonlocal endpoint
        async with AsyncExitStack() as stack:
            engine = await Engine.open(settings.ledger, name="longhaul-endpoint")
            stack.push_async_callback(engine.close)
            client = await connect(settings, "endpoint")
            relay = Relay(engine, client, settings.endpoint.relay_interval_s)
            destinations = {name: open_destination(name, account) for name, account in settings.accounts.items()}
            for destination in destinations.values():
                stack.push_async_callback(destination.aclose)
            endpoint = Endpoint(settings, engine, client, relay, destinations)
            task = asyncio.create_task(relay.run())
            try:
                yield
            finally:
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await task

    async def receive(request: Request) -> Response:
        assert endpoint is not None, "requests come after the start"
        return await endpoint.receive(request)

    async def ready(request: Request) -> Response:
        return _refusal(503, "starting") if endpoint is None else await endpoint.ready(request)

    return Starlette(
        routes=[
            Route("/webhooks/{account}", receive, methods=["POST"]),
            Route("/healthz", alive),
            Route("/readyz", ready),
        ],
        lifespan=lifespan,
    )


def main(
    host: Annotated[str | None, typer.Option(help="Address to listen on; default: the settings' one.")] = None,
    port: Annotated[int | None, typer.Option(help="Port; default: the settings' one.")] = None,
) -> None:
    """Serve POST /webhooks/ACCOUNT for every account in the settings, GET /healthz and GET /readyz."""
    try:
        settings = load_settings()
        telemetry.configure_logging(settings.telemetry, "endpoint")
        app = build_app(settings)
        config = uvicorn.Config(
            app,
            host=host or settings.endpoint.host,
            port=port or settings.endpoint.port,
            log_config=None,
            access_log=False,
            lifespan="on",
            http=protocol(settings.endpoint.request_timeout_s),
            ws="none",
            timeout_graceful_shutdown=10,
        )
        asyncio.run(_serve(settings, _Server(config)))
    except Fault as fault:
        sys.exit(f"longhaul endpoint: {fault.detail or fault.reason.words}")
    finally:
        telemetry.flush()


def protocol(timeout_s: float) -> type[H11Protocol]:
    """HTTP/1.1 that closes a connection on which the head of a request has not come whole within so many seconds of its
    first byte, or of the connection's own beginning: uvicorn would keep it for ever."""

    class Impatient(H11Protocol):
        _head: asyncio.TimerHandle | None = None

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            self._mind_head(True)

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            between_requests = self.cycle is None or self.cycle.response_complete
            self._mind_head(between_requests and bool(self.conn.trailing_data[0]))

        def connection_lost(self, exc: Exception | None) -> None:
            self._mind_head(False)
            super().connection_lost(exc)

        def _mind_head(self, awaited: bool) -> None:
            if self._head is not None and not awaited:
                self._head.cancel()
                self._head = None
            elif self._head is None and awaited:
                self._head = self.loop.call_later(timeout_s, self.transport.close)

    return Impatient


class _Server(uvicorn.Server):
    """Ends in order at SIGTERM and SIGINT. uvicorn itself raises the signal once more when it has ended, which would
    make a failure of every stop and lose the last spans."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.handle_exit, number, None)
        yield


async def _serve(settings: Settings, server: uvicorn.Server) -> None:
    """Tries the ledger and Temporal first, so that what is missing is said in a line and not in a traceback."""
    await (await Engine.open(settings.ledger, name="longhaul-endpoint")).close()
    await connect(settings, "endpoint")
    await server.serve()
    if not server.started:
        sys.exit(3)  # uvicorn has logged why


if __name__ == "__main__":
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)
    app.command()(main)
    program.run(app)
