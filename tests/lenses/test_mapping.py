"""The columns in the reference of a lens are those of its views, and its queries run.

The convention: a section `## view` has a table whose first two columns are the name and the type of each column of the
view, in order. If a table has `how` and `of the document`, `how` is kept (the document's field has the name of the
column), renamed (it has another name) or added (the document has no such field). A section `## Dropped` lists the
document's fields that no column has. Queries are blocks of `sql postgres`, each followed by its translation in `sql
sqlite`; `:name` is replaced by a value.
"""

import re
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from lockstitch.lenses import catalog
from lockstitch.store import Store
from tests.lenses.mirror import research
from tests.lenses.story import Story

pytestmark = pytest.mark.anyio

DOCS = Path(__file__).parents[2] / "docs" / "reference" / "lenses"

MAPPED = ("langsmith", "agno", "reasoning")
"""Lenses whose reference has a mapping field by field. The other lenses have all columns of their documents."""


class Column(NamedTuple):
    name: str
    type: str
    how: str = "kept"
    source: str = ""


def reference(lens: str) -> str:
    return (DOCS / f"{lens}.md").read_text()


def columns(lens: str, view: str) -> list[Column]:
    section = re.split(r"^#{2,3} ", reference(lens).partition(f"\n## {view}\n")[2], flags=re.MULTILINE)[0]
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in section.splitlines() if line.startswith("|")]
    mapped = [row for row in rows[2:] if row]
    return [Column(row[0], row[1], *((row[2], row[3].strip("`")) if len(row) == 5 else ())) for row in mapped]


def views(lens: str, dialect: str = "postgres") -> list[str]:
    """Return the public views. Names with the prefix lens_ are internal."""
    names = re.findall(r"^CREATE VIEW (\w+)", catalog.script(lens, dialect), re.MULTILINE)
    return [view for view in names if not view.startswith("lens_")]


@pytest.mark.req("S2-041")
@pytest.mark.parametrize("lens", catalog.NAMES)
async def test_reference_has_the_columns_of_every_view(story_store: Store, backend: str, lens: str) -> None:
    assert set(views(lens)) == set(views(lens, "sqlite"))
    assert views(lens)
    for view in views(lens):
        answer = await story_store.sql(f"SELECT * FROM {view}", lens=lens, limit=1, seconds=60)
        assert answer.columns == [column.name for column in columns(lens, view)], view
        if backend == "postgres":
            sql = f"""SELECT format_type(atttypid, atttypmod) FROM pg_attribute
                      WHERE attrelid = '{lens}.{view}'::regclass AND attnum > 0 ORDER BY attnum"""
            types = [
                kind.replace("timestamp with time zone", "timestamptz") for (kind,) in (await story_store.sql(sql)).rows
            ]
            expected = [column.type.replace("varchar", "character varying") for column in columns(lens, view)]
            assert types == expected, view


@pytest.mark.req("S2-040", "S2-041")
def test_document_lists_kept_renamed_dropped_and_added_columns() -> None:
    for lens in MAPPED:
        for view in views(lens):
            for column in columns(lens, view):
                last = re.sub(r"\[\*\]", "", column.source).rpartition(".")[2]
                expected = (
                    "added" if not column.source else "kept" if last == column.name == column.source else "renamed"
                )
                assert column.how == expected, (lens, view, column)
    added = {
        column.name for view in views("langsmith") for column in columns("langsmith", view) if column.how == "added"
    }
    by_the_document = {"step_index", "error_flag", "is_tool_error", "execution_latency_ms", "prompt_text", "error_type"}
    assert added - by_the_document == {"created_at", "input_tokens", "output_tokens"}
    assert by_the_document <= added


@pytest.mark.req("S2-012", "S2-024", "S2-033")
def test_dropped_columns_do_not_exist() -> None:
    section = reference("langsmith").partition("\n## Dropped\n")[2].partition("\n## ")[0]
    dropped = re.findall(r"^\| (\w+) \| `([\w.]+)` \|", section, re.MULTILINE)
    assert len(dropped) == 24
    for view, field in dropped:
        assert field not in {column.source for column in columns("langsmith", view)}
        assert field.rpartition(".")[2] not in {column.name for column in columns("langsmith", view)}


@pytest.mark.req("S2-039", "X2-12")
@pytest.mark.parametrize("lens", catalog.NAMES)
def test_file_has_the_columns_of_the_views(lens: str) -> None:
    script = re.sub(r"--.*", "", catalog.script(lens, "tables"))
    statements = [statement.split()[:6] for statement in script.split(";") if statement.strip()]
    assert {" ".join(words[: words.index("EXISTS") + 1]) for words in statements} <= {
        *("CREATE TABLE IF NOT EXISTS", "CREATE INDEX IF NOT EXISTS", "CREATE UNIQUE INDEX IF NOT EXISTS")
    }, "nothing is dropped, and a second time changes nothing"
    tables = re.findall(r"CREATE TABLE IF NOT EXISTS (\w+) \((.*?)\n\);", script, re.DOTALL)
    assert {name for name, _ in tables} <= set(views(lens))
    for name, body in tables:
        words = [line.split()[0] for line in body.splitlines() if line.strip()]
        names = [word for word in words if word not in ("PRIMARY", "FOREIGN", "UNIQUE", "REFERENCES")]
        assert sorted(names) == sorted(column.name for column in columns(lens, name)), name
    missing = set(views(lens)) - {name for name, _ in tables}
    assert missing <= {"agno_runs", "reasoning_steps"}, "queries that only repeat parts of other queries"


def queries(lens: str, dialect: str) -> dict[str, list[str]]:
    """Return the queries of a reference, by heading."""
    sections = re.split(r"^### ", reference(lens).partition("\n## Queries\n")[2], flags=re.MULTILINE)[1:]
    return {
        section.partition("\n")[0]: re.findall(rf"```sql {dialect}\n(.*?)```", section, re.DOTALL)
        for section in sections
    }


async def by_ids(store: Store, backend: str, **values: Any) -> list[list[dict[str, Any]]]:
    """Return the results of the look-ups in the reference of langsmith."""
    section = reference("langsmith").partition("\n## Calls by their ids\n")[2].partition("\n## ")[0]
    dialect = "postgres" if backend == "postgres" else "sqlite"
    results: list[list[dict[str, Any]]] = []
    for sql in re.findall(rf"```sql {dialect}\n(.*?)```", section, re.DOTALL):
        answer = await store.sql(re.sub(r":(\w+)", lambda name: f"'{values[name[1]]}'", sql), lens="langsmith")
        results.append([dict(zip(answer.columns, row, strict=True)) for row in answer.rows])
    return results


async def answers(store: Store, backend: str, lens: str, **values: Any) -> dict[str, list[dict[str, Any]]]:
    """Return the results of every query of a reference."""
    results: dict[str, list[dict[str, Any]]] = {}
    for heading, printed in queries(lens, "postgres" if backend == "postgres" else "sqlite").items():
        assert printed, heading
        for sql in printed:
            filled = re.sub(r"(?<!:):(\w+)", lambda name: f"'{values[name[1]]}'", sql)
            answer = await store.sql(filled, lens=lens, seconds=60)
            results[heading] = [dict(zip(answer.columns, row, strict=True)) for row in answer.rows]
    return results


@pytest.mark.req("S2-055")
async def test_documented_queries_of_langsmith_work(story_store: Store, story: Story, backend: str) -> None:
    run = (await story_store.runs(story.shop))[0]
    (tool,) = [entry for entry in await story_store.log(run.id) if entry.type == "tool_call" and entry.call_index == 1]
    (call, *_) = [entry for entry in await story_store.log(run.id) if entry.type == "llm_call"]
    results = await answers(story_store, backend, "langsmith", run_id=run.id)
    (one, all_calls) = await by_ids(story_store, backend, tool_call_id=tool.call_id, llm_call_id=call.id)
    # Scripted models of other threads use the same call ids.
    assert (str(call.id), tool.call_id) in [(row["llm_call_id"], row["tool_call_id"]) for row in one]
    assert [row["tool_name"] for row in all_calls] == ["price", "price"]
    newest = results["Runs, newest first"]
    assert len(newest) == 19
    assert [row["start_time"] for row in newest] == sorted((row["start_time"] for row in newest), reverse=True)
    tree = [(row["step_index"], row["tool_name"], row["tool_status"]) for row in results["One run with its calls"]]
    assert tree == [(0, "price", "success"), (0, "price", "success"), (1, None, None), (2, None, None)]
    failed = {row["run_id"] for row in results["Runs with an error"]}
    assert {
        str((await story_store.runs(head))[0].id) for head in (story.failed, story.cancelled, story.scouts[1])
    } <= failed
    rates = {row["tool_name"]: (row["calls"], float(row["error_rate"])) for row in results["Error rate of tools"]}
    assert rates["price"] == (4, 0.0)
    assert rates["broken"] == (2, 1.0)
    slowest = results["Slowest tools"]
    assert [row["average_ms"] for row in slowest] == sorted((row["average_ms"] for row in slowest), reverse=True)
    # Two projects have a session of this name. The run of the other one took 200 + 30.
    shop = [row for row in results["Tokens and cost per model, day and session"] if row["session_id"] == "shop"]
    assert {row["model_name"] for row in shop} == {"scripted"}
    assert sum(row["tokens"] for row in shop) == 2305 + 350 + 230 + 230
    both = [*await story_store.runs(story.shop), *await story_store.in_project("elsewhere").runs(story.elsewhere)]
    assert sum(row["cost"] for row in shop) == pytest.approx(sum(run.total_cost or 0 for run in both))
    assert len(results["Tokens per model call"]) == len(results["Model calls of the last seven days"]) == 1


@pytest.mark.req("S2-055")
async def test_documented_queries_of_langsmith_work_on_trace(store: Store, backend: str) -> None:
    mirror = await research().put(store)
    results = await answers(store, backend, "langsmith", run_id=mirror.trace_id)
    tree = [(row["step_index"], row["tool_name"], row["tool_status"]) for row in results["One run with its calls"]]
    assert tree == [
        (0, "think_tool", "success"),
        (0, "search", "error"),
        (1, "ResearchComplete", None),
        (2, None, None),
    ]
    assert [row["tool_name"] for row in results["Slowest tools"]] == ["search", "think_tool"]
    (one, all_calls) = await by_ids(store, backend, tool_call_id="call_b", llm_call_id="run-msg-1")
    assert [(row["llm_call_id"], row["tool_name"]) for row in one] == [("run-msg-1", "search")]
    assert sorted((row["tool_call_id"], row["tool_name"]) for row in all_calls) == [
        ("call_a", "think_tool"),
        ("call_b", "search"),
    ]
    assert {row["model_name"]: row["input_tokens"] for row in results["Tokens per model call"]} == {
        "gpt-4o": 20,
        "gpt-4o-2024-08-06": 10,
    }


@pytest.mark.req("S4-056", "S4-057", "S4-058", "X4-06")
async def test_documented_queries_of_agno_work(story_store: Store, story: Story, backend: str) -> None:
    results = await answers(story_store, backend, "agno", session_id="everything")
    sessions = results["List all sessions"]
    assert [row["created_at"] for row in sessions] == sorted((row["created_at"] for row in sessions), reverse=True)
    assert ("boss", "agent", None, "boss") in [
        (row["session_id"], row["session_type"], row["team_id"], row["agent_id"]) for row in sessions
    ]
    assert results["Count runs in a session"] == [{"num_runs": 3}]
    runs = await story_store.runs(story.everything)
    summary = results["Show run summary for a session"]
    assert [(row["run_id"], row["agent_id"], row["status"]) for row in summary] == [
        (str(run.id), "teller", run.status.upper()) for run in runs
    ], "in the order of the array"
    assert summary[0]["input_truncated"].replace(" ", "").startswith('{"input_content":')
    assert all(len(row["input_truncated"]) <= 80 for row in summary)


async def test_documented_queries_of_reasoning_work(store: Store, backend: str) -> None:
    from tests.lenses.test_reasoning import prioritise

    session = await prioritise(store)
    results = await answers(store, backend, "reasoning", session_id=session)
    assert [str(row["id"]) for row in results["A session"]] == [str(session)]
    assert [row["total_steps"] for row in results["The trace of a session"]] == [4]
    steps = results["Steps of a trace, one per row"]
    assert [(row["step_number"], row["status"]) for row in steps] == [
        *(("1", "success"), ("2", "failed"), ("3", "skipped"), ("4", "success"))
    ]
