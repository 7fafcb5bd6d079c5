"""LangGraph with the same loop: a model node and a tool node, its own savers, durability "sync"."""

import operator
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from typing import Annotated, Any, TypedDict
from uuid import uuid4

from langgraph.graph import END, START, StateGraph

from benchmarks.content import ANSWER, RESULT, TEXT
from benchmarks.peers import Execute, Prepare


class State(TypedDict):
    messages: Annotated[list[dict[str, Any]], operator.add]


def threads(url: str, concurrency: int) -> Prepare:
    # A saver has a lock, so threads that share one wait for each other's commits. SQLite has one writer anyway.
    savers = [_sqlite(url)] if url.startswith("sqlite") else [_postgres(url) for _ in range(concurrency)]
    savers[0].setup()
    places = ThreadPoolExecutor(concurrency)

    def prepare(number: int, steps: int) -> Execute:
        graphs = [_graph(saver, steps) for saver in savers]

        def execute_part(place: int) -> None:
            for _ in range(place, number, concurrency):
                config: Any = {"configurable": {"thread_id": str(uuid4())}, "recursion_limit": 3 * steps + 10}
                question = {"messages": [{"role": "user", "content": "Go"}]}
                state = graphs[place % len(graphs)].invoke(question, config, durability="sync")
                if len(state["messages"]) != 2 * steps:
                    raise RuntimeError(f"{len(state['messages'])} messages after {steps} steps")

        def execute() -> None:
            for _ in places.map(execute_part, range(concurrency)):
                pass

        return execute

    return prepare


def _graph(saver: Any, steps: int) -> Any:
    def model(state: State) -> dict[str, Any]:
        step = len(state["messages"]) // 2 + 1
        if step >= steps:
            return {"messages": [{"role": "assistant", "content": ANSWER}]}
        call = {"type": "tool_use", "id": f"call_{step}", "name": "look", "input": {}}
        return {"messages": [{"role": "assistant", "content": [{"type": "text", "text": TEXT}, call]}]}

    def tool(state: State) -> dict[str, Any]:
        call_id = state["messages"][-1]["content"][-1]["id"]
        block = {"type": "tool_result", "tool_use_id": call_id, "content": RESULT}
        return {"messages": [{"role": "user", "content": [block]}]}

    def route(state: State) -> str:
        return "tool" if isinstance(state["messages"][-1]["content"], list) else END

    builder = StateGraph(State)
    builder.add_node("model", model)
    builder.add_node("tool", tool)
    builder.add_edge(START, "model")
    builder.add_conditional_edges("model", route)
    builder.add_edge("tool", "model")
    return builder.compile(checkpointer=saver)


def _sqlite(url: str) -> Any:
    from langgraph.checkpoint.sqlite import SqliteSaver

    return SqliteSaver(sqlite3.connect(url.removeprefix("sqlite:///"), check_same_thread=False))


def _postgres(url: str) -> Any:
    import psycopg
    from langgraph.checkpoint.postgres import PostgresSaver
    from psycopg.rows import dict_row

    return PostgresSaver(psycopg.connect(url, autocommit=True, prepare_threshold=0, row_factory=dict_row))
