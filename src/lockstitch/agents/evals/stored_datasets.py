"""`Datasets`: list, create, change, read and export the datasets of a project. Results are JSON, as in the HTTP API."""

import csv
import io
from collections.abc import Collection, Sequence
from datetime import timedelta
from itertools import count
from types import EllipsisType
from typing import Any, Final
from uuid import UUID

from lockstitch.agents.evals import dataset as files
from lockstitch.agents.evals.judges import criteria_of
from lockstitch.agents.evals.stored_cases import case_of, fields_of, row_of
from lockstitch.errors import NotFound, Refused
from lockstitch.model import (
    Dataset,
    DatasetVersion,
    Example,
    Experiment,
    Json,
    as_id,
    codec,
    format_time,
    new_id,
    parse_time,
)
from lockstitch.store import Store, Where
from lockstitch.store.datasets import (
    DatasetRef,
    add_to_dataset,
    change_dataset,
    change_examples,
    create_dataset,
    delete_dataset,
    examples_of,
    find_dataset,
    get_example,
    versions_of,
)

MAX_CASES: Final = 10_000
"""Maximum number of cases in one change."""

_RAW: Final = ("inputs", "outputs")
_RAW_FIELDS: Final = frozenset({"id", *_RAW, "metadata", "splits"})
_RAW_TYPES: Final[dict[str, tuple[Any, str]]] = {
    "inputs": (dict, "a JSON object"),
    "outputs": ((dict, type(None)), "a JSON object"),
    "metadata": (dict, "a JSON object"),
    "splits": (list, "a list"),
}
_BATCH: Final = 500
_CSV_COLUMNS: Final = ("id", "input", "expected", "schema", "rubric", "metadata")


class Datasets:
    """The datasets of the project of a store.

    A dataset is named by its name or id. `name@3` is its version 3, for calls that read.

    Args:
        store: The store.
    """

    def __init__(self, store: Store) -> None:
        self._store = store

    async def list(self, *, search: str | None = None, limit: int = 50, after: str | None = None) -> Json:
        """Return `datasets` by name, each with the number of its `cases`, and the name after which the list continues.

        Args:
            search: Only datasets whose name contains this text.
            limit: Maximum number of datasets.
            after: Name of the last dataset of the previous page.
        """
        where = [Where("project", "=", self._store.project)]
        where += [Where("name", "contains", search)] if search else []
        where += [Where("name", ">", after)] if after is not None else []
        found = await self._store.datasets.find(*where, order=("name",), limit=limit + 1)
        datasets = found[:limit]
        numbers = await self._numbers(datasets)
        return {
            "datasets": [_dataset(dataset, numbers.get(dataset.id, 0)) for dataset in datasets],
            "next": datasets[-1].name if len(found) > limit else None,
        }

    async def _numbers(self, datasets: Sequence[Dataset]) -> dict[UUID, int]:
        """Return the number of cases of each dataset."""
        keys = [(dataset.id, dataset.version) for dataset in datasets if dataset.version]
        where = Where(("dataset_id", "number"), "in", keys)
        versions = await self._store.table(DatasetVersion).find(where) if keys else []
        numbers = {version.dataset_id: version.examples for version in versions}
        # Datasets of an earlier release have examples without a version.
        for dataset in datasets:
            if not dataset.version:
                numbers[dataset.id] = await self._store.examples.count(Where("dataset_id", "=", dataset.id))
        return numbers

    async def get(self, ref: str) -> Json:
        """Return a dataset with the number of its cases.

        Args:
            ref: Name or id, or `name@version`.

        Raises:
            NotFound: If the project has no such dataset, or the dataset no such version.
        """
        dataset, version = await find_dataset(self._store, ref)
        numbers = await self._numbers([dataset.changed(version=version)])
        return _dataset(dataset, numbers.get(dataset.id, 0))

    async def create(self, name: str, *, description: str | None = None, rubric: Any = None) -> Json:
        """Create a dataset and return it.

        Args:
            name: Name, unique within the project.
            description: Description.
            rubric: Criteria of cases without their own: texts, or objects with `criterion`, `name` and `weight`.

        Raises:
            Conflict: If the project has a dataset with this name.
        """
        fields = {"description": description, "metadata": {} if rubric is None else {"rubric": _rubric(rubric)}}
        return _dataset(await create_dataset(self._store, name, **fields), 0)

    async def edit(
        self,
        ref: str,
        *,
        name: str | None = None,
        description: str | EllipsisType | None = ...,
        rubric: Any = ...,
    ) -> Json:
        """Change the name, the description or the rubric of a dataset, and return it. The version stays.

        Args:
            ref: Name or id.
            name: New name. None: unchanged.
            description: New description. Ellipsis: unchanged.
            rubric: New rubric of cases without their own. None: no rubric. Ellipsis: unchanged.

        Raises:
            Conflict: If another dataset has the name.
        """
        dataset = (await find_dataset(self._store, ref)).dataset
        fields: Json = {"name": name} if name is not None else {}
        fields |= {"description": description} if description is not ... else {}
        if rubric is not ...:
            metadata = {key: value for key, value in dataset.metadata.items() if key != "rubric"}
            fields["metadata"] = metadata if rubric is None else {**metadata, "rubric": _rubric(rubric)}
        await change_dataset(self._store, dataset, **fields)
        return await self.get(str(dataset.id))

    async def delete(self, ref: str) -> Json:
        """Delete a dataset with all versions. Evaluations stay. Return its `id` and `name`.

        Args:
            ref: Name or id.
        """
        dataset = (await find_dataset(self._store, ref)).dataset
        await delete_dataset(self._store, dataset)
        return {"id": str(dataset.id), "name": dataset.name}

    async def versions(self, ref: str, *, limit: int = 50, before: int | None = None) -> Json:
        """Return the `versions` of a dataset, newest first, and the number before which the list continues.

        Args:
            ref: Name or id.
            limit: Maximum number of versions.
            before: Number of the last version of the previous page.
        """
        dataset = (await find_dataset(self._store, ref)).dataset
        found = await versions_of(self._store, dataset, limit=limit + 1, before=before)
        versions = found[:limit]
        return {
            "versions": [version.as_json() for version in versions],
            "next": versions[-1].number if len(found) > limit else None,
        }

    async def experiments(self, ref: str, *, limit: int = 50) -> Json:
        """Return the `experiments` on a dataset that LangSmith clients created, newest first.

        Args:
            ref: Name or id.
            limit: Maximum number of experiments.
        """
        dataset = (await find_dataset(self._store, ref)).dataset
        of_dataset = (Where("dataset_id", "=", dataset.id), Where("project", "=", dataset.project))
        found = await self._store.table(Experiment).find(*of_dataset, order=("-started_at", "-id"), limit=limit)
        return {"experiments": [experiment.as_json() for experiment in found]}

    async def cases(self, ref: str, *, limit: int = 50, after: str | None = None) -> Json:
        """Return the `cases` of one version, oldest first, its number, and the text after which the list continues.

        Args:
            ref: Name or id, or `name@version`.
            limit: Maximum number of cases.
            after: `next` of the previous page.
        """
        dataset, version = await find_dataset(self._store, ref)
        found = await examples_of(self._store, dataset, version, limit=limit + 1, after=_cursor(after))
        examples = found[:limit]
        last = examples[-1] if len(found) > limit else None
        return {
            "version": version,
            "cases": [case_json(example) for example in examples],
            "next": None if last is None else f"{format_time(last.created_at)}~{last.id}",
        }

    async def case(self, ref: str, case: str) -> Json:
        """Return one case.

        Args:
            ref: Name or id of the dataset, or `name@version`.
            case: Name or id of the case.

        Raises:
            NotFound: If this version of the dataset has no such case.
        """
        dataset, version = await find_dataset(self._store, ref)
        example = (await self._named(dataset, [case])).get(case) if version == dataset.version else None
        return case_json(example or await get_example(self._store, dataset, case, version))

    async def put(self, ref: str, cases: Sequence[Json], *, create: bool = False, replace: bool = False) -> Json:
        """Add or replace cases as one new version. Return the version and the numbers of changed cases.

        A case has the fields of a dataset file: `id`, `input`, `expected`, `schema`, `rubric`, `metadata`. Or it has
        `inputs` and `outputs` as objects, as LangSmith's clients write them, and `splits`. A case with the id of a
        stored case replaces it. A case without an id gets the next free number.

        Args:
            ref: Name or id of the dataset.
            cases: The cases.
            create: Create the dataset if the project has none with this name.
            replace: Remove all other cases.

        Raises:
            Refused: If a case is not valid. Nothing was written.
        """
        return await self._put(ref, list(enumerate(cases, start=1)), "cases", create=create, replace=replace)

    async def upload(
        self, ref: str, file_name: str, content: bytes, *, create: bool = True, replace: bool = False
    ) -> Json:
        """Add or replace the cases of a JSONL or CSV file as one new version. See `put`.

        Args:
            ref: Name or id of the dataset.
            file_name: Name of the file. It ends in `.csv` if the file is CSV.
            content: Content of the file.
            create: Create the dataset if the project has none with this name.
            replace: Remove all other cases.

        Raises:
            Refused: If a line is not valid. Nothing was written.
        """
        rows = files.rows_of(file_name, content)
        return await self._put(ref, rows, file_name, create=create, replace=replace)

    async def _put(
        self, ref: str, rows: Sequence[tuple[int, Json]], title: str, *, create: bool, replace: bool
    ) -> Json:
        if not 0 < len(rows) <= MAX_CASES:
            raise Refused(f"{title} has {len(rows)} cases. One change has 1 to {MAX_CASES:,}. Nothing was written.")
        # Check the rows before a dataset is created.
        _parsed(rows, title, {})
        dataset = await self._dataset(ref, create=create)
        stored = await self._named(dataset, [str(row["id"]).strip() for _, row in rows if _has_id(row)])
        free = await self._free_numbers(dataset, rows)
        now = self._store.clock.now()
        base: Json = {"project": dataset.project, "dataset_id": dataset.id}
        examples: list[Example] = []
        for number, (name, fields) in enumerate(_parsed(rows, title, free)):
            before = stored.get(name)
            if before is None:
                # Examples are ordered by time.
                times: Json = {"created_at": now + timedelta(microseconds=number), "updated_at": now}
                values: Json = {**base, "id": new_id(), "name": name, **fields, **times}
                examples.append(Example(**values))
            else:
                examples.append(before.changed(**before.validate_fields(fields)))
        kept = {example.id for example in examples}
        present = [example.id for example in await examples_of(self._store, dataset)] if replace else []
        return await self._change(dataset, examples, [id for id in present if id not in kept])

    async def remove(self, ref: str, cases: Collection[str]) -> Json:
        """Remove cases as one new version. Earlier versions still have them. See `put` for the result.

        Args:
            ref: Name or id of the dataset.
            cases: Names or ids of cases.

        Raises:
            NotFound: If the dataset does not have one of the cases. Nothing was written.
        """
        dataset = await self._dataset(ref, create=False)
        stored = await self._named(dataset, list(cases))
        missing = [case for case in cases if case not in stored]
        if missing:
            raise NotFound(f"Dataset {dataset.name} has no case {missing[0]}. Nothing was written.")
        return await self._change(dataset, [], [example.id for example in stored.values()])

    async def add(self, ref: str, sources: Collection[str], *, create: bool = True) -> Json:
        """Add runs to a dataset as cases, see `lockstitch.store.datasets.add_to_dataset`.

        Args:
            ref: Name or id of the dataset.
            sources: Threads (ids or keys) and runs (ids). A thread means its last finished run.
            create: Create the dataset if the project has none with this name.
        """
        return (await add_to_dataset(self._store, ref, sources, create=create)).as_json()

    async def export(self, ref: str, *, form: str = "jsonl") -> str:
        """Return the cases of one version as the text of a JSONL or CSV file.

        Args:
            ref: Name or id, or `name@version`.
            form: `jsonl` or `csv`.
        """
        rows = [row_of(example) for example in await examples_of(self._store, *await find_dataset(self._store, ref))]
        if form == "jsonl":
            return "".join(f"{codec.dumps(row).decode()}\n" for row in rows)
        if form != "csv":
            raise Refused(f"Format {form!r} is not valid. Use jsonl or csv.")
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(_CSV_COLUMNS)
        writer.writerows([_cell(row.get(column, "")) for column in _CSV_COLUMNS] for row in rows)
        return text.getvalue()

    async def _dataset(self, ref: str, *, create: bool) -> Dataset:
        try:
            dataset, version = await find_dataset(self._store, ref)
        except NotFound:
            if not create or "@" in ref:
                raise
            return await create_dataset(self._store, ref)
        if version != dataset.version:
            raise Refused(f"{DatasetRef(dataset, version).text} is an earlier version. Only the current one changes.")
        return dataset

    async def _named(self, dataset: Dataset, names: Sequence[str]) -> dict[str, Example]:
        """Return the cases with these names or ids, by the given text."""
        of_dataset = Where("dataset_id", "=", dataset.id)
        found: dict[str, Example] = {}
        for start in range(0, len(names), _BATCH):
            batch = names[start : start + _BATCH]
            ids = {str(id): name for name in batch if (id := as_id(name)) is not None}
            for example in await self._store.examples.find(of_dataset, Where("name", "in", batch)):
                found[str(example.name)] = example
            if ids:
                where = Where("id", "in", sorted(map(UUID, ids)))
                for example in await self._store.examples.find(of_dataset, where):
                    found.setdefault(ids[str(example.id)], example)
        return found

    async def _free_numbers(self, dataset: Dataset, rows: Sequence[tuple[int, Json]]) -> dict[int, str]:
        """Return names for the rows without an id: numbers that no case has, by line."""
        places = [place for place, (_, row) in enumerate(rows, start=1) if not _has_id(row)]
        lines = [rows[place - 1][0] for place in places]
        taken = {str(row["id"]).strip() for _, row in rows if _has_id(row)}
        first = await self._store.examples.count(Where("dataset_id", "=", dataset.id)) + min(places, default=0)
        names: dict[int, str] = {}
        numbers = (str(number) for number in count(first))
        while len(names) < len(lines):
            wanted = [next(numbers) for _ in lines[len(names) :]]
            used = taken | set(await self._named(dataset, wanted))
            names |= dict(zip(lines[len(names) :], [name for name in wanted if name not in used], strict=False))
        return names

    async def _change(self, dataset: Dataset, put: Sequence[Example], remove: Collection[UUID]) -> Json:
        version = await change_examples(self._store, dataset.id, put, remove=remove)
        return {
            "dataset": dataset.name,
            "dataset_id": str(dataset.id),
            "version": dataset.version if version is None else version.number,
            "added": 0 if version is None else version.added,
            "replaced": 0 if version is None else version.replaced,
            "removed": 0 if version is None else version.removed,
        }


def case_json(example: Example) -> Json:
    """Return an example as JSON, with the fields that a case has in a file."""
    case = case_of(example)
    fields = {"input": case.input, "expected": case.expected, "schema": case.schema, "rubric": case.rubric}
    values = example.as_json()
    return {"case": case.id, **fields, **{key: value for key, value in values.items() if key != "project"}}


def is_plain(example: Json) -> bool:
    """True if a case has exactly the fields of a case in a file, so that `input` and `expected` are all of it."""
    inputs: Json = example["inputs"]
    outputs: Json = example["outputs"] or {}
    return set(inputs) == {"input"} and set(outputs) <= {"output", "schema", "rubric"}


def _dataset(dataset: Dataset, cases: int) -> Json:
    return {**dataset.as_json(), "cases": cases}


def _has_id(row: Json) -> bool:
    return row.get("id") not in (None, "")


def _parsed(rows: Sequence[tuple[int, Json]], title: str, names: dict[int, str]) -> list[tuple[str, Json]]:
    """Return the id of each case and the fields of its example. Raises `Refused` with the line of an error."""
    named = [(line, row if _has_id(row) else {**row, "id": names.get(line, f"line {line}")}) for line, row in rows]
    native = {line: row for line, row in named if not any(field in row for field in _RAW)}
    cases = {case.line: case for case in files.cases(native.items(), title)} if native else {}
    result: dict[str, Json] = {}
    for line, row in named:
        if line in cases:
            name, fields = cases[line].id, fields_of(cases[line])
        else:
            name, fields = _raw(title, line, row)
        if name in result:
            raise Refused(f"{title}, line {line}: the id {name!r} is used twice. Nothing was written.")
        result[name] = fields
    return list(result.items())


def _raw(title: str, line: int, row: Json) -> tuple[str, Json]:
    unknown = sorted(row.keys() - _RAW_FIELDS)
    problem = f"a case with inputs and outputs has no field {unknown[0]!r}" if unknown else None
    for field, (kinds, text) in _RAW_TYPES.items():
        if field in row and not isinstance(row[field], kinds):
            problem = problem or f"`{field}` must be {text}"
    if not row.get("inputs"):
        problem = problem or "`inputs` is missing"
    if problem:
        raise Refused(f"{title}, line {line}: {problem}. Nothing was written.")
    fields = {key: value for key, value in row.items() if key != "id"}
    fields.setdefault("outputs", None)
    return str(row["id"]).strip(), fields


def _rubric(rubric: Any) -> Any:
    try:
        criteria_of(rubric)
    except ValueError as exc:
        raise Refused(f"The rubric is not valid: {exc}. Nothing was written.") from exc
    return rubric


def _cursor(after: str | None) -> Any:
    if after is None:
        return None
    moment, _, id = after.partition("~")
    try:
        return parse_time(moment), UUID(id)
    except ValueError as exc:
        raise Refused(f"{after!r} is not the end of a page of cases.") from exc


def _cell(value: Any) -> str:
    return value if isinstance(value, str) else codec.dumps(value).decode()
