"""Reading what a host answered: values at places in a JSON body, and what is unknown told apart from zero."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import Annotated, Any, Final

from pydantic import StringConstraints

from faults import Fault

ID_LIMIT: Final = 500
"""Characters of a remote id: an entry of the ledger's index takes 2704 bytes."""
_NAMES_NOTHING: Final = re.compile("\\s*|\\.{1,2}|.*[\x00-\x1f\x7f\ud800-\udfff].*", re.DOTALL)

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
    if (
        value is None
        or isinstance(value, (dict, list, bool))
        or (isinstance(value, float) and not math.isfinite(value))
    ):
        return None
    return str(value) or None


def is_id(remote_id: str) -> bool:
    """Whether a video can be asked for by this. Not by blanks, nor by a dot or two, which in a path lead elsewhere; and
    what holds control or half characters could not be told from other ids once it is stored."""
    return len(remote_id) <= ID_LIMIT and _NAMES_NOTHING.fullmatch(remote_id) is None


def following(value: Any) -> str | None:
    """The cursor of a list's next page; None at its end, which null, an empty text and false say. Raises
    Fault("answer-malformed") for what is no cursor: taken for the end, it would hide the rest."""
    if value is not None and value is not False and text(value) is None and value != "":
        raise Fault("answer-malformed", f"the list's next cursor is of an unknown kind ({type(value).__name__})")
    return text(value)


def denied(value: Any) -> bool:
    """Whether a field that says "success" says no."""
    return value is False or (isinstance(value, str) and value.lower() == "false") or (value == 0 and value is not None)


def number(value: Any, scale: float = 1.0) -> int | None:
    """A JSON number, or a text that is one, times `scale`; None where it is unknown (zero, −1, no number at all)."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    try:
        result = float(value) * scale
    except (ValueError, OverflowError):
        return None
    return round(result) or None if math.isfinite(result) and 0 < result < 2**63 else None


def joined(code: str | None, message: str | None) -> str:
    return ": ".join(part for part in (code, message) if part) or "no words"
