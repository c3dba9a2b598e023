"""What the ledger knows of one asset, and how its reference is derived."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import asyncpg

VIDEO = "video"
"""The kind of every asset so far; captions and posters will be others."""


def ref_of(tenant: str, source: str, kind: str, source_id: str) -> str:
    """The reference of an asset: the same for these four, for ever, on every machine.

    It is idempotency key, correlation id, and what is put on the remote video. 26 characters of [a-z2-7] after "lh-":
    130 bits of SHA-256 over the four, each with its length in front, so that no two quadruples run into each other.
    """
    digest = hashlib.sha256()
    for part in (tenant, source, kind, source_id):
        raw = part.encode("utf-8", "surrogatepass")
        digest.update(len(raw).to_bytes(8, "big"))
        digest.update(raw)
    return "lh-" + base64.b32encode(digest.digest()).decode("ascii").lower()[:26]


@dataclass(frozen=True, slots=True)
class Row:
    """One claimed asset, as the work on it needs it.

    `retired` are remote ids of videos that failed at the destination and were given up for another. `reason` and
    `detail` are what stopped it last. `transfer` is how far its file has been sent (`destinations.base.Transfer`),
    where that has begun. `fence` is that of the claim.
    `state` is the one it was claimed from, `attempts` counts this attempt, `deaths` the claims of it that ended without
    a word. `intent` says that an earlier create call may have been made and was never answered.
    """

    ref: str
    tenant: str
    source_id: str
    title: str | None
    locator: str | None
    position: int
    size: int | None
    claimed_duration_ms: int | None
    metadata: Mapping[str, Any]
    about: Mapping[str, Any]
    state: str
    attempts: int
    deaths: int
    intent: bool
    facts: Mapping[str, Any] | None
    duration_ms: int | None
    remote_id: str | None
    retired: Sequence[str] = ()
    reason: str | None = None
    detail: str | None = None
    transfer: Mapping[str, Any] | None = None
    fence: int = 0

    @classmethod
    def from_record(cls, record: asyncpg.Record) -> Self:
        return cls(**{name: record[name] for name in cls.__slots__})
