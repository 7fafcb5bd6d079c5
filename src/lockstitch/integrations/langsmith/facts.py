"""`LangSmith`: the facts of LangSmith runs: role, tokens, tools.

The input includes cached tokens. LangChain and OpenAI count this way. The counts of Anthropic and Bedrock exclude cache
reads and writes from the input, so they are added. Cache writes are in two places: as a sum, and by time to live. Some
versions fill only one of them, so the larger value is used.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any, Final, Literal

from lockstitch.integrations.langsmith.answers import (
    LangSmithAnswer,
    answers_in,
    generation,
    model_of,
    own_usage,
    provider_of,
    usages,
)
from lockstitch.integrations.langsmith.messages import (
    LangSmithMessage,
    assistant,
    blocks_of,
    content_of,
    message_of,
    messages_in,
    result_of,
    results_in,
    text_in,
    tool_input,
    tool_message,
)
from lockstitch.integrations.langsmith.runs import as_object, count, first_object, first_text, items, text
from lockstitch.integrations.spans.span import Generation, RequestedCall, Result, SpanData, SpanFacts, TokenCounts
from lockstitch.integrations.spans.values import as_text, name
from lockstitch.model import Json, tool_uses

_INPUT = (
    "input_tokens",
    "prompt_tokens",
    "promptTokens",
    "inputTokens",
    "prompt_token_count",
    "promptTokenCount",
    "prompt_eval_count",
)
_OUTPUT = (
    "output_tokens",
    "completion_tokens",
    "completionTokens",
    "outputTokens",
    "candidates_token_count",
    "candidatesTokenCount",
    "eval_count",
)
_EITHER = (*_INPUT, *_OUTPUT)
_TOTAL = ("total_tokens", "totalTokens", "total_token_count", "totalTokenCount")
_DETAILS = (
    "input_token_details",
    "input_tokens_details",
    "prompt_tokens_details",
    "prompt_token_details",
    "promptTokensDetails",
)
_READ = ("cache_read", "cached_tokens", "cachedTokens")
_WRITE = ("cache_creation", "cache_write", "cache_write_tokens")
_FORMS = ("ephemeral_5m_input_tokens", "ephemeral_1h_input_tokens")
_APART_READ = ("cache_read_input_tokens", "cacheReadInputTokens")
_APART_WRITE = ("cache_creation_input_tokens", "cacheWriteInputTokens")
_WITHIN_READ = ("cached_content_token_count", "cachedContentTokenCount")
_EXCLUSIVE = ("input_tokens", "inputTokens")
_THOUGHTS = ("thoughts_token_count", "thoughtsTokenCount")


def tokens_of(usage: Any) -> TokenCounts | None:
    """Return the four counts of one usage object, or None if it has neither input nor output counts."""
    value = as_object(usage)
    if not any(count(value[key]) or value[key] == 0 for key in _EITHER if key in value):
        return None
    details = first_object(*(value.get(key) for key in _DETAILS))
    within_read = _largest(details, _READ) or _largest(value, _WITHIN_READ)
    within_write = max(_largest(details, _WRITE), sum(count(details.get(form)) for form in _FORMS))
    apart_read = _largest(value, _APART_READ)
    by_form = sum(count(as_object(value.get("cache_creation")).get(form)) for form in _FORMS)
    apart_write = max(_largest(value, _APART_WRITE), by_form)
    read, write = max(within_read, apart_read), max(within_write, apart_write)
    largest = _largest(value, _INPUT)
    # Only separate cache counts are excluded from the input, and an input is never smaller than its parts.
    # `prompt_tokens` is OpenAI's name and includes them, also if a gateway adds separate counts.
    apart = (
        (apart_read or apart_write) and not (within_read or within_write) and any(key in value for key in _EXCLUSIVE)
    )
    inclusive = largest + read + write if apart or largest < read + write else largest
    return TokenCounts(inclusive, _largest(value, _OUTPUT) + _largest(value, _THOUGHTS), read, write)


def total_of(usage: Any) -> int:
    return _largest(as_object(usage), _TOTAL)


def _largest(value: Json, keys: tuple[str, ...]) -> int:
    largest = 0
    for key in keys:
        if key in value:
            largest = max(largest, count(value[key]))
    return largest


_INPUT_KEYS: Final = (
    "input",
    "question",
    "query",
    "q",
    "prompt",
    "text",
    "message",
    "user_input",
    "human_input",
    "content",
)
_ANSWERED: Final = ("output", "answer", "response", "result", "text", "completion", "content", "output_text")
_NOT_PARAMETERS: Final = frozenset({"tools", "functions", "messages", "prompt", "prompts", "input", "_type", "system"})
# LangChain derives its own message ids from the run id (lc_run--…, run-…). They are not ids of the provider.
_PROVIDERS_ID: Final = re.compile(r"(chatcmpl|msg|resp|cmpl|gen|req|message)[-_].+")
_LS_PARAMETERS: Final = {"ls_temperature": "temperature", "ls_max_tokens": "max_tokens", "ls_stop": "stop"}


class LangSmith:
    """The LangSmith integration, for clients and exports."""

    source = "langsmith"
    root_names_trace = True

    def facts(self, span: SpanData) -> SpanFacts:
        """Compute the facts of merged span data. Never raises, for any data."""
        role = _role(span)
        if role == "llm":
            return _model_call(span)
        if role == "tool":
            return _tool_call(span)
        return _other(span)


def _role(span: SpanData) -> Literal["llm", "tool", "span"]:
    kind = str(span.get("kind") or "").lower()
    if kind in ("llm", "chat_model"):
        return "llm"
    if kind:
        return "tool" if kind == "tool" else "span"
    # A patch of older clients does not contain the run type. Until the post arrives, the outputs decide.
    outputs = as_object(span.get("outputs"))
    if isinstance(outputs.get("generations"), list):
        return "llm"
    message = message_of(outputs.get("output"))
    return "tool" if message is not None and message.speaker == "tool" else "span"


def _model_call(span: SpanData) -> SpanFacts:
    inputs, outputs, metadata, extra = (as_object(span.get(key)) for key in ("inputs", "outputs", "metadata", "extra"))
    lang_smith_messages, gave = messages_in(inputs), messages_in(outputs)
    answers = answers_in(outputs)
    error = text(span.get("error"))
    counts = _by_answer(answers)
    generations = [
        generation(answer, failed=bool(error))._replace(tokens=tokens)
        for answer, tokens in zip(answers, counts, strict=True)
    ]
    if error and not generations:
        generations = [Generation({"role": "assistant", "content": []}, "", None, None, failed=True)]
    requested = as_object(extra.get("invocation_params"))
    tokens, missing = _tokens(span, answers, counts, outputs)
    model = model_of(answers) or name(metadata.get("ls_model_name"))
    model = model or _first([requested, inputs], "model_name", "model", "model_id", "modelName")
    ended = bool(answers or error or "end" in span)
    if ended:
        missing += _missing(span, model=model, generations=generations)
    return SpanFacts(
        role="llm",
        model=model,
        provider=provider_of(answers) or name(metadata.get("ls_provider")),
        response_id=_response_id(answers),
        has_content=any(generation.message["content"] for generation in generations),
        parameters=_parameters(span, requested, metadata),
        generations=generations,
        tokens=tokens,
        cost=_cost(span, extra),
        results=_results(lang_smith_messages, gave),
        find_input=partial(_last_input, inputs, lang_smith_messages),
        find_answer=partial(_last_text, generations),
        missing=missing,
    )


def _tool_call(span: SpanData) -> SpanFacts:
    inputs, outputs, metadata, extra = (as_object(span.get(key)) for key in ("inputs", "outputs", "metadata", "extra"))
    lang_smith_messages, gave = messages_in(inputs), messages_in(outputs)
    message = _tool_message(outputs.get("output", outputs), _known_call(extra, metadata, inputs))
    result = _result(span, outputs, message)
    call_id = (result.call_id if result else None) or _known_call(extra, metadata, inputs)
    if result:
        result = result._replace(call_id=call_id)
    missing = ["tool_call_id"] if call_id is None else []
    if result is None and "end" in span:
        missing.append("outputs.output")
    tool = name(span.get("name")) or (result.name if result else None) or name(inputs.get("name")) or ""
    own = result_of(message) if message else None
    return SpanFacts(
        role="tool",
        has_content=bool(inputs or outputs),
        call=RequestedCall(call_id, tool, tool_input(inputs)),
        result=result._replace(name=tool or None) if result else None,
        results=[result for result in _results(lang_smith_messages, gave) if result != own],
        find_input=partial(_last_input, inputs, lang_smith_messages),
        find_answer=partial(_last_answer, outputs, gave),
        missing=[*missing, *_missing_times(span)],
    )


def _other(span: SpanData) -> SpanFacts:
    inputs, outputs = as_object(span.get("inputs")), as_object(span.get("outputs"))
    lang_smith_messages, gave = messages_in(inputs), messages_in(outputs)
    facts = SpanFacts(
        role="span",
        has_content=bool(inputs or outputs),
        results=_results(lang_smith_messages, gave),
        find_input=partial(_last_input, inputs, lang_smith_messages),
        find_answer=partial(_last_answer, outputs, gave),
        missing=_missing_times(span),
    )
    return _embedding(span, facts, inputs, outputs) if str(span.get("kind")).lower() == "embedding" else facts


def _embedding(span: SpanData, facts: SpanFacts, inputs: Json, outputs: Json) -> SpanFacts:
    """Add the model, the token counts and the cost of an embedding to its facts."""
    metadata, extra = as_object(span.get("metadata")), as_object(span.get("extra"))
    requested = as_object(extra.get("invocation_params"))
    tokens, _ = _tokens(span, [], [], outputs)
    return replace(
        facts,
        model=name(metadata.get("ls_model_name")) or _first([requested, outputs, inputs], "model", "model_name"),
        provider=name(metadata.get("ls_provider")),
        tokens=tokens,
        cost=_cost(span, extra) if tokens else None,
    )


def _tokens(
    span: SpanData, answers: list[LangSmithAnswer], counts: list[TokenCounts | None], outputs: Json
) -> tuple[TokenCounts | None, list[str]]:
    """Return the token counts from the most reliable place, and the names of missing fields."""
    metadata, extra = as_object(span.get("metadata")), as_object(span.get("extra"))
    beside = as_object(outputs.get("llm_output")) or as_object(outputs.get("llmOutput"))
    places = (
        lambda: _sum(counts),
        lambda: tokens_of(metadata.get("usage_metadata")),
        lambda: tokens_of(outputs.get("usage_metadata")),
        lambda: _by_prompt(answers),
        lambda: tokens_of(outputs.get("usage")),
        lambda: tokens_of(beside.get("token_usage") or beside.get("tokenUsage") or beside.get("usage")),
        lambda: tokens_of(extra),
    )
    nothing: TokenCounts | None = None
    for place in places:
        if token_counts := place():
            if any(token_counts):
                return token_counts, []
            nothing = token_counts
    if nothing:
        return nothing, []
    bags = [usage for answer in answers for usage in usages(answer)]
    totals = (total_of(usage) for usage in (*bags, metadata.get("usage_metadata"), outputs.get("usage_metadata"), span))
    total = next((total for total in totals if total), 0)
    if total:
        return TokenCounts(input=total), ["usage_metadata.input_tokens"]
    return None, ["usage_metadata"] if "end" in span and not span.get("error") else []


def _by_answer(answers: list[LangSmithAnswer]) -> list[TokenCounts | None]:
    """Return the counts that each answer has itself. Counts that an earlier answer to the prompt has are repeated."""
    seen: set[tuple[int, TokenCounts]] = set()
    counts: list[TokenCounts | None] = []
    for answer in answers:
        tokens = next((tokens for usage in own_usage(answer) if (tokens := tokens_of(usage))), None)
        is_new = tokens is not None and (answer.prompt, tokens) not in seen
        counts.append(tokens if is_new else None)
        if tokens is not None:
            seen.add((answer.prompt, tokens))
    return counts


def _by_prompt(answers: list[LangSmithAnswer]) -> TokenCounts | None:
    """Return the sum over prompts. If a prompt has several answers, the first one with counts is used."""
    token_counts: dict[int, TokenCounts] = {}
    for answer in answers:
        result = next((tokens for usage in usages(answer) if (tokens := tokens_of(usage))), None)
        if result and not any(token_counts.get(answer.prompt, ())):
            token_counts[answer.prompt] = result
    return _sum(token_counts.values())


def _sum(token_counts: Iterable[TokenCounts | None]) -> TokenCounts | None:
    known = [tokens for tokens in token_counts if tokens is not None]
    return TokenCounts(*map(sum, zip(*known, strict=True))) if known else None


def _cost(span: SpanData, extra: Json) -> float | None:
    """Return the cost. A model call has no descendants, so the total of the source is its own cost."""
    total = span.get("total_cost")
    if isinstance(total, int | float) and not isinstance(total, bool):
        return float(total)
    parts = [extra.get(key) for key in ("prompt_cost", "completion_cost")]
    known = [float(part) for part in parts if isinstance(part, int | float) and abs(part) < 1e300]
    return sum(known) if known else None


def _response_id(answers: list[LangSmithAnswer]) -> str | None:
    for answer in answers:
        fields = answer.message.fields
        own = as_object(fields.get("response_metadata")).get("id")
        values = [own, fields.get("id"), *(each.get("id") for each in answer.around)]
        matches = [each for each in values if isinstance(each, str) and _PROVIDERS_ID.fullmatch(each)]
        if isinstance(own, str) and own:
            return name(own)
        if matches:
            return name(matches[0])
    return None


def _parameters(span: SpanData, requested: Json, metadata: Json) -> Json:
    inputs = as_object(span.get("inputs"))
    # A wrapped SDK records the complete request as the inputs of the run.
    source = requested or (
        {key: each for key, each in inputs.items() if key != "extra"} if "messages" in inputs else {}
    )
    result = {key: each for key, each in source.items() if key not in _NOT_PARAMETERS and each is not None}
    for key, word in _LS_PARAMETERS.items():
        if metadata.get(key) is not None:
            result.setdefault(word, metadata[key])
    return result


def _known_call(extra: Json, metadata: Json, inputs: Json) -> str | None:
    own = inputs.get("id") if inputs.get("type") == "tool_call" else None
    return next((match for each in (extra, metadata) if (match := name(each.get("tool_call_id")))), None) or name(own)


def _tool_message(output: Any, call_id: str | None) -> LangSmithMessage | None:
    """Return the tool message in the output of a tool run: plain, in a LangGraph Command, or as its Python repr."""
    if isinstance(output, str):
        fields = tool_message(output)
        return LangSmithMessage("tool", fields) if fields else None
    lang_smith_messages = [message for message in messages_in(output) if message.speaker == "tool"]
    ours = [message for message in lang_smith_messages if call_id and message.fields.get("tool_call_id") == call_id]
    return next(iter(ours or lang_smith_messages), None)


def _result(span: SpanData, outputs: Json, message: LangSmithMessage | None) -> Result | None:
    error = text(span.get("error"))
    tool = name(span.get("name"))
    if message is not None:
        result = result_of(message)
        failed = True if error else result.failed if result.failed is not None else _has_failed(span)
        return result._replace(failed=failed)
    if error and not outputs:
        return Result(None, tool, error, failed=True)
    if not outputs:
        return None
    # The JavaScript client calls the key of a plain value `outputs`.
    content = next(iter(outputs.values())) if set(outputs) in ({"output"}, {"outputs"}) else outputs
    return Result(
        None, tool, "null" if content is None else content_of(content), failed=True if error else _has_failed(span)
    )


def _has_failed(span: SpanData) -> bool | None:
    """Return False if a run without an error ended, True if its status is a failure, None if it has not ended."""
    status = str(span.get("status") or "").lower()
    if status in ("error", "interrupted"):
        return True
    return False if status == "success" or "end" in span else None


def _results(lang_smith_messages: list[LangSmithMessage], gave: list[LangSmithMessage]) -> list[Result]:
    """Return the results that inputs and outputs mention. A result in both counts once, because states grow."""
    if not lang_smith_messages and not gave:
        return []
    seen: Counter[str] = Counter()
    results: list[Result] = []
    for key, result in _mentioned(lang_smith_messages):
        seen[key] += 1
        results.append(result)
    for key, result in _mentioned(gave):
        if seen[key]:
            seen[key] -= 1
        else:
            results.append(result)
    return results


def _mentioned(messages: list[LangSmithMessage]) -> Iterator[tuple[str, Result]]:
    requested: set[str | None] = set()
    answers: list[LangSmithMessage] = []
    for message in messages:
        if message.speaker == "assistant":
            answers.append(message)
        results = results_in(message)
        if results and answers:
            requested.update(call.get("id") for answer in answers for call in tool_uses(assistant(answer)))
            answers = []
        for result in results:
            own = message.fields.get("id")
            key = as_text([own if isinstance(own, str) else None, result.call_id, result.content])
            yield key, result._replace(requested=result.call_id in requested)


def _last_input(inputs: Json, lang_smith_messages: list[LangSmithMessage]) -> str | None:
    spoken = _last_words(lang_smith_messages, "user")
    if spoken:
        return spoken
    prompts = [item for item in items(inputs.get("prompts")) if text(item)]
    plain = [item for item in items(inputs.get("messages")) if text(item)]
    only = list(inputs.values()) if len(inputs) == 1 else []
    return first_text(*prompts[-1:], *(inputs.get(key) for key in _INPUT_KEYS), *only, *plain[-1:])


def _last_answer(outputs: Json, gave: list[LangSmithMessage]) -> str | None:
    spoken = _last_words(gave, "assistant")
    if spoken:
        return spoken
    only = list(outputs.values()) if len(outputs) == 1 else []
    known = first_text(*(outputs.get(key) for key in _ANSWERED), *only)
    if known or "output" in outputs:
        return known
    answers = [generation(answer, failed=False).text for answer in answers_in(outputs)]
    return first_text(*answers[-1:])


def _last_text(generations: list[Generation]) -> str | None:
    return next((generation.text for generation in reversed(generations) if generation.text), None)


def _last_words(messages: list[LangSmithMessage], speaker: str) -> str | None:
    return next(
        (words for message in reversed(messages) if message.speaker == speaker and (words := _words(message))), None
    )


def _words(message: LangSmithMessage) -> str:
    if message.speaker == "assistant":
        return text_in(assistant(message)["content"])
    return text_in(blocks_of(message))


def _missing(span: SpanData, *, model: str | None, generations: list[Generation]) -> list[str]:
    matches = [] if model else ["model_name"]
    if not span.get("error"):
        matches += [] if any(generation.id for generation in generations) else ["message.id"]
        matches += [] if any(generation.finish_reason for generation in generations) else ["finish_reason"]
    return [*matches, *_missing_times(span)]


def _missing_times(span: SpanData) -> list[str]:
    return [word for key, word in (("start", "start_time"), ("end", "end_time")) if key not in span]


def _first(bags: list[Json], *keys: str) -> str | None:
    return next((match for each in bags for key in keys if (match := text(each.get(key)))), None)
