"""What a file's own bytes tell, however they come by."""

from __future__ import annotations

import time

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from media.layout import Walker, look
from media.sniff import Kind, sniff


def box(kind: bytes, content: bytes = b"", *, large: bool = False) -> bytes:
    if large:
        return (1).to_bytes(4, "big") + kind + (16 + len(content)).to_bytes(8, "big") + content
    return (8 + len(content)).to_bytes(4, "big") + kind + content


MVHD = box(b"mvhd", bytes(16) + b"\x00\x00\x0f\xa0" + bytes(80))
FTYP = box(b"ftyp", b"isom\x00\x00\x02\x00isomiso2")
LATE = FTYP + box(b"free") + box(b"mdat", bytes(5_000)) + box(b"moov", MVHD)
EARLY = FTYP + box(b"moov", MVHD) + box(b"mdat", bytes(5_000), large=True)
MKV = b"\x1aE\xdf\xa3\x84abcd" + b"\x18S\x80g" + b"\x01\x00\x00\x00\x00\x00\x13\x88" + bytes(5_000)


def walked(data: bytes, size: int | None = None):
    walker = Walker()
    walker.feed(0, data)
    return walker.layout(len(data) if size is None else size)


@pytest.mark.parametrize(
    "data", [LATE, EARLY, MKV, LATE + bytes(7), FTYP + box(b"moov", MVHD) + bytes(4) + b"mdat" + bytes(90)]
)
def test_a_whole_file_is_whole(data):
    layout = walked(data)
    assert (layout.missing_bytes, layout.incomplete) == (0, False)


@settings(max_examples=200, deadline=None)
@given(data=st.sampled_from([LATE, EARLY, MKV]), share=st.floats(0.03, 0.999))
def test_a_file_cut_anywhere_past_its_first_box_is_seen_to_be_cut(data, share):
    cut = data[: max(len(FTYP) + 9, int(len(data) * share))]
    layout = walked(cut)
    # Cut in the first bytes of a header, what came before it is whole, and says what is not there.
    assert layout.incomplete or layout.missing_bytes is None
    if len(cut) > 400:
        assert layout.incomplete


@settings(max_examples=200, deadline=None)
@given(data=st.sampled_from([LATE, EARLY, MKV]), cuts=st.lists(st.integers(0, 5_300), max_size=12))
def test_bytes_may_come_in_pieces_of_any_size(data, cuts):
    walker = Walker()
    at = 0
    for end in [*sorted(cut for cut in cuts if cut < len(data)), len(data)]:
        walker.feed(at, data[at:end])
        at = end
    assert walker.layout(len(data)) == walked(data)


def test_bytes_may_come_in_the_order_a_player_asks_for_them():
    walker = Walker()
    walker.feed(0, LATE[:100])
    end = LATE.index(b"moov") - 4
    walker.feed(end, LATE[end:])
    walker.feed(40, LATE[40:])
    assert walker.layout(len(LATE)) == walked(LATE)


def test_an_index_that_never_came_is_missing():
    layout = walked(FTYP + box(b"mdat", bytes(900)))
    assert layout.index_missing
    assert "moov" in layout.words
    assert walked(FTYP + bytes(4) + b"mdat" + bytes(900)).index_missing


def test_a_header_of_all_ones_is_unset_but_not_in_a_fragmented_file():
    unset = box(b"moov", box(b"mvhd", bytes(16) + b"\xff" * 4 + bytes(80)))
    long = box(b"moov", box(b"mvhd", b"\x01" + bytes(27 - 4) + b"\xff" * 8 + bytes(80)))
    assert walked(FTYP + unset + box(b"mdat", bytes(9))).header_duration_unset
    assert walked(FTYP + long + box(b"mdat", bytes(9))).header_duration_unset
    assert not walked(FTYP + unset + box(b"moof", bytes(9)) + box(b"mdat", bytes(9))).header_duration_unset
    assert not walked(EARLY).header_duration_unset


def test_a_segment_of_unknown_size_is_not_called_incomplete():
    live = b"\x1aE\xdf\xa3\x84abcd" + b"\x18S\x80g" + b"\x01" + b"\xff" * 7 + bytes(500)
    assert not walked(live).incomplete


def chunk(kind: bytes, content: bytes) -> bytes:
    return kind + len(content).to_bytes(4, "little") + content


AVI = chunk(b"RIFF", b"AVI " + bytes(3_000)) + chunk(b"RIFF", b"AVIX" + bytes(1_000))
ASF = (
    b"0&\xb2u\x8ef\xcf\x11\xa6\xd9\x00\xaa\x00b\xcel" + (900).to_bytes(8, "little") + bytes(876)
    + b"6&\xb2u\x8ef\xcf\x11\xa6\xd9\x00\xaa\x00b\xcel" + (2_000).to_bytes(8, "little") + bytes(1_976)
)  # fmt: skip


@pytest.mark.parametrize("whole", [AVI, ASF])
def test_avi_and_asf_say_how_long_they_are(whole):
    assert walked(whole).missing_bytes == 0
    assert walked(whole[:-100]).missing_bytes == 100
    assert walked(whole[:700]).incomplete


def test_an_asf_that_was_broadcast_does_not_say_how_long_it_is():
    at = ASF.index(b"6&\xb2u") + 16
    for size in (0, 50):
        assert not walked(ASF[:at] + size.to_bytes(8, "little") + ASF[at + 8 : -900]).incomplete


def test_a_sound_in_a_riff_is_not_measured():
    assert walked(chunk(b"RIFF", b"WAVE" + bytes(900))[:100]) == walked(b"")


def test_a_header_s_duration_is_read_unless_the_file_is_fragmented():
    scaled = box(b"moov", box(b"mvhd", bytes(12) + (1_000).to_bytes(4, "big") + (4_000).to_bytes(4, "big") + bytes(80)))
    assert walked(FTYP + scaled + box(b"mdat", bytes(9))).header_duration_ms == 4_000
    assert walked(FTYP + scaled + box(b"moof", bytes(9)) + box(b"mdat", bytes(9))).header_duration_ms is None
    assert walked(EARLY).header_duration_ms is None, "a time scale of zero"


_WHOLE = st.sampled_from([LATE, EARLY, MKV, AVI, ASF, FTYP + box(b"moov", MVHD) + box(b"moof", b"x") * 3])


@st.composite
def mutated(draw: st.DrawFn) -> bytes:
    """A file that begins as a good one, with bytes changed, dropped and put in."""
    data = bytearray(draw(_WHOLE))
    for _ in range(draw(st.integers(0, 8))):
        at = draw(st.integers(0, min(len(data), 80)))
        what = draw(st.sampled_from(["change", "drop", "insert", "cut"]))
        piece = draw(
            st.binary(min_size=1, max_size=12) | st.sampled_from([b"\xff" * 8, bytes(8), b"moov", b"\x7f\xff"])
        )
        if what == "change":
            data[at : at + len(piece)] = piece
        elif what == "drop":
            del data[at : at + len(piece)]
        elif what == "insert":
            data[at:at] = piece
        else:
            del data[draw(st.integers(0, len(data))) :]
    return bytes(data)


@settings(max_examples=400, deadline=None)
@given(data=st.binary(max_size=300) | mutated(), size=st.none() | st.integers(0, 1 << 62))
def test_no_bytes_crash_the_walker_or_the_sniffer(data, size):
    layout = walked(data, size)
    assert layout.missing_bytes is None or layout.missing_bytes >= 0
    assert layout.header_duration_ms is None or 0 < layout.header_duration_ms < 1 << 53
    assert layout.incomplete == bool(layout.words)
    kind, words = sniff(data[:4096])
    assert kind in Kind
    assert words


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=mutated())
def test_a_file_on_a_disk_and_one_that_comes_by_are_seen_alike(tmp_path, data):
    path = tmp_path / "mutated"
    path.write_bytes(data)
    assert look(path).layout == walked(data)


@settings(max_examples=150, deadline=None)
@given(
    piece=st.sampled_from(
        [b"<!---->", b"<!-- ", b"<??>", b"<?", b"<", b"#\n", b"P6 #", b"a:", b"file '", b"http://", b" "]
    )
    | st.binary(min_size=1, max_size=6),
    before=st.sampled_from([b"", b"<", b"P6\n", b"<!---->", b"\xef\xbb\xbf", b"\xff\xfe"]),
    after=st.binary(max_size=4),
)
def test_no_text_keeps_the_sniffer_busy(piece, before, after):
    began = time.process_time()
    sniff((before + piece * 4_096)[:4_000] + after)
    assert time.process_time() - began < 2


def test_a_local_file_is_looked_at_by_its_headers_only(tmp_path):
    path = tmp_path / "sparse.mp4"
    with path.open("wb") as file:
        file.write(FTYP + b"\x00\x00\x00\x01mdat" + (5_000_000_000).to_bytes(8, "big"))
        file.seek(len(FTYP) + 5_000_000_000)
        file.write(box(b"moov", MVHD))
    found = look(path)
    assert (found.size, found.layout.missing_bytes, found.layout.incomplete) == (path.stat().st_size, 0, False)


@pytest.mark.parametrize(
    ("head", "kind"),
    [
        (b"\xff\xd8\xff\xe0\x00\x10JFIF", Kind.PICTURE),
        (b"\x89PNG\r\n\x1a\n" + bytes(9), Kind.PICTURE),
        (b"RIFF\x00\x00\x00\x00WEBPVP8 ", Kind.PICTURE),
        (b"\x00\x00\x00\x18ftypheic" + bytes(9), Kind.PICTURE),
        (FTYP, Kind.MEDIA),
        (b"RIFF\x00\x00\x00\x00AVI LIST", Kind.MEDIA),
        (b"G" + bytes(187) + b"G" + bytes(187) + b"G" + bytes(187), Kind.MEDIA),
        (b"<html>\n<p>hi", Kind.HTML),
        (b"<!-- served by x -->\n<!DOCTYPE HTML>", Kind.HTML),
        (b"\xef\xbb\xbf<?xml version='1.0'?><html xmlns='x'>", Kind.HTML),
        (b"<?xml version='1.0'?><Error><Code>AccessDenied</Code></Error>", Kind.TEXT),
        (b'{"error": "expired"}', Kind.TEXT),
        (b"\xff\xfeh\x00i\x00", Kind.TEXT),
        ("日本語の説明".encode() * 300, Kind.TEXT),
        (b"#EXTM3U\n", Kind.PLAYLIST),
        (b"%PDF-1.7\n\x00\xe2\xe3", Kind.OTHER),
        (b"", Kind.UNKNOWN),
    ],
)
def test_first_bytes_tell_the_kind(head, kind):
    assert sniff(head[:4096])[0] is kind
