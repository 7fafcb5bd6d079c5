"""Retention of reasoning: it expires, then its text is removed."""

from datetime import timedelta
from typing import Any

import pytest

from lockstitch.apps.prioritizer import Prioritizer, repository
from lockstitch.apps.prioritizer.records import Outcome, Session
from lockstitch.apps.prioritizer.sessions import session_of, sessions, trace_of
from lockstitch.backend import Find
from lockstitch.errors import NotFound, Refused
from lockstitch.model import FakeClock, Stitch
from lockstitch.store import Store
from tests.apps.prioritizer.conftest import Direct
from tests.apps.prioritizer.samples import CHECKOUT

pytestmark = pytest.mark.anyio

DAY = 86_400.0


async def prepare(store: Store, user: str = "ada") -> Outcome:
    await repository.add_file(store, user, CHECKOUT, "plan.md")
    return await repository.add_outcome(store, user, "Open the checkout")


async def stitches(store: Store, session: Session) -> list[Stitch]:
    return await store._backend.read(session.thread_id, [(1, None)])


async def count(store: Store, query: str, lens: str) -> Any:
    return (await store.sql(query, lens=lens)).rows[0][0]


@pytest.mark.req("S1-029", "S1-030", "S1-031", "X1-09")
async def test_trace_expires(timed_office: Store, clock: FakeClock) -> None:
    outcome = await prepare(timed_office)
    session = await Prioritizer().prioritize(timed_office, "ada", outcome.id)
    assert session.trace_expires_at - session.created_at == timedelta(days=7)
    clock.advance(7 * DAY - 3_600)
    assert (await trace_of(timed_office, session)).total_steps == 5
    clock.advance(3_600)
    with pytest.raises(NotFound, match="expired at"):
        await trace_of(timed_office, session)
    assert await stitches(timed_office, session), "not deleted yet, but hidden"
    await timed_office.purge()
    assert await stitches(timed_office, session) == []
    stored_session = await session_of(timed_office, session.thread_id)
    assert (stored_session.plan, stored_session.metadata, stored_session.trace_kept) == (
        session.plan,
        session.metadata,
        False,
    )
    with pytest.raises(NotFound):
        await trace_of(timed_office, stored_session)
    assert (await timed_office.verify()).problems == []
    log = await timed_office.stitches(session.thread_id)
    assert [stitch.type for stitch in log].count("tool_call") == 5, "the calls stay"
    text = str([stitch.message for stitch in log if stitch.type != "input"])
    assert "Which tasks are similar" not in text
    assert "provider" not in text
    await timed_office.purge()


@pytest.mark.req("S1-029", "S1-031", "X1-09")
async def test_next_session_removes_expired_reasoning(timed_office: Store, clock: FakeClock) -> None:
    outcome, other_outcome = await prepare(timed_office), await prepare(timed_office, "bea")
    old = await Prioritizer(trace_days=0.5).prioritize(timed_office, "ada", outcome.id)
    clock.advance(0.4 * DAY)
    young = await Prioritizer(trace_days=0.5).prioritize(timed_office, "bea", other_outcome.id)
    clock.advance(0.2 * DAY)
    third = await prepare(timed_office, "cyd")
    await Prioritizer().start(timed_office, "cyd", third.id)
    assert await stitches(timed_office, old) == []
    assert await stitches(timed_office, young)
    for days in (0, -1):
        with pytest.raises(Refused):
            Prioritizer(trace_days=days)


@pytest.mark.req("S1-029", "X1-09")
async def test_thread_with_later_expiry_keeps_reasoning(timed_office: Store, clock: FakeClock) -> None:
    outcome = await prepare(timed_office)
    session = await Prioritizer().prioritize(timed_office, "ada", outcome.id)
    await timed_office.edit(session.thread_id, expires_at=clock.now() + timedelta(days=30))
    clock.advance(8 * DAY)
    await timed_office.purge()
    assert await stitches(timed_office, session)
    with pytest.raises(NotFound):
        await trace_of(timed_office, session)
    clock.advance(23 * DAY)
    await timed_office.purge()
    assert await sessions(timed_office) == [], "the thread has expired"


@pytest.mark.req("X1-07")
async def test_session_older_than_the_retention_is_accepted_and_purged(office: Store, direct: Direct) -> None:
    """Age is no reason to reject a row, for example one that is copied from another database."""
    outcome = await prepare(office)
    session = await Prioritizer().prioritize(office, "ada", outcome.id)
    await direct("DELETE FROM prioritizer_sessions")
    old = session.changed(
        created_at=session.created_at - timedelta(days=400), trace_expires_at=session.created_at - timedelta(days=393)
    )
    await office._backend.put([old])
    assert (await session_of(office, old.thread_id)).plan == session.plan
    with pytest.raises(NotFound, match="expired at"):
        await trace_of(office, old)
    assert await stitches(office, old)
    await office.purge()
    assert await stitches(office, old) == []
    assert (await session_of(office, old.thread_id)).plan == session.plan


@pytest.mark.req("S1-030")
async def test_expiry_keeps_sums_of_other_lenses(office: Store, direct: Direct) -> None:
    """The lens uses the clock of the database."""
    outcome = await prepare(office)
    session = await Prioritizer().prioritize(office, "ada", outcome.id)
    usage = await office.statistics.usage("agent")
    assert await count(office, "SELECT count(*) FROM reasoning_traces", "reasoning") == 1
    await direct("UPDATE prioritizer_sessions SET trace_expires_at = '2020-01-01T00:00:00.000000Z'")
    assert await count(office, "SELECT count(*) FROM reasoning_traces", "reasoning") == 0
    assert await count(office, "SELECT count(*) FROM agent_sessions", "reasoning") == 1
    await office.purge()
    assert await stitches(office, session) == []
    assert await office.statistics.usage("agent") == usage
    for lens, query in (
        ("three_table", "SELECT count(*) FROM conversation_history"),
        ("langsmith", "SELECT count(*) FROM agent_runs"),
        ("agentic_threads", "SELECT count(*) FROM threads"),
        ("agno", "SELECT count(*) FROM agno_sessions"),
    ):
        assert await count(office, query, lens) == 1, lens
    assert (await office.history(session.thread_id)).turns[0].run.status == "completed"


@pytest.mark.req("S1-094", "S1-013", "X1-02")
async def test_expiry_adds_no_write_to_an_insert(timed_office: Store, clock: FakeClock) -> None:
    """Starting a session needs one commit and an index lookup. Expired reasoning is removed afterwards."""
    outcome = await prepare(timed_office)
    await Prioritizer().prioritize(timed_office, "ada", outcome.id)
    other_outcome = await prepare(timed_office, "bea")
    written: list[str] = []
    backend = timed_office._backend
    for verb in ("append", "put", "delete"):
        inner = getattr(backend, verb)

        async def noted(*arguments: Any, verb: str = verb, inner: Any = inner, **more: Any) -> Any:
            written.append(verb)
            return await inner(*arguments, **more)

        setattr(backend, verb, noted)
    app = Prioritizer()
    await app.agent.start(store=timed_office, goal="Make its version known first.")
    written.clear()
    await app.start(timed_office, "bea", other_outcome.id)
    assert written == ["append"]
    written.clear()
    second = await app.start(timed_office, "ada", outcome.id)
    assert written == ["append"], "the replaced session is deleted in the same commit"
    await app.run(timed_office, second.thread_id)
    clock.advance(8 * DAY)
    third = await prepare(timed_office, "cyd")
    written.clear()
    await app.start(timed_office, "cyd", third.id)
    assert written == ["append", "append"], "the second commit removes the expired reasoning"


async def test_purge_of_user_deletes_their_records(office: Store) -> None:
    outcome = await prepare(office)
    await Prioritizer().prioritize(office, "ada", outcome.id)
    await prepare(office, "bea")
    await office.purge(user_id="ada")
    assert await office._backend.find(Find(Session)) == []
    assert {document.user_id for document in await repository.documents(office)} == {"bea"}
    assert {outcome.user_id for outcome in await repository.outcomes(office)} == {"bea"}
