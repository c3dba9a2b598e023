"""A run that is started and steered with the `temporal` command alone."""

from __future__ import annotations

import json
import subprocess

import pytest

from devstack.temporal import temporal_command
from tests.programs.conftest import environment, wait_for


@pytest.fixture
def temporal_says(desk):
    """`temporal workflow …` against the desk's server; its answer's JSON."""

    def run(*arguments, expect=0):
        with environment({"TEMPORAL_ADDRESS": desk.stack.temporal_address}):
            done = subprocess.run(
                [str(temporal_command()), "workflow", *arguments, "-o", "json"],
                capture_output=True,
                text=True,
                check=False,
                timeout=60,
            )
        assert done.returncode == expect, done.stderr
        return json.loads(done.stdout) if done.stdout.strip() else done.stderr

    return run


def start(temporal_says, name, **given):
    return temporal_says(
        *("start", "--type", "MigrationWorkflow", "--task-queue", "longhaul", "--workflow-id", f"migration/{name}"),
        *("--input", json.dumps(given)),
    )


def progress(temporal_says, name):
    [answer] = temporal_says("query", "--workflow-id", f"migration/{name}", "--type", "progress")["queryResult"]
    return answer


def test_a_run_is_started_asked_paused_resumed_and_ends(desk, temporal_says):
    source = {"kind": "manifest", "location": desk.manifest("by-hand", 2)}
    begun = start(temporal_says, "by-hand", account="sandbox", tenant="acme", source=source, approval=True)
    assert begun["workflowId"] == "migration/by-hand"
    wait_for(lambda: progress(temporal_says, "by-hand")["state"] == "awaiting-approval", "it waits")
    answer = progress(temporal_says, "by-hand")
    assert (answer["run"], answer["tenant"], answer["estimate"]["to_create"]) == ("by-hand", "acme", 2)

    temporal_says("signal", "--workflow-id", "migration/by-hand", "--name", "pause", "--input", '{"note": "lunch"}')
    temporal_says("signal", "--workflow-id", "migration/by-hand", "--name", "approve")
    wait_for(lambda: progress(temporal_says, "by-hand")["state"] == "paused", "it is paused")
    answer = temporal_says("update", "execute", "--workflow-id", "migration/by-hand", "--name", "resume")
    assert answer["result"]["state"] == "running"
    result = temporal_says("result", "--workflow-id", "migration/by-hand")
    assert result["status"] == "COMPLETED"
    assert result["result"]["states"] == {"verified": 2}

    # The search attributes that the command did not give.
    listed = temporal_says("list", "--query", 'LonghaulRun = "by-hand" and WorkflowType = "MigrationWorkflow"')
    assert [execution["execution"]["workflowId"] for execution in listed] == ["migration/by-hand"]
    assert desk("status", "by-hand", "--json").json["state"] == "finished"


def test_a_run_is_cancelled(desk, temporal_says):
    source = {"kind": "manifest", "location": desk.manifest("called-off", 1)}
    start(temporal_says, "called-off", account="sandbox", source=source, approval=True)
    wait_for(lambda: progress(temporal_says, "called-off")["state"] == "awaiting-approval", "it waits")
    temporal_says("cancel", "--workflow-id", "migration/called-off")
    assert desk("watch", "called-off", "--json").json["state"] == "cancelled"
    assert desk("status", "called-off", "--json").json["states"] == {"skipped": 1}


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"acount": "sandbox"}, ["account: Field required", "acount: Extra inputs are not permitted"]),
        ({"account": "sandbox", "source": {"kind": "manifest"}}, ["source: ", "give either a location"]),
        ({"account": "sandbox", "pages_at_once": "all"}, ["pages_at_once: "]),
        ({"account": "nowhere"}, ["no account named 'nowhere'"]),
    ],
)
def test_a_wrong_input_fails_the_run_with_clear_words(desk, temporal_says, unique, given, words):
    whole = {"source": {"kind": "manifest", "location": desk.manifest("unused", 1)}, **given}
    start(temporal_says, unique, **whole)
    result = temporal_says("result", "--workflow-id", f"migration/{unique}", expect=1)
    assert result["status"] == "FAILED"
    told = json.dumps(result)
    for each in words:
        assert each in told
    assert desk("watch", unique, "--json").json["state"] == "failed"
