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
    session = context.journal
    return Scope(session.store, session.head, session.open_run, partial(side_model_call, context))


async def retrieve_memory(context: RunContext) -> None:
    """Bring in what is worth knowing. It stands in the context from here on, and in no run's history.

    A memory that cannot be read is no failure of the run, here and below.
    """
    session, memory = context.journal, context.setup.memory
    began = session.clock.now()
    work = memory.retrieve(scope_of(context), await _asked(context))
    retrieved = await context.run_optional(work, purpose="memory", where="retrieve") or Retrieved()
    texts = [storable_text(text) for text in retrieved.texts if text.strip()]
    message = user("What is known from earlier:\n" + "\n".join(f"- {text}" for text in texts)) if texts else None
    entry = session.entry(
        "memory_retrieval",
        message=message,
        data={"memories_found": retrieved.found, "memories_injected": len(texts), "memory_store_type": memory.name},
        duration_ms=max(0, round((session.clock.now() - began).total_seconds() * 1000)),
        messages_count=len(session.messages) + (message is not None),
        estimated_tokens=session.tokens,
    )
    session.record(entry, first=False)


async def _asked(context: RunContext) -> Message:
    """What this run is to answer, whatever a compaction has left of it."""
    session = context.journal
    where = session.open_run.input_position or 0
    stitches = [stitch for stitch in session.stitches if stitch.position == where]
    matches = stitches or await session.store.stitches(session.head, where, where)
    return (matches[0].message if matches else None) or user("")


async def update_memory(context: RunContext) -> None:
    """Keep what this run is worth remembering for."""
    session, memory = context.journal, context.setup.memory
    if session.must_commit:
        # The answer is not to be lost while a memory is made of it.
        await session.commit()
    log = await session.store.log(session.open_run.id)
    messages = [message for message in history(log, session.open_run.id) if text_of(message)]
    work = memory.update(scope_of(context), messages)
    updated = await context.run_optional(work, purpose="memory", where="update") or Updated()
    data = {"created": updated.created, "updated": updated.updated, "memory_store_type": memory.name}
    session.record(session.entry("memory_update", data=data), first=False)


async def memory_observes(context: RunContext, kind: str, hook: Coroutine[Any, Any, Json | None]) -> None:
    """Have the memory look at a context that is made smaller, and note what it did."""

    async def work() -> Json | None:
        done = await hook
        codec.dumps(done)
        return done

    done = await context.run_optional(work(), purpose="memory", where=kind.removeprefix("memory_"))
    if done is not None:
        context.journal.record(context.journal.entry(kind, data=done), first=False)


_SUMMARY: Final = (
    "Summarize this part of a conversation for the assistant who continues it: goals, decisions, facts, file names and "
    "numbers that will be needed, and what is still open. Be brief.\n\n"
)


async def compact(context: RunContext, tokens: int) -> None:
    """Ask the compactor. What it leaves is the context from here on; no run's history changes."""
    async with context.journal.freeze_context():
        await _compact(context, tokens)


async def _compact(context: RunContext, tokens: int) -> None:
    session, config = context.journal, context.setup
    memory, scope = config.memory, scope_of(context)
    await memory_observes(context, "memory_before_compact", memory.before_compact(scope, session.messages))
    sight = CompactionInput(tuple(session.stitches), tokens)
    began = session.clock.now()
    why = "nothing_to_remove"
    compacted = None
    try:
        work = config.compactor.compact(sight, lambda messages: _summarize(context, messages))
        compacted = await context.cancellable(work)
    except RunCancelled:
        raise
    except Exception as exc:  # whatever a compactor raises, the run goes on with the context as it is
        why = "summary_failed" if isinstance(exc, ProviderError) else "compactor_failed"
        session.record(context.error_entry(exc, fatal=False, purpose="summary", where="compact"), first=False)
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
    session.record(
        session.entry("compaction", data=data, messages_count=before, estimated_tokens=tokens, duration_ms=duration)
    )
    if compacted is None:
        return
    context.emit("compacted", {"tokens_before": tokens, "tokens_after": compacted.tokens})
    await memory_observes(context, "memory_after_compact", memory.after_compact(scope, session.messages))


async def _summarize(context: RunContext, messages: Sequence[Message]) -> str:
    talk = "\n".join(codec.dumps(message).decode() for message in messages)
    return await side_model_call(context, "summary", _SUMMARY + talk)
