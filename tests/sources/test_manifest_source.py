from __future__ import annotations

import csv
import io
import json
import os
import tempfile
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from faults import Fault
from sources.base import Item, ListedPage, Problem
from sources.manifest import RECORD_LIMIT, Format, ManifestSource, Options, open_path


def manifest(folder: Path, content: str | bytes, name: str = "m.csv") -> Path:
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


async def walk(path: Path, page_size: int = 500, *, format: Format | None = None) -> list[ListedPage]:
    """All pages, the source opened anew for each, as another worker would."""
    pages: list[ListedPage] = []
    cursor = None
    while True:
        pages.append(await ManifestSource(path, format=format, page_size=page_size).list_page(cursor))
        cursor = pages[-1].next_cursor
        if cursor is None:
            return pages


async def rows(path: Path, page_size: int = 500) -> tuple[list[Item], list[Problem]]:
    await ManifestSource(path).check()
    pages = await walk(path, page_size)
    return [i for page in pages for i in page.items], [p for page in pages for p in page.problems]


async def refusal(path: Path) -> str:
    """What a person reads; listing without a check refuses in the same words."""
    with pytest.raises(Fault) as checked:
        await ManifestSource(path).check()
    assert checked.value.code == "manifest-refused"
    return checked.value.detail


# --------------------------------------------------------------------------------------------------------- what is read


async def test_known_columns_are_read_and_further_ones_kept(tmp_path: Path) -> None:
    path = manifest(
        tmp_path,
        "ID,Url,title,size,duration_s,Course,empty\n"
        ' 7 ,https://host/a.mp4?v=a%2Bb,"Hello, world",1048576,12.5,Chemistry,\n'
        "8,films/b.mp4,,,,,\n",
    )
    items, problems = await rows(path)

    assert items == [
        Item("7", "https://host/a.mp4?v=a%2Bb", 2, "Hello, world", 1_048_576, 12_500, {"Course": "Chemistry"}),
        Item("8", "films/b.mp4", 3),
    ]
    assert problems == []


async def test_json_lines_are_read_alike(tmp_path: Path) -> None:
    path = manifest(
        tmp_path,
        '\ufeff{"id": 7, "url": "https://host/a.mp4", "title": "é\\n", "size": 1e3, "duration_s": 0, "keys": ["x"]}\r\n'
        " \r\n"
        '{"ID": "8", "url": "b.mp4", "size": null, "title": null, "note": null}',
        "m.jsonl",
    )
    (page,) = await walk(path)

    assert page.items == [
        Item("7", "https://host/a.mp4", 1, "é", 1000, None, {"keys": ["x"]}),
        Item("8", "b.mp4", 3),
    ]
    assert page.skipped_blank == 1


async def test_bom_crlf_quoted_newlines_and_blank_rows_leave_line_numbers_right(tmp_path: Path) -> None:
    path = manifest(
        tmp_path,
        b'\xef\xbb\xbfid,url,title\r\n1,u,"two\r\nlines"\r\n \t \r\n,,\r\n\r\n2,u,"a\n\nb"\r\nbad\r\n3,u,c',
    )
    (page,) = await walk(path)

    assert [(item.source_id, item.position) for item in page.items] == [("1", 2), ("2", 7), ("3", 11)]
    assert [problem.position for problem in page.problems] == [10]
    assert page.skipped_blank == 3


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
async def test_the_delimiter_is_the_one_under_which_the_header_has_its_columns(tmp_path: Path, delimiter: str) -> None:
    cells = [["id", "url", "title"], ["1", "https://host/a,b;c.mp4", "x"]]
    path = manifest(tmp_path, "\n".join(delimiter.join(f'"{cell}"' for cell in row) for row in cells), "m.tsv")
    items, _ = await rows(path)

    assert items == [Item("1", "https://host/a,b;c.mp4", 2, "x")]


async def test_the_format_option_wins_over_the_suffix(tmp_path: Path) -> None:
    path = manifest(tmp_path, '{"id": "1", "url": "u"}', "manifest.json")
    source = open_path(str(path), Options(format="jsonl"), 500)

    assert len((await source.list_page(None)).items) == 1
    assert "option format" in await refusal(path)


async def test_one_id_twice_is_listed_twice_with_both_positions(tmp_path: Path) -> None:
    items, _ = await rows(manifest(tmp_path, "id,url\n1,a\n1,a\n1,b\n"))

    assert [(item.source_id, item.locator, item.position) for item in items] == [
        ("1", "a", 2),
        ("1", "a", 3),
        ("1", "b", 4),
    ]


async def test_a_header_alone_is_an_empty_manifest(tmp_path: Path) -> None:
    assert await rows(manifest(tmp_path, "id,url\r\n")) == ([], [])


# ----------------------------------------------------------------------------------------------------- one row's faults


@pytest.mark.parametrize(
    ("row", "column", "words"),
    [
        ("1,u,t,1", "duration_s", "4 cells, the header 5"),
        ("1,a,b.mp4,t,1,2", None, "quote a cell"),
        (",u,,,", "id", "missing"),
        ('"  ",u,,,', "id", "missing"),
        (f"{'x' * 1001},u,,,", "id", "1001 characters"),
        ("a\0b,u,,,", "id", "NUL"),
        ("1,,,,", "url", "missing"),
        ("1,ftp://host/a.mp4,,,", "url", "'ftp'"),
        ("1,file:///etc/passwd,,,", "url", "'file'"),
        ("1,https:///a.mp4,,,", "url", "no host"),
        ("1,http:a.mp4,,,", "url", "no host"),
        ('1,"https://host/a\nb",,,', "url", "line break"),
        (f"1,https://host/{'x' * 8000},,,", "url", "8000"),
        ("1,u,,abc,", "size", "'abc' is no number of bytes"),
        ("1,u,,-1,", "size", "bytes"),
        ("1,u,,1_000,", "size", "bytes"),
        ("1,u,,٣,", "size", "bytes"),
        ("1,u,,99999999999999999999,", "size", "bytes"),
        ("1,u,,,-0.5", "duration_s", "seconds"),
        ("1,u,,,nan", "duration_s", "seconds"),
        ("1,u,,,00:04:10", "duration_s", "seconds"),
        ("1,u,,,1e300", "duration_s", "seconds"),
        ('1,"u"x,,,', None, "quote"),
        (f"1,u,{'x' * 200_000},,", None, "131072 characters"),
        (f"1,u,{'x' * 100_000},{'y,' * 500_000}", None, f"{RECORD_LIMIT} bytes"),
    ],
)
async def test_a_row_that_cannot_be_read_is_one_problem_and_its_neighbours_import(
    tmp_path: Path, row: str, column: str | None, words: str
) -> None:
    path = manifest(tmp_path, f"id,url,title,size,duration_s\na,u,,,\n{row}\nb,u,,,\n")
    items, problems = await rows(path)

    assert [item.source_id for item in items] == ["a", "b"]
    assert [(problem.position, problem.column) for problem in problems] == [(3, column)]
    assert words in problems[0].words


@pytest.mark.parametrize(
    ("row", "column", "words"),
    [
        ("[1]", None, "not a JSON object"),
        ("{nope}", None, "character 2"),
        ('{"id": "1", "url": "u"', None, "not valid JSON"),
        ('{"id": "1", "id": "2", "url": "u"}', "id", "twice"),
        ('{"id": "1", "ID": "2", "url": "u"}', "id", "twice"),
        ('{"id": "1", "url": "u", "x": {"y": 1, "y": 2}}', "y", "twice"),
        ('{"id": "1", "url": "u", "x": NaN}', None, "NaN"),
        ('{"id": "1", "url": "u", "x": 1e999}', None, "too large"),
        ('{"id": "1", "url": "u", "x": ' + "9" * 5000 + "}", None, "too long"),
        ('{"id": "1", "url": "u", "x": ' + "[" * 100_000, None, "nested"),
        ('{"id": true, "url": "u"}', "id", "true or false"),
        ('{"id": 1.5, "url": "u"}', "id", "fraction"),
        ('{"id": null, "url": "u"}', "id", "missing"),
        ('{"id": "\\ud800", "url": "u"}', "id", "half a character"),
        ('{"id": "1", "url": ["u"]}', "url", "a list"),
        ('{"id": "1", "url": "u", "title": {}}', "title", "an object"),
        ('{"id": "1", "url": "u", "size": 1.5}', "size", "bytes"),
        ('{"id": "1", "url": "u", "size": true}', "size", "bytes"),
        ('{"id": "1", "url": "u", "duration_s": -1}', "duration_s", "seconds"),
        ('{"id": "1", "url": "u", "duration_s": ' + "9" * 400 + "}", "duration_s", "seconds"),
        ('{"id": "1", "url": "u", "x": "' + "y" * RECORD_LIMIT + '"}', None, f"{RECORD_LIMIT} bytes"),
    ],
)
async def test_a_line_that_is_no_readable_object_is_one_problem_and_its_neighbours_import(
    tmp_path: Path, row: str, column: str | None, words: str
) -> None:
    good = '{"id": "a", "url": "u"}'
    items, problems = await rows(manifest(tmp_path, f"{good}\n{row}\n{good}\n", "m.ndjson"))

    assert [item.position for item in items] == [1, 3]
    assert [(problem.position, problem.column) for problem in problems] == [(2, column)]
    assert words in problems[0].words


async def test_an_unnamed_column_may_only_hold_blanks(tmp_path: Path) -> None:
    items, problems = await rows(manifest(tmp_path, "id,url,,\n1,u,, \n2,u,x,\n"))

    assert [item.source_id for item in items] == ["1"]
    assert problems[0].position == 3
    assert "no column name" in problems[0].words


# ---------------------------------------------------------------------------------------------- the whole file's faults


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", ": is empty"),
        (b"\xef\xbb\xbf\r\n  \r\n", ": is empty"),
        (b"7,https://host/a.mp4\n", ":1: column id: there is no such column"),
        (b"id,link\n", ":1: column url: there is no such column, only 'id', 'link'"),
        (b"id;title\n", ":1: column url: "),
        (b"\nid,url,title,Title\n", ":2: column Title: is named twice (cells 3 and 4)"),
        (b"id,url,x,x\n", ":1: column x: is named twice"),
        (b"id,url\n1,u\n2,caf\xe9\n", ":3: byte 0xE9 (number 6 in the line, 17 in the file) is not UTF-8"),
        (b'id,url,t\n1,u,"a\ncaf\xe9"\n', ":3: byte 0xE9 (number 4 in the line"),
        ("id,url\n1,ü\n".encode("utf-16"), ":1: is UTF-16"),
        ("id,url\n1,ü\n".encode("utf-16-le"), ":1: holds NUL bytes, so it is probably UTF-16"),
        (b"id,url\r1,u\r2,v\r", ":1: the header cannot be read (a carriage return stands outside quotes"),
        (
            b'id,url\n1,a\n2,"b\n3,"c"\n',
            ":3: a quote opened in this row is not closed as it should be (noticed in line 4)",
        ),
        (b'id,url\n1,"a\n' + b"2,b\n" * 300_000, ":2: a quote opened in this row"),
        (b'id,url\n1,"a\n2,b\n', ":2: a quote opened in this row"),
        (b'id,"ur"l\n', ":1: the header cannot be read (a quote is not closed, or is followed by text"),
        (b'"id";"link, really"\n', ":1: column url: there is no such column, only 'id', 'link, really'"),
    ],
)
async def test_a_file_that_cannot_be_read_as_a_whole_is_refused_at_its_place(
    tmp_path: Path, content: bytes, said: str
) -> None:
    path = manifest(tmp_path, content)

    assert (await refusal(path)).startswith(f"{path}{said}")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"\n", ": is empty"),
        (b'[{"id": 1}]', ":1: is one JSON list"),
        (b'\n{\n"id": 1\n}\n', ":2: is JSON over several lines"),
        (b"id,url\n1,u\n", ":1: is not JSON Lines"),
        (b'{"id": 1, "url": "u"}\n{"id": "caf\xe9"}', ":2: byte 0xE9"),
    ],
)
async def test_what_is_no_json_lines_is_refused_at_its_place(tmp_path: Path, content: bytes, said: str) -> None:
    path = manifest(tmp_path, content, "m.jsonl")

    assert (await refusal(path)).startswith(f"{path}{said}")


async def test_what_is_no_readable_file_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.csv")
    for name, words in [("missing.csv", "no such file"), (".", "is not a file"), ("pipe.csv", "is not a file")]:
        assert words in await refusal(tmp_path / name)
    manifest(tmp_path, "", "file")
    assert "no such file" in await refusal(tmp_path / "file/m.csv")
    assert "NUL" in await refusal(tmp_path / "a\0.csv")
    assert "'.gz'" in await refusal(manifest(tmp_path, b"\x1f\x8b", "m.csv.gz"))


async def test_listing_an_unchecked_file_refuses_in_the_same_words(tmp_path: Path) -> None:
    path = manifest(tmp_path, b"id,url\n1,caf\xe9\n")
    words = await refusal(path)

    with pytest.raises(Fault) as listed:
        await ManifestSource(path).list_page(None)
    assert (listed.value.code, listed.value.detail) == ("manifest-refused", words)


# -------------------------------------------------------------------------------------------------------------- cursors


@pytest.mark.parametrize("bom", [b"", b"\xef\xbb\xbf"])
@pytest.mark.parametrize("page_size", [1, 2, 3, 7])
async def test_a_listing_goes_on_from_any_page_in_another_process(tmp_path: Path, bom: bytes, page_size: int) -> None:
    content = "id,url,title\r\n" + "".join(
        f'{n},films/{n}.mp4,"line one\r\n\r\nüü ""{n}"""\r\n' + ("\r\n" if n % 3 == 0 else "") for n in range(10)
    )
    path = manifest(tmp_path, bom + content.encode() + b"broken\r\n")
    (whole,) = await walk(path)

    pages = await walk(path, page_size)

    assert [item for page in pages for item in page.items] == list(whole.items)
    assert [problem for page in pages for problem in page.problems] == list(whole.problems)
    assert sum(page.skipped_blank for page in pages) == whole.skipped_blank
    for page, after in pairwise(pages):
        assert len(page.items) + len(page.problems) == page_size
        again = await ManifestSource(path, page_size=page_size).list_page(page.next_cursor)
        assert again == after


async def test_going_on_does_not_read_what_came_before(tmp_path: Path) -> None:
    path = manifest(tmp_path, "id,url\n" + "".join(f"{n},u\n" for n in range(100)))
    first = await ManifestSource(path, page_size=50).list_page(None)
    assert first.next_cursor is not None

    place = json.loads(first.next_cursor)

    lines = path.read_bytes().splitlines(keepends=True)
    assert place["byte"] == sum(map(len, lines[:51]))
    assert (place["line"], place["row"]) == (51, 50)


@pytest.mark.parametrize("change", ["append", "same size", "shorter"])
async def test_a_cursor_into_a_file_that_changed_is_stale(tmp_path: Path, change: str) -> None:
    content = "id,url\n1,a\n2,b\n3,c\n"
    path = manifest(tmp_path, content)
    first = await ManifestSource(path, page_size=1).list_page(None)
    changed = {"append": content + "4,d\n", "same size": content.replace("3,c", "3,x"), "shorter": "id,url\n1,a\n"}
    path.write_text(changed[change])

    with pytest.raises(Fault, match=r"cursor-stale.*has changed"):
        await ManifestSource(path, page_size=1).list_page(first.next_cursor)


async def test_a_copy_of_the_file_on_another_host_takes_the_cursor(tmp_path: Path) -> None:
    content = "id,url\n1,a\n2,b\n"
    first = await ManifestSource(manifest(tmp_path, content), page_size=1).list_page(None)
    copy = manifest(tmp_path, content, "copy.csv")
    os.utime(copy, (1, 1))

    assert [item.source_id for item in (await ManifestSource(copy).list_page(first.next_cursor)).items] == ["2"]


@pytest.mark.parametrize("cursor", ["", "{", "[]", "5", '{"file":1}', "[" * 100_000])
async def test_what_is_no_cursor_of_a_manifest_is_stale(tmp_path: Path, cursor: str) -> None:
    with pytest.raises(Fault, match="cursor-stale"):
        await ManifestSource(manifest(tmp_path, "id,url\n1,a\n")).list_page(cursor)


async def test_other_stripes_own_nothing(tmp_path: Path) -> None:
    source = ManifestSource(manifest(tmp_path, "id,url\n1,a\n"))

    assert not source.stripeable
    assert await source.list_page(None, stripe=1, stripes=2) == ListedPage((), None)


# ------------------------------------------------------------------------------------------------------------- locating


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("https://host/a%20b+c.mp4?X-Amz-Signature=a%2Fb", "https://host/a%20b+c.mp4?X-Amz-Signature=a%2Fb"),
        ("HTTP://host/x", "HTTP://host/x"),
        ("https://host/a b.mp4", "https://host/a%20b.mp4"),
    ],
)
async def test_an_address_is_handed_on_as_it_stands(tmp_path: Path, url: str, address: str) -> None:
    async with ManifestSource(manifest(tmp_path, f"id,url,size\n1,{url},9\n")) as source:
        (item,) = (await source.list_page(None)).items
        location = await source.locate(item)

    assert (location.address, location.size, location.is_local, dict(location.headers)) == (address, 9, False, {})


@pytest.mark.parametrize(
    "name", [" -dash.mp4", "a:b.mp4", "it's q & $HOME.mp4", "naïve 日本.mp4", "a?b#c%20d.mp4", "../x.mp4"]
)
async def test_a_path_is_resolved_against_the_manifests_folder(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "library"
    folder.mkdir()
    source = ManifestSource(manifest(folder, f"id,url\n1,{name}\n"))
    (item,) = (await source.list_page(None)).items

    location = await source.locate(item)

    assert location.is_local
    assert location.address == str(folder / name.strip())


# ----------------------------------------------------------------------------------------------------------- properties

cell = st.text(st.characters(exclude_categories=["Cs"]), max_size=12) | st.sampled_from(
    ["\r\n", '"', ",", "a\nb", "\r", ";\t"]
)
IN_A_FOLDER = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@IN_A_FOLDER
@given(
    st.lists(st.tuples(cell, cell), max_size=12),
    st.sampled_from([",", ";", "\t"]),
    st.sampled_from([b"", b"\xef\xbb\xbf"]),
    st.integers(1, 5),
)
@example([("\r", "\n"), ('"\n\n"', "")], ",", b"\xef\xbb\xbf", 1)
async def test_any_table_that_was_written_is_read_back_with_its_line_numbers(
    tmp_path: Path, table: list[tuple[str, str]], delimiter: str, bom: bytes, page_size: int
) -> None:
    written = io.StringIO(newline="")
    writer = csv.writer(written, delimiter=delimiter)
    writer.writerow(["id", "title", "note", "url"])
    expected: list[tuple[Any, ...]] = []
    for n, (title, note) in enumerate(table):
        line = written.getvalue().count("\n") + 1
        expected.append((f"v{n}", title.strip() or None, {"note": note} if note.strip() else {}, line))
        writer.writerow([f"v{n}", title, note, "https://host/x"])
    path = Path(tempfile.mkdtemp(dir=tmp_path)) / "m.csv"
    path.write_bytes(bom + written.getvalue().encode())

    items, problems = await rows(path, page_size)

    assert problems == []
    assert [(item.source_id, item.title, item.metadata, item.position) for item in items] == expected


piece = st.binary(max_size=20) | st.sampled_from(
    [
        b"id,url\n",
        b"id;url\n",
        b'"',
        b"\n",
        b"\r",
        b"1,u\n",
        b'{"id":"1","url":"u"}\n',
        b'{"id":',
        b"\xef\xbb\xbf",
        b"\0",
        b"[",
    ]
)


@IN_A_FOLDER
@given(st.lists(piece, max_size=20).map(b"".join), st.sampled_from(["csv", "jsonl"]))
@example(b"id,url\n" + b"\xff\xfe", "csv")
@example(b"\n" * 3 + b"id,url", "csv")
async def test_any_bytes_end_in_a_refusal_or_in_items_and_problems(
    tmp_path: Path, content: bytes, format: Format
) -> None:
    path = Path(tempfile.mkdtemp(dir=tmp_path)) / "m"
    path.write_bytes(content)
    try:
        await ManifestSource(path, format=format).check()
    except Fault as refused:
        if refused.code != "manifest-refused":
            raise
        return
    pages = await walk(path, 3, format=format)

    assert all(problem.position >= 1 for page in pages for problem in page.problems)
    assert all(item.source_id and item.locator for page in pages for item in page.items)
