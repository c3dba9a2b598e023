"""What is explored: kinds of host, worlds, and what is taken out of the protocol. Each is explored once a process."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache

from create_protocol import CreateProtocol, Host, Rules, State, World, removed
from create_traces import told
from explorer import Graph, explore

HOSTS = {
    host.name: host
    for host in (
        Host("exact"),
        Host("list", lookup="list"),
        Host("id-only", event_ref=False),
        Host("slow-index", lag=1),
        Host("key", key=True),
        Host("key-late", key=True, late=True),
    )
}
"""Every kind of host, each within what the protocol assumes of it."""

BUSY = World(workers=3, created_events=True)
"""Three workers, and a host that tells of everything."""
FEW = World()
"""Enough where nothing is waited for, so that all workers call at once."""


@dataclass(frozen=True)
class Explored:
    model: CreateProtocol
    graph: Graph[State]

    @property
    def violation(self) -> str | None:
        return self.graph.violation and self.graph.violation.name

    @property
    def trace(self) -> list[str]:
        assert self.graph.violation is not None, "nothing was broken"
        return told(self.graph.violation.trace)

    def strands(self, *, dead_letters_count: bool) -> list[int]:
        """States from which the row can never come to own what is at the host. With `dead_letters_count` a row that a
        person is shown as failed has come to its end."""

        def ended(state: State) -> bool:
            return self.model.settled(state) or (dead_letters_count and state.row.state in ("failed", "rejected"))

        return self.graph.cannot_reach(ended)


@cache
def explored(host: Host, rules: Rules | None = None, world: World | None = None) -> Explored:
    model = CreateProtocol(host, rules, world)
    return Explored(model, explore(model))


def busy(host: Host) -> Explored:
    """As much at once as there can be on this kind of host."""
    return explored(host, world=FEW if host.key else BUSY)


def endless(host: Host) -> Explored:
    """With runs that are cancelled and taken up, and dead letters taken up again, for ever."""
    return explored(host, world=World(runs=host.name != "key", redrive=True, hard_stops=not host.key))


EXACT = HOSTS["exact"]
OFFSIDE = World(workers=2, source_fails=False, hard_stops=False)

WITHOUT: dict[str, tuple[Host, Rules, World]] = {
    "intent": (EXACT, removed("intent"), OFFSIDE),
    "quiet": (EXACT, removed("quiet"), OFFSIDE),
    "look_first": (EXACT, removed("look_first"), OFFSIDE),
    "on_time": (EXACT, removed("on_time"), OFFSIDE),
    "fence": (EXACT, removed("fence"), OFFSIDE),
    "legal": (EXACT, removed("legal"), World(created_events=True)),
    "one_video": (EXACT, removed("one_video"), replace(OFFSIDE, deleted=True)),
    "keep_open": (EXACT, removed("keep_open"), World(redrive=True, source_fails=False)),
}
"""For each rule, where it is missed."""

BREAKS = {
    "intent": "duplicate",
    "quiet": "duplicate",
    "look_first": "duplicate",
    "on_time": "duplicate",
    "fence": "duplicate",
    "legal": "ready pulled back",
    "one_video": "video exchanged",
    "keep_open": "duplicate",
}
"""What each rule is for: the invariant that breaks without it."""

BEYOND: dict[str, tuple[Host, Rules, World]] = {
    "late": (Host("late", late=True), Rules(), OFFSIDE),
    "lag": (Host("slower-index", lag=2), Rules(), OFFSIDE),
    "gap": (EXACT, Rules(), World(gap=True, source_fails=False, hard_stops=False)),
}
"""Outside what is assumed of a host or a machine: each gives a duplicate."""

PATIENT = World(quiet=3, source_fails=False, hard_stops=False)
"""A quiet time that is longer by a tick."""

TWICE = (EXACT, Rules(), World(errored=True, redrive=True, source_fails=False))
"""Rows that are taken up again because the host could not process their video."""
