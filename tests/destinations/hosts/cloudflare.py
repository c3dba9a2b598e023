"""Cloudflare Stream as it documents itself (https://developers.cloudflare.com/stream,
https://developers.cloudflare.com/api/resources/stream)."""

from __future__ import annotations

import hashlib
import hmac
import json
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from tests.destinations.hosts.base import Video
from tests.destinations.hosts.forms import file_in
from tests.destinations.hosts.tus import VERSION, TusUploads, Upload, announced

ACCOUNT = "023e105f4ecef8ad9ca31a8372d0c353"
BEGAN = datetime(2026, 1, 1, 2, 20, tzinfo=UTC)
SHOWN = "https://customer-f33zs165nr7gyfy4.cloudflarestream.com"


def comparable(moment: str) -> str:
    seconds, _, fraction = moment.removesuffix("Z").partition(".")
    return f"{seconds}.{fraction.ljust(9, '0')}"


class CloudflareServer(TusUploads):
    kind = "cloudflare"
    options: ClassVar = {"account_id": ACCOUNT}
    failures: ClassVar = {
        "ERR_NON_VIDEO": "not-a-video",
        "ERR_MALFORMED_VIDEO": "file-corrupt",
        "ERR_DURATION_TOO_SHORT": "too-short",
        "ERR_DURATION_EXCEED_CONSTRAINT": "too-long",
        "ERR_FETCH_ORIGIN_ERROR": "fetch-failed",
        "ERR_UNKNOWN": "destination-error",
        "ERR_UNHEARD_OF": "destination-error",
    }
    list_limit = 1000
    chunk_bytes = 5_242_880
    smallest, step, keeps_parts = 5_242_880, 262_144, False
    lacks: ClassVar = {
        "posters": "a poster is a frame of the video itself",
        "paging-block": "a list says only how many videos there are, where it is asked to",
        "created-event": "an event comes when processing ends",
        "deleted-event": "an event comes when processing ends",
    }

    def __init__(self) -> None:
        super().__init__()
        self.inclusive = True
        """Whether `start` and `end` take in the moment that they name: not documented."""
        self.whole_total = False
        """Whether `total` counts what is before `start` too: documented in both ways."""
        self.old_spelling = False
        """Whether a failure is spelled errReasonCode."""
        self.together = 2
        """Videos that have the same moment of creation."""
        self.apart_s = 3.0
        """Seconds between one such moment and the next."""
        self.foreign_uploads = False
        """Whether files go to another server, at addresses that are good for whoever has them."""
        self.hook: dict[str, Any] | None = {
            "notificationUrl": "https://longhaul.example/hooks/cloudflare",
            "modified": "2026-01-01T01:02:21.076571Z",
            "secret": self.secret,
        }
        self.user_token = True
        """Whether the token is a user's, rather than the account's own."""

    def routes(self) -> list[Route]:
        root = f"/accounts/{ACCOUNT}/stream"
        return [
            Route("/user/tokens/verify", self.verify_user_token, methods=["GET"]),
            Route(f"/accounts/{ACCOUNT}/tokens/verify", self.verify_token, methods=["GET"]),
            Route(root, self.list, methods=["GET"]),
            Route(root, self.announce, methods=["POST"]),
            Route(f"{root}/copy", self.copy, methods=["POST"]),
            Route(f"{root}/webhook", self.get_webhook, methods=["GET"]),
            Route(f"{root}/{{id}}", self.tus, methods=["HEAD", "PATCH"]),
            Route(f"{root}/{{id}}", self.get, methods=["GET"]),
            Route(f"{root}/{{id}}", self.edit, methods=["POST"]),
            Route(f"{root}/{{id}}", self.delete, methods=["DELETE"]),
            Route("/tus/{id}", self.tus, methods=["HEAD", "PATCH"]),
            Route(f"{root}/{{id}}/captions/{{language}}", self.put_captions, methods=["PUT"]),
            Route(f"{root}/{{id}}/captions", self.list_captions, methods=["GET"]),
        ]

    def authorized(self, request: Request) -> bool:
        if request.url.path.startswith("/tus/"):
            assert "authorization" not in request.headers, "our credentials are nobody else's business"
            return request.query_params.get("signature") in self.signatures
        return request.headers.get("authorization") == f"Bearer {self.token}"

    def error(self, status: int, message: str = "no", code: str | None = None) -> Response:
        known = {400: 10004, 401: 10000, 403: 10000, 404: 10003, 429: 971}
        number = int(code) if code else known.get(status, 10001 if status < 500 else 10002)
        errors = [{"code": number, "message": message}]
        return JSONResponse({"success": False, "errors": errors, "messages": [], "result": None}, status)

    def too_many(self, wait_s: int | None) -> Response:
        refusal = self.error(429, "Please wait and consider throttling your request speed")
        if wait_s is not None:
            refusal.headers["retry-after"] = str(wait_s)
            refusal.headers["ratelimit"] = f'"default";r=0;t={wait_s}'
            refusal.headers["ratelimit-policy"] = '"default";q=1200;w=300'
        return refusal

    def failure_inside(self, message: str) -> Response:
        refusal = self.error(500, message)
        refusal.status_code = 200
        return refusal

    def good(self, result: Any, status: int = 200, **more: Any) -> Response:
        return JSONResponse({"success": True, "errors": [], "messages": [], "result": result, **more}, status)

    # -- videos

    def created(self, video: Video) -> str:
        place = list(self.videos).index(video.id) if video.id in self.videos else 0
        moment = BEGAN + timedelta(seconds=place // self.together * self.apart_s)
        # Nanoseconds, and no fraction where there is none.
        fraction = f".{moment.microsecond // 1000:03d}170843" if moment.microsecond else ""
        return f"{moment:%Y-%m-%dT%H:%M:%S}{fraction}Z"

    def body(self, video: Video) -> dict[str, Any]:
        ready = video.state == "ready"
        states = {"waiting": "pendingupload", "processing": "downloading", "errored": "error"}
        status: dict[str, Any] = {"state": states.get(video.state, video.state)}
        if ready:
            # As documented: a video can be ready with less than all of its qualities.
            status |= {"pctComplete": "39.000000", "errorReasonCode": "", "errorReasonText": ""}
        if video.state == "errored":
            spelled = "errReason" if self.old_spelling else "errorReason"
            status |= {"step": "encoding", f"{spelled}Code": video.code, f"{spelled}Text": "it did not work"}
        return {
            "uid": video.id,
            "creator": video.asked.get("creator", video.ref),
            "thumbnail": f"{SHOWN}/{video.id}/thumbnails/thumbnail.jpg",
            "thumbnailTimestampPct": 0,
            "readyToStream": ready,
            "status": status,
            "meta": video.asked.get("meta", {"name": video.title}),
            "created": self.created(video),
            "modified": self.created(video),
            "size": len(video.content) or 4190963,
            "preview": f"{SHOWN}/{video.id}/watch",
            "allowedOrigins": [],
            "requireSignedURLs": video.private,
            "uploaded": self.created(video),
            "uploadExpiry": None,
            "maxDurationSeconds": None,
            "duration": video.duration_s if ready else -1,
            "input": {"width": 320, "height": 240} if ready else {"width": -1, "height": -1},
            "playback": {
                "hls": f"{SHOWN}/{video.id}/manifest/video.m3u8",
                "dash": f"{SHOWN}/{video.id}/manifest/video.mpd",
            },
            "watermark": None,
        }

    async def copy(self, request: Request) -> Response:
        asked = await request.json()
        if not str(asked.get("input") or asked.get("url") or "").startswith(("http://", "https://")):
            return self.error(400, "input must be an address")
        creator = asked.get("creator")
        if creator is not None and len(creator) > 64:
            return self.error(400, "creator is longer than 64 characters")
        meta = asked.get("meta", {})
        video = self.add(
            creator or meta.get("name"),
            meta.get("title") or meta.get("name"),
            asked=asked,
            private=asked.get("requireSignedURLs", False),
        )
        return self.good(self.body(video))

    async def list(self, request: Request) -> Response:
        query = request.query_params
        bodies = [self.body(video) for video in self.listed()]
        for name, of in (
            ("creator", lambda body: body["creator"]),
            ("video_name", lambda body: body["meta"].get("name")),
            ("id", lambda body: body["uid"]),
            ("status", lambda body: body["status"]["state"]),
        ):
            if name in query:
                bodies = [body for body in bodies if of(body) == query[name]]
        everything = len(bodies)
        start = query.get("start") or query.get("after")
        if start and not self.repeats:
            low = comparable(start)
            moments = [(comparable(body["created"]), body) for body in bodies]
            bodies = [body for moment, body in moments if moment > low or (self.inclusive and moment == low)]
        remaining = len(bodies)
        if query.get("asc") != "true":
            bodies.reverse()
        limit = min(int(query.get("limit", "1000")), self.list_limit, self.page_max or 1000)
        more: dict[str, Any] = {}
        if query.get("include_counts") == "true" and not self.without_paging:
            more = {"range": min(limit, remaining), "total": everything if self.whole_total else remaining}
        return self.good(bodies[:limit], **more)

    async def get(self, request: Request) -> Response:
        video = self.videos.get(request.path_params["id"])
        return self.error(404, "Not Found: video not found") if video is None else self.good(self.body(video))

    async def edit(self, request: Request) -> Response:
        video = self.videos.get(request.path_params["id"])
        if video is None:
            return self.error(404, "Not Found: video not found")
        video.asked |= await request.json()
        return self.good(self.body(video))

    async def delete(self, request: Request) -> Response:
        if self.videos.pop(request.path_params["id"], None) is None:
            return self.error(404, "Not Found: video not found")
        return Response(status_code=200)

    # -- captions

    async def put_captions(self, request: Request) -> Response:
        video = self.videos.get(request.path_params["id"])
        if video is None:
            return self.error(404, "Not Found: video not found")
        part = file_in(request.headers["content-type"], await request.body())
        if part.field != "file" or not part.content.startswith(b"WEBVTT") or len(part.content) > 10_000_000:
            return self.error(400, "the file must be WebVTT of 10 MB at most")
        language = request.path_params["language"]
        video.captions = [known for known in video.captions if known[0] != language]
        video.captions.append((language, part.content.decode()))
        return self.good(self.caption(language))

    def caption(self, language: str) -> dict[str, Any]:
        return {"language": language, "label": language, "generated": False, "status": "ready"}

    async def list_captions(self, request: Request) -> Response:
        video = self.videos[request.path_params["id"]]
        return self.good([self.caption(language) for language, _ in video.captions])

    # -- uploads

    async def announce(self, request: Request) -> Response:
        found = announced(request)
        if isinstance(found, Response):
            return found
        length, about = found
        closed = "requiresignedurls" in about
        # Other keys than the documented ones are forgotten, which may be less than the host does.
        meta = {name: value for name, value in about.items() if name == "name"}
        creator = request.headers.get("upload-creator")
        asked = {"meta": meta, "creator": creator}
        video = self.add(creator or meta.get("name"), meta.get("name"), asked=asked, private=closed, state="waiting")
        self.uploads[video.id] = Upload(video.id, length, video.id, about)
        location = f"{self.url}/accounts/{ACCOUNT}/stream/{video.id}"
        if self.foreign_uploads:
            self.signatures.append(f"signed-{video.id}")
            location = f"{self.url.replace('127.0.0.1', 'localhost')}/tus/{video.id}?signature=signed-{video.id}"
        return Response(status_code=201, headers={**VERSION, "location": location, "stream-media-id": video.id})

    def whole(self, upload: Upload) -> None:
        video = self.videos[upload.video_id]
        video.content, video.state = bytes(upload.content), "processing"

    # -- token and webhooks

    async def verify_user_token(self, request: Request) -> Response:
        if not self.user_token:
            return self.error(401, "Invalid API Token", "1000")
        return await self.verify_token(request)

    async def verify_token(self, request: Request) -> Response:
        return self.good({"id": "ed17574386854bf78a67040be0a770b0", "status": "active"})

    async def get_webhook(self, request: Request) -> Response:
        return self.error(404, "Not Found: no webhook") if self.hook is None else self.good(self.hook)

    def event(self, video: Video, what: str) -> bytes | None:
        if what not in ("ready", "errored"):
            return None
        return json.dumps(self.body(video)).encode()

    def sign(self, body: bytes, secret: str, now: float) -> dict[str, str]:
        stamp = str(int(now))
        signature = hmac.new(secret.encode(), f"{stamp}.".encode() + body, hashlib.sha256).hexdigest()
        return {"webhook-signature": f"time={stamp},sig1={signature}"}
