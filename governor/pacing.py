"""How fast an account may be called: pure functions of the settings and of what the destination said."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from destinations import default_limits
from faults import Fault
from ledger.budgets import Limit
from settings import OPERATIONS, AccountSettings, LimitSettings

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
DROPS: Final = 3
"""Connections lost in a row, in one process, before the account pauses: one is the call's own misfortune."""
TOLERANCE: Final = 0.01
"""Of a limit's window, how far its requests may come early to catch up after a gap. As much of the limit stays unused:
that is what keeps every window, wherever it begins, at or under the limit."""
RESOLUTION_S: Final = 2.4e-7
"""What seconds since 1970 are multiples of, as the ledger's numbers hold them: rounded, no interval may get shorter."""
WORTHWHILE: Final = 0.985
"""Share of a limit that its strict pace must reach; of small limits, where a whole request is a large part, it does
not, and the part that `spend` leaves free is used to round up."""

FINEST: Final = 1000
"""Parts of the dearest price to which prices are rounded up at the finest; finer ones are kept as they are."""


def limits_of(account: AccountSettings) -> Sequence[Limit]:
    """The account's declared limits, or the host's documented ones, as they are spent: only the share that the settings
    leave us."""
    return [_limit(limit, f"{limit.name}-{number}", account.spend) for number, limit in enumerate(_declared(account))]


def _declared(account: AccountSettings) -> Sequence[LimitSettings]:
    """The limits that the account declares; where it declares none, those that its host documents."""
    return account.limits or default_limits(account.kind)


def _limit(declared: LimitSettings, name: str, spend: float) -> Limit:
    whole = declared.requests - declared.floor
    share = min(declared.requests * (spend if declared.spend is None else declared.spend), whole)
    limit = Limit(
        name,
        units=share,
        window_s=declared.per_s,
        even=declared.evenly,
        resets_s=None if declared.resets_at is None else declared.resets_at * 3600.0,
        operations=tuple(declared.operations),
        prices={operation: float(price) for operation, price in declared.prices.items()},
    )
    if not limit.even:
        return limit
    return evenly(limit, whole)


def evenly(limit: Limit, whole: float) -> Limit:
    """The limit with the seconds for each unit, and how far a request may come early, so that no window of it holds
    more than its units (or, where these are few, no more than the `whole` that the host declares).

    With the interval T, the tolerance τ and the highest price p, requests in less than W seconds cost less than
    (W + τ) / T + p units (the bound of the generic cell rate algorithm); costs being multiples of their common divisor
    g, that is at most S where (W + τ) / T is the largest multiple of g that is at most S − p + g.

    Where a window holds few of the dearest requests, a fine g leaves little of it: one request a second, and others at
    a quarter, would be one each four seconds. Then prices are rounded up to a coarser one, the finest at which the
    dearest requests, which are mostly creates, lose nothing.
    """
    prices = {operation: price for operation in limit.operations or OPERATIONS if (price := limit.price(operation)) > 0}
    if not prices:
        return limit
    steps = {operation: max(1, round(price * 1000)) for operation, price in prices.items()}
    finest, dearest = math.gcd(*steps.values()), max(steps.values())
    among = dearest // finest
    grains = [finest, *(dearest // n for n in range(min(among - 1, FINEST), 0, -1) if among % n == 0)]
    priced = [
        prices if grain == finest else {name: -(-step // grain) * grain / 1000 for name, step in steps.items()}
        for grain in grains
    ]
    paces = [_even_pace(limit, whole, table, grain / 1000) for grain, table in zip(grains, priced, strict=True)]
    fastest = min(interval_s for interval_s, _ in paces)
    chosen = next(number for number, (interval_s, _) in enumerate(paces) if interval_s <= fastest / WORTHWHILE)
    interval_s, tolerance_s = paces[chosen]
    table = {**limit.prices, **priced[chosen]} if chosen else limit.prices
    return replace(limit, interval_s=interval_s, tolerance_s=tolerance_s, prices=table)


def _even_pace(limit: Limit, whole: float, prices: Mapping[str, float], grain: float) -> tuple[float, float]:
    """Interval and tolerance in seconds, for requests at these prices, which are multiples of `grain`."""
    window, largest = limit.window_s, max(prices.values())
    early = TOLERANCE * window
    rounding = RESOLUTION_S / min(prices.values())

    def strict(units: float) -> float:
        return (math.floor((units - largest) / grain + 1e-9) + 1) * grain

    at_spend = window / limit.units
    if limit.units >= largest and strict(limit.units) / (1 + TOLERANCE) >= WORTHWHILE * limit.units:
        return (window + early) / strict(limit.units) + rounding, early
    interval_s = max(at_spend, window / strict(whole)) + rounding
    return interval_s, min(early, max(0.0, interval_s * strict(whole) - window))


def fastest_s(account: AccountSettings, requests: int) -> float | None:
    """Seconds that so many creates take at the declared pace, or None where no limit is declared."""
    times = []
    for limit in limits_of(account):
        units = limit.price("create") * requests
        if limit.even:
            times.append(units * limit.interval_s)
        else:
            times.append(max(0, math.ceil(units / limit.units) - 1) * limit.window_s)
    return max(times, default=None)


def late_s(account: AccountSettings) -> float:
    """Seconds after its start time in which a leased call may still be made: half of what the part of the limits that
    `spend` leaves free can bear. Later, it would come together with others'."""
    room = 4.0
    for declared, limit in zip(_declared(account), limits_of(account), strict=True):
        if limit.even:
            whole = declared.requests - declared.floor
            room = min(room, whole * limit.interval_s - limit.window_s - limit.tolerance_s)
    return max(room / 2.0, 0.1)


def pause_s(fault: Fault, streak: int) -> float:
    """Seconds to pause the account after a pushback: what the destination asks for, else 1, 2, 4 … by how many came in
    a row (`streak` ≥ 1), never more than five minutes unless it asks for more."""
    if fault.retry_after is not None:
        return max(fault.retry_after, FIRST_PAUSE_S)
    return min(FIRST_PAUSE_S * 2.0 ** min(streak - 1, 20), LONGEST_PAUSE_S)
