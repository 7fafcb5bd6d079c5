"""Starting a run: input, prompt texts, history window, first commit.

What counts are completed turns, one for each thing the user said. A run that is given only so many of them, and every
run of a team, is not given turns that failed or were cancelled, except turns with calls in doubt: a model that does not
see such a call could make it again. What is left out is named by position, in the run's state and in its run_started,
so nothing of it is ever written again.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from itertools import pairwise
from typing import Any, Final
from uuid import UUID

from lockstitch.engine.config import AgentDefinition
from lockstitch.engine.decision.in_doubt import shown
from lockstitch.engine.decision.snapshot import unsettled
from lockstitch.engine.session.run_context import RunContext
from lockstitch.engine.session.run_session import RunSession
from lockstitch.model import (
    TERMINAL_STATUSES,
    Delivery,
    Entry,
    Json,
    Message,
    Run,
    Stitch,
    Thread,
    codec,
    new_id,
    text_of,
)
from lockstitch.model.delivery import run_options
from lockstitch.model.message import user
from lockstitch.store import Store, Where


async def history_window(
    store: Store,
    definition: AgentDefinition,
    head: Thread,
    begins: int,
    input_position: int | None,
    again: Run | None,
    waited: Collection[int] = (),
) -> Json:
    """What a run that begins at `begins` is given of its thread's context, as `records.fold.seen` reads it.

    `waited` are messages that came while a turn was open and nobody held the thread: what came of that turn does not
    concern them.
    """
    own = min(begins, input_position or begins)
    if definition.history == "all" and definition.team is None:
        return {}
    if definition.history == 0:
        return {"context_from": own}
    first = 0
    runs = await _turns(store, head, Where("status", "in", ["failed", "cancelled"]))
    if definition.history != "all":
        remaining = await _turns(store, head, Where("status", "=", "completed"), limit=int(definition.history))
        # Before the first completed turn, no model has been told about calls in doubt.
        remaining = remaining or [run for run in runs if shown(run)]
        first = min((min(run.first_position, run.input_position or begins) for run in remaining), default=own)
    failed = [run for run in runs if run.first_position >= first and not shown(run)]
    if again is not None:
        # What is tried again goes on where it was.
        failed = [run for run in failed if run.input_position != again.input_position]
    value: Json = {"context_from": first} if first else {}
    if failed:
        all_ = await _turns(store, head, Where("status", "in", sorted(TERMINAL_STATUSES)))
        left_out = {run.id for run in failed}
        needed = {run.input_position for run in all_ if run.id not in left_out} | {input_position}
        needed |= set(waited).difference(run.input_position for run in failed if run.input_position is not None)
        hidden = _hidden(sorted(all_, key=_sequence), left_out, needed, max(first, head.context_from + 1), begins)
        if hidden:
            value["without"] = hidden
    return value


def _hidden(
    turns: Sequence[Run], left_out: Collection[Any], needed: Collection[int | None], first: int, begins: int
) -> list[list[int]]:
    """The positions of turns that are left out, but for what others were caused by."""
    hidden: set[int] = set()
    ends = [*(run.first_position for run in turns), begins]
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
"""What a thread's settings tell of its definition, under the names that the documents have for it."""

_MEMBERS: Final = "members"
"""Where a thread's settings keep the hashes of its members' texts."""

_GIVEN: Final = ("context_from", "without", "injected")
"""What a run's state and its run_started both say of what it is given."""


@dataclass(frozen=True)
class RunInput:
    """The cause of a run: a new message, one in the log or in the inbox, or an earlier run (`again`)."""

    message: Message
    retry_of: Run | None = None
    stitch: Stitch | None = None
    delivery: Delivery | None = None
    extras: Json = field(default_factory=dict[str, Any])
    metadata: Json = field(default_factory=dict[str, Any])
    tags: Sequence[str] = ()
    first: bool = False
    """Whether it may only be the thread's first. Looked at under the claim: of two who give it, one alone begins."""
    arrived: UUID = field(default_factory=new_id)
    """Says when the caller gave it. Deliveries with a lower id were accepted before, and are answered before."""


def as_message(prompt: str | Sequence[Json] | Message) -> Message:
    """A prompt as the user's message: a text, content blocks, or the message itself."""
    if isinstance(prompt, dict):
        return prompt
    return user(prompt if isinstance(prompt, str) else list(prompt))


def queued_input(entry: Entry, **where: Any) -> RunInput:
    """Return the input that a message of the inbox or of the log is for its run.

    `where` is its `delivery` or its `stitch`. The run options come from the entry (`message_entry`).
    """
    return RunInput(entry.message or user(""), **where, **run_options(entry))


async def next_input(context: RunContext) -> RunInput | None:
    """Return the next cause of a run: the oldest unanswered message of the thread, or its goal."""
    session = context.journal
    head = session.head
    unanswered = [stitch for stitch in session.stitches if stitch.type == "input" and stitch.run_id is None]
    last = await session.store.execution.last_run(head)
    after = max(last.first_position, last.input_position or 0) if last is not None else 0
    for stitch in unanswered:
        if stitch.position > after:
            return queued_input(stitch, stitch=stitch)
    # A goal is begun with its goal. Messages for it enter the run that works on the goal.
    if head.kind == "chat" or (head.goal is None and last is None):
        return await waiting_message(session)
    if head.goal is None:
        return None
    if last is None:
        return RunInput(user(head.goal))
    # It was reopened, by somebody who did not come as far as its next run.
    return RunInput(user(""), retry_of=last) if last.status in ("failed", "cancelled") else None


async def waiting_message(session: RunSession, before: UUID | None = None) -> RunInput | None:
    """The oldest message in the inbox of a held thread, if there is one; only one accepted `before`, if that is said.

    The other deliveries stay in the inbox, and the run that begins looks at them before it ends.
    """
    if not session.head.delivered:
        return None
    deliveries = await session.letters_waiting()
    session.ledger.inbox_dirty = bool(deliveries)
    for delivery in deliveries:
        entry = delivery.as_entry()
        if entry.type == "input" and (before is None or delivery.id < before):
            session.ledger.inbox_dirty = len(deliveries) > 1
            return queued_input(entry, delivery=delivery)
    return None


async def start_run(context: RunContext, run_input: RunInput) -> None:
    """Commit the input, before the model is called."""
    session, config = context.journal, context.setup
    store, head, definition = session.store, session.head, config.definition
    texts = _texts(context.system, definition)
    settings = _settings(definition, texts)
    if head.settings.get(_MEMBERS):
        settings[_MEMBERS] = head.settings[_MEMBERS]
    digests = list(settings["texts"].values()) if head.settings.get("texts") != settings["texts"] else []
    if digests:
        await store.execution.put_texts(dict(texts.values()))
    state: Json = {}
    if head.state.get("container_id"):
        state["container_id"] = head.state["container_id"]
    if run_input.retry_of is not None and (doubts := unsettled(run_input.retry_of)):
        state["unsettled"] = doubts
    said_at = _input_position(run_input, head.position)
    waited = [stitch.position for stitch in session.stitches if stitch.type == "input" and stitch.run_id is None]
    back = await history_window(store, definition, head, head.position + 1, said_at, run_input.retry_of, waited)
    named = {"id": run_input.delivery.id} if run_input.delivery is not None else {}
    run = store.new_run(
        head,
        **named,
        **_who(context),
        state={**state, **back},
        input_position=said_at,
        extras=run_input.extras,
        metadata=run_input.metadata,
        tags=list(run_input.tags),
    )
    started = _started(context, run, texts, back)
    value = Entry(type="input", run_id=run.id, step_number=0, message=run_input.message)
    entries = [started] if run_input.stitch or run_input.delivery or run_input.retry_of else [started, value]
    fields: dict[str, Any] = {} if settings == head.settings else {"settings": settings}
    if (head.agent, head.version) != (definition.name, config.version):
        fields |= {"agent": definition.name, "version": config.version}
    if head.waiting_for:
        fields["waiting_for"] = []
    session.begin(run, entries, by_letter=run_input.delivery is not None, **fields)
    # The event comes with the commit, and tells of the context as it was before.
    before = list(session.messages) if definition.stream_meta_history_and_tool_results else []
    told: Json = {"agent": definition.name, "model": config.model, "user_message": text_of(run_input.message)}
    context.emit("started", {**told, "messages": before})
    selected = []
    if run_input.delivery is not None:
        entry = run_input.delivery.as_entry().changed(run_id=run.id, step_number=0)
        selected = [run_input.delivery.changed(entry=entry.as_json())]
    await session.commit(consumed=selected, blob_refs=digests)


async def start_nested_run(
    context: RunContext, parent: Run, run_id: UUID, state: Json, log: Sequence[Stitch], task: str | None = None
) -> None:
    """Note the beginning of a run within another: a member's with its task, or a further one of the leader, which has
    no input but what is there. `log` is what its context begins with. To be committed before the model is called."""
    session = context.journal
    store, config = session.store, context.setup
    texts = _texts(context.system, config.definition)
    digests = {name: digest for name, (digest, _) in texts.items()}
    known: Json = {**(session.head.settings.get(_MEMBERS) or {})}
    new = digests not in (session.head.settings.get("texts"), known.get(config.definition.name))
    if new:
        await store.execution.put_texts(dict(texts.values()))
    # Nothing is waited for from here on, so that its place is the next one.
    position = session.ledger.next_position
    values = {name: state[name] for name in _GIVEN if name in state}
    run = store.new_run(
        session.head,
        **_who(context),
        id=run_id,
        parent_run_id=parent.id,
        state=state,
        first_position=position,
        input_position=parent.input_position if task is None else position + 1,
        tags=parent.tags,
    )
    started = _started(context, run, texts, values)
    entry = Entry(type="input", run_id=run.id, lane=run.lane, step_number=0, message=user(task or ""))
    session.begin_with(run, log, [started] if task is None else [started, entry])
    if new:
        latest: Json = session.head.settings
        members: Json = {**(latest.get(_MEMBERS) or {}), config.definition.name: digests}
        session.record(settings={**latest, _MEMBERS: members})
        session.ledger.blob_refs |= set(digests.values())
    if task is not None:
        context.emit("member_started", {"agent": config.definition.name, "model": config.model, "task": task})


def _who(context: RunContext) -> dict[str, Any]:
    """Whose run it is."""
    config = context.setup
    return {
        "agent": config.definition.name,
        "version": config.version,
        "role": "team" if config.definition.team is not None else "agent",
        "model": config.model,
        "provider": config.provider.name,
    }


def _started(context: RunContext, run: Run, texts: dict[str, tuple[str, str]], value: Json) -> Entry:
    """The run_started, which keeps what all requests of a run have in common."""
    definition = context.setup.definition
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
    """Where the input of a run that begins after `position` stands, or will stand."""
    if run_input.stitch is not None:
        return run_input.stitch.position
    if run_input.retry_of is not None:
        return run_input.retry_of.input_position
    # A letter comes before everything else of its commit, a message after run_started.
    return position + (1 if run_input.delivery is not None else 2)


async def restore_request_settings(context: RunContext) -> None:
    """What an open run was begun with: its instructions and parameters, as its run_started keeps them."""
    session = context.journal
    run = session.open_run
    stitches = await session.store.stitches(session.head, run.first_position, run.first_position + 1)
    started = next((stitch for stitch in stitches if stitch.type == "run_started" and stitch.run_id == run.id), None)
    common: Json = (started.data.get("request") or {}) if started is not None else {}
    context.parameters = common.get("parameters") or {}
    context.system = await session.store.execution.text(common["system"]) if common.get("system") else None


def _texts(system: str | None, definition: AgentDefinition) -> dict[str, tuple[str, str]]:
    """The texts of a run's requests with their hashes."""
    result: dict[str, str] = {}
    if system:
        result["system"] = system
    if definition.tools:
        result["tools"] = codec.dumps(definition.tool_schemas).decode()
    return {name: (sha256(text.encode()).hexdigest(), text) for name, text in result.items()}


def _settings(definition: AgentDefinition, texts: dict[str, tuple[str, str]]) -> Json:
    """What a thread keeps of the definition of its latest run: what differs from the defaults, texts by their hash."""
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
