"""Cases of stored datasets: convert between `Case` and `Example`, also for examples that LangSmith's clients wrote."""

from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, Final, NamedTuple, cast
from uuid import UUID

from lockstitch.agents.evals import dataset as datasets
from lockstitch.agents.evals.grader import Case
from lockstitch.agents.evals.recorded_runs import TITLE, RecordedRun, RecordedRuns
from lockstitch.errors import NotFound, Refused
from lockstitch.model import Dataset, Example, Json, codec, new_id
from lockstitch.store import Store
from lockstitch.store.datasets import DatasetRef, examples_of, find_dataset

PREFIX: Final = "dataset:"
"""Prefix of the name of a stored dataset, where a file could be meant."""

_PROPERTIES: Final = ("schema", "rubric")


class CaseSource(NamedTuple):
    """The cases of an evaluation, and where they come from."""

    title: str
    """Name of the file or of the dataset."""
    cases: list[Case]
    dataset_id: UUID | None = None
    """Id of the stored dataset; None for a file or a list."""
    version: int | None = None
    """Version of the stored dataset."""
    selection: RecordedRuns | None = None
    """The selection of recorded runs, if the cases were made of one."""


async def load_source(store: Store, dataset: "str | Path | Dataset | DatasetRef | RecordedRuns") -> CaseSource:
    """Return the cases of a file, of a stored dataset, or of recorded runs.

    `dataset:NAME`, `dataset:NAME@VERSION`, a `Dataset` and a `DatasetRef` are stored datasets. A `Path`, and a text
    that ends in `.jsonl` or `.csv` or names an existing file, is a file. Another text is the name of a stored dataset.

    Raises:
        NotFound: If the file, the dataset or the version does not exist.
        Refused: If a case is not valid, or there are none.
    """
    if isinstance(dataset, RecordedRuns):
        return CaseSource(TITLE, [case_of_run(each) for each in await dataset.read(store)], selection=dataset)
    if isinstance(dataset, Path) or (isinstance(dataset, str) and is_file(dataset)):
        return CaseSource(Path(dataset).name, datasets.load(dataset))
    if isinstance(dataset, DatasetRef):
        return await _stored(store, dataset)
    if isinstance(dataset, str) and not dataset.startswith(PREFIX):
        try:
            return await _stored(store, await find_dataset(store, dataset))
        except NotFound as exc:
            raise NotFound(f"{dataset} is neither a file nor a dataset: {exc}") from exc
    return await _stored(
        store, await find_dataset(store, dataset.removeprefix(PREFIX) if isinstance(dataset, str) else dataset)
    )


def is_file(text: str) -> bool:
    """True if a text names a file with cases, not a stored dataset."""
    if text.startswith(PREFIX):
        return False
    return Path(text).suffix.lower() in (".jsonl", ".csv") or Path(text).is_file()


async def _stored(store: Store, reference: DatasetRef) -> CaseSource:
    dataset, version = reference
    cases = await cases_of(store, dataset, version)
    if not cases:
        raise Refused(f"Dataset {reference.text} has no cases.")
    return CaseSource(dataset.name, cases, dataset.id, version)


async def cases_of(store: Store, dataset: Dataset, version: int | None = None) -> list[Case]:
    """Return the cases of one version of a dataset. Cases without a rubric get that of the dataset."""
    rubric = dataset.metadata.get("rubric")
    return [case_of(example, rubric) for example in await examples_of(store, dataset, version)]


def case_of(example: Example, rubric: Any = None) -> Case:
    """Return the case of an example. `rubric` is that of its dataset.

    The input is the member `input` of the inputs, or their only member, or all of them as JSON. The expected answer is
    the member `output` of the outputs, or their only member, or all of them.
    """
    outputs: Json = example.outputs or {}
    own = outputs.get("rubric")
    return Case(
        id=example.name or str(example.id),
        input=_input(example.inputs),
        expected=_expected(outputs),
        schema=outputs.get("schema"),
        metadata=example.metadata,
        rubric=rubric if own is None else own,
        source_run_id=example.source_run_id,
    )


def case_of_run(recorded: RecordedRun) -> Case:
    """Return the case of a recorded run."""
    expected = _expected(recorded.outputs or {})
    return Case(id=recorded.name, input=_input(recorded.inputs), expected=expected, source_run_id=recorded.run.id)


def _expected(outputs: Json) -> Any:
    answer = {key: value for key, value in outputs.items() if key not in _PROPERTIES}
    return answer.get("output", next(iter(answer.values())) if len(answer) == 1 else answer or None)


def _input(inputs: Json) -> str | list[Json]:
    value: Any = inputs.get("input", next(iter(inputs.values())) if len(inputs) == 1 else inputs)
    if isinstance(value, str) and value.strip():
        return value
    if isinstance(value, list):
        items = cast("list[Any]", value)
        if len(items) == 1 and isinstance(items[0], dict) and "content" in items[0]:
            # A list of messages with one message, as in LangSmith's datasets of chats.
            return _input({"input": items[0]["content"]})
        if items and all(isinstance(item, dict) and "type" in item for item in items):
            return cast("list[Json]", items)
    return codec.dumps(value).decode()


def fields_of(case: Case) -> Json:
    """Return the fields of the example of a case."""
    outputs = {"output": case.expected, "schema": case.schema, "rubric": case.rubric}
    known = {key: value for key, value in outputs.items() if value is not None}
    inputs = {"input": case.input if isinstance(case.input, str) else list(case.input)}
    return {"inputs": inputs, "outputs": known or None, "metadata": case.metadata}


def examples_for(store: Store, dataset_id: UUID, cases: Sequence[Case]) -> list[Example]:
    """Return new examples for cases, in their order. Ids of cases become names, except numbers that a file left out."""
    now = store.clock.now()
    return [
        Example(
            id=new_id(),
            project=store.project,
            dataset_id=dataset_id,
            name=case.id,
            **fields_of(case),
            # Examples are ordered by time.
            created_at=now + timedelta(microseconds=number),
            updated_at=now,
        )
        for number, case in enumerate(cases)
    ]


def row_of(example: Example) -> Json:
    """Return an example as a line of a JSONL file of cases."""
    case = case_of(example)
    values = {"id": case.id, "input": case.input, "expected": case.expected, "schema": case.schema}
    values |= {"rubric": case.rubric, "metadata": case.metadata}
    return {key: value for key, value in values.items() if value not in (None, {})}
