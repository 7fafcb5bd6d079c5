"""Runs of a model that numbers its calls from 0 in each response, exported and imported again."""

import json
from typing import Any

import pytest

from lockstitch.agents.run_spans import trace
from lockstitch.integrations.langsmith.export import export_run
from lockstitch.store import Store, open_store
from tests.engine.agents import add, scripted
from tests.engine.test_repeated_ids import numbered
from tests.integrations.importing import import_bytes, lens

pytestmark = pytest.mark.anyio

ARGUMENTS = [(1, 1), (2, 2), (3, 3), (4, 4)]


async def import_story(store: Store) -> Any:
    calls = [("add", {"a": a, "b": b}) for a, b in ARGUMENTS]
    agent = scripted(numbered(*calls[:2]), numbered(calls[2]), numbered(calls[3]), "Done.", tools=[add])
    return await agent.run("Go", store=store, thread="t")


@pytest.mark.parametrize("protocol", ["langsmith", "otel"])
async def test_results_stay_with_calls_when_run_is_imported_again(store: Store, tmp_path: Any, protocol: str):
    result = await import_story(store)
    if protocol == "langsmith":
        body = json.dumps(await export_run(store, str(result.run_id))).encode()
    else:
        head, run = await store.thread("t"), await store.run(result.run_id)
        body = trace(head, run, await store.stitches("t"), content=True).SerializeToString()
    async with open_store(f"sqlite:///{tmp_path}/other.db") as other_store:
        await import_bytes(other_store, protocol, body)
        rows = await lens(other_store)
    answers = {call["llm_call_id"]: call["step_index"] for call in rows["llm_calls"]}
    pairs = sorted(
        (answers[call["llm_call_id"]], call["tool_call_id"], call["tool_args"]["a"], call["tool_response"])
        for call in rows["tool_calls"]
    )
    assert pairs == [
        (0, "call_0", 1, "2"),
        (0, "call_1", 2, "4"),
        (1, "call_0", 3, "6"),
        (2, "call_0", 4, "8"),
    ]
