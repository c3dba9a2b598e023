"""A row that kills its worker costs two windows at most, then only itself; an ffprobe that is killed costs nothing."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from benchmarks.fleet import Fleet
from faults import attempts_allowed
from ledger import questions
from ledger.claims import ALONE_AFTER
from media.tools import find_ffprobe

NEIGHBOURS = 12
SCRIPT = """\
#!/bin/sh
case "$*" in
    *.mkv) kill -9 $PPID; exit 1 ;;
    *.mov) [ -e '{told}' ] || {{ : > '{told}'; kill -9 $$; }} ;;
esac
exec '{ffprobe}' "$@"
"""
"""An ffprobe that kills the worker over each Matroska file, and is itself killed over the first QuickTime file."""


@pytest_asyncio.fixture(scope="module")
async def fleet(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Fleet]:
    folder = tmp_path_factory.mktemp("poison")
    wrapper = folder / "ffprobe"
    wrapper.write_text(SCRIPT.format(told=folder / "told", ffprobe=find_ffprobe(None)))
    wrapper.chmod(0o755)
    variables = {"LONGHAUL_MEDIA__FFPROBE": str(wrapper), "LONGHAUL_WORKER__LEASE_S": "5"}
    async with Fleet.running(faults={"ingest": "synthesize"}, variables=variables) as fleet:
        fleet.video()
        for name in ("poison.mkv", "heavy.mov"):
            shutil.copy(fleet.folder / "media" / "good.mp4", fleet.folder / "media" / name)
        yield fleet
        fleet.kill("worker-0")


def library(fleet: Fleet, run: str, odd: str) -> Path:
    """Good videos, and an odd one in their middle."""
    files = [f"good.mp4?v={n}" for n in range(NEIGHBOURS)]
    files.insert(NEIGHBOURS // 2, odd)
    rows = "".join(f"{run}-{n},{fleet.url('files')}/{file}\n" for n, file in enumerate(files))
    path = fleet.folder / f"{run}.csv"
    path.write_text("id,url\n" + rows)
    return path


@contextlib.asynccontextmanager
async def worker_kept_up(fleet: Fleet) -> AsyncIterator[list[int | None]]:
    """Starts the worker again whenever it has ended; gives how it ended each time."""
    ends: list[int | None] = []

    async def keep() -> None:
        while True:
            if (code := fleet.children["worker-0"].exit_code()) is not None:
                ends.append(code)
                fleet.launch("worker-0")
            await asyncio.sleep(0.05)

    keeper = asyncio.create_task(keep())
    try:
        yield ends
    finally:
        keeper.cancel()
        await asyncio.gather(keeper, return_exceptions=True)


@pytest.mark.timeout(300)
async def test_a_row_that_kills_its_workers_is_worked_alone_and_quarantined_and_its_neighbours_finish(fleet, unique):
    async with worker_kept_up(fleet) as ends:
        result, _ = await fleet.migrate(unique, library(fleet, unique, "poison.mkv"), heartbeat_s=1)
    assert result["states"] == {"verified": NEIGHBOURS, "failed": 1}
    assert ends == [-signal.SIGKILL] * attempts_allowed("worker-died")

    [letter] = await questions.examples(fleet.engine, unique, ["failed"])
    assert (letter.reason, letter.count, letter.source_id) == ("worker-died", 1, f"{unique}-{NEIGHBOURS // 2}")

    steps = await fleet.engine.fetch(
        "select ref, worker, attempt from step where run = $1 and outcome = 'lost' order by started_at", unique
    )
    of_poison = [step for step in steps if step["ref"] == letter.ref]
    assert [step["attempt"] for step in of_poison] == list(range(1, attempts_allowed("worker-died") + 1))
    for step in of_poison[ALONE_AFTER:]:
        assert [other["ref"] for other in steps if other["worker"] == step["worker"]] == [letter.ref], "worked alone"


async def test_an_ffprobe_that_is_killed_is_tried_again_and_its_file_is_no_bad_file(fleet, unique):
    async with worker_kept_up(fleet) as ends:
        result, _ = await fleet.migrate(unique, library(fleet, unique, "heavy.mov"), heartbeat_s=1)
    assert ends == []
    assert result["states"] == {"verified": NEIGHBOURS + 1}
    [history] = await questions.history(fleet.engine, f"{unique}-{NEIGHBOURS // 2}")
    probed = [(step["outcome"], step["reason"]) for step in history.steps if step["phase"] == "inventory"]
    assert probed == [("again", "probe-died"), ("inventoried", None)]
