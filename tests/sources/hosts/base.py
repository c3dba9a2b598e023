"""What the small servers of all hosts have in common: a library, a token, links that expire, and trouble on demand.

A subclass behaves as its host documents: its routes, bodies, paging, refusals and headers. The files' server is another
one, so that it shows what reaches it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar

from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response

BEGAN = datetime(2021, 3, 1, 12, tzinfo=UTC)


@dataclass(frozen=True)
class Clip:
    """One video of the library, in nobody's words."""

    number: int
    state: str = "ready"
    """"ready", "failed" or "processing"."""
    private: bool = False
    tracks: Sequence[tuple[str, str, bool]] = ()
    """Language, label, and whether sounds are told too."""

    @property
    def title(self) -> str:
        return f"Lecture {self.number}: naïve & “quoted”"

    @property
    def created(self) -> datetime:
        return BEGAN + timedelta(minutes=self.number)


def library(count: int = 23) -> list[Clip]:
    clips = [Clip(n) for n in range(1, count + 1)]
    if count >= 4:
        clips[0] = replace(clips[0], tracks=(("en", "English", False), ("pt-BR", "Português", False)))
        clips[1] = replace(clips[1], state="failed")
        clips[2] = replace(clips[2], state="processing")
        clips[3] = replace(clips[3], private=True)
    return clips


@dataclass
class Served:
    """A running server's address, and what it was asked."""

    url: str = ""
    requests: list[Request] = field(default_factory=list)


@dataclass
class Exchange:
    """One request and its answer as they went over the wire."""

    method: str
    path: str
    query: str
    headers: Mapping[str, str]
    body: bytes
    status: int | None
    answer: bytes
    answer_type: str


class Server:
    """The API of one host and the server of its files."""

    token: ClassVar[str] = "s3cret-t0ken"
    """As it stands in the settings."""
    reason: ClassVar[str]
    """Why the failed video failed, in the host's words."""
    page_param: ClassVar[str | None] = None

    def __init__(self, clips: list[Clip] | None = None) -> None:
        self.clips = library() if clips is None else clips
        self.api = Served()
        self.files = Served()
        self.trouble: list[Callable[[Request], Response]] = []
        """What the next requests get instead of their answers."""
        self.stuck = False
        """Whether paging parameters are ignored."""
        self.lies = 0
        """What is added to every total."""
        self.exchanges: list[Exchange] = []
        self.living: set[str] = set()
        self.given = 0

    # -- what a host's server says

    def options(self) -> dict[str, Any]:
        return {}

    def allowed(self, request: Request) -> bool:
        return request.headers.get("authorization") == f"Bearer {self.token}"

    def unauthorized(self) -> Response:
        return JSONResponse({"error": "unauthorized"}, 401)

    def forbidden(self) -> Response:
        return JSONResponse({"error": "forbidden"}, 403)

    def not_found(self) -> Response:
        return JSONResponse({"error": "not found"}, 404)

    def too_many(self, wait_s: float) -> Response:
        """Pushback as this host says it; `wait_s` where it says for how long."""
        return JSONResponse({"error": "too many requests"}, 429, {"retry-after": f"{wait_s:g}"})

    def respond(self, request: Request) -> Response:
        raise NotImplementedError

    # -- what all servers do

    async def answer(self, request: Request) -> Response:
        body = await request.body()
        if self.trouble:
            found = self.trouble.pop(0)(request)
        else:
            found = self.respond(request) if self.allowed(request) else self.unauthorized()
        url, kind = request.url, found.headers.get("content-type", "")
        asked = (request.method, url.path, url.query, request.headers, body)
        self.exchanges.append(Exchange(*asked, found.status_code, bytes(found.body), kind))
        return found

    def link(self, name: str) -> str:
        """A new address of a file, good until `expire`."""
        self.given += 1
        signature = f"sig{self.given}"
        self.living.add(signature)
        return f"{self.files.url}/{name}?signature={signature}"

    def lasting(self, name: str) -> str:
        """An address of a file that is good for ever."""
        return f"{self.files.url}/{name}?signature=public"

    def prepare(self) -> None:
        """Files that the host makes when they are first asked for are there already."""

    def expire(self) -> None:
        self.living.clear()

    def file(self, request: Request) -> Response:
        signature = request.query_params.get("signature", "")
        if signature != "public" and signature not in self.living:
            return Response("<Error><Code>AccessDenied</Code></Error>", 403, media_type="application/xml")
        return Response(b"bytes of " + request.url.path.encode(), media_type="video/mp4")

    def clip(self, number: Any) -> Clip | None:
        return next((clip for clip in self.clips if str(clip.number) == str(number)), None)

    def ref(self, clip: Clip) -> str:
        """The video's id at this host."""
        return str(clip.number)

    def of_ref(self, ref: str) -> Clip | None:
        return next((clip for clip in self.clips if self.ref(clip) == ref), None)

    def window(self, request: Request, page: str, size: str, *, offset: bool = False, limit: int = 100) -> list[Clip]:
        query = request.query_params
        count = min(int(query[size]), limit)
        begin = 0 if self.stuck else int(query[page]) if offset else (int(query[page]) - 1) * count
        return self.clips[begin : begin + count]

    @property
    def total(self) -> int:
        return len(self.clips) + self.lies


def page_of_html(request: Request) -> Response:
    return HTMLResponse("<!doctype html><html><body>We will be back soon</body></html>")


def echo(status: int) -> Callable[[Request], Response]:
    """An error that quotes what it was sent, as debug pages of hosts do."""

    def answer(request: Request) -> Response:
        # Credentials first: only the beginning of an answer is told.
        names = ("authorization", "accesskey")
        sent = {name: request.headers[name] for name in names if name in request.headers}
        return JSONResponse({"debug": sent, "url": str(request.url)}, status)

    return answer
