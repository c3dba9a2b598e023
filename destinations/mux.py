"""Mux Video (https://docs.mux.com/api-reference).

Assets are made from addresses, or out of direct uploads. Mux has no filter by reference: a lost create is found by
listing and comparing.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, Literal
from urllib.parse import quote

from destinations import signatures
from destinations.answers import at, following, has, joined, number, parsed, text
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
from destinations.host import Host, HostOptions, basic, credential
from destinations.sending import LocalFile, Session, SessionGone, in_chunks
from faults import Fault, truncate
from settings import AccountSettings, LimitSettings

LIMITS: Final = (
    LimitSettings(name="posts", requests=1, per_s=1, operations=("create", "attach")),
    LimitSettings(name="others", requests=5, per_s=1, operations=("list", "get", "lookup", "delete", "upload")),
)
"""Sustained: one POST a second, other verbs five (https://docs.mux.com/core/make-api-requests). The one POST of an
upload is its row's create; what follows asks how far it is."""
CREATOR_MAX: Final = 128
"""Characters of `meta.creator_id`."""
UPLOAD_S: Final = 604_800
"""Seconds that an upload's address is good for: the most that Mux grants."""
ASSET_WAITS_S: Final = (0.2, 0.5, 1.0, 2.0, 4.0, 8.0)
"""After the last byte Mux makes the asset by itself; between these the upload is asked for its id."""
STATES: Final = MappingProxyType(
    {"preparing": RemoteState.PROCESSING, "ready": RemoteState.READY, "errored": RemoteState.ERRORED}
)
EVENTS: Final = frozenset(f"video.asset.{word}" for word in ("created", "ready", "errored", "updated", "deleted"))
"""Those whose data is an asset; of `video.asset.track.ready`, for instance, it is a track."""


class Options(HostOptions):
    """`[accounts.<name>.options]` of a Mux account."""

    playback_policy: Literal["public", "signed"] = "public"
    """Of videos that the source doesn't call private or unlisted: those are always `signed`."""
    video_quality: Literal["basic", "plus", "premium"] | None = None
    """None: the environment's own default."""
    max_resolution_tier: Literal["1080p", "1440p", "2160p"] | None = None
    test: bool = False
    """Watermarked assets of ten seconds, free of charge, which Mux deletes after a day."""


class MuxDestination(Host):
    """One environment at Mux. The account's token is `<token id>:<token secret>`."""

    default_base_url = "https://api.mux.com"
    default_limits = LIMITS
    list_path = "/video/v1/assets"
    item_path = "/video/v1/assets/{id}"
    upload_path = "/video/v1/uploads"
    chunk_bytes = 67_108_864
    """Of an upload; a multiple of 256 KiB. Nothing of it is lost by a break: the host says what it has."""
    # UNVERIFIED: which types there are. Those of `errors` in assets and of refused calls.
    reasons = MappingProxyType({"download_failed": "fetch-failed", "invalid_input": "file-corrupt"})
    capabilities = Capabilities(
        lookup="list",
        idempotent_create=False,
        event_carries_ref=True,
        list_limit=100,
        ref_max=128,  # meta.external_id; passthrough takes 255
        title_max=512,
        duration_max_ms=12 * 3_600_000,
        uploads=True,
        carries=frozenset({"folder", "captions", "privacy"}),
        captions="address",
        several_tracks_a_language=True,
    )

    def __init__(self, account: AccountSettings, *, clock: Callable[[], float] = time.time) -> None:
        self._options = Options.of(account)
        self._signing = [secret.get_secret_value().encode() for secret in account.webhook_secrets]
        self._timeout_s = account.timeout_s
        token = _token(account)
        encoded = basic(token)
        super().__init__(
            account,
            headers={"Authorization": f"Basic {encoded}"},
            secrets=(encoded, token.partition(":")[2]),
            clock=clock,
        )

    @staticmethod
    def check_options(account: AccountSettings) -> None:
        """Raises Fault("settings-refused") naming each wrong option."""
        Options.of(account)
        _token(account)

    # -- making

    def _settings(self, request: CreateRequest) -> dict[str, Any]:
        """What a create says of the asset, beside its bytes. Mux calls `meta` potentially public."""
        options = self._options
        hidden = request.about.privacy in ("private", "unlisted")
        meta = {"title": request.title, "external_id": request.ref}
        folder = request.about.folder
        if folder and len(folder) <= CREATOR_MAX:
            meta["creator_id"] = folder
        body: dict[str, Any] = {
            "playback_policies": ["signed" if hidden else options.playback_policy],
            "passthrough": request.ref,
            "meta": meta,
        }
        if options.video_quality:
            body["video_quality"] = options.video_quality
        if options.max_resolution_tier:
            body["max_resolution_tier"] = options.max_resolution_tier
        return body

    async def create(self, request: CreateRequest) -> RemoteVideo:
        """Makes an asset from an address: one call."""
        self._demand_address(request)
        body = {"inputs": [{"url": request.address}], **self._settings(request)}
        if self._options.test:
            body["test"] = True
        return self._video(
            self.body_of(await self._ask("POST", self.list_path, creating=True, body=body)), creating=True
        )

    async def upload(self, request: CreateRequest, begun: Transfer | None, *, keep: Keep, turn: Turn) -> RemoteVideo:
        """Sends a file to a direct upload, and waits for its asset's id. The place holds the upload's id; its address,
        which is signed, is asked for again."""
        file = await LocalFile.of(request)
        upload: Any = None
        if begun is not None:
            upload = await self._begun(file.begun(begun)["upload"], turn)
        start = None
        if upload is None:
            await turn()
            upload, start = await self._announced(request), 0
        upload_id = str(upload["id"])

        async def sent(offset: int) -> None:
            await keep(Transfer(file.place(upload=upload_id), offset))

        if upload.get("status") == "waiting":
            await sent(0 if begun is None or start == 0 else begun.sent)
            session = Session(self._caller, str(upload["url"]), file, turn=turn, timeout_s=self._timeout_s)
            try:
                await in_chunks(
                    file.size, self.chunk_bytes, where=session.where, send=session.send, sent=sent, start=start
                )
            except SessionGone:
                if start == 0:
                    raise
                return await self.upload(request, None, keep=keep, turn=turn)
        return await self._asset_of(upload_id, turn)

    async def _announced(self, request: CreateRequest) -> Mapping[str, Any]:
        body: dict[str, Any] = {"new_asset_settings": self._settings(request), "timeout": UPLOAD_S}
        if self._options.test:
            body["test"] = True
        # Not `creating`: an upload without bytes becomes no asset.
        return upload_in(await self._ask("POST", self.upload_path, body=body))

    async def _begun(self, upload_id: str, turn: Turn) -> Mapping[str, Any] | None:
        """An upload that was announced earlier; None where nothing more can be sent to it and nothing came of it."""
        await turn()
        answer = await self._caller.call("GET", f"{self.upload_path}/{quote(upload_id, safe='')}")
        if answer.status in (404, 410):
            return None
        upload = upload_in(self._read(answer))
        return None if upload.get("status") in ("cancelled", "timed_out") else upload

    async def _asset_of(self, upload_id: str, turn: Turn) -> RemoteVideo:
        for wait_s in (*ASSET_WAITS_S, None):
            await turn()
            upload = upload_in(await self._ask("GET", f"{self.upload_path}/{quote(upload_id, safe='')}"))
            if asset_id := text(upload.get("asset_id")):
                await turn()
                return await self.get(asset_id)
            if upload.get("status") == "errored":
                code, message = text(at(upload, "error.type")), text(at(upload, "error.message"))
                reason = self.reasons.get(code or "", "destination-failed")
                raise Fault(reason, self._caller.redacted(joined(code, message)))
            if wait_s is not None:
                await asyncio.sleep(wait_s)
        raise Fault("answer-lost", "every byte is there, and Mux has not yet made the asset of them", landed=True)

    async def attach(self, remote_id: str, attachment: Attachment, *, turn: Turn) -> None:
        """Adds a text track by its address, unless there is one of its language, name and kind: two or three calls."""
        if attachment.kind == "poster":
            raise Fault("destination-refused-input", "Mux takes posters out of the video itself")
        name = attachment.label or attachment.language
        await turn()
        asset = self.body_of(await self._ask("GET", self._item(remote_id)))
        for track in at(asset, "tracks") or []:
            same = (at(track, "type"), at(track, "language_code"), at(track, "name")) == (
                "text",
                attachment.language,
                name,
            )
            if not same:
                continue
            if at(track, "status") != "errored":
                return
            # Mux wants names to be unique: the one that failed is in the way.
            await turn()
            await self._delete(f"{self._item(remote_id)}/tracks/{{id}}", str(at(track, "id")))
        await turn()
        await self._ask(
            "POST",
            f"{self._item(remote_id)}/tracks",
            body={
                "url": attachment.address,
                "type": "text",
                "text_type": "subtitles",
                "language_code": attachment.language,
                "name": name,
                "closed_captions": attachment.kind == "captions",
            },
        )

    async def delete(self, remote_id: str) -> None:
        """Deletes it: one call; 404 is success. An asset that is being prepared may be refused: that passes."""
        try:
            await super().delete(remote_id)
        except Fault as fault:
            if fault.code != "destination-refused-input":
                raise
            raise Fault("destination-error", fault.detail) from None

    async def check(self) -> Sequence[Finding]:
        """Two calls: the first page of the list, and the cancelling of an upload that there is not, which tells whether
        the token may write."""
        answer = await self._caller.call("PUT", f"{self.upload_path}/longhaul-check/cancel", content=b"")
        match answer.status:
            case 404:
                write = Finding("write", True, "the token may write")
            case 401 | 403:
                grant = "make one with read and write access to Mux Video under Settings, Access Tokens"
                write = Finding("write", False, f"the token may not write; {grant}")
            case status:
                write = Finding("write", None, f"whether the token may write cannot be told: status {status}")
        if self._signing:
            where = "Mux tells nobody where webhooks go; look under Settings, Webhooks of this environment"
            webhook = Finding("webhook", None, where)
        else:
            webhook = Finding("webhook", False, "no webhook_secrets are set; set the signing secret that Mux shows")
        return [*await super().check(), write, webhook]

    # -- how bodies are read

    def body_of(self, answer: Any) -> Any:
        return at(answer, "data")

    def list_params(self, cursor: str) -> Mapping[str, str]:
        limit = {"limit": str(self.capabilities.list_limit)}
        return {**limit, "cursor": cursor} if cursor else limit

    def listing_of(self, answer: Any, cursor: str) -> tuple[Sequence[Any], str | None, int | None]:
        items = at(answer, "data")
        if not isinstance(items, list) or not has(answer, "next_cursor"):
            raise Fault("answer-malformed", "the answer is not a list of assets with data and next_cursor")
        return items, following(at(answer, "next_cursor")), None

    def error_of(self, body: Any) -> tuple[str | None, str | None]:
        # UNVERIFIED: `error`; some answers of the vendor's own examples say `errors`.
        error = at(body, "error") or at(body, "errors")
        return text(at(error, "type")), _messages(error)

    def video_of(self, body: Any) -> RemoteVideo | None:
        remote_id, word = text(at(body, "id")), text(at(body, "status"))
        if remote_id is None or word is None:
            return None
        state, reason, detail = STATES.get(word), None, ""
        if state is RemoteState.ERRORED:
            code = text(at(body, "errors.type"))
            reason = self.reasons.get(code or "", "destination-failed")
            detail = self._caller.redacted(joined(code, _messages(at(body, "errors"))))
        elif state is None:
            state, detail = RemoteState.PROCESSING, f"the status {word[:40]!r} is unknown"
        tracks = at(body, "tracks")
        picture = next((t for t in tracks if at(t, "type") == "video"), None) if isinstance(tracks, list) else None
        playback = text(at(body, "playback_ids.0.id"))
        return RemoteVideo(
            remote_id=remote_id,
            ref=text(at(body, "passthrough")) or text(at(body, "meta.external_id")),
            state=state,
            reason=reason,
            detail=truncate(detail),
            duration_ms=number(at(body, "duration"), 1000.0),
            width=number(at(picture, "max_width")),
            height=number(at(picture, "max_height")),
            playback=f"https://stream.mux.com/{playback}.m3u8" if playback else None,
            title=text(at(body, "meta.title")),
        )

    # -- webhooks

    def verify(self, headers: Mapping[str, str], body: bytes) -> None:
        signatures.stamped(headers.get("mux-signature"), body, self._signing, now=self._clock())

    def parse_event(self, headers: Mapping[str, str], body: bytes) -> RemoteEvent:
        event, readable = parsed(body)
        if not readable or not isinstance(event, Mapping):
            raise Fault("answer-malformed", "the delivery's body is not a JSON object")
        kind = text(at(event, "type")) or ""
        video = self.video_of(at(event, "data")) if kind in EVENTS else None
        remote_id = text(at(event, "data.id"))
        if kind == "video.asset.deleted" and remote_id is not None:
            ref = text(at(event, "data.passthrough"))
            video = RemoteVideo(remote_id, ref, RemoteState.DELETED)
        key = text(at(event, "id")) or f"{kind}:{remote_id}:{video.state if video else ''}"
        return RemoteEvent(dedupe_key=key, video=video, kind=kind)


def _token(account: AccountSettings) -> str:
    """Raises Fault("settings-refused")."""
    token = credential(account.token.get_secret_value())
    if not all(token.partition(":")):
        raise Fault("settings-refused", "token: must be the access token's id and secret with a colon between them")
    return token


def upload_in(answer: Any) -> Mapping[str, Any]:
    """The direct upload in an answer. Raises Fault("answer-malformed") where there is none."""
    upload = at(answer, "data")
    if not isinstance(upload, Mapping) or text(upload.get("id")) is None:
        raise Fault("answer-malformed", "the answer is no direct upload: it has no id")
    if upload.get("status") == "waiting" and text(upload.get("url")) is None:
        raise Fault("answer-malformed", "the direct upload waits for bytes, and has no address")
    return upload


def _messages(error: Any) -> str | None:
    messages = at(error, "messages")
    if isinstance(messages, list):
        return "; ".join(str(message) for message in messages) or None
    return text(at(error, "message"))
