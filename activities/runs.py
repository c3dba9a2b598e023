"""Short ledger work for the run itself: its opening, its barrier, its state, its end."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass

from temporalio import activity

import destinations
from activities.asking import asker
from crossings import crossing
from destinations.checking import losses_at
from faults import Fault
from governor.account import Governor
from governor.pacing import fastest_s
from ledger import budgets, listings, questions, redrive, runs
from ledger.engine import Engine
from ledger.transitions import PHASE_STATES
from settings import Settings
from sources.registry import open_source
from workflows.messages import (
    AdvanceInput,
    AdvanceResult,
    EstimateResult,
    ListingCheckInput,
    ListingCheckResult,
    MigrationResult,
    OpenRunInput,
    OpenRunResult,
    PaceChange,
    PaceResult,
    RedriveInput,
    RedriveResult,
    RunInput,
    RunStateInput,
)


@dataclass(slots=True)
class RunActivities:
    """Needs the ledger and the settings; talks to nobody else."""

    engine: Engine
    settings: Settings

    @activity.defn
    async def open_run(self, asked: OpenRunInput) -> OpenRunResult:
        """Refuses what can't work, before anything happens; then writes the run, or takes up one begun before."""
        account = self.settings.account(asked.account)
        destinations.check_options(account)
        async with contextlib.aclosing(open_source(asked.source, self.settings)) as source:
            stripeable = source.stripeable
            with crossing("check-source"):
                await source.check()
        with crossing("open-run"):
            standing = await runs.open_run(
                self.engine,
                run=asked.run,
                tenant=asked.tenant,
                source=asked.source_label,
                source_spec=asked.source.model_dump(mode="json"),
                account=asked.account,
                plan=asked.plan,
            )
        with crossing("budget"):
            await Governor(self.engine, asked.account, account).declare()
        closed = tuple(phase for phase in asked.plan if phase in standing.closed)
        return OpenRunResult(
            state=standing.state,
            closed=closed,
            approved=standing.approved,
            stripeable=stripeable,
        )

    @activity.defn
    async def advance(self, asked: AdvanceInput) -> AdvanceResult:
        """How a phase stands; see `AdvanceInput`. Raises "fence-lost" where someone else has opened it since."""
        step = await self._advance(asked)
        if not step.closed or asked.then is None:
            return step
        # The listing has yet to begin where its phase opens; every other phase may close at once.
        opening = AdvanceInput(
            run=asked.run,
            phase=asked.then,
            before=asked.phase,
            fence=None,
            limit=asked.limit,
            may_close=asked.then != "list",
        )
        return step.model_copy(update={"then": await self._advance(opening)})

    async def _advance(self, asked: AdvanceInput) -> AdvanceResult:
        fence = asked.fence
        if fence is None:
            with crossing("open-phase"):
                fence = await runs.open_phase(self.engine, asked.run, asked.phase, asked.before, asker())
        assets = dict(await questions.states(self.engine, asked.run))
        if fence is None:
            closed = await runs.is_closed(self.engine, asked.run, asked.phase)
            return AdvanceResult(fence=None, closed=closed, assets=assets)
        pages = await runs.pages_left(self.engine, asked.run, asked.phase, after=asked.after, limit=asked.limit)
        if not pages and asked.after == 0 and asked.may_close:
            with crossing("close-phase"):
                closed = await runs.close_phase(self.engine, asked.run, asked.phase, fence)
            # Closed already by this very fence, in an answer that was lost, is closed too.
            if closed or await runs.is_closed(self.engine, asked.run, asked.phase):
                return AdvanceResult(fence=fence, closed=True, assets=assets)
        if not await runs.holds(self.engine, asked.run, asked.phase, fence):
            raise Fault("fence-lost", f"phase {asked.phase} of run {asked.run} was opened by someone else since")
        return AdvanceResult(
            fence=fence,
            closed=False,
            pages=tuple(page.page for page in pages if page.wait_s <= 0),
            wait_s=min((page.wait_s for page in pages), default=0.0),
            left=sum(assets.get(state, 0) for state in PHASE_STATES[asked.phase]),
            assets=assets,
        )

    @activity.defn
    async def check_listing(self, asked: ListingCheckInput) -> ListingCheckResult:
        """Whether the walk found what the source says there is; a difference is noted for a person."""
        tally = await listings.tally(self.engine, asked.run, asked.walk)
        earlier = await listings.tally(self.engine, asked.run, asked.walk - 1) if asked.walk > 1 else None
        found = tally.listed - tally.collapsed
        differs = tally.total is not None and found != tally.total
        # Items that shifted while the first walk listed are found by another; one that finds nothing new ends it.
        again = differs and not (earlier is not None and tally.added == 0)
        with crossing("check-listing"):
            if differs:
                await listings.note_problem(
                    self.engine,
                    asked.run,
                    f"the source says that it has {tally.total} videos; its listing gave {found}: compare with the "
                    "source, and start a new run for what is missing",
                )
            else:
                await listings.clear_problem(self.engine, asked.run)
        return ListingCheckResult(
            again=again, listed=tally.listed, added=tally.added, owned=tally.owned, total=tally.total
        )

    @activity.defn
    async def take_dead_letters(self, asked: RedriveInput) -> RedriveResult:
        """Takes up dead letters as this run's own, each at the state from which it goes on."""
        wanted = asked.redrive
        with crossing("redrive"):
            taken = await redrive.take(
                self.engine,
                asked.run,
                of_run=wanted.of_run,
                reasons=wanted.reasons,
                assets=wanted.assets,
                page_size=asked.page_size,
            )
        return RedriveResult(taken=taken)

    @activity.defn
    async def set_run_state(self, asked: RunStateInput) -> bool:
        """Sets the run's state in the ledger, where claims heed it at once."""
        with crossing("run-state"):
            return await runs.set_state(
                self.engine,
                asked.run,
                asked.state,
                reason=asked.reason,
                detail=asked.detail,
                wait_s=asked.wait_s,
                approved=asked.approved,
            )

    @activity.defn
    async def set_pace(self, asked: PaceChange) -> PaceResult:
        """Sets the account's pace, which every worker's next lease obeys, where that is asked for; then how it stands.
        Raises "settings-refused" for an account that the settings don't have, and for a pace that is none."""
        self.settings.account(asked.account)
        pace = asked.pace
        if pace.changes:
            with crossing("pace"):
                await budgets.set_pace(
                    self.engine,
                    asked.account,
                    factor=pace.factor,
                    per_s=pace.per_s,
                    stop=pace.stop,
                    restore=pace.restore,
                )
        found = await budgets.pace_of(self.engine, asked.account)
        return PaceResult(
            account=found.account,
            requests=found.requests,
            in_flight=found.in_flight,
            factor=found.factor,
            per_s=found.per_s,
            adaptive=found.adaptive,
            cuts=found.cuts,
            pauses=found.pauses,
            paused_s=found.paused_s,
            pause_reason=found.pause_reason,
            limits=tuple(limit.words() for limit in found.limits),
        )

    @activity.defn
    async def cancel_run(self, asked: RunInput) -> None:
        """Hands back what is unfinished, so that a later run can take it up."""
        with crossing("cancel-run"):
            await runs.cancel(self.engine, asked.run, "cancelled")

    @activity.defn
    async def estimate(self, asked: RunInput) -> EstimateResult:
        """What the run is about to do, for a person's approval."""
        found = await questions.estimate(self.engine, asked.run)
        line = await questions.run_line(self.engine, asked.run)
        account = self.settings.account(line.account)
        hours = found.duration_ms / 3_600_000
        price = account.price_per_minute
        lost = await losses_at(line.account, self.settings, found.have)
        return EstimateResult(
            to_create=found.to_create,
            hours=hours,
            unknown_duration=found.unknown_duration,
            gigabytes=found.size / 1e9,
            rejected=dict(found.rejected),
            owned=found.owned,
            seconds=fastest_s(account, found.to_create),
            cost=None if price is None else hours * 60 * price,
            losses=dict(lost),
        )

    @activity.defn
    async def finish_run(self, asked: RunInput) -> MigrationResult:
        """Writes the run's end, and says what it came to."""
        with crossing("finish-run"):
            await runs.set_state(self.engine, asked.run, "finished")
        found = await questions.summary(self.engine, asked.run)
        return MigrationResult(
            run=asked.run,
            state="finished",
            listed=found.listed,
            added=found.added,
            owned=found.owned,
            problems=found.problems,
            creates=found.creates,
            adopted=found.adopted,
            states=dict(found.states),
            reasons={state: dict(reasons) for state, reasons in found.reasons.items()},
            library=dict(found.library),
        )
