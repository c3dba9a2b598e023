"""Videos whose bytes are sent: tus 1.0.0, its core and its creation extension
(https://tus.io/protocols/resumable-upload).

A file grows on disk as its bytes arrive, so that what came before a dropped connection, or before a kill, is kept: its
length is the upload's offset, and nothing else says where it stands.
"""

from __future__ import annotations

import contextlib
import shutil
import time
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from pydantic import ValidationError
from starlette.requests import Request
from starlette.responses import Response

from sandbox.answers import error, invalid
from sandbox.bodies import UploadBody
from sandbox.store import Source, Store, Upload

VERSION: Final = "1.0.0"
CONTENT_TYPE: Final = "application/offset+octet-stream"
VIDEO_ID: Final = "Video-Id"
"""The header of a creation's answer that names the video."""


class Uploads:
    """All uploads. `begin` is called with each video whose bytes have come whole. `size_max` in bytes."""

    def __init__(self, directory: Path, store: Store, size_max: int, begin: Callable[[str, Source], None]) -> None:
        self._directory = directory
        self._store = store
        self._size_max = size_max
        self._begin = begin
        self._receiving: set[str] = set()
        self.received = 0
        """Bytes that arrived, those sent twice too, since the process or the last reset began."""

    def start(self) -> None:
        """Takes up what an earlier process left: a file that is whole is ingested, one that nobody knows removed."""
        self._directory.mkdir(parents=True, exist_ok=True)
        known = {upload.id: upload for upload in self._store.uploads_unfinished()}
        for upload in known.values():
            if self._offset(upload) >= upload.length:
                self._whole(upload)
        needed = known.keys() | self._store.uploads_processing()
        for path in self._directory.iterdir():
            if path.name not in needed:
                path.unlink()

    def clear(self) -> None:
        """Forgets the files; the storage forgets the rest."""
        shutil.rmtree(self._directory, ignore_errors=True)
        self._directory.mkdir(parents=True)
        self.received = 0

    def forget(self, video_id: str) -> None:
        """Removes the file of a video that is finished or deleted."""
        if (upload_id := self._store.upload_of(video_id)) is not None:
            self._path(upload_id).unlink(missing_ok=True)

    # -- the protocol

    def options(self) -> Response:
        return self._answer(204, {"Tus-Extension": "creation", "Tus-Max-Size": str(self._size_max)})

    async def announce(self, request: Request) -> Response:
        """A creation: the video is there from now on, and waits for its bytes."""
        if (refusal := self._refusal(request)) is not None:
            return refusal
        length = _number(request.headers.get("upload-length"))
        if length is None:
            return self._error(400, "invalid_request", "Upload-Length: must be a number of bytes")
        if length > self._size_max:
            return self._error(413, "file_too_large", f"more than {self._size_max} bytes")
        try:
            body = UploadBody.of(request.headers.get("upload-metadata", ""))
        except ValidationError as problem:
            return self._answered(invalid(problem))
        except ValueError as problem:
            return self._error(400, "invalid_request", f"Upload-Metadata: {problem}")
        if (problem_found := body.metadata_problem()) is not None:
            return self._error(422, *problem_found)
        upload_id = uuid.uuid4().hex
        source = Source(str(self._path(upload_id)), {}, body.duration_ms)
        video = self._store.add(
            uuid.uuid4().hex,
            reference=body.reference,
            title=body.title,
            metadata=body.metadata,
            about=body.about.model_dump(exclude_defaults=True),
            source=source,
            created_at=time.time(),
            upload=(upload_id, length),
        )
        self._path(upload_id).touch()
        if length == 0:
            self._whole(Upload(upload_id, video.id, length, video.state))
        await self._store.durable()
        return self._answer(201, {"Location": f"/v1/uploads/{upload_id}", VIDEO_ID: video.id})

    async def stand(self, request: Request) -> Response:
        """How many bytes have come."""
        if (refusal := self._refusal(request)) is not None:
            return refusal
        if (upload := self._store.upload(request.path_params["id"])) is None:
            return self._no_such_upload()
        headers = {"Upload-Offset": str(self._offset(upload)), "Upload-Length": str(upload.length)}
        return self._answer(200, {**headers, "Cache-Control": "no-store"})

    async def receive(self, request: Request) -> Response:
        """Bytes, from where the upload stands."""
        if (refusal := self._refusal(request)) is not None:
            return refusal
        if (upload := self._store.upload(request.path_params["id"])) is None:
            return self._no_such_upload()
        if request.headers.get("content-type") != CONTENT_TYPE:
            return self._error(415, "invalid_request", f"Content-Type: must be {CONTENT_TYPE}")
        if upload.id in self._receiving:
            return self._error(423, "upload_locked", "another request is sending to this upload")
        offset = self._offset(upload)
        if _number(request.headers.get("upload-offset")) != offset:
            return self._error(409, "wrong_offset", f"the upload has {offset} bytes")
        if (_number(request.headers.get("content-length")) or 0) > upload.length - offset:
            return self._error(413, "body_too_large", f"{upload.length} bytes were announced")
        self._receiving.add(upload.id)
        try:
            fits = await self._append(request, upload, upload.length - offset)
        finally:
            self._receiving.discard(upload.id)
        found = self._store.upload(upload.id)
        if found is None:  # deleted meanwhile
            self._path(upload.id).unlink(missing_ok=True)
            return self._no_such_upload()
        if not fits:
            return self._error(413, "body_too_large", f"{upload.length} bytes were announced")
        offset = self._offset(found)
        if offset == found.length and found.state == "uploading":
            self._whole(found)
            await self._store.durable()
        return self._answer(204, {"Upload-Offset": str(offset)})

    async def _append(self, request: Request, upload: Upload, room: int) -> bool:
        """Writes the body as it comes; False where it is longer than there is room for."""
        with self._path(upload.id).open("ab", buffering=0) as file:
            async for block in request.stream():
                fitting = block[:room]
                file.write(fitting)
                room -= len(fitting)
                self.received += len(block)
                if len(fitting) < len(block):
                    return False
        return True

    def _whole(self, upload: Upload) -> None:
        source = self._store.uploaded(upload.video_id)
        if source is not None:
            self._begin(upload.video_id, source)

    def _offset(self, upload: Upload) -> int:
        if upload.state != "uploading":
            return upload.length
        with contextlib.suppress(FileNotFoundError):
            return self._path(upload.id).stat().st_size
        return 0

    def _path(self, upload_id: str) -> Path:
        return self._directory / upload_id

    # -- answers

    def _refusal(self, request: Request) -> Response | None:
        if request.headers.get("tus-resumable") == VERSION:
            return None
        return self._error(412, "unsupported_version", f"Tus-Resumable: must be {VERSION}")

    def _no_such_upload(self) -> Response:
        return self._error(404, "not_found", "there is no such upload")

    def _error(self, status: int, code: str, message: str) -> Response:
        return self._answered(error(status, code, message))

    def _answer(self, status: int, headers: Mapping[str, str]) -> Response:
        return self._answered(Response(status_code=status, headers=headers))

    @staticmethod
    def _answered(response: Response) -> Response:
        response.headers.update({"Tus-Resumable": VERSION, "Tus-Version": VERSION})
        return response


def _number(text: str | None) -> int | None:
    return int(text) if text and text.isascii() and text.isdigit() and len(text) <= 18 else None
