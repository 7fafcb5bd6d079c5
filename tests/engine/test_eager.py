"""Tasks whose first step runs at once."""

import asyncio
from contextvars import ContextVar
from typing import Any

import pytest

from lockstitch.engine.eager import start_task

pytestmark = pytest.mark.anyio

VALUE = ContextVar("value", default=0)


async def test_has_result_of_first_step_at_once():
    caller = asyncio.current_task()

    async def work() -> int:
        VALUE.set(5)
        assert asyncio.current_task() is not caller
        return 7

    started = start_task(work())
    assert started.done()
    assert started.result() == 7
    assert asyncio.current_task() is caller
    assert VALUE.get() == 0


async def test_keeps_error_of_first_step():
    async def work() -> None:
        raise KeyError("missing")

    with pytest.raises(KeyError):
        start_task(work()).result()


async def test_continues_in_one_task_and_context():
    async def work() -> tuple[bool, int]:
        VALUE.set(5)
        task = asyncio.current_task()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await asyncio.sleep(60)
        await asyncio.sleep(0)
        return asyncio.current_task() is task, VALUE.get()

    assert await start_task(work()) == (True, 5)
    assert VALUE.get() == 0


@pytest.mark.parametrize("iterations", [0, 1])
async def test_cancels_what_the_first_step_waits_for(iterations: int):
    inner: list[asyncio.Task[Any]] = []

    async def work() -> None:
        inner.append(asyncio.create_task(asyncio.sleep(60)))
        await inner[0]

    started = start_task(work())
    for _ in range(iterations):
        await asyncio.sleep(0)
    started.cancel()
    await asyncio.wait([started])
    assert started.cancelled()
    assert inner[0].cancelled()


async def test_is_cancelled_when_its_first_step_cancels_it():
    async def work() -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.sleep(60)

    started = start_task(work())
    await asyncio.wait([started])
    assert started.cancelled()
