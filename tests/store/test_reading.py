"""Reading a thread: its context, its turns page by page, and the messages of a run."""

from typing import Any

import pytest

from lockstitch.model import Entry, FakeClock, File, Stitch, Thread, context, history
from lockstitch.store import Store
from tests.lenses.looking import look
from tests.samples import answered, asked, begin_turn, finish_turn, result, said, turn

pytestmark = pytest.mark.anyio


def compaction(keep: list[list[int]], replace: dict[str, Any] | None = None, **more: Any) -> Entry:
    return Entry(type="compaction", data={"applied": True, "keep": keep, "replace": replace or {}}, **more)


async def conversation(store: Store, turns: int, head: Thread | None = None) -> Thread:
    head = head or await store.create()
    for number in range(head.total_runs + 1, head.total_runs + turns + 1):
        head = await turn(store, head, f"question {number}", f"answer {number}", input_tokens=number)
    return head


# The context


async def test_context_is_built_from_the_log(store: Store) -> None:
    head = await conversation(store, 3)

    assert await store.context(head) == context(await store.stitches(head))
    assert [message["role"] for message in await store.context(head)] == ["user", "assistant"] * 3
    assert await store.context(await store.create()) == []


async def test_reads_only_kept_and_later_stitches_after_compaction(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    head = await conversation(store, 5)
    summary = {"role": "user", "content": "summary of 2 to 4"}
    head = (await store.append(head, [compaction([[1, 2], [9, 10]], {"3": summary})])).head
    head = await conversation(store, 2, head)
    messages = context(await store.stitches(head))

    asked_for: list[Any] = []
    real = store._backend.read

    async def read(thread_id: Any, ranges: Any) -> list[Stitch]:
        stitches = await real(thread_id, ranges)
        asked_for.extend(stitch.position for stitch in stitches)
        return stitches

    monkeypatch.setattr(store._backend, "read", read)
    shown = await store.context(head)

    assert shown == messages
    assert [text["content"] for text in shown if isinstance(text["content"], str)] == [
        *("question 1", "summary of 2 to 4", "question 5", "question 6", "question 7")
    ]
    assert sorted(asked_for) == [1, 2, 3, *range(9, 16)]


async def test_second_compaction_does_not_need_the_first(store: Store) -> None:
    head = await conversation(store, 3)
    head = (await store.append(head, [compaction([[1, 2]])])).head
    head = await conversation(store, 1, head)
    head = (await store.append(head, [compaction([[5, 6], [8, 9]])])).head

    texts = [message["content"] for message in await store.context(head) if message["role"] == "user"]
    assert texts == ["question 3", "question 4"]


async def test_context_starts_at_fork(store: Store) -> None:
    head = await conversation(store, 1)
    values = [{"role": "user", "content": "from elsewhere"}, {"role": "assistant", "content": "yes"}]
    head = (await store.append(head, [Entry(type="fork", data={"messages": values})])).head
    head = await conversation(store, 1, head)

    assert (await store.context(head))[:2] == values
    assert len(await store.context(head)) == 4


async def test_lane_has_a_separate_context(store: Store) -> None:
    committed, leader = await begin_turn(store, await store.create(), "Hello")
    member = store.new_run(committed.head, parent_run_id=leader.id)
    lane = {"run_id": member.id, "lane": member.id}
    entries = [
        said("part", **lane),
        answered("first", **lane),
        compaction([[2, 2]], **lane),
        answered("second", **lane),
    ]
    head = (await store.append(committed.head, entries, new_runs=[member])).head

    assert [str(message) for message in await store.context(head)] == [str(said("Hello").message)]
    expected_messages = [said("part").message, answered("second").message]
    assert await store.context(head, lane=member.id) == expected_messages
    assert await store.messages(member.id) == [said("part").message, answered("first").message, expected_messages[1]]
    assert head.context_from == 0


# Turns


@pytest.mark.req("S0-001", "S3-026")
async def test_has_one_head_one_turn_per_run_and_append_only_log(store: Store) -> None:
    head = await store.create(settings={"system_prompt": "p"})
    logs: list[list[Stitch]] = []
    for number in range(3):
        committed, run = await begin_turn(store, head, f"q{number}")
        here = committed.head.position
        head = (await store.append(committed.head, [asked("a", run_id=run.id)])).head
        head = (await store.append(head, [result("a", 0, here + 1, run_id=run.id)])).head
        head = (await finish_turn(store, head, run, f"a{number}")).head
        logs.append(await store.stitches(head))

    assert await store.count() == 1
    assert len((await store.history(head)).turns) == len(await store.runs(head)) == 3
    assert [len(await store.log(run.id)) for run in await store.runs(head)] == [4, 4, 4]
    assert logs[1][:4] == logs[0]
    assert logs[2][:8] == logs[1]
    rows = [
        await look(store, "three_table", f"SELECT agent_uuid FROM {table}")
        for table in ("agent_config", "conversation_history", "agent_runs")
    ]
    assert [len(table_rows) for table_rows in rows] == [1, 3, 12]
    assert {row["agent_uuid"] for table_rows in rows for row in table_rows} == {str(head.id)}


@pytest.mark.req("S0-145", "S0-146")
async def test_pages_turns_by_offset_and_cursor(store: Store) -> None:
    head = await conversation(store, 45)
    committed, _ = await begin_turn(store, head, "not finished yet")
    head = committed.head

    first = await store.history(head)
    assert [turn.run.turn for turn in first.turns] == list(range(45, 25, -1))
    assert first.has_more
    by_offset, by_cursor, before = [], [], None
    for offset in range(0, 60, 10):
        by_offset.append(await store.history(head, limit=10, offset=offset))
        by_cursor.append(await store.history(head, limit=10, before=before))
        before = by_cursor[-1].turns[-1].run.turn if by_cursor[-1].turns else before
    assert by_offset == by_cursor
    assert [len(page.turns) for page in by_offset] == [10, 10, 10, 10, 5, 0]
    assert [page.has_more for page in by_offset] == [True, True, True, True, False, False]
    turn_shown = by_offset[0].turns[0]
    assert (turn_shown.user_message, turn_shown.final_response) == ("question 45", "answer 45")
    assert (await store.history(head, limit=5, offset=40)).has_more is False


async def test_turn_has_input_answer_and_files(timed_store: Store, clock: FakeClock) -> None:
    committed, run = await begin_turn(timed_store, await timed_store.create(), "Hello", model="m")
    clock.advance(2)
    file = File(
        thread_id=committed.head.id,
        file_id="f1",
        filename="plot.png",
        storage_path="/s/f1_plot.png",
        size=7,
        mime_type="image/png",
        step=2,
        created_in_run=run.id,
        last_updated_run=run.id,
        created_at=clock.now(),
        last_updated_at=clock.now(),
    )
    await timed_store.files.put(file)
    counts = {"input_tokens": 9, "output_tokens": 4, "cache_read_tokens": 3, "cache_write_tokens": 2}
    head = (await finish_turn(timed_store, committed.head, run, "Hi", extras={"credits": 42}, **counts)).head

    turn_json = (await timed_store.history(head)).turns[0].as_json()

    assert turn_json == {
        "inherited_from": None,
        "partial": False,
        "conversation_id": str(run.id),
        "agent_uuid": str(head.id),
        "run_id": str(run.id),
        "started_at": "2026-01-01T00:00:00.000000Z",
        "completed_at": "2026-01-01T00:00:02.000000Z",
        "user_message": "Hello",
        "final_response": "Hi",
        "stop_reason": "end_turn",
        "total_steps": 1,
        "usage": {
            "input_tokens": 9,
            "output_tokens": 4,
            "cache_creation_input_tokens": 2,
            "cache_read_input_tokens": 3,
        },
        "generated_files": [
            {
                "file_id": "f1",
                "filename": "plot.png",
                "storage_path": "/s/f1_plot.png",
                "size": 7,
                "mime_type": "image/png",
                "step": 2,
                "timestamp": "2026-01-01T00:00:02.000000Z",
            }
        ],
        "cost": {},
        "extras": {"credits": 42},
        "sequence_number": 1,
    }


async def test_history_excludes_nested_and_open_runs(store: Store) -> None:
    committed, leader = await begin_turn(store, await store.create(), "Hello")
    member = store.new_run(committed.head, parent_run_id=leader.id, status="completed")
    head = (
        await store.append(committed.head, [said("part", run_id=member.id, lane=member.id)], new_runs=[member])
    ).head
    assert (await store.history(head)).turns == []

    head = (await finish_turn(store, head, leader, "no", status="failed", output_position=None)).head
    page = await store.history(head)
    assert [(turn.run.id, turn.final_response) for turn in page.turns] == [(leader.id, None)]


@pytest.mark.req("S0-061")
async def test_messages_of_run_are_complete_after_compaction(store: Store) -> None:
    committed, run = await begin_turn(store, await store.create(), "Hello")
    injected = Entry(type="memory_retrieval", run_id=run.id, message={"role": "user", "content": "remember"})
    head = (await store.append(committed.head, [injected, asked("a", "b", run_id=run.id)])).head
    head = (await store.append(head, [result("b", 1, 3, run_id=run.id), result("a", 0, 3, run_id=run.id)])).head
    head = (await store.append(head, [compaction([], run_id=run.id)])).head
    head = (await finish_turn(store, head, run, "Done")).head

    messages = await store.messages(run.id)
    assert messages == history(await store.stitches(head), run.id)
    assert [message["role"] for message in messages] == ["user", "assistant", "user", "assistant"]
    assert [block["tool_use_id"] for block in messages[2]["content"]] == ["a", "b"]
    assert await store.context(head) == [answered("Done").message]
