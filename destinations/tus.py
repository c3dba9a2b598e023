"""Resumable uploads by the tus protocol, version 1.0.0 (https://tus.io/protocols/resumable-upload): its core and its
creation extension, over the same calls as everything else: one wall-clock limit each, told apart whether they landed,
in their turn of the account's budget.
"""

from __future__ import annotations

import base64
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final
from urllib.parse import parse_qsl, urljoin, urlsplit

from destinations.answers import parsed
from destinations.base import Turn
from destinations.calling import Answer, Caller
from destinations.sending import LocalFile, SessionGone, in_chunks, patience_s
from faults import Fault

VERSION: Final = {"Tus-Resumable": "1.0.0"}
_HARMLESS: Final = frozenset({"tusv2"})
"""Parameters of an upload's address that say nothing but which server answers there."""


def metadata(values: Mapping[str, str | None]) -> str:
    """The Upload-Metadata header: names, each with its value in Base64, or alone where there is none."""
    return ",".join(
        name if value is None else f"{name} {base64.b64encode(value.encode('utf-8', 'replace')).decode()}"
        for name, value in values.items()
    )


def may_be_kept(location: str) -> bool:
    """Whether an upload's address can stand in the ledger: a query or a user name in it may be what gives access."""
    parts = urlsplit(location)
    return not parts.username and all(name in _HARMLESS for name, _ in parse_qsl(parts.query, keep_blank_values=True))


@dataclass(frozen=True, slots=True)
class Tus:
    """One file's upload at one host. `signed` gives what the host wants with each request beside the account's own;
    `refused` makes the fault of an answer that is no success, out of it, its JSON and whether it was to create."""

    caller: Caller
    base_url: str
    timeout_s: float
    refused: Callable[[Answer, Any, bool], Fault]
    turn: Turn
    signed: Callable[[], Mapping[str, str]] = dict

    async def create(
        self, path: str, length: int, about: Mapping[str, str | None], extra: Mapping[str, str] = MappingProxyType({})
    ) -> tuple[str, Answer]:
        """Announces `length` bytes, with `extra` headers. Returns the upload's address — its path where it is at the
        account's own server — and the answer. One request. Raises Fault with `landed`, SessionGone."""
        announced = {"Upload-Length": str(length), "Upload-Metadata": metadata(about)}
        headers = {**self.signed(), **extra, **VERSION, **announced}
        await self.turn()
        answer = await self.caller.call("POST", path, creating=True, headers=headers)
        if answer.status in (404, 410):
            raise SessionGone("destination-error", f"there is nothing to upload to: status {answer.status}")
        if not 200 <= answer.status < 300:
            raise self.refused(answer, parsed(answer.content)[0], True)
        location = answer.headers.get("location", "")
        if not location:
            raise Fault("answer-lost", "the upload was announced, and the answer has no address for it", landed=True)
        location = urljoin(self.base_url.rstrip("/") + path, location)
        own = self.base_url.rstrip("/")
        return location.removeprefix(own) if location.startswith(own + "/") else location, answer

    async def offset(self, location: str) -> int:
        """How many bytes the host has. One request. Raises SessionGone."""
        await self.turn()
        answer = await self.caller.call("HEAD", location, headers={**self.signed(), **VERSION})
        if answer.status in (403, 404, 410):  # tus: any of them for an upload that is no longer there
            raise SessionGone("destination-error", f"the host knows no such upload: status {answer.status}")
        if not 200 <= answer.status < 300:
            raise self.refused(answer, parsed(answer.content)[0], False)
        return _offset(answer)

    async def patch(self, location: str, file: LocalFile, start: int, end: int) -> int:
        """Sends these bytes; how many the host has then. One request. Raises SessionGone."""
        headers = {
            **self.signed(),
            **VERSION,
            "Upload-Offset": str(start),
            "content-type": "application/offset+octet-stream",
            "content-length": str(end - start),
        }
        await self.turn()
        answer = await self.caller.call(
            "PATCH",
            location,
            content=file.blocks(start, end),
            headers=headers,
            timeout_s=patience_s(self.timeout_s, end - start),
        )
        if answer.status in (404, 410):
            raise SessionGone("destination-error", f"the host knows no such upload: status {answer.status}")
        if answer.status in (409, 423):  # tus: another offset than the host's; an earlier request still has the upload
            raise Fault("destination-error", f"status {answer.status}: the host is not where it was thought to be")
        if not 200 <= answer.status < 300:
            raise self.refused(answer, parsed(answer.content)[0], False)
        offset = _offset(answer)
        if not start < offset <= file.size:
            raise Fault("destination-error", f"the host was sent {end - start} bytes from {start}, and has {offset}")
        return offset

    async def send(
        self, location: str, file: LocalFile, chunk: int, sent: Callable[[int], Awaitable[None]], *, start: int | None
    ) -> None:
        """Sends the whole file from where the host stands; `start` where that is known. Raises SessionGone."""

        async def where() -> int:
            return await self.offset(location)

        async def send(begin: int, end: int) -> int:
            return await self.patch(location, file, begin, end)

        await in_chunks(file.size, chunk, where=where, send=send, sent=sent, start=start)


def _offset(answer: Answer) -> int:
    told = answer.headers.get("upload-offset", "")
    if not (told.isascii() and told.isdigit() and len(told) <= 18):
        raise Fault("answer-malformed", "the host does not say how many bytes it has")
    return int(told)
