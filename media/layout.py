"""A look of our own at how an MP4, MOV, Matroska or WebM file is laid out: is its index there, and does any part reach
beyond the file's end?

ffprobe answers "4.0 s" and exit 0 for a file whose index is intact and whose pictures are missing, and a text that
differs between versions for one whose index is missing. Both are plain to see in the outermost boxes (ISO/IEC
14496-12, section 4.2) or elements (RFC 8794, section 6; RFC 9559): each says how long it is.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from media.sniff import HEAD_BYTES

_BOXES_MAX: Final = 10_000
"""Outermost boxes read before giving up: a fragmented file has two for each fragment."""
_BOX_HEADER: Final = 8
_LONG_BOX_HEADER: Final = 16
_MVHD: Final = 40
"""Enough of a moov's content to see the duration in the mvhd box that begins it."""
_LOOK: Final = _LONG_BOX_HEADER + _MVHD
_ELEMENT_HEADER: Final = 12
_FIRST: Final = frozenset({b"ftyp", b"moov", b"mdat", b"free", b"skip", b"wide", b"pnot", b"styp", b"moof", b"sidx"})
_EBML: Final = b"\x1aE\xdf\xa3"
_SEGMENT: Final = b"\x18S\x80g"


@dataclass(frozen=True, slots=True)
class Layout:
    """What the outermost structure shows. `missing_bytes` is how many bytes the last part lacks (0: none, None: not
    known). `index_missing` and `data_missing` are True where the whole structure was seen and holds no index, or no
    pictures and sound. `header_duration_unset` is True
    where the movie header's duration is all ones, which means "not known" (ISO/IEC 14496-12, 8.2.2)."""

    missing_bytes: int | None = None
    index_missing: bool = False
    data_missing: bool = False
    header_duration_unset: bool = False

    @property
    def words(self) -> str:
        """What is wrong, for a person; empty where nothing is."""
        if self.missing_bytes:
            return f"its own structure announces {self.missing_bytes} bytes more than it has"
        if self.index_missing:
            return "it has no index (moov), which is written last: its writing or its upload was cut short"
        return "it has an index but no pictures or sound" if self.data_missing else ""

    @property
    def incomplete(self) -> bool:
        return self.index_missing or self.data_missing or bool(self.missing_bytes)


class Walker:
    """Follows the outermost boxes while the file's bytes come by, in any order and in pieces of any size.

    `wanted` is the offset of the next header; None when there is nothing more to learn.
    """

    def __init__(self) -> None:
        self.wanted: int | None = 0
        self._held = bytearray()
        self._need = _BOX_HEADER
        self._matroska = False
        self._kinds: set[bytes] = set()
        self._boxes = 0
        self._end: int | None = None
        self._open = False
        self._mvhd_at: int | None = None
        self._mvhd = bytearray()

    def feed(self, offset: int, data: bytes) -> None:
        """Takes `data`, which stands at `offset` in the file."""
        while self.wanted is not None:
            if not _take(self._held, self.wanted, self._need, offset, data):
                break
            self._read(self.wanted, bytes(self._held))
        if self._mvhd_at is not None:
            _take(self._mvhd, self._mvhd_at, _MVHD, offset, data)

    def layout(self, size: int | None) -> Layout:
        """What was seen, for a file of `size` bytes (None: not known)."""
        # A fragmented file's header cannot know its duration; that is no contradiction.
        unset = _duration_unset(bytes(self._mvhd)) and b"moof" not in self._kinds
        if self._end is None or size is None:
            return Layout(header_duration_unset=unset)
        # Fewer than eight bytes after the last box are no box: padding.
        if not self._open and size - self._end >= _BOX_HEADER:
            return Layout(header_duration_unset=unset)
        has_index = self._matroska or b"moov" in self._kinds
        has_data = self._matroska or bool(self._kinds & {b"mdat", b"moof"})
        return Layout(
            missing_bytes=0 if self._open else max(0, self._end - size),
            index_missing=not has_index,
            data_missing=not has_data,
            header_duration_unset=unset,
        )

    def _read(self, start: int, held: bytes) -> None:
        """Reads the header that begins at `start`: moves to the next one, or asks for more of this one."""
        if held.startswith((_EBML, _SEGMENT)) and (self._matroska or start == 0):
            self._matroska = True
            if len(held) < _ELEMENT_HEADER:
                self._need = _ELEMENT_HEADER
                return
            self._move(start, _element_end(held, start))
            if held.startswith(_SEGMENT):
                self.wanted = None
        elif self._matroska:
            self.wanted = self._end = None
        else:
            self._read_box(start, held)

    def _read_box(self, start: int, held: bytes) -> None:
        length, kind = int.from_bytes(held[:4], "big"), held[4:8]
        if kind not in _FIRST and (start == 0 or not all(32 <= byte < 127 or byte == 0xA9 for byte in kind)):
            self.wanted = None
            return
        header = _BOX_HEADER
        if length == 1:
            header = _LONG_BOX_HEADER
            if len(held) < header:
                self._need = header
                return
            length = int.from_bytes(held[8:16], "big")
        self._boxes += 1
        if length and (length < header or self._boxes > _BOXES_MAX):
            self.wanted = None
            return
        self._kinds.add(kind)
        if kind == b"moov":
            self._mvhd_at = start + header
        if length == 0:  # it reaches to the end of the file, wherever that is
            self._open = True
            self._end, self.wanted = start, None
            return
        self._move(start, start + length)

    def _move(self, start: int, end: int | None) -> None:
        self._end = self.wanted = end
        # A short element may end within what was held to read its header: the rest begins the next one, and doesn't
        # come again.
        del self._held[: len(self._held) if end is None else end - start]
        self._need = _BOX_HEADER


def _take(held: bytearray, start: int, length: int, offset: int, data: bytes) -> bool:
    """Adds to `held`, which begins at `start` in the file, what `data` at `offset` continues it with. Whether there are
    now `length` bytes."""
    at = start + len(held) - offset
    if len(held) < length and 0 <= at < len(data):
        held += data[at : at + length - len(held)]
    return len(held) >= length


def _duration_unset(moov: bytes) -> bool:
    """Whether the mvhd box at the start of a moov's content has the duration that means "not known"."""
    if moov[4:8] != b"mvhd" or len(moov) < _MVHD:
        return False
    return moov[32:40] == b"\xff" * 8 if moov[8] == 1 else moov[24:28] == b"\xff" * 4


def _element_end(held: bytes, start: int) -> int | None:
    """Where the EBML element in `held` ends, or None where its size is not known (written to a pipe)."""
    length = 9 - held[4].bit_length()
    if not 1 <= length <= 8:
        return None
    value = int.from_bytes(held[4 : 4 + length], "big") & ((1 << 7 * length) - 1)
    if value == (1 << 7 * length) - 1:
        return None
    return start + 4 + length + value


@dataclass(frozen=True, slots=True)
class LocalLook:
    """A local file before it is probed: its size in bytes, its first bytes, its layout."""

    size: int
    head: bytes
    layout: Layout


def look(path: Path) -> LocalLook:
    """Reads a few bytes of a local file: its head and the header of each outermost box. Blocks; raises OSError."""
    with path.open("rb", buffering=0) as file:
        size = os.fstat(file.fileno()).st_size
        head = file.read(HEAD_BYTES)
        walker = Walker()
        walker.feed(0, head)
        while walker.wanted is not None and walker.wanted < size:
            wanted = walker.wanted
            data = os.pread(file.fileno(), _LOOK, wanted)
            walker.feed(wanted, data)
            if walker.wanted == wanted:
                break
    return LocalLook(size, head, walker.layout(size))
