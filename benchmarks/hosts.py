"""Models of hosts that limit their callers, for the pace benchmark: who is refused when, and with what words.

Times are seconds; 0 is midnight UTC. Each model counts what the documentation of a real host says, or what hosts
without documentation have been seen to do.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol


@dataclass(frozen=True, slots=True)
class Refused:
    """429 or 503; `retry_after` in seconds where the host says one."""

    retry_after: float | None = None


class Host(Protocol):
    @property
    def blocks(self) -> int: ...

    def ask(self, now: float, operation: str) -> Refused | None:
        """Counts one request, or refuses it."""
        ...


class FixedWindow:
    """`requests` in each fixed window; one more blocks every call for `block_s` (Cloudflare: 1200 in 300 s, 300 s)."""

    def __init__(self, requests: int, per_s: float, block_s: float, offset: float = 0.0) -> None:
        self._requests, self._per_s, self._block_s, self._offset = requests, per_s, block_s, offset
        self._window = self._passed = -1
        self._blocked_until = -math.inf
        self.blocks = 0

    def ask(self, now: float, operation: str) -> Refused | None:
        if now < self._blocked_until:
            return Refused(self._blocked_until - now)
        window = int((now + self._offset) // self._per_s)
        if window != self._window:
            self._window, self._passed = window, 0
        if self._passed >= self._requests:
            self.blocks += 1
            self._blocked_until = now + self._block_s
            return Refused(self._block_s)
        self._passed += 1
        return None


class SlidingWindow:
    """`units` in any `per_s` seconds, at `prices`; a refusal says when there is room again."""

    def __init__(self, units: float, per_s: float, prices: dict[str, float] | None = None, block_s: float = 0) -> None:
        self._units, self._per_s, self._prices, self._block_s = units, per_s, prices or {}, block_s
        self._passed: deque[tuple[float, float]] = deque()
        self._used = 0.0
        self._blocked_until = -math.inf
        self.blocks = 0

    def ask(self, now: float, operation: str) -> Refused | None:
        if now < self._blocked_until:
            return Refused(self._blocked_until - now)
        while self._passed and self._passed[0][0] <= now - self._per_s:
            self._used -= self._passed.popleft()[1]
        price = self._prices.get(operation, 1.0)
        if self._used + price > self._units:
            if self._block_s:
                self.blocks += 1
                self._blocked_until = now + self._block_s
            return Refused(max(self._block_s, self._passed[0][0] + self._per_s - now))
        self._passed.append((now, price))
        self._used += price
        return None


class TokenBucket:
    """`per_s` requests a second sustained, `burst` at once; a refusal says nothing more (Mux). With `changes`, moments
    and the rates from then on."""

    def __init__(self, per_s: float, burst: float, changes: Sequence[tuple[float, float]] = ()) -> None:
        self._per_s, self._burst, self._tokens, self._at = per_s, burst, burst, 0.0
        self._changes = deque(changes)
        self.blocks = 0

    def ask(self, now: float, operation: str) -> Refused | None:
        while self._changes and now >= self._changes[0][0]:
            self._per_s = self._changes.popleft()[1]
        self._tokens = min(self._burst, self._tokens + (now - self._at) * self._per_s)
        self._at = now
        if self._tokens < 1:
            return Refused()
        self._tokens -= 1
        return None


class Daily:
    """An allowance for each day, renewed at `resets_s` after midnight, over another host model. A refusal names the
    seconds until then, an hour at most, as hosts do."""

    def __init__(self, units: float, resets_s: float, prices: dict[str, float], within: Host) -> None:
        self._units, self._resets_s, self._prices, self._within = units, resets_s, prices, within
        self.used: dict[int, float] = {}

    @property
    def blocks(self) -> int:
        return self._within.blocks

    def ask(self, now: float, operation: str) -> Refused | None:
        day = int((now - self._resets_s) // 86_400)
        price = self._prices.get(operation, 1.0)
        if self.used.get(day, 0.0) + price > self._units:
            return Refused(min(3600.0, (day + 1) * 86_400 + self._resets_s - now))
        refused = self._within.ask(now, operation)
        if refused is None:
            self.used[day] = self.used.get(day, 0.0) + price
        return refused


class Both:
    """Two limits at once, each of which can refuse."""

    def __init__(self, first: Host, second: Host) -> None:
        self._hosts = first, second

    @property
    def blocks(self) -> int:
        return sum(host.blocks for host in self._hosts)

    def ask(self, now: float, operation: str) -> Refused | None:
        for host in self._hosts:
            if refused := host.ask(now, operation):
                return refused
        return None


Limits = list[dict[str, Any]]
"""`limits` of an account's settings."""
