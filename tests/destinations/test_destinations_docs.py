"""What docs/destinations says holds for the code."""

from __future__ import annotations

import re
import tomllib

import pytest

from destinations import KINDS, check_options
from settings import AccountSettings
from tests.destinations.conformance_page import PAGE, page
from tests.destinations.hosts import ROWS

FOLDER = PAGE.parent


def test_the_conformance_page_is_what_the_suite_says_today() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run `python tests/destinations/conformance_page.py`"


def test_every_kind_has_its_page_and_is_in_the_index() -> None:
    index = (FOLDER / "README.md").read_text(encoding="utf-8")
    for kind in KINDS:
        assert f"`{kind}`" in index
        if kind in ROWS:
            assert (FOLDER / f"{kind}.md").is_file()
            assert f"({kind}.md)" in index


@pytest.mark.parametrize("kind", ROWS)
def test_a_hosts_page_has_settings_that_work_as_they_stand(kind: str) -> None:
    text = (FOLDER / f"{kind}.md").read_text(encoding="utf-8")
    blocks = [tomllib.loads(block) for block in re.findall(r"```toml\n(.*?)```", text, re.DOTALL)]
    accounts = [account for block in blocks for account in block.get("accounts", {}).values()]
    assert accounts, "the page shows settings"
    secrets = {"token": ROWS[kind].token, "webhook_secrets": [ROWS[kind].secret]}
    for account in accounts:
        assert account["kind"] == kind
        check_options(AccountSettings.model_validate({**secrets, **account}))


@pytest.mark.parametrize("kind", ROWS)
def test_a_hosts_page_names_every_option(kind: str) -> None:
    text = (FOLDER / f"{kind}.md").read_text(encoding="utf-8")
    module = __import__(f"destinations.{kind}", fromlist=["Options"])
    for option in module.Options.model_fields:
        assert f"`{option}`" in text, f"{option} is not on the page"


@pytest.mark.parametrize("kind", ROWS)
def test_a_hosts_page_says_what_is_carried_over_what_is_lost_and_how_it_is_set_up(kind: str) -> None:
    text = (FOLDER / f"{kind}.md").read_text(encoding="utf-8")
    headings = re.findall(r"^## (.+)$", text, re.MULTILINE)
    assert {"What is carried over", "What is lost", "Credentials and rights", "Webhooks", "Limits"} <= set(headings)
