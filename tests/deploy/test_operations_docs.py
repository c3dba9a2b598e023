"""The pages for whoever runs Longhaul say what the code does."""

from __future__ import annotations

import importlib.util
import re
import tomllib

from typer.main import get_command

import starter
from faults import REASONS, Scope
from tests.deploy.composing import ROOT, compose, services

OPERATIONS = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
NO_PARK = {"run-unknown", "worker-missing", "manifest-refused"}
"""Answers to a question or a start, at which no run exists that could park."""


def test_the_page_of_settings_is_what_the_settings_are() -> None:
    path = ROOT / "docs" / "generate_settings.py"
    spec = importlib.util.spec_from_file_location("generate_settings", path)
    assert spec is not None
    assert spec.loader is not None
    generator = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(generator)
    committed = (ROOT / "docs" / "settings.md").read_text(encoding="utf-8")
    assert generator.page() == committed, "settings.py changed: run `python docs/generate_settings.py`"


def test_every_reason_at_which_a_run_can_park_has_a_remedy() -> None:
    table = OPERATIONS.split("## When a run parks", 1)[1].split("\n## ", 1)[0]
    described = set(re.findall(r"^\| `([a-z-]+)` \|", table, re.MULTILINE))
    can_park = {code for code, reason in REASONS.items() if reason.scope is Scope.RUN} - NO_PARK
    assert described == can_park | {"unknown"}


def test_the_page_says_which_parked_runs_go_on_by_themselves() -> None:
    table = OPERATIONS.split("## When a run parks", 1)[1].split("\n## ", 1)[0]
    for code, goes_on in re.findall(r"^\| `([a-z-]+)` \|[^|]*\| (yes|no) \|", table, re.MULTILINE):
        reason = REASONS[code]
        assert (goes_on == "yes") is (reason.scope is Scope.RUN and not reason.permanent), code


def test_every_command_of_the_page_exists() -> None:
    commands = set(get_command(starter.app).commands)  # type: ignore[attr-defined]
    used = set(re.findall(r"run --rm(?: -T)? cli ([a-z]+)", OPERATIONS))
    assert used
    assert used <= commands


def test_every_service_and_profile_of_the_page_exists() -> None:
    profiles = {profile for service in services().values() for profile in service.get("profiles", [])}
    assert set(re.findall(r"--profile ([a-z]+)", OPERATIONS)) <= profiles
    assert set(re.findall(r"docker compose exec(?: -T)? ([a-z-]+)", OPERATIONS)) <= set(services())
    assert set(re.findall(r"--scale ([a-z-]+)=", OPERATIONS)) <= set(services())
    assert set(re.findall(r"longhaul_([a-z-]+)", OPERATIONS)) <= set(compose()["volumes"])


def test_every_dependency_is_explained_and_no_other() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"].values()
    declared = [*project["dependencies"], *(entry for extra in extras for entry in extra)]
    names = {re.split(r"[\[<>=~ ;]", entry)[0] for entry in declared}
    page = (ROOT / "docs" / "dependencies.md").read_text(encoding="utf-8")
    explained = set(re.findall(r"^\| `([A-Za-z0-9_.-]+)`", page, re.MULTILINE))
    assert explained == names
