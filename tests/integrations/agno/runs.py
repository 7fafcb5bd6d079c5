"""Sessions and runs of Agno as JSON, as its `to_dict` writes them."""

from typing import Any

KEY = "agno:s"


def session(session_id: str = "s", user_id: str | None = "ada", **more: Any) -> dict[str, Any]:
    content = {"session_data": {"session_state": {}, **more.pop("data", {})}, "metadata": None, "summary": None}
    about = {"session_id": session_id, "session_type": "agent", "agent_id": "helper", "user_id": user_id}
    return {**about, "created_at": 1_700_000_000, "content": content, **more}


def message(id: str, role: str, content: Any = None, **more: Any) -> dict[str, Any]:
    return {"id": id, "role": role, "content": content, "from_history": False, "created_at": 1_700_000_001, **more}


def call(id: str, name: str, arguments: str) -> dict[str, Any]:
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


def run(id: str, *messages: dict[str, Any], status: str = "COMPLETED", **more: Any) -> dict[str, Any]:
    about = {"run_id": id, "agent_id": "helper", "session_id": "s", "model": "gpt-4o-mini", "model_provider": "OpenAI"}
    content = messages[-1]["content"] if messages else None
    return {**about, "status": status, "content": content, "created_at": 1_700_000_001, "messages": [*messages], **more}


TOKENS = {"metrics": {"input_tokens": 10, "output_tokens": 4, "cache_read_tokens": 2, "duration": 0.25}}


def sum_of(id: str = "1", status: str = "COMPLETED") -> dict[str, Any]:
    """Return a run with two parallel calls of a tool. The message of an earlier run is in it, too."""
    calls = [call(f"{id}a", "add", '{"x": 1}'), call(f"{id}b", "add", '{"x": 2}')]
    return run(
        f"run-{id}",
        message("m0", "user", "Earlier.", from_history=True),
        message(f"{id}-1", "system", "Be kind."),
        message(f"{id}-2", "user", f"Add {id}."),
        message(f"{id}-3", "assistant", tool_calls=calls, **TOKENS),
        message(f"{id}-4", "tool", "one", tool_call_id=f"{id}a", tool_name="add"),
        message(f"{id}-5", "tool", "no", tool_call_id=f"{id}b", tool_name="add", tool_call_error=True),
        message(f"{id}-6", "assistant", "Three.", **TOKENS),
        status=status,
    )


def part_of(whole: dict[str, Any], messages: int, status: str, **more: Any) -> dict[str, Any]:
    """Return a run as it was when it had only some of its messages."""
    return {**whole, "messages": whole["messages"][:messages], "status": status, **more}
