"""What the sandbox is started with (`SandboxConfig`) and what can be changed while it runs (`Faults`)."""

from __future__ import annotations

import base64
import binascii
import tomllib
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, SecretStr, ValidationError, field_validator

Rate = Annotated[float, Field(ge=0, le=1)]
"""Share of the calls or events that it strikes."""
Seconds = Annotated[float, Field(ge=0, le=86_400)]

Operation = Literal["create", "get", "list", "lookup", "delete", "upload", "attach"]
OPERATIONS: Final[tuple[Operation, ...]] = ("create", "get", "list", "lookup", "delete", "upload", "attach")

FaultBefore = Literal["refuse_429", "refuse_503", "error_before", "drop_before", "success_false", "html_page"]
"""Strikes before the call has any effect."""
FaultAfter = Literal["error_after", "lost_answer", "empty_body", "garbled_body", "hang_after"]
"""Strikes after the call took effect: only its answer is spoilt."""
RequestFault = FaultBefore | FaultAfter
FAULTS_BEFORE: Final[tuple[FaultBefore, ...]] = (
    "refuse_429",
    "refuse_503",
    "error_before",
    "drop_before",
    "success_false",
    "html_page",
)
FAULTS_AFTER: Final[tuple[FaultAfter, ...]] = ("error_after", "lost_answer", "empty_body", "garbled_body", "hang_after")

RetryAfterForm = Literal[
    "seconds",
    "float",
    "http-date",
    "http-date-zone",
    "http-date-past",
    "negative",
    "nan",
    "inf",
    "huge",
    "empty",
    "word",
    "absent",
    "random",
]
BodyForm = Literal["json", "html", "empty"]


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Limit(_Model):
    """A declared limit: `requests` in any `per_s` seconds."""

    name: str = Field(default="default", pattern=r"^[a-z0-9_-]{1,32}$")
    requests: int = Field(gt=0)
    per_s: float = Field(gt=0)
    block_s: Seconds = 0.0
    """Seconds for which every call of the account is refused once the limit was exceeded. 0: only until there is room
    in the window again."""
    creates_only: bool = False
    """Whether only creates count against it and are refused by it."""

    @classmethod
    def parse(cls, text: str) -> Limit:
        """`REQUESTS/SECONDS` or `REQUESTS/SECONDS:BLOCK_SECONDS`, as in `1200/300:300`. Raises ValueError."""
        amount, _, block = text.partition(":")
        requests, slash, per = amount.partition("/")
        if not slash:
            raise ValueError(f"{text!r} is not REQUESTS/SECONDS or REQUESTS/SECONDS:BLOCK_SECONDS")
        return cls(
            name=f"per-{per}s".replace(".", "-"), requests=int(requests), per_s=float(per), block_s=float(block or 0)
        )


class Faults(_Model):
    """Everything about the sandbox that can be changed while it runs. The defaults misbehave in no way.

    Rates are shares of the struck calls or events. Each rate has its own stream of random numbers, drawn from `seed`,
    so that the same calls in the same order are struck again, whatever the other switches say.
    """

    seed: int = 0

    # -- requests
    operations: tuple[Operation, ...] = OPERATIONS
    """Which calls the request faults, the script and the latency strike."""
    script: tuple[RequestFault | Literal["none"], ...] = ()
    """What happens to the next calls, in this order, before the rates decide again."""
    refuse_429_rate: Rate = 0.0
    refuse_503_rate: Rate = 0.0
    error_before_rate: Rate = 0.0
    """`error_status` before the call had any effect."""
    drop_before_rate: Rate = 0.0
    """The connection is dropped before the call had any effect."""
    success_false_rate: Rate = 0.0
    """200 with `{"success": false, "errors": […]}`, and no effect."""
    html_page_rate: Rate = 0.0
    """An HTML error page with `html_status`, and no effect."""
    error_after_rate: Rate = 0.0
    """`error_status` although the call took effect."""
    lost_answer_rate: Rate = 0.0
    """The connection is dropped although the call took effect."""
    empty_body_rate: Rate = 0.0
    """The right status with an empty body; the call took effect."""
    garbled_body_rate: Rate = 0.0
    """The right status with half of the body; the call took effect."""
    hang_after_rate: Rate = 0.0
    """No answer for `hang_s` seconds, then a dropped connection; the call took effect."""
    hang_s: Seconds = 60.0
    error_status: int = Field(default=500, ge=500, le=599)
    error_body: BodyForm = "json"
    html_status: int = Field(default=502, ge=200, le=599)
    refusal_body: BodyForm = "json"
    retry_after: RetryAfterForm = "seconds"
    """How 429 and 503 say when to come back; `random` takes another form each time."""
    retry_after_s: Seconds = 1.0
    """What an injected 429 or 503, and a refusal for too many videos in flight, asks for."""
    latency_ms: float = Field(default=0.0, ge=0)
    """Added before the call takes effect."""
    latency_jitter_ms: float = Field(default=0.0, ge=0)
    """Up to so much more, evenly spread."""
    answer_delay_ms: float = Field(default=0.0, ge=0)
    """Added between the effect and the answer: events may overtake the answer."""

    # -- limits
    limits: tuple[Limit, ...] = ()
    in_flight: int | None = Field(default=None, ge=1)
    """Videos that may be processing, or waiting for their bytes, at once; one more is refused with 429."""
    rate_headers: bool = True
    """Whether answers say what is left of the limits."""
    idempotency_keys: bool = False
    """Whether `Idempotency-Key` is honoured. Off, as with most hosts, it is ignored."""

    # -- ingest
    ingest: Literal["fetch", "synthesize"] = "fetch"
    """Fetch and probe the file, or only pretend to: then nothing is fetched and the caller's `duration_ms` is taken."""
    ingest_s: Seconds = 0.0
    """Seconds that processing takes at least."""
    ingest_s_per_media_s: float = Field(default=0.0, ge=0)
    """Seconds more for each second of video."""
    ingest_jitter_s: Seconds = 0.0
    """Up to so many seconds more, evenly spread."""
    ingest_at_once: int | None = Field(default=None, ge=1)
    """Videos worked at once, the others queue; None for no bound."""
    ingest_error_rate: Rate = 0.0
    """Share of videos that end as errored with `ingest_error_code` whatever the file is."""
    ingest_error_code: str = "processing_failed"
    synthesized_ms: int = Field(default=10_000, ge=1)
    """Duration of a synthesized video of which the caller gave none."""
    duration_min_ms: int | None = Field(default=None, ge=0)
    duration_max_ms: int | None = Field(default=None, ge=0)
    duration_off_rate: Rate = 0.0
    """Share of videos whose duration is reported wrong by `duration_off_ms`."""
    duration_off_ms: int = 60_000
    unknown_as_minus_one: bool = False
    """Whether duration, width, height and size are −1 instead of null while unknown."""

    # -- finding videos
    lookup_lag_s: Seconds = 0.0
    """Seconds for which a new video is missing from lists and lookups, as behind a lagging search index."""
    lookup_loose: bool = False
    """Whether `?reference=` finds every reference that contains the text."""
    list_repeats: bool = False
    """Whether every page of the list is the first page again."""
    list_without_paging: bool = False
    """Whether the list's answer has nothing but its items."""

    # -- webhooks
    webhooks: bool = True
    webhook_missing_rate: Rate = 0.0
    """Events that are never sent."""
    webhook_duplicate_rate: Rate = 0.0
    """Events that are sent three times, each with the same id."""
    webhook_late_rate: Rate = 0.0
    """Events held back for `webhook_late_s`."""
    webhook_late_s: Seconds = 5.0
    webhook_reorder_rate: Rate = 0.0
    """Events held back until a later one was delivered, `webhook_reorder_s` at most."""
    webhook_reorder_s: Seconds = 5.0
    webhook_forged_rate: Rate = 0.0
    """Events preceded by a copy whose body was changed after it was signed. The receiver must refuse it."""


class SandboxConfig(_Model):
    """What the sandbox is started with."""

    host: str = "127.0.0.1"
    port: int = Field(default=0, ge=0, le=65_535)
    """0: any free one."""
    data: Path
    """Directory of its storage; made if missing."""
    token: SecretStr
    public_url: str | None = Field(default=None, pattern=r"^https?://[^\s]+$")
    """Address under which others reach it, for playback addresses; None: the host and port it listens on."""
    webhook_url: str | None = Field(default=None, pattern=r"^https?://[^\s]+$")
    webhook_secret: SecretStr | None = None
    """`whsec_…`; several, separated by spaces, sign each delivery with each, as during a rotation."""
    webhook_retry_s: float = Field(default=1.0, gt=0, le=3_600)
    """Seconds before the first redelivery; doubled for each further one up to `webhook_retry_max_s`."""
    webhook_retry_max_s: float = Field(default=60.0, gt=0, le=86_400)
    webhook_timeout_s: float = Field(default=10.0, gt=0)
    """Wall-clock limit of one delivery."""
    webhooks_at_once: int = Field(default=16, ge=1, le=256)
    allow_local_files: bool = False
    """Whether a source address may be a path or `file:` address on this machine."""
    fetch_timeout_s: float = Field(default=600.0, gt=0)
    """Wall-clock limit of fetching one file."""
    fetch_max_bytes: int = Field(default=10_737_418_240, gt=0)
    """Of a file that is fetched or uploaded."""
    probes_at_once: int = Field(default=4, ge=1, le=64)
    """Files fetched and probed at once, which bounds disk and processes."""
    faults: Faults = Faults()
    """Switches at the start."""

    @field_validator("token")
    @classmethod
    def _token_fits_a_header(cls, value: SecretStr) -> SecretStr:
        text = value.get_secret_value()
        if not text or not text.isascii() or not text.isprintable() or text != text.strip():
            raise ValueError("must be printable ASCII, not empty, without blanks around it")
        return value

    @field_validator("webhook_secret")
    @classmethod
    def _secrets_are_keys(cls, value: SecretStr | None) -> SecretStr | None:
        if value is not None:
            webhook_keys(value)
        return value


def webhook_keys(secret: SecretStr) -> tuple[str, ...]:
    """The single secrets in a setting that may hold several. Raises ValueError where one is no key."""
    keys = tuple(secret.get_secret_value().split())
    if not keys:
        raise ValueError("is empty; leave it out, or give whsec_ and at least 24 bytes in Base64")
    for key in keys:
        try:
            raw = base64.b64decode(key.removeprefix("whsec_") + "==", validate=False)
        except binascii.Error:
            raise ValueError("is not whsec_ and Base64") from None
        if not raw:
            raise ValueError("holds an empty key")
    return keys


class ConfigRefused(Exception):
    """The configuration cannot be used. Its text names each wrong setting, and no secret."""


def load_config(file: Path | None, given: dict[str, Any]) -> SandboxConfig:
    """The configuration out of a TOML file (its top level as `SandboxConfig`, a table `[faults]`) and what was given on
    the command line, which wins. Raises ConfigRefused."""
    settings: dict[str, Any] = {}
    if file is not None:
        try:
            settings = tomllib.loads(file.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
            raise ConfigRefused(f"{file}: {error}") from None
    faults = {**settings.get("faults", {}), **given.pop("faults", {})}
    try:
        return SandboxConfig.model_validate({**settings, **given, "faults": faults})
    except ValidationError as error:
        raise ConfigRefused(in_words(error)) from None


def in_words(error: ValidationError) -> str:
    """Each wrong setting and what is wrong with it, without the value, which may be a secret."""
    return "; ".join(f"{'.'.join(str(part) for part in e['loc']) or 'body'}: {e['msg']}" for e in error.errors())
