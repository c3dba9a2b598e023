"""The main job: a library listed, inventoried, created, settled and reconciled, against real servers."""

from __future__ import annotations

import json
import shutil

import pytest

from ledger import questions
from ledger.assets import VIDEO, ref_of
from workflows.ids import migration_id, page_id


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
    assert sum(stats["requests"].values()) == 61, "one create for each, and one list for all"


async def test_a_second_run_over_a_finished_library_makes_nothing_and_fails_nothing(rig, unique):
    manifest = rig.manifest(rig.videos(40))
    await rig.migrate(unique, manifest)
    before = rig.sandbox.stats()["requests"]

    again = await rig.migrate(f"{unique}-again", manifest)

    assert (again["listed"], again["added"], again["owned"]) == (40, 0, 40)
    assert again["creates"] == 0
    assert again["states"] == {}
    assert again["library"] == {"verified": 40}
    assert rig.sandbox.stats()["requests"] == before


async def test_the_same_run_started_again_goes_on_where_the_ledger_stands(rig, unique):
    manifest = rig.manifest(rig.videos(10))
    first = await rig.migrate(unique, manifest)
    second = await rig.migrate(unique, manifest)
    assert second["states"] == first["states"] == {"verified": 10}
    assert rig.sandbox.stats()["creates"] == 10


async def test_a_local_folder_is_migrated_to_a_destination_that_reads_local_files(rig_factory, unique, tmp_path):
    rig = await rig_factory(account={"options": {"local_files": True}})
    folder = tmp_path / "videos"
    folder.mkdir()
    for name in ("good.mp4", "other.mp4", "empty.mp4", "page.mp4"):
        shutil.copy(rig.media / name, folder)
    rig.started.append(unique)
    handle = await rig.client.start_workflow(
        "MigrationWorkflow",
        {"account": "sandbox", "source": {"kind": "folder", "location": str(folder)}},
        id=migration_id(unique),
        task_queue="longhaul",
    )
    result = await handle.result()
    assert result["states"] == {"verified": 2, "rejected": 2}, "good and other; the empty file and the page"


async def test_a_local_file_for_a_destination_that_fetches_is_refused_with_what_to_do(rig, unique):
    rows = [("local", str(rig.media / "good.mp4")), *rig.videos(2)]
    result = await rig.migrate(unique, rig.manifest(rows))
    assert result["states"] == {"verified": 2, "rejected": 1}
    (history,) = await questions.history(rig.engine, "local")
    assert history.asset["reason"] == "local-file-refused"
    assert "http" in history.asset["detail"]


async def test_ids_summaries_and_search_attributes_say_where_an_execution_is(rig, unique):
    await rig.migrate(unique, rig.manifest(rig.videos(30)))
    page = await rig.client.get_workflow_handle(page_id(unique, "create", 1)).describe()
    assert page.id == f"{unique}/create/000001"
    assert await page.static_summary() == f"{unique}: create, page 1"
    found = {pair.key.name: pair.value for pair in page.typed_search_attributes}
    assert found["LonghaulRun"] == unique
    assert found["LonghaulPhase"] == "create"
    run = await rig.client.get_workflow_handle(migration_id(unique)).describe()
    found = {pair.key.name: pair.value for pair in run.typed_search_attributes}
    assert {name: value for name, value in found.items() if name.startswith("Longhaul")} == {
        "LonghaulRun": unique,
        "LonghaulTenant": "acme",
        "LonghaulPhase": "reconcile",
        "LonghaulState": "finished",
    }


async def test_no_history_carries_rows_only_ids_and_counts(rig, unique):
    await rig.migrate(unique, rig.manifest(rig.videos(50)))
    history = await rig.client.get_workflow_handle(migration_id(unique)).fetch_history()
    text = history.to_json()
    assert "good.mp4" not in text
    assert len(text) < 200_000
    page = await rig.client.get_workflow_handle(page_id(unique, "create", 1)).fetch_history()
    assert len(page.events) == 11


async def test_every_step_of_an_asset_is_in_its_history(rig, unique):
    await rig.migrate(unique, rig.manifest(rig.videos(3)))
    ref = ref_of("acme", "manifest", VIDEO, "v1")
    (history,) = await questions.history(rig.engine, ref)
    steps = [(step["phase"], step["outcome"], step["attempt"]) for step in history.steps]
    assert steps == [("inventory", "inventoried", 1), ("create", "created", 1), ("reconcile", "verified", 1)]
    assert [event["state"] for event in history.events] == ["ready"]
    assert history.asset["facts"]["video_codec"] == "h264"
    assert history.asset["remote_id"]


async def test_a_manifests_problems_are_told_with_line_and_remedy_and_the_other_rows_arrive(rig, unique):
    manifest = rig.folder / "library.csv"
    manifest.write_text(
        f"id,url\nv1,{rig.files}/good.mp4\n\nv2\nv3,{rig.files}/good.mp4?3\nv3,{rig.files}/good.mp4?other\n"
        f"v1,{rig.files}/good.mp4\n",
        encoding="utf-8",
    )
    result = await rig.migrate(unique, manifest)
    assert result["states"] == {"verified": 2}
    problems = {(problem.position, problem.field) for problem in await questions.problems(rig.engine, unique)}
    assert (4, "url") in problems or (4, "") in problems
    assert (6, "id") in problems
    summary = await questions.summary(rig.engine, unique)
    assert (summary.listed, summary.added, summary.collapsed) == (4, 2, 2)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"account": "nowhere"}, "no account named 'nowhere'"),
        ({"source": {"kind": "manifest", "location": "/no/such/manifest.csv"}}, "/no/such/manifest.csv"),
        ({"tennant": "acme"}, "tennant"),
        ({"source": {"kind": "films", "location": "/x"}}, "films"),
        ({"pages_at_once": "many"}, "pages_at_once"),
    ],
)
async def test_a_run_that_cannot_work_fails_at_once_and_says_why(rig, unique, given, words):
    from client import _innermost

    manifest = rig.manifest(rig.videos(1))
    rig.started.append(unique)
    whole = {"account": "sandbox", "source": {"kind": "manifest", "location": str(manifest)}, **given}
    with pytest.raises(Exception) as failure:
        await rig.client.execute_workflow("MigrationWorkflow", whole, id=migration_id(unique), task_queue="longhaul")
    assert words in _innermost(failure.value)
    assert json.dumps(await rig.states()) == "{}"


async def test_the_run_continues_as_new_and_keeps_its_place(rig, unique):
    manifest = rig.manifest(rig.videos(30))
    result = await rig.migrate(unique, manifest, page_size=5, children_per_execution=3, pages_at_once=2)
    assert result["states"] == {"verified": 30}
    assert rig.sandbox.stats()["creates"] == 30
    first = await rig.client.get_workflow_handle(
        migration_id(unique), run_id=(await _first_execution(rig, unique))
    ).fetch_history()
    assert "CONTINUED_AS_NEW" in first.to_json()


async def _first_execution(rig, run):
    described = await rig.client.get_workflow_handle(migration_id(run)).describe()
    return described.raw_description.workflow_execution_info.first_run_id
