"""What travels with a video, out of any listing that is described by its settings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from starlette.responses import JSONResponse

from sources.about import About, Caption
from sources.generic import AboutFields, GenericSource, Options

FIELDS = {
    "description": "text.long",
    "tags": "labels",
    "folder": "folder.0.name",
    "poster": "still",
    "public": "open",
    "captions": "subs",
    "caption_language": "lang",
    "caption_url": "href",
    "caption_label": "name",
}


async def about(serve: Any, entry: dict[str, Any]) -> About:
    first = [{"id": 1, "url": "/a.mp4", **entry}]
    host = await serve(lambda request: JSONResponse(first if request.query_params["page"] == "1" else []))
    options = Options.model_validate({"style": "page", "host_page_size": 5, "about": FIELDS})
    async with GenericSource(host.url, options) as source:
        item = (await source.list_page(None)).items[0]
        poster = await source.locate_poster(item)
        assert (poster is None) is (item.about.poster is None)
        for caption in item.about.captions:
            assert (await source.locate_caption(item, caption)).address == caption.address
    captions = tuple(
        track.model_copy(update={"address": track.address and track.address.removeprefix(host.url)})
        for track in item.about.captions
    )
    still = item.about.poster and item.about.poster.removeprefix(host.url)
    return item.about.model_copy(update={"captions": captions, "poster": still})


async def test_fields_are_found_where_the_settings_say(serve: Any) -> None:
    found = await about(
        serve,
        {
            "text": {"long": " On acids "},
            "labels": ["spring", "lab", "lab", 7],
            "folder": [{"name": "CHEM-101"}],
            "still": "/still.jpg",
            "open": False,
            "subs": [{"lang": "en", "href": "/1.vtt", "name": "English"}, {"lang": "pt_BR", "href": "https://h/2"}],
        },
    )

    assert found == About(
        description="On acids",
        tags=("spring", "lab"),
        folder="CHEM-101",
        captions=(
            Caption(language="en", key="1", address="/1.vtt", label="English"),
            Caption(language="pt-BR", key="2", address="https://h/2"),
        ),
        poster="/still.jpg",
        privacy="private",
    )


@pytest.mark.parametrize("odd", [None, 7, "x", [], {}, ["x"], [{"x": 1}], True])
async def test_what_is_none_of_what_it_should_be_is_left_out(serve: Any, odd: Any) -> None:
    found = await about(serve, dict.fromkeys(("text", "labels", "folder", "open", "subs"), odd))

    assert found.captions == ()
    assert found.folder is None
    assert found.privacy == ("public" if odd is True else None)


def test_every_field_is_described() -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "sources.md").read_text()
    assert all(f"`{name}`" in page for name in AboutFields.model_fields)
