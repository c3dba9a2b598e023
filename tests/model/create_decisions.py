"""What a worker does next with a claimed row, learned by running the code that decides it.

`PageRun._one`, and with it `PageRun._called`, `creating._prepared` and `activities.outcomes`, is run against a source
and a destination that answer from a script. Where the script is at its end, the code's next question is the result;
where the code is at its own end, the outcome that it hands to the writer is. So the model of a worker is the worker.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import structlog

from activities import creating
from activities.leading import Lead
from activities.pages import Paced, PageRun, RowCall, _Start
from destinations.base import Capabilities, CreateRequest, RemoteState, RemoteVideo
from faults import ROW_ATTEMPTS, Fault
from governor.account import Governor
from ledger.assets import Row
from ledger.budgets import Lease
from ledger.claims import Outcome
from workflows.messages import PageInput

ANSWERS = {
    "go on": ("yes", "stopping"),
    "locate": ("located", "source busy", "source gone"),
    "time": ("in time", "too late"),
    "create": ("made processing", "made ready", "made errored", "lost", "busy", "refused"),
    "lookup": ("none", "found processing", "found ready", "found errored", "failed"),
}
"""The questions that a worker can ask, with the answers that the world can give. To each it can also be stopped
hard."""
PAGE = PageInput(run="model", tenant="acme", account="host", phase="create", page=1, fence=1)


@dataclass(frozen=True, slots=True)
class Node:
    """A worker's place in its work on a row: its next question, or else what it writes."""

    ask: str | None
    outcome: Outcome | None


class _Asks(BaseException):
    """Beyond the reach of `except Exception`."""


class Decisions:
    """The tree of a worker's decisions, grown as it is asked for. Nodes are small numbers.

    `key` says whether the destination honours an idempotency key. `attempts` is how many a row gets in the model: its
    first is taken for the one that leaves so many of the code's own.
    """

    def __init__(self, *, key: bool, attempts: int) -> None:
        self._key = key
        self._spent = ROW_ATTEMPTS - attempts
        self._numbers: dict[tuple[str, bool, int, tuple[str, ...]], int] = {}
        self._places: list[tuple[str, bool, int, tuple[str, ...]]] = []
        self.nodes: list[Node] = []

    def root(self, state: str, intent: bool, attempts: int) -> int:
        """Where a worker stands with a row just claimed, from this state."""
        return self._node((state, intent, attempts, ()))

    def then(self, node: int, answer: str) -> int:
        state, intent, attempts, script = self._places[node]
        return self._node((state, intent, attempts, (*script, answer)))

    def script(self, node: int) -> tuple[str, ...]:
        """The answers that led here."""
        return self._places[node][3]

    def _node(self, place: tuple[str, bool, int, tuple[str, ...]]) -> int:
        number = self._numbers.get(place)
        if number is None:
            number = self._numbers[place] = len(self.nodes)
            self._places.append(place)
            state, intent, attempts, script = place
            self.nodes.append(self._run(_row(state, intent, attempts + self._spent), script))
        return number

    def _run(self, row: Row, script: Sequence[str]) -> Node:
        answers = iter(script)
        ended: list[Outcome] = []

        def ask(question: str) -> str:
            answer = next(answers, None)
            if answer is None:
                raise _Asks(question)
            if answer == "stopped":
                raise asyncio.CancelledError
            assert answer in ANSWERS[question], f"{answer!r} answers no {question!r}"
            return answer

        pace = _Pace(engine=cast(Any, None), name="host", account=cast(Any, None))
        account: Any = SimpleNamespace(name="host", destination=_Host(ask, self._key), governor=pace)

        async def prepare(row: Row) -> RowCall:
            return await creating._prepared(cast(Any, None), account, PAGE, _Source(ask), row, _MayWait(ask))

        # Asked again right before the call, but by then "stopping" comes to the same as a hard stop while it locates.
        asked: list[str] = []

        def may_claim() -> bool:
            if not asked:
                asked.append(ask("go on"))
            return asked == ["yes"]

        run: Any = SimpleNamespace(
            _may_claim=may_claim,
            _paced=Paced(pace, prepare, Lead(), quiet_s=0.0 if self._key else 1.0, may_wait_s=1.0),
            _stop=None,
            _unused=[],
            _end=lambda fence, outcome: ended.append(outcome),
        )
        run._attempted = partial(PageRun._attempted, run)
        run._called = partial(PageRun._called, run)

        async def one() -> None:
            try:
                await PageRun._one(run, SimpleNamespace(fence=1), row, _Start(Lease([0.0]), 0.0, 0.0))
            except asyncio.CancelledError:
                assert script[-1] == "stopped"

        loop = asyncio.new_event_loop()
        try:
            with structlog.testing.capture_logs():
                loop.run_until_complete(one())
        except _Asks as asks:
            return Node(str(asks), None)
        finally:
            loop.close()
        (outcome,) = ended
        assert next(answers, None) is None, "the code asked less than it was answered"
        return Node(None, outcome)


def _row(state: str, intent: bool, attempts: int) -> Row:
    return Row(
        ref="lh-model",
        tenant="t",
        source_id="s",
        title="Title",
        locator="https://media.example/s.mp4",
        position=0,
        size=None,
        claimed_duration_ms=None,
        metadata={},
        about={},
        state=state,
        attempts=attempts,
        deaths=0,
        intent=intent,
        facts={},
        duration_ms=None,
        remote_id=None,
    )


class _CallBy:
    """`now > call_by` is the code's question whether its time has passed."""

    def __init__(self, ask: Any) -> None:
        self._ask = ask

    def __lt__(self, now: float) -> bool:
        return self._ask("time") == "too late"


class _MayWait(float):
    """Added to a start, the time by which the call is to be made."""

    def __new__(cls, ask: Any) -> _MayWait:
        made = super().__new__(cls, 1.0)
        made.ask = ask
        return made

    def __radd__(self, start: float) -> Any:
        return _CallBy(self.ask)


class _Source:
    def __init__(self, ask: Any) -> None:
        self._ask = ask

    async def locate(self, item: Any) -> Any:
        match self._ask("locate"):
            case "source busy":
                raise Fault("source-busy")
            case "source gone":
                raise Fault("source-not-found")
        return SimpleNamespace(address="https://media.example/s.mp4", headers={}, size=None)


class _Host:
    def __init__(self, ask: Any, key: bool) -> None:
        self._ask = ask
        self.capabilities = Capabilities("exact", key, True, 1000)

    async def create(self, request: CreateRequest) -> RemoteVideo:
        match self._ask("create").split():
            case ["lost"]:
                raise Fault("answer-lost", landed=True)
            case ["busy"]:
                raise Fault("destination-busy", landed=True)  # 503, perhaps of a gateway whose host goes on
            case ["refused"]:
                raise Fault("rate-limited")
            case [_, state]:
                return _video(state)
        raise AssertionError

    async def lookup(self, ref: str, *, turn: Any = None) -> Sequence[RemoteVideo]:
        match self._ask("lookup").split():
            case ["none"]:
                return []
            case ["failed"]:
                raise Fault("destination-error")
            case [_, state]:
                return [_video(state)]
        raise AssertionError


def _video(state: str) -> RemoteVideo:
    return RemoteVideo("video", "lh-model", RemoteState(state))


class _Pace(Governor):
    """An account that is never paused, without its ledger."""

    async def lease(self, requests: int, operation: str = "create", **who: str) -> Lease:
        return Lease(starts=[0.0] * requests)

    async def start(self, at: float, cuts: int | None = None) -> bool:
        return True

    def late(self, at: float) -> bool:
        return False

    async def push_back(self, fault: Fault, cuts: int | None = None) -> float:
        return 1.0
