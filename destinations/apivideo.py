"""api.video: https://docs.api.video.

The reference stands in the video's metadata, which the list filters by. A video has no state of its own: it is asked
for by itself, and the list doesn't tell it.
"""

from __future__ import annotations

import hashlib
import hmac
import time
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

from pydantic import Field

from destinations import signatures
from destinations.answers import at, number, parsed, text
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
from destinations.forms import Form
from destinations.host import Host, HostOptions, basic, credential
from destinations.sending import LocalFile, SessionGone, in_chunks, patience_s
from faults import Fault
from settings import AccountSettings, LimitSettings

META_REF: Final = "longhaul-ref"
"""Key of the metadata under which our reference stands."""
META_SENDING: Final = "longhaul-sending"
"""Key that a video has as long as its bytes are being sent by us."""
POSTER_MAX: Final = 8_388_608
"""Bytes of a picture (8 MiB)."""
ENCODED: Final = "video.encoding.quality.completed"
SANDBOX: Final = "sandbox.api.video"
LIMITS: Final = (
    LimitSettings(name="uploads", requests=100, per_s=60, operations=("upload",)),
    LimitSettings(name="writes", requests=200, per_s=60, operations=("create", "delete", "attach")),
    LimitSettings(name="reads", requests=500, per_s=60, operations=("list", "get", "lookup")),
)
"""Of production; the sandbox gives 40, 40 and 100."""


class Options(HostOptions):
    """`[accounts.<name>.options]` of an api.video account."""

    mp4_support: bool = True
    """Whether an MP4 is made beside the stream."""
    chunk_bytes: int = Field(default=52_428_800, ge=5_242_880, le=134_217_728)
    """Bytes of one part of an upload; the host wants 5 MiB at least in all but the last."""


class ApiVideoDestination(Host):
    """One environment at api.video. The account's token is its API key."""

    default_base_url = "https://ws.api.video"
    default_limits = LIMITS
    list_path = "/videos"
    item_path = "/videos/{id}"
    retry_after_headers = ("X-RateLimit-Retry-After", "Retry-After")
    # The last part of a problem's `type`. Videos that failed have no code.
    reasons = MappingProxyType({"too-many-requests": "rate-limited"})
    capabilities = Capabilities(
        lookup="exact",
        idempotent_create=False,
        event_carries_ref=False,
        list_limit=100,
        list_tells_state=False,
        size_max=32_212_254_720,  # 30 GiB
        uploads=True,
        carries=frozenset({"description", "tags", "folder", "captions", "poster", "privacy"}),
        captions="bytes",
        poster="bytes",
    )

    def __init__(self, account: AccountSettings, *, clock: Callable[[], float] = time.time) -> None:
        """Raises Fault("settings-refused") naming the wrong option; makes no connection."""
        self._options = Options.of(account)
        self._account = account
        self.chunk_bytes = self._options.chunk_bytes
        encoded = basic(f"{credential(account.token.get_secret_value())}:")
        super().__init__(account, headers={"Authorization": f"Basic {encoded}"}, secrets=(encoded,), clock=clock)

    @staticmethod
    def check_options(account: AccountSettings) -> None:
        """Raises Fault("settings-refused") naming each wrong option; makes nothing."""
        Options.of(account)
        credential(account.token.get_secret_value())

    # -- making

    def _body(self, request: CreateRequest, **more: str) -> dict[str, Any]:
        about = request.about
        metadata = {
            **{name: value for name, value in request.metadata.items() if isinstance(value, str) and value},
            **({"folder": about.folder} if about.folder else {}),
            META_REF: request.ref,
            **more,
        }
        body: dict[str, Any] = {
            "title": request.title,
            "public": about.privacy not in ("private", "unlisted"),
            "mp4Support": self._options.mp4_support,
            "metadata": [{"key": key, "value": value} for key, value in metadata.items()],
        }
        if about.description:
            body["description"] = about.description
        if about.tags:
            body["tags"] = list(about.tags)
        return body

    async def create(self, request: CreateRequest) -> RemoteVideo:
        """Has a video fetched: one call."""
        self._demand_address(request)
        body = {**self._body(request), "source": request.address}
        return self._video(await self._ask("POST", "/videos", creating=True, body=body), creating=True)

    async def upload(self, request: CreateRequest, begun: Transfer | None, *, keep: Keep, turn: Turn) -> RemoteVideo:
        """One call to look for what an earlier attempt announced and never kept, one to announce, one a chunk, one to
        say that it is whole; where an earlier attempt is gone on with, one to ask where it stands."""
        file = await LocalFile.of(request)
        video_id = await self._shell(request, file, turn) if begun is None else file.begun(begun)["video"]

        async def sent(offset: int) -> None:
            await keep(Transfer(file.place(video=video_id), offset))

        async def where() -> int:
            return await self._stands(video_id, file.size, turn)

        async def send(begin: int, end: int) -> int:
            await turn()
            return await self._send(video_id, file, begin, end)

        if begun is None:
            await sent(0)
        start = 0 if begun is None else None
        try:
            await in_chunks(file.size, self.chunk_bytes, where=where, send=send, sent=sent, start=start)
        except SessionGone:
            if begun is None:
                raise
            return await self.upload(request, None, keep=keep, turn=turn)
        # From now on a look-up may take it for a video. The host replaces all of the metadata.
        await turn()
        await self._ask("PATCH", self._item(video_id), body={"metadata": self._body(request)["metadata"]})
        return RemoteVideo(video_id, request.ref, RemoteState.PROCESSING, title=request.title)

    async def _shell(self, request: CreateRequest, file: LocalFile, turn: Turn) -> str:
        """A video that waits for all of its bytes: one that an attempt before left, or a new one. What has some already
        may have them of the file as it was before."""
        await turn()
        for left in await self.lookup(request.ref):
            if left.awaits_bytes and await self._stands(left.remote_id, file.size, turn) == 0:
                return left.remote_id
        await turn()
        body = self._body(request, **{META_SENDING: "yes"})
        return self._video(await self._ask("POST", "/videos", creating=True, body=body), creating=True).remote_id

    async def _stands(self, video_id: str, size: int, turn: Turn) -> int:
        """How many bytes the host has of a file of `size`: one call. Raises SessionGone where the video is gone."""
        await turn()
        answer = await self._caller.call("GET", f"{self._item(video_id)}/status")
        if answer.status in (404, 410):
            raise SessionGone("destination-error", f"the video that waited for bytes is gone: status {answer.status}")
        return _received(self._read(answer), size)

    async def _send(self, video_id: str, file: LocalFile, start: int, end: int) -> int:
        form = Form.of("video", "application/octet-stream")
        whole = {} if (start, end) == (0, file.size) else {"content-range": f"bytes {start}-{end - 1}/{file.size}"}
        answer = await self._caller.call(
            "POST",
            f"{self._item(video_id)}/source",
            content=form.around_part(file, start, end),
            headers={
                **whole,
                "content-type": form.content_type,
                "content-length": str(form.length(end - start)),
            },
            timeout_s=patience_s(self._account.timeout_s, end - start),
        )
        if answer.status == 400 and self.error_of(parsed(answer.content)[0])[0] == "video-source-already-uploaded":
            return file.size  # it had come whole, and only the answer was lost
        self._read(answer)
        return end

    async def attach(self, remote_id: str, attachment: Attachment, *, turn: Turn) -> None:
        """Puts a text track (WebVTT) or a poster on a video. A poster replaces the one before: one call. A language has
        one track, which is asked for first: two calls."""
        content = attachment.content
        if content is None:
            raise Fault("destination-refused-input", f"the {attachment.kind}'s bytes are needed")
        if attachment.kind == "poster":
            if len(content) > POSTER_MAX:
                raise Fault("destination-refused-input", f"the poster has {len(content)} bytes; 8 MiB are taken")
            kind = attachment.format or "jpeg"
            form = Form.of(f"poster.{kind}", f"image/{kind}")
            path = f"{self._item(remote_id)}/thumbnail"
        else:
            form = Form.of(f"{attachment.language}.vtt", "text/vtt")
            path = f"{self._item(remote_id)}/captions/{attachment.language}"
            await turn()
            there = await self._caller.call("GET", path)
            if there.status != 404:
                self._read(there)
                return
        await turn()
        headers = {"content-type": form.content_type}
        self._read(await self._caller.call("POST", path, content=form.around(content), headers=headers))

    # -- finding

    async def get(self, remote_id: str) -> RemoteVideo:
        """One video's status: one call, which doesn't tell its reference; state `deleted` where the host says 404."""
        answer = await self._caller.call("GET", f"{self._item(remote_id)}/status")
        if answer.status in (404, 410):
            return RemoteVideo(remote_id, None, RemoteState.DELETED)
        status = self._read(answer)
        if not isinstance(at(status, "ingest"), Mapping) and not isinstance(at(status, "encoding"), Mapping):
            raise Fault("answer-malformed", "the answer is no video's status: it has no ingest and no encoding")
        state, detail = _state(status)
        return RemoteVideo(
            remote_id,
            None,
            state,
            reason="destination-failed" if state is RemoteState.ERRORED else None,
            detail=detail,
            # Whole seconds. Its width and height are those of one rendition, not of the video.
            duration_ms=number(at(status, "encoding.metadata.duration"), 1000.0),
            size=number(at(status, "ingest.filesize")),
        )

    async def lookup(self, ref: str, *, turn: Turn | None = None) -> Sequence[RemoteVideo]:
        """All videos with exactly this reference, as processing: one call."""
        params = {**self.list_params(""), f"metadata[{META_REF}]": ref}
        items, next_cursor, _ = self._listing(await self._ask("GET", "/videos", params=params), "")
        found = [video for video in items if video.ref == ref]
        if not found and next_cursor is not None:
            # "There is none" must never be said of a page: a second create would follow.
            raise Fault("answer-malformed", "the lookup's answer goes on after its first page: it was not filtered")
        return found

    def list_params(self, cursor: str) -> Mapping[str, str]:
        # The oldest first, so that what is made during a walk comes at its end and moves nothing.
        page = {"currentPage": cursor or "1", "pageSize": str(self.capabilities.list_limit)}
        return {**page, "sortBy": "createdAt", "sortOrder": "asc"}

    def listing_of(self, answer: Any, cursor: str) -> tuple[Sequence[Any], str | None, int | None]:
        items = at(answer, "data")
        page, pages = at(answer, "pagination.currentPage"), at(answer, "pagination.pagesTotal")
        if not isinstance(items, list) or not isinstance(page, int) or not isinstance(pages, int):
            raise Fault("answer-malformed", "the answer is not a list of videos with data and pagination")
        if page != int(cursor or 1):
            raise Fault("answer-malformed", f"the list repeats: page {cursor or 1} was asked for, and {page} came")
        total = at(answer, "pagination.itemsTotal")
        return items, str(page + 1) if page < pages else None, total if isinstance(total, int) else None

    # -- how bodies are read

    def error_of(self, body: Any) -> tuple[str | None, str | None]:
        kind, title, detail = text(at(body, "type")), text(at(body, "title")), text(at(body, "detail"))
        name = text(at(body, "name"))
        words = " ".join(part for part in (title, detail, f"({name})" if name else None) if part)
        return (kind.rstrip("/").rpartition("/")[2] if kind else None), words or None

    def video_of(self, body: Any) -> RemoteVideo | None:
        remote_id = text(at(body, "videoId"))
        if remote_id is None:
            return None
        pairs = at(body, "metadata")
        metadata = {text(at(pair, "key")): at(pair, "value") for pair in pairs} if isinstance(pairs, list) else {}
        return RemoteVideo(
            remote_id=remote_id,
            ref=text(metadata.get(META_REF)),
            state=RemoteState.DELETED if at(body, "discarded") is True else RemoteState.PROCESSING,
            playback=text(at(body, "assets.hls")),
            title=text(at(body, "title")),
            awaits_bytes=META_SENDING in metadata,
        )

    # -- webhooks

    def verify(self, headers: Mapping[str, str], body: bytes) -> None:
        """Checks `X-Api-Video-Signature` over the raw bytes. Raises SignatureRefused."""
        secrets = [secret.get_secret_value().encode() for secret in self._account.webhook_secrets]
        signatures.plain_hex(headers.get("x-api-video-signature"), body, secrets)

    def parse_event(self, headers: Mapping[str, str], body: bytes) -> RemoteEvent:
        """The event in a verified delivery. Raises Fault("answer-malformed")."""
        event, readable = parsed(body)
        if not readable or not isinstance(event, Mapping):
            raise Fault("answer-malformed", "the delivery's body is not a JSON object")
        kind, remote_id = text(at(event, "type")) or "", text(at(event, "videoId"))
        if kind != ENCODED or remote_id is None or at(event, "encoding") == "mp4":
            return RemoteEvent(dedupe_key=hashlib.sha256(body).hexdigest(), video=None, kind=kind)
        # One event for each quality of the stream, in any order: the first of them makes the video playable.
        video = RemoteVideo(remote_id, None, RemoteState.READY)
        return RemoteEvent(dedupe_key=f"{remote_id}:{video.state}", video=video, kind=kind)

    # -- before a run

    async def check(self) -> Sequence[Finding]:
        """Whether the key is good, and where deliveries go: one call. Creates nothing."""
        answer = await self._caller.call("GET", "/webhooks", params={"currentPage": "1", "pageSize": "100"})
        hooks = at(self._read(answer), "data")
        if not isinstance(hooks, list):
            raise Fault("answer-malformed", "the answer is not a list of webhooks: nothing at 'data'")
        found = [Finding("credentials", True, "the API key is good"), self._clock_finding(answer)]
        if SANDBOX in self.address_of(self._account):
            found.append(Finding("sandbox", False, "this is the sandbox: videos are watermarked, and gone after a day"))
        found.append(self._webhook_finding([hook for hook in hooks if ENCODED in (at(hook, "events") or [])]))
        return found

    def _webhook_finding(self, hooks: Sequence[Any]) -> Finding:
        if not hooks:
            words = f"no address is registered for {ENCODED}: POST /webhooks, as docs/destinations/apivideo.md shows"
            return Finding("webhook", False, words)
        where = f"deliveries go to {', '.join(self._caller.redacted(str(at(hook, 'url'))) for hook in hooks)}"
        mine = [secret.get_secret_value().strip().encode() for secret in self._account.webhook_secrets]
        if not mine:
            return Finding("webhook", False, f"{where}; no webhook_secrets are set: GET /webhooks shows them")
        theirs = [secret.encode() for hook in hooks if (secret := text(at(hook, "signatureSecret"))) is not None]
        if theirs and not any(hmac.compare_digest(one, other) for one in mine for other in theirs):
            words = "none of the secrets that they are signed with is among webhook_secrets: GET /webhooks shows them"
            return Finding("webhook", False, f"{where}; {words}")
        return Finding("webhook", True if theirs else None, where)


def _state(status: Any) -> tuple[RemoteState, str]:
    """The state that a status means, and words. There is no value that says a video failed for good."""
    if at(status, "encoding.playable") is True:
        return RemoteState.READY, ""
    qualities = at(status, "encoding.qualities")
    words = [text(at(quality, "status")) for quality in qualities] if isinstance(qualities, list) else []
    if words and all(word == "failed" for word in words):
        return RemoteState.ERRORED, f"all of {len(words)} qualities failed"
    return RemoteState.PROCESSING, ""


def _received(status: Any, size: int) -> int:
    """How many bytes from the first on the host has, out of `size`."""
    if at(status, "ingest.status") in ("uploaded", "ingesting", "ingested"):
        return size
    given = at(status, "ingest.receivedBytes")
    bounds = [(at(part, "from"), at(part, "to")) for part in given] if isinstance(given, list) else []
    stands = 0
    for begin, end in sorted((b, e) for b, e in bounds if isinstance(b, int) and isinstance(e, int)):
        if begin > stands:
            break
        stands = max(stands, end + 1)
    return min(stands, size)
