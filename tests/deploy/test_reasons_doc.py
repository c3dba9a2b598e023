"""The page of reasons says what faults.py says."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

from faults import REASONS

ROOT = Path(__file__).resolve().parents[2]


def test_the_page_of_reasons_is_what_the_reasons_are() -> None:
    spec = importlib.util.spec_from_file_location("generate_reasons", ROOT / "docs" / "generate_reasons.py")
    assert spec is not None
    assert spec.loader is not None
    generator = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(generator)
    committed = (ROOT / "docs" / "reasons.md").read_text(encoding="utf-8")
    assert generator.page() == committed, "faults.py changed: run `python docs/generate_reasons.py`"


def test_every_reason_is_on_its_page_once() -> None:
    committed = (ROOT / "docs" / "reasons.md").read_text(encoding="utf-8")
    listed = re.findall(r"^\| `([a-z-]+)` \|", committed, re.MULTILINE)
    assert sorted(listed) == sorted(REASONS)
