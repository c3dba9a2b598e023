"""The main job: a library listed, inventoried, created, settled and reconciled, against real servers."""

from __future__ import annotations


async def test_every_video_of_a_manifest_arrives_once_and_is_verified(rig, unique):
    rows = [*rig.videos(60), ("empty", f"{rig.files}/empty.mp4"), ("page", f"{rig.files}/page.mp4")]
    result = await rig.migrate(unique, rig.manifest(rows))

    assert result["state"] == "finished"
    assert result["states"] == {"verified": 60, "rejected": 2}
    assert result["reasons"]["rejected"] == {"file-empty": 1, "source-returned-html": 1}
    assert result["creates"] == 60
    stats = rig.sandbox.stats()
    assert stats["creates"] == 60
    assert stats["duplicates"] == 0
