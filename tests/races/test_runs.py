"""Many processes, one thread: their runs come one after the other, numbered without a gap."""

import asyncio

import pytest

from lockstitch.store import Store
from tests.races.processes import run

pytestmark = pytest.mark.anyio


@pytest.mark.req("S0-077", "X0-03")
async def test_many_processes_each_start_and_finish_a_run(store: Store, store_url: str) -> None:
    count = 50
    thread = await store.create()
    other_thread = await store.create()
    calls = [[store_url, str(thread.id), number] for number in range(count)]
    numbers = await asyncio.to_thread(run, "tests.races.runs:start_and_finish", calls, seconds=150)
    assert sorted(numbers) == [[number, number] for number in range(1, count + 1)]
    runs = await store.runs(thread)
    assert [(run.sequence, run.turn, run.status) for run in runs] == [
        (number, number, "completed") for number in range(1, count + 1)
    ]
    head = await store.thread(thread)
    assert (head.last_sequence, head.last_turn, head.total_runs, head.position) == (count, count, count, 2 * count)
    assert (head.status, head.worker_id) == ("waiting", None)
    page = await store.history(thread, limit=count)
    assert [turn.as_json()["sequence_number"] for turn in page.turns] == list(range(count, 0, -1))
    answers = [(turn.final_response or "").replace("answer", "question") for turn in page.turns]
    assert answers == [turn.user_message for turn in page.turns], "no run wrote into another"
    assert (await store.thread(other_thread)).last_sequence == 0, "each thread counts for itself"
    assert (await store.verify()).problems == []
