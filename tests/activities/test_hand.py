"""The rows in hand: never more than promised, and nobody waits for ever."""

from __future__ import annotations

import asyncio
import random

import pytest

from activities.hand import LOW_WATER, Hand


async def waits(task: asyncio.Task[int]) -> bool:
    """Whether the task still waits after everything that could run has run."""
    for _ in range(20):
        await asyncio.sleep(0)
    return not task.done()


async def test_no_more_is_taken_than_there_is() -> None:
    hand = Hand(25)
    assert await hand.take(100) == 25
    assert hand.taken == 25
    waiting = asyncio.create_task(hand.take(1))
    assert await waits(waiting)
    await hand.put_down(1)
    assert await waiting == 1
    assert hand.taken == 25


async def test_some_is_taken_where_not_all_is_free() -> None:
    hand = Hand(25)
    assert await hand.take(10) == 10
    assert await hand.take(25) == 15


async def test_a_few_slots_are_not_worth_a_claim_while_others_are_still_taken() -> None:
    hand = Hand(25)
    await hand.take(25)
    waiting = asyncio.create_task(hand.take(25))
    await hand.put_down(LOW_WATER - 1)
    assert await waits(waiting)
    await hand.put_down(1)
    assert await waiting == LOW_WATER


async def test_whoever_wants_few_waits_for_few() -> None:
    hand = Hand(25)
    await hand.take(23)
    assert await hand.take(2) == 2


@pytest.mark.parametrize("size", [1, 3, LOW_WATER - 1])
async def test_a_small_hand_is_worth_taking_when_it_is_empty(size: int) -> None:
    hand = Hand(size)
    assert await hand.take(25) == size
    waiting = asyncio.create_task(hand.take(25))
    assert await waits(waiting)
    await hand.put_down(size)
    assert await waiting == size


async def test_whoever_stops_waiting_takes_nothing() -> None:
    hand = Hand(5)
    await hand.take(5)
    waiting = [asyncio.create_task(hand.take(5)) for _ in range(3)]
    assert await waits(waiting[0])
    waiting[0].cancel()
    await hand.put_down(5)
    assert await waiting[1] == 5
    assert waiting[0].cancelled()
    assert await waits(waiting[2])
    waiting[2].cancel()
    assert hand.taken == 5


async def test_putting_nothing_down_changes_nothing() -> None:
    hand = Hand(5)
    await hand.put_down(0)
    assert hand.taken == 0


async def test_more_cannot_be_put_down_than_was_taken() -> None:
    hand = Hand(5)
    await hand.take(2)
    with pytest.raises(AssertionError):
        await hand.put_down(3)


@pytest.mark.parametrize("seed", range(5))
async def test_many_activities_never_hold_more_together_and_all_come_to_an_end(seed: int) -> None:
    dice = random.Random(seed)
    hand = Hand(25)
    most = 0

    async def activity() -> None:
        nonlocal most
        for _ in range(30):
            slots = await hand.take(dice.randint(1, 25))
            most = max(most, hand.taken)
            used = dice.randint(0, slots)
            await hand.put_down(slots - used)
            while used:
                await asyncio.sleep(0)
                done = dice.randint(1, used)
                used -= done
                await hand.put_down(done)

    async with asyncio.timeout(20):
        await asyncio.gather(*(activity() for _ in range(8)))
    assert hand.taken == 0
    assert 20 <= most <= 25


async def test_a_row_that_is_worked_alone_waits_for_the_others_and_lets_none_begin() -> None:
    hand = Hand(5)
    assert await hand.take(2) == 2
    assert await hand.take(1) == 1
    begun = asyncio.Event()
    end = asyncio.Event()

    async def dangerous() -> None:
        async with hand.alone():
            begun.set()
            await end.wait()

    task = asyncio.create_task(dangerous())
    await asyncio.sleep(0)
    assert not begun.is_set(), "two other rows are in hand"
    await hand.put_down(2)
    await begun.wait()
    taking = asyncio.create_task(hand.take(1))
    for _ in range(10):
        await asyncio.sleep(0)
    assert not taking.done(), "nothing begins meanwhile"
    end.set()
    await task
    assert await taking == 1
    assert hand.taken == 2


async def test_two_rows_that_are_worked_alone_take_turns() -> None:
    hand = Hand(5)
    assert await hand.take(2) == 2
    inside: list[int] = []
    most = 0

    async def dangerous(n: int) -> None:
        nonlocal most
        async with hand.alone():
            inside.append(n)
            most = max(most, len(inside))
            await asyncio.sleep(0)
            inside.remove(n)
        await hand.put_down(1)

    await asyncio.wait_for(asyncio.gather(dangerous(1), dangerous(2)), 5)
    assert most == 1
    assert hand.taken == 0
