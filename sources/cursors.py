"""Cursors: opaque short strings that carry all that is needed to go on in another process."""

from __future__ import annotations

import json
from typing import Any, TypeVar

from faults import Fault

_T = TypeVar("_T")


def pack(**fields: Any) -> str:
    """`fields` as one line of ASCII. Lone surrogates (bytes of a file name that are no UTF-8) survive as escapes."""
    return json.dumps(fields, separators=(",", ":"))


class Unpacked:
    """The fields of a cursor, each checked for its type: a cursor may come from an older version or another source."""

    def __init__(self, cursor: str) -> None:
        try:
            fields = json.loads(cursor)
        except (ValueError, RecursionError):
            fields = None
        if not isinstance(fields, dict):
            raise stale("the cursor cannot be read")
        self._fields: dict[str, Any] = fields

    def get(self, name: str, kind: type[_T]) -> _T:
        """Raises Fault("cursor-stale") where the field is missing or of another type."""
        value = self._fields.get(name)
        if not isinstance(value, kind) or isinstance(value, bool):
            raise stale(f"the cursor's field {name!r} cannot be read")
        return value

    def count(self, name: str) -> int:
        """A whole number, zero or more. Raises Fault("cursor-stale") where the field is no such number."""
        value = self.get(name, int)
        if value < 0:
            raise stale(f"the cursor's field {name!r} is negative")
        return value


def stale(why: str) -> Fault:
    return Fault("cursor-stale", f"{why}; the listing is read anew from its start (what is known already is kept)")
