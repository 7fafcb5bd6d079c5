"""Findings: the passages that were found in a chat, numbered there once and for all, and which of them answers cite."""

from collections.abc import Sequence
from typing import Any, Final
from uuid import UUID

from lockstitch.apps.notebooks.citing import cited_numbers
from lockstitch.apps.notebooks.finding import Found
from lockstitch.apps.notebooks.reader import clean
from lockstitch.apps.notebooks.records import Citation, Finding
from lockstitch.apps.notebooks.tables import EXTENSION
from lockstitch.backend import Find, Where
from lockstitch.errors import Conflict
from lockstitch.records import Run, Thread
from lockstitch.store import Store

_ATTEMPTS: Final = 20


async def number(store: Store, thread: Thread, run_id: UUID, query: str, found: Sequence[Found]) -> list[int]:
    """The numbers by which these passages are cited in a thread; those found before keep theirs.

    Called again after a crash it gives the same.
    """
    return [await _number(store, thread, run_id, query, one, len(found)) for one in found]


async def findings(store: Store, thread_id: UUID, numbers: Sequence[int] | None = None) -> list[Finding]:
    """The findings of a thread by their numbers, or all of them."""
    where = [Where("thread_id", "=", thread_id)]
    if numbers is not None:
        where.append(Where("number", "in", list(numbers)))
    return await store.backend.find(Find(Finding, where, order=("number",)))


async def citations(store: Store, run: Run, answer: str) -> list[Citation]:
    """What an answer cites of what was found in its thread; a number that nobody found is none."""
    numbers = [one for one in cited_numbers(answer) if one < 2**31]
    if not numbers:
        return []
    known = {finding.number for finding in await findings(store, run.thread_id, numbers)}
    there = [one for one in numbers if one in known]
    return [
        Citation(run_id=run.id, place=place, thread_id=run.thread_id, number=number)
        for place, number in enumerate(there, start=1)
    ]


async def _number(store: Store, thread: Thread, run_id: UUID, query: str, found: Found, among: int) -> int:
    passage = found.passage
    where = (
        Where("thread_id", "=", thread.id),
        Where("source_id", "=", passage.source_id),
        Where("passage", "=", passage.number),
    )
    for _ in range(_ATTEMPTS):
        known = await store.backend.find(Find(Finding, where, limit=1))
        if known:
            return known[0].number
        new: Sequence[Any] = await store.tell(
            EXTENSION,
            "finding_new",
            thread=thread.id,
            source=passage.source_id,
            passage=passage.number,
            run=run_id,
            query=clean(query)[:500],
            found_by=found.found_by,
            rank=found.rank,
            among=among,
            now=store.clock.now(),
        )
        if new:
            return int(new[0][0])
    raise Conflict(f"Others number what is found in thread {thread.id} all the time; try again.", thread_id=thread.id)
