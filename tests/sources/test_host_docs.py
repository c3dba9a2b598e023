"""The pages of docs/sources are held to the kinds of sources there are, and to what their settings take."""

from __future__ import annotations

import re
import tomllib
from importlib import import_module
from pathlib import Path

import pytest

from settings import Settings, SourceSettings
from sources.asking import ApiOptions
from sources.registry import kinds, open_source
from sources.spec import SourceSpec

DOCS = Path(__file__).resolve().parents[2] / "docs"
INDEX = (DOCS / "sources.md").read_text()
ON_THE_INDEX = {"manifest", "folder", "generic"}
PAGES = {path.stem: path.read_text() for path in sorted((DOCS / "sources").glob("*.md"))}


def test_every_kind_is_in_the_index_and_every_host_has_a_page() -> None:
    rows = re.findall(r"^\| \[?`([a-z0-9]+)`(?:\]\(sources/([a-z0-9]+)\.md\))? \|", INDEX, re.MULTILINE)
    listed = [kind for kind, page in rows if page or kind in ON_THE_INDEX]

    assert listed[: len(kinds())] == list(kinds())
    assert {kind for kind, page in rows if page} == set(PAGES) == set(kinds()) - ON_THE_INDEX
    assert all(kind == page for kind, page in rows if page)


@pytest.mark.parametrize("kind", PAGES)
def test_a_page_has_every_option_and_no_other(kind: str) -> None:
    options = set(import_module(f"sources.{kind}").Options.model_fields) - set(ApiOptions.model_fields)
    cells = re.findall(r"^\| (`[^|]+`) \| [^|]+ \| [^|]* \|$", PAGES[kind], re.MULTILINE)
    described = {name for cell in cells for name in re.findall(r"`([a-z_0-9]+)`", cell)}

    assert described == options


@pytest.mark.parametrize("kind", PAGES)
async def test_a_pages_settings_open_the_source_as_they_stand_there(kind: str) -> None:
    blocks = re.findall(r"^```toml\n(.*?)^```", PAGES[kind], re.DOTALL | re.MULTILINE)
    assert blocks
    for block in blocks:
        ((name, entry),) = tomllib.loads(block)["sources"].items()
        assert entry["kind"] == kind
        settings = Settings(sources={name: SourceSettings.model_validate({**entry, "token": "id:secret"})})
        await open_source(SourceSpec(kind=kind, name=name), settings).aclose()


@pytest.mark.parametrize("kind", PAGES)
def test_a_page_says_what_is_needed_read_and_not_to_be_had(kind: str) -> None:
    for part in ("**Credentials.**", "**Listed**", "**Read**", "**A file's address**", "**Cannot be had:**"):
        assert part in PAGES[kind], part


def test_what_all_hosts_share_is_described_once() -> None:
    for name in ApiOptions.model_fields:
        assert f"`{name}`" in INDEX
