"""Where a process crosses from one system to another: before and after each a kill must do no harm.

Each crossing is a named point, entered with `with crossing("…")`. A test kills the process at both sides of each, in
turn, and checks what comes of it; another holds every call that crosses against this list. In ordinary life a crossing
costs a dictionary look-up.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from typing import Final

CRASH_VARIABLE: Final = "LONGHAUL_CRASH_AT"
"""Names the point where the process kills itself: "create:after", or "create:after#3" for the third time it is reached.
Only tests set it."""

CROSSINGS: Final = {
    # ledger, from activities
    "open-run": "the run's row is written",
    "open-phase": "a phase is opened",
    "close-phase": "a phase is closed",
    "run-state": "the run's state is written",
    "cancel-run": "a run's unfinished rows are handed back",
    "finish-run": "the run's end is written",
    "pace": "a person sets the account's pace",
    "listing-page": "a listed page becomes rows",
    "check-listing": "what a listing lacks is noted",
    "claim": "rows are claimed",
    "renew": "the claims on rows in hand are lengthened",
    "expire": "the claims of a dead attempt are ended",
    "finish": "results are written",
    "lease": "requests are leased from the account's budget",
    "budget": "the account's budget is declared, or given back",
    "pause": "the account is paused for everyone",
    "remote-page": "a page of the destination's list is kept, or its walk begun",
    "apply": "what the destination said when asked, or an event before its row was known, is applied",
    "give-up": "what has been processing for too long fails",
    "redrive": "dead letters are taken up by a new run",
    "transfer": "how far a file has been sent is written",
    # sources and destinations, from activities
    "check-source": "the source is asked whether it can be listed",
    "list": "the source is asked for a page",
    "locate": "the source is asked where a file is",
    "probe": "a file is read",
    "fetch": "a text track or a poster is read",
    "create": "a video is made",
    "upload": "a file is sent",
    "attach": "a text track or a poster is put on a video",
    "lookup": "a lost create is looked up",
    "ask": "the destination is asked for a video or a page",
    # the endpoint and its relay
    "receive": "an event is stored and applied",
    "hints": "events nobody was told of are taken",
    "signal": "a waiting page is told",
    # Temporal, from workflows
    "start-activity": "a workflow orders an activity",
    "start-child": "a workflow orders a child",
    "continue-as-new": "a workflow hands over to its next execution",
}
"""Every crossing, with what happens in it."""

_reached: dict[str, int] = {}


@contextlib.contextmanager
def crossing(name: str) -> Iterator[None]:
    """A crossing of this name (KeyError for one that is not listed)."""
    CROSSINGS[name]
    reach(f"{name}:before")
    try:
        yield
    finally:
        reach(f"{name}:after")  # also where it failed: the other system may have done it all the same


def reach(point: str) -> None:
    """Kills this process where `LONGHAUL_CRASH_AT` names the point."""
    wanted, _, times = os.environ.get(CRASH_VARIABLE, "").partition("#")
    if wanted != point:
        return
    _reached[point] = _reached.get(point, 0) + 1
    if _reached[point] >= int(times or 1):
        os.kill(os.getpid(), signal.SIGKILL)
