"""Call the model: record retries, emit chunks as they arrive, and record one `llm_call` at the end."""

import asyncio
import itertools
import logging
import random
import re
from collections.abc import Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from hashlib import sha256
from typing import Any, Final, NamedTuple, cast

from lockstitch.engine.decision.action import CallModel
from lockstitch.engine.decision.snapshot import FINAL_SUMMARY
from lockstitch.engine.events import EventType
from lockstitch.engine.ports.provider import INVALID_JSON, Chunk, ModelRequest, ProviderError, Response, Usage
from lockstitch.engine.session.run_context import RunCancelled, RunContext
from lockstitch.engine.turns import take_turn
from lockstitch.engine.usage import add, price
from lockstitch.errors import Refused, wire_name_of
from lockstitch.model import Entry, Json, Message, codec, text_of
from lockstitch.model.codec import error_text, storable_text
from lockstitch.model.message import blocks, tool_uses, user

_SHORT = 1000
"""Maximum length of a side prompt that is recorded in full."""

_CHUNK = 2000
"""Characters of streamed text in one `streaming_chunk` entry."""

_INVALID_NAME_CHARS: Final = re.compile(r"[^a-zA-Z0-9_-]")
_VALID_NAME: Final = re.compile(r"[a-zA-Z0-9_-]{1,128}")
_LONGEST_NAME: Final = 100
_LONGEST_ID: Final = 200

_log = logging.getLogger("lockstitch")


@dataclass(slots=True)
class PartialResponse:
    """The text received so far, so that a cancelled call does not lose it."""

    text: list[str] = field(default_factory=list[str])
    thinking: list[str] = field(default_factory=list[str])
    began: datetime | None = None
    """Time of the first chunk."""

    def message(self) -> Message | None:
        """Return the partial answer. Incomplete thinking cannot be sent back to a provider, so it is dropped."""
        text = storable_text("".join(self.text))
        return {"role": "assistant", "content": [{"type": "text", "text": text}]} if text else None


class ModelAttempt(NamedTuple):
    """The outcome of a model call with its retries: the response, or the entry of the error."""

    response: Response | None
    problem: Entry | None
    duration_ms: int
    first_token_ms: int | None = None
    text: bytes | None = None
    """The JSON text of the response's message."""


async def call_model(context: RunContext, action: CallModel) -> None:
    """Execute one step of the loop, or the final summary at the step limit."""
    session = context.session
    if session.must_commit:
        await session.commit()
        # One commit may have continued many runs.
        await take_turn()
    step = action.step
    partial = PartialResponse()
    async with session.freeze_context():
        request = context.request(step, final=action.final)
        if context.config.definition.log == "full":
            session.record(_started(context, request), must_commit=False)
        try:
            model_attempt = await context.cancellable(_call_with_retries(context, request, partial))
        except RunCancelled:
            _record_partial(context, request, partial, step)
            return
    problems = [] if model_attempt.problem is None else [model_attempt.problem]
    session.record(*problems, *_chunks(context, partial, step), must_commit=False)
    if model_attempt.response is None:
        return
    if context.live is not None:
        context.live.on_response(session.open_run.id)
    response, unchanged = model_attempt.response, model_attempt.response.message
    message = _without_calls(unchanged) if action.final else _with_calls(unchanged, step)
    if message is not unchanged:
        response = replace(response, message=message)
    if not action.final:
        session.change_run(steps=step)
    if response.container_id and response.container_id != session.open_run.state.get("container_id"):
        session.change_run(state={**session.open_run.state, "container_id": response.container_id})
    entry = _llm_call(context, request, response, model_attempt, final=action.final, step=step)
    if message is unchanged:
        entry.json_texts(model_attempt.text)
    session.record(entry)


async def side_model_call(context: RunContext, purpose: str, prompt: str, max_tokens: int = 1024) -> str:
    """Call the run's model outside the loop and return its text. Raises `ProviderError` if the call fails."""
    return await context.cancellable(_side_call(context, purpose, prompt, max_tokens, {}))


async def tool_model_call(context: RunContext, call_key: str, purpose: str, prompt: str, max_tokens: int) -> str:
    """Call the run's model for a tool call, commit the answer and return it.

    If an earlier attempt of the tool call has committed the answer, the model is not called again. Raises
    `ProviderError` if the call fails. The tool is cancelled with its run, so this call needs no cancellation.
    """
    about: Json = {"purpose": purpose, "call": call_key, **_prompt_data(prompt)}
    for stitch in context.session.recent:
        if stitch.type == "llm_call" and about.items() <= stitch.data.items():
            return str(stitch.data["text"])
    text = await _side_call(context, purpose, prompt, max_tokens, {"call": call_key})
    await context.session.commit()
    return text


async def _side_call(context: RunContext, purpose: str, prompt: str, max_tokens: int, about: Json) -> str:
    request = context.side_request(purpose, [user(prompt)], max_tokens)
    model_attempt = await _call_with_retries(context, request, None)
    session = context.session
    response = model_attempt.response
    if response is None:
        assert model_attempt.problem is not None
        problem = model_attempt.problem.data
        raise ProviderError(str(problem.get("message")), problem["kind"])
    text = text_of(response.message)
    cost = _charge(context, response.usage)
    session.record(
        session.entry(
            "llm_call",
            name=context.config.model,
            status=response.stop_reason,
            data={"purpose": purpose, **about, **_prompt_data(prompt), "text": text, **_cost_data(cost)},
            duration_ms=model_attempt.duration_ms,
            **response.usage._asdict(),
        ),
        must_commit=False,
    )
    return text


async def _call_with_retries(
    context: RunContext, request: ModelRequest, partial: PartialResponse | None
) -> ModelAttempt:
    """Call the model until it responds, the error is not retryable, or no retries are left. Record each retry."""
    definition, session = context.config.definition, context.session
    began = session.clock.now()
    tried = began
    for attempt in range(definition.max_retries + 1):
        try:
            response, text = await _stream(context, replace(request, attempt=attempt) if attempt else request, partial)
        except ProviderError as exc:
            if not exc.retryable or attempt == definition.max_retries:
                return ModelAttempt(None, _api_error(context, request, exc, attempt + 1), 0)
            delay = max(_backoff(definition.base_delay, attempt), exc.retry_after or 0.0)
            data: Json = {
                "attempt": attempt + 1,
                "error": exc.kind,
                "message": error_text(exc),
                "delay": round(delay, 3),
            }
            took = max(0, _milliseconds(tried, session.clock.now()))
            session.record(
                session.entry("api_retry", status=exc.kind, step_number=request.step, data=data, duration_ms=took),
                must_commit=False,
            )
            context.emit("retry", data, now=True)
            if partial is not None:
                partial.text.clear()
                partial.thinking.clear()
                partial.began = None
            await asyncio.sleep(delay)
            tried = session.clock.now()
            continue
        duration = max(0, _milliseconds(began, session.clock.now()))
        first_token = None if partial is None or partial.began is None else _milliseconds(began, partial.began)
        await take_turn()
        return ModelAttempt(response, None, duration, first_token, text)
    raise AssertionError("unreachable")


async def _stream(
    context: RunContext, request: ModelRequest, partial: PartialResponse | None
) -> tuple[Response, bytes]:
    """Return the response and the JSON text of its message."""
    try:
        async with aclosing(context.config.provider.stream(request)) as chunks:
            async for chunk in chunks:
                if isinstance(chunk, Response):
                    return chunk, _message_text(chunk)
                if partial is not None:
                    _on_chunk(context, chunk, partial)
    except ProviderError:
        raise
    except Exception as exc:  # the provider broke its contract: fail the run instead of blocking the thread
        _log.exception("Provider %s raised an error that is not a ProviderError", context.config.provider.name)
        raise ProviderError(f"{wire_name_of(exc)}: {error_text(exc)}", "setup") from exc
    raise ProviderError("The stream of the provider ended without a response.", "garbled")


def _message_text(response: Response) -> bytes:
    """Return the JSON text of a response's message. Raises `ProviderError` if it cannot be stored."""
    try:
        return codec.dumps(response.message)
    except Refused as exc:
        raise ProviderError(f"The response of the provider is damaged. {exc}", "garbled") from exc


def _on_chunk(context: RunContext, chunk: Chunk, partial: PartialResponse) -> None:
    partial.began = partial.began or context.session.clock.now()
    if chunk.kind == "text":
        partial.text.append(chunk.text)
    elif chunk.kind == "thinking":
        partial.thinking.append(chunk.text)
    # The event of a tool call is sent after its commit, when the tool starts.
    if chunk.kind != "tool_call":
        kind: EventType = chunk.kind
        context.emit(kind, {"text": chunk.text} if chunk.kind in ("text", "thinking") else chunk.data, now=True)


def _llm_call(
    context: RunContext,
    request: ModelRequest,
    response: Response,
    model_attempt: ModelAttempt,
    *,
    final: bool,
    step: int,
) -> Entry:
    session, usage = context.session, response.usage
    cost = _charge(context, usage)
    data: Json = {"stop_reason": response.stop_reason}
    if response.finish_reason not in (None, response.stop_reason):
        data["finish_reason"] = response.finish_reason
    if response.response_id is not None:
        data["response_id"] = response.response_id
    if response.model not in (None, request.model):
        data["model"] = response.model
    if final:
        data["purpose"] = FINAL_SUMMARY
    if model_attempt.first_token_ms:
        data["first_token_ms"] = model_attempt.first_token_ms
    data["request"] = _reference(context, request)
    data.update(_cost_data(cost))
    return session.entry(
        "llm_call",
        name=request.model,
        status=response.stop_reason,
        step_number=step,
        message=response.message if response.message.get("content") else None,
        data=data,
        duration_ms=model_attempt.duration_ms,
        messages_count=len(request.messages),
        estimated_tokens=session.tokens,
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        cache_read_tokens=usage.cache_read_tokens,
        cache_write_tokens=usage.cache_write_tokens,
    )


def _record_partial(context: RunContext, request: ModelRequest, partial: PartialResponse, step: int) -> None:
    """Store the partial answer. Its token usage is unknown."""
    session = context.session
    message = partial.message()
    if message is None:
        return
    session.change_run(steps=step)
    data: Json = {"stop_reason": "cancelled", "partial": True}
    session.record(
        session.entry("llm_call", name=request.model, status="cancelled", step_number=step, message=message, data=data)
    )


def _with_calls(message: Message, step: int) -> Message:
    """Return the message with calls that can be answered and sent back to the provider.

    Each call gets a valid tool name, an object as input, and an id that is unique in this response. An earlier response
    may have used the same id: the record keeps the id that the model sent.
    """
    content: Any = message.get("content")
    if not isinstance(content, list) or _are_valid(tool_uses(message)):
        return message
    values = {str(block.get("id")) for block in cast("list[Json]", content) if block.get("type") == "tool_use"}
    seen: set[str] = set()
    parts: list[Json] = []
    for index, block in enumerate(cast("list[Json]", content)):
        if block.get("type") == "tool_use":
            new_id = partial(_unused, f"call_{step}_{index}", values | seen)
            block = _repaired_call(block, new_id, seen)
            seen.add(block["id"])
        parts.append(block)
    return {**message, "content": parts}


def _are_valid(calls: Sequence[Json]) -> bool:
    """True if `_repaired_call` returns each of these calls unchanged."""
    ids = {call.get("id") for call in calls if isinstance(call.get("id"), str)}
    return len(ids) == len(calls) and all(map(_is_valid, calls))


def _is_valid(call: Json) -> bool:
    call_id, name = call["id"], call.get("name")
    if not 0 < len(call_id) <= _LONGEST_ID or "\x00" in call_id:
        return False
    return isinstance(name, str) and _VALID_NAME.fullmatch(name) is not None and isinstance(call.get("input"), dict)


def _unused(name: str, selected: set[str]) -> str:
    """Return `name`, with a number after it if another call of the response has it."""
    candidates = (f"{name}_{number}" if number else name for number in itertools.count())
    return next(candidate for candidate in candidates if candidate not in selected)


def _repaired_call(call: Json, new_id: Callable[[], str], seen: set[str]) -> Json:
    value: Any = call.get("id")
    if not isinstance(value, str) or not value or len(value) > _LONGEST_ID or "\x00" in value or value in seen:
        call = {**call, "id": new_id()}
    name = str(call.get("name"))
    if not name or _INVALID_NAME_CHARS.search(name) or len(name) > 128:
        # The prefix prevents a match with an existing tool, which the model did not name.
        call = {**call, "name": f"invalid_{_INVALID_NAME_CHARS.sub('_', name)[:_LONGEST_NAME]}"}
    if not isinstance(call.get("input"), dict):
        call = {**call, "input": {INVALID_JSON: codec.dumps(call.get("input")).decode()}}
    return call


def _without_calls(message: Message) -> Message:
    """Return the message without tool calls, which a final summary must not make."""
    return {**message, "content": [block for block in blocks(message) if block.get("type") != "tool_use"]}


def _charge(context: RunContext, usage: Usage) -> Json:
    """Add a model call to the usage of the run, and return its cost."""
    config, session = context.config, context.session
    cost = price(config.provider.name, config.model, usage, session.clock.now(), config.prices)
    total = add(session.open_run.cost, cost)
    session.add_usage(usage, total, total.get("total_cost"))
    return cost


def _prompt_data(prompt: str) -> Json:
    """Return a short side prompt, or the hash of a long one. The content of a long one is in the log already."""
    digest = sha256(prompt.encode()).hexdigest()
    return {"prompt": prompt} if len(prompt) <= _SHORT else {"prompt_sha256": digest}


def _cost_data(cost: Json) -> Json:
    return {"cost": cost["total_cost"]} if cost else {}


def _started(context: RunContext, request: ModelRequest) -> Entry:
    return context.session.entry(
        "api_call_started",
        name=request.model,
        step_number=request.step,
        data={
            "model": request.model,
            "max_tokens": request.max_tokens,
            "thinking_tokens": request.thinking_tokens,
            "tools_count": len(request.tools) + len(request.server_tools),
        },
        messages_count=len(request.messages),
        estimated_tokens=context.session.tokens,
    )


def _reference(context: RunContext, request: ModelRequest) -> Json:
    """Return the digest of a request, and its parameters if they are not those of the run."""
    parameters = request.parameters
    digest = context.digest(request, parameters)
    return {"sha256": digest} if parameters == context.parameters else {"sha256": digest, "parameters": parameters}


def _api_error(context: RunContext, request: ModelRequest, exc: ProviderError, attempts: int) -> Entry:
    data: Json = {
        "type": "ProviderError",
        "kind": exc.kind,
        "message": error_text(exc),
        "status": exc.status,
        "attempts": attempts,
    }
    if request.purpose is None:
        data["request"] = _reference(context, request)
    return context.session.entry("api_error", name=request.model, status=exc.kind, step_number=request.step, data=data)


def _chunks(context: RunContext, partial: PartialResponse, step: int) -> list[Entry]:
    """Return the streamed text as `streaming_chunk` entries, if `log_chunks` is set."""
    if not context.config.definition.log_chunks:
        return []
    text = storable_text("".join(partial.text))
    return [
        context.session.entry("streaming_chunk", step_number=step, data={"text": text[start : start + _CHUNK]})
        for start in range(0, len(text), _CHUNK)
    ]


def _milliseconds(began: datetime, ended: datetime) -> int:
    return round((ended - began).total_seconds() * 1000)


def _backoff(base: float, attempt: int) -> float:
    return base * 2**attempt + random.random() * min(base, 1.0)
