"""What ffprobe's answer says about a file, in our words. Pure: no file, no process, no clock.

Durations are in milliseconds, sizes in bytes. What is not known is None, never 0 and never -1.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from enum import StrEnum
from typing import Any, Final

from media.layout import Layout


class DurationOrigin(StrEnum):
    """Where a duration comes from, the surest first: what tolerance a comparison grants."""

    STREAM = "stream"
    """the index of the video's or the sound's own track"""
    CONTAINER = "container"
    """the container's header"""
    PACKETS = "packets"
    """the first and last time stamps of a file that has no index (MPEG-TS, MPEG-PS)"""
    ESTIMATED = "estimated"
    """size divided by bit rate, or frames by frame rate"""
    UNKNOWN = "unknown"


FLAG_REVIEW: Final = "for-review"
"""A person should look: the file contradicts itself."""
FLAG_DISAGREE: Final = "durations-disagree"
"""Container and tracks name different durations, and no track explains the container's."""
FLAG_TRACKS: Final = "tracks-differ"
"""Video and sound have different lengths: ordinary, and stored."""
FLAG_UNKNOWN: Final = "duration-unknown"
FLAG_NO_SIZE: Final = "picture-size-unknown"
FLAG_LARGER: Final = "larger-than-listed"
"""The file has more bytes than the source's listing said: it was replaced since."""
FLAG_UNSURE: Final = "format-unsure"
"""ffprobe recognized the container with low probability."""

_PACKET_FORMATS: Final = frozenset({"mpegts", "mpeg"})
_ESTIMATED_FORMATS: Final = frozenset(
    {"mp3", "aac", "ac3", "eac3", "dts", "loas", "latm", "truehd", "mlp", "mpegvideo", "m4v", "h264", "hevc", "vvc",
     "obu", "h261", "h263", "vc1", "cavsvideo", "dirac", "dnxhd", "mjpeg", "amr"}
)  # fmt: skip
"""Streams without a container: where ffprobe names a duration, it divided the size by a bit rate."""
_PICTURE_CODECS: Final = frozenset({"mjpeg", "png", "bmp", "gif", "tiff", "webp", "jpeg2000", "jpegls"})
_UNSET_S: Final = 0xFFFFFFFF / 1000
"""A movie header's duration of all ones ("not known"), at the usual 1000 ticks a second."""
_LONGEST_MS: Final = 1 << 53
_INDEX_MAX: Final = 1_000_000
_PIXELS_MAX: Final = 1_000_000
_RIGHT_ANGLE_SLACK: Final = 2
"""Degrees: a matrix whose numbers were rounded, which is not meant to be shown at a slant."""
_UNSURE_SCORE: Final = 25
"""AVPROBE_SCORE_RETRY of libavformat/avformat.h: below it, ffmpeg itself would want to read more."""
_PRIMING_MS: Final = 100
"""Sound that begins this little before zero only primes its decoder, and is not played."""
_RATE: Final = re.compile(r"^\s*(\d{1,12})\s*[/:]\s*(\d{1,12})\s*$")
_CLOCK: Final = re.compile(r"^\s*(\d{1,6}):(\d{1,2}):(\d{1,2}(?:\.\d{1,12})?)\s*$")


@dataclass(frozen=True, slots=True)
class StreamFacts:
    """One track. `kind` is "video", "audio", "subtitle", "data", "attachment", "picture" (cover art, a poster frame) or
    "unknown". `width` and `height` are as stored, before rotation."""

    index: int
    kind: str
    codec: str | None
    duration_ms: int | None = None
    width: int | None = None
    height: int | None = None
    language: str | None = None


@dataclass(frozen=True, slots=True)
class MediaFacts:
    """What is known of one file.

    `duration_ms` is how long it plays: the longer of video and sound where their tracks say so, else the container's.
    `container_duration_ms` is the container's claim less a start offset; it covers subtitles that outlast the rest.
    `width` and `height` are the picture's as shown: after the display `rotation` (degrees clockwise, 0 to 359), but
    in stored pixels: `pixel_aspect` ("16:15", None where square or unknown) is left to the reader, since hosts
    differ in applying it. `display_width` and `display_height` are what a player with square pixels shows: after the
    rotation, the stored width stretched by the pixels' shape. `fps` is the average frame rate, `fps_nominal` the rate
    that would place every frame: they differ where the rate varies. `size_bytes` is the size that was seen,
    `expected_bytes` the one that the source listed. `streams` lists every track.
    """

    container: str | None = None
    duration_ms: int | None = None
    duration_origin: DurationOrigin = DurationOrigin.UNKNOWN
    container_duration_ms: int | None = None
    video_duration_ms: int | None = None
    audio_duration_ms: int | None = None
    start_ms: int | None = None
    width: int | None = None
    height: int | None = None
    display_width: int | None = None
    display_height: int | None = None
    rotation: int = 0
    pixel_aspect: str | None = None
    fps: float | None = None
    fps_nominal: float | None = None
    video_codec: str | None = None
    audio_codec: str | None = None
    has_cover_art: bool = False
    size_bytes: int | None = None
    expected_bytes: int | None = None
    streams: tuple[StreamFacts, ...] = ()
    flags: tuple[str, ...] = ()

    @property
    def has_video(self) -> bool:
        return any(stream.kind == "video" for stream in self.streams)

    @property
    def has_audio(self) -> bool:
        return any(stream.kind == "audio" for stream in self.streams)

    def to_json(self) -> dict[str, Any]:
        """A plain dictionary of JSON's own types, which `from_json` reads."""
        plain = asdict(self)
        plain["duration_origin"] = self.duration_origin.value
        plain["streams"] = list(plain["streams"])
        plain["flags"] = list(self.flags)
        return plain

    @classmethod
    def from_json(cls, plain: Mapping[str, Any]) -> MediaFacts:
        """Facts as `to_json` wrote them. Fields that a later version added or dropped are no obstacle."""
        known = {field.name for field in fields(cls)}
        kept = {name: value for name, value in plain.items() if name in known}
        stream_fields = {field.name for field in fields(StreamFacts)}
        origin = kept.get("duration_origin")
        kept["duration_origin"] = DurationOrigin(origin) if origin in set(DurationOrigin) else DurationOrigin.UNKNOWN
        kept["flags"] = tuple(kept.get("flags", ()))
        kept["streams"] = tuple(
            StreamFacts(**{name: value for name, value in stream.items() if name in stream_fields})
            for stream in kept.get("streams", ())
        )
        return cls(**kept)


def parse(
    answer: Mapping[str, Any],
    *,
    size_bytes: int | None = None,
    layout: Layout | None = None,
    expected_bytes: int | None = None,
) -> MediaFacts:
    """The facts in ffprobe's JSON answer (sections format and streams).

    `size_bytes` is the file's size as seen, `layout` its outermost structure, `expected_bytes` what the source lists.
    Never raises, whatever the answer holds: what is absent, "N/A", NaN, negative or of a wrong type is unknown.
    """
    answer = _mapping(answer)
    container = _mapping(answer.get("format"))
    name = _text(container.get("format_name"))
    names = frozenset((name or "").split(","))
    start = _signed_ms(container.get("start_time"))
    raw = [_mapping(stream) for stream in _list(answer.get("streams"))]
    streams = tuple(_stream(position, stream, names) for position, stream in enumerate(raw))

    video = max(
        ((facts, stream) for facts, stream in zip(streams, raw, strict=True) if facts.kind == "video"),
        key=lambda pair: _prominence(*pair),
        default=None,
    )
    sounds = [facts for facts in streams if facts.kind == "audio"]
    video_ms = video[0].duration_ms if video else None
    audio_ms = max((facts.duration_ms for facts in sounds if facts.duration_ms is not None), default=None)
    tracks_ms = max((ms for ms in (video_ms, audio_ms) if ms is not None), default=None)
    others = [facts.duration_ms for facts in streams if facts.duration_ms is not None and facts.kind not in _PLAYED]
    # Versions of ffprobe differ in which impossible durations they pass on, and which they put right in silence: where
    # the header itself was seen, it is the container's word.
    header_s = None if layout is None or not layout.header_duration_ms else layout.header_duration_ms / 1000
    unset = _number(container.get("duration")) == _UNSET_S or (layout is not None and layout.header_duration_unset)
    claimed_s = container.get("duration") if header_s is None else header_s
    claimed_ms = None if unset else _container_ms(claimed_s, start, names, tracks_ms)
    flags: list[str] = []

    duration_ms, origin = _settle(claimed_ms, tracks_ms, others, names)
    disagree = (
        claimed_ms is not None
        and tracks_ms is not None
        and not any(_close(claimed_ms, known) for known in (tracks_ms, *others))
    )
    if duration_ms is None and video is not None:
        duration_ms = _counted_ms(video[1])
        origin = DurationOrigin.UNKNOWN if duration_ms is None else DurationOrigin.ESTIMATED
        # An index that counts its frames and names no duration contradicts itself.
        disagree = disagree or duration_ms is not None
    if disagree or unset:
        flags += [FLAG_DISAGREE, FLAG_REVIEW]
    if video_ms is not None and audio_ms is not None and not _close(video_ms, audio_ms):
        flags.append(FLAG_TRACKS)
    if duration_ms is None:
        flags.append(FLAG_UNKNOWN)

    rotation = _rotation(video[1]) if video else 0
    width, height = (video[0].width, video[0].height) if video else (None, None)
    if video is not None and (width is None or height is None):
        flags += [FLAG_NO_SIZE, FLAG_REVIEW]
    aspect = _pixel_aspect(video[1]) if video else None
    display_width, display_height = _stretched(width, height, aspect)
    if rotation % 180 == 90:
        width, height, display_width, display_height = height, width, display_height, display_width
    if size_bytes is not None and expected_bytes is not None and size_bytes > expected_bytes:
        flags.append(FLAG_LARGER)
    score = _number(container.get("probe_score"))
    if score is not None and score < _UNSURE_SCORE:
        flags += [FLAG_UNSURE, FLAG_REVIEW]

    return MediaFacts(
        container=name,
        duration_ms=duration_ms,
        duration_origin=origin,
        container_duration_ms=claimed_ms,
        video_duration_ms=video_ms,
        audio_duration_ms=audio_ms,
        start_ms=start,
        width=width,
        height=height,
        display_width=display_width,
        display_height=display_height,
        rotation=rotation,
        pixel_aspect=aspect,
        fps=_rate(video[1].get("avg_frame_rate")) or _rate(video[1].get("r_frame_rate")) if video else None,
        fps_nominal=_rate(video[1].get("r_frame_rate")) if video else None,
        video_codec=video[0].codec if video else None,
        audio_codec=next((facts.codec for facts in sounds if facts.codec), None),
        has_cover_art=any(facts.kind == "picture" for facts in streams),
        size_bytes=size_bytes,
        expected_bytes=expected_bytes,
        streams=streams,
        flags=tuple(dict.fromkeys(flags)),
    )


_PLAYED: Final = frozenset({"video", "audio", "picture"})
_KINDS: Final = frozenset({"video", "audio", "subtitle", "data", "attachment"})


def _stream(position: int, stream: Mapping[str, Any], names: frozenset[str]) -> StreamFacts:
    disposition = _mapping(stream.get("disposition"))
    tags = _mapping(stream.get("tags"))
    kind = _text(stream.get("codec_type"))
    kind = kind if kind in _KINDS else "unknown"
    marked = ("attached_pic", "timed_thumbnails", "still_image")
    codec = _codec(stream)
    # Without a mark, a picture is what is coded as one and stands alone in an index that counts frames (MP4, MOV).
    alone = codec in _PICTURE_CODECS and _number(stream.get("nb_frames")) == 1
    if kind == "video" and (alone or any(_number(disposition.get(mark)) for mark in marked)):
        kind = "picture"
    duration = _ms(stream.get("duration"))
    if duration is None and "matroska" in names:
        # A Matroska track's DURATION tag is the time of its end; with a start offset, its duration is less.
        end = _clock_ms(tags.get("DURATION"))
        start = _signed_ms(stream.get("start_time")) or 0
        if end is not None:
            duration = end if -_PRIMING_MS < start <= 0 or end <= start else end - start
    index = _number(stream.get("index"))
    return StreamFacts(
        index=int(index) if index is not None and 0 <= index < _INDEX_MAX else position,
        kind=kind,
        codec=codec,
        duration_ms=duration,
        width=_pixels(stream.get("width")),
        height=_pixels(stream.get("height")),
        language=_text(tags.get("language")),
    )


def _prominence(facts: StreamFacts, stream: Mapping[str, Any]) -> tuple[bool, bool, int, int, int]:
    """What makes one of several pictures the video: it moves, is meant to be played, lasts, is large, comes first. A
    picture stored as track 0, without any mark, is not it."""
    disposition = _mapping(stream.get("disposition"))
    return (
        facts.codec not in _PICTURE_CODECS,
        bool(_number(disposition.get("default"))),
        facts.duration_ms or 0,
        (facts.width or 0) * (facts.height or 0),
        -facts.index,
    )


def _container_ms(value: Any, start: int | None, names: frozenset[str], tracks_ms: int | None) -> int | None:
    """The container's duration without an offset of its first time stamp.

    Matroska's and some MP4s' is the time of the end, and includes the offset; MPEG-TS's does not. ffprobe passes on
    both. Which one it is shows against the tracks' durations; without them, Matroska's is taken to include it.
    """
    claimed = _ms(value)
    if claimed is None or start is None or -_PRIMING_MS < start <= 0 or claimed <= start:
        return claimed
    without = claimed - start
    if tracks_ms is not None:
        return min(claimed, without, key=lambda ms: (abs(ms - tracks_ms), ms != claimed))
    return without if "matroska" in names else claimed


def _settle(
    claimed: int | None, tracks: int | None, others: Iterable[int], names: frozenset[str]
) -> tuple[int | None, DurationOrigin]:
    """The duration to go by, and its origin."""
    if names & _ESTIMATED_FORMATS:
        known = claimed if claimed is not None else tracks
        return known, DurationOrigin.UNKNOWN if known is None else DurationOrigin.ESTIMATED
    if names & _PACKET_FORMATS:
        known = claimed if claimed is not None else tracks
        return known, DurationOrigin.UNKNOWN if known is None else DurationOrigin.PACKETS
    if tracks is None:
        return claimed, DurationOrigin.UNKNOWN if claimed is None else DurationOrigin.CONTAINER
    if claimed is not None and _close(claimed, tracks):
        return claimed, DurationOrigin.CONTAINER
    return tracks, DurationOrigin.STREAM


def _close(one: int, other: int) -> bool:
    """Whether two durations of one file are the same but for priming, padding and rounding."""
    return abs(one - other) <= max(500, max(one, other) // 50)


def _counted_ms(stream: Mapping[str, Any]) -> int | None:
    """Frames divided by frame rate, where the index counts frames."""
    frames = _number(stream.get("nb_frames"))
    rate = _rate(stream.get("avg_frame_rate")) or _rate(stream.get("r_frame_rate"))
    if frames is None or not 0 < frames < 1e12 or rate is None:
        return None
    return _in_range(frames / rate * 1000)


def _rotation(stream: Mapping[str, Any]) -> int:
    """Degrees clockwise, 0 to 359: the display matrix's, which ffprobe gives counter-clockwise, else the older `rotate`
    tag's, which is clockwise."""
    for side in _list(stream.get("side_data_list")):
        turned = _number(_mapping(side).get("rotation"))
        if turned is not None:
            return _turn(-turned)
    tags = _mapping(stream.get("tags"))
    turned = _number(tags.get("rotate", tags.get("ROTATE")))  # Matroska's are in capitals
    return 0 if turned is None else _turn(turned)


def _turn(degrees: float) -> int:
    if abs(degrees) > 360:  # what versions print for a matrix that turns nothing into anything
        return 0
    square = round(degrees / 90) * 90
    return (square if abs(degrees - square) <= _RIGHT_ANGLE_SLACK else round(degrees)) % 360


def _stretched(width: int | None, height: int | None, aspect: str | None) -> tuple[int | None, int | None]:
    """A picture's size with square pixels; the stored size where that would be no picture."""
    if width is None or height is None or aspect is None:
        return width, height
    across, down = (int(part) for part in aspect.split(":"))
    wide = round(width * across / down)
    return (wide, height) if 1 <= wide < _PIXELS_MAX else (width, height)


def _pixel_aspect(stream: Mapping[str, Any]) -> str | None:
    found = _RATE.match(_text(stream.get("sample_aspect_ratio")) or "")
    if found is None:
        return None
    across, down = int(found.group(1)), int(found.group(2))
    return None if across == down or not across or not down else f"{across}:{down}"


# ------------------------------------------------------------------------------------------------------- wild values


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _text(value: Any) -> str | None:
    """A short text out of a file that anyone may have made: what no database takes is dropped."""
    if not isinstance(value, str):
        return None
    kept = value.replace("\x00", "").encode("utf-8", "replace").decode("utf-8").strip()[:100]
    return kept if kept and kept != "N/A" else None


def _codec(stream: Mapping[str, Any]) -> str | None:
    name = _text(stream.get("codec_name"))
    return None if name in (None, "unknown", "none") else name


def _number(value: Any) -> float | None:
    """A finite number, or None."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def _in_range(ms: float) -> int | None:
    return round(ms) if 0 < ms < _LONGEST_MS and round(ms) > 0 and round(ms) != 0xFFFFFFFF else None


def _ms(value: Any) -> int | None:
    """Seconds as ffprobe writes them, in milliseconds; None where there is no positive number."""
    seconds = _number(value)
    return None if seconds is None else _in_range(seconds * 1000)


def _signed_ms(value: Any) -> int | None:
    seconds = _number(value)
    return round(seconds * 1000) if seconds is not None and abs(seconds) * 1000 < _LONGEST_MS else None


def _clock_ms(value: Any) -> int | None:
    """ "00:16:44.020000000", in milliseconds."""
    found = _CLOCK.match(value) if isinstance(value, str) else None
    if found is None:
        return None
    return _in_range((int(found.group(1)) * 3600 + int(found.group(2)) * 60 + float(found.group(3))) * 1000)


def _rate(value: Any) -> float | None:
    found = _RATE.match(value) if isinstance(value, str) else None
    if found is None or not int(found.group(1)) or not int(found.group(2)):
        return None
    return round(int(found.group(1)) / int(found.group(2)), 3) or None


def _pixels(value: Any) -> int | None:
    number = _number(value)
    return int(number) if number is not None and 1 <= number < _PIXELS_MAX else None
