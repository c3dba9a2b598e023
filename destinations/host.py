"""What all hosted video APIs have in common: JSON over HTTP, ids and states, lists page by page, errors with a code.

A host's module says how its bodies are read and what its paths are; what must be right for every host is here, once:
which failure leaves it open whether a create landed, that a list which repeats is noticed, that no secret is told.
"""

from __future__ import annotations

import base64
import hashlib
import json
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from types import MappingProxyType
from typing import Any, ClassVar, Final, Self
from urllib.parse import quote

from pydantic import BaseModel, ConfigDict, ValidationError

import faults
from destinations.answers import is_id, joined, parsed
from destinations.base import (
    Attachment,
    Capabilities,
    CreateRequest,
    Finding,
    Keep,
    RemotePage,
    RemoteState,
    RemoteVideo,
    Transfer,
    Turn,
)
from destinations.calling import Answer, Caller
from destinations.lookups import Lookups
from faults import Fault
from governor.retry_after import parse_retry_after
from settings import AccountSettings, LimitSettings
from sources.cycles import Trail

SNIPPET: Final = 300
"""Characters of an unreadable answer that are quoted in a fault."""
LONGEST_ANSWER: Final = 33_554_432
"""Bytes; a longer answer is no answer."""
EMPTY_PAGES: Final = 1_000
"""Empty pages in a row after which a list is taken to be without end. Hosts that filter give some."""
NO_TRAIL: Final = Trail()
CLOCK_SKEW_S: Final = 120.0
"""A clock that is this far off is told by `check`: signatures are good for five minutes."""


class HostOptions(BaseModel):
    """Base of each host's `[accounts.<name>.options]`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    @classmethod
    def of(cls, account: AccountSettings) -> Self:
        """The account's options, checked. Raises Fault("settings-refused") naming each wrong one, and no value."""
        try:
            return cls.model_validate(account.options)
        except ValidationError as error:
            wrong = "; ".join(
                f"{'.'.join(['options', *(str(part) for part in e['loc'])])}: {e['msg']}" for e in error.errors()
            )
            raise Fault("settings-refused", wrong) from None


class Host(ABC):
    """One account at one host. A subclass sets `capabilities` and says how its bodies are read.

    `clock` gives seconds since 1970.
    """

    default_base_url: ClassVar[str | None] = None
    """The address that the host documents, for accounts that name none."""
    default_limits: ClassVar[Sequence[LimitSettings]] = ()
    """The limits that the host documents, for accounts that declare none."""
    capabilities: Capabilities
    reasons: Mapping[str, str] = MappingProxyType({})
    """The host's error codes in our reason codes, for videos that failed and for calls that were refused."""
    retry_after_headers: Sequence[str] = ("Retry-After",)
    """The first of these that can be read counts."""
    retry_after_cap_s: float = 3_600.0
    list_path: str
    item_path: str
    """Of one video, with `{id}` where its id goes; relative to the account's base_url, as every path."""

    def __init__(
        self,
        account: AccountSettings,
        *,
        headers: Mapping[str, str],
        secrets: Sequence[str] = (),
        clock: Callable[[], float] = time.time,
        max_answer_bytes: int = LONGEST_ANSWER,
    ) -> None:
        """Makes no connection. `secrets` are kept out of every text, along with the account's own."""
        self._clock = clock
        self._lookups = Lookups(self._walk)
        self._caller = Caller(
            self.address_of(account),
            headers=headers,
            timeout_s=account.timeout_s,
            max_answer_bytes=max_answer_bytes,
            secrets=(
                account.token.get_secret_value(),
                *(secret.get_secret_value() for secret in account.webhook_secrets),
                *secrets,
            ),
        )

    def observe(self, on_headers: Callable[[Mapping[str, str]], None]) -> None:
        """Tells the headers of every answer from now on."""
        self._caller.on_headers = on_headers

    @classmethod
    def address_of(cls, account: AccountSettings) -> str:
        """Where its API is. Raises Fault("settings-refused") where neither the account nor the host says."""
        address = account.base_url or cls.default_base_url
        if address is None:
            raise Fault("settings-refused", "base_url: this kind of destination has no address of its own; set it")
        return address

    async def aclose(self) -> None:
        await self._lookups.aclose()
        await self._caller.aclose()

    # ------------------------------------------------------------------------------- what a host's module says

    @abstractmethod
    def video_of(self, body: Any) -> RemoteVideo | None:
        """The video in a body; None where it has no id or no state and so is none."""

    def body_of(self, answer: Any) -> Any:
        """Where the video is in the answers to create and get."""
        return answer

    @abstractmethod
    def listing_of(self, answer: Any, cursor: str) -> tuple[Sequence[Any], str | None, int | None]:
        """The videos' bodies, the host's next cursor (None at the end) and its total, out of a list's answer; `cursor`
        is the one it was asked with ("" at first). Raises Fault("answer-malformed") for what is no list."""

    @abstractmethod
    def list_params(self, cursor: str) -> Mapping[str, str]:
        """The query of the list's page at the host's `cursor` ("" for the first)."""

    @abstractmethod
    def error_of(self, body: Any) -> tuple[str | None, str | None]:
        """The code and the message of a refused call."""

    def failure_of(self, body: Any) -> tuple[str | None, str | None] | None:
        """The code and the message of a failure that comes with a status of success; None where it is none."""
        return None

    def reason_of(self, status: int, code: str | None, *, creating: bool) -> str:
        """The reason code of a refused call. The status decides who is stopped; within a refusal of this video, the
        host's code decides the reason."""
        reason = faults.of_status(status, creating=creating)
        if reason == "destination-refused-input" and code is not None:
            return self.reasons.get(code, reason)
        return reason

    # ------------------------------------------------------------------------------------------------- calls

    async def _ask(
        self,
        method: str,
        path: str,
        *,
        creating: bool = False,
        params: Mapping[str, str] | None = None,
        body: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Any:
        """One call with a JSON body, and its JSON answer. Raises Fault for every answer that is no success."""
        content = None if body is None else _json(body)
        answer = await self._caller.call(
            method, path, creating=creating, params=params, content=content, headers=headers
        )
        return self._read(answer, creating=creating)

    def _demand_address(self, request: CreateRequest) -> None:
        """Refuses what the host cannot fetch. Raises Fault("local-file-refused" | "headers-refused")."""
        if request.is_local and not self.capabilities.fetches_local_paths:
            raise Fault("local-file-refused", "this destination fetches http addresses; the file is a path here")
        if request.headers and not self.capabilities.fetches_with_headers:
            names = ", ".join(sorted(request.headers))
            raise Fault("headers-refused", f"the source's address needs {names}, which this destination cannot send")

    async def get(self, remote_id: str) -> RemoteVideo:
        """One video: one call; state `deleted` where the host says 404 or 410."""
        answer = await self._caller.call("GET", self._item(remote_id))
        if answer.status in (404, 410):
            return RemoteVideo(remote_id, None, RemoteState.DELETED)
        return self._video(self.body_of(self._read(answer)))

    async def delete(self, remote_id: str) -> None:
        """Deletes it: one call; 404 and 410 are success."""
        await self._delete(self.item_path, remote_id)

    async def _delete(self, path: str, remote_id: str) -> None:
        answer = await self._caller.call("DELETE", self._item(remote_id, path))
        if answer.status in (404, 410) or (200 <= answer.status < 300 and not answer.content.strip()):
            return
        self._read(answer)

    async def lookup(self, ref: str, *, turn: Turn | None = None) -> Sequence[RemoteVideo]:
        """All videos with exactly this reference, out of the whole list: one call a page, together with others that are
        looked for at the same time."""
        return await self._lookups.find(ref, turn)

    async def list_page(self, cursor: str | None) -> RemotePage:
        """One page: one call. Our cursor is the host's, preceded by what tells a walk in circles from one that goes on,
        so that a host which repeats itself is noticed by any process that goes on with the walk."""
        place = _Place() if cursor is None else _Place.unpacked(cursor)
        answer = await self._ask("GET", self.list_path, params=self.list_params(place.cursor))
        videos, next_cursor, total = self._listing(answer, place.cursor)
        if cursor is None and next_cursor is None and total and not videos:
            raise Fault("answer-malformed", f"the list is empty, and says that there are {total} videos")
        onward = place.after(videos, next_cursor)
        return RemotePage(videos, None if next_cursor is None else onward.packed(), total)

    async def upload(self, request: CreateRequest, begun: Transfer | None, *, keep: Keep, turn: Turn) -> RemoteVideo:
        raise Fault("local-file-refused", "this destination fetches http addresses; the file is a path here")

    async def attach(self, remote_id: str, attachment: Attachment, *, turn: Turn) -> None:
        raise Fault("destination-refused-input", f"this destination takes no {attachment.kind}")

    async def check(self) -> Sequence[Finding]:
        """What can be known before a run without creating anything: one call for a page of the list."""
        answer = await self._caller.call("GET", self.list_path, params=self.list_params(""))
        self._listing(self._read(answer), "")
        return [Finding("credentials", True, "the list of videos can be read"), self._clock_finding(answer)]

    def _clock_finding(self, answer: Answer) -> Finding:
        """Whether our clock and the host's agree, by the date of its answer."""
        try:
            theirs = parsedate_to_datetime(answer.headers.get("date", "")).timestamp()
        except (TypeError, ValueError):
            return Finding("clock", None, "the host's answers carry no date to compare with")
        off = self._clock() - theirs
        words = f"{abs(off):.0f} s {'ahead of' if off > 0 else 'behind'} the host's"
        if abs(off) <= CLOCK_SKEW_S:
            return Finding("clock", True, f"this clock is {words}")
        return Finding("clock", False, f"this clock is {words}; set it, or every webhook will be refused as stale")

    async def _walk(self, turn: Turn | None) -> AsyncGenerator[RemoteVideo, None]:
        """Every video on the account: one call a page, in its turn but for the first."""
        cursor: str | None = None
        seen: set[str] = set()
        while True:
            if cursor is not None and turn is not None:
                await turn()
            page = await self.list_page(cursor)
            for video in page.videos:
                # Pages overlap where something was made or deleted meanwhile.
                if video.remote_id not in seen:
                    seen.add(video.remote_id)
                    yield video
            cursor = page.next_cursor
            if cursor is None:
                return

    def _item(self, remote_id: str, path: str | None = None) -> str:
        """The path of one video. Raises Fault("answer-malformed") for what is no id and would lead elsewhere."""
        if not is_id(remote_id):
            raise Fault("answer-malformed", f"{remote_id[:40]!r} is no id of a video")
        return (path or self.item_path).replace("{id}", quote(remote_id, safe=""))

    # ------------------------------------------------------------------------------------ what answers mean

    def _read(self, answer: Answer, *, creating: bool = False) -> Any:
        """The JSON of a good answer. Raises Fault for every other."""
        body, readable = parsed(answer.content)
        if not 200 <= answer.status < 300:
            raise self._refused(answer, body, creating)
        if not readable:
            what = "empty" if not answer.content.strip() else f"no JSON: {self._snippet(answer.content)}"
            raise self._unreadable(creating, f"status {answer.status}, and the body is {what}")
        failure = self.failure_of(body)
        if failure is not None:
            code, message = failure
            reason = self.reasons.get(code or "", "destination-error")
            raise Fault(
                reason,
                self._caller.redacted(f"status {answer.status} with success false: {joined(code, message)}"),
                retry_after=self._retry_after(answer),
                # A host's own error leaves it open what came before it; every other code is a refusal.
                landed=creating and reason == "destination-error",
            )
        return body

    def _refused(self, answer: Answer, body: Any, creating: bool) -> Fault:
        """The fault of a status outside 2xx."""
        code, message = self.error_of(body)
        if code is None and message is None:
            message = self._snippet(answer.content) or "empty body"
        landed = creating and (answer.status >= 500 or answer.status in (408, 409) or answer.status < 400)
        return Fault(
            self.reason_of(answer.status, code, creating=creating),
            self._caller.redacted(f"status {answer.status}: {joined(code, message)}"),
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
        for name in self.retry_after_headers:
            wait = parse_retry_after(answer.headers.get(name), now, self.retry_after_cap_s)
            if wait is not None:
                return wait
        return None

    def _video(self, body: Any, *, creating: bool = False) -> RemoteVideo:
        """A video out of an answer. Raises Fault where it is none."""
        video = self.video_of(body)
        if video is None or not is_id(video.remote_id):
            raise self._unreadable(creating, "the answer is no video: it has no id or no state")
        return video

    def _listing(self, answer: Any, cursor: str) -> tuple[list[RemoteVideo], str | None, int | None]:
        items, next_cursor, total = self.listing_of(answer, cursor)
        return [self._video(item) for item in items], next_cursor, total


def basic(user_and_password: str) -> str:
    """`user:password` as the Basic scheme sends it: a form of the secret that must not be told either."""
    return base64.b64encode(user_and_password.encode()).decode()


def credential(token: str) -> str:
    """The token, fit for a header. Raises Fault("settings-refused") for one that fits none, and doesn't show it."""
    if not token or not token.isascii() or not token.isprintable() or token != token.strip():
        raise Fault("settings-refused", "token: must be printable ASCII, not empty, without blanks around it")
    return token


def _json(body: Mapping[str, Any]) -> bytes:
    try:
        return json.dumps(body, allow_nan=False).encode()
    except (ValueError, TypeError) as error:
        raise Fault("destination-refused-input", f"title or metadata cannot be put into JSON: {error}") from None


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a walk over the host's list stands, small enough to be its cursor: what the first page and the one before
    looked like, the trails of pages and of cursors, how many pages in a row were empty, and the host's own cursor."""

    first: str = ""
    before: str = ""
    pages: Trail = NO_TRAIL
    cursors: Trail = NO_TRAIL
    empty: int = 0
    cursor: str = ""

    def after(self, videos: Sequence[RemoteVideo], cursor: str | None) -> _Place:
        """The place behind a page. Raises Fault("answer-malformed") where the walk would never end."""
        first, before, pages, cursors, empty = self.first, self.before, self.pages, self.cursors, self.empty + 1
        if videos:
            # In any order: some hosts sort anew each time.
            mark = _mark("\n".join(sorted(video.remote_id for video in videos)))
            pages, length = pages.step(mark)
            if length or mark in (first, before):
                raise Fault("answer-malformed", "the list repeats: this page was there before")
            first, before, empty = first or mark, mark, 0
        if cursor is not None:
            cursors, length = cursors.step(_mark(cursor))
            if length or cursor == self.cursor:
                raise Fault("answer-malformed", "the list repeats: its cursor leads back to a page already read")
            if empty >= EMPTY_PAGES:
                raise Fault("answer-malformed", f"the list repeats: {empty} empty pages, and no end")
        return _Place(first, before, pages, cursors, empty, cursor or "")

    def packed(self) -> str:
        trails = [part for trail in (self.pages, self.cursors) for part in (trail.mark, trail.power, trail.steps)]
        return ".".join(map(str, [self.first, self.before, *trails, self.empty, self.cursor]))

    @classmethod
    def unpacked(cls, cursor: str) -> _Place:
        try:
            first, before, *trails, empty, own = cursor.split(".", 9)
            page, page_power, page_steps, place, place_power, place_steps = trails
            return cls(
                first,
                before,
                Trail(page, int(page_power), int(page_steps)),
                Trail(place, int(place_power), int(place_steps)),
                int(empty),
                own,
            )
        except ValueError:
            raise Fault("answer-malformed", "the cursor is none of this destination's") from None


def _mark(text: str) -> str:
    """Twelve hexadecimal digits that tell pages, or cursors, apart."""
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:12]
