"""Memory kept in the store: facts extracted by the model, ranked by shared words."""

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

_MOST_FACTS: Final = 20
_LONGEST_FACT: Final = 1_000
_TRANSCRIPT: Final = 40_000
_MOST_STARTS: Final = 50
"""Places where a list may begin that are tried before an answer is given up."""

_PROMPT: Final = """\
Read this conversation and list what is worth remembering for later conversations with the same user: lasting facts, \
preferences, decisions and open commitments. Leave out what only mattered in the moment, secrets and passwords, and \
what is known already. Each fact is one sentence that can be understood on its own.

Answer with a JSON list of strings and nothing else; [] if there is nothing to remember.

Known already:
{known}

Conversation:
{transcript}
"""

_SURROGATES: Final = re.compile("[\ud800-\udfff]")
_TEXT_KEYS: Final = ("text", "fact", "memory", "content")
_LIST_KEYS: Final = ("facts", "memories", "items", "result")


def prompt(messages: Sequence[Message], known: Iterable[str]) -> str | None:
    """What a model is asked; None when nobody said anything."""
    told = transcript(messages)
    if not told:
        return None
    return _PROMPT.format(known="\n".join(f"- {text}" for text in known) or "- nothing", transcript=told)


def transcript(messages: Sequence[Message]) -> str:
    """What was said, tools left out; of a very long conversation its beginning and its end."""
    lines = [f"{message.get('role')}: {text}" for message in messages if (text := text_of(message).strip())]
    told = "\n".join(lines)
    if len(told) <= _TRANSCRIPT:
        return told
    half = _TRANSCRIPT // 2
    return f"{told[:half]}\n…\n{told[-half:]}"


def parse(answer: str) -> list[str]:
    """The facts in a model's answer, however it is dressed: fenced, introduced, or as objects. Else none."""
    for start in islice(re.finditer(r"[\[{]", answer), _MOST_STARTS):
        try:
            value, _ = json.JSONDecoder().raw_decode(answer, start.start())
        except (ValueError, RecursionError):
            continue
        matches = clean(_texts(value))
        if matches or value == []:
            return matches
    return []


def clean(facts: Iterable[str]) -> list[str]:
    """Facts that every store can keep: each once, not empty, not too long and not too many."""
    stored: dict[str, str] = {}
    for fact in facts:
        text = " ".join(_SURROGATES.sub("", fact.replace("\x00", "")).split())[:_LONGEST_FACT]
        if text:
            stored.setdefault(same(text), text)
    return list(stored.values())[:_MOST_FACTS]


def same(text: str) -> str:
    """Two facts with the same of these are one."""
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
_UNSPACED: Final = re.compile("[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u2e80-\u9fff\uac00-\ud7af\uf900-\ufaff]")
"""Scripts that put no space between words."""


def words(text: str) -> set[str]:
    """The words of a text, whatever their case; of scripts without spaces every two neighbours."""
    matches: set[str] = set()
    for word in _WORD.findall(text.casefold()):
        if _UNSPACED.search(word):
            matches.update(word[place : place + 2] for place in range(max(1, len(word) - 1)))
        else:
            matches.add(word)
    return matches


def ranked(query: str, texts: Sequence[str]) -> list[int]:
    """The places of the texts that share a word with `query`, best first; equals stay in the order they are given.

    A word counts the more the fewer texts have it, so that "the" decides nothing.
    """
    wanted = words(query)
    shared = [wanted & words(text) for text in texts]
    spread = Counter(word for item in shared for word in item)
    # Fractions, since a sum of floats would depend on the order of a set.
    scores = [sum((Fraction(1, spread[word]) for word in item), Fraction(0)) for item in shared]
    return sorted((place for place, item in enumerate(shared) if item), key=lambda place: -scores[place])


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
        memories = await self._known(scope)
        best = ranked(text_of(message), [memory.text for memory in memories])
        return Retrieved(len(best), [memories[place].text for place in best[: self._limit]])

    async def update(self, scope: Scope, messages: Sequence[Message]) -> Updated | None:
        return await self._keep(scope, messages, "run")

    async def before_compact(self, scope: Scope, messages: Sequence[Message]) -> Json | None:
        """Keep the facts of what is about to be lost."""
        # A run may be compacted more than once; each time is known by what was there.
        updated = await self._keep(scope, messages, f"compaction {codec.digest(list(messages))[:16]}")
        return {"memories_created": updated.created, "memories_updated": updated.updated}

    async def after_compact(self, scope: Scope, messages: Sequence[Message]) -> Json | None:
        memories = await self._known(scope)
        return {"messages": len(messages), "tokens": estimate_all(messages), "memories": len(memories)}

    async def _keep(self, scope: Scope, messages: Sequence[Message], occasion: str) -> Updated:
        memories = await self._known(scope)
        source = {"run_id": str(scope.run.id), "occasion": occasion}
        done = [memory for memory in memories if memory.metadata.items() >= source.items()]
        if not done:
            done = await self._kept(scope, await self._facts(scope, messages, memories), memories, source)
        created = sum(memory.id == _id(scope, occasion, number) for number, memory in _numbered(done))
        return Updated(created, len(done) - created)

    async def _kept(
        self, scope: Scope, matches: Sequence[str], memories: Sequence[Memory], source: Json
    ) -> list[Memory]:
        """Write the facts, those that are known already in their old place."""
        now = scope.store.clock.now()
        places = {same(memory.text): memory for memory in memories}
        records: list[Memory] = []
        for number, text in enumerate(matches, start=1):
            metadata = {**source, "number": number}
            old = places.get(same(text))
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
        """The memories of whom this is about, the newest first."""
        whose: Json = {"project": scope.head.project, "user_id": scope.head.user_id, "kind": "memory"}
        if self._by_agent:
            whose["agent"] = _agent(scope)
        memories = await scope.store.memories.list(**whose)
        return sorted(memories, key=lambda memory: (memory.updated_at, memory.id), reverse=True)


def _agent(scope: Scope) -> str | None:
    return scope.run.agent or scope.head.agent


def _id(scope: Scope, occasion: str, number: int) -> UUID:
    return foreign_id(scope.head.project, "memory", f"{scope.run.id} {occasion} {number}")


def _numbered(memories: Sequence[Memory]) -> list[tuple[int, Memory]]:
    return [(int(memory.metadata.get("number", 0)), memory) for memory in memories]
