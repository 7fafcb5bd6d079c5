"""`RecordMemoryStore`: facts in the store, extracted by the model and ranked by shared words."""

import inspect
import json
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Sequence
from fractions import Fraction
from itertools import islice
from typing import Any, Final, cast
from uuid import UUID

from lockstitch.engine.ports.memory import Retrieved, Scope, Updated
from lockstitch.engine.usage import estimate_all
from lockstitch.errors import Refused
from lockstitch.model import Json, Memory, Message, codec, foreign_id, text_of

_MAX_FACTS: Final = 20
_MAX_FACT_LENGTH: Final = 1_000
_TRANSCRIPT: Final = 40_000
_MAX_STARTS: Final = 50
"""Maximum number of places in an answer at which a JSON list may start."""

_PROMPT: Final = """\
Read this conversation. List the facts that will be useful in later conversations with the same user: lasting facts, \
preferences, decisions and open commitments. Do not list details that matter only in this conversation, secrets, \
passwords, or facts that are already known. Write each fact as one sentence that is clear without its context.

Answer only with a JSON list of strings. If there are no such facts, answer [].

Already known:
{known}

Conversation:
{transcript}
"""

_SURROGATES: Final = re.compile("[\ud800-\udfff]")
_TEXT_KEYS: Final = ("text", "fact", "memory", "content")
_LIST_KEYS: Final = ("facts", "memories", "items", "result")


def prompt(messages: Sequence[Message], known: Iterable[str]) -> str | None:
    """Return the prompt that extracts facts, or None if the messages have no text."""
    conversation = transcript(messages)
    if not conversation:
        return None
    return _PROMPT.format(known="\n".join(f"- {text}" for text in known) or "- nothing", transcript=conversation)


def transcript(messages: Sequence[Message]) -> str:
    """Return the text of the messages without tools. A very long conversation is cut in the middle."""
    lines = [f"{message.get('role')}: {text}" for message in messages if (text := text_of(message).strip())]
    text = "\n".join(lines)
    if len(text) <= _TRANSCRIPT:
        return text
    half = _TRANSCRIPT // 2
    return f"{text[:half]}\n…\n{text[-half:]}"


def parse(answer: str) -> list[str]:
    """Return the facts in an answer of a model. The JSON may be fenced, have an introduction, or contain objects."""
    for start in islice(re.finditer(r"[\[{]", answer), _MAX_STARTS):
        try:
            value, _ = json.JSONDecoder().raw_decode(answer, start.start())
        except (ValueError, RecursionError):
            continue
        facts = clean(_texts(value))
        if facts or value == []:
            return facts
    return []


def clean(facts: Iterable[str]) -> list[str]:
    """Return the facts in a form that every store can keep: without duplicates, empty facts and excess length."""
    stored: dict[str, str] = {}
    for fact in facts:
        text = " ".join(_SURROGATES.sub("", fact.replace("\x00", "")).split())[:_MAX_FACT_LENGTH]
        if text:
            stored.setdefault(same(text), text)
    return list(stored.values())[:_MAX_FACTS]


def same(text: str) -> str:
    """Return a normal form of a fact. Facts with the same normal form are duplicates."""
    return " ".join(text.casefold().split()).rstrip(".!")


def _texts(value: Any) -> list[str]:
    if isinstance(value, dict):
        bag = cast("Json", value)
        inner = next((bag[key] for key in _LIST_KEYS if isinstance(bag.get(key), list)), None)
        value = inner if inner is not None else [bag]
    if not isinstance(value, list):
        return []
    return [text for item in cast("list[Any]", value) if isinstance(text := _text(item), str)]


def _text(item: Any) -> Any:
    if not isinstance(item, dict):
        return item
    bag = cast("Json", item)
    return next((bag[key] for key in _TEXT_KEYS if isinstance(bag.get(key), str)), None)


_WORD: Final = re.compile(r"[^\W_]+")
_UNSPACED: Final = "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u2e80-\u9fff\uac00-\ud7af\uf900-\ufaff]"
"""Scripts without spaces between words. Compiling takes milliseconds, so the first search does it."""


def words(text: str) -> set[str]:
    """Return the words of a text in lower case. In scripts without spaces, each pair of characters is a word."""
    result: set[str] = set()
    for word in _WORD.findall(text.casefold()):
        if re.search(_UNSPACED, word):
            result.update(word[place : place + 2] for place in range(max(1, len(word) - 1)))
        else:
            result.add(word)
    return result


def ranked(query: str, texts: Sequence[str]) -> list[int]:
    """Return the indexes of the texts that share a word with `query`, best first. Equal texts keep their order.

    A rare word has more weight than a frequent one, so that "the" does not decide.
    """
    wanted = words(query)
    shared = [wanted & words(text) for text in texts]
    spread = Counter(word for item in shared for word in item)
    # Fractions, because a sum of floats depends on the order of the set.
    scores = [sum((Fraction(1, spread[word]) for word in item), Fraction(0)) for item in shared]
    return sorted((place for place, item in enumerate(shared) if item), key=lambda place: -scores[place])


Extract = Callable[[Sequence[Message]], Sequence[str] | Awaitable[Sequence[str]]]
"""Function that extracts facts from messages instead of the model."""

_KNOWN: Final = 50
"""Maximum number of known memories in the prompt."""


class RecordMemoryStore:
    """Stores facts by project and user, and returns those that share words with the message.

    Threads without a user have common memories. Memories have the id of their run, so a repeated update stores nothing
    twice.

    Args:
        limit: Maximum number of memories that a run gets.
        by_agent: True if each agent has its own memories.
        extract: Function that returns the facts of messages. None: the model of the run extracts them.

    Raises:
        Refused: If `limit` is not a whole number of at least 1.
    """

    name = "record"

    def __init__(self, limit: int = 5, by_agent: bool = False, extract: Extract | None = None) -> None:
        # True is an int in Python and would be a limit of 1.
        if isinstance(limit, bool) or limit < 1:
            raise Refused(f"limit must be a whole number of at least 1, not {limit!r}.")
        self._limit = limit
        self._by_agent = by_agent
        self._extract = extract

    @property
    def parameters(self) -> Json:
        return {"limit": self._limit, "by_agent": self._by_agent}

    async def retrieve(self, scope: Scope, message: Message) -> Retrieved:
        """Return the memories of the user that share words with the message, best first.

        Args:
            scope: Store, thread and run, and a way to call the model.
            message: Message of the user.
        """
        memories = await self._known(scope)
        best = ranked(text_of(message), [memory.text for memory in memories])
        return Retrieved(len(best), [memories[place].text for place in best[: self._limit]])

    async def update(self, scope: Scope, messages: Sequence[Message]) -> Updated | None:
        """Store the facts of a run. Return the number of new and updated memories.

        Args:
            scope: Store, thread and run, and a way to call the model.
            messages: Messages of the run.
        """
        return await self._update(scope, messages, "run")

    async def before_compact(self, scope: Scope, messages: Sequence[Message]) -> Json | None:
        """Store the facts of messages that the compaction removes. Return a report for the log.

        Args:
            scope: Store, thread and run, and a way to call the model.
            messages: Full context before the compaction.
        """
        # A run may be compacted more than once. The digest of the messages identifies each compaction.
        updated = await self._update(scope, messages, f"compaction {codec.digest(list(messages))[:16]}")
        return {"memories_created": updated.created, "memories_updated": updated.updated}

    async def after_compact(self, scope: Scope, messages: Sequence[Message]) -> Json | None:
        """Return a report for the log: the remaining context and the number of memories.

        Args:
            scope: Store, thread and run, and a way to call the model.
            messages: Remaining context after the compaction.
        """
        memories = await self._known(scope)
        return {"messages": len(messages), "tokens": estimate_all(messages), "memories": len(memories)}

    async def _update(self, scope: Scope, messages: Sequence[Message], occasion: str) -> Updated:
        memories = await self._known(scope)
        source = {"run_id": str(scope.run.id), "occasion": occasion}
        done = [memory for memory in memories if memory.metadata.items() >= source.items()]
        if not done:
            done = await self._store_facts(scope, await self._facts(scope, messages, memories), memories, source)
        created = sum(memory.id == _id(scope, occasion, number) for number, memory in _numbered(done))
        return Updated(created, len(done) - created)

    async def _store_facts(
        self, scope: Scope, facts: Sequence[str], memories: Sequence[Memory], source: Json
    ) -> list[Memory]:
        """Store the facts and return their memories. A known fact updates its memory."""
        now = scope.store.clock.now()
        known = {same(memory.text): memory for memory in memories}
        records: list[Memory] = []
        for number, text in enumerate(facts, start=1):
            metadata = {**source, "number": number}
            old = known.get(same(text))
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

    async def _facts(self, scope: Scope, messages: Sequence[Message], memories: Sequence[Memory]) -> list[str]:
        if self._extract is not None:
            extract = self._extract(messages)
            return clean(await extract if inspect.isawaitable(extract) else extract)
        value = prompt(messages, [memory.text for memory in memories[:_KNOWN]])
        return parse(await scope.ask("memory", value)) if value else []

    async def _known(self, scope: Scope) -> list[Memory]:
        """Return the memories of the user of the thread, newest first."""
        filters: Json = {"project": scope.head.project, "user_id": scope.head.user_id, "kind": "memory"}
        if self._by_agent:
            filters["agent"] = _agent(scope)
        memories = await scope.store.memories.list(**filters)
        return sorted(memories, key=lambda memory: (memory.updated_at, memory.id), reverse=True)


def _agent(scope: Scope) -> str | None:
    return scope.run.agent or scope.head.agent


def _id(scope: Scope, occasion: str, number: int) -> UUID:
    return foreign_id(scope.head.project, "memory", f"{scope.run.id} {occasion} {number}")


def _numbered(memories: Sequence[Memory]) -> list[tuple[int, Memory]]:
    return [(int(memory.metadata.get("number", 0)), memory) for memory in memories]
