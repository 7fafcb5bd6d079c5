"""`OpenTelemetry`: the facts of OTLP spans: model calls, tools, tokens and duplicates."""

from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

from lockstitch.integrations.otel.conventions import facts_of
from lockstitch.integrations.otel.conventions.convention import Facts
from lockstitch.integrations.otel.messages import OtelMessage, message, messages, result_content, unwrapped
from lockstitch.integrations.otel.usage import raw_counts
from lockstitch.integrations.otel.values import (
    arguments,
    as_count,
    as_json,
    as_list,
    as_text,
    first,
    provider_name,
    unquoted,
)
from lockstitch.integrations.spans.span import Generation, RequestedCall, Result, SpanData, SpanFacts, TokenCounts
from lockstitch.model import Json


class OtelAnswer(NamedTuple):
    """The content of outputs."""

    messages: list[OtelMessage]
    """Assistant messages. In a model call, one per choice."""
    results: list[Result]
    """Tool results among the messages."""
    dialogue: list[OtelMessage]
    """All messages of all roles."""
    id: str | None = None
    """The id of the response."""
    model: str | None = None
    usage: Json = {}
    in_items: bool = False
    """True if one answer of the model is split into several messages."""
    choices: int = 0
    """Number of choices in a raw response."""


_NO_ANSWER = OtelAnswer([], [], [])


def answer_of(outputs: Json) -> OtelAnswer:
    """Return the answer in outputs: from messages, else from a raw response."""
    if not outputs:
        return _NO_ANSWER
    otel_answer = None if outputs.keys() == _ONLY_MESSAGES else _any_response(outputs)
    dialogue = messages(outputs.get("messages")) or (otel_answer.messages if otel_answer else _elsewhere(outputs))
    otel_messages = [otel_message for otel_message in dialogue if otel_message.role == "assistant"]
    if len(otel_messages) == 1 and not otel_messages[0].blocks and isinstance(outputs.get(_OLD_ANSWER), list):
        # LiteLLM has the requested calls only in the older attributes.
        calls = message({"role": "assistant", "content": outputs[_OLD_ANSWER]})
        otel_messages = [otel_messages[0]._replace(blocks=calls.blocks if calls else [])]
    if otel_answer and not otel_messages:
        otel_messages = otel_answer.messages
    elif otel_answer and len(otel_answer.messages) == len(otel_messages):
        # The raw response contains fields that the derived messages lack.
        otel_messages = [
            otel_message._replace(
                id=otel_message.id or other.id,
                finish_reason=otel_message.finish_reason or other.finish_reason,
                about=otel_message.about or other.about,
            )
            for otel_message, other in zip(otel_messages, otel_answer.messages, strict=True)
        ]
    results = [result for otel_message in dialogue for result in otel_message.results]
    in_items = any(_is_item(as_json(item)) for item in as_list(outputs.get("messages")))
    if otel_answer:
        return OtelAnswer(
            otel_messages,
            results,
            dialogue,
            otel_answer.id,
            otel_answer.model,
            otel_answer.usage,
            in_items,
            len(otel_answer.messages),
        )
    return OtelAnswer(otel_messages, results, dialogue, in_items=in_items)


_OLD_ANSWER = "gen_ai.completion"
_ONLY_MESSAGES = {"messages"}


def _any_response(outputs: Json) -> OtelAnswer | None:
    return _response(as_json(outputs.get("output"))) or _response(outputs)


def _elsewhere(outputs: Json) -> list[OtelMessage]:
    """Return messages from other places that frameworks use. At last, a plain text is an answer too."""
    value = outputs.get("output")
    inner = as_json(value)
    itself = message(outputs)
    # LangGraph's commands: the output of a node is the change that it makes.
    commands = [as_json(as_json(item).get("update")).get("messages") for item in [outputs, inner, *as_list(value)]]
    for place in (value, inner.get("output"), inner.get("messages"), *commands):
        if itself:
            return [itself]
        if dialogue := messages(place):
            return dialogue
    text = as_text(first(outputs, "output", "answer", "text", "result"))
    return [OtelMessage("assistant", [{"type": "text", "text": text}], [])] if text else []


def _is_item(value: Json) -> bool:
    return value.get("event.name") == "gen_ai.assistant.message" or value.get("type") in _ITEMS


_ITEMS = ("function_call", "reasoning", "message")


def _response(value: Json) -> OtelAnswer | None:
    """Return the response of a provider or of LangChain, or None if `value` is not one."""
    if isinstance(value.get("choices"), list):
        return _answer(value, [_choice(as_json(choice)) for choice in as_list(value["choices"])])
    if isinstance(value.get("generations"), list):
        batches = as_list(value["generations"])
        flat = [item for batch in batches for item in (as_list(batch) if isinstance(batch, list) else [batch])]
        return _answer({**as_json(value.get("llm_output")), "usage": {}}, [_choice(as_json(item)) for item in flat])
    if value.get("type") == "message" and isinstance(value.get("content"), list):
        # The id of Anthropic's response is the id of its only message.
        return _answer(value, [message({"role": "assistant", **value})])
    if isinstance(value.get("output"), list) and (value.get("object") == "response" or "usage" in value):
        # OpenAI's Responses: several items form one answer.
        items = [message for message in messages(value.get("output")) if message.role == "assistant"]
        return _answer(value, [together(items)] if items else [])
    if isinstance(value.get("message"), dict) and ("usage" in value or "role" in as_json(value["message"])):
        return _answer(value, [message({"role": "assistant", **as_json(value["message"])})])
    if (text := value.get("combined_chunk_content")) is not None:
        return _answer(value, [OtelMessage("assistant", [{"type": "text", "text": str(text)}] if text else [], [])])
    return None


def _answer(value: Json, otel_messages: list[OtelMessage | None]) -> OtelAnswer:
    remaining = [otel_message for otel_message in otel_messages if otel_message]
    model = as_text(first(value, "model", "model_name"))
    return OtelAnswer(remaining, [], remaining, as_text(value.get("id")), model, as_json(value.get("usage")))


def _choice(choice: Json) -> OtelMessage | None:
    if isinstance(choice.get("message"), dict):
        return message({**choice, "message": {"role": "assistant", **as_json(choice["message"])}})
    text = as_text(first(choice, "text", "completion.text"))
    reason = as_text(first({**as_json(choice.get("generation_info")), **choice}, "finish_reason"))
    return OtelMessage("assistant", [{"type": "text", "text": text}] if text else [], [], None, reason)


def together(items: list[OtelMessage]) -> OtelMessage:
    """Return the parts of one answer as one message."""
    blocks = [block for item in items for block in item.blocks]
    reason = next((item.finish_reason for item in reversed(items) if item.finish_reason), None)
    return OtelMessage("assistant", blocks, [], next((item.id for item in items if item.id), None), reason)


_MODEL_CALLS = frozenset({"llm", "chat_model", "chat", "text_completion", "generate_content", "completion"})
_TOOLS = frozenset({"tool", "execute_tool"})
_EMBEDDINGS = frozenset({"embedding", "embeddings"})


_NOTHING = SpanFacts(role="span")
"""The facts of a span without content that is neither a model call nor a tool call. Many spans are."""


class OpenTelemetry:
    """The OpenTelemetry integration."""

    source = "otel"
    root_names_trace = False

    def facts(self, span: SpanData) -> SpanFacts:
        """Compute the facts of merged span data. Never raises, for any data."""
        kind = (as_text(span.get("kind")) or "").lower()
        inputs, outputs = as_json(span.get("inputs")), as_json(span.get("outputs"))
        is_tool, is_embedding = kind in _TOOLS, kind in _EMBEDDINGS
        if not is_tool and not is_embedding and kind not in _MODEL_CALLS:
            if not inputs and not outputs:
                return _NOTHING
            return _plain(input_messages(inputs), answer_of(outputs))
        extra = as_json(span.get("extra"))
        scope = as_text(as_json(extra.get("scope")).get("name")) or ""
        facts = facts_of(as_json(extra.get("attributes")), scope, span)
        # A tool that returned a text has no messages.
        is_text = is_tool and outputs.keys() == {"output"} and isinstance(outputs["output"], str)
        answer = _NO_ANSWER if is_text else answer_of(outputs)
        if is_embedding:
            return _embedding(facts, input_messages(inputs), answer)
        if is_tool:
            return _tool_call(span, facts, answer)
        return _model_call(span, facts, input_messages(inputs), answer)


def _model_call(span: SpanData, facts: Facts, otel_messages: list[OtelMessage], answer: OtelAnswer) -> SpanFacts:
    first = answer.messages[0] if answer.messages else None
    about: Json = first.about if first else {}
    model = facts.model or answer.model or as_text(about.get("model_name")) or facts.requested_model
    provider = facts.provider or provider_name(about.get("model_provider"))
    response_id = facts.response_id or answer.id or as_text(about.get("id"))
    tokens = _tokens(facts, answer, about)
    parameters = dict(facts.parameters)
    if facts.requested_model:
        parameters.setdefault("model", facts.requested_model)
    generations = _generations(span, facts, answer, response_id)
    has_content = any(otel_message.blocks for otel_message in answer.messages) or any(
        otel_message.blocks or otel_message.results for otel_message in otel_messages
    )
    present = {
        "model": model,
        "provider": provider,
        "tokens": tokens,
        "content": has_content or None,
        "start": span.get("start"),
        "end": span.get("end"),
    }
    return SpanFacts(
        role="llm",
        model=model,
        provider=provider,
        response_id=response_id,
        has_content=has_content,
        parameters=parameters,
        generations=generations,
        tokens=tokens,
        cost=facts.cost if facts.cost is not None and facts.cost >= 0 else None,
        results=_results(otel_messages, answer),
        find_input=partial(_last_words, otel_messages or answer.dialogue, "user"),
        find_answer=partial(_last_words, answer.messages, "assistant"),
        missing=[name for name, value in present.items() if value is None],
    )


def _embedding(facts: Facts, otel_messages: list[OtelMessage], answer: OtelAnswer) -> SpanFacts:
    """Return the facts of an embedding: a span with token counts. It has neither an answer nor tool calls."""
    tokens = facts.tokens or raw_counts(answer.usage)
    if tokens is None and facts.total_tokens is not None:
        tokens = TokenCounts(facts.total_tokens)
    return replace(
        _plain(otel_messages, answer),
        model=facts.model or answer.model or facts.requested_model,
        provider=facts.provider,
        tokens=tokens,
        cost=facts.cost if facts.cost is not None and facts.cost >= 0 else None,
    )


def _tokens(facts: Facts, answer: OtelAnswer, about: Json) -> TokenCounts | None:
    """Return the counts of the attributes. If they lack the cache, take it from the response in the outputs."""
    token_counts = raw_counts(answer.usage) or raw_counts(as_json(about.get("usage_metadata")))
    if token_counts is None:
        token_counts = raw_counts(as_json(about.get("token_usage")))
    tokens = facts.tokens
    if tokens is None or token_counts is None:
        return tokens or token_counts
    if tokens.cache_read or tokens.cache_write or token_counts.input != tokens.input:
        return tokens
    return tokens._replace(cache_read=token_counts.cache_read, cache_write=token_counts.cache_write)


def _generations(span: SpanData, facts: Facts, answer: OtelAnswer, response_id: str | None) -> list[Generation]:
    failed = bool(span.get("error"))
    reasons = facts.finish_reasons
    generations = [
        Generation(
            message={"role": "assistant", "content": otel_message.blocks},
            text=otel_message.text,
            id=otel_message.id or (response_id if place == 0 else None),
            finish_reason=reasons[place] if place < len(reasons) else otel_message.finish_reason,
            failed=failed,
        )
        for place, otel_message in enumerate(
            answer.messages if _are_choices(facts, answer) else [together(answer.messages)]
        )
    ]
    if not generations and (failed or reasons or response_id or facts.tokens or span.get("end")):
        # The call ended, but its answer was not recorded.
        reason = reasons[0] if reasons else None
        generations = [Generation({"role": "assistant", "content": []}, "", response_id, reason, failed)]
    return generations


def _are_choices(facts: Facts, answer: OtelAnswer) -> bool:
    """True if each message is a separate answer. BeeAI and Koog split one answer into several messages."""
    count = len(answer.messages)
    if count < 2:
        return not answer.in_items or not count
    requested = as_count(first(facts.parameters, "choice.count", "n", "candidate_count")) or 1
    return not answer.in_items and (
        answer.choices == count
        or requested > 1
        or len(facts.finish_reasons) >= count
        or all(otel_message.finish_reason for otel_message in answer.messages)
    )


def _tool_call(span: SpanData, facts: Facts, answer: OtelAnswer) -> SpanFacts:
    shape = as_json(as_json(span.get("extra")).get("shape"))
    inputs, outputs = as_json(span.get("inputs")), as_json(span.get("outputs"))
    known = answer.results[0] if answer.results else None
    name = facts.tool_name or (known.name if known else None) or _bare_name(span)
    call_id = facts.call_id or (known.call_id if known else None) or as_text(inputs.get("tool_call_id"))
    args: Any = inputs
    if shape.get("inputs") in ("plain", "parts"):
        args = arguments(inputs.get("arguments", inputs.get("input")))
    elif inputs.keys() <= _METHOD or inputs.keys() == _RUN:
        # smolagents, LlamaIndex, Traceloop and BeeAI record the parameters of an inner method.
        named = as_json(inputs.get("kwargs", inputs.get("input")))
        args = named if named or not any(inputs.values()) else inputs
    if inputs.get("type") == "tool_call" and "args" in inputs:
        call_id, args = call_id or as_text(inputs.get("id")), inputs["args"]
    if args is None or args == {}:
        args = as_json(facts.args)
    failed = True if span.get("error") else known.failed if known else None
    if failed is None and "end" in span:
        failed = False
    content: Any = None
    if known:
        content = known.content
    elif outputs:
        if outputs.keys() == {"output"}:
            content = outputs["output"]
        else:
            content = outputs.get("result", outputs) if shape.get("outputs") == "parts" else outputs
        wrapper, content = unwrapped(content)
        failed = True if wrapper.startswith("error") or as_json(content).get("is_error") is True else failed
        content = _plain_result(content, as_json(as_json(span.get("extra")).get("attributes")))
        content = unquoted(result_content(content))
    elif span.get("error"):
        content = str(span.get("error"))
    result = Result(call_id, name, content, failed) if content is not None else None
    present = {"call_id": call_id, "result": result, "start": span.get("start"), "end": span.get("end")}
    return SpanFacts(
        role="tool",
        has_content=bool(inputs or outputs),
        call=RequestedCall(call_id, name, args),
        result=result,
        missing=[field for field, value in present.items() if value is None],
    )


_METHOD = frozenset({"args", "kwargs", "sanitize_inputs_outputs"})
_RUN = frozenset({"input", "options"})


def _plain_result(content: Any, attributes: Json) -> Any:
    """Return the text or value that a framework wraps as the result of a tool."""
    wrapper = as_json(content)
    if wrapper.keys() == {"result"} and "gcp.vertex.agent.event_id" in attributes:
        # Gemini takes only objects as results, so ADK wraps other values.
        return wrapper["result"]
    if "raw_output" in wrapper and "tool_name" in wrapper and isinstance(wrapper["raw_output"], str):
        return wrapper["raw_output"]
    return content


def _results(otel_messages: list[OtelMessage], answer: OtelAnswer) -> list[Result]:
    """Return the results that messages mention."""
    results: list[Result] = []
    known: set[str | None] = set()
    for otel_message in otel_messages:
        known.update(block.get("id") for block in otel_message.blocks if block.get("type") == "tool_use")
        results += [result._replace(requested=result.call_id in known) for result in otel_message.results]
    messages = {result.call_id for result in results if result.call_id}
    return results + [result for result in answer.results if result.call_id not in messages]


def _plain(otel_messages: list[OtelMessage], answer: OtelAnswer) -> SpanFacts:
    return SpanFacts(
        role="span",
        has_content=bool(otel_messages or answer.messages),
        results=_results(otel_messages, answer),
        find_input=partial(_last_words, otel_messages or answer.dialogue, "user"),
        find_answer=partial(_last_words, answer.messages, "assistant"),
    )


def input_messages(inputs: Json) -> list[OtelMessage]:
    """Return the input messages with content, from any place. A plain text is a user message."""
    wordless: list[OtelMessage] = []
    for bag in (inputs, as_json(inputs.get("input"))):
        for key in ("messages", "input", "prompt", "prompts", "question", "query", "task", "text"):
            value = bag.get(key)
            otel_messages = messages(value) or [
                _user(prompt) for prompt in map(as_json, as_list(value)) if "text" in prompt
            ]
            if not otel_messages and (text := as_text(value)):
                otel_messages = [_user({"text": text})]
            if any(otel_message.blocks or otel_message.results for otel_message in otel_messages):
                return otel_messages
            wordless = wordless or otel_messages
    return wordless


def _user(prompt: Json) -> OtelMessage:
    return OtelMessage("user", [{"type": "text", "text": str(prompt["text"])}], [])


def _last_words(otel_messages: list[OtelMessage], role: str) -> str | None:
    return next(
        (
            otel_message.text
            for otel_message in reversed(otel_messages)
            if otel_message.role == role and otel_message.text
        ),
        None,
    )


def _bare_name(span: SpanData) -> str:
    name = as_text(span.get("name")) or "tool"
    return name.removeprefix("execute_tool ").removeprefix("running tool: ").removesuffix(".tool") or "tool"


def is_same_model_call(item: tuple[SpanData, SpanFacts], other: tuple[SpanData, SpanFacts]) -> bool:
    """True if both spans describe the same model call, in one trace or in two.

    They name the same response of the same provider, and one started while the other ran. The times matter, because a
    gateway with a cache or a local server may give every response the same id. A failed call has no response id. Then
    one span must be the child of the other.
    """
    (span, facts), (twin, meant) = item, other
    if facts.role != "llm" or meant.role != "llm":
        return False
    if facts.response_id is None or meant.response_id is None:
        return _is_child(span, twin) or _is_child(twin, span)
    if (facts.provider, facts.response_id) != (meant.provider, meant.response_id):
        return False
    return _begins_during(span, twin) or _begins_during(twin, span)


def has_more_detail(item: tuple[SpanData, SpanFacts], other: tuple[SpanData, SpanFacts]) -> bool:
    """True if the first of two spans of one call is stored: it has the content, or it encloses the other."""
    (span, facts), (twin, meant) = item, other
    if facts.has_content != meant.has_content:
        return facts.has_content
    if span.get("start") != twin.get("start"):
        return span.get("start", "~") < twin.get("start", "~")
    return (twin.get("end", ""), twin.get("id", "")) < (span.get("end", ""), span.get("id", ""))


def _is_child(inner: SpanData, outer: SpanData) -> bool:
    return "id" in outer and inner.get("parent_id") == outer["id"]


def _begins_during(inner: SpanData, outer: SpanData) -> bool:
    begin, start, end = inner.get("start"), outer.get("start"), outer.get("end")
    return begin is None or start is None or (start <= begin and (end is None or begin <= end))
