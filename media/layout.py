"""A look of our own at how an MP4, MOV, Matroska, WebM, AVI or ASF file is laid out: is its index there, and does any
part reach beyond the file's end?

ffprobe answers "4.0 s" and exit 0 for a file whose index is intact and whose pictures are missing, and a text that
differs between versions for one whose index is missing. Both are plain to see in the outermost boxes (ISO/IEC
14496-12, section 4.2), elements (RFC 8794, section 6; RFC 9559), chunks (RIFF) or objects (ASF): each says how long
it is.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
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
_RIFF_HEADER: Final = 12
_RIFF_SLACK: Final = 8
"""Bytes by which old writers of AVI are off: they count the chunk's own header, or don't."""
_ASF: Final = b"0&\xb2u\x8ef\xcf\x11"
_ASF_DATA: Final = b"6&\xb2u\x8ef\xcf\x11"
_ASF_HEADER: Final = 24
_ASF_LEAST: Final = 50
"""A data object without a packet: its size was not known when it was written."""
_NOT_KNOWN: Final = (
    frozenset({0xFFFFFFFF, 0x7FFFFFFF}),
    frozenset({0xFFFFFFFFFFFFFFFF, 0x7FFFFFFFFFFFFFFF, 0xFFFFFFFF, 0x7FFFFFFF}),
)
"""By the version of mvhd: durations that stand for "not known" (all ones, ISO/IEC 14496-12, 8.2.2), and the largest
ones that writers with signed numbers put there."""
_LONGEST_MS: Final = 1 << 53


@dataclass(frozen=True, slots=True)
class Layout:
    """What the outermost structure shows. `missing_bytes` is how many bytes the last part lacks (0: none, None: not
    known). `index_missing` and `data_missing` are True where the whole structure was seen and holds no index, or no
    pictures and sound. `header_duration_ms` is the movie header's duration in milliseconds, a start offset included;
    None where it was not seen, is none, or the file is fragmented, when it covers the first part only.
    `header_duration_unset` is True where it holds what stands for "not known"."""

    missing_bytes: int | None = None
    index_missing: bool = False
    data_missing: bool = False
    header_duration_unset: bool = False
    header_duration_ms: int | None = None

    @property
    def words(self) -> str:
        """What is wrong, for a person; empty where nothing is."""
        if self.missing_bytes:
            return f"its own structure announces {self.missing_bytes} bytes more than it has"
        if self.index_missing:
            return "it has no index, which is written last (moov): its writing or its upload was cut short"
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
        self._riff = False
        self._asf = False
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
        unset, header_ms = _header_duration(bytes(self._mvhd))
        if b"moof" in self._kinds:
            # A fragmented file's header cannot know its duration; that is no contradiction.
            unset, header_ms = False, None
        known = Layout(header_duration_unset=unset, header_duration_ms=header_ms)
        if self._end is None or size is None:
            return known
        if self._matroska and self.wanted is not None and size - self._end < _ELEMENT_HEADER:
            return replace(known, missing_bytes=self._end + _ELEMENT_HEADER - size)
        # Fewer than eight bytes after the last box are no box: padding.
        if not self._open and size - self._end >= _BOX_HEADER:
            return known
        boxes = not (self._matroska or self._riff or self._asf)
        missing = 0 if self._open else max(0, self._end - size)
        return replace(
            known,
            missing_bytes=0 if self._riff and missing <= _RIFF_SLACK else missing,
            index_missing=boxes and b"moov" not in self._kinds,
            data_missing=boxes and not self._kinds & {b"mdat", b"moof"},
        )

    def _read(self, start: int, held: bytes) -> None:
        """Reads the header that begins at `start`: moves to the next one, or asks for more of this one."""
        if self._riff or (start == 0 and held.startswith(b"RIFF")):
            self._read_riff(start, held)
        elif self._asf or (start == 0 and held.startswith(_ASF)):
            self._read_asf(start, held)
        elif held.startswith((_EBML, _SEGMENT)) and (self._matroska or start == 0):
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

    def _read_riff(self, start: int, held: bytes) -> None:
        """An AVI is a chunk of its own, or several, the later ones of the form AVIX (OpenDML AVI, 1996)."""
        if len(held) < _RIFF_HEADER:
            self._need = _RIFF_HEADER
            return
        length = int.from_bytes(held[4:8], "little")
        if not held.startswith(b"RIFF") or held[8:12] not in (b"AVI ", b"AVIX") or length in (0, 0xFFFFFFFF):
            # Another form, something behind the last chunk, or a size that was never filled in.
            self.wanted = None
            self._end = None if start == 0 or held.startswith(b"RIFF") else self._end
            return
        self._riff = True
        self._move(start, start + 8 + length + length % 2)

    def _read_asf(self, start: int, held: bytes) -> None:
        if len(held) < _ASF_HEADER:
            self._need = _ASF_HEADER
            return
        self._asf = True
        length = int.from_bytes(held[16:24], "little")
        self._boxes += 1
        if length < _ASF_HEADER or self._boxes > _BOXES_MAX or (held.startswith(_ASF_DATA) and length <= _ASF_LEAST):
            self.wanted = self._end = None
            return
        self._move(start, start + length)

    def _read_box(self, start: int, held: bytes) -> None:
        length, kind = int.from_bytes(held[:4], "big"), held[4:8]
        if held[:8] == bytes(8) and self._kinds and b"moov" not in self._kinds:
            # Room was made for the whole file, and its end has not been written. ffprobe too finds no index behind it.
            self._open = True
            self._end, self.wanted = start, None
            return
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


def _header_duration(moov: bytes) -> tuple[bool, int | None]:
    """Of the mvhd box at the start of a moov's content: whether its duration stands for "not known" (or for more years
    than there have been), and the duration in milliseconds where it names one."""
    if moov[4:8] != b"mvhd" or len(moov) < _MVHD:
        return False, None
    version = 1 if moov[8] == 1 else 0
    scale_at, length = (28, 8) if version else (20, 4)
    scale = int.from_bytes(moov[scale_at : scale_at + 4], "big")
    duration = int.from_bytes(moov[scale_at + 4 : scale_at + 4 + length], "big")
    ms = duration * 1000 // scale if scale else 0
    if duration in _NOT_KNOWN[version] or ms >= _LONGEST_MS:
        return True, None
    return False, ms or None


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
    """Reads a few bytes of a local file: its head and the header of each outermost box. Blocks, but not on a pipe that
    nobody writes to; raises OSError."""

    def opener(name: str, flags: int) -> int:
        return os.open(name, flags | os.O_NONBLOCK)

    with open(path, "rb", buffering=0, opener=opener) as file:
        size = os.fstat(file.fileno()).st_size
        # None: one that would have to wait, as the kernel's own log, has no bytes now.
        head = file.read(HEAD_BYTES) or b""
        walker = Walker()
        walker.feed(0, head)
        while walker.wanted is not None and walker.wanted < size:
            wanted = walker.wanted
            data = os.pread(file.fileno(), _LOOK, wanted)
            walker.feed(wanted, data)
            if walker.wanted == wanted:
                break
    return LocalLook(size, head, walker.layout(size))
