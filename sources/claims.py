"""Reading what a host's API says of a video: values at places in its JSON, each of which may be anything.

What is none of what it should be is None, empty, or a `Problem` that names the field; nothing here raises.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, Literal
from urllib.parse import quote

from pydantic import TypeAdapter, ValidationError

from sources import values
from sources.about import NOTHING, About, Caption, Language
from sources.base import Item, Problem
from sources.walking import known

_LANGUAGE: Final = TypeAdapter[str](Language)


def dig(value: Any, path: str) -> Any:
    """The value at the end of a dotted path of names, or None."""
    for part in path.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    return value


def dicts(value: Any) -> list[dict[str, Any]]:
    """The objects in a list; empty for what is no list."""
    return [entry for entry in value if isinstance(entry, dict)] if isinstance(value, list) else []


def text(value: Any) -> str | None:
    """Words, stripped; None for whatever is none."""
    return (value.strip() or None) if isinstance(value, str) else None


def texts(found: Any) -> tuple[str, ...]:
    """Those of these that are words, each once, in their order; none where they are no list."""
    if isinstance(found, str | dict) or not isinstance(found, Iterable):
        return ()
    return tuple(dict.fromkeys(word for value in found if (word := text(value)) is not None))


def seg(value: Any) -> str:
    """One segment of a path, encoded; half a character as the sign for one that is unknown."""
    return quote(str(value).encode("utf-8", "replace"), safe="")


def caption(
    language: Any, *, key: Any = None, address: Any = None, label: Any = None, sounds: bool = False
) -> Caption | None:
    """A text track, or None where its language is no tag: without one no host would take it. `sounds`: it also tells
    them, for the deaf."""
    tag = (text(language) or "").replace("_", "-")
    try:
        _LANGUAGE.validate_python(tag)
    except ValidationError:
        return None
    kind: Literal["captions", "subtitles"] = "captions" if sounds else "subtitles"
    return Caption(
        language=tag,
        key=None if key is None else str(key),
        address=http_or_none(address),
        label=text(label),
        kind=kind,
    )


def captions(found: Iterable[Caption | None]) -> tuple[Caption, ...]:
    return tuple(track for track in found if track is not None)


def pick(found: Iterable[Caption], wanted: Caption) -> Caption | None:
    """The track that was listed as `wanted`: by the source's own name for it, else by language and kind."""
    tracks = list(found)
    for track in tracks:
        if wanted.key is not None and track.key == wanted.key:
            return track
    return next((t for t in tracks if (t.language, t.kind) == (wanted.language, wanted.kind)), None)


def http_or_none(value: Any) -> str | None:
    """An address of a caption or a poster; None for what is none: a video does not stay behind for it."""
    try:
        return values.http_address(value)
    except ValueError:
        return None


def item(
    position: int,
    *,
    source_id: Any,
    id_field: str = "id",
    title: Any = None,
    size: Any = None,
    duration: Any = None,
    per_second: int = 1,
    locator: str | None = None,
    metadata: Mapping[str, Any] | None = None,
    about: About = NOTHING,
) -> Item | Problem:
    """One video as its host lists it; numbers below zero mean that they are not known yet. A Problem names the field
    that cannot be read."""
    column = id_field
    try:
        key = values.source_id(source_id)
        column = "title"
        name = values.title(title)
        column = "size"
        length = values.size(known(size))
        column = "duration"
        duration_ms = values.duration_ms(known(duration), per_second=per_second)
    except ValueError as error:
        return Problem(position, column, str(error))
    kept = {name: value for name, value in (metadata or {}).items() if value not in (None, "", [], {})}
    return Item(key, locator, position, name, length, duration_ms, kept, about)


def no_object(position: int) -> Problem:
    return Problem(position, None, "the entry is no object")
