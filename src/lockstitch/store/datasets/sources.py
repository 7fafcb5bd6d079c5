"""`add_to_dataset`: make cases of the runs of threads. The input becomes the case, the answer its expected output."""

from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Any, NamedTuple, cast
from uuid import UUID

from lockstitch.backend import Where
from lockstitch.errors import NotFound, Refused
from lockstitch.model import TERMINAL_STATUSES, Dataset, Example, Json, Run, Stitch, Thread, answer_of, foreign_id
from lockstitch.store.datasets.catalog import DatasetRef, create_dataset, find_dataset
from lockstitch.store.datasets.versions import change_examples, get_examples
from lockstitch.store.replays import recorded_source
from lockstitch.store.store import Store


class AddedCases(NamedTuple):
    """The result of `add_to_dataset`."""

    dataset: Dataset
    """The dataset with its new version."""
    added: list[Example]
    """The new cases."""
    known: list[UUID]
    """Ids of runs that were cases of the dataset already."""
    skipped: list[tuple[str, str]]
    """Threads and runs without an input, each with the reason."""

    def as_json(self) -> Json:
        """Return the result as JSON."""
        return {
            "dataset": self.dataset.name,
            "dataset_id": str(self.dataset.id),
            "version": self.dataset.version,
            "added": [str(example.id) for example in self.added],
            "known": [str(run_id) for run_id in self.known],
            "skipped": [{"id": id, "reason": reason} for id, reason in self.skipped],
        }


async def add_to_dataset(store: Store, name: str, sources: Iterable[str | UUID], *, create: bool = True) -> AddedCases:
    """Add runs to a dataset as cases, all in one new version. A run that is a case already is not added again.

    A case has the input of the run and, as expected output, its answer. A thread means its last finished run. The
    case is a copy: it stays if the thread is deleted.

    Args:
        store: The store.
        name: Name or id of the dataset.
        sources: Threads (ids or keys) and runs (ids).
        create: Create the dataset if the project has none with this name.

    Raises:
        NotFound: If a thread or run does not exist, or the dataset does not exist and `create` is False. Nothing was
            written.
    """
    runs: dict[UUID, Run] = {}
    skipped: list[tuple[str, str]] = []
    for source in dict.fromkeys(map(str, sources)):
        run = await finished_run(store, source)
        if run is None:
            skipped.append((source, "the thread has no finished run"))
        else:
            runs[run.id] = run
    contents: dict[UUID, tuple[Json, Json | None]] = {}
    for run in runs.values():
        content = await content_of(store, run)
        if content is None:
            skipped.append((str(run.id), "the run has no input"))
        else:
            contents[run.id] = content
    dataset = await _dataset(store, name, create=create)
    now = store.clock.now()
    examples = [
        Example(
            id=foreign_id(store.project, "native", f"example:{dataset.id}:{run_id}"),
            project=store.project,
            dataset_id=dataset.id,
            inputs=inputs,
            outputs=outputs,
            source_run_id=run_id,
            # Examples are ordered by time, and these in the order of their sources.
            created_at=now + timedelta(microseconds=number),
            updated_at=now,
        )
        for number, (run_id, (inputs, outputs)) in enumerate(contents.items())
    ]
    stored = {example.id for example in await get_examples(store, [example.id for example in examples])}
    await change_examples(store, dataset.id, examples, only_new=True)
    return AddedCases(
        (await find_dataset(store, dataset.id)).dataset,
        [example for example in examples if example.id not in stored],
        [example.source_run_id for example in examples if example.id in stored and example.source_run_id],
        skipped,
    )


async def _dataset(store: Store, name: str, *, create: bool) -> Dataset:
    try:
        dataset, version = await find_dataset(store, name)
    except NotFound:
        if not create or "@" in name:
            raise
        return await create_dataset(store, name)
    if version != dataset.version:
        raise Refused(f"{DatasetRef(dataset, version).text} is an earlier version. Cases are added to the current one.")
    return dataset


async def finished_run(store: Store, source: str) -> Run | None:
    """Return a run, or the last finished run of a thread. None: the thread has none.

    Args:
        store: The store.
        source: Id or key of a thread, or id of a run.

    Raises:
        NotFound: If the project has neither a thread nor a run with this name.
    """
    recorded = await recorded_source(store, source)
    if isinstance(recorded, Run):
        return recorded
    where = (Where("parent_run_id", "is null"), Where("status", "in", sorted(TERMINAL_STATUSES)))
    runs = await store.find_runs(recorded.id, *where, order=("-sequence",), limit=1)
    return runs[0] if runs else None


async def content_of(store: Store, run: Run) -> tuple[Json, Json | None] | None:
    """Return the inputs and the expected outputs of a case that is made of a run. None: the run has no input.

    Args:
        store: The store.
        run: The run.
    """
    head = await store.thread(run.thread_id)
    question = await _stitch(store, head, run.input_position)
    inputs = _inputs(head, run, question)
    if not inputs:
        return None
    answer = await _stitch(store, head, run.output_position)
    text = answer_of(answer.message) if answer is not None else ""
    output: Any = run.output if run.output is not None else text or (head.result or {}).get("summary")
    recorded: Any = None if question is None else question.data.get("outputs")
    if output is None and recorded:
        return inputs, _object(recorded, "output")
    return inputs, None if output is None else {"output": output}


def _inputs(head: Thread, run: Run, question: Stitch | None) -> Json:
    message = None if question is None or run.is_trace else question.message
    content: Any = None if message is None else message.get("content")
    if content:
        return {"input": content}
    recorded: Any = None if question is None else question.data.get("inputs")
    if recorded:
        return _object(recorded, "input")
    goal = run.state.get("said") or (head.goal if run.parent_run_id is None else None)
    return {"input": goal} if goal else {}


def _object(value: Any, name: str) -> Json:
    return cast("Json", value) if isinstance(value, dict) else {name: value}


async def _stitch(store: Store, head: Thread, position: int | None) -> Stitch | None:
    stitches: Sequence[Stitch] = await store.stitches(head, position, position) if position else ()
    return stitches[0] if stitches else None
