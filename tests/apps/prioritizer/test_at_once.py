"""What several do at once to one user's sessions and files."""

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
from lockstitch.apps.prioritizer.sessions import session_of, sessions, settled
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
async def test_who_replaces_a_session_ends_the_one_too_that_began_as_soon_as_that_had_ended(
    office: Store, mode: str
) -> None:
    """Where old sessions are kept, two of one user would run side by side."""
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
        """Begins one in the moment in which it may."""
        while True:
            with suppress(SessionRunning):
                return await app.start(office, "ada", outcome.id)
            await asyncio.sleep(0)

    quick = asyncio.create_task(eager())
    with suppress(SessionRunning):
        await replacing
    quick.cancel()
    with suppress(NotFound):
        await driving
    found = await sessions(office, "ada")
    running = [one.thread_id for one in found if one.status == "running"]
    assert len(running) == 1
    assert [one.thread_id for one in found if one.is_active] == running


async def test_a_session_that_was_replaced_while_it_was_looked_at_is_gone(office: Store) -> None:
    outcome = await prepare(office)
    app = Prioritizer()
    seen = await app.start(office, "ada", outcome.id)
    await app.start(office, "ada", outcome.id, replace=True)
    assert await settled(office, seen) is None


async def test_sessions_are_listed_while_they_are_replaced(office: Store) -> None:
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


async def test_what_expires_while_it_is_put_aside_stays_aside(office: Store) -> None:
    outcome = await prepare(office)
    app = Prioritizer(sessions="all")
    seen = await app.prioritize(office, "ada", outcome.id)
    second = await app.prioritize(office, "ada", outcome.id)
    assert await forget(office, EXTENSION, seen)
    kept = await session_of(office, seen.thread_id)
    assert (kept.is_active, kept.trace_kept) == (False, False)
    assert (await session_of(office, second.thread_id)).is_active


async def test_of_two_who_keep_a_file_of_one_name_at_once_neither_removes_what_the_other_wrote(office: Store) -> None:
    await repository.add_file(office, "ada", "# Old\n- [ ] Begin\n# Shop\n- [ ] Sell\n", "plan.md")
    contents = ("# Shop\n- [ ] Buy\n", "# Club\n- [ ] Dance\n")
    read = [await repository.read_file(office, "ada", content, "plan.md") for content in contents]
    for made in read:
        await office._backend.append(Commit(records=made.records))
    for made in reversed(read):
        await repository.drop_stale(office, made)
    kept = await repository.documents(office, "ada")
    assert {(one.title, one.tasks[0].title) for one in kept} == {("Shop", "Buy"), ("Club", "Dance")}
    await repository.add_file(office, "ada", contents[1], "plan.md")
    assert [one.title for one in await repository.documents(office, "ada")] == ["Club"]


@pytest.mark.req("S1-013")
async def test_what_replaced_sessions_took_stays_in_the_figures_however_many_are_replaced_at_once(
    office: Store,
) -> None:
    app = Prioritizer(model=Scripted({"replies": [[{"text": "Later.", "usage": {"input_tokens": 7}}]] * 5}))
    wanted: dict[str, Outcome] = {}
    for user in ("ada", "bea", "cyd", "dan", "eve"):
        await repository.add_file(office, user, CHECKOUT, "plan.md")
        wanted[user] = await repository.add_outcome(office, user, "Open the checkout")
        await app.prioritize(office, user, wanted[user].id)
    before = (await office.statistics.usage()).total
    assert (before.runs, before.input_tokens) == (5, 35)
    await asyncio.gather(*(app.start(office, user, outcome.id) for user, outcome in wanted.items()))
    assert (await office.statistics.usage()).total == before


async def test_who_begins_a_session_is_not_held_up_by_one_that_goes_while_it_expires(
    timed_office: Store, clock: FakeClock
) -> None:
    """As when its own user replaces it at that moment."""
    outcome = await prepare(timed_office)
    app = Prioritizer()
    expired = await app.prioritize(timed_office, "ada", outcome.id)
    clock.advance(8 * 86_400)
    await repository.add_file(timed_office, "bea", CHECKOUT, "plan.md")
    other = await repository.add_outcome(timed_office, "bea", "Open the checkout")
    backend = timed_office._backend
    inner = backend.put

    async def put(records: Sequence[Record], **more: Any) -> None:
        if isinstance(records[0], Archive):
            await timed_office.delete(expired.thread_id)
        await inner(records, **more)

    setattr(backend, "put", put)  # noqa: B010
    assert (await app.start(timed_office, "bea", other.id)).status == "running"
    assert [one.user_id for one in await sessions(timed_office)] == ["bea"]


async def test_whoever_looks_at_a_session_that_is_put_aside_meanwhile_sees_it_so(office: Store) -> None:
    outcome = await prepare(office)
    app = Prioritizer(sessions="all")
    first = await app.start(office, "ada", outcome.id)
    await cancel(office, first.thread_id)
    # As one who had no code of the prioritiser would have ended it: its row does not know yet.
    await office._backend.delete(Find(Session, (Where("thread_id", "=", first.thread_id),)))
    await office._backend.put([first])
    backend = office._backend
    inner, begun = backend.put, list[Session]()

    async def put(records: Sequence[Record], **more: Any) -> None:
        if isinstance(records[0], Session) and not begun:
            begun.append(first)
            begun[:] = [await app.start(office, "ada", outcome.id)]
        await inner(records, **more)

    setattr(backend, "put", put)  # noqa: B010
    seen = await session_of(office, first.thread_id)
    assert (seen.status, seen.is_active) == ("failed", False)
    assert [one.thread_id for one in await sessions(office) if one.is_active] == [begun[0].thread_id]
