"""`runs_to_annotate()`: the finished runs of threads, one after the other, without those that a user has rated."""

from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

from lockstitch.backend import Where
from lockstitch.errors import Refused
from lockstitch.model import TERMINAL_STATUSES, Json, Run, Thread, as_id
from lockstitch.store.datasets import content_of
from lockstitch.store.store import Store

_PAGE: Final = 50
"""Number of threads per query."""
_MOST: Final = 1_000
"""Maximum number of threads that one call reads."""


@dataclass(frozen=True, slots=True)
class RunsToAnnotate:
    """A page of the queue."""

    runs: list[Run]
    """The runs: those of one thread together, the latest first."""
    next: str | None
    """The place after the last run, for `after`. None: the queue ends here."""

    async def as_json(self, store: Store) -> Json:
        """Return the page as JSON: each run with its `inputs` and `outputs`, as a case of a dataset has them.

        Args:
            store: The store of the runs.
        """
        contents = [await content_of(store, run) or (None, None) for run in self.runs]
        rows = [
            {"run": run.as_json(), "inputs": inputs, "outputs": outputs}
            for run, (inputs, outputs) in zip(self.runs, contents, strict=True)
        ]
        return {"runs": rows, "next": self.next}


def place_of(run: Run) -> str:
    """Return the place of a run in the queue, for `after`.

    Args:
        run: The run.
    """
    return f"{run.thread_id}:{run.sequence}"


async def runs_to_annotate(
    store: Store,
    *,
    without_feedback_of: str | None = None,
    name: str | None = None,
    limit: int = 50,
    after: str | None = None,
    backwards: bool = False,
    sort: Any = "time",
    ascending: bool = False,
    **filters: Any,
) -> RunsToAnnotate:
    """Return finished runs of the threads that meet filters. Runs of team members are left out.

    A call reads at most 1,000 threads, so a page can have fewer runs than `limit` and still a next page.

    Args:
        store: The store.
        without_feedback_of: Only runs without feedback of this user.
        name: Only feedback with this name counts. None: all feedback of the user.
        limit: Maximum number of runs.
        after: Place after which the page starts: `next` of the previous page, or `place_of(run)`.
        backwards: Return the runs before this place, the nearest first.
        sort: Order of the threads, as for `Store.threads`.
        ascending: Start with the lowest value, as for `Store.threads`.
        filters: The filters of `Store.threads`.

    Raises:
        NotFound: If the thread of the place does not exist.
        Refused: If a filter, the order or the place is not valid.
    """
    last: Thread | None = None
    runs: list[Run] = []
    direction = "sequence" if backwards else "-sequence"
    if after:
        thread_id, number = _parse_place(after)
        last = await store.thread(thread_id)
        beside = Where("sequence", ">" if backwards else "<", number)
        runs = await _unrated(store, [last], without_feedback_of, name, direction, beside)
    filters |= {"sort": sort, "ascending": ascending != backwards}
    for _ in range(_MOST // _PAGE):
        if len(runs) >= limit:
            break
        threads = await store.threads(limit=_PAGE, after=last, **filters)
        runs += await _unrated(store, threads, without_feedback_of, name, direction)
        if len(threads) < _PAGE:
            return RunsToAnnotate(runs[:limit], place_of(runs[limit - 1]) if len(runs) > limit else None)
        last = threads[-1]
    if len(runs) >= limit:
        return RunsToAnnotate(runs[:limit], place_of(runs[limit - 1]))
    assert last is not None
    return RunsToAnnotate(runs, f"{last.id}:{_BEYOND if backwards else 0}")


_BEYOND: Final = 2**53
"""A number that no run of a thread has."""


def _parse_place(text: str) -> tuple[UUID, int]:
    id, _, number = text.partition(":")
    thread_id = as_id(id)
    if thread_id is None or not (number.isascii() and number.isdigit() and len(number) <= 16):
        raise Refused(f"The place {text[:80]!r} is not valid. Use `next` of the previous page.")
    return thread_id, int(number)


async def _unrated(
    store: Store, threads: list[Thread], user_id: str | None, name: str | None, order: str, *where: Where
) -> list[Run]:
    """Return the finished runs of threads in the order of the threads. Two queries read all of them."""
    if not threads:
        return []
    ids = [thread.id for thread in threads]
    finished = (Where("parent_run_id", "is null"), Where("status", "in", sorted(TERMINAL_STATUSES)))
    runs = await store.find_runs(ids, *finished, *where, order=(order,))
    rated: set[UUID | None] = set()
    if user_id is not None and runs:
        given = [Where("thread_id", "in", ids), Where("user_id", "=", user_id), Where("run_id", "is not null")]
        given += [Where("name", "=", name)] if name is not None else []
        rated = {feedback.run_id for feedback in await store.feedback.find(*given)}
    places = {thread_id: place for place, thread_id in enumerate(ids)}
    return sorted((run for run in runs if run.id not in rated), key=lambda run: places[run.thread_id])
