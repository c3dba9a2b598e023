"""The module that docs/destinations/README.md shows, taken from there: every statement of the suite holds for it."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import pytest_asyncio

from tests.destinations import test_conformance as suite
from tests.destinations.conformance_page import statements
from tests.destinations.hosts.base import HostServer
from tests.destinations.hosts.reelhouse import ReelhouseServer
from tests.destinations.test_conformance import film, host, open_one  # noqa: F401 - fixtures of the statements

PAGE = Path(__file__).resolve().parents[2] / "docs" / "destinations" / "README.md"
LONGEST = 220
"""Lines: what the page promises, about 200."""


def shown() -> str:
    [source] = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    return str(source)


def example() -> Any:
    if "reelhouse" not in sys.modules:
        module = ModuleType("reelhouse")
        exec(compile(shown(), str(PAGE), "exec"), vars(module))
        sys.modules["reelhouse"] = module
    return sys.modules["reelhouse"]


class Served(ReelhouseServer):
    def open(self, *, clock: Any = time.time, **given: Any) -> Any:
        return example().ReelhouseDestination(self.account(**given), clock=clock)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """There is one host here; the suite's own parameters are marks on its tests."""


@pytest_asyncio.fixture
async def server() -> AsyncIterator[HostServer]:
    async with Served().serving() as running:
        yield running


globals().update(
    {
        test.__name__: test
        for test in statements()
        if not any(word in ReelhouseServer.lacks for word in getattr(test, "needs", ()))
    }
)


def test_the_example_is_as_short_as_the_page_says() -> None:
    assert len(shown().splitlines()) <= LONGEST


def test_the_example_is_formatted_and_typed_as_our_code_is(tmp_path: Path) -> None:
    module = tmp_path / "reelhouse.py"
    module.write_text(shown(), encoding="utf-8")
    root = PAGE.parents[2]
    for command in (
        ["ruff", "check"],
        ["ruff", "format", "--check"],
        ["mypy", "--config-file", str(root / "pyproject.toml")],
    ):
        ran = subprocess.run(
            [sys.executable, "-m", *command, str(module)], cwd=root, capture_output=True, text=True, check=False
        )
        assert ran.returncode == 0, ran.stdout + ran.stderr


def test_the_suite_has_statements_for_it() -> None:
    assert sum(name.startswith("test_") and value in list(statements()) for name, value in globals().items()) > 45
    assert suite.ROWS.keys().isdisjoint({"reelhouse"})
