"""The create protocol for one asset, as a model whose every state can be visited.

One row, up to three workers, a host, the webhook path, and a clock that ticks. What a worker decides is not modelled:
it is the code, run step by step (`create_decisions`). Which steps a row may take, and what a video's state means for
it, is asked of the code too. What is modelled is what PostgreSQL and the host do:

| action here | in the code |
|---|---|
| `claim`, `quarantine` | `ledger.claims.claim` (`_CLAIM`: free, ours, quarantined) |
| `claim and stop`, `hand back` | `activities.pages.PageRun._one`, `activities.outcomes.handed_back` |
| from `source busy` to `look-up failed` | `activities.creating._prepared`, `_create`, `_resolve`, `_found_at_once` |
| what a fault leads to | `activities.pages.PageRun._attempted`, `activities.outcomes.of_fault` |
| `write` | `ledger.claims.finish` (`_FINISH`) |
| `lapse` | the claim's lease passes, or `ledger.claims.expire` |
| `crash` | the process ends; another takes its place |
| a worker takes no step while others do | SIGSTOP, a long garbage collection, a swapped-out host |
| `deliver` | `ledger.inbox.receive` (`_EVENT`) |
| `apply waiting` | `ledger.inbox.apply_waiting` |
| `sweep` | `activities.settling.SweepActivities` with `ledger.inbox.apply` |
| `cancel`, `skip` | `ledger.runs.cancel` (`_CANCEL`, `_HAND_BACK`) |
| `take up` | `ledger.listings.write_page` (`_OWN`), `ledger.runs.open_run` (`_TAKE_BACK`) |
| `redrive` | `ledger.redrive.take` (`_TAKE`) |
| legal steps | `ledger.transitions.steps`, `WITHIN_PHASE`, `PHASE_STATES`, `UNFINISHED` |
| what a video's state makes of a row | `ledger.inbox.state_of` |

`test_create_protocol_ledger` holds the middle column's SQL against this module, step by step, in a real PostgreSQL.

Time is counted in ticks. A call lands within `CALL` ticks of being sent, or never; the code keeps one more tick between
the last moment at which a call may land and the end of the quiet time (`creating.CLOCK_S`). A tick may come at any
moment, so that every worker may be as slow as it likes; only a call under way holds it up, and only until it has landed
or come to nothing.

A fence is a number in the ledger. Here a worker `holds` the row where its fence is the row's: numbers would never end.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from typing import NamedTuple

from create_decisions import Decisions, Node
from explorer import Action

from destinations.base import RemoteState, RemoteVideo
from ledger import claims
from ledger.inbox import state_of
from ledger.redrive import DEAD
from ledger.transitions import PHASE_STATES, UNFINISHED, WITHIN_PHASE, steps

CALL = 1
"""Ticks within which a call lands: its time-out."""
MARGIN = 1
"""Ticks between the last moment at which a call may land and the end of its quiet time."""


@dataclass(frozen=True)
class Host:
    """What the destination does and offers."""

    name: str = "exact"
    lookup: str = "exact"
    """`list`: everything is read page by page, so that what appears meanwhile may be missed."""
    key: bool = False
    """Whether it honours an idempotency key."""
    event_ref: bool = True
    """Whether its events carry our reference, or the video's id alone."""
    lag: int = 0
    """Ticks after which a look-up shows a video that has been made."""
    late: bool = False
    """Whether a call may land long after its time-out."""


@dataclass(frozen=True)
class Rules:
    """The protocol's rules: each can be taken out, to see what it is for."""

    intent: bool = True
    """The claim writes down that a call will be made, before it is."""
    quiet: bool = True
    """Nobody works the row before the last moment at which the call may land has passed."""
    look_first: bool = True
    """Where an earlier call was never answered, it is looked up before a second."""
    on_time: bool = True
    """Just before the call the worker checks that its own time for it has not passed."""
    fence: bool = True
    """A write counts only while the row bears the fence of the claim it comes from."""
    legal: bool = True
    """A row moves only along the table of transitions."""
    one_video: bool = True
    """An event moves a row that has a video only where it is about that video."""
    look_at_once: bool = True
    """After a lost answer the host is asked at once, without waiting for the quiet time."""
    keep_open: bool = True
    """A row that fails while its call is open keeps its intent."""
    waits_grow: bool = True
    """A longer quiet time is also time that a worker may spend before its call, as the code has it. Without: it is the
    host's alone."""


@dataclass(frozen=True)
class World:
    """How much may happen."""

    workers: int = 2
    attempts: int = 2
    quiet: int = CALL + MARGIN
    """Ticks from the claim."""
    gap: bool = False
    """Whether a worker may stand still between its last check and the first byte of its call."""
    runs: bool = False
    """Whether runs are cancelled, and later runs take the row up."""
    redrive: bool = False
    """Whether a person has a failed row taken up again."""
    deleted: bool = False
    """Whether somebody deletes a video at the host (once)."""
    errored: bool = False
    """Whether the host fails to process a video (once)."""
    created_events: bool = False
    """Whether the host also tells that it has made a video, not only how that ended."""
    source_fails: bool = True
    hard_stops: bool = True


class Row(NamedTuple):
    """`claim`: 0 none, 1 held, 2 held and its lease has passed. `quiet` counts down. `video` is a number, or -1."""

    state: str = "inventoried"
    skipped_from: str | None = None
    claim: int = 0
    intent: bool = False
    quiet: int = 0
    attempts: int = 0
    video: int = -1


class Worker(NamedTuple):
    """`node` in the tree of decisions, -1 for idle. `age` of its claim in ticks, while that still matters. `video` is
    the one that it was told of last. `call`: see the constants below."""

    node: int = -1
    holds: bool = False
    age: int = 0
    video: int = -1
    call: int = -1


IDLE = Worker()
_STALE = Worker(node=-2)
NO_CALL = -1
# 0 to CALL: a call is under way, with so many ticks left to land.
LANDED = 100
"""And the video's number: the answer is on its way."""
READING = 200
"""And a bit for each video that was there to be seen when the reading of the list began."""

NOTHING, UNDER_WAY, IN_INBOX = 0, 1, 2


class Video(NamedTuple):
    """One video with our reference. Each event is under way once, waits in the inbox, or is nothing (any more)."""

    state: str = "processing"
    gone: bool = False
    lag: int = 0
    told_made: int = NOTHING
    told_end: int = NOTHING
    told_gone: int = NOTHING


class State(NamedTuple):
    row: Row
    cancelled: bool
    workers: tuple[Worker, ...]
    strays: tuple[int, ...]
    """Calls that nobody waits for any more, with the ticks that each has left to land."""
    videos: tuple[Video, ...]


@cache
def legal_write(source: str, target: str) -> bool:
    """As `ledger.claims.finish` asks for it."""
    return f"{source}>{target}" in steps({target}, stay={target} & claims._WORKED)


@cache
def legal_event(source: str, target: str) -> bool:
    """As `ledger.inbox` asks for it."""
    return f"{source}>{target}" in steps([target])


@cache
def row_state(video_state: str) -> str:
    """What an event about a video in this state says of its row."""
    return state_of(RemoteVideo("video", None, RemoteState(video_state)))[0]


class CreateProtocol:
    """The model, for one kind of host, under these rules, in this world."""

    def __init__(self, host: Host, rules: Rules | None = None, world: World | None = None) -> None:
        self.host = host
        self.rules = rules or Rules()
        self.world = world or World()
        self.decisions = Decisions(key=host.key, attempts=self.world.attempts)
        waits = self.world.quiet if self.rules.waits_grow else CALL + MARGIN
        self.call_by = waits - CALL - MARGIN
        """The last tick of a claim in which its call may be sent."""

    # -- the explorer's side

    def first(self) -> State:
        return State(Row(), False, (IDLE,) * self.world.workers, (), ())

    def canonical(self, state: State) -> Hashable:
        """Which worker is which makes no difference; nor, while fences count, does what a worker still asks or writes
        that has lost the row and has its call behind it."""
        workers, strays = list(state.workers), state.strays
        if self.rules.fence:
            for n, worker in enumerate(workers):
                if worker.node < 0 or worker.holds or self._may_call(worker):
                    continue
                if 0 <= worker.call <= CALL and not (self.host.key and worker.call in strays):
                    strays = (*strays, worker.call)
                workers[n] = _STALE
        workers.sort()
        return (state.row, state.cancelled, *workers, tuple(sorted(strays)), state.videos)

    def _may_call(self, worker: Worker) -> bool:
        ask = self._node(worker).ask
        return ask == "locate" or (ask == "create" and worker.call == NO_CALL)

    def broken(self, before: State, action: Action, after: State) -> str | None:
        if len(after.videos) > 1 and sum(is_live(video) for video in after.videos) > 1:
            return "duplicate"
        was, now = before.row, after.row
        if was is now or was == now:
            return None
        was_state, now_state = was.skipped_from or was.state, now.skipped_from or now.state
        if was_state == "ready" and now_state not in ("ready", "deleted"):
            return "ready pulled back"
        if was_state == "deleted" and now_state != "deleted":
            return "deleted left"
        if was.video >= 0 and now.video >= 0 and was.video != now.video:
            return "video exchanged"
        if self.rules.fence and action[0] == "write" and not before.workers[action[1]].holds:
            return "stale write counted"
        return None

    def settled(self, state: State) -> bool:
        """Whether the row owns what there is, and nothing more can be made by a call under way."""
        if state.strays or any(worker.call >= 0 for worker in state.workers):
            return False
        row = state.row
        if row.state == "deleted":
            return True
        return all(row.video == n and row.state == "ready" for n, video in enumerate(state.videos) if is_live(video))

    # -- what may happen

    def successors(self, state: State) -> Iterator[tuple[Action, State]]:
        yield from self._hosts_steps(state)
        yield from self._workers_steps(state)
        yield from self._events(state)
        yield from self._runs(state)
        yield from self._tick(state)

    def _tick(self, state: State) -> Iterator[tuple[Action, State]]:
        late = self.host.late
        if not late and (0 in state.strays or any(worker.call == 0 for worker in state.workers)):
            return
        spent = 0 if late else 1
        workers = tuple(
            worker._replace(
                age=min(worker.age + 1, self.call_by + 1) if self._is_timed(worker) else 0,
                call=worker.call - spent if 0 <= worker.call <= CALL else worker.call,
            )
            for worker in state.workers
        )
        after = state._replace(
            row=state.row._replace(quiet=max(0, state.row.quiet - 1)),
            workers=workers,
            strays=tuple(ticks - spent for ticks in state.strays),  # in order still
            videos=tuple(video._replace(lag=max(0, video.lag - 1)) for video in state.videos),
        )
        if after != state:
            yield ("tick",), after

    def _is_timed(self, worker: Worker) -> bool:
        """Whether the age of its claim can still matter to a worker: until its call."""
        return worker.node >= 0 and not self.host.key and self._node(worker).ask == "locate"

    def _node(self, worker: Worker) -> Node:
        return self.decisions.nodes[worker.node]

    # -- the host

    def _hosts_steps(self, state: State) -> Iterator[tuple[Action, State]]:
        for n, worker in enumerate(state.workers):
            if 0 <= worker.call <= CALL:
                landed, video = self._made(state)
                yield ("land", n, video), _with(landed, n, worker._replace(call=LANDED + video))
        for n, ticks in enumerate(state.strays):
            if ticks in state.strays[:n]:
                continue
            rest = state._replace(strays=state.strays[:n] + state.strays[n + 1 :])
            landed, video = self._made(rest)
            yield ("land", None, video), landed
            yield ("come to nothing",), rest
        for n, video in enumerate(state.videos):
            if video.state == "processing" and not video.gone:
                yield ("ready", n), _video(state, n, video._replace(state="ready", told_end=UNDER_WAY))
                if self.world.errored and not any(other.state == "errored" for other in state.videos):
                    yield ("errored", n), _video(state, n, video._replace(state="errored", told_end=UNDER_WAY))
            if self.world.deleted and not any(other.gone for other in state.videos):
                yield ("deleted", n), _video(state, n, video._replace(gone=True, told_gone=UNDER_WAY))

    def _made(self, state: State) -> tuple[State, int]:
        """A create has reached the host: with a key that it has seen, it gives the video of the first time."""
        if self.host.key and state.videos:
            return state, 0
        told = UNDER_WAY if self.world.created_events else NOTHING
        return state._replace(videos=(*state.videos, Video(lag=self.host.lag, told_made=told))), len(state.videos)

    def _seen(self, state: State) -> list[int]:
        return [n for n, video in enumerate(state.videos) if not video.gone and video.lag == 0]

    # -- the workers

    def _workers_steps(self, state: State) -> Iterator[tuple[Action, State]]:
        row = state.row
        if row.claim == 1:
            yield ("lapse",), state._replace(row=row._replace(claim=2))
        idle = next((n for n, worker in enumerate(state.workers) if worker.node < 0), None)
        if idle is not None:
            yield from self._claim(state, idle)
        for n, worker in enumerate(state.workers):
            if worker.node < 0:
                continue
            yield ("crash", n), _with(self._let_go(state, worker), n, IDLE)
            node = self._node(worker)
            if node.outcome is not None:
                yield from self._write(state, n, worker)
                continue
            if self.world.hard_stops:
                yield ("hand back", n), self._answered(self._let_go(state, worker), n, worker, "stopped")
            if node.ask == "locate":
                yield from self._before_call(state, n, worker)
            elif node.ask == "create":
                yield from self._call(state, n, worker)
            else:
                assert node.ask == "lookup"
                yield from self._look_up(state, n, worker)

    def _answered(self, state: State, n: int, worker: Worker, *answers: str, video: int | None = None) -> State:
        node = worker.node
        for answer in answers:
            node = self.decisions.then(node, answer)
        place = self.decisions.nodes[node]
        after = Worker(
            node,
            worker.holds,
            worker.age if place.ask == "locate" and not self.host.key else 0,
            worker.video if video is None else video,
            NO_CALL,
        )
        if place.ask == "lookup" and not self.rules.look_at_once and "lost" in self.decisions.script(node):
            return self._answered(state, n, after, "failed")
        return _with(state, n, after)

    def _let_go(self, state: State, worker: Worker) -> State:
        """A call that is under way goes on without its caller."""
        if not 0 <= worker.call <= CALL:
            return state
        if self.host.key and worker.call in state.strays:
            return state  # under one key, two that land are as good as one
        return state._replace(strays=tuple(sorted((*state.strays, worker.call))))

    def _claim(self, state: State, n: int) -> Iterator[tuple[Action, State]]:
        row = state.row
        quiet_over = row.quiet == 0 or not self.rules.quiet
        if row.state not in PHASE_STATES["create"] or row.claim == 1 or not quiet_over or state.cancelled:
            return
        if row.claim == 2 and row.attempts >= self.world.attempts:
            yield ("quarantine",), state._replace(row=row._replace(state="failed", claim=0))
            return
        taken = row._replace(
            state="creating" if self.rules.intent else row.state,
            claim=1,
            intent=self.rules.intent,
            quiet=0 if self.host.key else self.world.quiet,
            attempts=row.attempts + 1,
        )
        root = self.decisions.root(row.state, row.intent and self.rules.look_first, taken.attempts)
        workers = tuple(
            Worker(root, holds=True) if m == n else other._replace(holds=False) for m, other in enumerate(state.workers)
        )
        claimed = state._replace(row=taken, workers=workers)
        yield ("claim", n), self._answered(claimed, n, workers[n], "yes")
        yield ("claim and stop", n), self._answered(claimed, n, workers[n], "stopping")

    def _before_call(self, state: State, n: int, worker: Worker) -> Iterator[tuple[Action, State]]:
        located = self.decisions.then(worker.node, "located")
        at = worker._replace(node=located)
        if self.decisions.nodes[located].ask == "time":
            if worker.age > self.call_by and self.rules.on_time:
                yield ("too late", n), self._answered(state, n, at, "too late")
                at = None
            else:
                at = self.decisions.then(located, "in time")
                at = worker._replace(node=at)
        if at is not None:
            assert self.decisions.nodes[at.node].ask == "create"
            ready = at._replace(age=0)
            if self.world.gap:
                yield ("check", n), _with(state, n, ready)
            else:
                yield ("send", n), _with(state, n, ready._replace(call=CALL))
        if self.world.source_fails:
            yield ("source busy", n), self._answered(state, n, worker, "source busy")
            yield ("source gone", n), self._answered(state, n, worker, "source gone")

    def _call(self, state: State, n: int, worker: Worker) -> Iterator[tuple[Action, State]]:
        if worker.call == NO_CALL:
            yield ("send", n), _with(state, n, worker._replace(call=CALL))
            return
        gone = self._let_go(state, worker)
        yield ("lost", n), self._answered(gone, n, worker, "lost")
        yield ("busy", n), self._answered(gone, n, worker, "busy")
        if worker.call <= CALL:
            yield ("refused", n), self._answered(state, n, worker, "refused")
        else:
            made = worker.call - LANDED
            yield ("answer", n, made), self._answered(state, n, worker, f"made {state.videos[made].state}", video=made)

    def _look_up(self, state: State, n: int, worker: Worker) -> Iterator[tuple[Action, State]]:
        seen = self._seen(state)
        if self.host.lookup == "list" and worker.call == NO_CALL:
            yield ("list", n), _with(state, n, worker._replace(call=READING + sum(1 << video for video in seen)))
            return
        found = seen
        missed = False
        if self.host.lookup == "list":
            # What was there at the beginning is found; what came since may have come behind the reader's back.
            first = [video for video in seen if worker.call - READING >> video & 1]
            missed = not first
        for video in found:
            yield (
                ("found", n, video),
                self._answered(state, n, worker, f"found {state.videos[video].state}", video=video),
            )
        if not found or missed:
            yield ("none", n), self._answered(state, n, worker, "none")
        yield ("look-up failed", n), self._answered(state, n, worker, "failed")

    def _write(self, state: State, n: int, worker: Worker) -> Iterator[tuple[Action, State]]:
        outcome, row = self._node(worker).outcome, state.row
        assert outcome is not None
        done = _with(state, n, IDLE)
        counts = (
            (worker.holds or not self.rules.fence)
            and row.claim > 0
            and (legal_write(row.state, outcome.state) or not self.rules.legal)
        )
        if not counts:
            yield ("write in vain", n, outcome.state), done
            return
        call_open = outcome.call_open and (outcome.state != "failed" or self.rules.keep_open)
        stays = f"{row.state}>{outcome.state}" in WITHIN_PHASE
        after = row._replace(
            state=outcome.state,
            claim=0,
            attempts=max(0, row.attempts - 1) if outcome.refund else row.attempts if stays else 0,
            intent=row.intent and call_open,
            quiet=row.quiet if call_open else 0,
            video=worker.video if outcome.remote_id is not None else row.video,
        )
        yield ("write", n, outcome.state), done._replace(row=after)

    # -- events

    def _events(self, state: State) -> Iterator[tuple[Action, State]]:
        for n, video in enumerate(state.videos):
            for field, says in (
                ("told_made", "processing"),
                ("told_end", video.state),
                ("told_gone", "deleted"),
            ):
                status = getattr(video, field)
                if status == UNDER_WAY:
                    over = _video(state, n, video._replace(**{field: NOTHING}))
                    known = state.row.video == n or self.host.event_ref
                    if known:
                        yield ("deliver", n, says), self._applied(over, n, says)
                    else:
                        yield ("deliver", n, says), _video(state, n, video._replace(**{field: IN_INBOX}))
                    yield ("event lost", n, says), over
                elif status == IN_INBOX and state.row.video == n:
                    over = _video(state, n, video._replace(**{field: NOTHING}))
                    yield ("apply waiting", n, says), self._applied(over, n, says)

    def _applied(self, state: State, n: int, says: str) -> State:
        row, target = state.row, row_state(says)
        rival = row.video not in (-1, n) and self.rules.one_video
        is_legal = legal_event(row.skipped_from or row.state, target) or not self.rules.legal
        # Only a video that was made, or may have been, can be gone.
        is_ours = target != "deleted" or row.video >= 0 or (row.skipped_from or row.state) == "creating"
        if rival or not is_legal or not is_ours:
            return state
        skipped = row.skipped_from is not None and target != "deleted"
        after = Row(
            state=row.state if skipped else target,
            skipped_from=target if skipped else None,
            video=n,
        )
        return state._replace(row=after)

    # -- runs

    def _runs(self, state: State) -> Iterator[tuple[Action, State]]:
        row = state.row
        if row.state == "processing" and not state.cancelled and row.video >= 0:
            video = state.videos[row.video]
            says = "deleted" if video.gone else video.state
            after = self._applied(state, row.video, says)
            if after != state:
                yield ("sweep", row.video, says), after
        if self.world.runs and not state.cancelled:
            yield ("cancel",), state._replace(cancelled=True)
        if state.cancelled and row.state in UNFINISHED:
            skipped = row._replace(state="skipped", skipped_from=row.state, claim=0)
            workers = tuple(worker._replace(holds=False) for worker in state.workers)
            yield ("skip",), state._replace(row=skipped, workers=workers)
        if row.state == "skipped" and state.cancelled:
            taken = row._replace(state=row.skipped_from or "pending", skipped_from=None, attempts=0)
            yield ("take up",), state._replace(row=taken, cancelled=False)
        if self.world.redrive and row.state in DEAD:
            yield ("redrive",), state._replace(row=_redriven(row), cancelled=False)


def _redriven(row: Row) -> Row:
    """As `ledger.redrive.take`; "pending", which the inventory follows, is taken for inventoried already."""
    creating = row.video < 0 and row.intent
    return row._replace(state="creating" if creating else "inventoried", attempts=0, video=-1)


def is_live(video: Video) -> bool:
    return not video.gone and video.state != "errored"


def _with(state: State, n: int, worker: Worker) -> State:
    return state._replace(workers=state.workers[:n] + (worker,) + state.workers[n + 1 :])


def _video(state: State, n: int, video: Video) -> State:
    return state._replace(videos=state.videos[:n] + (video,) + state.videos[n + 1 :])


def removed(*names: str) -> Rules:
    """All rules but these."""
    return replace(Rules(), **dict.fromkeys(names, False))
