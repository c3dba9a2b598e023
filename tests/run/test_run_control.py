"""Pausing, resuming, approving, cancelling and parking a run."""

from __future__ import annotations

import asyncio

import pytest
from temporalio.client import WorkflowFailureError, WorkflowUpdateFailedError

import worker
from ledger import budgets, questions


async def test_a_paused_run_begins_nothing_more_and_goes_on_when_told(rig_factory, unique):
    rig = await rig_factory(faults={"latency_ms": 150}, worker={"rows_in_hand": 2})
    handle = await rig.start(unique, rig.manifest(rig.videos(40)), page_size=10)
    await rig.until(lambda: rig.sandbox.stats()["creates"] >= 4, "creates have begun")

    answer = await handle.execute_update("pause", {"note": "lunch"})

    assert answer["state"] == "paused"
    await rig.until(lambda: _in_hand(rig), "what was in hand is finished")
    made = rig.sandbox.stats()["creates"]
    assert made < 40
    line = await questions.run_line(rig.engine, unique)
    assert (line.state, line.detail) == ("paused", "lunch")

    await handle.execute_update("resume", {})
    result = await handle.result()
    assert result["states"] == {"verified": 40}
    assert rig.sandbox.stats()["creates"] == 40


async def _in_hand(rig):
    return await rig.engine.fetchval("select count(*) from asset where claim is not null") == 0


async def test_pause_and_resume_work_as_signals_too(rig_factory, unique):
    rig = await rig_factory(faults={"latency_ms": 100}, worker={"rows_in_hand": 2})
    handle = await rig.start(unique, rig.manifest(rig.videos(20)), page_size=5)
    await rig.until(lambda: rig.sandbox.stats()["creates"] >= 2, "creates have begun")
    await handle.signal("pause")
    await rig.until(lambda: _state_is(rig, unique, "paused"), "the run is paused")
    await handle.signal("resume")
    assert (await handle.result())["states"] == {"verified": 20}


async def _state_is(rig, run, state):
    found = await rig.engine.fetchval("select state from run where run = $1", run)
    return found == state


async def _no_attempts_left(rig):
    return await rig.engine.fetchval("select max(attempts) from asset where state <> 'rejected'") == 0


async def test_a_run_waits_for_approval_with_its_numbers_before_anything_is_created(rig, unique):
    rows = [*rig.videos(5), ("empty", f"{rig.files}/empty.mp4")]
    handle = await rig.start(unique, rig.manifest(rows), approval=True)
    await rig.until(lambda: _state_is(rig, unique, "awaiting-approval"), "the run waits")
    progress = await rig.until(lambda: _estimated(rig, unique), "the estimate is shown")
    assert progress["estimate"]["to_create"] == 5
    assert progress["estimate"]["rejected"] == {"file-empty": 1}
    assert rig.sandbox.stats()["creates"] == 0

    await handle.execute_update("approve", {})
    assert (await handle.result())["states"] == {"verified": 5, "rejected": 1}


async def _estimated(rig, run):
    progress = await rig.progress(run)
    return progress if progress["estimate"] else None


async def test_approval_given_early_is_not_asked_for_again(rig, unique):
    handle = await rig.start(unique, rig.manifest(rig.videos(5)), approval=True)
    await handle.execute_update("approve", {})
    assert (await handle.result())["states"] == {"verified": 5}


async def test_a_cancelled_run_hands_back_what_it_has_not_finished_and_a_later_run_takes_it_up(rig_factory, unique):
    rig = await rig_factory(faults={"latency_ms": 100}, worker={"rows_in_hand": 3})
    manifest = rig.manifest(rig.videos(30))
    handle = await rig.start(unique, manifest, page_size=10)
    await rig.until(lambda: rig.sandbox.stats()["creates"] >= 3, "creates have begun")
    await handle.cancel()
    with pytest.raises(WorkflowFailureError):
        await handle.result()
    line = await questions.run_line(rig.engine, unique)
    assert line.state == "cancelled"
    assert (await rig.states()).get("skipped", 0) > 0

    rig.sandbox.faults(latency_ms=0)
    result = await rig.migrate(f"{unique}-later", manifest)

    assert result["library"] == {"verified": 30}
    assert rig.sandbox.stats()["duplicates"] == 0


async def test_a_wrong_credential_parks_the_run_with_the_reason_and_it_goes_on_when_mended(rig_factory, unique):
    rig = await rig_factory(account={"token": "not-the-token"}, work=False)
    async with worker.running(rig.settings, rig.client):
        handle = await rig.start(unique, rig.manifest(rig.videos(12)), page_size=4)
        await rig.until(lambda: _state_is(rig, unique, "parked"), "the run parks")
        progress = await rig.progress(unique)
        assert progress["park"]["reason"] == "credentials-refused"
        assert progress["park"]["wait_s"] is None
        line = await questions.run_line(rig.engine, unique)
        assert (line.state, line.reason) == ("parked", "credentials-refused")
        # Other pages' rows may still be waiting for their calls' turn.
        await rig.until(lambda: _no_attempts_left(rig), "no row loses an attempt")

    account = rig.settings.accounts["sandbox"].model_copy(
        update={"token": type(rig.settings.accounts["sandbox"].token)(rig.sandbox.token)}
    )
    mended = rig.settings.model_copy(update={"accounts": {"sandbox": account}})
    async with worker.running(mended, rig.client):
        await handle.execute_update("resume", {})
        assert (await handle.result())["states"] == {"verified": 12}
    assert rig.sandbox.stats()["creates"] == 12


async def test_no_pages_at_once_is_paused_and_more_go_on(rig, unique):
    handle = await rig.start(unique, rig.manifest(rig.videos(10)), page_size=5, pages_at_once=0)
    await rig.until(lambda: _phase_is(rig, unique, "list"), "the run is open")
    assert await rig.states() == {}
    await handle.execute_update("parallel", {"pages_at_once": 2})
    assert (await handle.result())["states"] == {"verified": 10}


async def test_the_pace_update_stops_and_restores_the_account_while_the_run_goes_on(rig, unique):
    await budgets.set_pace(rig.engine, "sandbox", stop=True)
    handle = await rig.start(unique, rig.manifest(rig.videos(10)), page_size=5)
    await rig.until(lambda: _phase_is(rig, unique, "create"), "creates could begin")
    told = await handle.execute_update("pace")
    assert (told["factor"], told["account"], rig.sandbox.stats()["creates"]) == (0.0, "sandbox", 0)
    with pytest.raises(WorkflowUpdateFailedError) as refused:
        await handle.execute_update("pace", {"factor": 0.5, "per_s": 3})
    assert "one of" in str(refused.value.cause.cause)
    told = await handle.execute_update("pace", {"restore": True})
    assert told["factor"] == 1.0
    assert (await handle.result())["states"] == {"verified": 10}


async def _phase_is(rig, run, phase):
    return (await rig.progress(run))["phase"] == phase


async def test_a_worker_that_ends_hands_back_what_it_has_not_begun_and_another_goes_on(rig_factory, unique):
    rig = await rig_factory(faults={"latency_ms": 100}, work=False, worker={"rows_in_hand": 4})
    manifest = rig.manifest(rig.videos(40))
    async with worker.running(rig.settings, rig.client):
        handle = await rig.start(unique, manifest, page_size=10)
        await rig.until(lambda: rig.sandbox.stats()["creates"] >= 4, "creates have begun")
    assert await _in_hand(rig), "nothing is left claimed"
    made = rig.sandbox.stats()["creates"]
    assert made < 40
    async with worker.running(rig.settings, rig.client):
        assert (await asyncio.wait_for(handle.result(), 60))["states"] == {"verified": 40}
    assert rig.sandbox.stats()["creates"] == 40
    lost = await rig.engine.fetchval("select count(*) from step where outcome is null or outcome = 'lost'")
    assert lost == 0


async def test_dead_letters_are_taken_up_again_once_what_was_wrong_is_mended(rig_factory, unique):
    rig = await rig_factory(faults={"ingest_error_rate": 1.0})
    await rig.migrate(unique, rig.manifest([*rig.videos(6), ("gone", f"{rig.files}/late.mp4")]))
    assert (await rig.states()).get("verified", 0) == 0

    rig.sandbox.faults(ingest_error_rate=0.0)
    (rig.media / "late.mp4").write_bytes((rig.media / "good.mp4").read_bytes())
    try:
        manifest = rig.folder / "library.csv"
        result = await rig.migrate(f"{unique}-redrive", manifest, redrive={"of_run": unique})
    finally:
        (rig.media / "late.mp4").unlink()

    assert result["states"] == {"verified": 7}
    assert await rig.states() == {"verified": 7}
    (history,) = await questions.history(rig.engine, "gone")
    assert [step["outcome"] for step in history.steps] == ["rejected", "inventoried", "created", "verified"]


async def test_a_redrive_by_reason_leaves_the_others_where_they_are(rig, unique):
    rows = [("empty", f"{rig.files}/empty.mp4"), ("page", f"{rig.files}/page.mp4"), *rig.videos(1)]
    await rig.migrate(unique, rig.manifest(rows))
    result = await rig.migrate(
        f"{unique}-redrive", rig.folder / "library.csv", redrive={"of_run": unique, "reasons": ["file-empty"]}
    )
    assert result["states"] == {"rejected": 1}
    owners = {row["source_id"]: row["run"] for row in await rig.engine.fetch("select source_id, run from asset")}
    assert owners == {"empty": f"{unique}-redrive", "page": unique, "v0": unique}


async def test_a_destination_that_is_down_parks_the_run_and_no_row_pays_for_it(rig_factory, unique):
    rig = await rig_factory(faults={"refuse_503_rate": 1.0, "retry_after_s": 0.5})
    handle = await rig.start(unique, rig.manifest(rig.videos(26)))
    await rig.until(lambda: _state_is(rig, unique, "parked"), "the run parks")
    progress = await rig.progress(unique)
    assert progress["park"]["reason"] == "destination-down"
    assert progress["park"]["wait_s"] == 60.0, "it tries again by itself"
    await rig.until(lambda: _no_attempts_left(rig), "no row loses an attempt")

    rig.sandbox.faults(refuse_503_rate=0.0)
    await handle.execute_update("resume", {})
    assert (await handle.result())["states"] == {"verified": 26}


async def test_what_the_source_says_now_is_what_a_redrive_uses(rig, unique):
    await rig.migrate(unique, rig.manifest([("moved", f"{rig.files}/old-place.mp4"), *rig.videos(1)]))
    assert await rig.states() == {"rejected": 1, "verified": 1}

    corrected = rig.manifest([("moved", f"{rig.files}/other.mp4"), *rig.videos(1)])
    again = await rig.migrate(f"{unique}-again", corrected)
    assert (again["added"], again["owned"]) == (0, 2), "the row stays with the run that has it"
    result = await rig.migrate(f"{unique}-redrive", corrected, redrive={"reasons": ["source-not-found"]})
    assert result["states"] == {"verified": 1}
    assert await rig.states() == {"verified": 2}


async def test_a_message_that_comes_before_any_worker_takes_effect_when_one_comes(rig_factory, unique):
    rig = await rig_factory(work=False)
    handle = await rig.start(unique, rig.manifest(rig.videos(4)))
    await handle.signal("pause")
    async with worker.running(rig.settings, rig.client):
        await rig.until(lambda: _state_is(rig, unique, "paused"), "the run opens paused")
        assert await rig.states() == {}
        await handle.signal("resume")
        assert (await handle.result())["states"] == {"verified": 4}


async def test_a_pause_that_is_taken_back_before_any_worker_comes_holds_nothing_up(rig_factory, unique):
    rig = await rig_factory(work=False)
    handle = await rig.start(unique, rig.manifest(rig.videos(4)))
    await handle.signal("pause")
    await handle.signal("resume")
    async with worker.running(rig.settings, rig.client):
        assert (await handle.result())["states"] == {"verified": 4}
