"""How fast an account may be called: pure functions of the settings and of what the destination said."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from faults import Fault
from ledger.budgets import Limit
from settings import AccountSettings

FIRST_PAUSE_S: Final = 1.0
DOWN_AFTER: Final = 20
"""Failed calls in a row, over all rows of one process, that mean an outage. Where a call in three fails by chance, so
many in a row come once in three thousand million."""
DOWN_PAUSES: Final = 5
"""Pauses in a row, each twice as long, that mean an outage: after half a minute without an answer."""
DOWN_SIGNS: Final = frozenset(
    {"destination-unreachable", "destination-timeout", "destination-error", "destination-busy", "answer-lost"}
)
DOWN_WAIT_S: Final = 60.0
"""Seconds after which a run that was parked for an outage tries again."""
LONGEST_PAUSE_S: Final = 300.0
"""Five minutes: the longest block that a host is known to impose (Cloudflare's whole-account block)."""


def limits_of(account: AccountSettings) -> Sequence[Limit]:
    """The account's declared limits as they are spent: evenly, and only the share that the settings leave us.

    An even pace of `spend` times the limit trips neither a fixed nor a sliding window of it.
    """
    return [
        Limit(f"{limit.name}-{position}", limit.per_s / (limit.requests * account.spend))
        for position, limit in enumerate(account.limits)
    ]


def fastest_s(account: AccountSettings, requests: int) -> float | None:
    """Seconds that so many requests take at the declared pace, or None where no limit is declared."""
    return max((limit.interval_s * requests for limit in limits_of(account)), default=None)


def pause_s(fault: Fault, streak: int) -> float:
    """Seconds to pause the account after a pushback: what the destination asks for, else 1, 2, 4 … by how many came in
    a row (`streak` ≥ 1), never more than five minutes unless it asks for more."""
    if fault.retry_after is not None:
        return max(fault.retry_after, FIRST_PAUSE_S)
    return min(FIRST_PAUSE_S * 2.0 ** min(streak - 1, 20), LONGEST_PAUSE_S)
