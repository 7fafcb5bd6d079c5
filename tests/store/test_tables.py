"""`RecordTable`: side records by their keys."""

import pytest

from lockstitch.errors import NotFound, Refused
from lockstitch.model import FakeClock, Feedback, File, Memory, new_id
from lockstitch.store import Store

pytestmark = pytest.mark.anyio


def memory(store: Store, text: str, **fields: object) -> Memory:
    now = store.clock.now()
    return Memory(**{"text": text, "created_at": now, "updated_at": now, **fields})


async def test_stores_lists_replaces_and_deletes_memories(timed_store: Store, clock: FakeClock) -> None:
    tea = memory(timed_store, "likes tea", user_id="ada", tags=["taste", "ß"], metadata={"z": 2**70, "a": None})
    rain = memory(timed_store, "rain", user_id="ada", kind="learning", agent="helper", thread_id=new_id())
    other_memory = memory(timed_store, "likes coffee", user_id="bob")
    memory_without_user = memory(timed_store, "it is Monday")
    await timed_store.memories.put(tea, rain, other_memory, memory_without_user)

    assert await timed_store.memories.get(tea.id) == tea
    assert await timed_store.memories.list(user_id="ada") == [tea, rain]
    assert await timed_store.memories.list(user_id="ada", kind="learning") == [rain]
    assert await timed_store.memories.list(user_id=None) == [memory_without_user]
    assert await timed_store.memories.list(limit=2) == [tea, rain]

    clock.advance(1)
    changed = tea.changed(text="likes coffee now", updated_at=clock.now())
    await timed_store.memories.put(changed)
    assert await timed_store.memories.get(tea.id) == changed
    assert await timed_store.memories.delete(user_id="ada") == 2
    assert await timed_store.memories.delete(user_id="ada") == 0
    assert await timed_store.memories.list() == [other_memory, memory_without_user]
    with pytest.raises(NotFound, match=str(tea.id)):
        await timed_store.memories.get(tea.id)


async def test_stores_one_record_per_thread_and_file(timed_store: Store, clock: FakeClock) -> None:
    thread, other_thread = await timed_store.create(), await timed_store.create()
    first, second = new_id(), new_id()
    file = File(
        thread_id=thread.id,
        file_id="file_1",
        filename="größe.csv",
        created_in_run=first,
        last_updated_run=first,
        created_at=clock.now(),
        last_updated_at=clock.now(),
    )
    await timed_store.files.put(file, file.changed(thread_id=other_thread.id))
    clock.advance(1)
    updated_file = file.changed(last_updated_run=second, last_updated_at=clock.now(), size=7, metadata={"a": 1})
    await timed_store.files.put(updated_file)

    assert await timed_store.files.list(thread_id=thread.id) == [updated_file]
    assert await timed_store.files.get(other_thread.id, "file_1") == file.changed(thread_id=other_thread.id)
    await timed_store.delete(thread)
    assert [file.thread_id for file in await timed_store.files.list()] == [other_thread.id]


async def test_stores_feedback_for_thread_run_or_stitch(store: Store) -> None:
    thread, now = await store.create(), store.clock.now()
    times = {"created_at": now, "updated_at": now}
    about = Feedback(thread_id=thread.id, run_id=new_id(), user_id="ada", name="stars", score=0.1, **times)
    general = Feedback(name="note", value={"z": 1, "a": [2]}, comment="größer", source="check", **times)
    await store.feedback.put(about, general)

    assert await store.feedback.get(about.id) == about
    assert await store.feedback.list(thread_id=None) == [general]
    assert await store.feedback.list(name="stars", user_id="ada") == [about]
    # Feedback on a thread is deleted with the thread. Feedback without a thread stays.
    await store.delete(thread)
    assert await store.feedback.list() == [general]


async def test_rejects_all_records_when_one_refers_to_unknown_thread(store: Store) -> None:
    thread, now = await store.create(), store.clock.now()
    times = {"created_at": now, "last_updated_at": now}
    valid_file = File(thread_id=thread.id, file_id="a", filename="a", **times)
    invalid_file = File(thread_id=new_id(), file_id="b", filename="b", **times)
    with pytest.raises(Refused):
        await store.files.put(valid_file, invalid_file)
    assert await store.files.list() == []


async def test_put_without_records_writes_nothing(store: Store) -> None:
    await store.memories.put()
    assert await store.memories.list() == []
