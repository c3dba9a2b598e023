"""The attack of the chaos benchmark, shortened: each kind of process is killed, and nothing is lost or made twice."""

from __future__ import annotations

import pytest

from benchmarks.chaos import Options, measure, passed


@pytest.mark.timeout(300)
async def test_whatever_is_killed_nothing_is_made_twice_lost_or_left_in_a_wrong_state():
    said: list[str] = []
    found = await measure(Options(assets=40, kills=8, seed=7, workers=2, gap_s=1.5, undisturbed=False), said.append)
    story = "\n".join([*said, str(found)])
    assert set(found["kills_by_kind"]) == {"worker", "endpoint", "temporal", "postgres"}, story
    assert passed(found), story
