"""Cloudflare Stream, as a place that videos come from. Listed by time; `start` may be read either way."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response

from tests.sources.hosts.base import Clip, Server


class CloudflareServer(Server):
    reason = "ERR_NON_VIDEO: The file was not recognized as a valid video file."
    inclusive = True
    counts = True

    def __init__(self, clips: list[Clip] | None = None) -> None:
        super().__init__(clips)
        self.downloads: dict[str, int] = {}
        """How often each download that is being made was asked about."""

    def options(self) -> dict[str, Any]:
        return {"account": "acc"}

    def fail(self, status: int, code: int, words: str, headers: dict[str, str] | None = None) -> Response:
        body = {"success": False, "errors": [{"code": code, "message": words}], "messages": [], "result": None}
        return JSONResponse(body, status, headers)

    def unauthorized(self) -> Response:
        return self.fail(401, 10000, "Authentication error")

    def forbidden(self) -> Response:
        return self.fail(403, 10000, "Authentication error")

    def not_found(self) -> Response:
        return self.fail(404, 10003, "Not Found: The requested resource could not be found.")

    def too_many(self, wait_s: float) -> Response:
        headers = {"ratelimit": f'"default";r=0;t={int(wait_s)}', "ratelimit-policy": '"default";q=1200;w=300'}
        return self.fail(429, 971, "Please wait and consider throttling your request speed", headers)

    def good(self, result: Any, **more: Any) -> Response:
        return JSONResponse({"success": True, "errors": [], "messages": [], "result": result, **more})

    def ref(self, clip: Clip) -> str:
        return f"uid{clip.number:029d}"

    def respond(self, request: Request) -> Response:
        match request.url.path.strip("/").split("/")[2:]:
            case ["stream"]:
                return self.listing(request)
            case ["stream", ref] if clip := self.of_ref(ref):
                return self.good(self.video(clip))
            case ["stream", ref, "captions"] if clip := self.of_ref(ref):
                found = [{"language": t[0], "label": t[1], "generated": False, "status": "ready"} for t in clip.tracks]
                return self.good(found)
            case ["stream", ref, "captions", language, "vtt"] if clip := self.of_ref(ref):
                if language in [track[0] for track in clip.tracks]:
                    return PlainTextResponse("WEBVTT\n", media_type="text/vtt")
            case ["stream", ref, "token"] if self.of_ref(ref) and request.method == "POST":
                return self.good({"token": f"signed-{ref}"})
            case ["stream", ref, "downloads"] if clip := self.of_ref(ref):
                return self.download(request, ref, clip)
        return self.not_found()

    def listing(self, request: Request) -> Response:
        query = request.query_params
        start = query.get("start")
        found = self.clips
        if start is not None and not self.stuck:
            since = datetime.fromisoformat(start)
            found = [c for c in found if c.created > since or (self.inclusive and c.created == since)]
        assert query["asc"] == "true"
        found = sorted(found, key=lambda c: c.created)
        page = found[: int(query["limit"])]
        more = {"total": self.total, "range": len(found)} if self.counts else {}
        return self.good([self.video(clip) for clip in page], **more)

    def video(self, clip: Clip) -> dict[str, Any]:
        status: dict[str, Any] = {"state": {"failed": "error", "processing": "inprogress"}.get(clip.state, "ready")}
        if clip.state == "failed":
            # One field in each of the spellings.
            status |= {"errorReasonCode": "ERR_NON_VIDEO"}
            status |= {"errReasonText": "The file was not recognized as a valid video file."}
        return {
            "uid": self.ref(clip),
            "created": clip.created.isoformat().replace("+00:00", "Z"),
            "duration": -1 if clip.state == "processing" else 60.0 + clip.number,
            "meta": {"name": clip.title, "course": "CHEM-101"},
            "creator": "chemistry",
            "readyToStream": clip.state == "ready",
            "requireSignedURLs": clip.private,
            "size": 4190963,
            "status": status,
            "thumbnail": f"{self.files.url}/{self.ref(clip)}/thumbnails/thumbnail.jpg",
        }

    def download(self, request: Request, ref: str, clip: Clip) -> Response:
        if request.method == "POST":
            if clip.state != "ready":
                return self.fail(400, 10005, "Bad Request: The video is not ready")
            self.downloads.setdefault(ref, 0)
        elif ref in self.downloads:
            self.downloads[ref] += 1
        if ref not in self.downloads:
            return self.good({})
        ready = self.downloads[ref] > 0
        made = {"status": "ready" if ready else "inprogress", "percentComplete": 100.0 if ready else 12.5}
        return self.good({"default": made | {"url": f"{self.files.url}/{ref}/downloads/default.mp4"}})

    def prepare(self) -> None:
        self.downloads = {self.ref(clip): 1 for clip in self.clips if clip.state == "ready"}

    def file(self, request: Request) -> Response:
        """An id stands in the address, or, where the video is private, a token."""
        key = request.url.path.strip("/").split("/")[0]
        clip = self.of_ref(key.removeprefix("signed-"))
        if clip is None or (clip.private and not key.startswith("signed-")):
            return Response("forbidden", 401)
        return Response(b"bytes", media_type="video/mp4")
