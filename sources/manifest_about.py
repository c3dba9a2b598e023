"""What a manifest's row says of a video beside its file: words, captions, a poster, who may see it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, Literal, get_args

from pydantic import TypeAdapter, ValidationError

from sources import values
from sources.about import About, Caption, Language

COLUMNS: Final = ("description", "tags", "folder", "captions", "poster", "privacy")
CAPTIONS: Final = "captions."
"""Before the language, in the name of a column that has the address of one language's captions."""
_LANGUAGE: Final = TypeAdapter[str](Language)
_KINDS: Final = ("subtitles", "captions")
_DIVIDERS: Final = re.compile(r"[,;]")
Privacy = Literal["public", "unlisted", "private"]


class Unreadable(ValueError):
    """One of these columns cannot be read; `column` says which."""

    def __init__(self, column: str, words: str) -> None:
        super().__init__(words)
        self.column = column


def column(name: str) -> str | None:
    """The name of one of these columns in its usual spelling; None for any other. Raises Unreadable where a caption's
    language is no tag."""
    lower = name.casefold()
    if lower in COLUMNS:
        return lower
    if not lower.startswith(CAPTIONS):
        return None
    tag = name[len(CAPTIONS) :].strip()
    return CAPTIONS + language(tag, name)


def language(value: Any, where: str) -> str:
    """A language tag, hyphens for underscores. Raises Unreadable."""
    tag = value.strip().replace("_", "-") if isinstance(value, str) else value
    try:
        return _LANGUAGE.validate_python(tag)
    except ValidationError:
        raise Unreadable(where, "names no language; give a tag such as en or pt-BR") from None


def about(fields: Mapping[str, Any]) -> About:
    """What these fields say. Addresses may be paths, as the video's own may. Raises Unreadable."""
    return About(
        description=_text(fields, "description"),
        tags=_tags(fields.get("tags")),
        folder=_folder(_text(fields, "folder")),
        captions=tuple(_captions(fields)),
        poster=_address(fields.get("poster"), "poster"),
        privacy=_privacy(fields.get("privacy")),
    )


def _text(fields: Mapping[str, Any], name: str) -> str | None:
    value = fields.get(name)
    if value is None:
        return None
    if isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)
    if not isinstance(value, str):
        raise Unreadable(name, "is no text; give text")
    return value.strip() or None


def _folder(value: str | None) -> str | None:
    """Without the empty names that leading, trailing or doubled strokes make."""
    return "/".join(part for name in (value or "").split("/") if (part := name.strip())) or None


def _tags(value: Any) -> tuple[str, ...]:
    """A list of texts, or one text in which they are divided by commas or semicolons."""
    if isinstance(value, str):
        value = _DIVIDERS.split(value)
    if value is None:
        return ()
    if not isinstance(value, list) or not all(isinstance(tag, str) for tag in value):
        raise Unreadable("tags", "is no list of texts; give a list, or one text with commas between the tags")
    return tuple(dict.fromkeys(stripped for tag in value if (stripped := tag.strip())))


def _privacy(value: Any) -> Privacy | None:
    told = value.strip().casefold() if isinstance(value, str) else value
    if told is None or told == "":
        return None
    for known in get_args(Privacy):
        if told == known:
            found: Privacy = known
            return found
    raise Unreadable("privacy", "is none of public, unlisted and private")


def _address(value: Any, where: str) -> str | None:
    if value is None or (isinstance(value, str) and not value.strip()):
        return None
    try:
        return values.address_or_path(value)
    except ValueError as error:
        raise Unreadable(where, str(error)) from None


def _captions(fields: Mapping[str, Any]) -> Iterator[Caption]:
    """Those of the list `captions`, then those of the columns; each has its number as the key by which it is found
    again."""
    found = fields.get("captions")
    if found is not None and not isinstance(found, list):
        raise Unreadable("captions", 'is no list; write [{"language": "en", "url": …}], or a column captions.en in CSV')
    count = 0
    for count, entry in enumerate(found or (), start=1):
        where = f"captions.{count}"
        if not isinstance(entry, dict):
            raise Unreadable(where, 'is no object; write {"language": "en", "url": …}')
        unknown = set(entry) - {"language", "url", "label", "kind"}
        if unknown:
            raise Unreadable(
                where, f"has the unknown field {min(unknown)[:50]!r}; known are language, url, label, kind"
            )
        kind = entry.get("kind") or "subtitles"
        if kind not in _KINDS:
            raise Unreadable(where, "has a kind that is neither subtitles nor captions")
        label = entry.get("label")
        if label is not None and not isinstance(label, str):
            raise Unreadable(where, "has a label that is no text")
        address = _address(entry.get("url"), where)
        if address is None:
            raise Unreadable(where, "has no url")
        tag = language(entry.get("language"), where)
        yield Caption(language=tag, key=str(count), address=address, label=(label or "").strip() or None, kind=kind)
    for name in fields:
        if name.startswith(CAPTIONS) and (address := _address(fields[name], name)) is not None:
            count += 1
            yield Caption(language=name.removeprefix(CAPTIONS), key=str(count), address=address)
