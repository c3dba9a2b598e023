"""docker-compose.yml and its companions, as far as they can be held to account without a container engine."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, get_args

import jsonschema
import pytest
import typer
from check_jsonschema.builtin_schemas import get_builtin_schema
from pydantic import BaseModel
from typer.testing import CliRunner

import ledger.__main__
import sandbox.__main__
import starter
import webhook
import worker
from settings import CONFIG_VARIABLE, EndpointSettings, Settings, TemporalSettings, WorkerSettings, load_settings
from tests.deploy.composing import ROOT, SECRETS, Unset, compose, dotenv, load, names_in, services

COMPOSE = ROOT / "docker-compose.yml"
CLOUD = ROOT / "deploy" / "temporal-cloud.yml"
CLOUD_VARIABLES = {
    "TEMPORAL_ADDRESS": "eu-west-1.aws.api.temporal.io:7233",
    "TEMPORAL_NAMESPACE": "longhaul.a1b2c",
    "TEMPORAL_API_KEY": "key",
}
ACCOUNT = {
    "LONGHAUL_ACCOUNTS__MAIN__TOKEN": "token",
    "LONGHAUL_ACCOUNTS__MAIN__WEBHOOK_SECRETS": '["whsec_bG9uZ2hhdWwtdGVzdC1zZWNyZXQtMTIzNDU2"]',
}
OURS = ("worker", "worker-probe", "worker-provider", "endpoint", "cli")
PUBLISHED = re.compile(r"^(?P<address>[0-9.]+):(?P<port>\d+):(?P<inside>\d+)$")


def without_tags(path: Path) -> dict[str, Any]:
    return load(path, {**SECRETS, **CLOUD_VARIABLES})


@pytest.fixture
def clean(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> pytest.MonkeyPatch:
    """No setting from this machine: neither its variables nor a file in the working directory."""
    for name in os.environ:
        if name.startswith(("LONGHAUL_", "TEMPORAL_")):
            monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    return monkeypatch


# ---------------------------------------------------------------------------------------------------------------- shape


@pytest.mark.parametrize("path", [COMPOSE, CLOUD], ids=lambda path: path.name)
def test_the_file_is_what_the_compose_specification_allows(path: Path) -> None:
    schema = get_builtin_schema("vendor.compose-spec")
    jsonschema.validators.validator_for(schema)(schema).validate(without_tags(path))


def test_every_image_is_pinned_by_a_full_version() -> None:
    for name, service in services().items():
        _, _, tag = service["image"].partition(":")
        assert re.fullmatch(r"v?\d+\.\d+(\.\d+)?", tag), f"{name}: {service['image']}"


def test_the_images_of_one_product_have_one_version() -> None:
    images = {service["image"].partition(":")[0]: set() for service in services().values()}
    for service in services().values():
        product, _, tag = service["image"].partition(":")
        images[product].add(tag)
    assert all(len(tags) == 1 for tags in images.values()), images
    assert images["temporalio/server"] == images["temporalio/admin-tools"]


def test_the_containers_temporal_is_the_one_that_the_embedded_stack_has() -> None:
    temporal = Path(sys.executable).with_name("temporal")
    said = subprocess.run([temporal, "--version"], capture_output=True, text=True, check=True).stdout
    versions = re.search(r"Server ([\d.]+), UI ([\d.]+)", said)
    assert versions is not None
    assert services()["temporal"]["image"] == f"temporalio/server:{versions[1]}"
    assert services()["temporal-ui"]["image"] == f"temporalio/ui:{versions[2]}"


def test_every_mounted_file_and_folder_is_in_the_repository() -> None:
    for name, service in services().items():
        for volume in service.get("volumes", []):
            source = volume.partition(":")[0]
            if source.startswith("."):
                assert (ROOT / source).exists(), f"{name} mounts {source}"
            else:
                assert source in compose()["volumes"], f"{name} mounts {source}"


def test_every_volume_is_used() -> None:
    used = {volume.partition(":")[0] for service in services().values() for volume in service.get("volumes", [])}
    assert set(compose()["volumes"]) <= used


# -------------------------------------------------------------------------------------------------------------- secrets


@pytest.mark.parametrize("missing", sorted(SECRETS))
def test_nothing_starts_without_its_passwords(missing: str) -> None:
    given = {name: value for name, value in SECRETS.items() if name != missing}
    with pytest.raises(Unset, match=missing):
        load(COMPOSE, given)


@pytest.mark.parametrize("missing", sorted(CLOUD_VARIABLES))
def test_temporal_cloud_asks_for_its_address_namespace_and_key(missing: str) -> None:
    with pytest.raises(Unset, match=missing):
        load(CLOUD, {name: value for name, value in CLOUD_VARIABLES.items() if name != missing})


def test_no_password_stands_in_a_file() -> None:
    for name, service in services().items():
        for variable, value in service.get("environment", {}).items():
            if re.search(r"PASSWORD|PWD|SECRET|TOKEN|KEY|DSN", variable):
                assert any(secret in value for secret in SECRETS.values()) or value == "", f"{name}: {variable}={value}"


def test_the_programs_do_not_start_without_the_accounts_secrets() -> None:
    for name in OURS:
        assert services()[name]["env_file"] == [{"path": "deploy/accounts.env", "required": True}], name


def test_the_example_of_env_names_every_variable_of_the_compose_file_and_no_other() -> None:
    example = dotenv(ROOT / "deploy" / "example.env")
    assert set(example) == names_in(COMPOSE)
    for name in SECRETS:
        assert example[name] == ""


def test_the_sandbox_refuses_to_start_without_a_token(tmp_path: Path) -> None:
    environment = {**os.environ, **services()["sandbox"]["environment"]}
    assert environment["SANDBOX_TOKEN"] == ""
    done = subprocess.run(
        [sys.executable, *services()["sandbox"]["command"][1:-1], str(tmp_path)],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
    )
    assert done.returncode != 0
    assert "token" in done.stderr


# ------------------------------------------------------------------------------------------------------------- settings


def settings_named_in(text: str) -> set[str]:
    return set(re.findall(r"LONGHAUL_[A-Z0-9_]+", text))


def is_setting(variable: str) -> bool:
    """Whether a variable leads to a field of `Settings`, through sections and named tables."""
    if variable in (CONFIG_VARIABLE,):
        return True
    parts = variable.removeprefix("LONGHAUL_").lower().split("__")
    model: Any = Settings
    while parts:
        if not (isinstance(model, type) and issubclass(model, BaseModel)):
            return False
        field = model.model_fields.get(parts.pop(0))
        if field is None:
            return False
        model = field.annotation
        if getattr(model, "__origin__", None) is dict:
            if not parts:
                return False
            parts.pop(0)
            model = get_args(model)[1]
    return True


@pytest.mark.parametrize(
    "path",
    [
        "docker-compose.yml",
        "deploy/temporal-cloud.yml",
        "deploy/accounts.example.env",
        "deploy/longhaul.example.toml",
        "deploy/rehearsal.toml",
        "deploy/example.env",
        "longhaul.example.toml",
        "Dockerfile",
        "docs/operations.md",
    ],
)
def test_every_variable_that_is_named_is_a_setting(path: str) -> None:
    named = settings_named_in((ROOT / path).read_text(encoding="utf-8"))
    assert not [name for name in sorted(named) if not is_setting(name)]


def test_a_misspelled_variable_is_not_a_setting() -> None:
    assert is_setting("LONGHAUL_ACCOUNTS__MAIN__TOKEN")
    assert is_setting("LONGHAUL_WORKER__SHUTDOWN_S")
    assert not is_setting("LONGHAUL_ACCOUNTS__MAIN__TOKENS")
    assert not is_setting("LONGHAUL_WORKERS__SHUTDOWN_S")
    assert not is_setting("LONGHAUL_SHUTDOWN_S")


def settings_of(service: str, file: Path, clean: pytest.MonkeyPatch) -> Settings:
    """The settings as this container would read them from this file."""
    for name, value in services()[service]["environment"].items():
        clean.setenv(name, value)
    clean.setenv(CONFIG_VARIABLE, str(file))
    return load_settings()


@pytest.mark.parametrize("service", OURS)
def test_each_program_finds_the_ledger_and_temporal(service: str, clean: pytest.MonkeyPatch) -> None:
    for name, value in ACCOUNT.items():
        clean.setenv(name, value)
    settings = settings_of(service, ROOT / "deploy" / "longhaul.example.toml", clean)
    assert settings.ledger.dsn.get_secret_value() == "postgresql://longhaul:ledgersecret@ledger-db:5432/longhaul"
    assert settings.temporal_profile.address == "temporal:7233"
    assert settings.temporal_profile.namespace == services()["temporal-register"]["environment"]["TEMPORAL_NAMESPACE"]
    webhook.check(settings)


def test_the_ledger_database_is_the_one_of_the_dsn() -> None:
    environment = services()["ledger-db"]["environment"]
    dsn = services()["migrate"]["environment"]["LONGHAUL_LEDGER__DSN"]
    user, password, name = (environment[f"POSTGRES_{part}"] for part in ("USER", "PASSWORD", "DB"))
    assert dsn == f"postgresql://{user}:{password}@ledger-db:5432/{name}"


def test_the_rehearsal_leads_to_the_sandbox_and_back(clean: pytest.MonkeyPatch) -> None:
    clean.setenv("LONGHAUL_ACCOUNTS__SANDBOX__TOKEN", "token")
    clean.setenv("LONGHAUL_ACCOUNTS__SANDBOX__WEBHOOK_SECRETS", ACCOUNT["LONGHAUL_ACCOUNTS__MAIN__WEBHOOK_SECRETS"])
    settings = settings_of("worker", ROOT / "deploy" / "rehearsal.toml", clean)
    webhook.check(settings)
    sandbox = services()["sandbox"]
    port = sandbox["command"][sandbox["command"].index("--port") + 1]
    assert settings.account("sandbox").base_url == f"http://sandbox:{port}"
    assert sandbox["environment"]["SANDBOX_PUBLIC_URL"] == settings.account("sandbox").base_url
    assert sandbox["environment"]["SANDBOX_WEBHOOK_URL"] == "http://endpoint:8080/webhooks/sandbox"


LOADING = """
import os
from destinations import check_options
from faults import Fault
from settings import load_settings
from sources.registry import open_source
from sources.spec import SourceSpec

secrets = {name: os.environ.pop(name) for name in list(os.environ) if name.startswith("LONGHAUL_ACCOUNTS__")}
try:
    load_settings()
except Fault as fault:
    print("without secrets:", fault.detail)
os.environ.update(secrets)
settings = load_settings()
for account in settings.accounts.values():
    check_options(account)
for name, source in settings.sources.items():
    open_source(SourceSpec(kind=source.kind, name=name), settings)
print("with them:", *settings.accounts)
"""


@pytest.mark.parametrize("file", ["longhaul.example.toml", "deploy/longhaul.example.toml"])
def test_an_example_loads_once_the_secrets_are_given_and_not_before(file: str) -> None:
    base = {name: value for name, value in os.environ.items() if not name.startswith(("LONGHAUL_", "TEMPORAL_"))}
    done = subprocess.run(
        [sys.executable, "-c", LOADING],
        cwd=ROOT,
        env={**base, "LONGHAUL_STACK": "/nonexistent", CONFIG_VARIABLE: file, **ACCOUNT},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    without, with_them = done.stdout.splitlines()
    assert "accounts.main.token: Field required" in without
    assert with_them == "with them: main", done.stderr


def test_the_secrets_of_the_example_are_those_that_the_settings_leave_out() -> None:
    assert set(dotenv(ROOT / "deploy" / "accounts.example.env")) == set(ACCOUNT)


# ---------------------------------------------------------------------------------------------------------------- ports


def test_only_the_endpoint_is_reached_from_other_machines() -> None:
    for name, service in services().items():
        for port in service.get("ports", []):
            published = PUBLISHED.match(port)
            assert published is not None, port
            expected = "0.0.0.0" if name == "endpoint" else "127.0.0.1"
            assert published["address"] == expected, f"{name}: {port}"


def test_ports_are_those_that_the_settings_start_from() -> None:
    inside = {
        name: PUBLISHED.match(service["ports"][0]) for name, service in services().items() if service.get("ports")
    }
    endpoint, ui, temporal = inside["endpoint"], inside["temporal-ui"], inside["temporal"]
    assert endpoint is not None
    assert ui is not None
    assert temporal is not None
    assert int(endpoint["inside"]) == EndpointSettings().port
    assert TemporalSettings().web_ui == f"http://{ui['address']}:{ui['port']}"
    assert temporal["port"] == "7233"
    assert f"127.0.0.1:{EndpointSettings().port}/readyz" in json.dumps(services()["endpoint"]["healthcheck"])


# ------------------------------------------------------------------------------------------------------ order, stopping


def test_programs_start_after_the_schema_and_the_search_attributes() -> None:
    for name in ("worker", "worker-probe", "worker-provider", "endpoint"):
        assert services()[name]["depends_on"] == {
            "migrate": {"condition": "service_completed_successfully"},
            "temporal-register": {"condition": "service_completed_successfully"},
        }


def test_whoever_waits_for_health_waits_for_something_that_has_a_healthcheck() -> None:
    for name, service in services().items():
        dependencies = service.get("depends_on", {})
        for other, how in dependencies.items() if isinstance(dependencies, dict) else ():
            healthy = how["condition"] == "service_healthy"
            assert not healthy or "healthcheck" in services()[other], f"{name} waits for {other}"
            once = how["condition"] == "service_completed_successfully"
            assert not once or services()[other].get("restart", "no") != "unless-stopped", f"{name} waits for {other}"


def test_a_worker_may_be_scaled_and_has_the_time_to_finish_its_rows(clean: pytest.MonkeyPatch) -> None:
    for name, value in ACCOUNT.items():
        clean.setenv(name, value)
    settings = settings_of("worker", ROOT / "deploy" / "longhaul.example.toml", clean)
    for name in ("worker", "worker-probe", "worker-provider"):
        service = services()[name]
        assert "container_name" not in service
        assert "ports" not in service
        assert int(service["deploy"]["replicas"]) >= 1
        grace = float(service["stop_grace_period"].removesuffix("s"))
        assert grace > max(settings.worker.shutdown_s, WorkerSettings().shutdown_s) + 5


def test_temporal_cloud_starts_no_temporal_server() -> None:
    cloud = without_tags(CLOUD)["services"]
    temporal = {name for name in services() if name.startswith("temporal")}
    assert {name for name, service in cloud.items() if service.get("profiles") == ["self-hosted"]} == temporal
    for name, service in cloud.items():
        if name not in temporal:
            assert not temporal & set(service.get("depends_on", ())), name
            assert set(service["environment"]) >= set(CLOUD_VARIABLES), name
    connected = {name for name, service in services().items() if "TEMPORAL_ADDRESS" in service.get("environment", {})}
    assert connected - temporal == set(cloud) - temporal
    # Without the tag Compose would add to the dependencies instead of replacing them.
    assert CLOUD.read_text(encoding="utf-8").count("depends_on: !override") == 4


# ------------------------------------------------------------------------------------------------------------- commands


def argv(service: str) -> list[str]:
    command = services()[service]["command"]
    return command.split() if isinstance(command, str) else list(command)


def test_workers_are_given_roles_that_exist() -> None:
    for name in ("worker", "worker-probe", "worker-provider"):
        program, script, *roles = argv(name)
        assert (program, script) == ("python", "worker.py")
        assert set(roles) <= set(worker.ROLES)
    assert argv("worker")[2:] == [], "all roles unless WORKER_ROLES says otherwise"
    some = load(COMPOSE, {**SECRETS, "WORKER_ROLES": "workflows ledger"})["services"]["worker"]["command"]
    assert some.split()[2:] == ["workflows", "ledger"]


def app_of(script: str) -> typer.Typer:
    """The command line behind `python SCRIPT`."""
    match script:
        case "starter.py":
            return starter.app
        case "ledger":
            return ledger.__main__.app
        case "sandbox":
            return sandbox.__main__.app
    app = typer.Typer()
    app.command()({"worker.py": worker, "webhook.py": webhook}[script].main)
    return app


@pytest.mark.parametrize("service", ["worker", "endpoint", "migrate", "cli", "sandbox"])
def test_the_command_exists_with_these_options(service: str) -> None:
    python, *words = [*services()[service].get("entrypoint", []), *argv(service)]
    assert python == "python"
    script, *arguments = [word for word in words if word != "-m"]
    done = CliRunner().invoke(app_of(script), [*arguments, "--help"], env={"COLUMNS": "200", "TERM": "dumb"})
    assert done.exit_code == 0, done.output
    for option in (argument for argument in arguments if argument.startswith("--")):
        assert option in done.output
