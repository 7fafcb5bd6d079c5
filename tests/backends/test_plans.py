"""The queries of lists, pages and logs use an index of the core, for any number of rows."""

import asyncio
import re
import sqlite3
from collections.abc import Callable, Iterator
from typing import Any
from uuid import UUID

import psycopg
import pytest

from lockstitch.backend import Find, Where
from lockstitch.backends.postgres.connection import bind
from lockstitch.backends.postgres.dialect import dialect as postgres_dialect
from lockstitch.backends.sql import reports
from lockstitch.backends.sql.dialect import Dialect
from lockstitch.backends.sql.operations import choosing, seconds_until_ready
from lockstitch.backends.sql.queries import Statement
from lockstitch.backends.sql.totals import SettledDays
from lockstitch.backends.sqlite.dialect import dialect as sqlite_dialect
from lockstitch.model import ERROR_TYPES, TERMINAL_STATUSES, Limit, Run, Stitch, SystemClock, Thread
from lockstitch.model.statistics import StatsFilter
from lockstitch.model.worker import ClaimRequest
from lockstitch.store import open_store
from lockstitch.store.queries.log import FAILED_SPAN
from tests.servers import PostgresServer

ROWS = 100_000
ONE = UUID("01890000-0000-7000-8000-000000000001")
NOW = "2026-01-01T00:00:00.000000Z"

Explain = Callable[[Find[Any]], str]
ExplainSql = Callable[[Statement], str]

DIALECTS = {"sqlite": sqlite_dialect, "postgres": postgres_dialect}


def fill_sqlite(path: str) -> None:
    with sqlite3.connect(path) as connection:
        connection.executescript(
            f"""
            WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {ROWS // 10})
            INSERT INTO threads (no, id, project, kind, status, depth, tasks, waiting_for, state, settings, extras,
                position, context_from, first_position, last_sequence, last_turn, total_runs, fence, delivered,
                pending_children, cancel_requested, wake_at, priority, crashes, created_at, updated_at)
            SELECT i, printf('01890000-0000-7000-8000-%012d', i), 'default', 'chat',
                iif(i % 2, 'waiting', 'pending'), 0, '[]', '[]', '{{}}', '{{}}', '{{}}', 10, 0, 1, 1, 1, 1, 0, 0, 0, 0,
                iif(i % 2, NULL, '{NOW}'), 0, 0, '{NOW}', '{NOW}' FROM n;
            INSERT INTO run_rows (no, id, thread_no, sequence, turn, role, status, first_position, state, input_tokens,
                output_tokens, cache_read_tokens, cache_write_tokens, cost, steps, tags, metadata, extras, source,
                started_at)
            SELECT no, id, no, 1, 1, 'agent', 'completed', 1, '{{}}', 0, 0, 0, 0, '{{}}', 1, '[]', '{{}}', '{{}}',
                'native', '{NOW}' FROM threads;
            INSERT INTO stitch_rows (thread_no, position, id, run_no, fence, type, data, at)
            SELECT t.no, p.value, printf('01890000-0000-7000-9%03d-%012d', p.value, t.no), t.no, 0, 'span', '{{}}',
                '{NOW}' FROM threads t, json_each('[1,2,3,4,5,6,7,8,9,10]') p;
            ANALYZE;
            """
        )


def fill_postgres(url: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        for statement in (
            f"""INSERT INTO lockstitch.threads (id, project, kind, status, depth, tasks, waiting_for, state, settings,
                extras, position, context_from, first_position, last_sequence, last_turn, total_runs, fence, delivered,
                pending_children, cancel_requested, wake_at, priority, crashes, created_at, updated_at)
            SELECT ('01890000-0000-7000-8000-' || lpad(i::text, 12, '0'))::uuid, 'default', 'chat',
                CASE i % 2 WHEN 0 THEN 'pending' ELSE 'waiting' END, 0, '[]', '[]', '{{}}', '{{}}', '{{}}', 10, 0, 1, 1,
                1, 1, 0, 0, 0, false, CASE i % 2 WHEN 0 THEN '{NOW}'::timestamptz END, 0, 0, '{NOW}', '{NOW}'
            FROM generate_series(1, {ROWS // 10}) i""",
            f"""INSERT INTO lockstitch.runs (id, thread_id, sequence, turn, role, status, first_position, state,
                input_tokens, output_tokens, cache_read_tokens, cache_write_tokens, cost, steps, tags, metadata, extras,
                source, started_at)
            SELECT id, id, 1, 1, 'agent', 'completed', 1, '{{}}', 0, 0, 0, 0, '{{}}', 1, '[]', '{{}}', '{{}}', 'native',
                '{NOW}' FROM lockstitch.threads""",
            f"""INSERT INTO lockstitch.stitches (thread_id, position, id, run_id, fence, type, data, at)
            SELECT id, p, gen_random_uuid(), id, 0, 'span', '{{}}', '{NOW}'
            FROM lockstitch.threads, generate_series(1, 10) p""",
            "ANALYZE lockstitch.threads",
            "ANALYZE lockstitch.runs",
            "ANALYZE lockstitch.stitches",
        ):
            connection.execute(statement)


@pytest.fixture(scope="module")
def sqlite_explain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ExplainSql]:
    path = str(tmp_path_factory.mktemp("plans") / "store.db")

    async def make() -> None:
        async with open_store(f"sqlite:///{path}"):
            pass

    asyncio.run(make())
    fill_sqlite(path)
    connection = sqlite3.connect(path)

    def explain(statement: Statement) -> str:
        return "\n".join(
            row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {statement.sql}", statement.parameters)
        )

    yield explain
    connection.close()


@pytest.fixture(scope="module")
def postgres_explain(postgres_server: PostgresServer, postgres_template: str) -> Iterator[ExplainSql]:
    url = postgres_server.create_database(postgres_template)
    fill_postgres(url)
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("SET search_path TO lockstitch")

        def explain(statement: Statement) -> str:
            named = re.sub(r"\$\{(\w+)\}", r"%(\1)s", statement.sql)
            rows = connection.execute(f"EXPLAIN {named}", statement.parameters).fetchall()
            # The plan for any values, which claims use.
            sql, values, _ = bind(statement)
            nulls = f" ({', '.join(['NULL'] * len(values))})" if values else ""
            with connection.transaction(force_rollback=True):
                connection.execute("SET LOCAL plan_cache_mode = force_generic_plan")
                connection.execute(b"PREPARE generic AS " + sql)
                rows += connection.execute(f"EXPLAIN EXECUTE generic{nulls}").fetchall()
                connection.execute("DEALLOCATE generic")
            return "\n".join(row[0] for row in rows)

        yield explain
    postgres_server.drop_database(url)


@pytest.fixture(params=DIALECTS)
def place(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def dialect(place: str) -> Dialect:
    return DIALECTS[place](SystemClock())


@pytest.fixture
def explain_sql(place: str, request: pytest.FixtureRequest) -> ExplainSql:
    return request.getfixturevalue(f"{place}_explain")


@pytest.fixture
def explain(dialect: Dialect, explain_sql: ExplainSql) -> Explain:
    return lambda find: explain_sql(dialect.select(find))


def assert_indexed(plan: str) -> None:
    """Check that no whole table is read or sorted. PostgreSQL shows Seq Scan, SQLite shows SCAN without an index."""
    assert "Seq Scan" not in plan, plan
    assert "TEMP B-TREE" not in plan, plan
    assert not re.search(r"^SCAN (?!.*USING (COVERING )?INDEX)", plan, re.MULTILINE), plan


CLAIMS = {
    "any agent": ClaimRequest(ONE),
    "these agents": ClaimRequest(ONE, ["a", "b"], limit=10, after="default"),
    "one project": ClaimRequest(ONE, ["a"], project="default", limit=10),
    "under a limit": ClaimRequest(ONE, limits=[Limit(name="l", at_most=1, agents=["a"])]),
}


def statements(dialect: Dialect, claim: str) -> list[Statement]:
    """Return all statements of a claim with a limit and with held threads."""
    answers = {"FROM limits": ["l", 2, "[]" if dialect.unnest is None else []], "count(*)": ["a", 1]}
    script, executed = choosing(dialect, CLAIMS[claim], 10), list[Statement]()
    try:
        statement = next(script)
        while True:
            executed.append(statement)
            plain = statement.sql.replace("lockstitch.", "")
            rows = [answer for words, answer in answers.items() if words in plain]
            statement = script.send(rows or ([["a"]] if "RECURSIVE" in plain else []))
    except StopIteration as stop:
        return [*executed, stop.value]


THREADS = {
    "listing": Find(Thread, (Where("project", "=", "default"),), ("-recent_at", "-id"), limit=50),
    "listing by model": Find(
        Thread,
        (Where("project", "=", "default"), Where("model", "is not null")),
        ("-model", "-recent_at", "-id"),
        ("m-1", SystemClock().now(), ONE),
        limit=50,
    ),
    "next page": Find(
        Thread, (Where("project", "=", "default"),), ("-recent_at", "-id"), (SystemClock().now(), ONE), limit=50
    ),
    "status": Find(Thread, (Where("status", "=", "failed"),), ("id",), limit=50),
    "children": Find(Thread, (Where("parent_id", "=", ONE),), ("id",)),
    "branching": Find(Thread, (Where("branching_stitch_id", "=", ONE),)),
    "key": Find(Thread, (Where("project", "=", "default"), Where("key", "=", "k"))),
    "user": Find(Thread, (Where("user_id", "=", "u"),)),
    "oldest": Find(
        Thread,
        (Where("project", "=", "default"), Where("created_at", "<=", SystemClock().now())),
        ("created_at", "id"),
        limit=200,
    ),
    "expired": Find(
        Thread,
        (Where("project", "=", "default"), Where("expires_at", "<=", SystemClock().now())),
        ("expires_at", "id"),
        limit=200,
    ),
    "asking": Find(
        Thread,
        (
            Where("project", "=", "default"),
            Where("status", "=", "waiting"),
            Where("awaiting_person_since", "is not null"),
        ),
        ("awaiting_person_since", "id"),
        limit=50,
    ),
}
RUNS = {
    "page of history": Find(
        Run,
        (
            Where("thread_id", "=", ONE),
            Where("parent_run_id", "is null"),
            Where("status", "in", sorted(TERMINAL_STATUSES)),
            Where("turn", "<", 5),
        ),
        ("-turn",),
        limit=20,
    ),
    "by id": Find(Run, (Where("id", "=", ONE),)),
    "since": Find(Run, (Where("started_at", ">", SystemClock().now()),)),
}
STITCHES = {
    "log of a run": Find(Stitch, (Where("run_id", "=", ONE),), ("position",)),
    "of a thread": Find(Stitch, (Where("thread_id", "=", ONE), Where("position", ">", 5)), ("position",)),
    "errors": Find(Stitch, (Where("type", "in", sorted(ERROR_TYPES)),), ("-log_id",), limit=50),
    "failed spans": Find(Stitch, FAILED_SPAN, ("-log_id",), limit=50),
    "failed spans below": Find(Stitch, (Where("parent_id", "in", [ONE]), *FAILED_SPAN)),
    "by id": Find(Stitch, (Where("id", "=", ONE),)),
    "of a child": Find(Stitch, (Where("child_id", "=", ONE),)),
    "newest": Find(Stitch, (Where("log_id", ">", ROWS - 50),), ("-log_id",), limit=50),
}


@pytest.mark.req("S0-038", "S3-009", "S3-010")
@pytest.mark.parametrize("query", THREADS)
def test_thread_lists_use_indexes(explain: Explain, query: str) -> None:
    assert_indexed(explain(THREADS[query]))


@pytest.mark.parametrize("filters", [[], [Where("depth", "=", 0)], [Where("status", "=", "waiting")]])
def test_lists_without_evaluations_use_the_index_of_their_order(
    place: str, explain: Explain, filters: list[Where]
) -> None:
    where = [Where("project", "=", "default"), *filters, Where("key", "not starts with", "eval/")]
    plan = explain(Find(Thread, where, ("-recent_at", "-id"), limit=50))
    assert {"sqlite": "threads_listed", "postgres": "threads_recent"}[place] in plan, plan
    assert "Sort" not in plan, plan
    # SQLite sorts only the threads of the page.
    assert plan.count("TEMP B-TREE") <= 1, plan


def test_count_of_a_status_without_evaluations_uses_an_index(
    place: str, dialect: Dialect, explain_sql: ExplainSql
) -> None:
    where = [Where("project", "=", "default"), Where("status", "=", "failed"), Where("key", "not starts with", "eval/")]
    plan = explain_sql(dialect.count(Find(Thread, where, limit=1_001)))
    assert "threads_status" in plan, plan


@pytest.mark.parametrize("claim", CLAIMS)
def test_claims_use_indexes(dialect: Dialect, explain_sql: ExplainSql, claim: str) -> None:
    """A claim may read and sort its lanes and candidates, workers and limits. They are few."""
    executed = statements(dialect, claim)
    assert len(executed) == (5 if CLAIMS[claim].limits else 2)
    for statement in executed:
        plan = explain_sql(statement)
        assert "Seq Scan on threads" not in plan, plan
        assert not re.search(r"^SCAN (t|threads)\b(?!.*USING INDEX threads_(ready|held))", plan, re.MULTILINE), plan
    assert "Bitmap" not in plan, f"all that is ready may be read: {plan}"


@pytest.mark.parametrize("project", [None, "default"])
def test_search_for_ready_threads_uses_indexes(dialect: Dialect, explain_sql: ExplainSql, project: str | None) -> None:
    plan = explain_sql(next(seconds_until_ready(dialect, ["a", "b"], project)))
    assert "Seq Scan on threads" not in plan, plan
    assert "threads_ready" in plan, plan
    assert "threads_due" in plan, plan
    assert not re.search(r"^SCAN (t|threads)\b(?!.*USING INDEX threads_(ready|due))", plan, re.MULTILINE), plan


@pytest.mark.req("S0-075")
@pytest.mark.parametrize("query", RUNS)
def test_pages_of_runs_use_indexes(explain: Explain, query: str) -> None:
    assert_indexed(explain(RUNS[query]))


@pytest.mark.parametrize(("order", "index", "key"), [("newest", "runs_started", NOW), ("slowest", "runs_elapsed", "5")])
def test_lists_of_runs_use_the_index_of_their_order(
    dialect: Dialect, explain_sql: ExplainSql, order: str, index: str, key: str
) -> None:
    script = reports.runs(dialect, SettledDays(), StatsFilter(project="default"), order, 20)
    assert index in explain_sql(next(script))
    plan = explain_sql(script.send([[key]]))
    assert index in plan, plan
    assert not re.search(r"^SCAN t\b", plan, re.MULTILINE), plan


@pytest.mark.req("S0-086", "S3-022", "S3-027")
@pytest.mark.parametrize("query", STITCHES)
def test_stitch_logs_use_indexes(explain: Explain, query: str) -> None:
    assert_indexed(explain(STITCHES[query]))
