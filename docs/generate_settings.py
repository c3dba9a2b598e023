"""Writes docs/settings.md from settings.py: `python docs/generate_settings.py`. A test says when it is out of date.

Types and defaults come from the models, words from the string below each field.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Final, Literal, Union, get_args, get_origin

ROOT: Final = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import annotated_types  # noqa: E402
from pydantic import BaseModel, SecretStr  # noqa: E402
from pydantic.fields import FieldInfo  # noqa: E402
from pydantic_core import PydanticUndefined  # noqa: E402

import settings  # noqa: E402

PAGE: Final = ROOT / "docs" / "settings.md"
NAMED: Final = {"accounts": "main", "sources": "archive"}
"""Sections that hold one table for each name, and a name for the examples."""

HEAD: Final = """\
# Settings

Written by `python docs/generate_settings.py` from `settings.py`.

{order}

In variables, `__` stands between a section and a setting, and lists and tables are written as JSON. Secrets are best
given as variables: they never appear in messages or logs, but a file may be copied.

| variable | what |
|---|---|
| `{config}` | the TOML file to read; default `{default_config}` in the working directory, if it exists |
| `{stack}` | the folder of the embedded stack; default `{default_stack}` |

```
LONGHAUL_WORKER__PAGES_AT_ONCE=8
LONGHAUL_ACCOUNTS__MAIN__TOKEN=…
LONGHAUL_ACCOUNTS__MAIN__WEBHOOK_SECRETS=["whsec_…"]
```

```toml
[worker]
pages_at_once = 8

[accounts.main]
base_url = "https://api.video-host.example"
```

A name that is no setting is refused, in the file as in a variable with `__`. Whole examples: `longhaul.example.toml`,
and for the containers `deploy/longhaul.example.toml`.
"""


def words_of(tree: ast.Module) -> dict[tuple[str, str], str]:
    """The string below each field, by class and field."""
    found: dict[tuple[str, str], str] = {}
    for node in tree.body:
        if not isinstance(node, ast.ClassDef):
            continue
        for field, below in zip(node.body, node.body[1:], strict=False):
            if (
                isinstance(field, ast.AnnAssign)
                and isinstance(field.target, ast.Name)
                and isinstance(below, ast.Expr)
                and isinstance(below.value, ast.Constant)
                and isinstance(below.value.value, str)
            ):
                found[node.name, field.target.id] = " ".join(below.value.value.split())
    return found


def type_words(annotation: Any, metadata: list[Any]) -> str:
    """What may be written there, for a person."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin in (Union, UnionType):
        inner = [argument for argument in arguments if argument is not NoneType]
        return f"{type_words(inner[0], metadata)}, or none"
    if origin is Literal:
        return "one of " + ", ".join(f"`{value}`" for value in arguments)
    if origin is tuple:
        (item, _) = arguments
        if isinstance(item, type) and issubclass(item, BaseModel):
            return "list of tables"
        return f"list of {type_words(item, [])}s"
    if origin is dict:
        return "table"
    kind = {int: "whole number", float: "number", bool: "true or false", SecretStr: "secret", Path: "path"}
    return kind.get(annotation, "text") + bounds(metadata)


def bounds(metadata: list[Any]) -> str:
    low = high = ""
    for limit in metadata:
        match limit:
            case annotated_types.Ge(ge=value):
                low = f"from {value:_}".replace("_", " ")
            case annotated_types.Gt(gt=value):
                low = f"above {value:_}".replace("_", " ")
            case annotated_types.Le(le=value):
                high = f"to {value:_}".replace("_", " ")
    said = " ".join(part for part in (low, high) if part)
    return f", {said}" if said else ""


def default_words(field: FieldInfo) -> str:
    if field.is_required():
        return "**required**"
    value = field.get_default(call_default_factory=True)
    if value is PydanticUndefined or value in (None, (), {}):
        return "none"
    if isinstance(value, SecretStr):
        value = value.get_secret_value()
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    return f"`{value}`"


def rows(model: type[BaseModel], prefix: str, words: dict[tuple[str, str], str]) -> Iterator[str]:
    for name, field in model.model_fields.items():
        variable = f"`{prefix}__{name.upper()}`" if prefix else "–"
        kind = type_words(field.annotation, field.metadata)
        said = words.get((model.__name__, name), "")
        yield f"| `{name}` | {variable} | {kind} | {default_words(field)} | {said} |"


def table(model: type[BaseModel], prefix: str, words: dict[tuple[str, str], str]) -> list[str]:
    return ["| setting | variable | type | default | meaning |", "|---|---|---|---|---|", *rows(model, prefix, words)]


def own_words(model: type[BaseModel]) -> list[str]:
    return [*(" ".join(part.split()) for part in (model.__doc__ or "").split("\n\n") if part.strip()), ""]


def page() -> str:
    """The whole of docs/settings.md."""
    source = (ROOT / "settings.py").read_text(encoding="utf-8")
    words = words_of(ast.parse(source))
    order = (settings.__doc__ or "").split("\n\n", 1)[1].strip()
    lines = [
        HEAD.format(
            order=order,
            config=settings.CONFIG_VARIABLE,
            default_config=settings.DEFAULT_CONFIG,
            stack=settings.STACK_VARIABLE,
            default_stack=settings.DEFAULT_STACK,
        )
    ]
    for name, field in settings.Settings.model_fields.items():
        if name in NAMED:
            model = get_args(field.annotation)[1]
            example = NAMED[name].upper()
            lines += [f"## [{name}.NAME]", "", *own_words(model)]
            lines += [f"`NAME` is yours to choose; in the variables below it is `{example}`.", ""]
            lines += [*table(model, f"LONGHAUL_{name.upper()}__{example}", words), ""]
            for list_name, inner in nested(model):
                lines += [f"### [[{name}.NAME.{list_name}]]", "", *own_words(inner), *table(inner, "", words), ""]
        else:
            model = field.annotation
            assert isinstance(model, type), "a section is a model"
            lines += [f"## [{name}]", "", *own_words(model), *table(model, f"LONGHAUL_{name.upper()}", words), ""]
    return "\n".join(line for line in collapsed(lines)).rstrip() + "\n"


def nested(model: type[BaseModel]) -> Iterator[tuple[str, type[BaseModel]]]:
    """The lists of tables of a model, with the model of one table."""
    for name, field in model.model_fields.items():
        for item in get_args(field.annotation):
            if isinstance(item, type) and issubclass(item, BaseModel):
                yield name, item


def collapsed(lines: list[str]) -> Iterator[str]:
    """Without a second empty line in a row."""
    before = None
    for line in lines:
        if line or before:
            yield line
        before = line


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
