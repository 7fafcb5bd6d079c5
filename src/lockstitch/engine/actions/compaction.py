"""Compact the context; retrieve and update memory."""

from collections.abc import Coroutine, Sequence
from functools import partial
from typing import Any, Final

from lockstitch.engine.actions.model import side_model_call
from lockstitch.engine.ports.compactor import CompactionInput
from lockstitch.engine.ports.memory import Retrieved, Scope, Updated
from lockstitch.engine.ports.provider import ProviderError
from lockstitch.engine.session.run_context import RunCancelled, RunContext
from lockstitch.model import Json, Message, codec, history, text_of
from lockstitch.model.codec import storable_text
from lockstitch.model.message import user


def scope_of(context: RunContext) -> Scope:
    """Return the scope that the memory store of this run gets."""
    session = context.session
    return Scope(session.store, session.head, session.open_run, partial(side_model_call, context))


async def retrieve_memory(context: RunContext) -> None:
    """Add memories to the context. They stay in the context, but are not part of the history of a run.

    If the memory store raises, the run continues without memories.
    """
    session, memory = context.session, context.config.memory
    began = session.clock.now()
    work = memory.retrieve(scope_of(context), await _input_message(context))
    retrieved = await context.run_optional(work, purpose="memory", where="retrieve") or Retrieved()
    texts = [storable_text(text) for text in retrieved.texts if text.strip()]
    message = (
        user("Memories from earlier conversations:\n" + "\n".join(f"- {text}" for text in texts)) if texts else None
    )
    entry = session.entry(
        "memory_retrieval",
        message=message,
        data={
            "memories_found": retrieved.match_count,
            "memories_injected": len(texts),
            "memory_store_type": memory.name,
        },
        duration_ms=max(0, round((session.clock.now() - began).total_seconds() * 1000)),
        messages_count=len(session.messages) + (message is not None),
        estimated_tokens=session.tokens,
    )
    session.record(entry, must_commit=False)


async def _input_message(context: RunContext) -> Message:
    """Return the input message of this run, also if it was compacted."""
    session = context.session
    where = session.open_run.input_position or 0
    stitches = [stitch for stitch in session.stitches if stitch.position == where]
    matches = stitches or await session.store.stitches(session.head, where, where)
    return (matches[0].message if matches else None) or user("")


async def update_memory(context: RunContext) -> None:
    """Store new memories of this run. If the memory store raises, the run continues."""
    session, memory = context.session, context.config.memory
    if session.must_commit:
        # Commit first, so that a crash in the memory store does not lose the answer.
        await session.commit()
    log = await session.store.log(session.open_run.id)
    messages = [message for message in history(log, session.open_run.id) if text_of(message)]
    work = memory.update(scope_of(context), messages)
    updated = await context.run_optional(work, purpose="memory", where="update") or Updated()
    data = {"created": updated.created, "updated": updated.updated, "memory_store_type": memory.name}
    session.record(session.entry("memory_update", data=data), must_commit=False)


async def notify_memory(context: RunContext, kind: str, hook: Coroutine[Any, Any, Json | None]) -> None:
    """Call a hook of the memory store before or after a compaction, and record its result."""

    async def work() -> Json | None:
        done = await hook
        codec.dumps(done)
        return done

    done = await context.run_optional(work(), purpose="memory", where=kind.removeprefix("memory_"))
    if done is not None:
        step = context.session.open_run.steps + 1
        context.session.record(context.session.entry(kind, step_number=step, data=done), must_commit=False)


_SUMMARY: Final = (
    "Summarize this part of a conversation for the assistant that continues it. Include goals, decisions, open tasks, "
    "and the facts, file names and numbers that the assistant will need. Be brief.\n\n"
)


async def compact(context: RunContext, tokens: int) -> None:
    """Call the compactor. Its result is the context from now on. The history of a run does not change."""
    async with context.session.freeze_context():
        await _compact(context, tokens)


async def _compact(context: RunContext, tokens: int) -> None:
    session, config = context.session, context.config
    memory, scope = config.memory, scope_of(context)
    await notify_memory(context, "memory_before_compact", memory.before_compact(scope, session.messages))
    compaction_input = CompactionInput(tuple(session.stitches), tokens)
    began = session.clock.now()
    why = "nothing_to_remove"
    compacted = None
    try:
        work = config.compactor.compact(compaction_input, lambda messages: _summarize(context, messages))
        compacted = await context.cancellable(work)
    except RunCancelled:
        raise
    except Exception as exc:  # if the compactor fails, the run continues with the unchanged context
        why = "summary_failed" if isinstance(exc, ProviderError) else "compactor_failed"
        session.record(context.error_entry(exc, fatal=False, purpose="summary", where="compact"), must_commit=False)
    data: Json = {
        "applied": False,
        "compaction_applied": compacted is not None,
        "reason": "above_threshold" if compacted is not None else why,
        "compactor": config.compactor.name,
        "current_tokens": tokens,
        "threshold": config.compactor.threshold,
    }
    before = len(session.messages)
    if compacted is not None:
        saved = max(0, tokens - compacted.tokens)
        data |= {"removed": compacted.removed, "modified": compacted.modified, "tokens_saved": saved}
        data |= compacted.as_data()
    duration = max(0, round((session.clock.now() - began).total_seconds() * 1000))
    counts = {"messages_count": before, "estimated_tokens": tokens, "duration_ms": duration}
    # A compaction belongs to the step that it precedes.
    session.record(session.entry("compaction", step_number=session.open_run.steps + 1, data=data, **counts))
    if compacted is None:
        return
    context.emit("compacted", {"tokens_before": tokens, "tokens_after": compacted.tokens})
    await notify_memory(context, "memory_after_compact", memory.after_compact(scope, session.messages))


async def _summarize(context: RunContext, messages: Sequence[Message]) -> str:
    talk = "\n".join(codec.dumps(message).decode() for message in messages)
    return await side_model_call(context, "summary", _SUMMARY + talk)
