"""Records histories of the code at hand, for later versions to be replayed against. Not a test by name: run it when a
version is released, on the released code and never on a branch:

    python -m pytest tests/run/record_histories.py

It writes to tests/run/histories/VERSION, with VERSION as pyproject.toml has it.
"""

from __future__ import annotations

import json
import shutil
import socket
import tempfile
import tomllib
from pathlib import Path

import pytest
from temporalio.client import WorkflowFailureError

from workflows.ids import migration_id, page_id, stripe_id

HERE = Path(__file__).parent
VERSION = tomllib.loads((HERE.parents[1] / "pyproject.toml").read_text())["project"]["version"]
CAPTIONS = {"options": {"captions_path": "/v1/videos/{id}/captions/{language}"}}
TARGET = HERE / "histories" / VERSION


async def _keep(rig, name, workflow_id, run_id=None):
    history = await rig.client.get_workflow_handle(workflow_id, run_id=run_id).fetch_history()
    kept = {"workflow_id": workflow_id, "history": json.loads(history.to_json())}
    text = json.dumps(kept, separators=(",", ":"), sort_keys=True)
    TARGET.mkdir(parents=True, exist_ok=True)
    (TARGET / f"{name}.json").write_text(text.replace(socket.gethostname(), "recorder") + "\n")


@pytest.fixture
def elsewhere():
    """A folder whose name says nothing of the machine."""
    folder = Path(tempfile.gettempdir()) / "longhaul-recording"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    yield folder
    shutil.rmtree(folder)


async def test_record_a_whole_run(rig_factory, elsewhere):
    rig = await rig_factory(faults={"ingest_s": 2.0}, account=CAPTIONS)
    rig.folder = elsewhere
    await rig.migrate("whole", rig.manifest(rig.videos(20), caption=f"{rig.files}/en.vtt"), page_size=10)
    await _keep(rig, "migration-whole", migration_id("whole"))
    await _keep(rig, "stripe", stripe_id("whole", 1, 0))
    for phase in ("inventory", "create", "settle", "attach", "reconcile"):
        await _keep(rig, f"page-{phase}", page_id("whole", phase, 1))


async def test_record_a_run_that_continues_as_new(rig, elsewhere):
    rig.folder = elsewhere
    await rig.migrate("continued", rig.manifest(rig.videos(12)), page_size=4, children_per_execution=4)
    described = await rig.client.get_workflow_handle(migration_id("continued")).describe()
    first = described.raw_description.workflow_execution_info.first_run_id
    await _keep(rig, "migration-continued-first", migration_id("continued"), first)
    await _keep(rig, "migration-continued-last", migration_id("continued"))


async def test_record_a_run_that_is_controlled_and_parks(rig_factory, elsewhere):
    rig = await rig_factory(faults={"latency_ms": 200}, worker={"rows_in_hand": 8})
    rig.folder = elsewhere
    rows = rig.videos(60)
    handle = await rig.start("controlled", rig.manifest(rows), page_size=20, approval=True)
    await rig.until(lambda: _state(rig, "controlled", "awaiting-approval"), "it waits for approval")
    await handle.execute_update("approve", {})
    await rig.until(lambda: rig.sandbox.stats()["creates"] >= 2, "creates have begun")
    await handle.execute_update("pause", {"note": "lunch"})
    await handle.execute_update("parallel", {"pages_at_once": 2})
    await handle.execute_update("pace", {"factor": 1.0})
    rig.sandbox.faults(refuse_503_rate=1.0, retry_after="absent")
    await handle.signal("resume")
    await rig.until(lambda: _state(rig, "controlled", "parked"), "it parks")
    rig.sandbox.faults(refuse_503_rate=0.0)
    await handle.execute_update("resume", {})
    await handle.result()
    await _keep(rig, "migration-controlled", migration_id("controlled"))


async def test_record_a_run_that_is_cancelled(rig_factory, elsewhere):
    rig = await rig_factory(faults={"latency_ms": 100}, worker={"rows_in_hand": 2})
    rig.folder = elsewhere
    handle = await rig.start("cancelled", rig.manifest(rig.videos(20)), page_size=10)
    await rig.until(lambda: rig.sandbox.stats()["creates"] >= 2, "creates have begun")
    await handle.cancel()
    with pytest.raises(WorkflowFailureError):
        await handle.result()
    await _keep(rig, "migration-cancelled", migration_id("cancelled"))


async def test_record_a_redrive(rig, elsewhere):
    rig.folder = elsewhere
    manifest = rig.manifest([("empty", f"{rig.files}/empty.mp4"), *rig.videos(1)])
    await rig.migrate("dead", manifest)
    await rig.migrate("dead-redrive", manifest, redrive={"of_run": "dead"})
    await _keep(rig, "migration-redrive", migration_id("dead-redrive"))


async def _state(rig, run, state):
    return await rig.engine.fetchval("select state from run where run = $1", run) == state
