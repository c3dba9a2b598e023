"""Bunny Stream's API and a pull zone that asks for tokens."""

from __future__ import annotations

import base64
import hashlib
import time
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from tests.sources.hosts.base import Clip, Server

TOKEN_KEY = "s3cret-zone-key"
COLLECTION = "c0ffee00-0000-4000-8000-000000000001"


class BunnyServer(Server):
    reason = "The file is not a video"
    page_param = "page"

    def options(self) -> dict[str, Any]:
        return {"library": 759, "pull_zone": self.files.url, "token_key": TOKEN_KEY, "expires_s": 60}

    def __init__(self, clips: list[Clip] | None = None) -> None:
        super().__init__(clips)
        self.expired_before = 0

    def allowed(self, request: Request) -> bool:
        return request.headers.get("accesskey") == self.token

    def unauthorized(self) -> Response:
        return Response(status_code=401)

    def forbidden(self) -> Response:
        return Response(status_code=403)

    def not_found(self) -> Response:
        return JSONResponse({"success": False, "message": "Video not found", "statusCode": 404}, 404)

    def too_many(self, wait_s: float) -> Response:
        return Response(status_code=429)

    def ref(self, clip: Clip) -> str:
        return f"0000000{clip.number:05d}"

    def respond(self, request: Request) -> Response:
        match request.url.path.strip("/").split("/"):
            case ["library", "759", "videos"]:
                found = [self.video(clip) for clip in self.window(request, "page", "itemsPerPage")]
                return self.page(request, found, self.total)
            case ["library", "759", "collections"]:
                return self.page(request, [{"guid": COLLECTION, "name": "CHEM-101", "videoCount": 3}], 1)
            case ["library", "759", "videos", ref] if clip := self.of_ref(ref):
                return JSONResponse(self.video(clip))
        return self.not_found()

    def page(self, request: Request, items: list[dict[str, Any]], total: int) -> Response:
        size, page = int(request.query_params["itemsPerPage"]), int(request.query_params["page"])
        return JSONResponse({"totalItems": total, "currentPage": page, "itemsPerPage": size, "items": items})

    def video(self, clip: Clip) -> dict[str, Any]:
        return {
            "videoLibraryId": 759,
            "guid": self.ref(clip),
            "title": clip.title,
            "description": f"about {clip.number}",
            "dateUploaded": clip.created.isoformat(),
            "isPublic": not clip.private,
            "length": 60 + clip.number,
            "views": 0,
            "framerate": 25.0,
            "width": 1920,
            "height": 1080,
            "outputCodecs": "x264",
            "thumbnailCount": 5,
            "averageWatchTime": 0,
            "totalWatchTime": 0,
            "status": {"failed": 5, "processing": 3}.get(clip.state, 4),
            "encodeProgress": 42 if clip.state == "processing" else 100,
            "storageSize": 12345678,
            "hasMP4Fallback": True,
            "availableResolutions": "240p,360p,720p,1080p",
            "hasOriginal": True,
            "collectionId": COLLECTION,
            "thumbnailFileName": "thumbnail.jpg",
            "category": "other",
            "captions": [{"srclang": language, "label": label} for language, label, _ in clip.tracks],
            "metaTags": [{"property": "course", "value": "CHEM-101"}],
            "transcodingMessages": [
                {"timeStamp": clip.created.isoformat(), "level": 3, "message": "The file is not a video"}
            ]
            if clip.state == "failed"
            else [],
        }

    def expire(self) -> None:
        """As if all that was signed until now had been signed long ago."""
        self.expired_before = int(time.time()) + 61

    def file(self, request: Request) -> Response:
        query, path = request.query_params, request.url.path
        digest = hashlib.sha256(f"{TOKEN_KEY}{path}{query.get('expires', '')}".encode()).digest()
        good = base64.b64encode(digest).decode().replace("+", "-").replace("/", "_").replace("=", "")
        if query.get("token") != good or int(query["expires"]) < time.time():
            return Response("Forbidden", 403)
        return Response(b"bytes", media_type="video/mp4")
