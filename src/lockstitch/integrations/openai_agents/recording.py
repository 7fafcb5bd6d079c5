"""`plan_items`: the update of a thread that records items, with their runs.

The SDK does not tell a session when a run starts or ends. A run starts with a message of the user and ends with a
response that calls no tool. If the next message comes earlier, the run was interrupted.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, NamedTuple, cast

from lockstitch.engine.ports.provider import Usage
from lockstitch.engine.usage import price
from lockstitch.integrations.openai_agents.items import (
    ABOUT,
    OTHER,
    Kind,
    about,
    input_message,
    kind_of,
    response_message,
    result_block,
)
from lockstitch.integrations.openai_agents.records import SavedState
from lockstitch.model import Entry, Json, Record, Run, Stitch, Thread, tool_uses
from lockstitch.store import Fields, Store, ThreadUpdate

OWN_RUN: Final[Json] = {"framework": "openai-agents"}
"""`extras` of the runs that sessions start."""

_PROVIDER: Final = "openai"


class Call(NamedTuple):
    """A tool call without a result: the position of its response, its number there, and the tool."""

    position: int
    number: int
    name: str


class UsageMark(NamedTuple):
    """The part of the usage of a run of the SDK that is recorded."""

    requests: int = 0
    input_tokens: int = 0
    output_tokens: int = 0


NOTHING: Final = UsageMark()


@dataclass(frozen=True, slots=True)
class OpenRun:
    """A run that has not ended, and what its next items refer to."""

    run: Run
    calls: dict[str, Call] = field(default_factory=dict[str, Call])
    mark: UsageMark = NOTHING
    last: str = ""
    """Type of the last stitch of the run that has a message and was not removed. Empty: it has none."""

    def after(self, entry: Entry, position: int) -> "OpenRun":
        """Return the state after a stitch of the run."""
        if entry.type == "llm_call":
            blocks = tool_uses(entry.message)
            calls = {str(block["id"]): Call(position, place, block["name"]) for place, block in enumerate(blocks)}
            mark: Any = about(entry).get("usage")
            return replace(
                self, calls={**self.calls, **calls}, mark=UsageMark(*mark) if mark else self.mark, last="llm_call"
            )
        if entry.type == "tool_call":
            calls = {id: call for id, call in self.calls.items() if id != entry.call_id}
            return replace(self, calls=calls, last="tool_call")
        return replace(self, last="input") if entry.type == "input" else self

    @property
    def has_answer(self) -> bool:
        """True if the last stitch is a response, and no call waits for its result."""
        return self.last == "llm_call" and not self.calls


def open_run(run: Run, stitches: Iterable[Stitch]) -> OpenRun:
    """Return the state of an open run from its stitches."""
    state = OpenRun(run)
    for stitch in stitches:
        if stitch.run_id == run.id:
            state = state.after(stitch, stitch.position)
    return state


class Plan(NamedTuple):
    """An update and the open run after its commit."""

    update: ThreadUpdate
    open_run: OpenRun | None
    records: Sequence[Record] = ()


def plan_items(
    store: Store,
    update: ThreadUpdate,
    open_run: OpenRun | None,
    items: Sequence[Json],
    *,
    wrapper: Any = None,
    model: str | None = None,
) -> Plan:
    """Add items to the update of a thread. `wrapper` is the context of a run of the SDK, which counts its tokens."""
    recorder = _Recorder(store, update, open_run, wrapper, model)
    for kind, group in grouped(items):
        recorder.add(kind, group)
    recorder.finish()
    return Plan(update, recorder.open_run)


def plan_interruption(store: Store, update: ThreadUpdate, open_run: OpenRun | None) -> Plan:
    """End the open run in the update, because its items were removed."""
    recorder = _Recorder(store, update, open_run, None, None)
    if open_run is not None:
        recorder.end_run("cancelled", "interrupted")
    return Plan(update, None)


def plan_pause(
    store: Store, update: ThreadUpdate, open_run: OpenRun | None, state: Json, calls: Sequence[Json]
) -> Plan:
    """Add a pause to the update, and the record of the state of the run."""
    recorder = _Recorder(store, update, open_run, None, None)
    paused = recorder.pause(calls)
    position = update.head.position + len(update.entries)
    return Plan(update, paused, [SavedState.of(update.head.id, position, state)])


def grouped(items: Sequence[Json]) -> Iterator[tuple[Kind, list[Json]]]:
    """Yield the items of each entry. The items of a response are one group, with at most one message."""
    group: list[Json] = []
    for item in items:
        kind = kind_of(item)
        if group and (kind != "response" or (_is_message(item) and any(map(_is_message, group)))):
            yield "response", group
            group = []
        if kind == "response":
            group.append(item)
        else:
            yield kind, [item]
    if group:
        yield "response", group


def _is_message(item: Json) -> bool:
    return item.get("role") == "assistant"


class _Recorder:
    """Adds the entries of items to an update."""

    def __init__(
        self, store: Store, update: ThreadUpdate, open_run: OpenRun | None, wrapper: Any, model: str | None
    ) -> None:
        self._store = store
        self._update = update
        self._head: Thread = update.head
        self._wrapper = wrapper
        self._model = model
        self._response: int | None = None
        """Place of the last response in the update."""
        self._is_new = False
        """True if the open run starts with this update."""
        self.open_run = open_run

    def add(self, kind: Kind, items: list[Json]) -> None:
        item = items[0]
        if kind == "input":
            message, data = input_message(item)
            if item["role"] == "user":
                self._start_run_of_input()
            self._append(Entry(type="input", message=message, data=_data(data)))
        elif kind == "response":
            self._require_run()
            message, data = response_message(items)
            status = "tool_use" if tool_uses(message) else "end_turn"
            self._response = len(self._update.entries)
            name = _model_of(items) or self._model
            self._append(Entry(type="llm_call", name=name, message=message, status=status, data=_data(data)))
        else:
            state = self.open_run
            call_id: Any = item.get("call_id")
            call = (
                state.calls.get(call_id)
                if state is not None and kind == "result" and isinstance(call_id, str)
                else None
            )
            if call is None:
                self._append(Entry(type=OTHER, name=_name(item), data=_data({"items": items})))
                return
            block, data = result_block(item)
            self._append(
                Entry(
                    type="tool_call",
                    name=call.name,
                    call_id=call_id,
                    reply_to=call.position,
                    call_index=call.number,
                    status="ok",
                    message=block,
                    data=_data(data),
                )
            )

    def finish(self) -> None:
        """Add the tokens, and end the run if its last response is the answer."""
        if self._response is not None:
            self._add_usage(self._response)
        if self.open_run is not None and self._update.entries and self.open_run.has_answer:
            self.end_run("completed", "end_turn")

    def pause(self, calls: Sequence[Json]) -> OpenRun:
        """Add the entry of a pause."""
        self._require_run()
        assert self.open_run is not None
        self._append(Entry(type="run_paused", status="approval", data={"waiting_for": [*calls]}))
        return self.open_run

    def end_run(self, status: Literal["completed", "cancelled"], reason: str) -> None:
        """End the open run."""
        assert self.open_run is not None
        run, self.open_run = self.open_run.run, None
        fields: Fields = {"status": status, "stop_reason": reason, "completed_at": self._store.clock.now()}
        if status == "completed" and self._response is not None:
            fields["output_position"] = self._head.position + self._response + 1
        self._update.sum_runs = True
        self._update_run(run, fields)

    def _update_run(self, run: Run, fields: Fields) -> None:
        updates = self._update.run_updates
        if self._is_new:
            self._update.new_runs[-1] = run.changed(**fields)
        elif updates and updates[-1][0].id == run.id:
            updates[-1][1].update(fields)
        else:
            updates.append((run, fields))

    @property
    def _next_position(self) -> int:
        return self._head.position + len(self._update.entries) + 1

    def _start_run_of_input(self) -> None:
        state = self.open_run
        if state is not None and self._is_new and state.last == "input":
            # Several messages of the user are one input.
            return
        if state is not None and not state.last:
            # The input was removed, and this is the input again.
            self._update_run(state.run, {"input_position": self._next_position})
            return
        if state is not None:
            self.end_run(
                "completed" if state.has_answer else "cancelled", "end_turn" if state.has_answer else "interrupted"
            )
        self._start_run(self._next_position)

    def _require_run(self) -> None:
        if self.open_run is None:
            self._start_run(None)

    def _start_run(self, input_position: int | None) -> None:
        run = self._store.new_run(
            self._head,
            input_position=input_position,
            model=self._model,
            provider=_PROVIDER if self._model else None,
            extras=OWN_RUN,
        ).changed(first_position=self._next_position)
        self._update.new_runs.append(run)
        self._is_new = True
        self.open_run = OpenRun(run)

    def _append(self, entry: Entry) -> None:
        position, state = self._next_position, self.open_run
        self._update.entries.append(entry if state is None else entry.changed(run_id=state.run.id))
        if state is not None:
            self.open_run = state.after(entry, position)

    def _add_usage(self, place: int) -> None:
        """Set the tokens of the last response: those that the SDK has counted since the last recorded response."""
        state = self.open_run
        known = state.mark if state is not None else NOTHING
        usage, mark = new_usage(self._wrapper, known)
        if usage is None:
            return
        entry = self._update.entries[place]
        own: Json = {**about(entry), "usage": [*mark]}
        data: Json = {**entry.data, ABOUT: own}
        if entry.name is not None:
            cost = price(_PROVIDER, entry.name, usage, self._store.clock.now())
            data |= {"cost": cost["total_cost"]} if cost else {}
        self._update.entries[place] = entry.changed(data=data, **usage._asdict())
        if state is not None:
            self.open_run = replace(state, mark=mark)


def new_usage(wrapper: Any, known: UsageMark) -> tuple[Usage | None, UsageMark]:
    """Return the tokens of the requests that are not recorded yet, and the mark that includes them."""
    requests: list[Any] = list(getattr(getattr(wrapper, "usage", None), "request_usage_entries", None) or ())
    # A run of the SDK that continues the open run in another process counts from 0 again.
    earlier = requests[: known.requests] if _sum(requests[: known.requests]) == known else []
    new = requests[len(earlier) :]
    if not new:
        return None, known
    usage = Usage(
        sum(request.input_tokens for request in new),
        sum(request.output_tokens for request in new),
        sum(getattr(request.input_tokens_details, "cached_tokens", 0) or 0 for request in new),
        sum(getattr(request.input_tokens_details, "cache_write_tokens", 0) or 0 for request in new),
    )
    return usage, _sum(requests)


def _sum(requests: Sequence[Any]) -> UsageMark:
    return UsageMark(
        len(requests),
        sum(request.input_tokens for request in requests),
        sum(request.output_tokens for request in requests),
    )


def _data(own: Json) -> Json:
    return {ABOUT: own} if own else {}


def _model_of(items: Sequence[Json]) -> str | None:
    """Return the model that adapters of other providers note in their items."""
    for item in items:
        data: Any = item.get("provider_data")
        model = cast("Json", data).get("model") if isinstance(data, dict) else None
        if isinstance(model, str) and 0 < len(model) < 256 and model.isprintable():
            return model
    return None


def _name(item: Json) -> str | None:
    kind = item.get("type")
    return kind if isinstance(kind, str) and 0 < len(kind) < 256 and kind.isprintable() else None
