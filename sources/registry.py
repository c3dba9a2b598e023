"""Opens a source. A new kind of source is a new module and one line in `_KINDS`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from types import MappingProxyType
from typing import Any, Final, TypeVar

from pydantic import BaseModel, ValidationError

from faults import Fault
from settings import Settings, SourceSettings
from sources.base import Source
from sources.spec import SourceSpec

_Options = TypeVar("_Options", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class _Kind:
    """Where a kind of source lives. `named` says that it takes an entry of the settings instead of a path.

    The module has a pydantic model `Options` and a function `open_path(path, options, page_size)` or
    `open_named(entry, options, page_size)` that returns a `Source`.
    """

    module: str
    named: bool


_KINDS: Final = MappingProxyType(
    {
        "manifest": _Kind("sources.manifest", named=False),
        "folder": _Kind("sources.folder", named=False),
        "generic": _Kind("sources.generic", named=True),
        "s3": _Kind("sources.s3", named=True),
        "vimeo": _Kind("sources.vimeo", named=True),
        "wistia": _Kind("sources.wistia", named=True),
        "jwplayer": _Kind("sources.jwplayer", named=True),
        "brightcove": _Kind("sources.brightcove", named=True),
        "mux": _Kind("sources.mux", named=True),
        "cloudflare": _Kind("sources.cloudflare", named=True),
        "apivideo": _Kind("sources.apivideo", named=True),
        "bunny": _Kind("sources.bunny", named=True),
    }
)


def kinds() -> tuple[str, ...]:
    """Every kind of source there is."""
    return tuple(_KINDS)


def open_source(spec: SourceSpec, settings: Settings) -> Source:
    """The source of this spec, not yet asked anything. Close it with `aclose()`, or use it with `async with`.

    Raises Fault("settings-refused") where the kind is unknown, the settings have no such entry, or an option is wrong.
    """
    kind = _kind(spec.kind)
    if not kind.named:
        if spec.location is None:
            raise Fault("settings-refused", f"a source of kind {spec.kind!r} needs a location (a path), not a name")
        options = _checked(spec.kind, spec.options, f"options of the {spec.kind} {spec.location}")
        source: Source = import_module(kind.module).open_path(spec.location, options, spec.page_size)
        return source
    if spec.name is None:
        raise Fault(
            "settings-refused",
            f"a source of kind {spec.kind!r} needs the name of an entry under [sources] in longhaul.toml",
        )
    if spec.options:
        raise Fault("settings-refused", f"the options of source {spec.name!r} belong in [sources.{spec.name}.options]")
    entry: SourceSettings = settings.source(spec.name)
    if entry.kind != spec.kind:
        raise Fault(
            "settings-refused", f"source {spec.name!r} is of kind {entry.kind!r} in the settings, not {spec.kind!r}"
        )
    options = _checked(spec.kind, entry.options, f"[sources.{spec.name}.options]")
    source = import_module(kind.module).open_named(entry, options, spec.page_size)
    return source


def check_options(kind: str, options: Mapping[str, Any]) -> None:
    """Raises Fault("settings-refused"), naming each wrong option, where this kind of source would not take these."""
    _checked(kind, options, f"options of a {kind} source")


def _kind(name: str) -> _Kind:
    if name not in _KINDS:
        raise Fault("settings-refused", f"no kind of source is named {name!r} (known: {', '.join(_KINDS)})")
    return _KINDS[name]


def _checked(kind: str, options: Mapping[str, Any], where: str) -> BaseModel:
    model: type[BaseModel] = import_module(_kind(kind).module).Options
    try:
        return model.model_validate(dict(options))
    except ValidationError as error:
        # Only place and message are told: a wrong value may be a secret that was put into the wrong option.
        wrong = "; ".join(
            f"{'.'.join(str(part) for part in e['loc']) or 'options'}: {e['msg']}" for e in error.errors()
        )
        raise Fault("settings-refused", f"{where}: {wrong}") from None
