"""The run: a plan of phases, each with a barrier behind it."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from datetime import timedelta
from typing import Any

from pydantic import ValidationError
from temporalio import workflow
from temporalio.exceptions import ActivityError, ApplicationError, ChildWorkflowError, is_cancelled_exception

with workflow.unsafe.imports_passed_through():
    from workflows import attributes
    from workflows.calls import PAGE_QUEUE, call, park_of
    from workflows.ids import page_id, run_of, stripe_id
    from workflows.messages import (
        AdvanceInput,
        AdvanceResult,
        Carried,
        EstimateResult,
        ListingCheckInput,
        ListingCheckResult,
        MigrationInput,
        MigrationResult,
        OpenRunInput,
        OpenRunResult,
        PaceChange,
        PaceInput,
        PaceResult,
        PageInput,
        PageResult,
        ParallelInput,
        Park,
        Phase,
        PhaseProgress,
        Progress,
        Redrive,
        RedriveInput,
        RedriveResult,
        RemoteListingInput,
        RemoteListingResult,
        ResumeInput,
        RunInput,
        RunState,
        RunStateInput,
        StripeInput,
        StripeResult,
    )
    from workflows.page import PageWorkflow
    from workflows.stripe import ListStripeWorkflow

WAITING_PAGES = 200
"""Pages that wait side by side in the settle phase: they hold no worker, so more than in the working phases."""
BATCH = 300
"""Pages asked for together."""
WALKS = 3
"""Walks over a listing whose total doesn't match, before the difference is noted and the run goes on."""
SHORTEST_PASS_WAIT_S = 1.0
LONGEST_PASS_WAIT_S = 60.0


class _Parked(Exception):
    """Something stopped the run; carries the reason to where the run parks."""

    def __init__(self, park: Park) -> None:
        super().__init__(park.reason)
        self.park = park


@workflow.defn
class MigrationWorkflow:
    """Moves one library: walks the phases of its plan, and closes each only when no asset is left in it.

    The ledger is the truth: this workflow holds a place in the plan, the fence of the open phase, and counts. Started
    again under the same id it goes on where the ledger stands.
    """

    @workflow.init
    def __init__(self, given: dict[str, Any]) -> None:
        # The input comes as a plain object: a model that doesn't fit would leave the workflow in endless task retries.
        self._given = given
        self._input: MigrationInput | None = None
        self._run = run_of(workflow.info().workflow_id)
        self._state: RunState = "running"
        self._phase: Phase | None = None
        self._phases: dict[Phase, PhaseProgress] = {}
        self._assets: dict[str, int] = {}
        self._in_flight: set[int] = set()
        self._park: Park | None = None
        self._estimate: EstimateResult | None = None
        self._paused = False
        self._approved = False
        self._told_to_resume = False
        self._pages_at_once: int | None = None
        self._children = 0
        self._tasks: dict[asyncio.Task[PageResult], int] = {}
        self._control = asyncio.Lock()

    # ------------------------------------------------------------------------------------------------------- the plan

    @workflow.run
    async def run(self, given: dict[str, Any]) -> MigrationResult:
        try:
            self._input = asked = MigrationInput.model_validate(given)
        except ValidationError as error:
            wrong = "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors())
            raise ApplicationError(f"the run's input: {wrong}", type="settings-refused", non_retryable=True) from None
        self._run = asked.run or self._run
        try:
            return await self._walk_plan(asked)
        except BaseException as error:
            if is_cancelled_exception(error):
                await self._cancel()
            raise

    async def _walk_plan(self, asked: MigrationInput) -> MigrationResult:
        if asked.carried is not None:
            self._take_up(asked.carried)
        else:
            opened = await self._open_run(asked)
            self._phases = {
                phase: PhaseProgress(phase=phase, state="closed" if phase in opened.closed else "waiting")
                for phase in asked.plan
            }
            # A message may have come before the answer: until now it only set a flag.
            self._approved = self._approved or opened.approved
            self._paused = self._paused or (opened.state == "paused" and not self._told_to_resume)
            self._state = "paused" if self._paused else "running"
            if self._state != opened.state:
                await self._set_state(self._state)
        before: Phase | None = None
        opened_step: AdvanceResult | None = None
        for phase in asked.plan:
            if self._phases[phase].state != "closed":
                if self._wants_approval(phase):
                    await self._await_approval()
                opened_step = await self._work_phase(phase, before, opened_step)
            before = phase
        return await self._finish()

    def _wants_approval(self, phase: Phase | None) -> bool:
        return phase == "create" and self._asked.approval and not self._approved

    async def _open_run(self, asked: MigrationInput) -> OpenRunResult:
        request = OpenRunInput(
            run=self._run,
            tenant=asked.tenant,
            account=asked.account,
            source=asked.source,
            source_label=asked.source_label,
            plan=asked.plan,
        )
        opened: OpenRunResult = await self._call("open_run", request, OpenRunResult, summary=f"open {self._run}")
        return opened

    async def _work_phase(
        self, phase: Phase, before: Phase | None, opened: AdvanceResult | None
    ) -> AdvanceResult | None:
        """Opens the phase, unless the close of the one before did (`opened`), works it in passes, and returns when it
        is closed; the result is the next phase's opening. Parks and goes on as often as needed."""
        carried = self._asked.carried
        carried = carried if carried is not None and carried.phase == phase else None
        fence = carried.fence if carried else None
        after, passes = (carried.after, carried.passes) if carried else (0, 1)
        prepared = carried is not None
        self._enter(phase)
        while True:
            try:
                step = opened or await self._advance(phase, before, fence, after, may_close=phase != "list")
                opened = None
                if step.closed:
                    break
                fence = step.fence
                if fence is None:
                    raise ApplicationError(
                        f"phase {phase} cannot open: {before} is not closed", type="fence-lost", non_retryable=True
                    )
                if not prepared:
                    await self._prepare(phase, fence)
                    prepared = True
                step = await self._work_passes(phase, before, fence, passes, step)
                break
            except _Parked as stop:
                await self._parked(stop.park)
                after = 0
        self._note(phase, state="closed", left=0)
        return step.then

    async def _prepare(self, phase: Phase, fence: int) -> None:
        """What a phase needs once, before its pages."""
        if phase == "list" and self._asked.redrive is not None:
            await self._take_dead_letters(self._asked.redrive)
        elif phase == "list":
            await self._list(fence)
        elif phase == "reconcile":
            await self._list_remote()

    async def _work_passes(
        self, phase: Phase, before: Phase | None, fence: int, passes: int, step: AdvanceResult
    ) -> AdvanceResult:
        """One pass after another over the pages that the phase still holds, until the ledger lets it close; returns
        the closing step.

        A page that keeps a few slow rows back comes again in the next pass and holds up no other.
        """
        queue, tasks = deque(step.pages), self._tasks
        more, after, idle_passes = len(step.pages) == BATCH, 0, 0
        done_before = self._phases[phase].done
        self._note(phase, passes=passes)
        while True:
            while queue and self._room(phase):
                after = queue.popleft()
                self._start_page(phase, after, fence, passes)
            if tasks:
                await workflow.wait_condition(
                    lambda: any(task.done() for task in tasks) or (bool(queue) and self._room(phase))
                )
                await self._collect(phase)
            elif self._full():
                await self._continue_as_new(phase, fence, after, passes)
            elif queue:
                await self._may_go()
            elif more:
                step = await self._advance(phase, before, fence, after)
                queue.extend(step.pages)
                more = len(step.pages) == BATCH
            else:
                # The pass is over. Rows that are left wait for their time, or for a worker that died with them.
                step = await self._advance(phase, before, fence, 0)
                if step.closed:
                    return step
                progressed = self._phases[phase].done > done_before
                idle_passes = 0 if progressed else idle_passes + 1
                if not step.pages or not progressed:
                    pause = max(step.wait_s, SHORTEST_PASS_WAIT_S * 2.0 ** min(idle_passes, 6))
                    await workflow.sleep(
                        timedelta(seconds=min(pause, LONGEST_PASS_WAIT_S)), summary="until the next pass"
                    )
                passes, done_before = passes + 1, self._phases[phase].done
                queue.extend(step.pages)
                more, after = len(step.pages) == BATCH, 0
                self._note(phase, passes=passes)

    def _room(self, phase: Phase) -> bool:
        return len(self._tasks) < self._parallel(phase) and not self._full()

    async def _collect(self, phase: Phase) -> None:
        """Takes in the pages that have ended. Raises _Parked for the first that asks to park, when all that were under
        way have ended too: with the run parked in the ledger their claims give them nothing more."""
        park: Park | None = None
        for task in [task for task in self._tasks if task.done()]:
            park = self._page_done(phase, self._tasks.pop(task), task) or park
        if park is None:
            return
        await self._begin_park(park)
        if phase == "settle":
            for task in self._tasks:
                task.cancel()  # these would wait for events; the next pass takes them up again
        if self._tasks:
            await workflow.wait(self._tasks)
        self._tasks.clear()
        self._in_flight.clear()
        raise _Parked(park)

    def _start_page(self, phase: Phase, page: int, fence: int, passes: int) -> None:
        asked = self._asked
        self._children += 1
        self._in_flight.add(page)
        request = PageInput(
            run=self._run,
            tenant=asked.tenant,
            account=asked.account,
            phase=phase,
            page=page,
            fence=fence,
            passes=passes,
            source=asked.source if phase in ("inventory", "create", "attach") else None,
            heartbeat_s=asked.heartbeat_s,
            lane=asked.lane,
        )
        task = asyncio.create_task(
            workflow.execute_child_workflow(
                PageWorkflow.run,
                request,
                id=page_id(self._run, phase, page),
                task_queue=PAGE_QUEUE,
                static_summary=f"{self._run}: {phase}, page {page}",
                search_attributes=attributes.attributes(
                    run=self._run, tenant=asked.tenant, phase=phase, state="running"
                ),
            )
        )
        self._tasks[task] = page

    def _page_done(self, phase: Phase, page: int, task: asyncio.Task[PageResult]) -> Park | None:
        self._in_flight.discard(page)
        try:
            result = task.result()
        except ChildWorkflowError as error:
            return Park(reason="unknown", detail=f"page {page}: {error.cause or error}"[:2000])
        now = self._phases[phase]
        self._note(phase, pages=now.pages + 1, done=now.done + result.done)
        return result.park

    async def _list(self, fence: int) -> None:
        """Walks the listing by stripes, again from its start where the source lost our place or its total differs."""
        asked = self._asked
        walk = 1
        while True:
            stripes = asked.stripes
            await self._may_go()
            tasks = [asyncio.create_task(self._walk_stripe(walk, stripe, stripes, fence)) for stripe in range(stripes)]
            await workflow.wait(tasks)
            results = [task.result() for task in tasks]
            for result in results:
                if result.park is not None:
                    raise _Parked(result.park)
            if not any(result.stale for result in results):
                check: ListingCheckResult = await self._call(
                    "check_listing", ListingCheckInput(run=self._run, walk=walk), ListingCheckResult
                )
                self._note("list", pages=walk, done=check.added + check.owned)
                if not check.again or walk >= WALKS:
                    return
            walk += 1

    async def _take_dead_letters(self, redrive: Redrive) -> None:
        request = RedriveInput(run=self._run, redrive=redrive, page_size=self._asked.source.page_size)
        result: RedriveResult = await self._call(
            "take_dead_letters", request, RedriveResult, summary="take up dead letters"
        )
        self._note("list", done=result.taken)

    async def _walk_stripe(self, walk: int, stripe: int, stripes: int, fence: int) -> StripeResult:
        asked = self._asked
        self._children += 1
        result: StripeResult = await workflow.execute_child_workflow(
            ListStripeWorkflow.run,
            StripeInput(
                run=self._run,
                tenant=asked.tenant,
                account=asked.account,
                source=asked.source,
                source_label=asked.source_label,
                walk=walk,
                stripe=stripe,
                stripes=stripes,
                fence=fence,
                heartbeat_s=asked.heartbeat_s,
            ),
            id=stripe_id(self._run, walk, stripe),
            task_queue=PAGE_QUEUE,
            static_summary=f"{self._run}: lists {asked.source.label}, stripe {stripe + 1} of {stripes}",
            search_attributes=attributes.attributes(run=self._run, tenant=asked.tenant, phase="list", state="running"),
        )
        return result

    async def _list_remote(self) -> None:
        try:
            await self._call(
                "list_remote",
                RemoteListingInput(run=self._run, account=self._asked.account),
                RemoteListingResult,
                summary="list the destination",
            )
        except ActivityError as error:
            if is_cancelled_exception(error):
                raise
            raise _Parked(park_of(error)) from error

    async def _call(self, name: str, argument: Any, result: type[Any], *, summary: str | None = None) -> Any:
        return await call(name, argument, result, heartbeat_s=self._asked.heartbeat_s, summary=summary)

    async def _advance(
        self, phase: Phase, before: Phase | None, fence: int | None, after: int, *, may_close: bool = True
    ) -> AdvanceResult:
        following = self._after(phase)
        request = AdvanceInput(
            run=self._run,
            phase=phase,
            before=before,
            fence=fence,
            after=after,
            limit=BATCH,
            may_close=may_close,
            then=None if self._wants_approval(following) else following,
        )
        try:
            step: AdvanceResult = await self._call("advance", request, AdvanceResult, summary=f"{phase}: what is next?")
        except ActivityError as error:
            park = park_of(error)
            # Someone else has opened this phase since: this execution has no say any more.
            if is_cancelled_exception(error) or park.reason == "fence-lost":
                raise
            raise _Parked(park) from error
        self._assets = step.assets
        self._note(phase, left=step.left)
        return step

    def _after(self, phase: Phase) -> Phase | None:
        plan = self._asked.plan
        position = plan.index(phase) + 1
        return plan[position] if position < len(plan) else None

    async def _finish(self) -> MigrationResult:
        result: MigrationResult = await self._call("finish_run", RunInput(run=self._run), MigrationResult)
        self._state, self._phase = "finished", None
        self._assets = result.states
        self._show()
        workflow.upsert_search_attributes([attributes.STATE.value_set("finished")])
        await workflow.wait_condition(workflow.all_handlers_finished)
        return result

    async def _cancel(self) -> None:
        """First the ledger, whose claims stop at once; then whoever still runs."""
        await self._call("cancel_run", RunInput(run=self._run), type(None), summary="hand back what is unfinished")
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await workflow.wait(self._tasks)
        self._state = "cancelled"
        self._show()
        workflow.upsert_search_attributes([attributes.STATE.value_set("cancelled")])

    # ------------------------------------------------------------------------------------- waiting, parking, resuming

    async def _may_go(self) -> None:
        """Returns when the run is neither paused nor told to work no pages."""
        if self._paused or self._parallel_asked() == 0:
            await workflow.wait_condition(lambda: not self._paused and self._parallel_asked() > 0)

    async def _begin_park(self, park: Park) -> None:
        self._park, self._told_to_resume = park, False
        await self._set_state("parked", reason=park.reason, detail=park.detail, wait_s=park.wait_s)

    async def _parked(self, park: Park) -> None:
        """Waits with the reason shown until the time has come or someone says resume."""
        if self._park is not park:
            await self._begin_park(park)
        wait = None if park.wait_s is None else timedelta(seconds=max(1.0, park.wait_s))
        with contextlib.suppress(TimeoutError):
            await workflow.wait_condition(
                lambda: self._told_to_resume, timeout=wait, timeout_summary="until the run resumes by itself"
            )
        self._park = None
        await self._set_state("paused" if self._paused else "running")

    async def _await_approval(self) -> None:
        estimate: EstimateResult = await self._call("estimate", RunInput(run=self._run), EstimateResult)
        self._estimate = estimate
        await self._set_state("awaiting-approval", detail=estimate.words())
        await workflow.wait_condition(lambda: self._approved)
        await self._set_state("paused" if self._paused else "running", approved=True)

    async def _set_state(self, state: RunState, *, approved: bool = False, **why: Any) -> None:
        async with self._control:
            self._state = state
            self._show()
            await self._call("set_run_state", RunStateInput(run=self._run, state=state, approved=approved, **why), bool)
            workflow.upsert_search_attributes([attributes.STATE.value_set(state)])

    # -------------------------------------------------------------------------------------------------------- messages

    @workflow.query
    def progress(self) -> Progress:
        asked = self._input
        return Progress(
            run=self._run,
            tenant=asked.tenant if asked else "",
            account=asked.account if asked else "",
            source=asked.source.label if asked else "",
            state=self._state,
            phase=self._phase,
            phases=tuple(self._phases.values()),
            pages_in_flight=tuple(sorted(self._in_flight)),
            park=self._park,
            estimate=self._estimate,
            assets=self._assets,
        )

    @workflow.update(name="pause")
    async def pause_update(self, why: ResumeInput | None = None) -> Progress:
        """Gives out no more rows; what is in hand is finished. Answers when the ledger knows."""
        await self._pause(why)
        return self.progress()

    @workflow.signal(name="pause")
    async def pause_signal(self, why: ResumeInput | None = None) -> None:
        await self._pause(why)

    @workflow.update(name="resume")
    async def resume_update(self, why: ResumeInput | None = None) -> Progress:
        """Goes on after a pause, and at once where the run is parked."""
        await self._resume(why)
        return self.progress()

    @workflow.signal(name="resume")
    async def resume_signal(self, why: ResumeInput | None = None) -> None:
        await self._resume(why)

    @workflow.update(name="approve")
    async def approve_update(self, why: ResumeInput | None = None) -> Progress:
        """Lets the creates begin, now or when the run comes to them."""
        self._approved = True
        return self.progress()

    @workflow.signal(name="approve")
    def approve_signal(self, why: ResumeInput | None = None) -> None:
        self._approved = True

    @workflow.update
    def parallel(self, asked: ParallelInput) -> Progress:
        """Pages worked side by side from now on; 0 starts no more."""
        self._pages_at_once = asked.pages_at_once
        return self.progress()

    @workflow.update
    async def pace(self, asked: PaceInput | None = None) -> PaceResult:
        """Lowers, raises, stops or restores the pace of the run's account; 0 means paused. Answers when the ledger
        knows, and says how the account stands."""
        await workflow.wait_condition(lambda: self._input is not None)
        change = PaceChange(account=self._asked.account, pace=asked or PaceInput())
        result: PaceResult = await self._call("set_pace", change, PaceResult, summary="the account's pace")
        return result

    async def _pause(self, why: ResumeInput | None) -> None:
        if not self._paused and self._state not in ("finished", "cancelled"):
            self._paused = True
            # Before the run is open there is nothing to write to: its opening heeds what came early.
            if self._state == "running" and self._phases:
                await self._set_state("paused", detail=why.note if why else None)

    async def _resume(self, why: ResumeInput | None) -> None:
        was_paused, self._paused = self._paused, False
        self._told_to_resume = True
        if was_paused and self._state == "paused" and self._phases:
            await self._set_state("running", detail=why.note if why else None)

    # ------------------------------------------------------------------------------------------------ place and display

    @property
    def _asked(self) -> MigrationInput:
        assert self._input is not None, "set before anything else runs"
        return self._input

    def _parallel_asked(self) -> int:
        return self._asked.pages_at_once if self._pages_at_once is None else self._pages_at_once

    def _parallel(self, phase: Phase) -> int:
        if self._paused:
            return 0
        asked = self._parallel_asked()
        return max(asked, WAITING_PAGES) if phase == "settle" and asked else asked

    def _full(self) -> bool:
        """Whether this execution has had its share of children, or the server says that its history is long."""
        return self._children >= self._asked.children_per_execution or workflow.info().is_continue_as_new_suggested()

    async def _continue_as_new(self, phase: Phase, fence: int, after: int, passes: int) -> None:
        await workflow.wait_condition(workflow.all_handlers_finished)
        carried = Carried(
            phase=phase,
            fence=fence,
            after=after,
            passes=passes,
            phases=tuple(self._phases.values()),
            paused=self._paused,
            approved=self._approved,
            pages_at_once=self._pages_at_once,
        )
        following = self._asked.model_copy(update={"run": self._run, "carried": carried})
        workflow.continue_as_new(following.model_dump(mode="json"))

    def _take_up(self, carried: Carried) -> None:
        self._phases = {progress.phase: progress for progress in carried.phases}
        self._paused, self._pages_at_once = carried.paused, carried.pages_at_once
        self._state = "paused" if carried.paused else "running"
        self._approved = carried.approved

    def _enter(self, phase: Phase) -> None:
        if self._phase is None:
            # A run started by the `temporal` command brings none of them.
            workflow.upsert_search_attributes(
                [
                    attributes.RUN.value_set(self._run),
                    attributes.TENANT.value_set(self._asked.tenant),
                    attributes.PHASE.value_set(phase),
                    attributes.STATE.value_set(self._state),
                ]
            )
        elif self._phase != phase:
            workflow.upsert_search_attributes([attributes.PHASE.value_set(phase)])
        self._phase = phase
        self._note(phase, state="open")

    def _note(self, phase: Phase, **news: Any) -> None:
        self._phases[phase] = self._phases[phase].model_copy(update=news)
        self._show()

    def _show(self) -> None:
        lines = [f"**{self._run}** · {self._state}"]
        if self._park:
            again = f"; goes on by itself in {self._park.wait_s:.0f} s" if self._park.wait_s else "; waits for `resume`"
            lines.append(f"parked: **{self._park.reason}**{again}\n\n{self._park.detail}")
        if self._estimate and self._state == "awaiting-approval":
            lines.append(f"waits for `approve`: {self._estimate.words()}")
        lines.append(
            "\n".join(
                ["| phase | state | pass | pages | rows done | rows left |", "|---|---|---|---|---|---|"]
                + [
                    f"| {p.phase} | {p.state} | {p.passes or ''} | {p.pages} | {p.done} | {p.left} |"
                    for p in self._phases.values()
                ]
            )
        )
        if self._assets:
            lines.append("assets: " + ", ".join(f"{count} {state}" for state, count in sorted(self._assets.items())))
        workflow.set_current_details("\n\n".join(lines))
