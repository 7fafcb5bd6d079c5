"""What came out of a span: the answers of a model in whatever shape its response was kept."""

from typing import NamedTuple

from lockstitch.bridges.otel.values import as_json, as_list, as_text, first
from lockstitch.bridges.otel.wording import Said, message, messages
from lockstitch.bridges.span import Result
from lockstitch.records import Json


class Answer(NamedTuple):
    """What outputs say."""

    said: list[Said]
    """Messages of an assistant: of a model call one per choice."""
    results: list[Result]
    """Results of tools among them."""
    dialogue: list[Said]
    """All messages, whoever said them."""
    id: str | None = None
    """The response's own id."""
    model: str | None = None
    usage: Json = {}
    in_items: bool = False
    """Whether one answer of a model is told in several messages."""


def answer_of(outputs: Json) -> Answer:
    """Reads the messages that are there as such, else the response that was kept raw."""
    found = _response(as_json(outputs.get("output"))) or _response(outputs)
    dialogue = messages(outputs.get("messages")) or (found.said if found else _elsewhere(outputs))
    said = [one for one in dialogue if one.role == "assistant"]
    if found and not said:
        said = found.said
    elif found and len(found.said) == len(said):
        # The response knows what the messages that were made of it left out.
        said = [
            one._replace(
                id=one.id or other.id,
                finish_reason=one.finish_reason or other.finish_reason,
                about=one.about or other.about,
            )
            for one, other in zip(said, found.said, strict=True)
        ]
    results = [result for one in dialogue for result in one.results]
    in_items = any(_is_item(as_json(one)) for one in as_list(outputs.get("messages")))
    if found:
        return Answer(said, results, dialogue, found.id, found.model, found.usage, in_items)
    return Answer(said, results, dialogue, in_items=in_items)


def _elsewhere(outputs: Json) -> list[Said]:
    """Messages in places where frameworks leave them; at last a bare text, which is an answer too."""
    value = outputs.get("output")
    inner = as_json(value)
    itself = message(outputs)
    # LangGraph's commands: a node's output as the change that it makes.
    commands = [as_json(as_json(one).get("update")).get("messages") for one in [outputs, inner, *as_list(value)]]
    for place in (value, inner.get("output"), inner.get("messages"), *commands):
        if itself:
            return [itself]
        if dialogue := messages(place):
            return dialogue
    text = as_text(first(outputs, "output", "answer", "text", "result"))
    return [Said("assistant", [{"type": "text", "text": text}], [])] if text else []


def _is_item(value: Json) -> bool:
    return value.get("event.name") == "gen_ai.assistant.message" or value.get("type") in _ITEMS


_ITEMS = ("function_call", "reasoning", "message")


def _response(value: Json) -> Answer | None:
    """A provider's or LangChain's response, if this is one."""
    if isinstance(value.get("choices"), list):
        return _answer(value, [_choice(as_json(choice)) for choice in as_list(value["choices"])])
    if isinstance(value.get("generations"), list):
        batches = as_list(value["generations"])
        flat = [one for batch in batches for one in (as_list(batch) if isinstance(batch, list) else [batch])]
        return _answer({**as_json(value.get("llm_output")), "usage": {}}, [_choice(as_json(one)) for one in flat])
    if value.get("type") == "message" and isinstance(value.get("content"), list):
        # The id of Anthropic's response is that of its one message.
        return _answer(value, [message({"role": "assistant", **value})])
    if isinstance(value.get("output"), list) and (value.get("object") == "response" or "usage" in value):
        # OpenAI's Responses: several items are one answer.
        items = [one for one in messages(value.get("output")) if one.role == "assistant"]
        return _answer(value, [together(items)] if items else [])
    if isinstance(value.get("message"), dict) and ("usage" in value or "role" in as_json(value["message"])):
        return _answer(value, [message({"role": "assistant", **as_json(value["message"])})])
    if (text := value.get("combined_chunk_content")) is not None:
        return _answer(value, [Said("assistant", [{"type": "text", "text": str(text)}] if text else [], [])])
    return None


def _answer(value: Json, said: list[Said | None]) -> Answer:
    kept = [one for one in said if one]
    model = as_text(first(value, "model", "model_name"))
    return Answer(kept, [], kept, as_text(value.get("id")), model, as_json(value.get("usage")))


def _choice(choice: Json) -> Said | None:
    if isinstance(choice.get("message"), dict):
        return message({**choice, "message": {"role": "assistant", **as_json(choice["message"])}})
    text = as_text(first(choice, "text", "completion.text"))
    reason = as_text(first({**as_json(choice.get("generation_info")), **choice}, "finish_reason"))
    return Said("assistant", [{"type": "text", "text": text}] if text else [], [], None, reason)


def together(items: list[Said]) -> Said:
    """The items of one response of OpenAI's Responses as the one message that they are."""
    return Said("assistant", [block for item in items for block in item.blocks], [])
