"""Whether a destination would take a file: its facts against the destination's limits. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from media.facts import MediaFacts


@dataclass(frozen=True, slots=True)
class Limits:
    """What the destination accepts: milliseconds and bytes, both inclusive; None where it names no limit."""

    duration_min_ms: int | None = None
    duration_max_ms: int | None = None
    size_max: int | None = None


@dataclass(frozen=True, slots=True)
class Verdict:
    """`reason` is None where the file is accepted, else a code out of `faults.REASONS`; `words` say what was seen."""

    reason: str | None = None
    words: str = ""

    @property
    def accepted(self) -> bool:
        return self.reason is None


def judge(facts: MediaFacts, limits: Limits) -> Verdict:
    """The verdict on a file that could be probed. An unknown duration or size breaks no limit."""
    if not facts.has_video:
        if facts.has_audio:
            sound = f"sound ({facts.audio_codec or 'unknown codec'})"
            return Verdict("no-video-stream", f"{sound} with cover art" if facts.has_cover_art else f"only {sound}")
        if facts.has_cover_art:
            return Verdict("not-a-video", "a still picture")
        if facts.streams:
            return Verdict("no-video-stream", f"only {', '.join(sorted({stream.kind for stream in facts.streams}))}")
        # ffprobe opens some files whose index it cannot make anything of, and calls it a success.
        return Verdict("file-corrupt", f"{facts.container or 'a container'} without a single readable track")
    length, size = facts.duration_ms, facts.size_bytes
    if length is not None and limits.duration_min_ms is not None and length < limits.duration_min_ms:
        return Verdict("too-short", f"{_seconds(length)}, at least {_seconds(limits.duration_min_ms)} are needed")
    if length is not None and limits.duration_max_ms is not None and length > limits.duration_max_ms:
        return Verdict("too-long", f"{_seconds(length)}, at most {_seconds(limits.duration_max_ms)} are accepted")
    if size is not None and limits.size_max is not None and size > limits.size_max:
        return Verdict("too-large", f"{size} bytes, at most {limits.size_max} are accepted")
    return Verdict()


def _seconds(ms: int) -> str:
    return f"{ms / 1000:.2f} s"
