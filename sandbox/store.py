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
    created_at    REAL NOT NULL,
    about         TEXT NOT NULL DEFAULT '{}'
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
CREATE TABLE IF NOT EXISTS uploads (
    id       TEXT PRIMARY KEY,
    video_id TEXT NOT NULL UNIQUE,
    length   INTEGER NOT NULL,
    whole    INTEGER NOT NULL DEFAULT 0
);
CREATE TABLE IF NOT EXISTS attached (
    video_id   TEXT NOT NULL,
    kind       TEXT NOT NULL,
    language   TEXT NOT NULL COLLATE NOCASE,
    content    BLOB NOT NULL,
    media_type TEXT NOT NULL,
    PRIMARY KEY (video_id, kind, language)
);
CREATE TABLE IF NOT EXISTS registered (
    name  TEXT PRIMARY KEY,
    value TEXT NOT NULL
);
"""

_PLAIN: Final = (
    "seq", "id", "reference", "title", "metadata", "state", "error_code", "error_message", "duration_ms", "width",
    "height", "size", "created_at",
)  # fmt: skip
_COLUMNS: Final = (
    f"{', '.join(_PLAIN)}, about,"  # noqa: S608 - composed of constants
    " (SELECT json_group_array(language) FROM attached WHERE video_id = videos.id AND kind = 'caption'),"
    " EXISTS (SELECT 1 FROM attached WHERE video_id = videos.id AND kind = 'poster')"
)
_MADE: Final = "NOT EXISTS (SELECT 1 FROM uploads WHERE video_id = videos.id AND NOT whole)"
"""Of videos whose bytes are sent, only those that have them are ones: the others were announced."""


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
    about: dict[str, Any]
    captions: tuple[str, ...] = ()
    """Languages of its text tracks."""
    poster: bool = False

    def as_json(self, public_url: str, *, unknown: int | None) -> dict[str, Any]:
        """The video as the API shows it; `unknown` stands for numbers that are not known yet."""

        def number(value: int | None) -> int | None:
            return unknown if value is None else value

        return {
            "id": self.id,
            "reference": self.reference,
            "title": self.title,
            "metadata": self.metadata,
            "about": self.about,
            "captions": list(self.captions),
            "poster": self.poster,
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
class Upload:
    """A file on its way. `length` in bytes; `state` is its video's."""

    id: str
    video_id: str
    length: int
    state: str


@dataclass(frozen=True, slots=True)
class Attached:
    """A text track or a picture, as it came."""

    content: bytes
    media_type: str


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
            if "about" not in {row[1] for row in self._db.execute("PRAGMA table_info(videos)")}:
                # Made by a version before videos had one.
                self._db.execute("ALTER TABLE videos ADD COLUMN about TEXT NOT NULL DEFAULT '{}'")
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
        about: dict[str, Any],
        source: Source,
        created_at: float,
        upload: tuple[str, int] | None = None,
    ) -> Video:
        """Adds a video that is processing; with `upload`, its id and length in bytes, one that waits for them."""
        state = "processing" if upload is None else "uploading"
        if upload is not None:
            self._write("INSERT INTO uploads (id, video_id, length) VALUES (?, ?, ?)", (upload[0], video_id, upload[1]))
        cursor = self._write(
            "INSERT INTO videos (id, reference, title, metadata, state, source, created_at, about)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            (
                video_id,
                reference,
                title,
                json.dumps(metadata),
                state,
                json.dumps({"url": source.url, "headers": source.headers, "duration_ms": source.duration_ms}),
                created_at,
                json.dumps(about),
            ),
        )
        seq = cursor.lastrowid
        assert seq is not None
        return Video(
            seq, video_id, reference, title, metadata, state, None, None, None, None, None, None, created_at, about
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
        """Videos beyond the first of each reference: those that exist now, and those ever made, deleted ones too.
        What was announced and never sent is none."""
        now, ever = self._db.execute(
            "SELECT count(*) FILTER (WHERE state <> 'deleted')"  # noqa: S608 - composed of constants
            "       - count(DISTINCT reference) FILTER (WHERE state <> 'deleted'),"
            "       count(*) - count(DISTINCT reference)"
            f" FROM videos WHERE reference IS NOT NULL AND {_MADE}"
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

    # -- uploads

    def upload(self, upload_id: str) -> Upload | None:
        """The upload; None where there is none, or where its video was deleted."""
        found = self._uploads("u.id = ? AND v.state <> 'deleted'", upload_id)
        return found[0] if found else None

    def upload_of(self, video_id: str) -> str | None:
        row = self._db.execute("SELECT id FROM uploads WHERE video_id = ?", (video_id,)).fetchone()
        return None if row is None else str(row[0])

    def uploads_unfinished(self) -> list[Upload]:
        """Those whose bytes have not all come."""
        return self._uploads("v.state = ?", "uploading")

    def uploads_processing(self) -> set[str]:
        """The ids of those whose file is still read."""
        return {upload.id for upload in self._uploads("v.state = ?", "processing")}

    def _uploads(self, condition: str, value: str) -> list[Upload]:
        rows = self._db.execute(
            "SELECT u.id, u.video_id, u.length, v.state FROM uploads u JOIN videos v ON v.id = u.video_id"  # noqa: S608
            f" WHERE {condition}",
            (value,),
        )
        return [Upload(*row) for row in rows]

    def uploaded(self, video_id: str) -> Source | None:
        """Notes that all of a video's bytes have come, and returns where they are; None where that is no news."""
        cursor = self._write("UPDATE videos SET state = 'processing' WHERE id = ? AND state = 'uploading'", (video_id,))
        if not cursor.rowcount:
            return None
        self._write("UPDATE uploads SET whole = 1 WHERE video_id = ?", (video_id,))
        return self.source(video_id)

    def announced(self) -> int:
        """Uploads ever announced."""
        return int(self._db.execute("SELECT count(*) FROM uploads").fetchone()[0])

    # -- text tracks and posters

    def attach(self, video_id: str, kind: str, language: str, attached: Attached) -> None:
        self._write(
            "INSERT OR REPLACE INTO attached (video_id, kind, language, content, media_type) VALUES (?, ?, ?, ?, ?)",
            (video_id, kind, language, attached.content, attached.media_type),
        )

    def attached(self, video_id: str, kind: str, language: str) -> Attached | None:
        """What is on a video that is not deleted."""
        row = self._db.execute(
            "SELECT a.content, a.media_type FROM attached a JOIN videos v ON v.id = a.video_id"
            " WHERE v.id = ? AND v.state <> 'deleted' AND a.kind = ? AND a.language = ?",
            (video_id, kind, language),
        ).fetchone()
        return None if row is None else Attached(*row)

    def attached_count(self) -> dict[str, int]:
        """How many text tracks and posters are on videos that exist, by kind."""
        rows = self._db.execute(
            "SELECT a.kind, count(*) FROM attached a JOIN videos v ON v.id = a.video_id WHERE v.state <> 'deleted'"
            " GROUP BY a.kind"
        )
        return dict(rows.fetchall())

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
        for table in ("videos", "outbox", "idempotency", "uploads", "attached"):
            self._write(f"DELETE FROM {table}")  # noqa: S608 - names from the line above
        self._write("DELETE FROM sqlite_sequence")


def _video(row: Sequence[Any]) -> Video:
    *plain, about, captions, poster = row
    values = dict(zip(_PLAIN, plain, strict=True))
    values["metadata"] = json.loads(values["metadata"])
    return Video(**values, about=json.loads(about), captions=tuple(sorted(json.loads(captions))), poster=bool(poster))
