"""Bodies of the kind multipart/form-data with one file in them, as hosts take captions, posters and parts of videos."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass

import httpx

from destinations.sending import LocalFile


@dataclass(frozen=True, slots=True)
class Form:
    """A body around one file's bytes: what stands before and behind them, and the header that says so."""

    head: bytes
    tail: bytes
    content_type: str

    @classmethod
    def of(cls, name: str, media_type: str, field: str = "file") -> Form:
        empty = httpx.Request("POST", "http://form", files={field: (name, b"", media_type)})
        head, gap, tail = empty.read().partition(b"\r\n\r\n")
        return cls(head + gap, tail, empty.headers["content-type"])

    def around(self, content: bytes) -> bytes:
        return self.head + content + self.tail

    def length(self, content: int) -> int:
        """Bytes of the whole body, for so many in the file."""
        return len(self.head) + content + len(self.tail)

    async def around_part(self, file: LocalFile, start: int, end: int) -> AsyncIterator[bytes]:
        """The body around these bytes of a file, which are read while they are sent. Raises Fault("file-changed")."""
        yield self.head
        async for block in file.blocks(start, end):
            yield block
        yield self.tail
