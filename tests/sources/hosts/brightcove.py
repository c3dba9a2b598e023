"""Brightcove's CMS API and its OAuth service, whose tokens end."""

from __future__ import annotations

import base64
from typing import Any, ClassVar

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from tests.sources.hosts.base import Clip, Server


class BrightcoveServer(Server):
    token: ClassVar[str] = "client-1:s3cret-t0ken"
    reason = "INVALID_VIDEO: cannot be read"
    page_param = "offset"

    def __init__(self, clips: list[Clip] | None = None) -> None:
        super().__init__(clips)
        self.access = self.ended = 0
        """How many access tokens were given, and how many of them are no longer good."""

    def options(self) -> dict[str, Any]:
        return {"account": "1234567890", "oauth_url": f"{self.api.url}/oauth"}

    def allowed(self, request: Request) -> bool:
        given = request.headers.get("authorization")
        if request.url.path == "/oauth/v4/access_token":
            return given == "Basic " + base64.b64encode(self.token.encode()).decode()
        return given in [f"Bearer access-{number}" for number in range(self.ended + 1, self.access + 1)]

    def end_access(self) -> None:
        self.ended = self.access

    def error(self, status: int, code: str, words: str) -> Response:
        return JSONResponse([{"error_code": code, "message": words}], status)

    def unauthorized(self) -> Response:
        return self.error(401, "UNAUTHORIZED", "Permission denied.")

    def forbidden(self) -> Response:
        return self.error(403, "ACCESS_DENIED", "Access denied.")

    def not_found(self) -> Response:
        return self.error(404, "RESOURCE_NOT_FOUND", "the resource was not found")

    def too_many(self, wait_s: float) -> Response:
        return self.error(429, "TOO_MANY_REQUESTS", "Too many requests")

    def ref(self, clip: Clip) -> str:
        return f"60{clip.number:04d}"

    def respond(self, request: Request) -> Response:
        match request.url.path.strip("/").split("/"):
            case ["oauth", "v4", "access_token"] if request.method == "POST":
                self.access += 1
                token = {"access_token": f"access-{self.access}", "token_type": "Bearer", "expires_in": 300}
                return JSONResponse(token)
            case ["v1", "accounts", "1234567890", "counts", "videos"]:
                return JSONResponse({"count": self.total})
            case ["v1", "accounts", "1234567890", "videos"]:
                found = self.window(request, "offset", "limit", offset=True)
                return JSONResponse([self.video(clip) for clip in found])
            case ["v1", "accounts", "1234567890", "folders"]:
                return JSONResponse([{"id": "f1", "name": "CHEM-101", "account_id": "1234567890", "video_count": 3}])
            case ["v1", "accounts", "1234567890", "videos", ref] if clip := self.of_ref(ref):
                return JSONResponse(self.video(clip))
            case ["v1", "accounts", "1234567890", "videos", ref, "sources"] if clip := self.of_ref(ref):
                return JSONResponse(self.sources(clip))
            case ["v1", "accounts", "1234567890", "videos", ref, "ingest_jobs"] if clip := self.of_ref(ref):
                return JSONResponse(self.jobs(clip))
        return self.not_found()

    def video(self, clip: Clip) -> dict[str, Any]:
        return {
            "id": self.ref(clip),
            "account_id": "1234567890",
            "name": clip.title,
            "description": "short",
            "long_description": f"about {clip.number}",
            "duration": 1000 * (60 + clip.number),
            "state": "INACTIVE" if clip.private else "ACTIVE",
            "complete": clip.state == "ready",
            "created_at": clip.created.isoformat(),
            "folder_id": "f1",
            "reference_id": None,
            "tags": ["spring", "lab"],
            "custom_fields": {},
            "images": {"poster": {"src": self.link(f"poster{clip.number}.jpg")}},
            "text_tracks": [self.track(clip, *track) for track in clip.tracks]
            + [{"id": "chapters", "kind": "chapters", "srclang": "en", "src": self.link("chapters.vtt")}],
        }

    def track(self, clip: Clip, language: str, label: str, sounds: bool) -> dict[str, Any]:
        return {
            "id": f"track-{language}",
            "kind": "captions" if sounds else "subtitles",
            "srclang": language,
            "label": label,
            "mime_type": "text/webvtt",
            "src": self.link(f"{clip.number}.{language}.vtt"),
        }

    def sources(self, clip: Clip) -> list[dict[str, Any]]:
        if clip.state != "ready":
            return []
        return [
            {"src": self.link("manifest.m3u8"), "type": "application/x-mpegURL"},
            {"src": self.link("540.mp4"), "container": "MP4", "height": 540, "size": 10},
            {"src": self.link(f"{clip.number}.mp4"), "container": "MP4", "height": 1080, "size": 1000},
        ]

    def jobs(self, clip: Clip) -> list[dict[str, Any]]:
        old = {"id": "j0", "state": "finished", "submitted_at": "2020-01-01T00:00:00Z"}
        new = {"id": "j1", "state": "processing", "submitted_at": "2021-01-01T00:00:00Z"}
        if clip.state == "failed":
            new |= {"state": "failed", "error_code": "INVALID_VIDEO", "error_message": "cannot be read"}
        return [new, old]
