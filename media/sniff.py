"""What a file's first bytes say it is, where ffprobe's answer is no help: its texts and codes differ between versions,
and a web page or a picture is no "corrupt video"."""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Final

HEAD_BYTES: Final = 4_096
"""How many leading bytes are looked at."""


class Kind(StrEnum):
    MEDIA = "media"
    """the signature of a container or stream that may hold video or sound"""
    HTML = "html"
    PLAYLIST = "playlist"
    """a text that leads a player to other addresses"""
    PICTURE = "picture"
    TEXT = "text"
    OTHER = "other"
    """another known format: an archive, a document, a program"""
    UNKNOWN = "unknown"


_PICTURES: Final = (
    (b"\xff\xd8\xff", "a JPEG picture"),
    (b"\x89PNG\r\n\x1a\n", "a PNG picture"),
    (b"GIF87a", "a GIF picture"),
    (b"GIF89a", "a GIF picture"),
    (b"II*\x00", "a TIFF picture"),
    (b"MM\x00*", "a TIFF picture"),
    (b"8BPS", "a Photoshop picture"),
    (b"\x00\x00\x00\x0cjP  \r\n\x87\n", "a JPEG 2000 picture"),
    (b"\x00\x00\x00\x0cJXL \r\n\x87\n", "a JPEG XL picture"),
    (b"\xff\x0a", "a JPEG XL picture"),
    (b"v/1\x01", "an OpenEXR picture"),
    (b"SDPX", "a DPX picture"),
    (b"XPDS", "a DPX picture"),
)
_OTHERS: Final = (
    (b"PK\x03\x04", "a ZIP archive or office document"),
    (b"PK\x05\x06", "an empty ZIP archive"),
    (b"Rar!\x1a\x07", "a RAR archive"),
    (b"7z\xbc\xaf\x27\x1c", "a 7-Zip archive"),
    (b"\x1f\x8b", "a gzip archive"),
    (b"BZh", "a bzip2 archive"),
    (b"\xfd7zXZ\x00", "an xz archive"),
    (b"\x28\xb5\x2f\xfd", "a Zstandard archive"),
    (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "an office document"),
    (b"FWS", "a Flash program"),
    (b"CWS", "a Flash program"),
    (b"MThd", "MIDI notes"),
    (b"%PDF-", "a PDF document"),
    (b"\x7fELF", "a program"),
    (b"MZ", "a program"),
    (b"SQLite format 3\x00", "a database"),
)
_MEDIA: Final = (
    b"\x1aE\xdf\xa3",  # Matroska, WebM
    b"OggS",
    b"FLV",
    b"0&\xb2u\x8ef\xcf\x11",  # ASF, WMV
    b"\x06\x0e+4\x02\x05\x01\x01",  # MXF
    b"\x00\x00\x01\xba",  # MPEG program stream
    b"\x00\x00\x01\xb3",  # MPEG video
    b"\x00\x00\x00\x01",  # H.264 or H.265 with start codes
    b"\x00\x00\x01",
    b"DKIF",  # IVF
    b".RMF",
    b"ID3",
    b"fLaC",
    b"#!AMR",
    b"caff",
)
_STILL_BRANDS: Final = frozenset(
    {
        b"heic",
        b"heix",
        b"mif1",
        b"mif2",
        b"avif",
        b"heim",
        b"heis",
        b"msf1",
        b"hevc",
        b"hevx",
        b"avis",
        b"crx ",
        b"jpx ",
    }
)
"""Brands of ISO base media files that hold pictures, animated ones too (ISO/IEC 23008-12 and AVIF 1.1; Canon's raw)."""
_BOXES: Final = frozenset({b"ftyp", b"moov", b"mdat", b"free", b"skip", b"wide", b"pnot", b"styp", b"moof", b"sidx"})

_BEFORE: Final = re.compile(rb"\s+|<\?.*?\?>|<!--.*?-->", re.S)
"""What may stand before a document's first tag, piece by piece: one expression for all of it would read many comments
again and again, or need possessive groups, which Debian 12's Python 3.11.2 matches wrongly (python/cpython#106052)."""
_HTML: Final = re.compile(
    rb"<!doctype\s+html\b|<(?:html|head|body|title|script|style|meta|link|base|frameset|noscript|iframe|form"
    rb"|table|div|center|span|font|h[1-6]|p|br|a)\b|<!--(?!.*?-->)",
    re.I | re.S,
)
_PLAYLIST: Final = re.compile(
    rb"#EXTM3U|ffconcat version|\[(?:playlist|reference)\]|v=0\r?\no=|file\s+'|https?://\S+\s*\Z", re.I
)
_PLAYLIST_DOCUMENT: Final = re.compile(
    rb"<(?:\w+:)?(?:MPD|SmoothStreamingMedia|asx|smil|CompositionPlaylist|playlist)\b", re.I
)
_SVG: Final = re.compile(rb"<!doctype\s+svg\b|<svg\b", re.I)
_PORTABLE: Final = re.compile(rb"P[1-7]\s+(?:#[^\n]*\n\s*)*(?:\d+\s+\d+\s|WIDTH)")
_CONTROL: Final = bytes(set(range(32)) - {9, 10, 12, 13, 27})


def sniff(head: bytes) -> tuple[Kind, str]:
    """The kind of file that begins with `head`, and words for it ("a JPEG picture")."""
    if len(head) >= 12 and head[4:8] == b"ftyp" and head[8:12] in _STILL_BRANDS:
        return Kind.PICTURE, "a HEIF, AVIF or raw picture"
    if len(head) >= 12 and head[:4] == b"RIFF":
        return (Kind.PICTURE, "a WebP picture") if head[8:12] == b"WEBP" else (Kind.MEDIA, "a RIFF file")
    text = _as_text(head)
    if text is not None:
        document = _first_tag(text)
        if _PLAYLIST.match(text.lstrip()) or _PLAYLIST_DOCUMENT.match(text, document):
            return Kind.PLAYLIST, "a playlist, which leads to other addresses"
        if _SVG.match(text, document):
            return Kind.PICTURE, "an SVG picture"
        return (Kind.HTML, "a web page") if _HTML.match(text, document) else (Kind.TEXT, "a text")
    if _PORTABLE.match(head):
        return Kind.PICTURE, "a PNM picture"
    if head[:2] == b"BM" and head[6:10] == bytes(4):
        return Kind.PICTURE, "a BMP picture"
    # An icon's entries begin with their count and end with a zero; a start code of MPEG video looks like the rest.
    if head[:4] == b"\x00\x00\x01\x00" and 0 < int.from_bytes(head[4:6], "little") < 256 and head[9:10] == b"\x00":
        return Kind.PICTURE, "an icon"
    for signature, words in _PICTURES:
        if head.startswith(signature):
            return Kind.PICTURE, words
    for signature, words in _OTHERS:
        if head.startswith(signature):
            return Kind.OTHER, words
    if head[257:262] == b"ustar":
        return Kind.OTHER, "a tar archive"
    if head[4:8] in _BOXES or head.startswith(_MEDIA) or _transport_stream(head):
        return Kind.MEDIA, "a media file"
    if len(head) >= 2 and head[0] == 0xFF and head[1] & 0xE0 == 0xE0:
        return Kind.MEDIA, "a sound file"
    return Kind.UNKNOWN, "no known format"


def _first_tag(text: bytes) -> int:
    """Where a document begins: past white space, processing instructions and comments."""
    at = 0
    while (before := _BEFORE.match(text, at)) is not None:
        at = before.end()
    return at


def _as_text(head: bytes) -> bytes | None:
    """These bytes in UTF-8 and without a mark, where they are text in UTF-8, UTF-16, UTF-32 or an 8-bit encoding; None
    where they are not."""
    if not head:
        return None
    encoding = _wide_encoding(head)
    if encoding is not None:
        text = head.decode(encoding, "ignore").removeprefix("\ufeff")
        odd = sum(not (letter.isprintable() or letter in "\t\n\r\f") for letter in text)
        return text.encode() if text and odd * 50 <= len(text) else None
    if b"\x00" in head:
        return None
    try:
        head.decode("utf-8")
    except UnicodeDecodeError as error:
        if error.start < len(head) - 4:  # not merely a character cut in two at the end
            high = sum(byte >= 0x80 for byte in head)
            if high * 3 > len(head):
                return None
    return head.removeprefix(b"\xef\xbb\xbf") if sum(byte in _CONTROL for byte in head) * 100 <= len(head) else None


def _wide_encoding(head: bytes) -> str | None:
    """The encoding in which each character of this text takes two or four bytes, or None where it is none."""
    if head.startswith((b"\xff\xfe\x00\x00", b"\x00\x00\xfe\xff")):
        return "utf-32"
    if head.startswith((b"\xff\xfe", b"\xfe\xff")):
        return "utf-16"
    # Without a mark: plain letters, each beside a zero.
    sample = head[:64]
    if len(sample) >= 8:
        for zeros, letters, encoding in (
            (sample[1::2], sample[::2], "utf-16-le"),
            (sample[::2], sample[1::2], "utf-16-be"),
        ):
            if not any(zeros) and all(32 <= byte < 127 or byte in b"\t\n\r" for byte in letters):
                return encoding
    return None


def _transport_stream(head: bytes) -> bool:
    """MPEG-2 TS: a sync byte each 188 bytes, or each 192 with a time stamp before each packet (M2TS)."""
    return any(
        len(head) > start + 2 * step and all(head[start + n * step] == 0x47 for n in range(3))
        for start, step in ((0, 188), (4, 192))
    )
