"""ffprobe: how it is called, what it said, and what that means for a migration.

`inspect` is the entry: it reads one file where it is and returns its facts with a verdict, or raises a `faults.Fault`.
The parts are small and mostly pure: `facts` reads ffprobe's answer, `verdict` judges the facts against a destination's
limits, `compare` holds them against what the destination says later.
"""

from __future__ import annotations

from dataclasses import dataclass

from media.facts import MediaFacts, parse
from media.probe import probe
from media.verdict import Limits, Verdict, judge
from settings import MediaSettings
from sources.base import Location

__all__ = ["Inspection", "Limits", "MediaFacts", "Verdict", "inspect"]


@dataclass(frozen=True, slots=True)
class Inspection:
    """What a file is, and whether the destination would take it. `bytes_read` is what the source had to send."""

    facts: MediaFacts
    verdict: Verdict
    bytes_read: int


async def inspect(location: Location, *, settings: MediaSettings, limits: Limits) -> Inspection:
    """Probes the file at `location` and judges it.

    Raises Fault for everything that keeps it from being probed: a row's source, file or probe reasons, and
    "settings-refused" where no ffprobe is found.
    """
    result = await probe(location, settings=settings)
    facts = parse(result.answer, size_bytes=result.size_bytes, layout=result.layout, expected_bytes=location.size)
    return Inspection(facts, judge(facts, limits), result.bytes_read)
