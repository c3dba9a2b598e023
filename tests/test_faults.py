"""The failure taxonomy: its registry, its tables of statuses, and what each retry policy gives up on."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import faults
from faults import (
    DETAIL_LIMIT,
    LEDGER_RETRY,
    PAGE_RETRY,
    REASONS,
    ROW_ATTEMPTS,
    SIGNAL_RETRY,
    UNKNOWN_ATTEMPTS,
    Fault,
    Scope,
    attempts_allowed,
    of_source_status,
    of_sqlstate,
    of_status,
    row_backoff,
    truncate,
)

ROOT = Path(__file__).resolve().parents[1]
PROGRAMS = ("client", "connection", "display", "relay", "settings", "starter", "telemetry", "webhook", "worker")
PACKAGES = ("activities", "destinations", "governor", "ledger", "media", "sources", "workflows", "devstack")


# ----------------------------------------------------------------------------------------------------------- registry


def test_every_code_is_declared_once() -> None:
    assert [code for code, count in Counter(reason.code for reason in faults._ALL).items() if count > 1] == []


@pytest.mark.parametrize("reason", REASONS.values(), ids=REASONS)
def test_a_code_fits_a_metric_label_and_its_words_a_sentence(reason: faults.Reason) -> None:
    assert re.fullmatch(r"[a-z]+(-[a-z]+){0,3}", reason.code)
    assert len(reason.code) <= 30
    for text in (reason.words, reason.remedy):
        assert 3 <= len(text) <= 120
        assert text == text.strip()
        assert not text.endswith((".", "!", ";"))
    assert reason.words[0].islower() or reason.words.startswith("Temporal")
    assert reason.remedy[0].islower()


def _calls(path: Path) -> Iterator[tuple[str, ast.Call]]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"), str(path))):
        if isinstance(node, ast.Call):
            function = node.func
            yield getattr(function, "id", None) or getattr(function, "attr", ""), node


def _codes_used() -> dict[str, set[str]]:
    """Reason codes written out in the source, with the files that use them."""
    used: dict[str, set[str]] = {}
    files = [ROOT / f"{name}.py" for name in PROGRAMS]
    for package in PACKAGES:
        files += (ROOT / package).rglob("*.py")
    for path in files:
        for name, call in _calls(path):
            if name != "Fault" or not call.args:
                continue
            for branch in ast.walk(call.args[0]):
                if isinstance(branch, ast.Constant) and isinstance(branch.value, str):
                    used.setdefault(branch.value, set()).add(path.name)
    return used


def test_every_reason_that_the_source_raises_is_declared() -> None:
    used = _codes_used()
    assert len(used) > 20, "the scan finds what it looks for"
    assert {code: files for code, files in used.items() if code not in REASONS} == {}


def test_an_undeclared_reason_is_a_mistake_of_ours() -> None:
    with pytest.raises(KeyError):
        Fault("no-such-reason")


def test_a_fault_becomes_a_typed_error_with_its_retry() -> None:
    error = Fault("rate-limited", "429 from the host", retry_after=7.5).as_application_error()
    assert error.type == "rate-limited"
    assert error.details == ("429 from the host",)
    assert error.next_retry_delay is not None
    assert error.next_retry_delay.total_seconds() == 7.5
    assert not error.non_retryable
    assert Fault("file-empty").as_application_error().non_retryable
    assert Fault("plan-limit").as_application_error().non_retryable, "what stops the run is the workflow's to decide"


def test_a_faults_detail_is_cut_before_it_reaches_a_payload() -> None:
    fault = Fault("unknown", "x" * 3_000_000)
    assert len(fault.detail) <= DETAIL_LIMIT
    assert len(str(fault)) < DETAIL_LIMIT + 50


# -------------------------------------------------------------------------------------------------------------- tables


@pytest.mark.parametrize(
    ("status", "code", "creating"),
    [
        (400, "destination-refused-input", "destination-refused-input"),
        (401, "credentials-refused", "credentials-refused"),
        (402, "plan-limit", "plan-limit"),
        (403, "right-missing", "right-missing"),
        (408, "destination-timeout", "answer-lost"),
        (409, "answer-lost", "answer-lost"),
        (413, "destination-refused-input", "destination-refused-input"),
        (415, "destination-refused-input", "destination-refused-input"),
        (418, "destination-refused-input", "destination-refused-input"),
        (422, "destination-refused-input", "destination-refused-input"),
        (429, "rate-limited", "rate-limited"),
        (500, "destination-error", "answer-lost"),
        (502, "destination-error", "answer-lost"),
        (503, "destination-busy", "destination-busy"),
        (504, "destination-timeout", "answer-lost"),
        (520, "destination-error", "answer-lost"),
        (302, "destination-error", "destination-error"),
    ],
)
def test_a_destinations_status(status: int, code: str, creating: str) -> None:
    assert of_status(status) == code
    assert of_status(status, creating=True) == creating


@pytest.mark.parametrize(
    ("status", "code"),
    [
        (400, "source-forbidden"),
        (401, "source-forbidden"),
        (403, "source-forbidden"),
        (404, "source-not-found"),
        (408, "source-timeout"),
        (410, "source-not-found"),
        (425, "source-busy"),
        (429, "source-busy"),
        (500, "source-busy"),
        (503, "source-busy"),
        (504, "source-timeout"),
    ],
)
def test_a_sources_status(status: int, code: str) -> None:
    assert of_source_status(status) == code


@given(st.integers(400, 599))
def test_every_status_has_a_declared_reason(status: int) -> None:
    assert {of_status(status), of_status(status, creating=True), of_source_status(status)} <= set(REASONS)


@given(st.integers(500, 599).filter(lambda status: status != 503))
def test_a_create_that_ends_in_a_servers_error_may_have_landed(status: int) -> None:
    assert of_status(status, creating=True) == "answer-lost"


@pytest.mark.parametrize("sqlstate", ["40001", "40P01", "55P03", "57014", "53300"])
def test_a_busy_engine_is_no_rows_fault(sqlstate: str) -> None:
    assert of_sqlstate(sqlstate) == "ledger-conflict"
    assert REASONS["ledger-conflict"].scope is Scope.WINDOW


@pytest.mark.parametrize("sqlstate", ["57P01", "57P02", "57P03", "57P05", "25006", "08000", "08003", "08006", "08P01"])
def test_a_lost_engine_is_connected_to_again(sqlstate: str) -> None:
    assert of_sqlstate(sqlstate) == "ledger-unreachable"


@pytest.mark.parametrize("sqlstate", [None, "22021", "22P02", "23505", "42P01"])
def test_bad_data_and_bad_statements_are_no_engine_errors(sqlstate: str | None) -> None:
    assert of_sqlstate(sqlstate) is None


# ------------------------------------------------------------------------------------------------------------ truncate


@given(st.text(max_size=4_000), st.integers(60, 3_000))
def test_a_text_is_cut_to_the_limit_and_keeps_head_and_tail(text: str, limit: int) -> None:
    cut = truncate(text, limit)
    assert len(cut) <= limit
    if len(text) <= limit:
        assert cut == text
    else:
        head, _, rest = cut.partition(" … ")
        assert text.startswith(head)
        assert text.endswith(rest.partition(" … ")[2])
        assert cut != text


def test_a_cut_text_says_how_much_is_gone() -> None:
    cut = truncate("a" * 3_000_000 + "the end", 500)
    assert cut.startswith("aaa")
    assert cut.endswith("the end")
    assert "2999507 characters left out" in cut


# ------------------------------------------------------------------------------------------------------ retry policies


@pytest.mark.parametrize("policy", [PAGE_RETRY, LEDGER_RETRY])
def test_what_no_retry_mends_is_not_retried_and_everything_else_is(policy: object) -> None:
    final = set(policy.non_retryable_error_types)  # type: ignore[attr-defined]
    assert final == {code for code, reason in REASONS.items() if reason.permanent or reason.scope is Scope.RUN}
    assert final.isdisjoint({"ledger-conflict", "ledger-unreachable", "rate-limited", "worker-stopping", "unknown"})
    assert policy.maximum_attempts == 0, "without an end: rows count their own attempts"  # type: ignore[attr-defined]


def test_a_hint_is_given_up_soon() -> None:
    assert 2 <= SIGNAL_RETRY.maximum_attempts <= 10


def test_a_rows_attempts_by_reason() -> None:
    assert attempts_allowed("file-empty") == 1
    assert attempts_allowed("source-timeout") == ROW_ATTEMPTS
    assert attempts_allowed("unknown") == UNKNOWN_ATTEMPTS < ROW_ATTEMPTS


@given(st.integers(1, 50), st.floats(0, 1, exclude_max=True), st.one_of(st.none(), st.floats(0, 10_000)))
def test_a_rows_wait_grows_is_jittered_bounded_and_honours_the_hosts_wish(
    attempt: int, jitter: float, wish: float | None
) -> None:
    wait = row_backoff(attempt, jitter, wish)
    assert wait >= (wish or 0)
    if wish is None:
        assert 1.0 <= wait <= 450.0
        assert wait <= row_backoff(attempt + 1, jitter)
