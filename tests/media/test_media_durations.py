"""Durations that files claim and cannot have, and times that begin anywhere: what plays is what counts."""

from __future__ import annotations

import pytest
from boxes import MDHD, MVHD, TKHD, changed, with_durations
from reading import FFPROBES, Reader

from media.facts import DurationOrigin

HEADERS = {"movie": (MVHD,), "tracks": (TKHD,), "media": (MDHD,), "all": (MVHD, TKHD, MDHD)}
VALUES = {
    "0": (0, 0),
    "32-bit-ones": (0xFFFFFFFF, 0),
    "31-bit-ones": (0x7FFFFFFF, 0),
    "31-bit-least": (0x80000000, 0),
    "64-bit-ones": (2**64 - 1, 1),
    "63-bit-ones": (2**63 - 1, 1),
    "63-bit-least": (2**63, 1),
    "32-bit-ones-in-64": (2**32 - 1, 1),
}


@pytest.mark.parametrize("where", HEADERS)
@pytest.mark.parametrize("value", VALUES)
async def test_an_impossible_duration_in_a_header_is_not_believed(good, tmp_path, read, where, value):
    number, version = VALUES[value]
    path = tmp_path / "claims.mp4"
    path.write_bytes(with_durations(good.read_bytes(), number, version=version, paths=HEADERS[where]))
    found = await read(path)
    assert found.verdict.accepted
    assert found.facts.duration_ms == 4000
    assert found.facts.duration_origin is not DurationOrigin.UNKNOWN
    # A movie header that is wrong or says "not known", beside tracks that know, is for a person to look at. 0 is an
    # ordinary way to leave it open.
    if MVHD in HEADERS[where] and value != "0":
        assert {"durations-disagree", "for-review"} <= set(found.facts.flags)


@pytest.mark.skipif(
    None in FFPROBES.values(),
    reason="compares the packages' ffprobe with another on the PATH; one is missing here",
)
@pytest.mark.parametrize("where", HEADERS)
@pytest.mark.parametrize("value", VALUES)
async def test_both_versions_say_the_same_of_a_header_that_lies(good, tmp_path, quick, where, value):
    number, version = VALUES[value]
    path = tmp_path / "claims.mp4"
    path.write_bytes(with_durations(good.read_bytes(), number, version=version, paths=HEADERS[where]))
    one, other = [
        (await Reader(quick.model_copy(update={"ffprobe": ffprobe}), remote=False)(path)).facts
        for ffprobe in FFPROBES.values()
    ]
    assert (one.duration_ms, one.flags) == (other.duration_ms, other.flags)
    # A duration of 0 in the movie's header is filled in by one of them.
    assert one.container_duration_ms == other.container_duration_ms or value == "0"


async def test_64_bit_headers_are_read_as_32_bit_ones_are(good, tmp_path, read):
    path = tmp_path / "wide.mp4"
    path.write_bytes(with_durations(good.read_bytes(), 4000, version=1, paths=[MVHD]))
    facts = (await read(path)).facts
    assert (facts.duration_ms, facts.container_duration_ms, facts.flags) == (4000, 4000, ())


@pytest.mark.parametrize("path", [MVHD, MDHD])
async def test_a_time_scale_of_zero_is_no_crash(good, tmp_path, read, path):
    file = tmp_path / "timeless.mp4"
    file.write_bytes(changed(good.read_bytes(), path, lambda content: content[:12] + bytes(4) + content[16:]))
    found = await read(file)
    assert found.verdict.accepted
    assert found.facts.duration_ms == pytest.approx(4_000, abs=30)


# --------------------------------------------------------------------------------------------------- where time begins


@pytest.mark.parametrize("suffix", ["mkv", "ts", "mp4", "mov"])
# 95441 s: in MPEG-TS the clock of 33 bits turns over within the file. 1000000 s: it has turned over ten times.
@pytest.mark.parametrize("offset", ["90000", "95441", "1000000"])
async def test_a_start_far_from_zero_leaves_the_true_duration(make, good, read, suffix, offset):
    path = make(f"from-{offset}.{suffix}", "-i", good, "-c", "copy", "-output_ts_offset", offset)
    facts = (await read(path)).facts
    assert facts.duration_ms == pytest.approx(4_023, abs=25)
    assert facts.flags == ()


@pytest.mark.parametrize("suffix", ["mkv", "ts", "mp4", "mov", "flv"])
@pytest.mark.parametrize("offset", ["-1", "-1000"])
async def test_a_start_far_before_zero_is_accepted(make, good, read, suffix, offset):
    early = ("-c", "copy", "-output_ts_offset", offset, "-avoid_negative_ts", "disabled")
    found = await read(make(f"before{offset}.{suffix}", "-i", good, *early))
    assert found.verdict.accepted
    # Matroska's muxer keeps nothing of what lies 1000 s before zero.
    unknown = (suffix, offset) == ("mkv", "-1000")
    assert (found.facts.duration_ms is None) is unknown
    # MP4 and MOV have an edit list that leaves out what lies before zero.
    assert unknown or found.facts.duration_ms == pytest.approx(3_500, abs=600)


@pytest.mark.parametrize("suffix", ["mp4", "mov"])
async def test_an_edit_list_shortens_what_plays(make, good, read, suffix):
    facts = (await read(make(f"trimmed.{suffix}", "-ss", "1.3", "-i", good, "-c", "copy"))).facts
    assert (facts.duration_ms, facts.flags) == (pytest.approx(2_700, abs=30), ())


@pytest.mark.parametrize(
    ("suffix", "codec"), [("mkv", "srt"), ("mp4", "mov_text"), ("mov", "mov_text"), ("webm", "webvtt")]
)
async def test_a_subtitle_that_outlasts_the_video_leaves_both_durations(make, good, tmp_path, read, suffix, codec):
    text = tmp_path / "late.srt"
    text.write_text("1\n00:00:01,000 --> 00:10:00,000\nthe end\n")
    webm = ("-c:v", "libvpx", "-deadline", "realtime", "-cpu-used", "8", "-c:a", "libopus")
    coded = webm if suffix == "webm" else ("-c:v", "copy", "-c:a", "copy")
    path = make(f"late-text.{suffix}", "-i", good, "-i", text, "-map", "0", "-map", "1", *coded, "-c:s", codec)
    facts = (await read(path)).facts
    assert (facts.duration_ms, facts.video_duration_ms) == (pytest.approx(4_000, abs=50), pytest.approx(4_000, abs=50))
    assert facts.flags == ()


async def test_a_data_track_that_outlasts_the_video_makes_no_long_video(make, good, tmp_path, read):
    path = make("timecode.mov", "-i", good, "-c", "copy", "-timecode", "01:00:00:00")
    facts = (await read(path)).facts
    assert [stream.kind for stream in facts.streams] == ["video", "audio", "data"]
    assert (facts.duration_ms, facts.flags) == (4000, ())


# --------------------------------------------------------------------------------------------------- how sure they are


@pytest.mark.parametrize(
    ("name", "argv", "origin"),
    [
        ("sure.mp4", ("-c", "copy"), {DurationOrigin.CONTAINER, DurationOrigin.STREAM}),
        ("sure.mkv", ("-c", "copy"), {DurationOrigin.CONTAINER, DurationOrigin.STREAM}),
        ("sure.flv", ("-c", "copy"), {DurationOrigin.CONTAINER}),
        ("sure.ts", ("-c", "copy"), {DurationOrigin.PACKETS}),
        ("sure.mpg", ("-c:v", "mpeg2video", "-c:a", "mp2"), {DurationOrigin.PACKETS}),
        ("sure.aac", ("-vn", "-c:a", "copy"), {DurationOrigin.ESTIMATED}),
        ("sure.h264", ("-an", "-c:v", "copy", "-f", "h264"), {DurationOrigin.UNKNOWN}),
    ],
)
async def test_a_duration_says_where_it_is_from(make, good, read, name, argv, origin):
    facts = (await read(make(name, "-i", good, *argv))).facts
    assert facts.duration_origin in origin
    assert (facts.duration_ms is None) == (facts.duration_origin is DurationOrigin.UNKNOWN)


async def test_a_frame_rate_of_nothing_is_unknown(good, tmp_path, read):
    still = changed(
        good.read_bytes(),
        (b"moov", b"trak", b"mdia", b"minf", b"stbl", b"stts"),
        lambda content: content[:8] + b"".join(content[n : n + 4] + bytes(4) for n in range(8, len(content), 8)),
    )
    path = tmp_path / "still.mp4"
    path.write_bytes(still)
    found = await read(path)
    assert found.verdict.accepted
    assert found.facts.fps is None or found.facts.fps > 0
