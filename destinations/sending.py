"""Sending a local file in chunks: read from disk as it goes, noticed where it changes, gone on with after a kill.

A place in the ledger says which file was begun (size and time of last change) and what the host calls the transfer;
where it stands is asked of the host, or read from the place where a host doesn't tell.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import stat
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from io import FileIO
from typing import Final
from urllib.parse import unquote, urlsplit

from destinations.base import CreateRequest, Transfer, Turn
from destinations.calling import Answer, Caller
from faults import Fault, Scope, of_status

BLOCK: Final = 262_144
"""Bytes read from disk at once; what is in memory of a file that is being sent."""
SLOWEST: Final = 65_536
"""Bytes a second below which a chunk's call is given up as hanging."""
BREAKS: Final = 4
"""Breaks in a row without a byte more at the host, after which the transfer is left to a later attempt."""

_BROKEN: Final = frozenset({"destination-unreachable"})
"""Of the account's faults, the one that a connection cut within a chunk has too."""


@dataclass(frozen=True, slots=True)
class LocalFile:
    """A file as it was when it was looked at. `size` in bytes, `changed_ns` in nanoseconds since 1970."""

    path: str
    size: int
    changed_ns: int

    @classmethod
    async def of(cls, request: CreateRequest) -> LocalFile:
        """The file at the request's address, a path or a file: address. Raises Fault."""
        return await asyncio.to_thread(cls._of, request.address)

    @classmethod
    def _of(cls, address: str) -> LocalFile:
        path = unquote(urlsplit(address).path) if address.lower().startswith("file:") else address
        try:
            found = os.stat(path)
        except FileNotFoundError:
            raise Fault("source-not-found", "there is no such file") from None
        except PermissionError:
            raise Fault("source-forbidden", "the file may not be read") from None
        except (OSError, ValueError) as error:
            raise Fault("source-unreachable", f"the file cannot be read: {error}") from None
        if not stat.S_ISREG(found.st_mode):
            raise Fault("source-not-found", "the path is no file")
        if found.st_size == 0:
            raise Fault("file-empty", "the file has no bytes")
        return cls(path, found.st_size, found.st_mtime_ns)

    def place(self, **named: str) -> str:
        """A transfer's place: this file, and what the host calls the transfer. Never give it a secret."""
        return json.dumps({"size": self.size, "changed_ns": self.changed_ns, **named})

    def begun(self, transfer: Transfer) -> Mapping[str, str]:
        """What the host calls a transfer that was begun. Raises Fault("file-changed") where it was of another file."""
        try:
            kept = json.loads(transfer.place)
            size, changed_ns = kept.pop("size"), kept.pop("changed_ns")
        except (ValueError, AttributeError, KeyError):
            raise Fault("file-changed", "the transfer's place cannot be read: it is sent from the start") from None
        if (size, changed_ns) != (self.size, self.changed_ns):
            raise Fault("file-changed", f"it had {size} bytes when it was begun and has {self.size} now, or other ones")
        return {name: str(value) for name, value in kept.items()}

    async def blocks(self, start: int, end: int) -> AsyncIterator[bytes]:
        """The file's bytes from `start` up to before `end`, block by block. Raises Fault("file-changed")."""
        file = await asyncio.to_thread(self._open)
        try:
            while start < end:
                block = await asyncio.to_thread(self._read, file, start, min(BLOCK, end - start))
                start += len(block)
                yield block
        finally:
            file.close()

    def _open(self) -> FileIO:
        try:
            return open(self.path, "rb", buffering=0)
        except OSError:
            raise Fault("file-changed", "it can no longer be opened") from None

    def _read(self, file: FileIO, start: int, length: int) -> bytes:
        block = os.pread(file.fileno(), length, start)
        found = os.fstat(file.fileno())
        if not block or (found.st_size, found.st_mtime_ns) != (self.size, self.changed_ns):
            raise Fault("file-changed", "it changed while it was being sent")
        return block


def patience_s(timeout_s: float, length: int) -> float:
    """Wall-clock limit in seconds of a call that sends so many bytes."""
    return timeout_s + length / SLOWEST


async def in_chunks(
    size: int,
    chunk: int,
    *,
    where: Callable[[], Awaitable[int]],
    send: Callable[[int, int], Awaitable[int]],
    sent: Callable[[int], Awaitable[None]],
    start: int | None = None,
) -> None:
    """Sends everything. `where` asks the host how many bytes it has, `send(start, end)` sends a chunk and returns how
    many it has then; `sent` is told after each chunk. `start` is known for a transfer that is new, else it is asked.

    A break inside a chunk goes on from what the host has. Raises what `send` and `where` raise where no later try of
    theirs can help, where the account is to stop, and after a few breaks without a byte more.
    """
    breaks = 0
    offset = start
    while offset is None or offset < size:
        try:
            if offset is None:
                offset = await where()
                await sent(offset)
                continue
            offset_now = await send(offset, min(offset + chunk, size))
        except Fault as fault:
            breaks += 1
            mends = (fault.scope is Scope.ROW or fault.code in _BROKEN) and not isinstance(fault, SessionGone)
            if fault.permanent or not mends or breaks > BREAKS:
                raise
            await asyncio.sleep(0.1 * 2.0**breaks)
            offset = None
            continue
        if offset_now > offset:
            breaks = 0
        else:
            breaks += 1
            if breaks > BREAKS:
                raise Fault("destination-error", f"the host still has {offset_now} bytes after they were sent again")
        offset = offset_now
        await sent(offset)


class Session:
    """A resumable session at an address: PUT with Content-Range, and `bytes */<size>` asks where it stands, as Google
    Cloud Storage has it (https://cloud.google.com/storage/docs/performing-resumable-uploads), to which the addresses of
    several hosts lead.
    """

    def __init__(self, caller: Caller, address: str, file: LocalFile, *, turn: Turn, timeout_s: float) -> None:
        self._caller = caller
        self._address = address
        self._file = file
        self._turn = turn
        self._timeout_s = timeout_s

    async def where(self) -> int:
        """Bytes that the host has. Raises Fault."""
        await self._turn()
        headers = {"content-range": f"bytes */{self._file.size}", "content-length": "0"}
        return self._stands(await self._caller.call("PUT", self._address, content=b"", headers=headers))

    async def send(self, start: int, end: int) -> int:
        """Sends the bytes from `start` up to before `end`; returns how many the host has then. Raises Fault."""
        await self._turn()
        answer = await self._caller.call(
            "PUT",
            self._address,
            content=self._file.blocks(start, end),
            headers={
                "content-range": f"bytes {start}-{end - 1}/{self._file.size}",
                "content-length": str(end - start),
                "content-type": "application/octet-stream",
            },
            timeout_s=patience_s(self._timeout_s, end - start),
        )
        return self._stands(answer)

    def _stands(self, answer: Answer) -> int:
        if answer.status in (200, 201):
            return self._file.size
        if answer.status == 308:
            # Without the header nothing has come yet. "bytes=0-" is all that it can begin with.
            had = re.fullmatch(r"bytes=0-(\d+)", answer.headers.get("range", "").strip())
            return int(had[1]) + 1 if had else 0
        words = self._caller.redacted(answer.content[:300].decode("utf-8", "replace"))
        if answer.status in (404, 410):
            raise SessionGone("destination-error", f"the upload's session is gone: status {answer.status}")
        raise _refused(answer, words)


class Whole:
    """An address that takes a file in one PUT, from its first byte to its last."""

    def __init__(self, caller: Caller, address: str, file: LocalFile, *, turn: Turn, timeout_s: float) -> None:
        self._caller = caller
        self._address = address
        self._file = file
        self._turn = turn
        self._timeout_s = timeout_s

    async def where(self) -> int:
        """Nothing of a file stays after a break."""
        return 0

    async def send(self, start: int, end: int) -> int:
        """Sends all of it. Raises Fault."""
        await self._turn()
        answer = await self._caller.call(
            "PUT",
            self._address,
            content=self._file.blocks(0, self._file.size),
            headers={"content-length": str(self._file.size), "content-type": "application/octet-stream"},
            timeout_s=patience_s(self._timeout_s, self._file.size),
        )
        if not 200 <= answer.status < 300:
            raise _refused(answer, self._caller.redacted(answer.content[:300].decode("utf-8", "replace")))
        return self._file.size


def _refused(answer: Answer, words: str) -> Fault:
    # 401 and 403 are about the signed address, not about the account's credentials.
    reason = "destination-error" if answer.status in (401, 403) else of_status(answer.status)
    return Fault(reason, f"the upload's address answered with status {answer.status}: {words}")


class SessionGone(Fault):
    """What was sent so far is lost with the session: the transfer begins anew."""
