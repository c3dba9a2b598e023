"""ffprobe: how it is called, what it said, and what that means for a migration.

`inspect` is the entry: it reads one file where it is and returns its facts with a verdict, or raises a `faults.Fault`.
The parts are small and mostly pure: `facts` reads ffprobe's answer, `verdict` judges the facts against a destination's
limits, `compare` holds them against what the destination says later.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path

from faults import Fault
from media.facts import MediaFacts, parse
from media.probe import probe
from media.relay import Relay
from media.verdict import Limits, Verdict, judge
from settings import MediaSettings
from sources.base import Location

__all__ = ["Inspection", "Limits", "MediaFacts", "Verdict", "inspect", "read_small"]


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


async def read_small(location: Location, *, limit: int, settings: MediaSettings) -> bytes:
    """The bytes of a small file beside a video, such as a text track: at most `limit`, within `settings.timeout_s`
    seconds, from the same addresses that a video may come from.

    Raises Fault: the source and file reasons of `inspect`, and "too-large".
    """
    try:
        async with asyncio.timeout(settings.timeout_s):
            if location.is_local:
                return await asyncio.to_thread(_read_local, location.address, limit)
            async with Relay(location, allow_private=settings.allow_private_addresses, ranges=False) as relay:
                return await relay.whole(limit)
    except TimeoutError:
        raise Fault("source-timeout", f"not read within {settings.timeout_s:g} s") from None


def _read_local(address: str, limit: int) -> bytes:
    try:
        with Path(address).open("rb") as file:
            content = file.read(limit + 1)
    except FileNotFoundError:
        raise Fault("source-not-found", address) from None
    except PermissionError:
        raise Fault("source-forbidden", address) from None
    except (OSError, ValueError) as error:
        raise Fault("source-unreachable", f"{address}: {error}") from None
    if len(content) > limit:
        raise Fault("too-large", f"{address}: more than {limit} bytes")
    return content
