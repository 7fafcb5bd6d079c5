"""Number the passages that a chat finds, and resolve the citations of its answers."""

import re
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple
from uuid import UUID

from lockstitch import Conflict, NotFound, Run, Store, Thread
from lockstitch.apps.notebooks.passages import best
from lockstitch.apps.notebooks.readers.reader import Location, clean
from lockstitch.apps.notebooks.records import EXTENSION, Citation, Finding, Passage, Source
from lockstitch.apps.notebooks.search import Key, RankedPassage, passages_of
from lockstitch.ext import Json, Where

_GROUP: Final = re.compile(
    r"(?<![\\!])\[\s*(\d{1,4}(?:\s*(?:[,;\u2013-]|and)\s*\d{1,4})*)\s*\](?!\(|:\s*\S+://)"
    r"|【\s*(\d{1,4})[^】]{0,40}】"
)
_CODE: Final = re.compile(r"```.*?(?:```|\Z)|`[^`\n]*`", re.DOTALL)
_NUMBER: Final = re.compile(r"\d+")
_RANGE: Final = re.compile(r"(\d+)\s*[\u2013-]\s*(\d+)")
_MOST: Final = 50
"""Maximum size of a range in brackets."""


class Mention(NamedTuple):
    """A bracket with citations in an answer: its range and its numbers."""

    start: int
    end: int
    numbers: tuple[int, ...]


def mentions(answer: str) -> list[Mention]:
    """Return the citations of an answer, in order. Brackets in code and in links are not citations."""
    code = deque(match.span() for match in _CODE.finditer(answer))
    matches: list[Mention] = []
    for match in _GROUP.finditer(answer):
        # Both sequences are in text order.
        while code and code[0][1] <= match.start():
            code.popleft()
        if code and code[0][0] <= match.start():
            continue
        numbers = _numbers(match[1] or match[2])
        if numbers:
            matches.append(Mention(match.start(), match.end(), numbers))
    return matches


def cited_numbers(answer: str) -> list[int]:
    """Return the distinct numbers that an answer cites, in order of their first use."""
    return list(dict.fromkeys(number for mention in mentions(answer) for number in mention.numbers))


def _numbers(group: str) -> tuple[int, ...]:
    spread = _RANGE.sub(lambda match: _spread(int(match[1]), int(match[2])), group)
    return tuple(dict.fromkeys(int(number) for number in _NUMBER.findall(spread) if int(number) > 0))


def _spread(first: int, last: int) -> str:
    if not first <= last < first + _MOST:
        return f"{first} {last}"
    return " ".join(str(number) for number in range(first, last + 1))


_ATTEMPTS: Final = 20


async def number(store: Store, thread: Thread, run_id: UUID, query: str, matches: Sequence[RankedPassage]) -> list[int]:
    """Return the numbers that cite these passages in a thread. Passages that have a number keep it.

    Idempotent: a second call after a crash returns the same numbers.
    """
    return [await _number(store, thread, run_id, query, match, len(matches)) for match in matches]


async def findings(store: Store, thread_id: UUID, numbers: Sequence[int] | None = None) -> list[Finding]:
    """Return the findings of a thread with these numbers, or all findings."""
    where = [Where("thread_id", "=", thread_id)]
    if numbers is not None:
        where.append(Where("number", "in", list(numbers)))
    return await store.table(Finding).find(*where, order=("number",))


async def citations(store: Store, run: Run, answer: str) -> list[Citation]:
    """Return the citations of an answer. Numbers without a finding are ignored."""
    numbers = [cited_number for cited_number in cited_numbers(answer) if cited_number < 2**31]
    if not numbers:
        return []
    known = {finding.number for finding in await findings(store, run.thread_id, numbers)}
    known_numbers = [number for number in numbers if number in known]
    return [
        Citation(run_id=run.id, place=place, thread_id=run.thread_id, number=number)
        for place, number in enumerate(known_numbers, start=1)
    ]


async def _number(store: Store, thread: Thread, run_id: UUID, query: str, result: RankedPassage, among: int) -> int:
    passage = result.passage
    where = (
        Where("thread_id", "=", thread.id),
        Where("source_id", "=", passage.source_id),
        Where("passage", "=", passage.number),
    )
    for _ in range(_ATTEMPTS):
        finding = await store.table(Finding).first(*where)
        if finding is not None:
            return finding.number
        new: Sequence[Any] = await store.execute(
            EXTENSION,
            "finding_new",
            thread=thread.id,
            source=passage.source_id,
            passage=passage.number,
            run=run_id,
            query=clean(query)[:500],
            found_by=result.found_by,
            rank=result.rank,
            among=among,
            now=store.clock.now(),
        )
        if new:
            return int(new[0][0])
    raise Conflict(f"Other runs are numbering passages of thread {thread.id}. Try again.", thread_id=thread.id)


_AROUND: Final = 240
"""Maximum number of characters that are shown of the passages before and after."""


@dataclass(frozen=True, slots=True)
class CitationView:
    """The passage that a number cites in a chat. `source` is None if the source was removed."""

    finding: Finding
    source: Source | None = None
    place: Location | None = None
    before: str = ""
    quote: str = ""
    """The highlighted sentences: those that match the statement or the query best."""
    after: str = ""

    @property
    def number(self) -> int:
        return self.finding.number

    @property
    def where(self) -> str:
        """The location for people: page 17 of 84."""
        if self.source is None or self.place is None:
            return "This source was removed."
        if self.source.pages and self.place.page is not None:
            return f"{self.place.words.partition(',')[0]} of {self.source.pages}"
        return self.place.words

    @property
    def search_summary(self) -> str:
        """How the search found it: found by words and meaning, rank 1 of 6."""
        return f"found by {self.finding.found_by}, rank {self.finding.rank} of {self.finding.among}"

    def as_json(self) -> Json:
        place = self.place
        return {
            "number": self.number,
            "source_id": str(self.source.id) if self.source is not None else None,
            "source": self.source.name if self.source is not None else None,
            "where": self.where,
            "page": place.page if place else None,
            "heading": place.heading if place else None,
            "line": place.line if place else None,
            "start": place.start if place else None,
            "end": place.end if place else None,
            "before": self.before,
            "quote": self.quote,
            "after": self.after,
            "query": self.finding.query,
            "found_by": self.finding.found_by,
            "rank": self.finding.rank,
            "among": self.finding.among,
        }


async def cited(store: Store, thread: Thread, number: int, *, statement: str = "") -> CitationView:
    """Return the passage that a number cites in a chat. Raises `NotFound` if the chat has no such number.

    `statement` is the text that cites the number. The sentences that match it best are highlighted.
    """
    matches = await findings(store, thread.id, [number]) if 0 < number < 2**31 else []
    if not matches:
        raise NotFound(f"Session {thread.key or thread.id} has no citation [{number}].")
    return (await _resolved(store, matches, statement))[0]


async def citations_of(store: Store, run_id: UUID) -> list[CitationView]:
    """Return the citations of the answer of a run, in order."""
    return (await citations_of_runs(store, [run_id])).get(run_id, [])


async def citations_of_runs(store: Store, run_ids: Sequence[UUID]) -> dict[UUID, list[CitationView]]:
    """Return the citations of several runs of one thread. Runs without citations are left out."""
    if not run_ids:
        return {}
    where = (Where("run_id", "in", list(run_ids)),)
    rows = await store.table(Citation).find(*where, order=("run_id", "place"))
    if not rows:
        return {}
    numbers = sorted({citation.number for citation in rows})
    resolved = {
        citation_view.number: citation_view
        for citation_view in await _resolved(store, await findings(store, rows[0].thread_id, numbers))
    }
    citation_views: dict[UUID, list[CitationView]] = {}
    for citation in rows:
        if citation.number in resolved:
            citation_views.setdefault(citation.run_id, []).append(resolved[citation.number])
    return citation_views


async def _resolved(store: Store, findings: Sequence[Finding], text: str = "") -> list[CitationView]:
    ids = {finding.source_id for finding in findings if finding.source_id is not None}
    where = (Where("id", "in", list(ids)), Where("project", "=", store.project))
    sources = {source.id: source for source in await store.table(Source).find(*where)} if ids else {}
    keys = [
        (finding.source_id, number)
        for finding in findings
        if finding.source_id is not None
        for number in (finding.passage - 1, finding.passage, finding.passage + 1)
    ]
    passages = await passages_of(store, [key for key in keys if key[1] > 0])
    return [_cited(finding, sources, passages, text) for finding in findings]


def _cited(
    finding: Finding, sources: Mapping[UUID, Source], passages: Mapping[Key, Passage], text: str = ""
) -> CitationView:
    source = sources.get(finding.source_id) if finding.source_id is not None else None
    passage = passages.get((source.id, finding.passage)) if source is not None else None
    if source is None or passage is None:
        return CitationView(finding)
    ahead, behind = passages.get((source.id, passage.number - 1)), passages.get((source.id, passage.number + 1))
    mark = best(passage.text, text or finding.query)
    before = _tail(ahead.text if ahead else "") + passage.text[: mark.start]
    after = passage.text[mark.end :] + _head(behind.text if behind else "")
    start = passage.start_at + mark.start
    line = passage.line + passage.text.count("\n", 0, mark.start)
    place = passage.place._replace(start=start, end=passage.start_at + mark.end, line=line)
    return CitationView(finding, source, place, before.lstrip(), passage.text[mark.start : mark.end], after.rstrip())


def _tail(text: str) -> str:
    """Return the end of a text, from a word boundary on."""
    if len(text) <= _AROUND:
        return text
    cut = text[-_AROUND:]
    return f"… {cut.partition(' ')[2] or cut}"


def _head(text: str) -> str:
    if len(text) <= _AROUND:
        return text
    cut = text[:_AROUND]
    return f"{cut.rpartition(' ')[0] or cut} …"
