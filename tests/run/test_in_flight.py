"""A host that processes so many videos at once and refuses more: none is ever refused."""

from __future__ import annotations

CAP = 4


async def test_a_host_that_caps_the_videos_in_the_making_refuses_none_and_events_free_the_places(rig_factory):
    rig = await rig_factory(
        faults={"in_flight": CAP, "ingest_s": 0.1, "ingest_jitter_s": 0.2},
        account={"in_flight": CAP, "spend": 1.0, "settle_deadline_s": 60},
    )
    result = await rig.migrate("capped", rig.manifest(rig.videos(30)), page_size=10)
    assert result["states"] == {"verified": 30}
    stats = rig.sandbox.stats()
    assert (stats["refusals"]["in_flight"], stats["creates"]) == (0, 30)
    # Nobody was refused, so nobody lost an attempt.
    assert await rig.engine.fetchval("select max(attempt) from step where phase = 'create'") == 1
    # Places are waited for within a page's activity: nobody goes in rounds for them.
    assert {phase["phase"]: phase["passes"] for phase in (await rig.progress("capped"))["phases"]}["create"] == 1


async def test_where_no_event_comes_the_host_is_asked_who_has_left_and_the_creates_go_on(rig_factory):
    rig = await rig_factory(
        faults={"in_flight": CAP, "webhooks": False},
        account={"in_flight": CAP, "spend": 1.0, "settle_deadline_s": 0.5},
    )
    result = await rig.migrate("deaf", rig.manifest(rig.videos(CAP + 2)))
    assert result["states"] == {"verified": CAP + 2}
    assert rig.sandbox.stats()["refusals"]["in_flight"] == 0


async def test_two_runs_share_the_places_of_their_account(rig_factory):
    rig = await rig_factory(
        faults={"in_flight": CAP, "ingest_s": 0.1}, account={"in_flight": CAP, "spend": 1.0, "settle_deadline_s": 60}
    )
    handles = [
        await rig.start(f"one-of-{n}", rig.manifest(rig.videos(8, f"r{n}-"), f"{n}.csv"), tenant=f"tenant-{n}")
        for n in range(2)
    ]
    for handle in handles:
        assert (await handle.result())["states"] == {"verified": 8}
    assert rig.sandbox.stats()["refusals"]["in_flight"] == 0
