"""A page's activity: claims rows as slots come free, works them side by side, writes results as they come.

The loop is the same for every kind of work; what differs is what is done with one row, and whether an account's budget
is asked first. A retry of the activity, on this worker or another, goes on where the ledger stands.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Protocol

import structlog
from temporalio import activity

from activities import outcomes
from activities.hand import Hand
from activities.heartbeats import note
from activities.leading import Lead
from crossings import crossing
from faults import Fault, Scope
from governor.account import Governor
from governor.budget import LEAD_S
from ledger import claims
from ledger.assets import Row
from ledger.budgets import Lease
from ledger.claims import Outcome, Place, Window
from ledger.engine import Engine
from settings import WorkerSettings
from workflows.messages import PageInput, PageResult

log = structlog.get_logger()

LONGEST_NAP_S: Final = 5.0
"""How long a paused account's page sleeps before it looks again: a pause may have been lifted."""
USABLE: Final = 0.9
"""Of the time that may pass before a call is made: a source's own slowness takes no more."""
LONGEST_TURN_S: Final = 30.0
"""How long it waits for a start that is far away: of many workers, each is told a time of its own to come."""


def nap_s(lease: Lease) -> float:
    """Seconds until a lease that gave nothing is asked for again."""
    return min(lease.wait_s, LONGEST_TURN_S if lease.why == "slot" else LONGEST_NAP_S)


RowWork = Callable[[Row], Awaitable[Outcome]]
"""What is done with one row. Returns its outcome; raises Fault, or anything else, which is then "unknown"."""
RowCall = Callable[[float], Awaitable[Outcome]]
"""Makes a prepared row's request. It is given the start that the row was claimed for, in the loop's time: where another
one took its place, that has passed, and what the claim promised of the call's time counts from it."""


@dataclass(slots=True)
class Bench:
    """What every page's activity of one process works with."""

    engine: Engine
    hand: Hand
    settings: WorkerSettings
    worker: str
    leads: defaultdict[str, Lead] = field(default_factory=lambda: defaultdict(Lead))
    """By source: what was learned of it when it was inventoried is known when its creates begin."""


class Crowd(Protocol):
    """A host that caps the videos in the making, and how a place there is waited for."""

    places: claims.Places

    def freed(self) -> asyncio.Event:
        """Set once when the next place is freed."""
        ...

    async def wait(self, freed: asyncio.Event) -> None:
        """Returns when it may be worth looking again, after some seconds at the latest."""
        ...


@dataclass(frozen=True, slots=True)
class Paced:
    """Rows that each make a request under an account's budget: what it needs is got together before its start, so that
    calls come as evenly as they were leased, however long a source takes to answer."""

    governor: Governor
    prepare: Callable[[Row], Awaitable[RowCall]]
    lead: Lead
    quiet_s: float
    may_wait_s: float
    """Seconds after the start that a row was claimed for within which its request may be made."""
    crowd: Crowd | None = None


@dataclass(slots=True)
class _Start:
    """A row's place in a lease: `offset` as the lease gave it, `at` in the loop's time."""

    lease: Lease
    offset: float
    at: float
    made: bool = False


class PageRun:
    """One activity's way through one page."""

    def __init__(
        self,
        bench: Bench,
        page: PageInput,
        work: RowWork | Paced,
    ) -> None:
        self._bench = bench
        self._page = page
        self._place = Place(page.run, page.phase, page.page, page.fence)
        self._work = work
        self._paced = work if isinstance(work, Paced) else None
        info = activity.info()
        self._key = f"{info.workflow_run_id}"
        self._attempt = info.attempt
        self._counts: Counter[str] = Counter()
        self._left_phase = 0
        self._stop: Fault | None = None
        self._open: dict[tuple[int, str], Row] = {}
        self._unused: list[_Start] = []
        self._writer = _Writer(bench, self._written)

    async def __call__(self) -> PageResult:
        """Works the page until nothing of it can be claimed now. Raises the run-level fault that stopped it, as an
        ApplicationError, after everything in hand is written."""
        if self._attempt > 1:
            with crossing("expire"):
                await claims.expire(self._bench.engine, self._place, self._key)
        renewing = asyncio.create_task(self._renew())
        try:
            async with asyncio.TaskGroup() as rows:
                try:
                    await self._claim_and_work(rows)
                except Fault as fault:
                    # The ledger is out of reach: what is in hand is still finished, and written when it is back.
                    self._stop = fault
        finally:
            renewing.cancel()
            for (fence, _), row in list(self._open.items()):
                self._end(fence, outcomes.handed_back(row))  # cancelled before its work began
            await self._writer.close()
        if self._unused:
            await self._give_back()
        if self._stop is not None:
            raise self._stop.as_application_error()
        left = await claims.left(self._bench.engine, self._place)
        return PageResult(
            page=self._page.page,
            done=self._left_phase,
            left=left.rows,
            wait_s=left.wait_s,
            outcomes=dict(self._counts),
        )

    async def _claim_and_work(self, rows: asyncio.TaskGroup) -> None:
        bench, paced = self._bench, self._paced
        crowd = None if paced is None else paced.crowd
        while self._may_claim():
            slots = await bench.hand.take(bench.settings.window)
            used = 0
            try:
                starts: Sequence[float] = [0.0] * slots
                lease: Lease | None = None
                if paced is not None:
                    await self._give_back()
                    changed = paced.governor.changed
                    lease = await self._lease(paced, slots, paced.lead.ahead_s)
                    starts = lease.starts
                    # What was not leased is waited for with empty hands: neither slots nor rows are held for nothing.
                    await bench.hand.put_down(slots - len(starts))
                    slots = len(starts)
                    if not starts:
                        await self._nap(nap_s(lease), changed)
                        continue
                base = asyncio.get_running_loop().time()
                freed = None if crowd is None else crowd.freed()
                with crossing("claim"):
                    window = await claims.claim(
                        bench.engine,
                        self._place,
                        worker=bench.worker,
                        key=self._key,
                        limit=slots,
                        lease_s=bench.settings.lease_s + starts[-1],
                        quiet_s=None if paced is None else paced.quiet_s + starts[-1],
                        places=None if crowd is None else crowd.places,
                    )
                used = len(window.rows) if window else 0
                places = [] if lease is None else [_Start(lease, start, base + start) for start in starts]
                self._unused += places[used:]
                if window is None:
                    await self._give_back()
                    return
                if window.full and crowd is not None and freed is not None:
                    await bench.hand.put_down(slots)
                    slots = 0
                    await self._give_back()
                    await crowd.wait(freed)
                    continue
                for row, place in itertools.zip_longest(window.rows, places[:used]):
                    self._open[window.fence, row.ref] = row
                    rows.create_task(self._one(window, row, place))
                if lease is not None and used < slots and crowd is None:
                    # Fewer rows than asked for: there are no more, unless places were few. What was leased for them is
                    # others' at once.
                    await self._give_back()
                    return
            finally:
                await bench.hand.put_down(slots - used)

    async def _give_back(self) -> None:
        """Returns the leased requests that were not made."""
        unused, self._unused = self._unused, []
        if self._paced is not None:
            for lease in {id(start.lease): start.lease for start in unused}.values():
                with crossing("budget"):
                    await self._paced.governor.give_back(lease, [s.offset for s in unused if s.lease is lease])

    async def _lease(self, paced: Paced, requests: int, lead_s: float = 0.0) -> Lease:
        with crossing("lease"):
            return await paced.governor.lease(requests, tenant=self._page.tenant, lane=self._page.lane, lead_s=lead_s)

    async def _renew(self) -> None:
        """Rows may wait in hand for longer than a lease, for a turn or for slow neighbours; their claims must not look
        like a dead worker's meanwhile."""
        lease_s = self._bench.settings.lease_s
        while True:
            await asyncio.sleep(lease_s / 3)
            if self._open:
                try:
                    with crossing("renew"):
                        await claims.renew(self._bench.engine, list(self._open), lease_s)
                except Fault as fault:
                    log.warning("claims not renewed", rows=len(self._open), reason=fault.code, detail=fault.detail)

    def _may_claim(self) -> bool:
        return self._stop is None and not activity.is_worker_shutdown()

    async def _one(self, window: Window, row: Row, start: _Start | None) -> None:
        """Works one row; whatever happens, exactly one outcome reaches the writer."""
        with structlog.contextvars.bound_contextvars(ref=row.ref):
            try:
                # A row that has killed its workers before is worked alone in this process.
                alone = self._bench.hand.alone() if row.deaths >= claims.ALONE_AFTER else contextlib.nullcontext()
                async with alone:
                    outcome = await self._attempted(row, start)
            except asyncio.CancelledError:
                # The process is being stopped hard: what can still be written is handed back, unharmed.
                self._end(window.fence, outcomes.handed_back(row, call_open=start is not None and start.made))
                raise
            if start is not None and not start.made:
                self._unused.append(start)
            self._end(window.fence, outcome)

    def _end(self, fence: int, outcome: Outcome) -> None:
        del self._open[fence, outcome.ref]
        self._writer.put(fence, outcome)

    async def _attempted(self, row: Row, start: _Start | None) -> Outcome:
        try:
            if start is not None and self._paced is not None:
                return await self._called(self._paced, row, start)
            assert not isinstance(self._work, Paced)
            return await self._work(row) if self._may_claim() else outcomes.handed_back(row)
        except Fault as stop:
            fault = stop if self._paced is None else self._paced.governor.judged(stop)
            call_open = stop.landed
        except Exception as error:  # noqa: BLE001  # nobody classified it: a few attempts, then a person sees it
            fault, call_open = outcomes.unexpected(error), start is not None and start.made
        outcome = outcomes.of_fault(row, fault, call_open=call_open)
        if fault.scope is Scope.RUN:
            self._stop = self._stop or fault
        elif fault.scope is Scope.ACCOUNT and self._paced is not None and start is not None:
            with crossing("pause"):
                seconds = await self._paced.governor.push_back(fault, start.lease.cuts)
            if seconds > 0:
                log.warning("account paused", reason=fault.code, seconds=seconds, detail=fault.detail)
        log.info("row stopped", reason=fault.code, outcome=outcome.outcome, detail=fault.detail)
        return outcome

    async def _called(self, paced: Paced, row: Row, start: _Start) -> Outcome:
        """Prepares a row's request shortly before its start, and makes it then."""
        governor, claimed_for = paced.governor, start.at
        await asyncio.sleep(max(0.0, start.at - LEAD_S - asyncio.get_running_loop().time()))
        if governor.held or not self._may_claim():
            return outcomes.handed_back(row)
        most_behind_s = USABLE * paced.may_wait_s
        start.at += min(paced.lead.behind_s, most_behind_s)
        began = asyncio.get_running_loop().time()
        with paced.lead.measured():
            call = await paced.prepare(row)
        took_s = asyncio.get_running_loop().time() - began
        if took_s > LEAD_S + most_behind_s:
            # However early it is asked, the call would come too late; handed back, the row would come round for ever.
            most = f"{LEAD_S + most_behind_s:.1f} s are the most (see accounts.{self._page.account}.quiet_s)"
            raise Fault("source-timeout", f"its source took {took_s:.1f} s over its address, {most}")
        if governor.late(start.at):
            # The source took longer than it did lately. Made now, the request would come together with others'.
            lease = await self._lease(paced, 1)
            if not lease.starts:
                return outcomes.handed_back(row)
            self._unused.append(replace(start))
            start.lease, start.offset = lease, lease.starts[0]
            start.at = asyncio.get_running_loop().time() + lease.starts[0]
        # Much may have happened until its turn comes: a pause, a fault that stops the run, the end of this worker.
        if not (await governor.start(start.at, start.lease.cuts) and self._may_claim()):
            return outcomes.handed_back(row)
        start.made = True
        return await call(claimed_for)

    def _written(self, outcome: Outcome, taken: bool) -> None:
        word = outcome.outcome if taken else "overtaken"
        self._counts[word] += 1
        note(page=self._page.page, **self._counts)
        rows = activity.metric_meter().create_counter(
            "longhaul_rows", "Rows by what an attempt at them came to.", "rows"
        )
        rows.add(1, {"phase": self._page.phase, "outcome": word, "reason": outcome.reason or ""})
        if taken and outcome.outcome not in ("again", "handed-back"):
            self._left_phase += 1

    async def _nap(self, seconds: float, changed: asyncio.Event) -> None:
        """Until the time is over, the worker is told to stop, or the account's pace has changed."""
        reasons = [asyncio.ensure_future(event) for event in (activity.wait_for_worker_shutdown(), changed.wait())]
        try:
            await asyncio.wait(reasons, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for reason in reasons:
                reason.cancel()


class _Writer:
    """Writes outcomes as they come: all that have gathered while the last write was under way, in one statement."""

    def __init__(self, bench: Bench, written: Callable[[Outcome, bool], None]) -> None:
        self._bench = bench
        self._written = written
        self._pending: dict[int, list[Outcome]] = {}
        self._wake = asyncio.Event()
        self._closing = False
        self._error: Exception | None = None
        self._task = asyncio.create_task(self._loop())

    def put(self, fence: int, outcome: Outcome) -> None:
        self._pending.setdefault(fence, []).append(outcome)
        self._wake.set()

    async def close(self) -> None:
        """Writes what is left. Shielded: a cancelled activity still hands its rows back."""
        self._closing = True
        self._wake.set()
        await asyncio.shield(self._task)
        if self._error is not None:
            raise self._error

    async def _loop(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._pending:
                fence, results = self._pending.popitem()
                taken: frozenset[str] = frozenset()
                try:
                    taken = await self._write(fence, results)
                except Exception as error:  # noqa: BLE001  # kept for `close`: the other rows are still written
                    self._error = self._error or error
                finally:
                    await self._bench.hand.put_down(len(results))
                for outcome in results:
                    self._written(outcome, outcome.ref in taken)
            if self._closing and not self._pending:
                return

    async def _write(self, fence: int, results: Sequence[Outcome]) -> frozenset[str]:
        """Writes until it is written: the work is not done again because the ledger was away. When the rows' lease has
        passed someone else may have them, and then their fence says whether this write still counts."""
        given_up = asyncio.get_running_loop().time() + self._bench.settings.lease_s
        while True:
            try:
                with crossing("finish"):
                    return await claims.finish(self._bench.engine, fence, results)
            except Fault as fault:
                if asyncio.get_running_loop().time() > given_up:
                    log.error("results lost: the ledger is out of reach", rows=len(results), detail=fault.detail)
                    return frozenset()
