"""FastPix on-demand video as it documents itself (https://fastpix.com/docs), with uploads as Google Cloud Storage takes
them."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import math
import secrets
import uuid
from typing import Any, ClassVar, Literal

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from destinations.fastpix import REFERENCE
from tests.destinations.hosts.base import HostServer, Video
from tests.destinations.hosts.storing import store

MOMENT = "2026-01-01T00:00:00.000000Z"


class FastPixServer(HostServer):
    kind = "fastpix"
    prefix = "/v1"
    token = "d1f0c2a4-0000-4000-8000-00000000abcd:s3cret-key-of-the-token"
    secret = base64.b64encode(b"s3cret of webhooks a").decode()
    old_secret = base64.b64encode(b"s3cret of webhooks b").decode()
    failures: ClassVar = {"the file is no video": "destination-failed"}
    list_limit = 50
    chunk_bytes = 524_288
    lacks: ClassVar = {
        "posters": "a thumbnail is a frame of the video itself",
        "retry-after": "a 429 names no wait",
        "timestamps": "the signature covers the body alone",
    }

    def __init__(self) -> None:
        super().__init__()
        self.uploads: dict[str, dict[str, Any]] = {}
        self.gone: set[str] = set()
        """Uploads whose sessions have been forgotten, with all that was sent."""
        self.upload_style: Literal["session", "start", "plain"] = "session"
        """Whether an upload's address is a session already, begins one, or takes the whole file."""
        self.durations: Literal["clock", "seconds"] = "clock"
        """"00:00:10", as the description has it, or 10.0, as the vendor's client demands it."""

    def routes(self) -> list[Route]:
        return [
            Route("/v1/on-demand", self.create, methods=["POST"]),
            Route("/v1/on-demand", self.list, methods=["GET"]),
            Route("/v1/on-demand/upload", self.announce, methods=["POST"]),
            Route("/v1/on-demand/uploads", self.list_uploads, methods=["GET"]),
            Route("/v1/on-demand/upload/{id}/cancel", self.cancel_upload, methods=["PUT"]),
            Route("/v1/on-demand/{id}", self.get, methods=["GET"]),
            Route("/v1/on-demand/{id}", self.delete, methods=["DELETE"]),
            Route("/v1/on-demand/{id}/tracks", self.add_track, methods=["POST"]),
            Route("/storage/{id}", self.put, methods=["PUT", "POST"]),
        ]

    def authorized(self, request: Request) -> bool:
        if request.url.path.startswith("/storage/"):
            assert "authorization" not in request.headers, "our credentials are nobody else's business"
            upload = self.uploads.get(request.url.path.rpartition("/")[2], {})
            return request.query_params.get("X-Goog-Signature") == upload.get("signature")
        expected = "Basic " + base64.b64encode(self.token.encode()).decode()
        return request.headers.get("authorization") == expected

    def new_id(self) -> str:
        return str(uuid.uuid4())

    def error(self, status: int, message: str = "no", code: str | None = None) -> Response:
        body = {"success": False, "error": {"code": status, "message": "refused", "description": message}}
        return JSONResponse(body, status)

    def too_many(self, wait_s: int | None) -> Response:
        return self.error(429, "too many requests")

    def failure_inside(self, message: str) -> Response:
        body = {"success": False, "error": {"code": 500, "message": "Internal", "description": message}}
        return JSONResponse(body, 200)

    # -- media

    def playback(self, video: Video) -> list[dict[str, Any]]:
        rules = {"defaultPolicy": "allow", "allow": [], "deny": []}
        return [
            {
                "id": str(uuid.uuid5(uuid.NAMESPACE_URL, video.id)),
                "accessPolicy": "private" if video.private else "public",
                "accessRestrictions": {"domains": rules, "userAgents": rules},
            }
        ]

    def body(self, video: Video) -> dict[str, Any]:
        words = {"waiting": "waiting", "processing": "Processing", "ready": "Ready", "errored": "Failed"}
        body: dict[str, Any] = {
            "id": video.id,
            "workspaceId": "6dc2b4e0-0615-42fd-a580-1f4aad932dfe",
            "metadata": video.asked.get("metadata") or {REFERENCE: video.ref},
            "title": video.title,
            "status": words[video.state],
            "mediaQuality": video.asked.get("mediaQuality", "standard"),
            "maxResolution": video.asked.get("maxResolution", "1080p"),
            "sourceAccess": False,
            "playbackIds": self.playback(video),
            "createdAt": MOMENT,
            "updatedAt": MOMENT,
        }
        subtitles = video.extra.get("tracks", [])
        if video.state == "ready":
            exact = video.duration_s or 0
            seconds = round(exact)
            clock = f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"
            picture = {"id": self.new_id(), "type": "video", "width": 320, "height": 240, "status": "available"}
            body |= {
                "duration": clock if self.durations == "clock" else exact,
                "aspectRatio": "4:3",
                "isAudioOnly": False,
                "tracks": [picture, *subtitles],
            }
        elif subtitles:
            body["tracks"] = subtitles
        if video.state == "errored":
            body["error"] = {"message": video.code}
        return body

    def found(self, request: Request) -> Video | None:
        """By its own id, or by that of the upload it came of."""
        wanted = request.path_params["id"]
        of_upload = (v for v in self.videos.values() if v.extra.get("upload") == wanted)
        return self.videos.get(wanted) or next(of_upload, None)

    def wrong(self, asked: dict[str, Any]) -> Response | None:
        metadata = asked.get("metadata", {})
        if len(metadata) > 10 or any(len(value) > 255 for value in [*metadata.values(), asked.get("title") or ""]):
            return self.error(422, "metadata or title too long")
        return None if asked.get("accessPolicy") in ("public", "private", "drm") else self.error(422, "accessPolicy")

    def made(self, asked: dict[str, Any]) -> Video:
        ref, private = asked.get("metadata", {}).get(REFERENCE), asked["accessPolicy"] != "public"
        return self.add(ref, asked.get("title"), asked=asked, private=private)

    async def create(self, request: Request) -> Response:
        asked = await request.json()
        if not str(asked["inputs"][0].get("url", "")).startswith(("http://", "https://")):
            return self.error(422, "inputs need a url")
        if refusal := self.wrong(asked):
            return refusal
        video = self.made(asked)
        body = self.body(video)
        for name in ("workspaceId", "title"):
            del body[name]
        return JSONResponse({"success": True, "data": {**body, "status": "Created", "inputs": asked["inputs"]}}, 201)

    def page(self, request: Request, items: list[dict[str, Any]]) -> Response:
        limit = min(int(request.query_params.get("limit", "10")), self.list_limit, self.page_max or 50)
        page = 1 if self.repeats else int(request.query_params.get("offset", "1"))
        body: dict[str, Any] = {"success": True, "data": items[(page - 1) * limit : page * limit]}
        if not self.without_paging:
            pages = math.ceil(len(items) / limit)
            body["pagination"] = {"totalRecords": len(items), "currentOffset": page, "offsetCount": pages}
        return JSONResponse(body)

    async def list(self, request: Request) -> Response:
        assert request.query_params.get("orderBy") == "desc"
        return self.page(request, [self.body(video) for video in self.listed()[::-1]])

    async def get(self, request: Request) -> Response:
        video = self.found(request)
        return self.error(404) if video is None else JSONResponse({"success": True, "data": self.body(video)})

    async def delete(self, request: Request) -> Response:
        video = self.found(request)
        if video is None:
            return self.error(404)
        del self.videos[video.id]
        return JSONResponse({"success": True})

    async def add_track(self, request: Request) -> Response:
        video, asked = self.found(request), (await request.json())["tracks"]
        if video is None:
            return self.error(404)
        track = {"id": self.new_id(), **{name: asked[name] for name in ("type", "languageCode", "languageName")}}
        video.extra.setdefault("tracks", []).append({**track, "status": "available"})
        video.captions.append((asked["languageCode"], asked["url"]))
        return JSONResponse({"success": True, "data": {**track, "url": asked["url"]}}, 201)

    # -- uploads

    async def announce(self, request: Request) -> Response:
        asked = await request.json()
        if refusal := self.wrong(asked["pushMediaSettings"]):
            return refusal
        upload_id, signature = self.new_id(), secrets.token_hex(16)
        # Another host than the API's, as in life.
        address = self.url.replace("127.0.0.1", "localhost") + f"/storage/{upload_id}?X-Goog-Signature={signature}"
        if self.upload_style != "plain":
            address += "&X-Goog-SignedHeaders=host%3Bx-goog-resumable"
        session = secrets.token_hex(16)
        if self.upload_style == "session":
            address += f"&upload_id={session}"
        self.signatures += [signature, session]
        self.uploads[upload_id] = {
            "uploadId": upload_id,
            "status": "waiting",
            "url": address,
            "timeout": 14400,
            "asked": asked,
            "signature": signature,
            "session": session if self.upload_style == "session" else None,
            "content": b"",
        }
        return JSONResponse({"success": True, "data": self.upload_body(upload_id)}, 201)

    def upload_body(self, upload_id: str) -> dict[str, Any]:
        upload = self.uploads[upload_id]
        shown = {name: upload[name] for name in ("uploadId", "status", "url", "timeout")}
        settings = {name: value for name, value in upload["asked"]["pushMediaSettings"].items() if name == "metadata"}
        return {**shown, "trial": False, "corsOrigin": upload["asked"]["corsOrigin"], "pushMediaSettings": settings}

    async def list_uploads(self, request: Request) -> Response:
        unused = [self.upload_body(id_) for id_, upload in self.uploads.items() if upload["status"] != "created"]
        return self.page(request, unused[::-1])

    async def cancel_upload(self, request: Request) -> Response:
        if request.path_params["id"] not in self.uploads:
            return self.error(404)
        self.uploads[request.path_params["id"]]["status"] = "cancelled"
        return JSONResponse({"success": True, "data": self.upload_body(request.path_params["id"])})

    async def put(self, request: Request) -> Response:
        upload = self.uploads[request.path_params["id"]]
        if request.method == "POST":
            assert self.upload_style == "start"
            assert request.headers["x-goog-resumable"] == "start"
            upload["session"], upload["content"] = secrets.token_hex(16), b""
            self.signatures.append(upload["session"])
            return Response(status_code=201, headers={"location": f"{upload['url']}&upload_id={upload['session']}"})
        if request.path_params["id"] in self.gone:
            return Response(status_code=410)
        if self.upload_style == "plain":
            block, came = await self.received(request)
            if came:
                upload["content"] = block
                self.finish(upload)
            return Response(status_code=200)
        assert request.query_params["upload_id"] == upload["session"]
        answer, whole = await store(self, request, upload)
        if whole:
            self.finish(upload)
        return answer

    def finish(self, upload: dict[str, Any]) -> None:
        if upload["status"] == "waiting":
            video = self.made(upload["asked"]["pushMediaSettings"])
            video.content, video.extra["upload"] = upload["content"], upload["uploadId"]
            upload["status"] = "created"

    # -- webhooks

    def event(self, video: Video, what: str) -> bytes | None:
        word = {"errored": "failed"}.get(what, what)
        return json.dumps(
            {
                "type": f"video.media.{word}",
                "object": {"type": "media", "id": video.id},
                "id": str(uuid.uuid5(uuid.NAMESPACE_URL, f"{video.id} {what}")),
                "workspace": {"name": "Development", "id": "6dc2b4e0-0615-42fd-a580-1f4aad932dfe"},
                "status": word,
                "data": self.body(video),
                "createdAt": MOMENT,
                "attempts": [],
            }
        ).encode()

    def sign(self, body: bytes, secret: str, now: float) -> dict[str, str]:
        digest = hmac.new(base64.b64decode(secret), body, hashlib.sha256).digest()
        return {"fastpix-signature": base64.b64encode(digest).decode()}
