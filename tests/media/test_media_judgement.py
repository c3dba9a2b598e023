"""Facts against a destination's limits, and against what it says later."""

from __future__ import annotations

import pytest

from faults import REASONS
from media.compare import compare
from media.facts import DurationOrigin, MediaFacts, StreamFacts
from media.verdict import Limits, judge

VIDEO = StreamFacts(0, "video", "h264")
SOUND = StreamFacts(1, "audio", "aac")
COVER = StreamFacts(2, "picture", "mjpeg")


def facts(*streams: StreamFacts, ms: int | None = 4_000, size: int | None = 1_000, **more: object) -> MediaFacts:
    origin = DurationOrigin.UNKNOWN if ms is None else DurationOrigin.CONTAINER
    given = {"container": "mov", "duration_ms": ms, "duration_origin": origin, "size_bytes": size, **more}
    return MediaFacts(streams=streams, **given)  # type: ignore[arg-type]


# ------------------------------------------------------------------------------------------------------------- verdicts


@pytest.mark.parametrize(
    ("streams", "reason"),
    [
        ((VIDEO, SOUND), None),
        ((VIDEO,), None),
        ((COVER, VIDEO), None),
        ((SOUND,), "no-video-stream"),
        ((SOUND, COVER), "no-video-stream"),
        ((StreamFacts(0, "subtitle", "srt"),), "no-video-stream"),
        ((COVER,), "not-a-video"),
        ((), "file-corrupt"),
    ],
)
def test_what_has_no_moving_picture_is_rejected(streams, reason):
    verdict = judge(facts(*streams, has_cover_art=COVER in streams), Limits())
    assert (verdict.reason, verdict.accepted) == (reason, reason is None)
    assert reason is None or (reason in REASONS and verdict.words)


@pytest.mark.parametrize(
    ("ms", "size", "reason"),
    [
        (99, 1, "too-short"), (100, 1, None), (10_000, 1, None), (10_001, 1, "too-long"), (None, 1, None),
        (500, 5_000, None), (500, 5_001, "too-large"), (500, None, None),
    ],
)  # fmt: skip
def test_limits_are_inclusive_and_what_is_unknown_breaks_none(ms, size, reason):
    limits = Limits(duration_min_ms=100, duration_max_ms=10_000, size_max=5_000)
    assert judge(facts(VIDEO, ms=ms, size=size), limits).reason == reason


def test_no_limits_accept_any_length():
    assert judge(facts(VIDEO, ms=1, size=1 << 50), Limits()).accepted


# ----------------------------------------------------------------------------------------------------------- comparison


@pytest.mark.parametrize("remote", [None, 0, -1, -1000])
def test_a_remote_duration_that_is_unknown_is_no_mismatch(remote):
    assert compare(facts(VIDEO), duration_ms=remote) is None


def test_a_duration_of_ours_that_is_unknown_is_no_mismatch():
    assert compare(facts(VIDEO, ms=None), duration_ms=1) is None


@pytest.mark.parametrize("remote", [4_000, 10_000, 600_000])
def test_a_remote_duration_may_match_video_sound_or_container(remote):
    ours = facts(
        VIDEO, SOUND, ms=10_000, video_duration_ms=4_000, audio_duration_ms=10_000, container_duration_ms=600_000
    )
    assert compare(ours, duration_ms=remote) is None


@pytest.mark.parametrize(
    ("remote", "same"),
    [(4_000, True), (4_480, True), (3_520, True), (5_000, True), (3_000, True), (5_200, False), (2_000, False)],
)
def test_half_a_second_is_padding_and_whole_seconds_are_rounded(remote, same):
    assert (compare(facts(VIDEO), duration_ms=remote) is None) is same


@pytest.mark.parametrize(
    ("origin", "same"),
    [
        (DurationOrigin.STREAM, False),
        (DurationOrigin.CONTAINER, False),
        (DurationOrigin.PACKETS, False),
        (DurationOrigin.ESTIMATED, True),
    ],
)
def test_the_tolerance_fits_how_sure_the_duration_is(origin, same):
    assert (compare(facts(VIDEO, ms=100_000, duration_origin=origin), duration_ms=109_500) is None) is same


def test_a_mismatch_names_both_values_and_where_ours_came_from():
    found = compare(
        facts(VIDEO, video_duration_ms=4_000, width=240, height=320), duration_ms=2_500, width=320, height=240
    )
    assert found is not None
    assert found.reason == "duration-differs"
    for words in ("2.500 s", "4.000 s", "container", "320x240", "240x320"):
        assert words in found.words


def test_a_picture_that_was_scaled_is_no_mismatch():
    assert compare(facts(VIDEO, width=3840, height=2160), duration_ms=4_000, width=1280, height=720) is None


@pytest.mark.parametrize(
    ("more", "remote", "guess"),
    [
        ({"fps": 24.0, "fps_nominal": 30.0}, 80_000, "variable frame rate"),
        ({"fps": 24.0, "fps_nominal": 30.0}, 125_000, "variable frame rate"),
        ({}, 94_000, "last segment was dropped"),
        ({}, 31_000, "stopped early: 69 % is missing"),
        ({"video_duration_ms": 80_000, "audio_duration_ms": 100_000}, 90_000, "sound's tail was cut"),
        ({"video_duration_ms": 100_000, "audio_duration_ms": 80_000}, 90_000, "picture's tail was cut"),
        ({}, 112_300, "edit list"),
        ({"start_ms": 7_000}, 107_100, "first picture comes at 7.000 s"),
        ({"duration_origin": DurationOrigin.ESTIMATED}, 150_000, "estimated from its bit rate"),
        ({}, 96_000, "playing it faster"),
        ({}, 100, "milliseconds"),
        ({"container": "matroska,webm"}, 150_000, "replaced"),
    ],
)
def test_a_mismatch_says_what_the_source_said_what_the_destination_says_and_what_probably_happened(more, remote, guess):
    found = compare(facts(VIDEO, SOUND, ms=100_000, **{"container": "mov,mp4,m4a", **more}), duration_ms=remote)
    assert found is not None
    source, destination, *_, probably = found.words.split("; ")
    assert source.startswith("the source's file says")
    assert destination == f"the destination says {remote / 1000:.3f} s"
    assert probably.startswith("probably")
    assert guess in probably
