"""`lockstitch.sync`: calls from many threads, interrupts, forks, and closing."""

import inspect
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import lockstitch
from lockstitch import sync
from lockstitch.errors import Conflict, NotFound, Refused, StoreUnreachable
from lockstitch.model import Entry, FakeClock, Feedback, File, Limit, Memory, new_id
from lockstitch.store import WATCHING, Where
from lockstitch.sync import agents
from lockstitch.testing import Scripted
from tests.cli.calling import environment
from tests.waits import waiting


@pytest.fixture
def store(store_url: str) -> Iterator[sync.SyncStore]:
    with sync.open_store(store_url) as opened:
        yield opened


def test_exports_every_generated_function() -> None:
    functions = {name for name, _ in inspect.getmembers(agents, inspect.isfunction) if not name.endswith("_async")}
    assert functions <= set(sync.__all__) <= set(dir(sync))
    assert all(getattr(sync, name) for name in sync.__all__)


def test_reads_and_writes_a_conversation(store: sync.SyncStore) -> None:
    head = store.create(key="k", user_id="ada")
    run = store.new_run(head, input_position=1)
    question = Entry(type="input", run_id=run.id, message={"role": "user", "content": "Where is it?"})
    head = store.append(head, [question], new_runs=[run]).head
    answer = {"role": "assistant", "content": [{"type": "text", "text": "In Graz."}]}
    now = store.clock.now()
    head = store.append(
        head,
        [Entry(type="llm_call", run_id=run.id, step_number=1, message=answer)],
        fields={"status": "waiting", "waiting_for": [waiting("input", now)]},
        run_updates=[(run, {"status": "completed", "output_position": 2, "completed_at": now, "input_tokens": 5})],
    ).head
    assert store.thread("k") == store.ensure("k", user_id="ada") == store.threads()[0]
    assert store.count() == 1
    assert store.overview([head])[0].usage["input_tokens"] == 5
    assert [message["role"] for message in store.context("k")] == ["user", "assistant"]
    assert store.history("k").turns[0].final_response == "In Graz."
    assert store.messages(run.id) == store.context("k")
    assert [stitch.position for stitch in store.log(run.id)] == [1, 2]
    assert [stitch.position for stitch in store.latest()] == [2, 1]
    assert store.run(run.id).status == store.runs("k")[0].status == "completed"
    last = store.last_stitch("k")
    assert last is not None
    assert store.stitch(last.id) == last == store.stitches("k", 2, 2)[0]
    assert [hit.position for hit in store.search("Graz")] == [2]
    assert store.average_tokens(now - timedelta(days=1))[0].average_tokens == 5
    assert store.sql("SELECT count(*) FROM stitches").rows == [(2,)]
    assert store.size("k")["stitches"] > 0
    store.edit("k", title="T")
    assert store.tree("k") == [store.thread("k")]
    assert (store.children("k"), store.ancestors("k"), store.errors()) == ([], [], [])
    assert store.verify().ok
    assert store.counts().stitches == 2
    assert store.archive(datetime.now(UTC)) == 0
    assert store.delete("k") == 1
    with pytest.raises(NotFound):
        store.thread("k")


@lockstitch.tool(approval=True)
def pay(amount: int) -> str:
    """Pay an amount."""
    return f"paid {amount}"


def payer(*script: Any) -> lockstitch.Agent:
    return lockstitch.Agent("payer", model=Scripted(list(script)), tools=[pay], title=False)


PAY = {"calls": [{"name": "pay", "input": {"amount": 5}}]}


def test_runs_an_agent_with_approvals_and_replies(store: sync.SyncStore) -> None:
    agent = payer([PAY, "Paid."], ["Again."], [PAY, "As you like."], [{"text": "A story. " * 50, "chunk": 5}])
    waiting = sync.run(agent, "Pay", store=store, thread="t")
    assert waiting.status == "waiting"
    sync.approve(store, "t", "call_1_1_0", by="ada")
    event_types: list[str] = []
    final_result = sync.resume(agent, "t", store=store, listener=lambda event: event_types.append(event.type))
    assert final_result is not None
    assert final_result.output_text == "Paid."
    assert event_types[-1] == "finished"
    events = list(sync.stream(agent, "And?", store=store, thread="t"))
    assert [event.type for event in events] == ["started", "text", "finished"]
    sync.run(agent, "Pay", store=store, thread="t")
    sync.deny(store, "t", "call_3_1_0", reason="enough")
    final_result = sync.resume(agent, "t", store=store)
    assert final_result is not None
    assert final_result.output_text == "As you like."
    assert sync.messages(final_result, store=store) == store.messages(final_result.run_id) != []
    assert sync.resume(agent, "t", store=store) is None
    for call in (
        lambda: sync.answer(store, "t", "x"),
        lambda: sync.settle(store, "t", "x", redo=True),
        lambda: sync.submit(agent, "t", [], store=store),
        lambda: sync.submit_results(store, "t", []),
        lambda: sync.retry(agent, "t", store=store),
    ):
        with pytest.raises(Conflict):
            call()
    goal = sync.start(agent, store=store, goal="g", key="goal")
    assert sync.cancel(store, goal).status == "cancelled"
    assert store.fork("t", at=2, key="fork").key == "fork"
    assert sync.run(payer("Hello."), "Hi").output_text == "Hello.", "without a store, the run is in memory"
    sync.close(agent, store=store)


def test_closing_a_stream_releases_the_thread(store: sync.SyncStore) -> None:
    agent = payer({"text": "A story. " * 50, "chunk": 5, "pause": 0.01})
    events = sync.stream(agent, "Tell", store=store, thread="t")
    assert any(event.type == "text" for event in events)
    events.close()
    assert (store.thread("t").status, store.thread("t").worker_id) == ("pending", None)


def test_claims_a_thread_and_reads_its_inbox(store: sync.SyncStore) -> None:
    head = store.create(key="k")
    assert store.register_worker().id == store.claim("k").worker_id
    message = Entry(type="input", message={"role": "user", "content": "hi"})
    assert store.deliver("k", message, kind="input", sender="ada").position is None
    current, deliveries = store.inbox(store.thread("k"))
    held_thread = store.append(current, consumed=deliveries, fields={"status": "pending"}).head
    assert held_thread.position == 1
    assert [thread.id for thread in store.claim_next()] == [head.id]
    assert store.reap() == []


def test_finds_threads_runs_stitches_and_limits(store: sync.SyncStore) -> None:
    changes = store.changes()
    assert next(changes) == WATCHING
    changes.close()
    head = store.create()
    store.create(parent_id=head.id)
    assert store.threads_by_id([head.id]) == {head.id: head}
    assert store.children_of([head.id]) == store.find_threads(Where("parent_id", "=", head.id))
    assert [len(list(tree.walk())) for tree in store.trees([head]) + store.trees_of([head])] == [2, 2]
    assert (store.find_runs(head.id), store.find_stitches(head.id), store.count_stitches(head.id)) == ([], [], 0)
    assert (store.runs_by_id(head.id, [new_id()]), store.stitches_by_id([head.id], [new_id()])) == ({}, [])
    assert store.stitches_at([(head.id, 1)]) == []
    store.set_limit(Limit(name="one", agents=["a"], at_most=1))
    assert [held_count for _, held_count in store.limits()] == [0]
    assert (store.held_by([new_id()]), store.projects(), store.statistics.daily_of_threads([head.id])) == (
        [],
        ["default"],
        [],
    )
    store.ping()
    store.redact(store.thread(head.id), lambda stitch: stitch)
    assert store.delete_threads([head.id]) == 1


def test_reads_and_writes_tables_and_agent_versions(store: sync.SyncStore) -> None:
    now = datetime.now(UTC)
    memory = Memory(user_id="ada", text="likes tea", created_at=now, updated_at=now)
    store.memories.put(memory)
    assert store.memories.get(memory.id) == memory
    assert list(store.memories.list(user_id="ada")) == [memory]
    table, tea = store.table(Memory), Where("text", "=", "likes tea")
    assert (table.find(tea), table.first(tea), table.count(tea), table.get_or_none(memory.id)) == (
        [memory],
        memory,
        1,
        memory,
    )
    assert store.memories.delete(tea, user_id="ada") == 1
    head = store.create()
    store.files.put(File(thread_id=head.id, file_id="f", filename="a.txt", created_at=now, last_updated_at=now))
    assert store.files.list(thread_id=head.id)[0].filename == "a.txt"
    store.feedback.put(Feedback(thread_id=head.id, name="good", created_at=now, updated_at=now))
    assert store.feedback.list()[0].name == "good"
    first = store.agents.register("default", "helper", {"tools": []})
    assert store.agents.register("default", "helper", {"tools": []}) == first
    assert store.agents.register("default", "helper", {"tools": ["look"]}).version == 2
    assert [version.version for version in store.agents.versions("default", "helper")] == [1, 2]
    assert store.agents.get("default", "helper").version == 2


def test_copies_between_stores_on_different_loops(store: sync.SyncStore, tmp_path: Path) -> None:
    store.import_messages([{"role": "user", "content": "hi"}, {"role": "assistant", "content": "hello"}], key="k")
    values: list[int] = []
    with sync.open_store(f"sqlite:///{tmp_path / 'other.db'}") as other_store:
        assert store.copy_to(other_store, progress=lambda copied: values.append(copied.stitches)).stitches == 2
        assert store.copy_to(other_store, tree="k").total == 0
        assert other_store.context("k") == store.context("k")
        assert other_store.copy_to(store).total == 0
    assert values[-1] == 2


def test_watches_in_one_thread_while_another_appends(store: sync.SyncStore) -> None:
    head = store.create()
    watching = store.watch(head.id)
    values: list[int] = []

    def follow() -> None:
        for stitch in watching:
            values.append(stitch.position)
            if stitch.position == 20:
                return

    reader = threading.Thread(target=follow)
    reader.start()
    for _ in range(20):
        head = store.append(head, [Entry(type="error")]).head
    reader.join(60)
    assert values == list(range(1, 21))
    watching.close()
    assert list(watching) == []
    assert [stitch.position for stitch in _first(store.watch(recent=2), 2)] == [19, 20]


def _first(source: Iterator[Any], number: int) -> list[Any]:
    return [next(source) for _ in range(number)]


def test_appends_from_many_threads(store: sync.SyncStore) -> None:
    """Each thread of the pool appends to its own thread. Then all append to one, and all but one get `Conflict`."""

    def grow(key: str) -> int:
        head = store.create(key=key)
        for _ in range(5):
            head = store.append(head, [Entry(type="error")]).head
        return head.position

    shared = store.create(key="shared")

    def race(_: int) -> bool:
        try:
            store.append(shared, [Entry(type="error")])
        except Conflict:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(grow, [f"k{number}" for number in range(16)])) == [5] * 16
        assert sum(pool.map(race, range(16))) == 1
    assert store.thread("shared").position == 1


def test_uses_the_clock_of_the_caller(store_url: str) -> None:
    clock = FakeClock()
    with sync.open_store(store_url, clock=clock) as store:
        assert store.clock is clock
        assert store.create().created_at == clock.now()


def test_calls_raise_when_store_is_closed(store_url: str) -> None:
    store = sync.open_store(store_url)
    assert store.migrate() >= 1
    head = store.create()
    watching = store.watch(head.id)
    store.close()
    store.close()
    for call in (lambda: store.thread(head.id), lambda: next(watching), lambda: store.memories.list()):
        with pytest.raises(StoreUnreachable, match="closed"):
            call()


def test_closing_ends_the_background_thread(store_url: str) -> None:
    before = set(threading.enumerate())
    with sync.open_store(store_url) as store:
        store.create()
        assert any(thread.name == "lockstitch" for thread in set(threading.enumerate()) - before)
    assert not any(thread.name == "lockstitch" for thread in set(threading.enumerate()) - before)


def test_leaves_no_thread_or_file_when_opening_fails(tmp_path: Path) -> None:
    before = threading.active_count()
    for url in ("nonsense", f"sqlite:///{tmp_path}", "postgresql://127.0.0.1:1/nothing"):
        with pytest.raises((Refused, StoreUnreachable)), sync.open_store(url):
            pass
    with pytest.raises(StoreUnreachable, match="No store found"):
        sync.open_store(f"sqlite:///{tmp_path / 'none.db'}", create=False)
    assert threading.active_count() == before
    assert not (tmp_path / "none.db").exists()


def test_rejects_calls_from_a_callback_of_the_same_store(store: sync.SyncStore, tmp_path: Path) -> None:
    store.create()
    with (
        sync.open_store(f"sqlite:///{tmp_path / 'other.db'}") as other_store,
        pytest.raises(Refused, match="callback"),
    ):
        store.copy_to(other_store, progress=lambda copied: print(store.count()))


# Newer versions of Python warn if a process with threads is forked.
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_calls_raise_in_a_forked_process(store: sync.SyncStore, store_url: str) -> None:
    head = store.create()
    watching = store.watch(head.id)
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        # The child must not return to pytest, which belongs to the parent.
        try:
            messages: list[str] = []
            for call in (lambda: store.thread(head.id), lambda: next(watching)):
                try:
                    call()
                except StoreUnreachable as exc:
                    messages.append(str(exc))
            store.close()
            os.write(writing, "|".join(messages).encode())
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        messages = pipe.read().split("|")
    os.waitpid(child, 0)
    assert len(messages) == 2
    assert all("open it again here" in message for message in messages)
    assert store.thread(head.id) == head, "the parent can still use the store"


INTERRUPTED = """
import sys
from lockstitch import Entry, sync
with sync.open_store(sys.argv[1]) as store:
    head = store.create()
    print("ready", flush=True)
    try:
        for stitch in store.watch(head.id):
            pass
    except KeyboardInterrupt:
        print(store.append(head, [Entry(type="error")]).head.position, flush=True)
        raise
"""


def test_interrupt_ends_the_call_and_not_the_store(store_url: str) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", INTERRUPTED, store_url],
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        time.sleep(0.2)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=30)
        assert out == b"1\n", err
        assert err.splitlines()[-1] == b"KeyboardInterrupt"
        assert process.returncode == -signal.SIGINT


FORGOTTEN = """
import sys
from lockstitch import sync
store = sync.open_store(sys.argv[1])
store.migrate()
watching = store.watch()
store.create(key="kept")
"""


def test_program_exits_without_closing_the_store(store_url: str) -> None:
    command = [sys.executable, "-c", FORGOTTEN, store_url]
    process = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=60, check=True)
    assert process.stderr == ""
    with sync.open_store(store_url) as store:
        assert store.thread("kept")


def test_raises_not_found_for_unknown_ids(store: sync.SyncStore) -> None:
    for call in (store.thread, store.run, store.stitch, store.log, store.messages, store.request):
        with pytest.raises(NotFound):
            call(new_id())
