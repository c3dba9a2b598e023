"""Text tracks, posters and who may see a video: they travel with it, or it is told which didn't and why."""

from __future__ import annotations

import csv
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from temporalio.service import RPCError

from ledger import budgets, questions
from workflows.ids import page_id

SRT = "1\r\n00:00:00,500 --> 00:00:01,500\r\nGrüße\r\n"
VTT = "WEBVTT\n\n00:00.500 --> 00:01.500\nHello\n"
PNG = b"\x89PNG\r\n\x1a\n" + bytes(64)
OPTIONS = {"captions_path": "/v1/videos/{id}/captions/{language}", "poster_path": "/v1/videos/{id}/poster"}
ACCOUNT = {"options": OPTIONS}
PUT = "PUT /v1/videos/{id}/captions/{language}"


@pytest.fixture(scope="module")
def tracks(media: Path) -> Path:
    """Text tracks and a poster beside the videos, where the same server serves them."""
    (media / "de.srt").write_bytes(SRT.encode("cp1252"))
    (media / "poster.png").write_bytes(PNG)
    (media / "notes.txt").write_text("not a word was said\n", encoding="utf-8")
    return media


def manifest(rig: Any, rows: Sequence[dict[str, str]], name: str = "library.csv") -> Path:
    """Rows of good videos with these further columns, in which addresses are names of files."""
    columns = list(dict.fromkeys(key for row in rows for key in row))
    path: Path = rig.folder / name
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, ["id", "url", *columns])
        writer.writeheader()
        for n, row in enumerate(rows):
            told = {
                key: f"{rig.files}/{value}" if value and "." in value and "://" not in value else value
                for key, value in row.items()
            }
            writer.writerow({"id": f"v{n}", "url": f"{rig.files}/good.mp4?n={n}", **told})
    return path


async def asset(rig: Any, source_id: str) -> dict[str, Any]:
    (history,) = await questions.history(rig.engine, source_id)
    return dict(history.asset)


def on(rig: Any, remote_id: str) -> Any:
    """The video as the sandbox has it."""
    return rig.sandbox.api.store.get(remote_id)


async def test_text_tracks_and_posters_land_on_their_videos_as_webvtt(rig_factory, unique, tracks):
    rig = await rig_factory(account=ACCOUNT)
    rows = [
        {"captions.de": "de.srt", "captions.en": "en.vtt", "poster": "poster.png"},
        {"captions.de": "", "captions.en": "en.vtt", "poster": ""},
        {"captions.de": "", "captions.en": "", "poster": ""},
    ]
    result = await rig.migrate(unique, manifest(rig, rows))
    assert result["states"] == {"verified": 3}
    found = [on(rig, (await asset(rig, f"v{n}"))["remote_id"]) for n in range(3)]
    assert [(video.captions, video.poster) for video in found] == [(("de", "en"), True), (("en",), False), ((), False)]
    german = rig.sandbox.api.store.attached(found[0].id, "caption", "de").content.decode()
    assert german.startswith("WEBVTT")
    assert "00:00:00.500 --> 00:00:01.500\nGrüße" in german
    assert rig.sandbox.api.store.attached(found[0].id, "poster", "").content == PNG
    steps = await rig.engine.fetch("select phase, outcome, attempt from step where phase = 'attach'")
    assert [tuple(step) for step in steps] == [("attach", "attached", 1)] * 2, "only of those that have something"
    requests = rig.sandbox.stats()["requests"]
    assert (requests[PUT], requests["PUT /v1/videos/{id}/poster"]) == (3, 1)


async def test_what_is_lost_is_told_with_which_and_why_and_everything_else_is_on_the_video(rig_factory, unique, tracks):
    rig = await rig_factory(account=ACCOUNT)
    rows = [
        {"captions.de": "gone.srt", "captions.en": "en.vtt", "poster": "poster.png"},
        {"captions.de": "notes.txt", "captions.en": "en.vtt", "poster": "notes.txt"},
        {"captions.de": "de.srt", "captions.en": "", "poster": ""},
    ]
    result = await rig.migrate(unique, manifest(rig, rows))
    assert result["states"] == {"verified": 1, "mismatched": 2}
    assert result["reasons"]["mismatched"] == {"attachment-lost": 2}
    first, second = await asset(rig, "v0"), await asset(rig, "v1")
    assert first["detail"].startswith("the de subtitles: the source has no such file")
    assert "the de subtitles" in second["detail"]
    assert "neither WebVTT nor SubRip" in second["detail"]
    assert "the poster" in second["detail"]
    assert (on(rig, first["remote_id"]).captions, on(rig, first["remote_id"]).poster) == (("en",), True)
    assert (on(rig, second["remote_id"]).captions, on(rig, second["remote_id"]).poster) == (("en",), False)


async def test_of_two_tracks_in_a_language_none_takes_the_others_place_unsaid(rig_factory, unique, tracks):
    rig = await rig_factory(account=ACCOUNT)
    found = [{"language": "en", "url": f"{rig.files}/en.vtt"}, {"language": "EN", "url": f"{rig.files}/de.srt"}]
    row = {"id": "v0", "url": f"{rig.files}/good.mp4", "captions": [found[0], {**found[1], "kind": "captions"}]}
    library = rig.folder / "library.jsonl"
    library.write_text(json.dumps(row) + "\n", encoding="utf-8")
    result = await rig.migrate(unique, library)
    assert result["reasons"] == {"mismatched": {"attachment-lost": 1}}
    lost = await asset(rig, "v0")
    assert lost["detail"].startswith("the EN captions: ")
    assert "sandbox has one track a language" in lost["detail"]
    assert rig.sandbox.api.store.attached(lost["remote_id"], "caption", "en").content.decode() == VTT


async def test_a_redrive_attaches_what_was_mended_and_makes_nothing_again(rig_factory, unique, tracks):
    rig = await rig_factory(account=ACCOUNT)
    library = manifest(rig, [{"captions.fr": "fr.vtt", "captions.en": "en.vtt"}])
    assert (await rig.migrate(unique, library))["states"] == {"mismatched": 1}
    (tracks / "fr.vtt").write_text(VTT, encoding="utf-8")
    try:
        again = await rig.migrate(f"{unique}-redrive", library, redrive={"of_run": unique})
    finally:
        (tracks / "fr.vtt").unlink()
    assert again["states"] == {"verified": 1}
    assert on(rig, (await asset(rig, "v0"))["remote_id"]).captions == ("en", "fr")
    assert rig.sandbox.stats()["creates"] == 1


async def test_trouble_that_passes_costs_an_attempt_and_loses_nothing(rig_factory, unique, tracks):
    rig = await rig_factory(
        account=ACCOUNT, faults={"operations": ["attach"], "script": ["error_before", "none", "lost_answer"]}
    )
    result = await rig.migrate(unique, manifest(rig, [{"captions.de": "de.srt", "captions.en": "en.vtt"}]))
    assert result["states"] == {"verified": 1}
    assert on(rig, (await asset(rig, "v0"))["remote_id"]).captions == ("de", "en")
    steps = await rig.engine.fetch("select outcome, reason from step where phase = 'attach' order by attempt")
    assert ("again", "destination-error") in [tuple(step) for step in steps]
    assert steps[-1]["outcome"] == "attached"


async def test_trouble_that_stays_keeps_none_of_the_others_back(rig_factory, unique, tracks, monkeypatch):
    monkeypatch.setattr("faults.ROW_ATTEMPTS", 2)
    rig = await rig_factory(account=ACCOUNT)
    nobody = "http://127.0.0.1:9/de.vtt"
    rows = [{"captions.de": nobody, "captions.en": "en.vtt", "captions.fr": "gone.vtt", "poster": "poster.png"}]
    result = await rig.migrate(unique, manifest(rig, rows))
    assert result["reasons"] == {"mismatched": {"attachment-lost": 1}}
    found = await asset(rig, "v0")
    assert "the de subtitles: the source did not answer" in found["detail"]
    assert "the fr subtitles: the source has no such file" in found["detail"]
    video = on(rig, found["remote_id"])
    assert (video.captions, video.poster) == (("en",), True)
    steps = await rig.engine.fetch("select outcome from step where phase = 'attach' order by attempt")
    assert [step["outcome"] for step in steps] == ["again", "attachment-lost"]


async def test_a_destination_that_refuses_one_kind_gets_the_others(rig_factory, unique, tracks):
    rig = await rig_factory(account={"options": {**OPTIONS, "poster_path": "/v1/nothing-here/{id}"}})
    rows = [{"poster": "poster.png", "captions.de": "de.srt", "captions.en": "en.vtt"}]
    result = await rig.migrate(unique, manifest(rig, rows))
    assert result["reasons"] == {"mismatched": {"attachment-lost": 1}}
    found = await asset(rig, "v0")
    assert "the poster" in found["detail"]
    assert on(rig, found["remote_id"]).captions == ("de", "en")


async def test_pushback_while_attaching_pauses_the_account_and_is_nobody_s_attempt(rig_factory, unique, tracks):
    rig = await rig_factory(account=ACCOUNT, faults={"operations": ["attach"], "script": ["refuse_429"] * 2})
    result = await rig.migrate(unique, manifest(rig, [{"captions.en": "en.vtt"}] * 4))
    assert result["states"] == {"verified": 4}
    assert (
        await rig.engine.fetchval("select max(attempt) from step where phase = 'attach' and outcome = 'attached'") == 1
    )


async def test_a_library_with_nothing_to_attach_has_no_pages_in_that_phase(rig_factory, unique):
    rig = await rig_factory(account=ACCOUNT)
    result = await rig.migrate(unique, rig.manifest(rig.videos(10)), page_size=5)
    assert result["states"] == {"verified": 10}
    for page in (1, 2):
        with pytest.raises(RPCError, match="not found"):
            await rig.client.get_workflow_handle(page_id(unique, "attach", page)).describe()
    assert await rig.engine.fetchval("select count(*) from step where phase = 'attach'") == 0
    progress = await rig.progress(unique)
    assert [phase["state"] for phase in progress["phases"]] == ["closed"] * 6


async def test_a_destination_without_a_place_for_them_gets_none_and_the_videos_arrive(rig, unique, tracks):
    result = await rig.migrate(unique, manifest(rig, [{"captions.en": "en.vtt", "poster": "poster.png"}]))
    assert result["states"] == {"verified": 1}
    assert (rig.sandbox.stats()["captions"], rig.sandbox.stats()["posters"]) == (0, 0)


async def test_a_private_video_does_not_become_public(rig, unique):
    rows = [{"privacy": privacy} for privacy in ("private", "unlisted", "public", "")]
    result = await rig.migrate(unique, manifest(rig, rows))
    assert result["states"] == {"verified": 2, "rejected": 2}
    assert result["reasons"]["rejected"] == {"private-refused": 2}
    assert "private at the source" in (await asset(rig, "v0"))["detail"]
    assert rig.sandbox.stats()["creates"] == 2


async def test_a_private_video_is_published_where_the_settings_say_so(rig_factory, unique):
    rig = await rig_factory(account={"publish_private": True})
    result = await rig.migrate(unique, manifest(rig, [{"privacy": "private"}]))
    assert result["states"] == {"verified": 1}


async def test_what_is_known_of_a_video_is_told_to_a_destination_that_has_a_place_for_it(rig_factory, unique):
    rig = await rig_factory(account={"options": {"about_field": "about"}})
    told = {"privacy": "private", "description": "Long ago", "tags": "a, b", "folder": "x/y"}
    result = await rig.migrate(unique, manifest(rig, [told]))
    assert result["states"] == {"verified": 1}
    video = on(rig, (await asset(rig, "v0"))["remote_id"])
    assert video.about == {"description": "Long ago", "tags": ["a", "b"], "folder": "x/y", "privacy": "private"}


async def test_whatever_a_page_asks_for_counts_for_its_tenant_and_lane(rig_factory, unique, tracks):
    """The create and the text track of each video; the list of everything is nobody's own."""
    rig = await rig_factory(account={**ACCOUNT, "limits": [{"requests": 1_000, "per_s": 1}]})
    result = await rig.migrate(unique, manifest(rig, [{"captions.en": "en.vtt"}] * 3), lane="live", tenant="acme")
    assert result["states"] == {"verified": 3}
    standing = await budgets.pace_of(rig.engine, "sandbox")
    assert {(each.tenant, each.lane): each.leased for each in standing.tenants} == {
        ("acme", "live"): 6,
        ("default", "bulk"): 1,
    }
