"""Beginning a run: its input, the texts its requests refer to, and its first commit."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, Final

from lockstitch.records import Entry, Json, Letter, Message, Run, Stitch, codec, text_of
from lockstitch.records.message import user
from lockstitch.runtime.definition import Definition
from lockstitch.runtime.stage import Stage
from lockstitch.store import Store

_SETTINGS: Final = (
    *("max_steps", "thinking_tokens", "max_tokens", "server_tools", "beta_headers", "api_kwargs", "formatter"),
    *("stream_meta_history_and_tool_results", "max_retries", "base_delay", "history", "on_busy", "log"),
)
"""What a thread's settings tell of its definition, under the names that the documents have for it."""


@dataclass(frozen=True)
class Input:
    """What causes a run: a message, one that lies in the log or in the inbox already, or an earlier run, `again`."""

    message: Message
    again: Run | None = None
    stitch: Stitch | None = None
    letter: Letter | None = None
    extras: Json = field(default_factory=dict[str, Any])
    metadata: Json = field(default_factory=dict[str, Any])
    tags: Sequence[str] = ()


def as_message(prompt: str | Sequence[Json] | Message) -> Message:
    """A prompt as the user's message: a text, content blocks, or the message itself."""
    if isinstance(prompt, dict):
        return prompt
    return user(prompt if isinstance(prompt, str) else list(prompt))


async def next_input(stage: Stage) -> Input | None:
    """What a thread without an open run should begin with: a message nobody has answered, or its goal."""
    journal = stage.journal
    unanswered = [one for one in journal.stitches if one.type == "input" and one.run_id is None]
    last = await journal.store.desk.last_run(journal.head)
    after = max(last.first_position, last.input_position or 0) if last is not None else 0
    for stitch in unanswered:
        if stitch.position > after:
            return Input(stitch.message or user(""), stitch=stitch)
    for letter in await journal.letters_waiting() if journal.head.delivered else ():
        entry = letter.opened()
        if entry.type == "input":
            return Input(entry.message or user(""), letter=letter)
    if journal.head.kind == "chat" or journal.head.goal is None:
        return None
    if last is None:
        return Input(user(journal.head.goal))
    # It was reopened, by somebody who did not come as far as its next run.
    return Input(user(""), again=last) if last.status in ("failed", "cancelled") else None


async def begin(stage: Stage, given: Input) -> None:
    """Commit the input, before the model is called."""
    journal, setup = stage.journal, stage.setup
    store, head, definition = journal.store, journal.head, setup.definition
    texts = _texts(stage.system, definition)
    settings = _settings(definition, texts)
    digests = list(settings["texts"].values()) if head.settings.get("texts") != settings["texts"] else []
    if digests:
        await store.desk.write_texts(dict(texts.values()))
    parameters = stage.first_request(head.state.get("container_id")).parameters
    common: Json = {**{name: digest for name, (digest, _) in texts.items()}, "parameters": parameters}
    state: Json = {}
    if head.state.get("container_id"):
        state["container_id"] = head.state["container_id"]
    first = await _context_from(store, stage, given)
    if first:
        state["context_from"] = common["context_from"] = first
    run = store.new_run(
        head,
        agent=definition.name,
        version=setup.version,
        model=setup.model,
        provider=setup.provider.name,
        state=state,
        input_position=_input_position(given, head.position),
        extras=given.extras,
        metadata=given.metadata,
        tags=list(given.tags),
    )
    data: Json = {
        "queue_present": stage.listener is not None,
        "formatter": definition.formatter,
        "log": definition.log,
        "request": common,
    }
    started = Entry(type="run_started", run_id=run.id, step_number=0, data=data)
    said = Entry(type="input", run_id=run.id, step_number=0, message=given.message)
    entries = [started] if given.stitch or given.letter or given.again else [started, said]
    fields: dict[str, Any] = {} if settings == head.settings else {"settings": settings}
    if (head.agent, head.version) != (definition.name, setup.version):
        fields |= {"agent": definition.name, "version": setup.version}
    if head.waiting_for:
        fields["waiting_for"] = []
    journal.begin(run, entries, **fields)
    stage.parameters = parameters
    # The event comes with the commit, and tells of the context as it was before.
    before = list(journal.messages) if definition.stream_meta_history_and_tool_results else []
    told: Json = {"agent": definition.name, "model": setup.model, "user_message": text_of(given.message)}
    stage.tell("started", {**told, "messages": before})
    taken = []
    if given.letter is not None:
        entry = given.letter.opened().changed(run_id=run.id, step_number=0)
        taken = [given.letter.changed(entry=entry.as_json())]
    await journal.commit(taken=taken, uses=digests)


def _input_position(given: Input, position: int) -> int | None:
    """Where the input of a run that begins after `position` stands, or will stand."""
    if given.stitch is not None:
        return given.stitch.position
    if given.again is not None:
        return given.again.input_position
    # A letter comes before everything else of its commit, a message after run_started.
    return position + (1 if given.letter is not None else 2)


async def recall(stage: Stage) -> None:
    """What an open run was begun with: its instructions and parameters, as its run_started keeps them."""
    journal = stage.journal
    run = journal.open
    begun = await journal.store.stitches(journal.head, run.first_position, run.first_position + 1)
    started = next((one for one in begun if one.type == "run_started" and one.run_id == run.id), None)
    common: Json = (started.data.get("request") or {}) if started is not None else {}
    stage.parameters = common.get("parameters") or {}
    stage.system = await journal.store.desk.text(common["system"]) if common.get("system") else None


def _texts(system: str | None, definition: Definition) -> dict[str, tuple[str, str]]:
    """The texts of a run's requests with their hashes."""
    found: dict[str, str] = {}
    if system:
        found["system"] = system
    if definition.tools:
        found["tools"] = codec.dumps(definition.tool_schemas).decode()
    return {name: (sha256(text.encode()).hexdigest(), text) for name, text in found.items()}


def _settings(definition: Definition, texts: dict[str, tuple[str, str]]) -> Json:
    """What a thread keeps of the definition of its latest run: what differs from the defaults, texts by their hash."""
    plain = definition.as_json()
    fields = Definition.model_fields
    chosen = {name: plain[name] for name in _SETTINGS if plain[name] != _default(fields[name].get_default())}
    if definition.compactor.type != "none":
        chosen["compactor_type"] = definition.compactor.type
    if definition.memory.type != "none":
        chosen["memory_store_type"] = definition.memory.type
    return {"model": definition.model, **chosen, "texts": {name: digest for name, (digest, _) in texts.items()}}


def _default(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]


async def _context_from(store: Store, stage: Stage, given: Input) -> int | None:
    """Where the context of a new run begins, if it is not to see everything before it."""
    history = stage.setup.definition.history
    if history == "all":
        return None
    head = stage.journal.head
    if history == 0:
        return min(head.position + 1, _input_position(given, head.position) or head.position + 1)
    runs = await store.history(head, limit=int(history))
    return runs.turns[-1].run.first_position if runs.turns else None
