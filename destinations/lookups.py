"""Finding videos by their reference at a host without a filter: by walking its whole list, together.

At such a host every lost answer costs a walk. Those that are looked for while a walk is under way go on the next one,
all together: not on this one, since what was made meanwhile may stand on a page already read.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass, field

from destinations.base import RemoteVideo, Turn

Walk = Callable[[Turn | None], AsyncGenerator[RemoteVideo, None]]
"""Every video on the account; waits for the turn before each request but the first, for which whoever asks has had
one."""


@dataclass(slots=True, eq=False)
class _Party:
    """Those who go on one walk: what each looks for, and what was found of it."""

    found: dict[str, dict[str, RemoteVideo]] = field(default_factory=dict)
    """By reference and id: a page that moved during the walk brings a video twice."""
    waiting: int = 0
    task: asyncio.Task[None] | None = None


class Lookups:
    """The look-ups of one account in one process."""

    def __init__(self, walk: Walk) -> None:
        self._walk = walk
        self._next: _Party | None = None
        self._last: asyncio.Task[None] | None = None
        self._walking: set[asyncio.Task[None]] = set()

    async def find(self, ref: str, turn: Turn | None) -> Sequence[RemoteVideo]:
        """All videos with exactly this reference, out of a walk that begins after this call. Raises what the walk
        raises."""
        if self._next is None:
            self._next = party = _Party()
            party.task = self._last = asyncio.create_task(self._go(party, turn, self._last))
            self._walking.add(party.task)
            party.task.add_done_callback(self._walking.discard)
        else:
            party = self._next
        assert party.task is not None
        party.found.setdefault(ref, {})
        party.waiting += 1
        try:
            await asyncio.shield(party.task)
        finally:
            party.waiting -= 1
            if party.waiting == 0 and not party.task.done():
                # Nobody wants to know any more.
                party.task.cancel()
                if self._next is party:
                    self._next = None
        return list(party.found[ref].values())

    async def _go(self, party: _Party, turn: Turn | None, before: asyncio.Task[None] | None) -> None:
        if before is not None:
            await asyncio.wait([before])
        # From here on, whoever comes goes on the next walk.
        self._next = None
        async with contextlib.aclosing(self._walk(turn)) as videos:
            async for video in videos:
                if video.ref in party.found:
                    party.found[video.ref].setdefault(video.remote_id, video)

    async def aclose(self) -> None:
        for task in self._walking:
            task.cancel()
        if self._walking:
            await asyncio.wait(self._walking)
