"""Mux's Video API, as a place that videos come from."""

from __future__ import annotations

import base64
from typing import Any, ClassVar

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from tests.sources.hosts.base import Clip, Server


class MuxServer(Server):
    token: ClassVar[str] = "key-id:s3cret-t0ken"
    reason = "invalid_input: not a video"
    page_param = "page"

    def __init__(self, clips: list[Clip] | None = None) -> None:
        super().__init__(clips)
        self.masters: dict[str, int] = {}
        """How often each asset with a master was asked about since."""

    def options(self) -> dict[str, Any]:
        return {"stream_url": f"{self.files.url}/stream", "image_url": f"{self.files.url}/image"}

    def allowed(self, request: Request) -> bool:
        return request.headers.get("authorization") == "Basic " + base64.b64encode(self.token.encode()).decode()

    def error(self, status: int, kind: str, words: str) -> Response:
        return JSONResponse({"error": {"type": kind, "messages": [words]}}, status)

    def unauthorized(self) -> Response:
        return self.error(401, "unauthorized", "Unauthorized request")

    def forbidden(self) -> Response:
        return self.error(403, "forbidden", "Permission denied")

    def not_found(self) -> Response:
        return self.error(404, "not_found", "The requested resource either doesn't exist")

    def too_many(self, wait_s: float) -> Response:
        return self.error(429, "too_many_requests", "Too many requests")

    def ref(self, clip: Clip) -> str:
        return f"asset{clip.number}"

    def respond(self, request: Request) -> Response:
        match request.url.path.strip("/").split("/"):
            case ["video", "v1", "assets"]:
                return self.listing(request)
            case ["video", "v1", "assets", ref] if clip := self.of_ref(ref):
                if ref in self.masters:
                    self.masters[ref] += 1
                return JSONResponse({"data": self.asset(clip)})
            case ["video", "v1", "assets", ref, "master-access"] if (clip := self.of_ref(ref)) and (
                request.method == "PUT"
            ):
                self.masters[ref] = 0
                return JSONResponse({"data": self.asset(clip)})
        return self.not_found()

    def listing(self, request: Request) -> Response:
        query = request.query_params
        limit = int(query["limit"])
        if "cursor" in query or "page" not in query:
            begin = int(query.get("cursor", "0").removeprefix("c"))
            begin = 0 if self.stuck else begin
            found = self.clips[begin : begin + limit]
            following = f"c{begin + limit}" if begin + limit < len(self.clips) else None
        else:
            found, following = self.window(request, "page", "limit"), None
        return JSONResponse({"data": [self.asset(clip) for clip in found], "next_cursor": following})

    def asset(self, clip: Clip) -> dict[str, Any]:
        ref = self.ref(clip)
        found: dict[str, Any] = {
            "id": ref,
            "created_at": str(int(clip.created.timestamp())),
            "status": {"failed": "errored", "processing": "preparing"}.get(clip.state, "ready"),
            "duration": 60.0 + clip.number,
            "meta": {"title": clip.title, "external_id": f"ext{clip.number}"},
            "playback_ids": [{"id": f"play{clip.number}", "policy": "signed" if clip.private else "public"}],
            "master_access": "temporary" if ref in self.masters else "none",
            "tracks": [{"id": "v", "type": "video"}]
            + [
                {
                    "id": f"t-{language}",
                    "type": "text",
                    "text_type": "subtitles",
                    "status": "ready",
                    "language_code": language,
                    "name": label,
                    "closed_captions": sounds,
                }
                for language, label, sounds in clip.tracks
            ],
        }
        if clip.state == "failed":
            found["errors"] = {"type": "invalid_input", "messages": ["not a video"]}
        if ref in self.masters:
            # It takes a while to be made.
            ready = self.masters[ref] > 0
            found["master"] = {"status": "ready" if ready else "preparing"}
            if ready:
                found["master"]["url"] = self.link(f"{clip.number}/master.mp4")
        return found

    def prepare(self) -> None:
        self.masters = {self.ref(clip): 1 for clip in self.clips}

    def expire(self) -> None:
        super().expire()
        self.masters.clear()

    def file(self, request: Request) -> Response:
        if request.url.path.startswith(("/stream/", "/image/")):
            return Response(b"public", media_type="text/vtt")
        return super().file(request)
