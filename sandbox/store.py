"""The sandbox's storage: one SQLite file, used from the event loop's thread alone.

Statements take microseconds and run in place. Writes of the same few milliseconds share a transaction, which is what
makes hundreds of creates a second cheap; an answer is only given once `durable()` has returned. SQLite hands a commit
to the operating system, so a killed process loses nothing; only a machine that loses power may lose the last moments.
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

COMMIT_AFTER_S: Final = 0.002
"""How long a transaction is left open for others to join: adds as much to a create's answer."""

_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS videos (
    seq           INTEGER PRIMARY KEY AUTOINCREMENT,
    id            TEXT NOT NULL UNIQUE,
    reference     TEXT,
    title         TEXT NOT NULL,
    metadata      TEXT NOT NULL,
    state         TEXT NOT NULL,
    error_code    TEXT,
    error_message TEXT,
    duration_ms   INTEGER,
    width         INTEGER,
    height        INTEGER,
    size          INTEGER,
    source        TEXT,
    created_at    REAL NOT NULL
);
CREATE INDEX IF NOT EXISTS videos_reference ON videos (reference);
CREATE INDEX IF NOT EXISTS videos_state ON videos (state);
CREATE TABLE IF NOT EXISTS outbox (
    seq      INTEGER PRIMARY KEY AUTOINCREMENT,
    event_id TEXT NOT NULL,
    kind     TEXT NOT NULL,
    body     TEXT NOT NULL,
    due      REAL NOT NULL,
    copies   INTEGER NOT NULL,
    attempts INTEGER NOT NULL
);
CREATE TABLE IF NOT EXISTS idempotency (
    key      TEXT PRIMARY KEY,
    digest   TEXT NOT NULL,
    video_id TEXT NOT NULL
);
CREATE TABLE IF NOT EXISTS registered (
    name  TEXT PRIMARY KEY,
    value TEXT NOT NULL
);
"""

_COLUMNS: Final = (
    "seq, id, reference, title, metadata, state, error_code, error_message,"
    " duration_ms, width, height, size, created_at"
)


@dataclass(frozen=True, slots=True)
class Video:
    """One video. Times in seconds since 1970, `duration_ms` in milliseconds, `size` in bytes, None while unknown."""

    seq: int
    id: str
    reference: str | None
    title: str
    metadata: dict[str, Any]
    state: str
    error_code: str | None
    error_message: str | None
    duration_ms: int | None
    width: int | None
    height: int | None
    size: int | None
    created_at: float

    def as_json(self, public_url: str, *, unknown: int | None) -> dict[str, Any]:
        """The video as the API shows it; `unknown` stands for numbers that are not known yet."""

        def number(value: int | None) -> int | None:
            return unknown if value is None else value

        return {
            "id": self.id,
            "reference": self.reference,
            "title": self.title,
            "metadata": self.metadata,
            "state": self.state,
            "error": {"code": self.error_code, "message": self.error_message} if self.error_code else None,
            "duration_ms": number(self.duration_ms),
            "width": number(self.width),
            "height": number(self.height),
            "size": number(self.size),
            "playback_url": f"{public_url}/play/{self.id}.m3u8" if self.state == "ready" else None,
            "created_at": datetime.fromtimestamp(self.created_at, UTC).isoformat(timespec="milliseconds"),
        }


@dataclass(frozen=True, slots=True)
class Source:
    """What an unfinished ingest needs: an address or path, headers for it, and the duration that the caller claims."""

    url: str
    headers: dict[str, str]
    duration_ms: int | None


@dataclass(frozen=True, slots=True)
class Outcome:
    """How an ingest ended: with what was found in the file, or with an error."""

    error_code: str | None = None
    error_message: str | None = None
    duration_ms: int | None = None
    width: int | None = None
    height: int | None = None
    size: int | None = None


@dataclass(slots=True)
class Event:
    """One undelivered webhook event. `due` in seconds since 1970; `copies` deliveries are still to come."""

    seq: int
    event_id: str
    kind: str
    body: str
    due: float
    copies: int
    attempts: int


class StoreInUse(Exception):
    """Another sandbox has this data directory open."""


class Store:
    def __init__(self, directory: Path) -> None:
        """Opens or makes the storage in `directory`. Raises StoreInUse."""
        directory.mkdir(parents=True, exist_ok=True)
        self._db = sqlite3.connect(directory / "sandbox.sqlite", isolation_level=None, timeout=0.5)
        self._commit_done: asyncio.Future[None] | None = None
        try:
            # Exclusive: two sandboxes on one directory would both ingest and both deliver.
            self._db.execute("PRAGMA locking_mode = EXCLUSIVE")
            self._db.execute("PRAGMA journal_mode = WAL")
            self._db.execute("PRAGMA synchronous = OFF")
            self._db.executescript(_SCHEMA)
        except sqlite3.OperationalError as error:
            self._db.close()
            if "locked" in str(error):
                raise StoreInUse(f"{directory} is in use by another sandbox") from None
            raise

    def close(self) -> None:
        self._commit()
        self._db.close()

    # -- transactions

    def _write(self, sql: str, values: Sequence[Any] = ()) -> sqlite3.Cursor:
        if self._commit_done is None:
            loop = asyncio.get_running_loop()
            self._db.execute("BEGIN")
            self._commit_done = loop.create_future()
            loop.call_later(COMMIT_AFTER_S, self._commit)
        return self._db.execute(sql, values)

    def _commit(self) -> None:
        done, self._commit_done = self._commit_done, None
        if done is None:
            return
        try:
            self._db.execute("COMMIT")
        except sqlite3.Error as error:
            self._db.execute("ROLLBACK")
            if not done.done():
                done.set_exception(error)
        else:
            if not done.done():
                done.set_result(None)

    async def durable(self) -> None:
        """Returns once everything written so far survives a kill."""
        if self._commit_done is not None:
            await asyncio.shield(self._commit_done)

    # -- videos

    def add(
        self,
        video_id: str,
        *,
        reference: str | None,
        title: str,
        metadata: dict[str, Any],
        source: Source,
        created_at: float,
    ) -> Video:
        """Adds a video that is processing."""
        cursor = self._write(
            "INSERT INTO videos (id, reference, title, metadata, state, source, created_at)"
            " VALUES (?, ?, ?, ?, 'processing', ?, ?)",
            (
                video_id,
                reference,
                title,
                json.dumps(metadata),
                json.dumps({"url": source.url, "headers": source.headers, "duration_ms": source.duration_ms}),
                created_at,
            ),
        )
        seq = cursor.lastrowid
        assert seq is not None
        return Video(
            seq, video_id, reference, title, metadata, "processing", None, None, None, None, None, None, created_at
        )

    def get(self, video_id: str) -> Video | None:
        """The video, also a deleted one."""
        row = self._db.execute(f"SELECT {_COLUMNS} FROM videos WHERE id = ?", (video_id,)).fetchone()  # noqa: S608
        return None if row is None else _video(row)

    def find(self, reference: str, *, loose: bool, made_before: float) -> list[Video]:
        """Up to 1000 videos with this reference, or with one that contains it, the oldest first."""
        condition = "instr(reference, ?) > 0" if loose else "reference = ?"
        rows = self._db.execute(
            f"SELECT {_COLUMNS} FROM videos WHERE {condition} AND state <> 'deleted' AND created_at <= ?"  # noqa: S608
            " ORDER BY seq LIMIT 1000",
            (reference, made_before),
        )
        return [_video(row) for row in rows]

    def page(self, after: int, limit: int, *, made_before: float) -> list[Video]:
        """Videos made after the one numbered `after`, the oldest first."""
        rows = self._db.execute(
            f"SELECT {_COLUMNS} FROM videos WHERE seq > ? AND state <> 'deleted' AND created_at <= ?"  # noqa: S608
            " ORDER BY seq LIMIT ?",
            (after, made_before, limit),
        )
        return [_video(row) for row in rows]

    def count(self) -> dict[str, int]:
        """How many videos there are in each state, deleted ones too."""
        return dict(self._db.execute("SELECT state, count(*) FROM videos GROUP BY state").fetchall())

    def duplicates(self) -> tuple[int, int]:
        """Videos beyond the first of each reference: those that exist now, and those ever made, deleted ones too."""
        now, ever = self._db.execute(
            "SELECT count(*) FILTER (WHERE state <> 'deleted')"
            "       - count(DISTINCT reference) FILTER (WHERE state <> 'deleted'),"
            "       count(*) - count(DISTINCT reference)"
            " FROM videos WHERE reference IS NOT NULL"
        ).fetchone()
        return now, ever

    def finish(self, video_id: str, outcome: Outcome) -> Video | None:
        """Makes a processing video ready or errored; None where it no longer is processing."""
        cursor = self._write(
            "UPDATE videos SET state = ?, error_code = ?, error_message = ?, duration_ms = ?, width = ?, height = ?,"
            " size = ?, source = NULL WHERE id = ? AND state = 'processing'",
            (
                "errored" if outcome.error_code else "ready",
                outcome.error_code,
                outcome.error_message,
                outcome.duration_ms,
                outcome.width,
                outcome.height,
                outcome.size,
                video_id,
            ),
        )
        return self.get(video_id) if cursor.rowcount else None

    def delete(self, video_id: str) -> Video | None:
        """Marks a video as deleted; None where there is none, or where it already is."""
        cursor = self._write(
            "UPDATE videos SET state = 'deleted', source = NULL WHERE id = ? AND state <> 'deleted'", (video_id,)
        )
        return self.get(video_id) if cursor.rowcount else None

    def unfinished(self) -> list[tuple[str, Source]]:
        """What is still processing, the oldest first."""
        rows = self._db.execute("SELECT id, source FROM videos WHERE state = 'processing' ORDER BY seq")
        return [(video_id, Source(**json.loads(source))) for video_id, source in rows]

    def source(self, video_id: str) -> Source:
        """The source of a video that is processing."""
        (source,) = self._db.execute("SELECT source FROM videos WHERE id = ?", (video_id,)).fetchone()
        return Source(**json.loads(source))

    # -- idempotency keys

    def remembered(self, key: str) -> tuple[str, str] | None:
        """The digest of the request that first used this key, and the video it made."""
        row = self._db.execute("SELECT digest, video_id FROM idempotency WHERE key = ?", (key,)).fetchone()
        return None if row is None else (row[0], row[1])

    def remember(self, key: str, digest: str, video_id: str) -> None:
        self._write("INSERT INTO idempotency (key, digest, video_id) VALUES (?, ?, ?)", (key, digest, video_id))

    # -- webhook events

    def add_event(self, event_id: str, kind: str, body: str, *, due: float, copies: int) -> Event:
        cursor = self._write(
            "INSERT INTO outbox (event_id, kind, body, due, copies, attempts) VALUES (?, ?, ?, ?, ?, 0)",
            (event_id, kind, body, due, copies),
        )
        seq = cursor.lastrowid
        assert seq is not None
        return Event(seq, event_id, kind, body, due, copies, 0)

    def save_event(self, event: Event) -> None:
        """Stores how far its delivery has come; an event of which no copy is left to send is forgotten."""
        if event.copies > 0:
            self._write(
                "UPDATE outbox SET due = ?, copies = ?, attempts = ? WHERE seq = ?",
                (event.due, event.copies, event.attempts, event.seq),
            )
        else:
            self._write("DELETE FROM outbox WHERE seq = ?", (event.seq,))

    def undelivered(self) -> list[Event]:
        rows = self._db.execute("SELECT seq, event_id, kind, body, due, copies, attempts FROM outbox ORDER BY seq")
        return [Event(*row) for row in rows]

    # -- what was registered over the API

    def registered(self, name: str) -> str | None:
        row = self._db.execute("SELECT value FROM registered WHERE name = ?", (name,)).fetchone()
        return None if row is None else str(row[0])

    def register(self, name: str, value: str) -> None:
        self._write("INSERT OR REPLACE INTO registered (name, value) VALUES (?, ?)", (name, value))

    def clear(self) -> None:
        """Forgets every video, event and key; what was registered stays."""
        for table in ("videos", "outbox", "idempotency"):
            self._write(f"DELETE FROM {table}")  # noqa: S608 - names from the line above
        self._write("DELETE FROM sqlite_sequence")


def _video(row: Sequence[Any]) -> Video:
    seq, video_id, reference, title, metadata, *rest = row
    return Video(seq, video_id, reference, title, json.loads(metadata), *rest)
