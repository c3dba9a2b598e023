"""What hosts say of their limits in an answer's headers, in every form seen in the wild.

- `RateLimit: "default";r=50;t=30` with `RateLimit-Policy: "default";q=100;w=60` (the IETF draft's present form)
- `RateLimit: limit=100, remaining=50, reset=30` and `RateLimit-Limit: 100, 100;w=60`, `-Remaining`, `-Reset` (older)
- `X-RateLimit-Limit`, `-Remaining`, `-Reset` and their spellings `X-Rate-Limit-…`; the reset in seconds from now, as
  seconds or milliseconds since 1970, as an HTTP date or an ISO 8601 date; several numbers where there are several
  limits
- `Retry-After`, `X-RateLimit-Retry-After` (api.video), `Retry-After-Ms`
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from governor.retry_after import CAP_S, parse_retry_after

LONGEST_S: Final = 7 * 86_400.0
"""A reset further away than a week is a misreading."""
SHORTEST_S: Final = 2.0
"""A reset nearer than this is not waited for: such limits are kept by our own pace, and the host's count of a second is
over before a pause has been told."""
ALARM: Final = 0.9
"""Of the share that is left to others, how much may be left before we pause. Spending exactly our share leaves all."""
_LONGEST_TEXT: Final = 1_000
_EPOCH_S: Final = 1e9
_EPOCH_MS: Final = 1e11
_ITEM: Final = re.compile(r'\s*(?:"(?P<quoted>[^"]*)"|(?P<bare>[A-Za-z0-9*_./:-]+))(?P<parameters>(?:\s*;[^,"]*)?)\s*$')
_NUMBER: Final = re.compile(r"\d{1,18}(?:\.\d{1,18})?$")
_FAMILIES: Final = ("ratelimit", "x-ratelimit", "x-rate-limit")


@dataclass(frozen=True, slots=True)
class Quota:
    """One limit as the host counts it: units of a window, units left, seconds until it is renewed (or until there is
    more), seconds of the window. None where it does not say."""

    name: str
    limit: float | None = None
    remaining: float | None = None
    reset_s: float | None = None
    window_s: float | None = None


def quotas(headers: Mapping[str, str], now: datetime) -> Sequence[Quota]:
    """The limits that an answer's headers name; `now` is aware. What cannot be read is left out."""
    given = {name.lower(): value for name, value in headers.items() if "rate" in name.lower()}
    if not given:
        return ()
    found = _structured(given.get("ratelimit", ""), given.get("ratelimit-policy", ""))
    for family in _FAMILIES:
        found += _family(given, family, now)
    return found


def retry_after(headers: Mapping[str, str], now: datetime, cap: float = CAP_S) -> float | None:
    """Seconds for which the host asks us to wait, whichever header says so; None where none can be read."""
    given = {name.lower(): value for name, value in headers.items()}
    for name in ("retry-after", "x-ratelimit-retry-after", "x-rate-limit-retry-after", "x-retry-after"):
        seconds = parse_retry_after(given.get(name), now, cap)
        if seconds is not None:
            return seconds
    milliseconds = parse_retry_after(given.get("retry-after-ms"), now, cap * 1000)
    return None if milliseconds is None else milliseconds / 1000


def wait_s(found: Sequence[Quota], reserve: float) -> float:
    """Seconds to make no more calls: until every limit has more left than nine tenths of the `reserve` (a share of it)
    that is not ours. 0 where there is enough, and where the host doesn't say both what is left and until when."""
    waits = [0.0]
    for quota in found:
        if quota.remaining is None or quota.reset_s is None or not SHORTEST_S <= quota.reset_s <= LONGEST_S:
            continue
        kept = 0.0 if quota.limit is None else quota.limit * reserve * ALARM
        if quota.remaining < kept or quota.remaining <= 0:
            waits.append(quota.reset_s)
    return max(waits)


def _structured(values: str, policies: str) -> list[Quota]:
    windows: dict[str, Quota] = {}
    for name, parameters in _items(policies):
        windows[name] = Quota(name, limit=parameters.get("q"), window_s=parameters.get("w"))
    found = []
    for name, parameters in _items(values):
        if "r" in parameters:
            policy = windows.get(name, Quota(name))
            found.append(
                Quota(name, policy.limit, parameters["r"], parameters.get("t"), policy.window_s),
            )
    if not found and "=" in values:
        pairs = dict(_pair(part) for part in values[:_LONGEST_TEXT].split(","))
        if "remaining" in pairs:
            found.append(Quota("default", pairs.get("limit"), pairs["remaining"], pairs.get("reset")))
    return [quota for quota in found if quota.remaining is not None]


def _items(text: str) -> list[tuple[str, dict[str, float]]]:
    """The items of a structured-field list with their numeric parameters."""
    items = []
    for part in re.split(r',(?=(?:[^"]*"[^"]*")*[^"]*$)', text[:_LONGEST_TEXT]):
        if match := _ITEM.match(part):
            pairs = (_pair(parameter) for parameter in match["parameters"].split(";") if parameter.strip())
            name = match["quoted"] if match["quoted"] is not None else match["bare"]
            items.append((name, {key: value for key, value in pairs if value is not None}))
    return items


def _pair(text: str) -> tuple[str, float | None]:
    name, _, value = text.partition("=")
    return name.strip().lower(), _number(value)


def _number(text: str) -> float | None:
    text = text.strip()
    return float(text) if text.isascii() and _NUMBER.match(text) else None


def _family(given: Mapping[str, str], family: str, now: datetime) -> list[Quota]:
    """The three headers of one spelling; where they hold lists, as many limits."""
    limits = [part.partition(";")[0] for part in given.get(f"{family}-limit", "")[:_LONGEST_TEXT].split(",")]
    remaining = given.get(f"{family}-remaining", "")[:_LONGEST_TEXT].split(",")
    text = given.get(f"{family}-reset", "")[:_LONGEST_TEXT]
    resets = [_reset_s(part, now) for part in text.split(",")] if _number(text.split(",")[0]) is not None else []
    whole = _reset_s(text, now)
    found = []
    for number, left in enumerate(remaining):
        if (units := _number(left)) is not None:
            reset_s = resets[number] if number < len(resets) else resets[0] if resets else whole
            limit = _number(limits[number] if number < len(limits) else limits[0])
            found.append(Quota(family if len(remaining) == 1 else f"{family}-{number}", limit, units, reset_s))
    return found


def _reset_s(text: str, now: datetime) -> float | None:
    """Seconds from now: a small number is that already, a large one is a moment since 1970, in seconds or, larger
    still, in milliseconds; else a date."""
    number = _number(text)
    if number is None:
        return parse_retry_after(text, now, LONGEST_S) if re.search("[A-Za-z]", text) else None
    if number >= _EPOCH_MS:
        number = number / 1000 - now.timestamp()
    elif number >= _EPOCH_S:
        number -= now.timestamp()
    return max(0.0, number) if math.isfinite(number) else None
