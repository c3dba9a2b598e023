"""What is Cloudflare Stream's own: a list walked by moments, names spelled in two ways, uploads by tus."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from starlette.responses import JSONResponse

from destinations.base import Attachment, RemoteState
from faults import Fault, Scope
from sources.about import About
from tests.destinations.hosts.cloudflare import ACCOUNT, CloudflareServer
from tests.destinations.test_conformance import Kept, fault_of, no_wait, request_for, walked

ROOT = f"/accounts/{ACCOUNT}/stream"


@pytest_asyncio.fixture
async def server() -> AsyncIterator[CloudflareServer]:
    async with CloudflareServer().serving() as running:
        yield running  # type: ignore[misc]


@pytest_asyncio.fixture
async def open_one(server: CloudflareServer) -> AsyncIterator[Callable[..., Any]]:
    opened: list[Any] = []

    def opening(**options: Any) -> Any:
        opened.append(server.open(options=options))
        opened[-1].chunk_bytes = server.chunk_bytes
        return opened[-1]

    yield opening
    for destination in opened:
        await destination.aclose()


# ------------------------------------------------------------------------------------------------------------ the list


@pytest.mark.parametrize("inclusive", [True, False])
@pytest.mark.parametrize("whole_total", [True, False])
@pytest.mark.parametrize("counts", [True, False])
@pytest.mark.parametrize(
    ("together", "apart_s", "limit"), [(1, 0.001, 60), (1, 5, 2), (7, 0.4, 50), (7, 3, 10), (3, 1, 9), (50, 2, 60)]
)
async def test_each_video_is_listed_once_however_the_boundaries_and_counts_are_meant(
    server: CloudflareServer,
    open_one: Any,
    inclusive: bool,
    whole_total: bool,
    counts: bool,
    together: int,
    apart_s: float,
    limit: int,
) -> None:
    server.inclusive, server.whole_total, server.without_paging = inclusive, whole_total, not counts
    server.together, server.apart_s = together, apart_s
    for n in range(56 if apart_s > 0.01 else 50):
        server.add(f"ref-{n}")
    assert await walked(open_one(list_limit=limit)) == list(server.videos)


async def test_a_shorter_page_than_was_asked_for_is_not_the_end(server: CloudflareServer, open_one: Any) -> None:
    for whole_total in (False, True):
        server.page_max, server.whole_total = 5, whole_total
        for n in range(23):
            server.add(f"ref-{n}")
        assert await walked(open_one()) == list(server.videos)


async def test_more_videos_in_a_second_than_a_page_has_are_said_and_neither_lost_nor_read_for_ever(
    server: CloudflareServer, open_one: Any
) -> None:
    server.together = 12
    for n in range(24):
        server.add(f"ref-{n}")
    fault = await fault_of(walked(open_one(list_limit=10)))
    assert (fault.code, "repeats" in fault.detail) == ("answer-malformed", True)
    assert len(server.seen) == 2


async def test_what_is_made_during_a_walk_comes_at_its_end(server: CloudflareServer, open_one: Any) -> None:
    for n in range(9):
        server.add(f"ref-{n}")
    host = open_one(list_limit=4)
    page = await host.list_page(None)
    assert page.total == 9
    ids = [video.remote_id for video in page.videos]
    late = server.add("ref-late").id
    del server.videos[next(iter(server.videos))]
    while page.next_cursor is not None:
        page = await open_one(list_limit=4).list_page(page.next_cursor)
        ids += [video.remote_id for video in page.videos]
    assert len(ids) == len(set(ids)) == 10
    assert ids[-1] == late


async def test_a_list_out_of_order_or_without_moments_is_no_list_to_walk(
    server: CloudflareServer, open_one: Any
) -> None:
    first, second = (server.body(server.add(f"ref-{n}")) for n in (1, 3))
    later, earlier = {"created": "2026-01-01T00:00:01Z"}, {"created": "2026-01-01T00:00:00.9Z"}
    for result in ([first | later, second | earlier], [first | {"created": None}], [first | {"created": "yesterday"}]):
        server.next(JSONResponse({"success": True, "errors": [], "messages": [], "result": result}))
        assert (await fault_of(open_one().list_page(None))).code == "answer-malformed"


async def test_a_look_up_that_is_answered_with_everything_never_says_there_is_none(
    server: CloudflareServer, open_one: Any
) -> None:
    body = server.body(server.add("other"))
    server.next(JSONResponse({"success": True, "errors": [], "messages": [], "result": [body] * 1000}))
    assert (await fault_of(open_one().lookup("ref-1"))).code == "answer-malformed"


# --------------------------------------------------------------------------------------------------------- the video


async def test_a_failure_is_read_in_both_spellings(server: CloudflareServer, open_one: Any) -> None:
    video = server.settle(server.add("ref-1").id, "errored", code="ERR_MALFORMED_VIDEO")
    for server.old_spelling in (False, True):
        found = await open_one().get(video.id)
        assert (found.state, found.reason) == (RemoteState.ERRORED, "file-corrupt")
        assert found.detail == "ERR_MALFORMED_VIDEO: it did not work"


async def test_a_video_is_ready_before_all_of_its_qualities_are(server: CloudflareServer, open_one: Any) -> None:
    video = server.settle(server.add("ref-1").id, "ready")
    assert server.body(video)["status"]["pctComplete"] == "39.000000"
    found = await open_one().get(video.id)
    assert (found.state, found.duration_ms, found.width, found.height) == (RemoteState.READY, 4020, 320, 240)


@pytest.mark.parametrize("word", ["queued", "inprogress", "live-inprogress", "downloading", "unheard-of"])
async def test_every_other_state_is_processing(server: CloudflareServer, open_one: Any, word: str) -> None:
    body = server.body(server.add("ref-1")) | {"status": {"state": word}}
    video = open_one().video_of(body)
    assert (video.state, video.awaits_bytes) == (RemoteState.PROCESSING, False)
    assert ("unheard-of" in video.detail) == (word == "unheard-of")


async def test_the_reference_can_be_the_name_so_that_the_creator_is_left_alone(
    server: CloudflareServer, open_one: Any
) -> None:
    host = open_one(reference_in="name")
    made = await host.create(request_for("ref-1", title="A title"))
    asked = server.videos[made.remote_id].asked
    assert "creator" not in asked
    assert (asked["meta"]["name"], asked["meta"]["title"]) == ("ref-1", "A title")
    found = await host.lookup("ref-1")
    assert [(video.remote_id, video.ref, video.title) for video in found] == [(made.remote_id, "ref-1", "A title")]
    assert server.seen[-1].query.startswith("video_name=ref-1")


async def test_metadata_goes_along_and_cannot_replace_what_is_ours(server: CloudflareServer, open_one: Any) -> None:
    request = request_for("ref-1", metadata={"tenant": "acme", "name": "theirs", "longhaul-ref": "x", "n": 7})
    meta = server.videos[(await open_one().create(request)).remote_id].asked["meta"]
    assert (meta["tenant"], meta["name"], meta["longhaul-ref"]) == ("acme", request.title, "ref-1")
    assert "n" not in meta


@pytest.mark.parametrize(
    ("status", "code", "reason"),
    [(400, "6003", "credentials-refused"), (400, "10011", "plan-limit"), (400, "10004", "destination-refused-input"),
     (413, "10004", "destination-refused-input"), (429, "10011", "rate-limited")],
)  # fmt: skip
async def test_a_refusals_code_counts_where_its_status_says_too_little(
    server: CloudflareServer, open_one: Any, status: int, code: str, reason: str
) -> None:
    server.next(server.error(status, "no", code))
    fault = await fault_of(open_one().create(request_for()))
    assert (fault.code, fault.landed) == (reason, False)


# ----------------------------------------------------------------------------------------------------------- uploads


@pytest.fixture
def film(tmp_path: Path) -> Path:
    path = tmp_path / "film.mp4"
    path.write_bytes(bytes(range(256)) * 41_000)  # two parts, and no whole number of 256 KiB
    return path


async def test_an_upload_says_what_a_create_says(server: CloudflareServer, open_one: Any, film: Path) -> None:
    about = About(description="Füße", tags=("a", "b"), folder="Attic", privacy="unlisted")
    request = request_for("ref-1", address=str(film), about=about, metadata={"tenant": "acme"})
    made = await open_one().upload(request, None, keep=Kept(), turn=no_wait)
    copied = await open_one().create(request_for("ref-1", about=about, metadata={"tenant": "acme"}))
    sent, fetched = server.videos[made.remote_id], server.videos[copied.remote_id]
    assert sent.asked["meta"] == fetched.asked["meta"]
    assert sent.asked["creator"] == fetched.asked["creator"] == "ref-1"
    assert sent.private and fetched.private


async def test_what_tus_has_no_place_for_is_said_afterwards_also_by_the_next_process(
    server: CloudflareServer, open_one: Any, film: Path
) -> None:
    request = request_for("ref-1", address=str(film), title="A title", about=About(description="x" * 100_000))
    kept = Kept(kill_at=film.stat().st_size)
    with pytest.raises(asyncio.CancelledError):
        await open_one(reference_in="name").upload(request, None, keep=kept, turn=no_wait)
    for server.upload_gone in (False, True):
        made = await open_one(reference_in="name").upload(request, kept[-1], keep=Kept(), turn=no_wait)
        meta = server.videos[made.remote_id].asked["meta"]
        assert (meta["name"], meta["title"], len(meta["description"])) == ("ref-1", "A title", 100_000)
        server.videos[made.remote_id].asked["meta"] = {"name": "ref-1"}
    assert max(len(value) for seen in server.seen for value in seen.headers.values()) < 4_000


async def test_a_foreign_upload_address_gets_no_credentials_and_is_kept_nowhere(
    server: CloudflareServer, open_one: Any, film: Path
) -> None:
    server.foreign_uploads = True
    kept = Kept(kill_at=1)
    with pytest.raises(asyncio.CancelledError):
        await open_one().upload(request_for(address=str(film)), None, keep=kept, turn=no_wait)
    assert server.signatures
    assert not any(signature in place.place for signature in server.signatures for place in kept)
    # What was announced can't be gone on with, and makes room for a new one.
    made = await open_one().upload(request_for(address=str(film)), kept[-1], keep=Kept(), turn=no_wait)
    assert list(server.videos) == [made.remote_id]
    assert server.videos[made.remote_id].content == film.read_bytes()


async def test_a_file_that_had_come_whole_when_the_answer_was_lost_is_not_sent_again(
    server: CloudflareServer, open_one: Any, film: Path
) -> None:
    for server.foreign_uploads in (False, True):
        server.videos.clear()
        kept = Kept()
        made = await open_one().upload(request_for(address=str(film)), None, keep=kept, turn=no_wait)
        server.upload_gone, before = True, len(server.seen)
        again = await open_one().upload(request_for(address=str(film)), kept[0], keep=Kept(), turn=no_wait)
        server.upload_gone = False
        assert again.remote_id == made.remote_id
        assert [seen.method for seen in server.seen[before:]] == (
            ["GET"] if server.foreign_uploads else ["HEAD", "GET"]
        )


async def test_an_upload_that_the_host_forgot_begins_anew(server: CloudflareServer, open_one: Any, film: Path) -> None:
    kept = Kept(kill_at=1)
    with pytest.raises(asyncio.CancelledError):
        await open_one().upload(request_for(address=str(film)), None, keep=kept, turn=no_wait)
    server.uploads.clear()
    made = await open_one().upload(request_for(address=str(film)), kept[-1], keep=Kept(), turn=no_wait)
    assert server.videos[made.remote_id].content == film.read_bytes()


async def test_a_video_that_was_deleted_while_it_waited_is_announced_anew(
    server: CloudflareServer, open_one: Any, film: Path
) -> None:
    for server.foreign_uploads in (False, True):
        kept = Kept(kill_at=1)
        with pytest.raises(asyncio.CancelledError):
            await open_one().upload(request_for(address=str(film)), None, keep=kept, turn=no_wait)
        server.videos.clear()
        server.uploads.clear()
        made = await open_one().upload(request_for(address=str(film)), kept[-1], keep=Kept(), turn=no_wait)
        assert server.videos[made.remote_id].content == film.read_bytes()


async def test_a_host_that_forgets_while_it_is_sent_to_is_a_fault_and_no_loop(
    server: CloudflareServer, open_one: Any, film: Path
) -> None:
    server.upload_gone = True
    fault = await fault_of(open_one().upload(request_for(address=str(film)), None, keep=Kept(), turn=no_wait))
    assert (fault.code, fault.scope, fault.permanent) == ("destination-error", Scope.ROW, False)
    assert len(server.seen) < 5


async def test_an_announcement_whose_answer_was_lost_may_have_made_a_shell_that_no_look_up_takes_for_a_video(
    server: CloudflareServer, open_one: Any, film: Path
) -> None:
    server.next("lost")
    fault = await fault_of(open_one().upload(request_for(address=str(film)), None, keep=Kept(), turn=no_wait))
    assert (fault.code, fault.landed) == ("answer-lost", True)
    assert [video.awaits_bytes for video in await open_one().lookup("ref-1")] == [True]


def test_parts_have_the_sizes_that_the_host_takes(server: CloudflareServer) -> None:
    for wrong in (5_242_879, 5_242_881, 209_715_456):
        with pytest.raises(Fault, match=r"options\.chunk_bytes"):
            server.open(options={"chunk_bytes": wrong})


async def test_too_long_a_track_is_refused_without_a_call(server: CloudflareServer, open_one: Any) -> None:
    video = server.add("ref-1")
    track = Attachment("subtitles", "https://files.example/a.vtt", b"WEBVTT\n" + b"x" * 10_000_000, "de")
    assert (await fault_of(open_one().attach(video.id, track, turn=no_wait))).permanent
    assert not server.seen


# ------------------------------------------------------------------------------------------------------ before a run


async def findings(host: Any) -> dict[str, Any]:
    return {finding.name: finding for finding in await host.check()}


async def test_a_check_tells_where_deliveries_go_and_whether_their_secret_is_known(
    server: CloudflareServer, open_one: Any
) -> None:
    found = (await findings(open_one()))["webhook"]
    assert found.good and "https://longhaul.example/hooks/cloudflare" in found.words
    assert server.hook is not None
    server.hook["secret"] = "another"
    found = (await findings(open_one()))["webhook"]
    assert found.good is False and "another" not in found.words
    server.hook = None
    found = (await findings(open_one()))["webhook"]
    assert found.good is False and "stream/webhook" in found.words


async def test_a_token_of_the_account_is_as_good_as_a_users(server: CloudflareServer, open_one: Any) -> None:
    server.user_token = False
    assert (await findings(open_one()))["credentials"].good
    assert [seen.path for seen in server.seen][:2] == ["/user/tokens/verify", f"/accounts/{ACCOUNT}/tokens/verify"]


async def test_a_check_names_the_right_that_is_missing_and_where_to_give_it(
    server: CloudflareServer, open_one: Any
) -> None:
    server.next(server.good({"id": "x", "status": "active"}), server.error(403, "Authentication error"))
    found = (await findings(open_one()))["right to read"]
    assert found.good is False
    assert "Stream > Edit" in found.words and "dash.cloudflare.com" in found.words


async def test_an_expired_token_is_told(server: CloudflareServer, open_one: Any) -> None:
    server.next(server.good({"id": "x", "status": "expired"}))
    assert (await findings(open_one()))["credentials"].good is False
