from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from pydantic import ValidationError

from faults import Fault
from settings import Settings, SourceSettings
from sources.registry import check_options, kinds, open_source
from sources.spec import SourceSpec

GENERIC = {"style": "page", "items": "data"}


def settings(**sources: SourceSettings) -> Settings:
    return Settings(sources=sources)


async def test_each_kind_opens_from_its_spec(tmp_path: Path) -> None:
    known = settings(old=SourceSettings(base_url="https://old.example", options=GENERIC))
    specs = [
        SourceSpec(kind="manifest", location=str(tmp_path / "m.csv")),
        SourceSpec(kind="folder", location=str(tmp_path), options={"suffixes": [".MP4"]}),
        SourceSpec(kind="generic", name="old"),
    ]
    assert {spec.kind for spec in specs} <= set(kinds())
    assert [await _stripeable(spec, known) for spec in specs] == [False, False, True]


async def _stripeable(spec: SourceSpec, known: Settings) -> bool:
    async with open_source(spec, known) as source:  # type: ignore[attr-defined]
        return bool(source.stripeable)


def test_a_spec_survives_json() -> None:
    spec = SourceSpec(kind="manifest", location="/m.csv", page_size=7, options={"format": "jsonl"})

    assert SourceSpec.model_validate_json(spec.model_dump_json()) == spec


@pytest.mark.parametrize(
    "fields",
    [
        {"kind": "manifest"},
        {"kind": "manifest", "location": "m.csv", "name": "old"},
        {"kind": "manifest", "location": ""},
        {"kind": "Manifest!", "location": "m.csv"},
        {"kind": "manifest", "location": "m.csv", "page_size": 0},
        {"kind": "manifest", "location": "m.csv", "page_size": 501},
        {"kind": "manifest", "location": "m.csv", "token": "s3cret"},
    ],
)
def test_a_spec_names_exactly_one_place_and_a_possible_page(fields: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        SourceSpec.model_validate(fields)


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        (SourceSpec(kind="ftp", location="x"), "known: manifest, folder, generic"),
        (SourceSpec(kind="manifest", name="old"), "needs a location"),
        (SourceSpec(kind="generic", location="x"), "needs the name"),
        (SourceSpec(kind="generic", name="other"), "known: bad, old"),
        (SourceSpec(kind="generic", name="old", options={"style": "page"}), "[sources.old.options]"),
        (SourceSpec(kind="generic", name="bad"), "[sources.bad.options]: style"),
        (SourceSpec(kind="manifest", location="m.csv", options={"format": "xml"}), "format"),
    ],
)
def test_what_the_settings_do_not_allow_is_refused_in_words(spec: SourceSpec, words: str) -> None:
    known = settings(
        old=SourceSettings(base_url="https://old.example", options=GENERIC),
        bad=SourceSettings(base_url="https://old.example", options={"style": "s3cret", "itmes": "data"}),
    )
    with pytest.raises(Fault) as refused:
        open_source(spec, known)

    assert refused.value.code == "settings-refused"
    assert words in refused.value.detail
    assert "s3cret" not in refused.value.detail


@pytest.mark.parametrize(
    "options",
    [
        {"style": "cursor"},
        {"style": "page", "address": "item"},
        {"style": "page", "address": "item", "item_path": "/videos"},
        {"style": "page", "address": "item", "item_path": "/videos/{id}", "url": None},
        {"style": "page", "url": None},
        {"style": "page", "unknown": 1},
        {},
    ],
)
def test_options_that_cannot_work_together_are_refused(options: dict[str, object]) -> None:
    with pytest.raises(Fault, match="settings-refused"):
        check_options("generic", options)


def test_a_workflow_can_import_the_spec_without_an_http_library() -> None:
    code = "import sys, sources, sources.spec; print(sorted({'httpx', 'settings', 'asyncpg'} & set(sys.modules)))"
    root = Path(__file__).resolve().parents[2]
    done = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "[]"
