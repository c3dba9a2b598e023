"""In virtual time, over hosts that refuse and block: how much of what is allowed is used, and what never happens."""

from __future__ import annotations

import pytest

from benchmarks.hosts import Host, SlidingWindow, TokenBucket
from benchmarks.pace import BEGINS_S, account, models, recovery_s, simulate, tenant_share_error
from benchmarks.simulation import Longhaul, World

MODELS = models()
KNOWN = [name for name, model in MODELS.items() if model.known]
HIDDEN = [name for name, model in MODELS.items() if not model.known]
ASSETS = 6_000


@pytest.mark.parametrize("name", KNOWN)
def test_a_known_limit_is_used_to_98_in_100_and_never_tripped(name: str) -> None:
    figures = simulate("longhaul", MODELS[name], ASSETS, of=ASSETS, seed=3)
    assert figures["share_of_spendable"] >= 0.98
    assert (figures["refusals_per_10k"], figures["blocks"]) == (0, 0)
    assert figures["requests_per_asset"] <= 1.02


@pytest.mark.parametrize("name", HIDDEN)
def test_an_unknown_capacity_is_found_and_used_to_90_in_100(name: str) -> None:
    figures = simulate("longhaul", MODELS[name], 4 * ASSETS, of=4 * ASSETS, seed=3)
    assert figures["share_of_spendable"] >= 0.90
    assert figures["requests_per_asset"] <= 1.02


@pytest.mark.parametrize("known", [True, False], ids=["declared", "unknown"])
@pytest.mark.parametrize("seed", range(3))
def test_90_in_100_of_a_lifted_limit_are_reached_within_a_minute(known: bool, seed: int) -> None:
    assert recovery_s(known=known, seed=seed, slow_for_s=400.0 + 11 * seed) <= 60


def test_tenants_shares_are_their_weights_whatever_the_number_of_their_workers() -> None:
    assert tenant_share_error(assets=6_000, seed=3) <= 0.05


def test_the_share_of_a_tenant_that_wants_nothing_goes_to_the_others() -> None:
    world = World(SlidingWindow(1200, 300), 3_000, now=BEGINS_S)
    limits = [{"requests": 1200, "per_s": 300}]
    tenants = [("big", "bulk", 2_900, 3), ("brief", "bulk", 100, 1)]
    ours = Longhaul(world, 4, account(limits, shares={"brief": 5}), tenants=tenants)
    ours.start()
    world.run()
    assert ours.made == {"big": 2_900, "brief": 100}
    assert world.elapsed <= 3_000 / 3.6 / 0.98


def test_the_live_lane_has_its_reserve_while_a_bulk_import_wants_everything() -> None:
    world = World(SlidingWindow(1200, 300), 4_000, now=BEGINS_S)
    tenants = [("acme", "bulk", 4_000, 8), ("acme-live", "live", 4_000, 1)]
    ours = Longhaul(world, 9, account([{"requests": 1200, "per_s": 300}], reserve=0.2), tenants=tenants)
    ours.start()
    world.run()
    assert ours.made["acme-live"] / world.made == pytest.approx(0.2, rel=0.05)


def test_a_host_that_refuses_below_its_declared_limit_is_followed_without_being_hammered() -> None:
    world = World(TokenBucket(1.0, 5.0), 10**6, now=BEGINS_S, until=BEGINS_S + 3_600)
    Longhaul(world, 4, account([{"requests": 1200, "per_s": 300}])).start()
    world.run()
    assert world.made >= 0.85 * 3_600
    assert world.refusals <= 0.05 * world.requests


class _RefusesOnce:
    """Everything that arrives within half a second, once."""

    blocks = 0

    def __init__(self) -> None:
        self.until: float | None = None

    def ask(self, now: float, operation: str) -> object:
        from benchmarks.hosts import Refused

        if now < BEGINS_S + 60:
            return None
        self.until = now + 0.5 if self.until is None else self.until
        return Refused() if now < self.until else None


def test_one_event_is_one_cut_however_many_calls_it_refused() -> None:
    host: Host = _RefusesOnce()  # type: ignore[assignment]
    world = World(host, 10**6, now=BEGINS_S, until=BEGINS_S + 90)
    ours = Longhaul(world, 6, account([{"requests": 3000, "per_s": 60}]))
    ours.start()
    world.run()
    assert world.refusals >= 5
    assert ours.budget.cuts == 1


@pytest.mark.parametrize(("workers", "most"), [(1, 0.25), (4, 0.25), (50, 1.25)])
def test_few_statements_are_spent_on_asking(workers: int, most: float) -> None:
    """At 3.6 requests a second, 50 workers wait for most of the time: each asks twice a minute."""
    world = World(SlidingWindow(1200, 300), 4_000, now=BEGINS_S)
    ours = Longhaul(world, workers, account([{"requests": 1200, "per_s": 300}]))
    ours.start()
    world.run()
    assert ours.asked <= most * world.requests


def test_the_peers_are_what_they_are_said_to_be() -> None:
    model = MODELS["fixed window with block, 50 workers"]
    figures = {
        strategy: simulate(strategy, model, 3_000, of=3_000, seed=3)
        for strategy in ("naive", "fixed-concurrency", "own-halving")
    }
    assert all(figure["blocks"] >= 1 for figure in figures.values())
    assert figures["naive"]["refusals_per_10k"] > figures["fixed-concurrency"]["refusals_per_10k"]


def test_the_same_seed_gives_the_same_run() -> None:
    model = MODELS["hidden capacity, 4 workers"]
    one, again = (simulate("longhaul", model, 1_000, of=1_000, seed=5) for _ in range(2))
    assert one == again
