"""Mux Video as it documents itself (https://docs.mux.com/api-reference), with direct uploads as Google Cloud Storage
takes them."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import secrets
from typing import Any, ClassVar

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from tests.destinations.hosts.base import HostServer, Video
from tests.destinations.hosts.storing import store


class MuxServer(HostServer):
    kind = "mux"
    token = "44c819de-4add-4c9f-b2e9-384a0a71bede:s3cret-of-the-token"
    failures: ClassVar = {
        "download_failed": "fetch-failed",
        "invalid_input": "file-corrupt",
        "unheard_of": "destination-failed",
    }
    list_limit = 100
    chunk_bytes = 524_288
    lacks: ClassVar = {
        "posters": "a poster is a frame of the video itself",
        "failure-inside": "a refusal always has a status of its own",
        "retry-after": "a 429 names no wait",
    }

    def __init__(self) -> None:
        super().__init__()
        self.uploads: dict[str, dict[str, Any]] = {}
        self.gone: set[str] = set()
        """Uploads whose sessions have been forgotten, with all that was sent."""
        self.asset_after = 0
        """Questions for a finished upload that are answered before its asset is there."""
        self.read_only = False
        """Whether the token may only read."""

    def routes(self) -> list[Route]:
        return [
            Route("/video/v1/assets", self.create, methods=["POST"]),
            Route("/video/v1/assets", self.list, methods=["GET"]),
            Route("/video/v1/assets/{id}", self.get, methods=["GET"]),
            Route("/video/v1/assets/{id}", self.delete, methods=["DELETE"]),
            Route("/video/v1/assets/{id}/tracks", self.add_track, methods=["POST"]),
            Route("/video/v1/assets/{id}/tracks/{track}", self.delete_track, methods=["DELETE"]),
            Route("/video/v1/uploads", self.announce, methods=["POST"]),
            Route("/video/v1/uploads/{id}", self.get_upload, methods=["GET"]),
            Route("/video/v1/uploads/{id}/cancel", self.cancel_upload, methods=["PUT"]),
            Route("/upload/{id}", self.put, methods=["PUT"]),
        ]

    def authorized(self, request: Request) -> bool:
        if request.url.path.startswith("/upload/"):
            assert "authorization" not in request.headers, "our credentials are nobody else's business"
            upload = self.uploads.get(request.url.path.rpartition("/")[2], {})
            return request.query_params.get("signature") == upload.get("signature")
        expected = "Basic " + base64.b64encode(self.token.encode()).decode()
        return request.headers.get("authorization") == expected

    def error(self, status: int, message: str = "no", code: str | None = None) -> Response:
        known = {401: "unauthorized", 404: "not_found", 400: "invalid_parameters", 403: "forbidden"}
        code = code or known.get(status, "error")
        return JSONResponse({"error": {"type": code, "messages": [message]}}, status)

    def too_many(self, wait_s: int | None) -> Response:
        refusal = self.error(429, "Too many requests", "too_many_requests")
        refusal.headers["x-ratelimit-limit"], refusal.headers["x-ratelimit-remaining"] = "1", "0"
        return refusal

    # -- assets

    def body(self, video: Video) -> dict[str, Any]:
        asked = video.asked
        body: dict[str, Any] = {
            "id": video.id,
            "status": {"waiting": "preparing", "processing": "preparing"}.get(video.state, video.state),
            "created_at": str(int(video.created_s)),
            "playback_ids": [{"id": f"p{video.id}", "policy": "signed" if video.private else "public"}],
            "max_resolution_tier": asked.get("max_resolution_tier", "1080p"),
            "video_quality": asked.get("video_quality", "basic"),
            "passthrough": video.ref,
            "meta": asked.get("meta") or {"title": video.title, "external_id": video.ref},
            "ingest_type": "on_demand_direct_upload" if video.content else "on_demand_url",
            "master_access": "none",
            "mp4_support": "none",
            "test": asked.get("test", False),
            "progress": {"state": "ingesting" if video.state == "processing" else "completed", "progress": 0},
        }
        texts = [self.track_body(track) for track in video.extra.get("tracks", [])]
        if video.state == "ready":
            picture = {"id": f"t{video.id}", "type": "video", "max_width": 320, "max_height": 240, "max_frame_rate": 25}
            body |= {"duration": video.duration_s, "aspect_ratio": "4:3", "tracks": [picture, *texts]}
        elif texts:
            body["tracks"] = texts
        if video.state == "errored":
            body["errors"] = {"type": video.code, "messages": ["it did not work", "at all"]}
        if upload_id := video.extra.get("upload_id"):
            body["upload_id"] = upload_id
        return body

    async def create(self, request: Request) -> Response:
        asked = await request.json()
        inputs = asked.get("inputs") or asked.get("input")
        if not inputs or not str(inputs[0].get("url", "")).startswith(("http://", "https://")):
            return self.error(400, "inputs needs a url")
        if refusal := self.wrong(asked):
            return refusal
        return JSONResponse({"data": self.body(self.made(asked))}, 201)

    def wrong(self, asked: dict[str, Any]) -> Response | None:
        meta = asked.get("meta", {})
        for value, limit in ((asked.get("passthrough"), 255), (meta.get("title"), 512), (meta.get("external_id"), 128)):
            if len(value or "") > limit:
                return self.error(400, f"longer than {limit}")
        if len(meta.get("creator_id") or "") > 128:
            return self.error(400, "creator_id is longer than 128")
        return None

    def made(self, asked: dict[str, Any]) -> Video:
        title = asked.get("meta", {}).get("title")
        private = (asked.get("playback_policies") or asked.get("playback_policy") or ["none"]) != ["public"]
        return self.add(asked.get("passthrough"), title, asked=asked, private=private)

    async def list(self, request: Request) -> Response:
        limit = min(int(request.query_params.get("limit", "25")), self.list_limit, self.page_max or 100)
        videos = self.listed()[::-1]
        if (upload_id := request.query_params.get("upload_id")) is not None:
            videos = [video for video in videos if video.extra.get("upload_id") == upload_id]
        start = 0
        if (cursor := request.query_params.get("cursor")) and not self.repeats:
            start = int(base64.urlsafe_b64decode(cursor))
        more = start + limit < len(videos)
        following = base64.urlsafe_b64encode(str(start + limit).encode()).decode()
        body: dict[str, Any] = {"data": [self.body(video) for video in videos[start : start + limit]]}
        if not self.without_paging:
            body["next_cursor"] = following if more else None
        return JSONResponse(body)

    async def get(self, request: Request) -> Response:
        video = self.videos.get(request.path_params["id"])
        return self.error(404, "not found") if video is None else JSONResponse({"data": self.body(video)})

    async def delete(self, request: Request) -> Response:
        video = self.videos.get(request.path_params["id"])
        if video is None:
            return self.error(404, "not found")
        if video.extra.get("undeletable"):
            return self.error(400, "the asset is being prepared")
        del self.videos[video.id]
        return Response(status_code=204)

    async def add_track(self, request: Request) -> Response:
        video = self.videos.get(request.path_params["id"])
        asked = await request.json()
        if video is None:
            return self.error(404, "not found")
        tracks = video.extra.setdefault("tracks", [])
        if any(track["name"] == asked.get("name") for track in tracks):
            return self.error(400, "name must be unique")
        track = {"id": f"c{next(self.numbers)}", "status": "preparing", **asked}
        tracks.append(track)
        video.captions.append((asked["language_code"], asked["url"]))
        return JSONResponse({"data": self.track_body(track)}, 201)

    def track_body(self, track: dict[str, Any]) -> dict[str, Any]:
        return {name: value for name, value in track.items() if name != "url"}

    async def delete_track(self, request: Request) -> Response:
        video = self.videos[request.path_params["id"]]
        tracks = video.extra.get("tracks", [])
        found = next((track for track in tracks if track["id"] == request.path_params["track"]), None)
        if found is None:
            return self.error(404, "not found")
        tracks.remove(found)
        video.captions.remove((found["language_code"], found["url"]))
        return Response(status_code=204)

    # -- uploads

    async def announce(self, request: Request) -> Response:
        asked = await request.json()
        if refusal := self.wrong(asked["new_asset_settings"]):
            return refusal
        upload_id, signature = f"u{self.new_id()}", secrets.token_hex(16)
        # Another host than the API's, as in life.
        address = self.url.replace("127.0.0.1", "localhost") + f"/upload/{upload_id}?signature={signature}"
        self.uploads[upload_id] = {
            "id": upload_id,
            "timeout": asked.get("timeout", 3600),
            "status": "waiting",
            "new_asset_settings": asked["new_asset_settings"],
            "cors_origin": asked.get("cors_origin", ""),
            "url": address,
            "test": asked.get("test", False),
            "signature": signature,
            "content": b"",
        }
        self.signatures.append(signature)
        return JSONResponse({"data": self.upload_body(upload_id)}, 201)

    def upload_body(self, upload_id: str) -> dict[str, Any]:
        hidden = {"signature", "content"} | (set() if self.uploads[upload_id]["status"] == "waiting" else {"url"})
        return {name: value for name, value in self.uploads[upload_id].items() if name not in hidden}

    async def get_upload(self, request: Request) -> Response:
        upload = self.uploads.get(request.path_params["id"])
        if upload is None:
            return self.error(404, "not found")
        if upload["status"] == "asset_created" and self.asset_after > 0:
            self.asset_after -= 1
            hidden = {name: value for name, value in self.upload_body(upload["id"]).items() if name != "asset_id"}
            return JSONResponse({"data": hidden | {"status": "waiting", "url": upload["url"]}})
        return JSONResponse({"data": self.upload_body(request.path_params["id"])})

    async def cancel_upload(self, request: Request) -> Response:
        if self.read_only:
            return self.error(403, "the token may not write")
        if request.path_params["id"] not in self.uploads:
            return self.error(404, "not found")
        self.uploads[request.path_params["id"]]["status"] = "cancelled"
        return JSONResponse({"data": self.upload_body(request.path_params["id"])})

    async def put(self, request: Request) -> Response:
        upload = self.uploads[request.path_params["id"]]
        if request.path_params["id"] in self.gone:
            return Response(status_code=410)
        answer, whole = await store(self, request, upload)
        if whole and upload["status"] == "waiting":
            video = self.made(upload["new_asset_settings"])
            video.content, video.extra["upload_id"] = upload["content"], upload["id"]
            upload |= {"status": "asset_created", "asset_id": video.id}
        return answer

    # -- webhooks

    def event(self, video: Video, what: str) -> bytes | None:
        data = self.body(video) | {"created_at": int(video.created_s)}
        return json.dumps(
            {
                "type": f"video.asset.{what}",
                "id": f"evt-{video.id}-{what}",
                "created_at": "2026-01-01T00:00:00.000000Z",
                "object": {"type": "asset", "id": video.id},
                "environment": {"name": "Production", "id": "e1"},
                "data": data,
                "attempts": [],
            }
        ).encode()

    def sign(self, body: bytes, secret: str, now: float) -> dict[str, str]:
        stamp = str(int(now))
        signature = hmac.new(secret.encode(), f"{stamp}.".encode() + body, hashlib.sha256).hexdigest()
        return {"mux-signature": f"t={stamp},v1={signature}"}
