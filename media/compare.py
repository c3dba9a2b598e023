"""What the source's file is against what the destination says it has. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from media.facts import DurationOrigin, MediaFacts

_TOLERANCE: Final = MappingProxyType(
    {
        DurationOrigin.STREAM: (500, 0.005),
        DurationOrigin.CONTAINER: (500, 0.005),
        DurationOrigin.PACKETS: (1_000, 0.01),
        DurationOrigin.ESTIMATED: (2_000, 0.1),
    }
)
"""By the duration's origin: milliseconds, plus a share of the duration. Transcoding pads to whole frames and segments
and drops priming samples: up to half a second; an estimate from a bit rate is a guess."""
_ROUNDED_MS: Final = 1_000
"""Several hosts give whole seconds, some cut and some round."""
_SHAPE_TOLERANCE: Final = 0.05


@dataclass(frozen=True, slots=True)
class Mismatch:
    """One thing that differs: a reason code out of `faults.REASONS`, and words with both values."""

    reason: str
    words: str


def compare(
    facts: MediaFacts, *, duration_ms: int | None, width: int | None = None, height: int | None = None
) -> Mismatch | None:
    """How the destination's video differs from the inventory's facts, or None.

    Its duration may match any of ours: the file's, the video's, the sound's or the container's, since hosts differ in
    which one they keep. Unknown on either side (None, or a value that is not positive) is no mismatch. Width and height
    alone are none either, since hosts scale; where the duration differs, a different shape is told along with it.
    """
    if duration_ms is None or duration_ms <= 0:
        return None
    ours = _durations(facts)
    if not ours or facts.duration_origin is DurationOrigin.UNKNOWN:
        return None
    if any(_matches(known, duration_ms, facts.duration_origin) for known in ours.values()):
        return None
    told = ", ".join(f"{name} {_seconds(known)}" for name, known in ours.items())
    words = f"{_seconds(duration_ms)} there; here {told} (from {facts.duration_origin.value})"
    shape = _shape(facts, width, height)
    return Mismatch("duration-differs", f"{words}; {shape}" if shape else words)


def _durations(facts: MediaFacts) -> dict[str, int]:
    found = {
        "file": facts.duration_ms,
        "video": facts.video_duration_ms,
        "sound": facts.audio_duration_ms,
        "container": facts.container_duration_ms,
    }
    return {name: ms for name, ms in found.items() if ms is not None and ms > 0}


def _matches(ours: int, theirs: int, origin: DurationOrigin) -> bool:
    fixed, share = _TOLERANCE[origin]
    allowed = fixed + ours * share
    if theirs % 1000 == 0:
        allowed = max(allowed, _ROUNDED_MS)
    return abs(ours - theirs) <= allowed


def _shape(facts: MediaFacts, width: int | None, height: int | None) -> str:
    if not (facts.width and facts.height and width and height and width > 0 and height > 0):
        return ""
    ours, theirs = facts.width / facts.height, width / height
    if abs(ours - theirs) <= ours * _SHAPE_TOLERANCE:
        return ""
    return f"the picture is {width}x{height} there, {facts.width}x{facts.height} here"


def _seconds(ms: int) -> str:
    return f"{ms / 1000:.3f} s"
