"""`take_turn`: no iteration of the event loop executes all runs that are ready."""

import asyncio
from collections import Counter

import pytest

from lockstitch.engine import turns
from lockstitch.engine.turns import AT_ONCE, take_turn

RUNS = 5 * AT_ONCE


async def iteration_count(iterations: list[int]) -> None:
    """Count the iterations of the event loop."""
    while True:
        iterations.append(len(iterations))
        await asyncio.sleep(0)


@pytest.fixture
def each_turn_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the first turn of an iteration use all of its time, as a slow run does."""
    monkeypatch.setattr(turns, "SECONDS", 0.0)


@pytest.mark.anyio
@pytest.mark.usefixtures("each_turn_ends")
async def test_runs_continue_in_order_and_in_several_iterations() -> None:
    iterations: list[int] = []
    continued: list[tuple[int, int]] = []
    counting = asyncio.create_task(iteration_count(iterations))

    async def compute(number: int) -> None:
        await take_turn()
        continued.append((number, len(iterations)))

    tasks = [asyncio.create_task(compute(number)) for number in range(RUNS)]
    tasks[AT_ONCE].cancel()
    await asyncio.wait(tasks)
    counting.cancel()
    assert [number for number, _ in continued] == [number for number in range(RUNS) if number != AT_ONCE]
    assert max(Counter(iteration for _, iteration in continued).values()) <= AT_ONCE


@pytest.mark.anyio
async def test_single_run_does_not_wait() -> None:
    iterations: list[int] = []
    counting = asyncio.create_task(iteration_count(iterations))
    for _ in range(10):
        await take_turn()
    assert iterations == []
    counting.cancel()
