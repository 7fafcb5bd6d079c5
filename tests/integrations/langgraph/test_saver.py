"""`LockstitchSaver`: graphs of LangGraph with their state and their conversation in a store."""

import asyncio
import operator
from pathlib import Path
from typing import Annotated, Any, TypedDict

import pytest
from langchain_core.messages import RemoveMessage
from langgraph.graph import END, START, StateGraph

from lockstitch import Conflict, Refused, Run, open_store
from lockstitch.integrations.langgraph import LockstitchSaver
from lockstitch.integrations.langgraph.records import OF_THREADS, ChannelValue, Checkpoint
from lockstitch.model.message import text_of
from lockstitch.store import Store, Where
from tests.integrations.langgraph.graphs import agent, config, said, texts

pytestmark = pytest.mark.anyio

SUM = ["add 2 3", "Let me see.", "5", "The sum is 5."]


async def log(store: Store, thread: str = "langgraph:1") -> list[tuple[str, str]]:
    """Return type and text of the stitches of a thread."""
    return [(stitch.type, text_of(stitch.message)) for stitch in await store.stitches(thread) if stitch.message]


async def run_of(store: Store) -> Run:
    (run,) = await store.runs("langgraph:1")
    return run


async def records(store: Store) -> int:
    return sum([await store.table(kind).count() for kind in OF_THREADS])


async def test_records_the_conversation_of_a_graph_with_its_state(store: Store) -> None:
    graph = agent(LockstitchSaver(store))
    assert texts(await graph.ainvoke(said("add 2 3"), config())) == SUM
    assert [type for type, _ in await log(store)] == ["input", "llm_call", "tool_call", "llm_call"]
    run = await run_of(store)
    assert (run.status, run.input_tokens, run.output_tokens, run.steps) == ("completed", 40, 10, 2)
    (turn,) = (await store.history("langgraph:1")).turns
    assert (turn.user_message, turn.final_response) == ("add 2 3", "The sum is 5.")
    assert [message["role"] for message in await store.context("langgraph:1")] == [
        "user",
        "assistant",
        "user",
        "assistant",
    ]
    assert (await store.thread("langgraph:1")).status == "waiting"
    assert [hit.position for hit in await store.search("sum")] == [4]


async def test_another_process_continues_without_recording_twice(store: Store, store_url: str) -> None:
    await agent(LockstitchSaver(store)).ainvoke(said("add 2 3"), config())
    async with open_store(store_url) as other:
        state = await agent(LockstitchSaver(other)).ainvoke(said("hi"), config())
    state = await agent(LockstitchSaver(store)).ainvoke(said("bye"), config())
    assert texts(state) == [*SUM, "hi", "You said hi.", "bye", "You said bye."]
    assert [text for type, text in await log(store) if type in ("input", "llm_call")] == [
        text for text in texts(state) if text != "5"
    ]
    assert [run.status for run in await store.runs("langgraph:1")] == ["completed"] * 3


async def test_context_is_the_list_of_the_graph_after_time_travel_and_removal(store: Store) -> None:
    graph = agent(LockstitchSaver(store))
    await graph.ainvoke(said("one"), config())
    before = await graph.aget_state(config())
    await graph.ainvoke(said("two"), config())
    state = await graph.ainvoke(said("three"), before.config)
    assert texts(state) == ["one", "You said one.", "three", "You said three."]
    assert [text_of(message) for message in await store.context("langgraph:1")] == texts(state)
    assert ("input", "two") in await log(store), "the log has the abandoned branch"

    await graph.aupdate_state(config(), {"messages": [RemoveMessage(id="said-one")]})
    state = await graph.ainvoke(said("four"), config())
    assert texts(state) == ["You said one.", "three", "You said three.", "four", "You said four."]
    assert [text_of(message) for message in await store.context("langgraph:1")] == texts(state)
    assert len([text for _, text in await log(store) if text == "You said three."]) == 1


async def test_failed_graph_fails_the_run_and_the_next_input_starts_another(store: Store) -> None:
    graph = agent(LockstitchSaver(store))
    with pytest.raises(RuntimeError):
        await graph.ainvoke(said("fail"), config(), durability="sync")
    run = await run_of(store)
    assert (run.status, run.error) == ("failed", "The model is down.")
    await graph.ainvoke(said("hi"), config())
    assert [run.status for run in await store.runs("langgraph:1")] == ["failed", "completed"]


@pytest.mark.parametrize("on_conflict", ["langgraph", "raise"])
async def test_concurrent_runs_of_one_thread(store: Store, on_conflict: Any) -> None:
    graph = agent(LockstitchSaver(store, on_conflict=on_conflict))
    await graph.ainvoke(said("first"), config())
    inputs = [said(f"add {number} 1") for number in range(4)]
    results = await asyncio.gather(
        *(graph.ainvoke(item, config(), durability="sync") for item in inputs), return_exceptions=True
    )
    conflicts = [result for result in results if isinstance(result, Conflict)]
    recorded = {text for type, text in await log(store) if type == "input"}
    if on_conflict == "raise":
        assert len(conflicts) == 3
        assert len(recorded) == 2
    else:
        assert [result for result in results if isinstance(result, BaseException)] == []
        assert len(recorded) == 5
    answers = texts((await graph.aget_state(config())).values)
    assert answers[:2] == ["first", "You said first."]
    assert answers[-1].startswith("The sum is")
    await graph.ainvoke(said("again"), config())


async def test_deleting_and_purging_a_thread_deletes_its_state(store: Store) -> None:
    saver = LockstitchSaver(store)
    for thread in ("1", "2", "3"):
        await agent(saver).ainvoke(said("hi"), config(thread))
    await saver.adelete_thread("1")
    await store.delete("langgraph:2")
    assert {row.thread_id for row in await store.table(Checkpoint).find()} == {(await store.thread("langgraph:3")).id}
    assert await saver.aget_tuple(config("2")) is None
    state = await agent(saver).ainvoke(said("again"), config("2"))
    assert texts(state) == ["again", "You said again."]
    assert await store.purge(before=store.clock.now()) == 2
    assert await records(store) == 0


async def test_process_writes_whole_values_after_another_process_pruned(store: Store, store_url: str) -> None:
    """The base of a difference may be gone: the stitch of the prune shows it."""
    graph = agent(LockstitchSaver(store))
    long = "x" * 2_000
    for number in range(3):
        await graph.ainvoke(said(f"{number}{long}"), config())
    assert await store.table(ChannelValue).count(Where("base", "is not null")) > 0
    async with open_store(store_url) as other:
        pruning = LockstitchSaver(other)
        await agent(pruning).ainvoke(said(f"other{long}"), config())
        await pruning.aprune(["1"])
        assert [row.base for row in await other.table(ChannelValue).find()] == [None]
        assert len([item async for item in pruning.alist(config())]) == 1
    await graph.ainvoke(said("after"), config())
    async with open_store(store_url) as third:
        state = (await agent(LockstitchSaver(third)).aget_state(config())).values
    assert len(texts(state)) == 10
    assert texts(state)[-3:] == [f"You said other{long}.", "after", "You said after."]


async def test_lists_by_metadata_of_all_threads(store: Store) -> None:
    saver = LockstitchSaver(store)
    for thread in ("a", "b"):
        await agent(saver).ainvoke(said("hi"), {**config(thread), "metadata": {"user": thread, "deep": 1}})
    everything = [item async for item in saver.alist(None)]
    assert {item.config["configurable"]["thread_id"] for item in everything} == {"a", "b"}
    of_a = [item async for item in saver.alist(None, filter={"user": "a", "source": "loop"}, limit=1)]
    assert [item.config["configurable"]["thread_id"] for item in of_a] == ["a"]
    assert [item async for item in saver.alist(None, filter={"user": ["a"]})] == []
    assert len([item async for item in saver.alist(config("b"), filter={"unknown": None})]) == len(everything) // 2
    assert [item async for item in saver.alist(config("c"))] == []


async def test_works_from_threads_and_other_loops(store: Store) -> None:
    saver = LockstitchSaver(store)
    graph = agent(saver)
    assert texts(await asyncio.to_thread(graph.invoke, said("hi"), config())) == ["hi", "You said hi."]
    other_loop = await asyncio.to_thread(lambda: asyncio.run(graph.ainvoke(said("bye"), config())))
    assert texts(other_loop)[2:] == ["bye", "You said bye."]
    assert len(await asyncio.to_thread(lambda: [*saver.list(config())])) == 6
    with pytest.raises(Refused, match="cannot wait for itself"):
        saver.get_tuple(config())


def test_opens_a_store_for_programs_without_a_loop(store_url: str) -> None:
    with LockstitchSaver.open(store_url) as saver:
        assert texts(agent(saver).invoke(said("add 2 3"), config())) == SUM
    with LockstitchSaver.open(store_url) as saver:
        assert texts(agent(saver).get_state(config()).values) == SUM
        saver.delete_thread("1")
        assert saver.get_tuple(config()) is None
    with pytest.raises(Refused, match="Open the store again"):
        saver.get_tuple(config())
    with pytest.raises(Refused, match=r"LockstitchSaver.open"):
        LockstitchSaver(saver.store)


async def test_copy_carries_state_to_another_backend_and_back(store: Store, tmp_path: Path) -> None:
    await agent(LockstitchSaver(store)).ainvoke(said("add 2 3"), config())
    async with open_store(f"sqlite:///{tmp_path}/copy.db") as copy:
        assert (await store.copy_to(copy)).skipped_extensions == []
        state = await agent(LockstitchSaver(copy)).ainvoke(said("hi"), config())
        assert texts(state) == [*SUM, "hi", "You said hi."]
        await store.delete("langgraph:1")
        await copy.copy_to(store)
    state = await agent(LockstitchSaver(store)).ainvoke(said("bye"), config())
    assert texts(state) == [*SUM, "hi", "You said hi.", "bye", "You said bye."]
    types = ["input", "llm_call", "tool_call", "llm_call", *(["input", "llm_call"] * 2)]
    assert [type for type, _ in await log(store)] == types


class Counters(TypedDict):
    total: Annotated[int, operator.add]
    notes: Annotated[list[str], operator.add]


async def test_graph_without_messages_writes_no_stitches(store: Store) -> None:
    graph = StateGraph(Counters)
    graph.add_node("count", lambda state: {"total": 1, "notes": ["n" * 500]})
    graph.add_edge(START, "count")
    graph.add_edge("count", END)
    compiled = graph.compile(checkpointer=LockstitchSaver(store))
    for _ in range(3):
        state = await compiled.ainvoke({"total": 0, "notes": []}, config())
    assert (state["total"], len(state["notes"])) == (3, 3)
    assert await store.stitches("langgraph:1") == []
    history = [item async for item in compiled.aget_state_history(config())]
    assert [len(item.values["notes"]) for item in history if not item.next] == [3, 2, 1]
