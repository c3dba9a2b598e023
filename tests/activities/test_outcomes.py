"""Outcomes: what the end of a row's work means for the row, for every fault there is."""

from __future__ import annotations

from dataclasses import replace

import pytest

from activities import outcomes
from faults import REASONS, ROW_ATTEMPTS, UNKNOWN_ATTEMPTS, Fault, Reason, Scope
from ledger.assets import Row
from ledger.transitions import PHASE_STATES, WITHIN_PHASE, allowed

ROW = Row(
    ref="lh-a",
    tenant="acme",
    source_id="v1",
    title=None,
    locator=None,
    position=1,
    size=None,
    claimed_duration_ms=None,
    metadata={},
    about={},
    state="pending",
    attempts=1,
    deaths=0,
    intent=False,
    facts=None,
    duration_ms=None,
    remote_id=None,
)
CLAIMED = {"pending": "pending", "inventoried": "creating", "creating": "creating", "ready": "ready"}
"""States that a row is claimed from, and the one it has while it is worked."""

every_reason = pytest.mark.parametrize("reason", REASONS.values(), ids=lambda reason: reason.code)
every_state = pytest.mark.parametrize("state", CLAIMED)


@every_reason
@every_state
def test_every_fault_leads_to_a_state_that_the_row_may_go_to(reason: Reason, state: str) -> None:
    creating = state in ("inventoried", "creating")
    for call_open in (False, True) if creating else (False,):
        for attempts in (1, ROW_ATTEMPTS, ROW_ATTEMPTS + 1):
            row = replace(ROW, state=state, attempts=attempts)
            outcome = outcomes.of_fault(row, Fault(reason.code), call_open=call_open)
            held = CLAIMED[state]
            if state == "ready" and outcome.state in ("rejected", "failed"):
                continue  # a comparison raises no fault about a row
            assert outcome.state == held or allowed(held, outcome.state)
            assert outcome.reason == reason.code


@every_reason
def test_a_row_loses_an_attempt_only_to_what_is_about_the_row(reason: Reason) -> None:
    outcome = outcomes.of_fault(replace(ROW, attempts=99), Fault(reason.code, "seen"))
    assert outcome.refund == (reason.scope is not Scope.ROW)
    assert outcome.detail == "seen"
    if reason.scope is not Scope.ROW:
        assert (outcome.state, outcome.outcome, outcome.wait_s) == ("pending", "handed-back", None)
    elif reason.permanent:
        assert (outcome.state, outcome.outcome) == ("rejected", "rejected")
    else:
        assert (outcome.state, outcome.outcome) == ("failed", "failed")


@every_reason
def test_what_can_never_succeed_is_rejected_at_once_and_what_may_is_tried_again_later(reason: Reason) -> None:
    if reason.scope is not Scope.ROW:
        return
    outcome = outcomes.of_fault(ROW, Fault(reason.code), jitter=0.5)
    if reason.permanent:
        assert (outcome.state, outcome.wait_s) == ("rejected", None)
    else:
        assert (outcome.state, outcome.outcome, outcome.wait_s) == ("pending", "again", 2.0)


@pytest.mark.parametrize(("reason", "allowed_attempts"), [("source-busy", ROW_ATTEMPTS), ("unknown", UNKNOWN_ATTEMPTS)])
def test_attempts_end_where_the_faults_say(reason: str, allowed_attempts: int) -> None:
    ends = [
        outcomes.of_fault(replace(ROW, attempts=attempt), Fault(reason)).outcome
        for attempt in range(1, allowed_attempts + 1)
    ]
    assert ends == ["again"] * (allowed_attempts - 1) + ["failed"]


def test_a_later_attempt_waits_longer_and_at_least_as_long_as_it_was_asked_to() -> None:
    waits = [
        outcomes.of_fault(replace(ROW, attempts=attempt), Fault("source-busy"), jitter=0.5).wait_s
        for attempt in range(1, ROW_ATTEMPTS)
    ]
    assert waits == [2, 4, 8, 16]
    asked = outcomes.of_fault(ROW, Fault("source-busy", retry_after=77), jitter=0.0)
    assert asked.wait_s == 77
    spread = {outcomes.of_fault(ROW, Fault("source-busy")).wait_s for _ in range(20)}
    assert len(spread) > 1, "they don't all come back together"
    assert all(wait is not None and 1 <= wait <= 3 for wait in spread)


@pytest.mark.parametrize("state", ["inventoried", "creating"])
@pytest.mark.parametrize("code", ["answer-lost", "rate-limited", "credentials-refused", "unknown"])
def test_a_create_that_may_have_landed_stays_open_and_one_that_did_not_is_undone(state: str, code: str) -> None:
    row = replace(ROW, state=state)
    opened = outcomes.of_fault(row, Fault(code), call_open=True)
    assert (opened.state, opened.call_open) == ("creating", True)
    closed = outcomes.of_fault(row, Fault(code), call_open=False)
    assert (closed.state, closed.call_open) == ("inventoried", False)


@every_state
def test_a_row_that_is_handed_back_stays_in_its_phase_and_keeps_its_attempt(state: str) -> None:
    outcome = outcomes.handed_back(replace(ROW, state=state))
    assert f"{CLAIMED[state]}>{outcome.state}" in WITHIN_PHASE
    assert (outcome.refund, outcome.outcome, outcome.reason, outcome.wait_s) == (True, "handed-back", None, None)
    assert not outcome.call_open


@pytest.mark.parametrize("state", PHASE_STATES["create"])
def test_a_row_with_an_open_call_is_handed_back_with_it(state: str) -> None:
    for outcome in (
        outcomes.handed_back(replace(ROW, state=state), call_open=True),
        outcomes.handed_back(replace(ROW, state=state, intent=True)),
    ):
        assert (outcome.state, outcome.call_open, outcome.refund) == ("creating", True, True)


def test_an_exception_nobody_classified_carries_its_traceback() -> None:
    def deep() -> None:
        raise ZeroDivisionError("what nobody thought of")

    try:
        deep()
    except ZeroDivisionError as error:
        fault = outcomes.unexpected(error)
    assert fault.code == "unknown"
    assert "in deep" in fault.detail
    assert fault.detail.endswith("ZeroDivisionError: what nobody thought of")


def test_the_traceback_of_an_endless_message_is_cut_in_its_middle() -> None:
    fault = outcomes.unexpected(ValueError("head " + "x" * (3 * 2**20) + " tail"))
    assert len(fault.detail) <= 2_000
    assert fault.detail.startswith("ValueError: head")
    assert fault.detail.endswith(" tail")


@pytest.mark.parametrize("attempts", [1, ROW_ATTEMPTS])
def test_a_call_that_may_have_landed_is_still_open_when_the_row_has_failed(attempts: int) -> None:
    row = replace(ROW, state="creating", attempts=attempts)
    assert outcomes.of_fault(row, Fault("answer-lost", landed=True), call_open=True).call_open
    assert not outcomes.of_fault(row, Fault("source-busy"), call_open=False).call_open
