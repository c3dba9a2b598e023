"""A folder on a disk that the workers see, with all folders below it.

Order: at each level by name (by the bytes of the name), a folder's contents standing where its name stands. So every
file has one place in the order, whatever is added or removed around it, and a cursor is simply the last path listed:
what comes after it is what is still to come.

Held in memory: the names of the folders on the way down to the current file, one sorted list for each.
"""

from __future__ import annotations

import asyncio
import errno
import os
import stat
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final, Self

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from faults import Fault
from sources import cursors, values
from sources.base import PAGE_SIZE, Item, ListedExtras, ListedPage, Location, Problem

SUFFIXES: Final = (
    ".3g2", ".3gp", ".asf", ".avi", ".divx", ".dv", ".f4v", ".flv", ".h264", ".hevc", ".m2ts", ".m2v", ".m4v", ".mkv",
    ".mov", ".mp4", ".mpeg", ".mpg", ".mts", ".mxf", ".ogv", ".qt", ".rm", ".rmvb", ".ts", ".vob", ".webm", ".wmv",
)  # fmt: skip
"""Suffixes of files that are listed, if no others are set. What is in a file is for ffprobe to say."""

DEPTH_LIMIT: Final = 200
"""Folders inside one another: the walk is recursive, and Python's stack is not endless."""

Suffix = Annotated[str, StringConstraints(pattern=r"^\.[^./\s]+(\.[^./\s]+)*$", to_lower=True)]


class Options(BaseModel):
    """What a folder's spec may say besides its path."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    suffixes: tuple[Suffix, ...] = Field(default=SUFFIXES, min_length=1)
    """Ends of the names of files to list, with the dot; upper and lower case are the same."""


def open_path(location: str, options: Options, page_size: int) -> FolderSource:
    return FolderSource(location, suffixes=options.suffixes, page_size=page_size)


_Place = tuple[str, ...]
"""A path below the root, as its names."""


@dataclass(frozen=True, slots=True)
class _Found:
    """One entry of a page: a file with its size in bytes, or what is wrong with it."""

    place: _Place
    size: int = 0
    wrong: str | None = None


@dataclass(frozen=True, slots=True)
class _Names:
    """A folder's sorted names, good for as long as its time of change is this."""

    changed_ns: int
    names: list[str]


class FolderSource(ListedExtras):
    """One folder. Not stripeable: where a page begins depends on the one before.

    `suffixes` are lower case, with their dot. `page_size` counts files and problems.
    """

    stripeable = False

    def __init__(
        self,
        location: str | os.PathLike[str],
        *,
        suffixes: tuple[str, ...] = SUFFIXES,
        page_size: int = PAGE_SIZE,
    ) -> None:
        if page_size < 1:
            raise ValueError("page_size must be at least 1")
        self._shown = str(location)
        self._root = Path(location)
        self._suffixes = suffixes
        self._page_size = page_size
        self._kept: dict[_Place, _Names] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Forgets the names it held; nothing is open between pages."""
        self._kept.clear()

    async def check(self) -> None:
        """Raises Fault("settings-refused") where the path is no folder or may not be read, and Fault("source-down")
        where the folder is entirely empty, as the place of a disk that is not mounted is."""
        await asyncio.to_thread(self._check_root)

    async def list_page(self, cursor: str | None, *, stripe: int = 0, stripes: int = 1) -> ListedPage:
        """The files after `cursor`. A page may hold problems only, and is then not the last: go by `next_cursor`.

        `total` is None: a folder makes no claim. Positions count files and problems from 1. Stripes other than the
        first own nothing. Raises what `check` raises, and Fault("cursor-stale") for a cursor of another source.
        """
        if stripe:
            return ListedPage((), None)
        return await asyncio.to_thread(self._list_page, cursor)

    async def locate(self, item: Item) -> Location:
        """The file's absolute path. Raises Fault("source-not-found"), and Fault("source-address-refused") where the
        path has come to lead outside the folder since it was listed."""
        return await asyncio.to_thread(self._locate, item)

    # -------------------------------------------------------------------------------------------------------- the walk

    def _check_root(self) -> Path:
        try:
            root = self._root.resolve(strict=True)
            with os.scandir(root) as entries:
                empty = next(entries, None) is None
        except (FileNotFoundError, NotADirectoryError, ValueError):
            raise Fault("settings-refused", f"{self._shown}: no such folder; correct the path") from None
        except PermissionError:
            raise Fault(
                "settings-refused", f"{self._shown}: may not be read; give the workers' user the right"
            ) from None
        except (OSError, RuntimeError) as error:
            raise Fault("source-down", f"{self._shown}: cannot be read: {error}") from error
        if empty:
            raise Fault("source-down", f"{self._shown}: the folder is empty; is its disk mounted?")
        return root

    def _list_page(self, cursor: str | None) -> ListedPage:
        root = self._check_root()
        after: _Place = ()
        listed = 0
        if cursor is not None:
            place = cursors.Unpacked(cursor)
            after = tuple(place.get("after", str).split("/"))
            listed = place.count("listed")
        items: list[Item] = []
        problems: list[Problem] = []
        last, more = after, False
        for position, found in enumerate(self._walk(root, (), after), start=listed + 1):
            if len(items) + len(problems) == self._page_size:
                more = True
                break
            last = found.place
            name = "/".join(found.place)
            try:
                if found.wrong is not None:
                    raise ValueError(found.wrong)
                # Stripping would change which file is meant.
                if name != values.source_id(name):
                    raise ValueError("begins or ends in a blank; rename it")
            except ValueError as error:
                problems.append(Problem(position, None, f"{_readable(name)}: {error}"))
            else:
                title = values.title(Path(found.place[-1]).stem)
                items.append(Item(name, str(root / name), position, title, found.size))
        following = cursors.pack(after="/".join(last), listed=listed + len(items) + len(problems))
        return ListedPage(items, following if more else None, problems)

    def _walk(self, root: Path, folder: _Place, after: _Place) -> Iterator[_Found]:
        """Everything below `folder` that comes after the place `after` (empty: everything), in order."""
        depth = len(folder)
        if depth > DEPTH_LIMIT:
            yield _Found(folder, wrong=f"lies more than {DEPTH_LIMIT} folders deep; move it up")
            return
        try:
            names = self._names(root, folder)
        except FileNotFoundError:
            return  # removed meanwhile
        except OSError as error:
            if not folder:
                raise Fault("source-down", f"{self._shown}: cannot be read: {error.strerror or error}") from error
            yield _Found(folder, wrong=f"the folder cannot be read ({error.strerror}); give the right to read it")
            return
        start = 0 if len(after) <= depth else bisect_left(names, os.fsencode(after[depth]), key=os.fsencode)
        for name in names[start:]:
            place = (*folder, name)
            rest = after if len(after) > depth and after[depth] == name else ()
            if rest == place:
                continue  # the last one listed; a folder that could not be read is not tried again either
            yield from self._entry(root, place, rest)
        self._kept.pop(folder, None)

    def _entry(self, root: Path, place: _Place, after: _Place) -> Iterator[_Found]:
        path = root.joinpath(*place)
        media = place[-1].lower().endswith(self._suffixes)
        try:
            status = path.lstat()
            if stat.S_ISDIR(status.st_mode):
                yield from self._walk(root, place, after)
                return
            if stat.S_ISLNK(status.st_mode):
                wrong = self._link_refused(root, path, media)
                if wrong is not None:
                    yield _Found(place, wrong=wrong)
                if wrong is not None or not media:
                    return
                status = path.stat()
                if stat.S_ISDIR(status.st_mode):
                    return
        except FileNotFoundError:
            return  # removed meanwhile
        except OSError as error:
            # Told whatever its name is: it may be a folder full of videos.
            yield _Found(place, wrong=f"cannot be read ({error.strerror}); give the right to read it, or remove it")
            return
        if not media:
            return
        if not stat.S_ISREG(status.st_mode):
            yield _Found(place, wrong="is a pipe, socket or device, not a file; remove it")
            return
        yield _Found(place, status.st_size)

    def _link_refused(self, root: Path, path: Path, media: bool) -> str | None:
        """Why the link at `path` is not followed; None where it leads to a file below the root, or to a folder there
        whose files are listed in their own place (so nothing is lost by passing it over, and no loop is walked)."""
        try:
            target = path.resolve(strict=True)
        except (FileNotFoundError, NotADirectoryError):
            return "is a link that leads nowhere; restore what it leads to, or remove it" if media else None
        except (OSError, RuntimeError) as error:
            # A loop is a RuntimeError up to Python 3.12.
            if isinstance(error, OSError) and error.errno != errno.ELOOP:
                raise
            return "is a link that leads back to itself; remove it" if media else None
        is_folder = target.is_dir()
        if not is_folder and not media:
            return None
        if not target.is_relative_to(root):
            return "is a link that leads outside the folder; copy what it leads to into the folder, or list that place"
        if is_folder and any(part.startswith(".") for part in target.relative_to(root).parts):
            return "is a link to a hidden folder, whose files are not listed; rename that folder"
        return None

    def _names(self, root: Path, folder: _Place) -> list[str]:
        """The names in this folder that are not hidden, sorted. Kept until the walk has left the folder, so that a page
        in the middle of a folder of a million files does not read and sort them again."""
        path = root.joinpath(*folder)
        changed_ns = path.stat().st_mtime_ns
        kept = self._kept.get(folder)
        if kept is None or kept.changed_ns != changed_ns:
            # Asked for before the names are read: a change in between makes them be read again, not missed.
            names = [name for name in os.listdir(path) if not name.startswith(".")]
            kept = _Names(changed_ns, sorted(names, key=os.fsencode))
            self._kept[folder] = kept
        return kept.names

    def _locate(self, item: Item) -> Location:
        try:
            root = self._root.resolve(strict=True)
            path = root / item.source_id
            inside = path.resolve(strict=True).is_relative_to(root)
        except (OSError, RuntimeError, ValueError) as error:
            raise Fault("source-not-found", f"{item.source_id} is no longer in {self._shown}: {error}") from None
        if not inside:
            raise Fault("source-address-refused", f"{item.source_id} leads outside {self._shown}")
        return Location(str(path), size=item.size)


def _readable(name: str) -> str:
    """`name` with the bytes that are no UTF-8, and whatever would break a line, written as escapes."""
    text = os.fsencode(name).decode("utf-8", "backslashreplace")
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
