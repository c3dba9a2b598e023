"""Local files are sent to a host that cannot read them, from where an earlier worker stood."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

from ledger import questions
from tests.programs.conftest import as_variables, programs
from workflows.ids import migration_id

__all__ = ["programs"]

CHUNK = 16_384
ACCOUNT = {"options": {"uploads": "tus", "uploads_chunk_bytes": CHUNK}}
PATCH = "PATCH /v1/uploads/{id}"


def large(media: Path, folder: Path, chunks: int = 40) -> Path:
    """A folder with one good video of so many chunks."""
    folder.mkdir()
    content = (media / "good.mp4").read_bytes()
    # MP4: a box of the kind "free" is skipped by whoever plays it.
    padding = chunks * CHUNK - len(content)
    (folder / "large.mp4").write_bytes(content + padding.to_bytes(4, "big") + b"free" + bytes(padding - 8))
    return folder


async def begin(rig: Any, run: str, folder: Path) -> Any:
    rig.started.append(run)
    given = {"account": "sandbox", "tenant": "acme", "source": {"kind": "folder", "location": str(folder)}}
    given["heartbeat_s"] = 1
    return await rig.client.start_workflow("MigrationWorkflow", given, id=migration_id(run), task_queue="longhaul")


async def test_a_folder_arrives_at_a_host_that_takes_bytes(rig_factory, unique, media, tmp_path):
    folder = tmp_path / "library"
    folder.mkdir()
    for name in ("good.mp4", "other.mp4", "empty.mp4", "page.mp4"):
        shutil.copy(media / name, folder / name)
    rig = await rig_factory(faults={"ingest": "fetch"}, account=ACCOUNT)
    result = await (await begin(rig, unique, folder)).result()
    assert result["states"] == {"verified": 2, "rejected": 2}, "good and other; the empty file and the page"
    stats = rig.sandbox.stats()
    size = (media / "good.mp4").stat().st_size
    assert (stats["uploads"], stats["bytes"], stats["creates"]) == (2, 2 * size, 2)
    assert stats["requests"]["POST /v1/uploads"] == 2
    assert stats["requests"][PATCH] == 2 * -(-size // CHUNK)
    rows = await rig.engine.fetch("select transfer from asset where state = 'verified'")
    assert [row["transfer"] for row in rows] == [None, None], "what has come needs no place to go on from"


async def test_a_killed_worker_s_transfer_goes_on_where_it_stood(rig_factory, unique, media, tmp_path, programs):
    folder = large(media, tmp_path / "library")
    size = (folder / "large.mp4").stat().st_size
    rig = await rig_factory(
        faults={"ingest": "fetch", "operations": ["upload"], "latency_ms": 100}, account=ACCOUNT, work=False
    )
    variables = {**as_variables(rig.settings), "LONGHAUL_WORKER__LEASE_S": "5"}
    first = programs.start("worker.py", variables=variables)
    handle = await begin(rig, unique, folder)
    await rig.until(lambda: rig.sandbox.stats()["bytes"] >= size // 3, "a third has come")
    first.kill()
    sent = rig.sandbox.stats()["bytes"]
    assert sent < size

    rig.sandbox.faults(latency_ms=0)
    programs.start("worker.py", variables=variables)
    assert (await handle.result())["states"] == {"verified": 1}
    stats = rig.sandbox.stats()
    assert (stats["uploads"], stats["creates"], stats["duplicates_ever"]) == (1, 1, 0)
    assert size <= stats["bytes"] <= size + CHUNK, "a break costs no more than a chunk"


async def test_a_worker_that_is_told_to_stop_leaves_the_transfer_to_another(
    rig_factory, unique, media, tmp_path, programs
):
    folder = large(media, tmp_path / "library")
    rig = await rig_factory(faults={"operations": ["upload"], "latency_ms": 100}, account=ACCOUNT, work=False)
    variables = as_variables(rig.settings)
    first = programs.start("worker.py", variables=variables)
    handle = await begin(rig, unique, folder)
    await rig.until(lambda: rig.sandbox.stats()["bytes"] >= 4 * CHUNK, "it is being sent")
    first.signal(first.stop_signal)
    await rig.until(lambda: first.exit_code() is not None, "it ends between two chunks")
    assert first.exit_code() == 0
    assert rig.sandbox.stats()["videos"]["uploading"] == 1

    rig.sandbox.faults(latency_ms=0)
    programs.start("worker.py", variables=variables)
    assert (await handle.result())["states"] == {"verified": 1}
    stats = rig.sandbox.stats()
    assert (stats["uploads"], stats["bytes"]) == (1, (folder / "large.mp4").stat().st_size)
    assert await rig.engine.fetchval("select max(attempt) from step where phase = 'create'") == 1, "nobody's attempt"


async def test_a_cancelled_run_s_transfer_is_gone_on_with_by_a_later_one(rig_factory, unique, media, tmp_path):
    folder = large(media, tmp_path / "library")
    rig = await rig_factory(faults={"operations": ["upload"], "latency_ms": 100}, account=ACCOUNT)
    handle = await begin(rig, unique, folder)
    await rig.until(lambda: rig.sandbox.stats()["bytes"] >= 4 * CHUNK, "it is being sent")
    await handle.cancel()
    await rig.until(lambda: _ended(rig, unique), "the run is cancelled")
    rig.sandbox.faults(latency_ms=0)
    again = await begin(rig, f"{unique}-again", folder)
    assert (await again.result())["states"] == {"verified": 1}
    stats = rig.sandbox.stats()
    assert (stats["uploads"], stats["creates"]) == (1, 1)
    assert stats["bytes"] < 2 * (folder / "large.mp4").stat().st_size


async def test_a_lost_announcement_costs_a_look_up_and_makes_no_second_video(rig_factory, unique, media, tmp_path):
    folder = large(media, tmp_path / "library")
    rig = await rig_factory(
        faults={"operations": ["upload"], "script": ["lost_answer"]},
        account={**ACCOUNT, "timeout_s": 1.0, "quiet_s": 3.0},
    )
    result = await (await begin(rig, unique, folder)).result()
    assert result["states"] == {"verified": 1}
    stats = rig.sandbox.stats()
    assert (stats["duplicates_ever"], stats["videos"]["uploading"], stats["videos"]["ready"]) == (0, 1, 1)
    assert stats["requests"]["GET /v1/videos?reference"] >= 1


async def test_a_file_that_changes_while_it_is_sent_is_told_and_a_redrive_sends_it_anew(
    rig_factory, unique, media, tmp_path
):
    folder = large(media, tmp_path / "library")
    rig = await rig_factory(faults={"ingest": "fetch", "operations": ["upload"], "latency_ms": 100}, account=ACCOUNT)
    handle = await begin(rig, unique, folder)
    await rig.until(lambda: rig.sandbox.stats()["bytes"] >= 2 * CHUNK, "it is being sent")
    os.utime(folder / "large.mp4", ns=(10**18, 10**18))
    result = await handle.result()
    assert result["reasons"] == {"rejected": {"file-changed": 1}}
    (history,) = await questions.history(rig.engine, "large.mp4")
    assert "changed" in history.asset["detail"]

    rig.sandbox.faults(latency_ms=0)
    rig.started.append(f"{unique}-redrive")
    again = await rig.client.start_workflow(
        "MigrationWorkflow",
        {
            "account": "sandbox",
            "tenant": "acme",
            "source": {"kind": "folder", "location": str(folder)},
            "redrive": {"of_run": unique},
        },
        id=migration_id(f"{unique}-redrive"),
        task_queue="longhaul",
    )
    assert (await again.result())["states"] == {"verified": 1}
    assert rig.sandbox.stats()["duplicates_ever"] == 0


async def _ended(rig: Any, run: str) -> bool:
    return await rig.engine.fetchval("select state from run where run = $1", run) == "cancelled"
