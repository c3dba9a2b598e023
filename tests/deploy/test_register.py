"""What the stack's one-shot services do to Temporal: run here against a real server."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

from temporalio.client import Client

from connection import check_namespace
from devstack.temporal import TemporalDevServer, temporal_command
from settings import Settings
from tests.deploy.composing import ROOT, services
from workflows.attributes import NAMES

SCRIPT = ROOT / "deploy" / "temporal" / "register.sh"


def declared() -> dict[str, str]:
    """The search attributes that the script registers, with their types."""
    inside = re.search(r"<<END\n(.*?)\nEND\n", SCRIPT.read_text(encoding="utf-8"), re.DOTALL)
    assert inside is not None
    return dict(line.split() for line in inside[1].splitlines())


def register(address: str, namespace: str, *, attempts: int = 60) -> subprocess.CompletedProcess[str]:
    base = {name: value for name, value in os.environ.items() if not name.startswith("TEMPORAL_")}
    environment = {
        **base,
        **services()["temporal-register"]["environment"],
        "TEMPORAL_ADDRESS": address,
        "TEMPORAL_NAMESPACE": namespace,
        "ATTEMPTS": str(attempts),
        "PATH": f"{temporal_command().parent}{os.pathsep}{os.environ['PATH']}",
    }
    return subprocess.run(
        ["sh", str(SCRIPT)], env=environment, capture_output=True, text=True, check=False, timeout=120
    )


def test_the_search_attributes_are_exactly_those_that_runs_carry() -> None:
    assert declared() == NAMES


async def test_a_bare_namespace_gets_what_a_worker_asks_for_and_a_second_time_changes_nothing(tmp_path: Path) -> None:
    with TemporalDevServer(search_attributes={}, log=tmp_path / "temporal.log") as server:
        for _ in range(2):
            done = register(server.address, "default")
            assert done.returncode == 0, done.stderr
            client = await Client.connect(server.address)
            await check_namespace(client, Settings())
        assert "default is ready" in done.stdout


def test_a_server_that_never_answers_is_given_up(tmp_path: Path) -> None:
    done = register("127.0.0.1:9", "default", attempts=1)
    assert done.returncode == 1
    assert "127.0.0.1:9 is not healthy" in done.stderr


def test_the_schema_is_made_for_both_databases_of_the_server(tmp_path: Path) -> None:
    """With a stand-in for Temporal's own tool, which exists in its image only."""
    script = ROOT / "deploy" / "temporal" / "schema.sh"
    tool = tmp_path / "temporal-sql-tool"
    tool.write_text('#!/bin/sh\necho "$*"\n', encoding="utf-8")
    tool.chmod(0o755)
    environment = {"PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(["sh", str(script)], env=environment, capture_output=True, text=True, check=True)
    folder = "/etc/temporal/schema/postgresql/v12"
    assert done.stdout.splitlines() == [
        "--db temporal create",
        "--db temporal setup-schema -v 0.0",
        f"--db temporal update-schema -d {folder}/temporal/versioned",
        "--db temporal_visibility create",
        "--db temporal_visibility setup-schema -v 0.0",
        f"--db temporal_visibility update-schema -d {folder}/visibility/versioned",
    ]


def test_the_server_and_its_schema_are_set_up_on_one_database_server() -> None:
    schema, server = (services()[name]["environment"] for name in ("temporal-schema", "temporal"))
    same = {
        "SQL_PLUGIN": "DB",
        "SQL_HOST": "POSTGRES_SEEDS",
        "SQL_PORT": "DB_PORT",
        "SQL_USER": "POSTGRES_USER",
        "SQL_PASSWORD": "POSTGRES_PWD",
    }
    assert {name: schema[name] for name in same} == {name: server[other] for name, other in same.items()}
    database = services()[schema["SQL_HOST"]]["environment"]
    assert (database["POSTGRES_USER"], database["POSTGRES_PASSWORD"]) == (schema["SQL_USER"], schema["SQL_PASSWORD"])
