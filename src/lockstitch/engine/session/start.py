"""Start a run: its input, prompt texts, history window, and first commit.

The history window counts completed turns. One turn is one message of the user. If the window is limited, or the agent
is a team, the context omits turns that failed or were cancelled. Turns with calls in doubt stay: a model that does not
see such a call could make it again. The state of the run and its `run_started` entry name the omitted stitches by
position, so their content is not written again.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from itertools import pairwise
from typing import Any, Final
from uuid import UUID

from lockstitch.engine.config import CALL_DEPS, AgentDefinition
from lockstitch.engine.decision.in_doubt import shown
from lockstitch.engine.decision.snapshot import unsettled
from lockstitch.engine.session.run_context import RunContext
from lockstitch.engine.session.run_session import RunSession
from lockstitch.errors import Refused
from lockstitch.model import (
    TERMINAL_STATUSES,
    Delivery,
    Entry,
    Json,
    Message,
    Record,
    Run,
    Stitch,
    Thread,
    codec,
    new_id,
    text_of,
)
from lockstitch.model.delivery import identity_of_message, message_sender, run_options
from lockstitch.model.message import user
from lockstitch.store import Store, Where
from lockstitch.store.replays import REPLAYED_RUN


async def history_window(
    store: Store,
    definition: AgentDefinition,
    head: Thread,
    first_position: int,
    input_position: int | None,
    retry_of: Run | None,
    waiting_inputs: Collection[int] = (),
) -> Json:
    """Return the part of the thread's context that a run starting at `first_position` sees, as `visible_stitches` reads
    it.

    `waiting_inputs` are positions of messages that arrived while a turn was open and no worker held the thread. They
    stay visible, regardless of the result of that turn.
    """
    own = min(first_position, input_position or first_position)
    if definition.history == "all" and definition.team is None:
        return {}
    if definition.history == 0:
        return {"context_from": own}
    first = 0
    runs = await _turns(store, head, Where("status", "in", ["failed", "cancelled"]))
    if definition.history != "all":
        remaining = await _turns(store, head, Where("status", "=", "completed"), limit=int(definition.history))
        # Before the first completed turn, no model has seen the calls in doubt.
        remaining = remaining or [run for run in runs if shown(run)]
        first = min((min(run.first_position, run.input_position or first_position) for run in remaining), default=own)
        if "forked_from" in head.state and len(remaining) < int(definition.history):
            # The context that a fork inherited is one stitch. It stays visible until the window is full.
            first = 1
    failed = [run for run in runs if run.first_position >= first and not shown(run)]
    if retry_of is not None:
        # A retry continues with the entries of the run that it retries.
        failed = [run for run in failed if run.input_position != retry_of.input_position]
    value: Json = {"context_from": first} if first else {}
    if failed:
        all_ = await _turns(store, head, Where("status", "in", sorted(TERMINAL_STATUSES)))
        left_out = {run.id for run in failed}
        needed = {run.input_position for run in all_ if run.id not in left_out} | {input_position}
        needed |= set(waiting_inputs).difference(run.input_position for run in failed if run.input_position is not None)
        hidden = _hidden(
            sorted(all_, key=_sequence), left_out, needed, max(first, head.context_from + 1), first_position
        )
        if hidden:
            value["without"] = hidden
    return value


def _hidden(
    turns: Sequence[Run], left_out: Collection[Any], needed: Collection[int | None], first: int, first_position: int
) -> list[list[int]]:
    """Return the ranges of positions of omitted turns, without positions that other turns need."""
    hidden: set[int] = set()
    ends = [*(run.first_position for run in turns), first_position]
    for run, (start, end) in zip(turns, pairwise(ends), strict=True):
        if run.id in left_out:
            hidden |= {run.input_position or start, *range(start, end)}
    ranges: list[list[int]] = []
    for position in sorted(number for number in hidden if number >= first and number not in needed):
        if ranges and ranges[-1][1] == position - 1:
            ranges[-1][1] = position
        else:
            ranges.append([position, position])
    return ranges


async def _turns(store: Store, head: Thread, status: Where, limit: int | None = None) -> list[Run]:
    top_level = Where("parent_run_id", "is null")
    return await store.find_runs(head.id, top_level, status, order=("-sequence",), limit=limit)


def _sequence(run: Run) -> int:
    return run.sequence


_SETTINGS: Final = (
    *("max_steps", "thinking_tokens", "max_tokens", "server_tools", "beta_headers", "api_kwargs", "formatter"),
    *("stream_meta_history_and_tool_results", "max_retries", "base_delay", "history", "on_busy", "log"),
)
"""Fields of the definition that the settings of a thread contain, if they differ from the default."""

_MEMBERS: Final = "members"
"""Key of the thread's settings for the hashes of its members' prompt texts."""

_CONTEXT_FIELDS: Final = ("context_from", "without", "injected")
"""Fields that describe the context window, both in the state of a run and in its `run_started` entry."""


@dataclass(frozen=True)
class RunInput:
    """The cause of a run: a new message, a message in the log or in the inbox, or an earlier run (`retry_of`)."""

    message: Message
    retry_of: Run | None = None
    stitch: Stitch | None = None
    delivery: Delivery | None = None
    extras: Json = field(default_factory=dict[str, Any])
    metadata: Json = field(default_factory=dict[str, Any])
    tags: Sequence[str] = ()
    first: bool = False
    """True if the run must be the first of its thread. It is checked under the claim, so of two callers only one
    starts."""
    replays: UUID | None = None
    """The recorded run that a run of a replay runs again."""
    message_id: str | None = None
    """The id that the caller gave the message, unique in the thread."""
    arrived: UUID = field(default_factory=new_id)
    """An id that says when the caller passed the input. Deliveries with a lower id are older and are answered first."""


def as_message(prompt: str | Sequence[Json] | Message) -> Message:
    """Return a prompt as a user message. A prompt is a text, content blocks, or a message."""
    if isinstance(prompt, dict):
        return prompt
    return user(prompt if isinstance(prompt, str) else list(prompt))


def queued_input(entry: Entry, **where: Any) -> RunInput:
    """Return the run input of a message that is in the inbox or in the log.

    `where` is its `delivery` or its `stitch`. The run options come from the entry (`message_entry`).
    """
    return RunInput(entry.message or user(""), **where, **run_options(entry))


async def next_input(session: RunSession) -> RunInput | None:
    """Return the next cause of a run: the oldest unanswered message of the thread, or its goal."""
    head = session.head
    unanswered = [stitch for stitch in session.stitches if stitch.type == "input" and stitch.run_id is None]
    last = await session.store.execution.last_run(head)
    after = max(last.first_position, last.input_position or 0) if last is not None else 0
    for stitch in unanswered:
        if stitch.position > after:
            return queued_input(stitch, stitch=stitch)
    # The first run of a goal starts with the goal. Messages to it enter that run.
    if head.kind == "chat" or (head.goal is None and last is None):
        return await waiting_message(session)
    if head.goal is None:
        return None
    if last is None:
        return RunInput(user(_assignment(head.goal, head.tasks)))
    # The thread was reopened, and the process that reopened it did not start the retry.
    return RunInput(user(""), retry_of=last) if last.status in ("failed", "cancelled") else None


def _assignment(goal: str, tasks: Sequence[Json]) -> str:
    """Return the text with which the first run of a goal starts: the goal, and the todo list if it is not empty."""
    lines = [f"- {task.get('description', '')} ({task.get('status', 'pending')})" for task in tasks]
    return "\n".join([goal, "", "Tasks:", *lines]) if lines else goal


async def waiting_message(session: RunSession, before: UUID | None = None) -> RunInput | None:
    """Return the oldest message in the inbox of a held thread, or None. With `before`, only an older delivery counts.

    The other deliveries stay in the inbox. The run that starts reads them before it ends.
    """
    if not session.head.delivered:
        return None
    deliveries = await session.read_inbox()
    session.thread_session.inbox_dirty = bool(deliveries)
    for delivery in deliveries:
        entry = delivery.as_entry()
        if entry.type == "input" and (before is None or delivery.id < before):
            session.thread_session.inbox_dirty = len(deliveries) > 1
            return queued_input(entry, delivery=delivery)
    return None


async def start_run(context: RunContext, run_input: RunInput) -> None:
    """Start a run and commit its input. The model is called afterwards."""
    session, config = context.session, context.config
    store, head, definition = session.store, session.head, config.definition
    texts = _texts(context.system, definition)
    settings = _settings(definition, texts)
    if head.settings.get(_MEMBERS):
        settings[_MEMBERS] = head.settings[_MEMBERS]
    digests = list(settings["texts"].values()) if head.settings.get("texts") != settings["texts"] else []
    if digests:
        await store.execution.put_texts(dict(texts.values()), trusted=True)
    state: Json = {}
    if head.state.get("container_id"):
        state["container_id"] = head.state["container_id"]
    if run_input.retry_of is not None and (doubts := unsettled(run_input.retry_of)):
        state["unsettled"] = doubts
    if config.deps_source == "call":
        state[CALL_DEPS] = True
    if run_input.replays is not None:
        state[REPLAYED_RUN] = str(run_input.replays)
    input_position = _input_position(run_input, head.position)
    waiting_inputs = [
        stitch.position for stitch in session.stitches if stitch.type == "input" and stitch.run_id is None
    ]
    window = await history_window(
        store, definition, head, head.position + 1, input_position, run_input.retry_of, waiting_inputs
    )
    run = store.new_run(
        head,
        id=None if run_input.delivery is None else run_input.delivery.id,
        **_identity(context),
        state={**state, **window},
        input_position=input_position,
        extras=run_input.extras,
        metadata={**_schedule_label(head), **run_input.metadata},
        tags=run_input.tags,
    )
    started = _started(context, run, texts, window)
    identity = identity_of_message(run_input.message, run_input.message_id)
    value = Entry(type="input", run_id=run.id, step_number=0, message=run_input.message, data=identity)
    entries = [started] if run_input.stitch or run_input.delivery or run_input.retry_of else [started, value]
    fields: dict[str, Any] = {} if settings == head.settings else {"settings": settings}
    if (head.agent, head.version) != (definition.name, config.version):
        fields |= {"agent": definition.name, "version": config.version}
    if head.waiting_for:
        fields["waiting_for"] = []
    session.start(run, entries, from_delivery=run_input.delivery is not None, **fields)
    # The event is sent after the commit, and contains the context before the input.
    before = list(session.messages) if definition.stream_meta_history_and_tool_results else []
    about: Json = {"agent": definition.name, "model": config.model, "user_message": text_of(run_input.message)}
    context.emit("started", {**about, "messages": before})
    selected = []
    if run_input.delivery is not None:
        entry = run_input.delivery.as_entry().changed(run_id=run.id, step_number=0)
        selected = [run_input.delivery.changed(entry=entry.as_json())]
    records = _accepted(session, run, run_input)
    try:
        await session.commit(consumed=selected, blob_refs=digests, records=records)
    except Refused:
        if not digests:
            raise
        # Another process may have deleted the texts with the last thread that referred to them.
        await store.execution.put_texts(dict(texts.values()))
        await session.commit(consumed=selected, blob_refs=digests, records=records)


def _schedule_label(head: Thread) -> Json:
    """Return the metadata by which lists find the threads of a schedule."""
    schedule = head.state.get("schedule")
    return {"schedule": schedule["name"]} if isinstance(schedule, dict) and "name" in schedule else {}


def _accepted(session: RunSession, run: Run, run_input: RunInput) -> list[Record]:
    """Return the delivery of a message that starts a run without the inbox, so that the store recognises its id.

    The commit raises `Conflict` if the thread has accepted a message with this id.
    """
    if run_input.message_id is None or run_input.delivery is not None:
        return []
    sender, now = message_sender(run_input.message_id), session.clock.now()
    return [
        Delivery(
            id=run.id,
            thread_id=session.head.id,
            sender=sender,
            kind="input",
            position=run.input_position,
            at=now,
        )
    ]


async def start_nested_run(
    context: RunContext, parent: Run, run_id: UUID, state: Json, log: Sequence[Stitch], task: str | None = None
) -> None:
    """Buffer the start of a nested run: the run of a member with its task, or a further run of the leader without
    input.

    `log` contains the first stitches of its context. The caller commits before the model is called.
    """
    session = context.session
    store, config = session.store, context.config
    texts = _texts(context.system, config.definition)
    digests = {name: digest for name, (digest, _) in texts.items()}
    known: Json = {**(session.head.settings.get(_MEMBERS) or {})}
    new = digests not in (session.head.settings.get("texts"), known.get(config.definition.name))
    if new:
        await store.execution.put_texts(dict(texts.values()))
    # No await follows, so no other task can take the next position.
    position = session.thread_session.next_position
    values = {name: state[name] for name in _CONTEXT_FIELDS if name in state}
    run = store.new_run(
        session.head,
        **_identity(context),
        id=run_id,
        parent_run_id=parent.id,
        state=state,
        input_position=parent.input_position if task is None else position + 1,
        tags=parent.tags,
    ).changed(first_position=position)
    started = _started(context, run, texts, values)
    entry = Entry(type="input", run_id=run.id, lane=run.lane, step_number=0, message=user(task or ""))
    session.start_with(run, log, [started] if task is None else [started, entry])
    if new:
        latest: Json = session.head.settings
        members: Json = {**(latest.get(_MEMBERS) or {}), config.definition.name: digests}
        session.record(settings={**latest, _MEMBERS: members})
        session.thread_session.blob_refs |= set(digests.values())
    if task is not None:
        context.emit("member_started", {"agent": config.definition.name, "model": config.model, "task": task})


def _identity(context: RunContext) -> dict[str, Any]:
    """Return the fields of a run that name its agent and its model."""
    config = context.config
    return {
        "agent": config.definition.name,
        "version": config.version,
        "role": "team" if config.definition.team is not None else "agent",
        "model": config.model,
        "provider": config.provider.name,
    }


def _started(context: RunContext, run: Run, texts: dict[str, tuple[str, str]], value: Json) -> Entry:
    """Return the `run_started` entry. It stores the part that all requests of the run have in common."""
    definition = context.config.definition
    context.parameters = context.first_request(run.state.get("container_id")).parameters
    common: Json = {**{name: digest for name, (digest, _) in texts.items()}, "parameters": context.parameters, **value}
    data: Json = {
        "queue_present": context.listener is not None,
        "formatter": definition.formatter,
        "log": definition.log,
        "request": common,
    }
    return Entry(type="run_started", run_id=run.id, lane=run.lane, step_number=0, data=data)


def _input_position(run_input: RunInput, position: int) -> int | None:
    """Return the position of the input of a run that starts after `position`."""
    if run_input.stitch is not None:
        return run_input.stitch.position
    if run_input.retry_of is not None:
        return run_input.retry_of.input_position
    # A delivery comes first in its commit. A new message comes after run_started.
    return position + (1 if run_input.delivery is not None else 2)


async def restore_request_settings(context: RunContext) -> None:
    """Read the instructions and parameters of an open run from its `run_started` entry."""
    session = context.session
    run = session.open_run
    stitches = await session.store.stitches(session.head, run.first_position, run.first_position + 1)
    started = next((stitch for stitch in stitches if stitch.type == "run_started" and stitch.run_id == run.id), None)
    common: Json = (started.data.get("request") or {}) if started is not None else {}
    context.parameters = common.get("parameters") or {}
    context.system = await session.store.execution.text(common["system"]) if common.get("system") else None


def _texts(system: str | None, definition: AgentDefinition) -> dict[str, tuple[str, str]]:
    """Return the prompt texts of a run with their hashes."""
    result: dict[str, str] = {}
    if system:
        result["system"] = system
    if definition.tools:
        result["tools"] = codec.dumps(definition.tool_schemas).decode()
    return {name: (sha256(text.encode()).hexdigest(), text) for name, text in result.items()}


def _settings(definition: AgentDefinition, texts: dict[str, tuple[str, str]]) -> Json:
    """Return the settings that a thread stores for its latest run: fields that are not default, and hashes of its
    texts."""
    plain = definition.as_json()
    fields = AgentDefinition.model_fields
    chosen = {name: plain[name] for name in _SETTINGS if plain[name] != _default(fields[name].get_default())}
    if definition.compactor.type != "none":
        chosen["compactor_type"] = definition.compactor.type
    if definition.memory.type != "none":
        chosen["memory_store_type"] = definition.memory.type
    return {"model": definition.model, **chosen, "texts": {name: digest for name, (digest, _) in texts.items()}}


def _default(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
