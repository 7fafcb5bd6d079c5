"""Memory around a run: what is brought in before it, and what is kept after it."""

from collections.abc import Coroutine
from functools import partial
from typing import Any

from lockstitch.records import Json, Message, codec, history, text_of
from lockstitch.records.message import user
from lockstitch.runtime.acts.model import ask_beside
from lockstitch.runtime.memory import Retrieved, Scope, Updated
from lockstitch.runtime.stage import Stage
from lockstitch.runtime.wording import keepable


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
