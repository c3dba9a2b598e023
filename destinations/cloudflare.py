"""Cloudflare Stream: https://developers.cloudflare.com/stream.

The reference is the video's `creator` (or, by option, its name), which the list filters by exactly, and stands in its
`meta` as well. The list has no cursor: it is walked by the moment of creation.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Any, Final, Literal

from pydantic import Field

import faults
from destinations import signatures
from destinations.answers import at, denied, joined, number, parsed, text
from destinations.base import (
    Attachment,
    Capabilities,
    CreateRequest,
    Finding,
    Keep,
    RemoteEvent,
    RemoteState,
    RemoteVideo,
    Transfer,
    Turn,
)
from destinations.calling import Answer
from destinations.forms import Form
from destinations.host import Host, HostOptions, credential
from destinations.sending import LocalFile, SessionGone
from destinations.tus import Tus, may_be_kept
from faults import Fault
from settings import AccountSettings, LimitSettings

META_REF: Final = "longhaul-ref"
"""Key in `meta` under which our reference stands too."""
CAPTIONS_MAX: Final = 10_000_000
"""Bytes of one WebVTT file (10 MB)."""
IN_FLIGHT: Final = 120
"""Videos that may be queued or encoding at once; above, creates are answered 429."""
LIMITS: Final = (LimitSettings(name="api", requests=1200, per_s=300),)
"""Of the user, over all of Cloudflare's API: going over it blocks the production app's calls too, for five minutes."""
TOKENS_PAGE: Final = "dash.cloudflare.com/profile/api-tokens"

_STATES: Final = MappingProxyType(
    {
        "pendingupload": RemoteState.PROCESSING,
        "downloading": RemoteState.PROCESSING,
        "queued": RemoteState.PROCESSING,
        "inprogress": RemoteState.PROCESSING,
        "live-inprogress": RemoteState.PROCESSING,
        "ready": RemoteState.READY,
        "error": RemoteState.ERRORED,
    }
)
_CREATED: Final = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,9})\d*)?(?:Z|[+-]00:00)", re.ASCII)


class Options(HostOptions):
    """`[accounts.<name>.options]` of a Cloudflare Stream account."""

    account_id: str = Field(pattern=r"^[0-9A-Za-z_-]{1,64}$")
    """Of the Cloudflare account, as the dashboard's addresses have it."""
    reference_in: Literal["creator", "name"] = "creator"
    """Where the reference goes: `creator` (at most 64 characters), or `name`, for libraries whose creator says whose a
    video is; the title is then in the video's meta as `title`."""
    list_limit: int = Field(default=1000, ge=2, le=1000)
    """Videos per page of the list."""
    chunk_bytes: int = Field(default=52_428_800, ge=5_242_880, le=209_715_200, multiple_of=262_144)
    """Bytes of one part of an upload: what Cloudflare recommends for reliable connections."""


class CloudflareDestination(Host):
    """One account at Cloudflare Stream. See `destinations.base.Destination` for what each method promises."""

    default_base_url = "https://api.cloudflare.com/client/v4"
    default_limits = LIMITS
    reasons = MappingProxyType(
        {
            # of videos that failed
            "ERR_NON_VIDEO": "not-a-video",
            "ERR_MALFORMED_VIDEO": "file-corrupt",
            "ERR_DURATION_TOO_SHORT": "too-short",
            "ERR_DURATION_EXCEED_CONSTRAINT": "too-long",
            "ERR_FETCH_ORIGIN_ERROR": "fetch-failed",
            "ERR_UNKNOWN": "destination-error",
            # of calls. UNVERIFIED numbers: seen in answers that people quote, not in one list of the vendor's.
            "6003": "credentials-refused",
            "6111": "credentials-refused",
            "9106": "credentials-refused",
            "10000": "credentials-refused",
            "10001": "credentials-refused",
            "10011": "plan-limit",
            "971": "rate-limited",
        }
    )

    def __init__(self, account: AccountSettings, *, clock: Callable[[], float] = time.time) -> None:
        """Raises Fault("settings-refused") naming the wrong option; makes no connection."""
        self._options = options = Options.of(account)
        self._account = account
        self.chunk_bytes = options.chunk_bytes
        self._root = f"/accounts/{options.account_id}/stream"
        self.list_path = self._root
        self.item_path = self._root + "/{id}"
        super().__init__(
            account,
            headers={"Authorization": f"Bearer {credential(account.token.get_secret_value())}"},
            clock=clock,
        )
        self.capabilities = Capabilities(
            lookup="exact",
            idempotent_create=False,
            event_carries_ref=True,
            list_limit=options.list_limit,
            ref_max=64,
            duration_min_ms=100,
            size_max=30_000_000_000,
            in_flight=IN_FLIGHT,
            uploads=True,
            carries=frozenset({"description", "tags", "folder", "captions", "privacy"}),
            captions="bytes",
        )

    @staticmethod
    def check_options(account: AccountSettings) -> None:
        """Raises Fault("settings-refused") naming each wrong option; makes nothing."""
        Options.of(account)
        credential(account.token.get_secret_value())

    # -- making

    async def create(self, request: CreateRequest) -> RemoteVideo:
        """Has a video fetched: one call. The address must answer HEAD and ranged GET."""
        self._demand_address(request)
        body = {
            "input": request.address,
            "meta": self._meta(request),
            "creator": request.ref if self._options.reference_in == "creator" else None,
            "requireSignedURLs": _is_closed(request),
        }
        answer = await self._ask(
            "POST",
            self._root + "/copy",
            creating=True,
            body={name: value for name, value in body.items() if value is not None},
        )
        return self._video(self.body_of(answer), creating=True)

    def _meta(self, request: CreateRequest) -> dict[str, str]:
        """Names and texts, as every way of making a video takes them."""
        by_name = self._options.reference_in == "name"
        about = request.about
        told = {
            **{name: value for name, value in request.metadata.items() if isinstance(value, str)},
            "name": request.ref if by_name else request.title,
            "title": request.title if by_name else "",
            "description": about.description or "",
            "tags": ", ".join(about.tags),
            "folder": about.folder or "",
            META_REF: request.ref,
        }
        return {name: value for name, value in told.items() if value}

    async def upload(self, request: CreateRequest, begun: Transfer | None, *, keep: Keep, turn: Turn) -> RemoteVideo:
        """By tus: one request to announce, one a chunk, one for what tus has no place for; one or two more where an
        earlier attempt is gone on with."""
        file = await LocalFile.of(request)
        named = {} if begun is None else file.begun(begun)
        video_id, location, start = named.get("video", ""), named.get("location", ""), None
        tus = Tus(self._caller, self.address_of(self._account), self._account.timeout_s, self._refused, turn)
        if video_id and not location:
            # Its address could not be kept. What was announced and never came is given up for a new one.
            if (found := await self._with_bytes(video_id, turn)) is not None:
                return await self._described(request, found, turn)
            await turn()
            await self.delete(video_id)
            video_id = ""
        if not video_id:
            location, answer = await tus.create(
                self._root,
                file.size,
                {
                    "name": self._meta(request)["name"],
                    **({"requiresignedurls": None} if _is_closed(request) else {}),
                },
                {"Upload-Creator": request.ref} if self._options.reference_in == "creator" else {},
            )
            video_id, start = answer.headers.get("stream-media-id", ""), 0
            if not video_id:
                raise Fault("answer-lost", "the upload was announced, and the answer has no id", landed=True)
        place = file.place(video=video_id, **({"location": location} if may_be_kept(location) else {}))

        async def sent(offset: int) -> None:
            await keep(Transfer(place, offset))

        if start == 0:
            await sent(0)
        try:
            await tus.send(location, file, self.chunk_bytes, sent, start=start)
        except SessionGone:
            if (found := await self._with_bytes(video_id, turn)) is not None:
                # It had come whole, and only the answer was lost.
                return await self._described(request, found, turn)
            if start == 0:
                raise
            return await self.upload(request, None, keep=keep, turn=turn)
        made = RemoteVideo(video_id, request.ref, RemoteState.PROCESSING, title=request.title)
        return await self._described(request, made, turn)

    async def _described(self, request: CreateRequest, video: RemoteVideo, turn: Turn) -> RemoteVideo:
        """Sets what an upload's header has no documented place for, and no room: one call where there is any."""
        meta = self._meta(request)
        if meta.keys() - {"name", META_REF}:
            await turn()
            await self._ask("POST", self._item(video.remote_id), body={"meta": meta})
        return video

    async def _with_bytes(self, remote_id: str, turn: Turn) -> RemoteVideo | None:
        """The video, if its bytes have come: one call."""
        await turn()
        found = await self.get(remote_id)
        return None if found.awaits_bytes or found.state is RemoteState.DELETED else found

    async def attach(self, remote_id: str, attachment: Attachment, *, turn: Turn) -> None:
        """Puts a WebVTT track on a video, in place of one of the same language: one call."""
        content = attachment.content
        if attachment.kind == "poster" or content is None:
            raise Fault("destination-refused-input", "Cloudflare Stream takes text tracks alone, and their bytes")
        if len(content) > CAPTIONS_MAX:
            raise Fault("destination-refused-input", f"the track has {len(content)} bytes; 10 MB are taken")
        form = Form.of(f"{attachment.language}.vtt", "text/vtt")
        await turn()
        answer = await self._caller.call(
            "PUT",
            f"{self._item(remote_id)}/captions/{attachment.language}",
            content=form.around(content),
            headers={"content-type": form.content_type},
        )
        self._read(answer)

    # -- finding

    async def lookup(self, ref: str, *, turn: Turn | None = None) -> Sequence[RemoteVideo]:
        """All videos with exactly this reference: one call."""
        by = "creator" if self._options.reference_in == "creator" else "video_name"
        answer = await self._ask("GET", self._root, params={by: ref, "limit": "1000"})
        items = at(answer, "result")
        if not isinstance(items, list):
            raise Fault("answer-malformed", "the answer is not a list of videos: nothing at 'result'")
        found = [video for video in map(self._video, items) if video.ref == ref]
        if not found and len(items) >= 1000:
            # "There is none" must never be said of a page: a second create would follow.
            raise Fault("answer-malformed", "the lookup's answer is a full page of other videos: it was not filtered")
        return found

    def list_params(self, cursor: str) -> Mapping[str, str]:
        params = {"asc": "true", "limit": str(self._options.list_limit), "include_counts": "true"}
        # From a whole second before the last video on: whether "start" includes its moment is not documented, several
        # videos can have one moment, and a host that cuts fractions off must lose none. What comes twice is left out.
        return {**params, "start": _second_before(_Place.of(cursor).moment)} if cursor else params

    def listing_of(self, answer: Any, cursor: str) -> tuple[Sequence[Any], str | None, int | None]:
        items = at(answer, "result")
        if not isinstance(items, list):
            raise Fault("answer-malformed", "the answer is not a list of videos: nothing at 'result'")
        place = _Place.of(cursor)
        moments = [_moment(at(item, "created")) for item in items]
        if moments != sorted(moments):
            raise Fault("answer-malformed", "the list is not in the order of creation that it was asked for")
        new = [
            (moment, item)
            for moment, item in zip(moments, items, strict=True)
            if moment > place.moment or (moment == place.moment and text(at(item, "uid")) not in place.ids)
        ]
        here = [item for _, item in new]
        total = _whole(at(answer, "total"))
        told = None if cursor else total
        if len(items) < self._options.list_limit and (total is None or total <= len(items)):
            return here, None, told
        if new:
            last = new[-1][0]
            ids = {str(at(item, "uid")) for moment, item in new if moment == last}
            ids |= place.ids if last == place.moment else frozenset()
            return here, _Place(place.seen + len(new), last, frozenset(ids)).cursor, told
        # Whether "total" counts from "start" on or everything is documented in two ways: by either this may be the end.
        if total is None or (total > len(items) and total > place.seen):
            raise Fault(
                "answer-malformed", f"the list repeats: nothing new from {place.moment} on, and it says there is more"
            )
        return [], None, None

    # -- how bodies are read

    def body_of(self, answer: Any) -> Any:
        return at(answer, "result")

    def error_of(self, body: Any) -> tuple[str | None, str | None]:
        return text(at(body, "errors.0.code")), text(at(body, "errors.0.message"))

    def failure_of(self, body: Any) -> tuple[str | None, str | None] | None:
        return self.error_of(body) if denied(at(body, "success")) else None

    def video_of(self, body: Any) -> RemoteVideo | None:
        remote_id, word = text(at(body, "uid")), text(at(body, "status.state"))
        if remote_id is None or word is None:
            return None
        state = _STATES.get(word.lower())
        # Both spellings are documented.
        code = text(at(body, "status.errorReasonCode")) or text(at(body, "status.errReasonCode"))
        words = text(at(body, "status.errorReasonText")) or text(at(body, "status.errReasonText"))
        reason, detail = None, ""
        if state is RemoteState.ERRORED:
            # Unlisted codes are tried again a few times, as ERR_UNKNOWN.
            reason, detail = self.reasons.get(code or "", "destination-error"), joined(code, words)
        elif state is None:
            state, detail = RemoteState.PROCESSING, f"the state {word[:40]!r} is not a documented one"
        by_name = self._options.reference_in == "name"
        return RemoteVideo(
            remote_id=remote_id,
            ref=text(at(body, f"meta.{META_REF}")) or text(at(body, "meta.name" if by_name else "creator")),
            state=state,
            reason=reason,
            detail=faults.truncate(self._caller.redacted(detail)),
            duration_ms=number(at(body, "duration"), 1000.0),
            width=number(at(body, "input.width")),
            height=number(at(body, "input.height")),
            size=number(at(body, "size")),
            playback=text(at(body, "playback.hls")),
            title=text(at(body, "meta.title" if by_name else "meta.name")),
            awaits_bytes=word == "pendingupload",
        )

    # -- webhooks

    def verify(self, headers: Mapping[str, str], body: bytes) -> None:
        """Checks `Webhook-Signature: time=…,sig1=…` over the raw bytes. Raises SignatureRefused."""
        secrets = [secret.get_secret_value().encode() for secret in self._account.webhook_secrets]
        header = headers.get("webhook-signature")
        signatures.stamped(header, body, secrets, now=self._clock(), stamp="time", signature="sig1")

    def parse_event(self, headers: Mapping[str, str], body: bytes) -> RemoteEvent:
        """The bare video that a delivery is. Raises Fault("answer-malformed")."""
        event, readable = parsed(body)
        if not readable or not isinstance(event, Mapping):
            raise Fault("answer-malformed", "the delivery's body is not a JSON object")
        video = self.video_of(event)
        # There is no id of the event: one state of a video is one event.
        key = f"{video.remote_id}:{video.state}" if video else hashlib.sha256(body).hexdigest()
        return RemoteEvent(dedupe_key=key, video=video, kind=text(at(event, "status.state")) or "")

    # -- before a run

    async def check(self) -> Sequence[Finding]:
        """Whether the token is good, may read, and where deliveries go: three calls, a fourth for tokens of an account.
        Creates nothing."""
        token = await self._caller.call("GET", "/user/tokens/verify")
        if not 200 <= token.status < 300:  # a token of the account, not of a user, is only known there
            token = await self._caller.call("GET", f"/accounts/{self._options.account_id}/tokens/verify")
        state = text(at(self._read(token), "result.status"))
        words = (
            f"the token is {state}" if state == "active" else f"the token is {state}; make a new one at {TOKENS_PAGE}"
        )
        found = [Finding("credentials", state == "active", words), self._clock_finding(token)]
        listed = await self._caller.call("GET", self._root, params={"limit": "1"})
        if listed.status in (401, 403):
            right = f"the token may not read videos of this account: give it Account > Stream > Edit at {TOKENS_PAGE}"
            return [*found, Finding("right to read", False, right)]
        self._read(listed)
        return [
            *found,
            Finding("right to read", True, "the list of videos can be read"),
            Finding("right to create", None, "not known before a create: the token needs Account > Stream > Edit"),
            self._webhook_finding(await self._caller.call("GET", self._root + "/webhook")),
        ]

    def _webhook_finding(self, answer: Answer) -> Finding:
        body, _ = parsed(answer.content)
        address, secret = text(at(body, "result.notificationUrl")), text(at(body, "result.secret"))
        mine = [given.get_secret_value().strip() for given in self._account.webhook_secrets]
        if address is None:
            words = "no address is registered: PUT …/stream/webhook, as docs/destinations/cloudflare.md shows"
            return Finding("webhook", False, words)
        where = f"deliveries go to {self._caller.redacted(address)}, the account's only address"
        if not mine:
            return Finding("webhook", False, f"{where}; no webhook_secrets are set: GET …/stream/webhook shows it")
        if secret is not None and not any(hmac.compare_digest(one.encode(), secret.encode()) for one in mine):
            words = "they are signed with a secret that is not among webhook_secrets: GET …/stream/webhook shows it"
            return Finding("webhook", False, f"{where}; {words}")
        # Whether that is our endpoint, and reached, is not to be known from here.
        return Finding("webhook", True if secret is not None else None, where)


def _is_closed(request: CreateRequest) -> bool:
    """Whether only signed addresses may play it: the host has no state between that and anyone who has the id."""
    return request.about.privacy in ("private", "unlisted")


def _moment(created: Any) -> str:
    """A moment of creation in a form that sorts. Raises Fault("answer-malformed")."""
    match = _CREATED.fullmatch(created) if isinstance(created, str) else None
    if match is None:
        raise Fault("answer-malformed", "a video in the list has no moment of creation, by which the list is walked")
    return f"{match[1]}.{(match[2] or '').ljust(9, '0')}"


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a walk of the list stands: how many videos were seen, the last one's moment of creation, and the ids of
    those seen that have it too."""

    seen: int
    moment: str
    ids: frozenset[str]

    @classmethod
    def of(cls, cursor: str) -> _Place:
        seen, _, rest = cursor.partition("~")
        moment, _, ids = rest.partition("~")
        return cls(int(seen or 0), moment, frozenset(ids.split(",")))

    @property
    def cursor(self) -> str:
        return f"{self.seen}~{self.moment}~{','.join(sorted(self.ids))}"


def _second_before(moment: str) -> str:
    return f"{datetime.fromisoformat(moment[:19]) - timedelta(seconds=1):%Y-%m-%dT%H:%M:%SZ}"


def _whole(value: Any) -> int | None:
    """A number that the host gives as one or as text."""
    found = text(value)
    return int(found) if found is not None and found.isascii() and found.isdigit() else None
