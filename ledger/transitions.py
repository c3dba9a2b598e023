"""Which state an asset may go to from which. The one place that decides it; every write passes these pairs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final

TRANSITIONS: Final[Mapping[str, frozenset[str]]] = MappingProxyType(
    {
        "pending": frozenset({"inventoried", "rejected", "failed", "skipped", "deleted"}),
        "inventoried": frozenset({"creating", "rejected", "failed", "skipped", "deleted"}),
        # Back to inventoried only where it is certain that no call landed.
        "creating": frozenset({"inventoried", "processing", "ready", "rejected", "failed", "skipped", "deleted"}),
        "processing": frozenset({"ready", "rejected", "failed", "skipped", "deleted"}),
        "ready": frozenset({"attaching", "verified", "mismatched", "skipped", "deleted"}),
        "attaching": frozenset({"attached", "mismatched", "skipped", "deleted"}),
        "attached": frozenset({"verified", "mismatched", "skipped", "deleted"}),
        "verified": frozenset({"mismatched", "deleted"}),
        "mismatched": frozenset({"verified", "deleted"}),
        "rejected": frozenset({"deleted"}),
        # A video that became ready after we gave it up is ready all the same.
        "failed": frozenset({"ready", "deleted"}),
        "skipped": frozenset({"deleted"}),
        "deleted": frozenset(),
    }
)
"""Skipped rows are left by a later run's take-over alone (`ledger.listings`), not by a transition."""

STATES: Final = tuple(TRANSITIONS)

PHASE_STATES: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "list": (),
        "inventory": ("pending",),
        "create": ("inventoried", "creating"),
        "settle": ("processing",),
        "attach": ("attaching",),
        "reconcile": ("ready", "attached"),
    }
)
"""The states that an asset must have left before the phase can close."""

WITHIN_PHASE: Final = [
    f"{source}>{target}"
    for states in PHASE_STATES.values()
    for source in states
    for target in states
    if source == target or target in TRANSITIONS[source]
]
"""The steps that leave a row in its phase, to be tried again: its attempts and deaths go on counting."""

DEAD: Final = ("failed", "rejected", "mismatched")
"""Dead letters: what a person may have taken up again, once what was wrong is mended."""

UNFINISHED: Final = ("pending", "inventoried", "creating", "processing", "ready", "attaching", "attached")
"""What a cancelled run hands on to a later one."""


def allowed(source: str, target: str) -> bool:
    """Whether an asset may go from `source` to `target`; staying is no transition."""
    return target in TRANSITIONS[source]


def steps(targets: Iterable[str], *, stay: Iterable[str] = ()) -> list[str]:
    """All legal steps that lead to `targets`, as "from>to" words for a statement.

    `stay` names states that a row may keep while its claim ends: a retry later. A statement compares such a word with
    `state || '>' || target` in a plain condition: that is evaluated again on the row's newest version where another
    transaction has just changed it. A join with a table of steps would keep the step that fitted the old version.
    """
    wanted = set(targets)
    found = [f"{source}>{target}" for source, to in TRANSITIONS.items() for target in to if target in wanted]
    return found + [f"{state}>{state}" for state in stay]
