"""`runs_of_trace`: an imported OpenTelemetry trace as LangSmith runs.

The ids are those of the rows, which are UUIDs derived from the span ids. Messages have LangChain's form, so that
LangSmith shows them, and an import of the runs gives the same model calls, tool calls, tokens, costs and texts. The
attributes of a span and its other OpenTelemetry data are in `extra.otel`.
"""

import math
from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

from lockstitch.integrations.otel.facts import OpenTelemetry, answer_of, input_messages
from lockstitch.integrations.otel.messages import OtelMessage, message
from lockstitch.integrations.otel.values import as_json
from lockstitch.integrations.spans.rows import stored_span_data
from lockstitch.integrations.spans.span import Generation, Result, SpanData, SpanFacts
from lockstitch.model import Json, Run, Stitch, format_time
from lockstitch.model.message import tool_uses

_KINDS: Final = {
    "retriever": "retriever",
    "retrieval": "retriever",
    "embedding": "embedding",
    "embeddings": "embedding",
    "prompt": "prompt",
    "parser": "parser",
}
"""Run types of LangSmith for the kinds of spans that are neither model calls nor tools. Other kinds are chains."""

_STATUS: Final = {"ok": "success", "success": "success", "completed": "success", "error": "error", "failed": "error"}
_CLASSES: Final = {"user": "HumanMessage", "system": "SystemMessage", "assistant": "AIMessage", "tool": "ToolMessage"}
_TYPES: Final = {"user": "human", "system": "system", "assistant": "ai", "tool": "tool"}
_MESSAGES: Final = ("messages", "input", "prompt", "prompts", "output")
"""Members of inputs and outputs that the messages replace."""


def runs_of_trace(run: Run, log: Sequence[Stitch]) -> list[Json]:
    """Return the spans of a trace as runs, the root first, then parents before their children.

    A trace without a root, or with several, gets a chain as its root.
    """
    rows = [stitch for stitch in log if stitch.data.get("id")]
    known = {stitch.id for stitch in rows}
    tops = [stitch for stitch in rows if stitch.parent_id not in known]
    roots = [stitch for stitch in tops if not stitch.data.get("parent_id")]
    runs = [_span(stitch) for stitch in rows]
    root_id = str(roots[0].id) if len(roots) == 1 else str(run.id)
    if len(roots) != 1:
        runs.insert(0, _stand_in(run, rows))
    above = {str(stitch.id): str(stitch.parent_id) if stitch.parent_id in known else root_id for stitch in rows}
    above[root_id] = ""
    return _ordered(runs, above, root_id, run)


def _ordered(runs: list[Json], above: dict[str, str], root_id: str, run: Run) -> list[Json]:
    """Set trace, parent and dotted_order of the runs, and return them in this order."""
    by_id = {str(item["id"]): item for item in runs}
    orders: dict[str, str] = {}
    for current in (root_id, *by_id):
        # From the run up to the first ancestor with a known order, then down again.
        way: list[str] = []
        while current and current not in orders and current not in way:
            way.append(current)
            current = above[current]
        if current in way:
            # Its ancestors form a cycle, which ends here.
            above[way[-1]] = root_id
        for run_id in reversed(way):
            started = datetime.fromisoformat(str(by_id[run_id]["start_time"]))
            own = f"{started:%Y%m%dT%H%M%S%f}Z{run_id}"
            orders[run_id] = f"{orders[above[run_id]]}.{own}" if above[run_id] else own
    for run_id, item in by_id.items():
        item |= {"trace_id": root_id, "parent_run_id": above[run_id] or None, "dotted_order": orders[run_id]}
    # A model call and an embedding have their own counts. An import would count a sum again.
    if by_id[root_id]["run_type"] not in ("llm", "embedding"):
        by_id[root_id] |= {
            "prompt_tokens": run.input_tokens,
            "completion_tokens": run.output_tokens,
            "total_tokens": run.input_tokens + run.output_tokens,
            "total_cost": run.total_cost,
        }
    return sorted(runs, key=lambda item: str(item["dotted_order"]))


def _stand_in(run: Run, rows: Sequence[Stitch]) -> Json:
    """Return a chain that is the parent of all spans without one."""
    ends = [str(stitch.data["end"]) for stitch in rows if stitch.data.get("end")]
    thread_id = next((stitch.data["thread_id"] for stitch in rows if stitch.data.get("thread_id")), None)
    group = next((stitch.data["group"] for stitch in rows if stitch.data.get("group")), None)
    return {
        "id": str(run.id),
        "name": run.agent or "trace",
        "run_type": "chain",
        "start_time": format_time(run.started_at),
        "end_time": max(ends, default=None) if run.completed_at else None,
        "status": {"completed": "success", "failed": "error", "cancelled": "error"}.get(run.status, "pending"),
        "error": run.error,
        "inputs": {},
        "outputs": None,
        "tags": run.tags,
        "events": [],
        "extra": {"metadata": {"thread_id": thread_id} if thread_id else {}, "otel": {"trace_id": run.foreign_id}},
        **({"session_name": group} if group else {}),
    }


def _span(stitch: Stitch) -> Json:
    data = stored_span_data(stitch.data)
    facts = OpenTelemetry().facts(data)
    if stitch.type == "llm_call":
        details = _model_call(stitch, data, facts)
    elif stitch.type == "tool_call":
        details = _tool_call(data, facts)
    else:
        details = _other(data)
        if details["run_type"] == "embedding":
            details |= _embedding(stitch, facts)
    metadata = {**(data.get("metadata") or {}), **details.pop("metadata", {})}
    if "thread_id" in data:
        metadata.setdefault("thread_id", data["thread_id"])
    if "user_id" in data:
        metadata.setdefault("user_id", data["user_id"])
    trace_id, _, span_id = data["id"].partition(":")
    otel = {"trace_id": trace_id, "span_id": span_id, "name": data.get("name"), "kind": data.get("kind")}
    otel |= {"session_id": data.get("session_id"), "trace_name": data.get("trace_name"), **(data.get("extra") or {})}
    start = data.get("start") or format_time(stitch.at) if stitch.at else None
    return {
        "id": str(stitch.id),
        "name": data.get("name") or stitch.name or "span",
        "start_time": start or data.get("end"),
        "end_time": data.get("end"),
        "status": _STATUS.get((data.get("status") or "").lower(), "pending"),
        "error": data.get("error"),
        "tags": data.get("tags") or [],
        "events": data.get("events") or [],
        **({"session_name": data["group"]} if "group" in data else {}),
        **details,
        "extra": {
            **details.get("extra", {}),
            "metadata": metadata,
            "otel": {name: value for name, value in otel.items() if value is not None},
        },
    }


def _model_call(stitch: Stitch, data: SpanData, facts: SpanFacts) -> Json:
    inputs = data.get("inputs") or {}
    system = message({"role": "system", "content": inputs["system"]}) if inputs.get("system") else None
    dialogue = [*([system] if system else []), *input_messages(inputs)]
    messages = [_constructed(*each) for item in dialogue for each in _as_lang(item)]
    parameters = dict(facts.parameters)
    if tools := inputs.get("tools"):
        parameters["tools"] = tools
    usage = _usage(stitch)
    # The counts belong to the whole call, so an answer has them only if it is the only one.
    single = len(facts.generations) == 1
    outputs: Json = {
        "generations": [
            [_generation(facts, generation, usage if single else None) for generation in facts.generations]
        ],
        "llm_output": {"model_name": facts.model} if facts.model else None,
        **({"usage_metadata": usage} if usage and not single else {}),
    }
    return {
        "run_type": "llm",
        "inputs": {"messages": [messages]} if messages else {},
        "outputs": outputs if facts.generations else None,
        "metadata": _named(ls_model_type="chat", ls_model_name=facts.model, ls_provider=facts.provider),
        "extra": {"invocation_params": parameters} if parameters else {},
        **_counts(stitch, usage),
    }


def _embedding(stitch: Stitch, facts: SpanFacts) -> Json:
    """Return the model, counts and cost of an embedding. It has no answer, so its metadata has the counts."""
    usage = _usage(stitch)
    about = _named(ls_model_name=facts.model, ls_provider=facts.provider, usage_metadata=usage)
    return {"metadata": about, **_counts(stitch, usage)}


def _counts(stitch: Stitch, usage: Json | None) -> Json:
    """Return the tokens and the cost as members of a run."""
    counted = usage or {}
    return {
        "prompt_tokens": counted.get("input_tokens"),
        "completion_tokens": counted.get("output_tokens"),
        "total_tokens": counted.get("total_tokens"),
        **_costs(stitch.data.get("cost") or {}),
    }


def _costs(cost: Json) -> Json:
    """Return the cost of a model call. The parts are unknown if the source gave the total."""
    if not cost:
        return {}
    parts: Json = {}
    if cost.get("source") != "given":
        read = math.fsum(cost.get(name) or 0.0 for name in ("input_cost", "cache_write_cost", "cache_read_cost"))
        parts = {"prompt_cost": read, "completion_cost": cost.get("output_cost") or 0.0}
    return {"total_cost": cost.get("total_cost"), **parts}


def _usage(stitch: Stitch) -> Json | None:
    """Return the counts of a model call in LangChain's form, or None if it has none."""
    if stitch.input_tokens is None and stitch.output_tokens is None:
        return None
    tokens = (stitch.input_tokens or 0, stitch.output_tokens or 0)
    cache = {"cache_read": stitch.cache_read_tokens or 0, "cache_creation": stitch.cache_write_tokens or 0}
    usage: Json = {"input_tokens": tokens[0], "output_tokens": tokens[1], "total_tokens": sum(tokens)}
    return {**usage, "input_token_details": cache} if any(cache.values()) else usage


def _generation(facts: SpanFacts, generation: Generation, usage: Json | None) -> Json:
    about = {
        "id": facts.response_id,
        "model_name": facts.model,
        "model_provider": facts.provider,
        "finish_reason": generation.finish_reason,
    }
    kwargs = _assistant(generation.message.get("content") or [], generation.id)
    kwargs["response_metadata"] = {name: value for name, value in about.items() if value is not None}
    if usage:
        kwargs["usage_metadata"] = usage
    return {
        "text": generation.text,
        "type": "ChatGeneration",
        "generation_info": {"finish_reason": generation.finish_reason} if generation.finish_reason else None,
        "message": _constructed("AIMessage", kwargs),
    }


def _tool_call(data: SpanData, facts: SpanFacts) -> Json:
    call, result = facts.call, facts.result
    call_id = call.id if call else None
    args: Any = call.args if call else None
    arguments = as_json(args)
    inputs: Json = arguments if args is None or isinstance(args, dict) else {"input": args}
    if arguments.keys() == {"input"}:
        # LangSmith has this member for a text argument. So name the arguments.
        inputs = {"type": "tool_call", "id": call_id, "name": call.name if call else None, "args": arguments}
    return {
        **({"name": call.name} if call and call.name else {}),
        "run_type": "tool",
        "inputs": inputs,
        "outputs": {"output": _tool_message(result)} if result else None,
        "metadata": {"tool_call_id": call_id} if call_id else {},
    }


def _other(data: SpanData) -> Json:
    """Return a span that is no model call and no tool. Only its messages change their form."""
    inputs, outputs = data.get("inputs") or {}, data.get("outputs") or {}
    return {
        "run_type": _KINDS.get((data.get("kind") or "").lower(), "chain"),
        "inputs": _with_messages(inputs, input_messages(inputs)),
        "outputs": _with_messages(outputs, answer_of(outputs).dialogue) or None,
    }


def _with_messages(bag: Json, messages: list[OtelMessage]) -> Json:
    if not messages or all(isinstance(value, str) for value in bag.values()):
        # A text has the same form in LangSmith.
        return bag
    others = {name: value for name, value in bag.items() if name not in _MESSAGES}
    return {**others, "messages": [kwargs for item in messages for _, kwargs in _as_lang(item)]}


def _as_lang(message: OtelMessage) -> list[tuple[str, Json]]:
    """Return a message as messages of LangChain: class and fields. Each result is a separate message."""
    results = [("ToolMessage", _tool_message(result)) for result in message.results]
    if results and not message.blocks:
        return results
    if message.role == "assistant":
        return [*results, ("AIMessage", _assistant(message.blocks, message.id))]
    fields: Json = {"content": _content(message.blocks), "type": _TYPES.get(message.role, "human")}
    return [*results, (_CLASSES.get(message.role, "HumanMessage"), {**fields, **_named(id=message.id)})]


def _assistant(blocks: Any, message_id: str | None) -> Json:
    calls = tool_uses({"role": "assistant", "content": blocks})
    words = [block for block in blocks if block.get("type") != "tool_use"]
    # Blocks stay in their order if the calls do not follow a single text.
    simple = len(words) <= 1 and all(block.get("type") == "text" for block in words) and blocks[len(words) :] == calls
    return {
        "content": _content(words) if simple else blocks,
        "type": "ai",
        "tool_calls": [
            {"name": call.get("name"), "args": call.get("input"), "id": call.get("id"), "type": "tool_call"}
            for call in calls
        ],
        **_named(id=message_id),
    }


def _tool_message(result: Result) -> Json:
    status = None if result.failed is None else "error" if result.failed else "success"
    return {
        "content": result.content,
        "type": "tool",
        **_named(name=result.name, tool_call_id=result.call_id, status=status),
    }


def _content(blocks: list[Json]) -> Any:
    """Return the text of a message that is one text, else its blocks."""
    if not blocks:
        return ""
    return blocks[0].get("text") if len(blocks) == 1 and blocks[0].get("type") == "text" else blocks


def _named(**fields: Any) -> Json:
    return {name: value for name, value in fields.items() if value is not None}


def _constructed(kind: str, kwargs: Json) -> Json:
    """Return a message in LangChain's serialisation."""
    return {"lc": 1, "type": "constructor", "id": ["langchain", "schema", "messages", kind], "kwargs": kwargs}
