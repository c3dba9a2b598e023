"""Every state that a model can come to, breadth first: what is found first has the shortest trace.

A model says where it begins and what may happen next. States are hashable and equal where they are the same; the order
of a model's answers is the order of the search, so that the same model always gives the same trace.
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

S = TypeVar("S", bound=Hashable)
Action = tuple[Any, ...]


class Model(Protocol[S]):
    def first(self) -> S: ...

    def successors(self, state: S) -> Iterable[tuple[Action, S]]:
        """What may happen in this state, and what comes of it."""
        ...

    def canonical(self, state: S) -> Hashable:
        """The same for states that differ only in names, such as which of two idle workers is which."""
        ...

    def broken(self, before: S, action: Action, after: S) -> str | None:
        """The invariant that this step breaks, by its name."""
        ...


@dataclass(frozen=True)
class Violation(Generic[S]):
    """An invariant's name and the shortest way to break it: the actions, each with the state before and after it."""

    name: str
    trace: tuple[tuple[S, Action, S], ...]


@dataclass
class Graph(Generic[S]):
    """What was explored: the states in the order in which they were found, and how each was come to."""

    states: list[S]
    parents: list[tuple[int, Action] | None]
    edges: list[list[int]]
    violation: Violation[S] | None

    def trace(self, number: int) -> tuple[tuple[S, Action, S], ...]:
        steps = []
        while (came := self.parents[number]) is not None:
            before, action = came
            steps.append((self.states[before], action, self.states[number]))
            number = before
        return tuple(reversed(steps))

    def cannot_reach(self, goal: Callable[[S], bool]) -> list[int]:
        """The states from which no way leads to the goal, in the order in which they were found."""
        back: list[list[int]] = [[] for _ in self.states]
        for source, targets in enumerate(self.edges):
            for target in targets:
                back[target].append(source)
        queue = [number for number, state in enumerate(self.states) if goal(state)]
        reached = set(queue)
        while queue:
            for source in back[queue.pop()]:
                if source not in reached:
                    reached.add(source)
                    queue.append(source)
        return [number for number in range(len(self.states)) if number not in reached]


@contextlib.contextmanager
def _no_collections() -> Iterator[None]:
    """States hold no cycles, and looking for some among a hundred thousand tuples takes a third of the time."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


@_no_collections()
def explore(model: Model[S], *, most: int = 1_000_000) -> Graph[S]:
    """The whole graph of a model, or as much of it as was seen when an invariant broke.

    Raises RuntimeError where there are more than `most` states: the model is not bounded as it should be.
    """
    first = model.first()
    graph = Graph([first], [None], [], None)
    numbers = {model.canonical(first): 0}
    # What was met just so need not be brought into its canonical form again.
    known: dict[S, int] = {}
    number = 0
    while number < len(graph.states):
        state = graph.states[number]
        targets = []
        for action, after in model.successors(state):
            broken = model.broken(state, action, after)
            if broken is not None:
                graph.violation = Violation(broken, (*graph.trace(number), (state, action, after)))
                return graph
            found = known.get(after)
            if found is None:
                key = model.canonical(after)
                found = numbers.get(key)
                if found is None:
                    found = numbers[key] = len(graph.states)
                    if found >= most:
                        raise RuntimeError(f"more than {most} states")
                    graph.states.append(after)
                    graph.parents.append((number, action))
                known[after] = found
            targets.append(found)
        graph.edges.append(targets)
        number += 1
    return graph
