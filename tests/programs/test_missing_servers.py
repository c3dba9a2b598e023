"""The command line while no worker runs, and while Temporal is away."""

from __future__ import annotations

import asyncio

import worker
from connection import connect
from devstack.temporal import TemporalDevServer, TemporalPorts
from tests.programs.conftest import as_variables, changed, log_of, starter_says
from workflows.attributes import NAMES


async def test_a_run_waits_for_its_worker_and_a_view_of_it_outlives_a_restart_of_temporal(
    rig_factory, unique, programs, tmp_path
):
    rig = await rig_factory(work=False)
    ports = TemporalPorts.free()
    server = TemporalDevServer(
        search_attributes=NAMES, log=tmp_path / "temporal.log", db=tmp_path / "temporal.db", ports=ports
    )
    server.start()
    try:
        settings = changed(rig.settings, temporal={"address": server.address})
        variables = as_variables(settings)

        async def says(*arguments: str):
            return await asyncio.to_thread(starter_says, *arguments, variables=variables)

        manifest = str(rig.manifest(rig.videos(2)))
        said = await says("start", manifest, "--name", unique)
        assert said.code == 0
        assert said.out.splitlines()[-1] == "no worker runs; it begins when one does: python worker.py"
        said = await says("status", unique)
        assert (said.code, said.err) == (0, "")
        assert said.out.splitlines()[:2] == [
            f"run {unique}: waiting",
            "no worker has begun it yet; start one: python worker.py",
        ]
        said = await says("status", unique, "--json")
        assert (said.json["state"], said.json["progress"]) == ("waiting", None)

        view = programs.start("starter.py", "watch", unique, "--json", variables=variables)
        await rig.until(lambda: "no worker answers for run" in log_of(view), "the view says that no worker runs")
        server.kill()
        await rig.until(lambda: "Temporal cannot be reached; the view" in log_of(view), "the view says what is away")
        server.start()
        async with worker.running(settings, await connect(settings, "test")):
            await rig.until(lambda: view.exit_code() is not None, "the view ends with the run")
        assert view.exit_code() == 0, log_of(view)
        assert '"states": {"verified": 2}' in log_of(view).splitlines()[-1]
        assert log_of(view).count("no worker answers for run") <= 2
    finally:
        server.stop()
