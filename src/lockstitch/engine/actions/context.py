"""Compact the context; retrieve and update memory."""

from collections.abc import Coroutine, Sequence
from functools import partial
from typing import Any, Final

from lockstitch.engine.actions.model import ask_beside
from lockstitch.engine.ports.compactor import Sight
from lockstitch.engine.ports.memory import Retrieved, Scope, Updated
from lockstitch.engine.ports.provider import ProviderError
from lockstitch.engine.session.run_context import Stage, Stopped
from lockstitch.model import Json, Message, codec, history, text_of
from lockstitch.model.codec import keepable
from lockstitch.model.message import user


def scope_of(stage: Stage) -> Scope:
    journal = stage.journal
    return Scope(journal.store, journal.head, journal.open, partial(ask_beside, stage))


async def retrieve(stage: Stage) -> None:
    """Bring in what is worth knowing. It stands in the context from here on, and in no run's history.

    A memory that cannot be read is no failure of the run, here and below.
    """
    journal, memory = stage.journal, stage.setup.memory
    began = journal.clock.now()
    work = memory.retrieve(scope_of(stage), await _asked(stage))
    found = await stage.attempt(work, purpose="memory", where="retrieve") or Retrieved()
    texts = [keepable(text) for text in found.texts if text.strip()]
    message = user("What is known from earlier:\n" + "\n".join(f"- {text}" for text in texts)) if texts else None
    entry = journal.entry(
        "memory_retrieval",
        message=message,
        data={"memories_found": found.found, "memories_injected": len(texts), "memory_store_type": memory.name},
        duration_ms=max(0, round((journal.clock.now() - began).total_seconds() * 1000)),
        messages_count=len(journal.messages) + (message is not None),
        estimated_tokens=journal.tokens,
    )
    journal.note(entry, first=False)


async def _asked(stage: Stage) -> Message:
    """What this run is to answer, whatever a compaction has left of it."""
    journal = stage.journal
    where = journal.open.input_position or 0
    known = [one for one in journal.stitches if one.position == where]
    found = known or await journal.store.stitches(journal.head, where, where)
    return (found[0].message if found else None) or user("")


async def remember(stage: Stage) -> None:
    """Keep what this run is worth remembering for."""
    journal, memory = stage.journal, stage.setup.memory
    if journal.first:
        # The answer is not to be lost while a memory is made of it.
        await journal.commit()
    log = await journal.store.log(journal.open.id)
    said = [message for message in history(log, journal.open.id) if text_of(message)]
    work = memory.update(scope_of(stage), said)
    updated = await stage.attempt(work, purpose="memory", where="update") or Updated()
    data = {"created": updated.created, "updated": updated.updated, "memory_store_type": memory.name}
    journal.note(journal.entry("memory_update", data=data), first=False)


async def look(stage: Stage, kind: str, hook: Coroutine[Any, Any, Json | None]) -> None:
    """Have the memory look at a context that is made smaller, and note what it did."""

    async def work() -> Json | None:
        done = await hook
        codec.dumps(done)
        return done

    done = await stage.attempt(work(), purpose="memory", where=kind.removeprefix("memory_"))
    if done is not None:
        stage.journal.note(stage.journal.entry(kind, data=done), first=False)


_SUMMARY: Final = (
    "Summarize this part of a conversation for the assistant who continues it: goals, decisions, facts, file names and "
    "numbers that will be needed, and what is still open. Be brief.\n\n"
)


async def compact(stage: Stage, tokens: int) -> None:
    """Ask the compactor. What it leaves is the context from here on; no run's history changes."""
    async with stage.journal.using():
        await _compact(stage, tokens)


async def _compact(stage: Stage, tokens: int) -> None:
    journal, setup = stage.journal, stage.setup
    memory, scope = setup.memory, scope_of(stage)
    await look(stage, "memory_before_compact", memory.before_compact(scope, journal.messages))
    sight = Sight(tuple(journal.stitches), tokens)
    began = journal.clock.now()
    why = "nothing_to_remove"
    compacted = None
    try:
        work = setup.compactor.compact(sight, lambda messages: _summarize(stage, messages))
        compacted = await stage.unless_stopped(work)
    except Stopped:
        raise
    except Exception as exc:  # whatever a compactor raises, the run goes on with the context as it is
        why = "summary_failed" if isinstance(exc, ProviderError) else "compactor_failed"
        journal.note(stage.note_error(exc, fatal=False, purpose="summary", where="compact"), first=False)
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
    journal.note(
        journal.entry("compaction", data=data, messages_count=before, estimated_tokens=tokens, duration_ms=duration)
    )
    if compacted is None:
        return
    stage.tell("compacted", {"tokens_before": tokens, "tokens_after": compacted.tokens})
    await look(stage, "memory_after_compact", memory.after_compact(scope, journal.messages))


async def _summarize(stage: Stage, messages: Sequence[Message]) -> str:
    talk = "\n".join(codec.dumps(message).decode() for message in messages)
    return await ask_beside(stage, "summary", _SUMMARY + talk)
