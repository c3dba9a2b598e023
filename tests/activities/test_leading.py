"""How far ahead a row's request is prepared."""

from __future__ import annotations

import pytest

from activities.leading import RECENT, Lead
from governor.budget import LEAD_S


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def taking(*seconds: float) -> Lead:
    clock = Clock()
    lead = Lead(clock)
    for each in seconds:
        with lead.measured():
            clock.now += each
    return lead


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        ((), (0.0, 0.0)),
        ((0.0, 0.001), (0.0, 0.0)),
        ((0.1, 0.4, 0.2), (0.5, 0.0)),
        ((4.0,), (LEAD_S, 5.0 - LEAD_S)),
        ((9.0, 9.0, 9.0, *[0.4] * RECENT), (0.5, 0.0)),
        ((9.0, 9.0, *[0.4] * (RECENT - 2)), (0.5, 0.0)),
        ((9.0, 9.0, 9.0, *[0.4] * (RECENT - 3)), (LEAD_S, 11.25 - LEAD_S)),
    ],
    ids=[
        "nothing known",
        "no time worth it",
        "the longest and some more",
        "the rest behind",
        "long ago",
        "outliers",
        "no outliers",
    ],
)
def test_as_long_ahead_as_it_took_lately(seconds: tuple[float, ...], expected: tuple[float, float]) -> None:
    lead = taking(*seconds)
    assert (lead.ahead_s, lead.behind_s) == pytest.approx(expected)


def test_a_preparation_that_failed_tells_nothing() -> None:
    clock = Clock()
    lead = Lead(clock)

    def fails() -> None:
        with lead.measured():
            clock.now += 1.0
            raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        fails()
    assert lead.ahead_s == 0.0
