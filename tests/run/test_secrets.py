"""No secret of an address or an account stays anywhere: not in a log, a ledger column, a history or an error."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from google.protobuf.json_format import MessageToJson

from tests.run.conftest import SECRET, TOKEN, Rig
from workflows.ids import migration_id, page_id, stripe_id

PASSWORD, SIGNATURE = "s3cret-pass", "5ig-of-the-address"
HIDDEN = (PASSWORD, SIGNATURE, TOKEN, SECRET.removeprefix("whsec_"))


async def histories(rig: Rig, run: str) -> AsyncIterator[str]:
    """Every event of the run's executions, its payloads as they are stored."""
    for workflow in (migration_id(run), stripe_id(run, 1, 0), page_id(run, "inventory", 1)):
        history = await rig.client.get_workflow_handle(workflow).fetch_history()
        for event in history.events:
            yield MessageToJson(event) + str(event)


async def columns(rig: Rig) -> AsyncIterator[tuple[str, str]]:
    """Every row of every table as text."""
    for table in await rig.engine.fetch("select tablename from pg_tables where schemaname = 'public'"):
        name = table["tablename"]
        for record in await rig.engine.fetch(f'select t::text as whole from "{name}" as t'):
            yield name, record["whole"]


async def test_a_signed_address_with_a_password_leaves_no_trace_of_either(
    rig: Rig, unique: str, capfd: pytest.CaptureFixture[str]
) -> None:
    host = rig.files.removeprefix("http://")
    base = f"http://user:{PASSWORD}@{host}"
    query = f"X-Amz-Signature={SIGNATURE}&n="
    rows = [
        *((f"good{n}", f"{base}/good.mp4?{query}{n}") for n in range(3)),
        ("empty", f"{base}/empty.mp4?{query}e"),
        ("page", f"{base}/page.mp4?{query}p"),
        ("gone", f"{base}/none.mp4?{query}g"),
        ("nowhere", f"http://user:{PASSWORD}@no-such-host.invalid/x.mp4?{query}x"),
        ("scheme", f"ftp://user:{PASSWORD}@{host}/x.mp4?{query}s"),
        ("broken", f"http://user:{PASSWORD}@/x.mp4?{query}b"),
    ]
    handle = await rig.start(unique, rig.manifest(rows))
    await rig.until(lambda: _ended(rig), "the good are read, the bad rejected, the unreachable one waits")
    tables = [(name, whole) async for name, whole in columns(rig)]
    assert len(tables) > 20
    for name, whole in tables:
        assert not any(secret in whole for secret in HIDDEN), name
    events = [event async for event in histories(rig, unique)]
    assert sum("activityTask" in event for event in events) >= 6
    for event in events:
        assert not any(secret in event for secret in HIDDEN)
    await handle.terminate("seen enough")
    out, err = capfd.readouterr()
    assert "good.mp4" in out + err or unique in out + err, "it was logged"
    assert not any(secret in out + err for secret in HIDDEN)


async def _ended(rig: Rig) -> bool:
    states = await rig.states()
    tried = await rig.engine.fetchval(
        "select max(attempt) from step join asset using (ref) where source_id = 'nowhere'"
    )
    good = sum(states.get(state, 0) for state in ("inventoried", "processing", "ready", "verified"))
    return good == 3 and states.get("rejected", 0) >= 3 and (tried or 0) >= 2
