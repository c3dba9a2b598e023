"""Bunny Stream as it documents itself (https://docs.bunny.net/stream, https://docs.bunny.net/api-reference/stream)."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import re
import time
import uuid
from typing import Any, ClassVar

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from tests.destinations.hosts.base import Video
from tests.destinations.hosts.tus import VERSION, TusUploads, Upload, announced

LIBRARY = 133


class BunnyServer(TusUploads):
    kind = "bunny"
    options: ClassVar = {"library_id": LIBRARY, "pull_zone": "vz-0a1b2c3d-e4f.b-cdn.net"}
    failures: ClassVar = {
        "7": "file-corrupt",
        "5": "too-long",
        "6": "too-long",
        "3": "destination-failed",
        "4": "destination-failed",
        "0": "destination-failed",
        "upload": "fetch-failed",
    }
    list_limit = 100
    chunk_bytes = 1_048_576
    lacks: ClassVar = {
        "retry-after": "a 429 names no wait",
        "privacy": "who may see a video is a setting of the whole library",
        "timestamps": "a signature covers the body alone",
        "deleted-event": "an event comes for a step of its making",
    }

    def __init__(self) -> None:
        super().__init__()
        self.fetch_tells_id = True
        """Whether a fetch is answered with the video's id: the specification's answer has none."""

    def routes(self) -> list[Route]:
        root = f"/library/{LIBRARY}/videos"
        return [
            Route(root, self.list, methods=["GET"]),
            Route(root, self.create, methods=["POST"]),
            Route(f"{root}/fetch", self.fetch, methods=["POST"]),
            Route(f"{root}/{{id}}", self.get, methods=["GET"]),
            Route(f"{root}/{{id}}", self.delete, methods=["DELETE"]),
            Route(f"{root}/{{id}}/captions/{{language}}", self.add_caption, methods=["POST"]),
            Route(f"{root}/{{id}}/thumbnail", self.thumbnail, methods=["POST"]),
            Route("/tusupload", self.announce, methods=["POST"]),
            Route("/tusupload/{id}", self.tus, methods=["HEAD", "PATCH"]),
        ]

    def authorized(self, request: Request) -> bool:
        if not request.url.path.startswith("/tusupload"):
            return request.headers.get("accesskey") == self.token
        library, until, video_id = (
            request.headers.get(name, "") for name in ("libraryid", "authorizationexpire", "videoid")
        )
        signed = hashlib.sha256(f"{library}{self.token}{until}{video_id}".encode()).hexdigest()
        self.signatures.append(signed)
        good = hmac.compare_digest(request.headers.get("authorizationsignature", ""), signed)
        return good and library == str(LIBRARY) and until.isdigit() and int(until) > time.time()

    def new_id(self) -> str:
        return str(uuid.uuid5(uuid.NAMESPACE_URL, f"bunny-{next(self.numbers)}"))

    def error(self, status: int, message: str = "no", code: str | None = None) -> Response:
        return JSONResponse({"success": False, "message": message, "statusCode": status}, status)

    def too_many(self, wait_s: int | None) -> Response:
        return self.error(429, "the fetch queue is full")

    def failure_inside(self, message: str) -> Response:
        return JSONResponse({"success": False, "message": message, "statusCode": 500})

    def good(self, **more: Any) -> Response:
        return JSONResponse({"success": True, "message": "OK", "statusCode": 200, **more})

    # -- videos

    def body(self, video: Video) -> dict[str, Any]:
        ready = video.state == "ready"
        status = {"waiting": 0, "processing": 3, "ready": 4, "errored": 6 if video.code == "upload" else 5}[video.state]
        messages = []
        if video.code is not None and video.code != "upload":
            moment = "2026-01-01T00:00:00Z"
            messages = [
                {"timeStamp": moment, "level": 2, "issueCode": 1, "message": "lengths differ", "value": "0.1"},
                {"timeStamp": moment, "level": 3, "issueCode": int(video.code), "message": "no", "value": None},
            ]
        return {
            "videoLibraryId": LIBRARY,
            "guid": video.id,
            "title": video.asked.get("title") or (f"{video.title} [{video.ref}]" if video.ref else video.title),
            "dateUploaded": "2026-01-01T00:00:00Z",
            "views": 0,
            "isPublic": False,
            "length": int(video.duration_s or 0) if ready else 0,
            "status": status,
            "framerate": 25.0 if ready else 0,
            "rotation": 0 if ready else None,
            "width": 320 if ready else 0,
            "height": 240 if ready else 0,
            "availableResolutions": "240p" if ready else None,
            "outputCodecs": "x264",
            "thumbnailCount": 1 if ready else 0,
            "encodeProgress": 100 if ready else 0,
            "storageSize": 123456 if ready else 0,
            "captions": [{"srclang": language, "label": language} for language, _ in video.captions],
            "hasMP4Fallback": False,
            "collectionId": "",
            "thumbnailFileName": "thumbnail.jpg",
            "averageWatchTime": 0,
            "totalWatchTime": 0,
            "category": "unknown",
            "chapters": [],
            "moments": [],
            "metaTags": [],
            "transcodingMessages": messages,
        }

    def made(self, asked: dict[str, Any], **given: Any) -> Video:
        title = asked.get("title") or "untitled"
        named = re.fullmatch(r"(?s)(.*) \[(\S+?)(?: sent)?\]", title)
        return self.add(named[2] if named else None, named[1] if named else title, asked=asked, **given)

    async def fetch(self, request: Request) -> Response:
        asked = await request.json()
        if not str(asked.get("url", "")).startswith(("http://", "https://")):
            return self.error(400, "the url is none")
        video = self.made(asked)
        return self.good(**({"id": video.id} if self.fetch_tells_id else {}))

    async def create(self, request: Request) -> Response:
        asked = await request.json()
        if not asked.get("title"):
            return self.error(400, "the title is missing")
        return JSONResponse(self.body(self.made(asked, state="waiting")))

    async def list(self, request: Request) -> Response:
        query = request.query_params
        page, size = int(query.get("page", "1")), min(int(query.get("itemsPerPage", "100")), self.list_limit)
        size = min(size, self.page_max or size)
        bodies = [self.body(video) for video in reversed(self.listed())]
        if search := query.get("search"):
            bodies = [body for body in bodies if search.lower() in body["title"].lower()]
        shown = 1 if self.repeats else page
        answer: dict[str, Any] = {"items": bodies[(shown - 1) * size : shown * size]}
        if not self.without_paging:
            answer |= {"totalItems": len(bodies), "currentPage": page, "itemsPerPage": size}
        return JSONResponse(answer)

    def found(self, request: Request) -> Video | Response:
        video = self.videos.get(request.path_params["id"])
        return self.error(404, "Video not found") if video is None else video

    async def get(self, request: Request) -> Response:
        video = self.found(request)
        return video if isinstance(video, Response) else JSONResponse(self.body(video))

    async def delete(self, request: Request) -> Response:
        video = self.found(request)
        if isinstance(video, Response):
            return video
        del self.videos[video.id]
        return self.good()

    # -- captions and thumbnail

    async def add_caption(self, request: Request) -> Response:
        video, asked = self.found(request), await request.json()
        if isinstance(video, Response):
            return video
        if asked["srclang"] != request.path_params["language"]:
            return self.error(400, "two languages")
        content = base64.b64decode(asked["captionsFile"], validate=True).decode()
        video.captions = [known for known in video.captions if known[0] != asked["srclang"]]
        video.captions.append((asked["srclang"], content))
        return self.good()

    async def thumbnail(self, request: Request) -> Response:
        video = self.found(request)
        if isinstance(video, Response):
            return video
        video.posters.append(request.query_params["thumbnailUrl"])
        return self.good()

    # -- uploads

    async def announce(self, request: Request) -> Response:
        found = announced(request)
        if isinstance(found, Response):
            return found
        length, about = found
        video = self.videos.get(request.headers["videoid"])
        if video is None or video.state != "waiting":
            return Response(status_code=404, headers=VERSION)
        if "filetype" not in about or "title" not in about:
            return Response("filetype and title are required", 400, headers=VERSION)
        video.asked["title"] = about["title"]
        upload_id = f"upload{next(self.numbers)}"
        self.uploads[upload_id] = Upload(upload_id, length, video.id, about)
        return Response(status_code=201, headers={**VERSION, "location": f"/tusupload/{upload_id}"})

    def whole(self, upload: Upload) -> None:
        video = self.videos[upload.video_id]
        video.content, video.state = bytes(upload.content), "processing"

    # -- webhooks

    def event(self, video: Video, what: str, *, number: int | None = None) -> bytes | None:
        numbers = {"created": 0, "ready": 3, "errored": 5}
        if number is None and what not in numbers:
            return None
        status = numbers[what] if number is None else number
        return json.dumps({"VideoLibraryId": LIBRARY, "VideoGuid": video.id, "Status": status}).encode()

    def sign(self, body: bytes, secret: str, now: float) -> dict[str, str]:
        return {
            "x-bunnystream-signature": hmac.new(secret.encode(), body, hashlib.sha256).hexdigest(),
            "x-bunnystream-signature-version": "v1",
            "x-bunnystream-signature-algorithm": "hmac-sha256",
        }
