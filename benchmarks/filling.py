"""Fast filling of stores: records written in bulk, for benchmarks that read."""

from collections.abc import Sequence

from benchmarks.prose import Prose
from benchmarks.workload import entry, steps
from lockstitch.model import CHAIN_TYPES, Entry, Record, Run, Stitch, Thread, at_position
from lockstitch.store import Store

CHUNK = 5000


async def put_all(store: Store, records: Sequence[Record]) -> None:
    for first in range(0, len(records), CHUNK):
        await store._backend.put(records[first : first + CHUNK])


async def begin(store: Store) -> tuple[Thread, Run]:
    """Return an empty thread with one run."""
    head = await store.create()
    run = store.new_run(head)
    return (await store.append(head, new_runs=[run])).head, run


async def fill(store: Store, head: Thread, entries: Sequence[Entry], context_from: int = 0) -> Thread:
    """Write these entries as the log of the thread. Return the thread."""
    now = store.clock.now()
    stitches: list[Stitch] = []
    tip = head.tip_id
    for position, new_entry in enumerate(entries, start=1):
        stitch = at_position(new_entry, head.id, position, tip, head.fence, now)
        tip = stitch.id if stitch.type in CHAIN_TYPES else tip
        stitches.append(stitch)
    await put_all(store, stitches)
    filled = head.changed(position=len(stitches), tip_id=tip, context_from=context_from)
    await store._backend.put([filled])
    return filled


def tool_loop(run: Run, number: int, size: int, first: int = 1) -> list[Entry]:
    """Return the steps of an agent that uses tools, from position `first`, with messages of `size` bytes."""
    bodies = steps(size)
    return [entry(bodies[place % len(bodies)], run.id, first + place) for place in range(number)]


async def conversation(store: Store, turns: int, actions: int = 0, length: int = 200) -> list[Run]:
    """Write a thread of finished turns: a question, actions with tools, an answer. Return its runs."""
    head = await store.create()
    now = store.clock.now()
    prose = Prose(2)
    runs: list[Run] = []
    entries: list[Entry] = []
    for turn in range(1, turns + 1):
        first = len(entries) + 1
        run = store.new_run(head, input_position=first, status="completed", stop_reason="end_turn").changed(
            sequence=turn, turn=turn, first_position=first, output_position=first + actions + 1, completed_at=now
        )
        question = {"role": "user", "content": prose.take(length)}
        answer = {"role": "assistant", "content": [{"type": "text", "text": prose.take(length)}]}
        entries.append(Entry(type="input", run_id=run.id, step_number=0, message=question))
        entries += tool_loop(run, actions, 600, first + 1)
        entries.append(Entry(type="llm_call", run_id=run.id, status="end_turn", message=answer))
        runs.append(run)
    await put_all(store, runs)
    head = head.changed(last_sequence=turns, last_turn=turns, total_runs=turns)
    await fill(store, head, entries)
    return runs
