"""What docs/sources.md shows works as it stands there."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from settings import Settings, SourceSettings
from sources.generic import Options
from sources.manifest import ManifestSource
from sources.registry import open_source
from sources.spec import SourceSpec

DOCUMENT = (Path(__file__).resolve().parents[2] / "docs" / "sources.md").read_text()


def shown(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", DOCUMENT, re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("format", ["csv", "jsonl"])
async def test_the_manifests_import_without_a_problem(tmp_path: Path, format: str) -> None:
    (text,) = shown(format)
    path = tmp_path / f"m.{format}"
    path.write_text(text)
    await ManifestSource(path).check()
    page = await ManifestSource(path).list_page(None)

    assert [item.source_id for item in page.items] == ["lec-001", "lec-002"]
    assert page.problems == []


async def test_the_listings_are_read_with_the_settings_beside_them(serve: Any) -> None:
    titles = []
    for answer, toml in zip(shown("json"), shown("toml"), strict=True):

        def respond(request: Request, answer: str = answer) -> Response:
            if request.query_params.get("cursor") or request.query_params.get("page", "1") != "1":
                return JSONResponse({"assets": [], "data": []})
            return JSONResponse(json.loads(answer))

        host = await serve(respond)
        ((name, entry),) = tomllib.loads(toml)["sources"].items()
        known = Settings(sources={name: SourceSettings.model_validate({**entry, "base_url": host.url})})
        opened = open_source(SourceSpec(kind="generic", name=name), known)
        await opened.check()
        page = await opened.list_page(None)
        await opened.aclose()
        titles += [(item.title, item.duration_ms) for item in page.items]

    assert titles == [("Welcome", 12_500)] * 2


def test_every_option_is_described() -> None:
    for name in Options.model_fields:
        assert f"`{name}`" in DOCUMENT
