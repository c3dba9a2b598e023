"""Text tracks, posters and what is told about a video."""

from __future__ import annotations

from typing import Any

import pytest

VTT = "WEBVTT\n\n00:00.000 --> 00:01.000\nHällo\n".encode()


async def put(box: Any, path: str, content: bytes, media_type: str) -> Any:
    return await box.http.put(f"/v1/videos/{path}", content=content, headers={"content-type": media_type})


async def test_text_tracks_and_a_poster_are_put_on_a_video_and_shown(start: Any, media: Any) -> None:
    box = await start()
    video_id = await box.made()
    assert (await put(box, f"{video_id}/captions/pt-BR", VTT, "text/vtt; charset=utf-8")).status_code == 200
    assert (await put(box, f"{video_id}/captions/de", VTT, "text/vtt")).json()["captions"] == ["de", "pt-BR"]
    assert (await put(box, f"{video_id}/poster", media["still.jpg"], "image/jpeg")).json()["poster"] is True
    video = await box.finished(video_id)
    assert (video["captions"], video["poster"]) == (["de", "pt-BR"], True)
    assert (await box.http.get("/v1/videos")).json()["videos"] == [video]
    assert (await box.http.get(f"/v1/videos/{video_id}/captions/pt-br")).content == VTT
    shown = await box.http.get(f"/v1/videos/{video_id}/poster")
    assert (shown.content, shown.headers["content-type"]) == (media["still.jpg"], "image/jpeg")
    assert (box.stats()["captions"], box.stats()["posters"]) == (2, 1)


async def test_twice_the_same_has_the_effect_of_once_and_a_later_one_counts(start: Any, media: Any) -> None:
    box = await start()
    video_id = await box.made()
    later = VTT + b"\n00:01.000 --> 00:02.000\nBye\n"
    for content in (VTT, VTT, later):
        await put(box, f"{video_id}/captions/de", content, "text/vtt")
        await put(box, f"{video_id}/poster", media["still.jpg"], "image/jpeg")
    assert (await box.http.get(f"/v1/videos/{video_id}/captions/de")).content == later
    assert (box.stats()["captions"], box.stats()["posters"]) == (1, 1)


@pytest.mark.parametrize(
    ("path", "content", "media_type", "status"),
    [
        ("captions/de", VTT, "application/json", 415),
        ("captions/de", b"1\n00:00:00,000 --> 00:00:01,000\nHello\n", "text/vtt", 422),
        ("captions/de", b"\xff\xfe", "text/vtt", 422),
        ("captions/d", VTT, "text/vtt", 422),
        ("captions/de", VTT + b"x" * 10_485_760, "text/vtt", 413),
        ("poster", b"<svg/>", "image/svg+xml", 422),
        ("poster", b"\x89PNG\r\n\x1a\n", "text/plain", 415),
    ],
)
async def test_what_is_none_is_refused(start: Any, path: str, content: bytes, media_type: str, status: int) -> None:
    box = await start()
    video_id = await box.made()
    assert (await put(box, f"{video_id}/{path}", content, media_type)).status_code == status
    assert (box.stats()["captions"], box.stats()["posters"]) == (0, 0)


async def test_nothing_is_put_on_a_video_that_was_deleted_or_never_was(start: Any) -> None:
    box = await start()
    video_id = await box.made()
    await put(box, f"{video_id}/captions/de", VTT, "text/vtt")
    await box.http.delete(f"/v1/videos/{video_id}")
    for gone in (video_id, "never"):
        assert (await put(box, f"{gone}/captions/de", VTT, "text/vtt")).status_code == 404
        assert (await put(box, f"{gone}/poster", b"GIF89a", "image/gif")).status_code == 404
        assert (await box.http.get(f"/v1/videos/{gone}/captions/de")).status_code == 404
    assert box.stats()["captions"] == 0


async def test_faults_strike_attachments_too(start: Any) -> None:
    box = await start(operations=["attach"], script=["refuse_503"])
    video_id = await box.made()
    assert (await put(box, f"{video_id}/captions/de", VTT, "text/vtt")).status_code == 503
    assert box.stats()["captions"] == 0
    assert (await put(box, f"{video_id}/captions/de", VTT, "text/vtt")).status_code == 200


async def test_what_is_told_about_a_video_is_shown(start: Any) -> None:
    box = await start()
    about = {"description": "Long ago", "tags": ["a", "b"], "folder": "x/y", "privacy": "unlisted"}
    assert (await box.video(await box.made(about=about)))["about"] == about
    assert (await box.video(await box.made("ref-2", about={"tags": ["a"]})))["about"] == {"tags": ["a"]}
    assert (await box.create("ref-3", about={"privacy": "secret"})).status_code == 422
    assert (await box.create("ref-3", about={"colour": "red"})).status_code == 422
