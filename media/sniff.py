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
    (b"BM", "a BMP picture"),
    (b"II*\x00", "a TIFF picture"),
    (b"MM\x00*", "a TIFF picture"),
    (b"8BPS", "a Photoshop picture"),
    (b"\x00\x00\x01\x00", "an icon"),
)
_OTHERS: Final = (
    (b"PK\x03\x04", "a ZIP archive or office document"),
    (b"PK\x05\x06", "an empty ZIP archive"),
    (b"Rar!\x1a\x07", "a RAR archive"),
    (b"7z\xbc\xaf\x27\x1c", "a 7-Zip archive"),
    (b"\x1f\x8b", "a gzip archive"),
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
_STILL_BRANDS: Final = frozenset({b"heic", b"heix", b"mif1", b"avif", b"heim", b"heis"})
"""Brands of ISO base media files that hold pictures (ISO/IEC 23008-12 and AVIF 1.1)."""
_BOXES: Final = frozenset({b"ftyp", b"moov", b"mdat", b"free", b"skip", b"wide", b"pnot", b"styp", b"moof", b"sidx"})

_HTML: Final = re.compile(
    rb"\A\s*(?:<!--.*?-->\s*)*<(?:!doctype\s+html|html|head|body|title|script|meta)\b", re.I | re.S
)
_PLAYLIST: Final = re.compile(
    rb"\A\s*(?:#EXTM3U|ffconcat version|\[playlist\]|(?:<\?xml.*?)?<(?:MPD|SmoothStreamingMedia)\b)", re.S
)
_CONTROL: Final = bytes(set(range(32)) - {9, 10, 12, 13, 27})


def sniff(head: bytes) -> tuple[Kind, str]:
    """The kind of file that begins with `head`, and words for it ("a JPEG picture")."""
    if len(head) >= 12 and head[4:8] == b"ftyp" and head[8:12] in _STILL_BRANDS:
        return Kind.PICTURE, "a HEIF or AVIF picture"
    if len(head) >= 12 and head[:4] == b"RIFF":
        return (Kind.PICTURE, "a WebP picture") if head[8:12] == b"WEBP" else (Kind.MEDIA, "a RIFF file")
    text = _as_text(head)
    if text:
        plain = head.removeprefix(b"\xef\xbb\xbf")
        if _PLAYLIST.match(plain):
            return Kind.PLAYLIST, "a playlist, which leads to other addresses"
        if _HTML.match(plain) or (plain.lstrip().startswith(b"<?xml") and b"<html" in plain.lower()):
            return Kind.HTML, "a web page"
        return Kind.TEXT, "a text"
    for signature, words in _PICTURES:
        if head.startswith(signature):
            return Kind.PICTURE, words
    for signature, words in _OTHERS:
        if head.startswith(signature):
            return Kind.OTHER, words
    if head[4:8] in _BOXES or head.startswith(_MEDIA) or _transport_stream(head):
        return Kind.MEDIA, "a media file"
    if len(head) >= 2 and head[0] == 0xFF and head[1] & 0xE0 == 0xE0:
        return Kind.MEDIA, "a sound file"
    return Kind.UNKNOWN, "no known format"


def _as_text(head: bytes) -> bool:
    """Whether these bytes are text in UTF-8 or an 8-bit encoding: no NUL, hardly a control character."""
    if not head:
        return False
    if head.startswith((b"\xff\xfe", b"\xfe\xff")):
        return len(head) % 2 == 0 and b"\x00" in head[2:4]
    if b"\x00" in head:
        return False
    try:
        head.decode("utf-8")
    except UnicodeDecodeError as error:
        if error.start < len(head) - 4:  # not merely a character cut in two at the end
            high = sum(byte >= 0x80 for byte in head)
            if high * 3 > len(head):
                return False
    return sum(byte in _CONTROL for byte in head) * 100 <= len(head)


def _transport_stream(head: bytes) -> bool:
    """MPEG-2 TS: a sync byte each 188 bytes, or each 192 with a time stamp before each packet (M2TS)."""
    return any(
        len(head) > start + 2 * step and all(head[start + n * step] == 0x47 for n in range(3))
        for start, step in ((0, 188), (4, 192))
    )
