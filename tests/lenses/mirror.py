"""Imported traces, written as records without an importer."""

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from lockstitch.model import Json, Run, Stitch, Thread, foreign_id, format_time, tool_result
from lockstitch.store import Store

START = datetime(2025, 3, 4, 10, 0, 0, 123456, tzinfo=UTC)


@dataclass
class Mirror:
    """One trace: a root, its model calls and their tools. Pieces are stored in the order of the calls."""

    trace_id: str
    source: str = "langsmith"
    project: str = "default"
    thread: str | None = None
    fields: dict[str, Any] = field(default_factory=dict)
    stitches: list[Stitch] = field(default_factory=list)

    @property
    def thread_id(self) -> Any:
        return foreign_id(self.project, self.source, f"thread {self.thread or self.trace_id}")

    @property
    def run_id(self) -> Any:
        return foreign_id(self.project, self.source, self.trace_id)

    def root(self, **span: Any) -> "Mirror":
        self._add("span", self.trace_id, None, span, name=span.get("name", "agent"), status="ok")
        return self

    def answers(self, span: str, text: str = "", *calls: tuple[str, str, Any], **more: Any) -> "Mirror":
        """Add a model call: its text and its tool calls as (call id, name, arguments)."""
        content: list[Json] = [{"type": "text", "text": text}] if text else []
        content += [{"type": "tool_use", "id": id, "name": name, "input": args} for id, name, args in calls]
        number = sum(stitch.type == "llm_call" for stitch in self.stitches) + 1
        span_fields = more.pop("piece", {})
        fields = {
            "name": "gpt-4o",
            "status": "tool_use" if calls else "end_turn",
            "message": {"role": "assistant", "content": content},
            "step_number": number,
            "input_tokens": 10,
            "output_tokens": 5,
            **more,
        }
        self._add("llm_call", span, self.trace_id, {"kind": "llm", **span_fields}, **fields)
        return self

    def tool(self, span: str, call_id: str, name: str, content: Any = None, **more: Any) -> "Mirror":
        """Add a tool call: of the last model call that requested it, if any."""
        calls = [
            (stitch, place)
            for stitch in self.stitches
            if stitch.type == "llm_call"
            for place, block in enumerate(
                block for block in (stitch.message or {})["content"] if block["type"] == "tool_use"
            )
            if block["id"] == call_id
        ]
        answer = calls[-1] if calls else None
        status = more.get("status", None if content is None else "ok")
        fields = {
            "status": status,
            "message": None if content is None else tool_result(call_id, content, is_error=status == "error"),
            "reply_to": answer[0].position if answer else None,
            "call_index": answer[1] if answer else None,
            "step_number": answer[0].step_number if answer else None,
            **more,
        }
        span_fields = fields.pop("piece", {})
        self._add("tool_call", span, self.trace_id, span_fields, name=name, call_id=call_id, **fields)
        return self

    def _add(self, type: str, span: str, parent: str | None, span_fields: Json, **fields: Any) -> None:
        position = len(self.stitches) + 1
        at = START + timedelta(seconds=position)
        merged = {"id": span, "trace_id": self.trace_id, "start": format_time(at), **span_fields}
        if parent is not None:
            merged["parent_id"] = parent
        self.stitches.append(
            Stitch(
                id=foreign_id(self.project, self.source, span),
                type=type,
                run_id=self.run_id,
                parent_id=self.run_id if parent is None else foreign_id(self.project, self.source, parent),
                data=merged,
                at=at,
                thread_id=self.thread_id,
                position=position,
                **fields,
            )
        )

    async def put(self, store: Store) -> "Mirror":
        """Write the trace as one thread."""
        calls = [stitch for stitch in self.stitches if stitch.type == "llm_call"]
        root = next((stitch for stitch in self.stitches if stitch.data["id"] == self.trace_id), None)
        end = START + timedelta(seconds=60)
        thread = Thread(
            id=self.thread_id,
            key=f"{self.source}:{self.thread or self.trace_id}",
            project=self.project,
            kind="trace",
            status="completed",
            state={"source": self.source, "foreign_id": self.thread or self.trace_id},
            position=len(self.stitches),
            last_sequence=1,
            last_turn=1,
            total_runs=1,
            created_at=START,
            updated_at=end,
        )
        values: dict[str, Any] = {
            "id": self.run_id,
            "thread_id": self.thread_id,
            "sequence": 1,
            "turn": 1,
            "agent": root.name if root else None,
            "role": "trace",
            "status": "completed",
            "first_position": 1,
            "input_position": root.position if root else None,
            "output_position": calls[-1].position if calls else None,
            "model": calls[0].name if calls else None,
            "provider": calls[0].data.get("provider") if calls else None,
            "input_tokens": sum(stitch.input_tokens or 0 for stitch in calls),
            "output_tokens": sum(stitch.output_tokens or 0 for stitch in calls),
            "steps": len(calls),
            "source": self.source,
            "foreign_id": self.trace_id,
            "started_at": START,
            "completed_at": end,
            **self.fields,
        }
        await store._backend.put([thread])
        await store._backend.put([Run(**values)])
        await store._backend.put(self.stitches)
        return self


def research(trace_id: str = "5f2d0a8e-4a2f-4a5e-9a55-0c1f2f3a4b5c", **fields: Any) -> Mirror:
    """Return a trace as LangGraph sends one: two parallel tool calls, one that failed, one without a request."""
    values: dict[str, Any] = {
        "tags": ["langsmith:nostream"],
        "metadata": {"ls_model_name": "gpt-4o-2024", "langgraph_node": "researcher", "langgraph_step": 3},
        "state": {"thread_id": "lg-7", "user_id": "ada", "session_id": "project-9"},
        **fields,
    }
    inputs = {"messages": [{"type": "human", "content": "What is new?"}]}
    outputs = {"messages": [{"type": "ai", "content": "This is new."}]}
    mirror = Mirror(trace_id, thread=f"lg-7 {trace_id}", fields=values)
    mirror.root(
        name="LangGraph", kind="chain", inputs=inputs, outputs=outputs, tags=values["tags"], order="20250304T1Z"
    )
    response = {"finish_reason": "tool_calls", "provider": "openai", "model": "gpt-4o-2024-08-06", "cost": 0.01}
    mirror.answers(
        f"{trace_id}-llm-1",
        "Let me think.",
        ("call_a", "think_tool", {"reflection": "hm"}),
        ("call_b", "search", {"query": "news", "limit": 3}),
        call_id="run-msg-1",
        piece=response,
        duration_ms=900,
    )
    mirror.tool(f"{trace_id}-tool-1", "call_a", "think_tool", "Reflected.", duration_ms=12)
    mirror.tool(f"{trace_id}-tool-2", "call_b", "search", "No network.", status="error", duration_ms=340)
    mirror.answers(
        f"{trace_id}-llm-2",
        "",
        ("call_c", "ResearchComplete", {}),
        piece={"finish_reason": "tool_calls", "provider": "openai"},
    )
    mirror.tool(f"{trace_id}-tool-3", "call_c", "ResearchComplete")
    mirror.tool(f"{trace_id}-tool-4", "lone", "fetch", "Page.", piece={"inputs": {"url": "http://a"}})
    mirror.answers(
        f"{trace_id}-llm-3",
        "This is new.",
        call_id="run-msg-3",
        piece={"finish_reason": "stop", "provider": "openai", "failed": True},
    )
    return mirror
