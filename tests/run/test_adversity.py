"""Lost answers, pushback, and webhooks that come early, late, twice or never: in a whole run."""

from __future__ import annotations

import worker
from ledger import questions


async def test_lost_answers_are_looked_up_and_adopted_and_never_made_twice(rig_factory, unique):
    rig = await rig_factory(
        faults={"lost_answer_rate": 0.2, "error_after_rate": 0.1, "empty_body_rate": 0.1, "operations": ["create"]}
    )
    result = await rig.migrate(unique, rig.manifest(rig.videos(60)))
    assert result["states"] == {"verified": 60}
    assert result["adopted"] > 0
    assert rig.sandbox.stats()["duplicates_ever"] == 0


async def test_errors_before_the_effect_are_tried_again(rig_factory, unique):
    rig = await rig_factory(
        faults={"error_before_rate": 0.2, "operations": ["create"]}, account={"timeout_s": 1.0, "quiet_s": 3.0}
    )
    result = await rig.migrate(unique, rig.manifest(rig.videos(30)))
    assert result["states"] == {"verified": 30}
    assert rig.sandbox.stats()["duplicates_ever"] == 0


async def test_pushback_pauses_the_account_and_costs_no_row_an_attempt(rig_factory, unique):
    rig = await rig_factory(faults={"script": ["refuse_429"] * 3, "retry_after_s": 1.0})
    result = await rig.migrate(unique, rig.manifest(rig.videos(10)))
    assert result["states"] == {"verified": 10}
    most = await rig.engine.fetchval("select max(attempt) from step where phase = 'create'")
    assert most == 1
    pauses = await rig.engine.fetchval("select pauses from account where account = 'sandbox'")
    assert 1 <= pauses <= 3


async def test_a_declared_limit_is_kept_and_never_tripped(rig_factory, unique):
    limit = {"requests": 40, "per_s": 2.0, "block_s": 5.0}
    rig = await rig_factory(
        faults={"limits": [limit]}, account={"limits": [{"requests": 40, "per_s": 2.0}], "spend": 0.9}
    )
    result = await rig.migrate(unique, rig.manifest(rig.videos(60)))
    assert result["states"] == {"verified": 60}
    assert rig.sandbox.stats()["refusals_429"] == 0


async def test_webhooks_twice_late_and_out_of_order_change_nothing(rig_factory, unique):
    rig = await rig_factory(
        faults={
            "webhook_duplicate_rate": 0.5,
            "webhook_late_rate": 0.2,
            "webhook_late_s": 1.0,
            "webhook_reorder_rate": 0.3,
            "webhook_reorder_s": 1.0,
            "webhook_forged_rate": 0.2,
        }
    )
    result = await rig.migrate(unique, rig.manifest(rig.videos(40)))
    assert result["states"] == {"verified": 40}
    stats = rig.sandbox.stats()
    assert stats["webhooks"]["forged_accepted"] == 0
    gets = [count for request, count in stats["requests"].items() if request.startswith("GET /v1/videos/")]
    assert gets == [], "events came, so nobody was asked"


async def test_without_any_webhook_the_sweep_converges(rig_factory, unique):
    rig = await rig_factory(faults={"webhook_missing_rate": 1.0, "ingest_s": 0.5}, account={"settle_deadline_s": 1.0})
    result = await rig.migrate(unique, rig.manifest(rig.videos(40)), page_size=10)
    assert result["states"] == {"verified": 40}


async def test_many_missing_webhooks_are_swept_with_one_list_for_all_pages(rig_factory, unique):
    rig = await rig_factory(faults={"webhook_missing_rate": 1.0}, account={"settle_deadline_s": 1.0})
    result = await rig.migrate(unique, rig.manifest(rig.videos(90)), page_size=30)
    assert result["states"] == {"verified": 90}
    lists = rig.sandbox.stats()["requests"]["GET /v1/videos"]
    assert lists <= 3, "one sweep (two where pages came late), one reconciliation"


async def test_a_ready_event_before_the_creates_answer_is_kept_and_never_taken_back(rig_factory, unique):
    rig = await rig_factory(faults={"answer_delay_ms": 400, "operations": ["create"]})
    result = await rig.migrate(unique, rig.manifest(rig.videos(10)))
    assert result["states"] == {"verified": 10}
    assert result["creates"] == 10
    outcomes = await rig.engine.fetch("select distinct outcome from inbox")
    assert [row["outcome"] for row in outcomes] == ["applied"]


async def test_a_video_that_the_destination_cannot_process_is_rejected_with_its_words(rig_factory, unique):
    rig = await rig_factory(faults={"ingest_error_rate": 1.0})
    result = await rig.migrate(unique, rig.manifest(rig.videos(3)))
    assert set(result["states"]) <= {"rejected", "failed"}
    (history,) = await questions.history(rig.engine, "v0")
    assert history.asset["detail"]


async def test_a_wrong_duration_at_the_destination_is_a_mismatch_with_both_values(rig_factory, unique):
    rig = await rig_factory(faults={"duration_off_rate": 1.0, "duration_off_ms": 60_000})
    result = await rig.migrate(unique, rig.manifest(rig.videos(2)))
    assert result["states"] == {"mismatched": 2}
    (history,) = await questions.history(rig.engine, "v0")
    assert history.asset["reason"] == "duration-differs"
    assert "62.0" in history.asset["detail"]


async def test_two_workers_share_the_work_and_make_each_video_once(rig_factory, unique):
    rig = await rig_factory(faults={"latency_ms": 20})
    async with worker.running(rig.settings, await worker.connect(rig.settings, "second")):
        result = await rig.migrate(unique, rig.manifest(rig.videos(120)), page_size=20)
    assert result["states"] == {"verified": 120}
    assert rig.sandbox.stats()["duplicates_ever"] == 0
    assert rig.sandbox.stats()["creates"] == 120
