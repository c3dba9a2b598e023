"""The small protocol behind which each hosted video API stands.

A destination knows nothing of Temporal, the ledger or the governor. It makes exactly one HTTP request per method call
unless its docstring says otherwise, so that the caller can lease it from the account's budget; methods that make more
take a `turn`, and wait for it before each. Everything that goes wrong is raised as `faults.Fault`; for `create`, a
fault whose `landed` is True means that the video may exist.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal, Protocol

from sources.about import NOTHING, About

Turn = Callable[[], Awaitable[None]]
"""Returns when the account's budget gives leave for one more request."""


class RemoteState(StrEnum):
    """A remote video's state in our words."""

    PROCESSING = "processing"
    READY = "ready"
    ERRORED = "errored"
    DELETED = "deleted"


@dataclass(frozen=True, slots=True)
class RemoteVideo:
    """One video as the destination sees it.

    `ref` is our reference as found on it (None where it carries none). `reason` is a code from `faults` when `state` is
    errored. `duration_ms` in milliseconds, `size` in bytes, `width`/`height` in pixels: None while unknown (never -1).
    """

    remote_id: str
    ref: str | None
    state: RemoteState
    reason: str | None = None
    detail: str = ""
    duration_ms: int | None = None
    width: int | None = None
    height: int | None = None
    size: int | None = None
    playback: str | None = None
    title: str | None = None
    awaits_bytes: bool = False
    """Whether it was only announced: a transfer of its file has not been finished, and nothing is being processed."""


@dataclass(frozen=True, slots=True)
class RemotePage:
    """One page of the destination's own list; `next_cursor` None at its end; `total` where the host says one."""

    videos: Sequence[RemoteVideo]
    next_cursor: str | None
    total: int | None = None


@dataclass(frozen=True, slots=True)
class CreateRequest:
    """What is needed to make one video from an address the destination can fetch. `ref` is idempotency key, correlation
    id and the reference put on the remote video."""

    ref: str
    address: str
    title: str
    headers: Mapping[str, str] = field(default_factory=dict)
    metadata: Mapping[str, Any] = field(default_factory=dict)
    duration_ms: int | None = None
    """Known duration of the input: lets a host that synthesizes media do so."""
    about: About = NOTHING
    size: int | None = None
    """Bytes of the file, where known."""

    @property
    def is_local(self) -> bool:
        """Whether `address` is a path on the workers' machine."""
        return self.address.startswith("/") or self.address.lower().startswith("file:")


@dataclass(frozen=True, slots=True)
class RemoteEvent:
    """One verified webhook event. `dedupe_key` is the provider's event id, or remote id and state where there is none.
    `video` is what the event says of the video; None for an event that tells us nothing (answered 2xx all the same)."""

    dedupe_key: str
    video: RemoteVideo | None
    kind: str = ""


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What this host offers and demands. `lookup` says how a lost create is found: an exact filter by reference, a list
    to compare, or nothing. Limits are None where the host documents none."""

    lookup: Literal["exact", "list"]
    idempotent_create: bool
    event_carries_ref: bool
    list_limit: int
    list_tells_state: bool = True
    """Whether videos in its list say their state and measures. Where not, they are `processing` in it, and what a run
    has to know of its own is asked for one by one."""
    ref_max: int | None = None
    title_max: int | None = None
    """In characters."""
    duration_min_ms: int | None = None
    duration_max_ms: int | None = None
    size_max: int | None = None
    fetches_local_paths: bool = False
    """Whether the host reads files of the workers' machine by their path."""
    fetches_with_headers: bool = False
    """Whether it sends along the headers that a source demands."""
    in_flight: int | None = None
    """Videos that the host processes at once; it refuses more."""
    uploads: bool = False
    """Whether `upload` takes a local file's bytes."""
    carries: frozenset[str] = frozenset()
    """Which parts of `About` a create, an upload or an attachment puts on the video: names of its fields. The others
    are lost, and said to be before a run."""
    captions: Literal["address", "bytes"] | None = None
    """Whether text tracks are attached by an address that the host fetches, or by their bytes."""
    several_tracks_a_language: bool = False
    """Whether a video can have more than one text track in a language; else a second would replace the first."""
    poster: Literal["address", "bytes"] | None = None


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that `check` tried. `good` is None where it cannot be known; `words` say what was found and, where it
    is not good, what to do."""

    name: str
    good: bool | None
    words: str


@dataclass(frozen=True, slots=True)
class Transfer:
    """A local file's way to the host. `place` is what the destination needs to go on with it — an opaque text without
    any secret, kept in the ledger —, `sent` the bytes that the host is known to have."""

    place: str
    sent: int = 0


Keep = Callable[[Transfer], Awaitable[None]]
"""Writes in the ledger how far a transfer has come. Raises Fault("fence-lost") where the row is another's by now."""


@dataclass(frozen=True, slots=True)
class Attachment:
    """A text track or a poster for a video. `address` is where the host can fetch it, `content` its bytes where the
    host takes those: then a text track is WebVTT. A poster has no language. `format` is a picture's subtype ("jpeg",
    "png"), empty where it isn't known."""

    kind: Literal["subtitles", "captions", "poster"]
    address: str
    content: bytes | None = None
    language: str = ""
    label: str | None = None
    format: str = "vtt"


class SignatureRefused(Exception):
    """The delivery is not from the provider, or cannot be shown to be. Its text is safe to log."""


class Destination(Protocol):
    """One account at one hosted video API."""

    capabilities: Capabilities

    async def create(self, request: CreateRequest) -> RemoteVideo:
        """Makes a video. Raises Fault; `fault.landed` where it may exist all the same (time-out after sending, dropped
        connection, 5xx, 409, 2xx with an empty or unreadable body)."""
        ...

    async def upload(self, request: CreateRequest, begun: Transfer | None, *, keep: Keep, turn: Turn) -> RemoteVideo:
        """Sends a local file's bytes, from where `begun` says that an earlier attempt stood. Waits for `turn` before
        each request, and calls `keep` as soon as there is something to go on from, and after each chunk. Where
        `capabilities.uploads` is false it is never called. Raises as `create`, and Fault("file-changed") where the file
        is no longer the one that was begun."""
        ...

    async def attach(self, remote_id: str, attachment: Attachment, *, turn: Turn) -> None:
        """Puts a text track or a poster on a video. Twice the same has the effect of once. Waits for `turn` before each
        request. Called only for what `capabilities.captions` and `capabilities.poster` offer."""
        ...

    async def check(self) -> Sequence[Finding]:
        """What can be known before a run about credentials, rights, webhooks and clock, creating nothing. A few
        requests. Raises Fault where even the first question is refused."""
        ...

    async def lookup(self, ref: str, *, turn: Turn | None = None) -> Sequence[RemoteVideo]:
        """All videos that carry exactly this reference (compared here, never trusting a host's search). Where that
        takes more than one request (`capabilities.lookup` "list"), waits for `turn` before each but the first."""
        ...

    async def get(self, remote_id: str) -> RemoteVideo:
        """One video by id; state `deleted` where the host says 404."""
        ...

    async def list_page(self, cursor: str | None) -> RemotePage:
        """One page of everything on the account. Raises Fault("answer-malformed") where an answer is not a list, or
        where it repeats: never an empty page instead."""
        ...

    async def delete(self, remote_id: str) -> None:
        """Deletes it; already gone is success."""
        ...

    def verify(self, headers: Mapping[str, str], body: bytes) -> None:
        """Checks the signature over the raw bytes. Header names are lower case. Raises SignatureRefused."""
        ...

    def parse_event(self, headers: Mapping[str, str], body: bytes) -> RemoteEvent:
        """The event in a verified delivery. Raises Fault("answer-malformed") for a body that is none."""
        ...

    def observe(self, on_headers: Callable[[Mapping[str, str]], None]) -> None:
        """Tells the headers of every answer from now on: what the host says of its limits stands there."""
        ...

    async def aclose(self) -> None: ...
