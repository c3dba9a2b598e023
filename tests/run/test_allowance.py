"""An allowance that is spent stops a run, and its renewal lets it go on."""

from __future__ import annotations

from ledger import questions


async def test_a_run_whose_allowance_is_spent_parks_until_it_is_renewed(rig_factory, unique):
    """Creates and lists count: 12 in two hours."""
    rig = await rig_factory(account={"limits": [{"requests": 12, "per_s": 7200.0, "spend": 1.0}]})
    handle = await rig.start(unique, rig.manifest(rig.videos(20)), page_size=10)

    async def parked():
        return await rig.engine.fetchval("select state from run where run = $1", unique) == "parked"

    await rig.until(parked, "the run parks")
    progress = await rig.progress(unique)
    assert progress["park"]["reason"] == "allowance-spent"
    assert 3600 < progress["park"]["wait_s"] <= 7272, "it goes on by itself when the first units are free again"
    line = await questions.run_line(rig.engine, unique)
    assert (line.state, line.reason) == ("parked", "allowance-spent")
    assert rig.sandbox.stats()["creates"] == 12

    async def renewed():
        await rig.engine.execute("update budget set slices = '{}', slice_units = '{}'")
        await handle.execute_update("resume", {})

    await renewed()
    await rig.until(lambda: _made(rig, 20), "all are made")
    await renewed()
    assert (await handle.result())["states"] == {"verified": 20}
    most = await rig.engine.fetchval("select max(attempt) from step where phase = 'create'")
    assert most == 1, "no row paid for it"


async def _made(rig, count):
    return rig.sandbox.stats()["creates"] == count
