"""The failure taxonomy: what can go wrong, where each kind is stopped, and the retry policy it gets.

A `Reason` is a short stable word ("file-incomplete") that fits a metric label and a message to a person. Every reason
is declared here once, with the scope at which it is stopped, whether a later attempt may succeed, and the words and the
remedy a person reads. Code that meets a failure raises `Fault(reason, detail)`; nothing else decides what a failure
means.

This module is imported by workflow code: it knows no HTTP library, no database driver and does no I/O. Statuses and
SQLSTATEs come in as plain values (`of_status`, `of_sqlstate`).
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from temporalio.common import RetryPolicy
from temporalio.exceptions import ApplicationError

DETAIL_LIMIT: Final = 2_000
"""Characters kept of an error's text: well below Temporal's 2 MB payload and 20 000 byte details limits."""


class Scope(StrEnum):
    """Where a failure is stopped: the smallest thing that it stops, and nothing beside it."""

    ROW = "row"
    """one asset; its window's neighbours finish"""
    WINDOW = "window"
    """one statement over up to 25 rows: rolled back and written again, nobody's attempt"""
    ACCOUNT = "account"
    """every worker's calls to one destination account pause; no row loses an attempt"""
    PAGE = "page"
    """the worker of a page died or stalled: another takes its rows with a higher fence"""
    RUN = "run"
    """the run parks with the reason, and goes on by itself or when told"""


@dataclass(frozen=True, slots=True)
class Reason:
    """One reason code.

    `permanent` says that no later attempt at the same input can succeed. `words` complete the sentence "this was
    stopped because …"; `remedy` says what a person can do.
    """

    code: str
    scope: Scope
    permanent: bool
    words: str
    remedy: str


def _row_permanent(code: str, words: str, remedy: str) -> Reason:
    return Reason(code, Scope.ROW, True, words, remedy)


def _row_transient(code: str, words: str, remedy: str) -> Reason:
    return Reason(code, Scope.ROW, False, words, remedy)


_ALL: Final[tuple[Reason, ...]] = (
    # -- the file itself: rejected on the first attempt
    _row_permanent("file-empty", "the file has no bytes", "upload the original again at the source"),
    _row_permanent(
        "file-incomplete", "part of the file is missing", "replace the file at the source by a complete copy"
    ),
    _row_permanent("not-a-video", "the file is not a video", "remove it from the manifest, or correct its address"),
    _row_permanent("no-video-stream", "the file has no picture, only sound or data", "leave it out, or add a picture"),
    _row_permanent("file-corrupt", "the file cannot be decoded", "repair or export it again, then redrive"),
    _row_permanent("too-short", "the video is shorter than the destination accepts", "leave it out"),
    _row_permanent("too-long", "the video is longer than the destination accepts", "split it, or ask the host"),
    _row_permanent("too-large", "the file is larger than the destination accepts", "export a smaller file"),
    # -- the source's answer about one file
    _row_permanent(
        "source-returned-html",
        "the address answered with a web page instead of a file",
        "use a direct link to the file (a share or login page was given)",
    ),
    _row_permanent("source-not-found", "the source has no such file", "correct the address, or drop the row"),
    _row_permanent("source-forbidden", "the source refuses access to the file", "give access, or list the source anew"),
    _row_permanent(
        "source-address-refused",
        "the address is of a kind that is not fetched",
        "give an http or https address outside private networks, or allow private addresses in the settings",
    ),
    _row_permanent(
        "source-failed", "the video had already failed at the source", "repair or replace it there, then redrive"
    ),
    _row_transient("source-busy", "the source is overloaded", "it is tried again later by itself"),
    _row_transient("source-unreachable", "the source did not answer", "check the source; it is tried again later"),
    _row_transient("source-timeout", "reading the file took too long", "check the source's speed; tried again later"),
    _row_transient("file-growing", "fewer bytes arrived than were announced", "it is tried again later by itself"),
    _row_transient("probe-died", "the probe was killed before it answered", "it is tried again later by itself"),
    # -- the destination's answer about one video
    _row_permanent(
        "destination-refused-input", "the destination refuses this video", "read its message in the row's detail"
    ),
    _row_permanent(
        "destination-failed", "the destination could not process this video", "read its message in the row's detail"
    ),
    _row_permanent(
        "local-file-refused",
        "the destination cannot read files of this machine",
        "serve the files over http, or set the account's option local_files where it can",
    ),
    _row_permanent(
        "headers-refused",
        "the destination cannot send the headers that the source demands",
        "give addresses that need none (presigned ones), or files it can be sent",
    ),
    _row_permanent(
        "private-refused",
        "the video is private at the source, and would be public at the destination",
        "set publish_private in the account's settings if that is meant",
    ),
    _row_permanent("file-changed", "the file changed while it was being sent", "redrive: it is sent from the start"),
    _row_permanent("name-too-long", "the title or reference exceeds the destination's limit", "shorten the title"),
    _row_permanent("remote-deleted", "the video was deleted at the destination", "redrive if that was a mistake"),
    _row_transient("destination-error", "the destination answered with an error", "it is tried again later by itself"),
    _row_transient(
        "destination-timeout", "the destination did not answer in time", "it is looked up, then tried again"
    ),
    _row_transient(
        "answer-lost",
        "the destination may have made the video, but its answer was lost",
        "it is looked up by its reference before anything is made again",
    ),
    _row_transient("answer-malformed", "the destination's answer could not be read", "compare its API version"),
    _row_transient("fetch-failed", "the destination could not fetch the file", "check that it can reach the source"),
    _row_transient("not-ready-in-time", "processing did not finish before the deadline", "redrive, or ask the host"),
    _row_transient("worker-died", "the worker died while it had this row", "see the row's history, then redrive"),
    _row_transient("unknown", "an unexpected error", "read the traceback in the row's detail, then redrive"),
    # -- reconciliation
    _row_permanent("remote-missing", "the destination's own list does not have it", "redrive it"),
    _row_permanent("duration-differs", "the duration at the destination differs", "compare both, then decide"),
    _row_permanent(
        "attachment-lost",
        "a caption or the poster could not be carried over",
        "read which one and why in the row's detail, mend it, then redrive",
    ),
    _row_permanent(
        "reference-differs", "the video at the destination carries another reference", "look at both, then redrive"
    ),
    _row_permanent("state-differs", "the destination no longer calls it ready", "look at it there, then redrive"),
    # -- the ledger's engine: the window is written again
    Reason("ledger-conflict", Scope.WINDOW, False, "the ledger was busy", "it is written again by itself"),
    Reason("ledger-unreachable", Scope.WINDOW, False, "the ledger cannot be reached", "start PostgreSQL; work goes on"),
    Reason("temporal-unreachable", Scope.WINDOW, False, "Temporal cannot be reached", "start Temporal; work goes on"),
    # -- the account: every worker pauses
    Reason("rate-limited", Scope.ACCOUNT, False, "the destination asked to slow down", "the pace recovers by itself"),
    Reason(
        "destination-unreachable",
        Scope.ACCOUNT,
        False,
        "the destination cannot be reached",
        "check its address in the settings; it is tried again by itself",
    ),
    Reason("destination-busy", Scope.ACCOUNT, False, "the destination is overloaded", "the pace recovers by itself"),
    # -- the page
    Reason("fence-lost", Scope.PAGE, True, "another has taken this over since", "nothing: its work counts"),
    Reason("worker-stopping", Scope.PAGE, False, "the worker was told to stop", "another goes on where it stood"),
    Reason("worker-stalled", Scope.PAGE, False, "the worker stood still too long", "another goes on where it stood"),
    # -- the run parks
    Reason(
        "credentials-refused",
        Scope.RUN,
        True,
        "the destination refused the credentials",
        "set the account's token and resume the run",
    ),
    Reason("right-missing", Scope.RUN, True, "the credentials lack a right", "grant it at the host and resume the run"),
    Reason("plan-limit", Scope.RUN, False, "the account's plan is used up", "raise the plan and resume the run"),
    Reason(
        "allowance-spent",
        Scope.RUN,
        False,
        "the account's allowance is spent down to what is left alone",
        "it resumes by itself when the allowance is renewed; or raise the limit in the settings",
    ),
    Reason("destination-down", Scope.RUN, False, "the destination has been down for minutes", "it resumes by itself"),
    Reason(
        "source-credentials-refused",
        Scope.RUN,
        True,
        "the source refused the credentials",
        "set the source's token and resume the run",
    ),
    Reason("source-down", Scope.RUN, False, "the source's listing cannot be had", "check the source, then resume"),
    # -- a listing that cannot be trusted: the run stops before anything is made from it
    Reason(
        "listing-repeats",
        Scope.RUN,
        True,
        "the source answers with the same page again and again",
        "check the source's paging parameters in its settings",
    ),
    Reason(
        "listing-cycles",
        Scope.RUN,
        True,
        "the source's cursor leads back to a page already read",
        "check the source's cursor settings",
    ),
    Reason(
        "listing-too-long",
        Scope.RUN,
        True,
        "the listing went on past the page cap",
        "raise max_pages in the source's settings if the library is that large",
    ),
    Reason(
        "listing-malformed",
        Scope.RUN,
        True,
        "the source's answer is not a listing",
        "check the source's address and field names in its settings",
    ),
    Reason("cursor-stale", Scope.RUN, False, "the source no longer knows our place", "the listing is read anew"),
    # -- questions that have no answer
    Reason("run-unknown", Scope.RUN, True, "there is no such run", "see `starter.py list`"),
    Reason("asset-unknown", Scope.ROW, True, "there is no such asset", "see `starter.py map RUN`"),
    Reason("worker-missing", Scope.RUN, False, "nobody works on the run", "start a worker"),
    # -- input refused before anything happens
    Reason(
        "manifest-refused", Scope.RUN, True, "the manifest cannot be read", "correct the named line and start again"
    ),
    Reason("settings-refused", Scope.RUN, True, "the settings do not allow this", "correct the named setting"),
)

REASONS: Final = MappingProxyType({reason.code: reason for reason in _ALL})
"""Every reason by its code."""


class Fault(Exception):
    """A classified failure.

    `reason` is a code out of `REASONS` (KeyError otherwise: an undeclared reason is a mistake in our code). `detail` is
    what was seen, for a person; secrets must have been taken out by the raiser. `retry_after` is the destination's or
    source's own wish in seconds, already clamped, or None. `landed` says whether a create may have taken effect: False
    only where it is certain that it did not.
    """

    def __init__(
        self, reason: str, detail: str = "", *, retry_after: float | None = None, landed: bool = False
    ) -> None:
        self.reason: Reason = REASONS[reason]
        self.detail = truncate(detail)
        self.retry_after = retry_after
        self.landed = landed
        super().__init__(f"{reason}: {self.detail}" if self.detail else reason)

    @property
    def code(self) -> str:
        return self.reason.code

    @property
    def scope(self) -> Scope:
        return self.reason.scope

    @property
    def permanent(self) -> bool:
        return self.reason.permanent

    def as_application_error(self) -> ApplicationError:
        """This fault as the typed error that an activity raises: type = reason code, one detail = what was seen."""
        return ApplicationError(
            f"{self.reason.words}: {self.detail}" if self.detail else self.reason.words,
            self.detail,
            type=self.code,
            non_retryable=self.permanent or self.scope is Scope.RUN,
            next_retry_delay=None if self.retry_after is None else timedelta(seconds=self.retry_after),
        )


def truncate(text: str, limit: int = DETAIL_LIMIT) -> str:
    """`text` in at most `limit` characters, its head and tail kept."""
    if len(text) <= limit:
        return text
    mark = f" … {len(text) - limit} characters left out … "
    keep = limit - len(mark)
    return text[: keep - keep // 3] + mark + text[len(text) - keep // 3 :]


# ---------------------------------------------------------------------------------------------------- classification

_STATUS: Final = MappingProxyType(
    {
        401: "credentials-refused",
        402: "plan-limit",
        403: "right-missing",
        404: "destination-error",
        408: "destination-timeout",
        409: "answer-lost",
        413: "destination-refused-input",
        415: "destination-refused-input",
        422: "destination-refused-input",
        429: "rate-limited",
        503: "destination-busy",
        504: "destination-timeout",
    }
)


def of_status(status: int, *, creating: bool = False) -> str:
    """The reason code for a destination's HTTP status that no module gave a finer meaning.

    With `creating`, 5xx and 408 answers mean that the create may have landed ("answer-lost").
    """
    if creating and (status in (408, 504) or (status >= 500 and status != 503)):
        return "answer-lost"
    if status in _STATUS:
        return _STATUS[status]
    if 400 <= status < 500:
        return "destination-refused-input"
    return "destination-error"


_SOURCE_STATUS: Final = MappingProxyType({401: "source-forbidden", 403: "source-forbidden", 404: "source-not-found",
                                          410: "source-not-found", 408: "source-timeout", 425: "source-busy",
                                          429: "source-busy", 503: "source-busy", 504: "source-timeout"})  # fmt: skip


def of_source_status(status: int) -> str:
    """The reason code for the HTTP status a file's address answered with (status ≥ 400)."""
    if status in _SOURCE_STATUS:
        return _SOURCE_STATUS[status]
    return "source-forbidden" if 400 <= status < 500 else "source-busy"


_ENGINE_SQLSTATES: Final = frozenset(
    {
        "40001",  # serialization_failure
        "40P01",  # deadlock_detected
        "55P03",  # lock_not_available
        "57014",  # query_canceled: a statement time-out
        "53300",  # too_many_connections
    }
)
_ENGINE_DOWN_SQLSTATES: Final = frozenset({"57P01", "57P02", "57P03", "57P05", "25006"})
"""Shutdown, crash, start-up, idle time-out; 25006 is a primary that became a standby: all mean "connect again"."""


def of_sqlstate(sqlstate: str | None) -> str | None:
    """The reason code of an engine error, or None where the statement or its data is at fault."""
    if sqlstate is None:
        return None
    if sqlstate in _ENGINE_SQLSTATES:
        return "ledger-conflict"
    if sqlstate in _ENGINE_DOWN_SQLSTATES or sqlstate.startswith("08"):
        return "ledger-unreachable"
    return None


# ------------------------------------------------------------------------------------------------------ retry policies

_PERMANENT_TYPES: Final = [r.code for r in _ALL if r.permanent or r.scope is Scope.RUN]

PAGE_RETRY: Final = RetryPolicy(
    initial_interval=timedelta(seconds=1),
    backoff_coefficient=2.0,
    maximum_interval=timedelta(seconds=30),
    maximum_attempts=0,
    non_retryable_error_types=_PERMANENT_TYPES,
)
"""For an activity that works a page. Without an end: each retry goes on where the ledger stands, rows count their own
attempts, and what no retry can mend is non-retryable. A dead worker or a dead database only costs time."""

LEDGER_RETRY: Final = RetryPolicy(
    initial_interval=timedelta(milliseconds=200),
    backoff_coefficient=2.0,
    maximum_interval=timedelta(seconds=20),
    maximum_attempts=0,
    non_retryable_error_types=_PERMANENT_TYPES,
)
"""For a short ledger question or write, which is idempotent."""

SIGNAL_RETRY: Final = RetryPolicy(
    initial_interval=timedelta(seconds=1), maximum_interval=timedelta(seconds=30), maximum_attempts=5
)
"""For a hint, whose loss costs only a little time."""

ROW_ATTEMPTS: Final = 5
"""Attempts a row gets in one phase before it goes to the dead-letter list."""
UNKNOWN_ATTEMPTS: Final = 3
"""Attempts after an unexpected error: few, since nobody knows what is being repeated."""


def attempts_allowed(reason: str) -> int:
    """How many attempts in one phase a row with this reason gets."""
    if REASONS[reason].permanent:
        return 1
    return UNKNOWN_ATTEMPTS if reason == "unknown" else ROW_ATTEMPTS


def row_backoff(attempt: int, jitter: float, retry_after: float | None = None) -> float:
    """Seconds before a row's next attempt: 2, 4, 8 … up to 300, times 0.5 to 1.5 by `jitter` in [0, 1).

    `retry_after` in seconds is a lower bound.
    """
    wait = min(300.0, 2.0 * 2.0 ** max(0, attempt - 1)) * (0.5 + jitter)
    return max(wait, retry_after or 0.0)
