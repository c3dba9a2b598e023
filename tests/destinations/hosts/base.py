"""What the small servers of all hosts have in common: who asked what, faults on demand, videos that change their state.

A host's server is a real HTTP server that behaves as that host documents. A subclass has the host's routes,
credentials, bodies and signatures; the faults that any server behind a network can have are here, once, and are applied
to whichever request comes next.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import socket
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from destinations import KINDS
from sandbox.api import TRANSPORT
from sandbox.server import _listener, _Protocol, _Server
from settings import AccountSettings

Trouble = Literal["lost", "cut", "late", "empty", "html", "truncated", "error-after"]
"""What becomes of one request.

lost: done, and the connection cut instead of an answer; cut: not done, connection cut; late: done, and no answer before
the server ends; empty, html, truncated: done, and answered with the good status and no body, a page, half of the body;
error-after: done, and answered with 500 and an empty body.
"""

HTML = b"<!DOCTYPE html><html><body><h1>Please try again</h1></body></html>"


@dataclass
class Seen:
    """One request that reached the server."""

    method: str
    path: str
    query: str
    headers: Mapping[str, str]
    body: bytes
    status: int | None = None
    answer: bytes = b""
    answer_type: str = ""
    at_s: float = field(default_factory=time.time)
    """When it came."""

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Video:
    """One video at the host. `asked` is what the create said of it, in the host's own words."""

    id: str
    ref: str | None
    title: str | None = None
    asked: dict[str, Any] = field(default_factory=dict)
    state: Literal["waiting", "processing", "ready", "errored"] = "processing"
    """waiting: announced, its bytes have not come."""
    code: str | None = None
    """The host's word for why it failed."""
    duration_s: float | None = None
    private: bool = False
    captions: list[tuple[str, str]] = field(default_factory=list)
    """Language, and the track's address or its bytes as text."""
    posters: list[str] = field(default_factory=list)
    content: bytes = b""
    """What was uploaded."""
    created_s: float = field(default_factory=time.time)
    extra: dict[str, Any] = field(default_factory=dict)
    """What only this host keeps of it."""


class _Quick(_Server):
    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """As uvicorn's, which gives connections 0.1 s to end by themselves: that is most of what a test would take."""
        for server in self.servers:
            server.close()
        for connection in list(self.server_state.connections):
            connection.transport.abort()
        await asyncio.gather(*self.server_state.tasks, return_exceptions=True)


class HostServer(ABC):
    """See the module. Each test has one of its own."""

    kind: ClassVar[str]
    """The account's kind; also the name of its row."""
    token: ClassVar[str] = "s3cret-token-of-the-account"
    secret: ClassVar[str] = "s3cret-of-webhooks-a"
    old_secret: ClassVar[str] = "s3cret-of-webhooks-b"
    prefix: ClassVar[str] = ""
    """Of every path of the API, as in the host's own address."""
    options: ClassVar[Mapping[str, Any]] = {}
    chunk_bytes: ClassVar[int] = 524_288
    """Of an upload: the destination's own is set to this, so that a small file takes several."""

    lacks: ClassVar[Mapping[str, str]] = {}
    """What this host doesn't have, and why, by the suite's words.

    cheap-calls: create, get, list and delete in one request each; whole-get: a get that tells reference and playback;
    retry-after: a wait named by a 429; failure-inside: failures with status 200; paging-block: a list that says how it
    goes on; failures: codes of videos that failed; privacy, captions, posters, uploads; resumes: an upload that a new
    process can go on with; timestamps: signatures that grow stale; created-event, errored-event, deleted-event.
    """
    failures: ClassVar[Mapping[str, str]]
    """Each documented code of a video that failed, and the reason that it must become."""
    list_limit: ClassVar[int]
    """The most that a page of its list may have."""
    creates: ClassVar[str] = "POST"
    """Method of the request that makes a video from an address."""

    def __init__(self) -> None:
        self.url = ""
        self.seen: list[Seen] = []
        self.videos: dict[str, Video] = {}
        self.plan: list[Trouble | Response] = []
        self.repeats = False
        """Whether every page of the list is the first one again."""
        self.without_paging = False
        """Whether the list says nothing of how it goes on."""
        self.cut_upload_after: int | None = None
        """Bytes of one request with a file's bytes after which the connection is cut, once."""
        self.signatures: list[str] = []
        """Of addresses that were handed out: they may be in no fault, place or log, as the credentials."""
        self.page_max: int | None = None
        """A shorter page than the host's limit, so that a few videos make several."""
        self.numbers = itertools.count(1)
        self.closing = asyncio.Event()

    # ------------------------------------------------------------------------------------- what a host's server says

    @abstractmethod
    def routes(self) -> list[Route]:
        """The paths of the host's API."""

    @abstractmethod
    def authorized(self, request: Request) -> bool:
        """Whether the request carries the account's credentials in the host's way (true also for signed addresses that
        need none)."""

    @abstractmethod
    def error(self, status: int, message: str = "no", code: str | None = None) -> Response:
        """A refusal in the host's shape."""

    @abstractmethod
    def too_many(self, wait_s: int | None) -> Response:
        """Its 429, with the wait in its own header (lacks "retry-after": it names none)."""

    def failure_inside(self, message: str) -> Response:
        """A failure that comes with status 200."""
        raise AssertionError(f"the suite asks only hosts that have it: {self.lacks['failure-inside']}")

    @abstractmethod
    def event(self, video: Video, what: str) -> bytes | None:
        """The body of the delivery that says "created", "ready", "errored" or "deleted"; None where the host sends none
        for it."""

    @abstractmethod
    def sign(self, body: bytes, secret: str, now: float) -> dict[str, str]:
        """The headers of a delivery of this body, lower case."""

    # ---------------------------------------------------------------------------------------------------- for the suite

    def account(self, **given: Any) -> AccountSettings:
        return AccountSettings.model_validate(
            {
                "kind": self.kind,
                "base_url": self.url + self.prefix if self.url else None,
                "token": self.token,
                "webhook_secrets": [self.secret],
                "timeout_s": 5,
                "options": {**self.options, **given.pop("options", {})},
                **given,
            }
        )

    def open(self, *, clock: Any = time.time, **given: Any) -> Any:
        """A destination at this server; whoever opens it closes it."""
        destination: Any = KINDS[self.kind]
        return destination(self.account(**given), clock=clock)

    def next(self, *troubles: Trouble | Response) -> None:
        """The next requests get these, one each, before everything is well again."""
        self.plan += troubles

    def new_id(self) -> str:
        return f"{self.kind}{next(self.numbers):08d}"

    def add(self, ref: str | None, title: str = "A title", **given: Any) -> Video:
        """Puts a video there without asking."""
        video = Video(self.new_id(), ref, title, **given)
        self.videos[video.id] = video
        return video

    def listed(self) -> list[Video]:
        """In the order in which they were made."""
        return list(self.videos.values())

    def settle(self, video_id: str, state: Literal["ready", "errored"], *, code: str | None = None) -> Video:
        """Ends its processing."""
        video = self.videos[video_id]
        video.state, video.code = state, code
        if state == "ready":
            video.duration_s = video.duration_s or 4.02
        return video

    def carrying(self, ref: str) -> list[Video]:
        return [video for video in self.videos.values() if video.ref == ref]

    @contextlib.asynccontextmanager
    async def serving(self) -> AsyncIterator[HostServer]:
        """Answers from the first moment in the block to its last."""
        listener = _listener("127.0.0.1", 0)
        config = uvicorn.Config(
            _Troubled(self, Starlette(routes=self.routes())),
            http=_Protocol,
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=1,
        )
        server = _Quick(config)
        self.url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        task = asyncio.create_task(server.serve(sockets=[listener]))
        try:
            await server.begun.wait()
            yield self
        finally:
            self.closing.set()
            server.end()
            await task
            listener.close()

    async def received(self, request: Request) -> tuple[bytes, bool]:
        """The bytes of a file's part, and whether they came whole: a test may have them break off, and then the
        connection is cut and whatever is answered reaches nobody."""
        content = bytearray()
        cut, self.cut_upload_after = self.cut_upload_after, None
        async for block in request.stream():
            content += block
            if cut is not None and len(content) >= cut:
                request.scope["state"][TRANSPORT].abort()
                return bytes(content[:cut]), False
        return bytes(content), True


class _Troubled:
    """The server's application behind the faults that a test ordered, writing down what was asked."""

    def __init__(self, server: HostServer, app: ASGIApp) -> None:
        self._server = server
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        server = self._server
        request = Request(scope)
        seen = Seen(scope["method"], scope["path"], scope["query_string"].decode(), dict(request.headers), b"")
        server.seen.append(seen)
        trouble = server.plan.pop(0) if server.plan else None
        body = bytearray()

        async def noted() -> Message:
            message = await receive()
            if message["type"] == "http.request" and len(body) < 1_000_000:
                body.extend(message.get("body", b""))
                seen.body = bytes(body)
            return message

        if trouble == "cut":
            await self._cut(scope, receive)
            return
        if isinstance(trouble, Response):
            while (await noted()).get("more_body"):
                pass
            seen.status = trouble.status_code
            await trouble(scope, receive, send)
            return
        if not server.authorized(request):
            refusal = server.error(401)
            seen.status = 401
            await refusal(scope, receive, send)
            return
        messages: list[Message] = []

        async def kept(message: Message) -> None:
            if message["type"] == "http.response.start":
                seen.status = message["status"]
                seen.answer_type = dict(message["headers"]).get(b"content-type", b"").decode()
            seen.answer += message.get("body", b"")
            messages.append(message)

        await self._app(scope, noted, kept)
        status = seen.status or 500
        content = seen.answer
        match trouble:
            case "lost":
                await self._cut(scope, receive)
            case "late":
                await server.closing.wait()
            case "empty":
                await Response(b"", status)(scope, receive, send)
            case "html":
                await Response(HTML, status, media_type="text/html")(scope, receive, send)
            case "truncated":
                half = content[: len(content) // 2]
                await Response(half, status, media_type="application/json")(scope, receive, send)
            case "error-after":
                await Response(b"", 500)(scope, receive, send)
            case _:
                for message in messages:
                    await send(message)

    async def _cut(self, scope: Scope, receive: Receive) -> None:
        scope["state"][TRANSPORT].abort()
        while (await receive())["type"] != "http.disconnect":
            pass
