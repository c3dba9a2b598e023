"""Kinds of file that are easily taken for another: each is refused or accepted for its own reason."""

from __future__ import annotations

import gzip
import os
import random
from math import cos, radians, sin

import pytest
from boxes import STBL, alias_reference, box, boxes, changed, offsets, referring, shown, url_reference
from misbehaving import misbehaving

from faults import Fault
from media import Limits, inspect
from sources.base import Location

STILL = ("-f", "lavfi", "-i", "testsrc=s=64x64:r=1:d=1")
SOUND = ("-f", "lavfi", "-i", "sine=d=2")


# ------------------------------------------------------------------------------------------------------------ pictures


@pytest.mark.parametrize(
    ("name", "argv"),
    [
        ("a.png", ("-frames:v", "1")),
        ("moving.apng", ("-t", "0.2", "-plays", "0")),
        ("a.bmp", ("-frames:v", "1")),
        ("a.tiff", ("-frames:v", "1")),
        ("a.webp", ("-frames:v", "1")),
        ("moving.webp", ("-t", "0.2", "-loop", "0")),
        ("moving.gif", ("-t", "0.2")),
        ("a.jp2", ("-frames:v", "1")),
        ("a.ppm", ("-frames:v", "1")),
        ("a.exr", ("-frames:v", "1")),
        ("a.dpx", ("-frames:v", "1")),
        ("a.ico", ("-frames:v", "1", "-s", "64x64")),
        ("a.avif", ("-frames:v", "1", "-c:v", "libaom-av1", "-still-picture", "1", "-cpu-used", "8")),
        ("moving.avif", ("-t", "0.12", "-c:v", "libaom-av1", "-cpu-used", "8")),
    ],
)
async def test_a_picture_is_no_video_even_where_it_moves(make, good, read, name, argv):
    made = make(f"picture-{name}", "-i", good, "-an", *argv)
    fault = await read.refused(made)
    assert fault.code == "not-a-video"
    assert "picture" in fault.detail or "icon" in fault.detail


@pytest.mark.parametrize("brand", [b"heic", b"heix", b"mif1", b"msf1", b"hevc", b"avis", b"crx "])
async def test_a_heif_picture_is_no_corrupt_video(media_dir, read, brand):
    path = media_dir / f"{brand.decode().strip()}.mp4"
    path.write_bytes(box(b"ftyp", brand + bytes(4) + b"mif1heic") + box(b"meta", bytes(80)) + box(b"mdat", bytes(500)))
    assert await read.reason(path) == "not-a-video"


@pytest.mark.parametrize(
    ("name", "argv"),
    [
        ("song.m4a", ("-c:a", "aac")),
        ("song.mp4", ("-c:a", "aac")),
        ("song.ogg", ("-c:a", "libvorbis")),
        ("song.opus", ("-c:a", "libopus")),
        ("song.flac", ("-c:a", "flac")),
        ("song.wav", ("-c:a", "pcm_s16le")),
        ("song.mka", ("-c:a", "libopus")),
        ("song.mp3", ("-c:a", "libmp3lame")),
        ("song.ts", ("-c:a", "mp2")),
        ("song.avi", ("-c:a", "libmp3lame")),
        ("song.flv", ("-c:a", "aac")),
        ("song.wma", ("-c:a", "wmav2")),
        ("song.aac", ("-c:a", "aac")),
    ],
)
async def test_sound_alone_has_no_video_stream(make, read, name, argv):
    assert await read.reason(make(name, *SOUND, *argv)) == "no-video-stream"


@pytest.mark.parametrize(("name", "codec"), [("cover.m4a", "aac"), ("cover.flac", "flac"), ("cover.mp3", "libmp3lame")])
async def test_sound_with_a_cover_has_no_video_stream(make, jpeg, read, name, codec):
    marked = ("-map", "0", "-map", "1", "-c:v", "mjpeg", "-disposition:v", "attached_pic")
    found = await read(make(f"marked-{name}", *SOUND, "-i", jpeg, *marked, "-c:a", codec))
    assert (found.verdict.reason, found.facts.has_cover_art, found.facts.has_video) == ("no-video-stream", True, False)


async def test_a_cover_attached_to_matroska_is_no_video(make, jpeg, read):
    attached = ("-attach", jpeg, "-metadata:s:t", "mimetype=image/jpeg", "-metadata:s:t", "filename=cover.jpg")
    found = await read(make("attached.mka", *SOUND, "-c:a", "flac", *attached))
    assert (found.verdict.reason, found.facts.has_cover_art) == ("no-video-stream", True)


async def test_a_cover_that_nobody_marked_is_told_by_its_single_frame(make, jpeg, read):
    unmarked = ("-map", "0", "-map", "1", "-c:v", "copy", "-disposition:v", "0", "-f", "mp4")
    found = await read(make("unmarked.m4a", *SOUND, "-i", jpeg, *unmarked, "-c:a", "aac"))
    assert (found.verdict.reason, found.facts.has_cover_art) == ("no-video-stream", True)


async def test_a_video_with_a_cover_is_a_video(make, good, jpeg, read):
    marked = ("-map", "0", "-map", "1", "-c", "copy", "-disposition:v:1", "attached_pic")
    found = await read(make("covered.mp4", "-i", good, "-i", jpeg, *marked))
    assert (found.verdict.reason, found.facts.has_cover_art, found.facts.video_codec) == (None, True, "h264")


@pytest.mark.parametrize("suffix", ["mp4", "mkv", "mov"])
@pytest.mark.parametrize("codec", ["mjpeg", "png"])
async def test_the_video_is_found_behind_a_picture(make, good, read, suffix, codec):
    if (suffix, codec) == ("mp4", "png"):
        codec = "mjpeg"
    first = (*STILL, "-i", good, "-map", "0", "-map", "1", "-c", "copy", "-c:v:0", codec)
    facts = (await read(make(f"behind-{codec}.{suffix}", *first, *_pixels(codec)))).facts
    assert facts.streams[0].codec == codec
    assert (facts.video_codec, facts.width, facts.height, facts.duration_ms) == (
        "h264", 320, 240, pytest.approx(4000, abs=30),
    )  # fmt: skip


def _pixels(codec: str) -> tuple[str, ...]:
    return ("-pix_fmt:v:0", "yuvj420p") if codec == "mjpeg" else ()


@pytest.mark.parametrize("codec", ["mjpeg", "png"])
async def test_a_film_of_pictures_is_a_video(make, read, codec):
    film = ("-f", "lavfi", "-i", "testsrc2=s=64x64:r=5:d=1")
    found = await read(make(f"film-{codec}.mov", *film, "-c:v", codec, *_pixels(codec)))
    assert (found.verdict.reason, found.facts.video_codec) == (None, codec)


async def test_of_two_videos_the_longer_one_counts_where_both_are_default(make, good, read):
    short = ("-f", "lavfi", "-i", "testsrc=s=160x120:r=25:d=1", "-i", good, "-map", "0", "-map", "1")
    facts = (await read(make("two.mp4", *short, "-c", "copy", "-c:v:0", "libx264", "-disposition:v", "default"))).facts
    assert [stream.kind for stream in facts.streams].count("video") == 2
    assert (facts.width, facts.duration_ms) == (320, 4000)


# ---------------------------------------------------------------------------------------------------- the display size


def _turned(degrees: float) -> tuple[float, float, float, float]:
    return cos(radians(degrees)), sin(radians(degrees)), -sin(radians(degrees)), cos(radians(degrees))


@pytest.mark.parametrize(
    ("matrix", "size"),
    [
        (_turned(0), (320, 240)),
        (_turned(90), (240, 320)),
        (_turned(180), (320, 240)),
        (_turned(270), (240, 320)),
        (_turned(-90), (240, 320)),
        (_turned(89.6), (240, 320)),  # rounded by its writer
        (_turned(45), (320, 240)),  # shown at a slant: no size fits
        ((-1, 0, 0, 1), (320, 240)),  # mirrored
        ((1, 0, 0, -1), (320, 240)),
        ((0, 1, 1, 0), (240, 320)),  # mirrored and turned
        ((0, -1, -1, 0), (240, 320)),
        ((2, 0, 0, 1), (320, 240)),
        ((0, 0, 0, 0), (320, 240)),  # no matrix at all
    ],
)
async def test_the_display_size_follows_the_display_matrix(good, tmp_path, read, matrix, size):
    path = tmp_path / "matrix.mp4"
    path.write_bytes(shown(good.read_bytes(), *matrix))
    found = await read(path)
    assert (found.verdict.reason, (found.facts.width, found.facts.height)) == (None, size)


@pytest.mark.parametrize(("degrees", "size"), [("90", (240, 320)), ("180", (320, 240)), ("270", (240, 320))])
async def test_the_older_rotate_tag_turns_the_display_size(make, good, tmp_path, read, degrees, size):
    # Under its own name, ffmpeg would turn the tag into a matrix, or drop it.
    tagged = make(f"tagged-{degrees}.mkv", "-i", good, "-c", "copy", "-metadata:s:v:0", f"rotatX={degrees}")
    path = tmp_path / "tagged.mkv"
    path.write_bytes(tagged.read_bytes().replace(b"ROTATX", b"ROTATE"))
    facts = (await read(path)).facts
    assert (facts.rotation, (facts.width, facts.height)) == (int(degrees), size)


async def test_pixels_that_are_not_square_stretch_the_display_size(make, good, read):
    wide = make("wide-pixels.mp4", "-i", good, "-t", "1", "-vf", "setsar=16/11", "-c:v", "libx264")
    facts = (await read(wide)).facts
    assert (facts.width, facts.height, facts.pixel_aspect) == (320, 240, "16:11")
    assert (facts.display_width, facts.display_height) == (465, 240)


async def test_pixels_that_are_not_square_are_turned_with_the_picture(make, good, tmp_path, read):
    wide = make("wide-pixels.mp4", "-i", good, "-t", "1", "-vf", "setsar=16/11", "-c:v", "libx264")
    path = tmp_path / "turned.mp4"
    path.write_bytes(shown(wide.read_bytes(), *_turned(90)))
    facts = (await read(path)).facts
    assert (facts.width, facts.height, facts.display_width, facts.display_height) == (240, 320, 240, 465)


# --------------------------------------------------------------------------------------------------- texts, and others

PAGES = {
    "plain": b"<!DOCTYPE html><html><body>hello</body></html>",
    "after-a-mark": b"\xef\xbb\xbf<!doctype HTML><p>hello",
    "after-space": b"\r\n\r\n\t  <html>",
    "after-comments": b"<!-- a --><!-- b -->\n<HTML>",
    "in-a-long-comment": b"<!-- " + b"x" * 6_000 + b" --><html></html>",
    "xhtml": b"<?xml version='1.0'?><!DOCTYPE html PUBLIC '-//W3C//DTD XHTML 1.0 Strict//EN' 'x'><html xmlns='x'/>",
    "xhtml-bare": b"<?xml version='1.0'?>\n<!-- x -->\n<html xmlns='http://www.w3.org/1999/xhtml'></html>",
    "utf-16": "\ufeff<!DOCTYPE html><html></html>".encode("utf-16-le"),
    "utf-16-big": "\ufeff<html></html>".encode("utf-16-be"),
    "fragment": b"<div>Sorry, this file is gone</div>",
    "nginx": b"<center><h1>403 Forbidden</h1></center>",
    "refresh": b"<meta http-equiv=refresh content='0; url=/login'>",
    "script": b"<script>location = '/login'</script>",
}


@pytest.mark.parametrize("page", PAGES)
async def test_a_web_page_is_called_one_however_it_begins(tmp_path, read, page):
    path = tmp_path / "page.mp4"
    path.write_bytes(PAGES[page])
    fault = await read.refused(path)
    assert fault.code == ("source-returned-html" if read.remote else "not-a-video")
    assert "a web page" in fault.detail


TEXTS = {
    "json": b'{"error": "expired"}',
    "xml": b"<?xml version='1.0'?><Error><Code>NoSuchKey</Code></Error>",
    "xml-about-html": b"<?xml version='1.0'?><rss><![CDATA[<html>]]></rss>",
    "csv": b"id,title\r\n1,hello\r\n",
    "svg": b"<?xml version='1.0'?>\n<svg xmlns='http://www.w3.org/2000/svg'></svg>",
    "utf-16": "\ufeffJust some words.\r\n".encode("utf-16-le"),
    "utf-16-big": "\ufeffJust some words.".encode("utf-16-be"),
    "utf-16-unmarked": ("Just some words. " * 20).encode("utf-16-le"),
    "utf-32": "\ufeffJust some words.".encode("utf-32-le"),
    "subtitles": b"WEBVTT\n\n00:01.000 --> 00:02.000\nhi\n",
    "rtf": b"{\\rtf1 hello}",
    "cut-in-a-letter": "é".encode() * 2_047 + b"\xc3",
    "gzip": gzip.compress(b"<html></html>"),
    "pdf": b"%PDF-1.7\n%\xe2\xe3\xcf\xd3\n",
    "tar": b"notes.txt".ljust(257, b"\x00") + b"ustar\x0000".ljust(300, b"\x00"),
    "word": b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(900),
    "zeros": bytes(100_000),
    "one-zero": b"\x00",
    "one-letter": b"a",
    "three-bytes": b"\x00\x00\x00",
}


@pytest.mark.parametrize("text", TEXTS)
async def test_what_is_no_video_is_never_called_corrupt(tmp_path, read, text):
    path = tmp_path / "movie.mp4"
    path.write_bytes(TEXTS[text])
    assert await read.reason(path) == "not-a-video"


@pytest.mark.parametrize("seed", range(3))
async def test_noise_is_no_video(tmp_path, read, seed):
    path = tmp_path / "noise.mp4"
    path.write_bytes(random.Random(seed).randbytes(60_000))
    assert await read.reason(path) == "not-a-video"


# ------------------------------------------------------------------------------------------- files that lead elsewhere

LISTS = {
    "hls": "#EXTM3U\n#EXT-X-TARGETDURATION:4\n#EXTINF:4,\n{inner}/x.ts\n#EXT-X-ENDLIST\n",
    "hls-after-a-mark": "\ufeff#EXTM3U\n#EXTINF:4,\n{inner}/x.ts\n",
    "hls-master": "#EXTM3U\n#EXT-X-STREAM-INF:BANDWIDTH=1\n{inner}/x.m3u8\n",
    "hls-key": '#EXTM3U\n#EXT-X-KEY:METHOD=AES-128,URI="{inner}/key"\n#EXTINF:4,\n{inner}/x.ts\n',
    "dash": "<?xml version='1.0'?><MPD xmlns='urn:mpeg:dash:schema:mpd:2011'><BaseURL>{inner}/</BaseURL></MPD>",
    "smooth": "<?xml version='1.0'?><SmoothStreamingMedia MajorVersion='2'></SmoothStreamingMedia>",
    "ffconcat": "ffconcat version 1.0\nfile '{inner}/x.mp4'\n",
    "concat": "file '{inner}/x.mp4'\n",
    "imf": "<?xml version='1.0'?><CompositionPlaylist xmlns='http://www.smpte-ra.org/schemas/2067-3/2016'/>",
    "sdp": "v=0\r\no=- 0 0 IN IP4 127.0.0.1\r\ns=x\r\nc=IN IP4 127.0.0.1\r\nt=0 0\r\nm=video 5004 RTP/AVP 96\r\n",
    "asx": "<asx version='3.0'><entry><ref href='{inner}/x'/></entry></asx>",
    "pls": "[playlist]\nFile1={inner}/x.mp4\n",
    "reference": "[Reference]\nRef1={inner}/x.mp4\n",
    "m3u": "{inner}/x.mp4\n",
    "smil": "<smil><body><video src='{inner}/x.mp4'/></body></smil>",
    "xspf": "<?xml version='1.0'?><playlist version='1'><location>{inner}/x.mp4</location></playlist>",
}


@pytest.mark.parametrize(
    ("kind", "name"),
    [*((kind, "movie.mp4") for kind in LISTS), ("hls", "movie.m3u8"), ("dash", "a.mpd"), ("sdp", "a.sdp")],
)
async def test_a_list_of_addresses_leads_nowhere_under_any_name(good, tmp_path, read, kind, name):
    async def handler(request, reply):
        await reply.ranged(good.read_bytes(), request)

    async with misbehaving(handler) as inner:
        path = tmp_path / name
        path.write_text(LISTS[kind].format(inner=inner.base))
        fault = await read.refused(path)
        assert inner.requests == []
    assert fault.code == "not-a-video"
    assert "playlist" in fault.detail


@pytest.mark.parametrize("reference", ["url-http", "url-file", "alias"])
@pytest.mark.parametrize("alone", [True, False])
async def test_a_movie_whose_pictures_lie_elsewhere_causes_no_request_there(good, tmp_path, read, reference, alone):
    async def handler(request, reply):
        await reply.ranged(good.read_bytes(), request)

    async with misbehaving(handler) as inner:
        entry = {
            "url-http": url_reference(f"{inner.base}/x.mov"),
            "url-file": url_reference(f"file://{good}"),
            "alias": alias_reference(str(good)),
        }[reference]
        whole = referring(good.read_bytes(), entry)
        path = tmp_path / "reference.mov"
        path.write_bytes(b"".join(box(k, c) for k, c in boxes(whole) if k != b"mdat") if alone else whole)
        os.utime(good, ns=(0, good.stat().st_mtime_ns))
        reason = await read.reason(path)
        assert inner.requests == []
        assert good.stat().st_atime_ns == 0 or reference == "url-http", "the file it names was read"
    # Without pictures of its own it is half a movie; with some, ffprobe takes these.
    assert reason == ("file-incomplete" if alone else None)


@pytest.mark.parametrize(
    "protocol",
    [
        "concat:{0}|{0}", "subfile,,start,0,end,900,,:{0}", "crypto:{0}", "tee:{0}", "pipe:0", "file:{0}", "file://{0}",
        "data:video/mp4;base64,AAAA", "async:{0}", "cache:{0}", "ffconcat:{0}", "concatf:{0}", "lavfi:testsrc",
        "unix:{0}", "udp://127.0.0.1:9", "rtmp://127.0.0.1/x", "ftp://127.0.0.1/x", "-i", "~/x.mp4", "./x.mp4",
    ],
)  # fmt: skip
async def test_protocols_of_ffmpeg_are_no_addresses(good, settings, protocol):
    address = protocol.format(good)
    with pytest.raises(Fault) as caught:
        await inspect(Location(address), settings=settings, limits=Limits())
    assert caught.value.code == "source-address-refused"


# ------------------------------------------------------------------------------------------------- what was cut, where

CODED = {
    "webm": ("-c:v", "libvpx", "-deadline", "realtime", "-cpu-used", "8", "-c:a", "libopus"),
    "avi": ("-c:v", "mpeg4", "-c:a", "libmp3lame"),
    "wmv": ("-c:v", "wmv2", "-c:a", "wmav2"),
    "mpg": ("-c:v", "mpeg2video", "-c:a", "mp2"),
    "ogv": ("-c:v", "libtheora", "-c:a", "libvorbis"),
    "3gp": ("-c:v", "mpeg4", "-an"),
}
FRAGMENTS = ("-c:v", "libx264", "-preset", "ultrafast", "-g", "25", "-c:a", "copy", "-movflags",
             "+frag_keyframe+empty_moov+default_base_moof")  # fmt: skip


@pytest.mark.parametrize("suffix", ["mp4", "mov", "3gp", "mkv", "webm", "avi", "wmv"])
@pytest.mark.parametrize("share", [0.02, 0.98])
async def test_a_cut_file_that_says_how_long_it_is_needs_no_listed_size(make, good, tmp_path, read, suffix, share):
    whole = make(f"sized.{suffix}", "-i", good, *CODED.get(suffix, ("-c", "copy"))).read_bytes()
    path = tmp_path / f"cut.{suffix}"
    path.write_bytes(whole[: int(len(whole) * share)])
    assert await read.reason(path) == "file-incomplete"


@pytest.mark.parametrize("suffix", ["ts", "m2ts", "flv", "mpg", "ogv"])
async def test_a_cut_file_that_does_not_say_how_long_it_is_is_caught_by_the_listed_size_alone(
    make, good, tmp_path, read, suffix
):
    whole = make(f"unsized.{suffix}", "-i", good, *CODED.get(suffix, ("-c", "copy"))).read_bytes()
    path = tmp_path / f"cut.{suffix}"
    path.write_bytes(whole[: len(whole) // 2])
    assert await read.reason(path) is None, "nothing in it tells: docs/media.md says so"
    assert await read.reason(path, size=len(whole)) == "file-incomplete"
    whole_again = tmp_path / f"whole.{suffix}"
    whole_again.write_bytes(whole)
    found = await read(whole_again, size=len(whole))
    assert (found.verdict.reason, found.facts.expected_bytes) == (None, len(whole))


async def test_a_fragmented_file_cut_within_a_fragment_is_incomplete(make, good, tmp_path, read):
    whole = make("fragments.mp4", "-i", good, *FRAGMENTS).read_bytes()
    path = tmp_path / "cut.mp4"
    path.write_bytes(whole[: offsets(whole, b"moof")[2] + 900])
    assert await read.reason(path) == "file-incomplete"


async def test_a_fragmented_file_cut_between_fragments_is_caught_by_the_listed_size_alone(make, good, tmp_path, read):
    whole = make("fragments.mp4", "-i", good, *FRAGMENTS).read_bytes()
    path = tmp_path / "cut.mp4"
    path.write_bytes(whole[: offsets(whole, b"moof")[2]])
    assert await read.reason(path) is None
    assert await read.reason(path, size=len(whole)) == "file-incomplete"


async def test_a_fragmented_file_without_a_total_has_its_fragments_duration(make, good, read):
    path = make("fragments.mp4", "-i", good, *FRAGMENTS)
    assert b"mehd" not in path.read_bytes()
    facts = (await read(path)).facts
    assert (facts.duration_ms, facts.flags) == (pytest.approx(4_000, abs=90), ())


async def test_a_file_fragmented_after_an_index_of_its_own_has_the_duration_of_both(make, good, read):
    argv = (*FRAGMENTS[:-1], "+frag_keyframe")
    facts = (await read(make("half-fragmented.mp4", "-i", good, *argv))).facts
    assert facts.duration_ms == pytest.approx(4_000, abs=90)


async def test_an_index_alone_is_incomplete(fast, make, good, tmp_path, read):
    path = tmp_path / "index.mp4"
    path.write_bytes(b"".join(box(k, c) for k, c in boxes(fast.read_bytes()) if k != b"mdat"))
    assert await read.reason(path) == "file-incomplete"
    first = make("fragments.mp4", "-i", good, *FRAGMENTS).read_bytes()
    path.write_bytes(first[: offsets(first, b"moof")[0]])
    assert await read.reason(path) == "file-incomplete"


@pytest.mark.parametrize("suffix", ["mp4", "mov"])
async def test_room_made_for_an_index_that_never_came_is_incomplete(make, good, tmp_path, read, suffix):
    whole = make(f"sized.{suffix}", "-i", good, "-c", "copy").read_bytes()
    path = tmp_path / f"preallocated.{suffix}"
    path.write_bytes(whole[: whole.rindex(b"moov") - 4].ljust(len(whole), b"\x00"))
    assert await read.reason(path) == "file-incomplete"
    path.write_bytes(whole[: len(whole) // 2].ljust(len(whole), b"\x00"))
    assert await read.reason(path) == "file-incomplete"


@pytest.mark.parametrize("length", [12, 255])
@pytest.mark.parametrize("suffix", ["mp4", "mkv", "avi", "wmv"])
async def test_a_few_bytes_of_a_video_are_incomplete(make, good, tmp_path, read, suffix, length):
    path = tmp_path / f"few.{suffix}"
    path.write_bytes(make(f"sized.{suffix}", "-i", good, *CODED.get(suffix, ("-c", "copy"))).read_bytes()[:length])
    assert await read.reason(path) == "file-incomplete"


async def test_an_avi_with_something_behind_it_or_a_size_never_filled_in_is_whole(make, good, tmp_path, read):
    whole = make("sized.avi", "-i", good, *CODED["avi"]).read_bytes()
    path = tmp_path / "odd.avi"
    path.write_bytes(whole + b"\x00" * 2_000)
    assert await read.reason(path) is None
    for size in (0, 0xFFFFFFFF, len(whole)):  # the last one counts the chunk's own header
        path.write_bytes(whole[:4] + size.to_bytes(4, "little") + whole[8:])
        assert await read.reason(path) is None


@pytest.mark.parametrize("gone", [STBL, (b"moov", b"trak")])
async def test_an_index_without_tracks_or_tables_is_no_crash(good, tmp_path, read, gone):
    path = tmp_path / "gutted.mp4"
    path.write_bytes(changed(good.read_bytes(), gone, lambda _: b"" if gone == STBL else None))
    found = await read(path)
    if gone == STBL:
        assert {"picture-size-unknown", "for-review"} <= set(found.facts.flags)
    else:
        assert found.verdict.reason == "file-corrupt"


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("suffix", ["mp4", "mkv", "avi", "wmv"])
async def test_a_damaged_file_is_accepted_or_refused_as_a_file_and_never_unknown(
    make, good, tmp_path, read, suffix, seed
):
    chance = random.Random(f"{suffix}{seed}")
    data = bytearray(make(f"sized.{suffix}", "-i", good, *CODED.get(suffix, ("-c", "copy"))).read_bytes())
    index = data.rindex(b"moov") if suffix == "mp4" else 0
    for _ in range(40):
        data[(index + chance.randrange(3_000)) % len(data)] = chance.randrange(256)
    path = tmp_path / f"damaged.{suffix}"
    path.write_bytes(data)
    reason = await read.reason(path)
    assert reason in (None, "file-corrupt", "file-incomplete", "not-a-video", "no-video-stream")
