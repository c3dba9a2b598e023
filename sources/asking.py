"""Asking a host's HTTP API: one wall-clock limit a call, bounded answers, waits that the host asked for, and errors
that hold no secret.

What a status means is said here in two ways, since two kinds of question are asked: about the listing, where an error
stops the run, and about one video, where it stops that video only.
"""

from __future__ import annotations

import asyncio
import json
import random
import re
import ssl
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import cache
from typing import Any, Final
from urllib.parse import urlsplit

import httpx
from pydantic import BaseModel, ConfigDict, Field

from faults import Fault, of_source_status
from governor.retry_after import parse_retry_after
from sources.addresses import redact, scrub

BODY_LIMIT: Final = 33_554_432
"""Bytes of one answer: 500 items of 64 kB. More is not a listing."""
RETRY_WAIT_CAP_S: Final = 60.0
"""Seconds that are waited here for a host that asked for it. A longer wish parks the run, which then waits."""
RETRY_AFTER_CAP_S: Final = 86_400.0
_ENTITY_START: Final = re.compile(rb"\s*<")
_WISHES: Final = ("retry-after", "x-ratelimit-retry-after", "x-ratelimit-reset", "ratelimit-reset")
"""Headers that say when to come back: the standard one, api.video's, Vimeo's (a moment), and an older draft's."""
_STRUCTURED_RESET: Final = re.compile(r";\s*t=([0-9]+)")
"""In `Ratelimit: "default";r=0;t=30`, the draft that Cloudflare follows."""

Authorize = Callable[[str, httpx.URL, bool], Awaitable[Mapping[str, str]]]
"""Headers that let a request in, for its method and address. True: those given before were refused (401); answering
with the same ones again ends the matter."""


class ApiOptions(BaseModel):
    """What every source that asks an API has."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    max_pages: int = Field(default=100_000, ge=1)
    """Pages of the host after which the listing is taken to be endless."""
    timeout_s: float = Field(default=30.0, gt=0)
    """Wall-clock limit of one request, its answer included."""
    retries: int = Field(default=4, ge=0, le=10)
    """Further attempts at a request that met a 429, a 5xx or a broken connection."""
    retry_wait_s: float = Field(default=1.0, ge=0)
    """Before the first of them, where the host asks for nothing; then twice as long each time."""


class Refused(Exception):
    """The host answered with a status that is no success."""

    def __init__(
        self,
        status: int,
        words: str,
        retry_after: float | None = None,
        body: bytes = b"",
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(words)
        self.status = status
        self.words = words
        self.retry_after = retry_after
        self.body = body
        self.headers = headers or {}


class NoAnswer(Exception):
    """No answer could be had. `timed_out`: within `timeout_s`."""

    def __init__(self, words: str, *, timed_out: bool = False) -> None:
        super().__init__(words)
        self.words = words
        self.timed_out = timed_out


class Api:
    """One host's API. `headers` go with every request to it, `secrets` are hidden in whatever is said about it;
    `authorize` gives further headers where they differ by request or expire. `transport` stands in for the network.

    Raises Fault("settings-refused") for a secret that no header can carry, and for a base_url that is no address.
    """

    def __init__(
        self,
        base_url: str,
        options: ApiOptions,
        *,
        headers: Mapping[str, str] | None = None,
        secrets: Sequence[str] = (),
        authorize: Authorize | None = None,
        body_limit: int = BODY_LIMIT,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        if any(not secret.isascii() or not secret.isprintable() for secret in secrets):
            # Checked here because an HTTP library would name the token in its complaint.
            raise Fault("settings-refused", "the source's token holds characters that no header can carry")
        self.base = base_url.rstrip("/")
        self.headers = dict(headers or {})
        self._options = options
        self._secrets = tuple(secrets)
        for value in self.headers.values():
            if value.startswith("Basic "):
                # Hosts that quote what they were sent quote it so.
                self.hide(value.removeprefix("Basic "))
        self._authorize = authorize
        self._body_limit = body_limit
        self._not_before = 0.0
        self.url("/")
        self._client = httpx.AsyncClient(
            headers={"Accept": "application/json"},
            timeout=options.timeout_s,
            transport=transport,
            verify=_certificates(),
        )

    async def aclose(self) -> None:
        await self._client.aclose()

    def hide(self, secret: str) -> None:
        """From now on this is hidden too in whatever is said."""
        if secret not in self._secrets:
            self._secrets = (*self._secrets, secret)

    def url(self, path: str, params: Mapping[str, str] | None = None) -> httpx.URL:
        """An address below the base. `path` is already encoded. Raises Fault("settings-refused") where it is none."""
        try:
            url = httpx.URL(f"{self.base}/{path.lstrip('/')}")
        except httpx.InvalidURL as error:
            raise Fault("settings-refused", f"base_url or path make no address: {scrub(str(error))}") from None
        return url.copy_merge_params(dict(params)) if params else url

    def owns(self, address: str) -> bool:
        """Whether this is an address of the API's own scheme, host and port, which may be sent the token."""
        return _origin(address) == _origin(self.base)

    # ---------------------------------------------------------------------------------------------- about the listing

    async def listing(self, url: httpx.URL, *, method: str = "GET", json: Any = None) -> bytes:
        """The body of a 2xx answer; tried again a bounded number of times.

        Raises Refused for a status that trying again does not mend, Fault("source-down") when the tries are spent."""
        tries = self._options.retries + 1
        for attempt in range(tries):
            wish: float | None = None
            try:
                return await self.once(url, method=method, json=json)
            except NoAnswer as error:
                words = error.words
            except Refused as error:
                if error.status != 429 and error.status < 500:
                    raise
                words, wish = error.words, error.retry_after
            if wish is not None and wish > RETRY_WAIT_CAP_S:
                raise Fault("source-down", f"{words}; it asks to wait {wish:.0f} s", retry_after=wish)
            if attempt + 1 < tries:
                await asyncio.sleep(max(wish or 0.0, self._backoff(attempt)))
        raise Fault("source-down", f"{words} ({tries} attempts)", retry_after=wish)

    def fault(self, refused: Refused, rights: str = "") -> Fault:
        """What a refused question about the listing means. `rights`: which ones the credentials need, for a person."""
        if refused.status in (401, 403):
            return Fault("source-credentials-refused", refused.words + (f"; {rights}" if rights else ""))
        return Fault("listing-malformed", refused.words)

    def malformed(self, url: httpx.URL, words: str) -> Fault:
        return Fault("listing-malformed", f"{redact(str(url))}: {words}")

    def parsed(self, url: httpx.URL, body: bytes) -> Any:
        """JSON, or Fault("listing-malformed") with the answer's first words. A failure in a success's clothes is one
        too; some hosts put an empty list beside it."""
        try:
            value = json.loads(body)
        except (ValueError, RecursionError):
            kind = "a web page" if _ENTITY_START.match(body) else "something that is not JSON"
            raise self.malformed(url, f"it answered with {kind}: {self.excerpt(body)}") from None
        if isinstance(value, dict) and (value.get("success") is False or value.get("errors")):
            raise self.malformed(url, f"the host reports a failure with status 200: {self.excerpt(body)}")
        return value

    # -------------------------------------------------------------------------------------------------- about a video

    async def of_video(
        self, url: httpx.URL, *, method: str = "GET", json: Any = None, rights: str | None = None
    ) -> Any:
        """The JSON of a 2xx answer about one video.

        Raises Fault with a source reason of scope "row", and `retry_after` in seconds where the host wishes one.
        With `rights` (which ones the credentials need, for a person) it is known that all videos share the credentials:
        pushback (429) is waited out here, as long as the host asks for no more than `RETRY_WAIT_CAP_S`, since it is no
        fault of the video's and attempts at it are counted; and 401 is Fault("source-credentials-refused").
        """
        try:
            body = await (self.once(url, method, json) if rights is None else self._waited_out(url, method, json))
        except NoAnswer as error:
            raise Fault("source-timeout" if error.timed_out else "source-unreachable", error.words) from None
        except Refused as error:
            if error.status == 401 and rights is not None:
                raise self.fault(error, rights) from None
            reason = "source-not-found" if error.status < 400 else of_source_status(error.status)
            raise Fault(reason, error.words, retry_after=error.retry_after) from None
        return self.parsed_of_video(url, body)

    def parsed_of_video(self, url: httpx.URL, body: bytes) -> Any:
        try:
            return json.loads(body)
        except (ValueError, RecursionError):
            reason = "source-returned-html" if _ENTITY_START.match(body) else "source-busy"
            raise Fault(reason, f"{redact(str(url))}: no JSON: {self.excerpt(body)}") from None

    async def _waited_out(self, url: httpx.URL, method: str, json: Any) -> bytes:
        for attempt in range(self._options.retries):
            try:
                return await self.once(url, method, json)
            except Refused as error:
                if error.status != 429 or (error.retry_after or 0.0) > RETRY_WAIT_CAP_S:
                    raise
                await asyncio.sleep(max(error.retry_after or 0.0, self._backoff(attempt)))
        return await self.once(url, method, json)

    # ------------------------------------------------------------------------------------------------------ one request

    def _backoff(self, attempt: int) -> float:
        """Jitter keeps stripes that were refused together from coming back together."""
        return min(RETRY_WAIT_CAP_S, self._options.retry_wait_s * 2.0**attempt) * (0.5 + random.random())  # noqa: S311

    async def once(self, url: httpx.URL, method: str = "GET", json: Any = None) -> bytes:
        """One request; a second one only where its credentials had expired and could be renewed. Raises Refused,
        NoAnswer, and Fault("listing-malformed") for an answer without an end."""
        pause = self._not_before - time.monotonic()
        if pause > 0:
            await asyncio.sleep(pause)
        headers = await self._headers(method, url, renew=False)
        try:
            return await self._sent(method, url, headers, json)
        except Refused as error:
            if error.status != 401 or self._authorize is None:
                raise
            renewed = await self._headers(method, url, renew=True)
            if renewed == headers:
                raise
            return await self._sent(method, url, renewed, json)

    async def _headers(self, method: str, url: httpx.URL, *, renew: bool) -> dict[str, str]:
        given = {} if self._authorize is None else await self._authorize(method, url, renew)
        return {**self.headers, **given}

    async def _sent(self, method: str, url: httpx.URL, headers: Mapping[str, str], value: Any) -> bytes:
        shown = redact(str(url))
        body = bytearray()
        try:
            async with asyncio.timeout(self._options.timeout_s):
                async with self._client.stream(method, url, headers=headers, json=value) as response:
                    async for chunk in response.aiter_bytes():
                        body += chunk
                        if len(body) > self._body_limit:
                            raise self.malformed(url, f"its answer is longer than {self._body_limit} bytes")
        except (TimeoutError, httpx.TimeoutException):
            raise NoAnswer(f"{shown}: no whole answer in {self._options.timeout_s:g} s", timed_out=True) from None
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise NoAnswer(f"{shown}: {type(error).__name__}: {scrub(str(error), self._secrets)}") from None
        if response.is_success:
            self._spent(response.headers)
            return bytes(body)
        words = f"{shown}: status {response.status_code}: {self.excerpt(bytes(body))}"
        if response.is_redirect:
            # Not followed: the token would go wherever the answer says.
            words += f", a redirect to {redact(response.headers.get('location', ''))}; set base_url and path to that"
        raise Refused(
            response.status_code, words, wish_of(response.status_code, response.headers), bytes(body), response.headers
        )

    def _spent(self, headers: httpx.Headers) -> None:
        """Where a host says with a success that it was the last of this window, the next request waits for the next
        window instead of running into a refusal; some hosts lock out who does that."""
        left = headers.get("x-ratelimit-remaining", headers.get("ratelimit-remaining", ""))
        if left.strip() == "0" and (wish := wish_of(429, headers)) is not None:
            self._not_before = time.monotonic() + min(wish, RETRY_WAIT_CAP_S)

    def excerpt(self, body: bytes) -> str:
        text = " ".join(body[:2000].decode("utf-8", "replace").split())
        return repr(self.scrubbed(text)[:200])

    def scrubbed(self, text: str) -> str:
        return scrub(text, self._secrets)


def wish_of(status: int, headers: httpx.Headers) -> float | None:
    """Seconds that the host wishes us to wait, or None. With any status `Retry-After` counts; the headers that tell of
    an allowance count with 429 only, since they come with every answer."""
    now = datetime.now(UTC)
    for name in _WISHES if status == 429 else _WISHES[:1]:
        wish = parse_retry_after(headers.get(name), now=now, cap=RETRY_AFTER_CAP_S)
        if wish is not None:
            return wish
    found = _STRUCTURED_RESET.search(headers.get("ratelimit", "")) if status == 429 else None
    return min(float(found[1]), RETRY_AFTER_CAP_S) if found else None


@cache
def _certificates() -> ssl.SSLContext:
    """Reading the trusted certificates takes some 50 ms; a source is opened for every page."""
    return httpx.create_ssl_context()


def _origin(address: str) -> tuple[str, str | None, int | None]:
    parts = urlsplit(address)
    port = parts.port or {"http": 80, "https": 443}.get(parts.scheme)
    return (parts.scheme, parts.hostname, port)
