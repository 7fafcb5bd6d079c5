"""A lake answers like its record: for every table of every lens, and for the queries of the documents."""

import asyncio
import re
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lockstitch.lake.query import LakeReader
from lockstitch.lenses import catalog
from lockstitch.store import Store, open_store
from lockstitch.store.store import open_lens
from tests.conftest import EXAMPLES
from tests.lake.lakes import compare, plain, write
from tests.lenses.story import Story
from tests.lenses.test_documents import DOCS, filled
from tests.samples import turn
from tests.store.worlds import world


@pytest.mark.anyio
@pytest.mark.parametrize("backend", ["sqlite", "postgres"], indirect=True)
async def test_lake_equals_record_in_every_lens(story_store: Store, story: Story, tmp_path: Path) -> None:
    await write(story_store, tmp_path / "lake")
    # The rows of archived turns are in archives of the record. A lens shows less of them.
    runs = await story_store.runs(story.archived)
    archived = (str(story.archived.id), *(str(run.id) for run in runs))
    assert await compare(story_store, tmp_path / "lake", archived) > 400
    with LakeReader(str(tmp_path / "lake"), "three_table") as lake:
        query = f"SELECT messages, user_message FROM conversation_history WHERE run_id = '{runs[0].id}'"
        ((messages, said),) = lake.query(query).rows
    assert (plain(messages), said) == ((await story_store.messages(runs[0].id)), "Something old")
    with LakeReader(str(tmp_path / "lake"), "langsmith") as lake:
        # Columns that a statement does not name are not computed.
        live = f"FROM llm_calls WHERE run_id <> '{runs[0].id}'"
        for query in (
            f"SELECT max(step_index) AS s, count(*) AS n {live}",
            f"SELECT MAX(Step_Index) AS s, count(*) AS n FROM (SELECT * {live}) AS calls",
            f"SELECT model_name, sum(input_tokens) AS n {live} GROUP BY model_name",
            f"SELECT model_name AS run_id, count(*) AS n {live} GROUP BY model_name ORDER BY run_id",
            f"SELECT count(*) AS n, count(DISTINCT tool_name) AS t {live.replace('llm_calls', 'tool_calls')}",
            f"SELECT l.usage_metadata {live.replace('llm_calls', 'llm_calls l')} ORDER BY l.llm_call_id LIMIT 3",
        ):
            expected = (await story_store.sql(query, lens="langsmith")).rows
            assert [plain(list(row)) for row in lake.query(query).rows] == [plain(list(row)) for row in expected]
        # Statements that read columns without their names, each after one that reads other columns.
        names = [(name,) for (name,) in lake.query("SELECT model_name FROM llm_calls ORDER BY 1").rows]
        place = [*lake.tables()["llm_calls"]].index("model_name") + 1
        columns = ", ".join(f"c{number}" for number in range(1, place + 1))
        for query in (
            f"SELECT #{place} FROM llm_calls ORDER BY 1",
            f"SELECT c{place} FROM llm_calls AS calls({columns}) ORDER BY 1",
            "SELECT a FROM QUERY('SELECT model_name AS a FROM llm_calls') ORDER BY 1",
            f"SELECT c{place} FROM query_table('llm_calls') AS calls({columns}) ORDER BY 1",
        ):
            assert any(run for (run,) in lake.query("SELECT run_id FROM llm_calls").rows)
            assert lake.query(query).rows == names
        assert any(name for (name,) in names)
        ((row,),) = lake.query("SELECT llm_calls FROM llm_calls WHERE step_index = 1 LIMIT 1").rows
        assert row["step_index"] == 1


ELSEWHERE = re.compile(r"lockstitch_request|WITH ORDINALITY|jsonb_|now\(\)", re.IGNORECASE)
"""Queries that DuckDB cannot read, and those that depend on the time."""

QUERIES = [
    (lens, postgres, sqlite)
    for lens in catalog.NAMES
    for postgres, sqlite in re.findall(
        r"```sql postgres\n(.*?)```.*?```sql sqlite\n(.*?)```", (DOCS / f"{lens}.md").read_text(), re.DOTALL
    )
    if not ELSEWHERE.search(postgres)
]
"""The queries of the documents: the lens, the text for PostgreSQL, which DuckDB reads too, and the text for SQLite."""

TEXTS = st.text(st.characters(exclude_categories=["Cc", "Cs"]), min_size=1, max_size=20)


@settings(max_examples=int(EXAMPLES or 1))
@given(st.integers(0, 10**6), st.lists(st.tuples(TEXTS, TEXTS), min_size=1, max_size=4))
def test_documented_queries_have_the_answers_of_the_record(seed: int, turns: list[tuple[str, str]]) -> None:
    async def check(folder: Path) -> int:
        async with open_store(f"sqlite:///{folder / 'store.db'}") as store:
            await world(seed, trees=2).put(store)
            head = await store.create()
            for said, answer in turns:
                head = await turn(store, head, said, answer)
            await write(store, folder / "lake")
            number = 0
            async with open_lens(store, "langsmith", blocking=True) as record:
                names = "max(run_id) AS run_id, max(llm_call_id) AS llm_call_id, max(tool_call_id) AS tool_call_id"
                values = record.execute(f"SELECT {names} FROM tool_calls").fetchone()
            ids = dict(zip(("run_id", "llm_call_id", "tool_call_id"), values, strict=True))
            ids |= {"thread_id": head.id, "agent_uuid": head.id, "session_id": head.id}
            for lens in catalog.NAMES:
                with LakeReader(str(folder / "lake"), lens) as lake:
                    async with open_lens(store, lens, blocking=True) as record:
                        for _, text, sqlite in (query for query in QUERIES if query[0] == lens):
                            expected = record.execute(filled(sqlite, **ids)).fetchall()
                            # Other test processes use the processors too, so the limit of time does not matter here.
                            rows = lake.query(filled(text, **ids), seconds=120).rows
                            assert _sorted(rows) == _sorted(expected), text
                            number += len(rows)
        return number

    with tempfile.TemporaryDirectory() as folder:
        assert asyncio.run(check(Path(folder)))


def _sorted(rows: list[tuple[object, ...]]) -> list[str]:
    return sorted(repr(plain(list(row))) for row in rows)
