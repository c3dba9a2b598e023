"""Kill everything, again and again, and count what comes of it: `python -m benchmarks.chaos --assets 300 --kills 70`.

Workers, endpoint, Temporal and PostgreSQL are separate processes; a seeded adversary sends them SIGKILL at random
moments, and stops workers (SIGSTOP) until their claims have been taken over. Meanwhile the destination answers three
requests in ten with an error, half of these after it did what was asked, loses one answer in ten, and sends its
webhooks twice, late, out of order and a fifth of them never. What a supervisor would do is done: a part that ended is
started again.

Progress goes to standard error; the last line is one JSON object. Exit code 1 where something was made twice, lost, or
left in a wrong state, or where more rows were worked again than one process may have in hand.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import logging
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from temporalio.client import WorkflowExecutionStatus, WorkflowFailureError, WorkflowHandle
from temporalio.exceptions import WorkflowAlreadyStartedError
from temporalio.service import RPCError

from benchmarks.fleet import ACCOUNT, Fleet
from faults import REASONS
from ledger.transitions import DEAD, allowed
from workflows.ids import migration_id

HAND: Final = 25
LEASE_S: Final = 10.0
FAULTS: Final = {
    "ingest": "synthesize",
    "ingest_s": 0.5,
    "ingest_jitter_s": 2.0,
    "latency_ms": 100,
    "latency_jitter_ms": 400,
    "answer_delay_ms": 150,
    "error_before_rate": 0.15,
    "error_after_rate": 0.15,
    "lost_answer_rate": 0.1,
    "webhook_duplicate_rate": 0.3,
    "webhook_late_rate": 0.2,
    "webhook_late_s": 3.0,
    "webhook_reorder_rate": 0.3,
    "webhook_reorder_s": 2.0,
    "webhook_missing_rate": 0.2,
}
_VARIABLE: Final = f"LONGHAUL_ACCOUNTS__{ACCOUNT.upper()}__"
VARIABLES: Final = {
    f"{_VARIABLE}TIMEOUT_S": "3",
    f"{_VARIABLE}QUIET_S": "6",
    f"{_VARIABLE}SETTLE_DEADLINE_S": "4",
    "LONGHAUL_WORKER__LEASE_S": str(LEASE_S),
    "LONGHAUL_MEDIA__TIMEOUT_S": "8",
}
INPUT: Final[dict[str, Any]] = {"page_size": 25, "heartbeat_s": 2}
SHARES: Final = {"worker": 0.55, "endpoint": 0.15, "temporal": 0.13, "postgres": 0.17}
"""Of the kills, by kind."""
STALLS: Final = 0.1
"""Stalls for each kill."""
REDRIVES: Final = 3

AUDIT: Final = """
create table audit (id bigint generated always as identity, ref text, was text, became text, moved boolean);
create function note_change() returns trigger language plpgsql as $$
begin
    insert into audit (ref, was, became, moved) values (new.ref, old.state, new.state, old.run <> new.run);
    return null;
end $$;
create trigger audit after update on asset for each row when (old.state <> new.state) execute function note_change();
"""
"""Every change of a state, for the check at the end; only here, not in the ledger that people use."""


@dataclass(frozen=True)
class Options:
    assets: int = 300
    kills: int = 70
    seed: int = 0
    workers: int = 3
    gap_s: float = 3.5
    """Seconds between two kills, on average."""
    faults: Mapping[str, Any] = field(default_factory=lambda: FAULTS)
    """The sandbox's switches."""
    undisturbed: bool = True
    """Whether to make a run without kills first, to compare with."""
    settle_s: float = 300.0
    """Seconds that a run may take after the last kill."""


@dataclass(frozen=True)
class Blow:
    """A kill, or a stall, of one process."""

    kind: str
    pid: int
    at: datetime


@dataclass
class Adversary:
    """Kills one part after another in an order that its seed decides, and starts each again."""

    fleet: Fleet
    options: Options
    say: Callable[[str], None]
    blows: list[Blow] = field(default_factory=list)
    stalls: list[Blow] = field(default_factory=list)
    exits: Counter[str] = field(default_factory=Counter)
    _frozen: set[str] = field(default_factory=set)
    _down: set[str] = field(default_factory=set)
    _freezing: set[asyncio.Task[None]] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.chance = random.Random(self.options.seed)
        self.deck = _deck(self.options.kills, self.chance)

    async def torment(self) -> None:
        """Returns when the kills are spent, no part is frozen and all run again."""
        for number, kind in enumerate(self.deck, 1):
            await asyncio.sleep(self.chance.uniform(0.2, 2 * self.options.gap_s - 0.2))
            if self.chance.random() < STALLS:
                self._stall()
            await self._strike(kind, number)
        await asyncio.gather(*self._freezing)

    async def _strike(self, kind: str, number: int) -> None:
        name = self._worker() if kind == "worker" else kind
        if name not in ("temporal", "postgres") and not self._runs(name):
            await self._until(lambda: self._runs(name))
        self._down.add(name)
        at = datetime.now(UTC)
        pid = self.fleet.kill(name)
        if pid is not None:
            self.blows.append(Blow(kind, pid, at))
        self.say(f"kill {number}/{len(self.deck)}: {name}")
        await asyncio.sleep(self.chance.uniform(0.0, 1.5))
        if name in ("temporal", "postgres"):
            self.fleet.start(name)
        else:
            self.fleet.launch(name)
        self._down.discard(name)

    def _worker(self) -> str:
        names = [f"worker-{n}" for n in range(self.options.workers)]
        return self.chance.choice([name for name in names if name not in self._frozen] or names)

    def _runs(self, name: str) -> bool:
        child = self.fleet.children.get(name)
        return child is not None and child.alive()

    async def _until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            await asyncio.sleep(0.05)

    def _stall(self) -> None:
        name = self._worker()
        if name in self._frozen or not self._runs(name):
            return
        seconds = LEASE_S + self.chance.uniform(1.0, 4.0)
        self.say(f"stall of {seconds:.0f} s: {name}")
        self._frozen.add(name)
        self.stalls.append(Blow("stall", self.fleet.freeze(name), datetime.now(UTC)))
        task = asyncio.create_task(self._thaw(name, seconds))
        self._freezing.add(task)

    async def _thaw(self, name: str, seconds: float) -> None:
        child = self.fleet.children[name]
        await asyncio.sleep(seconds)
        if self.fleet.children.get(name) is child:
            self.fleet.thaw(name)
        self._frozen.discard(name)

    async def supervise(self) -> None:
        """Starts again what ended by itself, for instance because it was started while PostgreSQL was down."""
        while True:
            for name, child in list(self.fleet.children.items()):
                if name not in self._down and not child.alive():
                    self.exits[name.partition("-")[0]] += 1
                    self.say(f"{name} ended with {child.exit_code()}; started again")
                    self.fleet.launch(name)
            await asyncio.sleep(0.3)


def _deck(kills: int, chance: random.Random) -> list[str]:
    """The kinds of the kills in their order: each by its share, at least one of each."""
    deck = [kind for kind, share in SHARES.items() for _ in range(max(1, round(share * kills)))]
    deck += ["worker"] * (kills - len(deck))
    chance.shuffle(deck)
    return deck[:kills] if kills >= len(SHARES) else deck


async def ended(handle: WorkflowHandle[Any, Any], within_s: float | None = None) -> bool:
    """Whether the run has completed, in so many seconds at most; Temporal may be away meanwhile."""
    deadline = None if within_s is None else time.monotonic() + within_s
    while deadline is None or time.monotonic() < deadline:
        with contextlib.suppress(RPCError):
            described = await handle.describe(rpc_timeout=timedelta(seconds=2))
            if described.status != WorkflowExecutionStatus.RUNNING:
                return described.status == WorkflowExecutionStatus.COMPLETED
        await asyncio.sleep(0.25)
    return False


async def _why(fleet: Fleet, run: str) -> str:
    """How a run that has not completed stands, and what it failed of."""
    handle = fleet.client.get_workflow_handle(migration_id(run))
    try:
        async with asyncio.timeout(5):
            await handle.result()
    except WorkflowFailureError as failure:
        return f"{run} failed: {failure.cause!r}: {getattr(failure.cause, 'cause', None)!r}"
    except (RPCError, TimeoutError) as error:
        return f"{run} still runs, or is unknown: {error!r}"
    return f"{run} completed late"


async def begun(fleet: Fleet, run: str, options: Options, **more: Any) -> WorkflowHandle[Any, Any]:
    """Starts a run over a library of its own, however often Temporal is away meanwhile."""
    manifest = fleet.manifest(options.assets)
    while True:
        try:
            return await fleet.begin(run, manifest, **INPUT, **more)
        except WorkflowAlreadyStartedError:
            return fleet.client.get_workflow_handle(migration_id(run))
        except RPCError:
            await asyncio.sleep(0.5)


async def measure(options: Options, say: Callable[[str], None]) -> dict[str, Any]:
    """One undisturbed run, then runs under attack until the kills are spent, then what it came to."""
    logging.getLogger("asyncpg").setLevel(logging.CRITICAL)  # our own connections die too, which is no news
    async with Fleet.running(
        workers=options.workers,
        temporal_file=True,
        faults={**options.faults, "seed": options.seed},
        variables=VARIABLES,
    ) as fleet:
        fleet.video()
        await fleet.engine.execute(AUDIT)
        runs: list[str] = []
        calm_s: float | None = None
        if options.undisturbed:
            runs.append("calm")
            began = time.monotonic()
            await ended(await begun(fleet, "calm", options, tenant="calm"))
            calm_s = time.monotonic() - began
            say(f"undisturbed: {calm_s:.0f} s: {await _states(fleet)}")

        adversary = Adversary(fleet, options, say)
        supervisor = asyncio.create_task(adversary.supervise())
        attack = asyncio.create_task(adversary.torment())
        lengths: list[float] = []
        unfinished: list[str] = []
        while not attack.done():
            run = f"chaos-{len(lengths) + 1}"
            runs.append(run)
            began = time.monotonic()
            work = asyncio.create_task(_run(fleet, run, options))
            await asyncio.wait([work, attack], return_when=asyncio.FIRST_COMPLETED)
            if attack.done():
                attack.result()
                say("the kills are spent; the run goes on in peace")
            try:
                completed = await asyncio.wait_for(work, options.settle_s if attack.done() else None)
            except TimeoutError:
                completed = False
            if not completed:
                unfinished.append(run)
                say(await _why(fleet, run))
            lengths.append(time.monotonic() - began)
            say(f"{run} {'ended' if completed else 'HAS NOT ENDED'} after {lengths[-1]:.0f} s: {await _states(fleet)}")
        supervisor.cancel()
        dead = Counter(await _dead_letters(fleet))
        say(f"dead letters: {dead}")
        await fleet.set_faults(**{name: 0 for name in options.faults if name.endswith("_rate")})
        for number in range(1, REDRIVES + 1):
            for tenant, reasons in (await _dead_by_tenant(fleet)).items():
                run = f"{tenant}-again-{number}"
                handle = await begun(fleet, run, options, tenant=tenant, redrive={"reasons": reasons})
                if not await ended(handle, options.settle_s):
                    unfinished.append(run)
        found = await judge(fleet, adversary, runs, options)
        kills = Counter(blow.kind for blow in adversary.blows)
        lost_s = None if calm_s is None else round((sum(lengths) - calm_s * len(lengths)) / kills.total(), 2)
        return {
            "seed": options.seed,
            "assets": options.assets * len(runs),
            "runs": len(runs),
            "kills": kills.total(),
            "kills_by_kind": dict(kills),
            "stalls": len(adversary.stalls),
            **found,
            "unfinished": unfinished,
            "dead_letters": sum(dead.values()),
            "dead_letters_by_reason": dict(dead),
            "dead_letters_permanent": sum(n for reason, n in dead.items() if REASONS[reason].permanent),
            "exits": dict(adversary.exits),
            "seconds": round(sum(lengths), 1),
            "seconds_undisturbed": None if calm_s is None else round(calm_s, 1),
            "seconds_lost_per_kill": lost_s,
        }


async def _run(fleet: Fleet, run: str, options: Options) -> bool:
    return await ended(await begun(fleet, run, options, tenant=run))


async def _states(fleet: Fleet) -> dict[str, int]:
    rows = await fleet.engine.fetch("select state, count(*) as n from asset group by state order by state")
    return {row["state"]: row["n"] for row in rows}


async def _dead_letters(fleet: Fleet) -> dict[str, int]:
    rows = await fleet.engine.fetch(
        "select coalesce(reason, 'none') as reason, count(*) as n from asset where state = any($1) group by 1",
        list(DEAD),
    )
    return {row["reason"]: row["n"] for row in rows}


async def _dead_by_tenant(fleet: Fleet) -> dict[str, list[str]]:
    """The reasons of each library's dead letters."""
    rows = await fleet.engine.fetch(
        "select tenant, array_agg(distinct reason) as reasons from asset where state = any($1) group by 1", list(DEAD)
    )
    return {row["tenant"]: row["reasons"] for row in rows}


# ----------------------------------------------------------------------------------------------------------- judgement

_REDONE: Final = """
select count(*) from step
where worker like $1 and started_at <= $2 and (ended_at is null or ended_at >= $2)
  and (outcome is null or outcome in ('lost', 'overtaken'))
"""


async def judge(fleet: Fleet, adversary: Adversary, runs: Sequence[str], options: Options) -> dict[str, Any]:
    """What came of it, by the sandbox's own books and the ledger's."""
    engine, say = fleet.engine, adversary.say
    stats, videos = await fleet.stats(), await fleet.videos()
    assets = {row["ref"]: row for row in await engine.fetch("select * from asset")}
    owned = {row["remote_id"]: row for row in assets.values() if row["remote_id"]}
    wrong: list[str] = []
    lost: list[str] = []
    for ref, row in assets.items():
        video = next((v for v in videos if v["id"] == row["remote_id"]), None) if row["remote_id"] else None
        if row["claim"] is not None:
            wrong.append(f"{ref} is {row['state']} and still claimed")
        if row["state"] == "verified":
            if video is None or video["state"] != "ready" or video["reference"] != ref:
                wrong.append(f"{ref} is verified, its video is {video}")
        elif row["state"] in DEAD and row["reason"]:
            if video is not None and video["state"] == "ready":
                wrong.append(f"{ref} is {row['state']} ({row['reason']}), its video is ready")
        else:
            lost.append(f"{ref} is {row['state']} ({row['reason']})")
    missing = options.assets * len(runs) - len(assets)
    lost += [f"{missing} listed videos have no row"] if missing else []
    lost += [f"no row owns video {v['id']} of {v['reference']}" for v in videos if v["id"] not in owned]
    for change in await engine.fetch("select * from audit"):
        # A redrive takes a dead letter up where it can go on.
        redriven = change["moved"] and change["was"] in DEAD
        if not redriven and not allowed(change["was"], change["became"]):
            wrong.append(f"{change['ref']} went from {change['was']} to {change['became']}")
    standing = await engine.fetch("select run, state from run where state <> 'finished'")
    wrong += [f"run {row['run']} is {row['state']}" for row in standing]
    for line in (*lost, *wrong):
        say(f"WRONG: {line}")
    redone = [
        await engine.fetchval(_REDONE, f"{blow.pid}@%", blow.at)
        for blow in (*adversary.blows, *adversary.stalls)
        if blow.kind in ("worker", "stall")
    ]
    left = [row["reason"] for row in assets.values() if row["state"] in DEAD]
    return {
        "duplicates": stats["duplicates_ever"],
        "lost": len(lost),
        "wrong_states": len(wrong),
        "max_rows_redone": max(redone, default=0),
        "rows_redone": await engine.fetchval("select count(*) from step where outcome in ('lost', 'overtaken')"),
        "dead_letters_left": len(left),
    }


def passed(found: dict[str, Any]) -> bool:
    """Whether every zero is a zero, and no kill cost more rows than one process may have in hand."""
    zeros = ("duplicates", "lost", "wrong_states", "dead_letters_permanent", "dead_letters_left")
    return not any(found[name] for name in zeros) and not found["unfinished"] and found["max_rows_redone"] <= HAND


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--assets", type=int, default=300, help="videos in each library")
    parser.add_argument("--kills", type=int, default=70)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=3)
    given = parser.parse_args()
    began = time.monotonic()

    def say(line: str) -> None:
        print(f"{time.monotonic() - began:6.1f} s  {line}", file=sys.stderr, flush=True)

    found = asyncio.run(measure(Options(given.assets, given.kills, given.seed, given.workers), say))
    print(json.dumps(found))
    sys.exit(0 if passed(found) else 1)


if __name__ == "__main__":
    main()
