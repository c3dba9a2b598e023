"""What a manifest says of a video beside its file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from faults import Fault
from sources.about import About, Caption
from sources.base import Item, ListedPage, Problem
from sources.manifest import ManifestSource

ROW = {"id": "1", "url": "a.mp4"}


async def listed(path: Path) -> ListedPage:
    await ManifestSource(path).check()
    return await ManifestSource(path).list_page(None)


async def about(tmp_path: Path, **fields: Any) -> About:
    page = await listed(lines(tmp_path, {**ROW, **fields}))
    assert page.problems == []
    return page.items[0].about


def lines(tmp_path: Path, *rows: dict[str, Any]) -> Path:
    path = tmp_path / "m.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)))
    return path


async def test_a_csv_has_columns_for_all_that_travels_with_a_video(tmp_path: Path) -> None:
    path = tmp_path / "m.csv"
    path.write_text(
        "id,url,Description,TAGS,folder,Captions.en,captions.pt_BR,poster,Privacy,course\n"
        '1,a.mp4,"On acids, mostly","spring, lab;lab",/CHEM-101/ Week 1/,a.vtt,https://h/a.srt,a.jpg,Unlisted,CHEM\n'
        "2,b.mp4,,,,,,,,\n"
    )
    page = await listed(path)

    assert page.items[0].about == About(
        description="On acids, mostly",
        tags=("spring", "lab"),
        folder="CHEM-101/Week 1",
        captions=(
            Caption(language="en", key="1", address="a.vtt"),
            Caption(language="pt-BR", key="2", address="https://h/a.srt"),
        ),
        poster="a.jpg",
        privacy="unlisted",
    )
    assert page.items[0].metadata == {"course": "CHEM"}
    assert page.items[1] == Item("2", "b.mp4", 3)


async def test_json_has_a_list_of_captions_with_labels_and_kinds(tmp_path: Path) -> None:
    found = await about(
        tmp_path,
        tags=["a, b", " c "],
        captions=[
            {"language": "en", "url": "a.vtt", "label": " English ", "kind": "captions"},
            {"language": "de", "url": "b.vtt"},
        ],
        **{"captions.fr": "c.vtt"},
    )

    assert found.tags == ("a, b", "c")
    assert found.captions == (
        Caption(language="en", key="1", address="a.vtt", label="English", kind="captions"),
        Caption(language="de", key="2", address="b.vtt"),
        Caption(language="fr", key="3", address="c.vtt"),
    )


@pytest.mark.parametrize(
    ("fields", "column"),
    [
        ({"tags": 7}, "tags"),
        ({"tags": ["a", 7]}, "tags"),
        ({"description": ["a"]}, "description"),
        ({"folder": True}, "folder"),
        ({"privacy": "secret"}, "privacy"),
        ({"privacy": ["public"]}, "privacy"),
        ({"poster": "ftp://h/a.jpg"}, "poster"),
        ({"captions": "a.vtt"}, "captions"),
        ({"captions": {"en": "a.vtt"}}, "captions"),
        ({"captions": ["a.vtt"]}, "captions.1"),
        ({"captions": [{"language": "en", "url": "a"}, {"language": "en"}]}, "captions.2"),
        ({"captions": [{"url": "a.vtt"}]}, "captions.1"),
        ({"captions": [{"language": "englisch!", "url": "a.vtt"}]}, "captions.1"),
        ({"captions": [{"language": "en", "url": "a", "kind": "chapters"}]}, "captions.1"),
        ({"captions": [{"language": "en", "url": "a", "label": 1}]}, "captions.1"),
        ({"captions": [{"language": "en", "href": "a"}]}, "captions.1"),
        ({"captions.??": "a.vtt"}, "captions.??"),
        ({"captions.en": "//"}, None),
    ],
)
async def test_what_cannot_be_read_is_reported_with_its_column(
    tmp_path: Path, fields: dict[str, Any], column: str | None
) -> None:
    page = await listed(lines(tmp_path, {**ROW, **fields}, {"id": "2", "url": "b.mp4"}))

    assert [item.source_id for item in page.items][-1] == "2"
    assert [problem.column for problem in page.problems] == ([] if column is None else [column])
    assert all(isinstance(problem, Problem) and problem.words for problem in page.problems)


async def test_a_captions_column_without_a_language_is_refused_at_once(tmp_path: Path) -> None:
    path = tmp_path / "m.csv"
    path.write_text("id,url,captions.the english ones\n1,a.mp4,a.vtt\n")
    with pytest.raises(Fault, match=r"manifest-refused.*captions\.the english ones: names no language"):
        await listed(path)


async def test_one_language_in_two_spellings_is_named_twice(tmp_path: Path) -> None:
    path = tmp_path / "m.csv"
    path.write_text("id,url,captions.pt-BR,captions.PT_br\n1,a.mp4,a.vtt,b.vtt\n")
    with pytest.raises(Fault, match="named twice"):
        await listed(path)


async def test_paths_of_captions_and_posters_start_at_the_manifests_folder(tmp_path: Path) -> None:
    path = lines(
        tmp_path, {**ROW, "poster": "stills/a b.jpg", "captions": [{"language": "en", "url": "https://h/a b"}]}
    )
    item = (await listed(path)).items[0]
    source = ManifestSource(path)
    poster = await source.locate_poster(item)

    assert poster is not None
    assert poster.address == str(tmp_path / "stills" / "a b.jpg")
    assert (await source.locate_caption(item, item.about.captions[0])).address == "https://h/a%20b"
    assert await source.locate_poster(Item("2", "b.mp4", 2)) is None


async def test_signed_addresses_are_read_again_where_they_are_used_and_written_down_nowhere(tmp_path: Path) -> None:
    secret = "?X-Amz-Signature=s3cret"
    rows = [
        {
            "id": str(n),
            "url": f"https://h/{n}.mp4{secret}{n}",
            "poster": f"https://h/{n}.jpg{secret}{n}",
            "captions": [{"language": "en", "url": f"https://h/{n}.vtt{secret}{n}"}],
        }
        for n in range(5)
    ]
    path = lines(tmp_path, *rows)
    source = ManifestSource(path)
    for n, item in enumerate((await listed(path)).items):
        assert "s3cret" not in repr(item)
        poster = await source.locate_poster(item)
        assert poster is not None
        assert poster.address == rows[n]["poster"]
        assert (await source.locate_caption(item, item.about.captions[0])).address.endswith(f"{n}.vtt{secret}{n}")
        assert (await source.locate(item)).address == rows[n]["url"]


async def test_a_caption_that_left_the_manifest_is_not_found(tmp_path: Path) -> None:
    row = {**ROW, "captions": [{"language": "en", "url": "https://h/a.vtt?sig=s3cret"}]}
    path = lines(tmp_path, row)
    item = (await listed(path)).items[0]
    lines(tmp_path, ROW)
    with pytest.raises(Fault, match="source-not-found"):
        await ManifestSource(path).locate_caption(item, item.about.captions[0])
