"""Virtual time for the pace benchmark: strategies that call a modelled host, event by event, from a seed.

Ours runs the very functions that the ledger is held to (`governor/budget.py`) and what a worker does around them
(`activities/pages.py`, `governor/account.py`): 25 rows in hand, a lease when eight are free, a pause told to all.
"""

from __future__ import annotations

import heapq
import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from activities.pages import nap_s
from benchmarks.hosts import Host, Refused
from faults import Fault
from governor import budget as pure
from governor.account import PARK_AFTER_S
from governor.budget import Ask, Budget
from governor.pacing import limits_of, pause_s
from ledger.budgets import Lease
from settings import AccountSettings

HAND: Final = 25
LOW_WATER: Final = 8
WORD_S: Final = 0.01
"""Seconds until a pause has been told to the other processes."""
STATEMENT_S: Final = 0.003
BIN_S: Final = 5.0


@dataclass
class World:
    """A host, the assets that are still to be made there, and what came of the requests."""

    host: Host
    assets: int
    seed: int = 0
    until: float = float("inf")
    now: float = 0.0
    begun: float = 0.0
    made: int = 0
    requests: int = 0
    refusals: int = 0
    bins: Counter[int] = field(default_factory=Counter)
    """Accepted creates by five seconds."""
    _events: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = field(default_factory=list)
    _number: int = 0

    def __post_init__(self) -> None:
        self.rng = random.Random(self.seed)
        self.todo = self.assets
        self.begun = self.now

    def at(self, moment: float, what: Callable[..., None], *args: Any) -> None:
        self._number += 1
        heapq.heappush(self._events, (max(moment, self.now), self._number, what, args))

    def run(self) -> None:
        """Until every asset is made, or virtual time is up."""
        while self._events and self.made < self.assets and self.now < self.until:
            self.now, _, what, args = heapq.heappop(self._events)
            what(*args)

    def call(self, then: Callable[..., None], *args: Any, operation: str = "create") -> None:
        """A request leaves now; `then` gets the refusal, or None, when the answer is here."""
        self.at(self.now + 0.01 + 0.04 * self.rng.random(), self._arrive, operation, then, args)

    def _arrive(self, operation: str, then: Callable[..., None], args: tuple[Any, ...]) -> None:
        self.requests += 1
        refused = self.host.ask(self.now, operation)
        if refused is not None:
            self.refusals += 1
        elif operation == "create":
            self.bins[int(self.now // BIN_S)] += 1
        self.at(self.now + 0.1 + 0.3 * self.rng.random(), then, *args, refused)

    @property
    def elapsed(self) -> float:
        return self.now - self.begun


# --------------------------------------------------------------------------------------------------------------- peers


@dataclass
class Naive:
    """Every process makes one call after the other, and tries again after a second."""

    world: World
    workers: int

    def start(self) -> None:
        for _ in range(self.workers * 4):
            self.world.at(self.world.now, self._next)

    def _next(self) -> None:
        if self.world.todo:
            self.world.todo -= 1
            self.world.call(self._answered)

    def _answered(self, refused: Refused | None) -> None:
        if refused is None:
            self.world.made += 1
            self._next()
        else:
            self.world.todo += 1
            self.world.at(self.world.now + 1.0, self._next)


@dataclass
class FixedConcurrency:
    """A fixed number of parallel calls over all processes; a refused call waits as long as the host asks, else 1, 2,
    4 … 64 s, with jitter: what most tools do."""

    world: World
    workers: int
    parallel: int = 24

    def start(self) -> None:
        for _ in range(self.workers * max(1, self.parallel // self.workers)):
            self.world.at(self.world.now, self._next, 0)

    def _next(self, tries: int) -> None:
        if self.world.todo:
            self.world.todo -= 1
            self.world.call(self._answered, tries)

    def _answered(self, tries: int, refused: Refused | None) -> None:
        if refused is None:
            self.world.made += 1
            self._next(0)
            return
        self.world.todo += 1
        wait = 2.0 ** min(tries, 6) * (0.5 + self.world.rng.random())
        wait = wait if refused.retry_after is None else refused.retry_after + self.world.rng.random()
        self.world.at(self.world.now + wait, self._next, tries + 1)


@dataclass
class OwnHalving:
    """Each process has a rate of its own: halved on each refusal, a little more after each second that went well; it
    waits as long as the host asks. Nobody tells the others."""

    world: World
    workers: int
    per_s: float = 10.0

    def start(self) -> None:
        for _ in range(self.workers):
            self.world.at(self.world.now, self._tick, _Process(self.per_s / self.workers))

    def _tick(self, process: _Process) -> None:
        world = self.world
        if world.now >= process.waits_until and process.calls < HAND and world.todo:
            world.todo -= 1
            process.calls += 1
            world.call(self._answered, process)
        world.at(max(world.now + 1.0 / process.per_s, process.waits_until), self._tick, process)

    def _answered(self, process: _Process, refused: Refused | None) -> None:
        process.calls -= 1
        if refused is None:
            self.world.made += 1
            # Additive: a tenth of the first rate each ten seconds, whatever the present one.
            process.per_s += 0.01 * self.per_s / self.workers / process.per_s
        else:
            self.world.todo += 1
            process.per_s = max(process.per_s / 2, 0.02)
            wait = 1.0 if refused.retry_after is None else refused.retry_after
            process.waits_until = max(process.waits_until, self.world.now + wait)


@dataclass
class _Process:
    per_s: float
    calls: int = 0
    waits_until: float = 0.0


# ---------------------------------------------------------------------------------------------------------------- ours


@dataclass
class _Worker:
    tenant: str
    lane: str
    todo: list[int]
    """One number, shared by the workers of a tenant: its assets that are still to be made."""
    hand: int = 0
    asks: bool = False
    held_until: float = 0.0
    streak: int = 0
    cuts: int = 0
    naps: int = 0
    """Counts its naps, so that the end of one that was cut short is known."""


@dataclass
class Longhaul:
    """Ours: leases from one shared budget. `tenants`, where several share the account: assets and workers of each."""

    world: World
    workers: int
    account: AccountSettings
    tenants: Sequence[tuple[str, str, int, int]] = ()
    """Tenant, lane, assets, workers."""
    made: Counter[str] = field(default_factory=Counter)
    leases: int = 0
    asked: int = 0

    def start(self) -> None:
        world = self.world
        self.budget = pure.declared(Budget(), limits_of(self.account), world.now)
        self.fleet: list[_Worker] = []
        for tenant, lane, assets, workers in self.tenants or [("default", "bulk", world.assets, self.workers)]:
            todo = [assets]
            self.fleet += [_Worker(tenant, lane, todo) for _ in range(workers)]
        for worker in self.fleet:
            self._wake(worker)

    def _wake(self, worker: _Worker) -> None:
        free = HAND - worker.hand
        if not worker.asks and worker.todo[0] and (free >= LOW_WATER or not worker.hand):
            worker.asks = True
            self.world.at(self.world.now + STATEMENT_S, self._woken, worker, worker.naps)

    def _ask(self, worker: _Worker) -> None:
        worker.asks = False
        if not worker.todo[0]:
            return
        now = self.world.now
        weight = self.account.shares.get(worker.tenant, 1.0)
        ask = Ask("create", HAND - worker.hand, worker.tenant, worker.lane, weight, self.account.reserve)
        self.budget, lease = pure.lease(self.budget, ask, now)
        self.asked += 1
        if not lease.starts:
            parks = lease.why == "spent" and lease.wait_s > PARK_AFTER_S
            worker.asks = True
            self.world.at(now + (lease.wait_s if parks else nap_s(lease)), self._woken, worker, worker.naps)
            return
        self.leases += 1
        rows = min(len(lease.starts), worker.todo[0])
        self.budget = pure.give_back(self.budget, lease, lease.starts[rows:], now)
        worker.todo[0] -= rows
        worker.hand += rows
        for start in lease.starts[:rows]:
            self.world.at(now + start, self._start, worker, lease, start)
        self._wake(worker)

    def _woken(self, worker: _Worker, nap: int) -> None:
        if nap == worker.naps:
            self._ask(worker)

    def _start(self, worker: _Worker, lease: Lease, start: float) -> None:
        if self.world.now < worker.held_until or lease.cuts < worker.cuts:
            self.budget = pure.give_back(self.budget, lease, [start], self.world.now)
            self._again(worker)
        else:
            self.world.call(self._answered, worker, lease)

    def _again(self, worker: _Worker) -> None:
        worker.todo[0] += 1
        worker.hand -= 1
        self._wake(worker)

    def _answered(self, worker: _Worker, lease: Lease, refused: Refused | None) -> None:
        now = self.world.now
        if refused is None:
            self.world.made += 1
            self.made[worker.tenant] += 1
            if now >= worker.held_until:
                worker.streak = 0
            worker.hand -= 1
            self._wake(worker)
            return
        if now >= worker.held_until or worker.streak == 0:
            worker.streak += 1
        seconds = pause_s(Fault("rate-limited", retry_after=refused.retry_after), worker.streak)
        self.budget = pure.push_back(self.budget, seconds, "rate-limited", lease.cuts, now)
        worker.held_until = max(worker.held_until, now + seconds)
        self.world.at(now + WORD_S, self._told, now + seconds, self.budget.cuts)
        self._again(worker)

    def _told(self, until: float, cuts: int) -> None:
        for worker in self.fleet:
            worker.held_until = max(worker.held_until, until)
            if cuts > worker.cuts:
                worker.cuts = cuts
                worker.naps += 1
                if worker.asks:
                    self.world.at(self.world.now + STATEMENT_S, self._woken, worker, worker.naps)
