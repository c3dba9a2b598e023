"""FastPix on-demand video (https://fastpix.com/docs).

Media are made from addresses, or out of direct uploads. There is no filter by metadata: a lost create is found by
listing and comparing. Refusals have a status and words, and no codes of their own.
"""

from __future__ import annotations

import asyncio
import base64
import re
import time
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, Literal
from urllib.parse import parse_qs, urlsplit

from destinations import signatures
from destinations.answers import at, denied, number, parsed, text
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
from destinations.sending import LocalFile, Session, Whole, in_chunks
from faults import Fault, of_status, truncate
from settings import AccountSettings

REFERENCE: Final = "longhaul_ref"
"""Entry of a media's metadata that holds our reference."""
VALUE_MAX: Final = 255
"""Characters of a metadata entry; there may be ten."""
MADE_WAITS_S: Final = (0.2, 0.5, 1.0, 2.0, 4.0, 8.0)
"""After the last byte FastPix makes the media by itself; between these it is asked for."""
UNUSED_PAGES_MAX: Final = 100
"""Pages of uploads without bytes that are looked through for one that was begun: they expire after a day."""
STATES: Final = MappingProxyType({"ready": RemoteState.READY, "failed": RemoteState.ERRORED})
"""Every other one (Created, Downloading, Downloaded, Validating, In Queue, Processing) leads to one of these."""
EVENTS: Final = MappingProxyType(
    {
        "video.media.created": None,
        "video.media.updated": None,
        "video.media.ready": RemoteState.READY,
        "video.media.failed": RemoteState.ERRORED,
        "video.media.deleted": RemoteState.DELETED,
    }
)
"""Those whose data is a media, and the state that each says by itself."""
_CLOCK: Final = re.compile(r"(\d+):([0-5]?\d):([0-5]?\d(?:\.\d+)?)")


class Options(HostOptions):
    """`[accounts.<name>.options]` of a FastPix account."""

    access_policy: Literal["public", "private"] = "public"
    """Of videos that the source doesn't call private or unlisted: those are always `private`."""
    media_quality: Literal["standard", "pro", "premium"] | None = None
    max_resolution: Literal["480p", "720p", "1080p", "1440p", "2160p"] | None = None


class FastPixDestination(Host):
    """One workspace at FastPix. The account's token is `<access token id>:<secret key>`."""

    default_base_url = "https://api.fastpix.com/v1"
    list_path = "/on-demand"
    item_path = "/on-demand/{id}"
    upload_path = "/on-demand/upload"
    chunk_bytes = 67_108_864
    """Of an upload; a multiple of 256 KiB. Nothing of it is lost by a break: the host says what it has."""
    capabilities = Capabilities(
        lookup="list",
        idempotent_create=False,
        event_carries_ref=True,  # UNVERIFIED: the events' documented data has `metadata`
        list_limit=50,
        ref_max=VALUE_MAX,
        title_max=255,
        duration_max_ms=12 * 3_600_000,
        uploads=True,
        carries=frozenset({"tags", "folder", "captions", "privacy"}),
        captions="address",
        several_tracks_a_language=True,
    )

    def __init__(self, account: AccountSettings, *, clock: Callable[[], float] = time.time) -> None:
        self._options = Options.of(account)
        self._signing = _signing(account)
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
        _signing(account)

    # -- making

    def _settings(self, request: CreateRequest) -> dict[str, Any]:
        """What a create says of the media, beside its bytes."""
        options, about = self._options, request.about
        metadata = {REFERENCE: request.ref}
        if about.folder and len(about.folder) <= VALUE_MAX:
            metadata["folder"] = about.folder
        if tags := _joined(about.tags):
            metadata["tags"] = tags
        hidden = about.privacy in ("private", "unlisted")
        body: dict[str, Any] = {
            "accessPolicy": "private" if hidden else options.access_policy,
            "metadata": metadata,
            "title": request.title,
        }
        if options.media_quality:
            body["mediaQuality"] = options.media_quality
        if options.max_resolution:
            body["maxResolution"] = options.max_resolution
        return body

    async def create(self, request: CreateRequest) -> RemoteVideo:
        """Makes a media from an address: one call."""
        self._demand_address(request)
        body = {"inputs": [{"type": "video", "url": request.address}], **self._settings(request)}
        answer = await self._ask("POST", self.list_path, creating=True, body=body)
        return self._video(self.body_of(answer), creating=True)

    async def upload(self, request: CreateRequest, begun: Transfer | None, *, keep: Keep, turn: Turn) -> RemoteVideo:
        """Sends a file to a direct upload, and waits for its media. The place holds the upload's id; its address, which
        is signed, is looked for again among the uploads that have no media yet."""
        file = await LocalFile.of(request)
        upload: Mapping[str, Any] | None = None
        if begun is not None:
            upload_id = file.begun(begun)["upload"]
            if (media := await self._media_of(upload_id, turn)) is not None:
                return media
            upload = await self._unused(upload_id, turn)
            if upload is None and (media := await self._made(upload_id, turn)) is not None:
                return media
            if upload is None and begun.sent >= file.size:
                raise Fault("answer-lost", "every byte is there, and FastPix shows no media of them", landed=True)
        fresh = upload is None
        if upload is None:
            await turn()
            body = {"corsOrigin": "*", "pushMediaSettings": self._settings(request)}
            # Not `creating`: an upload without bytes becomes no media.
            upload = _upload_in(at(await self._ask("POST", self.upload_path, body=body), "data"))
        upload_id, address = str(upload["uploadId"]), str(upload["url"])

        async def sent(offset: int) -> None:
            await keep(Transfer(file.place(upload=upload_id), offset))

        await sent(0 if fresh or begun is None else begun.sent)
        query = parse_qs(urlsplit(address).query)
        if "upload_id" in query:
            session: Session | Whole = Session(self._caller, address, file, turn=turn, timeout_s=self._timeout_s)
            start = 0 if fresh else None
        elif "x-goog-resumable" in "".join(query.get("X-Goog-SignedHeaders", ())):
            # UNVERIFIED: whether a session is begun by us, as such a signature asks for, or by FastPix, whose examples
            # show both. A session of ours has an address of its own, which would be a secret in the place: after a
            # kill it is begun anew.
            address = await self._session_at(address, turn)
            session, start = Session(self._caller, address, file, turn=turn, timeout_s=self._timeout_s), 0
        else:
            session, start = Whole(self._caller, address, file, turn=turn, timeout_s=self._timeout_s), 0
        chunk = file.size if isinstance(session, Whole) else self.chunk_bytes
        await in_chunks(file.size, chunk, where=session.where, send=session.send, sent=sent, start=start)
        media = await self._made(upload_id, turn)
        if media is None:
            raise Fault("answer-lost", "every byte is there, and FastPix has not yet made a media of them", landed=True)
        return media

    async def _session_at(self, address: str, turn: Turn) -> str:
        await turn()
        headers = {"x-goog-resumable": "start", "content-length": "0", "content-type": "application/octet-stream"}
        answer = await self._caller.call("POST", address, content=b"", headers=headers)
        location = answer.headers.get("location")
        if answer.status not in (200, 201) or not location:
            reason = "destination-error" if answer.status < 500 else of_status(answer.status)
            raise Fault(reason, f"the upload's address began no session: status {answer.status}")
        return location

    async def _media_of(self, upload_id: str, turn: Turn) -> RemoteVideo | None:
        """The media that came of an upload: it can be asked for by the upload's id."""
        await turn()
        video = await self.get(upload_id)
        return None if video.state is RemoteState.DELETED or video.awaits_bytes else video

    async def _made(self, upload_id: str, turn: Turn) -> RemoteVideo | None:
        for wait_s in (*MADE_WAITS_S, None):
            if (media := await self._media_of(upload_id, turn)) is not None:
                return media
            if wait_s is not None:
                await asyncio.sleep(wait_s)
        return None

    async def _unused(self, upload_id: str, turn: Turn) -> Mapping[str, Any] | None:
        """An upload that still waits for bytes, with its address."""
        cursor: str | None = ""
        for _ in range(UNUSED_PAGES_MAX):
            await turn()
            answer = await self._ask("GET", "/on-demand/uploads", params=self.list_params(cursor or ""))
            items, cursor, _total = self.listing_of(answer, cursor or "")
            for item in items:
                if at(item, "uploadId") == upload_id and at(item, "status") == "waiting":
                    return _upload_in(item)
            if cursor is None:
                break
        return None

    async def attach(self, remote_id: str, attachment: Attachment, *, turn: Turn) -> None:
        """Adds a subtitle track by its address, unless there is one of its language and name: two calls."""
        if attachment.kind == "poster":
            raise Fault("destination-refused-input", "FastPix takes posters out of the video itself")
        name = attachment.label or attachment.language
        await turn()
        media = self.body_of(await self._ask("GET", self._item(remote_id)))
        for track in at(media, "tracks") or []:
            if (at(track, "type"), at(track, "languageCode"), at(track, "languageName")) == (
                "subtitle",
                attachment.language,
                name,
            ):
                return
        await turn()
        new = {
            "url": attachment.address,
            "type": "subtitle",
            "languageCode": attachment.language,
            "languageName": name,
        }
        await self._ask("POST", f"{self._item(remote_id)}/tracks", body={"tracks": new})

    async def check(self) -> Sequence[Finding]:
        """Two calls: the first page of the list, and the cancelling of an upload that there is not, which tells whether
        the token may write."""
        nothing = "00000000-0000-4000-8000-000000000000"
        answer = await self._caller.call("PUT", f"{self.upload_path}/{nothing}/cancel", content=b"")
        match answer.status:
            case 404:
                write = Finding("write", True, "the token may write")
            case 401 | 403:
                write = Finding(
                    "write", False, "the token may not write; make one that may in the dashboard's settings"
                )
            case status:
                write = Finding("write", None, f"whether the token may write cannot be told: status {status}")
        if self._signing:
            where = "FastPix tells nobody where webhooks go; look under Settings, Webhooks of this workspace"
            webhook = Finding("webhook", None, where)
        else:
            webhook = Finding("webhook", False, "no webhook_secrets are set; set the signing secret that FastPix shows")
        return [*await super().check(), write, webhook]

    # -- how bodies are read

    def body_of(self, answer: Any) -> Any:
        return at(answer, "data")

    def list_params(self, cursor: str) -> Mapping[str, str]:
        return {"limit": str(self.capabilities.list_limit), "offset": cursor or "1", "orderBy": "desc"}

    def listing_of(self, answer: Any, cursor: str) -> tuple[Sequence[Any], str | None, int | None]:
        """`offset` is the number of a page, the first being 1, and `offsetCount` how many there are: so the documented
        example has it (UNVERIFIED). An answer that fits no pages is refused rather than read to the wrong end."""
        items, total = at(answer, "data"), at(answer, "pagination.totalRecords")
        pages = at(answer, "pagination.offsetCount")
        if not isinstance(items, list) or not _whole(total) or not _whole(pages):
            raise Fault("answer-malformed", "the answer is not a list of media with data and pagination")
        if not -(-total // self.capabilities.list_limit) <= max(pages, 1) <= max(total, 1):
            raise Fault(
                "answer-malformed", f"the list's {total} media are not in {pages} pages: its offsets are others"
            )
        offset = int(cursor or "1")
        return items, str(offset + 1) if offset < pages else None, total

    def error_of(self, body: Any) -> tuple[str | None, str | None]:
        words = (text(at(body, "error.message")), text(at(body, "error.description")))
        return text(at(body, "error.code")), ": ".join(word for word in words if word) or None

    def failure_of(self, body: Any) -> tuple[str | None, str | None] | None:
        return self.error_of(body) if denied(at(body, "success")) else None

    def video_of(self, body: Any) -> RemoteVideo | None:
        remote_id, word = text(at(body, "id")), text(at(body, "status"))
        return None if remote_id is None or word is None else self._video_in(body, remote_id, word)

    def _video_in(self, body: Any, remote_id: str, word: str) -> RemoteVideo:
        state = STATES.get(word.lower(), RemoteState.PROCESSING)
        tracks = at(body, "tracks")
        picture = next((t for t in tracks if at(t, "type") == "video"), None) if isinstance(tracks, list) else None
        playback = text(at(body, "playbackIds.0.id"))
        reason, detail = None, ""
        if state is RemoteState.ERRORED:
            # UNVERIFIED: whether a failed media says why; the description has no place for it.
            code, words = self.error_of(body)
            reason, detail = "destination-failed", words or code or "FastPix says that it failed, and not why"
        return RemoteVideo(
            remote_id=remote_id,
            ref=text(at(body, f"metadata.{REFERENCE}")),
            state=state,
            reason=reason,
            detail=truncate(self._caller.redacted(detail)),
            duration_ms=milliseconds(at(body, "duration")),
            width=number(at(picture, "width")),
            height=number(at(picture, "height")),
            playback=f"https://stream.fastpix.com/{playback}.m3u8" if playback else None,
            title=text(at(body, "title")),
            awaits_bytes=word.lower() == "waiting",
        )

    # -- webhooks

    def verify(self, headers: Mapping[str, str], body: bytes) -> None:
        signatures.plain_base64(headers.get("fastpix-signature"), body, self._signing)

    def parse_event(self, headers: Mapping[str, str], body: bytes) -> RemoteEvent:
        event, readable = parsed(body)
        if not readable or not isinstance(event, Mapping):
            raise Fault("answer-malformed", "the delivery's body is not a JSON object")
        kind, data = text(at(event, "type")) or "", at(event, "data")
        remote_id, video = text(at(data, "id")), None
        if kind in EVENTS and remote_id is not None:
            stated = EVENTS[kind]
            if stated is RemoteState.DELETED:
                video = RemoteVideo(remote_id, text(at(data, f"metadata.{REFERENCE}")), stated)
            else:
                words = {RemoteState.READY: "Ready", RemoteState.ERRORED: "Failed"}
                word = words[stated] if stated else text(at(data, "status")) or text(at(event, "status")) or "Created"
                video = self._video_in(data, remote_id, word)
        key = text(at(event, "id")) or f"{kind}:{remote_id}:{video.state if video else ''}"
        return RemoteEvent(dedupe_key=key, video=video, kind=kind)


def milliseconds(duration: Any) -> int | None:
    """A duration that is written "00:00:10", or a number of seconds; None where it is unknown."""
    found = _CLOCK.fullmatch(duration.strip()) if isinstance(duration, str) else None
    if found is None:
        return number(duration, 1000.0)
    return number((int(found[1]) * 60 + int(found[2])) * 60 + float(found[3]), 1000.0)


def _joined(tags: Sequence[str]) -> str:
    """As many whole tags, one after the other, as an entry of metadata holds."""
    kept = ""
    for tag in tags:
        longer = f"{kept}, {tag}" if kept else tag
        if len(longer) <= VALUE_MAX:
            kept = longer
    return kept


def _whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _token(account: AccountSettings) -> str:
    """Raises Fault("settings-refused")."""
    token = credential(account.token.get_secret_value())
    if not all(token.partition(":")):
        raise Fault("settings-refused", "token: must be the access token's id and secret key with a colon between them")
    return token


def _signing(account: AccountSettings) -> list[bytes]:
    """Raises Fault("settings-refused")."""
    keys = []
    for place, secret in enumerate(account.webhook_secrets, 1):
        try:
            keys.append(base64.b64decode(secret.get_secret_value().strip(), validate=True))
        except ValueError:
            wrong = f"webhook_secrets: number {place} is not Base64; set the signing secret that FastPix shows"
            raise Fault("settings-refused", wrong) from None
    return keys


def _upload_in(upload: Any) -> Mapping[str, Any]:
    if not isinstance(upload, Mapping) or not text(upload.get("uploadId")) or not text(upload.get("url")):
        raise Fault("answer-malformed", "the answer is no direct upload: it has no id or no address")
    return upload
