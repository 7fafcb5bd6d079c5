"""Read the recorded turns for the runs of a replay: the input of the next run, and the record of a run."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast
from uuid import UUID

from lockstitch.engine.config import RunConfig
from lockstitch.engine.decision.recorded_turn import RECORDED, RecordedTurn
from lockstitch.engine.ports.file_store import NoFileStore
from lockstitch.engine.ports.memory import NoMemoryStore
from lockstitch.engine.session.start import RunInput
from lockstitch.errors import NotFound
from lockstitch.model import Json, Run, Stitch, Thread, codec
from lockstitch.model.message import user
from lockstitch.store import Store, Where
from lockstitch.store.replays import REPLAYED_RUN, ReplayPlan, plan_of, replayed_run, runs_of_turn, turns_of


async def next_replay_input(store: Store, head: Thread, last: Run | None) -> RunInput | None:
    """Return the input of the next run of a replay; None if the recorded turn was deleted."""
    plan = plan_of(head)
    source = None if plan is None else await _next_source(store, plan, last)
    return None if source is None else await _input_of(store, source)


async def _next_source(store: Store, plan: ReplayPlan, last: Run | None) -> Run | None:
    """Return the recorded run that the next run of a replay runs again; None if there is none."""
    try:
        if last is None:
            return await store.run(plan.run_id)
        source = await replayed_run(store, last) if plan.whole else None
        later = [] if source is None else await turns_of(store, source.thread_id, source)
    except NotFound:
        return None
    return later[0] if later else None


async def _input_of(store: Store, source: Run) -> RunInput | None:
    try:
        head = await store.thread(source.thread_id)
    except NotFound:
        return None
    position = source.input_position
    stitches = await store.stitches(head, position, position) if position else []
    message = stitches[0].message if stitches else None
    if message is None:
        message = user(_text_of_input(stitches, head))
    return RunInput(
        message,
        extras=source.extras,
        metadata={**source.metadata, REPLAYED_RUN: str(source.id)},
        tags=source.tags,
        replays=source.id,
    )


def _text_of_input(stitches: Sequence[Stitch], head: Thread) -> str:
    """Return the input of a run of an imported trace, which has no message: its text, or that of its last message."""
    value: Any = stitches[0].data.get("inputs") if stitches else None
    if isinstance(value, dict):
        inputs = cast("Json", value)
        value = inputs.get("input", next(iter(inputs.values())) if len(inputs) == 1 else inputs)
    while isinstance(value, list) and value:
        value = cast("list[Any]", value)[-1]
    if isinstance(value, dict):
        message = cast("Json", value)
        value = message.get("content") or message
    if isinstance(value, str):
        return value
    return codec.dumps(value).decode() if value else head.goal or ""


async def recorded_turn(store: Store, head: Thread, source_id: UUID | None, open_run: Run | None) -> RecordedTurn:
    """Return the record for a run of a replay.

    Args:
        store: The store.
        head: The thread of the replay.
        source_id: Id of the recorded run.
        open_run: The run of the replay, if it has started.
    """
    plan = plan_of(head)
    source: Run | None = None
    logs: dict[UUID, Sequence[Stitch]] = {}
    agents: dict[UUID, str | None] = {}
    later = None
    if plan is not None and source_id is not None:
        try:
            source = await store.run(source_id)
            for run in await runs_of_turn(store, source):
                logs[run.id], agents[run.id] = await store.log(run.id), run.agent
            later = await turns_of(store, source.thread_id, source) if plan.whole else None
        except NotFound:
            # The recorded thread was deleted. A call then has no recorded result.
            source = None
    used = set[int]() if open_run is None else await _used(store, head, open_run)
    return RecordedTurn(
        source,
        logs,
        agents,
        until=plan.until if plan is not None and plan.run_id == source_id else 0,
        live=plan is not None and plan.live,
        is_last=not later,
        used=used,
    )


async def _used(store: Store, head: Thread, run: Run) -> set[int]:
    """Return the positions of recorded stitches that the open run of a replay repeats."""
    kinds = Where("type", "in", ["tool_call", "input", "thread_result"])
    stitches = await store.find_stitches(head.id, kinds, Where("position", ">=", run.first_position))
    return {stitch.data[RECORDED] for stitch in stitches if RECORDED in stitch.data}


def without_effects(config: RunConfig, *, live: bool) -> RunConfig:
    """Return the config of a run of a replay: without tools that have an effect, memories, files and finish hooks.

    With `live`, it has the tools whose effect is `safe`, both in the definition and in the code.
    """
    safe = [tool.name for tool in config.definition.tools if tool.effect == "safe" and tool.side == "backend"]
    tools = {name: config.tools[name] for name in safe if name in config.tools and config.tools[name].effect == "safe"}
    memory = NoMemoryStore()
    memory.name = config.memory.name
    return replace(config, tools=tools if live else {}, memory=memory, files=NoFileStore(), on_finish=None)
