"""The create protocol, visited whole: no duplicate, nothing lost; and what each of its rules is for."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
from create_cases import (
    BEYOND,
    BREAKS,
    EXACT,
    HOSTS,
    OFFSIDE,
    PATIENT,
    WITHOUT,
    Explored,
    busy,
    endless,
    explored,
)
from create_decisions import ANSWERS, Decisions
from create_protocol import CALL, MARGIN, CreateProtocol, Host, Rules, State, World, legal_event, legal_write, removed
from explorer import explore

from activities import creating
from activities.creating import CreateActivities
from activities.leading import Lead
from activities.pages import Paced
from destinations.base import Capabilities
from faults import ROW_ATTEMPTS
from ledger.transitions import PHASE_STATES, WITHIN_PHASE, allowed
from settings import AccountSettings

every_host = pytest.mark.parametrize("host", HOSTS.values(), ids=HOSTS)


def shown(found: Explored) -> str:
    assert found.graph.violation is not None
    return f"{found.violation}:\n" + "\n".join(found.trace)


# -------------------------------------------------------------------------------------------------- with every rule on


@every_host
def test_no_duplicate_is_reached_on_any_kind_of_host_within_what_is_assumed_of_it(host: Host) -> None:
    found = busy(host)
    assert found.violation is None, shown(found)
    assert len(found.graph.states) > 1_000, "the world was not too small to tell"
    assert found.strands(dead_letters_count=True) == [], "every video is owned in the end, or its row a dead letter"


@every_host
def test_nothing_is_made_twice_or_lost_over_runs_that_are_cancelled_and_dead_letters_taken_up(host: Host) -> None:
    found = endless(host)
    assert found.violation is None, shown(found)
    assert found.strands(dead_letters_count=False) == []


def test_without_a_person_only_dead_letters_never_come_to_own_their_video() -> None:
    found = explored(HOSTS["id-only"])
    stranded = [found.graph.states[number] for number in found.strands(dead_letters_count=False)]
    assert any(state.row.state == "failed" for state in stranded)
    # The others are on their way there: the last attempt has been counted.
    assert {state.row.attempts for state in stranded if state.row.state != "failed"} == {found.model.world.attempts}


@pytest.mark.parametrize("name", ["exact", "id-only"])
def test_deleted_is_never_left_and_ready_never_pulled_back_when_videos_are_deleted_at_the_host(name: str) -> None:
    found = explored(HOSTS[name], Rules(), replace(OFFSIDE, deleted=True))
    assert found.violation is None, shown(found)
    ends = {state.row.state for state in found.graph.states}
    assert {"deleted", "ready", "failed", "processing"} <= ends


def test_which_worker_is_which_and_what_a_late_one_does_makes_no_difference_to_what_is_found() -> None:
    class Plain(CreateProtocol):
        def canonical(self, state: State) -> State:
            return state

    world = World(source_fails=False, hard_stops=False)
    reduced = explored(EXACT, world=world)
    model = Plain(EXACT, world=world)
    plain = Explored(model, explore(model))
    assert plain.violation is reduced.violation is None
    assert len(plain.graph.states) > 4 * len(reduced.graph.states)
    both = [
        {(s.row, s.videos) for s in (found.graph.states[n] for n in found.strands(dead_letters_count=False))}
        for found in (plain, reduced)
    ]
    assert both[0] == both[1]
    assert {s.row for s in plain.graph.states} == {s.row for s in reduced.graph.states}


# ----------------------------------------------------------------------------------------------- with a rule taken out


@pytest.mark.parametrize("rule", WITHOUT)
def test_each_rule_is_missed_where_it_is_taken_out(rule: str) -> None:
    host, rules, world = WITHOUT[rule]
    found = explored(host, rules, world)
    assert found.violation == BREAKS[rule]
    assert explored(host, Rules(), world).violation is None, "the same world with the rule"


def test_without_the_quiet_time_a_call_lands_after_the_look_up() -> None:
    assert explored(*WITHOUT["quiet"]).trace == [
        "A claims the row",
        "the lease of the claim passes, or Temporal declares its worker dead",
        "B claims the row",
        "A sends the create",
        "B looks up the reference and finds nothing",
        "A’s call lands: video 1 is made",
        "B writes “inventoried”",
        "B claims the row",
        "B sends the create",
        "B’s call lands: video 2 is made",
    ]


@pytest.mark.parametrize(
    "case", [WITHOUT["quiet"], WITHOUT["on_time"], WITHOUT["fence"], *BEYOND.values()],
    ids=["quiet", "on_time", "fence", *BEYOND],
)  # fmt: skip
def test_where_all_look_first_the_one_way_to_a_duplicate_is_a_call_that_shows_after_the_look_up(case: Any) -> None:
    found = explored(*case)
    assert found.graph.violation is not None
    looked = [n for n, (_, action, _) in enumerate(found.graph.violation.trace) if action[0] == "none"]
    shows = [
        n
        for n, (before, action, after) in enumerate(found.graph.violation.trace)
        if action == ("land", 0, 0) or (before.videos and before.videos[0].lag == 1 and after.videos[0].lag == 0)
    ]
    # A video that is made but not shown until after the trace's end shows later still.
    assert looked
    assert shows[-1] > looked[0] or found.graph.violation.trace[looked[0]][0].videos[0].lag > 0


def test_looking_at_once_after_a_lost_answer_only_saves_time() -> None:
    found = explored(EXACT, removed("look_at_once"))
    assert found.violation is None
    assert found.strands(dead_letters_count=True) == []


# --------------------------------------------------------------------------------------------- outside the assumptions


@pytest.mark.parametrize("name", BEYOND)
def test_what_is_not_promised_does_break_it(name: str) -> None:
    assert explored(*BEYOND[name]).violation == "duplicate"


@pytest.mark.parametrize("name", ["key", "key-late"])
def test_a_host_with_idempotency_keys_needs_no_quiet_time_and_no_look_up(name: str) -> None:
    for rules in (removed("quiet"), removed("look_first"), removed("intent"), removed("on_time")):
        assert explored(HOSTS[name], rules, OFFSIDE).violation is None
    states = busy(HOSTS[name]).graph.states
    assert {state.row.quiet for state in states} == {0}


def test_a_host_with_keys_cannot_be_hurt_between_the_last_check_and_the_call() -> None:
    assert explored(HOSTS["key-late"], world=replace(OFFSIDE, gap=True)).violation is None


def test_a_longer_quiet_time_covers_a_lag_only_if_it_is_not_spent_before_the_call() -> None:
    host, rules, world = BEYOND["lag"]
    assert explored(host, rules, world).violation == "duplicate"
    assert explored(host, rules, PATIENT).violation == "duplicate"
    apart = explored(host, Rules(waits_grow=False), PATIENT)
    assert apart.violation is None, shown(apart)


# ----------------------------------------------------------------------------------------------- the model is the code


@every_host
def test_the_model_gives_every_answer_to_every_question_that_the_code_asks(host: Host) -> None:
    decisions = busy(host).model.decisions
    asked = {node.ask for node in decisions.nodes if node.ask is not None}
    questions = {"go on", "locate", "time", "create", "lookup"} - ({"time"} if host.key else set())
    assert asked == questions
    given = {answer for number in range(len(decisions.nodes)) for answer in decisions.script(number)}
    every = {answer for question in questions for answer in ANSWERS[question]} - {"made errored", "found errored"}
    assert given >= every - ({"too late"} if host.key else set())


def test_a_row_with_an_open_call_is_looked_up_and_never_called_for_unless_a_key_makes_that_safe() -> None:
    for attempts in range(1, ROW_ATTEMPTS + 1):
        decisions = Decisions(key=False, attempts=ROW_ATTEMPTS)
        node = decisions.then(decisions.root("creating", True, attempts), "yes")
        assert decisions.nodes[node].ask == "lookup"
        none = decisions.nodes[decisions.then(node, "none")].outcome
        assert none is not None
        assert (none.state, none.call_open, none.refund) == ("inventoried", False, True)
    keyed = Decisions(key=True, attempts=2)
    node = keyed.then(keyed.then(keyed.root("creating", True, 1), "yes"), "located")
    assert keyed.nodes[node].ask == "create", "no look-up, no question of time"


def test_a_worker_that_was_too_late_makes_no_call_and_leaves_the_row_as_it_was() -> None:
    decisions = Decisions(key=False, attempts=2)
    node = decisions.root("inventoried", False, 1)
    for answer in ("yes", "located", "too late"):
        node = decisions.then(node, answer)
    outcome = decisions.nodes[node].outcome
    assert outcome is not None
    assert (outcome.state, outcome.refund, outcome.reason) == ("inventoried", True, "worker-stalled")


def test_an_open_call_stays_open_whatever_is_answered_but_a_video_or_a_refusal() -> None:
    decisions = Decisions(key=False, attempts=2)
    call = decisions.root("inventoried", False, 1)
    for answer in ("yes", "located", "in time"):
        call = decisions.then(call, answer)
    for answers in (("busy",), ("stopped",), ("lost", "none"), ("lost", "failed"), ("lost", "stopped")):
        node = call
        for answer in answers:
            node = decisions.then(node, answer)
        outcome = decisions.nodes[node].outcome
        assert outcome is not None
        assert (outcome.state, outcome.call_open) == ("creating", True), answers
    refused = decisions.nodes[decisions.then(call, "refused")].outcome
    assert refused is not None
    assert (refused.state, refused.call_open) == ("inventoried", False)


def test_a_step_that_the_model_calls_legal_is_one_of_the_table() -> None:
    states = ("inventoried", "creating", "processing", "ready", "rejected", "failed", "skipped", "deleted")
    for source in states:
        for target in states:
            assert legal_event(source, target) == allowed(source, target)
            stays = source == target and any(source in held for held in PHASE_STATES.values())
            assert legal_write(source, target) == (allowed(source, target) or stays)
    assert "creating>inventoried" in WITHIN_PHASE


@pytest.mark.parametrize(("timeout_s", "quiet_s"), [(30.0, None), (1.0, 3.0), (30.0, 32.0), (5.0, 600.0)])
async def test_a_call_that_is_made_as_late_as_it_may_be_ends_within_the_quiet_time(
    timeout_s: float, quiet_s: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The model's ticks are the code's seconds: a call, the margin, and what is left of the quiet time before both."""
    settings = AccountSettings(
        base_url="http://127.0.0.1", token="t", timeout_s=timeout_s, quiet_s=quiet_s  # type: ignore[arg-type]
    )  # fmt: skip
    offers = Capabilities("exact", False, True, 1000)

    async def start(at: float) -> bool:
        return True

    pace = SimpleNamespace(start=start)
    account = SimpleNamespace(settings=settings, governor=pace, destination=SimpleNamespace(capabilities=offers))
    seen: dict[str, float] = {}

    class OneRow:
        def __init__(self, bench: Any, page: Any, work: Paced) -> None:
            self._work, seen["quiet"] = work, work.quiet_s

        async def __call__(self) -> None:
            await self._work.prepare(cast(Any, None))

    async def prepared(engine: Any, account: Any, page: Any, source: Any, row: Any, may_wait_s: float) -> None:
        seen["call_by"] = may_wait_s  # the row's start is 0

    class Closing:
        async def aclose(self) -> None: ...

    monkeypatch.setattr(creating, "PageRun", OneRow)
    monkeypatch.setattr(creating, "_prepared", prepared)
    monkeypatch.setattr(creating, "open_source", lambda spec, settings: Closing())
    accounts: Any = SimpleNamespace(account=lambda name: account)
    page: Any = SimpleNamespace(source=SimpleNamespace(label="it"), account="main")
    none: Any = None
    bench: Any = SimpleNamespace(engine=None, leads=defaultdict(Lead))
    await CreateActivities(bench, none, accounts).create_page(page)
    assert seen["quiet"] == settings.quiet
    assert seen["call_by"] > 0
    assert seen["call_by"] + timeout_s + creating.CLOCK_S / 2 <= seen["quiet"]
    model = CreateProtocol(EXACT)
    assert model.call_by + CALL + MARGIN == model.world.quiet
