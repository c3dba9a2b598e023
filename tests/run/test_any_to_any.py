"""Any source goes to any destination by configuration alone: whole runs, each source to one of the hosts in turn."""

from __future__ import annotations

from contextlib import AsyncExitStack
from itertools import cycle

import pytest
from starlette.responses import FileResponse, Response

from tests.destinations.hosts import ROWS
from tests.destinations.test_whole_runs import account_at, working
from tests.sources.host_rig import BY_KIND, placed
from tests.sources.hosts.base import library

PAIRS = list(zip(BY_KIND, cycle(ROWS), strict=False))
"""Every source, and every destination at least once."""
COUNT = 12
FAILED, PRIVATE = 2, 4
"""Of the library: one that had already failed at the source, one that not everybody may see."""
TRACK = b"WEBVTT\n\n00:00.000 --> 00:01.000\nHello\n"


def files_of(server, media):
    """The source's files as real ones, behind the same signatures."""
    refusing = server.file

    def file(request):
        refused = refusing(request)
        if refused.status_code != 200:
            return refused
        name = request.url.path
        if name.endswith((".vtt", ".srt")):
            return Response(TRACK, media_type="text/vtt")
        if name.endswith((".jpg", ".png")):
            return Response(b"\xff\xd8\xff\xe0 a picture", media_type="image/jpeg")
        return FileResponse(media / "good.mp4")

    return file


@pytest.mark.parametrize(("source", "destination"), PAIRS)
async def test_a_library_arrives_with_what_travels_with_it(rig_factory, media, unique, source, destination):
    async with AsyncExitStack() as stack:
        host = await stack.enter_async_context(ROWS[destination]().serving())
        clips = [clip for clip in library(COUNT) if clip.state != "processing"]
        place = await placed(BY_KIND[source], stack, clips, files=lambda server: files_of(server, media))
        place.server.prepare()
        entry = {
            "kind": source,
            "base_url": place.server.api.url,
            "token": place.server.token,
            "options": {"retry_wait_s": 0.01, **place.server.options()},
        }
        rig = await rig_factory(account=account_at(host), sources={"old": entry})
        hook = f"http://127.0.0.1:{rig.settings.endpoint.port}/webhooks/sandbox"
        await stack.enter_async_context(working(host, hook))
        result = await rig.migrate(unique, rig.folder, source={"kind": source, "name": "old", "page_size": 5})

        hidden = "privacy" not in host.lacks
        rejected = {"source-failed": 1} if hidden else {"source-failed": 1, "private-refused": 1}
        assert result["reasons"].get("rejected") == rejected
        assert result["states"] == {"verified": len(clips) - len(rejected), "rejected": len(rejected)}
        refs = [video.ref for video in host.listed()]
        assert len(refs) == len(set(refs)) == len(clips) - len(rejected)
        private = place.server.ref(next(clip for clip in clips if clip.number == PRIVATE))
        row = await rig.engine.fetchrow("select remote_id, about from asset where source_id = $1", private)
        if hidden and row["about"].get("privacy"):
            assert host.videos[row["remote_id"]].private
        first = place.server.ref(clips[0])
        row = await rig.engine.fetchrow("select remote_id, about from asset where source_id = $1", first)
        tracks = {caption["language"] for caption in row["about"].get("captions", ())}
        if "captions" not in host.lacks:
            assert {language for language, _ in host.videos[row["remote_id"]].captions} == tracks
