"""Any hosted video API of the common shape: JSON over HTTP, one create per video, a state word, a cursor list.

Every path and name is an option of the account; the defaults are those of our own sandbox (docs/sandbox.md).
"""

from __future__ import annotations

import base64
import hashlib
import json
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Annotated, Any, Final, Literal
from urllib.parse import quote

from pydantic import Field, StringConstraints, field_validator
from standardwebhooks import Webhook

import faults
from destinations import signatures
from destinations.answers import (
    FieldPath,
    at,
    denied,
    following,
    has,
    is_id,
    joined,
    number,
    parsed,
    put,
    text,
)
from destinations.base import (
    Attachment,
    Capabilities,
    CreateRequest,
    Keep,
    RemoteEvent,
    RemoteState,
    RemoteVideo,
    SignatureRefused,
    Transfer,
    Turn,
)
from destinations.host import Host, HostOptions, basic, credential
from destinations.sending import LocalFile, SessionGone
from destinations.tus import Tus, may_be_kept
from faults import Fault
from settings import AccountSettings

Path = Annotated[str, StringConstraints(pattern=r"^/[^\s]*$")]
"""A path below the account's base_url."""
ItemPath = Annotated[str, StringConstraints(pattern=r"^/[^\s]*\{id\}[^\s]*$")]
"""A path with `{id}` where the remote id goes."""
CaptionPath = Annotated[
    str, StringConstraints(pattern=r"^/[^\s]*(\{id\}[^\s]*\{language\}|\{language\}[^\s]*\{id\})[^\s]*$")
]
"""As `ItemPath`, with `{language}` where the text track's language goes."""
HeaderName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9-]+$")]


CARRIED: Final = frozenset({"description", "tags", "folder", "privacy"})
"""What `about_field` has of `sources.about.About`."""


class Options(HostOptions):
    """`[accounts.<name>.options]` of a generic account. All times in seconds, all fields named as in the JSON body."""

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

    about_field: FieldPath | None = None
    """One object with `description`, `tags`, `folder` and `privacy`, as far as they are known; None where the host has
    no place for them."""

    # -- what else is sent
    uploads: Literal["none", "tus"] = "none"
    """How local files are sent. `tus`: the fields of a create are names in `Upload-Metadata`, JSON where not text."""
    uploads_path: Path = "/v1/uploads"
    uploads_id_header: HeaderName = "Video-Id"
    """Header of the answer to an upload's announcement that has the video's id."""
    uploads_chunk_bytes: int = Field(default=52_428_800, ge=1_024)
    """What is sent with one request: each costs one of the account's budget, and a break loses no more than one."""
    captions_path: CaptionPath | None = None
    """Where a text track is put as WebVTT; None where the host takes none. The same for `poster_path`."""
    poster_path: ItemPath | None = None

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
    awaiting_states: tuple[str, ...] = ("uploading",)
    """Words for a video that was announced and whose bytes have not all come."""
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

    @field_validator("awaiting_states")
    @classmethod
    def _words_without_case(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(word.lower() for word in value)

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


class GenericDestination(Host):
    """One account at a host of the common shape. See `destinations.base.Destination` for what each method promises.

    `clock` gives seconds since 1970.
    """

    def __init__(self, account: AccountSettings, *, clock: Callable[[], float] = time.time) -> None:
        """Raises Fault("settings-refused") naming the wrong option; makes no connection."""
        self._account = account
        self._options = options = Options.of(account)
        token = account.token.get_secret_value()
        self._signers = _signers(account)
        super().__init__(
            account,
            headers={**options.headers, options.auth_header: _credentials(token, options.auth_scheme)},
            clock=clock,
            max_answer_bytes=options.max_answer_bytes,
        )
        self.list_path = options.list_path
        self.item_path = options.get_path
        self.reasons = options.reasons
        self.retry_after_headers = options.retry_after_headers
        self.retry_after_cap_s = options.retry_after_cap_s
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
            fetches_local_paths=options.local_files,
            fetches_with_headers=options.headers_field is not None,
            uploads=options.uploads == "tus",
            carries=frozenset() if options.about_field is None else CARRIED,
            captions=None if options.captions_path is None else "bytes",
            poster=None if options.poster_path is None else "bytes",
        )

    @staticmethod
    def check_options(account: AccountSettings) -> None:
        """Raises Fault("settings-refused") naming each wrong option; makes nothing."""
        options = Options.of(account)
        _credentials(account.token.get_secret_value(), options.auth_scheme)
        _signers(account)

    # -- calls

    async def create(self, request: CreateRequest) -> RemoteVideo:
        """Makes a video: one call. See the protocol for `landed`."""
        options = self._options
        self._demand_address(request)
        body: dict[str, Any] = json.loads(json.dumps(options.create_extra))
        put(body, options.source_url_field, request.address)
        told = [*self._told(request), (options.headers_field, dict(request.headers))]
        for path, value in told:
            if path is not None and value:
                put(body, path, value)
        answer = await self._ask(
            options.create_method,
            options.create_path,
            creating=True,
            body=body,
            headers={options.idempotency_header: request.ref} if options.idempotency_header else None,
        )
        return self._video(self.body_of(answer), creating=True)

    def _told(self, request: CreateRequest) -> Sequence[tuple[str | None, Any]]:
        """What a create and an upload say of a video: where it goes, and what it is."""
        options = self._options
        return (
            (options.reference_field, request.ref),
            (options.title_field, request.title),
            (options.metadata_field, dict(request.metadata)),
            (options.duration_hint_field, request.duration_ms),
            (options.about_field, request.about.model_dump(mode="json", include=set(CARRIED), exclude_defaults=True)),
        )

    async def upload(self, request: CreateRequest, begun: Transfer | None, *, keep: Keep, turn: Turn) -> RemoteVideo:
        """By tus: one request to announce, one a chunk; one or two more where an earlier attempt is gone on with."""
        file = await LocalFile.of(request)
        named = {} if begun is None else file.begun(begun)
        video_id, location, start = named.get("video", ""), named.get("location", ""), None
        tus = Tus(self._caller, self.address_of(self._account), self._account.timeout_s, self._refused, turn)
        if video_id and not location:
            # Its address could not be kept. What was announced and never came is given up for a new one.
            if (found := await self._with_bytes(video_id, turn)) is not None:
                return found
            await turn()
            await self.delete(video_id)
            video_id = ""
        if not video_id:
            told = {name: _as_text(value) for name, value in self._told(request) if name is not None and value}
            location, answer = await tus.create(self._options.uploads_path, file.size, told)
            video_id, start = answer.headers.get(self._options.uploads_id_header.lower(), ""), 0
            if not video_id:
                raise Fault("answer-lost", "the upload was announced, and the answer has no id", landed=True)
        place = file.place(video=video_id, **({"location": location} if may_be_kept(location) else {}))

        async def sent(offset: int) -> None:
            await keep(Transfer(place, offset))

        if start == 0:
            await sent(0)
        try:
            await tus.send(location, file, self._options.uploads_chunk_bytes, sent, start=start)
        except SessionGone:
            if (found := await self._with_bytes(video_id, turn)) is not None:
                return found  # it had come whole, and only the answer was lost
            if start == 0:
                raise
            return await self.upload(request, None, keep=keep, turn=turn)
        return RemoteVideo(video_id, request.ref, RemoteState.PROCESSING, title=request.title)

    async def _with_bytes(self, remote_id: str, turn: Turn) -> RemoteVideo | None:
        """The video, if its bytes have come: one call."""
        await turn()
        found = await self.get(remote_id)
        return None if found.awaits_bytes or found.state is RemoteState.DELETED else found

    async def attach(self, remote_id: str, attachment: Attachment, *, turn: Turn) -> None:
        """Puts a WebVTT track or a picture on a video, in place of the one that is there: one call."""
        options, content = self._options, attachment.content
        path = options.poster_path if attachment.kind == "poster" else options.captions_path
        if path is None or content is None:
            raise Fault("destination-refused-input", f"this destination takes no {attachment.kind}")
        path = path.replace("{id}", quote(remote_id, safe="")).replace("{language}", attachment.language)
        media_type = "text/vtt" if attachment.kind != "poster" else f"image/{attachment.format}"
        await turn()
        answer = await self._caller.call("PUT", path, content=content, headers={"content-type": media_type})
        body, readable = parsed(answer.content)
        if answer.status in (404, 410):
            # No later try can help: there is no such video any more, or no such place.
            raise Fault("destination-refused-input", self._refused(answer, body, False).detail)
        if not 200 <= answer.status < 300 or readable:
            self._read(answer)

    async def lookup(self, ref: str, *, turn: Turn | None = None) -> Sequence[RemoteVideo]:
        """All videos with exactly this reference: one call, or one a page where the host has no filter."""
        options = self._options
        if options.lookup == "list":
            return await super().lookup(ref, turn=turn)
        params = {**self.list_params(""), options.lookup_param: ref}
        items, next_cursor, _ = self._listing(await self._ask("GET", options.list_path, params=params), "")
        found = list({video.remote_id: video for video in items if video.ref == ref}.values())
        if not found and next_cursor is not None:
            # "There is none" must never be said of a page: a second create would follow.
            raise Fault(
                "answer-malformed", "the lookup's answer goes on after its first page, and this reference may be there"
            )
        return found

    async def delete(self, remote_id: str) -> None:
        """Deletes it: one call; 404 and 410 are success."""
        await self._delete(self._options.delete_path, remote_id)

    # -- how bodies are read

    def list_params(self, cursor: str) -> Mapping[str, str]:
        options = self._options
        params = {options.list_limit_param: str(options.list_limit)} if options.list_limit_param else {}
        return {**params, options.list_cursor_param: cursor} if cursor else params

    def body_of(self, answer: Any) -> Any:
        return at(answer, self._options.video_field)

    def error_of(self, body: Any) -> tuple[str | None, str | None]:
        options = self._options
        return text(at(body, options.call_error_code_field)), text(at(body, options.call_error_message_field))

    def failure_of(self, body: Any) -> tuple[str | None, str | None] | None:
        options = self._options
        if options.success_field is None or not denied(at(body, options.success_field)):
            return None
        errors = at(body, options.errors_field)
        entry = errors[0] if isinstance(errors, list) and errors else errors
        code, message = text(at(entry, "code")), text(at(entry, "message")) or text(entry)
        return code or text(at(body, options.call_error_code_field)), message

    def video_of(self, body: Any) -> RemoteVideo | None:
        options = self._options
        remote_id, word = text(at(body, options.id_field)), text(at(body, options.state_field))
        return None if remote_id is None or word is None else self._video_in(body, remote_id, word)

    def _video_in(self, body: Any, remote_id: str, word: str) -> RemoteVideo:
        options = self._options
        state = options.states.get(word.strip().lower())
        code = text(at(body, options.error_code_field))
        message = text(at(body, options.error_message_field))
        awaits = word.strip().lower() in options.awaiting_states
        reason, detail = None, ""
        if state is RemoteState.ERRORED:
            reason = options.reasons.get(code or "", options.failed_reason)
            detail = self._caller.redacted(joined(code, message))
        elif awaits:
            state = RemoteState.PROCESSING
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
            awaits_bytes=awaits,
        )

    def listing_of(self, answer: Any, cursor: str) -> tuple[Sequence[Any], str | None, int | None]:
        options = self._options
        items = at(answer, options.list_items_field)
        if not isinstance(items, list):
            where = f"nothing at {options.list_items_field!r}" if options.list_items_field else "no list"
            raise Fault("answer-malformed", f"the answer is not a list of videos: {where}")
        if options.list_next_required and not has(answer, options.list_next_field):
            raise Fault(
                "answer-malformed", f"the list has no {options.list_next_field!r}: whether it goes on is unknown"
            )
        total = at(answer, options.list_total_field) if options.list_total_field else None
        whole = isinstance(total, int) and not isinstance(total, bool) and total >= 0
        return items, following(at(answer, options.list_next_field)), total if whole else None

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
        message_id, stamp, offered = (given.get(prefix + name, "") for name in ("id", "timestamp", "signature"))
        if not message_id or not stamp or not offered:
            raise SignatureRefused("a signature header is missing")
        signatures.fresh(stamp, now=self._clock(), tolerance_s=options.webhook_tolerance_s)
        try:
            signed = body.decode("utf-8")
        except UnicodeDecodeError:
            raise SignatureRefused("the body is not UTF-8") from None
        moment = datetime.fromtimestamp(int(stamp), UTC)
        # The package signs; comparing is done here, because its own verify() stops at the first malformed signature and
        # has a fixed tolerance.
        signatures.matching([signer.sign(message_id, moment, signed) for signer in self._signers], offered.split())

    def parse_event(self, headers: Mapping[str, str], body: bytes) -> RemoteEvent:
        """The event in a verified delivery. Raises Fault("answer-malformed")."""
        options = self._options
        event, readable = parsed(body)
        if not readable or not isinstance(event, Mapping):
            raise Fault("answer-malformed", "the delivery's body is not a JSON object")
        kind = text(at(event, options.event_type_field)) or ""
        data = at(event, options.event_video_field)
        given = {name.lower(): value for name, value in headers.items()}
        remote_id = text(at(data, options.id_field))
        remote_id = remote_id if remote_id is not None and is_id(remote_id) else None
        word = text(at(data, options.state_field))
        video = None
        stated = options.event_states.get(kind)
        if remote_id is not None and stated is not None:
            word = next((word for word, state in options.states.items() if state is stated), stated.value)
        if remote_id is not None and word is not None and (stated or word.strip().lower() in options.states):
            video = self._video_in(data, remote_id, word)
        key = given.get(f"{options.webhook_header_prefix.lower()}id") or (
            f"{video.remote_id}:{video.state}" if video else hashlib.sha256(body).hexdigest()
        )
        return RemoteEvent(dedupe_key=key, video=video, kind=kind)


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _credentials(token: str, scheme: str) -> str:
    """The value of the authorization header. Raises Fault("settings-refused") for a token that fits none."""
    credential(token)
    if scheme.lower() == "basic":
        token = basic(token)
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
