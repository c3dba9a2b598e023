"""A manifest: one video a row, as CSV or as JSON Lines, read in bounded memory however long it is.

The file is read as bytes and cut into lines here, so that it is known at which byte each row begins: a cursor holds
that byte, and a listing that was killed goes on there without reading what came before. A cursor also carries a digest
of the whole file, since a byte offset means nothing in another version of it.

What makes the file as a whole unreadable is refused before anything is imported (`check`). What is wrong with one row
is a `Problem` at its line, and the other rows are read.
"""

from __future__ import annotations

import asyncio
import bisect
import csv
import dataclasses
import errno
import hashlib
import itertools
import json
import math
import os
import stat
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path
from typing import Any, Final, Literal, NoReturn, Self

from pydantic import BaseModel, ConfigDict

from faults import Fault
from sources import cursors, manifest_about, values
from sources.about import Caption
from sources.addresses import HIDDEN, bears_secret, canonical, redact
from sources.base import PAGE_SIZE, Item, ListedExtras, ListedPage, Location, Problem

Format = Literal["csv", "jsonl"]

RECORD_LIMIT: Final = 1_048_576
"""Bytes of one row. Far above any real one: what reaches it is a quote that was never closed, or no manifest at all."""
_SUFFIXES: Final[Mapping[str, Format]] = {
    ".csv": "csv", ".tsv": "csv", ".txt": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl",
}  # fmt: skip
_DELIMITERS: Final = (",", ";", "\t")
"""Spreadsheets write semicolons where the decimal sign is a comma, and tabs on request."""
_REQUIRED: Final = ("id", "url")
_KNOWN: Final = ("id", "url", "title", "size", "duration_s", *manifest_about.COLUMNS)
_UTF8_BOM: Final = b"\xef\xbb\xbf"
_UTF16_BOMS: Final = (b"\xff\xfe", b"\xfe\xff")
_PACKED: Final[Mapping[bytes, str]] = {
    b"\x1f\x8b": "is compressed (gzip)", b"\xfd7zXZ": "is compressed (xz)", b"\x28\xb5\x2f\xfd": "is compressed (zstd)",
    b"PK\x03\x04": "is a ZIP archive or a spreadsheet's own file",
}  # fmt: skip
"""Whatever the suffix says: how such a file begins."""
_DEPTH_LIMIT: Final = 50
"""Lists and objects in one another that a row's further fields may be: far above any real one, and as much as the
ledger keeps."""
_SAVE_AS_UTF8: Final = "save it as UTF-8 (in a spreadsheet: “CSV UTF-8”)"


class Options(BaseModel):
    """What a manifest's spec may say besides its path."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    format: Format | None = None
    """None: by the suffix (.csv, .tsv, .txt: CSV; .jsonl, .ndjson: JSON Lines)."""


def open_path(location: str, options: Options, page_size: int) -> ManifestSource:
    return ManifestSource(location, format=options.format, page_size=page_size)


@dataclass(frozen=True, slots=True)
class _Layout:
    """What the head of the file says: where its rows begin, and for CSV what its cells mean."""

    offset: int
    line: int
    delimiter: str = ""
    names: tuple[str, ...] = ()
    """Column names as they stand; known ones in lower case, unnamed ones empty."""


class ManifestSource(ListedExtras):
    """One manifest file. Not stripeable: where a row begins is only known once all before it have been read.

    `page_size` is the number of rows of a page, readable or not; blank rows are not counted among them.
    """

    stripeable = False

    def __init__(
        self, location: str | os.PathLike[str], *, format: Format | None = None, page_size: int = PAGE_SIZE
    ) -> None:
        if page_size < 1:
            raise ValueError("page_size must be at least 1")
        self._path = Path(location)
        self._shown = str(location)
        self._format = format
        self._page_size = page_size

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Nothing is held open between pages."""

    async def check(self) -> None:
        """Reads the whole file once and refuses what cannot be imported as a whole: no such file, an encoding other
        than UTF-8, no header, a column named twice, a quote that swallows the rows after it.

        Raises Fault("manifest-refused") with path, line and column, or Fault("source-down") where the disk fails.
        """
        await asyncio.to_thread(self._check)

    async def list_page(self, cursor: str | None, *, stripe: int = 0, stripes: int = 1) -> ListedPage:
        """The rows at `cursor`. A page may hold problems only, and is then not the last: go by `next_cursor`.

        `total` is None: a manifest makes no claim. Stripes other than the first own nothing.
        Raises Fault("cursor-stale") where the file is not the one that the cursor came from, and what `check` raises.
        """
        if stripe:
            return ListedPage((), None)
        return await asyncio.to_thread(self._list_page, cursor)

    async def locate(self, item: Item) -> Location:
        """The row's address, or its path resolved against the manifest's folder. A ready-made address is untouched; one
        with characters that no address may hold has those encoded, once. One that bears a secret is read from the file
        again, since the item has it without."""
        if item.locator is None:
            raise Fault("source-not-found", f"{self._shown}:{item.position}: the row has no url")
        locator = item.locator
        if HIDDEN in locator and values.is_http(locator):
            locator = (await asyncio.to_thread(self._whole, item)).locator or ""
        return await self._at(locator, item.size)

    async def locate_caption(self, item: Item, caption: Caption) -> Location:
        """As `locate`, for one of the row's captions."""
        address = caption.address
        if address is not None and HIDDEN in address and values.is_http(address):
            whole = await asyncio.to_thread(self._whole, item)
            address = next((c.address for c in whole.about.captions if c.key == caption.key), None)
        if address is None:
            raise Fault("source-not-found", f"{self._shown}:{item.position}: no {caption.language} captions any more")
        return await self._at(address)

    async def locate_poster(self, item: Item) -> Location | None:
        """As `locate`, for the row's poster."""
        address = item.about.poster
        if address is not None and HIDDEN in address and values.is_http(address):
            address = (await asyncio.to_thread(self._whole, item)).about.poster
        return None if address is None else await self._at(address)

    async def _at(self, address: str, size: int | None = None) -> Location:
        if values.is_http(address):
            return Location(canonical(address), size=size)
        folder = await asyncio.to_thread(self._path.parent.resolve)
        return Location(str(folder / address), size=size)

    def _whole(self, item: Item) -> Item:
        """The item as it stands in its row, or, where the file has changed, in the first row with its id."""
        with self._opened() as (file, _):
            layout = self._layout(file)
            marks = self._marks(file, layout)
            offset, line = marks[bisect.bisect_left(marks, item.position, key=lambda mark: mark[1]) - 1]
            near = self._rows(file, layout, offset, line)
            for row in itertools.chain(itertools.islice(near, _MARK_EVERY), self._rows(file, layout, *marks[0])):
                try:
                    read, whole = _read(row, layout)
                except _Wrong:
                    continue
                if (read.source_id, read.locator) == (item.source_id, item.locator):
                    return whole
        raise Fault(
            "source-not-found", f"{self._shown}: has no row with the id {item.source_id!r} and its url any more"
        )

    def _marks(self, file: BufferedReader, layout: _Layout) -> Sequence[tuple[int, int]]:
        """(byte, lines before it) of every so many rows."""
        digest = _digest(file, os.fstat(file.fileno()))
        with _marking:
            known = _marked.get(digest)
            if known is None:
                known = [(layout.offset, layout.line)]
                for count, row in enumerate(self._rows(file, layout, layout.offset, layout.line), start=1):
                    if count % _MARK_EVERY == 0:
                        known.append((row.end, row.last_line))
                if len(_marked) >= _DIGESTS_KEPT:
                    _marked.pop(next(iter(_marked)), None)
                _marked[digest] = known
            return known

    # ------------------------------------------------------------------------------------------------------- the file

    def _check(self) -> None:
        with self._opened() as (file, _):
            layout = self._layout(file)
            for _row in self._rows(file, layout, layout.offset, layout.line):
                pass

    def _list_page(self, cursor: str | None) -> ListedPage:
        with self._opened() as (file, size):
            before = os.fstat(file.fileno())
            digest = _digest(file, before)
            layout = self._layout(file)
            offset, line, index = layout.offset, layout.line, 0
            if cursor is not None:
                place = cursors.Unpacked(cursor)
                if place.get("file", str) != digest:
                    raise cursors.stale(f"{self._shown} has changed since this listing began")
                offset, line, index = place.count("byte"), place.count("line"), place.count("row")
                if not layout.offset <= offset <= size:
                    raise cursors.stale(f"the cursor points outside {self._shown}")
            page = self._page(self._rows(file, layout, offset, line), layout)
            if _identity(os.fstat(file.fileno())) != _identity(before):
                raise cursors.stale(f"{self._shown} was changed while it was read")
        more = page.offset < size and page.rows == self._page_size
        following = cursors.pack(file=digest, byte=page.offset, line=page.line, row=index + page.rows)
        return ListedPage(page.items, following if more else None, page.problems, page.blank)

    @contextmanager
    def _opened(self) -> Iterator[tuple[BufferedReader, int]]:
        """The open file and its size in bytes."""
        if "\0" in self._shown:
            self._refuse("the path holds a NUL byte; correct it")
        if self._shown == "-":
            self._refuse("standard input is no manifest: it is read more than once, and by every worker; give a file")
        try:
            # Asked before opening: opening a pipe would wait for its writer.
            if not stat.S_ISREG(self._path.stat().st_mode):
                self._refuse("is not a file; a manifest is read more than once, so a folder or a pipe will not do")
            with self._path.open("rb") as file:
                yield file, os.fstat(file.fileno()).st_size
        except FileNotFoundError:
            self._refuse("no such file; correct the path (each worker must see the manifest at it)")
        except PermissionError:
            self._refuse("may not be read; give the workers' user the right to read it")
        except NotADirectoryError:
            self._refuse("no such file: part of the path is a file, not a folder; correct the path")
        except OSError as error:
            if error.errno == errno.ELOOP:
                self._refuse("is a link that leads back to itself; correct the link")
            if error.errno == errno.ENAMETOOLONG:
                self._refuse("no such file: the path is longer than any can be; correct it")
            raise Fault("source-down", f"{self._shown}: cannot be read: {error.strerror or error}") from error

    def _refuse(self, words: str, line: int | None = None, column: str | None = None) -> NoReturn:
        place = self._shown if line is None else f"{self._shown}:{line}"
        raise Fault("manifest-refused", f"{place}: {'' if column is None else f'column {column}: '}{words}")

    # ------------------------------------------------------------------------------------------------------- the head

    @property
    def format(self) -> Format:
        """Raises Fault("manifest-refused") where neither the option nor the suffix tells."""
        known = self._format or _SUFFIXES.get(self._path.suffix.lower())
        if known is None:
            self._refuse(
                f"the suffix {self._path.suffix!r} does not tell the format; name the file .csv or .jsonl, or "
                "give the option format (csv or jsonl); unpack it first if it is compressed"
            )
        return known

    def _layout(self, file: BufferedReader) -> _Layout:
        return self._csv_layout(file) if self.format == "csv" else self._jsonl_layout(file)

    def _jsonl_layout(self, file: BufferedReader) -> _Layout:
        lines = _Lines(self, file, 0, 0)
        while True:
            lines.record_start = lines.offset
            try:
                text = next(lines, None)
            except _TooLong:
                return _Layout(0, 0)
            if text is None:
                self._refuse("is empty; write one JSON object a line, each with at least id and url")
            if text := text.strip():
                break
        if "\0" in text:
            self._refuse(f"holds NUL bytes, so it is probably UTF-16; {_SAVE_AS_UTF8}", lines.line)
        if "\r" in text:
            self._refuse("its lines end in carriage returns alone; end each line in LF or CRLF", lines.line)
        if text.startswith("["):
            self._refuse("is one JSON list, not JSON Lines; write one object a line (jq -c '.[]' does it)", lines.line)
        if not text.startswith("{"):
            self._refuse('is not JSON Lines: each line must be an object such as {"id": …, "url": …}', lines.line)
        if text == "{":
            self._refuse("is JSON over several lines; write each object on one line (jq -c . does it)", lines.line)
        return _Layout(0, 0)

    def _csv_layout(self, file: BufferedReader) -> _Layout:
        """The header, read with the delimiter under which it names the columns that must be there."""
        headers: list[tuple[int, list[str]]] = []
        refused: list[Fault] = []
        for delimiter in _DELIMITERS:
            lines = _Lines(self, file, 0, 0)
            try:
                line, names = self._header(lines, delimiter)
            except Fault as fault:
                # With another delimiter its quotes may stand where they should.
                refused.append(fault)
                continue
            if set(_REQUIRED) <= {name.casefold() for name in names}:
                return _Layout(lines.offset, lines.line, delimiter, self._columns(names, line))
            headers.append((line, names))
        line, names = max(headers, key=lambda header: len(header[1]), default=(0, []))
        if refused and len(names) < 2:
            raise refused[0]
        if any("\0" in name for name in names):
            self._refuse(f"holds NUL bytes, so it is probably UTF-16; {_SAVE_AS_UTF8}", line)
        self._columns(names, line)
        missing = next(name for name in _REQUIRED if name not in {n.casefold() for n in names})
        listed = ", ".join(repr(name) for name in names[:20] if name)
        self._refuse(
            f"there is no such column, only {listed[:300]}; the first row must name the columns, at least id and url",
            line,
            missing,
        )

    def _header(self, lines: _Lines, delimiter: str) -> tuple[int, list[str]]:
        """The first row that is not blank, and its line."""
        for line, cells, wrong in _records(lines, delimiter):
            if wrong is not None:
                self._refuse(f"the header cannot be read ({wrong}); save it as plain CSV", line)
            if line == 1 and cells and cells[0].strip().casefold().startswith("sep=") and not any(cells[1:]):
                continue  # a spreadsheet's own line, which tells it the delimiter
            if any(cell.strip() for cell in cells):
                return line, [cell.strip() for cell in cells]
        self._refuse("is empty; the first row must name the columns, at least id and url")

    def _columns(self, names: Sequence[str], line: int) -> tuple[str, ...]:
        seen: dict[str, int] = {}
        columns = []
        for at, name in enumerate(names, start=1):
            try:
                known = name.casefold() if name.casefold() in _KNOWN else manifest_about.column(name) or name
            except manifest_about.Unreadable as wrong:
                self._refuse(str(wrong), line, name)
            key = known.casefold()
            if key and key in seen:
                self._refuse(f"is named twice (cells {seen[key]} and {at}); rename or remove one", line, name)
            seen[key] = at
            columns.append(known)
        return tuple(columns)

    # ------------------------------------------------------------------------------------------------------- the rows

    def _rows(self, file: BufferedReader, layout: _Layout, offset: int, line: int) -> Iterator[_Row]:
        lines = _Lines(self, file, offset, line)
        if layout.delimiter:
            for number, cells, wrong in _records(lines, layout.delimiter):
                blank = wrong is None and not any(map(str.strip, cells))
                yield _Row(number, lines.offset, lines.line, blank, cells, wrong)
            return
        while True:
            wrong, text = None, None
            lines.record_start = lines.offset
            try:
                text = next(lines, None)
            except _TooLong:
                wrong = _TOO_LONG
            if text is None and wrong is None:
                return
            blank = wrong is None and not (text or "").strip()
            yield _Row(lines.line, lines.offset, lines.line, blank, text or "", wrong)

    def _page(self, rows: Iterator[_Row], layout: _Layout) -> _Page:
        page = _Page()
        for row in rows:
            page.offset, page.line = row.end, row.last_line
            if row.blank:
                page.blank += 1
                continue
            page.rows += 1
            try:
                page.items.append(_read(row, layout)[0])
            except _Wrong as wrong:
                page.problems.append(Problem(row.line, wrong.column, wrong.words))
            if page.rows == self._page_size:
                break
        return page


@dataclass(frozen=True, slots=True)
class _Row:
    """One row as it stands: CSV cells, or a line of JSON. `end` is the byte after it."""

    line: int
    end: int
    last_line: int
    blank: bool
    content: list[str] | str
    wrong: str | None


class _Page:
    def __init__(self) -> None:
        self.items: list[Item] = []
        self.problems: list[Problem] = []
        self.blank = self.rows = self.offset = self.line = 0


class _Wrong(Exception):
    """One row cannot be read."""

    def __init__(self, column: str | None, words: str) -> None:
        self.column = column
        self.words = words


class _TooLong(Exception):
    """A line is longer than `RECORD_LIMIT`; it has been passed over."""


_TOO_LONG: Final = f"the row is longer than {RECORD_LIMIT} bytes; shorten it"


class _Lines(Iterator[str]):
    """The file's lines as text with their ends, from a byte on. `offset` and `line` say how far they have been read."""

    def __init__(self, source: ManifestSource, file: BufferedReader, offset: int, line: int) -> None:
        self._source = source
        self._file = file
        file.seek(offset)
        self.offset = offset
        self.line = line
        self.record_start = offset

    def __next__(self) -> str:
        raw = self._file.readline(RECORD_LIMIT + 1)
        if not raw:
            raise StopIteration
        at = self.offset
        self.line += 1
        self.offset += len(raw)
        if self.offset - self.record_start > RECORD_LIMIT:
            while not raw.endswith(b"\n") and (raw := self._file.readline(RECORD_LIMIT)):
                self.offset += len(raw)
            raise _TooLong
        if at == 0:
            if raw.startswith(_UTF16_BOMS):
                self._source._refuse(f"is UTF-16; {_SAVE_AS_UTF8}", self.line)
            for start, words in _PACKED.items():
                if raw.startswith(start):
                    self._source._refuse(f"{words}; unpack it, or export it as CSV UTF-8")
        if at == self.record_start:
            # Not at the start of the file alone: files that were joined have one in the middle.
            raw = raw.removeprefix(_UTF8_BOM)
        try:
            return raw.decode()
        except UnicodeDecodeError as error:
            if self.line == 1 and b"\0" in raw:
                self._source._refuse(f"holds NUL bytes, so it is probably UTF-16; {_SAVE_AS_UTF8}", self.line)
            byte = error.start
            self._source._refuse(
                f"byte 0x{raw[byte]:02X} (number {byte + 1} in the line, {at + byte + 1} in the file) is not UTF-8; "
                f"{_SAVE_AS_UTF8}",
                self.line,
            )


def _records(lines: _Lines, delimiter: str) -> Iterator[tuple[int, list[str], str | None]]:
    """Each CSV record as (its first line, its cells, what is wrong with it or None).

    The reader takes lines only as it needs them, so after each record `lines` stands at the record's end. It is strict:
    a lenient one would read a stray quote as text, and silently make one cell of the rows that follow.
    """
    reader = csv.reader(lines, delimiter=delimiter, strict=True)
    while True:
        first = lines.line + 1
        lines.record_start = lines.offset
        try:
            cells = next(reader)
        except StopIteration:
            return
        except (csv.Error, _TooLong) as error:
            if lines.line > first:
                # Where the next row begins can't be known: rows may have been swallowed.
                lines._source._refuse(
                    f"a quote opened in this row is not closed as it should be (noticed in line {lines.line}), so "
                    "where the row ends is not known; close it, or write a quote inside a quoted cell twice",
                    first,
                )
            yield first, [], _TOO_LONG if isinstance(error, _TooLong) else _csv_words(str(error))
        else:
            yield first, cells, None


def _csv_words(message: str) -> str:
    if "field limit" in message:
        return f"a cell is longer than {csv.field_size_limit()} characters; shorten it"
    if "new-line character" in message:
        return "a carriage return stands outside quotes; quote that cell, or end each line in LF or CRLF"
    return "a quote is not closed, or is followed by text; write a quote inside a quoted cell twice"


def _cells(cells: Sequence[str], layout: _Layout) -> dict[str, Any]:
    names = layout.names
    if len(cells) < len(names):
        column = names[len(cells)] or None
        raise _Wrong(column, f"the row has {len(cells)} cells, the header {len(names)}; add the missing ones")
    if len(cells) > len(names):
        raise _Wrong(
            None,
            f"the row has {len(cells)} cells, the header {len(names)}; quote a cell that holds {layout.delimiter!r}",
        )
    for at, (name, cell) in enumerate(zip(names, cells, strict=True), start=1):
        if not name and cell.strip():
            raise _Wrong(None, f"cell {at} stands under no column name; name the column, or empty the cell")
    return {name: cell for name, cell in zip(names, cells, strict=True) if name and cell.strip()}


def _object(line: str) -> dict[str, Any]:
    try:
        value = json.loads(line, object_pairs_hook=_unique_keys, parse_constant=_no_constant, parse_float=_finite)
    except _Wrong:
        raise
    except json.JSONDecodeError as error:
        raise _Wrong(None, f"not valid JSON: {error.msg} at character {error.colno}") from None
    except (ValueError, RecursionError):
        raise _Wrong(None, "not readable JSON: a number too long, or nested too deeply") from None
    if not isinstance(value, dict):
        raise _Wrong(None, 'not a JSON object; write {"id": …, "url": …}')
    if _deeper(value, _DEPTH_LIMIT):
        raise _Wrong(None, f"nested more than {_DEPTH_LIMIT} deep; flatten it")
    fields: dict[str, Any] = {}
    for key, entry in value.items():
        known = key.strip().casefold()
        try:
            name = known if known in _KNOWN else manifest_about.column(key.strip()) or key
        except manifest_about.Unreadable as wrong:
            raise _Wrong(wrong.column[:100], str(wrong)) from None
        if name in fields:
            raise _Wrong(name, "stands twice in this object; remove one")
        fields[name] = entry
    return {name: entry for name, entry in fields.items() if entry is not None}


def _deeper(value: Any, limit: int) -> bool:
    """Whether lists and objects stand more than so deep in one another. Level by level, since recursion would fail."""
    level = [value]
    for _ in range(limit + 1):
        level = [
            inner
            for outer in level
            if isinstance(outer, dict | list)
            for inner in (outer.values() if isinstance(outer, dict) else outer)
        ]
        if not level:
            return False
    return True


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise _Wrong(key[:100], "stands twice in this object; remove one")
        found[key] = value
    return found


def _no_constant(name: str) -> NoReturn:
    raise _Wrong(None, f"{name} is not a JSON value; leave it out")


def _finite(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise _Wrong(None, "holds a number too large to be read")
    return number


def _read(row: _Row, layout: _Layout) -> tuple[Item, Item]:
    """The item of a row as it may be written down, its addresses without the secrets that they may bear; and whole."""
    if row.wrong is not None:
        raise _Wrong(None, row.wrong)
    fields = _cells(row.content, layout) if isinstance(row.content, list) else _object(row.content)
    whole = _item(fields, row.line)
    return _kept(whole), whole


def _kept(item: Item) -> Item:
    """What the ledger and the workflows are given of it, and so keep."""
    about = item.about
    if about.poster is not None or about.captions:
        tracks = tuple(track.model_copy(update={"address": _told(track.address)}) for track in about.captions)
        about = about.model_copy(update={"captions": tracks, "poster": _told(about.poster)})
    return dataclasses.replace(item, locator=_told(item.locator), about=about)


def _told(address: str | None) -> str | None:
    secret = address is not None and values.is_http(address) and bears_secret(address)
    return redact(address or "") if secret else address


def _item(fields: Mapping[str, Any], line: int) -> Item:
    column = "id"
    try:
        source_id = values.source_id(fields.get("id"))
        column = "url"
        locator = values.address_or_path(fields.get("url"))
        column = "title"
        title = values.title(fields.get("title"))
        column = "size"
        size = values.size(fields.get("size"))
        column = "duration_s"
        duration_ms = values.duration_ms(fields.get("duration_s"))
        about = manifest_about.about(fields)
    except manifest_about.Unreadable as wrong:
        raise _Wrong(wrong.column, str(wrong)) from None
    except ValueError as error:
        raise _Wrong(column, str(error)) from None
    ours = manifest_about.CAPTIONS
    metadata = {name: value for name, value in fields.items() if name not in _KNOWN and not name.startswith(ours)}
    return Item(source_id, locator, line, title, size, duration_ms, metadata, about)


# ------------------------------------------------------------------------------------------------------- same file?

_Identity = tuple[int, int, int, int, int]
_digests: dict[_Identity, str] = {}
"""Digests of files already read by this process, so that a long manifest is hashed once and not for each page."""
_DIGESTS_KEPT: Final = 16
_MARK_EVERY: Final = 256
"""Rows between two places that are remembered: what is read again to find one."""
_marked: dict[str, list[tuple[int, int]]] = {}
_marking: Final = threading.Lock()


def _identity(status: os.stat_result) -> _Identity:
    return (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)


def _digest(file: BufferedReader, status: os.stat_result) -> str:
    """BLAKE2b of the file's bytes: the same on every host that has a copy, and indifferent to `touch`."""
    identity = _identity(status)
    known = _digests.get(identity)
    if known is None:
        file.seek(0)
        known = hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16)).hexdigest()
        if len(_digests) >= _DIGESTS_KEPT:
            _digests.pop(next(iter(_digests)), None)
        _digests[identity] = known
    return known
