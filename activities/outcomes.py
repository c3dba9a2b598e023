"""What the end of a row's work means for the row."""

from __future__ import annotations

import random
import traceback

from faults import Fault, Scope, attempts_allowed, row_backoff
from ledger.assets import Row
from ledger.claims import Outcome


def of_fault(row: Row, fault: Fault, *, call_open: bool = False, jitter: float | None = None) -> Outcome:
    """The outcome of a row whose work ended with this fault.

    Permanent faults reject the row. Transient ones leave it where it was, for a jittered later time, until its attempts
    are used up; then it is on the dead-letter list. A fault that isn't about the row gives the attempt back. With
    `call_open` its create call may have landed: whoever works the row next, a redrive too, looks that up first.
    """
    back = "creating" if call_open else "inventoried" if row.state == "creating" else row.state
    if fault.scope is not Scope.ROW:
        return Outcome(
            row.ref, back, "handed-back", reason=fault.code, detail=fault.detail, refund=True, call_open=call_open
        )
    if row.state == "attaching" and (fault.permanent or row.attempts >= attempts_allowed(fault.code)):
        # The video is there and good; what is missing beside it is told when it is reconciled.
        detail = f"{fault.code}: {fault.detail}"
        return Outcome(row.ref, "attached", "attachment-lost", reason="attachment-lost", detail=detail)
    if fault.permanent:
        return Outcome(row.ref, "rejected", "rejected", reason=fault.code, detail=fault.detail, call_open=call_open)
    if row.attempts >= attempts_allowed(fault.code):
        return Outcome(row.ref, "failed", "failed", reason=fault.code, detail=fault.detail, call_open=call_open)
    wait = row_backoff(row.attempts, random.random() if jitter is None else jitter, fault.retry_after)  # noqa: S311
    return Outcome(row.ref, back, "again", reason=fault.code, detail=fault.detail, wait_s=wait, call_open=call_open)


def unexpected(error: BaseException) -> Fault:
    """An exception nobody classified, as a fault with its traceback."""
    return Fault("unknown", "".join(traceback.format_exception(error)).strip())


def handed_back(row: Row, *, call_open: bool = False) -> Outcome:
    """A row that was claimed and not worked to its end. With `call_open` its create call may be under way."""
    call_open = call_open or row.intent
    back = "creating" if call_open else "inventoried" if row.state == "creating" else row.state
    return Outcome(row.ref, back, "handed-back", refund=True, call_open=call_open)
