"""ffprobe reads a remote file through this relay, which speaks to the source in its place.

Why not hand the source's address to ffprobe: it follows redirects by itself, into our own network too; it resolves the
name again after we checked it; it sends the location's headers on to whatever host a redirect names; it does not verify
certificates unless told; a signed address would stand in the process list; and when it fails, a second request would be
needed to learn why, which a source may answer differently. The relay asks for exactly the ranges that ffprobe asks for
and stops when ffprobe does, so the source sends what it would have sent to ffprobe, and sees no request more.

It listens on loopback for the length of one probe, behind a random path, and serves one file.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import functools
import logging
import re
import secrets
import socket
import ssl
import zlib
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from types import TracebackType
from typing import Final
from urllib.parse import unquote, urljoin

import httpx

import faults
from faults import Fault
from governor.retry_after import parse_retry_after
from media.addresses import Target, check_address
from media.layout import Walker
from media.sniff import HEAD_BYTES
from sources.addresses import redact
from sources.base import Location

# At DEBUG, httpcore logs the headers of each answer, and a redirect's Location holds signatures.
logging.getLogger("httpcore").setLevel(logging.INFO)

REDIRECTS_MAX: Final = 8
"""As many as ffmpeg's own HTTP client follows."""
_CONNECT_S: Final = 15.0
_REQUEST_LIMIT: Final = 16_384
_BUFFER: Final = 16_384
"""Bytes that may wait between the source and ffprobe: what is read in vain when ffprobe has seen enough."""
_FIRST_WINDOW: Final = 16_384
"""Bytes of the source's answer that the kernel may hold at first (it takes twice as much). Left to itself it takes
megabytes that ffprobe, which mostly reads some hundred kilobytes and goes, never reads."""
_WIDEN_AFTER: Final = 196_608
"""Bytes of one answer after which it is a long one: then `_WINDOW` lets more than 1 MB a second through, at 100 ms of
round trip."""
_WINDOW: Final = 131_072
_RANGE_REFUSALS: Final = frozenset({400, 406, 416, 501})
"""Statuses with which servers answer a Range header that they don't like; asked again without one."""

_RANGE: Final = re.compile(rb"^range:\s*bytes=(\d+)-(\d*)\s*$", re.I | re.M)
_CONTENT_RANGE: Final = re.compile(r"^\s*bytes\s+([0-9]{1,18})-([0-9]{1,18})/([0-9]{1,18}|\*)\s*$", re.I)
_UNSATISFIED: Final = re.compile(r"^\s*bytes\s+\*/([0-9]{1,18})\s*$", re.I)
_HEADER_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_INFLATED: Final = frozenset({"gzip", "x-gzip", "deflate"})
"""Content codings that are undone, where a server applies one unasked."""
_COMPRESSED: Final = _INFLATED | {"br", "zstd", "compress", "x-compress", "dcb", "dcz"}
"""What changes the bytes; anything else in Content-Encoding is a label ("aws-chunked", "utf-8") on a plain file."""
_SUFFIX: Final = re.compile(r"\.[A-Za-z0-9]{1,8}$")


@dataclass(slots=True)
class Seen:
    """What the source answered, as far as ffprobe has read. `size` is the whole file's size in bytes where the source
    says it; `received` counts body bytes over all requests."""

    status: int | None = None
    content_type: str = ""
    size: int | None = None
    size_changed: bool = False
    received: int = 0
    requests: int = 0
    head: bytearray = field(default_factory=bytearray)
    ended_at: int | None = None
    """where the body ended, where it was read to its end from the start and no size was announced"""
    fault: Fault | None = None
    ranges_lie: bool = False
    """ranges were announced, and not kept to"""
    encoded: bool = False
    """the source sent the file compressed, though it was told not to: sizes that it names are not the file's"""
    walker: Walker = field(default_factory=Walker)


class Relay:
    """Serves the file at `location` to one ffprobe at `url`, for as long as it is entered."""

    def __init__(self, location: Location, *, allow_private: bool, ranges: bool = True) -> None:
        for name, value in location.headers.items():
            if not _HEADER_NAME.fullmatch(name) or not value.isascii() or re.search(r"[\r\n\x00]", value):
                words = f"the header {name[:80]!r} of its address holds a line break, or what no header may hold"
                raise Fault("source-address-refused", words)
        self.seen = Seen()
        self.url = ""
        self.crash: Exception | None = None
        """what nobody foresaw; for the caller to raise"""
        self._allow_private = allow_private
        self._ranges = ranges
        self._address = location.address
        self._headers: Mapping[str, str] = dict(location.headers)
        self._token = secrets.token_urlsafe(18)
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self._closing = False
        # Not a client: that reads a redirect's address by itself, fails on what is none, and passes on cookies by the
        # number of the machine, whatever the name of the host.
        self._transport: httpx.AsyncHTTPTransport | None = None

    async def __aenter__(self) -> Relay:
        self._transport = httpx.AsyncHTTPTransport(
            verify=_tls(),
            trust_env=False,
            limits=httpx.Limits(max_keepalive_connections=0),
            socket_options=[(socket.SOL_SOCKET, socket.SO_RCVBUF, _FIRST_WINDOW)],
        )
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0, limit=_REQUEST_LIMIT)
        port = self._server.sockets[0].getsockname()[1]
        path = self._address.partition("?")[0].partition("#")[0]
        suffix = _SUFFIX.search(path)
        self.url = f"http://127.0.0.1:{port}/{self._token}{suffix.group() if suffix else ''}"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server is not None
        assert self._transport is not None
        self._closing = True
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._transport.aclose()

    async def current_size(self) -> int | None:
        """Asks the source for one byte, to learn the file's size as it is now; None where it doesn't say."""
        try:
            async with self._open(0, last=0) as response:
                return _total(response)
        except (Fault, httpx.HTTPError):
            return None

    async def whole(self, limit: int) -> bytes:
        """The whole file, of at most `limit` bytes, read here instead of by ffprobe. Raises Fault: a source reason,
        "file-growing" where less comes than was announced, and "too-large"."""
        content = bytearray()
        try:
            async with self._open(0) as response:
                self._demand_success(response)
                async for chunk in response.aiter_bytes():
                    content += chunk
                    if len(content) > limit:
                        raise Fault("too-large", f"{redact(self._address)}: more than {limit} bytes")
        except httpx.RemoteProtocolError as error:
            raise Fault("file-growing", f"{redact(self._address)}: it ended early") from error
        except httpx.DecodingError as error:
            raise Fault("source-unreachable", f"{redact(self._address)}: its encoding is broken") from error
        except httpx.HTTPError as error:
            raise _of_transport(error, self._address) from error
        return bytes(content)

    # ------------------------------------------------------------------------------------------------ towards ffprobe

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            await self._serve(reader, writer)
        except asyncio.CancelledError:
            # The relay closes. Not raised again: this task has no awaiter, and asyncio would log it as an error.
            if not self._closing:
                raise
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # ffprobe has seen enough, and went
        except Exception as error:  # noqa: BLE001  # raised by whoever waits for ffprobe, which only sees an empty answer
            self.crash = self.crash or error
        finally:
            self._tasks.discard(task)
            writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.transport.set_write_buffer_limits(high=_BUFFER)
        connection: socket.socket = writer.get_extra_info("socket")
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _BUFFER)
        request = await reader.readuntil(b"\r\n\r\n")
        if not request.startswith(f"GET /{self._token}".encode()):
            _answer(writer, 404)
            return
        asked = _RANGE.search(request.replace(b"\r\n", b"\n"))
        offset = int(asked.group(1)) if asked else 0
        try:
            async with self._open(offset) as response:
                onward = await self._pass_on(offset, response, writer)
            while onward is not None:
                async with self._open(onward) as response:
                    onward = await self._go_on(onward, response, writer)
        except Fault as fault:
            self._fail(fault)
            _answer(writer, 502)
        except httpx.HTTPError as error:
            self._fail(_of_transport(error, self._address))
            if not writer.is_closing():
                _answer(writer, 502)

    async def _pass_on(self, offset: int, response: httpx.Response, writer: asyncio.StreamWriter) -> int | None:
        """Streams one answer of the source to ffprobe. Where the source sends less than was asked for at a time, the
        place to ask for next."""
        seen = self.seen
        seen.status = response.status_code if seen.status is None else seen.status
        seen.content_type = seen.content_type or response.headers.get("content-type", "")
        if response.status_code == 416:
            empty = _UNSATISFIED.match(response.headers.get("content-range", ""))
            if empty:
                seen.size = int(empty.group(1))
            _answer(writer, 416)
            return None
        self._demand_success(response)
        part = _part(response)
        coding = response.headers.get("content-encoding", "").strip().lower()
        compressed = not _COMPRESSED.isdisjoint(name.strip() for name in coding.split(","))
        if compressed and offset == 0 and (part is None or part.start == 0):
            await self._pass_inflated(coding, response, writer)
            return None
        # A part without a place may stand anywhere; so may one of a compressed file.
        start = part.start if part else 0
        if start != offset or compressed or (part is None and response.status_code == 206):
            if not self._ranges:
                raise Fault("source-unreachable", f"{redact(self._address)} sends other parts than it is asked for")
            seen.ranges_lie = True
            _answer(writer, 502)
            return None
        total = _total(response)
        if total is not None:
            seen.size_changed = seen.size_changed or (seen.size is not None and total != seen.size)
            seen.size = total
        length = _content_length(response)
        # Of a part of nobody knows how much, ffprobe would not know where it is: it gets the file from its start.
        placed = part is not None and total is not None
        seekable = self._ranges and (
            placed or (part is None and response.headers.get("accept-ranges", "").lower() == "bytes")
        )
        lines = ["HTTP/1.1 206 Partial Content" if placed else "HTTP/1.1 200 OK", "Connection: close"]
        if placed and total is not None:
            lines += [f"Content-Length: {total - offset}", f"Content-Range: bytes {offset}-{total - 1}/{total}"]
        elif length is not None and part is None:
            lines.append(f"Content-Length: {length}")
        if seekable:
            lines.append("Accept-Ranges: bytes")
        writer.write("\r\n".join([*lines, "", ""]).encode("latin-1"))
        at = await self._stream(offset, response, writer)
        if part is not None and (total is None or at < total):
            return at if at > offset else None
        if seen.size is None and offset == 0:
            seen.ended_at = at
        return None

    async def _go_on(self, offset: int, response: httpx.Response, writer: asyncio.StreamWriter) -> int | None:
        """Streams what follows an answer that the source ended early; the place to ask for next, None at the end."""
        seen = self.seen
        if response.status_code == 416 and seen.size is None:
            seen.size = offset
            return None
        self._demand_success(response)
        part = _part(response)
        if part is None or part.start != offset or part.total not in (None, seen.size):
            raise Fault("source-unreachable", f"{redact(self._address)} sends other parts than it is asked for")
        at = await self._stream(offset, response, writer)
        if at == offset:
            raise Fault("file-growing", f"{redact(self._address)} announced {seen.size} bytes and sent {at}")
        return at if seen.size is None or at < seen.size else None

    def _demand_success(self, response: httpx.Response) -> None:
        status = response.status_code
        if status >= 400:
            raise Fault(
                faults.of_source_status(status),
                f"{redact(self._address)} answered {status} {response.reason_phrase}".rstrip(),
                retry_after=parse_retry_after(response.headers.get("retry-after"), datetime.now(UTC)),
            )
        if status >= 300:
            raise Fault("source-unreachable", f"{redact(self._address)} answered {status}, leading nowhere")

    async def _stream(self, offset: int, response: httpx.Response, writer: asyncio.StreamWriter) -> int:
        """Passes on the body of an answer that begins at `offset`; where it ended."""
        at = offset
        length = _content_length(response)
        widened = False
        try:
            async for chunk in response.aiter_raw():
                self._note(at, chunk)
                at += len(chunk)
                if not widened and at - offset > _WIDEN_AFTER:
                    widened = True
                    _widen(response)
                writer.write(chunk)
                await writer.drain()
        except (httpx.RemoteProtocolError, httpx.ReadError) as error:
            if length is None:
                raise
            raise Fault(
                "file-growing", f"{redact(self._address)} announced {length} bytes and sent {at - offset}"
            ) from error
        return at

    async def _pass_inflated(self, coding: str, response: httpx.Response, writer: asyncio.StreamWriter) -> None:
        """Streams what a server compressed, as any player would read it: from the start, its length unknown."""
        self.seen.encoded = True
        if coding not in _INFLATED:
            words = f"{redact(self._address)} sends it encoded as {coding[:40]!r}, which was not asked for"
            raise Fault("source-unreachable", words)
        writer.write(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n")
        at = 0
        inflate = _inflater()
        try:
            async for chunk in response.aiter_raw():
                received = self.seen.received + len(chunk)
                while chunk:
                    # In small pieces, whatever a few bytes may unfold into.
                    inflate = _inflater() if inflate.eof else inflate
                    piece = inflate.decompress(chunk, _BUFFER)
                    chunk = inflate.unconsumed_tail or inflate.unused_data
                    self._note(at, piece)
                    at += len(piece)
                    writer.write(piece)
                    await writer.drain()
                self.seen.received = received  # what came, not what it unfolded into
        except (httpx.RemoteProtocolError, httpx.ReadError) as error:
            raise Fault("file-growing", f"{redact(self._address)}: its {coding} encoding ends too early") from error
        except zlib.error as error:
            raise Fault("source-unreachable", f"{redact(self._address)}: its {coding} encoding is broken") from error
        if not inflate.eof:
            raise Fault("file-growing", f"{redact(self._address)}: its {coding} encoding ends too early")
        self.seen.ended_at = at

    def _note(self, offset: int, chunk: bytes) -> None:
        seen = self.seen
        seen.received += len(chunk)
        if offset == len(seen.head) < HEAD_BYTES:
            seen.head += chunk[: HEAD_BYTES - len(seen.head)]
        seen.walker.feed(offset, chunk)

    def _fail(self, fault: Fault) -> None:
        # The first failure is the cause; what ffprobe tries afterwards only follows from it.
        if self.seen.fault is None:
            self.seen.fault = fault

    # --------------------------------------------------------------------------------------------- towards the source

    @contextlib.asynccontextmanager
    async def _open(self, offset: int, last: int | None = None) -> AsyncIterator[httpx.Response]:
        """The source's answer from byte `offset` on, after redirects. Raises Fault and httpx.HTTPError."""
        response = await self._follow(offset, last)
        try:
            yield response
        finally:
            await response.aclose()

    async def _follow(self, offset: int, last: int | None) -> httpx.Response:
        wanted = f"bytes={offset}-{'' if last is None else last}" if self._ranges else None
        for _ in range(REDIRECTS_MAX + 1):
            target = await check_address(self._address, allow_private=self._allow_private)
            response = await self._send(target, wanted)
            if wanted and offset == 0 and response.status_code in _RANGE_REFUSALS and not _is_empty(response):
                await response.aclose()
                self._ranges, wanted = False, None
                response = await self._send(target, None)
            onward = response.headers.get("location")
            if response.status_code not in (301, 302, 303, 307, 308) or onward is None:
                return response
            await response.aclose()
            await self._redirect(target, onward)
        raise Fault("source-unreachable", f"{redact(self._address)}: more than {REDIRECTS_MAX} redirects")

    async def _redirect(self, target: Target, onward: str) -> None:
        """Moves to where a redirect leads, for this request and all later ones. What was given for one origin (headers,
        user and password) is not sent to another."""
        base = f"{target.scheme}://{target.host_header}{target.target}"
        try:
            address = urljoin(base, onward)
        except ValueError:
            raise Fault("source-address-refused", f"{redact(self._address)} redirects to a malformed address") from None
        if address.lower().startswith(f"{target.scheme}://{target.host_header}/".lower()):
            if target.userinfo and "@" not in address.partition("://")[2].partition("/")[0]:
                address = address.replace("://", f"://{target.userinfo}@", 1)
        else:
            self._headers = {}
        self._address = address

    async def _send(self, target: Target, wanted: str | None) -> httpx.Response:
        """One GET to one of the checked addresses of `target`: the next one where a connection is not made."""
        assert self._transport is not None
        headers = {"Accept": "*/*", "Accept-Encoding": "identity", "User-Agent": "longhaul", **self._headers}
        headers["Host"] = target.host_header
        if wanted is not None:
            headers["Range"] = wanted
        if target.userinfo is not None and not any(name.lower() == "authorization" for name in headers):
            name, _, password = target.userinfo.partition(":")
            pair = f"{unquote(name)}:{unquote(password)}".encode()
            headers["Authorization"] = f"Basic {base64.b64encode(pair).decode()}"
        for position, address in enumerate(target.addresses, 1):
            netloc = f"[{address}]:{target.port}" if ":" in address else f"{address}:{target.port}"
            request = httpx.Request(
                "GET",
                f"{target.scheme}://{netloc}/",
                headers=headers,
                # The name for TLS, and path and query exactly as given, past all of httpx's normalizing.
                extensions={
                    "sni_hostname": target.host,
                    "target": target.target.encode("ascii"),
                    "timeout": httpx.Timeout(None, connect=_CONNECT_S).as_dict(),
                },
            )
            self.seen.requests += 1
            try:
                return await self._transport.handle_async_request(request)
            except (httpx.ConnectError, httpx.ConnectTimeout):
                if position == len(target.addresses):
                    raise
        raise Fault("source-unreachable", f"{target.host} has no address")


def _widen(response: httpx.Response) -> None:
    stream = response.extensions.get("network_stream")
    connection = stream.get_extra_info("socket") if stream is not None else None
    if connection is not None:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _WINDOW)


def _inflater() -> zlib._Decompress:
    return zlib.decompressobj(wbits=47)  # either header, gzip's or zlib's


@functools.cache
def _tls() -> ssl.SSLContext:
    """Certificates are verified. SSL_CERT_FILE and SSL_CERT_DIR name others than certifi's. Made once: it costs 10 ms
    and more."""
    return httpx.create_ssl_context()


def _answer(writer: asyncio.StreamWriter, status: int) -> None:
    writer.write(f"HTTP/1.1 {status} -\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".encode())


def _of_transport(error: httpx.HTTPError, address: str) -> Fault:
    """The fault for a request that got no answer. The error's own text is left out: it may repeat an address."""
    where = redact(address)
    if isinstance(error, httpx.TimeoutException):
        return Fault("source-timeout", f"{where}: no connection within {_CONNECT_S:.0f} s")
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLCertVerificationError):
            return Fault("source-unreachable", f"{where}: its certificate is not valid: {cause.verify_message}")
        cause = cause.__cause__ or cause.__context__
    return Fault("source-unreachable", f"{where}: {type(error).__name__}")


def _content_length(response: httpx.Response) -> int | None:
    text = response.headers.get("content-length", "").strip()
    return int(text) if text.isascii() and text.isdigit() and len(text) < 20 else None


@dataclass(frozen=True, slots=True)
class _Part:
    """Which bytes of the file a 206 holds, the last one included, and the file's size in bytes where it says so."""

    start: int
    last: int
    total: int | None


def _part(response: httpx.Response) -> _Part | None:
    """The place of a 206's body in the file; None for other statuses, and where none or an impossible one is named."""
    found = _CONTENT_RANGE.match(response.headers.get("content-range", "")) if response.status_code == 206 else None
    if found is None:
        return None
    start, last = int(found.group(1)), int(found.group(2))
    total = None if found.group(3) == "*" else int(found.group(3))
    return None if last < start or (total is not None and last >= total) else _Part(start, last, total)


def _total(response: httpx.Response) -> int | None:
    """The whole file's size in bytes, as an answer to a request for it or for part of it says."""
    part = _part(response)
    if part is not None:
        return part.total
    return _content_length(response) if response.status_code == 200 else None


def _is_empty(response: httpx.Response) -> bool:
    """Whether a 416 says that the file has no bytes, so that no range of it can be had."""
    found = _UNSATISFIED.match(response.headers.get("content-range", ""))
    return response.status_code == 416 and found is not None and int(found.group(1)) == 0
