"""`worker.py` as a process: how it says that it is ready, how it ends, and what keeps it from starting."""

from __future__ import annotations

import re

import asyncpg
import httpx
import pytest

import worker
from connection import connect
from devstack.ports import free_ports
from devstack.temporal import TemporalDevServer
from faults import Fault
from ledger.engine import Engine
from settings import LedgerSettings
from tests.programs.conftest import as_variables, changed, log_of, wait_ended, wait_says


async def test_sigterm_in_the_middle_of_the_creates_finishes_what_is_in_hand_and_others_go_on(
    rig_factory, unique, programs
):
    """Then one process has the workflows and the ledger's questions, and one each the probes and the provider."""
    rig = await rig_factory(faults={"latency_ms": 150}, work=False, worker={"rows_in_hand": 4})
    variables = as_variables(rig.settings)
    first = programs.start("worker.py", variables=variables)
    handle = await rig.start(unique, rig.manifest(rig.videos(30)), page_size=10)
    await rig.until(lambda: rig.sandbox.stats()["creates"] >= 4, "creates have begun")
    assert "worker ready" in log_of(first)

    first.signal(first.stop_signal)
    await rig.until(lambda: first.exit_code() is not None, "it ends")

    assert first.exit_code() == 0, log_of(first)
    assert "worker stopped" in log_of(first)
    assert "Traceback" not in log_of(first)
    assert await rig.engine.fetchval("select count(*) from asset where claim is not null") == 0
    assert await rig.engine.fetchval("select count(*) from step where outcome is null or outcome = 'lost'") == 0
    made = rig.sandbox.stats()["creates"]
    assert made == await rig.engine.fetchval("select count(*) from asset where remote_id is not null")
    assert made < 30

    rig.sandbox.faults(latency_ms=0)
    [port] = free_ports(1)
    serves = {"LONGHAUL_TELEMETRY__PROMETHEUS_BIND": f"127.0.0.1:{port}"}
    fleet = [
        programs.start("worker.py", "workflows", "ledger", variables=variables),
        programs.start("worker.py", "probe", variables=variables),
        programs.start("worker.py", "provider", variables={**variables, **serves}),
    ]
    assert (await handle.result())["states"] == {"verified": 30}
    assert rig.sandbox.stats()["creates"] == 30
    async with httpx.AsyncClient() as client:
        metrics = (await client.get(f"http://127.0.0.1:{port}/metrics")).text
    assert re.search(r'^longhaul_rows\{.*outcome="created".*\} \d+$', metrics, re.MULTILINE)
    assert "temporal_activity_execution_latency" in metrics, "Temporal's own"
    for child, roles in zip(fleet, ("workflows,ledger", "probe", "provider"), strict=True):
        wait_says(child, f"roles={roles}")
        child.signal(child.stop_signal)
    assert [wait_ended(child) for child in fleet] == [0, 0, 0]


# --------------------------------------------------------------------------------------- what keeps it from starting


async def test_an_empty_or_older_ledger_is_refused_with_the_command_that_mends_it(database, temporal, programs):
    connection = await asyncpg.connect(database)
    try:
        await connection.execute("update alembic_version set version_num = '0000'")
        variables = {"LONGHAUL_LEDGER__DSN": database, "TEMPORAL_ADDRESS": temporal.address}
        said = programs.run("worker.py", variables=variables)
        assert said.code == 1
        assert said.err.splitlines()[-1].startswith("longhaul worker: the ledger's schema is 0000, this code needs 0")
        assert "run `python -m ledger migrate`" in said.err
        assert "Traceback" not in said.err
        await connection.execute("drop table alembic_version")
        with pytest.raises(Fault, match="schema is none"):
            await Engine.open(LedgerSettings(dsn=database))
    finally:
        await connection.close()


async def test_a_missing_namespace_is_refused_with_the_command_that_makes_it(rig_factory):
    rig = await rig_factory(work=False, endpoint=False)
    settings = changed(rig.settings, temporal={"namespace": "elsewhere"})
    client = await connect(settings, "worker")
    with pytest.raises(Fault) as refused:
        async with worker.running(settings, client):
            pass
    assert refused.value.code == "settings-refused"
    assert "Temporal has no namespace 'elsewhere'" in refused.value.detail
    assert "`temporal operator namespace create -n elsewhere`" in refused.value.detail


async def test_missing_search_attributes_are_refused_with_the_command_that_registers_them(rig_factory, tmp_path):
    rig = await rig_factory(work=False, endpoint=False)
    with TemporalDevServer(search_attributes={"LonghaulRun": "Keyword"}, log=tmp_path / "temporal.log") as server:
        settings = changed(rig.settings, temporal={"address": server.address})
        client = await connect(settings, "worker")
        with pytest.raises(Fault) as refused:
            async with worker.running(settings, client):
                pass
    assert "lacks search attributes: run `temporal operator search-attribute create" in refused.value.detail
    assert "--name LonghaulTenant --type Keyword" in refused.value.detail
    assert "LonghaulRun" not in refused.value.detail


@pytest.mark.parametrize(("made", "words"), [(False, "which is no program"), (True, "is no ffprobe")])
async def test_a_worker_that_is_to_probe_and_has_no_ffprobe_is_refused_and_the_others_start(
    rig_factory, tmp_path, made, words
):
    rig = await rig_factory(work=False, endpoint=False)
    path = tmp_path / "ffprobe"
    if made:
        path.write_text("#!/bin/sh\necho hello\n")
        path.chmod(0o755)
    settings = changed(rig.settings, media={"ffprobe": path})
    with pytest.raises(Fault) as refused:
        async with worker.running(settings, rig.client):
            pass
    assert refused.value.code == "settings-refused"
    assert words in refused.value.detail
    assert "LONGHAUL_MEDIA__FFPROBE" in refused.value.detail
    async with worker.running(settings, rig.client, roles=("workflows", "ledger", "provider")):
        pass


def test_an_unknown_role_is_refused_with_those_that_there_are(programs):
    said = programs.run("worker.py", "ledger", "juggler", variables={})
    assert said.code == 2
    assert "no such role: juggler; choose from workflows, ledger, probe, provider" in said.err


def test_without_temporal_it_says_so_within_seconds(database, programs):
    [port] = free_ports(1)
    variables = {"LONGHAUL_LEDGER__DSN": database, "TEMPORAL_ADDRESS": f"127.0.0.1:{port}"}
    said = programs.run("worker.py", variables=variables, timeout=60)
    assert said.code == 1
    assert f"longhaul worker: Temporal at 127.0.0.1:{port} does not answer (Connection refused)" in said.err
    assert "Traceback" not in said.err
