from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from faults import Fault
from sources.base import Item, ListedPage, Problem
from sources.folder import DEPTH_LIMIT, FolderSource, Options, open_path


def put(root: Path, *names: str, content: bytes = b"video") -> None:
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


async def walk(root: Path, page_size: int = 500, *, fresh: bool = False) -> list[ListedPage]:
    """All pages; `fresh` opens the source anew for each, as another worker would."""
    pages: list[ListedPage] = []
    cursor = None
    source = FolderSource(root, page_size=page_size)
    while True:
        if fresh:
            source = FolderSource(root, page_size=page_size)
        pages.append(await source.list_page(cursor))
        cursor = pages[-1].next_cursor
        if cursor is None:
            return pages


def ids(pages: list[ListedPage]) -> list[str]:
    return [item.source_id for page in pages for item in page.items]


def problems(pages: list[ListedPage]) -> list[Problem]:
    return [problem for page in pages for problem in page.problems]


async def test_videos_are_listed_by_their_path_with_size_and_title(tmp_path: Path) -> None:
    put(tmp_path, "b/Second.MOV", "a.mp4", content=b"12345")
    put(tmp_path, ".hidden.mp4", ".git/x.mp4", "notes.txt", "b/cover.jpg")

    (page,) = await walk(tmp_path)

    assert page.items == [
        Item("a.mp4", str(tmp_path / "a.mp4"), 1, "a", 5),
        Item("b/Second.MOV", str(tmp_path / "b/Second.MOV"), 2, "Second", 5),
    ]
    assert (page.problems, page.total, page.next_cursor) == ([], None, None)


async def test_only_the_suffixes_that_were_set_are_listed(tmp_path: Path) -> None:
    put(tmp_path, "a.mp4", "b.RAW", "c.raw.bak")
    source = open_path(str(tmp_path), Options.model_validate({"suffixes": [".Raw"]}), 500)

    assert ids([await source.list_page(None)]) == ["b.RAW"]


async def test_a_located_file_is_an_absolute_path_and_the_size_that_was_listed(tmp_path: Path) -> None:
    put(tmp_path, 'a b/it\'s "q" & $HOME.mp4')
    source = FolderSource(tmp_path)
    (item,) = (await source.list_page(None)).items

    location = await source.locate(item)

    assert location.is_local
    assert Path(location.address).is_file()
    assert location.size == 5


async def test_a_file_that_went_away_or_now_leads_outside_is_refused_by_itself(tmp_path: Path) -> None:
    outside = tmp_path / "secret.mp4"
    outside.write_bytes(b"x")
    root = tmp_path / "library"
    put(root, "a.mp4", "b.mp4")
    source = FolderSource(root)
    gone, moved = (await source.list_page(None)).items
    (root / "a.mp4").unlink()
    (root / "b.mp4").unlink()
    (root / "b.mp4").symlink_to(outside)

    with pytest.raises(Fault, match="source-not-found"):
        await source.locate(gone)
    with pytest.raises(Fault, match="source-address-refused"):
        await source.locate(moved)


names = st.sampled_from(["a", "a-", "a.mp4", "A", "b.mp4", "é.mp4", "10.mp4", "9.mp4", "a b", "z.mkv"])
paths = st.lists(st.lists(names, min_size=1, max_size=3).map(tuple), min_size=1, max_size=25)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(paths, st.integers(1, 4))
async def test_pages_of_any_size_and_from_any_worker_hold_every_file_once_in_one_order(
    tmp_path: Path, places: list[tuple[str, ...]], page_size: int
) -> None:
    root = Path(tempfile.mkdtemp(dir=tmp_path))
    for place in places:
        try:
            put(root, "/".join(place))
        except (FileExistsError, NotADirectoryError, IsADirectoryError):
            continue
    (root / "keep").touch()
    expected = {
        path.relative_to(root).as_posix()
        for path in root.rglob("*")
        if path.is_file() and path.suffix in (".mp4", ".mkv")
    }

    listed = ids(await walk(root, page_size, fresh=True))

    assert len(listed) == len(expected)
    assert set(listed) == expected
    assert listed == ids(await walk(root))
    assert listed == sorted(listed, key=lambda path: [os.fsencode(part) for part in path.split("/")])


async def test_files_that_come_and_go_while_listing_shift_no_other(tmp_path: Path) -> None:
    put(tmp_path, *(f"{n:02}/v.mp4" for n in range(10)))
    source = FolderSource(tmp_path, page_size=4)
    first = await source.list_page(None)
    put(tmp_path, "00/u.mp4", "00/w.mp4", "09/w.mp4")
    (tmp_path / "01/v.mp4").unlink()
    (tmp_path / "03/v.mp4").unlink()
    (tmp_path / "03").rmdir()
    assert first.next_cursor is not None

    second = await source.list_page(first.next_cursor)
    assert second.next_cursor is not None
    third = await source.list_page(second.next_cursor)

    assert ids([second, third]) == [*(f"{n:02}/v.mp4" for n in range(4, 10)), "09/w.mp4"]


async def test_a_file_added_to_a_folder_being_walked_is_seen(tmp_path: Path) -> None:
    put(tmp_path, *(f"{n}.mp4" for n in range(4)))
    source = FolderSource(tmp_path, page_size=2)
    first = await source.list_page(None)
    put(tmp_path, "3b.mp4")
    os.utime(tmp_path, ns=(1, 1))

    assert ids([await source.list_page(first.next_cursor)]) == ["2.mp4", "3.mp4"]
    assert ids(await walk(tmp_path, 2)) == ["0.mp4", "1.mp4", "2.mp4", "3.mp4", "3b.mp4"]


async def test_names_that_are_no_utf8_and_names_that_are_too_long_are_problems(tmp_path: Path) -> None:
    folder = os.fsencode(tmp_path)
    for name in (b"caf\xe9.mp4", b"z.mp4"):
        with open(os.path.join(folder, name), "wb"):
            pass
    put(tmp_path, "/".join(["d" * 240] * 4) + "/" + "e" * 60 + ".mp4", " blank.mp4")

    pages = await walk(tmp_path, 1, fresh=True)

    assert ids(pages) == ["z.mp4"]
    words = [problem.words for problem in problems(pages)]
    assert len(words) == 3
    assert "blank" in words[0]
    assert words[1].startswith("caf\\xe9.mp4: ")
    assert "at most 1000" in words[2]


async def test_links_are_followed_to_files_inside_only_and_loops_end(tmp_path: Path) -> None:
    root = tmp_path / "library"
    put(root, "a.mp4", ".store/123", "sub/b.mp4", ".hidden/c.mp4")
    put(tmp_path, "outside/d.mp4")
    (root / "annexed.mp4").symlink_to(".store/123")
    (root / "again").symlink_to("sub")
    (root / "sub/up").symlink_to("..")
    (root / "loop.mp4").symlink_to("loop.mp4")
    (root / "loop").symlink_to("loop")
    (root / "nowhere.mp4").symlink_to("missing.mp4")
    (root / "nowhere").symlink_to("missing")
    (root / "out.mp4").symlink_to(tmp_path / "outside/d.mp4")
    (root / "out").symlink_to(tmp_path / "outside")
    (root / "hid").symlink_to(".hidden")

    pages = await walk(root, 2, fresh=True)

    assert ids(pages) == ["a.mp4", "annexed.mp4", "sub/b.mp4"]
    told = {problem.words.split(":")[0]: problem.words for problem in problems(pages)}
    assert set(told) == {"hid", "loop.mp4", "nowhere.mp4", "out", "out.mp4"}
    assert "outside" in told["out"]
    assert "outside" in told["out.mp4"]
    assert "back to itself" in told["loop.mp4"]


async def test_what_is_no_file_and_what_lies_too_deep_are_problems(tmp_path: Path) -> None:
    put(tmp_path, "a.mp4", "/".join("d" * (DEPTH_LIMIT + 2)) + "/b.mp4")
    os.mkfifo(tmp_path / "pipe.mp4")

    pages = await walk(tmp_path)

    assert ids(pages) == ["a.mp4"]
    assert len(problems(pages)) == 2
    assert "200 folders deep" in problems(pages)[0].words
    assert "pipe" in problems(pages)[1].words


@contextmanager
def unprivileged() -> Iterator[Path]:
    """A folder of a user to whom rights apply: for root, they do not."""
    root = Path(tempfile.mkdtemp(prefix="longhaul-folder-"))
    root.chmod(0o755)
    was_root = os.geteuid() == 0
    try:
        if was_root:
            os.chown(root, 65534, 65534)
            os.seteuid(65534)
        yield root
    finally:
        if was_root:
            os.seteuid(0)
        for folder, _, _ in os.walk(root):
            os.chmod(folder, 0o755)
        shutil.rmtree(root)


async def test_a_folder_that_may_not_be_read_is_one_problem_and_its_neighbours_are_listed() -> None:
    with unprivileged() as root:
        put(root, "a/1.mp4", "b/2.mp4", "c/3.mp4")
        (root / "b").chmod(0)

        pages = await walk(root, 1, fresh=True)

        assert ids(pages) == ["a/1.mp4", "c/3.mp4"]
        assert [problem.position for problem in problems(pages)] == [2]
        (root / "b").chmod(0o755)


async def test_a_root_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    put(tmp_path, "file")
    for path in (tmp_path / "missing", tmp_path / "file", tmp_path / "nul\0"):
        with pytest.raises(Fault, match="settings-refused"):
            await FolderSource(path).check()
    with unprivileged() as root:
        root.chmod(0)
        with pytest.raises(Fault, match="settings-refused"):
            await FolderSource(root).check()
        root.chmod(0o755)


async def test_an_empty_root_is_taken_for_a_disk_that_is_not_mounted(tmp_path: Path) -> None:
    put(tmp_path / "library", "a.mp4", "b.mp4")
    source = FolderSource(tmp_path / "library", page_size=1)
    await source.check()
    first = await source.list_page(None)
    shutil.rmtree(tmp_path / "library")
    (tmp_path / "library").mkdir()

    with pytest.raises(Fault, match=r"source-down.*mounted"):
        await source.list_page(first.next_cursor)


@pytest.mark.parametrize("cursor", ["", "x", "[]", '{"after":1,"listed":0}', '{"after":"a","listed":-1}', '{"byte":3}'])
async def test_a_cursor_of_something_else_is_stale(tmp_path: Path, cursor: str) -> None:
    put(tmp_path, "a.mp4")
    with pytest.raises(Fault, match="cursor-stale"):
        await FolderSource(tmp_path).list_page(cursor)


async def test_other_stripes_own_nothing(tmp_path: Path) -> None:
    put(tmp_path, "a.mp4")

    assert await FolderSource(tmp_path).list_page(None, stripe=1, stripes=2) == ListedPage((), None)
