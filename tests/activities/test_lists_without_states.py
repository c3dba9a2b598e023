"""What a destination's list proves where it doesn't tell the state of its videos."""

from __future__ import annotations

from dataclasses import replace

import pytest

from activities.reconciling import verdict
from destinations.base import RemoteState, RemoteVideo
from tests.activities.test_outcomes import ROW

READY = replace(ROW, state="ready", remote_id="vi1")


def test_a_video_in_such_a_list_is_verified_and_in_another_it_would_have_to_be_ready() -> None:
    seen = RemoteVideo("vi1", READY.ref, RemoteState.PROCESSING)
    assert verdict(READY, seen, tells_state=False).state == "verified"
    assert verdict(READY, seen).reason == "state-differs"


@pytest.mark.parametrize("state", [RemoteState.ERRORED, RemoteState.DELETED])
def test_a_state_that_such_a_list_does_tell_counts(state: RemoteState) -> None:
    assert verdict(READY, RemoteVideo("vi1", READY.ref, state), tells_state=False).reason == "state-differs"


def test_what_is_not_in_it_or_carries_another_reference_is_none_the_less_a_mismatch() -> None:
    assert verdict(READY, None, tells_state=False).reason == "remote-missing"
    other = RemoteVideo("vi1", "lh-b", RemoteState.PROCESSING)
    assert verdict(READY, other, tells_state=False).reason == "reference-differs"
