"""JW Player's Management API v2, with only so many results of a question within reach, and its Delivery API."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from tests.sources.hosts.base import Clip, Server

RANGE = re.compile(r'created:\[(\*|"[^"]+") TO (\*|"[^"]+")\]')


class JwPlayerServer(Server):
    reason = "bad container"
    page_param = "page"
    reachable = 10_000
    ignores_query = False
    whole_days = False
    """Whether a day as the end of a range means all of it, or its first moment."""

    def options(self) -> dict[str, Any]:
        return {"site": "site0001", "delivery_url": self.files.url}

    def error(self, status: int, code: str, words: str, headers: dict[str, str] | None = None) -> Response:
        return JSONResponse({"errors": [{"code": code, "description": words}]}, status, headers)

    def unauthorized(self) -> Response:
        return self.error(401, "unauthorized", "Invalid API secret")

    def forbidden(self) -> Response:
        return self.error(403, "forbidden", "Not allowed for this property")

    def not_found(self) -> Response:
        return self.error(404, "not_found", "Resource with ID supplied does not exist")

    def too_many(self, wait_s: float) -> Response:
        # It does not say when to come back, only how many are left.
        return self.error(429, "rate_limit", "limit exceeded", {"jw-request-limit": "60", "jw-request-remaining": "0"})

    def ref(self, clip: Clip) -> str:
        return f"media{clip.number:03d}"

    def respond(self, request: Request) -> Response:
        match request.url.path.strip("/").split("/"):
            case ["v2", "sites", "site0001", "media"]:
                return self.listing(request)
            case ["v2", "sites", "site0001", "media", ref] if clip := self.of_ref(ref):
                return JSONResponse(self.media(clip))
            case ["v2", "sites", "site0001", "media", ref, "originals"] if clip := self.of_ref(ref):
                found = [{"id": "o1", "type": "original", "download_url": self.link(f"{clip.number}.mp4")}]
                return JSONResponse({"page": 1, "page_length": 10, "total": 1, "originals": found})
            case ["v2", "sites", "site0001", "media", ref, "text_tracks"] if clip := self.of_ref(ref):
                found = [self.track(clip, *track) for track in clip.tracks]
                return JSONResponse({"page": 1, "page_length": 10, "total": len(found), "text_tracks": found})
        return self.not_found()

    def listing(self, request: Request) -> Response:
        query = request.query_params
        found = self.clips
        if "q" in query and not self.ignores_query:
            ends = RANGE.fullmatch(query["q"])
            assert ends is not None, "a range as documented"
            since, until = self.bound(ends[1], begins=True), self.bound(ends[2], begins=False)
            found = [c for c in found if (not since or c.created >= since) and (not until or c.created <= until)]
        found = sorted(found, key=lambda c: c.created, reverse=query.get("sort") == "created:dsc")
        total = len(found) + self.lies
        size, page = int(query["page_length"]), int(query["page"])
        begin = 0 if self.stuck else (page - 1) * size
        if begin >= self.reachable:
            return self.error(400, "invalid_page", "only the first results can be reached")
        found = found[begin : min(begin + size, self.reachable)]
        media = [self.media(clip) for clip in found]
        return JSONResponse({"page": page, "page_length": size, "total": total, "media": media})

    def bound(self, end: str, *, begins: bool) -> datetime | None:
        if end == "*":
            return None
        at = datetime.fromisoformat(end.strip('"'))
        if at.tzinfo is None:
            at = at.replace(tzinfo=UTC)
            if self.whole_days and not begins:
                at += timedelta(days=1, microseconds=-1)
        return at

    def media(self, clip: Clip) -> dict[str, Any]:
        return {
            "id": self.ref(clip),
            "type": "media",
            "created": clip.created.astimezone(UTC).isoformat(),
            "duration": 60.0 + clip.number,
            "error_message": "bad container" if clip.state == "failed" else None,
            "external_id": None,
            "hosting_type": "hosted",
            "media_type": "video",
            "status": clip.state,
            "source_url": None,
            "metadata": {
                "title": clip.title,
                "description": f"about {clip.number}",
                "tags": ["spring", "lab"],
                "category": "Education",
                "custom_params": {"course": "CHEM-101"},
                "protection_rule_key": "rule" if clip.private else None,
            },
        }

    def track(self, clip: Clip, language: str, label: str, sounds: bool) -> dict[str, Any]:
        return {
            "id": f"t{language}",
            "type": "text_track",
            "status": "ready",
            "track_kind": "captions" if sounds else "subtitles",
            "delivery_url": self.link(f"{clip.number}.{language}.vtt"),
            "metadata": {"srclang": language, "label": label},
        }

    def file(self, request: Request) -> Response:
        """The Delivery API is public, and stands where the files are."""
        match request.url.path.strip("/").split("/"):
            case ["v2", "media", _, "poster.jpg"]:
                return Response(b"picture", media_type="image/jpeg")
            case ["v2", "media", ref] if clip := self.of_ref(ref):
                sources = [
                    {"file": self.link("x.m3u8"), "type": "application/vnd.apple.mpegurl"},
                    {"file": self.link("270.mp4"), "type": "video/mp4", "height": 270},
                    {"file": self.link(f"{clip.number}-720.mp4"), "type": "video/mp4", "height": 720},
                ]
                return JSONResponse({"title": clip.title, "playlist": [{"mediaid": ref, "sources": sources}]})
        return super().file(request)
