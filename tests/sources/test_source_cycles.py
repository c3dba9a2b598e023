from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sources.cycles import Trail


@given(st.integers(0, 60), st.integers(1, 40))
def test_a_cycle_is_caught_soon_after_it_has_been_walked_once(lead: int, length: int) -> None:
    trail, place = Trail(), 0
    for steps in range(2 * max(lead + 1, length) + length + 1):
        trail, closed = trail.step(str(place))
        if closed:
            assert closed == length
            assert steps >= lead + length
            return
        place = place + 1 if place + 1 < lead + length else lead
    raise AssertionError("the cycle went unnoticed")


@given(st.integers(1, 500))
def test_a_walk_that_only_goes_on_closes_no_cycle(steps: int) -> None:
    trail = Trail()
    for place in range(steps):
        trail, closed = trail.step(str(place))
        assert closed == 0
