"""How well the pace of a host is used: `python -m benchmarks.pace`.

In virtual time, from a seed: strategies against models of hosts, over a run of 480 000 assets. Peers are simulated over
fewer (`--peer-assets`), for their refusals are many; their counts of blocks are those of a whole run at the same rate.
Then ours for real: four worker processes, PostgreSQL, Temporal and the sandbox, whose limit blocks who exceeds it.

- `share_of_spendable`: of what the settings let us spend (90 % of the limit) while the run lasted. Where the limit is
  not known to us: of the host's true capacity, in steady state.
- `time_vs_minimum`: the run's time against that of a run that spends exactly its allowance.
- `blocks`: how often the host blocked the account; `blocked_share`: the part of the run for which it was blocked, the
  production app on the same account included. A strategy that takes more than its share, and is blocked for most of the
  time, may be faster than one that does neither.
- `recovery_s`: seconds from when a host lifts a limit until 90 % of the new pace is reached.
- `tenant_share_error`: the largest relative difference between a tenant's share of the requests and its weight's.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from typing import Any, Final

from benchmarks.fleet import ACCOUNT, Fleet
from benchmarks.hosts import Both, Daily, FixedWindow, Host, Limits, SlidingWindow, TokenBucket
from benchmarks.simulation import BIN_S, FixedConcurrency, Longhaul, Naive, OwnHalving, World
from settings import AccountSettings

ASSETS: Final = 480_000
SPEND: Final = 0.9
BEGINS_S: Final = 7 * 3600.0 + 1234.5
"""A run does not begin when a window does."""
WARM_S: Final = 120.0
"""Seconds that finding an unknown capacity may take."""
PRICES: Final = {"create": 5.0}


@dataclass(frozen=True)
class Model:
    """One host: what it does, what of it is declared in the settings, with how many processes it is called."""

    host: Callable[[], Host]
    workers: int
    per_s: float
    """Creates a second that may be spent; of an unknown capacity, all of it."""
    limits: Limits
    daily: float | None = None
    """Creates that may be spent in a day."""
    known: bool = True
    block_s: float = 0.0
    """For how long the host blocks every call, the production app's included."""


SLUMP_S: Final = 1200.0
SLUMPS: Final = [
    change
    for hour in range(200)
    for change in ((BEGINS_S + 3600 * hour + 1200, 1.5), (BEGINS_S + 3600 * hour + 1200 + SLUMP_S, 4.0))
]
"""Twenty minutes of each hour, a host takes less than the half of what it declares."""


def models() -> Mapping[str, Model]:
    """The hosts by name."""
    window: Limits = [{"requests": 1200, "per_s": 300}]
    mux: Limits = [
        {"name": "posts", "requests": 1, "per_s": 1, "operations": ["create"]},
        {"name": "reads", "requests": 5, "per_s": 1, "operations": ["list", "get", "lookup"]},
    ]
    several: Limits = [{"name": "burst", "requests": 20, "per_s": 1}, {"name": "minute", "requests": 600, "per_s": 60}]
    priced: Limits = [
        {"name": "units", "requests": 1500, "per_s": 60, "prices": PRICES},
        {"name": "day", "requests": 600_000, "per_s": 86_400, "resets_at": 7, "prices": PRICES},
    ]
    return {
        "fixed window with block, 1 worker": Model(
            lambda: FixedWindow(1200, 300, 300, 77), 1, 3.6, window, block_s=300
        ),
        "fixed window with block, 50 workers": Model(
            lambda: FixedWindow(1200, 300, 300, 77), 50, 3.6, window, block_s=300
        ),
        "sliding window with block, 4 workers": Model(
            lambda: SlidingWindow(1200, 300, block_s=300), 4, 3.6, window, block_s=300
        ),
        "two sliding windows, 4 workers": Model(
            lambda: Both(SlidingWindow(20, 1), SlidingWindow(600, 60)), 4, 9.0, several
        ),
        "token bucket, 8 workers": Model(lambda: TokenBucket(1.0, 3.0), 8, 0.9, mux),
        "priced units with a daily allowance, 4 workers": Model(
            lambda: Daily(600_000, 7 * 3600.0, PRICES, SlidingWindow(1500, 60, PRICES)),
            4,
            1500 * SPEND / 5 / 60,
            priced,
            daily=600_000 * SPEND / 5,
        ),
        "limit that changes, 4 workers": Model(
            lambda: TokenBucket(4.0, 12.0, SLUMPS), 4, (2 * 3.6 + 1.5) / 3, window, known=False
        ),
        "hidden capacity, 4 workers": Model(lambda: TokenBucket(8.0, 16.0), 4, 8.0, [], known=False),
        "hidden capacity, 50 workers": Model(lambda: TokenBucket(40.0, 40.0), 50, 40.0, [], known=False),
    }


def account(limits: Limits, **more: Any) -> AccountSettings:
    return AccountSettings.model_validate(
        {"base_url": "http://host.example", "token": "t", "limits": limits, "spend": SPEND, **more}
    )


OURS: Final = "longhaul"
STRATEGIES: Final = ("naive", "fixed-concurrency", "own-halving", OURS)


def simulate(strategy: str, model: Model, assets: int, *, of: int, seed: int) -> dict[str, float]:
    """One run's figures. Blocks are scaled from `assets` to a run of `of`."""
    world = World(model.host(), assets, seed=seed, now=BEGINS_S)
    least = minimum_s(model, assets)
    world.until = BEGINS_S + 30 * least + 3600
    match strategy:
        case "naive":
            Naive(world, model.workers).start()
        case "fixed-concurrency":
            FixedConcurrency(world, model.workers).start()
        case "own-halving":
            OwnHalving(world, model.workers).start()
        case _:
            Longhaul(world, model.workers, account(model.limits)).start()
    world.run()
    reached = max(world.made, 1) / assets
    elapsed = world.elapsed / reached
    return {
        "share_of_spendable": round(_share(model, world, least / elapsed), 4),
        "refusals_per_10k": round(world.refusals * 10_000 / max(world.requests, 1), 3),
        "blocks": round(world.host.blocks / reached * of / assets),
        "blocked_share": round(min(1.0, world.host.blocks * model.block_s / world.elapsed), 4),
        "time_vs_minimum": round(elapsed / least, 4),
        "requests_per_asset": round(world.requests / max(world.made, 1) + 0.001, 4),
    }


def minimum_s(model: Model, assets: int) -> float:
    """Seconds of a run that spends exactly what it may."""
    if model.daily is None:
        return assets / model.per_s
    left, moment = float(assets), BEGINS_S
    while True:
        ends = 7 * 3600.0 + 86_400 * (1 + (moment - 7 * 3600.0) // 86_400)
        today = min(model.daily, (ends - moment) * model.per_s)
        if left <= today:
            return moment + left / model.per_s - BEGINS_S
        left, moment = left - today, ends


def _share(model: Model, world: World, whole: float) -> float:
    """Of what may be spent; of an unknown capacity, after the time that finding it took."""
    if model.known:
        return whole
    first, last = int((BEGINS_S + WARM_S) // BIN_S) + 1, int(world.now // BIN_S)
    if last <= first:
        return whole
    return sum(world.bins[number] for number in range(first, last)) / ((last - first) * BIN_S * model.per_s)


def recovery_s(*, known: bool, seed: int, slow_for_s: float = 1800.0) -> float:
    """The host allows a third for a while, and then all again: seconds until 90 % of what it allows is used."""
    full, begins = (4.0, BEGINS_S) if known else (8.0, BEGINS_S)
    lifted = begins + 600 + slow_for_s
    host = TokenBucket(full, full * 2, [(begins + 600, full / 3), (lifted, full)])
    limits: Limits = [{"requests": 1200, "per_s": 300}] if known else []
    wanted = 0.9 * (full * SPEND if known else full)
    world = World(host, 10**9, seed=seed, now=begins, until=lifted + 300)
    Longhaul(world, 4, account(limits)).start()
    world.run()
    number = int(lifted // BIN_S)
    while True:
        # Over two bins: a single one holds few requests.
        if (world.bins[number] + world.bins[number + 1]) / (2 * BIN_S) >= wanted or number * BIN_S > world.until:
            return max(0.0, (number + 2) * BIN_S - lifted)
        number += 1


def tenant_share_error(*, assets: int, seed: int) -> float:
    """A bulk import with nine processes, a small one with one, a third of triple weight with two: shares while all of
    them want more."""
    shares = {"bulk": 1.0, "small": 1.0, "heavy": 3.0}
    world = World(SlidingWindow(1200, 300, block_s=300), assets, seed=seed, now=BEGINS_S)
    ours = Longhaul(
        world,
        12,
        account([{"requests": 1200, "per_s": 300}], shares=shares),
        tenants=[("bulk", "bulk", assets, 9), ("small", "bulk", assets, 1), ("heavy", "bulk", assets, 2)],
    )
    ours.start()
    world.run()
    total = sum(shares.values())
    return max(abs(ours.made[tenant] / world.made / (weight / total) - 1) for tenant, weight in shares.items())


async def real(assets: int) -> dict[str, float]:
    """Four worker processes against the sandbox, which blocks every call for ten seconds once its limit is exceeded."""
    limit = {"requests": 200, "per_s": 10.0}
    async with Fleet.running(
        workers=4,
        faults={"ingest": "synthesize", "limits": json.dumps([{**limit, "block_s": 10.0}])},
        variables={f"LONGHAUL_ACCOUNTS__{ACCOUNT.upper()}__LIMITS": json.dumps([limit])},
    ) as fleet:
        fleet.video()
        await fleet.migrate("pace", fleet.manifest(assets), page_size=100)
        stats = await fleet.stats()
        seconds = await fleet.engine.fetchval(
            "select extract(epoch from max(ended_at) - min(ended_at))::float8 from step where phase = 'create'"
        )
    per_s = limit["requests"] / limit["per_s"] * SPEND
    return {
        "share": round((assets - 1) / seconds / per_s, 4),
        "refusals": stats["refusals_429"],
        "blocks": stats["blocks"],
        "requests_per_asset": round(sum(stats["requests"].values()) / assets, 4),
    }


@dataclass(frozen=True)
class _Task:
    strategy: str
    model: str
    assets: int
    of: int
    seed: int

    def __call__(self) -> dict[str, float]:
        return simulate(self.strategy, models()[self.model], self.assets, of=self.of, seed=self.seed)


def measure(assets: int, peer_assets: int, seed: int, real_assets: int) -> dict[str, Any]:
    known = [name for name, model in models().items() if model.known]
    found: dict[str, Any] = {}
    with ProcessPoolExecutor(min(2, os.cpu_count() or 1)) as pool:
        # The long ones first.
        running = {
            (strategy, name): pool.submit(
                _Task(strategy, name, assets if strategy == OURS else min(assets, peer_assets), assets, seed)
            )
            for strategy in reversed(STRATEGIES)
            for name in models()
        }
        recovering = {
            word: [pool.submit(_recovery, word == "declared", seed + n, 1800.0 + 7 * n) for n in range(5)]
            for word in ("declared", "unknown")
        }
        sharing = pool.submit(_sharing, max(2_000, assets // 40), seed)
        for strategy in STRATEGIES:
            figures = {name: running[strategy, name].result() for name in models()}
            for name, figure in figures.items():
                words = ", ".join(f"{key} {value:g}" for key, value in figure.items())
                print(f"{strategy:18} {name:47} {words}", flush=True)
            found[strategy] = {
                "share_of_spendable": min(figures[name]["share_of_spendable"] for name in known),
                "refusals_per_10k": max(figures[name]["refusals_per_10k"] for name in known),
                "blocks": sum(figures[name]["blocks"] for name in known),
                "blocked_share": max(figures[name]["blocked_share"] for name in known),
                "time_vs_minimum": max(figures[name]["time_vs_minimum"] for name in known),
                "share_of_unknown": min(figures[name]["share_of_spendable"] for name in models() if name not in known),
                "models": figures,
            }
        ours = found[OURS]
        ours["recoveries"] = {word: max(one.result() for one in several) for word, several in recovering.items()}
        ours["recovery_s"] = max(ours["recoveries"].values())
        ours["tenant_share_error"] = round(sharing.result(), 4)
    print(f"recovery: {ours['recoveries']} s; tenants' shares are off by {ours['tenant_share_error']:.2%}", flush=True)
    if real_assets:
        ours["real"] = asyncio.run(real(real_assets))
        print(f"for real, 4 workers: {ours['real']}")
    return {"assets": assets, "peer_assets": min(assets, peer_assets), "seed": seed, **found}


def _recovery(known: bool, seed: int, slow_for_s: float) -> float:
    return recovery_s(known=known, seed=seed, slow_for_s=slow_for_s)


def _sharing(assets: int, seed: int) -> float:
    return tenant_share_error(assets=assets, seed=seed)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--assets", type=int, default=ASSETS, help="of the simulated run")
    parser.add_argument("--peer-assets", type=int, default=12_000, help="of the peers' simulated runs, at most")
    parser.add_argument("--real-assets", type=int, default=400, help="of the real run; 0 leaves it out")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    print(json.dumps(measure(options.assets, options.peer_assets, options.seed, options.real_assets)))


if __name__ == "__main__":
    main()
