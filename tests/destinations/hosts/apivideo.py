"""api.video as it documents itself (https://docs.api.video/reference)."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import re
from datetime import UTC, datetime
from typing import Any, ClassVar

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from tests.destinations.hosts.base import HostServer, Video
from tests.destinations.hosts.forms import file_in

SHOWN = "https://cdn.api.video/vod"
SMALLEST = 5_242_880
DOCS = "https://docs.api.video/reference/"


class ApiVideoServer(HostServer):
    kind = "apivideo"
    failures: ClassVar = {"every quality failed": "destination-failed"}
    list_limit = 100
    chunk_bytes = SMALLEST
    lacks: ClassVar = {
        "whole-get": "the status of a video tells neither its reference nor where it plays",
        "failure-inside": "a refusal always has a status of its own",
        "timestamps": "a signature covers the body alone",
        "created-event": "an event comes for each quality that is made",
        "errored-event": "an event comes for each quality that is made",
        "deleted-event": "an event comes for each quality that is made",
    }

    def __init__(self) -> None:
        super().__init__()
        self.hooks: list[dict[str, Any]] = [
            {
                "webhookId": "webhook_XXXXXXXXXXXXXXX",
                "createdAt": "2026-01-08T14:12:18+00:00",
                "events": ["video.encoding.quality.completed"],
                "url": "https://longhaul.example/hooks/apivideo",
                "signatureSecret": self.secret,
            }
        ]

    def routes(self) -> list[Route]:
        one = "/videos/{id}"
        return [
            Route("/auth/api-key", self.authenticate, methods=["POST"]),
            Route("/videos", self.create, methods=["POST"]),
            Route("/videos", self.list, methods=["GET"]),
            Route(one, self.get, methods=["GET"]),
            Route(one, self.patch, methods=["PATCH"]),
            Route(one, self.delete, methods=["DELETE"]),
            Route(f"{one}/status", self.status, methods=["GET"]),
            Route(f"{one}/source", self.source, methods=["POST"]),
            Route(f"{one}/thumbnail", self.thumbnail, methods=["POST"]),
            Route(f"{one}/captions", self.list_captions, methods=["GET"]),
            Route(f"{one}/captions/{{language}}", self.get_caption, methods=["GET"]),
            Route(f"{one}/captions/{{language}}", self.add_caption, methods=["POST"]),
            Route("/webhooks", self.list_webhooks, methods=["GET"]),
        ]

    def authorized(self, request: Request) -> bool:
        if request.url.path == "/auth/api-key":
            return True
        basic = "Basic " + base64.b64encode(f"{self.token}:".encode()).decode()
        return request.headers.get("authorization") in (basic, f"Bearer access-{self.token}")

    async def authenticate(self, request: Request) -> Response:
        if (await request.json()).get("apiKey") != self.token:
            return self.error(401, "The API key is wrong")
        token = {"token_type": "Bearer", "expires_in": 3600, "access_token": f"access-{self.token}"}
        return JSONResponse({**token, "refresh_token": "refresh"})

    def error(self, status: int, message: str = "no", code: str | None = None) -> Response:
        known = {400: "invalid-attribute", 401: "unauthorized", 403: "forbidden", 404: "resource-not-found"}
        kind = code or known.get(status, "error")
        return JSONResponse({"type": f"{DOCS}{kind}", "title": message, "name": "videoId", "status": status}, status)

    def too_many(self, wait_s: int | None) -> Response:
        body = {"type": f"{DOCS}too-many-requests", "title": "Too many requests.", "status": 429}
        wait = {} if wait_s is None else {"x-ratelimit-retry-after": str(wait_s)}
        return JSONResponse(body, 429, headers={"x-ratelimit-limit": "100", "x-ratelimit-remaining": "0", **wait})

    # -- videos

    def body(self, video: Video) -> dict[str, Any]:
        asked = video.asked
        moment = datetime.fromtimestamp(int(video.created_s), UTC).isoformat()
        return {
            "videoId": video.id,
            "playerId": "pl45KFKdlddgk654dspkze",
            "title": asked.get("title", video.title),
            "description": asked.get("description", ""),
            "public": not video.private,
            "panoramic": asked.get("panoramic", False),
            "mp4Support": asked.get("mp4Support", True),
            "tags": asked.get("tags", []),
            "metadata": asked.get("metadata", [{"key": "longhaul-ref", "value": video.ref}] if video.ref else []),
            "createdAt": moment,
            "publishedAt": moment,
            "updatedAt": moment,
            "discarded": False,
            "discardedAt": None,
            "deletesAt": None,
            "source": {"uri": f"/videos/{video.id}/source"},
            "assets": {
                "iframe": f'<iframe src="https://embed.api.video/vod/{video.id}"></iframe>',
                "player": f"https://embed.api.video/vod/{video.id}",
                "hls": f"{SHOWN}/{video.id}/hls/manifest.m3u8",
                "thumbnail": f"{SHOWN}/{video.id}/thumbnail.jpg",
                "mp4": f"{SHOWN}/{video.id}/mp4/source.mp4",
            },
        }

    async def create(self, request: Request) -> Response:
        asked = await request.json()
        if not asked.get("title"):
            return self.error(400, "This attribute is required.", "attribute-required")
        source = asked.get("source")
        if source is not None and not source.startswith(("http://", "https://", "vi")):
            return self.error(400, "This attribute must be an address or a videoId.")
        metadata = {pair["key"]: pair["value"] for pair in asked.get("metadata", [])}
        video = self.add(
            metadata.get("longhaul-ref"),
            asked["title"],
            asked=asked,
            private=not asked.get("public", True),
            state="processing" if source else "waiting",
        )
        return JSONResponse(self.body(video), 201)

    def wanted(self, request: Request) -> list[Video]:
        query = request.query_params
        filters = {m[1]: value for name, value in query.items() if (m := re.fullmatch(r"metadata\[(.+)\]", name))}
        videos = [
            video
            for video in self.listed()
            if filters.items() <= {pair["key"]: pair["value"] for pair in self.body(video)["metadata"]}.items()
        ]
        if query.get("sortBy") != "createdAt" or query.get("sortOrder", "asc") != "asc":
            videos.reverse()
        return videos

    def paged(self, request: Request, entries: list[Any]) -> Response:
        page = int(request.query_params.get("currentPage", "1"))
        size = int(request.query_params.get("pageSize", "25"))
        if page < 1 or not 10 <= size <= 100:
            return self.error(400, "This parameter is out of the allowed range of values.")
        size = min(size, self.page_max or size)
        pages = max(1, -(-len(entries) // size))
        shown = 1 if self.repeats else page
        here = entries[(shown - 1) * size : shown * size]
        address = f"{request.url.path}?currentPage="
        pagination = {
            "currentPage": page,
            "currentPageItems": len(here),
            "pageSize": size,
            "pagesTotal": pages,
            "itemsTotal": len(entries),
            "links": [{"rel": "first", "uri": f"{address}1"}, {"rel": "last", "uri": f"{address}{pages}"}],
        }
        return JSONResponse({"data": here, **({} if self.without_paging else {"pagination": pagination})})

    async def list(self, request: Request) -> Response:
        return self.paged(request, [self.body(video) for video in self.wanted(request)])

    def found(self, request: Request) -> Video | Response:
        video = self.videos.get(request.path_params["id"])
        return self.error(404, "The requested resource was not found.") if video is None else video

    async def get(self, request: Request) -> Response:
        video = self.found(request)
        return video if isinstance(video, Response) else JSONResponse(self.body(video))

    async def patch(self, request: Request) -> Response:
        video = self.found(request)
        if isinstance(video, Response):
            return video
        video.asked |= await request.json()
        return JSONResponse(self.body(video))

    async def delete(self, request: Request) -> Response:
        video = self.found(request)
        if isinstance(video, Response):
            return video
        del self.videos[video.id]
        return Response(status_code=204)

    async def status(self, request: Request) -> Response:
        video = self.found(request)
        if isinstance(video, Response):
            return video
        total = video.extra.get("total")
        if video.state == "waiting":
            ranges = sorted(video.extra.get("parts", {}).items())
            parts = [{"from": begin, "to": begin + len(part) - 1, "total": total} for begin, part in ranges]
            ingest = {"status": "uploading", "filesize": None, "receivedBytes": parts}
        else:
            uploaded = "uploaded" if video.content else "ingested"
            ingest = {"status": uploaded, "filesize": len(video.content) or 273579401, "receivedBytes": []}
        words = {"ready": ["encoded", "encoded", "encoding"], "errored": ["failed"] * 3, "processing": ["waiting"]}
        qualities = [
            {"type": "hls", "quality": quality, "status": word}
            for quality, word in zip(("240p", "360p", "720p"), words.get(video.state, []), strict=False)
        ]
        known = None if video.state != "ready" or video.duration_s is None else int(video.duration_s)
        encoding = {
            "playable": video.state == "ready",
            "qualities": qualities,
            # As documented: the width and height of the smallest rendition.
            "metadata": {"width": 424 if known else None, "height": 240 if known else None, "duration": known},
        }
        return JSONResponse({"ingest": ingest, "encoding": encoding})

    # -- uploads

    async def source(self, request: Request) -> Response:
        video = self.found(request)
        if isinstance(video, Response):
            return video
        if video.state != "waiting":
            return self.error(400, "The source of the video is already uploaded.", "video-source-already-uploaded")
        body, came = await self.received(request)
        if not came:
            return Response(status_code=400)
        content = file_in(request.headers["content-type"], body).content
        asked = request.headers.get("content-range")
        parts = video.extra.setdefault("parts", {})
        if asked is None:
            total, parts[0] = len(content), content
        else:
            given = re.fullmatch(r"bytes (\d+)-(\d+)/(\d+)", asked)
            numbered = re.fullmatch(r"part (\d+)/(\d+)", asked)
            assert given or numbered, asked
            if numbered:  # parts by number come in their order here
                begin = sum(map(len, parts.values()))
                total = begin + len(content) + (numbered[1] != numbered[2])
            elif given:
                begin, end, total = (int(number) for number in given.groups())
                assert len(content) == end - begin + 1, "the range is not the part's"
            if begin + len(content) < total and len(content) < SMALLEST:
                return self.error(400, "The chunk is too small.")
            parts[begin] = content
        video.extra["total"] = total
        whole = b"".join(part for _, part in sorted(parts.items()))
        if len(whole) >= total:
            video.content, video.state = whole, "processing"
        return JSONResponse(self.body(video), 201)

    # -- captions and thumbnail

    def caption(self, video: Video, language: str) -> dict[str, Any]:
        uri = f"/videos/{video.id}/captions/{language}"
        src = f"{SHOWN}/{video.id}/captions/{language}.vtt"
        return {"uri": uri, "src": src, "srclang": language, "languageName": language, "default": False}

    async def list_captions(self, request: Request) -> Response:
        video = self.videos[request.path_params["id"]]
        return self.paged(request, [self.caption(video, language) for language, _ in video.captions])

    async def get_caption(self, request: Request) -> Response:
        video, language = self.found(request), request.path_params["language"]
        if isinstance(video, Response):
            return video
        if language not in {known for known, _ in video.captions}:
            return self.error(404, "The requested resource was not found.")
        return JSONResponse(self.caption(video, language))

    async def add_caption(self, request: Request) -> Response:
        video, language = self.found(request), request.path_params["language"]
        if isinstance(video, Response):
            return video
        part = file_in(request.headers["content-type"], await request.body())
        if not part.content.startswith(b"WEBVTT"):
            return self.error(400, "Only WebVTT is taken.")
        video.captions.append((language, part.content.decode()))
        return JSONResponse(self.caption(video, language))

    async def thumbnail(self, request: Request) -> Response:
        video = self.found(request)
        if isinstance(video, Response):
            return video
        part = file_in(request.headers["content-type"], await request.body())
        if part.media_type not in ("image/jpeg", "image/png", "image/webp") or len(part.content) > 8_388_608:
            return self.error(400, "Only JPEG, PNG and WebP of 8 MiB at most are taken.")
        video.posters = [hashlib.sha256(part.content).hexdigest()]
        return JSONResponse(self.body(video))

    # -- webhooks

    async def list_webhooks(self, request: Request) -> Response:
        return self.paged(request, self.hooks)

    def event(self, video: Video, what: str, *, quality: str = "240p", encoding: str = "hls") -> bytes | None:
        if what != "ready":
            return None
        emitted = {"type": "video.encoding.quality.completed", "emittedAt": "2026-01-29T16:46:25.217+01:00"}
        return json.dumps({**emitted, "videoId": video.id, "encoding": encoding, "quality": quality}).encode()

    def sign(self, body: bytes, secret: str, now: float) -> dict[str, str]:
        return {"x-api-video-signature": hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()}
