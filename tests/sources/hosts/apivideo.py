"""api.video, as a place that videos come from. A private video's addresses carry a token that is new each time."""

from __future__ import annotations

import base64
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from tests.sources.hosts.base import Clip, Server


class ApiVideoServer(Server):
    reason = "every rendition failed"
    page_param = "currentPage"

    def allowed(self, request: Request) -> bool:
        return request.headers.get("authorization") == "Basic " + base64.b64encode(f"{self.token}:".encode()).decode()

    def problem(self, status: int, title: str, headers: dict[str, str] | None = None) -> Response:
        body = {"type": "https://docs.api.video/reference", "title": title, "status": status, "name": ""}
        return JSONResponse(body, status, headers, media_type="application/problem+json")

    def unauthorized(self) -> Response:
        return self.problem(401, "The API key is wrong.")

    def forbidden(self) -> Response:
        return self.problem(403, "Forbidden.")

    def not_found(self) -> Response:
        return self.problem(404, "The requested resource was not found.")

    def too_many(self, wait_s: float) -> Response:
        headers = {"X-RateLimit-Limit": "500", "X-RateLimit-Remaining": "0"}
        return self.problem(429, "Too many requests.", headers | {"X-RateLimit-Retry-After": f"{wait_s:g}"})

    def ref(self, clip: Clip) -> str:
        return f"vi{clip.number}"

    def respond(self, request: Request) -> Response:
        match request.url.path.strip("/").split("/"):
            case ["videos"]:
                found = self.window(request, "currentPage", "pageSize")
                return self.page(request, [self.video(clip) for clip in found], self.total)
            case ["videos", ref] if clip := self.of_ref(ref):
                return JSONResponse(self.video(clip))
            case ["videos", ref, "status"] if clip := self.of_ref(ref):
                return JSONResponse(self.status(clip))
            case ["videos", ref, "captions"] if clip := self.of_ref(ref):
                found_tracks = [self.track(clip, *track) for track in clip.tracks]
                return self.page(request, found_tracks, len(found_tracks))
        return self.not_found()

    def page(self, request: Request, data: list[dict[str, Any]], total: int) -> Response:
        size, page = int(request.query_params["pageSize"]), int(request.query_params.get("currentPage", "1"))
        pagination = {
            "currentPage": page,
            "pageSize": size,
            "pagesTotal": -(-total // size),
            "itemsTotal": total,
            "currentPageItems": len(data),
            "links": [],
        }
        return JSONResponse({"data": data, "pagination": pagination})

    def video(self, clip: Clip) -> dict[str, Any]:
        return {
            "videoId": self.ref(clip),
            "title": clip.title,
            "description": f"about {clip.number}",
            "public": not clip.private,
            "panoramic": False,
            "mp4Support": True,
            "createdAt": clip.created.isoformat(),
            "publishedAt": clip.created.isoformat(),
            "updatedAt": clip.created.isoformat(),
            "tags": ["spring", "lab"],
            "metadata": [{"key": "course", "value": "CHEM-101"}],
            "source": {"type": "upload", "uri": f"/videos/{self.ref(clip)}/source"},
            "assets": {
                "mp4": self.link(f"vod/{self.ref(clip)}{self.token_of(clip)}/mp4/source.mp4"),
                "thumbnail": self.link(f"vod/{self.ref(clip)}{self.token_of(clip)}/thumbnail.jpg"),
            },
        }

    def token_of(self, clip: Clip) -> str:
        return f"/token/private{self.given}" if clip.private else ""

    def status(self, clip: Clip) -> dict[str, Any]:
        state = {"failed": "failed", "processing": "encoding"}.get(clip.state, "encoded")
        qualities = [{"type": "hls", "quality": q, "status": state} for q in ("360p", "720p")]
        return {
            "ingest": {"status": "ingested" if state != "encoding" else "ingesting", "filesize": 1000},
            "encoding": {
                "playable": clip.state == "ready",
                "qualities": qualities,
                "metadata": {"duration": 60 + clip.number},
            },
        }

    def track(self, clip: Clip, language: str, label: str, sounds: bool) -> dict[str, Any]:
        return {
            "uri": f"/videos/{self.ref(clip)}/captions/{language}",
            "src": self.link(f"vod/{self.ref(clip)}/captions/{language}.vtt"),
            "srclang": language,
            "languageName": label,
            "default": False,
        }
