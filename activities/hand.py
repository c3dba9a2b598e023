"""The rows that one process has in hand: begun, and not yet written."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
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
        self._waiting = 0
        self._alone = asyncio.Lock()
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

    @contextlib.asynccontextmanager
    async def alone(self) -> AsyncIterator[None]:
        """For a row in hand that has killed its workers before: the block runs when no other row of this process is
        being worked, and none is begun before it ends. What the row does to its worker is then nobody else's death.

        Several such rows take turns; those that wait hold their slots without working.
        """
        async with self._changed:
            self._waiting += 1
            self._changed.notify_all()
        try:
            async with self._alone:
                async with self._changed:
                    await self._changed.wait_for(lambda: self._free + self._waiting == self.size)
                    reserved, self._free = self._free, 0
                try:
                    yield
                finally:
                    await self.put_down(reserved)
        finally:
            self._waiting -= 1
