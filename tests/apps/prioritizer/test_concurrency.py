"""Concurrent changes of sessions and files of one user."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import pytest

from lockstitch.agents import cancel
from lockstitch.agents.providers.scripted import Scripted
from lockstitch.apps.prioritizer import Prioritizer, SessionRunning, repository
from lockstitch.apps.prioritizer.records import Outcome, Session
from lockstitch.apps.prioritizer.retention import EXTENSION, forget
from lockstitch.apps.prioritizer.sessions import reconcile, session_of, sessions
from lockstitch.backend import Commit, Find, Where
from lockstitch.engine.ports.provider import ModelRequest
from lockstitch.errors import NotFound
from lockstitch.model import Archive, FakeClock, Record
from lockstitch.store import Store
from tests.apps.prioritizer.samples import CHECKOUT

pytestmark = pytest.mark.anyio


async def prepare(store: Store) -> Outcome:
    await repository.add_file(store, "ada", CHECKOUT, "plan.md")
    return await repository.add_outcome(store, "ada", "Open the checkout")


@pytest.mark.req("S1-014", "S1-015")
@pytest.mark.parametrize("mode", ["latest", "all"])
async def test_replace_also_ends_a_session_started_since(office: Store, mode: str) -> None:
    """With `sessions="all"` two sessions of one user could otherwise run at the same time."""
    outcome = await prepare(office)
    reached = asyncio.Event()

    async def slow(request: ModelRequest) -> str:
        reached.set()
        await asyncio.sleep(60)
        return "Never."

    app = Prioritizer(model=Scripted(slow), sessions=mode)  # pyright: ignore[reportArgumentType]
    first = await app.start(office, "ada", outcome.id)
    driving = asyncio.create_task(app.run(office, first.thread_id))
    await reached.wait()
    replacing = asyncio.create_task(app.start(office, "ada", outcome.id, replace=True))

    async def eager() -> Session:
        """Start a session as soon as it is possible."""
        while True:
            with suppress(SessionRunning):
                return await app.start(office, "ada", outcome.id)
            await asyncio.sleep(0)

    quick = asyncio.create_task(eager())
    with suppress(SessionRunning):
        await replacing
    quick.cancel()
    # Its connection is in use until the task has ended.
    await asyncio.wait([quick])
    with suppress(NotFound):
        await driving
    found_sessions = await sessions(office, "ada")
    running = [session.thread_id for session in found_sessions if session.status == "running"]
    assert len(running) == 1
    assert [session.thread_id for session in found_sessions if session.is_active] == running


async def test_session_is_not_found_when_replaced_while_read(office: Store) -> None:
    outcome = await prepare(office)
    app = Prioritizer()
    session = await app.start(office, "ada", outcome.id)
    await app.start(office, "ada", outcome.id, replace=True)
    assert await reconcile(office, session) is None


@pytest.mark.req("S1-013", "X1-02")
async def test_lists_sessions_while_they_are_replaced(office: Store) -> None:
    outcome = await prepare(office)
    app = Prioritizer()
    await app.start(office, "ada", outcome.id)

    async def replace() -> None:
        for _ in range(20):
            await app.start(office, "ada", outcome.id, replace=True)

    replacing = asyncio.create_task(replace())
    while not replacing.done():
        assert len(await sessions(office, "ada")) == 1
        await asyncio.sleep(0)
    await replacing


async def test_session_stays_inactive_when_it_expires_concurrently(office: Store) -> None:
    outcome = await prepare(office)
    app = Prioritizer(sessions="all")
    session = await app.prioritize(office, "ada", outcome.id)
    second = await app.prioritize(office, "ada", outcome.id)
    assert await forget(office, EXTENSION, session)
    stored_session = await session_of(office, session.thread_id)
    assert (stored_session.is_active, stored_session.trace_kept) == (False, False)
    assert (await session_of(office, second.thread_id)).is_active


async def test_concurrent_imports_of_one_file_keep_documents_of_each_other(office: Store) -> None:
    await repository.add_file(office, "ada", "# Old\n- [ ] Begin\n# Shop\n- [ ] Sell\n", "plan.md")
    contents = ("# Shop\n- [ ] Buy\n", "# Club\n- [ ] Dance\n")
    read = [await repository.read_file(office, "ada", content, "plan.md") for content in contents]
    for imported in read:
        await office._backend.append(Commit(records=imported.records))
    for imported in reversed(read):
        await repository.drop_stale(office, imported)
    documents = await repository.documents(office, "ada")
    assert {(document.title, document.tasks[0].title) for document in documents} == {("Shop", "Buy"), ("Club", "Dance")}
    await repository.add_file(office, "ada", contents[1], "plan.md")
    assert [document.title for document in await repository.documents(office, "ada")] == ["Club"]


async def test_two_files_stored_at_once_share_no_task_ids(office: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second file is stored after the first one was read and before it is stored."""
    tasks = "- [ ] T1: Build\n- [ ] Sell\n"
    read_file = repository.read_file

    async def overtaken(store: Store, user_id: str, content: bytes | str, name: str) -> repository.Imported:
        imported = await read_file(store, user_id, content, name)
        monkeypatch.setattr(repository, "read_file", read_file)
        await repository.add_file(store, user_id, tasks, "second.md")
        return imported

    monkeypatch.setattr(repository, "read_file", overtaken)
    await repository.add_file(office, "ada", tasks, "first.md")
    documents = await repository.documents(office, "ada")
    ids = [task.id for document in documents for task in document.tasks]
    assert sorted(document.source or "" for document in documents) == ["first.md", "second.md"]
    assert len(ids) == len(set(ids)) == 4
    await repository.add_file(office, "bea", tasks, "first.md")
    (document,) = await repository.documents(office, "bea")
    assert document.tasks[0].id == "T1"


async def test_many_files_stored_at_once_share_no_task_ids(office: Store) -> None:
    tasks = "- [ ] T1: Build\n- [ ] Sell\n"
    await asyncio.gather(*(repository.add_file(office, "ada", tasks, f"{number}.md") for number in range(5)))
    ids = [task.id for document in await repository.documents(office, "ada") for task in document.tasks]
    assert len(ids) == len(set(ids)) == 10


@pytest.mark.req("S1-013")
async def test_daily_metrics_include_sessions_replaced_concurrently(
    office: Store,
) -> None:
    app = Prioritizer(model=Scripted({"replies": [[{"text": "Later.", "usage": {"input_tokens": 7}}]] * 5}))
    outcomes: dict[str, Outcome] = {}
    for user in ("ada", "bea", "cyd", "dan", "eve"):
        await repository.add_file(office, user, CHECKOUT, "plan.md")
        outcomes[user] = await repository.add_outcome(office, user, "Open the checkout")
        await app.prioritize(office, user, outcomes[user].id)
    before = (await office.statistics.usage()).total
    assert (before.runs, before.input_tokens) == (5, 35)
    await asyncio.gather(*(app.start(office, user, outcome.id) for user, outcome in outcomes.items()))
    assert (await office.statistics.usage()).total == before


async def test_starts_session_when_an_expiring_session_is_deleted(timed_office: Store, clock: FakeClock) -> None:
    """The user replaces the session at the same time."""
    outcome = await prepare(timed_office)
    app = Prioritizer()
    expired = await app.prioritize(timed_office, "ada", outcome.id)
    clock.advance(8 * 86_400)
    await repository.add_file(timed_office, "bea", CHECKOUT, "plan.md")
    other_outcome = await repository.add_outcome(timed_office, "bea", "Open the checkout")
    backend = timed_office._backend
    inner = backend.append

    async def append(commit: Commit) -> Any:
        if any(isinstance(record, Archive) for record in commit.records):
            await timed_office.delete(expired.thread_id)
        return await inner(commit)

    setattr(backend, "append", append)  # noqa: B010
    assert (await app.start(timed_office, "bea", other_outcome.id)).status == "running"
    assert [session.user_id for session in await sessions(timed_office)] == ["bea"]


async def test_reads_session_as_inactive_when_deactivated_concurrently(office: Store) -> None:
    outcome = await prepare(office)
    app = Prioritizer(sessions="all")
    first = await app.start(office, "ada", outcome.id)
    await cancel(office, first.thread_id)
    # A process without the plugin ended the thread, so the row is not updated.
    await office._backend.delete(Find(Session, (Where("thread_id", "=", first.thread_id),)))
    await office._backend.put([first])
    backend = office._backend
    inner, started = backend.put, list[Session]()

    async def put(records: Sequence[Record], **more: Any) -> None:
        if isinstance(records[0], Session) and not started:
            started.append(first)
            started[:] = [await app.start(office, "ada", outcome.id)]
        await inner(records, **more)

    setattr(backend, "put", put)  # noqa: B010
    session = await session_of(office, first.thread_id)
    assert (session.status, session.is_active) == ("failed", False)
    assert [session.thread_id for session in await sessions(office) if session.is_active] == [started[0].thread_id]
