"""The report of an import is the same each time, also if parts are already stored."""

import json
from pathlib import Path

import pytest

from lockstitch import import_traces, open_store, sync
from lockstitch.integrations.importer import ImportSource, TraceImport
from lockstitch.integrations.langsmith import LangSmith
from lockstitch.model import Json
from lockstitch.store import Store
from tests.integrations.runs import agent_trace, items

pytestmark = pytest.mark.anyio


async def report(store: Store, runs: list[Json]) -> Json:
    source = ImportSource("runs.json", lambda on_bad, share: iter(items(*runs)))
    return (await TraceImport(store, LangSmith()).run(iter([source]))).as_json()


@pytest.mark.req("S2-048")
@pytest.mark.parametrize(
    "left_out", [(), (2,), (2, 3), (1,)], ids=["whole", "no span of one", "of none", "nobody asks"]
)
async def test_second_import_reports_same_totals(store: Store, left_out: tuple[int, ...]) -> None:
    """Tool calls are counted by their request, by their span, or by both. Missing values are reported again."""
    runs = [run for place, run in enumerate(agent_trace().runs) if place not in left_out]
    first = await report(store, runs)
    assert await report(store, runs) == first
    assert first["tool_calls"] == sum([row.type == "tool_call" for row in await store.latest(limit=100)])


async def test_counts_several_generations_in_each_import(store: Store) -> None:
    answers = [{"text": text, "message": {"type": "ai", "data": {"content": text}}} for text in ("a", "b")]
    run = {**agent_trace().runs[1], "outputs": {"generations": [answers]}}
    first = await report(store, [run])
    assert first["llm_calls"] == 2
    assert await report(store, [run]) == first


async def test_import_traces_works_with_and_without_await(tmp_path: Path) -> None:
    """The same call and the same report."""
    (tmp_path / "runs.json").write_text(json.dumps(agent_trace().runs))
    url = f"sqlite:///{tmp_path}/agents.db"
    async with open_store(url) as store:
        first = await import_traces(store, "langsmith", str(tmp_path / "runs.json"))
    assert first.as_json()["llm_calls"]
    with sync.open_store(url) as blocking:
        assert sync.import_traces(blocking, "langsmith", str(tmp_path / "runs.json")).as_json() == first.as_json()
