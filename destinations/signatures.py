"""Webhook signatures over the raw bytes of a delivery, in the forms that hosts use. Pure: the clock is passed in.

Every signature that is offered is compared with every current secret's, in constant time, so that the time taken
doesn't tell which matched. All functions raise `SignatureRefused`, whose text is safe to log, and return nothing.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Sequence
from typing import Final

from destinations.base import SignatureRefused

TOLERANCE_S: Final = 300
"""Seconds that a signed timestamp may be away from now, on either side."""
MOST_OFFERED: Final = 32
"""Signatures of one delivery that are looked at."""


def fresh(stamp: str, *, now: float, tolerance_s: int = TOLERANCE_S) -> None:
    """Refuses a timestamp (seconds since 1970, as text) that is no number or too far away."""
    # Digits alone: the signature covers the text of the timestamp, so 1e9 or 1.0 would be another text.
    if not (stamp.isascii() and stamp.isdigit() and len(stamp) <= 12 and stamp == str(int(stamp))):
        raise SignatureRefused("the timestamp is not a number of seconds")
    if abs(int(now) - int(stamp)) > tolerance_s:
        raise SignatureRefused("the timestamp is too far from now")


def matching(expected: Sequence[str], offered: Sequence[str]) -> None:
    """Refuses a delivery where none of the offered signatures is one of the expected ones."""
    if not expected:
        raise SignatureRefused("no webhook secret is set for this account")
    mine = [signature.encode() for signature in expected]
    theirs = [signature.encode("utf-8", "replace") for signature in offered[:MOST_OFFERED]]
    if not sum(hmac.compare_digest(one, other) for one in mine for other in theirs):
        raise SignatureRefused("no signature matches")


def stamped(
    header: str | None,
    body: bytes,
    secrets: Sequence[bytes],
    *,
    now: float,
    stamp: str = "t",
    signature: str = "v1",
    tolerance_s: int = TOLERANCE_S,
) -> None:
    """A header of the form `t=<seconds>,v1=<hex>`, with HMAC-SHA256 over "<seconds>.<body>"; several signatures may
    stand in it. `stamp` and `signature` are what the host calls the two parts."""
    if not header:
        raise SignatureRefused("the signature header is missing")
    parts = [part.strip().partition("=") for part in header.split(",")]
    stamps = [value.strip() for name, _, value in parts if name.strip() == stamp]
    offered = [value.strip() for name, _, value in parts if name.strip() == signature]
    if len(stamps) != 1 or not offered:
        raise SignatureRefused(f"the signature header needs one {stamp}= and a {signature}=")
    fresh(stamps[0], now=now, tolerance_s=tolerance_s)
    signed = stamps[0].encode() + b"." + body
    matching([hmac.new(secret, signed, hashlib.sha256).hexdigest() for secret in secrets], offered)


def plain_hex(header: str | None, body: bytes, secrets: Sequence[bytes]) -> None:
    """A header that is the hexadecimal HMAC-SHA256 of the body alone: it never grows stale."""
    if not header:
        raise SignatureRefused("the signature header is missing")
    offered = [part.strip() for part in header.split(",")]
    matching([hmac.new(secret, body, hashlib.sha256).hexdigest() for secret in secrets], offered)


def plain_base64(header: str | None, body: bytes, secrets: Sequence[bytes]) -> None:
    """A header that is the Base64 HMAC-SHA256 of the body alone: it never grows stale."""
    if not header:
        raise SignatureRefused("the signature header is missing")
    offered = [part.strip() for part in header.split(",")]
    digests = (hmac.new(secret, body, hashlib.sha256).digest() for secret in secrets)
    matching([base64.b64encode(digest).decode() for digest in digests], offered)
