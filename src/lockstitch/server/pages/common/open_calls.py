"""`load_open_calls()`: calls that need a person, running calls and queued messages of a thread."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Final

from pydantic import ValidationError

from lockstitch.engine.config import AgentDefinition, ToolDefinition
from lockstitch.engine.decision.snapshot import Call, RunSnapshot, starts_recent
from lockstitch.errors import NotFound
from lockstitch.model import Delivery, Run, Stitch, Thread, text_of, tool_uses
from lockstitch.model.wait import FrontendToolWait, Wait, parse_waits, person_waits
from lockstitch.server.pages.common.forms import Field, fields_of
from lockstitch.store import Store, Where

_BACK: Final = 200
"""Maximum number of stitches to read back to find the last response."""

_EFFECTS: Final = {
    "once": "runs at most once",
    "keyed": "runs again with the same key if interrupted",
    "safe": "read-only",
}


@dataclass(frozen=True, slots=True)
class OpenCall:
    """A call that a person or the frontend answers."""

    id: str
    name: str
    input: Any
    description: str = ""
    effect: str = ""
    fields: list[Field] = field(default_factory=list[Field])
    question: str = ""
    options: list[str] = field(default_factory=list[str])
    key: str = ""
    earlier: bool = False
    """True if the run that is retried made the call, so that this run does not repeat it."""


@dataclass(frozen=True, slots=True)
class PersonRequest:
    """A request to a person: approval, outcome of a call, answer, or results of frontend tools."""

    kind: str
    since: datetime | None
    calls: list[OpenCall]

    @property
    def id(self) -> str:
        """The id of the element. It contains the key, because the next call can have the same call id."""
        return f"ask-{self.kind}-{self.calls[0].key}"


@dataclass(frozen=True, slots=True)
class OpenCalls:
    """The open calls and queued messages of a thread."""

    requests: list[PersonRequest]
    running: list[tuple[Call, datetime | None]]
    queued: list[str]
    """Messages that the next run will read."""
    model_since: datetime | None = None
    """The time of the last stitch, if the run waits for a model."""

    @property
    def mark(self) -> str:
        """A string that changes when the requests change."""
        return "|".join(ask.id for ask in self.requests)


async def load_open_calls(store: Store, head: Thread) -> OpenCalls:
    """Return the open calls and queued messages of a thread."""
    if head.kind == "trace" or (head.ended and not head.delivered):
        return OpenCalls([], [], [])
    run = await store.execution.open_run(head)
    queued = await _queued(store, head, run)
    if run is None:
        return OpenCalls([], [], queued)
    within = await store.execution.nested_runs(head, run) if run.role == "team" else []
    requests: list[PersonRequest] = []
    running: list[tuple[Call, datetime | None]] = []
    for other_run in (run, *(member for member in within if member.open)):
        person_requests, busy = await _of_run(store, head, other_run)
        requests += person_requests
        running += busy
    if head.status != "running":
        return OpenCalls(requests, [], queued)
    return OpenCalls(requests, running, queued, None if running or requests else head.active_at)


async def _of_run(
    store: Store, head: Thread, run: Run
) -> tuple[list[PersonRequest], list[tuple[Call, datetime | None]]]:
    """Return the requests of a run to a person, and its running calls."""
    snapshot = RunSnapshot(head, run, await _recent(store, head, run))
    definition = await _definition(store, head, run)
    calls = {call.key: await _with_input(store, head, call) for call in snapshot.calls if call.state != "answered"}
    waits = [wait for wait in _waits(head, snapshot) if wait.run_id in (None, run.id)]
    requests = _person_requests(waits, calls, definition)
    requested = {call.key for ask in requests for call in ask.calls}
    started = {stitch.call_index: stitch.at for stitch in snapshot.after_response if stitch.type == "tool_started"}
    requested_at = snapshot.response.at if snapshot.response is not None else None
    running = [
        (call, started.get(call.index, requested_at))
        for call in calls.values()
        if call.key not in requested and (call.state in ("running", "cut") or _runs_unrecorded(call, definition))
    ]
    return requests, running


def _runs_unrecorded(call: Call, definition: AgentDefinition | None) -> bool:
    """True if the call runs as soon as the model requests it. The start of a safe tool is not recorded."""
    tool = definition.tool(call.name) if definition is not None else None
    return tool is not None and tool.effect == "safe" and tool.side == "backend" and call.state in ("fresh", "allowed")


async def _with_input(store: Store, head: Thread, call: Call) -> Call:
    """Return the call with its input, which is in the response of the retried run if an earlier run made the call."""
    if not call.earlier:
        return call
    stitches = await store.stitches(head, call.response, call.response)
    blocks = tool_uses(stitches[0].message) if stitches else []
    return replace(call, input=blocks[call.index].get("input")) if call.index < len(blocks) else call


async def _recent(store: Store, head: Thread, run: Run) -> list[Stitch]:
    """Return the stitches of the open run, starting with its last response."""
    first = max(run.first_position, head.position - _BACK)
    stitches = [
        stitch
        for stitch in await store.stitches(head, first)
        if stitch.run_id == run.id or stitch.type == "thread_result"
    ]
    last = max((place for place, stitch in enumerate(stitches) if starts_recent(stitch)), default=0)
    return stitches[last:]


async def _queued(store: Store, head: Thread, run: Run | None) -> list[str]:
    """Return the texts of the messages in the inbox."""
    where = (Where("thread_id", "=", head.id), Where("position", "is null"))
    rows = await store.table(Delivery).find(*where, order=("id",), limit=20) if head.delivered else []
    entries = [delivery.as_entry() for delivery in rows]
    return [text_of(entry.message) for entry in entries if entry.type == "input"]


async def _definition(store: Store, head: Thread, run: Run) -> AgentDefinition | None:
    if run.agent is None or run.version is None:
        return None
    try:
        stored = await store.agents.version(head.project, run.agent, run.version)
        return AgentDefinition.model_validate(stored.definition)
    except (NotFound, ValidationError):
        return None


def _waits(head: Thread, snapshot: RunSnapshot) -> list[Wait]:
    """Return the waits that a person can end. While the thread is held, the last pause has them."""
    pause = snapshot.last("run_paused")
    if head.status == "waiting" or pause is None:
        return person_waits(head.waits)
    return person_waits(parse_waits(pause.data["waiting_for"]))


def _person_requests(
    waits: Sequence[Wait], calls: dict[str, Call], definition: AgentDefinition | None
) -> list[PersonRequest]:
    open_calls = [(wait, call) for wait in waits if (call := calls.get(wait.key or "")) and call.state != "allowed"]
    requests = [
        PersonRequest(wait.kind, wait.since, [_open_call(call, definition)])
        for wait, call in open_calls
        if not isinstance(wait, FrontendToolWait)
    ]
    browser = [(wait, call) for wait, call in open_calls if isinstance(wait, FrontendToolWait)]
    if browser:
        # Their results are submitted together, because the model gets them together.
        requested = [_open_call(call, definition) for _, call in browser]
        requests.append(PersonRequest(FrontendToolWait.KIND, browser[0][0].since, requested))
    return requests


def _open_call(call: Call, definition: AgentDefinition | None) -> OpenCall:
    tool: ToolDefinition | None = definition.tool(call.name) if definition is not None else None
    value: Any = call.input
    options: Any = value.get("options") if isinstance(value, dict) else None  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    return OpenCall(
        id=call.id,
        name=call.name,
        input=value,
        description=tool.description if tool else "",
        effect=_EFFECTS[tool.effect] if tool and tool.side == "backend" else "",
        fields=fields_of(tool.input_schema, value) if tool and tool.side == "frontend" else [],
        question=call.question or "",
        options=[str(item) for item in _list(options)][:20],
        key=call.key,
        earlier=call.earlier,
    )


def _list(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list) else []  # pyright: ignore[reportUnknownVariableType]
