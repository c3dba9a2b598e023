"""Writes docs/reasons.md from faults.py: `python docs/generate_reasons.py`. A test says when it is out of date."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from faults import REASONS, ROW_ATTEMPTS, UNKNOWN_ATTEMPTS, Reason, Scope  # noqa: E402

PAGE: Final = ROOT / "docs" / "reasons.md"

HEAD: Final = f"""\
# Reasons

Written by `python docs/generate_reasons.py` from `faults.py`.

A reason is a short stable word: `report`, `show` and the id map give it for a video, `status` for a run. Every failure
has one, and the reason alone decides what the failure stops and whether it is tried again.

- **permanent**: no later attempt at the same input can succeed, so there is none. The video is `rejected` (or
  `mismatched`, in the reconcile phase); a run waits until someone acts.
- **transient**: it is tried again by itself. A video gets {ROW_ATTEMPTS} attempts in each phase, or {UNKNOWN_ATTEMPTS}
  where nobody foresaw the error, and is then `failed`.

What to do about videos that ended so: [migrating](migrating.md#what-became-of-the-videos). About a run that parked:
[operations](operations.md#when-a-run-parks).
"""

SECTIONS: Final = {
    Scope.ROW: (
        "One video",
        "Stops this video and nothing beside it; the other videos of its window and page go on.",
    ),
    Scope.WINDOW: (
        "A write or call that is repeated",
        "The statement is rolled back and sent again, whole. No video loses an attempt. On the command line it means "
        "that the command could not reach what it needs.",
    ),
    Scope.ACCOUNT: (
        "The destination account",
        "Every worker's calls to this account pause. No video loses an attempt.",
    ),
    Scope.PAGE: (
        "A worker's hold on a page",
        "The worker ends its part; another one has the rows, or takes them with a higher fence.",
    ),
    Scope.RUN: (
        "The run",
        "The run parks and shows the reason, or a command is refused before anything has happened.",
    ),
}


def rows(reasons: list[Reason]) -> Iterator[str]:
    for reason in reasons:
        again = "permanent" if reason.permanent else "transient"
        yield f"| `{reason.code}` | {again} | {reason.words} | {reason.remedy} |"


def page() -> str:
    """The whole of docs/reasons.md."""
    lines = [HEAD]
    for scope in Scope:
        heading, words = SECTIONS[scope]
        lines += [f"## {heading}", "", words, "", "| reason | | stopped because | what to do |", "|---|---|---|---|"]
        lines += [*rows([reason for reason in REASONS.values() if reason.scope is scope]), ""]
    return "\n".join(lines).rstrip() + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
