"""A small LangGraph agent, traced by the LangSmith client."""

import warnings
from typing import Any

from langchain_core.language_models.fake_chat_models import FakeMessagesListChatModel
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.tools import tool
from langgraph.graph import END, START, MessagesState, StateGraph
from langsmith import Client, traceable, tracing_context
from langsmith.utils import get_env_var

CLOSING = {"timeout": 20}


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def answers() -> list[AIMessage]:
    call = {"name": "add", "args": {"a": 2, "b": 3}, "id": "call_1", "type": "tool_call"}
    usage: Any = {"input_tokens": 100, "output_tokens": 10, "total_tokens": 110}
    return [
        AIMessage(content="", tool_calls=[call], id="first", usage_metadata=usage),
        AIMessage(content="It is 5.", id="second", usage_metadata=usage),
    ]


def graph() -> Any:
    model = FakeMessagesListChatModel(responses=answers())

    def think(state: MessagesState) -> dict[str, Any]:
        return {"messages": [model.invoke(state["messages"])]}

    def act(state: MessagesState) -> dict[str, Any]:
        call = state["messages"][-1].tool_calls[0]
        return {"messages": [ToolMessage(add.invoke(call["args"]), tool_call_id=call["id"], name="add")]}

    built = StateGraph(MessagesState)
    built.add_node("think", think)
    built.add_node("act", act)
    built.add_edge(START, "think")
    built.add_conditional_edges("think", lambda state: "act" if state["messages"][-1].tool_calls else END)
    built.add_edge("act", "think")
    return built.compile()


def traced(client: Client, project: str, thread: str = "thread-1") -> None:
    """Run the agent once and send its trace."""
    config = {"configurable": {"thread_id": thread}, "metadata": {"shop": "corner"}}
    with tracing_context(client=client, project_name=project, enabled=True):
        answer = graph().invoke({"messages": [HumanMessage("2 and 3?")]}, config)
    assert answer["messages"][-1].content == "It is 5."
    client.flush()


@traceable(run_type="llm", name="greet")
def greet(name: str) -> dict[str, Any]:
    return {"content": f"Hello {name}", "usage_metadata": {"input_tokens": 9, "output_tokens": 1, "total_tokens": 10}}


def client_of(url: str, **options: Any) -> Client:
    get_env_var.cache_clear()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return Client(api_url=url, api_key=options.pop("api_key", "not-a-token"), **options)
