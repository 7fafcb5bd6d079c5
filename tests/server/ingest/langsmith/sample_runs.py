"""Runs that the tests send to a server."""

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

from langsmith import Client

START = datetime.now(UTC).replace(microsecond=0) - timedelta(hours=1)
"""Start of the first trace. The API v2 reads the traces of the last day by default."""


def order_of(at: datetime, run_id: UUID, above: str = "") -> str:
    own = f"{at:%Y%m%dT%H%M%S%f}Z{run_id}"
    return f"{above}.{own}" if above else own


class Trace:
    """The ids of a trace that `send` sent."""

    def __init__(self) -> None:
        self.root, self.model, self.tool = uuid4(), uuid4(), uuid4()


def send(
    client: Client,
    project: str,
    *,
    minute: int = 0,
    question: str = "Is there tea?",
    error: str | None = None,
    thread: str | None = None,
    tags: tuple[str, ...] = (),
    model: str = "gpt-4o-mini",
    **fields: Any,
) -> Trace:
    """Send a trace with a root, a model call and a tool call. The root takes 4 seconds, the model call 2."""
    trace = Trace()
    at = START + timedelta(minutes=minute)
    metadata = {"shop": "corner", **({"thread_id": thread} if thread else {})}
    root_order = order_of(at, trace.root)
    ids = {"trace_id": trace.root, "project_name": project}
    client.create_run(
        "answer",
        {"question": question},
        "chain",
        id=trace.root,
        start_time=at,
        end_time=at + timedelta(seconds=4),
        outputs={"answer": "Yes."},
        error=error,
        tags=list(tags),
        extra={"metadata": metadata},
        dotted_order=root_order,
        **ids,
        **fields,
    )
    began = at + timedelta(seconds=1)
    usage = {"input_tokens": 1000, "output_tokens": 100, "total_tokens": 1100}
    client.create_run(
        "model",
        {"messages": [{"role": "user", "content": question}]},
        "llm",
        id=trace.model,
        parent_run_id=trace.root,
        start_time=began,
        end_time=began + timedelta(seconds=2),
        outputs={"choices": [{"message": {"role": "assistant", "content": "Yes."}}], "usage_metadata": usage},
        events=[{"name": "new_token", "time": (began + timedelta(milliseconds=500)).isoformat()}],
        extra={"metadata": {"ls_provider": "openai", "ls_model_name": model, **metadata}},
        dotted_order=order_of(began, trace.model, root_order),
        **ids,
    )
    began = at + timedelta(seconds=3)
    client.create_run(
        "look",
        {"aisle": 3},
        "tool",
        id=trace.tool,
        parent_run_id=trace.root,
        start_time=began,
        end_time=began + timedelta(seconds=1),
        outputs={"output": "tea"},
        dotted_order=order_of(began, trace.tool, root_order),
        **ids,
    )
    client.flush()
    return trace
