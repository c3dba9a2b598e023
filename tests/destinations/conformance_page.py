"""Writes docs/destinations/conformance.md: `python tests/destinations/conformance_page.py`. The suite runs first: where
a statement doesn't hold, nothing is written. A test says when the page is out of date.
"""

from __future__ import annotations

import inspect
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from destinations import default_limits  # noqa: E402
from destinations.base import Capabilities  # noqa: E402
from settings import LimitSettings  # noqa: E402
from tests.destinations import test_conformance as suite  # noqa: E402
from tests.destinations.hosts import ROWS  # noqa: E402

PAGE = ROOT / "docs" / "destinations" / "conformance.md"

HEAD = """\
# What holds for each host

Written by `python tests/destinations/conformance_page.py`, from the suite `tests/destinations/test_conformance.py`.

Each statement is a test against a real HTTP server that behaves as the host documents
(`tests/destinations/hosts`): its credentials, errors, lists, states, signatures. Those servers are judged in turn, by
the vendors' own clients (`tests/destinations/test_vendors_clients.py`) and, where `LONGHAUL_SPECS` names a folder with
them, by the vendors' descriptions of their APIs (`tests/contracts`). No vendor's real account has been part of it.

**●** the statement is tested and holds. A number instead: the host lacks what it is about; a number beside: it lacks a
part of it, as said below the table.
"""


def statements() -> Iterator[Callable[..., Any]]:
    """Each statement that is made of hosts, in the order of the suite."""
    for name, test in vars(suite).items():
        if name.startswith("test_") and "server" in inspect.signature(test).parameters:
            yield test


def words(test: Callable[..., Any]) -> str:
    return test.__doc__ or test.__name__.removeprefix("test_").replace("_", " ")


def offered(kind: str) -> Capabilities:
    found: Capabilities = ROWS[kind]().open().capabilities
    return found


def limit_words(limit: LimitSettings) -> str:
    which = f" ({', '.join(limit.operations)})" if limit.operations else ""
    window = {1.0: "second", 60.0: "minute", 300.0: "five minutes"}.get(limit.per_s, f"{limit.per_s:g} s")
    return f"{limit.requests:g} a {window}{which}" if window != "five minutes" else f"{limit.requests:g} in {window}"


def hours(ms: int | None) -> str:
    return "–" if ms is None else f"{ms / 1000:g} s" if ms < 60_000 else f"{ms / 3_600_000:g} h"


def size(limit: int | None) -> str:
    if limit is None:
        return "–"
    return f"{limit >> 30} GiB" if limit % (1 << 30) == 0 else f"{limit / 1e9:g} GB"


def capabilities() -> Iterator[str]:
    """What each module says of its host before a run."""
    kinds = list(ROWS)
    offers = {kind: offered(kind) for kind in kinds}
    yield "| | " + " | ".join(f"[{kind}]({kind}.md)" for kind in kinds) + " |"
    yield "|---" * (len(kinds) + 1) + "|"
    rows = {
        "a lost create is found by": lambda o: "an exact filter" if o.lookup == "exact" else "comparing the whole list",
        "events carry our reference": lambda o: "yes" if o.event_carries_ref else "no",
        "reference, characters": lambda o: str(o.ref_max or "–"),
        "title, characters": lambda o: str(o.title_max or "–"),
        "shortest": lambda o: hours(o.duration_min_ms),
        "longest": lambda o: hours(o.duration_max_ms),
        "largest file": lambda o: size(o.size_max),
        "local files": lambda o: "sent" if o.uploads else "no",
        "sources that demand headers": lambda o: "yes" if o.fetches_with_headers else "no",
        "text tracks": lambda o: {"address": "by address", "bytes": "sent", None: "no"}[o.captions],
        "poster": lambda o: {"address": "by address", "bytes": "sent", None: "no"}[o.poster],
        "carried over beside the title": lambda o: ", ".join(sorted(o.carries)) or "nothing",
    }
    for name, say in rows.items():
        yield f"| {name} | " + " | ".join(say(offers[kind]) for kind in kinds) + " |"
    limits = ("; ".join(map(limit_words, default_limits(kind))) or "none documented" for kind in kinds)
    yield "| requests | " + " | ".join(limits) + " |"


def table() -> Iterator[str]:
    """The statements, a row each, and below them why they are not made of a host."""
    kinds = list(ROWS)
    numbers: dict[tuple[str, str], int] = {}
    yield "| | " + " | ".join(kinds) + " |"
    yield "|---" * (len(kinds) + 1) + "|"
    for test in statements():
        cells = []
        for kind in kinds:
            missing, parts = (
                [
                    str(numbers.setdefault((kind, word), len(numbers) + 1))
                    for word in getattr(test, which, ())
                    if word in ROWS[kind].lacks
                ]
                for which in ("needs", "partly")
            )
            cells.append(", ".join(missing) or " ".join(["●", *(f"({number})" for number in parts)]))
        yield f"| {words(test)} | " + " | ".join(cells) + " |"
    yield ""
    for (kind, word), number in numbers.items():
        yield f"{number}. {kind}, {word}: {ROWS[kind].lacks[word]}."


def page() -> str:
    """The whole of docs/destinations/conformance.md."""
    return "\n".join([HEAD, *table(), "", "## What each module says of its host", "", *capabilities()]) + "\n"


if __name__ == "__main__":
    run = [sys.executable, "-m", "pytest", "-q", str(Path(suite.__file__))]
    if subprocess.run(run, cwd=ROOT, check=False).returncode:
        sys.exit("not written: a statement doesn't hold")
    PAGE.parent.mkdir(parents=True, exist_ok=True)
    PAGE.write_text(page(), encoding="utf-8")
