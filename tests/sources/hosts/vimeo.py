"""Vimeo as developer.vimeo.com describes it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from tests.sources.hosts.base import Clip, Server

STATUS = {"ready": "available", "failed": "transcoding_error", "processing": "transcoding"}


class VimeoServer(Server):
    reason = "transcoding_error"
    page_param = "page"

    def allowed(self, request: Request) -> bool:
        return request.headers.get("authorization") == f"bearer {self.token}"

    def unauthorized(self) -> Response:
        return self.error(401, 8003, "The app didn't receive the user's credentials.")

    def forbidden(self) -> Response:
        return self.error(403, 3200, "Your access token does not have the required scope")

    def not_found(self) -> Response:
        return self.error(404, 5000, "The requested video couldn't be found.")

    def too_many(self, wait_s: float) -> Response:
        until = datetime.now(UTC) + timedelta(seconds=wait_s)
        answer = self.error(429, 9000, "Too many API requests. Wait an hour or so, then try again.")
        answer.headers["x-ratelimit-limit"] = "50"
        answer.headers["x-ratelimit-remaining"] = "0"
        answer.headers["x-ratelimit-reset"] = until.isoformat()
        return answer

    def error(self, status: int, code: int, words: str) -> Response:
        body = {"error": words, "link": None, "developer_message": words, "error_code": code}
        return JSONResponse(body, status, media_type="application/vnd.vimeo.error+json")

    def respond(self, request: Request) -> Response:
        # Without `fields` an account gets a tenth of the requests: here, none.
        if "fields" not in request.query_params:
            return self.error(429, 9000, "unfiltered")
        match request.url.path.strip("/").split("/"):
            case ["me", "videos"]:
                return self.listing(request)
            case ["videos", ref] if clip := self.of_ref(ref):
                return JSONResponse(self.video(clip, fresh=True), media_type="application/vnd.vimeo.video+json")
            case ["videos", ref, "texttracks"] if clip := self.of_ref(ref):
                found = [self.track(clip, *track) for track in clip.tracks]
                page = {"total": len(found), "page": 1, "per_page": 25, "data": found}
                return JSONResponse(page, media_type="application/vnd.vimeo.video.texttrack+json")
        return self.not_found()

    def listing(self, request: Request) -> Response:
        found = self.window(request, "page", "per_page")
        page = int(request.query_params["page"])
        if not found and page > 1:
            return self.error(400, 2204, "The page number is invalid")
        return JSONResponse(
            {
                "total": self.total,
                "page": page,
                "per_page": int(request.query_params["per_page"]),
                "paging": {"next": None, "previous": None, "first": "", "last": ""},
                "data": [self.video(clip) for clip in found],
            },
            media_type="application/vnd.vimeo.video+json",
        )

    def video(self, clip: Clip, *, fresh: bool = False) -> dict[str, Any]:
        found = {
            "uri": f"/videos/{clip.number}" + (":4f1a" if clip.private else ""),
            "name": clip.title,
            "description": f"about {clip.number}",
            "duration": 60 + clip.number,
            "language": "en",
            "created_time": clip.created.isoformat(),
            "status": STATUS[clip.state],
            "tags": [{"name": "spring"}, {"name": "lab"}],
            "privacy": {"view": "unlisted" if clip.private else "anybody"},
            "parent_folder": {"name": "CHEM-101"},
            "pictures": {
                "sizes": [
                    {"width": 100, "link": self.link("small.jpg")},
                    {"width": 1920, "link": self.link(f"poster{clip.number}.jpg")},
                ]
            },
            "metadata": {"connections": {"texttracks": {"total": len(clip.tracks)}}},
        }
        if fresh:
            found["upload"] = {"status": "complete"}
            found["transcode"] = {"status": {"ready": "complete", "failed": "error"}.get(clip.state, "in_progress")}
            found["download"] = [
                {"quality": "hd", "height": 720, "size": 9, "link": self.link("hd.mp4")},
                {"quality": "source", "height": 1080, "size": 1000, "link": self.link(f"{clip.number}.mp4")},
            ]
        return found

    def track(self, clip: Clip, language: str, label: str, sounds: bool) -> dict[str, Any]:
        return {
            "uri": f"/videos/{clip.number}/texttracks/{clip.number}{language}",
            "active": True,
            "language": language,
            "name": label,
            "type": "captions" if sounds else "subtitles",
            "link": self.link(f"{clip.number}.{language}.vtt"),
        }
