"""Bunny Stream: https://docs.bunny.net/stream.

The reference stands at the end of the title, in brackets: a create takes nothing else that the list can be searched by.
Everything is found by that search and compared here. Videos of a library are all public or all private.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import mimetypes
import re
import time
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

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
    SignatureRefused,
    Transfer,
    Turn,
)
from destinations.host import Host, HostOptions, credential
from destinations.sending import LocalFile, SessionGone
from destinations.tus import Tus, may_be_kept
from faults import Fault
from settings import AccountSettings

SIGNED_S: Final = 86_400
"""Seconds that a signature for an upload is good for; each request has one of its own."""
STATES: Final = MappingProxyType(
    {
        0: RemoteState.PROCESSING,  # created
        1: RemoteState.PROCESSING,  # uploaded
        2: RemoteState.PROCESSING,  # processing
        3: RemoteState.PROCESSING,  # transcoding
        4: RemoteState.READY,  # finished
        5: RemoteState.ERRORED,  # error
        6: RemoteState.ERRORED,  # upload failed
        7: RemoteState.PROCESSING,  # just-in-time: segmenting
        # UNVERIFIED: that it plays from here on. A video that is encoded just in time may come to no later one.
        8: RemoteState.READY,  # just-in-time: playlists created
    }
)
"""`status` of a video that is asked for. Webhooks number otherwise."""
EVENTS: Final = MappingProxyType(
    {
        0: RemoteState.PROCESSING,  # queued
        1: RemoteState.PROCESSING,  # processing
        2: RemoteState.PROCESSING,  # encoding
        3: RemoteState.READY,  # finished
        4: RemoteState.READY,  # one resolution finished: the first says that it plays
        5: RemoteState.ERRORED,  # failed
        6: RemoteState.PROCESSING,  # upload started
        7: RemoteState.PROCESSING,  # upload finished
    }
)
"""`Status` of a delivery. 8 is an upload that failed, which its sender knows; 9 and 10 are captions and titles."""
_UPLOAD_FAILED: Final = 6
_TITLE: Final = re.compile(r"(?s)(?P<title>.*) \[(?P<ref>[^\s\[\]]+)(?P<sent> sent)?\]")


class Options(HostOptions):
    """`[accounts.<name>.options]` of a Bunny Stream account."""

    library_id: int = Field(ge=1)
    """Of the video library, as its address in the dashboard has it."""
    collection_id: str | None = Field(default=None, pattern=r"^[0-9A-Za-z-]+$")
    """A collection that everything is put into."""
    pull_zone: str | None = Field(default=None, pattern=r"^[0-9A-Za-z.-]+$")
    """The library's host name for playback (vz-….b-cdn.net), for the addresses in the ledger."""
    private_library: bool = False
    """Say true where the library's token authentication is on: then videos that are private may go there."""
    chunk_bytes: int = Field(default=52_428_800, ge=1_048_576, le=1_073_741_824)
    """Bytes of one part of an upload."""


class BunnyDestination(Host):
    """One library at Bunny Stream. The account's token is the library's own API key; its read-only key is the secret
    of its webhooks."""

    default_base_url = "https://video.bunnycdn.com"
    reasons = MappingProxyType(
        {
            # `issueCode` of a video's messages
            "3": "destination-failed",
            "4": "destination-failed",
            "5": "too-long",
            "6": "too-long",
            "7": "file-corrupt",
            # `statusCode` of an answer with success false
            "400": "destination-refused-input",
            "401": "credentials-refused",
            "403": "right-missing",
            "429": "rate-limited",
        }
    )

    def __init__(self, account: AccountSettings, *, clock: Callable[[], float] = time.time) -> None:
        """Raises Fault("settings-refused") naming the wrong option; makes no connection."""
        self._options = options = Options.of(account)
        self._account = account
        self.chunk_bytes = options.chunk_bytes
        self.list_path = f"/library/{options.library_id}/videos"
        self.item_path = self.list_path + "/{id}"
        super().__init__(account, headers={"AccessKey": credential(account.token.get_secret_value())}, clock=clock)
        carries = {"captions", "poster", *(("privacy",) if options.private_library else ())}
        self.capabilities = Capabilities(
            lookup="exact",
            idempotent_create=False,
            event_carries_ref=False,
            list_limit=100,
            fetches_with_headers=True,
            uploads=True,
            carries=frozenset(carries),
            captions="bytes",
            poster="address",
        )

    @staticmethod
    def check_options(account: AccountSettings) -> None:
        """Raises Fault("settings-refused") naming each wrong option; makes nothing."""
        Options.of(account)
        credential(account.token.get_secret_value())

    # -- making

    async def create(self, request: CreateRequest) -> RemoteVideo:
        """Has a video fetched: one call. Where its answer has no id, the video is there all the same, to be looked up:
        Fault("answer-lost") with `landed`."""
        self._demand_address(request)
        self._check_privacy(request)
        body: dict[str, Any] = {"url": request.address, "title": _titled(request)}
        if request.headers:
            body["headers"] = dict(request.headers)
        collection = self._options.collection_id
        params = {"collectionId": collection} if collection else None
        answer = await self._ask("POST", f"{self.list_path}/fetch", creating=True, params=params, body=body)
        # UNVERIFIED spellings: the specification's answer has neither, the host's own has had both.
        remote_id = text(at(answer, "id")) or text(at(answer, "guid"))
        if remote_id is None:
            raise Fault("answer-lost", "the host took the address, and its answer has no id", landed=True)
        return RemoteVideo(remote_id, request.ref, RemoteState.PROCESSING, title=request.title)

    def _check_privacy(self, request: CreateRequest) -> None:
        hidden = request.about.privacy in ("private", "unlisted")
        if hidden and not self._options.private_library and not self._account.publish_private:
            raise Fault("private-refused", "whether a video can be seen is a setting of the whole library here")

    async def upload(self, request: CreateRequest, begun: Transfer | None, *, keep: Keep, turn: Turn) -> RemoteVideo:
        """By tus: one call to look for what an earlier attempt announced and never kept, one to make the video, one to
        announce its bytes, one a chunk."""
        file = await LocalFile.of(request)
        self._check_privacy(request)
        named = {} if begun is None else file.begun(begun)
        video_id = named.get("video") or await self._shell(request, turn)
        location, start = named.get("location", ""), None
        tus = Tus(
            self._caller,
            self.address_of(self._account),
            self._account.timeout_s,
            self._refused,
            turn,
            lambda: self._signed(video_id),
        )

        def place() -> str:
            return file.place(video=video_id, **({"location": location} if may_be_kept(location) else {}))

        async def sent(offset: int) -> None:
            await keep(Transfer(place(), offset))

        done = RemoteVideo(video_id, request.ref, RemoteState.PROCESSING, title=request.title)
        for last in (False, True):
            try:
                if not location:
                    await sent(0)
                    kind = mimetypes.guess_type(file.path)[0] or "video/mp4"
                    about = {"filetype": kind, "title": _titled(request, sent=True)}
                    if self._options.collection_id:
                        about["collection"] = self._options.collection_id
                    location, _ = await tus.create("/tusupload", file.size, about)
                    start = 0
                    await sent(0)
                await tus.send(location, file, self.chunk_bytes, sent, start=start)
            except SessionGone:
                await turn()
                found = await self.get(video_id)
                if found.state is RemoteState.DELETED and begun is not None:
                    return await self.upload(request, None, keep=keep, turn=turn)
                if found.state is not RemoteState.DELETED and not found.awaits_bytes:
                    return done  # it had come whole, and only the answer was lost
                if last or found.state is RemoteState.DELETED:
                    raise
                location = ""
            else:
                return done
        raise AssertionError("the second round returns or raises")

    async def _shell(self, request: CreateRequest, turn: Turn) -> str:
        """A video that waits for bytes: one that an attempt before left, or a new one."""
        await turn()
        for left in await self.lookup(request.ref):
            if left.awaits_bytes:
                return left.remote_id
        body = {"title": _titled(request, sent=True)}
        if self._options.collection_id:
            body["collectionId"] = self._options.collection_id
        await turn()
        made = await self._ask("POST", self.list_path, creating=True, body=body)
        return self._video(made, creating=True).remote_id

    def _signed(self, video_id: str) -> dict[str, str]:
        library, until = str(self._options.library_id), str(int(self._clock()) + SIGNED_S)
        signed = library + self._account.token.get_secret_value() + until + video_id
        return {
            "AuthorizationSignature": hashlib.sha256(signed.encode()).hexdigest(),
            "AuthorizationExpire": until,
            "LibraryId": library,
            "VideoId": video_id,
        }

    async def attach(self, remote_id: str, attachment: Attachment, *, turn: Turn) -> None:
        """Puts a text track or a poster on a video, in place of the one before: one call."""
        await turn()
        if attachment.kind == "poster":
            params = {"thumbnailUrl": attachment.address}
            await self._ask("POST", f"{self._item(remote_id)}/thumbnail", params=params)
            return
        if attachment.content is None:
            raise Fault("destination-refused-input", "the track's bytes are needed")
        body = {
            "srclang": attachment.language,
            "label": attachment.label or attachment.language,
            "captionsFile": base64.b64encode(attachment.content).decode(),
        }
        await self._ask("POST", f"{self._item(remote_id)}/captions/{attachment.language}", body=body)

    # -- finding

    async def lookup(self, ref: str, *, turn: Turn | None = None) -> Sequence[RemoteVideo]:
        """All videos with exactly this reference: one call, whose answer is compared here."""
        params = {**self.list_params(""), "search": ref}
        items, next_cursor, _ = self._listing(await self._ask("GET", self.list_path, params=params), "")
        found = [video for video in items if video.ref == ref]
        if not found and next_cursor is not None:
            # "There is none" must never be said of a page: a second create would follow.
            raise Fault("answer-malformed", "the lookup's answer goes on after its first page: it was not filtered")
        return found

    def list_params(self, cursor: str) -> Mapping[str, str]:
        return {"page": cursor or "1", "itemsPerPage": str(self.capabilities.list_limit), "orderBy": "date"}

    def listing_of(self, answer: Any, cursor: str) -> tuple[Sequence[Any], str | None, int | None]:
        items, total = at(answer, "items"), at(answer, "totalItems")
        page, size = at(answer, "currentPage"), at(answer, "itemsPerPage")
        if not isinstance(items, list) or not all(isinstance(value, int) for value in (total, page, size)):
            raise Fault("answer-malformed", "the answer is not a list: items, totalItems, currentPage or itemsPerPage")
        if page != int(cursor or 1):
            raise Fault("answer-malformed", f"the list repeats: page {cursor or 1} was asked for, and {page} came")
        more = page * size < total
        if more and not items:
            raise Fault("answer-malformed", f"page {page} is empty, and the list says there are {total} videos")
        return items, str(page + 1) if more else None, total

    # -- how bodies are read

    def error_of(self, body: Any) -> tuple[str | None, str | None]:
        code = text(at(body, "ErrorKey")) or text(at(body, "errorKey"))
        return code, text(at(body, "message")) or text(at(body, "Message")) or text(at(body, "title"))

    def failure_of(self, body: Any) -> tuple[str | None, str | None] | None:
        if not denied(at(body, "success")):
            return None
        return text(at(body, "statusCode")), text(at(body, "message"))

    def video_of(self, body: Any) -> RemoteVideo | None:
        remote_id, status = text(at(body, "guid")), at(body, "status")
        if remote_id is None or not isinstance(status, int) or isinstance(status, bool):
            return None
        named = _TITLE.fullmatch(text(at(body, "title")) or "")
        state, reason, detail = STATES.get(status), None, ""
        if state is RemoteState.ERRORED:
            code, words = _worst(at(body, "transcodingMessages"))
            fallback = "fetch-failed" if status == _UPLOAD_FAILED else "destination-failed"
            reason, detail = self.reasons.get(code or "", fallback), joined(code, words)
        elif state is None:
            state, detail = RemoteState.PROCESSING, f"the status {status} is not a documented one"
        zone = self._options.pull_zone
        return RemoteVideo(
            remote_id=remote_id,
            ref=named["ref"] if named else None,
            state=state,
            reason=reason,
            detail=faults.truncate(self._caller.redacted(detail)),
            duration_ms=number(at(body, "length"), 1000.0),
            width=number(at(body, "width")),
            height=number(at(body, "height")),
            playback=f"https://{zone}/{remote_id}/playlist.m3u8" if zone else None,
            title=named["title"] if named else text(at(body, "title")),
            # A video that is fetched has this status too until its turn comes.
            awaits_bytes=status == 0 and named is not None and named["sent"] is not None,
        )

    # -- webhooks

    def verify(self, headers: Mapping[str, str], body: bytes) -> None:
        """Checks `X-BunnyStream-Signature` over the raw bytes. Raises SignatureRefused."""
        version = headers.get("x-bunnystream-signature-version", "v1")
        algorithm = headers.get("x-bunnystream-signature-algorithm", "hmac-sha256")
        if (version, algorithm) != ("v1", "hmac-sha256"):
            raise SignatureRefused("the signature is of another version than v1, or not by hmac-sha256")
        secrets = [secret.get_secret_value().encode() for secret in self._account.webhook_secrets]
        signatures.plain_hex(headers.get("x-bunnystream-signature"), body, secrets)

    def parse_event(self, headers: Mapping[str, str], body: bytes) -> RemoteEvent:
        """The event in a verified delivery, which has an id and a number. Raises Fault("answer-malformed")."""
        event, readable = parsed(body)
        if not readable or not isinstance(event, Mapping):
            raise Fault("answer-malformed", "the delivery's body is not a JSON object")
        remote_id, status = text(at(event, "VideoGuid")), at(event, "Status")
        state = EVENTS.get(status) if isinstance(status, int) and not isinstance(status, bool) else None
        if remote_id is None or state is None or at(event, "VideoLibraryId") != self._options.library_id:
            return RemoteEvent(hashlib.sha256(body).hexdigest(), None, kind=str(status))
        reason = "destination-failed" if state is RemoteState.ERRORED else None
        video = RemoteVideo(remote_id, None, state, reason=reason)
        return RemoteEvent(f"{remote_id}:{state}", video, kind=str(status))

    # -- before a run

    async def check(self) -> Sequence[Finding]:
        """Whether the key is good: one call. Where deliveries go is only told to the account's own key. Creates
        nothing."""
        found = await super().check()
        key = self._account.token.get_secret_value().encode()
        secrets = [secret.get_secret_value().encode() for secret in self._account.webhook_secrets]
        if not secrets:
            hook = Finding("webhook", False, "no webhook_secrets are set; set the library's read-only API key")
        elif any(hmac.compare_digest(secret, key) for secret in secrets):
            words = "webhook_secrets has the library's API key, and deliveries are signed with its read-only API key"
            hook = Finding("webhook", False, words)
        else:
            words = "this key can't ask where deliveries go; see Stream > the library > API > Webhook URL"
            hook = Finding("webhook", None, words)
        return [*found, hook]


def _titled(request: CreateRequest, *, sent: bool = False) -> str:
    """The title with the reference behind it; `sent` marks a video whose bytes we send."""
    return f"{request.title} [{request.ref}{' sent' if sent else ''}]"


def _worst(messages: Any) -> tuple[str | None, str | None]:
    """The code and the words of the gravest message."""
    given = [message for message in messages if isinstance(message, Mapping)] if isinstance(messages, list) else []
    if not given:
        return None, None
    worst = max(given, key=lambda message: level if isinstance(level := message.get("level"), int) else 0)
    return text(worst.get("issueCode")), text(worst.get("message")) or text(worst.get("value"))
