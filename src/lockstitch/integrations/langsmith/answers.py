"""`LangSmithAnswer`: the answers in the outputs of an llm run: LangChain's generations or a provider's response."""

from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

from lockstitch.integrations.langsmith.messages import (
    LangSmithMessage,
    assistant,
    blocks_of,
    message_of,
    messages_in,
    text_in,
)
from lockstitch.integrations.langsmith.runs import as_object, count, first_object, first_text, items, text
from lockstitch.integrations.spans.span import Generation
from lockstitch.integrations.spans.values import as_text, name
from lockstitch.model import Json

_REASONS: Final = ("finish_reason", "stop_reason", "done_reason", "finishReason", "stopReason")
_USAGE: Final = ("usage_metadata", "usageMetadata", "token_usage", "tokenUsage", "usage", "estimatedTokenUsage")
_STATUS: Final = ("status_code", "http_status", "http_status_code", "statusCode")
_WORDS: Final = ("output", "answer", "response", "completion", "result", "text", "content", "output_text")
_FREE: Final = ("usage_metadata", "usage", "model", "id")


class LangSmithAnswer(NamedTuple):
    """One answer, and the objects around it that can contain its details, the nearest first."""

    message: LangSmithMessage
    around: list[Json]
    text: str | None = None
    prompt: int = 0
    """The index of the prompt. Token counts of a batch are per prompt, also if a prompt has several answers."""


def answers_in(outputs: Json) -> list[LangSmithAnswer]:
    """Return all answers in the outputs of an llm run, in order."""
    outer = _response(outputs)
    for find in (_generations, _choices, _responses_api, _candidates, _messages):
        if lang_smith_answers := list(find(outputs)):
            return lang_smith_answers
    lang_smith_message = message_of(outer) or message_of(outputs.get("output"))
    if lang_smith_message is None and isinstance(outer.get("content"), list) and outer.get("stop_reason"):
        lang_smith_message = LangSmithMessage("assistant", outer)
    if lang_smith_message is not None:
        return [LangSmithAnswer(lang_smith_message, [outer, outputs])]
    words = _words(outputs)
    return [LangSmithAnswer(LangSmithMessage("assistant", {"content": words}), [outputs], words)] if words else []


def generation(answer: LangSmithAnswer, *, failed: bool) -> Generation:
    """Return an answer as a `Generation`: message, id, finish reason and failure."""
    message = assistant(answer.message)
    bags = details(answer)
    written = answer.text if answer.text is not None else text_in(message["content"])
    reason = first_text(*(each.get(key) for each in bags for key in _REASONS))
    return Generation(
        message=message,
        text=written,
        id=_message_id(answer),
        finish_reason=name(reason),
        failed=failed or reason == "refusal" or any(map(_is_error, bags)) or _refuses(answer.message),
        model=model_of([answer]),
        provider=provider_of([answer]),
    )


def model_of(answers: Sequence[LangSmithAnswer]) -> str | None:
    """Return the first model that the answers name."""
    return _first_name(answers, "model_name", "model", "modelName")


def provider_of(answers: Sequence[LangSmithAnswer]) -> str | None:
    """Return the first provider that the answers name."""
    return _first_name(answers, "model_provider")


def _first_name(answers: Sequence[LangSmithAnswer], *keys: str) -> str | None:
    bags = [detail for answer in answers for detail in details(answer)]
    return next((match for each in bags for key in keys if (match := text(each.get(key)))), None)


def details(answer: LangSmithAnswer) -> list[Json]:
    """Return the objects that can contain the details of an answer, the nearest first."""
    fields = answer.message.fields
    near = [as_object(fields.get("response_metadata")), fields]
    return [each for each in (*near, *answer.around) if each]


def own_usage(answer: LangSmithAnswer) -> list[Any]:
    """Return the usage that LangChain stores with an answer. It has the same names for every provider."""
    return [answer.message.fields.get("usage_metadata")]


def usages(answer: LangSmithAnswer) -> Iterator[Any]:
    """Yield the other places of an answer's token counts, the nearest first."""
    for detail in details(answer):
        for key in _USAGE:
            yield detail.get(key)


def _generations(outputs: Json) -> Iterator[LangSmithAnswer]:
    beside = first_object(outputs.get("llm_output"), outputs.get("llmOutput"))
    for prompt, group in enumerate(items(outputs.get("generations"))):
        for each in items(group) if isinstance(group, list) else [group]:
            item = as_object(each)
            info = first_object(item.get("generation_info"), item.get("generationInfo"))
            message = message_of(item.get("message")) or message_of(item)
            written = item.get("text") if isinstance(item.get("text"), str) else None
            if message is None and written is not None:
                message = LangSmithMessage("assistant", {"content": written})
            if message is not None and message.speaker == "assistant":
                yield LangSmithAnswer(message, [info, beside], written, prompt)


def _choices(outputs: Json) -> Iterator[LangSmithAnswer]:
    response = _response(outputs)
    for item in items(response.get("choices")):
        choice = as_object(item)
        fields = first_object(choice.get("message"), choice.get("delta"))
        if not fields and text(choice.get("text")):
            fields = {"content": choice["text"]}
        if fields:
            yield LangSmithAnswer(LangSmithMessage("assistant", fields), [choice, response, outputs])


def _responses_api(outputs: Json) -> Iterator[LangSmithAnswer]:
    """Yield the answer of OpenAI's Responses. Its items are texts, thoughts and calls."""
    response = _response(outputs)
    parts = items(response.get("output"))
    if not any(text(as_object(part).get("type")) in ("message", "reasoning", "function_call") for part in parts):
        return
    blocks: list[Any] = []
    for part in parts:
        blocks.extend(items(as_object(part).get("content")) if as_object(part).get("type") == "message" else [part])
    yield LangSmithAnswer(LangSmithMessage("assistant", {"content": blocks}), [response, outputs])


def _candidates(outputs: Json) -> Iterator[LangSmithAnswer]:
    """Yield the answers of Gemini's response."""
    response = _response(outputs)
    for item in items(response.get("candidates")):
        candidate = as_object(item)
        if parts := items(as_object(candidate.get("content")).get("parts")):
            calls = [as_object(part).get("functionCall") or as_object(part).get("function_call") for part in parts]
            fields: Json = {"content": [part for part, call in zip(parts, calls, strict=True) if not call]}
            fields["tool_calls"] = [call for call in calls if call]
            yield LangSmithAnswer(LangSmithMessage("assistant", fields), [candidate, response, outputs])


def _messages(outputs: Json) -> Iterator[LangSmithAnswer]:
    """Yield the messages that the model added: assistant messages after the last message of another role."""
    added: list[LangSmithMessage] = []
    for message in messages_in(outputs):
        added = [*added, message] if message.speaker == "assistant" else []
    for message in added:
        yield LangSmithAnswer(message, [outputs])


def _response(outputs: Json) -> Json:
    """Return the response. It is the outputs themselves or a member of them."""
    inner = first_object(outputs.get("output"), outputs.get("message"), outputs.get("response"))
    is_response = any(key in inner for key in ("choices", "content", "output", "candidates"))
    return inner if is_response and "generations" not in outputs else outputs


def _words(outputs: Json) -> str | None:
    """Return the text of a free-form answer. An unknown form is returned as JSON text."""
    match = first_text(*(outputs.get(key) for key in _WORDS))
    if match:
        return match
    other_outputs = {
        key: value for key, value in outputs.items() if key not in _FREE and value not in (None, "", [], {})
    }
    if set(other_outputs) <= {"generations", "llm_output", "llmOutput", "run", "type", "messages"}:
        return None
    return (
        next((value for value in other_outputs.values() if isinstance(value, str)), None)
        if len(other_outputs) == 1
        else as_text(other_outputs)
    )


def _message_id(answer: LangSmithAnswer) -> str | None:
    own = answer.message.fields.get("id")
    if isinstance(own, str) and own:
        return name(own)
    several = len(items(as_object(answer.around[1] if len(answer.around) > 1 else {}).get("choices"))) > 1
    return None if several else next((name(each["id"]) for each in answer.around if text(each.get("id"))), None)


def _refuses(message: LangSmithMessage) -> bool:
    beside = as_object(message.fields.get("additional_kwargs"))
    refusals = (message.fields.get("refusal"), beside.get("refusal"))
    return any(map(text, refusals)) or any(as_object(each).get("type") == "refusal" for each in blocks_of(message))


def _is_error(where: Json) -> bool:
    error = where.get("error")
    return bool(error) or any(count(where.get(key)) >= 400 for key in _STATUS)
