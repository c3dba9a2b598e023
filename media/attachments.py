"""What text tracks and posters are, by their bytes. Pure."""

from __future__ import annotations

import io
import re
from typing import Final, Literal

import webvtt
from webvtt.errors import MalformedCaptionError, MalformedFileError

from faults import Fault

_SUBRIP: Final = re.compile(r"^\s*\d+\s*\n\s*\d+:\d{1,2}:\d{1,2}[,.]\d+\s*-->", re.MULTILINE)
_PICTURES: Final = ((b"\xff\xd8\xff", "jpeg"), (b"\x89PNG\r\n\x1a\n", "png"), (b"GIF8", "gif"))


def text_of(content: bytes) -> str:
    """A text track's text: UTF-8 with or without its mark, UTF-16 with one; else Windows-1252, as old subtitle files
    are, in which every byte but five means something. Line ends are unified."""
    for mark, encoding in ((b"\xff\xfe", "utf-16"), (b"\xfe\xff", "utf-16"), (b"", "utf-8-sig"), (b"", "cp1252")):
        if content.startswith(mark):
            try:
                return content.decode(encoding).replace("\r\n", "\n").replace("\r", "\n")
            except UnicodeDecodeError:
                continue
    return content.decode("utf-8", "replace")


def caption_format(content: bytes) -> Literal["vtt", "srt"] | None:
    """What kind of text track this is; None where it is none that we know."""
    text = text_of(content)
    if text.startswith("WEBVTT"):
        return "vtt"
    return "srt" if _SUBRIP.search(text[:4096]) else None


def as_vtt(content: bytes) -> bytes:
    """The text track as WebVTT in UTF-8. Raises Fault("attachment-lost") for what is neither WebVTT nor SubRip."""
    kind = caption_format(content)
    if kind is None:
        raise Fault("attachment-lost", "it is neither WebVTT nor SubRip")
    text = text_of(content)
    if kind == "vtt":
        return text.encode()
    try:
        return webvtt.WebVTT.from_buffer(io.StringIO(text), format="srt").content.encode()
    except (MalformedFileError, MalformedCaptionError) as error:
        raise Fault("attachment-lost", f"its SubRip cannot be read: {error}") from None


def picture_format(content: bytes) -> str:
    """The subtype of a picture's media type. Raises Fault("attachment-lost") for what no host takes as a poster."""
    for signature, name in _PICTURES:
        if content.startswith(signature):
            return name
    if content[:4] == b"RIFF" and content[8:12] == b"WEBP":
        return "webp"
    raise Fault("attachment-lost", "it is no JPEG, PNG, GIF or WebP picture")
