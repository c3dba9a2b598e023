"""Where settings come from, which win, and what is said of wrong ones."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from faults import Fault
from settings import AccountSettings, Settings, load_settings

SECRET = "whsec_bG9uZ2hhdWwtdGVzdHMtc2VjcmV0LTAxMjM0NTY3ODk="
OTHER = "whsec_b3RoZXItbG9uZ2hhdWwtdGVzdHMtc2VjcmV0LTAxMjM0"
TOKEN = "a-token-that-nobody-may-see"
ACCOUNT = f'[accounts.main]\nbase_url = "http://host.example"\ntoken = "{TOKEN}"\n'


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In an empty folder, with none of the person's own variables."""
    import os

    for name in os.environ:
        if name.startswith(("LONGHAUL_", "TEMPORAL_")) and not name.startswith("LONGHAUL_TEST_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("TEMPORAL_CONFIG_FILE", os.devnull)
    monkeypatch.chdir(tmp_path)


def refused() -> str:
    with pytest.raises(Fault) as fault:
        load_settings()
    assert fault.value.code == "settings-refused"
    return fault.value.detail


# --------------------------------------------------------------------------------------------------- order of sources


def test_the_environment_wins_over_the_file_the_file_over_the_stack_and_that_over_the_defaults(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert load_settings().endpoint.port == 8080
    stack = tmp_path / ".longhaul"
    stack.mkdir()
    (stack / "stack.toml").write_text('[endpoint]\nport = 1001\nhost = "10.0.0.1"\nmax_body_bytes = 2048\n')
    assert load_settings().endpoint.port == 1001
    Path("longhaul.toml").write_text('[endpoint]\nport = 1002\nhost = "10.0.0.2"\n')
    assert load_settings().endpoint.port == 1002
    monkeypatch.setenv("LONGHAUL_ENDPOINT__PORT", "1003")
    endpoint = load_settings().endpoint
    assert (endpoint.port, endpoint.host, endpoint.max_body_bytes) == (1003, "10.0.0.2", 2048), "each value by itself"
    assert load_settings(endpoint={"port": 1004}).endpoint.port == 1004


def test_a_file_named_by_a_variable_replaces_the_one_here_and_must_exist(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("longhaul.toml").write_text("[endpoint]\nport = 1001\n")
    other = tmp_path / "other.toml"
    other.write_text("[worker]\npages_at_once = 7\n")
    monkeypatch.setenv("LONGHAUL_CONFIG", str(other))
    settings = load_settings()
    assert (settings.endpoint.port, settings.worker.pages_at_once) == (8080, 7)
    monkeypatch.setenv("LONGHAUL_CONFIG", str(tmp_path / "gone.toml"))
    assert "gone.toml, which is not a file" in refused()


def test_the_stacks_folder_can_be_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "far").mkdir()
    (tmp_path / "far" / "stack.toml").write_text("[endpoint]\nport = 1005\n")
    assert load_settings().endpoint.port == 8080
    monkeypatch.setenv("LONGHAUL_STACK", str(tmp_path / "far"))
    assert load_settings().endpoint.port == 1005


def test_a_secret_can_stay_out_of_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    Path("longhaul.toml").write_text('[accounts.main]\nbase_url = "http://host.example"\nspend = 0.5\n')
    assert "accounts.main.token: Field required" in refused()
    monkeypatch.setenv("LONGHAUL_ACCOUNTS__MAIN__TOKEN", TOKEN)
    account = load_settings().account("main")
    assert (account.token.get_secret_value(), account.spend) == (TOKEN, 0.5)


# ------------------------------------------------------------------------------------------------------- the connection


def test_the_temporal_variables_win_over_our_own_section(monkeypatch: pytest.MonkeyPatch) -> None:
    profile = load_settings().temporal_profile
    assert (profile.address, profile.namespace) == ("localhost:7233", "default")
    Path("longhaul.toml").write_text('[temporal]\naddress = "ours:1"\nnamespace = "ours"\n')
    profile = load_settings().temporal_profile
    assert (profile.address, profile.namespace) == ("ours:1", "ours")
    monkeypatch.setenv("TEMPORAL_ADDRESS", "theirs:2")
    profile = load_settings().temporal_profile
    assert (profile.address, profile.namespace) == ("theirs:2", "ours")
    monkeypatch.setenv("TEMPORAL_NAMESPACE", "theirs")
    monkeypatch.setenv("TEMPORAL_API_KEY", "key")
    profile = load_settings().temporal_profile
    assert (profile.namespace, profile.api_key) == ("theirs", "key")


def test_a_profile_of_the_temporal_commands_file_serves_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "temporal.toml"
    file.write_text('[profile.cloud]\naddress = "cloud:7233"\nnamespace = "acme.prod"\napi_key = "k"\n')
    monkeypatch.setenv("TEMPORAL_CONFIG_FILE", str(file))
    assert load_settings().temporal_profile.address == "localhost:7233"
    assert load_settings(temporal={"profile": "cloud"}).temporal_profile.namespace == "acme.prod"
    monkeypatch.setenv("TEMPORAL_PROFILE", "cloud")
    assert load_settings().temporal_profile.address == "cloud:7233"


# --------------------------------------------------------------------------------------------- what is said of them


def test_a_variable_of_no_section_is_refused_and_not_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LONGHAUL_LEGDER__DSN", "postgresql://x")
    assert "no section for LONGHAUL_LEGDER__DSN (sections: ledger, temporal, worker" in refused()


def test_a_misspelled_setting_is_refused_in_a_variable_and_in_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    Path("longhaul.toml").write_text("[worker]\npages_at_onse = 3\n")
    assert "worker.pages_at_onse: Extra inputs are not permitted" in refused()
    assert "longhaul.toml" in refused()
    Path("longhaul.toml").write_text("[wroker]\npages_at_once = 3\n")
    assert "wroker" in refused()
    Path("longhaul.toml").unlink()
    monkeypatch.setenv("LONGHAUL_WORKER__PAGES_AT_ONSE", "3")
    assert "worker.pages_at_onse" in refused()


def test_every_wrong_setting_is_named_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LONGHAUL_WORKER__WINDOW", "26")
    monkeypatch.setenv("LONGHAUL_ENDPOINT__PORT", "eighty")
    assert "worker.window" in refused()
    assert "endpoint.port" in refused()


def test_a_file_that_is_no_toml_is_named_with_its_line() -> None:
    Path("longhaul.toml").write_text("[worker]\npages_at_once = \n")
    assert "longhaul.toml: not valid TOML" in refused()
    assert "line 2" in refused()


def test_a_table_in_a_variable_must_be_json(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LONGHAUL_ACCOUNTS", "main")
    assert "written as JSON" in refused()


def test_an_unknown_account_or_source_is_answered_with_those_that_there_are() -> None:
    Path("longhaul.toml").write_text(ACCOUNT)
    for ask, words in (("account", "(known: main); add [accounts.b]"), ("source", "(known: none); add [sources.b]")):
        with pytest.raises(Fault) as fault:
            getattr(load_settings(), ask)("b")
        assert words in fault.value.detail


@pytest.mark.parametrize("name", ["Main", "a b", "-a", "ä", "a" * 64])
def test_an_accounts_name_fits_a_path_and_a_label(name: str) -> None:
    Path("longhaul.toml").write_text(ACCOUNT.replace("accounts.main", f'accounts."{name}"'))
    assert "accounts" in refused()


def test_secrets_are_never_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    Path("longhaul.toml").write_text(
        f'[ledger]\ndsn = "postgresql://u:{TOKEN}@h/d"\n{ACCOUNT}webhook_secrets = ["{SECRET}"]\n'
        f'[sources.attic]\nbase_url = "http://source.example"\ntoken = "{TOKEN}"\n'
    )
    settings = load_settings()
    for shown in (repr(settings), str(settings), settings.model_dump_json(), repr(settings.accounts["main"])):
        assert TOKEN not in shown
        assert SECRET not in shown
    assert settings.accounts["main"].token.get_secret_value() == TOKEN
    # Nor where they are wrong.
    monkeypatch.setenv("LONGHAUL_ACCOUNTS__MAIN__TOKEN", "  ")
    assert "accounts.main.token" in refused()
    monkeypatch.setenv("LONGHAUL_ACCOUNTS__MAIN__TOKEN", TOKEN)
    monkeypatch.setenv("LONGHAUL_LEDGER", json.dumps({"dsn": ["postgresql://u:" + TOKEN]}))
    assert TOKEN not in refused()


# -------------------------------------------------------------------------------------------------- webhook secrets


@pytest.mark.parametrize(
    ("written", "secrets"),
    [
        (SECRET, [SECRET]),
        (f"{SECRET} {OTHER}", [SECRET, OTHER]),
        (f"  {SECRET}\n{OTHER} ", [SECRET, OTHER]),
        (json.dumps([SECRET, OTHER]), [SECRET, OTHER]),
        (json.dumps([SECRET]), [SECRET]),
    ],
)
def test_webhook_secrets_in_a_variable(monkeypatch: pytest.MonkeyPatch, written: str, secrets: list[str]) -> None:
    Path("longhaul.toml").write_text(ACCOUNT)
    monkeypatch.setenv("LONGHAUL_ACCOUNTS__MAIN__WEBHOOK_SECRETS", written)
    found = load_settings().account("main").webhook_secrets
    assert [secret.get_secret_value() for secret in found] == secrets


@pytest.mark.parametrize("written", [f'"{SECRET} {OTHER}"', f'["{SECRET}", "{OTHER}"]'])
def test_webhook_secrets_in_a_file(written: str) -> None:
    Path("longhaul.toml").write_text(f"{ACCOUNT}webhook_secrets = {written}\n")
    found = load_settings().account("main").webhook_secrets
    assert [secret.get_secret_value() for secret in found] == [SECRET, OTHER]


@pytest.mark.parametrize("written", ["", "  ", '[""]', '["whsec_x", " "]'])
def test_an_empty_webhook_secret_is_refused(monkeypatch: pytest.MonkeyPatch, written: str) -> None:
    Path("longhaul.toml").write_text(ACCOUNT)
    monkeypatch.setenv("LONGHAUL_ACCOUNTS__MAIN__WEBHOOK_SECRETS", written)
    assert "a webhook secret is empty" in refused()


def test_webhook_secrets_that_are_no_json_list_are_refused_without_being_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    Path("longhaul.toml").write_text(ACCOUNT)
    monkeypatch.setenv("LONGHAUL_ACCOUNTS__MAIN__WEBHOOK_SECRETS", f'["{SECRET}"')
    said = refused()
    assert "webhook_secrets" in said
    assert SECRET not in said


# ---------------------------------------------------------------------------------------------------------- quiet_s


def test_a_lost_create_is_looked_up_only_after_its_call_can_no_longer_land() -> None:
    given = {"base_url": "http://host.example", "token": TOKEN}
    assert AccountSettings(**given).quiet == 40
    assert AccountSettings(**given, timeout_s=5).quiet == 15
    assert AccountSettings(**given, timeout_s=5, quiet_s=7).quiet == 7
    with pytest.raises(ValueError, match=r"quiet_s must be at least timeout_s \+ 2 \(7\)"):
        AccountSettings(**given, timeout_s=5, quiet_s=6.9)


def test_defaults_lead_nowhere_outside_this_machine() -> None:
    settings = Settings()
    assert settings.telemetry.otlp_endpoint is None
    assert settings.telemetry.prometheus_bind is None
    assert settings.endpoint.host == "127.0.0.1"
    assert not settings.media.allow_private_addresses
    assert settings.accounts == {}
