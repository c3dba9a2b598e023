"""Declared rate limits: who is refused, for how long, and how the answer says so."""

from __future__ import annotations

import math
import random
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from email.utils import formatdate

from sandbox.config import Limit, RetryAfterForm


@dataclass(frozen=True, slots=True)
class Refusal:
    """A call over a limit. `wait` in seconds until a call may pass again."""

    limit: str
    wait: float
    blocked: bool


class _Window:
    """One limit: the moments of the calls that passed in its last `per_s` seconds, and the end of a block."""

    __slots__ = ("blocked_until", "limit", "passed")

    def __init__(self, limit: Limit) -> None:
        self.limit = limit
        self.passed: deque[float] = deque()
        self.blocked_until = -math.inf

    def forget(self, now: float) -> None:
        while self.passed and self.passed[0] <= now - self.limit.per_s:
            self.passed.popleft()


class Limits:
    """All declared limits of the account. Times are seconds of one monotonic clock, passed in."""

    def __init__(self, limits: Sequence[Limit]) -> None:
        self.declared = tuple(limits)
        self._windows = [_Window(limit) for limit in limits]
        self.blocks = 0
        """How often a block began."""

    def admit(self, now: float, *, creating: bool) -> Refusal | None:
        """Counts one call against every limit it falls under, or refuses it; a refused call counts against none.

        A block refuses every call of the account, also those that its limit doesn't count.
        """
        counted = []
        for window in self._windows:
            if now < window.blocked_until:
                return Refusal(window.limit.name, window.blocked_until - now, blocked=True)
            if window.limit.creates_only and not creating:
                continue
            window.forget(now)
            if len(window.passed) >= window.limit.requests:
                if not window.limit.block_s:
                    return Refusal(window.limit.name, window.passed[0] + window.limit.per_s - now, blocked=False)
                self.blocks += 1
                window.blocked_until = now + window.limit.block_s
                window.passed.clear()
                return Refusal(window.limit.name, window.limit.block_s, blocked=True)
            counted.append(window)
        for window in counted:
            window.passed.append(now)
        return None

    def headers(self, now: float) -> dict[str, str]:
        """What is left, as the IETF draft's `RateLimit` fields for all limits and `X-RateLimit-…` for the tightest."""
        if not self._windows:
            return {}
        left: list[tuple[int, float, Limit]] = []
        for window in self._windows:
            window.forget(now)
            if now < window.blocked_until:
                left.append((0, window.blocked_until - now, window.limit))
            else:
                reset = window.passed[0] + window.limit.per_s - now if window.passed else 0.0
                left.append((window.limit.requests - len(window.passed), reset, window.limit))
        remaining, reset, tightest = min(left, key=lambda entry: entry[0] / entry[2].requests)
        return {
            "ratelimit": ", ".join(f'"{limit.name}";r={r};t={math.ceil(t)}' for r, t, limit in left),
            "ratelimit-policy": ", ".join(
                f'"{limit.name}";q={limit.requests};w={limit.per_s:g}' for _, _, limit in left
            ),
            "x-ratelimit-limit": str(tightest.requests),
            "x-ratelimit-remaining": str(remaining),
            "x-ratelimit-reset": str(math.ceil(reset)),
        }


_FORMS: tuple[RetryAfterForm, ...] = (
    "seconds",
    "float",
    "http-date",
    "http-date-zone",
    "http-date-past",
    "negative",
    "nan",
    "inf",
    "huge",
    "empty",
    "word",
    "absent",
)


def retry_after_value(form: RetryAfterForm, wait: float, now: float, rng: random.Random) -> str | None:
    """The value of `Retry-After` that asks for `wait` seconds at `now` (seconds since 1970), or None for no header."""
    if form == "random":
        form = rng.choice(_FORMS)
    match form:
        case "seconds":
            return str(math.ceil(wait))
        case "float":
            return f"{wait:.3f}"
        case "http-date":
            return formatdate(now + wait, usegmt=True)
        case "http-date-zone":
            return formatdate(now + wait)
        case "http-date-past":
            return formatdate(now - 60, usegmt=True)
        case "negative":
            return "-5"
        case "nan" | "inf":
            return form
        case "huge":
            return "999999999999"
        case "empty":
            return ""
        case "word":
            return "soon"
        case _:
            return None
