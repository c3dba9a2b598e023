"""Reads a compose file as Compose would: variables filled in, merge keys applied, its own tags understood."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

ROOT = Path(__file__).resolve().parents[2]

SECRETS = {"LEDGER_DB_PASSWORD": "ledgersecret", "TEMPORAL_DB_PASSWORD": "temporalsecret"}
"""What a person has to put into .env."""

_VARIABLE = re.compile(r"\$(?:(?P<dollar>\$)|\{(?P<name>[A-Z_]+)(?:(?P<how>:-|:\?)(?P<rest>[^}]*))?\})")


class Unset(Exception):
    """A variable that must be set is not; carries what Compose would say."""


def filled(text: str, variables: Mapping[str, str]) -> str:
    """`${NAME}`, `${NAME:-default}`, `${NAME:?message}` and `$$` as Compose reads them."""

    def value(match: re.Match[str]) -> str:
        if match["dollar"]:
            return "$"
        given = variables.get(match["name"], "")
        if given or match["how"] is None:
            return given
        if match["how"] == ":?":
            raise Unset(f"{match['name']}: {match['rest']}")
        return match["rest"]

    return _VARIABLE.sub(value, text)


def _plain(value: Any, variables: Mapping[str, str]) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(item, variables) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item, variables) for item in value]
    return filled(value, variables) if isinstance(value, str) else value


def load(path: Path, variables: Mapping[str, str] = SECRETS) -> dict[str, Any]:
    """The file as plain values. Raises Unset."""
    # Round-trip mode keeps tags such as !override beside the value; the safe loader would refuse them.
    loaded = YAML(typ="rt").load(path.read_text(encoding="utf-8"))
    result = _plain(loaded, variables)
    assert isinstance(result, dict)
    return result


def names_in(path: Path) -> set[str]:
    """Variables that the file asks for."""
    return {match["name"] for match in _VARIABLE.finditer(path.read_text(encoding="utf-8")) if match["name"]}


def compose() -> dict[str, Any]:
    return load(ROOT / "docker-compose.yml")


def services() -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = compose()["services"]
    return found


def dotenv(path: Path) -> dict[str, str]:
    """The assignments of an environment file, those behind a # too: an example shows them that way."""
    lines = path.read_text(encoding="utf-8").splitlines()
    found = [re.match(r"#?([A-Z][A-Z0-9_]*)=(.*)$", line) for line in lines]
    return {match[1]: match[2] for match in found if match}
