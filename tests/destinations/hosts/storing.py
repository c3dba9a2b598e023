"""Resumable sessions as Google Cloud Storage has them, to which several hosts' uploads lead."""

from __future__ import annotations

import re
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from tests.destinations.hosts.base import HostServer


async def store(server: HostServer, request: Request, upload: dict[str, Any]) -> tuple[Response, bool]:
    """Takes one PUT into `upload["content"]`; its answer, and whether all is there."""
    asked = re.fullmatch(r"bytes (?:\*|(\d+)-(\d+))/(\d+)", request.headers.get("content-range", ""))
    assert asked, "no Content-Range"
    size, start = int(asked[3]), int(asked[1] or 0)
    block, came = await server.received(request)
    if asked[1] is not None and len(upload["content"]) < size and not upload.get("forgets"):
        assert not came or len(block) == int(asked[2]) - start + 1
        assert start <= len(upload["content"]), "a gap"
        if start + len(block) < size:
            # What is no whole multiple of 256 KiB is not kept, except at the end.
            block = block[: (start + len(block)) // 262_144 * 262_144 - start]
        upload["content"] = upload["content"][:start] + block
    if len(upload["content"]) < size:
        had = {"range": f"bytes=0-{len(upload['content']) - 1}"} if upload["content"] else {}
        return Response(status_code=308, headers=had), False
    return Response(status_code=200), True
