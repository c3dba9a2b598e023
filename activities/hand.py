"""The rows that one process has in hand: begun, and not yet written."""

from __future__ import annotations

import asyncio
from typing import Final

LOW_WATER: Final = 8
"""Slots worth waking up for while others are still taken: claims of one row each would cost a statement a row."""


class Hand:
    """At most `size` rows begun and not yet written in this process, over all its activities.

    This bounds what a killed process costs: every row that it had claimed was in hand, and no more than these are
    worked again.
    """

    def __init__(self, size: int = 25) -> None:
        self.size = size
        self._free = size
        self._changed = asyncio.Condition()

    @property
    def taken(self) -> int:
        return self.size - self._free

    async def take(self, most: int) -> int:
        """Waits until slots are free and takes up to `most` of them; returns how many (at least one)."""
        most = min(most, self.size)
        worthwhile = min(most, LOW_WATER)
        async with self._changed:
            await self._changed.wait_for(lambda: self._free >= worthwhile or self._free == self.size)
            taken = min(most, self._free)
            self._free -= taken
            return taken

    async def put_down(self, slots: int) -> None:
        """Gives slots back: their rows are written."""
        if slots:
            async with self._changed:
                self._free += slots
                assert self._free <= self.size, "more rows put down than taken"
                self._changed.notify_all()
