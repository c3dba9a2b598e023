"""A process is killed before and after each crossing; started again, the run ends as if nothing had been."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from pathlib import Path

import pytest
import pytest_asyncio
from crossing_check import unguarded, used
from crossing_lane import (
    ENDPOINT,
    VIDEOS,
    Lane,
    Scenario,
    approve,
    approve_late,
    cancel_at_approval,
    cancelled_and_taken_up,
    caption_all,
    captioned,
    pace_is_set,
    reject_all,
    send_all,
    sent,
    set_pace,
)

from crossings import CROSSINGS

ROOT = Path(__file__).resolve().parents[2]
CROSSING_CODE = [*sorted((ROOT / "activities").glob("*.py")), ROOT / "relay.py", ROOT / "webhook.py"]
LANES = 4
"""Runs side by side: most of the time a run waits until Temporal has noticed a death."""

NO_EVENTS = {"webhooks": False, "ingest_s": 0.5}
SLOW = {"ingest_s": 2.5}
"""The settle phase waits for the events; they come before it asks for itself."""
SCENARIOS = {
    "run-state": Scenario(given={"approval": True}, afterwards=approve),
    "cancel-run": Scenario(given={"approval": True}, meanwhile=cancel_at_approval, verify=cancelled_and_taken_up),
    "expire": Scenario(earlier=("claim:after",)),
    "renew": Scenario(faults={"operations": ["create"], "latency_ms": 1800}),
    "pause": Scenario(faults={"operations": ["create"], "script": ["refuse_429"]}),
    "lookup": Scenario(faults={"operations": ["create"], "script": ["lost_answer"]}),
    "apply": Scenario(faults=NO_EVENTS),
    "give-up": Scenario(faults=NO_EVENTS),
    "redrive": Scenario(prepare=reject_all),
    "fetch": Scenario(prepare=caption_all, verify=captioned),
    "attach": Scenario(prepare=caption_all, verify=captioned),
    "upload": Scenario(prepare=send_all, verify=sent),
    "transfer": Scenario(prepare=send_all, verify=sent),
    "pace": Scenario(given={"approval": True}, meanwhile=set_pace, afterwards=pace_is_set),
    "receive": Scenario(ENDPOINT),
    "hints": Scenario(ENDPOINT, faults=SLOW),
    "signal": Scenario(ENDPOINT, faults=SLOW),
    "continue-as-new": Scenario(given={"children_per_execution": 2}),
}
"""What it takes to come to a crossing, where an ordinary run doesn't."""

REACHED_AGAIN = {"fetch", "attach", "upload", "transfer", "continue-as-new"} | (CROSSINGS.keys() - SCENARIOS.keys())
"""Crossings that a process which takes over from a dead one comes to by itself: one run then has both deaths, the first
process's before and the second one's after."""

CASES: Mapping[str, tuple[str, Scenario]] = {
    **{
        f"{name}: before, then after": (
            f"{name}:after",
            replace(scenario, earlier=(*scenario.earlier, f"{name}:before")),
        )
        for name in CROSSINGS
        if name in REACHED_AGAIN and (scenario := SCENARIOS.get(name, Scenario()))
    },
    **{
        f"{name}:{side}": (f"{name}:{side}", SCENARIOS[name])
        for name in CROSSINGS
        for side in ("before", "after")
        if name not in REACHED_AGAIN
    },
    # The same crossings from other places.
    "transfer:before, within a file": ("transfer:before#9", SCENARIOS["transfer"]),
    "transfer:after, within a file": ("transfer:after#9", SCENARIOS["transfer"]),
    "locate:after, of a text track": (f"locate:after#{VIDEOS + 2}", SCENARIOS["attach"]),
    "budget:after, given back": ("budget:after#2", Scenario()),
    "run-state:before, going on": ("run-state:before#2", Scenario(given={"approval": True}, meanwhile=approve_late)),
    "run-state:after, going on": ("run-state:after#2", Scenario(given={"approval": True}, meanwhile=approve_late)),
    "lookup:before, of a dead worker's create": (
        "lookup:before",
        Scenario(faults=NO_EVENTS, earlier=("create:after",)),
    ),
    "lookup:after, of a dead worker's create": ("lookup:after", Scenario(faults=NO_EVENTS, earlier=("create:after",))),
    "apply:before, in the endpoint": ("apply:before", Scenario(ENDPOINT, faults=SLOW)),
    "apply:after, in the endpoint": ("apply:after", Scenario(ENDPOINT, faults=SLOW)),
}


# ------------------------------------------------------------------------------------------------------- in the code


def test_every_call_that_crosses_stands_inside_a_crossing():
    assert [line for path in CROSSING_CODE for line in unguarded(path.read_text(), str(path.relative_to(ROOT)))] == []


def test_every_crossing_is_entered_somewhere_and_each_entered_one_is_listed():
    entered = set[str]().union(
        *(used(path.read_text()) for path in [*CROSSING_CODE, ROOT / "workflows/interceptor.py"])
    )
    assert entered == set(CROSSINGS)


@pytest.mark.parametrize(
    "code",
    [
        "async def f(engine): await claims.burn(engine)",
        "async def f(account): return await account.destination.create(1)",
        "async def f(self): await self._governor.lease(4)",
        "async def f(e, a): await Governor(e, a).declare()",
        "async def f(account): return await walk(partial(account.destination.list_page, None))",
        "async def f(question): return await question()",
        "with crossing('claim'):\n  async def f(engine): await claims.claim(engine)",
        "async def f(engine):\n  with crossing('claim'): pass\n  await claims.claim(engine)",
    ],
)
def test_a_new_call_without_a_crossing_is_found(code):
    assert len(unguarded(code)) == 1


@pytest.mark.parametrize(
    "code",
    [
        "async def f(engine):\n  with crossing('claim'):\n    return await claims.claim(engine)",
        "async def f(account): return await _asked(account, partial(account.destination.list_page, None))",
        "async def f(engine): return await claims.left(engine)",
        "def f(account): return account.destination.capabilities.ref_max",
    ],
)
def test_what_stands_in_a_crossing_or_crosses_nothing_is_let_be(code):
    assert unguarded(code) == []


# ---------------------------------------------------------------------------------------------------------- in a run


@pytest_asyncio.fixture(scope="module")
async def played(request: pytest.FixtureRequest) -> AsyncIterator[Mapping[str, asyncio.Future[None]]]:
    """Each selected case's outcome, as it comes: they are played on a few lanes side by side."""
    cases = [item.callspec.params["case"] for item in request.session.items if getattr(item, "fixturenames", None)
             and item.path == request.path and "played" in item.fixturenames]  # fmt: skip
    outcomes = {case: asyncio.get_running_loop().create_future() for case in cases}
    async with contextlib.AsyncExitStack() as stack:
        lanes = []
        for number in range(min(LANES, len(cases))):
            share = cases[number::LANES]
            starts = [start for case in share for start in _starts(case)]
            # One after the other: the next one's free ports are then free of this one's.
            lanes.append((await stack.enter_async_context(Lane.running(starts)), share))
        playing = [asyncio.create_task(_play(lane, share, outcomes)) for lane, share in lanes]
        try:
            yield outcomes
        finally:
            for task in playing:
                task.cancel()
            await asyncio.gather(*playing, return_exceptions=True)


def _starts(case: str) -> list[tuple[str, str | None]]:
    point, scenario = CASES[case]
    return [(scenario.program, where) for where in (*scenario.earlier, point, None)]


async def _play(lane: Lane, share: list[str], outcomes: Mapping[str, asyncio.Future[None]]) -> None:
    lane.prepare()
    for case in share:
        try:
            await lane.play(*CASES[case], run=f"run-{list(CASES).index(case)}")
        except Exception as error:  # noqa: BLE001  # the case's own test raises it
            outcomes[case].set_exception(error)
            await lane.recover(_starts(case))
        else:
            outcomes[case].set_result(None)


@pytest.mark.parametrize("case", CASES)
async def test_killed_there_and_started_again_the_run_ends_with_every_video_once(played, case):
    await played[case]
