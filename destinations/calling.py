"""One HTTP call to a host, and what it means when no answer comes.

One wall-clock limit per call, answers of bounded length, and a create's `landed` known from whether anything had left
us.
"""

from __future__ import annotations

import asyncio
import re
import ssl
from collections.abc import AsyncIterable, AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

import httpx

from faults import Fault

CONNECTIONS: Final = 100
"""Connections of one account's client: four pages of 25 rows at once."""
KEEPALIVE_S: Final = 4.0
"""Idle connections are closed by us before the 5 s after which common servers do: a request written to a connection
that is just being closed would count as a lost answer."""

_URL: Final = re.compile(
    r"""(?P<scheme>[a-z][a-z0-9+.-]*://)"""
    r"""(?P<user>[^\s/?#@"'<>]*@)?"""
    r"""(?P<rest>[^\s?#"'<>\\]*)"""
    r"""(?P<query>[?#][^\s"'<>]*)?""",
    re.IGNORECASE,
)
_AUTHORIZATION: Final = re.compile(r"\b(Bearer|Basic|Token)\s+[A-Za-z0-9._~+/=:-]{4,}", re.IGNORECASE)
_PARAMETER: Final = re.compile(
    r"""\b((?:x-amz-|x-goog-)[a-z-]+|signature|sig|(?:access_?)?token|api_?key|password|secret|policy)=[^\s&"'<>]+""",
    re.IGNORECASE,
)


def redacted(message: str, secrets: Sequence[str] = ()) -> str:
    """`message` without these secrets, without credentials and queries of addresses in it, and without authorization
    headers and signing parameters: hosts quote what they were sent."""
    for secret in secrets:
        if len(secret) >= 4:
            message = message.replace(secret, "…")
    message = _URL.sub(lambda m: m["scheme"] + m["rest"] + ("?…" if m["query"] else ""), message)
    message = _PARAMETER.sub(r"\1=…", message)
    return _AUTHORIZATION.sub(r"\1 …", message)


@dataclass(frozen=True, slots=True)
class Answer:
    """A host's answer, read to its end."""

    status: int
    headers: Mapping[str, str]
    content: bytes


@cache
def _tls() -> ssl.SSLContext:
    """One for all clients: each takes 20 ms to make. Obeys SSL_CERT_FILE and SSL_CERT_DIR."""
    return httpx.create_ssl_context()


class Caller:
    """Makes one call at a time over a pooled client, and says what went wrong with it.

    `timeout_s` is the wall-clock limit of a whole call, from waiting for a connection to the last byte. `secrets` never
    appear in a fault's text.
    """

    def __init__(
        self,
        base_url: str,
        *,
        headers: Mapping[str, str],
        timeout_s: float,
        max_answer_bytes: int,
        secrets: Sequence[str],
    ) -> None:
        self._base_url = base_url.rstrip("/")
        self._timeout_s = timeout_s
        self._max_answer_bytes = max_answer_bytes
        self._secrets = tuple(secrets)
        self._headers = {name.lower(): value for name, value in headers.items()}
        self.on_headers: Callable[[Mapping[str, str]], None] | None = None
        """Told the headers of every answer of the account's own host: what is left of its limits stands there."""
        self._slots = asyncio.Semaphore(CONNECTIONS)
        self._free: list[httpx.AsyncClient] = []
        self._all: set[httpx.AsyncClient] = set()

    @asynccontextmanager
    async def _client(self) -> AsyncIterator[httpx.AsyncClient]:
        """The client last used, so that few connections stay warm; a new one where all are in use.

        Each has a single connection: httpx's own pool looks at every connection for every other one on each request,
        which at 25 connections costs more than the request itself. One whose call failed is not used again.
        """
        client = self._free.pop() if self._free else self._new_client()
        try:
            yield client
        except BaseException:
            self._all.discard(client)
            await client.aclose()
            raise
        self._free.append(client)

    def _new_client(self) -> httpx.AsyncClient:
        client = httpx.AsyncClient(
            headers=self._headers,
            verify=_tls(),
            timeout=None,  # noqa: S113 - asyncio.timeout limits the whole call; httpx could only limit each read
            limits=httpx.Limits(max_connections=1, max_keepalive_connections=1, keepalive_expiry=KEEPALIVE_S),
            # Loopback is never asked of a proxy that the environment names.
            mounts={"all://127.0.0.1": None, "all://localhost": None, "all://[::1]": None},
            follow_redirects=False,
        )
        self._all.add(client)
        return client

    def redacted(self, message: str) -> str:
        return redacted(message, self._secrets)

    async def call(
        self,
        method: str,
        path: str,
        *,
        creating: bool = False,
        params: Mapping[str, str] | None = None,
        content: bytes | AsyncIterable[bytes] | None = None,
        headers: Mapping[str, str] | None = None,
        timeout_s: float | None = None,
    ) -> Answer:
        """One request and its answer, whatever its status. Raises Fault where there is none; with `creating`, its
        `landed` says whether the request had begun to leave us.

        `path` is below the base address, or an address that the host gave; the account's credentials go to the base
        address's server alone. Content is JSON unless `headers` say another `content-type`; content that is read while
        it is sent needs its `content-length` there too. `timeout_s` is this call's limit where it is not the usual one.
        """
        sent = False
        limit_s = self._timeout_s if timeout_s is None else timeout_s

        async def trace(event: str, _: Mapping[str, Any]) -> None:
            nonlocal sent
            sent = sent or event.endswith("send_request_headers.started")

        try:
            async with asyncio.timeout(limit_s), self._slots, self._client() as client:
                request = client.build_request(
                    method,
                    self._base_url + path if path.startswith("/") else path,
                    params=params,
                    content=content,
                    headers={**({} if content is None else {"content-type": "application/json"}), **(headers or {})},
                    extensions={"trace": trace},
                )
                if not self._is_own(request.url):
                    for name in self._headers.keys() - {name.lower() for name in headers or {}}:
                        request.headers.pop(name, None)
                response = await client.send(request, stream=True)
                if self.on_headers is not None and self._is_own(request.url):
                    self.on_headers(response.headers)
                try:
                    return Answer(response.status_code, response.headers, await self._content(response, creating))
                finally:
                    await response.aclose()
        except TimeoutError:
            raise self._lost(
                creating and sent,
                "destination-timeout" if sent else "destination-unreachable",
                f"no answer within {limit_s:g} s",
            ) from None
        except httpx.DecodingError:
            raise self._lost(creating, "answer-malformed", "the answer's content encoding is broken") from None
        except (httpx.InvalidURL, httpx.UnsupportedProtocol, httpx.LocalProtocolError, UnicodeError) as error:
            # Refused by the HTTP library before anything left us. Its words may quote a header: only its name is shown.
            raise Fault("settings-refused", f"base_url or headers: refused ({type(error).__name__})") from None
        except httpx.HTTPError as error:
            words = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
            raise self._lost(creating and sent, "destination-unreachable", words) from None

    def _is_own(self, url: httpx.URL) -> bool:
        own = httpx.URL(self._base_url)
        return (url.scheme, url.host, url.port) == (own.scheme, own.host, own.port)

    async def _content(self, response: httpx.Response, creating: bool) -> bytes:
        content = bytearray()
        async for chunk in response.aiter_bytes():
            content += chunk
            if len(content) > self._max_answer_bytes:
                words = f"the answer is longer than {self._max_answer_bytes} bytes"
                raise self._lost(creating, "answer-malformed", words)
        return bytes(content)

    def _lost(self, landed: bool, reason: str, words: str) -> Fault:
        """The fault of a call whose answer did not come: for a create that had left us, always `answer-lost`."""
        return Fault("answer-lost" if landed else reason, self.redacted(words), landed=landed)

    async def aclose(self) -> None:
        for client in self._all:
            await client.aclose()
