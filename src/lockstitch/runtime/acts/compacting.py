"""Making the context smaller, with the memory looking on before and after."""

from collections.abc import Sequence
from typing import Final

from lockstitch.records import Json, Message, codec
from lockstitch.runtime.acts.model import ask_beside
from lockstitch.runtime.acts.remembering import look, scope_of
from lockstitch.runtime.compactor import Sight
from lockstitch.runtime.provider import ProviderError
from lockstitch.runtime.stage import Stage, Stopped

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
