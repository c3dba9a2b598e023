"""Wistia's Data API as its OpenAPI description has it."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response

from tests.sources.hosts.base import Clip, Server

CODES = {"en": "eng", "pt-BR": "por"}


class WistiaServer(Server):
    reason = "failed"
    page_param = "page"

    def unauthorized(self) -> Response:
        return JSONResponse({"code": "unauthorized_credentials", "error": "Invalid credentials."}, 401)

    def forbidden(self) -> Response:
        return JSONResponse({"error": "Forbidden"}, 403)

    def not_found(self) -> Response:
        return JSONResponse({"error": "Not found"}, 404)

    def too_many(self, wait_s: float) -> Response:
        return JSONResponse({"error": "Rate limit exceeded"}, 429, {"retry-after": f"{wait_s:g}"})

    def ref(self, clip: Clip) -> str:
        return f"hash{clip.number}"

    def respond(self, request: Request) -> Response:
        match request.url.path.strip("/").split("/"):
            case ["medias"]:
                found = self.window(request, "page", "per_page")
                return JSONResponse([self.media(clip) for clip in found])
            case ["medias", ref] if clip := self.of_ref(ref):
                return JSONResponse(self.media(clip))
            case ["medias", ref, "captions"] if clip := self.of_ref(ref):
                return JSONResponse([self.track(*track) for track in clip.tracks])
            case ["medias", ref, "captions", name] if clip := self.of_ref(ref):
                code, _, ending = name.partition(".")
                if ending == "vtt" and code in [CODES[track[0]] for track in clip.tracks]:
                    return PlainTextResponse("WEBVTT\n", media_type="text/vtt")
        return self.not_found()

    def media(self, clip: Clip) -> dict[str, Any]:
        return {
            "id": clip.number,
            "hashed_id": self.ref(clip),
            "name": clip.title,
            "type": "Video",
            "archived": False,
            "protected": clip.private,
            "created": clip.created.isoformat(),
            "updated": clip.created.isoformat(),
            "duration": 60.0 + clip.number,
            "description": f"about {clip.number}",
            "progress": 1.0,
            "status": {"failed": "failed", "processing": "processing"}.get(clip.state, "ready"),
            "thumbnail": {
                "url": self.link(f"poster{clip.number}.jpg") + "&image_crop_resized=200x120",
                "width": 200,
                "height": 120,
            },
            "folder": {"id": 7, "name": "CHEM-101", "hashed_id": "f7"},
            "subfolder": {
                "hashed_id": "s1",
                "name": "Labs",
                "description": None,
                "position": 1,
                "created": clip.created.isoformat(),
                "updated": clip.created.isoformat(),
            },
            "tags": [{"name": "spring"}, {"name": "lab"}],
            "assets": [
                {
                    "url": self.link("small.bin"),
                    "width": 640,
                    "height": 360,
                    "file_size": 9,
                    "content_type": "video/mp4",
                    "type": "IphoneVideoFile",
                },
                {
                    "url": self.link(f"{clip.number}.bin"),
                    "width": 1920,
                    "height": 1080,
                    "file_size": 1000,
                    "content_type": "video/mp4",
                    "type": "OriginalFile",
                },
            ],
        }

    def track(self, language: str, label: str, sounds: bool) -> dict[str, Any]:
        return {
            "english_name": label,
            "native_name": label,
            "language": CODES[language],
            "text": "1\n00:00:00,000 --> 00:00:01,000\nhello\n",
            "is_draft": False,
            "id": f"{language}id",
        }
