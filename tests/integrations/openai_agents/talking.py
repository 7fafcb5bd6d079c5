"""Conversations as the SDK writes them: it reads the items, adds the message of the user, then each response."""

from types import SimpleNamespace
from typing import Any

from lockstitch.integrations.openai_agents import LockstitchSession

SUM = ["add 2 3", "Let me see.", "add", "5", "The sum is 5."]


def said(text: str) -> dict[str, Any]:
    return {"content": text, "role": "user"}


def answered(text: str, number: int = 1) -> dict[str, Any]:
    content = [{"annotations": [], "text": text, "type": "output_text"}]
    return {"id": f"msg-{number}", "content": content, "role": "assistant", "status": "completed", "type": "message"}


def called(number: int = 1) -> dict[str, Any]:
    return {"arguments": '{"a": 2, "b": 3}', "call_id": f"call-{number}", "name": "add", "type": "function_call"}


def returned(number: int = 1, output: Any = "5") -> dict[str, Any]:
    return {"call_id": f"call-{number}", "output": output, "type": "function_call_output"}


def batches(text: str) -> list[list[dict[str, Any]]]:
    """Return the items of each commit of a run: `add 2 3` calls a tool."""
    if text != SUM[0]:
        return [[said(text)], [answered(f"You said {text}.")]]
    return [[said(text)], [answered(SUM[1]), called(), returned()], [answered(SUM[4], 2)]]


async def talk(session: LockstitchSession, text: str) -> None:
    """Add the commits of a run that are not stored yet. Each response costs tokens, which the context counts."""
    done = len(await session.get_items())
    requests: list[Any] = []
    for number, items in enumerate(batches(text)):
        if number:
            details = SimpleNamespace(cached_tokens=1, cache_write_tokens=0)
            requests.append(SimpleNamespace(input_tokens=10 * number, output_tokens=5, input_tokens_details=details))
        if text != SUM[0] or done < len(items):
            wrapper = SimpleNamespace(usage=SimpleNamespace(request_usage_entries=requests))
            await session.add_items(items, wrapper=wrapper)
            done = 0
        else:
            done -= len(items)


def texts(items: Any) -> list[str]:
    """Return the texts of items."""
    found: list[str] = []
    for item in items:
        content = item.get("content", item.get("output", item.get("name")))
        found.append(content if isinstance(content, str) else "".join(part["text"] for part in content))
    return found
