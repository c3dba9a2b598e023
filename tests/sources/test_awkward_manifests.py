"""Manifests as they really come: what is read, what is refused at once, and that no row is ever lost without a word."""

from __future__ import annotations

import csv
import gzip
import io
import json
import os
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from benchmarks.manifest import write as write_long
from faults import Fault
from ledger import questions
from ledger.engine import Engine
from ledger.listings import Walker, tally, write_page
from ledger.runs import open_phase, open_run
from settings import LedgerSettings
from sources.base import Item, ListedPage
from sources.manifest import Format, ManifestSource

ROOT = Path(__file__).resolve().parents[2]


async def listed(path: Path | str, page_size: int = 500, **options: Any) -> list[ListedPage]:
    """Checked, then all pages."""
    await ManifestSource(path, **options).check()
    pages: list[ListedPage] = []
    cursor = None
    while not pages or cursor is not None:
        pages.append(await ManifestSource(path, page_size=page_size, **options).list_page(cursor))
        cursor = pages[-1].next_cursor
    return pages


async def read(folder: Path, content: str | bytes, name: str = "m.csv") -> ListedPage:
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    [page] = await listed(path)
    return page


async def refusal(path: Path | str) -> str:
    with pytest.raises(Fault) as raised:
        await listed(path)
    assert raised.value.code == "manifest-refused"
    return raised.value.detail


def ids(page: ListedPage) -> list[str]:
    return [item.source_id for item in page.items]


# -------------------------------------------------------------------------------------------------------------- read


@pytest.mark.parametrize(
    "content",
    [
        "\ufeffid,url\r\n1,u\r\n2,u\r\n",
        "id,url\r\n1,u\r\n2,u",
        "\r\n \r\nid,url\n1,u\n2,u\n",
        "ID, Url \n1,u\n2,u\n",
        '"id","url"\n"1","u"\n"2","u"\n',
        "id;url\n1;u\n2;u\n",
        "id\turl\n1\tu\n2\tu\n",
        "sep=;\r\nid;url\r\n1;u\r\n2;u\r\n",
        '"sep=,"\nid,url\n1,u\n2,u\n',
        "id,url,\n1,u,\n2,u,\n",
        "url,x,id\nu,,1\nu,,2\n",
        "id,url\n1,u\n\ufeff2,u\n",
        "id,url,title\n1,u,\x0b\x0c\x1c\x85\u2028\n2,u,x\n",
    ],
)
async def test_a_table_is_read_however_it_was_exported(tmp_path: Path, content: str) -> None:
    page = await read(tmp_path, content)
    assert (ids(page), page.problems) == (["1", "2"], [])


async def test_blank_rows_are_skipped_and_counted(tmp_path: Path) -> None:
    page = await read(tmp_path, "id,url\n1,u\n\n \t \n,\n  ,  \n2,u\n\n")
    assert (ids(page), page.skipped_blank) == (["1", "2"], 5)


async def test_cells_that_look_like_formulas_are_text(tmp_path: Path) -> None:
    page = await read(tmp_path, 'id,url,title\n=1+1,u,"=HYPERLINK(""http://x"",""y"")"\n@id,u,+1\n-5,u,-\n')
    assert [(item.source_id, item.title) for item in page.items] == [
        ("=1+1", '=HYPERLINK("http://x","y")'),
        ("@id", "+1"),
        ("-5", "-"),
    ]


async def test_half_characters_and_nul_in_a_title_cost_no_row(tmp_path: Path) -> None:
    page = await read(tmp_path, '{"id":"1","url":"u","title":"\\ud800\\u0000"}\n{"id":"2","url":"u"}\n', "m.jsonl")
    assert ids(page) == ["1", "2"]
    assert ids(await read(tmp_path, b"id,url,title\n1,u,a\0b\n2,u,c\n")) == ["1", "2"]


# --------------------------------------------------------------------------------------------------------- addresses

SIGNED = "http://user:s3cret@host/{}.mp4?v=1&X-Amz-Signature=abc{}%2Fdef"


@pytest.mark.parametrize("name", ["m.csv", "m.jsonl"])
async def test_an_address_with_secrets_is_listed_without_them_and_whole_where_it_is_used(
    tmp_path: Path, name: str
) -> None:
    path = tmp_path / name
    numbers = [*range(700)]
    urls = [SIGNED.format(n, n) for n in numbers]
    if name == "m.csv":
        path.write_text("id,url\n\n" + "".join(f'{n},"{url}"\n' for n, url in zip(numbers, urls, strict=True)))
    else:
        path.write_text("\n".join(json.dumps({"id": n, "url": url}) for n, url in zip(numbers, urls, strict=True)))
    items = [item for page in await listed(path, 100) for item in page.items]
    assert not any(secret in repr(items) for secret in ("s3cret", "abc", "user"))
    source = ManifestSource(path)
    assert [(await source.locate(item)).address for item in items] == urls


async def test_an_address_whose_row_has_moved_or_was_signed_anew_is_found_by_its_id(tmp_path: Path) -> None:
    path = tmp_path / "m.csv"
    path.write_text("id,url\n" + "".join(f"{n},{SIGNED.format(n, n)}\n" for n in range(600)))
    items = [item for page in await listed(path) for item in page.items]
    path.write_text("id,url\nnew,u\n" + "".join(f"{n},{SIGNED.format(n, 'x')}\n" for n in reversed(range(1, 600))))
    source = ManifestSource(path)
    for number in (1, 300, 599):
        assert (await source.locate(items[number])).address == SIGNED.format(number, "x")
    with pytest.raises(Fault, match=r"source-not-found: .* no row with the id '0'"):
        await source.locate(items[0])


@pytest.mark.parametrize("key", ["a%20b", "a%2Bb", "10%252B2.jpg", "caf%C3%A9", "a+b", "10%2B2.jpg"])
async def test_a_ready_made_address_is_left_untouched(tmp_path: Path, key: str) -> None:
    url = f"https://bucket.example/{key}?X-Amz-Signature=a%2Fb%3D&x=+%2B"
    source = ManifestSource(tmp_path / "m.csv")
    (tmp_path / "m.csv").write_text(f"id,url\n1,{url}\n")
    [page] = await listed(tmp_path / "m.csv")
    assert (await source.locate(page.items[0])).address == url


# ------------------------------------------------------------------------------------------------- one row's problem


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ("1", "2 cells"),
        ("1,u,t,x", "quote a cell"),
        ("1,u,t,", "quote a cell"),
        ('1,u,"t', "quote"),
        ('1,u,t"x"y', None),
        ("1,u,t\rx", "carriage return"),
        (",u,t", "missing"),
        ("1,,t", "missing"),
        ("\u200b\u00a0\t,,", "missing"),
    ],
)
async def test_a_row_with_missing_or_extra_or_broken_cells_is_named_by_its_line_and_the_others_import(
    tmp_path: Path, row: str, words: str | None
) -> None:
    before = "id,url,title\na,u,t\n"
    page = await read(tmp_path, before + row if row.count('"') == 1 else f"{before}{row}\nb,u,t\n")
    if words is None:
        assert page.problems == [], "a quote within a cell that was not quoted is a quote"
        return
    assert [problem.position for problem in page.problems] == [3]
    assert ids(page) == (["a"] if row.count('"') == 1 else ["a", "b"])


@pytest.mark.parametrize(
    "line",
    [
        "5",
        '"x"',
        "null",
        "true",
        "[]",
        '[{"id":"2","url":"u"}]',
        '{"id":"1","url":"u"} {"id":"2","url":"u"}',
        '{"id":"1","url":"u"},',
        '{"id":"1","url":"u","x":NaN}',
        '{"id":"1","url":"u","x":-Infinity}',
        '{"id":"1","url":"u","x":1e400}',
        '{"id":"1","id":"1","url":"u"}',
        '{"id":"1","Id":"1","url":"u"}',
        '{"id":"1","url":"u","x":' + "[" * 60 + "]" * 60 + "}",
        '{"id":"1","url":"u","x":' + '{"a":' * 900 + "1" + "}" * 900 + "}",
        '{"id":"1","url":"u","x":' + "[" * 5_000 + "]" * 5_000 + "}",
        '{"id":"1","url":"u\\ud800"}',
        '{"id":"1\\u0000","url":"u"}',
        "{'id':'1','url':'u'}",
        '{"id":"1","url":"u"}\r{"id":"2","url":"u"}',
        '{"id":"1","url":"u","size":' + "9" * 30 + "}",
        '{"id":"1","url":"u","x":"' + "y" * 2_000_000 + '"}',
    ],
    ids=lambda line: line[:24],
)
async def test_a_line_of_json_that_is_no_readable_object_is_named_and_the_others_import(
    tmp_path: Path, line: str
) -> None:
    good = '{"id":"a","url":"u"}'
    page = await read(tmp_path, f"{good}\n{line}\n{good}\n", "m.jsonl")
    assert [item.position for item in page.items] == [1, 3]
    assert [problem.position for problem in page.problems] == [2]


@pytest.mark.parametrize("claim", ["NaN", "Infinity", "-1", "-0.5", "1e400", "4,5", "00:04", "true", "٤", "1_0"])
async def test_a_duration_that_is_none_is_a_problem_of_its_row(tmp_path: Path, claim: str) -> None:
    page = await read(tmp_path, f'id,url,duration_s\n1,u,"{claim}"\n2,u,4.02\n3,u,0\n4,u,\n')
    assert [(item.source_id, item.duration_ms) for item in page.items] == [("2", 4020), ("3", None), ("4", None)]
    assert [(problem.position, problem.column) for problem in page.problems] == [(2, "duration_s")]


# ---------------------------------------------------------------------------------------------------- refused at once


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("m.csv", b"", "is empty"),
        ("m.jsonl", b"", "is empty"),
        ("m.csv", b"\xef\xbb\xbf", "is empty"),
        ("m.csv", b"1,https://h/a\n2,https://h/b\n", "there is no such column"),
        ("m.csv", b"id,url,id\n1,u,2\n", "named twice"),
        ("m.csv", b"id,url,Title,TITLE\n1,u,a,b\n", "named twice"),
        ("m.csv", b"id|url\n1|u\n", "there is no such column"),
        ("m.csv", b"id,url\r1,u\r", "carriage return"),
        ("m.jsonl", b'{"id":"1","url":"u"}\r{"id":"2","url":"u"}\r', "carriage return"),
        ("m.csv", "id,url\n1,ü\n".encode("utf-16"), "UTF-16"),
        ("m.csv", "id,url\n1,ü\n".encode("utf-16-le"), "UTF-16"),
        ("m.csv", "id,url\n1,ü\n".encode("utf-16-be"), "UTF-16"),
        ("m.csv", "id,url\n1,ü\n".encode("utf-32"), "UTF-16"),
        ("m.jsonl", '{"id":"1","url":"ü"}\n'.encode("utf-16"), "UTF-16"),
        ("m.jsonl", '{"id":"1","url":"ü"}\n'.encode("utf-16-le"), "UTF-16"),
        ("m.jsonl", '{"id":"1","url":"ü"}\n'.encode("utf-16-be"), "UTF-16"),
        ("m.csv", b"id,url\n1,u\n2,caf\xe9\n", ":3: byte 0xE9"),
        ("m.csv", b"id,url\n1,\xc0\xaf\n", ":2: byte 0xC0"),
        ("m.csv", b"id,url\n1,\xed\xa0\x80\n", ":2: byte 0xED"),
        ("m.csv", b"id,url\n" + b"1,u\n" * 50_000 + b"2,\xff\n", ":50002: byte 0xFF"),
        ("m.jsonl", b'{"id":"1","url":"u"}\n' * 3 + b'{"id":"\xff"}\n', ":4: byte 0xFF"),
        ("m.csv", b'id,url\n1,"u\n2,u\n3,u\n', ":2: a quote opened in this row"),
        ("m.csv", gzip.compress(b"id,url\n1,u\n", mtime=0), "is compressed (gzip)"),
        ("m.jsonl", gzip.compress(b'{"id":"1","url":"u"}\n', mtime=0), "is compressed (gzip)"),
        ("m.csv.gz", gzip.compress(b"id,url\n1,u\n", mtime=0), "unpack it first"),
        ("m.csv", b"PK\x03\x04" + bytes(range(256)), "spreadsheet's own file"),
        ("m.csv", b"x" * 3_000_000, "header cannot be read"),
        ("m.csv", b"\0" * 100, "NUL"),
        ("m.jsonl", b'[{"id":"1","url":"u"}]', "one JSON list"),
        ("m.jsonl", b"5\n", "is not JSON Lines"),
        ("m.jsonl", b"id,url\n1,u\n", "is not JSON Lines"),
    ],
)
async def test_a_file_that_is_no_manifest_as_a_whole_is_refused_and_nothing_imported(
    tmp_path: Path, name: str, content: bytes, words: str
) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    said = await refusal(path)
    assert said.startswith(str(path))
    assert words in said


async def test_what_is_no_file_that_can_be_read_twice_is_refused_in_its_own_words(tmp_path: Path) -> None:
    (tmp_path / "loop.csv").symlink_to("loop.csv")
    (tmp_path / "to.csv").symlink_to("from.csv")
    (tmp_path / "from.csv").symlink_to("to.csv")
    (tmp_path / "dangling.csv").symlink_to("nowhere.csv")
    (tmp_path / "folder.csv").mkdir()
    os.mkfifo(tmp_path / "pipe.csv")
    for name, words in [
        ("loop.csv", "leads back to itself"),
        ("to.csv", "leads back to itself"),
        ("dangling.csv", "no such file"),
        ("folder.csv", "is not a file"),
        ("pipe.csv", "is not a file"),
        ("n" * 300 + ".csv", "longer than any can be"),
        ("", "is not a file"),
    ]:
        assert words in await refusal(tmp_path / name), name
    assert "standard input" in await refusal("-")
    for device in ("/dev/null", "/dev/stdin", "/dev/zero"):
        assert "is not a file" in await refusal(device) or "no such file" in await refusal(device)


NOBODY = """
import asyncio, os, sys
from faults import Fault
from sources.manifest import ManifestSource

async def main(path):
    await asyncio.to_thread(int)  # loads what could not be loaded any more
    if os.getuid() == 0:
        os.setgid(65534), os.setuid(65534)  # root may read everything
    try:
        await ManifestSource(path).check()
    except Fault as fault:
        print(fault)

asyncio.run(main(sys.argv[1]))
"""


async def test_a_file_that_may_not_be_read_is_said_to_be_that() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        path = folder / "m.csv"
        path.write_text("id,url\n1,u\n")
        path.chmod(0)
        done = subprocess.run(
            [sys.executable, "-c", NOBODY, path], cwd=ROOT, capture_output=True, text=True, check=False
        )
    assert done.stdout.startswith(f"manifest-refused: {path}: may not be read"), done.stderr


# -------------------------------------------------------------------------------------------- a file that is written to


async def test_a_manifest_that_changes_while_it_is_read_is_read_as_one_version_or_found_out(tmp_path: Path) -> None:
    """A writer appends for as long as the reader lists; each page is from one version of the file."""
    path = tmp_path / "m.csv"
    path.write_text("id,url\n" + "".join(f"{n},u\n" for n in range(5_000)))
    stop = threading.Event()

    def write() -> None:
        with path.open("a") as file:
            number = 5_000
            while not stop.is_set():
                file.write(f"{number},u\n")
                file.flush()
                number += 1
                stop.wait(0.001)

    writer = threading.Thread(target=write)
    writer.start()
    ends: set[str] = set()
    try:
        for _ in range(200):
            cursor, seen = None, 0
            try:
                while True:
                    page = await ManifestSource(path, page_size=500).list_page(cursor)
                    assert [int(item.source_id) for item in page.items] == list(range(seen, seen + len(page.items)))
                    seen += len(page.items)
                    cursor = page.next_cursor
                    if cursor is None:
                        break
                ends.add("whole")
            except Fault as fault:
                ends.add(fault.code)
            if "cursor-stale" in ends:
                break
    finally:
        stop.set()
        writer.join()
    assert ends <= {"whole", "cursor-stale"}
    assert "cursor-stale" in ends


# ------------------------------------------------------------------------------------------------- twice, in the ledger


async def imported(database: str, path: Path, page_size: int = 500) -> tuple[Engine, list[ListedPage]]:
    engine = await Engine.open(LedgerSettings(dsn=database, pool_size=2))
    spec = {"kind": "manifest", "location": str(path)}
    await open_run(
        engine, run="r", tenant="acme", source="library", source_spec=spec, account="main", plan=("list", "inventory")
    )
    fence = await open_phase(engine, "r", "list", None)
    assert fence is not None
    walker = Walker("r", "acme", "library", "main", 1, 0, fence)
    pages = await listed(path, page_size)
    for sequence, page in enumerate(pages):
        assert await write_page(engine, walker, sequence, page) is not None
    return engine, pages


@pytest.mark.parametrize("page_size", [1, 3, 500])
async def test_an_id_twice_with_one_url_is_collapsed_and_with_two_is_reported_with_both_lines(
    tmp_path: Path, database: str, page_size: int
) -> None:
    path = tmp_path / "m.csv"
    path.write_text(
        "id,url\nsame,https://h/a\nother,https://h/b\n same ,https://h/a\nsame,https://h/c\n\u00a0other\u00a0,https://h/b\n"
    )
    engine, _ = await imported(database, path, page_size)
    try:
        counted = await tally(engine, "r", 1)
        assert (counted.listed, counted.added, counted.collapsed) == (5, 2, 3)
        problems = await engine.fetch("select position, field, words from problem")
        assert [(problem["position"], problem["field"]) for problem in problems] == [(5, "id")]
        assert "stands at 2 and at 5" in problems[0]["words"]
    finally:
        await engine.close()


async def test_ids_that_differ_in_case_or_in_how_a_letter_is_composed_are_different_videos(
    tmp_path: Path, database: str
) -> None:
    """A file system or a host may well have both; a person sees them side by side in the map."""
    path = tmp_path / "m.csv"
    names = ["caf\u00e9", "cafe\u0301", "CAF\u00c9", "ﬁ", "fi", "a b", "a  b", "1", "01"]
    path.write_text("id,url\n" + "".join(f"{name},https://h/x\n" for name in names), encoding="utf-8")
    engine, _ = await imported(database, path)
    try:
        assert (await tally(engine, "r", 1)).added == len(names)
        for name in names:
            [history] = await questions.history(engine, name)
            assert history.asset["source_id"] == name
    finally:
        await engine.close()


cells = st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=6) | st.sampled_from(
    ["", " ", "x,y", 'a"b', "v"]
)


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.lists(cells, max_size=4), max_size=25), st.integers(1, 7))
@example([["1", "u"], ["1", "u"], [], ["1"]], 1)
async def test_every_row_of_a_table_is_an_item_a_problem_or_blank(
    tmp_path: Path, table: list[list[str]], page_size: int
) -> None:
    written = io.StringIO(newline="")
    writer = csv.writer(written)
    writer.writerow(["id", "url"])
    writer.writerows(table)
    path = Path(tempfile.mkdtemp(dir=tmp_path)) / "m.csv"
    path.write_bytes(written.getvalue().encode())
    pages = await listed(path, page_size)
    blank = sum(page.skipped_blank for page in pages)
    assert blank == sum(not any(cell.strip() for cell in row) for row in table)
    assert sum(len(page.items) + len(page.problems) for page in pages) + blank == len(table)
    places = [entry.position for page in pages for entry in (*page.items, *page.problems)]
    assert len(set(places)) == len(places), "each row once"


scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3), max_leaves=6
)
objects = st.fixed_dictionaries(
    {"id": st.text(min_size=1).filter(lambda t: t.strip() and t.isprintable()) | st.integers(), "url": st.just("u")},
    optional={"note": values, "marks": values},
)
lines = st.one_of(
    objects.map(json.dumps),
    objects.map(lambda o: json.dumps(o, ensure_ascii=False)).filter(lambda t: t.isprintable()),
    values.map(json.dumps),
    st.just(""),
    st.just(" \t "),
    st.just('{"id":'),
)


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(lines, max_size=20), st.integers(1, 7), st.sampled_from(["\n", "\r\n"]), st.booleans())
async def test_every_line_of_json_is_an_item_a_problem_or_blank_and_good_ones_come_back_as_they_were(
    tmp_path: Path, given_lines: list[str], page_size: int, end: str, bom: bool
) -> None:
    first = '{"id":"first","url":"u"}'
    path = Path(tempfile.mkdtemp(dir=tmp_path)) / "m.jsonl"
    path.write_bytes((b"\xef\xbb\xbf" if bom else b"") + "".join(f"{t}{end}" for t in (first, *given_lines)).encode())
    pages = await listed(path, page_size)
    items = {item.position: item for page in pages for item in page.items}
    problems = {problem.position for page in pages for problem in page.problems}
    blank = sum(page.skipped_blank for page in pages)
    assert len(items) + len(problems) + blank == 1 + len(given_lines)
    for number, text in enumerate(given_lines, start=2):
        if number in items:
            whole = json.loads(text)
            kept = {name: value for name, value in whole.items() if name not in ("id", "url") and value is not None}
            assert items[number] == Item(str(whole["id"]).strip(), "u", number, metadata=kept)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=400), st.sampled_from(["csv", "jsonl"]), st.sampled_from([b"", b"id,url\n", b'{"id":1}\n']))
async def test_any_bytes_at_all_are_refused_or_read(
    tmp_path: Path, content: bytes, format: Format, head: bytes
) -> None:
    path = Path(tempfile.mkdtemp(dir=tmp_path)) / "m"
    path.write_bytes(head + content)
    try:
        pages = await listed(path, 3, format=format)
    except Fault as fault:
        if fault.code != "manifest-refused":
            raise
    else:
        assert all(problem.words for page in pages for problem in page.problems)


# ----------------------------------------------------------------------------------------------------------- a long one

LONG = """
import asyncio, json, sys
from pathlib import Path
from benchmarks.manifest import imported
print(json.dumps(asyncio.run(imported(sys.argv[1], Path(sys.argv[2])))))
"""


def test_a_long_manifest_is_imported_in_bounded_memory_and_a_repeat_half_of_it_later_is_found(
    tmp_path: Path, database: str
) -> None:
    """A tenth of the million that `python -m benchmarks.manifest` imports."""
    first, second = write_long(tmp_path / "long.csv", 100_000)
    # A process of its own: this one's peak is others'.
    done = subprocess.run(
        [sys.executable, "-c", LONG, database, str(tmp_path / "long.csv")],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["grown_kib"] < 20_000, "what a page costs, and not what the file is long"
    assert (found["listed"], found["added"], found["collapsed"]) == (100_000, 99_999, 1)
    [(position, words)] = found["problems"]
    assert position == second
    assert f"stands at {first} and at {second}" in words
