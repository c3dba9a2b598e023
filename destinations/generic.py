"""Any hosted video API of the common shape: JSON over HTTP, one create per video, a state word, a cursor list.

Every path and name is an option of the account; the defaults are those of our own sandbox (docs/sandbox.md). What is
common to all hosts — one wall-clock limit per call, what each failure means, when a create may have landed — is in
`Caller`, which other modules can use too.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import math
import re
import ssl
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from typing import Annotated, Any, Final, Literal
from urllib.parse import quote

import httpx
from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError, field_validator
from standardwebhooks import Webhook

import faults
from destinations.base import (
    Capabilities,
    CreateRequest,
    RemoteEvent,
    RemotePage,
    RemoteState,
    RemoteVideo,
    SignatureRefused,
)
from faults import Fault
from governor.retry_after import parse_retry_after
from settings import AccountSettings

Path = Annotated[str, StringConstraints(pattern=r"^/[^\s]*$")]
"""A path below the account's base_url."""
ItemPath = Annotated[str, StringConstraints(pattern=r"^/[^\s]*\{id\}[^\s]*$")]
"""A path with `{id}` where the remote id goes."""
HeaderName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9-]+$")]
FieldPath = Annotated[str, StringConstraints(pattern=r"^[^.\s]+(\.[^.\s]+)*$")]
"""Where a value is in a JSON body: names, joined by dots; a number is an index into a list."""

CONNECTIONS: Final = 100
"""Connections of one account's client: four pages of 25 rows at once."""
KEEPALIVE_S: Final = 4.0
"""Idle connections are closed by us before the 5 s after which common servers do: a request written to a connection
that is just being closed would count as a lost answer."""
SNIPPET: Final = 300
"""Characters of an unreadable answer that are quoted in a fault."""


class Options(BaseModel):
    """`[accounts.<name>.options]` of a generic account. All times in seconds, all fields named as in the JSON body."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    # -- paths
    create_path: Path = "/v1/videos"
    create_method: Literal["POST", "PUT"] = "POST"
    get_path: ItemPath = "/v1/videos/{id}"
    delete_path: ItemPath = "/v1/videos/{id}"
    list_path: Path = "/v1/videos"

    # -- credentials
    auth_header: HeaderName = "Authorization"
    auth_scheme: str = Field(default="Bearer", pattern=r"^[A-Za-z0-9-]*$")
    """Word before the token; empty for the token alone; `Basic` encodes a token of the form `user:password`."""
    headers: dict[HeaderName, Annotated[str, StringConstraints(pattern=r"^[\x20-\x7e]*$")]] = Field(
        default_factory=dict
    )
    """Sent with every call, for instance an API version."""

    # -- what a create sends
    source_url_field: FieldPath = "source_url"
    title_field: FieldPath | None = "title"
    reference_field: FieldPath = "reference"
    metadata_field: FieldPath | None = "metadata"
    headers_field: FieldPath | None = "headers"
    """Headers with which the host fetches the source; None where it takes none."""
    duration_hint_field: FieldPath | None = "duration_ms"
    """Known duration in milliseconds, for hosts that synthesize media."""
    local_files: bool = False
    """Whether the host can read files of the workers' machine by their path, as a sandbox beside them can."""
    create_extra: dict[str, Any] = Field(default_factory=dict)
    """Fixed fields of every create."""
    idempotency_header: HeaderName | None = None
    """Header that carries the reference as idempotency key; None where the host honours none."""

    # -- what a video looks like
    video_field: FieldPath | None = None
    """Where the video is in the answers to create and get; None: the answer is the video."""
    id_field: FieldPath = "id"
    state_field: FieldPath = "state"
    reference_read_field: FieldPath | None = None
    """None: as `reference_field`."""
    title_read_field: FieldPath | None = None
    """None: as `title_field`."""
    error_code_field: FieldPath = "error.code"
    error_message_field: FieldPath = "error.message"
    duration_field: FieldPath = "duration_ms"
    duration_unit: Literal["ms", "s"] = "ms"
    width_field: FieldPath = "width"
    height_field: FieldPath = "height"
    size_field: FieldPath = "size"
    playback_field: FieldPath = "playback_url"
    states: dict[str, RemoteState] = Field(
        default_factory=lambda: {
            "processing": RemoteState.PROCESSING,
            "ready": RemoteState.READY,
            "errored": RemoteState.ERRORED,
            "deleted": RemoteState.DELETED,
        }
    )
    """The host's state words, compared without case. A word that is missing here counts as processing."""
    reasons: dict[str, str] = Field(
        default_factory=lambda: {
            "file_empty": "file-empty",
            "file_unreadable": "file-corrupt",
            "file_too_large": "too-large",
            "not_a_video": "not-a-video",
            "no_video_stream": "no-video-stream",
            "source_is_html": "source-returned-html",
            "source_url_refused": "source-address-refused",
            "too_short": "too-short",
            "too_long": "too-long",
            "fetch_failed": "fetch-failed",
            "fetch_timeout": "fetch-failed",
            "fetch_forbidden": "fetch-failed",
            "fetch_not_found": "source-not-found",
            "title_too_long": "name-too-long",
            "reference_too_long": "name-too-long",
            "too_many_processing": "rate-limited",
            "rate_limited": "rate-limited",
            "busy": "destination-busy",
            "internal_error": "destination-error",
            "unauthorized": "credentials-refused",
        }
    )
    """The host's error codes in our reason codes, for videos that failed and for calls that were refused."""
    failed_reason: str = "destination-failed"
    """Reason of a video that failed with a code missing from `reasons`."""

    # -- errors of calls
    call_error_code_field: FieldPath = "error.code"
    call_error_message_field: FieldPath = "error.message"
    success_field: FieldPath | None = "success"
    """Where false means failure whatever the status says; None where the host has no such field."""
    errors_field: FieldPath = "errors"
    """The list of `code` and `message` that comes with it."""
    retry_after_headers: tuple[HeaderName, ...] = ("Retry-After",)
    """The first of these that can be read counts."""
    retry_after_cap_s: float = Field(default=3_600.0, gt=0, le=86_400)

    # -- finding videos
    lookup: Literal["exact", "list"] = "exact"
    """`exact`: `list_path` with `lookup_param`, one call. `list`: the whole list, one call a page."""
    lookup_param: str = "reference"
    list_items_field: FieldPath | None = "videos"
    """None where the answer is a bare list."""
    list_cursor_param: str = "cursor"
    list_limit_param: str | None = "limit"
    list_limit: int = Field(default=1000, ge=1, le=10_000)
    list_next_field: FieldPath = "next_cursor"
    list_next_required: bool = True
    """Whether an answer without `list_next_field` is no list; false for hosts that leave it out on the last page."""
    list_total_field: FieldPath | None = "total"

    # -- what the host accepts, checked before a create
    ref_max: int | None = 255
    title_max: int | None = 512
    duration_min_ms: int | None = Field(default=None, ge=0)
    duration_max_ms: int | None = Field(default=None, ge=0)
    size_max: int | None = Field(default=None, ge=0)

    # -- webhooks
    webhooks: Literal["standard-webhooks", "none"] = "standard-webhooks"
    webhook_header_prefix: HeaderName = "webhook-"
    """`<prefix>id`, `<prefix>timestamp` and `<prefix>signature`; some hosts use `svix-`."""
    webhook_tolerance_s: int = Field(default=300, ge=1, le=3_600)
    event_type_field: FieldPath = "type"
    event_video_field: FieldPath | None = "data"
    """None: the body is the video."""
    event_states: dict[str, RemoteState] = Field(default_factory=lambda: {"video.deleted": RemoteState.DELETED})
    """Event types that say a state by themselves, whatever the video's own field says."""

    max_answer_bytes: int = Field(default=33_554_432, ge=1_024)
    """A longer answer is no answer."""

    @field_validator("states")
    @classmethod
    def _states_without_case(cls, value: dict[str, RemoteState]) -> dict[str, RemoteState]:
        return {word.lower(): state for word, state in value.items()}

    @field_validator("reasons")
    @classmethod
    def _reasons_are_declared(cls, value: dict[str, str]) -> dict[str, str]:
        for code, reason in value.items():
            if reason not in faults.REASONS:
                raise ValueError(f"{code!r} is mapped to {reason!r}, which is no reason code")
        return value

    @field_validator("failed_reason")
    @classmethod
    def _reason_is_declared(cls, value: str) -> str:
        if value not in faults.REASONS:
            raise ValueError(f"{value!r} is no reason code")
        return value

    @classmethod
    def of(cls, account: AccountSettings) -> Options:
        """The account's options, checked. Raises Fault("settings-refused") naming each wrong one."""
        try:
            return cls.model_validate(account.options)
        except ValidationError as error:
            wrong = "; ".join(f"options.{'.'.join(str(p) for p in e['loc'])}: {e['msg']}" for e in error.errors())
            raise Fault("settings-refused", wrong) from None


# ------------------------------------------------------------------------------------------------------ reading answers


def at(body: Any, path: str | None) -> Any:
    """The value at a field path, or None where there is none."""
    if path is None:
        return body
    for name in path.split("."):
        if isinstance(body, Mapping):
            body = body.get(name)
        elif isinstance(body, list) and name.isdigit() and int(name) < len(body):
            body = body[int(name)]
        else:
            return None
    return body


def has(body: Any, path: str) -> bool:
    """Whether there is something at a field path, null included."""
    parent, _, name = path.rpartition(".")
    holder = at(body, parent or None)
    return isinstance(holder, Mapping) and name in holder


def put(body: dict[str, Any], path: str, value: Any) -> None:
    """Sets the value at a field path, making the objects on the way."""
    *parents, name = path.split(".")
    for parent in parents:
        body = body.setdefault(parent, {})
    body[name] = value


def text(value: Any) -> str | None:
    """A JSON value as text; None for null, for an empty text and for what is no scalar."""
    if value is None or isinstance(value, (dict, list, bool)):
        return None
    return str(value) or None


def number(value: Any, scale: float = 1.0) -> int | None:
    """A JSON number, or a text that is one, times `scale`; None where it is unknown (zero, −1, no number at all)."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    try:
        result = float(value) * scale
    except (ValueError, OverflowError):
        return None
    return round(result) if math.isfinite(result) and 0 < result < 2**63 else None


_URL: Final = re.compile(
    r"""(?P<scheme>[a-z][a-z0-9+.-]*://)"""
    r"""(?P<user>[^\s/?#@"'<>]*@)?"""
    r"""(?P<rest>[^\s?#"'<>\\]*)"""
    r"""(?P<query>[?#][^\s"'<>]*)?""",
    re.IGNORECASE,
)
_AUTHORIZATION: Final = re.compile(r"\b(Bearer|Basic|Token)\s+[A-Za-z0-9._~+/=:-]{4,}", re.IGNORECASE)
_PARAMETER: Final = re.compile(
    r"""\b((?:x-amz-|x-goog-)[a-z-]+|signature|sig|(?:access_?)?token|api_?key|password|secret|policy)=[^\s&"'<>]+""",
    re.IGNORECASE,
)


def redacted(message: str, secrets: Sequence[str] = ()) -> str:
    """`message` without these secrets, without credentials and queries of addresses in it, and without authorization
    headers and signing parameters: hosts quote what they were sent."""
    for secret in secrets:
        if len(secret) >= 4:
            message = message.replace(secret, "…")
    message = _URL.sub(lambda m: m["scheme"] + m["rest"] + ("?…" if m["query"] else ""), message)
    message = _PARAMETER.sub(r"\1=…", message)
    return _AUTHORIZATION.sub(r"\1 …", message)


# -------------------------------------------------------------------------------------------------------------- calling


@dataclass(frozen=True, slots=True)
class Answer:
    """A host's answer, read to its end."""

    status: int
    headers: Mapping[str, str]
    content: bytes


@cache
def _tls() -> ssl.SSLContext:
    """One for all clients: each takes 20 ms to make. Obeys SSL_CERT_FILE and SSL_CERT_DIR."""
    return httpx.create_ssl_context()


class Caller:
    """Makes one call at a time over a pooled client, and says what went wrong with it.

    `timeout_s` is the wall-clock limit of a whole call, from waiting for a connection to the last byte. `secrets` never
    appear in a fault's text.
    """

    def __init__(
        self,
        base_url: str,
        *,
        headers: Mapping[str, str],
        timeout_s: float,
        max_answer_bytes: int,
        secrets: Sequence[str],
    ) -> None:
        self._base_url = base_url.rstrip("/")
        self._timeout_s = timeout_s
        self._max_answer_bytes = max_answer_bytes
        self._secrets = tuple(secrets)
        self._headers = dict(headers)
        self._slots = asyncio.Semaphore(CONNECTIONS)
        self._free: list[httpx.AsyncClient] = []
        self._all: set[httpx.AsyncClient] = set()

    @asynccontextmanager
    async def _client(self) -> AsyncIterator[httpx.AsyncClient]:
        """The client last used, so that few connections stay warm; a new one where all are in use.

        Each has a single connection: httpx's own pool looks at every connection for every other one on each request,
        which at 25 connections costs more than the request itself. One whose call failed is not used again.
        """
        client = self._free.pop() if self._free else self._new_client()
        try:
            yield client
        except BaseException:
            self._all.discard(client)
            await client.aclose()
            raise
        self._free.append(client)

    def _new_client(self) -> httpx.AsyncClient:
        client = httpx.AsyncClient(
            headers=self._headers,
            verify=_tls(),
            timeout=None,  # noqa: S113 - asyncio.timeout limits the whole call; httpx could only limit each read
            limits=httpx.Limits(max_connections=1, max_keepalive_connections=1, keepalive_expiry=KEEPALIVE_S),
            # Loopback is never asked of a proxy that the environment names.
            mounts={"all://127.0.0.1": None, "all://localhost": None, "all://[::1]": None},
            follow_redirects=False,
        )
        self._all.add(client)
        return client

    def redacted(self, message: str) -> str:
        return redacted(message, self._secrets)

    async def call(
        self,
        method: str,
        path: str,
        *,
        creating: bool = False,
        params: Mapping[str, str] | None = None,
        content: bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        """One request and its answer, whatever its status. Raises Fault where there is none; with `creating`, its
        `landed` says whether the request had begun to leave us."""
        sent = False

        async def trace(event: str, _: Mapping[str, Any]) -> None:
            nonlocal sent
            sent = sent or event.endswith("send_request_headers.started")

        try:
            async with asyncio.timeout(self._timeout_s), self._slots, self._client() as client:
                request = client.build_request(
                    method,
                    self._base_url + path,
                    params=params,
                    content=content,
                    headers={**(headers or {}), **({} if content is None else {"content-type": "application/json"})},
                    extensions={"trace": trace},
                )
                response = await client.send(request, stream=True)
                try:
                    return Answer(response.status_code, response.headers, await self._content(response, creating))
                finally:
                    await response.aclose()
        except TimeoutError:
            raise self._lost(
                creating and sent,
                "destination-timeout" if sent else "destination-unreachable",
                f"no answer within {self._timeout_s:g} s",
            ) from None
        except httpx.DecodingError:
            raise self._lost(creating, "answer-malformed", "the answer's content encoding is broken") from None
        except (httpx.InvalidURL, httpx.UnsupportedProtocol, httpx.LocalProtocolError, UnicodeError) as error:
            # Refused by the HTTP library before anything left us. Its words may quote a header: only its name is shown.
            raise Fault("settings-refused", f"base_url or headers: refused ({type(error).__name__})") from None
        except httpx.HTTPError as error:
            words = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
            raise self._lost(creating and sent, "destination-unreachable", words) from None

    async def _content(self, response: httpx.Response, creating: bool) -> bytes:
        content = bytearray()
        async for chunk in response.aiter_bytes():
            content += chunk
            if len(content) > self._max_answer_bytes:
                words = f"the answer is longer than {self._max_answer_bytes} bytes"
                raise self._lost(creating, "answer-malformed", words)
        return bytes(content)

    def _lost(self, landed: bool, reason: str, words: str) -> Fault:
        """The fault of a call whose answer did not come: for a create that had left us, always `answer-lost`."""
        return Fault("answer-lost" if landed else reason, self.redacted(words), landed=landed)

    async def aclose(self) -> None:
        for client in self._all:
            await client.aclose()


class GenericDestination:
    """One account at a host of the common shape. See `destinations.base.Destination` for what each method promises.

    `clock` gives seconds since 1970.
    """

    def __init__(self, account: AccountSettings, *, clock: Callable[[], float] = time.time) -> None:
        """Raises Fault("settings-refused") naming the wrong option; makes no connection."""
        self._options = options = Options.of(account)
        self._clock = clock
        token = account.token.get_secret_value()
        self._signers = _signers(account)
        self._caller = Caller(
            account.base_url,
            headers={**options.headers, options.auth_header: _credentials(token, options.auth_scheme)},
            timeout_s=account.timeout_s,
            max_answer_bytes=options.max_answer_bytes,
            secrets=(token, *(secret.get_secret_value() for secret in account.webhook_secrets)),
        )
        self.capabilities = Capabilities(
            lookup=options.lookup,
            idempotent_create=options.idempotency_header is not None,
            event_carries_ref=True,
            list_limit=options.list_limit,
            ref_max=options.ref_max,
            title_max=options.title_max,
            duration_min_ms=options.duration_min_ms,
            duration_max_ms=options.duration_max_ms,
            size_max=options.size_max,
        )

    async def aclose(self) -> None:
        await self._caller.aclose()

    @staticmethod
    def check(account: AccountSettings) -> None:
        """Raises Fault("settings-refused") naming each wrong option; makes nothing."""
        options = Options.of(account)
        _credentials(account.token.get_secret_value(), options.auth_scheme)
        _signers(account)

    # -- calls

    async def create(self, request: CreateRequest) -> RemoteVideo:
        """Makes a video: one call. See the protocol for `landed`."""
        options = self._options
        if request.is_local and not options.local_files:
            raise Fault("local-file-refused", "this destination fetches http addresses; the file is a path here")
        body: dict[str, Any] = json.loads(json.dumps(options.create_extra))
        put(body, options.source_url_field, request.address)
        put(body, options.reference_field, request.ref)
        for path, value in (
            (options.title_field, request.title),
            (options.metadata_field, dict(request.metadata)),
            (options.headers_field, dict(request.headers)),
            (options.duration_hint_field, request.duration_ms),
        ):
            if path is not None and value:
                put(body, path, value)
        try:
            content = json.dumps(body, allow_nan=False).encode()
        except (ValueError, TypeError) as error:
            raise Fault("destination-refused-input", f"title or metadata cannot be put into JSON: {error}") from None
        answer = await self._caller.call(
            options.create_method,
            options.create_path,
            creating=True,
            content=content,
            headers={options.idempotency_header: request.ref} if options.idempotency_header else None,
        )
        return self._video(at(self._read(answer, creating=True), options.video_field), creating=True)

    async def lookup(self, ref: str) -> Sequence[RemoteVideo]:
        """All videos with exactly this reference: one call, or one a page where the host has no filter."""
        options = self._options
        if options.lookup == "list":
            return [video async for video in self._walk() if video.ref == ref]
        params = {options.lookup_param: ref}
        if options.list_limit_param:
            params[options.list_limit_param] = str(options.list_limit)
        items, next_cursor, _ = self._listing(
            self._read(await self._caller.call("GET", options.list_path, params=params))
        )
        found = [video for video in items if video.ref == ref]
        if not found and next_cursor is not None:
            # "There is none" must never be said of a page: a second create would follow.
            raise Fault(
                "answer-malformed", "the lookup's answer goes on after its first page, and this reference may be there"
            )
        return found

    async def _walk(self) -> AsyncIterator[RemoteVideo]:
        """Every video on the account: one call a page."""
        cursor: str | None = None
        seen: set[str] = set()
        while True:
            page = await self.list_page(cursor)
            for video in page.videos:
                yield video
            cursor = page.next_cursor
            if cursor is None:
                return
            # The part after the fingerprints is the host's own: seen twice, the walk would never end.
            place = _unpacked(cursor)[2]
            if place in seen:
                raise Fault("answer-malformed", "the list repeats: its cursor leads back to a page already read")
            seen.add(place)

    async def get(self, remote_id: str) -> RemoteVideo:
        """One video: one call; state `deleted` where the host says 404 or 410."""
        answer = await self._caller.call("GET", self._options.get_path.replace("{id}", quote(remote_id, safe="")))
        if answer.status in (404, 410):
            return RemoteVideo(remote_id, None, RemoteState.DELETED)
        return self._video(at(self._read(answer), self._options.video_field))

    async def list_page(self, cursor: str | None) -> RemotePage:
        """One page: one call. Our cursor is the host's, preceded by fingerprints of the walk's first page and of the
        one before, so that a host which repeats itself is noticed by any process that goes on with the walk."""
        options = self._options
        first = before = host_cursor = ""
        if cursor is not None:
            first, before, host_cursor = _unpacked(cursor)
        params: dict[str, str] = {}
        if options.list_limit_param:
            params[options.list_limit_param] = str(options.list_limit)
        if host_cursor:
            params[options.list_cursor_param] = host_cursor
        answer = await self._caller.call("GET", options.list_path, params=params)
        videos, next_cursor, total = self._listing(self._read(answer))
        print_ = _fingerprint(videos)
        if videos and print_ in (first, before):
            raise Fault("answer-malformed", "the list repeats: this page is the one before or the first one again")
        if next_cursor is not None and next_cursor == host_cursor:
            raise Fault("answer-malformed", "the list repeats: the next cursor is the one it was asked with")
        return RemotePage(videos, None if next_cursor is None else f"{first or print_}.{print_}.{next_cursor}", total)

    async def delete(self, remote_id: str) -> None:
        """Deletes it: one call; 404 and 410 are success."""
        answer = await self._caller.call("DELETE", self._options.delete_path.replace("{id}", quote(remote_id, safe="")))
        if answer.status in (404, 410) or (200 <= answer.status < 300 and not answer.content.strip()):
            return
        self._read(answer)

    # -- what answers mean

    def _read(self, answer: Answer, *, creating: bool = False) -> Any:
        """The JSON of a good answer. Raises Fault for every other."""
        body, readable = _json(answer.content)
        if not 200 <= answer.status < 300:
            raise self._refused(answer, body, creating)
        if not readable:
            what = "empty" if not answer.content.strip() else f"no JSON: {self._snippet(answer.content)}"
            raise self._unreadable(creating, f"status {answer.status}, and the body is {what}")
        options = self._options
        if options.success_field is not None and at(body, options.success_field) is False:
            errors = at(body, options.errors_field)
            entry = errors[0] if isinstance(errors, list) and errors else at(body, options.errors_field)
            code, message = text(at(entry, "code")), text(at(entry, "message")) or text(entry)
            code = code or text(at(body, options.call_error_code_field))
            reason = options.reasons.get(code or "", "destination-error")
            raise Fault(
                reason,
                self._caller.redacted(f"status {answer.status} with success false: {_joined(code, message)}"),
                retry_after=self._retry_after(answer),
                # A host's own error leaves it open what came before it; every other code is a refusal.
                landed=creating and reason == "destination-error",
            )
        return body

    def _refused(self, answer: Answer, body: Any, creating: bool) -> Fault:
        """The fault of a status outside 2xx. The status decides who is stopped; within a refusal of this video, the
        host's code decides the reason."""
        options = self._options
        code = text(at(body, options.call_error_code_field))
        message = text(at(body, options.call_error_message_field))
        if code is None and message is None:
            message = self._snippet(answer.content) or "empty body"
        reason = faults.of_status(answer.status, creating=creating)
        if reason == "destination-refused-input" and code is not None:
            reason = options.reasons.get(code, reason)
        landed = creating and (answer.status >= 500 or answer.status in (408, 409) or answer.status < 400)
        return Fault(
            reason,
            self._caller.redacted(f"status {answer.status}: {_joined(code, message)}"),
            retry_after=self._retry_after(answer),
            landed=landed,
        )

    def _snippet(self, content: bytes) -> str:
        """The beginning of an unreadable answer: redacted first, so that no half of a secret is left at the cut."""
        start = content[:8192].decode("utf-8", "replace").replace("\\/", "/")
        return " ".join(self._caller.redacted(start).split())[:SNIPPET]

    def _unreadable(self, creating: bool, words: str) -> Fault:
        return Fault("answer-lost" if creating else "answer-malformed", self._caller.redacted(words), landed=creating)

    def _retry_after(self, answer: Answer) -> float | None:
        now = datetime.fromtimestamp(self._clock(), UTC)
        for name in self._options.retry_after_headers:
            wait = parse_retry_after(answer.headers.get(name), now, self._options.retry_after_cap_s)
            if wait is not None:
                return wait
        return None

    def _video(self, body: Any, *, creating: bool = False) -> RemoteVideo:
        """A video out of an answer. Raises Fault where it has no id or no state."""
        options = self._options
        remote_id = text(at(body, options.id_field))
        word = text(at(body, options.state_field))
        if remote_id is None or word is None:
            missing = options.id_field if remote_id is None else options.state_field
            raise self._unreadable(creating, f"the answer is no video: it has no {missing!r}")
        return self._video_of(body, remote_id, word)

    def _video_of(self, body: Any, remote_id: str, word: str) -> RemoteVideo:
        options = self._options
        state = options.states.get(word.lower())
        code = text(at(body, options.error_code_field))
        message = text(at(body, options.error_message_field))
        reason, detail = None, ""
        if state is RemoteState.ERRORED:
            reason = options.reasons.get(code or "", options.failed_reason)
            detail = self._caller.redacted(_joined(code, message))
        elif state is None:
            # Not a fault: the id would be lost with it. Taken for processing, it is asked about until its deadline.
            state, detail = RemoteState.PROCESSING, f"the state {word[:40]!r} is not among the account's states"
        return RemoteVideo(
            remote_id=remote_id,
            ref=text(at(body, options.reference_read_field or options.reference_field)),
            state=state,
            reason=reason,
            detail=faults.truncate(detail),
            duration_ms=number(at(body, options.duration_field), 1.0 if options.duration_unit == "ms" else 1000.0),
            width=number(at(body, options.width_field)),
            height=number(at(body, options.height_field)),
            size=number(at(body, options.size_field)),
            playback=text(at(body, options.playback_field)),
            title=text(at(body, options.title_read_field or options.title_field)) if options.title_field else None,
        )

    def _listing(self, body: Any) -> tuple[list[RemoteVideo], str | None, int | None]:
        """The videos, the host's next cursor and its total. Raises Fault("answer-malformed") for what is no list."""
        options = self._options
        items = at(body, options.list_items_field)
        if not isinstance(items, list):
            where = f"nothing at {options.list_items_field!r}" if options.list_items_field else "no list"
            raise Fault("answer-malformed", f"the answer is not a list of videos: {where}")
        if options.list_next_required and not has(body, options.list_next_field):
            raise Fault(
                "answer-malformed", f"the list has no {options.list_next_field!r}: whether it goes on is unknown"
            )
        total = at(body, options.list_total_field) if options.list_total_field else None
        return (
            [self._video(item) for item in items],
            text(at(body, options.list_next_field)),
            total if isinstance(total, int) and not isinstance(total, bool) and total >= 0 else None,
        )

    # -- webhooks

    def verify(self, headers: Mapping[str, str], body: bytes) -> None:
        """Checks a Standard Webhooks signature over the raw bytes. Raises SignatureRefused."""
        options = self._options
        if options.webhooks == "none":
            raise SignatureRefused("this account takes no webhooks")
        if not self._signers:
            raise SignatureRefused("no webhook secret is set for this account")
        given = {name.lower(): value for name, value in headers.items()}
        prefix = options.webhook_header_prefix.lower()
        message_id, stamp, signatures = (given.get(prefix + name, "") for name in ("id", "timestamp", "signature"))
        if not message_id or not stamp or not signatures:
            raise SignatureRefused("a signature header is missing")
        # Digits alone: the signature covers the text of the timestamp, so 1e9 or 1.0 would be another text.
        if not (stamp.isascii() and stamp.isdigit() and len(stamp) <= 12):
            raise SignatureRefused("the timestamp is not a number of seconds")
        if abs(int(self._clock()) - int(stamp)) > options.webhook_tolerance_s:
            raise SignatureRefused("the timestamp is too far from now")
        try:
            signed = body.decode("utf-8")
        except UnicodeDecodeError:
            raise SignatureRefused("the body is not UTF-8") from None
        moment = datetime.fromtimestamp(int(stamp), UTC)
        # The package signs; comparing is done here, because its own verify() stops at the first malformed signature and
        # has a fixed tolerance. All are compared, so that the time taken doesn't tell which secret matched.
        expected = [signer.sign(message_id, moment, signed).encode() for signer in self._signers]
        offered = [signature.encode("utf-8", "replace") for signature in signatures.split()[:32]]
        if not sum(hmac.compare_digest(mine, theirs) for mine in expected for theirs in offered):
            raise SignatureRefused("no signature matches")

    def parse_event(self, headers: Mapping[str, str], body: bytes) -> RemoteEvent:
        """The event in a verified delivery. Raises Fault("answer-malformed")."""
        options = self._options
        event, readable = _json(body)
        if not readable or not isinstance(event, Mapping):
            raise Fault("answer-malformed", "the delivery's body is not a JSON object")
        kind = text(at(event, options.event_type_field)) or ""
        data = at(event, options.event_video_field)
        given = {name.lower(): value for name, value in headers.items()}
        remote_id = text(at(data, options.id_field))
        word = text(at(data, options.state_field))
        video = None
        stated = options.event_states.get(kind)
        if remote_id is not None and stated is not None:
            word = next((word for word, state in options.states.items() if state is stated), stated.value)
        if remote_id is not None and word is not None and (stated or word.lower() in options.states):
            video = self._video_of(data, remote_id, word)
        key = given.get(f"{options.webhook_header_prefix.lower()}id") or (
            f"{video.remote_id}:{video.state}" if video else hashlib.sha256(body).hexdigest()
        )
        return RemoteEvent(dedupe_key=key, video=video, kind=kind)


def _credentials(token: str, scheme: str) -> str:
    """The value of the authorization header. Raises Fault("settings-refused") for a token that fits none."""
    if not token or not token.isascii() or not token.isprintable() or token != token.strip():
        raise Fault("settings-refused", "token: must be printable ASCII, not empty, without blanks around it")
    if scheme.lower() == "basic":
        token = base64.b64encode(token.encode()).decode()
    return f"{scheme} {token}" if scheme else token


def _signers(account: AccountSettings) -> tuple[Webhook, ...]:
    """What makes the signatures that a delivery is compared with. Raises Fault("settings-refused")."""
    signers = []
    for place, secret in enumerate(account.webhook_secrets, 1):
        encoded = secret.get_secret_value().strip().removeprefix("whsec_").rstrip("=")
        try:
            key = base64.b64decode(encoded + "=" * (-len(encoded) % 4), validate=True)
        except ValueError:
            key = b""
        if not key:
            raise Fault(
                "settings-refused",
                f"webhook_secrets: number {place} is not whsec_ and Base64; set the one that the provider shows",
            )
        signers.append(Webhook(key))
    return tuple(signers)


def _json(content: bytes) -> tuple[Any, bool]:
    """The parsed body, and whether it could be parsed."""
    try:
        return json.loads(content), True
    except (ValueError, RecursionError):
        return None, False


def _joined(code: str | None, message: str | None) -> str:
    return ": ".join(part for part in (code, message) if part) or "no words"


def _fingerprint(videos: Sequence[RemoteVideo]) -> str:
    """Twelve hexadecimal digits that tell pages apart by the ids on them."""
    return hashlib.sha256("\n".join(video.remote_id for video in videos).encode("utf-8", "replace")).hexdigest()[:12]


def _unpacked(cursor: str) -> tuple[str, str, str]:
    parts = cursor.split(".", 2)
    if len(parts) != 3:
        raise Fault("answer-malformed", "the cursor is none of this destination's")
    return parts[0], parts[1], parts[2]
