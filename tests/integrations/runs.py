"""Generated runs in the form that LangSmith clients send."""

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from lockstitch.integrations.langsmith import read
from lockstitch.integrations.spans.span import Item
from lockstitch.model import Json, codec

START = datetime(2026, 11, 1, 12, tzinfo=UTC)


def uid(number: int) -> str:
    return str(UUID(int=number, version=4))


class Trace:
    """A trace in progress. Each method adds a run and returns it, so that a test can change or split it."""

    def __init__(self, number: int = 1, *, thread: str | None = None, metadata: Json | None = None) -> None:
        self.id = uid(number * 1000)
        self._number = number
        self._metadata = {**({"thread_id": thread} if thread else {}), **(metadata or {})}
        self.runs: list[Json] = []

    def run(
        self, kind: str, name: str, at: float, inputs: Json, outputs: Json, *, parent: str | None = "", **more: Any
    ) -> Json:
        """Add a run that started `at` seconds after the start and took half a second, below the root by default."""
        root = parent is None
        run: Json = {
            "id": self.id if root else uid(self._number * 1000 + len(self.runs) + 1),
            "trace_id": self.id,
            "name": name,
            "run_type": kind,
            "start_time": moment(at),
            "end_time": moment(at + 0.5),
            "inputs": inputs,
            "outputs": outputs,
            "extra": {"metadata": dict(self._metadata)},
            "tags": [],
            **({} if root else {"parent_run_id": parent or self.id}),
            **more,
        }
        self.runs.append(run)
        return run

    def root(self, text: str = "hello", answer: str = "bye", **more: Any) -> Json:
        messages = {"messages": [{"type": "human", "content": text}]}
        end = {"messages": [*messages["messages"], {"type": "ai", "content": answer}]}
        return self.run("chain", "agent", 0, messages, end, parent=None, end_time=moment(30), **more)

    def model(
        self,
        at: float,
        text: str = "",
        calls: list[tuple[str, str, Json]] | None = None,
        *,
        heard: Any = (),
        **more: Any,
    ) -> Json:
        """Add a model call that answers with text or requests (id, name, args). `heard` are its input messages."""
        requests = [
            {"id": call_id, "name": name, "args": args, "type": "tool_call"} for call_id, name, args in calls or []
        ]
        message = ai(text, requests, f"msg-{self._number}-{at}", **more.pop("kwargs", {}))
        outputs = {"generations": [[{"text": text, "message": message}]]}
        return self.run("llm", "ChatOpenAI", at, {"messages": [[human("hello"), *heard]]}, outputs, **more)

    def tool(self, at: float, name: str, call_id: str | None, result: str = "done", **more: Any) -> Json:
        output: Json = {"type": "tool", "content": result, "name": name, "status": "success"}
        if call_id is not None:
            output["tool_call_id"] = call_id
        return self.run("tool", name, at, more.pop("inputs", {"q": result}), {"output": output}, **more)


def agent_trace(number: int = 1, **options: Any) -> Trace:
    """A root, a model call that requests two tools, the tools, and a model call that answers."""
    trace = Trace(number, **options)
    trace.root()
    trace.model(1, calls=[("call_a", "search", {"q": "x"}), ("call_b", "price", {"id": 7})])
    trace.tool(2, "search", "call_a", "found")
    trace.tool(3, "price", "call_b", "42")
    trace.model(4, "It costs 42.")
    return trace


def post_and_patch(run: Json) -> tuple[Json, Json]:
    """Return a run as clients send it: a post at the start, and a patch at the end."""
    post = {key: value for key, value in run.items() if key not in ("end_time", "outputs", "error")}
    patch_fields = ("id", "trace_id", "parent_run_id", "end_time", "outputs", "error", "extra")
    patch = {key: run[key] for key in patch_fields if key in run}
    return {**post, "outputs": {}}, patch


def items(*runs: Json) -> list[Item]:
    """Return the items that the integration reads from a file of these runs."""
    return list(read(b"\n".join(codec.dumps(run) for run in runs), "runs.jsonl"))


def moment(seconds: float) -> str:
    return (START + timedelta(seconds=seconds)).isoformat()


def human(text: str) -> Json:
    return _message("HumanMessage", "human", {"content": text})


def tool_message(call_id: str, content: str, **more: Any) -> Json:
    return _message("ToolMessage", "tool", {"content": content, "tool_call_id": call_id, **more})


def ai(text: str, calls: list[Json], message_id: str | None, **more: Any) -> Json:
    kwargs: Json = {
        "content": text,
        "id": message_id,
        "tool_calls": calls,
        "usage_metadata": {"input_tokens": 100, "output_tokens": 20, "total_tokens": 120},
        "response_metadata": {"model_name": "gpt-4o-mini", "finish_reason": "tool_calls" if calls else "stop"},
        **more,
    }
    return _message("AIMessage", "ai", kwargs)


def _message(kind: str, type_: str, kwargs: Json) -> Json:
    return {
        "lc": 1,
        "type": "constructor",
        "id": ["langchain", "schema", "messages", kind],
        "kwargs": {"type": type_, **kwargs},
    }
