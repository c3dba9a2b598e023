"""`webhook.py`: what it answers to deliveries, and how the process starts, survives and ends."""

from __future__ import annotations

import json
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import psutil
import pytest
from standardwebhooks import Webhook

import webhook
from devstack.ports import free_ports
from devstack.postgres import EmbeddedPostgres
from faults import Fault
from ledger import schema
from settings import Settings
from tests.programs.conftest import log_of, wait_for
from tests.run.conftest import SECRET, TOKEN


def delivery(remote_id: str = "r1", *, event: str = "evt-1", age_s: float = 0) -> tuple[bytes, dict[str, str]]:
    """A delivery as the provider would sign it."""
    body = json.dumps({"type": "video.ready", "data": {"id": remote_id, "state": "ready"}}).encode()
    return body, signed(body, event=event, age_s=age_s)


def signed(body: bytes, *, event: str = "evt-1", age_s: float = 0) -> dict[str, str]:
    at = datetime.now(UTC) - timedelta(seconds=age_s)
    return {
        "webhook-id": event,
        "webhook-timestamp": str(int(at.timestamp())),
        "webhook-signature": Webhook(SECRET).sign(event, at, body.decode()),
    }


@pytest.fixture
async def endpoint(rig_factory):
    """An endpoint with nothing else at work, and a client for it."""
    rig = await rig_factory(work=False)
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{rig.settings.endpoint.port}", timeout=20) as client:
        yield rig, client


async def test_a_good_delivery_is_stored_and_its_copies_change_nothing(endpoint):
    rig, client = endpoint
    body, headers = delivery()
    for _ in range(3):
        answer = await client.post("/webhooks/sandbox", content=body, headers=headers)
        assert (answer.status_code, answer.content) == (204, b"")
    assert await rig.engine.fetchval("select count(*) from inbox") == 1
    other, headers = delivery("r2", event="evt-2")
    assert (await client.post("/webhooks/sandbox", content=other, headers=headers)).status_code == 204
    assert await rig.engine.fetchval("select count(*) from inbox") == 2


async def test_what_is_not_signed_as_it_stands_is_refused_and_stored_nowhere(endpoint):
    rig, client = endpoint
    body, headers = delivery()
    stale, stale_headers = delivery(age_s=301)
    for content, given in (
        (body.replace(b"r1", b"r9"), headers),
        (stale, stale_headers),
        (body, {}),
        (body, headers | {"webhook-signature": "v1,AAAA"}),
        (body, headers | {"webhook-id": "evt-other"}),
        (body, {name: value for name, value in headers.items() if name != "webhook-timestamp"}),
    ):
        answer = await client.post("/webhooks/sandbox", content=content, headers=given)
        assert answer.status_code == 401
        assert answer.json() == {"error": "the signature does not match"}
    assert await rig.engine.fetchval("select count(*) from inbox") == 0


async def test_an_unknown_account_is_named(endpoint):
    _, client = endpoint
    body, headers = delivery()
    answer = await client.post("/webhooks/nobody", content=body, headers=headers)
    assert answer.status_code == 404
    assert "no account named 'nobody'" in answer.json()["error"]


@pytest.mark.parametrize(
    "body", [b"not json at all", b'{"type": ', b"[]", b'"text"', b'{"type": 5, "data": []}', b"{}"]
)
async def test_a_signed_body_that_is_no_event_is_the_senders_mistake(endpoint, body):
    rig, client = endpoint
    answer = await client.post("/webhooks/sandbox", content=body, headers=signed(body))
    assert answer.status_code in (204, 400)
    if answer.status_code == 204:
        assert await rig.engine.fetchval("select bool_and(outcome = 'ignored') from inbox") in (True, None)
    else:
        assert await rig.engine.fetchval("select count(*) from inbox") == 0


async def test_a_body_that_is_too_large_is_refused_by_its_announced_length(endpoint):
    _, client = endpoint
    answer = await client.post("/webhooks/sandbox", content=b"x" * 1_048_577, headers={})
    assert answer.status_code == 413
    assert (await client.post("/webhooks/sandbox", content=b"x" * 1_048_576)).status_code == 401


async def test_health_readiness_and_the_methods_that_it_takes(endpoint):
    _, client = endpoint
    assert (await client.get("/healthz")).status_code == 200
    assert (await client.get("/readyz")).status_code == 200
    assert (await client.get("/webhooks/sandbox")).status_code == 405
    assert (await client.get("/")).status_code == 404


# ------------------------------------------------------------------------------------------------------- the process


@pytest.fixture
async def ledger_of_its_own():
    """A PostgreSQL that can be killed, always on the same port."""
    [port] = free_ports(1)
    server = EmbeddedPostgres(Path(tempfile.mkdtemp(prefix="longhaul-test-")), fast=True, port=port)
    try:
        server.start()
        await schema.migrate(server.dsn())
        yield server
    finally:
        server.remove()


async def test_the_process_outlives_its_ledger_and_a_huge_body(ledger_of_its_own, temporal, programs):
    [port] = free_ports(1)
    variables = {
        "LONGHAUL_LEDGER__DSN": ledger_of_its_own.dsn(),
        "TEMPORAL_ADDRESS": temporal.address,
        "LONGHAUL_ENDPOINT__PORT": str(port),
        "LONGHAUL_ACCOUNTS__SANDBOX__BASE_URL": "http://127.0.0.1:9",
        "LONGHAUL_ACCOUNTS__SANDBOX__TOKEN": TOKEN,
        "LONGHAUL_ACCOUNTS__SANDBOX__WEBHOOK_SECRETS": SECRET,
    }
    child = programs.start("webhook.py", variables=variables)
    url = f"http://127.0.0.1:{port}"
    wait_for(lambda: _status(f"{url}/readyz") == 200 or not child.alive(), "the endpoint is ready")
    assert child.alive(), log_of(child)

    # A port that is taken is one line, and the one that has it goes on.
    second = programs.run("webhook.py", variables=variables)
    assert second.code != 0
    assert "address already in use" in second.err
    assert "Traceback" not in second.err

    before = _memory(child.pid)
    status = await _pour(port, 50)
    assert status == 413
    assert _memory(child.pid) - before < 10_000_000
    assert "Traceback" not in log_of(child)

    body, headers = delivery()
    with httpx.Client(base_url=url, timeout=30) as client:
        ledger_of_its_own.kill()
        refused = client.post("/webhooks/sandbox", content=body, headers=headers)
        assert refused.status_code == 503
        assert "deliver it again" in refused.json()["error"]
        assert client.get("/healthz").status_code == 200
        assert client.get("/readyz").status_code == 503
        await ledger_of_its_own.start_async()
        wait_for(lambda: _status(f"{url}/readyz") == 200, "the endpoint is ready again")
        assert client.post("/webhooks/sandbox", content=body, headers=headers).status_code == 204

    child.signal(child.stop_signal)
    wait_for(lambda: child.exit_code() is not None, "it ends")
    assert child.exit_code() == 0, log_of(child)
    assert "Traceback" not in log_of(child)
    assert SECRET not in log_of(child)


def _status(url: str) -> int | None:
    try:
        return httpx.get(url, timeout=10).status_code
    except httpx.HTTPError:
        return None


def _memory(pid: int) -> int:
    return int(psutil.Process(pid).memory_info().rss)


async def _pour(port: int, megabytes: int) -> int:
    """Sends a chunked body without a length, as fast as it is taken; returns the status of the answer."""
    import asyncio
    import contextlib

    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"POST /webhooks/sandbox HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n")
    chunk = b"10000\r\n" + b"x" * 65_536 + b"\r\n"
    with contextlib.suppress(ConnectionError):
        for _ in range(megabytes * 16):
            writer.write(chunk)
            await writer.drain()
        writer.write(b"0\r\n\r\n")
        await writer.drain()
    line = await asyncio.wait_for(reader.readline(), 20)
    writer.close()
    return int(line.split()[1])


@pytest.mark.parametrize("secrets", [None, ""])
def test_an_account_without_a_secret_keeps_it_from_starting_and_is_named(secrets):
    account = {"base_url": "http://127.0.0.1:9", "token": TOKEN}
    if secrets is None:
        settings = Settings(accounts={"main": account})
        with pytest.raises(Fault) as refused:
            webhook.build_app(settings)
        assert refused.value.code == "settings-refused"
        assert refused.value.detail.startswith("accounts.main.")
        assert "webhook_secrets" in refused.value.detail
    else:
        with pytest.raises(ValueError, match="a webhook secret is empty"):
            Settings(accounts={"main": {**account, "webhook_secrets": secrets}})


def test_without_a_secret_the_process_says_so_in_one_line(programs):
    said = programs.run(
        "webhook.py",
        variables={"LONGHAUL_ACCOUNTS": json.dumps({"main": {"base_url": "http://127.0.0.1:9", "token": TOKEN}})},
    )
    assert said.code == 1
    assert said.err.startswith("longhaul endpoint: accounts.main.webhook_secrets")
    assert said.err.count("\n") == 1
    assert TOKEN not in said.err


def test_without_any_account_it_says_what_to_add():
    with pytest.raises(Fault, match=r"add \[accounts.NAME\] with its webhook_secrets"):
        webhook.build_app(Settings(accounts={}))
