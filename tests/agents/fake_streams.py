"""Content blocks as the events of a stream, in three formats, divided into small deltas."""

import json
from collections.abc import Iterator
from typing import Any

Json = dict[str, Any]

SIZE = 5
"""Characters in a delta."""


def anthropic(content: list[Json], stop: str, usage: Json, model: str, more: Json) -> Iterator[str]:
    message = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {**usage, "output_tokens": 1},
    }
    yield _named({"type": "message_start", "message": message})
    yield _named({"type": "ping"})
    for index, block in enumerate(content):
        start, deltas = _anthropic_block(block)
        yield _named({"type": "content_block_start", "index": index, "content_block": start})
        for delta in deltas:
            yield _named({"type": "content_block_delta", "index": index, "delta": delta})
        yield _named({"type": "content_block_stop", "index": index})
    delta = {"stop_reason": stop, "stop_sequence": None, **more}
    yield _named({"type": "message_delta", "delta": delta, "usage": {"output_tokens": usage["output_tokens"]}})
    yield _named({"type": "message_stop"})


def _anthropic_block(block: Json) -> tuple[Json, list[Json]]:
    kind = block["type"]
    if kind == "text":
        deltas = [{"type": "text_delta", "text": part} for part in _cut(block["text"])]
        deltas += [{"type": "citations_delta", "citation": citation} for citation in block.get("citations", ())]
        return {"type": "text", "text": ""}, deltas
    if kind == "thinking":
        deltas = [{"type": "thinking_delta", "thinking": part} for part in _cut(block["thinking"])]
        deltas.append({"type": "signature_delta", "signature": block["signature"]})
        return {"type": "thinking", "thinking": "", "signature": ""}, deltas
    if kind in ("tool_use", "server_tool_use"):
        written = block.get("json", json.dumps(block.get("input")))
        deltas = [{"type": "input_json_delta", "partial_json": part} for part in ("", *_cut(written))]
        return {name: value for name, value in block.items() if name != "json"} | {"input": {}}, deltas
    return block, []


def chat(content: list[Json], stop: str, usage: Json, model: str, more: Json) -> Iterator[str]:
    """`more` may have "thoughts", the field in which the server sends thinking."""
    yield _chunk(model, {"role": "assistant", "content": ""})
    calls = 0
    for block in content:
        if block["type"] == "thinking":
            for part in _cut(block["thinking"]):
                yield _chunk(model, {more.get("thoughts", "reasoning_content"): part})
        elif block["type"] == "refusal":
            for part in _cut(block["refusal"]):
                yield _chunk(model, {"refusal": part})
        elif block["type"] == "text":
            for part in _cut(block["text"]):
                yield _chunk(model, {"content": part})
        else:
            function = {"name": block["name"], "arguments": ""}
            first = {"index": calls, "id": block["id"], "type": "function", "function": function}
            yield _chunk(model, {"tool_calls": [first]})
            for part in _cut(block.get("json", json.dumps(block.get("input")))):
                yield _chunk(model, {"tool_calls": [{"index": calls, "function": {"arguments": part}}]})
            calls += 1
    yield _chunk(model, {}, finish=stop)
    counts = {
        "prompt_tokens": usage["input"],
        "completion_tokens": usage["output"],
        "total_tokens": usage["input"] + usage["output"],
        "prompt_tokens_details": {"cached_tokens": usage["cached"]},
        "completion_tokens_details": {"reasoning_tokens": usage["reasoning"]},
    }
    yield _line({"id": "chatcmpl-1", "object": "chat.completion.chunk", "model": model, "choices": [], "usage": counts})
    yield "data: [DONE]\n\n"


def _chunk(model: str, delta: Json, finish: str | None = None) -> str:
    choice = {"index": 0, "delta": delta, "finish_reason": finish, "logprobs": None}
    chunk = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": model, "choices": [choice]}
    return _line({**chunk, "usage": None})


def responses(content: list[Json], stop: str, usage: Json, model: str, more: Json) -> Iterator[str]:
    """`content` has output items of the API. `stop` is the status, or the reason why it is incomplete."""
    response = {"id": "resp_1", "object": "response", "model": model, "status": "in_progress", "output": []}
    number = iter(range(10_000))

    def event(kind: str, **fields: Any) -> str:
        return _named({"type": kind, "sequence_number": next(number), **fields})

    yield event("response.created", response=response)
    yield event("response.in_progress", response=response)
    for index, item in enumerate(content):
        yield event("response.output_item.added", output_index=index, item={**item, "status": "in_progress"})
        where: Json = {"item_id": item.get("id"), "output_index": index}
        for place, part in enumerate(item.get("summary", ())):
            yield event("response.reasoning_summary_part.added", **where, summary_index=place, part=part)
            for text in _cut(part["text"]):
                yield event("response.reasoning_summary_text.delta", **where, summary_index=place, delta=text)
        if item["type"] == "message":
            for place, part in enumerate(item["content"]):
                key = "refusal" if part["type"] == "refusal" else "text"
                kind = "response.refusal.delta" if key == "refusal" else "response.output_text.delta"
                for text in _cut(part[key]):
                    yield event(kind, **where, content_index=place, delta=text)
                for note in part.get("annotations", ()):
                    yield event("response.output_text.annotation.added", **where, content_index=place, annotation=note)
        if item["type"] == "function_call":
            for text in _cut(item["arguments"]):
                yield event("response.function_call_arguments.delta", **where, delta=text)
        yield event("response.output_item.done", output_index=index, item=item)
    counts = {
        "input_tokens": usage["input"],
        "input_tokens_details": {"cached_tokens": usage["cached"], "cache_write_tokens": 0},
        "output_tokens": usage["output"],
        "output_tokens_details": {"reasoning_tokens": usage["reasoning"]},
        "total_tokens": usage["input"] + usage["output"],
    }
    full = {**response, "output": content, "usage": counts, "status": "completed", **more}
    if "error" in more:
        yield event("response.failed", response={**full, "status": "failed"})
    elif stop in ("max_output_tokens", "content_filter"):
        full |= {"status": "incomplete", "incomplete_details": {"reason": stop}}
        yield event("response.incomplete", response=full)
    else:
        yield event("response.completed", response=full)


def _cut(text: str) -> list[str]:
    return [text[start : start + SIZE] for start in range(0, len(text), SIZE)]


def _named(event: Json) -> str:
    return f"event: {event['type']}\ndata: {json.dumps(event, ensure_ascii=False)}\n\n"


def _line(event: Json) -> str:
    return f"data: {json.dumps(event, ensure_ascii=False)}\n\n"
