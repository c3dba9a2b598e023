"""The pace of one account, shared by every worker through the ledger."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass

from faults import Fault
from governor.pacing import DOWN_AFTER, DOWN_PAUSES, DOWN_SIGNS, DOWN_WAIT_S, limits_of, pause_s
from ledger import budgets
from ledger.budgets import Lease
from ledger.engine import Engine
from settings import AccountSettings


@dataclass(slots=True)
class Governor:
    """Leases requests before they are made, and turns the destination's pushback into a pause for everyone."""

    engine: Engine
    name: str
    account: AccountSettings
    clock: Callable[[], float] = time.monotonic
    _next_start: float = 0.0
    _failures: int = 0
    _streak: int = 0
    _paused_until: float = 0.0

    async def declare(self) -> None:
        """Makes the ledger's limits of this account those of the settings."""
        await budgets.declare(self.engine, self.name, limits_of(self.account))

    async def lease(self, requests: int) -> Lease:
        """Leave for so many requests, with their start times in seconds from now; or the pause to wait out."""
        return await budgets.lease(self.engine, self.name, requests)

    async def start(self, at: float) -> None:
        """Returns when a leased request may be made: at its start time (of the running loop's clock), and, in a process
        that stood still meanwhile, not together with others whose time has passed too."""
        loop = asyncio.get_running_loop()
        at = max(at, loop.time(), self._next_start)
        self._next_start = at + max((limit.interval_s for limit in limits_of(self.account)), default=0.0)
        await asyncio.sleep(at - loop.time())

    async def give_back(self, lease: Lease, requests: int) -> None:
        """Returns the last `requests` of a lease, which were not made."""
        await budgets.give_back(self.engine, self.name, lease, requests)

    async def push_back(self, fault: Fault) -> float:
        """The destination refused for load: pauses the account and returns for how many seconds."""
        now = self.clock()
        if now >= self._paused_until or self._streak == 0:
            # The calls that were under way when the first was refused belong to the same event.
            self._streak += 1
        seconds = pause_s(fault, self._streak)
        self._paused_until = max(self._paused_until, now + seconds)
        await budgets.pause(self.engine, self.name, seconds, fault.code)
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
        self._failures = 0
        if self.clock() >= self._paused_until:
            self._streak = 0
