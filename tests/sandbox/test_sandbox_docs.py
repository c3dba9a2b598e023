"""The page about the sandbox says what is true."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

from typer.main import get_command

from destinations import check_options
from sandbox.__main__ import app
from sandbox.config import Faults, SandboxConfig
from settings import AccountSettings

PAGE = (Path(__file__).parents[2] / "docs" / "sandbox.md").read_text(encoding="utf-8")
TOML: list[dict[str, Any]] = [tomllib.loads(block) for block in re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)]


def test_every_switch_and_every_option_is_described() -> None:
    missing = [name for name in Faults.model_fields if f"`{name}`" not in PAGE]
    options = [name for parameter in get_command(app).params for name in parameter.opts if name != "--help"]
    variables = [parameter.envvar for parameter in get_command(app).params if getattr(parameter, "envvar", None)]
    missing += [name for name in (*options, *variables) if f"`{name}`" not in PAGE]
    assert not missing


def test_every_example_of_a_setting_is_accepted() -> None:
    sandboxes = [SandboxConfig.model_validate(block) for block in TOML if "accounts" not in block]
    accounts = [
        AccountSettings.model_validate(account) for block in TOML for account in block.get("accounts", {}).values()
    ]
    assert (len(sandboxes), len(accounts)) == (1, 2)
    for account in accounts:
        check_options(account)
