"""A memory in the record itself: what was learned in one thread is known in the next, beside the threads."""

import inspect
from collections.abc import Awaitable, Callable, Sequence
from typing import Final
from uuid import UUID

from lockstitch.errors import Refused
from lockstitch.records import Json, Memory, Message, codec, foreign_id, text_of
from lockstitch.runtime.memories import facts
from lockstitch.runtime.memories.ranking import ranked
from lockstitch.runtime.memory import Retrieved, Scope, Updated
from lockstitch.runtime.tokens import estimate_all

Extract = Callable[[Sequence[Message]], Sequence[str] | Awaitable[Sequence[str]]]
"""Finds the facts in messages in place of the model."""

_KNOWN: Final = 50
"""So many memories are told to the model as known already."""


class RecordMemoryStore:
    """Keeps facts by project and user, and brings in those that share words with the question.

    Threads without a user share the memories of nobody. With `by_agent` every agent remembers for itself. What a call
    has kept is known by its run, so a call that comes twice keeps nothing twice.
    """

    name = "record"

    def __init__(self, limit: int = 5, by_agent: bool = False, extract: Extract | None = None) -> None:
        # A bool is an int to Python and would be a limit of one.
        if isinstance(limit, bool) or limit < 1:
            raise Refused(f"limit must be a whole number of at least 1, not {limit!r}.")
        self._limit = limit
        self._by_agent = by_agent
        self._extract = extract

    @property
    def parameters(self) -> Json:
        return {"limit": self._limit, "by_agent": self._by_agent}

    async def retrieve(self, scope: Scope, message: Message) -> Retrieved:
        known = await self._known(scope)
        best = ranked(text_of(message), [memory.text for memory in known])
        return Retrieved(len(best), [known[place].text for place in best[: self._limit]])

    async def update(self, scope: Scope, messages: Sequence[Message]) -> Updated | None:
        return await self._keep(scope, messages, "run")

    async def before_compact(self, scope: Scope, messages: Sequence[Message]) -> Json | None:
        """Keep the facts of what is about to be lost."""
        # A run may be compacted more than once; each time is known by what was there.
        kept = await self._keep(scope, messages, f"compaction {codec.digest(list(messages))[:16]}")
        return {"memories_created": kept.created, "memories_updated": kept.updated}

    async def after_compact(self, scope: Scope, messages: Sequence[Message]) -> Json | None:
        known = await self._known(scope)
        return {"messages": len(messages), "tokens": estimate_all(messages), "memories": len(known)}

    async def _keep(self, scope: Scope, messages: Sequence[Message], occasion: str) -> Updated:
        known = await self._known(scope)
        source = {"run_id": str(scope.run.id), "occasion": occasion}
        done = [memory for memory in known if memory.metadata.items() >= source.items()]
        if not done:
            done = await self._kept(scope, await self._facts(scope, messages, known), known, source)
        created = sum(memory.id == _id(scope, occasion, number) for number, memory in _numbered(done))
        return Updated(created, len(done) - created)

    async def _kept(self, scope: Scope, found: Sequence[str], known: Sequence[Memory], source: Json) -> list[Memory]:
        """Write the facts, those that are known already in their old place."""
        now = scope.store.clock.now()
        places = {facts.same(memory.text): memory for memory in known}
        records: list[Memory] = []
        for number, text in enumerate(found, start=1):
            metadata = {**source, "number": number}
            old = places.get(facts.same(text))
            if old is not None:
                records.append(old.changed(metadata={**old.metadata, **metadata}, updated_at=now))
                continue
            records.append(
                Memory(
                    id=_id(scope, source["occasion"], number),
                    project=scope.head.project,
                    user_id=scope.head.user_id,
                    agent=_agent(scope),
                    thread_id=scope.head.id,
                    text=text,
                    metadata=metadata,
                    created_at=now,
                    updated_at=now,
                )
            )
        if records:
            await scope.store.memories.put(*records)
        return records

    async def _facts(self, scope: Scope, messages: Sequence[Message], known: Sequence[Memory]) -> list[str]:
        if self._extract is not None:
            found = self._extract(messages)
            return facts.clean(await found if inspect.isawaitable(found) else found)
        asked = facts.prompt(messages, [memory.text for memory in known[:_KNOWN]])
        return facts.parse(await scope.ask("memory", asked)) if asked else []

    async def _known(self, scope: Scope) -> list[Memory]:
        """The memories of whom this is about, the newest first."""
        whose: Json = {"project": scope.head.project, "user_id": scope.head.user_id, "kind": "memory"}
        if self._by_agent:
            whose["agent"] = _agent(scope)
        found = await scope.store.memories.list(**whose)
        return sorted(found, key=lambda memory: (memory.updated_at, memory.id), reverse=True)


def _agent(scope: Scope) -> str | None:
    return scope.run.agent or scope.head.agent


def _id(scope: Scope, occasion: str, number: int) -> UUID:
    return foreign_id(scope.head.project, "memory", f"{scope.run.id} {occasion} {number}")


def _numbered(memories: Sequence[Memory]) -> list[tuple[int, Memory]]:
    return [(int(memory.metadata.get("number", 0)), memory) for memory in memories]
