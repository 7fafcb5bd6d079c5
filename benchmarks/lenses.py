"""Queries of the documents through the lenses, compared with plain tables of the documents.

Half of the stitches are native, and half are imported traces. `--stitches` sets their number. The notes list the
slowest queries.
"""

import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks import imported
from benchmarks.floors.by_hand import by_hand
from benchmarks.measure import middle, take_turns, typical
from benchmarks.places import SQL, Places
from benchmarks.plans import reads_all_stitches
from benchmarks.report import Aim, Measured, Row, at_most, within
from benchmarks.scale import Scale
from benchmarks.sessions import MODEL, Known, Session, fill
from lockstitch.store import Store, open_store

BACKENDS = SQL

LENSES = ("three_table", "reasoning", "langsmith", "agentic_threads", "agno")

OF_HAND_MADE = 3
MILLISECONDS = 5
LINEAR = 1.5
CALLS = 5
SLOW = 0.2
"""A query that takes longer than this number of seconds runs once per round."""

_REFERENCE = Path(__file__).parents[1] / "docs" / "reference" / "lenses"
_HEADING = re.compile(r"^### (.*)$", re.MULTILINE)

HISTORY, LAST = "Get thread execution history", "Find last stitch in a thread"
COUNT, SUMMARY = "Count runs in a session", "Show run summary for a session"

ASSEMBLED = {"Pattern 1: resume an agent"}
"""Queries with assembled columns. Their cost grows with the size of the result."""

BOUNDS = {HISTORY: within(200), LAST: within(10), COUNT: within(20), SUMMARY: within(20)}
"""Limits of the requirements in milliseconds, including those for a session of 20 runs of 20 messages."""

PROVES = {HISTORY: "S3-068", LAST: "S3-068"}

ABOUT_ALL = {"Slowest tools", "Error rate of tools", "Tokens per model call", "Model calls of the last seven days"}
"""Queries that must read all calls."""

AT_MOST = 200
"""Milliseconds that a query of the documents, or one of these, may take."""

CALLS_AND_RUNS = {
    "calls per model": "SELECT model_name, count(*) FROM llm_calls GROUP BY model_name",
    "calls of one model": f"SELECT count(*) FROM llm_calls WHERE model_name = '{MODEL}'",
    "tokens and cost of runs per model": "SELECT model_name, count(*), sum(total_tokens), sum(total_cost) "
    "FROM agent_runs GROUP BY model_name",
    "model call by id": "SELECT * FROM llm_calls WHERE llm_call_id = :llm_call_id",
    "tool call by id": "SELECT * FROM tool_calls WHERE tool_call_id = :tool_call_id",
    "tool calls of a model call": "SELECT * FROM tool_calls WHERE llm_call_id = :llm_call_id",
    "join of the calls of a run": "SELECT * FROM llm_calls l JOIN tool_calls t ON t.llm_call_id = l.llm_call_id "
    "AND t.run_id = l.run_id WHERE l.run_id = :run_id",
    "join of all calls": "SELECT l.model_name, t.tool_name, count(*) FROM llm_calls l "
    "JOIN tool_calls t ON t.llm_call_id = l.llm_call_id GROUP BY 1, 2",
}
"""Queries of the langsmith lens besides those of its reference."""

SLOWEST = 10
"""Number of queries in the notes."""

JSON = {
    "three_table": {
        "agent_config.messages": "SELECT messages FROM agent_config WHERE agent_uuid = :id",
        "conversation_history.messages": "SELECT messages FROM conversation_history WHERE agent_uuid = :id",
    },
    "agno": {"agno_sessions.runs": "SELECT runs FROM agno_sessions WHERE session_id = :id"},
}


class Question(NamedTuple):
    heading: str
    sql: str


async def measure(places: Places, backend: str, scale: Scale) -> Measured:
    rows: list[Row] = []
    notes: list[str] = []
    with places.fresh(backend) as url:
        async with open_store(url) as store:
            ids = await fill(store, scale.looked_at // 2)
            await imported.fill(store, scale.looked_at // 2)
            await places.settle(url)
            for lens in LENSES:
                lens_questions = list(questions(lens, backend, ids))
                rows += await _compare_with_tables(store, url, lens, lens_questions, backend, scale)
                scans = [
                    question.heading
                    for question in lens_questions
                    if question.heading not in ABOUT_ALL and reads_all_stitches(url, lens, question.sql)
                ]
                rows.append(
                    Row(f"{lens}: queries that read all stitches", backend, len(scans), "queries", aim=within(0))
                )
                notes += [f"{lens}: {heading} reads all stitches" for heading in scans]
                if lens == "langsmith":
                    rows += await _more(store, ids, backend, scale)
                rows += [
                    await _linear(store, lens, column, sql, ids, backend, scale)
                    for column, sql in JSON.get(lens, {}).items()
                ]
    queries = sorted((row for row in rows if row.unit == "ms"), key=lambda row: -row.value)
    notes += [f"slowest: {row.value:.0f} ms, {row.name}" for row in queries[:SLOWEST]]
    return Measured(rows, notes)


def questions(lens: str, backend: str, ids: Known) -> Iterator[Question]:
    """Return every query of the reference of a lens, for the thread that it is about.

    Queries that call a function of Lockstitch are left out, because plain tables cannot answer them.
    """
    text = (_REFERENCE / f"{lens}.md").read_text()
    parts = _HEADING.split(text)[1:]
    for heading, section in zip(parts[::2], parts[1::2], strict=True):
        about = ids.long if heading in PROVES else ids.small if heading in BOUNDS else ids.typical
        statements = re.findall(rf"```sql {backend}\n(.*?)```", section, re.DOTALL)
        for number, sql in enumerate(sql for sql in statements if "lockstitch_request(" not in sql):
            yield Question(heading if number == 0 else f"{heading}, as printed", _filled(sql, about))


def _filled(sql: str, about: Session) -> str:
    ids: dict[str, object] = dict.fromkeys(("agent_uuid", "thread_id", "session_id", "id"), about.thread.id)
    run = about.runs[len(about.runs) // 2]
    calls = [stitch for stitch in about.stitches if stitch.run_id == run.id]
    ids["run_id"] = run.id
    ids["llm_call_id"] = next(stitch.id for stitch in calls if stitch.type == "llm_call")
    ids["tool_call_id"] = next(stitch.call_id for stitch in calls if stitch.type == "tool_call")
    return re.sub(r"(?<!:):(\w+)", lambda name: f"'{ids[name[1]]}'", sql).strip().rstrip(";")


async def _compare_with_tables(
    store: Store, url: str, lens: str, lens_questions: list[Question], backend: str, scale: Scale
) -> list[Row]:
    rows: list[Row] = []
    async with by_hand(url, lens) as tables, store.lens(lens) as views:
        for question in lens_questions:
            expected, actual = len(await answer(tables, question.sql)), len(await answer(views, question.sql))
            if not actual or actual != expected:
                raise RuntimeError(f"{lens}: {question.heading} shows {actual} rows, and the tables have {expected}")
            sides = (_asking(connection, question.sql, scale) for connection in (tables, views))
            rounds = await take_turns(scale.rounds, *sides)
            raw, value = middle([(figures[0], figures[1]) for figures in rounds])
            aim, req = _aim(question.heading, value), PROVES.get(question.heading)
            rows.append(Row(f"{lens}: {question.heading}", backend, value, "ms", raw, aim, req=req))
    return rows


async def _more(store: Store, ids: Known, backend: str, scale: Scale) -> list[Row]:
    """Joins, look-ups and figures of model calls and tool calls, without a baseline."""
    rows: list[Row] = []
    async with store.lens("langsmith") as views:
        for name, sql in CALLS_AND_RUNS.items():
            text = _filled(sql, ids.typical)
            if not await answer(views, text):
                raise RuntimeError(f"langsmith: {name} shows no rows")
            (figures,) = zip(*await take_turns(scale.rounds, _asking(views, text, scale)), strict=True)
            rows.append(
                Row(f"langsmith: {name}", backend, sorted(figures)[len(figures) // 2], "ms", aim=within(AT_MOST))
            )
    return rows


def _aim(heading: str, value: float) -> Aim | None:
    if heading in ASSEMBLED:
        return None
    if heading in ABOUT_ALL:
        return within(AT_MOST)
    # Either bound is enough; the row names the one that is met.
    return BOUNDS.get(heading) or (within(MILLISECONDS) if value <= MILLISECONDS else at_most(OF_HAND_MADE))


async def _linear(store: Store, lens: str, column: str, sql: str, ids: Known, backend: str, scale: Scale) -> Row:
    """The cost per megabyte of an assembled column in a large session, compared with one of a quarter of its size."""
    async with store.lens(lens) as views:

        def asking(about: Session) -> Callable[[], Any]:
            text = _filled(sql, about)

            async def ask() -> float:
                milliseconds = await _asking(views, text, scale)()
                return milliseconds / sum(len(str(row[0])) for row in await answer(views, text)) * 1e6

            return ask

        rounds = await take_turns(scale.rounds, asking(ids.small), asking(ids.large))
    small, large = middle([(figures[0], figures[1]) for figures in rounds])
    name = f"{column} of {len(ids.large.runs)} runs, compared with {len(ids.small.runs)}"
    return Row(name, backend, large, "ms/MB", small, at_most(LINEAR))


def _asking(connection: Any, sql: str, scale: Scale) -> Callable[[], Any]:
    async def ask() -> float:
        started = time.perf_counter()
        await answer(connection, sql)
        spent = time.perf_counter() - started
        once = spent > SLOW or scale.rounds == 1
        return spent * 1000 if once else await typical(lambda: answer(connection, sql), CALLS)

    return ask


async def answer(connection: Any, sql: str) -> list[Any]:
    """Return the rows, with either driver."""
    cursor = connection.execute(sql)
    if not hasattr(cursor, "fetchall"):
        return await (await cursor).fetchall()
    return cursor.fetchall()
