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


def scope_of(stage: RunContext) -> Scope:
    journal = stage.journal
    return Scope(journal.store, journal.head, journal.open_run, partial(side_model_call, stage))


async def retrieve_memory(stage: RunContext) -> None:
    """Bring in what is worth knowing. It stands in the context from here on, and in no run's history.

    A memory that cannot be read is no failure of the run, here and below.
    """
    journal, memory = stage.journal, stage.setup.memory
    began = journal.clock.now()
    work = memory.retrieve(scope_of(stage), await _asked(stage))
    found = await stage.run_optional(work, purpose="memory", where="retrieve") or Retrieved()
    texts = [storable_text(text) for text in found.texts if text.strip()]
    message = user("What is known from earlier:\n" + "\n".join(f"- {text}" for text in texts)) if texts else None
    entry = journal.entry(
        "memory_retrieval",
        message=message,
        data={"memories_found": found.found, "memories_injected": len(texts), "memory_store_type": memory.name},
        duration_ms=max(0, round((journal.clock.now() - began).total_seconds() * 1000)),
        messages_count=len(journal.messages) + (message is not None),
        estimated_tokens=journal.tokens,
    )
    journal.record(entry, first=False)


async def _asked(stage: RunContext) -> Message:
    """What this run is to answer, whatever a compaction has left of it."""
    journal = stage.journal
    where = journal.open_run.input_position or 0
    known = [one for one in journal.stitches if one.position == where]
    found = known or await journal.store.stitches(journal.head, where, where)
    return (found[0].message if found else None) or user("")


async def update_memory(stage: RunContext) -> None:
    """Keep what this run is worth remembering for."""
    journal, memory = stage.journal, stage.setup.memory
    if journal.must_commit:
        # The answer is not to be lost while a memory is made of it.
        await journal.commit()
    log = await journal.store.log(journal.open_run.id)
    said = [message for message in history(log, journal.open_run.id) if text_of(message)]
    work = memory.update(scope_of(stage), said)
    updated = await stage.run_optional(work, purpose="memory", where="update") or Updated()
    data = {"created": updated.created, "updated": updated.updated, "memory_store_type": memory.name}
    journal.record(journal.entry("memory_update", data=data), first=False)


async def memory_observes(stage: RunContext, kind: str, hook: Coroutine[Any, Any, Json | None]) -> None:
    """Have the memory look at a context that is made smaller, and note what it did."""

    async def work() -> Json | None:
        done = await hook
        codec.dumps(done)
        return done

    done = await stage.run_optional(work(), purpose="memory", where=kind.removeprefix("memory_"))
    if done is not None:
        stage.journal.record(stage.journal.entry(kind, data=done), first=False)


_SUMMARY: Final = (
    "Summarize this part of a conversation for the assistant who continues it: goals, decisions, facts, file names and "
    "numbers that will be needed, and what is still open. Be brief.\n\n"
)


async def compact(stage: RunContext, tokens: int) -> None:
    """Ask the compactor. What it leaves is the context from here on; no run's history changes."""
    async with stage.journal.freeze_context():
        await _compact(stage, tokens)


async def _compact(stage: RunContext, tokens: int) -> None:
    journal, setup = stage.journal, stage.setup
    memory, scope = setup.memory, scope_of(stage)
    await memory_observes(stage, "memory_before_compact", memory.before_compact(scope, journal.messages))
    sight = CompactionInput(tuple(journal.stitches), tokens)
    began = journal.clock.now()
    why = "nothing_to_remove"
    compacted = None
    try:
        work = setup.compactor.compact(sight, lambda messages: _summarize(stage, messages))
        compacted = await stage.cancellable(work)
    except RunCancelled:
        raise
    except Exception as exc:  # whatever a compactor raises, the run goes on with the context as it is
        why = "summary_failed" if isinstance(exc, ProviderError) else "compactor_failed"
        journal.record(stage.error_entry(exc, fatal=False, purpose="summary", where="compact"), first=False)
    data: Json = {
        "applied": False,
        "compaction_applied": compacted is not None,
        "reason": "above_threshold" if compacted is not None else why,
        "compactor": setup.compactor.name,
        "current_tokens": tokens,
        "threshold": setup.compactor.threshold,
    }
    before = len(journal.messages)
    if compacted is not None:
        saved = max(0, tokens - compacted.tokens)
        data |= {"removed": compacted.removed, "modified": compacted.modified, "tokens_saved": saved}
        data |= compacted.as_data()
    duration = max(0, round((journal.clock.now() - began).total_seconds() * 1000))
    journal.record(
        journal.entry("compaction", data=data, messages_count=before, estimated_tokens=tokens, duration_ms=duration)
    )
    if compacted is None:
        return
    stage.emit("compacted", {"tokens_before": tokens, "tokens_after": compacted.tokens})
    await memory_observes(stage, "memory_after_compact", memory.after_compact(scope, journal.messages))


async def _summarize(stage: RunContext, messages: Sequence[Message]) -> str:
    talk = "\n".join(codec.dumps(message).decode() for message in messages)
    return await side_model_call(stage, "summary", _SUMMARY + talk)
