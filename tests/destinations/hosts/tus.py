"""The server's side of tus 1.0.0, as the hosts that take files by it have it."""

from __future__ import annotations

import base64
from abc import abstractmethod
from dataclasses import dataclass, field
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from tests.destinations.hosts.base import HostServer

VERSION = {"tus-resumable": "1.0.0"}


@dataclass
class Upload:
    """One announced file: how long it will be, what came of it, what was said of it."""

    id: str
    length: int
    video_id: str
    about: dict[str, str]
    content: bytearray = field(default_factory=bytearray)


def announced(request: Request) -> tuple[int, dict[str, str]] | Response:
    """The length and the metadata of an upload that is announced, or the refusal."""
    if request.headers.get("tus-resumable") != "1.0.0":
        return Response(status_code=412, headers={"tus-version": "1.0.0"})
    length = request.headers.get("upload-length", "")
    if not length.isdigit():
        return Response("Upload-Length is missing", 400)
    about = {}
    for pair in filter(None, request.headers.get("upload-metadata", "").split(",")):
        name, _, value = pair.strip().partition(" ")
        about[name] = base64.b64decode(value, validate=True).decode()
    return int(length), about


class TusUploads(HostServer):
    """For a host's server: where its uploads stand. `smallest` and `step` are what all parts but the last have to be;
    `keeps_parts` whether what came of a part that broke off is kept."""

    smallest = 1
    step = 1
    keeps_parts = True

    def __init__(self) -> None:
        super().__init__()
        self.uploads: dict[str, Upload] = {}
        self.upload_gone = False
        """Whether uploads are forgotten as soon as they are announced."""

    @abstractmethod
    def whole(self, upload: Upload) -> None:
        """Called once, when the last byte has come."""

    async def tus(self, request: Request) -> Response:
        """HEAD and PATCH of an upload's address."""
        upload = self.uploads.get(request.path_params["id"])
        if request.headers.get("tus-resumable") != "1.0.0":
            return Response(status_code=412, headers={"tus-version": "1.0.0"})
        if upload is None or self.upload_gone:
            return Response(status_code=404, headers=VERSION)
        if request.method == "HEAD":
            stands: dict[str, Any] = {"upload-offset": len(upload.content), "upload-length": upload.length}
            return Response(
                headers={**VERSION, "cache-control": "no-store", **{name: str(n) for name, n in stands.items()}}
            )
        if request.headers.get("content-type") != "application/offset+octet-stream":
            return Response(status_code=415, headers=VERSION)
        if request.headers.get("upload-offset") != str(len(upload.content)):
            return Response(status_code=409, headers=VERSION)
        length = int(request.headers["content-length"])
        if len(upload.content) + length > upload.length:
            return Response(status_code=413, headers=VERSION)
        if len(upload.content) + length < upload.length and (length < self.smallest or length % self.step):
            return Response(f"a part of {length} bytes", 400, headers=VERSION)
        part, came = await self.received(request)
        if came or self.keeps_parts:
            upload.content += part
        if len(upload.content) == upload.length:
            self.whole(upload)
        return Response(status_code=204, headers={**VERSION, "upload-offset": str(len(upload.content))})
