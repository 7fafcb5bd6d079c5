"""Reading the log of a run, the end of a list, errors, and figures over many threads."""

from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest

from lockstitch.errors import NotFound
from lockstitch.model import ERROR_TYPES, Entry, FakeClock, Thread, new_id
from lockstitch.store import Store
from tests.samples import asked, begin_turn, result, said, turn

pytestmark = pytest.mark.anyio


def compaction(keep: list[list[int]], replace: dict[str, Any] | None = None, **more: Any) -> Entry:
    return Entry(type="compaction", data={"applied": True, "keep": keep, "replace": replace or {}}, **more)


async def conversation(store: Store, turns: int, head: Thread | None = None) -> Thread:
    head = head or await store.create()
    for number in range(head.total_runs + 1, head.total_runs + turns + 1):
        head = await turn(store, head, f"question {number}", f"answer {number}", input_tokens=number)
    return head


@pytest.mark.req("S0-147", "S3-020", "S3-067")
async def test_log_is_in_order_of_writing_for_any_times(timed_store: Store, clock: FakeClock) -> None:
    committed, run = await begin_turn(timed_store, await timed_store.create(), "Hello")
    earlier = clock.now() - timedelta(hours=1)
    types = ["run_started", "api_call_started", "llm_call", "tool_started", "error"]
    notes = [
        Entry(type=type, run_id=run.id, step_number=1, duration_ms=n, data={"n": n}) for n, type in enumerate(types)
    ]
    head = (await timed_store.append(committed.head, [*notes, notes[0].changed(id=new_id(), at=earlier)])).head
    other_committed, second = await begin_turn(timed_store, await timed_store.create(), "Elsewhere")
    await timed_store.append(other_committed.head, [Entry(type="error", run_id=second.id)])

    log = await timed_store.log(run.id)
    assert [stitch.type for stitch in log] == ["input", *types, "run_started"]
    assert [stitch.position for stitch in log] == list(range(1, 8))
    assert {stitch.at for stitch in log[:-1]} == {clock.now()}
    assert [(stitch.data, stitch.duration_ms) for stitch in log[1:-1]] == [({"n": n}, n) for n in range(5)]
    assert log == await timed_store.stitches(head)
    assert await timed_store.stitches(head, 2, 4) == log[1:4]
    with pytest.raises(NotFound):
        await timed_store.log(uuid4())


@pytest.mark.req("S3-018", "S3-019", "S3-066")
async def test_last_stitch_is_the_end_of_the_chain(store: Store) -> None:
    head = await store.create()
    assert await store.last_stitch(head) is None
    head = (await store.append(head, [said("go"), asked("a"), Entry(type="tool_started", call_id="a")])).head
    last = await store.last_stitch(head)
    assert last is not None
    assert (last.type, last.position) == ("llm_call", 2)

    head = (await store.append(head, [result("a", 0, 2, "found"), Entry(type="error")])).head
    last = await store.last_stitch(head)
    assert last is not None
    assert (last.name, last.call_id, last.message["content"] if last.message else None) == ("look", "a", "found")
    response = (await store.stitches(head, last.reply_to or 0, last.reply_to))[0]
    assert (response.message or {})["content"][last.call_index or 0]["input"] == {"of": "a"}

    report = Entry(type="thread_result", child_id=new_id(), message={"role": "user", "content": "summary"})
    await store.append(head, [report])
    last = await store.last_stitch(head)
    assert last is not None
    assert (last.child_id, last.message) == (report.child_id, report.message)


@pytest.mark.req("S0-149")
async def test_errors_returns_newest_of_the_project(timed_store: Store, clock: FakeClock, opened: Any) -> None:
    threads = [await timed_store.create(), await timed_store.create()]
    far = await timed_store.in_project("elsewhere").create()
    results = []
    for number in range(12):
        clock.advance(1)
        kind = sorted(ERROR_TYPES)[number % len(ERROR_TYPES)]
        head, run = await begin_turn(timed_store, threads[number % 2], "go")
        entry = Entry(type=kind, run_id=run.id, data={"message": f"e{number}"})
        threads[number % 2] = (await timed_store.append(head.head, [entry, Entry(type="run_paused")])).head
        far = (await timed_store.append(far, [Entry(type="error", data={"far": number})])).head
        results.append(entry)

    newest = await timed_store.errors()
    assert [stitch.id for stitch in newest] == [entry.id for entry in reversed(results)]
    assert (newest[0].thread_id, newest[0].run_id) == (threads[1].id, results[-1].run_id)
    assert (newest[0].data, newest[0].at) == ({"message": "e11"}, clock.now())
    assert [stitch.id for stitch in await timed_store.errors(limit=3)] == [entry.id for entry in results[:-4:-1]]
    since = clock.now() - timedelta(seconds=4)
    assert len(await timed_store.errors(since=since)) == 5
    assert len(await (await opened(project="elsewhere")).errors(limit=5)) == 5
    assert await (await opened(project="nowhere")).errors() == []


@pytest.mark.req("S0-148")
async def test_averages_tokens_of_the_last_seven_days(timed_store: Store, clock: FakeClock) -> None:
    old_thread = await turn(timed_store, await timed_store.create(), "q", "a", input_tokens=1000, output_tokens=1000)
    both_days = await turn(timed_store, await timed_store.create(), "q", "a", input_tokens=5000, output_tokens=0)
    clock.advance(8 * 86_400)
    both_days = await turn(timed_store, both_days, "q", "a", input_tokens=100, output_tokens=10)
    both_days = await turn(timed_store, both_days, "q", "a", input_tokens=200, output_tokens=21)
    thread = await turn(timed_store, await timed_store.create(), "q", "a", input_tokens=7, output_tokens=0)
    await turn(timed_store, await timed_store.in_project("elsewhere").create(), "q", "a", input_tokens=1)

    usage = await timed_store.average_tokens(clock.now() - timedelta(days=7))
    assert {row.thread_id: (row.runs, row.average_tokens) for row in usage} == {
        both_days.id: (2, 165.5),
        thread.id: (1, 7),
    }
    everything = await timed_store.average_tokens(clock.now() - timedelta(days=30))
    assert {row.thread_id for row in everything} == {old_thread.id, both_days.id, thread.id}


@pytest.mark.req("S0-151")
async def test_returns_size_of_thread_and_of_store(store: Store) -> None:
    small, large = await conversation(store, 1), await conversation(store, 10)
    large = (await store.append(large, [said("x" * 100_000)])).head
    await store.store_text(large, "y" * 50_000)

    sizes, total = await store.size(large), await store.size()

    assert sizes.keys() >= {"heads", "runs", "stitches", "blobs", "archives"}
    assert sizes["stitches"] > 100_000 > (await store.size(small))["stitches"]
    assert sizes["blobs"] == 50_000
    assert all(total[name] >= size for name, size in sizes.items())
    assert total["disk"] > 0
