"""What may be spent, and who is next: an account's budget as functions over frozen state, with the clock passed in.

The ledger computes the same in SQL (`pace_lease` and its kin in the schema), in one statement and on its own clock; a
test holds the two together. The simulation in `benchmarks/pace.py` runs these.

- A limit that is spent *evenly* is a generic cell rate algorithm (ITU-T I.371, Annex A): `free_at` is the theoretical
  arrival time. One spent *as it comes* is a counter, of a window that begins at a stated hour or of a sliding one.
- Tenants share by start-time fair queueing (Goyal, Vin and Cheng, 1996): each has a virtual time, which moves on by
  what it leases, divided by its due share; whoever is furthest behind comes first.

All moments are seconds of one clock; those of fixed windows count from 1970.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Final

from governor import growth
from ledger.budgets import Lease, Limit, Why

REACH_S: Final = 5.0
"""How far ahead starts are leased: what a killed worker takes with it, and what a pause has to catch."""
SOON_S: Final = 2.5
"""A first start that is further away is not taken, only told: so nobody waits with full hands, and few leases are of
one request."""
LEAD_S: Final = 2.0
"""The longest lead that can be asked for. With `IDLE_S` it is less than `SOON_S`, so that where the pace is known it
brings nobody before others."""
IDLE_S: Final = 0.3
"""A tenant that has had its share takes only what would otherwise be left unused: starts that are as near as this."""
QUANTUM: Final = 25.0
"""How far a tenant's virtual time may lead or lag: one window of rows."""
STOPPED_S: Final = 5.0
LINGER_S: Final = 2.0
"""Seconds after the time it was told to come again for which a tenant counts as waiting."""
SHORTEST_WAIT_S: Final = 0.05
FINDING_REACH_S: Final = 2.0
FINDING_SOON_S: Final = 1.0
"""The same while the pace is being found out: what is leased far ahead keeps to a pace that may have changed."""
LONGEST_TOLD_S: Final = 30.0
SLICES: Final = 100
"""Slices of a sliding window that is spent as it comes; a unit is free again when its whole slice has passed."""
LIVE: Final = "live"
"""The lane that has the account's reserve; every other lane shares the rest."""


@dataclass(frozen=True, slots=True)
class Ask:
    """Leave is asked for so many requests of one kind."""

    operation: str
    requests: int
    tenant: str = "default"
    lane: str = "bulk"
    weight: float = 1.0
    reserve: float = 0.1
    lead_s: float = 0.0
    """Seconds that whoever asks needs before it can call: no start is sooner. At most `LEAD_S`."""


@dataclass(frozen=True, slots=True)
class Spending:
    """One limit and what was spent of it; see the columns of the table `budget`."""

    limit: Limit
    free_at: float = 0.0
    closed_until: float = 0.0
    used: float = 0.0
    used_from: float = 0.0
    slices: tuple[tuple[int, float], ...] = ()

    def used_at(self, now: float) -> tuple[float, float]:
        """Units that are used, and when the next of them come free."""
        if self.closed_until > now:
            return self.limit.units, self.closed_until
        if self.limit.resets_s is not None:
            begins = self._window(now)
            return self.used if self.used_from == begins else 0.0, begins + self.limit.window_s
        width = self.limit.window_s / SLICES
        counted = [(number, units) for number, units in self.slices if number >= self._slice(now) - SLICES and units]
        first = counted[0][0] if counted else self._slice(now)
        return math.fsum(units for _, units in counted), (first + SLICES + 1) * width

    def spent(self, units: float, now: float) -> Spending:
        if self.limit.resets_s is not None:
            return replace(self, used=self.used_at(now)[0] + units, used_from=self._window(now))
        number = self._slice(now)
        slices = dict(kept for kept in self.slices if kept[0] >= number - SLICES)
        slices[number] = slices.get(number, 0.0) + units
        return replace(self, slices=tuple(sorted(slices.items())))

    def returned(self, units: float, leased_at: float, now: float) -> Spending:
        """What was leased at `leased_at` comes back; into another window than it was taken from, nothing does."""
        if self.limit.resets_s is not None:
            same = self.used_from == self._window(leased_at)
            return replace(self, used=max(0.0, self.used - units)) if same else self
        number = self._slice(leased_at)
        return replace(self, slices=tuple((n, max(0.0, had - units) if n == number else had) for n, had in self.slices))

    def _window(self, now: float) -> float:
        assert self.limit.resets_s is not None
        return math.floor((now - self.limit.resets_s) / self.limit.window_s) * self.limit.window_s + self.limit.resets_s

    def _slice(self, now: float) -> int:
        return math.floor(now / (self.limit.window_s / SLICES))


@dataclass(frozen=True, slots=True)
class Share:
    """One tenant in one lane."""

    weight: float = 1.0
    virtual: float = 0.0
    asks_until: float = 0.0
    leased: int = 0
    told: float = 0.0
    """The last moment at which one of its workers was told to come."""


Who = tuple[str, str]
"""Lane and tenant."""


@dataclass(frozen=True, slots=True)
class Budget:
    """An account's whole state."""

    limits: tuple[Spending, ...] = ()
    shares: Mapping[Who, Share] = field(default_factory=lambda: MappingProxyType({}))
    spares: tuple[tuple[str, float], ...] = ()
    """Operation and start of leased requests that came back unused."""
    paused_until: float = 0.0
    pause_reason: str | None = None
    pauses: int = 0
    requests: int = 0
    factor: float = 1.0
    per_s: float | None = None
    cuts: int = 0
    ceiling: float | None = None
    grown_s: float = 0.0
    flow: float = 0.0
    """What was leased since the last cut: in seconds at the declared pace, or, where none is declared, in requests."""
    leased_at: float = 0.0
    free_at: float = 0.0
    virtual: float = 0.0

    @property
    def known(self) -> bool:
        """Whether a pace is declared; else it is found out."""
        return any(spending.limit.even for spending in self.limits)

    @property
    def adaptive(self) -> float:
        """See `growth`."""
        return growth.value(self.ceiling, self.grown_s, self.known)


def declared(
    budget: Budget, limits: Sequence[Limit], now: float, *, only_missing: bool = False, spent: bool = False
) -> Budget:
    """The account's limits become these; what was spent stays spent. With `spent`, a limit that was not there counts
    as if its window had just been used up; with `only_missing` nothing else changes."""
    before = {spending.limit.name: spending for spending in budget.limits}
    after = dict(before) if only_missing else {}
    for limit in limits:
        if limit.name not in before:
            after[limit.name] = Spending(limit, closed_until=now + limit.window_s if spent else 0.0)
        elif not only_missing:
            after[limit.name] = replace(before[limit.name], limit=limit)
    return replace(budget, limits=tuple(after[name] for name in sorted(after)))


def lease(budget: Budget, ask: Ask, now: float) -> tuple[Budget, Lease]:
    """Leave for up to so many requests, whose starts are within `REACH_S`; or for none, and when to ask again."""
    if budget.factor == 0:
        return budget, _none(budget, now, now + STOPPED_S, "stopped")
    if budget.paused_until > now:
        return budget, _none(budget, now, budget.paused_until, "paused", budget.pause_reason)
    counted = [(spending, price) for spending in budget.limits if (price := spending.limit.price(ask.operation)) > 0]
    room, until, short = _room(counted, ask.requests, now)
    if room < 1:
        return budget, _none(budget, now, until, "spent", short)

    turn = _turn(budget, ask, now)
    slots = _Slots.of(budget, counted, now, ask.lead_s)
    first = slots.next()
    back = sorted(start for operation, start in budget.spares if operation == ask.operation)
    spares = [start for start in back if slots.opens <= start <= now + turn.reach_s][:room]
    made: list[float] = []
    while len(spares) + len(made) < room:
        start = slots.next()
        if start > now + turn.reach_s or (not spares and not made and start > now + turn.soon_s):
            break
        slots.take(start)
        made.append(start)
    if not spares and not made:
        own, come = turn.told(first, ask.requests * slots.slowest_s, now)
        shares = MappingProxyType({**budget.shares, turn.who: own})
        return replace(budget, shares=shares), _none(budget, now, come, "slot" if turn.in_turn else "turn")

    starts = sorted([*spares, *made])
    charge = max([1.0, *(price for _, price in counted)]) / _due(ask, turn.waiting)
    own = replace(
        turn.own,
        virtual=turn.own.virtual + len(starts) * charge,
        asks_until=starts[-1] + LINGER_S,
        leased=turn.own.leased + len(starts),
    )
    after = replace(
        budget,
        limits=tuple(
            spending
            if price == 0
            else replace(spending, free_at=slots.free_at_of[spending.limit.name])
            if spending.limit.even
            else spending.spent(len(starts) * price, now)
            for spending in budget.limits
            for price in [spending.limit.price(ask.operation)]
        ),
        shares=MappingProxyType({**budget.shares, turn.who: own}),
        spares=tuple(
            (operation, start)
            for operation, start in budget.spares
            if start >= now and not (operation == ask.operation and start in spares)
        ),
        requests=budget.requests + len(starts),
        free_at=slots.free_at if slots.paced else budget.free_at,
        # Only a pace that was used up has been tried.
        grown_s=budget.grown_s + (min(now - budget.leased_at, growth.STEP_S) if first > now + ask.lead_s else 0.0),
        flow=budget.flow + len(made) * (slots.full_s if budget.known else 1.0),
        leased_at=now,
        # Out of turn, who is behind keeps the claim to as much as this tenant is ahead by one whole lease.
        virtual=max(budget.virtual, turn.own.virtual - (0.0 if turn.in_turn else QUANTUM * charge)),
    )
    return after, Lease(
        tuple(start - now for start in starts),
        cuts=budget.cuts,
        at=now,
        charge=charge,
        operation=ask.operation,
        tenant=ask.tenant,
        lane=ask.lane,
    )


def _none(budget: Budget, now: float, again: float, why: Why, reason: str | None = None) -> Lease:
    return Lease((), wait_s=again - now, why=why, reason=reason, cuts=budget.cuts, at=now)


Counted = Sequence[tuple[Spending, float]]
"""The limits that count a request, each with its price."""


def _room(counted: Counted, requests: int, now: float) -> tuple[int, float, str | None]:
    """How many requests the allowances that are spent as they come have left; where none, until when and which."""
    room, until, short = requests, 0.0, None
    for spending, price in counted:
        if not spending.limit.even:
            used, frees = spending.used_at(now)
            left = math.floor((spending.limit.units - used) / price)
            room = min(room, max(0, left))
            if left < 1 and frees > until:
                until, short = frees, spending.limit.name
    return room, until, short


@dataclass(frozen=True, slots=True)
class _Turn:
    """Whether it is this tenant's turn, and what that means for how far ahead it may lease."""

    who: Who
    own: Share
    waiting: Mapping[Who, Share]
    in_turn: bool
    reach_s: float
    soon_s: float
    apart_s: float

    def told(self, first: float, lease_s: float, now: float) -> tuple[Share, float]:
        """The tenant after it was told when to come for the next start, `first`, and that moment. Each worker comes
        when the one before may have taken what there is (at most `lease_s` seconds of starts), not all for the same."""
        own, come = self.own, max(first - self.soon_s, now) + SHORTEST_WAIT_S
        if self.in_turn:
            behind = own.told + min(self.apart_s, lease_s)
            come = max(come, behind) if behind <= now + LONGEST_TOLD_S else come
            own = replace(own, told=come)
        return replace(own, asks_until=come + LINGER_S), come


def _turn(budget: Budget, ask: Ask, now: float) -> _Turn:
    who = (ask.lane, ask.tenant)
    lowest = budget.virtual - QUANTUM
    own = budget.shares.get(who, Share())
    own = replace(own, weight=ask.weight, virtual=max(own.virtual, lowest))
    waiting = {name: share for name, share in budget.shares.items() if name != who and share.asks_until >= now}
    behind = min([own.virtual, *(max(share.virtual, lowest) for share in waiting.values())])
    in_turn = own.virtual <= behind + QUANTUM
    finding = not budget.known or budget.adaptive < 1.0
    reach_s, soon_s = (FINDING_REACH_S, FINDING_SOON_S) if finding else (REACH_S, SOON_S)
    apart_s, least_s = reach_s - soon_s, ask.lead_s + IDLE_S
    if in_turn:
        return _Turn(who, own, waiting, in_turn, max(reach_s, least_s), max(soon_s, least_s), apart_s)
    return _Turn(who, own, waiting, in_turn, least_s, least_s, apart_s)


@dataclass(slots=True)
class _Row:
    name: str
    free_at: float
    interval_s: float
    tolerance_s: float
    price: float


@dataclass(slots=True)
class _Slots:
    """The starts that the limits which are spent evenly, and the account's own pace, give out one after the other."""

    rows: list[_Row]
    opens: float
    paced: bool
    """Whether the account has a pace of its own: found out, or set by a person."""
    pace_s: float
    free_at: float
    full_s: float
    """Seconds that one request takes at the full declared pace."""

    @classmethod
    def of(cls, budget: Budget, counted: Counted, now: float, lead_s: float) -> _Slots:
        even = [(spending, price) for spending, price in counted if spending.limit.even]
        speed = budget.factor * (budget.adaptive if budget.known else 1.0)
        rows = []
        for spending, price in even:
            limit, interval_s = spending.limit, spending.limit.interval_s / speed
            # A pace that was slower when this was written must not be waited for.
            most = now + REACH_S + limit.tolerance_s + limit.largest * interval_s
            rows.append(_Row(limit.name, min(spending.free_at, most), interval_s, limit.tolerance_s, price))
        rates = [
            *([] if budget.known else [budget.adaptive * budget.factor]),
            *([] if budget.per_s is None else [budget.per_s]),
        ]
        pace_s = 1.0 / min(rates) if rates else 0.0
        return cls(
            rows,
            opens=max([now + lead_s, *(spending.closed_until for spending, _ in even)]),
            paced=bool(rates),
            pace_s=pace_s,
            free_at=min(budget.free_at, now + REACH_S + pace_s) if rates else 0.0,
            full_s=max([price * spending.limit.interval_s for spending, price in even], default=0.0),
        )

    def next(self) -> float:
        """The next start: at the latest moment that any of the limits says."""
        return max([self.opens, self.free_at, *(row.free_at - row.tolerance_s for row in self.rows)])

    def take(self, start: float) -> None:
        if self.paced:
            self.free_at = max(self.free_at, start) + self.pace_s
        for row in self.rows:
            row.free_at = max(row.free_at, start) + row.price * row.interval_s

    @property
    def slowest_s(self) -> float:
        """Seconds that one request takes at the present pace."""
        return max([self.pace_s, *(row.price * row.interval_s for row in self.rows)])

    @property
    def free_at_of(self) -> Mapping[str, float]:
        return {row.name: row.free_at for row in self.rows}


def _due(ask: Ask, waiting: Mapping[Who, Share]) -> float:
    """The share of the account that is due to who asks, among those that wait."""
    live = sum(share.weight for (lane, _), share in waiting.items() if lane == LIVE)
    bulk = sum(share.weight for (lane, _), share in waiting.items() if lane != LIVE)
    if ask.lane == LIVE:
        live += ask.weight
        part = ask.reserve if bulk > 0 and ask.reserve > 0 else live / (live + bulk)
        return ask.weight / live * part
    bulk += ask.weight
    part = 1.0 - ask.reserve if live > 0 and ask.reserve > 0 else bulk / (live + bulk)
    return ask.weight / bulk * part


def give_back(budget: Budget, given: Lease, starts: Sequence[float], now: float) -> Budget:
    """Requests of a lease that were not made, by their starts (as the lease gave them): whoever asks next has them."""
    count = len(starts)
    who = (given.lane, given.tenant)
    shares = dict(budget.shares)
    if who in shares:
        own = shares[who]
        shares[who] = replace(
            own, virtual=max(0.0, own.virtual - count * given.charge), leased=max(0, own.leased - count)
        )
    return replace(
        budget,
        limits=tuple(
            spending.returned(count * spending.limit.price(given.operation), given.at, now)
            if not spending.limit.even and spending.limit.price(given.operation) > 0
            else spending
            for spending in budget.limits
        ),
        shares=MappingProxyType(shares),
        spares=(
            *budget.spares,
            # What was leased before a cut of the pace is void.
            *(
                (given.operation, given.at + start)
                for start in starts
                if given.at + start > now and given.cuts == budget.cuts
            ),
        ),
        requests=max(0, budget.requests - count),
    )


def push_back(budget: Budget, seconds: float, reason: str, cuts: int | None, now: float) -> Budget:
    """The host refused: a pause of at least so many seconds, and one cut of the pace for each event. `cuts` is the
    refused request's lease's: what was leased before the last cut belongs to the event that made it, and is void. None:
    no cut."""
    until = now + seconds
    after = replace(
        budget,
        paused_until=max(budget.paused_until, until),
        pause_reason=reason if until > budget.paused_until else budget.pause_reason,
        pauses=budget.pauses + (1 if budget.paused_until <= now else 0),
    )
    if cuts != budget.cuts:
        return after
    if budget.known:
        ahead = max(
            spending.free_at - spending.limit.tolerance_s - now for spending in budget.limits if spending.limit.even
        )
    else:
        ahead = budget.free_at - now
    flow = budget.flow - max(0.0, ahead) * budget.adaptive
    return replace(
        after,
        # What is leased and not yet made is not to be made any more: the starts after this moment are free again.
        limits=tuple(
            replace(
                spending,
                free_at=min(
                    spending.free_at,
                    now + spending.limit.tolerance_s + spending.limit.largest * spending.limit.interval_s,
                ),
            )
            for spending in budget.limits
        ),
        spares=(),
        shares=MappingProxyType({who: replace(share, told=0.0) for who, share in budget.shares.items()}),
        free_at=min(budget.free_at, now),
        cuts=budget.cuts + 1,
        ceiling=growth.ceiling_after(budget.ceiling, budget.grown_s, flow, budget.known),
        grown_s=0.0,
        flow=0.0,
    )
