"""Threads: create, find, list in pages, edit and delete."""

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest

from lockstitch.errors import KeyTaken, LockstitchError, NotFound, Refused
from lockstitch.model import FakeClock, Thread, new_id
from lockstitch.store import Store, Transaction
from tests.samples import begin_turn, said, turn

pytestmark = pytest.mark.anyio


@pytest.mark.req("S0-008", "S0-036", "S0-144", "S3-001", "S3-008")
async def test_finds_thread_by_id_and_key(timed_store: Store, clock: FakeClock) -> None:
    thread = await timed_store.create(key="customer-42", user_id="ada", title="Shoes", settings={"max_steps": 5})

    assert thread.id.version == 7
    for ref in (thread, thread.id, str(thread.id), str(thread.id).upper(), "customer-42"):
        assert await timed_store.thread(ref) == thread
    assert thread.created_at == thread.updated_at == clock.now()

    clock.advance(5)
    await timed_store.edit(thread, title="Boots")
    edited = await timed_store.thread(thread)
    assert edited == thread.changed(title="Boots", updated_at=clock.now())
    clock.advance(5)
    appended = (await timed_store.append(edited, [said("Hi")])).head
    assert (appended.created_at, appended.updated_at) == (thread.created_at, clock.now())
    assert await timed_store.thread(thread) == appended


@pytest.mark.req("S3-001", "S3-008", "X3-13")
async def test_every_write_sets_updated_at(timed_store: Store, clock: FakeClock) -> None:
    thread = await timed_store.create(key="customer-42")
    clock.advance(5)
    appended = (await timed_store.append(thread, [said("Hello")])).head
    assert appended.updated_at == (await timed_store.thread(thread)).updated_at == clock.now()
    clock.advance(5)
    await timed_store.deliver(thread, said("More"), kind="input", sender="ada")
    assert (await timed_store.thread(thread)).updated_at == clock.now()
    clock.advance(5)
    assert (await timed_store.claim(thread)).updated_at == clock.now()
    assert (await timed_store.thread(thread)).created_at == thread.created_at
    assert thread.id != (await timed_store.create()).id


async def test_raises_not_found_for_unknown_thread(store: Store) -> None:
    for ref in (uuid4(), str(uuid4()), "unknown", Thread(created_at=store.clock.now(), updated_at=store.clock.now())):
        with pytest.raises(NotFound) as missing:
            await store.thread(ref)
        assert str(getattr(ref, "id", ref)) in str(missing.value)


async def test_stores_every_field_unchanged(store: Store) -> None:
    now = datetime(2026, 2, 3, 4, 5, 6, 789, tzinfo=UTC)
    values: dict[str, Any] = {
        "kind": "task",
        "goal": "größer\nwerden",
        "agent": "helper",
        "version": 3,
        "tasks": [{"id": 1, "status": "odd", "z": [2**70], "a": None}],
        "state": {"z": 1, "a": {"\x00": "\u2028"}},
        "extras": {"user_id": "u"},
        "priority": -7,
        "expires_at": now,
        "wake_at": now,
    }
    thread = await store.create(**values)

    result = await store.thread(thread.id)
    assert result == thread
    assert {name: getattr(result, name) for name in values} == values
    assert list(result.state) == ["z", "a"]


@pytest.mark.req("S0-008")
async def test_rejects_key_that_is_in_use_in_the_project(store: Store) -> None:
    first = await store.create(key="k")
    with pytest.raises(KeyTaken):
        await store.create(key="k")
    other_thread = await store.in_project("elsewhere").create(key="k")

    assert await store.thread("k") == first
    assert other_thread.id != first.id
    assert await store.count(all_projects=True) == 2


@pytest.mark.req("S3-001")
async def test_rejects_id_that_is_in_use(store: Store) -> None:
    first = await store.create()
    with pytest.raises(LockstitchError):
        await store.create(id=first.id, title="another")
    assert await store.thread(first.id) == first


@pytest.mark.req("X0-02")
async def test_ensure_creates_thread_once(store: Store) -> None:
    """An id is a UUID. Any other text, such as the sample ids of the document, is a key, on every backend."""
    thread = await store.ensure("abc-123-def-456", title="first")
    assert (thread.id.version, thread.key) == (7, "abc-123-def-456")
    same_thread = await store.ensure("abc-123-def-456", title="second")
    by_id = await store.ensure(str(id := new_id()))

    assert thread == same_thread
    assert thread.title == "first"
    assert (by_id.id, by_id.key) == (id, None)
    assert await store.ensure(str(id)) == by_id
    assert await store.count() == 2


async def test_ensure_rejects_thread_of_another_user(store: Store) -> None:
    thread = await store.ensure("k", user_id="ada")

    assert await store.ensure("k", user_id="ada") == thread
    assert await store.ensure("k") == thread
    with pytest.raises(Refused, match="belongs to another user"):
        await store.ensure("k", user_id="bob")
    with pytest.raises(Refused, match="belongs to another user"):
        await store.ensure(str(thread.id), user_id="bob")
    assert (await store.thread("k")).user_id == "ada"


@pytest.mark.req("S3-003", "S3-004", "S3-005")
async def test_rejects_thread_without_required_fields(store: Store) -> None:
    thread = await store.create(kind="goal", goal="g")

    assert (thread.status, thread.tasks) == ("pending", [])
    tasks = [{"id": 1, "description": "d", "status": "done", "colour": {"any": "thing"}}]
    assert (await store.thread(await store.create(kind="goal", goal="g", tasks=tasks))).tasks == tasks
    for wrong in ({"goal": ""}, {"goal": None}, {"goal": "g", "status": "aborted"}, {"goal": "g", "title": "\x00"}):
        with pytest.raises(Refused):
            await store.create(**{"kind": "goal", **wrong})
    assert await store.count() == 2


async def test_new_chat_waits_for_input(timed_store: Store, clock: FakeClock) -> None:
    chat = await timed_store.create()

    assert (chat.kind, chat.status, chat.goal) == ("chat", "waiting", None)
    assert [entry["kind"] for entry in chat.waiting_for] == ["input"]
    # No worker claims a thread that waits for a person.
    assert chat.wake_at is None
    assert await timed_store.claim_next() == []


@pytest.mark.req("S0-007")
async def test_lists_threads_by_last_activity(timed_store: Store, clock: FakeClock) -> None:
    results = []
    for number in range(4):
        clock.advance(1)
        results.append(await timed_store.create(title=f"t{number}"))
    clock.advance(1)
    oldest = await turn(timed_store, results[0], "Hello", "Hi")

    listed = await timed_store.threads()
    assert [thread.title for thread in listed] == ["t0", "t3", "t2", "t1"]
    assert [thread.title for thread in await timed_store.threads(limit=2, offset=1)] == ["t3", "t2"]
    assert [thread.title for thread in await timed_store.threads(limit=None, offset=3)] == ["t1"]
    assert await timed_store.count() == 4
    first = listed[0]
    assert first == oldest
    assert (first.total_runs, first.created_at < first.updated_at) == (1, True)
    await timed_store.edit(first, title="renamed")
    assert [thread.title for thread in await timed_store.threads(limit=1)] == ["renamed"]
    assert (await timed_store.thread(first)).title == "renamed"
    assert await timed_store.delete(first) == 1
    assert await timed_store.count() == 3


async def test_pages_by_cursor_list_each_thread_once_when_times_are_equal(timed_store: Store, clock: FakeClock) -> None:
    heads = []
    for number in range(250):
        if number % 50 == 0:
            clock.advance(1)
        heads.append(timed_store.new_thread(user_id=f"u{number % 2}"))
    await timed_store.commit(Transaction(new_threads=heads))

    read_threads: list[Thread] = []
    page = await timed_store.threads(limit=30)
    while page:
        read_threads += page
        page = await timed_store.threads(limit=30, after=page[-1])

    expected_threads = sorted(heads, key=lambda thread: (thread.recent_at, thread.id), reverse=True)
    assert [thread.id for thread in read_threads] == [thread.id for thread in expected_threads]
    by_offset = [t for start in range(0, 250, 60) for t in await timed_store.threads(limit=60, offset=start)]
    assert by_offset == read_threads
    assert await timed_store.threads(limit=None) == read_threads
    assert len(await timed_store.threads(user_id="u1", limit=200)) == await timed_store.count(user_id="u1") == 125


async def test_filters_threads_by_fields(timed_store: Store, clock: FakeClock) -> None:
    old_thread = await timed_store.create(agent="a", user_id="ada")
    clock.advance(10)
    since = clock.now()
    goal = await timed_store.create(kind="goal", goal="g", agent="a")
    chat = await timed_store.create(agent="b", user_id="ada")
    far = await timed_store.in_project("elsewhere").create(agent="b")

    async def ids(**narrow: Any) -> set[UUID]:
        matches = {thread.id for thread in await timed_store.threads(**narrow)}
        assert len(matches) == await timed_store.count(**narrow)
        return matches

    assert await ids() == {old_thread.id, goal.id, chat.id}
    assert await ids(agent="a") == {old_thread.id, goal.id}
    assert await ids(kind="chat", user_id="ada") == {old_thread.id, chat.id}
    assert await ids(status=["pending", "running"]) == {goal.id}
    assert await ids(status=("pending", "waiting"), agent="a") == {old_thread.id, goal.id}
    assert await ids(since=since) == {goal.id, chat.id}
    assert await ids(since=since + timedelta(seconds=1)) == set()
    assert await ids(agent=None) == {old_thread.id, goal.id, chat.id}
    assert await ids(all_projects=True, agent="b") == {chat.id, far.id}


async def test_edits_allowed_fields_without_lease(store: Store) -> None:
    thread = await store.create(kind="goal", goal="g")
    held_thread = await store.claim(thread)
    later = store.clock.now().replace(microsecond=5) + timedelta(days=1)
    fields: dict[str, Any] = {
        "title": "t",
        "extras": {"z": 1, "a": 2},
        "priority": 9,
        "expires_at": later,
        "cancel_requested": True,
    }

    await store.edit(thread.id, **fields)

    edited = await store.thread(thread)
    assert edited == held_thread.changed(**fields, updated_at=edited.updated_at)
    await store.edit(thread, title=None, expires_at=None)
    assert (await store.thread(thread)).title is None


@pytest.mark.req("X0-24")
@pytest.mark.parametrize(
    "fields",
    [{"title": "t" * 256}, {"title": 5}, {"extras": None}, {"expires_at": "soon"}],
)
async def test_rejects_edit_with_invalid_value(store: Store, fields: dict[str, Any]) -> None:
    thread = await store.create(kind="goal", goal="g")
    with pytest.raises(Refused, match=next(iter(fields))):
        await store.edit(thread, **{"priority": 5, **fields})
    assert await store.thread(thread) == thread


@pytest.mark.parametrize("fields", [{"status": "completed"}, {"goal": "new"}, {"position": 7}, {"colour": 1}])
async def test_rejects_edit_of_other_fields(store: Store, fields: dict[str, Any]) -> None:
    thread = await store.create(kind="goal", goal="g")
    with pytest.raises(TypeError, match=next(iter(fields))):
        await store.edit(thread, **{"priority": 5, **fields})
    assert await store.thread(thread) == thread


async def test_rejects_edit_and_delete_of_unknown_thread(store: Store) -> None:
    with pytest.raises(NotFound):
        await store.edit(uuid4(), title="t")
    with pytest.raises(NotFound):
        await store.delete("unknown")


async def test_open_run_moves_thread_to_the_top(timed_store: Store, clock: FakeClock) -> None:
    other_thread, third_thread = await timed_store.create(), await timed_store.create()
    clock.advance(1)
    await begin_turn(timed_store, other_thread, "Hello")

    assert [thread.id for thread in await timed_store.threads()] == [other_thread.id, third_thread.id]


async def test_namespaces_have_their_own_keys(store: Store) -> None:
    graphs, sessions = store.in_namespace("graphs"), store.in_namespace("sessions")
    id = str(new_id())
    plain = await store.ensure(id)
    threads = [await view.ensure(id) for view in (graphs, sessions, graphs)]
    upper = await graphs.ensure(id.upper())
    assert plain.id == UUID(id)
    assert threads[0] == threads[2]
    assert len({plain.id, threads[0].id, threads[1].id, upper.id}) == 4
    assert (threads[0].key, graphs.key_in_namespace(threads[0])) == (f"graphs:{id}", id)
    assert sessions.key_in_namespace(threads[0]) is None
    assert graphs.key_in_namespace(plain) is None
    assert await store.thread(f"graphs:{id}") == await graphs.thread(threads[0].id) == threads[0]
    assert await graphs.threads(key=[id, "other"]) == [threads[0]]
    with pytest.raises(NotFound):
        await graphs.thread(f"graphs:{id}")
    with pytest.raises(KeyTaken):
        await graphs.create(key=id)
    await graphs.append(await graphs.thread(id), [said("hi")])
    fork = await graphs.fork(id, key="fork")
    assert (fork.key, (await graphs.import_messages([], key="imported")).key) == ("graphs:fork", "graphs:imported")
    message = {"role": "user", "content": "hi"}
    first = await graphs.enqueue("helper", message, thread=str(plain.id).replace("-", ""))
    assert first.thread.key == f"graphs:{id.replace('-', '')}"


@pytest.mark.parametrize("name", ["", "a:b", "a\x00"])
async def test_rejects_invalid_namespace(store: Store, name: str) -> None:
    with pytest.raises(Refused):
        store.in_namespace(name)
