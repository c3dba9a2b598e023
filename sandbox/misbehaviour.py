"""Which calls and events are struck: decided by the script first, then by rates with seeded random numbers."""

from __future__ import annotations

import random
from collections import Counter, deque

from sandbox.config import FAULTS_AFTER, FAULTS_BEFORE, Faults, Operation, RequestFault


class Misbehaviour:
    """The present switches and their streams of random numbers. Setting switches begins every stream anew."""

    def __init__(self, faults: Faults) -> None:
        self.struck: Counter[str] = Counter()
        """How often each fault struck."""
        self.set(faults)

    def set(self, faults: Faults) -> None:
        self.faults = faults
        self._script = deque(faults.script)
        self._streams: dict[str, random.Random] = {}
        self._rates = [
            (name, rate) for name in (*FAULTS_BEFORE, *FAULTS_AFTER) if (rate := getattr(faults, f"{name}_rate"))
        ]

    @property
    def present(self) -> Faults:
        """The switches, with what is left of the script."""
        return self.faults.model_copy(update={"script": tuple(self._script)})

    def stream(self, name: str) -> random.Random:
        """The stream of random numbers of one switch."""
        stream = self._streams.get(name)
        if stream is None:
            stream = self._streams[name] = random.Random(f"{self.faults.seed}:{name}")  # noqa: S311 - reproducible
        return stream

    def strikes(self, name: str) -> bool:
        """Whether the switch `<name>_rate` strikes this time."""
        rate: float = getattr(self.faults, f"{name}_rate")
        if not rate or self.stream(name).random() >= rate:
            return False
        self.struck[name] += 1
        return True

    def applies(self, operation: Operation) -> bool:
        return operation in self.faults.operations

    def request_fault(self, operation: Operation) -> RequestFault | None:
        """What happens to this call. At most one fault strikes; every rate draws each time, so that no rate shifts
        another's stream."""
        if not self.applies(operation):
            return None
        if self._script:
            scripted = self._script.popleft()
            if scripted == "none":
                return None
            self.struck[scripted] += 1
            return scripted
        hits = [name for name, rate in self._rates if self.stream(name).random() < rate]
        if not hits:
            return None
        self.struck[hits[0]] += 1
        return hits[0]

    def latency(self, operation: Operation) -> float:
        """Seconds to wait before this call takes effect."""
        faults = self.faults
        if not self.applies(operation) or not (faults.latency_ms or faults.latency_jitter_ms):
            return 0.0
        return (faults.latency_ms + faults.latency_jitter_ms * self.stream("latency").random()) / 1000
