"""LangGraph with the same loop: a model node and a tool node, its own savers, durability "sync"."""

import operator
import sqlite3
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, closing
from typing import Annotated, Any, TypedDict

from langgraph.graph import END, START, StateGraph

from benchmarks.goals import RESULT, STEPS, TEXT
from benchmarks.places import sqlite_path


class State(TypedDict):
    messages: Annotated[list[dict[str, Any]], operator.add]


class Peer(AbstractContextManager["Peer"]):
    """One compiled graph with its own saver."""

    def __init__(self, backend: str, url: str, text: str, result: str) -> None:
        self._stack = ExitStack()
        self._saver = _sqlite(self._stack, url) if backend == "sqlite" else _postgres(self._stack, url)
        self._saver.setup()
        self._threads = 0
        self._text, self._result = text, result

    def run(self, steps: int) -> float:
        """Run a thread of this number of steps. Return steps per second."""
        graph = self._graph(steps)
        self._threads += 1
        config = {"configurable": {"thread_id": f"t{self._threads}"}, "recursion_limit": 3 * steps + 10}
        started = time.perf_counter()
        graph.invoke({"messages": [{"role": "user", "content": "Go"}]}, config, durability="sync")
        return steps / (time.perf_counter() - started)

    def talk(self, turns: int, question: str, answer: str) -> None:
        """Run a conversation in one thread, with a question and an answer per turn."""
        builder = StateGraph(State)
        builder.add_node("model", lambda _: {"messages": [{"role": "assistant", "content": answer}]})
        builder.add_edge(START, "model")
        graph = builder.compile(checkpointer=self._saver)
        config: Any = {"configurable": {"thread_id": "talk"}}
        for _ in range(turns):
            graph.invoke({"messages": [{"role": "user", "content": question}]}, config, durability="sync")

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _graph(self, steps: int) -> Any:
        text, result = self._text, self._result

        def model(state: State) -> dict[str, Any]:
            step = len(state["messages"]) // 2 + 1
            if step >= steps:
                return {"messages": [{"role": "assistant", "content": "Done."}]}
            call = {"type": "tool_use", "id": f"call_{step}", "name": "look", "input": {}}
            return {"messages": [{"role": "assistant", "content": [{"type": "text", "text": text}, call]}]}

        def tool(state: State) -> dict[str, Any]:
            call_id = state["messages"][-1]["content"][-1]["id"]
            block = {"type": "tool_result", "tool_use_id": call_id, "content": result}
            return {"messages": [{"role": "user", "content": [block]}]}

        def route(state: State) -> str:
            return "tool" if isinstance(state["messages"][-1]["content"], list) else END

        builder = StateGraph(State)
        builder.add_node("model", model)
        builder.add_node("tool", tool)
        builder.add_edge(START, "model")
        builder.add_conditional_edges("model", route)
        builder.add_edge("tool", "model")
        return builder.compile(checkpointer=self._saver)


def _sqlite(stack: ExitStack, url: str) -> Any:
    from langgraph.checkpoint.sqlite import SqliteSaver

    connection = stack.enter_context(closing(sqlite3.connect(sqlite_path(url), check_same_thread=False)))
    return SqliteSaver(connection)


def _postgres(stack: ExitStack, url: str) -> Any:
    import psycopg
    from langgraph.checkpoint.postgres import PostgresSaver
    from psycopg.rows import dict_row

    connection = psycopg.connect(url, autocommit=True, prepare_threshold=0, row_factory=dict_row)
    return PostgresSaver(stack.enter_context(closing(connection)))


def threads(backend: str, url: str, concurrency: int) -> Callable[[int], Callable[[], None]]:
    """Prepare the execution of this number of threads, `concurrency` at once."""
    peer = Peer(backend, url, TEXT, RESULT)
    places = ThreadPoolExecutor(concurrency)

    def ready(number: int) -> Callable[[], None]:
        def execute() -> None:
            for _ in places.map(peer.run, [STEPS] * number):
                pass

        return execute

    return ready
