"""The adaptive pace: additive growth while all goes well, half of it after a congestion event.

The pace is a function of two numbers that all workers share: `ceiling`, the pace at which the host refused last, and
`grown_s`, for how many seconds it has been in use since. So nothing is written while it grows, and one conditional
write cuts it. The curve is flat below the last ceiling and steep beyond it, as that of CUBIC (RFC 9438) is: the pace
stays near what the host can take, and finds a limit that was lifted within a minute.

Where limits are declared, the value is the share of them that is used (0.1 to 1); else it is requests a second.
"""

from __future__ import annotations

from typing import Final

FIRST_PER_S: Final = 50.0
"""Requests a second with which an account without declared limits begins; they grow until the first refusal."""
SLOWEST_PER_S: Final = 1.0
FASTEST_PER_S: Final = 1000.0
LEAST_SHARE: Final = 0.1
"""Of declared limits this share is used however often the host refuses."""

RAMP_S: Final = 4.0
"""Seconds from the half to just below the last ceiling."""
BELOW: Final = 0.97
"""Of the last ceiling, what is held before anything more is tried."""
HOLD_S: Final = 16.0
PROBE_S: Final = 20.0
"""Seconds after which the growth beyond the last ceiling has come to as much again."""
ABOVE: Final = 1.02
"""Of what was sent on average, where the next ceiling is."""
BEFORE: Final = 18.46
"""Seconds at the last ceiling that are as much as what is sent until the growth goes beyond it."""
PAUSE_S: Final = 1.0
"""Seconds that the pause of a cut took, for the average."""
STEP_S: Final = 5.0
"""Seconds of growth for one lease at most: what was not used has not been tried."""


def value(ceiling: float | None, grown_s: float, known: bool) -> float:
    """The pace after so many seconds of use since the last cut (or the first lease). `known`: limits are declared."""
    if ceiling is None:
        return 1.0 if known else min(FIRST_PER_S * (1.0 + grown_s / 2.0) * (1.0 + grown_s / 2.0), FASTEST_PER_S)
    if grown_s < RAMP_S:
        share = 0.5 + (BELOW - 0.5) * grown_s / RAMP_S
    elif grown_s < RAMP_S + HOLD_S:
        share = BELOW
    else:
        over = (grown_s - RAMP_S - HOLD_S) / PROBE_S
        share = BELOW + over * over * over
    least, most = (LEAST_SHARE, 1.0) if known else (SLOWEST_PER_S, FASTEST_PER_S)
    return min(max(ceiling * share, least), most)


def ceiling_after(ceiling: float | None, grown_s: float, flow: float, known: bool) -> float:
    """The ceiling that a refusal leaves, after so many seconds of use in which `flow` was sent.

    A host that lets calls gather (a token bucket, a long window) refuses late, when the pace has outgrown what it can
    take. But from one refusal to the next it took what it could, and so the average is the better measure: since the
    last cut, or, where that is more, since the pace was let grow beyond the last ceiling.
    """
    refused = value(ceiling, grown_s, known)
    sent = flow / (grown_s + PAUSE_S)
    if ceiling is not None and grown_s > RAMP_S + HOLD_S + 2.0:
        sent = max(sent, (flow - ceiling * BEFORE) / (grown_s - RAMP_S - HOLD_S))
    least = LEAST_SHARE if known else SLOWEST_PER_S
    return max(min(refused, max(sent * ABOVE, refused / 2.0)), 2.0 * least)
