"""Transitions: whatever comes in whatever order, a row only ever moves along the table."""

from __future__ import annotations

import ast
from itertools import count
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from ledger_rig import ACCOUNT, Library, begin, event, video

import ledger
from destinations.base import RemoteState
from ledger import claims, inbox, remotes, runs
from ledger.claims import Outcome, Window
from ledger.transitions import PHASE_STATES, STATES, TRANSITIONS, UNFINISHED, WITHIN_PHASE, allowed, steps

_names = count()

ENDS = {"verified", "mismatched", "ready", "rejected", "failed", "skipped", "deleted"}


def test_deleted_is_never_left_and_a_late_create_cannot_pull_ready_back() -> None:
    assert not TRANSITIONS["deleted"]
    for state in ("ready", "verified", "mismatched"):
        assert not TRANSITIONS[state] & {"pending", "inventoried", "creating", "processing", "failed", "rejected"}
    assert allowed("failed", "ready"), "a video that became ready after we gave it up is ready all the same"
    assert not allowed("rejected", "ready")
    assert all(allowed(state, "deleted") for state in STATES if state != "deleted")


def test_the_words_for_a_statement_are_the_table() -> None:
    assert set(steps(STATES)) == {f"{source}>{target}" for source, to in TRANSITIONS.items() for target in to}
    assert steps(["deleted"], stay=["ready"])[-1] == "ready>ready"
    assert set(WITHIN_PHASE) == {f"{s}>{s}" for states in PHASE_STATES.values() for s in states} | {
        "inventoried>creating",
        "creating>inventoried",
    }
    assert {state for states in PHASE_STATES.values() for state in states} == set(UNFINISHED)
    assert all(allowed(state, "skipped") for state in UNFINISHED)


def test_a_phase_can_be_left_by_every_row_that_it_holds() -> None:
    for states in PHASE_STATES.values():
        for state in states:
            assert TRANSITIONS[state] & ENDS - set(states)


def test_no_other_module_says_which_steps_are_legal() -> None:
    for path in Path(ledger.__file__).parent.glob("*.py"):
        if path.name == "transitions.py":
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                spelled = [f"{a}>{b}" for a in STATES for b in STATES if f"{a}>{b}" in node.value]
                assert not spelled, f"{path.name} spells out {spelled}"


PHASES = st.sampled_from(["inventory", "create", "reconcile"])
OPERATIONS = st.one_of(
    st.tuples(st.just("claim"), PHASES),
    st.tuples(st.just("finish"), st.integers(0, 5), st.sampled_from(STATES), st.booleans()),
    st.tuples(st.just("event"), st.sampled_from(list(RemoteState)), st.sampled_from(["r1", "r2"]), st.booleans()),
    st.tuples(st.just("die")),
    st.tuples(st.just("give up")),
    st.tuples(st.just("cancel")),
    st.tuples(st.just("begin again")),
    st.tuples(st.just("waiting")),
)


@settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(start=st.sampled_from(STATES[:6]), operations=st.lists(OPERATIONS, min_size=4, max_size=20))
async def test_no_order_of_claims_results_and_events_makes_an_illegal_step(
    library: Library, start: str, operations: list[tuple]
) -> None:
    # One database serves all examples: each has a run and an asset of its own.
    name = f"run-{next(_names)}"
    engine = library.engine
    await begin(engine, name)
    ref = f"lh-{name}"
    prefix = f"{name}-"
    await engine.execute(
        "insert into asset (ref, tenant, source, kind, source_id, run, page, position, account, state, processing_at)"
        " values ($1, 'acme', 'library', 'video', $1, $2, 1, 0, $3, $4, now())",
        ref,
        name,
        ACCOUNT,
        start,
    )
    mine = Library(engine, name, [ref])
    windows: list[Window] = []
    sent = 0
    before = await mine.row()
    for operation in operations:
        match operation:
            case ("claim", phase):
                window = await mine.claim(await mine.open(phase))
                if window:
                    windows.append(window)
            case ("finish", which, state, call_open):
                if windows:
                    window = windows[which % len(windows)]
                    wanted = Outcome(ref, state, "done", remote_id=f"{prefix}r1", call_open=call_open)
                    taken = await claims.finish(engine, window.fence, [wanted])
                    assert taken <= {ref}
            case ("event", state, remote_id, carries_ref):
                sent += 1
                seen = video(prefix + remote_id, state, ref=ref if carries_ref else None)
                # Every third one is the duplicate of an earlier one.
                await inbox.receive(engine, ACCOUNT, event(seen, f"{prefix}{sent - sent // 3}"))
            case ("die",):
                await mine.lapse()
            case ("give up",):
                await engine.execute("update asset set processing_at = now() - interval '1 day' where ref = $1", ref)
                await remotes.give_up(engine, name, 1, 60)
            case ("cancel",):
                await runs.cancel(engine, name, "enough")
            case ("begin again",):
                await begin(engine, name)
            case ("waiting",):
                await inbox.apply_waiting(engine)
        after = await mine.row()
        was, now = before["state"], after["state"]
        if was == "skipped" and operation[0] == "begin again":
            assert now == (before["skipped_from"] or "skipped"), "what no cancellation skipped stays so"
        elif was == now == "skipped":
            kept, learned = before["skipped_from"], after["skipped_from"]
            assert kept == learned or allowed(kept, learned), f"{kept} to {learned} by {operation}"
        else:
            assert was == now or allowed(was, now), f"{was} to {now} by {operation}"
        if before["remote_id"] is not None:
            assert after["remote_id"] == before["remote_id"], "a row keeps its video"
        assert after["fence"] >= before["fence"]
        assert after["claim"] is None or after["state"] in {s for states in PHASE_STATES.values() for s in states}
        before = after


@pytest.mark.parametrize("late", ["processing", "ready", "failed", "rejected", "inventoried", "creating"])
async def test_a_late_create_answer_changes_nothing_of_a_ready_video(library: Library, late: str) -> None:
    await library.fill(1, state="inventoried")
    window = await library.claimed(await library.open("create"))
    ready = video("r1", ref=library.refs[0], duration_ms=4000)
    assert await inbox.receive(library.engine, ACCOUNT, event(ready)) == "applied"
    before = dict(await library.row())
    await library.finish(window, state=late, outcome="late", remote_id="r1", remote_duration_ms=9)
    assert dict(await library.row()) == before
    assert before["state"] == "ready"
