"""`sql`."""

import csv
import io
import sys

import pytest

from lockstitch.cli.render.output import distinct
from tests.cli.calling import Call
from tests.cli.story import Story

COUNTS = "SELECT status, count(*) AS number FROM threads GROUP BY status ORDER BY status"


def test_sql_reads_core_tables_on_every_backend(lockstitch: Call, story: Story) -> None:
    rows = [{"status": "failed", "number": 1}, {"status": "pending", "number": 2}, {"status": "waiting", "number": 2}]
    assert lockstitch("sql", COUNTS, "--json").json == rows
    assert lockstitch("sql", COUNTS, "--format", "json").json == rows
    assert lockstitch("sql", COUNTS).lines == [
        "status   number",
        "failed        1",
        "pending       2",
        "waiting       2",
    ]
    text = lockstitch("sql", COUNTS, "--format", "csv").out
    assert list(csv.reader(io.StringIO(text))) == [
        ["status", "number"],
        ["failed", "1"],
        ["pending", "2"],
        ["waiting", "2"],
    ]


def test_sql_lists_tables_and_columns(lockstitch: Call, story: Story) -> None:
    assert lockstitch("sql", ".tables").lines[:2] == ["threads", "runs"]
    assert lockstitch("sql", ".schema runs", "--json").json["runs"]["thread_id"] == "uuid"
    result = lockstitch("sql", "SELECT * FROM run")
    assert (result.code, "Table run does not exist. The tables are: threads, runs," in result.err) == (2, True)
    assert lockstitch("sql", ".nothing").code == 2


def test_sql_prints_ids_times_and_null_as_text(lockstitch: Call, story: Story) -> None:
    query = "SELECT id, created_at, parent_id FROM threads WHERE kind = 'goal'"
    [row] = lockstitch("sql", query, "--json").json
    assert row["id"] == str(story.goal.id)
    assert row["created_at"] == story.goal.as_json()["created_at"]
    assert row["parent_id"] is None


def test_sql_renames_duplicate_columns(lockstitch: Call, story: Story) -> None:
    assert lockstitch("sql", "SELECT 1 AS a, 2 AS a, 3 AS a", "--json").json == [{"a": 1, "a_2": 2, "a_3": 3}]
    assert distinct(["a", "a_2", "a"]) == ["a", "a_2", "a_3"]


@pytest.mark.req("S2-057")
def test_sql_reports_row_limit(lockstitch: Call, story: Story) -> None:
    result = lockstitch("sql", "SELECT position FROM stitches", "--limit", "3")
    assert len(result.lines) == 4
    assert result.err == "Only the first 3 rows; use --limit for more.\n"


@pytest.mark.req("S2-057")
def test_sql_rejects_statements_that_write(lockstitch: Call, story: Story) -> None:
    for query in (
        "DELETE FROM threads",
        "UPDATE threads SET title = 'x'",
        "SELECT FROM FROM",
        "nonsense",
        "",
        "SELECT 1; SELECT 2",
        "DROP TABLE threads",
    ):
        result = lockstitch("sql", query)
        assert result.code == 2, (query, result.err)
        assert result.err.startswith("lockstitch: ")
        assert result.err.count("\n") == 1
        assert len(lockstitch("threads", "--json").json) == 4, query


def test_sql_stops_slow_query(lockstitch: Call, story: Story) -> None:
    endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n"
    result = lockstitch("sql", endless, "--seconds", "0.2")
    assert result.code == 2
    assert "0.2 s" in result.err


def test_sql_rejects_unknown_format(lockstitch: Call, story: Story) -> None:
    assert lockstitch("sql", COUNTS, "--format", "yaml").code == 2


def test_sql_reads_lens(lockstitch: Call, story: Story) -> None:
    query = "SELECT title, total_runs FROM agent_config WHERE title IS NOT NULL"
    assert lockstitch("sql", "--lens", "three_table", query, "--json").json == [
        {"title": "The lost parcel", "total_runs": 4}
    ]
    assert lockstitch("sql", query).code == 2
    result = lockstitch("sql", "--lens", "nothing", query)
    assert result.code == 2
    assert "three_table, reasoning, langsmith, agentic_threads, agno" in result.err


def test_sql_reads_query_from_pipe(lockstitch: Call, story: Story, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO(COUNTS))
    assert lockstitch("sql", "--format", "csv").lines == ["status,number", "failed,1", "pending,2", "waiting,2"]
    assert lockstitch("sql").code == 2
