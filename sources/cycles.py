"""Finds out that a walk goes in circles, remembering one place however long the walk is."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Trail:
    """Brent's cycle detection (R. P. Brent, "An improved Monte Carlo factorization algorithm", BIT 20, 1980, pages 176
    to 184; also called the teleporting tortoise): one mark is remembered, and replaced by the current one after 1, 2,
    4, 8 … steps. A walk that enters a cycle of length λ after μ steps is caught within 2·max(μ + 1, λ) + λ steps of its
    start, and a mark that never comes again closes no cycle. Marks are any texts but the empty one.
    """

    mark: str = ""
    power: int = 1
    steps: int = 0

    def step(self, mark: str) -> tuple[Trail, int]:
        """The trail after this place, and the length of the cycle that it closes: 0 where it closes none."""
        if not self.mark:
            return Trail(mark), 0
        steps = self.steps + 1
        if mark == self.mark:
            return self, steps
        if steps == self.power:
            return Trail(mark, self.power * 2), 0
        return Trail(self.mark, self.power, steps), 0
