"""Constraints of the database on sessions, outcomes, documents and relationships, with plain SQL."""

import asyncio
import json
import sqlite3
from contextlib import closing
from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

import psycopg
import psycopg.errors
import pytest

from lockstitch.apps.prioritizer import repository
from lockstitch.apps.prioritizer.records import Document, Session, TaskRelationship
from lockstitch.apps.prioritizer.retention import EXTENSION
from lockstitch.backend import Find
from lockstitch.errors import Refused
from lockstitch.store import Store, open_store
from tests.apps.prioritizer.conftest import Direct
from tests.apps.prioritizer.samples import CHECKOUT, plan

pytestmark = pytest.mark.anyio

PLAN = json.dumps(plan())


async def row(store: Store, direct: Direct, user: str = "ada", **changes: str) -> UUID:
    """Insert a session with SQL literals. Return the id of its thread."""
    outcome = await repository.add_outcome(store, user, "Open the shop")
    thread = await store.create(agent="prioritizer")
    values = {
        "thread_id": f"'{thread.id}'",
        "user_id": f"'{user}'",
        "outcome_id": f"'{outcome.id}'",
        "status": "'running'",
        "trace_expires_at": "'2030-01-01T00:00:00.000000Z'",
        **changes,
    }
    names, literals = ", ".join(values), ", ".join(values.values())
    await direct(f"INSERT INTO prioritizer_sessions ({names}) VALUES ({literals})")
    return thread.id


async def refused(store: Store, direct: Direct, user: str = "bea", **changes: str) -> None:
    with pytest.raises(Refused):
        await row(store, direct, user, **changes)


async def of(direct: Direct, column: str, thread_id: UUID) -> object:
    return (await direct(f"SELECT {column} FROM prioritizer_sessions WHERE thread_id = '{thread_id}'"))[0][0]


@pytest.mark.req("S1-001", "S1-005", "S1-007", "S1-008")
async def test_session_is_readable_with_sql(office: Store, direct: Direct) -> None:
    before = datetime.now(UTC) - timedelta(seconds=1)
    id = await row(office, direct)
    after = datetime.now(UTC) + timedelta(seconds=1)
    (session,) = await office._backend.find(Find(Session))
    assert (session.thread_id, session.plan, session.metadata, session.is_active) == (id, None, {}, True)
    assert before < session.created_at < after, "the default is the time of the insert"
    assert before < session.updated_at < after
    shown = await office.sql("SELECT id, prioritized_plan, execution_metadata FROM agent_sessions", lens="reasoning")
    ((shown_id, plan, metadata),) = shown.rows
    assert (UUID(str(shown_id)), plan) == (id, None)
    assert metadata in ({}, "{}")
    for key in (f"'{id}'", "NULL"):
        await refused(office, direct, thread_id=key)
    for column in ("created_at", "updated_at", "metadata"):
        await refused(office, direct, **{column: "NULL"})
    await direct("UPDATE prioritizer_sessions SET updated_at = '2020-01-01T00:00:00.000000Z'")
    await direct("UPDATE prioritizer_sessions SET steps_taken = 1")
    assert (await office._backend.find(Find(Session)))[0].updated_at > session.created_at, "refreshed by the database"


@pytest.mark.req("S1-002", "S1-015", "S1-078", "X1-03", "X1-21")
async def test_one_active_session_per_user(office: Store, direct: Direct) -> None:
    first = await row(office, direct)
    await refused(office, direct, "ada")
    await row(office, direct, "bea")
    await direct(f"UPDATE prioritizer_sessions SET is_active = false WHERE thread_id = '{first}'")
    await row(office, direct, "ada")
    await refused(office, direct, user_id="NULL")
    named = [await row(office, direct, user) for user in ("default-user", str(uuid4()))]
    assert len(set(named)) == 2, "a user id is a text, also the text of a UUID"


@pytest.mark.req("S1-003", "S1-012", "S1-078", "X1-15")
async def test_session_is_deleted_with_its_outcome_or_thread(office: Store, direct: Direct) -> None:
    await refused(office, direct, outcome_id="NULL")
    await refused(office, direct, outcome_id=f"'{uuid4()}'")
    await refused(office, direct, thread_id=f"'{uuid4()}'")
    by_thread, by_outcome = await row(office, direct), await row(office, direct, "bea")
    outcome = await of(direct, "outcome_id", by_outcome)
    another = await row(office, direct, "cyd", outcome_id=f"'{outcome}'")
    assert await of(direct, "outcome_id", another) == outcome, "many sessions of one outcome"
    await direct(f"DELETE FROM threads WHERE id = '{by_thread}'")
    left = {session.thread_id for session in await office._backend.find(Find(Session))}
    assert left == {by_outcome, another}
    await direct("DELETE FROM user_outcomes")
    assert await office._backend.find(Find(Session)) == []


@pytest.mark.req("S1-004", "S1-006", "S1-011", "S1-078", "X1-04")
async def test_database_rejects_invalid_statuses_and_plans(office: Store, direct: Direct) -> None:
    for status in ("'pending'", "'cancelled'", "''", "NULL"):
        await refused(office, direct, status=status)
    await refused(office, direct, status="'completed'")
    for status in ("'running'", "'failed'"):
        await refused(office, direct, status=status, plan=f"'{PLAN}'")
    failed = await row(office, direct, "cyd", status="'failed'")
    with pytest.raises(Refused):
        await direct(f"UPDATE prioritizer_sessions SET plan = '{PLAN}' WHERE thread_id = '{failed}'")
    assert await row(office, direct, "bea", status="'completed'", plan=f"'{PLAN}'")


@pytest.mark.req("S1-023", "S1-024", "S1-078", "X1-14")
async def test_database_rejects_invalid_counts_and_durations(office: Store, direct: Direct) -> None:
    for steps in ("-1", "11", "NULL"):
        await refused(office, direct, steps_taken=steps)
    for name in ("total_time_ms", "thinking_time_ms", "tool_execution_time_ms"):
        await refused(office, direct, metadata=f"""'{{"{name}": -1}}'""")
    metadata = """'{"steps_taken": 3}'"""
    for steps in ("0", "2", "4"):
        await refused(office, direct, metadata=metadata, steps_taken=steps)
    await refused(office, direct, status="'completed'")
    session = await row(office, direct, "bea", metadata=metadata, steps_taken="3")
    assert await of(direct, "steps_taken", session) == 3
    with pytest.raises(Refused):
        await direct(f"UPDATE prioritizer_sessions SET steps_taken = 4 WHERE thread_id = '{session}'")
    for steps in ("0", "10"):
        assert await row(office, direct, f"user-{steps}", steps_taken=steps)


@pytest.mark.req("S1-010", "X1-17")
async def test_ended_session_cannot_change(office: Store, direct: Direct) -> None:
    async def become(id: UUID, status: str, plan: str = "NULL") -> None:
        statement = f"UPDATE prioritizer_sessions SET status = '{status}', plan = {plan} WHERE thread_id = '{id}'"
        await direct(statement)

    done, failed = await row(office, direct), await row(office, direct, "bea")
    await become(done, "completed", f"'{PLAN}'")
    await become(failed, "failed")
    for id, status, literal in (
        (done, "running", "NULL"),
        (done, "failed", "NULL"),
        (failed, "running", "NULL"),
        (failed, "completed", f"'{PLAN}'"),
    ):
        with pytest.raises(Refused):
            await become(id, status, literal)
    assert (await of(direct, "status", done), await of(direct, "status", failed)) == ("completed", "failed")
    (session,) = [session for session in await office._backend.find(Find(Session)) if session.thread_id == failed]
    with pytest.raises(Refused):
        await office._backend.put([session.changed(status="running")])


@pytest.mark.req("S1-009", "S1-027", "X1-01")
async def test_finds_sessions_by_index(office: Store, direct: Direct, store_url: str, backend: str) -> None:
    """Find sessions by id, user, time and expiry of the reasoning."""
    plans: list[str] = []
    for where in (
        f"thread_id = '{uuid4()}'",
        "project = 'default' AND user_id = 'ada' AND is_active",
        "project = 'default' AND user_id = 'ada' AND created_at < '2026-01-01T00:00:00.000000Z'",
        "created_at < '2026-01-01T00:00:00.000000Z'",
        "trace_kept AND trace_expires_at <= '2026-01-01T00:00:00.000000Z'",
    ):
        query = f"SELECT * FROM prioritizer_sessions WHERE {where}"
        if backend == "sqlite":
            plans.append(str(await direct(f"EXPLAIN QUERY PLAN {query}")))
            assert "SEARCH" in plans[-1], plans[-1]
        else:
            # PostgreSQL scans such a small table unless it has to use an index.
            async with await psycopg.AsyncConnection.connect(store_url) as connection:
                await connection.execute("SET search_path TO lockstitch")
                await connection.execute("SET enable_seqscan TO off")
                # An earlier test may have vacuumed the table. If its size is known, any of its indexes will do.
                await connection.execute("TRUNCATE prioritizer_sessions")
                rows = await (await connection.execute(f"EXPLAIN {query}".encode())).fetchall()
            plans.append(str(rows))
            assert "Seq Scan" not in plans[-1], plans[-1]
    assert "prioritizer_sessions_active" in plans[1]
    assert "prioritizer_sessions_created" in plans[3], "an index on created_at without a condition"
    assert "prioritizer_sessions_expiring" in plans[4]
    trace = f"SELECT * FROM reasoning_traces WHERE session_id = '{uuid4()}'"
    if backend == "sqlite":
        async with office.lens("reasoning") as connection:
            steps = [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {trace}").fetchall()]
        tables = ("r", "t", "p", "s", "l", "a", "run_rows", "stitch_rows", "threads", "prioritizer_sessions")
        assert [step for step in steps if step.startswith(tuple(f"SCAN {table} " for table in tables))] == [], steps
        assert any("SEARCH" in step for step in steps)
    else:
        async with await psycopg.AsyncConnection.connect(store_url) as connection:
            await connection.execute("SET search_path TO reasoning")
            await connection.execute("SET enable_seqscan TO off")
            rows = await (await connection.execute(f"EXPLAIN {trace}".encode())).fetchall()
        assert "Seq Scan" not in str(rows), rows


@pytest.mark.req("S1-016", "S1-018")
async def test_migrations_are_ordered_and_repeatable(backend: str, request: pytest.FixtureRequest) -> None:
    numbers = {
        dialect: [(number, name) for number, name, _ in EXTENSION.migrations(dialect)]
        for dialect in ("sqlite", "postgres")
    }
    assert numbers["sqlite"] == numbers["postgres"] == [(1, "0001_outcomes"), (2, "0002_sessions")]
    # A new database, not a copy of the template.
    folder = request.getfixturevalue("tmp_path")
    url = request.getfixturevalue("postgres_url") if backend == "postgres" else f"sqlite:///{folder / 'new.db'}"
    async with open_store(url) as store:
        first, second = [text for _, _, text in EXTENSION.migrations(backend)]
        assert not await applies(url, second), "sessions need the outcomes of the first migration"
        assert await applies(url, f"{first}\n{second}"), "rolled back"
        await asyncio.gather(*(store.extend(EXTENSION) for _ in range(3)))
        assert await store._backend.find(Find(Session)) == []
        outcome = await repository.add_outcome(store, "ada", "Open the shop")
    async with open_store(url) as store:
        await store.extend(EXTENSION)
        assert await repository.outcomes(store) == [outcome], "a second time keeps the rows"


async def applies(url: str, script: str) -> bool:
    """True if the database accepts the script. Its changes are rolled back."""
    if url.startswith("sqlite"):
        with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as connection:
            connection.executescript(f"PRAGMA foreign_keys = ON; BEGIN; {script}")
            try:
                connection.execute(
                    "INSERT INTO prioritizer_sessions (thread_id, user_id, outcome_id) VALUES (1, 'a', 1)"
                )
            except sqlite3.IntegrityError:
                return True
            except sqlite3.OperationalError:
                return False
            return True
    async with await psycopg.AsyncConnection.connect(url) as connection:
        try:
            await connection.execute(f"SET search_path TO lockstitch; {script}".encode())
        except psycopg.errors.UndefinedTable:
            return False
        finally:
            await connection.rollback()
        return True


@pytest.mark.req("S1-084", "S1-085")
async def test_stores_documents_and_relationships(office: Store, direct: Direct) -> None:
    imported = await repository.add_file(office, "ada", CHECKOUT, "plan.md")
    assert [document.title for document in imported.documents] == ["Checkout brief", "Legal review"]
    documents = await office._backend.find(Find(Document, order=("created_at", "title")))
    assert [task["id"] for task in documents[0].structured_output["tasks"]] == ["T4", "T1", "T2", "T5"]
    assert len(await office._backend.find(Find(TaskRelationship))) == 4
    for wrong in ("{}", '{"tasks": 3}'):
        with pytest.raises(Refused):
            await direct(f"UPDATE processed_documents SET structured_output = '{wrong}'")
    for source, target, kind, confidence, detection in (
        ("a", "a", "related", 1, "manual"),
        ("a", "b", "follows", 1, "manual"),
        ("a", "b", "related", 1.1, "manual"),
        ("a", "b", "related", -0.1, "manual"),
        ("a", "b", "related", 1, "guess"),
        ("T2", "T4", "prerequisite", 1, "manual"),
    ):
        with pytest.raises(Refused):
            await direct(
                "INSERT INTO task_relationships (user_id, source_task_id, target_task_id, relationship_type, "
                f"confidence, detection) VALUES ('ada', '{source}', '{target}', '{kind}', {confidence}, '{detection}')"
            )
    await direct("UPDATE task_relationships SET updated_at = '2020-01-01T00:00:00.000000Z'")
    await direct("UPDATE task_relationships SET detection = 'ai' WHERE source_task_id = 'T2'")
    touched = [
        relationship
        for relationship in await office._backend.find(Find(TaskRelationship))
        if relationship.detection == "ai"
    ]
    assert [relationship.updated_at.year > 2020 for relationship in touched] == [True]


@pytest.mark.req("S1-084")
async def test_importing_a_file_again_replaces_it(office: Store) -> None:
    await repository.add_file(office, "ada", CHECKOUT, "plan.md")
    await repository.add_file(office, "bea", CHECKOUT, "plan.md")
    await repository.add_file(office, "ada", "# Checkout brief\n- [ ] T4: Choose\n- [ ] Go (after: T4)", "plan.md")
    documents = await repository.documents(office, "ada")
    assert [(document.title, [task.id for task in document.tasks]) for document in documents] == [
        ("Checkout brief", ["T4", "go"])
    ]
    relationships = await office._backend.find(Find(TaskRelationship))
    assert [relationship.source_task_id for relationship in relationships if relationship.user_id == "ada"] == ["go"]
    assert len([relationship for relationship in relationships if relationship.user_id == "bea"]) == 4, (
        "records of another user stay"
    )
    before = await repository.documents(office)
    with pytest.raises(Refused):
        await repository.add_file(office, "ada", "- [ ] Go (after: nothing)", "plan.md")
    assert await repository.documents(office) == before
    await repository.remove_document(office, documents[0].id)
    assert [relationship.user_id for relationship in await office._backend.find(Find(TaskRelationship))] == ["bea"] * 4


async def test_records_of_other_users_and_projects_are_separate(office: Store) -> None:
    """Ids of other documents are not used again. Another project sees nothing."""
    await repository.add_file(office, "ada", "- [ ] T1: Paint\n- [ ] Sand", "a.md")
    await repository.add_file(office, "ada", "- [ ] T1: Print\n- [ ] Sand (after: T1)", "b.md")
    ids = [task.id for document in await repository.documents(office, "ada") for task in document.tasks]
    assert ids == ["T1", "sand", "T1@b", "sand-2"]
    relationship = await repository.add_relationship(office, "ada", "T1@b", "T1", "prerequisite", 0.7)
    assert relationship.detection == "manual"
    with pytest.raises(Refused):
        await repository.add_relationship(office, "ada", "T1", "T1", "prerequisite")
    other_store = office.in_project("other")
    assert await repository.documents(other_store) == await repository.outcomes(other_store) == []
