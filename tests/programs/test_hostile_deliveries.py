"""`webhook.py` as a process, against senders that misbehave: always an answer of 2xx or 4xx, or a closed connection."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import json
import secrets
import socket
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import asyncpg
import pytest
import pytest_asyncio
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from standardwebhooks import Webhook

from devstack.ports import free_ports
from devstack.processes import Child
from tests.programs.conftest import Programs, log_of, wait_for
from tests.run.conftest import SECRET, TOKEN

TIMEOUT_S = 3.0
LIMIT = 65_536


@dataclass
class Door:
    """The endpoint's process, its port, and a connection to its ledger."""

    child: Child
    port: int
    ledger: asyncpg.Connection

    async def send(self, raw: bytes, *, end: bool = False, within: float = 20) -> int | None:
        """Sends these bytes; the status of the answer, or None where the connection closes without one."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            with contextlib.suppress(ConnectionError):
                writer.write(raw)
                await writer.drain()
                if end:
                    writer.write_eof()
            return await status_of(reader, within)
        finally:
            writer.close()

    async def deliver(self, body: bytes, headers: dict[str, Any] | None = None, **more: Any) -> int | None:
        return await self.send(post(body, signed(body) if headers is None else headers), **more)

    async def kept(self) -> int:
        count: int = await self.ledger.fetchval("select count(*) from inbox")
        return count

    def well(self) -> bool:
        return self.child.alive() and "Traceback" not in log_of(self.child)


async def status_of(reader: asyncio.StreamReader, within: float = 20) -> int | None:
    try:
        line = await asyncio.wait_for(reader.readline(), within)
    except ConnectionError:
        return None
    return int(line.split()[1]) if line else None


def post(body: bytes, headers: dict[str, Any], *, path: str = "/webhooks/sandbox", length: bool = True) -> bytes:
    lines = [f"POST {path} HTTP/1.1".encode("latin-1"), b"host: x"]
    for name, value in headers.items():
        values = [each if isinstance(each, bytes) else each.encode() for each in _listed(value)]
        lines += [name.encode() + b": " + each for each in values]
    if length:
        lines.append(b"content-length: %d" % len(body))
    return b"\r\n".join(lines) + b"\r\n\r\n" + body


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def signed(body: bytes, event: str | None = None) -> dict[str, Any]:
    at, event = datetime.now(UTC), event or f"evt-{secrets.token_hex(6)}"
    try:
        signature = Webhook(SECRET).sign(event, at, body.decode())
    except UnicodeDecodeError:
        signature = "v1,AAAA"  # nobody can sign what is no text
    return {"webhook-id": event, "webhook-timestamp": str(int(at.timestamp())), "webhook-signature": signature}


def ready(remote_id: str = "r1", **more: Any) -> bytes:
    return json.dumps({"type": "video.ready", "data": {"id": remote_id, "state": "ready", **more}}).encode()


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def _door(
    postgres: Any, _template: str, temporal: Any, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Door]:
    name = f"longhaul_door_{secrets.token_hex(6)}"
    admin = await asyncpg.connect(postgres.dsn("postgres"))
    await admin.execute(f'create database "{name}" template "{_template}"')
    programs = Programs(tmp_path_factory.mktemp("door"))
    [port] = free_ports(1)
    account = {"base_url": "http://127.0.0.1:9", "token": TOKEN, "webhook_secrets": SECRET}
    variables = {
        "LONGHAUL_STACK": str(Path("/dev/null")),
        "LONGHAUL_LEDGER__DSN": postgres.dsn(name),
        "TEMPORAL_ADDRESS": temporal.address,
        "LONGHAUL_ENDPOINT__PORT": str(port),
        "LONGHAUL_ENDPOINT__REQUEST_TIMEOUT_S": str(TIMEOUT_S),
        "LONGHAUL_ENDPOINT__MAX_BODY_BYTES": str(LIMIT),
        "LONGHAUL_ACCOUNTS": json.dumps({"sandbox": account}),
    }
    try:
        child = programs.start("webhook.py", variables=variables)
        ledger = await asyncpg.connect(postgres.dsn(name))
        door = Door(child, port, ledger)

        def serves() -> bool:
            with socket.socket() as probe:
                return probe.connect_ex(("127.0.0.1", port)) == 0 or not child.alive()

        wait_for(serves, "the endpoint serves")
        assert child.alive(), log_of(child)
        yield door
        await ledger.close()
    finally:
        for each in programs.children:
            each.kill()
        await admin.execute(f'drop database "{name}" with (force)')
        await admin.close()


@pytest_asyncio.fixture(loop_scope="session")
async def door(_door: Door) -> AsyncIterator[Door]:
    """The endpoint over an empty inbox; whatever a test did, it must serve on and have met nothing unexpected."""
    await _door.ledger.execute("delete from inbox")
    yield _door
    assert await _door.deliver(ready("afterwards")) == 204, "it serves on"
    assert _door.well(), log_of(_door.child)[-3000:]


# ---------------------------------------------------------------------------------------------------------- believed


async def test_any_current_signature_among_several_is_believed(door: Door) -> None:
    body = ready()
    good = signed(body)
    both = f"v1,{'A' * 43}= v1a,xx {good['webhook-signature']}  v2,yy"
    assert await door.deliver(body, good | {"webhook-signature": both}) == 204
    assert await door.kept() == 1


async def test_the_same_event_three_times_is_kept_once(door: Door) -> None:
    body = ready()
    headers = signed(body, "evt-same")
    assert [await door.deliver(body, headers) for _ in range(3)] == [204] * 3
    assert await door.kept() == 1


async def test_header_names_in_any_case_are_read(door: Door) -> None:
    body = ready()
    assert await door.deliver(body, {name.title(): value for name, value in signed(body).items()}) == 204


async def test_a_sender_that_asks_before_it_sends_is_told_to_go_on(door: Door) -> None:
    body = ready()
    head, _, _ = post(body, signed(body) | {"expect": "100-continue"}).partition(b"\r\n\r\n")
    reader, writer = await asyncio.open_connection("127.0.0.1", door.port)
    writer.write(head + b"\r\n\r\n")
    assert await status_of(reader) == 100
    await reader.readuntil(b"\r\n")
    writer.write(body)
    assert await status_of(reader) == 204
    writer.close()


@pytest.mark.parametrize(
    "body",
    [
        ready(title="\0", playback="a\0b"),
        ready(title="\ud800", reference="\udfff"),
        ready("a\0b"),
        ready("\ud800"),
        ready("x" * 10_000),
        ready("".join(chr(0x4E00 + n * 7 % 20_000) for n in range(5_000))),
        ready(reference="".join(chr(0x4E00 + n * 7 % 20_000) for n in range(5_000))),
        ready(duration_ms=10**400, width=10**30, size=-1),
        ready().replace(b'"ready"}', b'"ready","duration_ms":NaN,"size":Infinity,"width":1e400}'),
        ready().replace(b'"ready"}', b'"ready","id":"other","id":5}'),
        ready().replace(b'"ready"}', b'"ready","x":' + b"[" * 500 + b"]" * 500 + b"}"),
        ready().replace(b'"ready"}', b'"ready","x":' + b"9" * 5_000 + b"}"),
        ready(state="READY"),
        ready(state="no such state"),
        ready(state=None),
        ready(state={}),
        b'\xef\xbb\xbf{"type":"video.ready","data":{"id":"r1","state":"ready"}}',
        b'{"type":{},"data":"x"}',
        b'{"type":"\\ud800\\u0000","data":{"id":"r1","state":"ready"}}',
        b'{"type":"ping","data":{}}',
        b"[1,2]",
        b"null",
        b"NaN",
        b"5",
        b'"text"',
        b"",
        b"{",
        b"not json",
        b"[" * 60_000,
        b'{"a":' * 10_000,
        b"\xff\xfe\x00",
        b"\xef\xbb\xbf",
        b'{"type":"video.ready","data":{"id":"r1","state":"ready"}} trailing',
    ],
)
@pytest.mark.parametrize("with_id", [True, False])
async def test_whatever_a_body_says_it_is_kept_or_the_senders_mistake(door: Door, body: bytes, with_id: bool) -> None:
    headers = signed(body)
    if not with_id:
        del headers["webhook-id"]
    status = await door.deliver(body, headers)
    assert status in ((204, 400, 401) if with_id else (401,))
    assert await door.kept() == (1 if status == 204 else 0)


async def test_an_events_own_id_of_any_length_keeps_it_apart(door: Door) -> None:
    body = ready()
    long = "".join(secrets.token_hex(16) for _ in range(200))
    for event in (long, long, long + "x"):
        assert await door.deliver(body, signed(body, event)) == 204
    assert await door.kept() == 2


async def test_an_id_that_comes_again_with_other_content_is_answered_and_kept_once(door: Door) -> None:
    body, other = ready("r1"), ready("r2")
    assert await door.deliver(body, signed(body, "evt-reused")) == 204
    assert await door.deliver(other, signed(other, "evt-reused")) == 204
    assert [r["remote_id"] for r in await door.ledger.fetch("select remote_id from inbox")] == ["r1"]


# ----------------------------------------------------------------------------------------------------------- refused


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("webhook-timestamp", stamp)
        for stamp in ("+{}", " {}.0", "{}.5", "-{}", "0x{}", "{}e0", "9" * 300, "", "now", "NaN", b"\xb2", b"\xff\xfe")
    ]
    + [
        ("webhook-signature", signature)
        for signature in (
            "{}",
            "v1a,{}",
            "V1,{}",
            "v2,{}",
            "v1 {}",
            "v1,,{}",
            "v1,{}=",
            "v1,",
            "v1",
            ",",
            "",
            b"v1,\xe9\xff",
            "v1," + "A" * 60_000,
        )
    ]
    + [("webhook-id", other) for other in ("", "another", b"\xc3\xa9vt", "a.b", b"\xa0")],
)
async def test_a_header_that_is_not_what_was_signed_is_refused(door: Door, name: str, value: str | bytes) -> None:
    body = ready()
    headers = signed(body)
    if isinstance(value, str):
        value = value.format(headers[name].removeprefix("v1,"))
    assert await door.deliver(body, headers | {name: value}) == 401
    assert await door.kept() == 0


async def test_a_header_that_comes_twice_is_believed_only_if_what_counts_was_signed(door: Door) -> None:
    body = ready()
    headers = signed(body)
    for name, value in headers.items():
        twice = [value, "something else"]
        statuses = [await door.deliver(body, headers | {name: order}) for order in (twice, twice[::-1])]
        assert set(statuses) <= {204, 401}
        assert 401 in statuses
    assert await door.kept() <= 1


async def test_a_body_that_was_compressed_on_the_way_is_refused(door: Door) -> None:
    body = ready()
    packed = gzip.compress(body)
    assert await door.deliver(packed, signed(body) | {"content-encoding": "gzip"}) == 401
    assert await door.kept() == 0


@pytest.mark.parametrize(
    ("request_line", "status"),
    [
        ("GET /webhooks/sandbox", 405),
        ("HEAD /webhooks/sandbox", 405),
        ("PUT /webhooks/sandbox", 405),
        ("DELETE /webhooks/sandbox", 405),
        ("OPTIONS /webhooks/sandbox", 405),
        ("FETCH /webhooks/sandbox", 405),
        ("POST /webhooks/nobody", 404),
        ("POST /webhooks/", 404),
        ("POST /webhooks", 404),
        ("POST /webhooks/sandbox/", 404),
        ("POST /webhooks/sandbox/x", 404),
        ("POST /webhooks/..%2fsandbox", 404),
        ("POST /webhooks/%00", 404),
        ("POST /webhooks/%ff%fe", 404),
        ("POST /webhooks/SANDBOX", 404),
        ("POST /", 404),
        ("POST /healthz", 405),
        ("POST //webhooks/sandbox", 404),
    ],
)
async def test_a_wrong_method_or_address_is_said_to_be_that(door: Door, request_line: str, status: int) -> None:
    body = ready()
    whole = post(body, signed(body)).replace(b"POST /webhooks/sandbox", request_line.encode(), 1)
    answered = await door.send(whole)
    # The framework leads an address with a stroke too many to the one without.
    assert answered == status or (status == 404 and answered == 307)
    assert await door.kept() == 0


# ----------------------------------------------------------------------------------------------- how bytes are sent


async def test_a_body_longer_than_announced_is_not_taken_for_another_delivery(door: Door) -> None:
    body = ready()
    raw = post(body, signed(body))
    assert await door.send(raw + b"GARBAGE\r\n\r\n") == 204
    assert await door.kept() == 1


async def test_a_body_that_ends_early_is_kept_nowhere(door: Door) -> None:
    body = ready()
    raw = post(body, signed(body))
    assert await door.send(raw[:-5], end=True) in (None, 400)
    assert await door.kept() == 0


@pytest.mark.parametrize(
    "length", [b"-5", b"1e3", b"0x10", b"", b"5, 6", b"\xb2", b"9" * 25, b"9" * 5_000, str(LIMIT + 1).encode()]
)
async def test_a_length_that_is_none_or_too_large_is_refused_before_the_body(door: Door, length: bytes) -> None:
    body = ready()
    raw = post(body, signed(body), length=False).partition(b"\r\n\r\n")[0] + b"\r\ncontent-length: " + length
    assert await door.send(raw + b"\r\n\r\n") in (400, 413)
    assert await door.kept() == 0


async def test_a_chunked_body_that_grows_too_large_is_refused_before_it_is_whole(door: Door) -> None:
    raw = post(b"", {"transfer-encoding": "chunked"}, length=False)
    chunk = b"%x\r\n" % 40_000 + b"x" * 40_000 + b"\r\n"
    assert await door.send(raw + chunk + chunk) == 413


@pytest.mark.parametrize("chunk", [b"ZZ\r\n", b"-1\r\n", b"fffffffffffffffffffff\r\n", b"5\r\nabcdefgh\r\n"])
async def test_chunks_that_are_none_are_refused(door: Door, chunk: bytes) -> None:
    raw = post(b"", {"transfer-encoding": "chunked"}, length=False)
    assert await door.send(raw + chunk) in (None, 400)


async def test_a_body_that_drips_is_ended_by_the_clock(door: Door) -> None:
    body = ready()
    head, _, rest = post(body, signed(body)).partition(b"\r\n\r\n")
    await _drips(door, head + b"\r\n\r\n", rest[:-1], {408})


async def test_a_head_that_drips_is_ended_by_the_clock(door: Door) -> None:
    await _drips(door, b"", b"POST /webhooks/sandbox HTTP/1.1\r\nx: " + b"y" * 10_000, {None})


async def test_a_second_head_that_drips_on_the_same_connection_is_ended_too(door: Door) -> None:
    body = ready()
    reader, writer = await asyncio.open_connection("127.0.0.1", door.port)
    writer.write(post(body, signed(body)))
    assert await status_of(reader) == 204
    await reader.readuntil(b"\r\n\r\n")
    writer.write(b"POST /webhooks/san")
    assert await asyncio.wait_for(reader.read(), 20 * TIMEOUT_S) == b""
    writer.close()


async def test_a_connection_on_which_nothing_comes_is_closed(door: Door) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", door.port)
    assert await asyncio.wait_for(reader.read(), 20 * TIMEOUT_S) == b""
    writer.close()


async def test_a_hundred_that_drip_keep_no_good_delivery_waiting(door: Door) -> None:
    body = ready()
    half = post(body, signed(body))[:-3]
    slow = [await asyncio.open_connection("127.0.0.1", door.port) for _ in range(100)]
    for _, writer in slow:
        writer.write(half)
    assert await door.deliver(body, within=5) == 204
    assert {await status_of(reader) for reader, _ in slow} == {408}
    for _, writer in slow:
        writer.close()


async def _drips(door: Door, first: bytes, rest: bytes, ends: set[int | None]) -> None:
    """Sends a byte each tenth of a second, for as long as the connection is open."""
    reader, writer = await asyncio.open_connection("127.0.0.1", door.port)
    writer.write(first)
    answer = asyncio.create_task(status_of(reader, 20 * TIMEOUT_S))
    with contextlib.suppress(ConnectionError):
        for byte in rest:
            if answer.done():
                break
            writer.write(bytes([byte]))
            await writer.drain()
            await asyncio.wait({answer}, timeout=0.1)
    assert await answer in ends
    writer.close()


# --------------------------------------------------------------------------------------------------------- anything

A_FEW = settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])

json_like = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)
names = st.sampled_from(["id", "state", "reference", "duration_ms", "width", "size", "title", "playback_url", "error"])
states = st.sampled_from(["ready", "errored", "processing", "deleted", "READY", "x"])
video = st.fixed_dictionaries({"id": st.text(max_size=5) | json_like, "state": states | json_like}) | st.dictionaries(
    names, json_like, max_size=6
)
event = st.fixed_dictionaries(
    {"type": st.sampled_from(["video.ready", "video.deleted", "x"]) | json_like, "data": video | json_like}
)


@A_FEW
@given(st.binary(max_size=200) | json_like.map(lambda v: json.dumps(v).encode()))
async def test_any_signed_bytes_get_2xx_or_4xx(door: Door, body: bytes) -> None:
    assert await door.deliver(body) in (204, 400, 401)


@A_FEW
@given(event.map(lambda value: json.dumps(value).encode()))
async def test_any_signed_event_gets_2xx_or_4xx(door: Door, body: bytes) -> None:
    assert await door.deliver(body) in (204, 400)


@A_FEW
@given(st.binary(max_size=300))
async def test_any_bytes_at_all_on_the_line_get_4xx_or_a_closed_connection(door: Door, raw: bytes) -> None:
    status = await door.send(raw, end=True)
    assert status is None or 400 <= status < 500
