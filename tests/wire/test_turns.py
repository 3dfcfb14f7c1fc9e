"""Who is served next: nobody who asks for little waits for those who ask for much."""

from __future__ import annotations

import asyncio

from colonnade.wire.turns import AT_ONCE, CREDIT, Tenant, Turns


async def work(turns: Turns, tenant: Tenant, cost: int, times: int, done: list[Tenant]) -> None:
    for _ in range(times):
        await turns.wait(tenant, cost)
        done.append(tenant)


def test_one_who_asks_for_little_is_served_within_one_look_at_the_network() -> None:
    async def race() -> list[int]:
        turns, small = Turns(), Tenant()
        done: list[Tenant] = []
        crowd = [asyncio.create_task(work(turns, Tenant(), AT_ONCE, 1000, done)) for _ in range(50)]
        for _ in range(100):
            await asyncio.sleep(0)
        ahead = []
        for _ in range(20):
            before = len(done)
            await turns.wait(small, 100)
            ahead.append(len(done) - before)
            await asyncio.sleep(0)
        for task in crowd:
            task.cancel()
        await asyncio.gather(*crowd, return_exceptions=True)
        return ahead

    assert max(asyncio.run(race())) <= 2


def test_those_who_ask_for_much_get_the_same() -> None:
    """Whether in large pieces or in small ones, and however many of them wait."""

    async def race() -> dict[str, int]:
        turns = Turns()
        tenants = {"large": Tenant(), "small": Tenant(), "many": Tenant()}
        size = {"large": AT_ONCE, "small": AT_ONCE // 16, "many": AT_ONCE}
        done: list[Tenant] = []
        tasks = [
            asyncio.create_task(work(turns, tenants[name], size[name], 100_000, done))
            for name, count in (("large", 2), ("small", 64), ("many", 8))
            for _ in range(count)
        ]
        while len(done) < 3000:
            await asyncio.sleep(0)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        return {name: sum(one is tenant for one in done) * size[name] for name, tenant in tenants.items()}

    got = asyncio.run(race())
    assert max(got.values()) < 1.2 * min(got.values())


def test_one_who_was_idle_has_saved_little_up() -> None:
    async def race() -> list[bool]:
        turns, idle, busy = Turns(), Tenant(), Tenant()
        done: list[Tenant] = []
        await work(turns, busy, AT_ONCE, 100, done)
        done.clear()
        both = [asyncio.create_task(work(turns, one, AT_ONCE, 50, done)) for one in (busy, idle)]
        await asyncio.gather(*both)
        return [one is idle for one in done[:40]]

    assert 20 <= sum(asyncio.run(race())) <= 22 + CREDIT // AT_ONCE


def test_what_was_cancelled_takes_no_turn() -> None:
    async def race() -> int:
        turns, tenant = Turns(), Tenant()
        done: list[Tenant] = []
        tasks = [asyncio.create_task(work(turns, tenant, AT_ONCE, 1, done)) for _ in range(20)]
        await asyncio.sleep(0)
        for task in tasks[1::2]:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        return len(done)

    assert asyncio.run(race()) == 10
