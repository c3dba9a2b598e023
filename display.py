"""What people see of a run: progress by phase while it goes on, and what it came to."""

from __future__ import annotations

import textwrap
import time
import unicodedata
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from rich.console import Console, Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from faults import REASONS
from ledger.budgets import PaceStanding
from workflows.messages import Phase, Progress

_BAR: Final = 28
_RATE_OVER_S: Final = 15.0
_RATE_AFTER_S: Final = 3.0
"""A rate over less would be a guess."""
_STYLES: Final = {"verified": "green", "ready": "green", "rejected": "yellow", "failed": "red", "mismatched": "red"}
_ORDER: Final = (
    "verified", "attached", "attaching", "ready", "processing", "creating", "inventoried", "pending", "skipped",
    "deleted",
)  # fmt: skip
"""How a library's counts are told: what arrived first, what needs a person last."""
_LINE_EVERY_S: Final = 2.0


def say(console: Console, text: str, *, style: str = "", indent: int = 0) -> None:
    """Prints prose: wrapped between words on a terminal, one line elsewhere, and nothing in it is taken for markup.

    Addresses and commands are never broken: they can be copied.
    """
    text = " " * indent + visible(text)
    if console.is_terminal:
        hanging = " " * indent
        text = textwrap.fill(
            text, console.width, subsequent_indent=hanging, break_long_words=False, break_on_hyphens=False
        )
    console.print(text, style=style, highlight=False, markup=False, soft_wrap=True)


def visible(text: str) -> str:
    """`text` with control characters made visible: a title or a host's message must not steer the terminal."""
    return "".join("\ufffd" if unicodedata.category(c) == "Cc" and c not in "\n\t" else c for c in text)


@dataclass(frozen=True, slots=True)
class PhaseLine:
    """One phase as a person sees it. `total` is None where nobody can know it yet; `rate` is in assets a second."""

    phase: Phase
    state: str
    done: int
    total: int | None
    passes: int = 1
    rate: float | None = None

    @property
    def seconds_left(self) -> float | None:
        if self.total is None or not self.rate or self.state != "open":
            return None
        return max(0.0, (self.total - self.done) / self.rate)

    def text(self) -> str:
        """One plain line."""
        parts = [f"{self.phase:<10} {self.done}" + ("" if self.total is None else f"/{self.total}")]
        if self.state == "open":
            if self.rate:
                parts.append(f"{self.rate:.1f}/s")
            if self.seconds_left is not None:
                parts.append(f"about {duration(self.seconds_left)} left")
            if self.passes > 1:
                parts.append(f"pass {self.passes}")
        else:
            parts.append("done" if self.state == "closed" else self.state)
        return "  ".join(parts)


def phase_lines(progress: Progress, assets: Mapping[str, int]) -> Sequence[PhaseLine]:
    """The run's phases from its assets by state. An asset that has left a phase counts as done in it."""

    def of(*states: str) -> int:
        return sum(assets.get(state, 0) for state in states)

    everything = sum(assets.values())
    ended = of("verified", "mismatched", "deleted")
    settled = ended + of("ready", "attaching", "attached")
    created = settled + of("processing")
    counts: dict[str, tuple[int, int | None]] = {
        "list": (everything, None),
        "inventory": (everything - of("pending"), everything),
        "create": (created, created + of("inventoried", "creating")),
        "settle": (settled, created),
        "attach": (of("attached"), of("attached", "attaching")),
        "reconcile": (ended, settled),
    }
    lines = []
    for phase in progress.phases:
        done, total = counts[phase.phase]
        if phase.state == "waiting":
            done, total = 0, None
        elif phase.phase == "list":
            done = max(done, phase.done)  # with those that an earlier run has
        elif phase.phase == "attach" and phase.state == "closed":
            done = total = phase.done  # only those that had something; later states don't tell which
        lines.append(PhaseLine(phase.phase, phase.state, done, total, phase.passes))
    return lines


def pace_lines(pace: PaceStanding) -> Sequence[tuple[str, str]]:
    """How an account stands, line by line, each with its style."""
    lines = []
    if pace.stopped:
        lines.append((f"{pace.account} is stopped: --restore lets it go on", "yellow"))
    elif pace.paused_s > 0:
        why = f" ({pace.pause_reason})" if pace.pause_reason else ""
        lines.append((f"{pace.account} is paused for {duration(pace.paused_s)}{why}", "yellow"))
    else:
        lines.append((f"{pace.account} may be called", "green"))
    if not pace.stopped and pace.factor != 1:
        lines.append((f"  a person lowered it to {pace.factor:.0%} of the declared pace", "yellow"))
    if pace.per_s is not None:
        lines.append((f"  a person lowered it to {pace.per_s:g} requests a second", "yellow"))
    if not pace.known:
        lines.append((f"  no limit is declared; found out so far: {pace.adaptive:.1f} requests a second", ""))
    elif pace.adaptive < 1:
        lines.append((f"  cut to {pace.adaptive:.0%} of the declared pace after refusals, and growing again", "yellow"))
    lines += [(f"  {limit.words()}", "") for limit in pace.limits]
    lines.append((f"  {pace.requests} requests so far, {pace.in_flight} videos in the making", ""))
    lines.append((f"  {pace.pauses} pauses, {pace.cuts} cuts of the pace", ""))
    for tenant in pace.tenants:
        waits = ", waits for its turn" if tenant.waiting else ""
        lines.append(
            (f"  tenant {tenant.tenant} ({tenant.lane}), weight {tenant.weight:g}: {tenant.leased} leased{waits}", "")
        )
    return lines


@dataclass(slots=True)
class Rates:
    """Assets a second by phase, over the last seconds."""

    _seen: dict[str, deque[tuple[float, int]]] = field(default_factory=dict)

    def rated(self, lines: Sequence[PhaseLine], now: float | None = None) -> Sequence[PhaseLine]:
        """The lines with the rates of those that are open. `now` in seconds, of a clock that never goes back."""
        now = time.monotonic() if now is None else now
        rated = []
        for line in lines:
            if line.state != "open":
                rated.append(line)
                continue
            seen = self._seen.setdefault(line.phase, deque())
            seen.append((now, line.done))
            while now - seen[0][0] > _RATE_OVER_S:
                seen.popleft()
            began, first = seen[0]
            rate = (line.done - first) / (now - began) if now - began > _RATE_AFTER_S and line.done > first else None
            rated.append(replace(line, rate=rate))
        return rated


def panel(progress: Progress, lines: Sequence[PhaseLine]) -> RenderableType:
    """The live view for a terminal."""
    table = Table.grid(padding=(0, 2))
    for line in lines:
        style = {"closed": "green", "open": "bold", "waiting": "dim"}[line.state]
        share = 1.0 if line.state == "closed" else line.done / line.total if line.total else 0.0
        count = str(line.done) if line.total is None else f"{line.done}/{line.total}"
        left = "" if line.seconds_left is None else f"about {duration(line.seconds_left)} left"
        table.add_row(
            Text(line.phase, style=style),
            ProgressBar(total=1.0, completed=share, width=_BAR, pulse=line.state == "open" and line.total is None),
            Text("" if line.state == "waiting" else count, style=style),
            Text(f"{line.rate:.1f}/s" if line.rate and line.state == "open" else ""),
            Text(left, style="dim"),
        )
    parts: list[RenderableType] = [Text(f"{progress.run}  {progress.state}", style="bold"), table]
    parts += [Text(visible(words), style="yellow") for words in waiting_for(progress)]
    return Group(*parts)


def waiting_for(progress: Progress) -> Sequence[str]:
    """What a run that does not go on is waiting for, with what to do: a few lines, none where it goes on."""
    if progress.park is not None and progress.state == "parked":
        reason = REASONS.get(progress.park.reason, REASONS["unknown"])
        again = (
            f"it goes on by itself within {duration(progress.park.wait_s)}"
            if progress.park.wait_s
            else f"go on with: starter.py resume {progress.run}"
        )
        lines = (f"parked: {reason.words} ({reason.code})", progress.park.detail, reason.remedy, again)
        return [line for line in lines if line]
    if progress.state == "awaiting-approval":
        words = f": {progress.estimate.words()}" if progress.estimate else ""
        return [f"waits for approval{words}", f"go on with: starter.py approve {progress.run}"]
    if progress.state == "paused":
        return [f"paused; go on with: starter.py resume {progress.run}"]
    return []


class PlainProgress:
    """Progress as lines, where there is no terminal: one when a phase begins or ends, and every few seconds between."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._told: dict[str, str] = {}
        self._waiting: Sequence[str] = ()
        self._last = 0.0

    def show(self, progress: Progress, lines: Sequence[PhaseLine]) -> None:
        now = time.monotonic()
        for line in lines:
            changed = self._told.get(line.phase, "waiting") != line.state
            due = line.state == "open" and now - self._last >= _LINE_EVERY_S
            if changed or due:
                self._told[line.phase] = line.state
                self._last = now
                say(self._console, line.text())
        waiting = waiting_for(progress)
        if waiting != self._waiting:
            for words in waiting:
                say(self._console, words)
        self._waiting = waiting


def in_order(states: Iterable[str]) -> Sequence[str]:
    """States in the order in which they are told."""
    return sorted(states, key=lambda name: (_ORDER.index(name) if name in _ORDER else len(_ORDER), name))


def verdict_table(states: Mapping[str, int], reasons: Mapping[str, Mapping[str, int]]) -> Table:
    """Counts by verdict and reason, with the reason's words."""
    table = Table(box=None, pad_edge=False, show_header=False)
    for state in in_order(states):
        table.add_row(Text(state, style=_STYLES.get(state, "")), Text(str(states[state]), justify="right"), Text(""))
        for reason, count in sorted(reasons.get(state, {}).items(), key=lambda item: -item[1]):
            words = REASONS[reason].words if reason in REASONS else ""
            table.add_row(Text(f"  {reason}", style="dim"), Text(str(count), style="dim"), Text(words, style="dim"))
    return table


def duration(seconds: float | None) -> str:
    """Seconds as a person says them."""
    if seconds is None:
        return "unknown"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"
