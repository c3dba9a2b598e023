"""Reelhouse, the host of the worked example in docs/destinations/README.md. It doesn't exist."""

from __future__ import annotations

import hashlib
import hmac
import json
from typing import Any, ClassVar

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from tests.destinations.hosts.base import HostServer, Video


class ReelhouseServer(HostServer):
    kind = "reelhouse"
    failures: ClassVar = {"no_video": "not-a-video", "unreachable": "fetch-failed", "odd": "destination-failed"}
    list_limit = 100
    lacks: ClassVar = {
        "failure-inside": "a refusal always has a status of its own",
        "posters": "there are none",
        "uploads": "it fetches addresses only",
    }

    def routes(self) -> list[Route]:
        return [
            Route("/videos", self.create, methods=["POST"]),
            Route("/videos", self.list, methods=["GET"]),
            Route("/videos/{id}", self.get, methods=["GET"]),
            Route("/videos/{id}", self.delete, methods=["DELETE"]),
            Route("/videos/{id}/captions/{language}", self.caption, methods=["PUT"]),
            Route("/webhook", self.webhook, methods=["GET"]),
        ]

    def authorized(self, request: Request) -> bool:
        return request.headers.get("authorization") == f"Bearer {self.token}"

    def error(self, status: int, message: str = "no", code: str | None = None) -> Response:
        return JSONResponse({"code": code or f"e{status}", "message": message}, status)

    def too_many(self, wait_s: int | None) -> Response:
        refusal = self.error(429)
        if wait_s is not None:
            refusal.headers["retry-after"] = str(wait_s)
        return refusal

    def body(self, video: Video) -> dict[str, Any]:
        phase = {"ready": "playable", "errored": "broken"}.get(video.state, "working")
        return {
            "id": video.id,
            "label": video.ref,
            "title": video.title,
            "phase": phase,
            "fault": video.code,
            "seconds": video.duration_s if video.state == "ready" else -1,
            "hls": f"https://play.reelhouse.example/{video.id}.m3u8",
        }

    async def create(self, request: Request) -> Response:
        asked = await request.json()
        if len(asked["label"]) > 100:
            return self.error(422, code="label_too_long")
        video = self.add(asked["label"], asked["title"], asked=asked, private=asked["visibility"] != "public")
        return JSONResponse({"video": self.body(video)}, 201)

    async def list(self, request: Request) -> Response:
        asked = request.query_params
        limit = min(int(asked["limit"]), self.page_max or self.list_limit)
        start = 0 if self.repeats else int(asked.get("page_token", "0"))
        # The filter finds labels that begin so.
        videos = [v for v in self.listed() if (v.ref or "").startswith(asked.get("label", ""))]
        body: dict[str, Any] = {"videos": [self.body(video) for video in videos[start : start + limit]]}
        if not self.without_paging:
            body["page_token"] = str(start + limit) if start + limit < len(videos) else None
        return JSONResponse(body)

    async def get(self, request: Request) -> Response:
        video = self.videos.get(request.path_params["id"])
        return self.error(404) if video is None else JSONResponse({"video": self.body(video)})

    async def delete(self, request: Request) -> Response:
        found = self.videos.pop(request.path_params["id"], None)
        return self.error(404) if found is None else Response(status_code=204)

    async def caption(self, request: Request) -> Response:
        video, language = self.videos[request.path_params["id"]], request.path_params["language"]
        kept = [caption for caption in video.captions if caption[0] != language]
        video.captions = [*kept, (language, (await request.json())["url"])]
        return JSONResponse({"language": language}, 201)

    async def webhook(self, request: Request) -> Response:
        return JSONResponse({"url": "https://longhaul.example/webhooks/main"})

    def event(self, video: Video, what: str) -> bytes | None:
        event = {"event_id": f"{video.id}-{what}", "event": f"video.{what}", "video": self.body(video)}
        return json.dumps(event).encode()

    def sign(self, body: bytes, secret: str, now: float) -> dict[str, str]:
        signed = f"{int(now)}.".encode() + body
        return {
            "reelhouse-signature": f"t={int(now)},v1={hmac.new(secret.encode(), signed, hashlib.sha256).hexdigest()}"
        }
