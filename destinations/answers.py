"""Reading what a host answered: values at places in a JSON body, and what is unknown told apart from zero."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import StringConstraints

FieldPath = Annotated[str, StringConstraints(pattern=r"^[^.\s]+(\.[^.\s]+)*$")]
"""Where a value is in a JSON body: names, joined by dots; a number is an index into a list."""


def parsed(content: bytes) -> tuple[Any, bool]:
    """The parsed body, and whether it could be parsed."""
    try:
        return json.loads(content), True
    except (ValueError, RecursionError):
        return None, False


def at(body: Any, path: str | None) -> Any:
    """The value at a field path, or None where there is none."""
    if path is None:
        return body
    for name in path.split("."):
        if isinstance(body, Mapping):
            body = body.get(name)
        elif isinstance(body, list) and name.isdigit() and int(name) < len(body):
            body = body[int(name)]
        else:
            return None
    return body


def has(body: Any, path: str) -> bool:
    """Whether there is something at a field path, null included."""
    parent, _, name = path.rpartition(".")
    holder = at(body, parent or None)
    return isinstance(holder, Mapping) and name in holder


def put(body: dict[str, Any], path: str, value: Any) -> None:
    """Sets the value at a field path, making the objects on the way."""
    *parents, name = path.split(".")
    for parent in parents:
        body = body.setdefault(parent, {})
    body[name] = value


def text(value: Any) -> str | None:
    """A JSON value as text; None for null, for an empty text and for what is no scalar."""
    if value is None or isinstance(value, (dict, list, bool)):
        return None
    return str(value) or None


def number(value: Any, scale: float = 1.0) -> int | None:
    """A JSON number, or a text that is one, times `scale`; None where it is unknown (zero, −1, no number at all)."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    try:
        result = float(value) * scale
    except (ValueError, OverflowError):
        return None
    return round(result) if math.isfinite(result) and 0 < result < 2**63 else None


def joined(code: str | None, message: str | None) -> str:
    return ": ".join(part for part in (code, message) if part) or "no words"
