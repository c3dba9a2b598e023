"""The relay: events become one hint for the page that waits for them."""

from __future__ import annotations

import asyncio
import contextlib

from temporalio.api.enums.v1 import EventType

from relay import Relay
from workflows.ids import page_id

SIGNALLED = EventType.EVENT_TYPE_WORKFLOW_EXECUTION_SIGNALED


async def _signals(rig, run):
    history = await rig.client.get_workflow_handle(page_id(run, "settle", 1)).fetch_history()
    return sum(event.event_type == SIGNALLED for event in history.events)


async def test_many_events_are_one_hint_however_many_endpoints_relay_them(rig_factory, unique):
    rig = await rig_factory(faults={"ingest_s": 1.0, "ingest_jitter_s": 0.5})
    others = [Relay(rig.engine, rig.client, 0.01) for _ in range(3)]
    for other in others:
        other.wake()
    tasks = [asyncio.create_task(_relaying(other)) for other in others]
    try:
        result = await rig.migrate(unique, rig.manifest(rig.videos(20)), page_size=25)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    assert result["states"] == {"verified": 20}
    assert await rig.engine.fetchval("select count(*) from inbox where outcome like 'applied%'") == 20
    assert await _signals(rig, unique) == 1


async def _relaying(relay):
    """As `run`, but never idle."""
    while True:
        await relay.once()
        await asyncio.sleep(0.01)


async def test_a_page_that_has_ended_or_was_never_begun_is_no_failure(rig_factory, unique):
    rig = await rig_factory()
    await rig.migrate(unique, rig.manifest(rig.videos(2)))
    await rig.engine.execute("update phase set closed_at = null where run = $1 and phase = 'settle'", unique)
    await rig.engine.execute("update inbox set signalled_at = null where run = $1", unique)
    relay = Relay(rig.engine, rig.client)
    sent = await asyncio.wait_for(asyncio.gather(*(relay.once() for _ in range(4))), 10)
    # The endpoint's own relay may have been first; and two relays may each have taken one of the page's two events.
    assert sum(sent) <= 2
    assert await rig.engine.fetchval("select count(*) from inbox where signalled_at is null") == 0

    await rig.engine.execute("update inbox set signalled_at = null, page = 99 where run = $1", unique)
    assert sum(await asyncio.wait_for(asyncio.gather(*(relay.once() for _ in range(4))), 10)) <= 2


async def test_a_mistake_of_ours_does_not_end_the_relay(rig_factory):
    rig = await rig_factory(work=False, endpoint=False)
    relay = Relay(rig.engine, rig.client, 0.01)
    await rig.engine.execute("alter table inbox rename to inbox_away")
    task = asyncio.create_task(relay.run())
    try:
        await asyncio.sleep(0)
        await rig.until(lambda: rig.engine.statements > 0, "the relay has asked")
        await rig.engine.execute("alter table inbox_away rename to inbox")
        before = rig.engine.statements
        relay.wake()
        await rig.until(lambda: rig.engine.statements > before, "the relay goes on")
        assert not task.done()
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
