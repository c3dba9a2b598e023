"""What ffprobe's answer means, whatever it holds."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from media.facts import DurationOrigin, MediaFacts, StreamFacts, parse
from media.layout import Layout


def answer(*streams: dict[str, object], **container: object) -> dict[str, object]:
    return {"format": {"format_name": "mov,mp4,m4a,3gp,3g2,mj2", **container}, "streams": list(streams)}


def video(**more: object) -> dict[str, object]:
    return {"index": 0, "codec_type": "video", "codec_name": "h264", "width": 320, "height": 240, **more}


# ---------------------------------------------------------------------------------------------------------- wild input

_names = st.sampled_from(
    ["format", "streams", "format_name", "duration", "start_time", "codec_type", "codec_name", "width", "height",
     "disposition", "attached_pic", "tags", "rotate", "DURATION", "side_data_list", "rotation", "avg_frame_rate",
     "r_frame_rate", "nb_frames", "index", "sample_aspect_ratio", "probe_score", "language"]
)  # fmt: skip
_words = st.sampled_from(
    ["video", "audio", "subtitle", "N/A", "nan", "inf", "-inf", "-1", "0", "0/0", "25/1", "1e400", "4294967.295", "4.0",
     "matroska,webm", "mpegts", "h264", "99:99:99.9", "00:00:04.000000000", "\x00", "\ud800", "9" * 400]
)  # fmt: skip
_wild = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | _words,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_names | st.text(max_size=4), inner, max_size=8),
    max_leaves=40,
)
_shaped = st.fixed_dictionaries(
    {
        "format": st.dictionaries(_names, _words | st.floats() | st.integers(), max_size=8),
        "streams": st.lists(
            st.dictionaries(_names, _words | st.floats() | st.integers() | _wild, max_size=12), max_size=4
        ),
    }
)


_layouts = st.none() | st.builds(
    Layout, header_duration_unset=st.booleans(), header_duration_ms=st.none() | st.integers(1, 1 << 62)
)


@settings(max_examples=400, deadline=None)
@given(
    wild=_wild | st.dictionaries(_names, _wild, max_size=6) | _shaped,
    size=st.none() | st.integers(0, 1 << 60),
    layout=_layouts,
    expected=st.none() | st.integers(0, 1 << 60),
)
def test_no_answer_crashes_and_every_fact_can_be_stored_and_what_is_unknown_is_none(wild, size, layout, expected):
    facts = parse(wild, size_bytes=size, layout=layout, expected_bytes=expected)
    text = json.dumps(facts.to_json(), allow_nan=False)
    text.encode("utf-8")
    assert "\\u0000" not in text
    assert MediaFacts.from_json(json.loads(text)) == facts
    for ms in (facts.duration_ms, facts.video_duration_ms, facts.audio_duration_ms, facts.container_duration_ms):
        assert ms is None or 0 < ms < 1 << 53
    assert (facts.duration_ms is None) == (facts.duration_origin is DurationOrigin.UNKNOWN)
    for pixels in (facts.width, facts.height, facts.display_width, facts.display_height):
        assert pixels is None or 0 < pixels < 1_000_000
    assert (facts.width is None) == (facts.display_width is None) or facts.height is None
    assert 0 <= facts.rotation < 360
    for rate in (facts.fps, facts.fps_nominal):
        assert rate is None or (math.isfinite(rate) and rate > 0)
    for stream in facts.streams:
        assert stream.index >= 0
        assert stream.kind in {"video", "audio", "subtitle", "data", "attachment", "picture", "unknown"}
        assert all(value is None or value > 0 for value in (stream.duration_ms, stream.width, stream.height))
    assert (facts.size_bytes, facts.expected_bytes) == (size, expected)


@pytest.mark.parametrize("value", [None, "N/A", "nan", "inf", "-3", "0", 0, -1, True, [], {}, "4294967.295", "1e300"])
def test_a_duration_that_is_none_is_unknown_and_never_zero(value):
    facts = parse(answer(video(), duration=value))
    assert (facts.duration_ms, facts.duration_origin) == (None, DurationOrigin.UNKNOWN)
    assert "duration-unknown" in facts.flags


@pytest.mark.parametrize(
    "value",
    ["9223372036854.775807", "-9223372036854.775808", "18446744073709.551615", "9223372036854775807", 2**63 - 1,
     -(2**63), 2**64 - 1, 10**400, "1e999", "NaN", "-inf", "0.0", "-0.0", "0.0004", "N/A", "0x10", ""],
)  # fmt: skip
@pytest.mark.parametrize("where", ["container", "stream", "tag", "both"])
def test_a_duration_at_the_end_of_its_type_is_unknown_wherever_it_stands(value, where):
    track = {"stream": {"duration": value}, "tag": {"tags": {"DURATION": value}}, "both": {"duration": value}}
    claim = {"duration": value} if where in ("container", "both") else {}
    facts = parse(answer(video(**track.get(where, {})), format_name="matroska,webm", **claim))
    assert (facts.duration_ms, facts.video_duration_ms, facts.container_duration_ms) == (None, None, None)
    assert facts.duration_origin is DurationOrigin.UNKNOWN


@pytest.mark.parametrize("rate", ["0/0", "1/0", "0/1", "25", "25.0", "-25/1", "nan", "", None, 25, "99999999999999/1"])
def test_a_frame_rate_that_is_none_is_unknown(rate):
    facts = parse(answer(video(avg_frame_rate=rate, r_frame_rate=rate)))
    assert (facts.fps, facts.fps_nominal) == (None, None)


def test_a_rotation_that_no_matrix_can_have_is_none():
    assert parse(answer(video(side_data_list=[{"rotation": -2147483648}]))).rotation == 0
    assert parse(answer(video(side_data_list=[{"rotation": "-9223372036854775808"}]))).rotation == 0


@pytest.mark.parametrize(("tag", "turned"), [("rotate", "90"), ("ROTATE", "90"), ("rotate", "-270"), ("rotate", 90)])
def test_the_tag_is_read_in_both_spellings(tag, turned):
    assert parse(answer(video(tags={tag: turned}))).rotation == 90


@pytest.mark.parametrize(
    ("aspect", "size"),
    [("16:11", (465, 240)), ("8:9", (284, 240)), ("1:1", (320, 240)), ("0:1", (320, 240)), ("N/A", (320, 240)),
     ("1:1000000", (320, 240)), ("1000000:1", (320, 240))],
)  # fmt: skip
def test_the_display_size_has_square_pixels_and_is_never_absurd(aspect, size):
    facts = parse(answer(video(sample_aspect_ratio=aspect)))
    assert (facts.display_width, facts.display_height) == size


def test_facts_say_which_size_was_seen_and_which_expected():
    facts = parse(answer(video()), size_bytes=900, expected_bytes=1000)
    assert (facts.size_bytes, facts.expected_bytes) == (900, 1000)


def test_a_header_that_contradicts_the_tracks_is_flagged_though_ffprobe_put_it_right():
    facts = parse(answer(video(duration="4.0"), duration="4.0"), layout=Layout(header_duration_ms=2_147_483_648))
    assert (facts.duration_ms, {"durations-disagree", "for-review"} <= set(facts.flags)) == (4000, True)
    late = parse(
        answer(video(duration="4.0"), start_time="1000.0", duration="1004.0"),
        layout=Layout(header_duration_ms=1_004_000),
    )
    assert (late.duration_ms, late.flags) == (4000, ())


def test_a_header_stands_in_where_ffprobe_names_no_duration():
    facts = parse(answer(video()), layout=Layout(header_duration_ms=4000))
    assert (facts.duration_ms, facts.duration_origin) == (4000, DurationOrigin.CONTAINER)


def test_facts_written_by_another_version_are_read():
    plain = MediaFacts(container="mp4", streams=(StreamFacts(0, "video", "h264"),)).to_json()
    plain["invented_later"] = 1
    plain["streams"][0]["invented_later"] = 2
    del plain["flags"]
    plain["duration_origin"] = "invented-later"
    assert MediaFacts.from_json(plain).duration_origin is DurationOrigin.UNKNOWN
    assert MediaFacts.from_json(plain).container == "mp4"


# ----------------------------------------------------------------------------------------------------------- durations


def test_a_container_that_contradicts_its_tracks_is_flagged_and_not_believed():
    facts = parse(answer(video(duration="4.0"), duration="4294967.295"))
    assert (facts.duration_ms, facts.duration_origin) == (4000, DurationOrigin.STREAM)
    assert {"durations-disagree", "for-review"} <= set(facts.flags)
    ninety = parse(answer(video(duration="4.0"), duration="47721.858"))  # all ones at 90 000 ticks a second
    assert (ninety.duration_ms, "durations-disagree" in ninety.flags) == (4000, True)


def test_a_header_without_a_duration_is_flagged_where_only_the_layout_shows_it():
    facts = parse(answer(video(duration="4.0"), duration="4.0"), layout=Layout(header_duration_unset=True))
    assert "for-review" in facts.flags


def test_an_index_that_counts_frames_and_names_no_duration_is_estimated_and_flagged():
    facts = parse(answer(video(duration="0.000000", nb_frames="100", avg_frame_rate="25/1")))
    assert (facts.duration_ms, facts.duration_origin) == (4000, DurationOrigin.ESTIMATED)
    assert "for-review" in facts.flags


def test_a_duration_tag_of_a_matroska_track_is_the_time_of_its_end():
    track = video(start_time="1000.000", tags={"DURATION": "00:16:44.000000000"})
    facts = parse(answer(track, format_name="matroska,webm", start_time="999.977", duration="1004.0"))
    assert (facts.video_duration_ms, facts.container_duration_ms) == (4000, 4023)
    assert facts.flags == ()


def test_an_mkv_cut_without_shifting_its_header_keeps_its_duration():
    facts = parse(answer(video(start_time="1000.0"), format_name="matroska,webm", start_time="1000.0", duration="4.0"))
    assert facts.duration_ms == 4000


def test_a_raw_stream_s_duration_is_an_estimate():
    facts = parse(answer(video(), format_name="mpegvideo", duration="12.5"))
    assert facts.duration_origin is DurationOrigin.ESTIMATED


def test_a_transport_stream_s_duration_comes_from_its_packets():
    facts = parse(answer(video(duration="4.0"), format_name="mpegts", start_time="1001.4", duration="4.023"))
    assert (facts.duration_ms, facts.duration_origin) == (4023, DurationOrigin.PACKETS)


# ------------------------------------------------------------------------------------------------------------- pictures


@pytest.mark.parametrize("mark", ["attached_pic", "timed_thumbnails", "still_image"])
def test_a_marked_picture_is_no_video(mark):
    facts = parse(answer(video(disposition={mark: 1})))
    assert (facts.has_video, facts.has_cover_art, facts.width) == (False, True, None)


def test_the_video_is_the_moving_and_default_one_wherever_it_stands():
    small = video(index=1, width=160, disposition={"default": 1})
    facts = parse(answer(video(codec_name="png", width=4000), small, video(index=2, width=1920)))
    assert facts.width == 160


@pytest.mark.parametrize(
    ("turned", "degrees", "size"),
    [
        ({"side_data_list": [{"side_data_type": "Display Matrix", "rotation": -90}]}, 90, (240, 320)),
        ({"side_data_list": [{"rotation": 90}]}, 270, (240, 320)),
        ({"side_data_list": [{}, {"rotation": 180.0}]}, 180, (320, 240)),
        ({"tags": {"rotate": "90"}}, 90, (240, 320)),
        ({"tags": {"rotate": "270"}}, 270, (240, 320)),
        ({"tags": {"rotate": "-90"}}, 270, (240, 320)),
        ({"side_data_list": [{"rotation": -90}], "tags": {"rotate": "90"}}, 90, (240, 320)),
        ({"tags": {"rotate": "sideways"}}, 0, (320, 240)),
        ({"side_data_list": [{"rotation": "nan"}]}, 0, (320, 240)),
    ],
)
def test_both_ways_to_turn_a_picture_are_understood(turned, degrees, size):
    facts = parse(answer(video(**turned)))
    assert (facts.rotation, (facts.width, facts.height)) == (degrees, size)


def test_a_picture_without_a_size_is_flagged():
    facts = parse(answer(video(width=0, height=None)))
    assert (facts.width, facts.height) == (None, None)
    assert "picture-size-unknown" in facts.flags


def test_pixels_that_are_not_square_are_told_and_left_to_the_reader():
    facts = parse(answer(video(sample_aspect_ratio="16:11")))
    assert (facts.pixel_aspect, facts.width) == ("16:11", 320)
    assert parse(answer(video(sample_aspect_ratio="1:1"))).pixel_aspect is None
    assert parse(answer(video(sample_aspect_ratio="0:1"))).pixel_aspect is None


def test_frame_rates_are_read_and_nonsense_is_not():
    assert parse(answer(video(avg_frame_rate="30000/1001"))).fps == 29.97
    assert parse(answer(video(avg_frame_rate="0/0", r_frame_rate="25/1"))).fps == 25.0
    assert parse(answer(video(avg_frame_rate="1/0"))).fps is None
