"""The sandbox as a program: its command line, its end, and what a kill costs."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
import pytest_asyncio
from standardwebhooks import Webhook
from typer.testing import CliRunner

from sandbox.__main__ import app
from tests.sandbox.conftest import SECRET, TOKEN
from tests.sandbox.serving import until

ROOT = Path(__file__).parents[2]


class Program:
    """`python -m sandbox` on one data directory."""

    def __init__(self, data: Path) -> None:
        self.data = data
        self.process: asyncio.subprocess.Process | None = None
        self.http: httpx.AsyncClient

    async def start(self, *arguments: str, env: dict[str, str] | None = None) -> None:
        self.process = await launch("--data", str(self.data), "--token", TOKEN, *arguments, env=env)
        assert self.process.stdout is not None
        line = (await asyncio.wait_for(self.process.stdout.readline(), 20)).decode()
        assert line.startswith("sandbox listening on http://"), line or (await self.words())
        self.http = httpx.AsyncClient(base_url=line.split()[3], headers={"authorization": f"Bearer {TOKEN}"})

    async def words(self) -> str:
        assert self.process is not None
        assert self.process.stderr is not None
        return (await self.process.stderr.read()).decode()

    async def end(self, number: int) -> int:
        assert self.process is not None
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(number)
        code = await asyncio.wait_for(self.process.wait(), 20)
        await self.http.aclose()
        return code

    async def stats(self) -> dict[str, Any]:
        return dict((await self.http.get("/_sandbox/stats")).json())


async def launch(*arguments: str, env: dict[str, str] | None = None) -> asyncio.subprocess.Process:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("SANDBOX_")}
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "sandbox", *arguments),
        cwd=ROOT,
        env={**clean, **(env or {})},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )


@pytest_asyncio.fixture
async def program(tmp_path: Path) -> AsyncIterator[Program]:
    found = Program(tmp_path / "data")
    yield found
    if found.process is not None and found.process.returncode is None:
        await found.end(signal.SIGKILL)


async def test_a_kill_loses_no_video_no_ingest_no_event_and_no_idempotency_key(program: Program, receiver: Any) -> None:
    arguments = ("--webhook-url", receiver.url, "--webhook-secret", SECRET, "--ingest", "synthesize")
    receiver.answer = lambda _: 500
    await program.start(*arguments, "--webhook-retry-s", "600", "--fault", "idempotency_keys=true")
    ready = await program.http.post("/v1/videos", json={"source_url": "http://h/a", "reference": "ready"})
    await until(lambda: receiver.deliveries)
    await program.http.patch("/_sandbox/faults", json={"ingest_s": 600})
    body = {"source_url": "http://h/b", "reference": "working", "duration_ms": 777}
    working = await program.http.post("/v1/videos", json=body, headers={"idempotency-key": "k"})
    await program.end(signal.SIGKILL)

    receiver.answer = lambda _: 204
    first = dict(receiver.deliveries[0][0])
    receiver.deliveries.clear()
    # The event that was refused before the kill is due in ten minutes; the one of the unfinished ingest comes at once.
    await program.start(*arguments, "--fault", "idempotency_keys=true")
    await until(lambda: receiver.deliveries)
    headers, raw = receiver.deliveries[0]
    event = Webhook(SECRET).verify(raw, headers)
    assert (event["data"]["id"], event["data"]["duration_ms"]) == (working.json()["id"], 777)
    assert headers["webhook-id"] != first["webhook-id"]
    assert (await program.http.get(f"/v1/videos/{ready.json()['id']}")).json()["state"] == "ready"
    again = await program.http.post("/v1/videos", json=body, headers={"idempotency-key": "k"})
    assert again.json()["id"] == working.json()["id"]
    stats = await program.stats()
    assert (stats["creates"], stats["duplicates"], stats["webhooks"]["waiting"]) == (2, 0, 1)


async def test_a_kill_loses_no_byte_of_an_upload_that_has_come(program: Program) -> None:
    arguments = ("--ingest", "synthesize")
    tus = {"tus-resumable": "1.0.0"}
    sending = {**tus, "content-type": "application/offset+octet-stream"}
    await program.start(*arguments)
    half, whole = [await program.http.post("/v1/uploads", headers={**tus, "upload-length": "6"}) for _ in range(2)]
    video = f"/v1/videos/{half.headers['video-id']}"
    assert (
        await program.http.put(f"{video}/captions/de", content=b"WEBVTT", headers={"content-type": "text/vtt"})
    ).is_success
    await program.http.patch(half.headers["location"], content=b"abc", headers={**sending, "upload-offset": "0"})
    await program.end(signal.SIGKILL)
    # As a kill between the last byte and the note of it leaves it.
    (program.data / "uploads" / whole.headers["location"].rpartition("/")[2]).write_bytes(b"abcdef")
    (program.data / "uploads" / "nobodys").write_bytes(b"x")

    await program.start(*arguments)
    assert not (program.data / "uploads" / "nobodys").exists()
    found = await program.http.get(f"/v1/videos/{whole.headers['video-id']}")
    assert found.json()["state"] in ("processing", "ready")
    found = await program.http.get(video)
    assert (found.json()["state"], found.json()["captions"]) == ("uploading", ["de"])
    stands = await program.http.head(half.headers["location"], headers=tus)
    assert stands.headers["upload-offset"] == "3"
    last = await program.http.patch(half.headers["location"], content=b"def", headers={**sending, "upload-offset": "3"})
    assert last.status_code == 204
    await program.end(signal.SIGKILL)
    await program.start(*arguments)

    async def ready() -> bool:
        return bool((await program.http.get(video)).json()["state"] == "ready")

    await until(ready)


async def test_every_answered_create_survives_a_kill_in_the_middle_of_many(program: Program) -> None:
    await program.start("--ingest", "synthesize", "--ingest-s", "600")
    answered: list[str] = []

    async def create(n: int) -> None:
        with contextlib.suppress(httpx.HTTPError):
            answer = await program.http.post("/v1/videos", json={"source_url": "http://h/a", "reference": f"r{n}"})
            answered.append(answer.json()["id"])

    creates = [asyncio.create_task(create(n)) for n in range(100)]
    await until(lambda: len(answered) > 20)
    await program.end(signal.SIGKILL)
    await asyncio.gather(*creates)
    await program.start("--ingest", "synthesize")
    listed = (await program.http.get("/v1/videos", params={"limit": 1000})).json()["videos"]
    assert set(answered) <= {video["id"] for video in listed}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_it_ends_cleanly_when_told_and_takes_its_children_along(
    program: Program, media: Any, number: int
) -> None:
    await program.start("--allow-local-files", "--ingest-s", "600")
    for n in range(10):
        await program.http.post("/v1/videos", json={"source_url": str(media.folder / "good.mp4"), "reference": f"r{n}"})
    assert program.process is not None
    family = psutil.Process(program.process.pid).children(recursive=True)
    assert await program.end(number) == 0
    assert await program.words() == ""
    assert not [child for child in family if child.is_running() and child.status() != psutil.STATUS_ZOMBIE]
    assert not list((program.data).glob("incoming"))


async def test_a_call_that_is_never_answered_does_not_keep_it_from_ending(program: Program) -> None:
    await program.start("--fault", "hang_after_rate=1", "--fault", "hang_s=3600", "--ingest", "synthesize")
    hanging = asyncio.create_task(program.http.get("/v1/videos"))
    await until(lambda: _struck(program))
    assert await program.end(signal.SIGTERM) == 0
    with pytest.raises(httpx.HTTPError):
        await hanging


async def _struck(program: Program) -> bool:
    return bool((await program.stats())["faults"])


async def test_everything_can_be_said_by_variables_and_by_a_file_and_options_win(tmp_path: Path) -> None:
    file = tmp_path / "sandbox.toml"
    file.write_text(
        f'token = "from-file"\ndata = "{tmp_path / "file"}"\nhost = "127.0.0.1"\n'
        '[faults]\ningest = "synthesize"\ningest_s = 5.0\nretry_after = "float"\n'
        '[[faults.limits]]\nname = "five"\nrequests = 1200\nper_s = 300\nblock_s = 300\n'
    )
    program = Program(tmp_path / "option")
    variables = {
        "SANDBOX_CONFIG": str(file),
        "SANDBOX_TOKEN": "from-variable",
        "SANDBOX_INGEST_S": "7",
        "SANDBOX_FAULT": "lost_answer_rate=0.5 retry_after=nan",
    }
    await program.start("--fault", "lost_answer_rate=0.125", env=variables)
    try:
        faults = (await program.http.get("/_sandbox/faults")).json()
        assert (faults["ingest"], faults["ingest_s"], faults["retry_after"]) == ("synthesize", 7.0, "float")
        assert faults["lost_answer_rate"] == 0.125
        assert faults["limits"][0] | {"name": "five", "block_s": 300.0} == faults["limits"][0]
        assert (tmp_path / "option").is_dir()
        assert not (tmp_path / "file").exists()
    finally:
        await program.end(signal.SIGTERM)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--data", "{tmp}"), "token: Field required"),
        (("--data", "{tmp}", "--token", ""), "token"),
        (("--token", "t"), "data: Field required"),
        (("--data", "{tmp}", "--token", "t", "--fault", "lost_anser_rate=1"), "faults.lost_anser_rate"),
        (("--data", "{tmp}", "--token", "t", "--fault", "lost_answer_rate=2"), "faults.lost_answer_rate"),
        (("--data", "{tmp}", "--token", "t", "--fault", "nothing"), "NAME=VALUE"),
        (("--data", "{tmp}", "--token", "t", "--limit", "5"), "REQUESTS/SECONDS"),
        (("--data", "{tmp}", "--token", "t", "--config", "{tmp}/none.toml"), "none.toml"),
        (("--data", "{tmp}", "--token", "t", "--webhook-secret", "whsec_"), "webhook_secret"),
    ],
)
def test_a_wrong_setting_is_named_and_nothing_starts(tmp_path: Path, arguments: tuple[str, ...], words: str) -> None:
    ended = CliRunner(env={"SANDBOX_TOKEN": None, "SANDBOX_DATA": None}).invoke(
        app, [argument.format(tmp=tmp_path) for argument in arguments]
    )
    assert ended.exit_code == 2
    assert words in ended.stderr
    assert ended.stdout == ""


async def test_a_directory_or_port_in_use_is_named(program: Program, tmp_path: Path) -> None:
    await program.start("--ingest", "synthesize")
    second = await launch("--data", str(program.data), "--token", "t")
    third = await launch("--data", str(tmp_path / "3"), "--token", "t", "--port", str(program.http.base_url.port))
    _, in_use = await asyncio.wait_for(second.communicate(), 20)
    _, taken = await asyncio.wait_for(third.communicate(), 20)
    assert (second.returncode, third.returncode) == (2, 2)
    assert "is in use by another sandbox" in in_use.decode()
    assert "ddress already in use" in taken.decode()


async def test_all_switches_are_listed() -> None:
    process = await launch("--list-faults")
    out, _ = await asyncio.wait_for(process.communicate(), 20)
    assert "lost_answer_rate=0.0" in out.decode().splitlines()
