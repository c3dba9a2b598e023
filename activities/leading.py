"""How long before its start a row's request has to be prepared: as long as that took lately."""

from __future__ import annotations

import contextlib
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Final

from governor.budget import LEAD_S

RECENT: Final = 50
"""Rows that are remembered."""
OUTLIERS: Final = 25
"""One in so many is passed over: a single answer that took half a minute is not waited for with every row."""
SPARE: Final = 1.25
"""Times the longest of the others."""
WORTHWHILE_S: Final = 0.02
"""What takes less is no more than a call may be late by."""


class Lead:
    """Of one source: asking it for a fresh address takes some of the time."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._recent: deque[float] = deque(maxlen=RECENT)

    @property
    def ahead_s(self) -> float:
        """Before its start; 0 until a row was prepared, at most `LEAD_S`."""
        return min(LEAD_S, self._takes_s)

    @property
    def behind_s(self) -> float:
        """What is not to be had before its start: by so much all calls for this source come late, so that they are
        still as far apart as they were leased."""
        return max(0.0, self._takes_s - LEAD_S)

    @property
    def _takes_s(self) -> float:
        longest = sorted(self._recent)[-1 - len(self._recent) // OUTLIERS :]
        wanted = SPARE * (longest[0] if longest else 0.0)
        return 0.0 if wanted < WORTHWHILE_S else wanted

    @contextlib.contextmanager
    def measured(self) -> Iterator[None]:
        """Around the preparation of one row. One that fails tells nothing."""
        began = self._clock()
        yield
        self._recent.append(self._clock() - began)
