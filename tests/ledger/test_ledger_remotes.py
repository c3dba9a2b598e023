"""The destination's own view: walks of several runs fill it, and it names what no row of ours owns."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from ledger_rig import ACCOUNT, Library, ref, video
from test_ledger_claims import losing

from destinations.base import RemotePage, RemoteState
from ledger import remotes
from ledger.engine import Engine
from ledger.remotes import RemoteWalk, Stranger


async def begin(engine: Engine, run: str = "first", *, asker: str = "reconcile", account: str = ACCOUNT) -> RemoteWalk:
    return await remotes.begin(engine, account, run, asker)


async def test_a_walk_goes_on_where_a_killed_one_stood(library: Library) -> None:
    engine = library.engine
    walk = await begin(engine)
    assert (walk.cursor, walk.requests) == (None, 0)
    await remotes.write_page(engine, ACCOUNT, walk, RemotePage([video("r1"), video("r2")], "c1"))
    again = await begin(engine)
    assert (again.listing, again.cursor, again.requests) == (walk.listing, "c1", 1)
    assert await remotes.age_s(engine, ACCOUNT, "first") is None, "it is not complete"
    await remotes.write_page(engine, ACCOUNT, again, RemotePage([video("r3")], None))
    age = await remotes.age_s(engine, ACCOUNT, "first")
    assert age is not None and 0 <= age < 60
    assert await remotes.age_s(engine, ACCOUNT, "second") is None, "another's walk is no view of its own"
    assert (await begin(engine)).listing > walk.listing, "that one is over"


async def test_a_later_question_begins_anew_and_does_not_go_on_with_what_an_earlier_one_saw(library: Library) -> None:
    engine = library.engine
    earlier = await begin(engine, asker="one")
    await remotes.write_page(engine, ACCOUNT, earlier, RemotePage([video("r1")], "c1"))
    later = await begin(engine, asker="another")
    assert later.listing > earlier.listing
    assert later.cursor is None


async def test_walks_of_several_runs_go_on_side_by_side_and_each_run_has_its_view(library: Library) -> None:
    await library.fill(2, state="ready")
    for n, asset in enumerate(library.refs):
        await library.put([asset], remote_id=f"r{n}")
    engine = library.engine
    older, newer = await begin(engine), await begin(engine, "second")
    elsewhere = await begin(engine, account="another-account")
    await remotes.write_page(engine, ACCOUNT, older, RemotePage([video("r0", title="old")], "c1"))
    await remotes.write_page(engine, ACCOUNT, newer, RemotePage([video("r0", title="new")], None))
    await remotes.write_page(engine, "another-account", elsewhere, RemotePage([video("r1")], None))
    assert await remotes.seen(engine, ACCOUNT, "first", 1) == {}, "its own walk is not complete"
    await remotes.write_page(engine, ACCOUNT, older, RemotePage([video("r1")], None))
    seen = await remotes.seen(engine, ACCOUNT, "first", 1)
    assert {key: found.title for key, found in seen.items()} == {"r0": "new", "r1": None}
    assert await engine.fetchval("select listing from remote where remote_id = 'r0'") == newer.listing


async def test_a_list_that_tells_no_states_leaves_those_that_another_walk_has_asked_for(library: Library) -> None:
    await library.fill(1, state="ready")
    await library.put(library.refs, remote_id="r0")
    engine = library.engine
    own, others = await begin(engine), await begin(engine, "second")
    asked = video("r0", duration_ms=5, width=1, height=2, size=3)
    bare = video("r0", RemoteState.PROCESSING, title="renamed")
    await remotes.write_page(engine, ACCOUNT, others, RemotePage([bare], None), told=())
    assert await engine.fetchval("select state from remote") is None
    await remotes.write_page(engine, ACCOUNT, own, RemotePage([asked], None), told=["r0"])
    again = await begin(engine, "second")
    await remotes.write_page(engine, ACCOUNT, again, RemotePage([bare], None), told=())
    assert await remotes.seen(engine, ACCOUNT, "first", 1) == {"r0": replace(asked, title="renamed")}


async def test_many_walks_over_the_same_videos_at_once_do_not_hinder_each_other(library: Library, open_engine) -> None:
    engines = [await open_engine() for _ in range(4)]
    walks = [await begin(engine, f"run-{n}") for n, engine in enumerate(engines)]
    videos = [video(f"r{n}") for n in range(200)]
    pages = [RemotePage(videos if n % 2 else videos[::-1], None) for n in range(len(walks))]
    await asyncio.gather(
        *(
            remotes.write_page(engine, ACCOUNT, walk, page)
            for engine, walk, page in zip(engines, walks, pages, strict=True)
        )
    )
    assert await library.engine.fetchval("select count(*) from remote") == 200
    assert await library.engine.fetchval("select count(*) from remote_listing where ended_at is not null") == 4


async def test_the_last_page_sent_again_after_a_lost_connection_ends_the_walk_once(library: Library) -> None:
    walk = await begin(library.engine)
    await remotes.write_page(losing(library.engine), ACCOUNT, walk, RemotePage([video("r1", title="kept")], None))
    await remotes.write_page(library.engine, ACCOUNT, walk, RemotePage([video("r1", title="late")], None))
    assert await library.engine.fetchval("select title from remote") == "kept"
    assert await library.engine.fetchval("select requests from remote_listing") == 1


async def test_a_page_sees_its_own_videos_in_the_newest_complete_walk(library: Library) -> None:
    await library.fill(4, page_size=2, state="ready")
    for n, asset in enumerate(library.refs):
        await library.put([asset], remote_id=f"r{n}")
    engine = library.engine
    walk = await begin(engine)
    whole = video("r0", ref=ref(0), duration_ms=5, width=1, height=2, size=3, playback="p", title="t\0")
    await remotes.write_page(
        engine, ACCOUNT, walk, RemotePage([whole, whole, video("r1"), video("r2"), video("x")], None)
    )
    assert await remotes.seen(engine, ACCOUNT, "first", 1) == {
        "r0": video("r0", ref=ref(0), duration_ms=5, width=1, height=2, size=3, playback="p", title="t\ufffd"),
        "r1": video("r1"),
    }
    walk = await begin(engine)
    await remotes.write_page(engine, ACCOUNT, walk, RemotePage([video("r0", RemoteState.ERRORED)], "c"))
    assert set(await remotes.seen(engine, ACCOUNT, "first", 1)) == {"r0", "r1"}, "not complete: the one before counts"
    await remotes.write_page(engine, ACCOUNT, walk, RemotePage([], None))
    seen = await remotes.seen(engine, ACCOUNT, "first", 1)
    assert {key: video.state for key, video in seen.items()} == {"r0": RemoteState.ERRORED}, "r1 is gone"


async def test_wild_numbers_in_a_list_are_unknown(library: Library) -> None:
    walk = await begin(library.engine)
    await remotes.write_page(
        library.engine, ACCOUNT, walk, RemotePage([video("r1", width=2**31, duration_ms=2**70)], None)
    )
    assert list(await library.engine.fetchrow("select width, duration_ms from remote")) == [None, None]


async def test_duplicates_and_orphans_are_named_and_nothing_else(library: Library) -> None:
    await library.fill(4, state="ready")
    for n, asset in enumerate(library.refs[:3]):
        await library.put([asset], remote_id=f"r{n}")
    listed = [
        video("r0", ref=ref(0)),
        video("r0-again", ref=ref(0), title="twice"),
        video(
            "r1", ref=ref(2)
        ),  # ours, with another's reference on it: no stranger, or it would be offered for removal
        video("r2", ref=ref(2)),
        video("lost", ref=ref(3)),
        video("orphan", ref="lh-nobody", state=RemoteState.PROCESSING),
        video("removed", ref=ref(0), state=RemoteState.DELETED),
        video("theirs", ref="their-own"),
        video("bare"),
    ]
    walk = await begin(library.engine)
    assert await remotes.strangers(library.engine, ACCOUNT) == []
    await remotes.write_page(library.engine, ACCOUNT, walk, RemotePage(listed, None))
    found = await remotes.strangers(library.engine, ACCOUNT)
    assert sorted(found, key=lambda stranger: stranger.remote_id) == [
        Stranger("lost", ref(3), None, "ready", None),
        Stranger("orphan", "lh-nobody", None, "processing", None),
        Stranger("r0-again", ref(0), "twice", "ready", "r0"),
    ]
    assert len(await remotes.strangers(library.engine, ACCOUNT, limit=2)) == 2


async def test_a_video_that_processes_for_too_long_is_given_up_and_the_others_are_not(library: Library) -> None:
    await library.fill(3, state="processing")
    await library.put(library.refs[2:], state="ready")
    await library.engine.execute("update asset set processing_at = now()")
    await library.engine.execute(
        "update asset set processing_at = now() - interval '100 seconds' where ref = any($1)", library.refs[1:]
    )
    assert await remotes.give_up(library.engine, "first", 1, 60) == 1
    row = await library.row(library.refs[1])
    assert (row["state"], row["reason"]) == ("failed", "not-ready-in-time")
    assert row["detail"] == "still processing 100 s after its create"
    assert await library.states() == {"processing": 1, "failed": 1, "ready": 1}


async def test_a_page_says_which_videos_it_waits_for_and_for_how_long_nothing_has_moved(library: Library) -> None:
    await library.fill(3, state="processing")
    for n, asset in enumerate(library.refs):
        await library.put([asset], remote_id=f"r{n}")
    await library.put(library.refs[2:], state="ready")
    await library.engine.execute("update asset set updated_at = now() - interval '50 minutes'")
    found = await remotes.waiting(library.engine, "first", 1)
    assert found.remote_ids == ["r0", "r1"]
    assert 3000 <= found.quiet_s < 3060
    nothing = await remotes.waiting(library.engine, "first", 9)
    assert (list(nothing.remote_ids), nothing.quiet_s) == ([], 0)
