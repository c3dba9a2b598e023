"""The pace of one account, shared by every worker through the ledger."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Final

import structlog

from faults import Fault
from governor import headers as rate_headers
from governor.pacing import DOWN_AFTER, DOWN_PAUSES, DOWN_SIGNS, DOWN_WAIT_S, DROPS, late_s, limits_of, pause_s
from ledger import budgets
from ledger.budgets import Lease, Limit, Word
from ledger.engine import Engine
from settings import AccountSettings, Operation

log = structlog.get_logger()

CONGESTION: Final = frozenset({"rate-limited", "destination-busy"})
"""Refusals that cut the pace; other faults of an account only pause it."""
SURE_AFTER_S: Final = 3.0
"""Seconds for which an allowance must have been spent: others may just be giving back what they leased too much."""
PARK_AFTER_S: Final = 60.0
"""A spent allowance that is renewed sooner is waited for; for a later one the run parks."""


@dataclass(slots=True)
class Governor:
    """Leases requests before they are made, and turns the destination's pushback into a pause for everyone."""

    engine: Engine
    name: str
    account: AccountSettings
    clock: Callable[[], float] = time.monotonic
    _limits: Sequence[Limit] | None = None
    _late_s: float | None = None
    _failures: int = 0
    _drops: int = 0
    _streak: int = 0
    _paused_until: float = 0.0
    _stopped: bool = False
    _cuts: int = 0
    _behind: int = 0
    _freed: asyncio.Event = field(default_factory=asyncio.Event)
    _spent_since: float | None = None
    _changed: asyncio.Event = field(default_factory=asyncio.Event)
    _telling: set[asyncio.Task[None]] = field(default_factory=set)

    @property
    def limits(self) -> Sequence[Limit]:
        if self._limits is None:
            self._limits = limits_of(self.account)
        return self._limits

    async def declare(self) -> None:
        """Makes the ledger's limits of this account those of the settings."""
        await budgets.declare(self.engine, self.name, self.limits)

    async def lease(
        self,
        requests: int,
        operation: Operation = "create",
        *,
        tenant: str = "default",
        lane: str = "bulk",
        lead_s: float = 0.0,
    ) -> Lease:
        """Leave for up to so many requests, with their start times in seconds from now, none of them within the next
        `lead_s`; or what to wait for.

        Raises Fault("allowance-spent"), with the seconds until it is renewed, where that takes longer than a minute.
        """
        leased = await self._lease(requests, operation, tenant, lane, lead_s)
        if leased.why == "undeclared":
            # Somebody deleted a limit under the running fleet. What was spent of it is unknown: all of it, then.
            await budgets.declare(self.engine, self.name, self.limits, only_missing=True, spent=True)
            leased = await self._lease(requests, operation, tenant, lane, lead_s)
        if leased.why == "paused" and leased.reason == "allowance-spent" and leased.wait_s > PARK_AFTER_S:
            raise Fault("allowance-spent", f"{self.name}: by the host's own count", retry_after=leased.wait_s)
        if leased.why != "spent" or leased.wait_s <= PARK_AFTER_S:
            self._spent_since = None
            return leased
        now = self.clock()
        self._spent_since = now if self._spent_since is None else self._spent_since
        if now - self._spent_since < SURE_AFTER_S:
            return replace(leased, wait_s=1.0)
        raise Fault("allowance-spent", f"{self.name}: limit {leased.reason!r}", retry_after=leased.wait_s)

    async def _lease(self, requests: int, operation: str, tenant: str, lane: str, lead_s: float) -> Lease:
        leased = await budgets.lease(
            self.engine,
            self.name,
            operation,
            requests,
            tenant=tenant,
            lane=lane,
            weight=self.account.shares.get(tenant, 1.0),
            reserve=self.account.reserve,
            limits=[limit.name for limit in self.limits],
            lead_s=lead_s,
        )
        # Word of a cut may overtake a lease once. Twice, and the account was made anew, and counts from the start.
        self._behind = self._behind + 1 if leased.cuts < self._cuts else 0
        if self._behind > 1:
            self._cuts = leased.cuts
        return leased

    async def start(self, at: float, cuts: int | None = None) -> bool:
        """Waits for a leased request's start time (of the running loop's clock). False: it must not be made. The
        account was paused, stopped or cut meanwhile (`cuts` is the lease's), or this process stood still for so long
        that the call would come together with others'."""
        await asyncio.sleep(max(0.0, at - asyncio.get_running_loop().time()))
        void = cuts is not None and cuts < self._cuts
        return not self.held and not void and not self.late(at)

    def late(self, at: float) -> bool:
        """Whether a leased request with this start time (of the running loop's clock) must not be made any more."""
        if self._late_s is None:
            self._late_s = late_s(self.account)
        return asyncio.get_running_loop().time() > at + self._late_s

    @property
    def held(self) -> bool:
        """Whether, as far as this process was told, no call may be made now."""
        return self._stopped or self.clock() < self._paused_until

    async def give_back(self, lease: Lease, starts: Sequence[float]) -> None:
        """Returns requests of a lease, by their starts, which were not made."""
        await budgets.give_back(self.engine, self.name, lease, starts)

    async def push_back(self, fault: Fault, cuts: int | None = None) -> float:
        """The destination refused for load, or cannot be reached: pauses the account and returns for how many seconds.
        `cuts` is that of the refused request's lease; None: the pace is not cut.

        A connection that drops is first taken for the call's own misfortune, and only several in a row for the host's:
        then 0 is returned, and nothing pauses.
        """
        if fault.code == "destination-unreachable":
            self._drops += 1
            if self._drops < DROPS:
                return 0.0
        now = self.clock()
        if now >= self._paused_until or self._streak == 0:
            # The calls that were under way when the first was refused belong to the same event.
            self._streak += 1
        seconds = pause_s(fault, self._streak)
        self._paused_until = max(self._paused_until, now + seconds)
        cuts = cuts if fault.code in CONGESTION else None
        if cuts is not None and cuts >= self._cuts:
            self._cuts = cuts + 1
            self._change()
        await budgets.pause(self.engine, self.name, seconds, fault.code, cuts=cuts)
        return seconds

    def judged(self, fault: Fault) -> Fault:
        """What a failed call means when many have failed in a row and none went well: no longer this row's failure,
        but a destination that is down. Other faults come back as they are."""
        if fault.code not in DOWN_SIGNS:
            return fault
        self._failures += 1
        if self._failures < DOWN_AFTER and self._streak < DOWN_PAUSES:
            return fault
        words = f"{self._failures} calls failed in a row, the last: {fault.code} {fault.detail}"
        return Fault("destination-down", words, retry_after=DOWN_WAIT_S, landed=fault.landed)

    def went_well(self) -> None:
        """A call was answered: the next pushback begins a new series."""
        self._failures = self._drops = 0
        if self.clock() >= self._paused_until:
            self._streak = 0

    def told(self, word: Word) -> None:
        """What another process, or a person, did to the account."""
        if word.account != self.name:
            return
        before = (self._cuts, self.held)
        if word.seconds is not None:
            until = self.clock() + word.seconds
            self._paused_until = max(self._paused_until, until) if word.seconds else 0.0
        self._cuts = max(self._cuts, word.cuts or 0)
        if word.stopped is not None:
            self._stopped = word.stopped
        by_a_person = word.stopped is not None and word.cuts is None
        if by_a_person or self._cuts > before[0] or (before[1] and not self.held):
            self._change()
        if word.freed:
            self._freed.set()
            self._freed = asyncio.Event()

    def _change(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    @property
    def changed(self) -> asyncio.Event:
        """Set when starts are free sooner than was said: after a cut, which voids what is leased, at the end of a
        pause, when a person sets the pace. Who waits for a start asks again; take it before asking: each is set once.
        """
        return self._changed

    @property
    def freed(self) -> asyncio.Event:
        """Set when a place for one more video is freed at a host that caps them; take it before looking for one, since
        each event is set once. It is a hint: who is woken claims, and may find that others were faster."""
        return self._freed

    def observe(self, headers: Mapping[str, str]) -> None:
        """Reads an answer's rate headers. Where the host says that less is left than what we leave to others, the
        account pauses until it has more; call it from the running loop."""
        found = rate_headers.wait_s(rate_headers.quotas(headers, datetime.now(UTC)), 1.0 - self.account.spend)
        if found <= 0 or self.clock() + found <= self._paused_until + 1.0:
            return
        self._paused_until = self.clock() + found
        task = asyncio.get_running_loop().create_task(self._tell(found))
        self._telling.add(task)
        task.add_done_callback(self._telling.discard)

    async def _tell(self, seconds: float) -> None:
        reason = "allowance-spent" if seconds > PARK_AFTER_S else "rate-limited"
        try:
            await budgets.pause(self.engine, self.name, seconds, reason)
        except Fault as fault:
            log.warning("pause not told", account=self.name, seconds=seconds, reason=fault.code)


async def watch(engine: Engine, governors: Mapping[str, Governor]) -> None:
    """Tells these governors of pauses that others make, as they are made, until cancelled."""

    def told(word: Word) -> None:
        if governor := governors.get(word.account):
            governor.told(word)

    await budgets.follow(engine, told)
