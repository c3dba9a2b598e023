"""What becomes of local files: each awkward one ends as it should, on every ffprobe that this machine has."""

from __future__ import annotations

import asyncio
import os
import socket
from pathlib import Path

import pytest

import media.layout
from devstack.library import turn, unset_duration
from faults import Fault
from media import Inspection, Limits, inspect
from media.facts import DurationOrigin
from settings import MediaSettings
from sources.base import Location


async def look(path: Path | str, settings: MediaSettings, *, size: int | None = None, **limits: int) -> Inspection:
    return await inspect(Location(str(path), size=size), settings=settings, limits=Limits(**limits))


async def refused(path: Path | str, settings: MediaSettings, *, size: int | None = None) -> Fault:
    with pytest.raises(Fault) as caught:
        await look(path, settings, size=size)
    return caught.value


async def test_a_good_file_is_inventoried(good, read):
    found = await read(good)
    facts = found.facts
    assert found.verdict.accepted
    assert (facts.duration_ms, facts.width, facts.height, facts.rotation) == (4000, 320, 240, 0)
    assert (facts.video_codec, facts.audio_codec, facts.fps) == ("h264", "aac", 25.0)
    assert facts.size_bytes == good.stat().st_size
    assert facts.flags == ()
    assert facts.expected_bytes is None
    assert (found.bytes_read > 0) is read.remote


# ----------------------------------------------------------------------------------------------------------- durations


async def test_a_webm_written_to_a_pipe_has_an_unknown_duration(make, good, read):
    webm = ("-c:v", "libvpx", "-deadline", "realtime", "-cpu-used", "8", "-c:a", "libopus", "-f", "webm")
    found = await read(make("pipe.webm", "-i", good, *webm, pipe=True), duration_min_ms=100)
    assert found.verdict.accepted
    assert (found.facts.duration_ms, found.facts.duration_origin) == (None, DurationOrigin.UNKNOWN)
    assert "duration-unknown" in found.facts.flags


async def test_raw_h264_has_an_unknown_duration(make, good, read):
    found = await read(make("raw.h264", "-i", good, "-c:v", "copy", "-an", "-f", "h264"))
    assert found.verdict.accepted
    assert found.facts.duration_ms is None


async def test_an_mkv_falls_back_to_the_duration_of_its_container(make, good, tmp_path, read):
    path = tmp_path / "container-only.mkv"
    tagged = make("tagged.mkv", "-i", good, "-c", "copy", "-write_crc32", "0")
    path.write_bytes(tagged.read_bytes().replace(b"DURATION", b"DUNATION"))
    facts = (await read(path)).facts
    assert {stream.duration_ms for stream in facts.streams} == {None}
    assert facts.duration_ms == pytest.approx(4_023, abs=30)
    assert facts.duration_origin is DurationOrigin.CONTAINER


async def test_header_durations_of_all_ones_are_flagged_for_review(fast, media_dir, read):
    whole = bytearray(fast.read_bytes())
    for box, offset in ((b"mvhd", 16), (b"tkhd", 20), (b"mdhd", 16)):
        at = whole.find(box)
        while at >= 0:
            whole[at + 4 + offset : at + 8 + offset] = b"\xff" * 4
            at = whole.find(box, at + 4)
    path = media_dir / "all-ones.mp4"
    path.write_bytes(whole)
    found = await read(path)
    assert found.verdict.accepted
    assert {"durations-disagree", "for-review"} <= set(found.facts.flags)
    assert found.facts.duration_ms == 4000


async def test_a_movie_header_of_all_ones_alone_is_flagged_too(fast, media_dir, read):
    path = media_dir / "mvhd-ones.mp4"
    path.write_bytes(unset_duration(fast.read_bytes()))
    facts = (await read(path)).facts
    assert {"durations-disagree", "for-review"} <= set(facts.flags)
    assert facts.duration_ms == 4000


async def test_sound_that_outlasts_the_video_is_stored_beside_it(make, read):
    pictures = ("-f", "lavfi", "-i", "testsrc2=s=320x240:r=25:d=4", "-f", "lavfi", "-i", "sine=d=10")
    coded = ("-c:v", "libx264", "-preset", "ultrafast", "-pix_fmt", "yuv420p", "-c:a", "aac")
    facts = (await read(make("long-sound.mp4", *pictures, *coded))).facts
    assert (facts.video_duration_ms, facts.audio_duration_ms, facts.duration_ms) == (4000, 10_000, 10_000)
    assert facts.flags == ("tracks-differ",)


@pytest.mark.parametrize(("suffix", "codec"), [("mkv", "srt"), ("mp4", "mov_text")])
async def test_a_subtitle_that_ends_at_ten_minutes_makes_no_long_video(make, good, media_dir, read, suffix, codec):
    subtitle = media_dir / "late.srt"
    subtitle.write_text("1\n00:00:01,000 --> 00:10:00,000\nthe end\n")
    path = make(
        f"subtitled.{suffix}", "-i", good, "-i", subtitle, "-map", "0", "-map", "1", "-c", "copy", "-c:s", codec
    )
    facts = (await read(path)).facts
    assert facts.duration_ms == pytest.approx(4_000, abs=50)
    assert facts.flags == ()


@pytest.mark.parametrize("suffix", ["mkv", "ts", "mp4"])
async def test_time_stamps_from_1000_s_on_leave_the_true_duration(make, good, read, suffix):
    path = make(f"late.{suffix}", "-i", good, "-c", "copy", "-output_ts_offset", "1000")
    facts = (await read(path)).facts
    # Give or take the 23 ms that prime the sound's decoder: muxers differ in counting them.
    assert facts.duration_ms == pytest.approx(4_023, abs=25)
    assert facts.container_duration_ms == pytest.approx(4_023, abs=25)
    assert facts.flags == ()


@pytest.mark.parametrize("suffix", ["mkv", "mp4", "ts"])
async def test_a_negative_start_is_accepted(make, good, read, suffix):
    early = ("-c", "copy", "-output_ts_offset", "-1", "-avoid_negative_ts", "disabled")
    found = await read(make(f"early.{suffix}", "-i", good, *early))
    assert found.verdict.accepted
    assert found.facts.duration_ms is not None


async def test_a_single_frame_is_too_short_for_a_tenth_of_a_second(make, good, read):
    path = make("one.mp4", "-i", good, "-frames:v", "1", "-an", "-c:v", "libx264")
    found = await read(path, duration_min_ms=100)
    assert (found.verdict.reason, found.facts.duration_ms) == ("too-short", 40)


# -------------------------------------------------------------------------------------------------------------- tracks


async def test_an_mp3_with_cover_art_has_no_video(make, jpeg, read):
    song = ("-f", "lavfi", "-i", "sine=d=4", "-i", jpeg, "-map", "0", "-map", "1", "-c:v", "mjpeg")
    path = make("cover.mp3", *song, "-disposition:v", "attached_pic", "-c:a", "libmp3lame")
    found = await read(path)
    assert found.verdict.reason == "no-video-stream"
    assert found.facts.has_cover_art
    assert (found.facts.width, found.facts.video_codec) == (None, None)


@pytest.mark.parametrize("marked", [False, True])
async def test_a_picture_as_the_first_track_does_not_hide_the_video(make, good, read, marked):
    still = ("-f", "lavfi", "-i", "testsrc=s=64x64:r=1:d=1")
    disposition = ("-disposition:v:0", "attached_pic") if marked else ()
    path = make(
        f"picture-first-{marked}.mkv", *still, "-i", good, "-map", "0", "-map", "1", "-c", "copy", "-c:v:0", "mjpeg",
        "-pix_fmt:v:0", "yuvj420p", *disposition,
    )  # fmt: skip
    found = await read(path)
    assert found.facts.streams[0].codec == "mjpeg"
    assert found.verdict.accepted
    assert (found.facts.video_codec, found.facts.width, found.facts.height) == ("h264", 320, 240)


@pytest.mark.parametrize(("degrees", "size"), [(90, (240, 320)), (180, (320, 240)), (270, (240, 320))])
async def test_the_display_size_is_the_size_after_rotation(good, media_dir, read, degrees, size):
    path = media_dir / f"turned-{degrees}.mp4"
    path.write_bytes(turn(good.read_bytes(), degrees))
    facts = (await read(path)).facts
    assert (facts.rotation, (facts.width, facts.height)) == (degrees, size)


# ----------------------------------------------------------------------------------------------- what is not a video


async def test_a_jpeg_named_mp4_is_not_a_video(jpeg, media_dir, read):
    path = media_dir / "jpeg.mp4"
    path.write_bytes(jpeg.read_bytes())
    fault = await read.refused(path)
    assert fault.code == "not-a-video"
    assert "JPEG" in fault.detail


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("text.mp4", b"Not a video, just a few words.\n", "a text"),
        ("latin.mp4", "Größe: fünf Äpfel, und noch mehr\n".encode("latin-1") * 20, "a text"),
        ("page.mp4", b"\xef\xbb\xbf \n<!DOCTYPE html><html><body>hello</body></html>", "a web page"),
        ("movie.mp4", b"#EXTM3U\n#EXTINF:4,\nfile:///etc/passwd\n#EXT-X-ENDLIST\n", "a playlist"),
        ("list.mp4", b"ffconcat version 1.0\nfile '/etc/passwd'\n", "a playlist"),
        ("dash.mp4", b"<?xml version='1.0'?>\n<MPD xmlns='urn:mpeg:dash:schema:mpd:2011'></MPD>", "a playlist"),
        ("zip.mp4", b"PK\x03\x04" + bytes(5_000), "a ZIP archive"),
        ("zeros.mp4", bytes(50_000), "no known format"),
        ("noise.mp4", bytes((n * n * 7919) % 251 for n in range(50_000)), "no known format"),
    ],
)
async def test_what_is_not_a_video_is_called_so_and_never_corrupt(media_dir, read, name, content, words):
    path = media_dir / f"not-{name}"
    path.write_bytes(content)
    fault = await read.refused(path)
    answered = words == "a web page" and read.remote
    assert fault.code == ("source-returned-html" if answered else "not-a-video")
    assert words in fault.detail


async def test_an_index_that_cannot_be_read_is_corrupt(fast, media_dir, read):
    whole = bytearray(fast.read_bytes())
    at = whole.find(b"moov")
    length = int.from_bytes(whole[at - 4 : at], "big")
    whole[at + 4 : at - 4 + length] = b"\xa5" * (length - 8)
    path = media_dir / "scrambled.mp4"
    path.write_bytes(whole)
    assert await read.reason(path) == "file-corrupt"


# ------------------------------------------------------------------------------------------------- incomplete, growing


async def test_a_file_without_bytes_is_empty(media_dir, read):
    path = media_dir / "empty.mp4"
    path.touch()
    assert (await read.refused(path)).code == "file-empty"


async def test_a_file_without_its_index_is_incomplete(good, media_dir, read):
    path = media_dir / "headless.mp4"
    path.write_bytes(good.read_bytes()[:100_000])
    assert (await read.refused(path)).code == "file-incomplete"


async def test_an_index_without_its_pictures_is_incomplete(fast, media_dir, read):
    path = media_dir / "hollow.mp4"
    path.write_bytes(fast.read_bytes()[:100_000])
    assert (await read.refused(path)).code == "file-incomplete"
    fault = await read.refused(path, size=fast.stat().st_size)
    assert fault.code == "file-incomplete"
    assert f"100000 bytes of the {fast.stat().st_size}" in fault.detail


@pytest.mark.parametrize("suffix", ["ts", "mkv", "flv", "avi"])
async def test_half_of_any_file_is_caught_by_the_size_that_the_source_lists(make, good, media_dir, read, suffix):
    coded = ("-c:v", "mpeg4", "-c:a", "mp3") if suffix == "avi" else ("-c", "copy")
    whole = make(f"whole.{suffix}", "-i", good, *coded).read_bytes()
    path = media_dir / f"half.{suffix}"
    path.write_bytes(whole[: len(whole) // 2])
    assert (await read.refused(path, size=len(whole))).code == "file-incomplete"


async def test_more_bytes_than_listed_are_flagged_and_accepted(good, quick):
    found = await look(good, quick, size=1000)
    assert found.verdict.accepted
    assert "larger-than-listed" in found.facts.flags


async def test_a_file_that_is_still_being_written_is_tried_again_later(good, media_dir, settings):
    whole = good.read_bytes()
    path = media_dir / "growing.mp4"
    path.write_bytes(whole[:50_000])

    async def upload() -> None:
        for end in range(50_000, 150_000, 500):
            with path.open("ab") as file:
                file.write(whole[end : end + 500])
            await asyncio.sleep(0.02)

    writer = asyncio.create_task(upload())
    try:
        fault = await refused(path, settings)
    finally:
        writer.cancel()
        await asyncio.gather(writer, return_exceptions=True)
    assert (fault.code, fault.permanent) == ("file-growing", False)


# ------------------------------------------------------------------------------------------------------ names, places


@pytest.mark.parametrize(
    "name",
    [
        b" -dash.mp4", b"-dash.mp4", b"a:b.mp4", b"it's \"q\" & $HOME.mp4", "naïve 日本.mp4".encode(), b"100%d.mp4",
        b"concat:x|y.mp4", b"new\nline.mp4", b"%2e%2e%2f.mp4", b"%00.mp4", b"x?y#z.mp4", b"tab\t.mp4", b"-i", b"http:",
        b"subfile,,start,0,end,9,,:x.mp4", b"$(reboot).mp4", b"x.mp4 ", b"%s%n%x.mp4", b"*", b"\\",
        b"\xe2\x80\xaexyz.mp4", b"not-utf8-\xff\xfe.mp4", b"http:x.mp4", b"long" * 62 + b".mp4",
    ],
)  # fmt: skip
async def test_any_file_name_is_probed(good, tmp_path, read, name):
    path = os.path.join(os.fsencode(tmp_path), name)
    os.link(good, path)
    assert (await read(Path(os.fsdecode(path)))).facts.duration_ms == 4000


@pytest.mark.parametrize(
    "address",
    [
        "concat:/etc/passwd|/etc/hosts", "subfile,,start,0,end,9,,:/etc/passwd", "file:///etc/passwd", "pipe:0",
        "ftp://127.0.0.1/x.mp4", "relative.mp4", "data:video/mp4;base64,AAAA", "/nul\x00byte", "", "/dev/zero", "/tmp",
    ],
)  # fmt: skip
async def test_other_kinds_of_address_are_refused(quick, address):
    assert (await refused(address, quick)).code == "source-address-refused"


async def test_a_pipe_is_refused_and_never_waited_for(quick, tmp_path):
    os.mkfifo(tmp_path / "pipe.mp4")
    assert (await refused(tmp_path / "pipe.mp4", quick)).code == "source-address-refused"


async def test_a_link_is_what_it_leads_to(good, settings, tmp_path):
    (tmp_path / "link.mp4").symlink_to(good)
    assert (await look(tmp_path / "link.mp4", settings)).facts.duration_ms == 4000
    os.mkfifo(tmp_path / "pipe")
    for name, target, reason in (
        ("pipe.mp4", "pipe", "source-address-refused"),
        ("folder.mp4", ".", "source-address-refused"),
        ("device.mp4", "/dev/zero", "source-address-refused"),
        ("nowhere.mp4", "gone", "source-not-found"),
        ("circle.mp4", "circle.mp4", "source-not-found"),
    ):
        (tmp_path / name).symlink_to(target)
        fault = await refused(tmp_path / name, settings)
        assert (name, fault.code, fault.permanent) == (name, reason, True)


async def test_a_pipe_put_in_the_files_place_meanwhile_is_not_waited_for(quick, tmp_path):
    os.mkfifo(tmp_path / "pipe.mp4")
    found = await asyncio.wait_for(asyncio.to_thread(media.layout.look, tmp_path / "pipe.mp4"), 5)
    assert found.size == 0


async def test_a_socket_is_no_file(quick, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # a socket's name is short
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind("here.mp4")
        assert (await refused(tmp_path / "here.mp4", quick)).code == "source-address-refused"


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="no /proc on this machine")
@pytest.mark.parametrize(
    "path", ["/proc/self/status", "/proc/self/environ", "/proc/kmsg", "/proc/self/fd/0", "/proc/1"]
)
async def test_a_file_that_the_kernel_makes_up_is_not_probed(quick, path):
    fault = await refused(path, quick)
    assert fault.code in ("file-empty", "source-address-refused", "source-not-found", "source-forbidden")
    assert fault.permanent


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is forbidden to root")
async def test_a_file_that_may_not_be_read_is_forbidden(quick, good, tmp_path):
    path = tmp_path / "closed.mp4"
    path.write_bytes(good.read_bytes())
    path.chmod(0)
    assert (await refused(path, quick)).code == "source-forbidden"


async def test_a_missing_file_is_not_found(quick, tmp_path):
    assert (await refused(tmp_path / "none.mp4", quick)).code == "source-not-found"
    assert (await refused(tmp_path / ("x" * 300), quick)).code == "source-not-found"


async def test_a_playlist_reaches_no_other_file(media_dir, good, settings):
    """Even where the playlist's own segments are good media beside it."""
    path = media_dir / "local-list.mp4"
    path.write_text(f"#EXTM3U\n#EXT-X-TARGETDURATION:4\n#EXTINF:4,\n{good}\n#EXT-X-ENDLIST\n")
    assert (await refused(path, settings)).code == "not-a-video"


async def test_faults_of_odd_paths_can_be_stored_anywhere(quick):
    fault = await refused(os.fsdecode(b"/nowhere/\xff\xfe.mp4"), quick)
    fault.detail.encode("utf-8")
