"""`export_run`: a run as a list of LangSmith run objects, the root first.

An imported LangSmith trace is exported with its original span data, except redacted values and the format of times.
`otel_runs` exports an OpenTelemetry trace. A native run becomes a chain with its model calls and tools as children, and
team members as nested chains.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

from lockstitch.model import Json, Run, Stitch, Thread, foreign_id, format_time
from lockstitch.model.context import history
from lockstitch.model.message import blocks, text_of, tool_uses
from lockstitch.store import Store

_SOURCES: Final = ("langsmith", "otel")

_NAMES: Final = {
    "id": "id",
    "trace_id": "trace_id",
    "parent_id": "parent_run_id",
    "order": "dotted_order",
    "name": "name",
    "kind": "run_type",
    "start": "start_time",
    "end": "end_time",
    "inputs": "inputs",
    "outputs": "outputs",
    "error": "error",
    "status": "status",
    "tags": "tags",
    "events": "events",
    "thread_id": "thread_id",
    "user_id": "user_id",
    "session_id": "session_id",
    "group": "session_name",
    "total_tokens": "total_tokens",
    "total_cost": "total_cost",
    "children": "child_run_ids",
}
"""LangSmith's names for the keys of span data. `extra` and `metadata` become one object again."""


async def export_run(store: Store, ref: str) -> list[Json]:
    """Return a run and its descendants as LangSmith runs, by its id or its id in the source. Raises `NotFound`."""
    run = await find_run(store, ref)
    if run.source == "otel":
        # Only these runs need the code of the other integration.
        from lockstitch.integrations.langsmith.otel_runs import runs_of_trace

        return runs_of_trace(run, await store.log(run.id))
    if run.source != "native":
        log = await store.log(run.id)
        return sorted((exported_span(stitch.data) for stitch in log if stitch.data.get("id")), key=_place)
    head = await store.thread(run.thread_id)
    runs = [other_run for other_run in await store.runs(head) if other_run.turn == run.turn]
    below = [run, *_below(run, runs)]
    messages: list[Json] = []
    for item in below:
        messages += _native_spans(
            head, item, await store.log(item.id), parent=None if item is run else str(item.parent_run_id)
        )
    return _ordered(messages, str(run.id))


async def find_run(store: Store, ref: str) -> Run:
    """Return a run of the project by its id, or by its id in the source. Raises `NotFound`."""
    ids = [foreign_id(store.project, source, f"run:{ref}") for source in _SOURCES]
    mirrors = await store.mirrors.runs(ids)
    return next((mirrors[id] for id in ids if id in mirrors), None) or await store.run(ref)


def exported_span(piece: Json) -> Json:
    """Return the original data of an imported span under LangSmith's names."""
    run: Json = {name: piece[key] for key, name in _NAMES.items() if key in piece}
    extra = dict(piece.get("extra") or {})
    if "metadata" in piece:
        extra["metadata"] = piece["metadata"]
    if extra:
        run["extra"] = extra
    return {"parent_run_id": None, **run}


def _place(run: Json) -> tuple[bool, str, str]:
    """Return the sort key: the root first, then by start time."""
    root = run.get("id") == run.get("trace_id")
    return (not root, str(run.get("start_time") or ""), str(run.get("dotted_order") or ""))


def _below(run: Run, runs: Sequence[Run]) -> Iterable[Run]:
    for other_run in runs:
        if other_run.parent_run_id == run.id:
            yield other_run
            yield from _below(other_run, runs)


def _native_spans(head: Thread, run: Run, log: Sequence[Stitch], parent: str | None) -> list[Json]:
    """Return a native run as a chain, with its model calls and tools as children."""
    stitches = {stitch.position: stitch for stitch in log}
    requested = {
        (stitch.position, index): call for stitch in log for index, call in enumerate(tool_uses(stitch.message))
    }
    messages = [_chain(head, run, stitches, parent)]
    for stitch in log:
        if stitch.type == "llm_call":
            messages.append(_model_call(run, stitch, log))
        elif stitch.type == "tool_call":
            messages.append(_tool_call(run, stitch, requested.get((stitch.reply_to or 0, stitch.call_index or 0))))
    return messages


def _chain(head: Thread, run: Run, stitches: dict[int, Stitch], parent: str | None) -> Json:
    question, answer = stitches.get(run.input_position or 0), stitches.get(run.output_position or 0)
    metadata = {
        **run.metadata,
        "ls_model_name": run.model,
        "ls_provider": run.provider,
        "thread_id": head.key or str(head.id),
    }
    message = answer.message if answer else None
    failed = run.status in ("failed", "cancelled")
    return {
        "id": str(run.id),
        "parent_run_id": parent,
        "name": run.agent or "agent",
        "run_type": "chain",
        "start_time": format_time(run.started_at),
        "end_time": format_time(run.completed_at) if run.completed_at else None,
        "status": "error" if failed else "success" if run.status == "completed" else "pending",
        "error": run.error or run.status if failed else None,
        "inputs": {"messages": [question.message] if question and question.message else []},
        "outputs": {"generations": [[{"text": text_of(message), "message": message}]]} if message else {},
        "extra": {"metadata": {name: value for name, value in metadata.items() if value is not None}},
        "tags": run.tags,
        "user_id": head.user_id,
        "thread_id": str(head.id),
        "session_id": head.key or str(head.id),
        "session_name": head.project,
        "prompt_tokens": run.input_tokens,
        "completion_tokens": run.output_tokens,
        "total_tokens": run.input_tokens + run.output_tokens,
        "total_cost": run.total_cost,
    }


def _model_call(run: Run, stitch: Stitch, log: Sequence[Stitch]) -> Json:
    data, message = stitch.data, stitch.message
    model = data.get("model") or stitch.name
    text = text_of(message) if message else str(data.get("text") or "")
    reason = data.get("finish_reason") or stitch.status
    kwargs: Json = {
        "id": stitch.call_id or str(stitch.id),
        "type": "ai",
        "content": _content(message, text),
        "tool_calls": [
            {"name": call.get("name"), "args": call.get("input"), "id": call.get("id"), "type": "tool_call"}
            for call in tool_uses(message)
        ],
        "response_metadata": {"finish_reason": reason, "model_name": model, "model_provider": run.provider},
    }
    counted = stitch.input_tokens is not None or stitch.output_tokens is not None
    tokens = (stitch.input_tokens or 0, stitch.output_tokens or 0)
    if counted:
        kwargs["usage_metadata"] = dict(
            zip(("input_tokens", "output_tokens", "total_tokens"), (*tokens, sum(tokens)), strict=True)
        )
    before = history([other_stitch for other_stitch in log if other_stitch.position < stitch.position], run.id)
    return {
        **_span(run, stitch, stitch.name or "model", "llm"),
        "inputs": {"prompt": data["prompt"]} if data.get("prompt") else {"messages": [before]},
        "outputs": {
            "generations": [
                [{"text": text, "type": "ChatGeneration", "message": _constructed("AIMessage", kwargs)}],
            ]
        },
        "extra": {"metadata": {"ls_model_name": model, "ls_provider": run.provider, **_named(data, "purpose")}},
        "prompt_tokens": tokens[0] if counted else None,
        "completion_tokens": tokens[1] if counted else None,
        "total_tokens": sum(tokens) if counted else None,
        "total_cost": data.get("cost"),
    }


def _tool_call(run: Run, stitch: Stitch, call: Json | None) -> Json:
    content: Any = (stitch.message or {}).get("content")
    failed = stitch.status not in ("ok", "settled")
    kwargs: Json = {
        "type": "tool",
        "name": stitch.name,
        "tool_call_id": stitch.call_id,
        "content": content,
        "status": "error" if failed else "success",
    }
    return {
        **_span(run, stitch, stitch.name or "tool", "tool"),
        "inputs": (call or {}).get("input") or {},
        "outputs": {"output": _constructed("ToolMessage", kwargs)},
        "extra": {"metadata": {"tool_call_id": stitch.call_id}},
        "status": "error" if failed else "success",
        "error": str(content) if failed else None,
    }


def _span(run: Run, stitch: Stitch, name: str, kind: str) -> Json:
    """Return the fields that every child has. A stitch is written at the end of its operation."""
    end = stitch.at or run.started_at
    start = end - timedelta(milliseconds=stitch.duration_ms or 0)
    return {
        "id": str(stitch.id),
        "parent_run_id": str(run.id),
        "name": name,
        "run_type": kind,
        "start_time": format_time(start),
        "end_time": format_time(end),
        "status": "success",
        "error": None,
        "tags": [],
    }


def _content(message: Json | None, text: str) -> Any:
    """Return the text of an answer that contains only text and calls, else its blocks."""
    parts = blocks(message) if message else []
    return text if all(block.get("type") in ("text", "tool_use") for block in parts) else parts


def _constructed(kind: str, kwargs: Json) -> Json:
    """Return a message in LangChain's serialisation."""
    return {"lc": 1, "type": "constructor", "id": ["langchain", "schema", "messages", kind], "kwargs": kwargs}


def _named(data: Json, *names: str) -> Json:
    return {name: data[name] for name in names if data.get(name) is not None}


def _ordered(messages: list[Json], trace_id: str) -> list[Json]:
    """Set the dotted_order of each run: the order of its parent, then its own time and id. Return the runs in order."""
    orders: dict[str, str] = {}
    for run in messages:
        began = datetime.fromisoformat(str(run["start_time"]))
        own = f"{began:%Y%m%dT%H%M%S%f}Z{run['id']}"
        above = orders.get(str(run["parent_run_id"]))
        orders[str(run["id"])] = run["dotted_order"] = f"{above}.{own}" if above else own
        run["trace_id"] = trace_id
    return [messages[0], *sorted(messages[1:], key=lambda run: str(run["dotted_order"]))]
