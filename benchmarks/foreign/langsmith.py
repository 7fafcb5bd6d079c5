"""Traces in the format of LangSmith's client: a graph of two nodes, two model calls, two tools."""

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any
from uuid import NAMESPACE_OID, uuid5

from benchmarks.prose import Prose
from lockstitch.model import Json, codec

SPANS = 10
"""Spans of one trace."""

_BEGIN = datetime(2026, 11, 1, tzinfo=UTC)
_TEXTS = 64


def agents(number: int | None = None) -> Iterator[list[Json]]:
    """Yield traces of ten spans, about 1.1 KB each, without end if no number is set."""
    prose = Prose(3)
    texts = [prose.take(300) for _ in range(_TEXTS)]
    for place in range(number) if number is not None else count():
        yield _agent(place, texts[place % _TEXTS], texts[(place + 7) % _TEXTS])


def generations(number: int, per_trace: int) -> Iterator[list[Json]]:
    """Yield traces with model calls below their root."""
    text = Prose(4).take(300)
    for place in range(number):
        trace = _Trace(f"generations {place}", place)
        root = trace.run(None, "chain", "agent", _said(text), _answered(text))
        for turn in range(per_trace):
            trace.model(root, text, f"{text} {turn}", [])
        yield trace.runs


def whole(spans: int) -> list[Json]:
    """Return one trace of this number of spans: the ten spans of an agent, repeated below one root."""
    text = Prose(5).take(300)
    trace = _Trace("whole", 0)
    root = trace.run(None, "chain", "agent", _said(text), _answered(text))
    while len(trace.runs) < spans:
        _turn(trace, root, len(trace.runs), text, text)
    return trace.runs[:spans]


def write(path: Path, traces: Iterable[list[Json]], size: int | None = None) -> int:
    """Write one line per run, until the end or until the file has this size. Return the number of runs."""
    written = runs = 0
    with path.open("wb") as file:
        for trace in traces:
            for run in trace:
                written += file.write(codec.dumps(run) + b"\n")
                runs += 1
            if size is not None and written >= size:
                break
    return runs


class _Trace:
    """Builds one trace."""

    def __init__(self, name: str, place: int) -> None:
        self._name = name
        self._place = place
        self._begin = _BEGIN + timedelta(seconds=3 * place)
        self.runs: list[Json] = []

    def run(
        self, parent: Json | None, kind: str, name: str, inputs: Json, outputs: Json, milliseconds: int = 200
    ) -> Json:
        step = len(self.runs)
        run_id = str(uuid5(NAMESPACE_OID, f"{self._name} {step}"))
        start = self._begin + timedelta(milliseconds=100 * step)
        above = f"{parent['dotted_order']}." if parent else ""
        run: Json = {
            "id": run_id,
            "trace_id": parent["trace_id"] if parent else run_id,
            "name": name,
            "run_type": kind,
            "start_time": start.isoformat(),
            "end_time": (start + timedelta(milliseconds=milliseconds)).isoformat(),
            "inputs": inputs,
            "outputs": outputs,
            "extra": {
                "metadata": {
                    "ls_provider": "openai",
                    "ls_model_name": "gpt-4o-mini",
                    "user_id": f"user-{self._place % 50}",
                    "langgraph_step": step,
                },
                "runtime": {"sdk": "langsmith-py", "sdk_version": "0.4.17", "platform": "Linux"},
            },
            "tags": [f"seq:step:{step}"],
            "session_name": "bench",
            "dotted_order": f"{above}{start:%Y%m%dT%H%M%S%fZ}{run_id}",
            "events": [],
        }
        if parent:
            run["parent_run_id"] = parent["id"]
        self.runs.append(run)
        return run

    def model(self, parent: Json, heard: str, text: str, calls: list[Json]) -> Json:
        """Add a model call that answers with text or requests tools."""
        message = {
            "content": text,
            "type": "ai",
            "id": f"run--{self._name}-{len(self.runs)}",
            "tool_calls": calls,
            "usage_metadata": {"input_tokens": 900, "output_tokens": 120, "total_tokens": 1020},
            "response_metadata": {
                "model_name": "gpt-4o-mini",
                "finish_reason": "tool_calls" if calls else "stop",
                "id": f"chatcmpl-{self._name}-{len(self.runs)}",
            },
        }
        generation = {"text": text, "type": "ChatGeneration", "message": _constructed("AIMessage", message)}
        human_message = _constructed("HumanMessage", {"content": heard, "type": "human"})
        return self.run(parent, "llm", "ChatOpenAI", {"messages": [[human_message]]}, {"generations": [[generation]]})


def _agent(place: int, question: str, answer: str) -> list[Json]:
    trace = _Trace(f"agent {place}", place)
    root = trace.run(None, "chain", "agent", _said(question), _answered(answer), 2000)
    _turn(trace, root, place, question, answer)
    return trace.runs


def _turn(trace: _Trace, root: Json, place: int, question: str, answer: str) -> None:
    """Add nine spans below a root."""
    calls = [
        {"id": f"call_{place}_{name}", "name": name, "args": args, "type": "tool_call"}
        for name, args in (("search", {"query": f"order {place}"}), ("price", {"order": place}))
    ]
    empty: Json = {"messages": []}
    node = trace.run(root, "chain", "model", empty, empty)
    trace.model(node, question, "", calls)
    tools = trace.run(root, "chain", "tools", {}, {})
    for call in calls:
        output = {
            "type": "tool",
            "content": answer[:200],
            "tool_call_id": call["id"],
            "status": "success",
            "name": call["name"],
        }
        trace.run(tools, "tool", call["name"], call["args"], {"output": output})
    node = trace.run(root, "chain", "model", empty, empty)
    trace.model(node, question, answer, [])
    trace.run(node, "parser", "parser", {}, {"output": answer[:100]})
    trace.run(root, "chain", "end", {}, {})


def _said(text: str) -> Json:
    return {"messages": [{"type": "human", "content": text}]}


def _answered(text: str) -> Json:
    return {"messages": [{"type": "ai", "content": text}]}


def _constructed(kind: str, kwargs: dict[str, Any]) -> Json:
    return {"lc": 1, "type": "constructor", "id": ["langchain", "schema", "messages", kind], "kwargs": kwargs}
