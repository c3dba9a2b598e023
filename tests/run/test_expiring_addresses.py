"""A source whose addresses run out between the listing and their use."""

from __future__ import annotations

import asyncio
import socket
from collections import Counter

import pytest_asyncio
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response
from starlette.routing import Route


class Expiring:
    """A listing host that signs its addresses anew at each question; some are refused all the same."""

    def __init__(self, media) -> None:  # type: ignore[no-untyped-def]
        self.video = media / "good.mp4"
        self.signed: Counter[str] = Counter()
        self.base = ""

    def app(self) -> Starlette:
        return Starlette(
            routes=[
                Route("/videos", self.listing),
                Route("/videos/{id}", self.item),
                Route("/files/{id}", self.file),
            ]
        )

    async def listing(self, request: Request) -> Response:
        at = int(request.query_params.get("offset", 0))
        names = ["fresh", "late", "never", "lasting"]
        return JSONResponse([{"id": name} for name in names][at:])

    async def item(self, request: Request) -> Response:
        name = request.path_params["id"]
        self.signed[name] += 1
        signature = "same" if name == "lasting" else f"s{self.signed[name]}"
        return JSONResponse({"url": f"{self.base}/files/{name}?signature={signature}"})

    async def file(self, request: Request) -> Response:
        name, signature = request.path_params["id"], request.query_params["signature"]
        expired = name in ("never", "lasting") or (name == "late" and signature == "s1")
        return Response("expired", 403) if expired else FileResponse(self.video)


@pytest_asyncio.fixture
async def expiring(media):
    host = Expiring(media)
    listener = socket.create_server(("127.0.0.1", 0))
    host.base = f"http://127.0.0.1:{listener.getsockname()[1]}"
    server = uvicorn.Server(uvicorn.Config(host.app(), log_config=None, lifespan="off"))
    server.install_signal_handlers = lambda: None  # type: ignore[method-assign, attr-defined]
    task = asyncio.create_task(server.serve(sockets=[listener]))
    yield host
    server.should_exit = True
    await task


async def test_an_expired_address_is_asked_of_the_source_again_once_and_then_forbidden(rig_factory, expiring):
    source = {
        "kind": "generic",
        "base_url": expiring.base,
        "options": {
            "path": "/videos",
            "style": "offset",
            "address": "item",
            "item_path": "/videos/{id}",
            "item_url": "url",
        },
    }
    rig = await rig_factory(sources={"host": source})
    await rig.migrate("expiring", rig.folder, source={"kind": "generic", "name": "host"})
    rows = await rig.engine.fetch("select source_id, state, reason, attempts from asset order by source_id")
    found = {row["source_id"]: (row["state"], row["reason"]) for row in rows}
    assert found == {
        "fresh": ("verified", None),
        "late": ("verified", None),
        "never": ("rejected", "source-forbidden"),
        "lasting": ("rejected", "source-forbidden"),
    }
    # Once for the inventory, once more where it was refused, once for the create.
    assert expiring.signed == {"fresh": 2, "late": 3, "never": 2, "lasting": 2}
