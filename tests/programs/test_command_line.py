"""`starter.py` on a whole stack: what each command does, says and returns."""

from __future__ import annotations

import csv
import json
import re

import pytest

from devstack.ports import free_ports

LINK = re.compile(r"^http://127\.0\.0\.1:\d+/namespaces/default/workflows/migration%2F[a-z0-9_-]+$", re.MULTILINE)


@pytest.fixture(scope="module")
def moved(desk):
    """A run that moved three videos and rejected two."""
    url = desk.stack.url("library")
    manifest = desk.manifest("moved", 3, f"hollow,{url}/empty.mp4,", f"lost,{url}/gone.mp4,")
    said = desk("start", manifest, "--name", "moved", "--wait", "--tenant", "acme", "--source-name", "films")
    assert said.code == 0, said
    return said


@pytest.fixture(scope="module")
def moved_again(desk, moved):
    """The same manifest in a second run, which finds nothing to do."""
    said = desk(
        *("start", str(desk.folder / "moved.csv"), "--name", "moved-again", "--wait", "--json"),
        *("--tenant", "acme", "--source-name", "films"),
    )
    assert said.code == 0, said
    return said


def test_start_and_wait_tells_each_phase_and_what_the_run_came_to(moved):
    lines = moved.out.splitlines()
    assert lines[0] == "started: run moved  (workflow migration/moved)"
    assert LINK.match(lines[1])
    ended = [line.split() for line in lines if line.endswith("  done")]
    assert [line[0] for line in ended] == ["list", "inventory", "create", "settle", "attach", "reconcile"]
    assert [line[1] for line in ended] == ["5", "5/5", "3/3", "3/3", "0/0", "3/3"], "nothing was to be attached"
    assert "run moved finished" in lines
    assert "listed 5: 5 new, 0 owned by earlier runs" in lines
    assert re.search(r"^verified +3\b", moved.out, re.MULTILINE)
    assert re.search(r"^  file-empty +1 +the file has no bytes", moved.out, re.MULTILINE)
    assert "videos created 3, adopted after a lost answer 0" in lines
    assert moved.err == ""


def test_start_again_moves_nothing_twice_and_is_one_object_of_json(moved_again):
    said = moved_again
    assert said.json["state"] == "finished"
    assert (said.json["listed"], said.json["added"], said.json["owned"]) == (5, 0, 5)
    assert said.json["creates"] == 0
    assert said.json["library"] == {"verified": 3, "rejected": 2}
    assert LINK.match(said.json["web_ui"])


def test_start_without_waiting_says_how_to_watch(desk):
    said = desk("start", desk.manifest("briefly", 1), "--name", "briefly")
    assert said.code == 0
    assert said.out.splitlines()[-1] == "watch it: starter.py watch briefly"
    watched = desk("watch", "briefly")
    assert watched.code == 0
    assert LINK.match(watched.out.splitlines()[0])
    assert "run briefly finished" in watched.out


def test_start_as_json_names_the_run_that_it_made_up(desk):
    said = desk("start", desk.manifest("Big Library (2024)", 1, prefix="big"), "--json")
    assert said.code == 0
    assert re.fullmatch(r"big-library-2024-\d{8}-\d{6}", said.json["run"])
    assert said.json["workflow_id"] == f"migration/{said.json['run']}"
    assert said.json["started"] is True
    assert desk("watch", said.json["run"], "--json").json["states"] == {"verified": 1}


def test_a_folder_is_moved(desk, media):
    said = desk("start", "--folder", str(media), "--name", "from-folder", "--wait", "--json", "--tenant", "folders")
    assert said.code == 0
    assert said.json["listed"] == 4
    assert said.json["states"]["verified"] == 2


def test_a_source_of_the_settings_is_looked_up_there(desk):
    said = desk("start", "--source", "attic")
    assert said.code == 1
    assert "no source named 'attic' in the settings" in said.err


# ------------------------------------------------------------------------------------------------ what is not started


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "a manifest's path, --folder PATH, --source NAME"),
        (["MANIFEST", "--folder", "/tmp"], "give one of"),
        (["MANIFEST", "-d", "nowhere"], "no account named 'nowhere' in the settings (known: locked, sandbox)"),
        (["MANIFEST", "--name", "Not A Name"], "--name 'Not A Name': use a-z, 0-9, - and _"),
        (["MANIFEST", "--tenant", "Ärger"], "--tenant 'Ärger': use a-z"),
        (["MANIFEST", "--source-name", "a b"], "--source-name 'a b': use a-z"),
        (["MANIFEST", "--stripes", "65"], "--stripes 65: Input should be less than or equal to 64"),
        (["/no/such/manifest.csv"], "/no/such/manifest.csv: no such file; correct the path"),
        (["--folder", "/no/such/folder"], "/no/such/folder: no such folder; correct the path"),
    ],
)
def test_what_cannot_work_is_said_in_one_line_and_starts_nothing(desk, arguments, words):
    before = {line["run"] for line in desk("list", "--json").json}
    manifest = desk.manifest("unstarted", 1)
    said = desk("start", *(manifest if given == "MANIFEST" else given for given in arguments))
    assert said.code == 1
    assert said.out == ""
    assert words in said.err
    assert said.err.startswith("longhaul: ")
    assert said.err.count("\n") == 1
    assert {line["run"] for line in desk("list", "--json").json} == before


@pytest.mark.parametrize(
    ("content", "place", "remedy"),
    [
        (b"url,title\nhttp://h/a.mp4,a\n", ":1: column id", "the first row must name the columns"),
        (b"id,url\nx,http://h/a.mp4\n\xe9,http://h/b.mp4\n", ":3: byte 0xE9", "save it as UTF-8"),
        (b"id,url,id\n", ":1: column id", ""),
        (b"", "", ""),
    ],
)
def test_a_bad_manifest_is_refused_with_its_line_and_a_remedy(desk, tmp_path, content, place, remedy):
    path = tmp_path / "bad.csv"
    path.write_bytes(content)
    said = desk("start", str(path), "--name", "bad-manifest", "--json")
    assert said.code == 1
    assert said.out == ""
    assert f"longhaul: {path}{place}" in said.err
    assert remedy in said.err
    assert desk("status", "bad-manifest").code == 1, "nothing was started"


def test_wrong_usage_is_exit_code_2_and_points_at_the_help(desk):
    for arguments in (["start", "--page-size", "501", "x"], ["watch"], ["list", "--limit", "none"], ["fly"]):
        said = desk(*arguments)
        assert said.code == 2
        assert "--help" in said.err


def test_a_name_that_is_taken_by_a_running_run_leaves_it_alone_and_says_so(desk):
    manifest = desk.manifest("taken", 1)
    assert desk("start", manifest, "--name", "taken", "--approval").code == 0
    again = desk("start", manifest, "--name", "taken", "--approval")
    assert again.code == 0
    assert again.out.startswith("already running: run taken")
    assert desk("start", manifest, "--name", "taken", "--json").json["started"] is False
    assert desk("approve", "taken").code == 0
    assert desk("watch", "taken", "--json").json["state"] == "finished"


def test_a_name_that_another_librarys_run_has_fails_with_words(desk, moved):
    said = desk("start", desk.manifest("stranger", 1), "--name", "moved", "--tenant", "other", "--wait", "--json")
    assert said.code == 2
    assert said.json["state"] == "failed"
    assert "a run named 'moved' exists for tenant 'acme'" in said.json["detail"]
    assert "choose another name" in said.err


# ---------------------------------------------------------------------------------------------------------- questions


def test_list_shows_the_newest_first(desk, moved):
    said = desk("list")
    assert said.code == 0
    assert re.search(r"^moved +(finished|failed.*) +5  acme +films +sandbox", said.out, re.MULTILINE)
    lines = desk("list", "--json").json
    assert [line["created_at"] for line in lines] == sorted((line["created_at"] for line in lines), reverse=True)
    assert len(desk("list", "--limit", "1", "--json").json) == 1


def test_status_of_a_run_that_found_nothing_to_do(desk, moved_again):
    said = desk("status", "moved-again")
    assert said.code == 0
    assert said.out.splitlines()[0] == "run moved-again: finished"


def test_status_of_a_finished_run(desk):
    desk("start", desk.manifest("stood", 2), "--name", "stood", "--wait")
    said = desk("status", "stood")
    assert said.out.splitlines()[:2] == [
        "run stood: finished",
        "2 assets of tenant default, from manifest to account sandbox",
    ]
    assert "reconcile  2/2  done" in said.out
    assert re.search(r"^  verified     2$", said.out, re.MULTILINE)
    assert LINK.search(said.out)
    answer = desk("status", "stood", "--json").json
    assert answer["state"] == "finished"
    assert answer["states"] == {"verified": 2}
    assert [phase["state"] for phase in answer["progress"]["phases"]] == ["closed"] * 6


@pytest.mark.parametrize("command", ["status", "watch", "report", "map", "pause", "resume", "approve", "cancel"])
def test_a_run_that_nobody_knows(desk, command):
    said = desk(command, "nobody", *([] if command == "map" else ["--json"]))
    assert said.code == 1
    assert said.out == ""
    assert "'nobody'" in said.err
    assert "`starter.py list`" in said.err
    assert said.err.count("\n") == 1


def test_show_finds_a_video_by_its_id_its_ref_and_its_remote_id(desk, moved):
    said = desk("show", "moved-1")
    assert said.code == 0
    assert said.out.splitlines()[0] == "moved-1  verified"
    assert "  title           Title 1\n" in said.out
    assert re.search(r"^  media           .*h264.*160x120, 2\.00 s", said.out, re.MULTILINE)
    told = re.findall(r"^  \d{4}-\d\d-\d\d \d\d:\d\d:\d\d  (\w+)", said.out, re.MULTILINE)
    assert sorted(told) == ["create", "event", "inventory", "reconcile"]
    assert told[0] == "inventory"
    assert told[-1] == "reconcile"
    (history,) = desk("show", "moved-1", "--json").json
    asset = history["asset"]
    for name in (asset["ref"], asset["remote_id"]):
        assert desk("show", name, "--json").json[0]["asset"]["source_id"] == "moved-1"


def test_show_says_why_a_video_was_rejected(desk, moved):
    said = desk("show", "hollow")
    assert "why             file-empty: the file has no bytes" in said.out


def test_show_of_an_unknown_video(desk):
    said = desk("show", "no-such-video", "--json")
    assert (said.code, said.out) == (1, "")
    assert said.err == "longhaul: the ledger has no asset with ref, source id or remote id 'no-such-video'\n"


def test_a_title_cannot_steer_the_terminal(desk):
    url = desk.stack.url("library")
    manifest = desk.manifest("sly", 0, f"sly-0,{url}/good.mp4?sly=0,\x1b]0;owned\x07[red]plain[/red]")
    assert desk("start", manifest, "--name", "sly", "--wait").code == 0
    said = desk("show", "sly-0")
    assert "\x1b" not in said.out
    assert "\x07" not in said.out
    assert "[red]plain[/red]" in said.out


def test_report_gives_reasons_with_an_example_and_a_remedy(desk, moved):
    said = desk("report", "moved")
    assert said.code == 0
    assert "listed 5: 5 new, 0 owned by earlier runs, 0 repeated, 0 blank, 0 problems" in said.out
    assert "rejected: source-not-found (1)" in said.out
    assert "  the source has no such file; correct the address, or drop the row\n" in said.out
    assert re.search(r"^  for example lost: .*404", said.out, re.MULTILINE)
    answer = desk("report", "moved", "--json").json
    assert answer["summary"]["states"] == {"verified": 3, "rejected": 2}
    assert {example["reason"] for example in answer["examples"]} == {"file-empty", "source-not-found"}
    assert answer["problems"] == []


def test_report_names_the_manifests_problems_by_line(desk):
    url = desk.stack.url("library")
    manifest = desk.manifest("messy", 1, f"one-more,{url}/good.mp4?messy=1,a,b,c", ",,")
    assert desk("start", manifest, "--name", "messy", "--wait").code == 0
    said = desk("report", "messy")
    assert re.search(r"^  at 3.*: ", said.out, re.MULTILINE)
    assert desk("report", "messy", "--json").json["problems"][0]["position"] == 3


def test_map_as_csv_as_json_and_into_a_file(desk, moved, tmp_path):
    rows = list(csv.DictReader(desk("map", "moved").out.splitlines()))
    assert {row["source_id"] for row in rows} == {"moved-0", "moved-1", "moved-2", "hollow", "lost"}
    arrived = {row["source_id"]: row for row in rows if row["state"] == "verified"}
    assert len(arrived) == 3
    assert all(row["remote_id"] and row["playback"].startswith("http") for row in arrived.values())
    lines = [json.loads(line) for line in desk("map", "moved", "--json").out.splitlines()]
    assert {line["source_id"]: line["remote_id"] for line in lines if line["state"] == "verified"} == {
        name: row["remote_id"] for name, row in arrived.items()
    }
    file = tmp_path / "ids.csv"
    said = desk("map", "moved", "-o", str(file))
    assert (said.code, said.out, said.err) == (0, "", f"5 rows in {file}\n")
    assert file.read_text() == desk("map", "moved").out


def test_a_map_that_cannot_be_written_says_so_and_keeps_the_file_of_before(desk, moved, tmp_path):
    file = tmp_path / "ids.csv"
    file.write_text("precious")
    assert desk("map", "nobody", "-o", str(file)).code == 1
    assert file.read_text() == "precious"
    said = desk("map", "moved", "-o", str(tmp_path / "missing" / "ids.csv"))
    assert said.code == 1
    assert "ids.csv cannot be written: No such file or directory" in said.err


# ----------------------------------------------------------------------------------------------------------- messages


def test_a_run_waits_for_approval_is_paused_resumed_and_cancelled(desk):
    assert desk("start", desk.manifest("steered", 2), "--name", "steered", "--approval").code == 0
    _until_state(desk, "steered", "awaiting-approval")
    said = desk("status", "steered")
    assert "waits for approval: 2 videos" in said.out
    assert "go on with: starter.py approve steered" in said.out
    assert desk("pause", "steered", "--note", "lunch").code == 0
    said = desk("approve", "steered", "--json")
    assert (said.code, said.json["answered"]) == (0, True)
    _until_state(desk, "steered", "paused")
    assert "paused; go on with: starter.py resume steered" in desk("status", "steered").out
    assert desk("pause", "steered").out == "run steered: it begins no more videos (it is paused at present)\n"
    said = desk("cancel", "steered", "--json")
    assert said.json == {"run": "steered", "message": "cancel"}
    watched = desk("watch", "steered", "--json")
    assert watched.code == 2
    assert watched.json["state"] == "cancelled"
    _until_state(desk, "steered", "cancelled")
    assert desk("resume", "steered").code == 1, "it has ended"


def test_resume_goes_on_after_a_pause(desk):
    assert desk("start", desk.manifest("halted", 1), "--name", "halted", "--approval").code == 0
    _until_state(desk, "halted", "awaiting-approval")
    assert desk("pause", "halted").code == 0
    assert desk("approve", "halted").code == 0
    _until_state(desk, "halted", "paused")
    assert desk("resume", "halted", "--json").json["state"] == "running"
    assert desk("watch", "halted", "--json").json["states"] == {"verified": 1}


def _until_state(desk, run, state):
    from tests.programs.conftest import wait_for

    def reached():
        said = desk("status", run, "--json")
        return said.code == 0 and said.json["state"] == state

    wait_for(reached, f"run {run} is {state}")


def test_a_parked_run_ends_the_view_with_exit_code_3_and_says_what_to_do(desk):
    manifest = desk.manifest("refused", 1)
    said = desk("start", manifest, "--name", "refused", "-d", "locked", "--wait")
    assert said.code == 3
    parked = said.out.splitlines()[-4:]
    assert parked[0] == "parked: the destination refused the credentials (credentials-refused)"
    assert "401" in parked[1]
    assert parked[2:] == ["set the account's token and resume the run", "go on with: starter.py resume refused"]
    again = desk("watch", "refused", "--json")
    assert again.code == 3
    assert (again.json["state"], again.json["reason"]) == ("parked", "credentials-refused")
    assert "parked (credentials-refused)" in desk("status", "refused").out
    assert desk("cancel", "refused").code == 0
    _until_state(desk, "refused", "cancelled")
    assert desk("watch", "refused").code == 2


# ------------------------------------------------------------------------------------------- when something is missing


def test_an_unreachable_ledger_is_one_line_with_its_address_and_never_its_password(desk):
    [port] = free_ports(1)
    dsn = f"postgresql://longhaul:s3cret-word@127.0.0.1:{port}/longhaul"
    for arguments in (["list"], ["status", "moved"], ["show", "x"], ["report", "moved"], ["map", "moved"]):
        said = desk(*arguments, LONGHAUL_LEDGER__DSN=dsn)
        assert (said.code, said.out) == (1, "")
        assert f"longhaul: PostgreSQL at 127.0.0.1:{port}/longhaul cannot be reached" in said.err
        assert "`make up`" in said.err
        assert "s3cret-word" not in said.err
        assert said.err.count("\n") == 1


def test_an_unreachable_temporal_is_one_line_with_its_address(desk):
    [port] = free_ports(1)
    manifest = desk.manifest("no-temporal", 1)
    for arguments in (["start", manifest], ["watch", "moved"], ["pause", "moved"], ["cancel", "moved"]):
        said = desk(*arguments, TEMPORAL_ADDRESS=f"127.0.0.1:{port}")
        assert (said.code, said.out) == (1, "")
        assert f"longhaul: Temporal at 127.0.0.1:{port} does not answer (Connection refused)" in said.err
        assert "`make up`" in said.err
        assert said.err.count("\n") == 1


def test_status_still_tells_what_the_ledger_knows_when_temporal_is_away(desk, moved_again):
    [port] = free_ports(1)
    said = desk("status", "moved-again", "--json", TEMPORAL_ADDRESS=f"127.0.0.1:{port}")
    assert said.code == 0
    assert said.json["state"] == "finished"
    assert "does not answer" in said.json["note"]


def test_a_namespace_that_is_not_there_is_named(desk):
    for arguments in (["start", desk.manifest("nowhere", 1)], ["watch", "moved"], ["pause", "moved"]):
        said = desk(*arguments, TEMPORAL_NAMESPACE="elsewhere")
        assert said.code == 1
        assert "Temporal has no namespace 'elsewhere'" in said.err
        assert "temporal operator namespace create -n elsewhere" in said.err


def test_a_profile_that_is_not_there_is_named(desk):
    said = desk("watch", "moved", TEMPORAL_PROFILE="elsewhere")
    assert said.code == 1
    assert "Profile 'elsewhere' not found; correct TEMPORAL_PROFILE" in said.err


def test_settings_that_cannot_be_read_are_said_before_anything_is_tried(desk):
    said = desk("list", LONGHAUL_LEGDER__DSN="postgresql://x")
    assert said.code == 1
    assert "no section for LONGHAUL_LEGDER__DSN" in said.err


def test_redrive_of_what_may_succeed_later_leaves_what_never_can(desk, moved):
    everything = desk("redrive", "moved", "--dry-run", "--json").json
    assert everything == {"dead_letters": {"rejected: file-empty": 1, "rejected: source-not-found": 1}}
    assert desk("redrive", "moved", "--transient", "--dry-run", "--json").json == {"dead_letters": {}}
    assert desk("redrive", "moved", "--transient").out == "no dead letters of that kind\n"
    said = desk("redrive", "moved", "--transient", "--reason", "file-empty")
    assert (said.code, "permanent one" in said.err) == (1, True)


def test_pace_shows_lowers_stops_and_restores_while_a_run_goes_on(desk):
    assert desk("pace", "sandbox", "--stop").out.splitlines()[0] == "sandbox is stopped: --restore lets it go on"
    desk("start", desk.manifest("slowed", 3), "--name", "slowed")
    told = desk("pace", "sandbox", "--json").json
    assert (told["stopped"], told["factor"]) == (True, 0.0)
    assert desk("pace", "sandbox", "--per-s", "50").out.splitlines()[:2] == [
        "sandbox may be called",
        "  a person lowered it to 50 requests a second",
    ]
    assert desk("watch", "slowed").code == 0
    said = desk("pace", "sandbox", "--restore")
    assert said.out.splitlines()[0] == "sandbox may be called"
    assert "a person" not in said.out
    assert "0 videos in the making" in said.out


def test_a_pace_that_is_none_is_refused_and_changes_nothing(desk):
    for wrong in (("--factor", "1.5"), ("--per-s", "-1"), ("--stop", "--restore")):
        said = desk("pace", "sandbox", *wrong)
        assert said.code == 1
        assert said.out == ""
    assert desk("pace", "sandbox", "--json").json["factor"] == 1.0
    assert "no account named 'elsewhere'" in desk("pace", "elsewhere").err


def test_check_tries_credentials_clock_and_the_webhooks_way_and_creates_nothing(desk):
    said = desk("check", "sandbox")
    assert said.code == 0, said
    told = [line.split(":")[0].split(maxsplit=1) for line in said.out.splitlines()]
    assert told == [
        ["ok", "credentials"],
        ["ok", "clock"],
        ["ok", "webhook secret"],
        ["ok", "webhook address"],
    ]


def test_check_says_what_stands_in_a_runs_way_and_the_remedy(desk):
    [free] = free_ports(1)
    said = desk("check", "locked", "--json", LONGHAUL_ENDPOINT__PUBLIC_URL=f"http://127.0.0.1:{free}")
    assert said.code == 1
    assert said.json["good"] is False
    found = {finding["name"]: finding for finding in said.json["findings"]}
    assert found["credentials"]["good"] is False
    assert "set the account's token" in found["credentials"]["words"]
    assert found["webhook address"]["good"] is False
    assert "start webhook.py" in found["webhook address"]["words"]


def test_check_of_an_account_that_the_settings_dont_have_names_those_they_have(desk):
    said = desk("check", "elsewhere")
    assert said.code == 1
    assert "no account named 'elsewhere'" in said.err
    assert "locked, sandbox" in said.err


@pytest.mark.parametrize(
    "command",
    [
        "start",
        "watch",
        "status",
        "list",
        "show",
        "report",
        "map",
        "pause",
        "resume",
        "approve",
        "cancel",
        "redrive",
        "check",
        "pace",
    ],
)
def test_every_command_explains_itself_in_80_columns(desk, command):
    said = desk(command, "--help", COLUMNS="80")
    assert said.code == 0
    assert max(map(len, said.out.splitlines())) <= 80
    assert said.out.startswith("Usage: ")
    assert "--json" in said.out
