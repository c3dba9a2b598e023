"""What a whole run costs: `python -m benchmarks.run --assets 2000`.

Real Temporal, PostgreSQL, ffprobe and HTTP in separate processes; the destination synthesizes its ingest and has no
limits. Billable actions are counted from the histories of every workflow of the run, as Temporal Cloud bills them, with
the heartbeats that reached the server from the worker's own metric. Statements are PostgreSQL's own count.
"""

from __future__ import annotations

import argparse
import asyncio
import json
from collections import Counter
from typing import Any, Final

from temporalio.api.enums.v1 import EventType
from temporalio.client import Client

from benchmarks.fleet import Fleet
from workflows.ids import migration_id

_BILLED: Final = {
    EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED: "activities",
    EventType.EVENT_TYPE_TIMER_STARTED: "timers",
    EventType.EVENT_TYPE_WORKFLOW_EXECUTION_SIGNALED: "signals",
    EventType.EVENT_TYPE_WORKFLOW_EXECUTION_UPDATE_ACCEPTED: "updates",
    EventType.EVENT_TYPE_UPSERT_WORKFLOW_SEARCH_ATTRIBUTES: "search attribute upserts",
}


async def count(client: Client, run: str) -> tuple[Counter[str], int, int]:
    """Billable actions by kind, events in all, and the longest history, over the run and all its children."""
    actions: Counter[str] = Counter()
    events = longest = 0
    waiting: list[tuple[str, str | None]] = [(migration_id(run), None)]
    while waiting:
        workflow_id, run_id = waiting.pop()
        length = 0
        async for event in client.get_workflow_handle(workflow_id, run_id=run_id).fetch_history_events():
            length += 1
            kind = event.event_type
            if kind in _BILLED:
                actions[_BILLED[kind]] += 1
            elif kind == EventType.EVENT_TYPE_WORKFLOW_EXECUTION_STARTED:
                started = event.workflow_execution_started_event_attributes
                # A child is billed as two; so is a start that continues an earlier execution as one.
                actions["starts"] += 2 if started.HasField("parent_workflow_execution") else 1
            elif kind == EventType.EVENT_TYPE_ACTIVITY_TASK_STARTED:
                actions["retries"] += event.activity_task_started_event_attributes.attempt - 1
            elif kind == EventType.EVENT_TYPE_CHILD_WORKFLOW_EXECUTION_STARTED:
                child = event.child_workflow_execution_started_event_attributes.workflow_execution
                waiting.append((child.workflow_id, child.run_id))
            elif kind == EventType.EVENT_TYPE_WORKFLOW_EXECUTION_CONTINUED_AS_NEW:
                following = event.workflow_execution_continued_as_new_event_attributes.new_execution_run_id
                waiting.append((workflow_id, following))
        events += length
        longest = max(longest, length)
    return actions, events, longest


async def measure(assets: int, page_size: int) -> dict[str, Any]:
    async with Fleet.running(faults={"ingest": "synthesize"}) as fleet:
        fleet.video()
        manifest = fleet.manifest(assets)
        statements = await fleet.statements()
        result, seconds = await fleet.migrate("bench", manifest, page_size=page_size)
        statements = await fleet.statements() - statements
        stats = await fleet.stats()
        actions, events, longest = await count(fleet.client, "bench")
        actions["heartbeats"] = await fleet.heartbeats()
    print(f"verdicts: {result['states']}")
    print(f"actions: {dict(actions)}")
    print(f"provider: {stats}")
    return {
        "assets": assets,
        "seconds": round(seconds, 2),
        "assets_per_s": round(assets / seconds, 2),
        "events_per_asset": round(events / assets, 4),
        "actions_per_asset": round(actions.total() / assets, 4),
        "requests_per_asset": round(sum(stats["requests"].values()) / assets, 4),
        "statements_per_asset": round(statements / assets, 4),
        "max_history_events": longest,
        "verified": result["states"].get("verified", 0),
        "duplicates": stats["duplicates"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--assets", type=int, default=2000)
    parser.add_argument("--page-size", type=int, default=500)
    options = parser.parse_args()
    print(json.dumps(asyncio.run(measure(options.assets, options.page_size))))


if __name__ == "__main__":
    main()
