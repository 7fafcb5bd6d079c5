"""`request_of()`: the request of an imported model call, in the form of native requests."""

from collections.abc import Callable
from typing import Any, Final

from lockstitch.integrations.langsmith.messages import assistant, blocks_of, messages_in, results_in
from lockstitch.integrations.otel.facts import input_messages
from lockstitch.integrations.otel.values import as_json, as_list, parsed
from lockstitch.integrations.spans.span import Result
from lockstitch.model import Json, Message, text_of

Turns = list[tuple[str, list[Any], list[Result]]]
"""Messages as role, blocks and tool results."""


def request_of(source: str, data: Json) -> Json:
    """Return the parameters, the system prompt, the tools and the messages of a call. {} if no messages are known.

    Args:
        source: The source of the run.
        data: The data of the stitch.
    """
    inputs = as_json(data.get("inputs"))
    turns = _TURNS.get(source, _otel)(inputs)
    messages = [
        message for role, blocks, results in turns if role != "system" if (message := _message(role, blocks, results))
    ]
    if not messages:
        return {}
    system = [text_of({"role": "user", "content": blocks}) for role, blocks, _ in turns if role == "system"]
    system = [text for text in system if text] or _texts(inputs.get("system"))
    requested = as_json(as_json(data.get("extra")).get("invocation_params"))
    tools = [tool for item in as_list(inputs.get("tools") or requested.get("tools")) if (tool := _tool(item))]
    parts = {"system": "\n\n".join(system), "tools": tools}
    return {
        **as_json(data.get("parameters")),
        **{name: value for name, value in parts.items() if value},
        "messages": messages,
    }


def _otel(inputs: Json) -> Turns:
    return [(message.role, message.blocks, message.results) for message in input_messages(inputs)]


def _langsmith(inputs: Json) -> Turns:
    turns: Turns = []
    for message in messages_in(inputs):
        results = results_in(message)
        if message.speaker == "assistant":
            blocks: list[Any] = list(assistant(message)["content"])
        else:
            # The content of a tool message is its result.
            blocks = [] if message.speaker == "tool" else blocks_of(message)
        turns.append(
            (message.speaker, [block for block in blocks if as_json(block).get("type") != "tool_result"], results)
        )
    prompts = [prompt for prompt in as_list(inputs.get("prompts")) if isinstance(prompt, str)]
    return turns or [("user", [{"type": "text", "text": prompt}], []) for prompt in prompts]


_TURNS: Final[dict[str, Callable[[Json], Turns]]] = {"langsmith": _langsmith}


def _message(role: str, blocks: list[Any], results: list[Result]) -> Message | None:
    content = [*blocks, *map(_result, results)]
    return {"role": "assistant" if role == "assistant" else "user", "content": content} if content else None


def _result(result: Result) -> Json:
    block: Json = {"type": "tool_result", "tool_use_id": result.call_id, "content": result.content}
    return {**block, "is_error": True} if result.failed else block


def _tool(item: Any) -> Json:
    """Return the definition of a tool: OpenAI's form wraps it, and some instrumentations store its JSON text."""
    tool = as_json(parsed(item))
    tool = as_json(parsed(tool.get("json_schema"))) or tool
    return as_json(tool.get("function")) or tool


def _texts(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    blocks = [as_json(block) for block in as_list(value)]
    return [text for block in blocks if isinstance(text := block.get("text") or block.get("content"), str)]
