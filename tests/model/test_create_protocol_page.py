"""docs/create-protocol.md says what the explorer finds."""

from __future__ import annotations

import re

from create_cases import WITHOUT
from create_protocol_page import PAGE, RULES, page


def test_the_page_is_what_the_explorer_finds_today() -> None:
    written = PAGE.read_text(encoding="utf-8")
    assert written == page(), "run `python tests/model/create_protocol_page.py`"


def test_every_rule_has_its_counterexample_on_the_page() -> None:
    assert set(RULES) == set(WITHOUT)


def test_the_page_names_functions_that_there_are() -> None:
    import importlib

    for module, name in re.findall(r"`((?:ledger|activities)\.[a-z_]+)\.([a-z_]+)`", PAGE.read_text(encoding="utf-8")):
        assert hasattr(importlib.import_module(module), name)
