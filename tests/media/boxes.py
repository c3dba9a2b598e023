"""MP4 files taken apart and put together again, to make those that no muxer would write (ISO/IEC 14496-12)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

Change = Callable[[bytes], bytes | None]

MVHD = (b"moov", b"mvhd")
TKHD = (b"moov", b"trak", b"tkhd")
MDHD = (b"moov", b"trak", b"mdia", b"mdhd")
DREF = (b"moov", b"trak", b"mdia", b"minf", b"dinf", b"dref")
STBL = (b"moov", b"trak", b"mdia", b"minf", b"stbl")


def box(kind: bytes, content: bytes = b"") -> bytes:
    return (8 + len(content)).to_bytes(4, "big") + kind + content


def boxes(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Kind and content of each box in `data`, one after the other."""
    at = 0
    while at + 8 <= len(data):
        length = int.from_bytes(data[at : at + 4], "big")
        yield data[at + 4 : at + 8], data[at + 8 : at + length]
        at += length


def offsets(data: bytes, kind: bytes) -> list[int]:
    """Where the outermost boxes of this kind begin."""
    found, at = [], 0
    for name, content in boxes(data):
        if name == kind:
            found.append(at)
        at += 8 + len(content)
    return found


def changed(data: bytes, path: Sequence[bytes], change: Change) -> bytes:
    """`data` with the content of each box at `path` replaced by what `change` makes of it; None drops the box. Only for
    a file whose index stands behind its pictures: their offsets stay."""
    result = b""
    for kind, content in boxes(data):
        kept: bytes | None = content
        if kind == path[0]:
            kept = change(content) if len(path) == 1 else changed(content, path[1:], change)
        if kept is not None:
            result += box(kind, kept)
    return result


def with_durations(mp4: bytes, value: int, *, version: int, paths: Sequence[Sequence[bytes]]) -> bytes:
    """`mp4` with the header boxes at `paths` in this version (1 has 64 bits for times) and their durations `value`."""
    for path in paths:
        mp4 = changed(mp4, path, lambda content, at=path: _header(content, at[-1], value, version))  # type: ignore[misc]
    return mp4


def _header(content: bytes, kind: bytes, value: int, version: int) -> bytes:
    # Version 0: version and flags, created, changed, [id, reserved] or time scale, duration, the rest.
    fixed = 20 if kind == b"tkhd" else 16
    assert content[0] == 0
    if version == 0:
        return content[:fixed] + value.to_bytes(4, "big") + content[fixed + 4 :]
    times = bytes(4) + content[4:8] + bytes(4) + content[8:12]
    return b"\x01" + content[1:4] + times + content[12:fixed] + value.to_bytes(8, "big") + content[fixed + 4 :]


def shown(mp4: bytes, a: float, b: float, c: float, d: float) -> bytes:
    """`mp4` whose first track has this display matrix: x' = ax + cy, y' = bx + dy, y pointing down."""
    first = True

    def change(content: bytes) -> bytes:
        nonlocal first
        if not first:
            return content
        first = False
        values = [round(v * 0x10000) & 0xFFFFFFFF for v in (a, b, 0, c, d, 0, 0, 0)] + [0x40000000]
        return content[:40] + b"".join(value.to_bytes(4, "big") for value in values) + content[76:]

    return changed(mp4, TKHD, change)


def referring(mp4: bytes, reference: bytes) -> bytes:
    """`mp4` whose tracks say that their pictures and sound lie in another file: `reference` is the entry of their dref
    boxes."""
    return changed(mp4, DREF, lambda content: content[:4] + (1).to_bytes(4, "big") + reference)


def url_reference(address: str) -> bytes:
    return box(b"url ", bytes(4) + address.encode() + b"\x00")


def alias_reference(path: str) -> bytes:
    """A Macintosh alias record, version 2, whose only extra entry is the path (18: a POSIX path)."""
    name = path.encode()
    extra = (18).to_bytes(2, "big") + len(name).to_bytes(2, "big") + name + bytes(len(name) % 2) + b"\xff\xff\x00\x00"
    return box(b"alis", bytes(4) + bytes(4) + (150 + len(extra)).to_bytes(2, "big") + b"\x00\x02" + bytes(142) + extra)
