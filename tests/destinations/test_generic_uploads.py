"""The generic destination sends local files by tus, puts text tracks and posters on videos, and tells what is known."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from destinations.base import Attachment, CreateRequest, RemoteState, Transfer
from destinations.generic import GenericDestination, Options
from faults import Fault
from sources.about import About

CONTENT = bytes(range(256)) * 40
CHUNK = 4_096
VTT = b"WEBVTT\n\n00:00.000 --> 00:01.000\nHello\n"
OPTIONS: dict[str, Any] = {
    "uploads": "tus",
    "uploads_chunk_bytes": CHUNK,
    "captions_path": "/v1/videos/{id}/captions/{language}",
    "poster_path": "/v1/videos/{id}/poster",
    "about_field": "about",
}
ABOUT = About(description="Long ago", tags=("a", "b"), folder="x/y", privacy="private", poster="http://h/p.jpg")


class Ledger:
    """Keeps where a transfer stands; `stop_at` raises as a ledger does whose row another has taken."""

    def __init__(self, stop_at: int | None = None) -> None:
        self.kept: list[Transfer] = []
        self.turns = 0
        self._stop_at = stop_at

    async def keep(self, transfer: Transfer) -> None:
        self.kept.append(transfer)
        if transfer.sent == self._stop_at:
            raise Fault("fence-lost", "another has taken it over")

    async def turn(self) -> None:
        self.turns += 1


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "a video.mp4"
    path.write_bytes(CONTENT)
    return path


def request(path: Path, **given: Any) -> CreateRequest:
    return CreateRequest(**{"ref": "ref-1", "address": str(path), "title": "Füße", **given})


async def send(
    host: GenericDestination, path: Path, begun: Transfer | None = None, ledger: Ledger | None = None, **given: Any
) -> Any:
    ledger = ledger or Ledger()
    return await host.upload(request(path, **given), begun, keep=ledger.keep, turn=ledger.turn)


async def stopped(host: GenericDestination, path: Path, at: int) -> Transfer:
    """A transfer whose worker is gone once so many bytes have come."""
    ledger = Ledger(stop_at=at)
    with pytest.raises(Fault) as raised:
        await send(host, path, ledger=ledger)
    assert raised.value.code == "fence-lost"
    return ledger.kept[-1]


async def settled(host: GenericDestination, remote_id: str) -> Any:
    while (video := await host.get(remote_id)).state is RemoteState.PROCESSING:
        await asyncio.sleep(0.005)
    return video


async def told(sandbox: Any, remote_id: str) -> dict[str, Any]:
    return dict(sandbox.api.store.get(remote_id).as_json("", unknown=None))


def test_what_an_account_offers_is_what_its_options_say(open_at: Any) -> None:
    plain, full = open_at("http://h").capabilities, open_at("http://h", options=OPTIONS).capabilities
    assert (plain.uploads, plain.carries, plain.captions, plain.poster) == (False, frozenset(), None, None)
    assert (full.uploads, full.captions, full.poster) == (True, "bytes", "bytes")
    assert full.carries == {"description", "tags", "folder", "privacy"}


@pytest.mark.parametrize("path", ["/v1/{id}", "/v1/{language}", "v1/{id}/{language}", "/v1/{id} /{language}"])
def test_a_captions_path_without_both_places_is_refused(path: str) -> None:
    with pytest.raises(ValidationError):
        Options(captions_path=path)
    assert Options(captions_path="/{language}/of/{id}").captions_path is not None


async def test_a_local_file_becomes_a_video_that_bears_everything_told(sandbox: Any, open_at: Any, file: Path) -> None:
    host = open_at(sandbox.base_url, options=OPTIONS)
    ledger = Ledger()
    made = await send(host, file, ledger=ledger, about=ABOUT, metadata={"n": 1}, duration_ms=4020)
    assert (made.ref, made.state, made.awaits_bytes) == ("ref-1", RemoteState.PROCESSING, False)
    ready = await settled(host, made.remote_id)
    assert (ready.state, ready.ref, ready.title, ready.duration_ms) == (RemoteState.READY, "ref-1", "Füße", 4020)
    shown = await told(sandbox, made.remote_id)
    assert shown["about"] == {"description": "Long ago", "tags": ["a", "b"], "folder": "x/y", "privacy": "private"}
    assert shown["metadata"] == {"n": 1}
    assert [transfer.sent for transfer in ledger.kept] == [0, 4096, 8192, len(CONTENT)]
    assert sandbox.stats()["bytes"] == len(CONTENT)
    # A request, a turn: nothing is asked of the host outside of the account's budget.
    asked = {label: n for label, n in sandbox.stats()["requests"].items() if "uploads" in label}
    assert asked == {"POST /v1/uploads": 1, "PATCH /v1/uploads/{id}": 3}
    assert ledger.turns == sum(asked.values())


async def test_what_is_about_a_video_travels_with_a_create_too(sandbox: Any, open_at: Any) -> None:
    about = CreateRequest(ref="ref-1", address="http://127.0.0.1:9/a.mp4", title="A", about=ABOUT)
    made = await open_at(sandbox.base_url, options=OPTIONS).create(about)
    assert (await told(sandbox, made.remote_id))["about"]["privacy"] == "private"
    made = await open_at(sandbox.base_url).create(about)
    assert (await told(sandbox, made.remote_id))["about"] == {}


async def test_a_transfer_goes_on_where_it_stood(sandbox: Any, open_at: Any, file: Path) -> None:
    host = open_at(sandbox.base_url, options=OPTIONS)
    begun = await stopped(host, file, at=CHUNK)
    [shell] = await host.lookup("ref-1")
    assert (shell.state, shell.awaits_bytes) == (RemoteState.PROCESSING, True)
    made = await send(host, file, begun)
    assert made.remote_id == shell.remote_id
    assert (await settled(host, made.remote_id)).awaits_bytes is False
    assert (sandbox.stats()["bytes"], sandbox.stats()["uploads"]) == (len(CONTENT), 1)


@pytest.mark.parametrize("fault", ["lost_answer", "drop_before", "error_before", "error_after", "refuse_503"])
@pytest.mark.parametrize("strikes", [2, 4])
async def test_a_break_within_a_file_loses_no_byte_and_makes_no_second_video(
    sandbox: Any, open_at: Any, file: Path, fault: str, strikes: int
) -> None:
    host = open_at(sandbox.base_url, options=OPTIONS)
    sandbox.faults(operations=["upload"], script=["none"] * (strikes - 1) + [fault])
    ledger = Ledger()
    if fault == "refuse_503":
        with pytest.raises(Fault, match="destination-busy"):  # the account is to pause
            await send(host, file, ledger=ledger)
        made = await send(host, file, ledger.kept[-1])
    else:
        made = await send(host, file, ledger=ledger)
    assert (await settled(host, made.remote_id)).state is RemoteState.READY
    assert (sandbox.stats()["uploads"], sandbox.stats()["bytes"]) == (1, len(CONTENT))


async def test_a_whole_file_whose_last_answer_was_lost_is_found_whole(sandbox: Any, open_at: Any, file: Path) -> None:
    host = open_at(sandbox.base_url, options=OPTIONS)
    begun = await stopped(host, file, at=len(CONTENT))
    made = await send(host, file, begun)
    assert (await settled(host, made.remote_id)).state is RemoteState.READY
    assert (sandbox.stats()["uploads"], sandbox.stats()["bytes"]) == (1, len(CONTENT))


async def test_an_upload_that_the_host_has_forgotten_is_begun_anew(sandbox: Any, open_at: Any, file: Path) -> None:
    host = open_at(sandbox.base_url, options=OPTIONS)
    begun = await stopped(host, file, at=CHUNK)
    await host.delete(json.loads(begun.place)["video"])
    made = await send(host, file, begun)
    assert made.remote_id != json.loads(begun.place)["video"]
    assert (await settled(host, made.remote_id)).state is RemoteState.READY


async def test_a_file_that_is_another_by_now_is_not_mixed_with_the_one_begun(
    sandbox: Any, open_at: Any, file: Path
) -> None:
    host = open_at(sandbox.base_url, options=OPTIONS)
    begun = await stopped(host, file, at=CHUNK)
    file.write_bytes(CONTENT[::-1])
    os.utime(file, ns=(0, 0))
    with pytest.raises(Fault) as raised:
        await send(host, file, begun)
    assert (raised.value.code, raised.value.landed) == ("file-changed", False)
    assert sandbox.stats()["bytes"] == CHUNK


async def test_an_announcement_whose_answer_is_lost_may_have_landed(sandbox: Any, open_at: Any, file: Path) -> None:
    host = open_at(sandbox.base_url, options=OPTIONS)
    sandbox.faults(operations=["upload"], script=["lost_answer"])
    with pytest.raises(Fault) as raised:
        await send(host, file)
    assert (raised.value.code, raised.value.landed) == ("answer-lost", True)


async def test_an_announcement_without_an_id_is_no_answer(sandbox: Any, open_at: Any, file: Path) -> None:
    host = open_at(sandbox.base_url, options={**OPTIONS, "uploads_id_header": "Stream-Media-Id"})
    with pytest.raises(Fault) as raised:
        await send(host, file)
    assert (raised.value.code, raised.value.landed) == ("answer-lost", True)


async def test_what_is_told_wrong_is_refused_with_the_hosts_words(sandbox: Any, open_at: Any, file: Path) -> None:
    host = open_at(sandbox.base_url, options=OPTIONS)
    with pytest.raises(Fault) as raised:
        await send(host, file, title="x" * 600)
    assert (raised.value.code, raised.value.landed) == ("name-too-long", False)
    assert "title" in raised.value.detail


async def test_text_tracks_and_a_poster_are_put_on_a_video_once(sandbox: Any, open_at: Any) -> None:
    host = open_at(sandbox.base_url, options=OPTIONS)
    made = await host.create(CreateRequest(ref="ref-1", address="http://127.0.0.1:9/a.mp4", title="A"))
    ledger = Ledger()
    for _ in range(2):
        track = Attachment("captions", "http://h/de.srt", VTT, language="pt-BR")
        await host.attach(made.remote_id, track, turn=ledger.turn)
        poster = Attachment("poster", "http://h/p", b"\x89PNG\r\n\x1a\n", format="png")
        await host.attach(made.remote_id, poster, turn=ledger.turn)
    shown = await told(sandbox, made.remote_id)
    assert (shown["captions"], shown["poster"], ledger.turns) == (["pt-BR"], True, 4)


@pytest.mark.parametrize(
    ("script", "code"),
    [("refuse_429", "rate-limited"), ("error_before", "destination-error"), ("success_false", "destination-error")],
)
async def test_an_attachment_that_is_refused_says_why(sandbox: Any, open_at: Any, script: str, code: str) -> None:
    host = open_at(sandbox.base_url, options=OPTIONS)
    made = await host.create(CreateRequest(ref="ref-1", address="http://127.0.0.1:9/a.mp4", title="A"))
    sandbox.faults(operations=["attach"], script=[script])
    with pytest.raises(Fault) as raised:
        await host.attach(made.remote_id, Attachment("subtitles", "", VTT, language="de"), turn=Ledger().turn)
    assert raised.value.code == code
    assert sandbox.stats()["captions"] == 0


async def test_nothing_is_put_on_a_video_that_was_deleted_and_no_try_is_repeated(sandbox: Any, open_at: Any) -> None:
    host = open_at(sandbox.base_url, options=OPTIONS)
    made = await host.create(CreateRequest(ref="ref-1", address="http://127.0.0.1:9/a.mp4", title="A"))
    await host.delete(made.remote_id)
    with pytest.raises(Fault) as raised:
        await host.attach(made.remote_id, Attachment("subtitles", "", VTT, language="de"), turn=Ledger().turn)
    assert raised.value.permanent
    assert "no such video" in raised.value.detail


async def test_an_empty_success_is_enough_for_an_attachment(rude: Any, open_at: Any) -> None:
    host = open_at(rude.says(204), options=OPTIONS)
    await host.attach("v 1", Attachment("subtitles", "", VTT, language="de"), turn=Ledger().turn)
    assert rude.requests[0].startswith(b"PUT /v1/videos/v%201/captions/de ")
