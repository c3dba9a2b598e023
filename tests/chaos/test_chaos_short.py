"""The attack of the chaos benchmark, shortened: each kind of process is killed, and nothing is lost or made twice."""

from __future__ import annotations

import pytest

from benchmarks.chaos import FAULTS, Options, measure, passed

MILDER = {**FAULTS, "error_before_rate": 0.05, "error_after_rate": 0.05, "lost_answer_rate": 0.05, "latency_ms": 50}
"""So that few rows wait for a late attempt: the benchmark has the time for that."""


@pytest.mark.timeout(300)
async def test_whatever_is_killed_nothing_is_made_twice_lost_or_left_in_a_wrong_state():
    said: list[str] = []
    found = await measure(
        Options(assets=40, kills=8, seed=17, workers=2, gap_s=1.2, faults=MILDER, undisturbed=False), said.append
    )
    story = "\n".join([*said, str(found)])
    assert set(found["kills_by_kind"]) == {"worker", "endpoint", "temporal", "postgres"}, story
    assert passed(found), story
