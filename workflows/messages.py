"""Everything that travels through Temporal: one input model per workflow, activity and message.

Fields are only ever added, with defaults, so that what an older version recorded can still be read. Models ignore
fields they don't know, except what people write by hand (`MigrationInput`), where a misspelled field must be told.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator

from sources.spec import SourceSpec

Name = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9_-]{0,62}$")]
"""As `settings.Name`: fits a workflow id, a metric label, a path and a variable's name."""

Phase = Literal["list", "inventory", "create", "settle", "attach", "reconcile"]
PLAN: tuple[Phase, ...] = ("list", "inventory", "create", "settle", "attach", "reconcile")

RunState = Literal["running", "paused", "parked", "awaiting-approval", "cancelled", "finished", "failed"]


Lane = Literal["bulk", "live"]
"""Who shares an account with whom: `live` has the account's reserve, `bulk` the rest."""


class _Message(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


# ------------------------------------------------------------------------------------------------------------- the run


class PhaseProgress(_Message):
    """One phase of a run: its state, pages worked in this pass, and rows by outcome so far."""

    phase: Phase
    state: Literal["waiting", "open", "closed"] = "waiting"
    passes: int = 0
    pages: int = 0
    done: int = 0
    left: int = 0


class Carried(_Message):
    """What a run carries over when it continues as new: its place, and what only the workflow knows."""

    phase: Phase
    fence: int | None
    after: int = 0
    passes: int = 1
    phases: tuple[PhaseProgress, ...] = ()
    paused: bool = False
    approved: bool = False
    pages_at_once: int | None = None


class Redrive(_Message):
    """Dead letters that a run takes up instead of a listing: those of a run, with these reasons, or single ones by ref
    or source id. Empty means all; at least one must be given."""

    of_run: Name | None = None
    reasons: tuple[str, ...] = ()
    assets: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _something(self) -> Self:
        if not (self.of_run or self.reasons or self.assets):
            raise ValueError("name a run, reasons or assets")
        return self


class MigrationInput(BaseModel):
    """One run: a source, a destination account, a plan of phases.

    As JSON for `temporal workflow start`:
    {"tenant": "acme", "account": "sandbox", "source": {"kind": "manifest", "location": "/data/library.csv"}}
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    account: Name
    """Destination account, as named in the settings."""
    source: SourceSpec
    tenant: Name = "default"
    """Whose library it is. Assets are owned per tenant, source and source id."""
    source_name: Name | None = None
    """Tells several libraries of one tenant apart; default: the source's name in the settings, else its kind."""
    run: Name | None = None
    """Default: what follows "migration/" in the workflow's id."""
    plan: tuple[Phase, ...] = PLAN
    approval: bool = False
    """Whether to wait for a person between inventory and create."""
    lane: Lane = "bulk"
    """`live`: people wait for these videos. They get at least the account's `reserve` of its requests."""
    stripes: int = Field(default=1, ge=1, le=64)
    """Walkers of the listing, where the source can be walked by stripes."""
    pages_at_once: int = Field(default=8, ge=0, le=200)
    """Pages worked side by side in one phase; 0 is paused."""
    children_per_execution: int = Field(default=400, ge=2, le=1000)
    """Child workflows after which the run continues as new, so that its history stays small."""
    heartbeat_s: float = Field(default=30.0, ge=1, le=600)
    """Seconds after which a dead worker is noticed. Heartbeats are billed: a shorter time costs more of them."""
    redrive: Redrive | None = None
    """Take up dead letters instead of listing the source."""
    carried: Carried | None = None

    @property
    def source_label(self) -> str:
        return self.source_name or self.source.name or self.source.kind


class Park(_Message):
    """Why a run parks, and the seconds after which it goes on by itself (None: only when told)."""

    reason: str
    detail: str = ""
    wait_s: float | None = None


class Progress(_Message):
    """The answer to the query `progress`."""

    run: str
    tenant: str
    account: str
    source: str
    state: RunState
    phase: Phase | None
    phases: tuple[PhaseProgress, ...]
    pages_in_flight: tuple[int, ...] = ()
    park: Park | None = None
    estimate: EstimateResult | None = None
    assets: dict[str, int] = Field(default_factory=dict)
    """Assets by state, as of the last look at the ledger."""


class MigrationResult(_Message):
    """What a run came to. `states` counts its own assets, `library` all of the same tenant and source."""

    run: str
    state: RunState
    listed: int = 0
    added: int = 0
    owned: int = 0
    problems: int = 0
    creates: int = 0
    adopted: int = 0
    states: dict[str, int] = Field(default_factory=dict)
    reasons: dict[str, dict[str, int]] = Field(default_factory=dict)
    library: dict[str, int] = Field(default_factory=dict)


class ResumeInput(_Message):
    """For the messages pause, resume and approve: who or why, for the record."""

    note: str = ""


class ParallelInput(_Message):
    """For the update `parallel`: pages worked side by side from now on; 0 is paused."""

    pages_at_once: int = Field(ge=0, le=200)


class PaceInput(_Message):
    """For the update `pace`: how fast the run's account is called from now on, by every run that uses it. One of:
    `factor`, the share of the declared pace (0 stops it); `per_s`, requests a second at most; `stop`; `restore`. None
    of them: only say how it stands."""

    factor: float | None = Field(default=None, ge=0, le=1)
    per_s: float | None = Field(default=None, ge=0)
    stop: bool = False
    restore: bool = False

    @property
    def changes(self) -> bool:
        return self.factor is not None or self.per_s is not None or self.stop or self.restore


class PaceChange(_Message):
    """Sets an account's pace in the ledger, and asks how it stands then."""

    account: str
    pace: PaceInput


class PaceResult(_Message):
    """How an account stands. `factor` 0: stopped; `per_s`: a person's cap; `adaptive`: the share of the declared limits
    in use, or requests a second where none is declared; `limits` in words, one each."""

    account: str
    requests: int = 0
    in_flight: int = 0
    factor: float = 1.0
    per_s: float | None = None
    adaptive: float = 1.0
    cuts: int = 0
    pauses: int = 0
    paused_s: float = 0.0
    pause_reason: str | None = None
    limits: tuple[str, ...] = ()


# ------------------------------------------------------------------------------------------------------------ a stripe


class StripeInput(_Message):
    """One walker of a listing: stripe k of n owns pages k, k+n, …"""

    run: str
    tenant: str
    account: str
    source: SourceSpec
    source_label: str
    walk: int
    stripe: int
    stripes: int
    fence: int
    heartbeat_s: float = 30.0


class StripeResult(_Message):
    """What one walker found; `park` where it could not go on; `stale` where the source lost our place."""

    listed: int = 0
    added: int = 0
    park: Park | None = None
    stale: bool = False


# -------------------------------------------------------------------------------------------------------------- a page


class PageInput(_Message):
    """One page in one phase. `fence` is the phase's; `passes` is 1 in the first pass."""

    run: str
    tenant: str
    account: str
    phase: Phase
    page: int
    fence: int
    passes: int = 1
    source: SourceSpec | None = None
    heartbeat_s: float = 30.0
    lane: Lane = "bulk"


class PageResult(_Message):
    """What became of a page: rows that left the phase, rows still in it and the seconds until one may be worked."""

    page: int
    done: int = 0
    left: int = 0
    wait_s: float = 0.0
    outcomes: dict[str, int] = Field(default_factory=dict)
    park: Park | None = None


class EventsHint(_Message):
    """The relay's signal to a waiting page: so many events came, so many rows are still waited for. A hint only."""

    events: int = 0
    left: int = 0


# ---------------------------------------------------------------------------------------------------------- activities


class OpenRunInput(_Message):
    run: str
    tenant: str
    account: str
    source: SourceSpec
    source_label: str
    plan: tuple[Phase, ...]


class OpenRunResult(_Message):
    state: RunState
    closed: tuple[Phase, ...]
    approved: bool
    stripeable: bool


class AdvanceInput(_Message):
    """Ask the ledger how a phase stands: opens it where `fence` is None, names the next pages after page `after`, and,
    asked from the start (`after` 0), closes it where nothing is left and `may_close`. Then it opens the phase `then`,
    if one is named, in the same call."""

    run: str
    phase: Phase
    before: Phase | None
    fence: int | None
    after: int = 0
    limit: int = 300
    may_close: bool = True
    then: Phase | None = None


class AdvanceResult(_Message):
    """`pages` that can be worked now. None and not `closed`: a new pass may begin after `wait_s` seconds. `left` counts
    the assets that the phase still holds, `assets` all of the run by state. `then` is how the phase that was to open
    behind a closed one stands."""

    fence: int | None
    closed: bool
    pages: tuple[int, ...] = ()
    wait_s: float = 0.0
    left: int = 0
    assets: dict[str, int] = Field(default_factory=dict)
    then: AdvanceResult | None = None


class ListingCheckInput(_Message):
    """Whether a walk over the listing found all that the source says there is."""

    run: str
    walk: int


class ListingCheckResult(_Message):
    again: bool
    listed: int
    added: int
    owned: int
    total: int | None


class RunStateInput(_Message):
    run: str
    state: RunState
    reason: str | None = None
    detail: str | None = None
    wait_s: float | None = None
    approved: bool = False


class RunInput(_Message):
    run: str


class RedriveInput(_Message):
    run: str
    redrive: Redrive
    page_size: int


class RedriveResult(_Message):
    taken: int


class RemoteListingInput(_Message):
    """List the account at the destination into the ledger, for this run's reconciliation."""

    run: str
    account: str


class RemoteListingResult(_Message):
    videos: int
    requests: int


class EstimateResult(_Message):
    """What a run is about to do. `seconds` at the declared pace, `cost` in the account's currency; None: unknown."""

    to_create: int
    hours: float
    unknown_duration: int
    gigabytes: float
    rejected: dict[str, int] = Field(default_factory=dict)
    owned: int = 0
    seconds: float | None = None
    cost: float | None = None
    losses: dict[str, int] = Field(default_factory=dict)
    """What the destination has no place for, with the number of videos that have it."""

    def words(self) -> str:
        """The estimate as a person reads it."""
        words = [f"{self.to_create} videos", f"{self.hours:.2f} h", f"{self.gigabytes:.3f} GB"]
        if self.unknown_duration:
            words.append(f"{self.unknown_duration} of unknown duration")
        if self.seconds is not None:
            words.append(f"at least {timedelta(seconds=round(self.seconds))} at the declared pace")
        if self.cost is not None:
            words.append(f"about {self.cost:.2f} at the price in the settings")
        if self.losses:
            words.append("not carried over: " + ", ".join(f"{name} of {n}" for name, n in sorted(self.losses.items())))
        if self.owned:
            words.append(f"{self.owned} owned by earlier runs")
        if self.rejected:
            words.append("rejected: " + ", ".join(f"{n} {reason}" for reason, n in sorted(self.rejected.items())))
        return ", ".join(words)


Progress.model_rebuild()
