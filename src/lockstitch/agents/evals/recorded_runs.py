"""`RecordedRuns`: a selection of recorded runs as cases. `replayed`: the answer of a replay of one of them."""

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Final, NamedTuple
from uuid import UUID

from lockstitch.agents.agent import Agent
from lockstitch.agents.replays import replay
from lockstitch.engine.result import Result, result_from_store
from lockstitch.errors import Refused
from lockstitch.model import Json, Run
from lockstitch.model.moment import moment
from lockstitch.store import Store
from lockstitch.store.datasets import content_of, finished_run

TITLE: Final = "recorded runs"
"""Name of the cases of a selection, where a dataset has its name."""

MAX_RUNS: Final = 1_000
"""Maximum number of runs in a selection. A dataset can have more."""

MAX_ID: Final = 100
"""Maximum characters of the id of a case."""


class RecordedRun(NamedTuple):
    """A recorded run as a case."""

    run: Run
    key: str | None
    """Key of its thread."""
    inputs: Json
    outputs: Json | None

    @property
    def name(self) -> str:
        """The key of its thread with the number of the run, or the id of the run. It is always the same."""
        name = f"{self.key}#{self.run.sequence}"
        return name if self.key and len(name) <= MAX_ID else str(self.run.id)


@dataclass(frozen=True, slots=True)
class RecordedRuns:
    """Recorded runs as the cases of an evaluation: the input of each run, and its answer as the expected one.

    The runs are those of `sources`, or the last finished runs of the threads that match all filters of `where`.

    Example:
        ```python
        RecordedRuns(["customer-42"])
        RecordedRuns(where=["tag=vip", "since=7d"], limit=50)
        ```
    """

    sources: Sequence[str | UUID] = ()
    """Threads (ids or keys) and runs (ids). A thread means its last finished run."""
    where: Sequence[str] = ()
    """Filters of the form `field=value`, for the latest threads. Fields: `agent`, `user`, `status`, `kind`, `model`,
    `version`, `tag`, `error`, `min_cost`, `since`, `until` and `metadata.KEY`."""
    limit: int = 100
    """Maximum number of threads that `where` selects, at most 1,000."""

    def as_json(self) -> Json:
        """Return the selection as JSON."""
        return {"sources": [str(source) for source in self.sources], "where": [*self.where], "limit": self.limit}

    async def read(self, store: Store) -> list["RecordedRun"]:
        """Return the runs with their inputs and outputs.

        Args:
            store: Store of the runs.

        Raises:
            NotFound: If a thread or run does not exist.
            Refused: If a filter is not valid, there are no runs, or a run has no input.
        """
        if bool(self.sources) == bool(self.where):
            raise Refused("Select recorded runs either by threads and runs or by filters.")
        if len(self.sources) > MAX_RUNS or not 1 <= self.limit <= MAX_RUNS:
            raise Refused(f"A selection has 1 to {MAX_RUNS:,} runs. Add more runs to a dataset.")
        runs: dict[UUID, Run] = {}
        async with aclosing(self._sources(store)) as sources:
            async for source in sources:
                run = await finished_run(store, str(source))
                if run is not None:
                    runs[run.id] = run
                elif self.sources:
                    raise Refused(f"Thread {source} has no finished run.")
        contents = [(run, await content_of(store, run)) for run in runs.values()]
        empty = next((run for run, content in contents if content is None), None)
        if empty is not None and self.sources:
            raise Refused(f"Run {empty.id} has no input.")
        heads = await store.threads_by_id({run.thread_id for run in runs.values()})
        keys = {run.id: heads[run.thread_id].key for run in runs.values() if run.thread_id in heads}
        found = [RecordedRun(run, keys.get(run.id), *content) for run, content in contents if content is not None]
        if not found:
            raise Refused("No thread with a finished run matches the filters.")
        return found

    async def _sources(self, store: Store) -> AsyncGenerator[str | UUID]:
        for source in self.sources:
            yield source
        if self.sources:
            return
        filters, number, after = _filters(self.where, store), 0, None
        # Runs of evaluations are no recorded conversations.
        while page := await store.threads(**filters, evaluations=False, limit=self.limit, after=after):
            after = page[-1]
            for head in page:
                # A replay is replayed by its source.
                if head.kind == "replay":
                    continue
                yield head.id
                number += 1
                if number == self.limit:
                    return


def _filters(where: Sequence[str], store: Store) -> dict[str, Any]:
    """Return the filters for `Store.threads`. Raises `Refused` for an unknown field or value."""
    filters: dict[str, Any] = {"tag": [], "metadata": {}}
    readers: Mapping[str, Callable[[str], Any]] = {
        **dict.fromkeys(("agent", "status", "kind", "model"), str),
        "version": int,
        "min_cost": float,
        "error": lambda text: text or True,
        "since": lambda text: moment(text, store.clock.now(), "since"),
        "until": lambda text: moment(text, store.clock.now(), "until"),
    }
    for condition in where:
        field, equals, text = condition.partition("=")
        if equals and field.startswith("metadata."):
            filters["metadata"][field.removeprefix("metadata.")] = text
        elif equals and field == "tag":
            filters["tag"].append(text)
        elif equals and field == "user":
            filters["user_id"] = text
        elif equals and field in readers:
            try:
                filters[field] = readers[field](text)
            except Refused:
                raise
            except ValueError:
                raise Refused(f"{condition!r} is not valid: {text!r} is not a number.") from None
        else:
            known = ", ".join(("user", "tag", "metadata.KEY", *readers))
            raise Refused(f"{condition!r} is not a filter. Use FIELD=VALUE with one of: {known}.")
    return filters


class Replayed(NamedTuple):
    """The answer of a replay of the recorded run of a case."""

    result: Result
    about: Json
    """The recorded run, whether calls and answer are the same, and the call at which the replay stopped."""


async def replayed(
    source: UUID, agent: Agent, version: int, *, store: Store, key: str, live_safe: bool, deps: Any
) -> Replayed:
    """Replay a recorded run, or continue the replay with this key, and return its answer."""
    run = await store.run(source)
    report = await replay(run, agent, store=store, version=version, key=key, live_safe=live_safe, deps=deps)
    if not report.turns:
        raise Refused(f"Replay {report.thread.id} ended before its run.")
    about: Json = {
        "source_run_id": str(source),
        "same_calls": report.same_calls,
        "same": report.same,
        "diverged": None if report.divergence is None else report.divergence.as_json(),
    }
    return Replayed(await result_from_store(store, report.turns[-1].run), about)
