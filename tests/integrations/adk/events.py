"""Events of ADK as JSON, as its `Event.model_dump_json(exclude_none=True)` writes them."""

from itertools import count
from typing import Any

from lockstitch.integrations.adk.sessions import Name

NAME = Name("shop", "ada", "1")
KEY = "adk:shop/ada/1"

_numbers = count(1)


def event(author: str, *parts: dict[str, Any], invocation: str = "i-1", **more: Any) -> dict[str, Any]:
    number = next(_numbers)
    content = {"content": {"role": "user" if author == "user" else "model", "parts": [*parts]}} if parts else {}
    actions = {"state_delta": more.pop("state", {}), "artifact_delta": {}}
    about = {"invocation_id": invocation, "author": author, "id": f"event-{number}", "timestamp": 1.7e9 + number / 8}
    return {**content, **about, "actions": actions, **more}


def said(text: str, invocation: str = "i-1", **more: Any) -> dict[str, Any]:
    return event("user", {"text": text}, invocation=invocation, **more)


def answered(text: str, invocation: str = "i-1", **more: Any) -> dict[str, Any]:
    usage = {"prompt_token_count": 10, "candidates_token_count": 4, "thoughts_token_count": 1}
    about = {"model_version": "gemini-2.5-flash", "usage_metadata": usage}
    return event("helper", {"text": text}, invocation=invocation, **about, **more)


def call(name: str, id: str, **args: Any) -> dict[str, Any]:
    return {"function_call": {"id": id, "name": name, "args": args}}


def response(name: str, id: str, value: dict[str, Any]) -> dict[str, Any]:
    return {"function_response": {"id": id, "name": name, "response": value}}


def sum_of(invocation: str = "i-1") -> list[dict[str, Any]]:
    """Return an invocation with two parallel calls of a tool."""
    usage = {"usage_metadata": {"prompt_token_count": 20, "candidates_token_count": 2, "cached_content_token_count": 8}}
    return [
        said("Add.", invocation, state={"asked": 1}),
        event("helper", call("add", "a", x=1), call("add", "b", x=2), invocation=invocation, **usage),
        event("helper", response("add", "a", {"result": "one"}), response("add", "b", {"n": 2}), invocation=invocation),
        answered("Three.", invocation, state={"asked": 2, "user:sums": 1}),
    ]
