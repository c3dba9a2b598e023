"""What a destination has no place for is said before anything is made there, and again in the report."""

from __future__ import annotations

from destinations.base import Capabilities
from destinations.checking import losses, losses_at
from ledger import questions


def test_what_has_a_place_is_no_loss():
    offers = Capabilities("exact", False, True, 1000, carries=frozenset({"tags"}), captions="bytes")
    have = {"tags": 3, "captions": 2, "poster": 1, "folder": 4, "description": 0}
    assert losses(have, offers) == {"poster": 1, "folder": 4}


async def test_a_run_that_waits_for_approval_says_what_will_be_lost_before_anything_is_made(rig, unique):
    manifest = rig.folder / "told.csv"
    manifest.write_text(
        "id,url,description,tags,poster,privacy\n"
        f"a,{rig.files}/good.mp4?n=a,what it is about,spring,{rig.files}/p.jpg,public\n"
        f"b,{rig.files}/good.mp4?n=b,,autumn,,unlisted\n"
    )
    handle = await rig.start(unique, manifest, approval=True)
    await rig.until(lambda: _waits(rig, unique), "it waits for approval")
    estimate = (await rig.progress(unique))["estimate"]
    expected = {"description": 1, "tags": 2, "poster": 1, "privacy": 1}
    assert estimate["losses"] == expected
    assert rig.sandbox.stats()["creates"] == 0
    await handle.execute_update("approve", {})
    result = await handle.result()
    assert result["reasons"]["rejected"] == {"private-refused": 1}
    have = await questions.have(rig.engine, unique)
    assert await losses_at("sandbox", rig.settings, have) == expected
    assert await losses_at("gone", rig.settings, have) == {}


async def _waits(rig, run):
    return (await rig.progress(run))["state"] == "awaiting-approval"
