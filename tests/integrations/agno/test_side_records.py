"""Memories, knowledge and evaluations of Agno as records of the store."""

from typing import Any

import pytest

from lockstitch import Conflict
from lockstitch.integrations.agno.rows import page_of, sorted_rows
from lockstitch.integrations.agno.side_records import Documents, Evaluations, Memories
from lockstitch.model.side_records import Eval, Knowledge, Memory
from lockstitch.store import Store

pytestmark = pytest.mark.anyio

ID = "0190b6a0-0000-7000-8000-000000000001"
TIMES = {"created_at": 1_700_000_000, "updated_at": 1_700_000_100}


def memory(id: str, **more: Any) -> dict[str, Any]:
    about = {"memory": "Likes tea.", "topics": ["tea", 1], "input": None, "feedback": "good", "user_id": "ada"}
    return {"id": id, **about, "agent_id": None, "team_id": "team", **TIMES, **more}


def shown(row: dict[str, Any], id_field: str) -> dict[str, Any]:
    return {id_field if name == "id" else name: value for name, value in row.items()}


async def test_memories_are_memories_of_the_record(store: Store) -> None:
    memories = Memories(store)
    for id in (ID, "own id"):
        await memories.put(memory(id))
        assert await memories.get(id) == shown(memory(id), "memory_id")
    # The same ids in another project, and a memory of another writer.
    other = Memories(store.in_project("other"))
    await other.put(memory(ID, memory="Other."))
    now = store.clock.now()
    foreign = Memory(text="Foreign.", created_at=now, updated_at=now)
    await store.table(Memory).put(foreign)
    assert await memories.get(str(foreign.id)) is None
    await memories.put(memory(str(foreign.id), memory="Own.", user_id="bo"))
    assert sorted(row["memory"] for row in await memories.find()) == ["Likes tea.", "Likes tea.", "Own."]
    assert [row["memory_id"] for row in await memories.find(memories.of_user("bo"))] == [str(foreign.id)]
    stored = await store.table(Memory).find(order=("created_at", "id"))
    assert {(record.text, record.agent, record.user_id) for record in stored} >= {("Likes tea.", "team", "ada")}
    assert await memories.delete([ID], "bo") == 0
    assert await memories.delete(None) == 3
    assert {record.text for record in await store.table(Memory).find()} == {"Other.", "Foreign."}


async def test_contents_and_evaluations_are_records_too(store: Store) -> None:
    documents, evaluations = Documents(store), Evaluations(store)
    about = {"name": "Guide", "description": "All.", "metadata": {"linked_to": "mine"}, "type": "pdf", "size": 7}
    row = {"id": "d", **about, "linked_to": "base", "access_count": 2, "status": "done", "status_message": ""}
    row |= {"user_id": None, "external_id": None, **TIMES}
    await documents.put(row)
    assert await documents.get("d") == row
    assert await documents.find(documents.own_value("user_id", None)) == [row]
    assert await documents.find(documents.of_user("ada")) == []
    (content,) = await store.table(Knowledge).find()
    assert (content.name, content.size, content.metadata["linked_to"]) == ("Guide", 7, "base")

    about = {"agent_id": "helper", "model_id": "m", "team_id": None, "name": None, "user_id": "ada"}
    row = {"id": ID, **about, "eval_type": "accuracy", "eval_data": {"score": 9.5}, "eval_input": None, **TIMES}
    await evaluations.create(row)
    with pytest.raises(Conflict):
        await evaluations.create(row)
    assert await evaluations.get(ID) == shown(row, "run_id")
    await evaluations.put({**row, "eval_input": {}, "name": "First"})
    assert [found["eval_input"] for found in await evaluations.find(evaluations.own_value("model_id", "m"))] == [{}]
    (result,) = await store.table(Eval).find()
    assert (str(result.id), result.agent, result.result, result.name) == (ID, "helper", {"score": 9.5}, "First")


def test_rows_are_sorted_as_in_agno() -> None:
    rows = [{"a": 1, "updated_at": None, "created_at": 5}, {"a": None, "updated_at": 3}, {"a": 2, "updated_at": 9}]
    assert [row["a"] for row in sorted_rows(rows, "a", "asc")] == [1, 2, None]
    assert [row["a"] for row in sorted_rows(rows, "a", None)] == [2, 1, None]
    assert [row["a"] for row in sorted_rows(rows, "updated_at", "desc")] == [2, 1, None]
    assert sorted_rows(rows, "none", "asc") == sorted_rows(rows, None, None) == rows
    assert [page_of(rows, 2, 2), page_of(rows, None, 5), page_of(rows, 1, None)] == [rows[2:], rows, rows[:1]]
