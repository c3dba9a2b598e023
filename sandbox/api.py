"""The API itself: routes, the gate that every call passes (token, limits, faults), and the sandbox's own controls."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import hmac
import json
import random
import secrets
import time
import uuid
from base64 import b64encode
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any, Final

from pydantic import AnyHttpUrl, BaseModel, ConfigDict, SecretStr, ValidationError
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from sandbox.answers import Json, error, invalid, no_such_video
from sandbox.attachments import CAPTION_MAX, POSTER_MAX, Attachments
from sandbox.bodies import CreateBody
from sandbox.config import (
    FAULTS_AFTER,
    BodyForm,
    FaultAfter,
    Faults,
    Operation,
    RequestFault,
    SandboxConfig,
    webhook_keys,
)
from sandbox.ingest import Ingest, local_path
from sandbox.limits import Limits, retry_after_value
from sandbox.misbehaviour import Misbehaviour
from sandbox.store import Source, Store, Video
from sandbox.uploads import Uploads
from sandbox.webhooks import Outbox

PAGE_MAX: Final = 1000
BODY_MAX: Final = 1_048_576
"""Bytes of a request's body."""
STATES: Final = ("uploading", "processing", "ready", "errored", "deleted")
TRANSPORT: Final = "sandbox.transport"
"""Where the server leaves the connection's transport in the scope's state, so that a fault can drop it."""

_HTML: Final = (
    "<!DOCTYPE html><html><head><title>Error</title></head><body><h1>Something went wrong</h1>"
    "<p>Please try again in a few minutes. Ray ID: 8c1f2e3d4b5a6978</p></body></html>"
)

Handler = Callable[[Request], Awaitable[Response]]
Gated = Callable[[Request, bytes], Awaitable[Response]]
"""A handler behind the gate, which has read the body."""


class WebhookBody(BaseModel):
    """The body of `PUT /v1/webhook`."""

    model_config = ConfigDict(extra="forbid")

    url: AnyHttpUrl
    secret: SecretStr | None = None


class _Dropped(Response):
    """No answer at all: the connection is cut."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        transport: asyncio.Transport = scope["state"][TRANSPORT]
        transport.abort()
        while (await receive())["type"] != "http.disconnect":
            pass


def _page(form: BodyForm, status: int, code: str, message: str, headers: Mapping[str, str] | None = None) -> Response:
    if form == "html":
        return Response(_HTML, status, headers, media_type="text/html; charset=utf-8")
    if form == "empty":
        return Response(b"", status, headers)
    return error(status, code, message, headers)


class Api:
    """One sandbox: its parts, its handlers, its counters."""

    def __init__(self, config: SandboxConfig) -> None:
        self.config = config
        self.public_url = (config.public_url or f"http://{config.host}:{config.port}").rstrip("/")
        self.misbehaviour = Misbehaviour(config.faults)
        self.limits = Limits(config.faults.limits)
        self.requests: Counter[str] = Counter()
        self.answers: Counter[int] = Counter()
        self.refusals: Counter[str] = Counter()
        self._authorization = f"Bearer {config.token.get_secret_value()}".encode()
        self._forms = random.Random(config.faults.seed)  # noqa: S311 - reproducible
        self._started = time.monotonic()
        self.closing = asyncio.Event()
        """Set when the server is about to end: calls that hang are let go."""

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Storage open, ingests and deliveries going. Raises StoreInUse."""
        self.store = Store(self.config.data)
        try:
            self.outbox = Outbox(self.config, self.store, self.misbehaviour)
            self.ingest = Ingest(self.config, self.store, self.misbehaviour, self._finished)
            self.uploads = Uploads(
                self.config.data / "uploads", self.store, self.config.fetch_max_bytes, self.ingest.add
            )
            self.attachments = Attachments(self.store)
            self.outbox.start()
            self.ingest.start()
            self.uploads.start()
            try:
                yield
            finally:
                await self.ingest.stop()
                await self.outbox.stop()
        finally:
            self.store.close()

    def routes(self) -> list[Route]:
        return [
            Route(
                "/v1/videos",
                self._gated("POST /v1/videos", lambda _: "create", self._create, creating=True),
                methods=["POST"],
            ),
            Route("/v1/videos", self._list_or_lookup(), methods=["GET"]),
            Route("/v1/videos/{id}", self._gated("GET /v1/videos/{id}", lambda _: "get", self._get), methods=["GET"]),
            Route(
                "/v1/videos/{id}",
                self._gated("DELETE /v1/videos/{id}", lambda _: "delete", self._delete),
                methods=["DELETE"],
            ),
            *self._upload_routes(),
            *self._attachment_routes(),
            Route("/v1/webhook", self._controlled(self._put_webhook), methods=["PUT"]),
            Route("/_sandbox/faults", self._controlled(self._faults), methods=["GET", "PUT", "PATCH"]),
            Route("/_sandbox/stats", self._controlled(self._get_stats), methods=["GET"]),
            Route("/_sandbox/reset", self._controlled(self._reset), methods=["POST"]),
            Route("/play/{id}.m3u8", self._play, methods=["GET"]),
            Route("/healthz", self._health, methods=["GET"]),
        ]

    def _upload_routes(self) -> list[Route]:
        def route(method: str, path: str, handler: Gated, **gate: bool) -> Route:
            return Route(path, self._gated(f"{method} {path}", lambda _: "upload", handler, **gate), methods=[method])

        return [
            route("POST", "/v1/uploads", self._announce, creating=True),
            route("OPTIONS", "/v1/uploads", self._upload_options),
            route("HEAD", "/v1/uploads/{id}", self._upload_stands),
            route("PATCH", "/v1/uploads/{id}", self._receive, streams=True),
        ]

    def _attachment_routes(self) -> list[Route]:
        captions, poster = "/v1/videos/{id}/captions/{language}", "/v1/videos/{id}/poster"

        def put(path: str, handler: Gated, body_max: int) -> Route:
            gated = self._gated(f"PUT {path}", lambda _: "attach", handler, body_max=body_max)
            return Route(path, gated, methods=["PUT"])

        def get(path: str, handler: Gated) -> Route:
            return Route(path, self._gated(f"GET {path}", lambda _: "get", handler), methods=["GET"])

        return [
            put(captions, self._put_caption, CAPTION_MAX),
            put(poster, self._put_poster, POSTER_MAX),
            get(captions, self._get_caption),
            get(poster, self._get_poster),
        ]

    def set_faults(self, faults: Faults) -> None:
        """Puts these switches in place of the present ones. Unchanged limits keep what was counted against them."""
        self.misbehaviour.set(faults)
        if faults.limits != self.limits.declared:
            self.limits = Limits(faults.limits)

    # -- the gate

    def _authorized(self, request: Request) -> bool:
        given = request.headers.get("authorization", "").encode("latin-1")
        return hmac.compare_digest(given, self._authorization)

    def _unauthorized(self) -> Response:
        return error(
            401, "unauthorized", "send Authorization: Bearer <token>", {"www-authenticate": 'Bearer realm="sandbox"'}
        )

    def _controlled(self, handler: Handler) -> Handler:
        """A control of the sandbox: behind the token, outside limits and faults."""

        async def endpoint(request: Request) -> Response:
            if not self._authorized(request):
                return self._unauthorized()
            return await handler(request)

        return endpoint

    def _list_or_lookup(self) -> Handler:
        listed = self._gated("GET /v1/videos", lambda _: "list", self._list)
        looked_up = self._gated("GET /v1/videos?reference", lambda _: "lookup", self._lookup)

        async def endpoint(request: Request) -> Response:
            return await (looked_up if "reference" in request.query_params else listed)(request)

        return endpoint

    def _gated(
        self,
        label: str,
        operation_of: Callable[[Request], Operation],
        handler: Gated,
        *,
        creating: bool = False,
        streams: bool = False,
        body_max: int = BODY_MAX,
    ) -> Handler:
        """A call of the API: counted, behind the token and the limits, and struck by faults. One that `streams` reads
        its body itself; `body_max` in bytes is for the others."""

        async def endpoint(request: Request) -> Response:
            self.requests[label] += 1
            try:
                response = await self._passed(
                    request, operation_of(request), handler, creating=creating, body_max=None if streams else body_max
                )
            except ClientDisconnect:
                response = _Dropped()
            self.answers[response.status_code if not isinstance(response, _Dropped) else 0] += 1
            return response

        return endpoint

    async def _passed(
        self, request: Request, operation: Operation, handler: Gated, *, creating: bool, body_max: int | None
    ) -> Response:
        if not self._authorized(request):
            return self._unauthorized()
        refusal = self.limits.admit(time.monotonic(), creating=creating)
        if refusal is not None:
            self.refusals["blocked" if refusal.blocked else "limit"] += 1
            response = self._pushback(
                429, "rate_limited", f"over the limit {refusal.limit!r}; {refusal.wait:.1f} s to go", refusal.wait
            )
            self._add_rate_headers(response)
            return response
        # Read before anything is waited for: a caller that gives up meanwhile has sent its request all the same.
        body = b"" if body_max is None else await _body(request, body_max)
        fault = self.misbehaviour.request_fault(operation)
        if latency := self.misbehaviour.latency(operation):
            await asyncio.sleep(latency)
        spoilt = self._before(fault)
        if spoilt is None:
            response = await handler(request, body)
            if self.misbehaviour.applies(operation) and (delay := self.misbehaviour.faults.answer_delay_ms):
                await asyncio.sleep(delay / 1000)
            if fault in FAULTS_AFTER and response.status_code < 400:
                response = await self._after(fault, response)
        else:
            response = spoilt
        self._add_rate_headers(response)
        return response

    def _add_rate_headers(self, response: Response) -> None:
        if self.misbehaviour.faults.rate_headers:
            response.headers.update(self.limits.headers(time.monotonic()))

    def _pushback(self, status: int, code: str, message: str, wait: float) -> Response:
        faults = self.misbehaviour.faults
        value = retry_after_value(faults.retry_after, wait, time.time(), self._forms)
        headers = {} if value is None else {"retry-after": value}
        return _page(faults.refusal_body, status, code, message, headers)

    def _before(self, fault: RequestFault | None) -> Response | None:
        """The answer to a call that is struck before it has any effect."""
        faults = self.misbehaviour.faults
        match fault:
            case "refuse_429":
                self.refusals["injected"] += 1
                return self._pushback(429, "rate_limited", "a fault switch refuses this call", faults.retry_after_s)
            case "refuse_503":
                return self._pushback(503, "busy", "a fault switch refuses this call", faults.retry_after_s)
            case "error_before":
                return _page(faults.error_body, faults.error_status, "internal_error", "a fault switch broke this call")
            case "drop_before":
                return _Dropped()
            case "success_false":
                return Json(
                    {
                        "success": False,
                        "errors": [{"code": "internal_error", "message": "a fault switch broke this call"}],
                    }
                )
            case "html_page":
                return _page("html", faults.html_status, "", "")
            case _:
                return None

    async def _after(self, fault: FaultAfter | Any, response: Response) -> Response:
        """What is left of the answer to a call that took effect."""
        faults = self.misbehaviour.faults
        match fault:
            case "error_after":
                return _page(
                    faults.error_body, faults.error_status, "internal_error", "a fault switch broke this answer"
                )
            case "empty_body":
                return Response(b"", response.status_code, media_type="application/json")
            case "garbled_body":
                half = bytes(response.body)[: len(response.body) // 2]
                return Response(half, response.status_code, media_type="application/json")
            case "hang_after":
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(faults.hang_s):
                        await self.closing.wait()
                return _Dropped()
            case _:
                return _Dropped()

    # -- videos

    def _shown(self, video: Video) -> dict[str, Any]:
        return video.as_json(self.public_url, unknown=-1 if self.misbehaviour.faults.unknown_as_minus_one else None)

    def _finished(self, video: Video) -> None:
        self.uploads.forget(video.id)
        self.outbox.add("video.errored" if video.error_code else "video.ready", self._shown(video))

    async def _create(self, request: Request, raw: bytes) -> Response:
        try:
            body = CreateBody.model_validate_json(raw)
        except ValidationError as problem:
            return invalid(problem)
        if (refused := self._source_problem(body.source_url)) is not None:
            return error(422, "source_url_refused", refused)
        if (metadata_problem := body.metadata_problem()) is not None:
            return error(422, *metadata_problem)
        faults = self.misbehaviour.faults
        key = request.headers.get("idempotency-key") if faults.idempotency_keys else None
        digest = hashlib.sha256(raw).hexdigest()
        if key is not None and (known := self.store.remembered(key)) is not None:
            if known[0] != digest:
                return error(422, "idempotency_key_reused", "this Idempotency-Key was used with another body")
            video = self.store.get(known[1])
            assert video is not None
            await self.store.durable()
            return Json(self._shown(video), 201, {"idempotent-replayed": "true"})
        if (refusal := self._crowded()) is not None:
            return refusal
        source = Source(body.source_url, body.headers, body.duration_ms)
        video = self.store.add(
            uuid.uuid4().hex,
            reference=body.reference,
            title=body.title,
            metadata=body.metadata,
            about=body.about.model_dump(exclude_defaults=True),
            source=source,
            created_at=time.time(),
        )
        if key is not None:
            self.store.remember(key, digest, video.id)
        self.ingest.add(video.id, source)
        await self.store.durable()
        return Json(self._shown(video), 201, {"location": f"/v1/videos/{video.id}"})

    def _crowded(self) -> Response | None:
        """The refusal of one more video where as many as may be are in the making, or wait for their bytes."""
        faults = self.misbehaviour.faults
        if faults.in_flight is None:
            return None
        if self.ingest.in_flight + len(self.store.uploads_unfinished()) < faults.in_flight:
            return None
        self.refusals["in_flight"] += 1
        words = f"{faults.in_flight} videos are processing already"
        return self._pushback(429, "too_many_processing", words, faults.retry_after_s)

    def _source_problem(self, url: str) -> str | None:
        if local_path(url) is not None:
            return None if self.config.allow_local_files else "source_url: local files are not allowed here"
        scheme, separator, rest = url.partition("://")
        if not separator or scheme.lower() not in ("http", "https") or not rest.strip("/"):
            return "source_url: must be an http or https address"
        return None

    async def _get(self, request: Request, _: bytes) -> Response:
        video = self.store.get(request.path_params["id"])
        if video is None or video.state == "deleted":
            return no_such_video()
        return Json(self._shown(video))

    async def _delete(self, request: Request, _: bytes) -> Response:
        video = self.store.delete(request.path_params["id"])
        if video is None:
            return no_such_video()
        self.ingest.drop(video.id)
        self.uploads.forget(video.id)
        self.outbox.add("video.deleted", self._shown(video))
        await self.store.durable()
        return Response(status_code=204)

    async def _lookup(self, request: Request, _: bytes) -> Response:
        faults = self.misbehaviour.faults
        found = self.store.find(
            request.query_params["reference"], loose=faults.lookup_loose, made_before=time.time() - faults.lookup_lag_s
        )
        return self._listing(found, None, len(found))

    async def _list(self, request: Request, _: bytes) -> Response:
        faults = self.misbehaviour.faults
        limit_text = request.query_params.get("limit", "100")
        if not (limit_text.isascii() and limit_text.isdigit() and 1 <= int(limit_text) <= PAGE_MAX):
            return error(422, "invalid_request", f"limit: must be a number from 1 to {PAGE_MAX}")
        cursor = request.query_params.get("cursor")
        after = 0 if cursor is None else _place(cursor)
        if after is None:
            return error(422, "invalid_request", "cursor: is none of ours")
        if faults.list_repeats:
            after = 0
        limit = int(limit_text)
        found = self.store.page(after, limit + 1, made_before=time.time() - faults.lookup_lag_s)
        shown = found[:limit]
        more = len(found) > limit or (faults.list_repeats and bool(shown))
        total = sum(n for state, n in self.store.count().items() if state != "deleted")
        return self._listing(shown, _cursor(shown[-1].seq) if more else None, total)

    def _listing(self, videos: list[Video], next_cursor: str | None, total: int) -> Response:
        items = [self._shown(video) for video in videos]
        if self.misbehaviour.faults.list_without_paging:
            return Json({"videos": items})
        return Json({"videos": items, "next_cursor": next_cursor, "total": total})

    # -- uploads

    async def _announce(self, request: Request, _: bytes) -> Response:
        return self._crowded() or await self.uploads.announce(request)

    async def _upload_options(self, request: Request, _: bytes) -> Response:
        return self.uploads.options()

    async def _upload_stands(self, request: Request, _: bytes) -> Response:
        return await self.uploads.stand(request)

    async def _receive(self, request: Request, _: bytes) -> Response:
        return await self.uploads.receive(request)

    # -- text tracks and posters

    async def _put_caption(self, request: Request, content: bytes) -> Response:
        return self.attachments.put_caption(request, content) or await self._attached(request)

    async def _put_poster(self, request: Request, content: bytes) -> Response:
        return self.attachments.put_poster(request, content) or await self._attached(request)

    async def _attached(self, request: Request) -> Response:
        await self.store.durable()
        return await self._get(request, b"")

    async def _get_caption(self, request: Request, _: bytes) -> Response:
        return self.attachments.show(request, "caption", request.path_params["language"])

    async def _get_poster(self, request: Request, _: bytes) -> Response:
        return self.attachments.show(request, "poster")

    # -- webhooks and controls

    async def _put_webhook(self, request: Request) -> Response:
        try:
            body = WebhookBody.model_validate_json(await _body(request, BODY_MAX))
            if body.secret is not None:
                webhook_keys(body.secret)
        except ValidationError as problem:
            return invalid(problem)
        except ValueError as problem:
            return error(422, "invalid_request", f"secret: {problem}")
        stored = self.store.registered("webhook_secret")
        secret = body.secret or self.config.webhook_secret or SecretStr(stored or "")
        if not secret.get_secret_value():
            secret = SecretStr("whsec_" + b64encode(secrets.token_bytes(24)).decode())
        url = str(body.url)
        self.store.register("webhook_url", url)
        self.store.register("webhook_secret", secret.get_secret_value())
        self.outbox.direct(url, secret)
        await self.store.durable()
        return Json({"url": url, "secret": secret.get_secret_value()})

    async def _faults(self, request: Request) -> Response:
        if request.method != "GET":
            base = self.config.faults if request.method == "PUT" else self.misbehaviour.present
            try:
                changes = json.loads(await _body(request, BODY_MAX) or b"{}")
                if not isinstance(changes, dict):
                    raise ValueError("must be an object")
                faults = Faults.model_validate({**base.model_dump(), **changes})
            except ValidationError as problem:
                return invalid(problem)
            except ValueError as problem:
                return error(400, "invalid_json", str(problem))
            self.set_faults(faults)
        return Json(self.misbehaviour.present.model_dump(mode="json"))

    def stats(self) -> dict[str, Any]:
        """What was asked, answered and made. Counts of calls begin with the process or the last reset; those of videos
        are out of the storage."""
        states = self.store.count()
        duplicates, duplicates_ever = self.store.duplicates()
        attached = self.store.attached_count()
        return {
            "requests": dict(sorted(self.requests.items())),
            "answers": {str(status or "dropped"): n for status, n in sorted(self.answers.items())},
            "creates": sum(states.values()),
            "videos": {state: states.get(state, 0) for state in STATES},
            "duplicates": duplicates,
            "duplicates_ever": duplicates_ever,
            "uploads": self.store.announced(),
            "bytes": self.uploads.received,
            "captions": attached.get("caption", 0),
            "posters": attached.get("poster", 0),
            "refusals_429": sum(self.refusals.values()),
            "refusals": {cause: self.refusals[cause] for cause in ("limit", "blocked", "in_flight", "injected")},
            "blocks": self.limits.blocks,
            "faults": dict(sorted(self.misbehaviour.struck.items())),
            "webhooks": {
                "waiting": self.outbox.waiting,
                **{name: self.outbox.counts[name] for name in ("delivered", "failed_attempts", "forged_accepted")},
            },
            "uptime_s": round(time.monotonic() - self._started, 3),
        }

    async def _get_stats(self, request: Request) -> Response:
        return Json(self.stats())

    async def reset(self) -> None:
        """As if just started on an empty directory; where webhooks go stays."""
        await self.ingest.clear()
        self.store.clear()
        self.uploads.clear()
        self.outbox.clear()
        self.misbehaviour.struck.clear()
        self.requests.clear()
        self.answers.clear()
        self.refusals.clear()
        self.misbehaviour.set(self.config.faults)
        self.limits = Limits(self.config.faults.limits)
        await self.store.durable()

    async def _reset(self, request: Request) -> Response:
        await self.reset()
        return Response(status_code=204)

    # -- open to everyone

    async def _play(self, request: Request) -> Response:
        video = self.store.get(request.path_params["id"])
        if video is None or video.state != "ready":
            return no_such_video()
        seconds = (video.duration_ms or 0) / 1000
        return PlainTextResponse(
            f"#EXTM3U\n#EXT-X-VERSION:3\n#EXT-X-PLAYLIST-TYPE:VOD\n#EXT-X-TARGETDURATION:{int(seconds) + 1}\n"
            f"#EXT-X-ENDLIST\n",
            media_type="application/vnd.apple.mpegurl",
        )

    async def _health(self, request: Request) -> Response:
        return Json({"status": "ok"})

    async def failed(self, request: Request, problem: Exception) -> Response:
        """The answer where no route fits, or where one raised an HTTPException."""
        assert isinstance(problem, HTTPException)
        if not self._authorized(request):
            return self._unauthorized()
        code = {404: "not_found", 405: "method_not_allowed", 413: "body_too_large"}.get(
            problem.status_code, "invalid_request"
        )
        return error(problem.status_code, code, problem.detail, problem.headers)


async def _body(request: Request, most: int) -> bytes:
    """The request's body. Raises HTTPException 413 above so many bytes, before more is read."""
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > most:
            raise HTTPException(413, f"more than {most} bytes", {"connection": "close"})
    return bytes(body)


def _cursor(seq: int) -> str:
    return f"c{seq:x}"


def _place(cursor: str) -> int | None:
    try:
        return int(cursor[1:], 16) if cursor.startswith("c") else None
    except ValueError:
        return None


def application(api: Api) -> Starlette:
    """The ASGI application of one sandbox, whose lifespan is `api.running()`."""

    @contextlib.asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        async with api.running():
            yield

    return Starlette(routes=api.routes(), lifespan=lifespan, exception_handlers={HTTPException: api.failed})
