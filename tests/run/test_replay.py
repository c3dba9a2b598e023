"""What released code recorded, replayed against the code at hand; and the commands of each workflow, as committed.

A change that makes one of these fail would break executions that are running now. Make it under `workflow.patched`, so
that old executions take the old way, or, for pages, leave them to end on the build that began them.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from temporalio.api.enums.v1 import EventType
from temporalio.client import WorkflowHistory
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.worker import Replayer

from workflows.ids import migration_id, page_id, stripe_id
from workflows.migration import MigrationWorkflow
from workflows.page import PageWorkflow
from workflows.stripe import ListStripeWorkflow

HERE = Path(__file__).parent
HISTORIES = sorted((HERE / "histories").glob("*/*.json"))
FINGERPRINTS = HERE / "histories" / "fingerprints.json"


@pytest.mark.parametrize("path", HISTORIES, ids=[f"{path.parent.name}-{path.stem}" for path in HISTORIES])
async def test_a_recorded_history_replays(path):
    replayer = Replayer(
        workflows=[MigrationWorkflow, PageWorkflow, ListStripeWorkflow], data_converter=pydantic_data_converter
    )
    kept = json.loads(path.read_text())
    await replayer.replay_workflow(WorkflowHistory.from_json(kept["workflow_id"], json.dumps(kept["history"])))


def test_histories_of_every_workflow_and_of_every_turn_a_run_can_take_are_kept():
    kept = {path.stem for path in HISTORIES}
    assert kept >= {
        "migration-whole", "migration-continued-first", "migration-continued-last", "migration-controlled",
        "migration-cancelled", "migration-redrive", "stripe", "page-inventory", "page-create", "page-settle",
        "page-attach", "page-reconcile",
    }  # fmt: skip


async def test_the_commands_of_each_workflow_are_those_committed(rig_factory, unique):
    """One page that has to wait for its videos, no trouble: the order of commands is then always the same."""
    captions = {"options": {"captions_path": "/v1/videos/{id}/captions/{language}"}}
    rig = await rig_factory(faults={"ingest_s": 2.0}, account=captions)
    await rig.migrate(unique, rig.manifest(rig.videos(3), caption=f"{rig.files}/en.vtt"))
    found = {
        "migration": await _commands(rig, migration_id(unique)),
        "stripe": await _commands(rig, stripe_id(unique, 1, 0)),
        **{
            f"page {phase}": await _commands(rig, page_id(unique, phase, 1))
            for phase in ("inventory", "create", "settle", "attach", "reconcile")
        },
    }
    committed = json.loads(FINGERPRINTS.read_text())
    assert found == committed, f"write this to {FINGERPRINTS.name} if it is meant:\n{json.dumps(found, indent=2)}"


async def _commands(rig, workflow_id):
    words = []
    async for event in rig.client.get_workflow_handle(workflow_id).fetch_history_events():
        match event.event_type:
            case EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED:
                scheduled = event.activity_task_scheduled_event_attributes
                words.append(f"activity {scheduled.activity_type.name} on {scheduled.task_queue.name}")
            case EventType.EVENT_TYPE_START_CHILD_WORKFLOW_EXECUTION_INITIATED:
                child = event.start_child_workflow_execution_initiated_event_attributes
                words.append(f"child {child.workflow_type.name}")
            case EventType.EVENT_TYPE_TIMER_STARTED:
                words.append("timer")
            case EventType.EVENT_TYPE_UPSERT_WORKFLOW_SEARCH_ATTRIBUTES:
                words.append("search attributes")
    return words
