"""What the source's file is against what the destination says it has, and what probably made the difference. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
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
_SEGMENT_MS: Final = 12_000
"""The longest segment in common use is 10 s (HLS); what is missing at the end by less may be the last one."""
_RATIO_TOLERANCE: Final = 0.004


@dataclass(frozen=True, slots=True)
class Mismatch:
    """One thing that differs: a reason code out of `faults.REASONS`, and words: what the source said, what the
    destination says, what probably happened."""

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
    parts = (
        f"the source's file says {told} (from {facts.duration_origin.value})",
        f"the destination says {_seconds(duration_ms)}",
        _shape(facts, width, height),
        f"probably {explain(facts, ours, duration_ms)}",
    )
    return Mismatch("duration-differs", "; ".join(part for part in parts if part))


def explain(facts: MediaFacts, ours: Mapping[str, int], theirs: int) -> str:
    """What probably made a duration of `theirs` milliseconds out of `ours`: the first guess that fits, the most telling
    first. It is for a person, and nothing is decided by it."""
    mine = facts.duration_ms or max(ours.values())
    sight = _Sight(facts, mine, theirs)
    return next((words(sight) for fits, words in _GUESSES if fits(sight)), "the file was replaced since it was read")


@dataclass(frozen=True, slots=True)
class _Sight:
    """What the guesses look at: our duration and theirs, in milliseconds."""

    facts: MediaFacts
    mine: int
    theirs: int

    @property
    def missing(self) -> int:
        return self.mine - self.theirs

    def ratio_is(self, ratio: float | None) -> bool:
        return ratio is not None and abs(self.theirs / self.mine / ratio - 1) <= _RATIO_TOLERANCE

    @property
    def normalized(self) -> float | None:
        """By what the duration grows where frames that came at uneven times are played at the nominal rate."""
        fps, nominal = self.facts.fps, self.facts.fps_nominal
        return fps / nominal if fps and nominal and abs(fps / nominal - 1) > _RATIO_TOLERANCE else None

    @property
    def offset(self) -> int:
        return self.facts.start_ms or 0

    @property
    def longer_track(self) -> tuple[str, int] | None:
        """The one of picture and sound that outlasts the other, and the other's duration."""
        picture, sound = self.facts.video_duration_ms, self.facts.audio_duration_ms
        if picture is None or sound is None or abs(picture - sound) < _ROUNDED_MS:
            return None
        return ("sound", picture) if sound > picture else ("picture", sound)


_Guess = tuple[Callable[[_Sight], bool], Callable[[_Sight], str]]

_GUESSES: Final[tuple[_Guess, ...]] = (
    (
        lambda s: any(s.ratio_is(unit) for unit in (1000, 0.001)),
        lambda s: "seconds and milliseconds were taken for one another: check the account's duration_unit",
    ),
    (
        lambda s: s.normalized is not None and (s.ratio_is(s.normalized) or s.ratio_is(1 / s.normalized)),
        lambda s: (
            f"its variable frame rate (on average {s.facts.fps:g}, nominally {s.facts.fps_nominal:g} frames a second) "
            "was normalized to a constant one"
        ),
    ),
    (
        lambda s: any(s.ratio_is(ratio) for ratio in (25 / 24, 24 / 25, 25 / 23.976, 23.976 / 25, 30 / 25, 25 / 30)),
        lambda s: "it was converted to another frame rate by playing it faster or slower",
    ),
    (
        lambda s: s.facts.duration_origin is DurationOrigin.ESTIMATED,
        lambda s: "our own value is wrong: the file has no index, and it was estimated from its bit rate",
    ),
    (
        lambda s: abs(s.offset) >= 500 and abs(abs(s.missing) - abs(s.offset)) <= 500,
        lambda s: f"the file's first picture comes at {s.offset / 1000:.3f} s, and that offset was counted in or cut",
    ),
    (
        lambda s: s.longer_track is not None and s.longer_track[1] - _ROUNDED_MS <= s.theirs < s.mine,
        lambda s: (
            f"the {s.longer_track[0] if s.longer_track else 'longer track'}'s tail was cut, which outlasts the rest"
        ),
    ),
    (
        lambda s: s.theirs > s.mine and bool({"mov", "mp4"} & set((s.facts.container or "").split(","))),
        lambda s: "an edit list in the file hides a part of it, and the destination plays that part too",
    ),
    (
        lambda s: 0 < s.missing <= min(_SEGMENT_MS, s.mine // 2),
        lambda s: "the last segment was dropped, or an edit list in the file was applied differently",
    ),
    (
        lambda s: s.missing > 0,
        lambda s: f"the transfer or the encoding stopped early: {100 * s.missing / s.mine:.0f} % is missing",
    ),
)


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
