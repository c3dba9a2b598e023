"""What a source claims about a video, read strictly: ids, addresses, bytes and durations.

Each function returns the value, or raises ValueError whose text says what is wrong and what to do.
"""

from __future__ import annotations

import math
import re
from typing import Any, Final

ID_LIMIT: Final = 1_000
"""Characters of a source id: with the other parts of its key it must fit an index row of PostgreSQL (2 704 bytes
compressed; ids compress)."""
ADDRESS_LIMIT: Final = 8_000
"""Characters of an address: what common HTTP servers accept as a request line."""
_SIZE_MAX: Final = 2**63 - 1
"""PostgreSQL's bigint."""
_DURATION_MAX_S: Final = 1e9
"""Thirty-one years: more is a number in the wrong unit."""
# Python's int() and float() also take underscores and other scripts' digits, which no exporter means as a number.
_WHOLE: Final = re.compile(r"[0-9]{1,19}(?:\.0*)?", re.ASCII)
_DECIMAL: Final = re.compile(r"(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,3})?", re.ASCII)
_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
_HTTP: Final = re.compile(r"https?:", re.IGNORECASE)
_HTTP_HOST: Final = re.compile(r"https?://(?:[^/?#@\s]*@)?[^/?#@:\s]", re.IGNORECASE)
_NOT_STORABLE: Final = re.compile("[\x00\ud800-\udfff]")
_CONTROL: Final = re.compile("[\x00-\x1f\x7f\ud800-\udfff]")


def source_id(value: Any) -> str:
    """A video's id at its source, stripped: text, or a whole number as JSON hosts give it."""
    if isinstance(value, int) and not isinstance(value, bool):
        value = str(value)
    if not isinstance(value, str):
        raise ValueError("is missing" if value is None else f"is {_kind_of(value)}; give text or a whole number")
    text = value.strip()
    if not text:
        raise ValueError("is empty; give every row an id of its own")
    if len(text) > ID_LIMIT:
        raise ValueError(f"has {len(text)} characters; at most {ID_LIMIT} are kept")
    if _NOT_STORABLE.search(text):
        raise ValueError("holds a NUL byte or half a character, which cannot be stored; remove it")
    return text


def title(value: Any) -> str | None:
    """A title, stripped; None where there is none."""
    if value is None:
        return None
    if isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)
    if not isinstance(value, str):
        raise ValueError(f"is {_kind_of(value)}; give text")
    return value.strip() or None


def address_or_path(value: Any) -> str:
    """An http(s) address or a local path, stripped and otherwise untouched."""
    text = _address_text(value)
    scheme = _SCHEME.match(text)
    if _HTTP.match(text):
        if not _HTTP_HOST.match(text):
            raise ValueError("names no host; give an address such as https://host/video.mp4")
    elif scheme:
        raise ValueError(
            f"has the scheme {scheme[1]!r}; give an http or https address, or a local path without a scheme"
        )
    return text


def is_http(text: str) -> bool:
    """Whether this is an http(s) address, in whatever case its scheme is written."""
    return _HTTP.match(text) is not None


def http_address(value: Any) -> str:
    """An http(s) address, stripped and otherwise untouched."""
    text = _address_text(value)
    if not _HTTP_HOST.match(text):
        raise ValueError("is no http or https address with a host")
    return text


def _address_text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError("is missing" if value is None else f"is {_kind_of(value)}; give text")
    text = value.strip()
    if not text:
        raise ValueError("is empty; give an http(s) address or a path")
    if len(text) > ADDRESS_LIMIT:
        raise ValueError(f"has {len(text)} characters; at most {ADDRESS_LIMIT} are accepted")
    if _CONTROL.search(text):
        raise ValueError("holds a line break or another control character; remove it")
    return text


def size(value: Any) -> int | None:
    """Bytes; None where there is no claim."""
    if value is None or (isinstance(value, str) and not value.strip()):
        return None
    number: int | None = None
    if isinstance(value, str) and _WHOLE.fullmatch(value.strip()):
        number = int(value.strip().partition(".")[0])
    elif isinstance(value, int) and not isinstance(value, bool):
        number = value
    elif isinstance(value, float) and value.is_integer():
        number = int(value)
    if number is None or not 0 <= number <= _SIZE_MAX:
        raise ValueError(
            f"{_shown(value)} is no number of bytes; give a whole number such as 1048576, or leave it empty"
        )
    return number


def duration_ms(value: Any, *, per_second: int = 1) -> int | None:
    """A duration in milliseconds, from a number in seconds (or in 1/`per_second` seconds). None where there is no
    claim: absent, empty, or zero, since nothing lasts zero seconds and hosts write 0 for "not known yet"."""
    if value is None or (isinstance(value, str) and not value.strip()):
        return None
    number = math.nan
    if isinstance(value, str) and _DECIMAL.fullmatch(value.strip()):
        number = float(value.strip())
    elif isinstance(value, int | float) and not isinstance(value, bool):
        # An integer may be larger than any float.
        number = float(value) if abs(value) <= _SIZE_MAX else math.inf
    seconds = number / per_second
    if not 0 <= seconds <= _DURATION_MAX_S:
        raise ValueError(f"{_shown(value)} is no duration; give seconds such as 12.5, or leave it empty")
    return round(seconds * 1000) or None


def _shown(value: Any) -> str:
    text = repr(value) if isinstance(value, str | int | float) else _kind_of(value)
    return text if len(text) <= 40 else text[:37] + "…"


def _kind_of(value: Any) -> str:
    if isinstance(value, bool):
        return "true or false"
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, list):
        return "a list"
    return "a fraction" if isinstance(value, float) else f"a {type(value).__name__}"
