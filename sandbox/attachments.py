"""Text tracks and posters, put on videos that are there."""

from __future__ import annotations

import re
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from sandbox.answers import error, no_such_video
from sandbox.store import Attached, Store

CAPTION_MAX: Final = 10_485_760
"""Bytes of a text track, as at Cloudflare."""
POSTER_MAX: Final = 20_971_520

_LANGUAGE: Final = re.compile(r"[A-Za-z]{2,8}(-[A-Za-z0-9]{1,8})*")
_PICTURES: Final = (b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n", b"GIF8", b"RIFF")


class Attachments:
    def __init__(self, store: Store) -> None:
        self._store = store

    def put_caption(self, request: Request, content: bytes) -> Response | None:
        """Puts the track on the video, in place of one in its language. The answer where it is refused."""
        language = request.path_params["language"]
        if not _LANGUAGE.fullmatch(language):
            return error(422, "invalid_request", "the language must be a tag such as de or pt-BR")
        if _media_type(request) != "text/vtt":
            return error(415, "invalid_request", "Content-Type: must be text/vtt")
        try:
            text = content.decode("utf-8-sig")
        except UnicodeDecodeError:
            return error(422, "caption_unreadable", "the track is not UTF-8")
        if not text.startswith("WEBVTT"):
            return error(422, "caption_unreadable", "the track is no WebVTT")
        return self._put(request, "caption", language, content, "text/vtt")

    def put_poster(self, request: Request, content: bytes) -> Response | None:
        """Puts the picture on the video, in place of an earlier one. The answer where it is refused."""
        media_type = _media_type(request)
        if not media_type.startswith("image/"):
            return error(415, "invalid_request", "Content-Type: must be that of a picture")
        if not content.startswith(_PICTURES):
            return error(422, "poster_unreadable", "it is no JPEG, PNG, GIF or WebP")
        return self._put(request, "poster", "", content, media_type)

    def show(self, request: Request, kind: str, language: str = "") -> Response:
        found = self._store.attached(request.path_params["id"], kind, language)
        if found is None:
            return error(404, "not_found", f"there is no such {kind}")
        return Response(found.content, media_type=found.media_type)

    def _put(self, request: Request, kind: str, language: str, content: bytes, media_type: str) -> Response | None:
        video = self._store.get(request.path_params["id"])
        if video is None or video.state == "deleted":
            return no_such_video()
        self._store.attach(video.id, kind, language, Attached(content, media_type))
        return None


def _media_type(request: Request) -> str:
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()
