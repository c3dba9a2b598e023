"""Reading `Retry-After` in every form that hosts have been seen to send it."""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Final

CAP_S: Final = 3_600.0
"""Longest pause that a header can ask for, in seconds. A host that is down for longer is asked once an hour."""

_NUMBER: Final = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:e[+-]?[0-9]+)?|[+-]?inf(?:inity)?", re.IGNORECASE)
_LONGEST: Final = 200
"""Characters of a header that are looked at: none of the forms is longer."""
_EPOCH_PAST_S: Final = 86_400.0
_EPOCH_FUTURE_S: Final = 366 * 86_400.0
"""A number that, read as seconds or milliseconds since 1970, lies within a day before and a year after now is that
moment, as rate limit headers give it: as a delay it would be fifty years."""


def parse_retry_after(value: str | None, now: datetime, cap: float = CAP_S) -> float | None:
    """Seconds to wait from `now` (an aware datetime), clamped to [0, `cap`]; None where there is no readable value,
    which means ordinary backoff.

    Read are delay seconds (RFC 9110, 10.2.3), also negative, fractional and infinite ones; moments in seconds or
    milliseconds since 1970; the three HTTP date forms, also with a numeric zone, `-0000` included; ISO 8601 dates; and
    several numbers in a list, as proxies that add a header of their own produce it, of which the longest counts.
    """
    if value is None:
        return None
    text = value.strip()
    if not text or len(text) > _LONGEST:
        return None
    parts = [part.strip() for part in text.split(",")]
    if all(_NUMBER.fullmatch(part) for part in parts):
        return _clamped(max(_delay(float(part), now.timestamp()) for part in parts), cap)
    moment = _moment(text)
    return None if moment is None else _clamped((moment - now).total_seconds(), cap)


def _delay(number: float, now: float) -> float:
    for since in (number - now, number / 1000 - now):
        if -_EPOCH_PAST_S <= since <= _EPOCH_FUTURE_S:
            return since
    return number


def _clamped(seconds: float, cap: float) -> float | None:
    return None if math.isnan(seconds) else min(max(seconds, 0.0), cap)


def _moment(text: str) -> datetime | None:
    try:
        moment = parsedate_to_datetime(text)
    except (TypeError, ValueError, IndexError, OverflowError):
        try:
            moment = datetime.fromisoformat(text)
        except ValueError:
            return None
    # A date without a zone, or with -0000 ("no zone known"), is meant as UTC: HTTP knows no other.
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment
