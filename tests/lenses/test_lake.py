"""A lake answers like its record: for every table of every lens, and for the queries of the documents."""

from pathlib import Path

import pytest

from lockstitch.integrations.lake.query import LakeReader
from lockstitch.store import Store
from tests.integrations.lake.lakes import compare, plain, write
from tests.lenses.story import Story

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("backend", ["sqlite", "postgres"], indirect=True)]


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
            f"SELECT l.usage_metadata {live.replace('llm_calls', 'llm_calls l')} ORDER BY l.llm_call_id LIMIT 3",
        ):
            expected = (await story_store.sql(query, lens="langsmith")).rows
            assert [plain(list(row)) for row in lake.query(query).rows] == [plain(list(row)) for row in expected]
        ((row,),) = lake.query("SELECT llm_calls FROM llm_calls WHERE step_index = 1 LIMIT 1").rows
        assert row["step_index"] == 1
