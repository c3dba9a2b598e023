"""Addresses: written without their secrets, and encoded exactly once.

Pure text; nothing here resolves or fetches. Addresses are taken apart with the expression of RFC 3986, appendix B,
which matches any text: `urllib.parse.urlsplit` raises on some, and drops characters from others.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final
from urllib.parse import quote

HIDDEN: Final = "…"
"""What stands where something was left out."""

_PARTS: Final = re.compile(r"(?:([^:/?#]+):)?(?://([^/?#]*))?([^?#]*)(?:\?([^#]*))?(?:#(.*))?", re.DOTALL)
_IN_TEXT: Final = re.compile(r"(?:[A-Za-z][A-Za-z0-9+.-]*:)?//[^\s\"'<>]+")
_PORT: Final = re.compile(r"(?:\[[^\]]*\]|[^:]*)(?::[0-9]*)?")
# What RFC 3986 lets an address hold, reserved characters included. Brackets in a path or query are not in its grammar,
# but every server takes them, and encoding them would break a signature made over the raw ones.
_LEGAL: Final = "!#$&'()*+,/:;=?@[]-._~"
_STRAY_PERCENT: Final = re.compile(r"%(?![0-9A-Fa-f]{2})")


_SIGNING: Final = re.compile(
    r"(?:x-amz-|x-goog-|x-oss-|x-cos-).*|(?:.*[-_])?(?:sig|signature|token|secret|password|passwd|pwd|pass|auth|"
    r"authorization|credential|credentials|policy|jwt|hmac|hash|session|key)|(?:api|access)(?:key|token|id)|"
    r"awsaccesskeyid|googleaccessid|authtoken|sessionid|sv|se|sp|st|skoid|hdnts|hdnea|verify|md5",
    re.IGNORECASE,
)
"""Names of parameters under which credentials and signatures go, at the hosts whose addresses are documented."""


def bears_secret(url: str) -> bool:
    """Whether an address holds a user, or a parameter by whose name it is signed: it is good for whoever knows it."""
    _, authority, path, query, _ = _split(url)
    if "@" in (authority or "") or (authority is None and "@" in path.partition("/")[0]):
        return True
    return any(_SIGNING.fullmatch(pair.partition("=")[0]) for pair in re.split("[&;]", query or ""))


def redact(url: str) -> str:
    """`url` as it may be logged: scheme, host, port and path are kept; user name, password, fragment and the values of
    the query are not (tokens and signatures live there). A path without any of these comes back as it is. Never raises.
    """
    scheme, authority, path, query, fragment = _split(url)
    if authority is not None:
        authority = authority.rpartition("@")[2]
        if not _PORT.fullmatch(authority):
            # A "/" in an unencoded password ends the authority too early; the rest of the password is in the path.
            authority, path = HIDDEN, path.rpartition("@")[2]
    elif scheme is not None and "@" in path:
        path = path.rpartition("@")[2]
    text = "" if scheme is None else f"{scheme}:"
    if authority is not None:
        text += f"//{authority}"
    text += path
    if query is not None:
        text += "?" + "&".join(_without_value(pair) for pair in query.split("&"))
    return text if fragment is None else f"{text}#{HIDDEN}"


def scrub(text: str, secrets: Iterable[str] = ()) -> str:
    """`text` for a log or an error: addresses in it redacted, each of `secrets` (plain or percent-encoded) replaced."""
    for secret in sorted({s for s in secrets if s}, key=len, reverse=True):
        for form in (secret, quote(secret, safe="")):
            text = text.replace(form, HIDDEN)
    return _IN_TEXT.sub(lambda found: redact(found[0]), text)


def canonical(url: str) -> str:
    """`url` with what no address may hold encoded, exactly once: spaces, quotes, control and non-ASCII characters (as
    UTF-8), and a "%" that begins no escape. A ready-made address comes back unchanged, byte for byte; so does the
    result of this function. The scheme's case and the host are left alone.

    "+" and "%2B" are both legal and are left as they are: only who made the address knows which was meant. To put an
    object's key into an address, use `encode_key`. Raises ValueError for half a character (a lone surrogate).
    """
    scheme, authority, path, query, fragment = _split(url)
    text = "" if scheme is None else f"{scheme}:"
    if authority is not None:
        text += f"//{authority}"
    text += _encode(path)
    if query is not None:
        text += f"?{_encode(query)}"
    return text if fragment is None else f"{text}#{_encode(fragment)}"


def encode_key(key: str) -> str:
    """An object's key or a file's relative path, as the path of an address: every character is meant literally, so "%"
    and "+" are encoded too, and only "/" still divides. Decoding gives the key back. Raises ValueError for half a
    character (a lone surrogate)."""
    return quote(key, safe="/")


def _encode(part: str) -> str:
    return quote(_STRAY_PERCENT.sub("%25", part), safe=_LEGAL + "%")


def _without_value(pair: str) -> str:
    name, equals, _ = pair.partition("=")
    return f"{name}={HIDDEN}" if equals else (HIDDEN if name else "")


def _split(url: str) -> tuple[str | None, str | None, str, str | None, str | None]:
    found = _PARTS.fullmatch(url)
    if found is None:  # the expression matches every text
        raise AssertionError(url)
    scheme, authority, path, query, fragment = found.groups()
    return scheme, authority, path or "", query, fragment
