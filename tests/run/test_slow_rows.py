"""Rows that take long: a living worker keeps its claims, however long a single row takes."""

from __future__ import annotations

from media.tools import find_ffprobe

SCRIPT = """\
#!/bin/sh
case "$*" in
    *.mkv) sleep 9 ;;
    *) sleep 1.5 ;;
esac
exec '{ffprobe}' "$@"
"""


async def test_a_row_that_takes_longer_than_a_lease_is_worked_once(rig_factory, unique, tmp_path, media):
    slow = tmp_path / "ffprobe"
    slow.write_text(SCRIPT.format(ffprobe=find_ffprobe(None)))
    slow.chmod(0o755)
    (media / "slow.mkv").write_bytes((media / "good.mp4").read_bytes())
    # The others are claimed eight at a time while the slow one, the first of the list, is in hand.
    rig = await rig_factory(media={"ffprobe": slow}, worker={"lease_s": 5.0, "rows_in_hand": 9, "probes_at_once": 9})
    rows = [("slow", f"{rig.files}/slow.mkv"), *rig.videos(36)]
    result = await rig.migrate(unique, rig.manifest(rows))
    assert result["states"] == {"verified": 37}
    steps = await rig.engine.fetch("select outcome from step where phase = 'inventory'")
    assert [step["outcome"] for step in steps] == ["inventoried"] * 37
