"""What is said to Bunny Stream, and what its test server answers, against Bunny's own description."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final

import pytest

from destinations.base import Attachment, CreateRequest, RemoteState, Transfer
from destinations.bunny import EVENTS, STATES, BunnyDestination
from tests.contracts.describing import Description, needs_descriptions
from tests.destinations.hosts.base import Seen
from tests.destinations.hosts.bunny import BunnyServer

pytestmark = needs_descriptions

ANSWERED: Final = {"id": "the answer to a fetch has it, as the vendor's page of the API shows"}
"""Fields of answers that the description lacks, and why they are right."""


@pytest.fixture(scope="module")
def described() -> Description:
    return Description("bunny-stream.json", "https://video.bunnycdn.com")


async def everything(server: BunnyServer, folder: Path) -> None:
    """Each call that the module can make, once at least."""
    destination = BunnyDestination(server.account(options={"collection_id": "c-1"}))
    server.page_max = 1

    async def turn() -> None:
        pass

    async def keep(_: Transfer) -> None:
        pass

    try:
        request = CreateRequest("ref-1", "https://files.example/a.mp4", "A", headers={"x-access": "abc"})
        made = await destination.create(request)
        film = folder / "a.mp4"
        film.write_bytes(b"x" * 1000)
        sent = await destination.upload(CreateRequest("ref-2", str(film), "B"), None, keep=keep, turn=turn)
        server.settle(sent.remote_id, "ready")
        await destination.get(sent.remote_id)
        assert len(await destination.lookup("ref-2")) == 1
        track = Attachment("captions", "x", b"WEBVTT\n", "de-CH", "Deutsch")
        await destination.attach(sent.remote_id, track, turn=turn)
        await destination.attach(sent.remote_id, Attachment("poster", "https://files.example/a.jpg"), turn=turn)
        failed = server.settle(server.add("ref-3").id, "errored", code="7")
        await destination.get(failed.id)
        await destination.check()
        await destination.delete(made.remote_id)
    finally:
        await destination.aclose()


@pytest.fixture
async def asked(tmp_path: Path) -> Any:
    """What was asked of the described API; files go to another one, by tus."""
    async with BunnyServer().serving() as running:
        await everything(running, tmp_path)  # type: ignore[arg-type]
        yield [seen for seen in running.seen if not seen.path.startswith("/tusupload")]


async def test_every_request_is_as_bunny_describes_it(asked: list[Seen], described: Description) -> None:
    assert {(seen.method, seen.path.count("/")) for seen in asked} >= {
        ("POST", 3), ("GET", 3), ("POST", 4), ("GET", 4), ("DELETE", 4), ("POST", 5), ("POST", 6),
    }  # fmt: skip
    for seen in asked:
        assert not described.wrong(seen), (seen.method, seen.path)


async def test_every_answer_of_the_test_server_is_as_bunny_describes_it(
    asked: list[Seen], described: Description
) -> None:
    for seen in asked:
        words = described.wrong_answer(seen)
        if seen.path.endswith("/fetch"):
            # The validator's words, and the place itself.
            assert [ANSWERED.keys() & set(re.findall(r"'(\w+)' was|^(\w+)$", w)[0]) for w in words] == [{"id"}] * 2
        else:
            assert not words, seen.path


def test_every_state_that_is_described_is_known_and_no_other(described: Description) -> None:
    numbers = described.resolved({"$ref": "#/components/schemas/VideoModelStatus"})
    assert set(STATES) == set(numbers["enum"])
    named = dict(zip(numbers["enum"], numbers["x-enumNames"], strict=True))
    assert {named[number] for number, state in STATES.items() if state is RemoteState.READY} == {
        "Finished", "JitPlaylistsCreated",
    }  # fmt: skip
    assert STATES != EVENTS


def test_every_issue_that_is_described_and_ends_a_video_has_a_reason(described: Description) -> None:
    issues = described.resolved({"$ref": "#/components/schemas/IssueCodes"})
    named = dict(zip(map(str, issues["enum"]), issues["x-enumNames"], strict=True))
    reasons = {named[code]: reason for code, reason in BunnyDestination.reasons.items() if code in named}
    assert reasons == {
        "IncompatibleResolution": "destination-failed",
        "InvalidFramerate": "destination-failed",
        "VideoExceededMaxDuration": "too-long",
        "AudioExceededMaxDuration": "too-long",
        "OriginalCorrupted": "file-corrupt",
    }
