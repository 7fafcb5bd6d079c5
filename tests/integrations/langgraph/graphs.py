"""Graphs for the tests: an agent with one tool and a scripted model."""

from collections.abc import Sequence
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langgraph.graph import END, START, MessagesState, StateGraph

from lockstitch.integrations.langgraph import LockstitchSaver


def model(state: MessagesState) -> dict[str, Any]:
    """Answer the last message: `add A B` calls the tool, `fail` raises, a result becomes the answer."""
    messages: Sequence[BaseMessage] = state["messages"]
    last, number = messages[-1], len(messages)
    usage = {"input_tokens": 10 * number, "output_tokens": 5, "total_tokens": 10 * number + 5}
    about = {"id": f"answer-{number}", "usage_metadata": usage, "response_metadata": {"model_name": "tiny"}}
    if isinstance(last, ToolMessage):
        return {"messages": [AIMessage(f"The sum is {last.content}.", **about)]}
    text = str(last.content)
    if text == "fail":
        raise RuntimeError("The model is down.")
    if text.startswith("add "):
        a, b = text.split()[1:]
        call = {"id": f"call-{number}", "name": "add", "args": {"a": int(a), "b": int(b)}}
        return {"messages": [AIMessage("Let me see.", tool_calls=[call], **about)]}
    return {"messages": [AIMessage(f"You said {text}.", **about)]}


def tools(state: MessagesState) -> dict[str, Any]:
    """Execute the calls of the last message."""
    calls = getattr(state["messages"][-1], "tool_calls", [])
    return {
        "messages": [
            ToolMessage(str(sum(call["args"].values())), tool_call_id=call["id"], id=f"result-{call['id']}")
            for call in calls
        ]
    }


def agent(saver: LockstitchSaver) -> Any:
    """Return the compiled graph."""
    graph = StateGraph(MessagesState)
    graph.add_node("model", model)
    graph.add_node("tools", tools)
    graph.add_edge(START, "model")
    graph.add_conditional_edges("model", lambda state: "tools" if state["messages"][-1].tool_calls else END)
    graph.add_edge("tools", "model")
    return graph.compile(checkpointer=saver)


def said(text: str) -> dict[str, Any]:
    return {"messages": [HumanMessage(text, id=f"said-{text}")]}


def config(thread_id: str = "1", **more: Any) -> Any:
    return {"configurable": {"thread_id": thread_id, **more}}


def texts(state: Any) -> list[str]:
    """Return the texts of the messages of a state."""
    return [str(message.content) for message in state["messages"]]
