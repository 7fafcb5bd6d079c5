"""Datasets and examples of LangSmith's API v1."""

import csv
import io
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Annotated, Any, Final, cast
from uuid import UUID

from fastapi import APIRouter, Query, Request
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.datastructures import UploadFile
from starlette.responses import Response

from lockstitch.errors import Conflict, NotFound
from lockstitch.integrations.langsmith.multipart import parts_of
from lockstitch.model import Dataset, DatasetVersion, Example, ExampleFile, Json, as_id, codec, format_time, new_id
from lockstitch.server.api import responses
from lockstitch.server.api.schemas import ExactJSON, Name, TextParam
from lockstitch.server.auth import Caller, Reader, Writer
from lockstitch.server.ingest.langsmith.attachments import UrlSigner
from lockstitch.server.ingest.langsmith.query import aware, parsed_filter
from lockstitch.server.ingest.langsmith.sessions import TENANT, parsed_metadata
from lockstitch.server.ingest.langsmith.spans import read_span
from lockstitch.server.problems import Problem
from lockstitch.store import Store, Where, datasets
from lockstitch.store.datasets import (
    create_dataset,
    delete_dataset,
    delete_examples,
    examples_of,
    get_dataset,
    get_examples,
    put_examples,
    version_at,
    versions_of,
)

_PAGE: Final = 100
_PART: Final = 64 << 20
_SPLIT: Final = "dataset_split"
"""Key of the metadata of an example that LangSmith uses for its splits."""
_BASE: Final = "base"
"""Split of an example without a split, as in LangSmith."""


class NewDataset(BaseModel):
    """A new dataset."""

    model_config = ConfigDict(extra="allow")

    name: Name
    description: TextParam | None = None
    data_type: TextParam = "kv"
    extra: Json | None = None
    inputs_schema_definition: Json | None = None
    outputs_schema_definition: Json | None = None


class DatasetChange(BaseModel):
    """Changed fields of a dataset. None: unchanged."""

    model_config = ConfigDict(extra="allow")

    name: Name | None = None
    description: TextParam | None = None
    metadata: Json | None = None
    inputs_schema_definition: Json | None = None
    outputs_schema_definition: Json | None = None


class NewExample(BaseModel):
    """A new or changed example. None: not given."""

    model_config = ConfigDict(extra="allow")

    id: UUID | None = None
    dataset_id: UUID | None = None
    created_at: datetime | None = None
    inputs: Json | None = None
    outputs: Json | None = None
    metadata: Json | None = None
    split: Name | list[Name] | None = None
    source_run_id: UUID | None = None
    use_source_run_io: bool = False
    use_source_run_attachments: list[str] | None = None
    attachments_operations: Json | None = None


class SplitChange(BaseModel):
    """Examples to add to a split of a dataset, or to remove from it."""

    split_name: Name
    examples: list[UUID] = Field(max_length=10_000)
    remove: bool = False


class ExampleIds(BaseModel):
    """Examples to delete."""

    model_config = ConfigDict(extra="allow")

    example_ids: list[UUID] = Field(max_length=10_000)


async def dataset_json(store: Store, dataset: Dataset) -> Json:
    """Return a dataset in the format of LangSmith."""
    examples = await store.examples.count(Where("dataset_id", "=", dataset.id))
    on_dataset = (Where("dataset_id", "=", dataset.id), Where("project", "=", store.project))
    newest = await store.experiments.first(*on_dataset, order=("-started_at", "-id"))
    return {
        "id": str(dataset.id),
        "name": dataset.name,
        "description": dataset.description,
        "data_type": dataset.kind,
        "created_at": format_time(dataset.created_at),
        "modified_at": format_time(dataset.updated_at),
        "example_count": examples,
        "session_count": await store.experiments.count(*on_dataset),
        "last_session_start_time": format_time(newest.started_at) if newest else None,
        "inputs_schema_definition": dataset.inputs_schema,
        "outputs_schema_definition": dataset.outputs_schema,
        "transformations": None,
        "metadata": dataset.metadata,
        "tenant_id": TENANT,
    }


def example_json(example: Example, files: Iterable[ExampleFile] = (), signer: UrlSigner | None = None) -> Json:
    """Return an example in the format of LangSmith."""
    urls = {
        f"attachment.{file.name}": {
            "presigned_url": signer.url("examples", example.id, file.name),
            "mime_type": file.media_type,
        }
        for file in files
        if signer is not None
    }
    return {
        "id": str(example.id),
        "dataset_id": str(example.dataset_id),
        "name": example.name or f"#{str(example.id)[-4:]}",
        "inputs": example.inputs,
        "outputs": example.outputs,
        "metadata": {**example.metadata, _SPLIT: example.splits or [_BASE]},
        "source_run_id": str(example.source_run_id) if example.source_run_id else None,
        "created_at": format_time(example.created_at),
        "modified_at": format_time(example.updated_at),
        "attachment_urls": urls,
    }


async def _shown(
    request: Request, caller: Caller, examples: Sequence[Example], *, with_files: bool = True
) -> list[Json]:
    ids = [example.id for example in examples] if with_files else []
    files = await caller.store.table(ExampleFile).find(Where("example_id", "in", ids)) if ids else []
    signer = await UrlSigner.of(request, caller) if files else None
    return [
        example_json(example, [file for file in files if file.example_id == example.id], signer) for example in examples
    ]


# Datasets


async def add_dataset(caller: Writer, new: NewDataset) -> ExactJSON:
    """Create a dataset."""
    dataset = await create_dataset(
        caller.store,
        new.name,
        description=new.description,
        kind=new.data_type,
        metadata=(new.extra or {}).get("metadata") or {},
        inputs_schema=new.inputs_schema_definition,
        outputs_schema=new.outputs_schema_definition,
    )
    return ExactJSON(await dataset_json(caller.store, dataset))


async def upload_dataset(request: Request, caller: Writer) -> ExactJSON:
    """Create a dataset from a CSV file, or from JSON objects, one per line or in a list."""
    form = await request.form()
    file = form.get("file")
    if not isinstance(file, UploadFile):
        raise Problem(422, "Refused", "The form needs a file. Nothing was written.")
    inputs, outputs = ([str(key) for key in form.getlist(name)] for name in ("input_keys", "output_keys"))
    rows = _rows(await file.read(), str(file.filename or ""), str(file.content_type or ""))
    missing = sorted({key for key in (*inputs, *outputs) if any(key not in row for row in rows)})
    if missing or not inputs:
        problem = f"The file has no column {missing[0]}" if missing else "The form needs input_keys"
        raise Problem(422, "Refused", f"{problem}. Nothing was written.")
    store = caller.store
    name = str(form.get("name") or file.filename or "dataset")
    description = form.get("description")
    dataset = await create_dataset(
        store,
        codec.check_text(name, "The name"),
        description=str(description) if description else None,
        kind=str(form.get("data_type") or "kv"),
    )
    now = store.clock.now()
    examples = [
        Example(
            id=new_id(),
            project=store.project,
            dataset_id=dataset.id,
            inputs={key: row[key] for key in inputs},
            outputs={key: row[key] for key in outputs} if outputs else None,
            created_at=now,
            updated_at=now,
        )
        for row in rows
    ]
    await put_examples(store, dataset, examples)
    return ExactJSON(await dataset_json(store, dataset))


def _rows(content: bytes, filename: str, media_type: str) -> list[Json]:
    try:
        text = content.decode("utf-8-sig")
        if "json" not in media_type and not filename.endswith((".json", ".jsonl")):
            reader = csv.DictReader(io.StringIO(text, newline=""), strict=True)
            return [{str(key): value for key, value in row.items()} for row in reader]
        stripped = text.strip()
        values: Any = (
            codec.loads(stripped) if stripped.startswith("[") else list(map(codec.loads, stripped.splitlines()))
        )
    except (ValueError, csv.Error) as exc:
        raise Problem(422, "Refused", f"The file cannot be read: {exc}. Nothing was written.") from exc
    if not all(isinstance(value, dict) for value in values):
        raise Problem(422, "Refused", "Each example in the file must be a JSON object. Nothing was written.")
    return cast("list[Json]", values)


async def list_datasets(
    caller: Reader,
    id: Annotated[list[str] | None, Query()] = None,
    name: str | None = None,
    name_contains: str | None = None,
    data_type: Annotated[list[str] | None, Query()] = None,
    metadata: str | None = None,
    limit: Annotated[int, Query(ge=1, le=1000)] = _PAGE,
    offset: Annotated[int, Query(ge=0, le=1_000_000)] = 0,
) -> ExactJSON:
    """List datasets, newest first."""
    store = caller.store
    wanted = parsed_metadata(metadata)
    where = [Where("project", "=", store.project)]
    if name is not None:
        where.append(Where("name", "=", codec.check_text(name, "The name")))
    datasets = [
        dataset
        for dataset in await store.datasets.find(*where, order=("-created_at", "-id"))
        if (id is None or str(dataset.id) in id)
        and (name_contains or "").lower() in dataset.name.lower()
        and (not data_type or dataset.kind in data_type)
        and wanted.items() <= dataset.metadata.items()
    ]
    return ExactJSON([await dataset_json(store, dataset) for dataset in datasets[offset : offset + limit]])


async def read_dataset(caller: Reader, dataset_id: UUID) -> ExactJSON:
    """Return a dataset."""
    return ExactJSON(await dataset_json(caller.store, await get_dataset(caller.store, dataset_id)))


async def change_dataset(caller: Writer, dataset_id: UUID, change: DatasetChange) -> ExactJSON:
    """Change a dataset."""
    store = caller.store
    dataset = await get_dataset(store, dataset_id)
    fields: dict[str, Any] = {
        "name": change.name,
        "description": change.description,
        "metadata": change.metadata,
        "inputs_schema": change.inputs_schema_definition,
        "outputs_schema": change.outputs_schema_definition,
    }
    known = {name: value for name, value in fields.items() if value is not None}
    return ExactJSON(await dataset_json(store, await datasets.change_dataset(store, dataset, **known)))


async def remove_dataset(caller: Writer, dataset_id: UUID) -> Response:
    """Delete a dataset with its examples. Experiments on it stay."""
    dataset = await get_dataset(caller.store, dataset_id)
    await delete_dataset(caller.store, dataset)
    await caller.store.audits.record(caller.actor, "delete dataset", dataset.name)
    return Response(status_code=204)


async def list_splits(caller: Reader, dataset_id: UUID) -> ExactJSON:
    """List the names of the splits of a dataset."""
    dataset = await get_dataset(caller.store, dataset_id)
    examples = await caller.store.examples.find(Where("dataset_id", "=", dataset.id))
    return ExactJSON(sorted({split for example in examples for split in example.splits or [_BASE]}))


async def change_splits(caller: Writer, dataset_id: UUID, change: SplitChange) -> ExactJSON:
    """Add examples to a split, or remove them from it. Return the ids of the changed examples."""
    store = caller.store
    dataset = await get_dataset(store, dataset_id)
    changed: list[Example] = []
    for example in await get_examples(store, change.examples):
        if example.dataset_id != dataset.id or (change.split_name in example.splits) != change.remove:
            continue
        splits = [split for split in example.splits if split != change.split_name]
        splits += [] if change.remove else [change.split_name]
        changed.append(example.changed(splits=splits, updated_at=store.clock.now()))
    if changed:
        await put_examples(store, dataset, changed)
    return ExactJSON([str(example.id) for example in changed])


async def list_versions(
    caller: Reader,
    dataset_id: UUID,
    limit: Annotated[int, Query(ge=1, le=1000)] = _PAGE,
    offset: Annotated[int, Query(ge=0, le=1_000_000)] = 0,
) -> ExactJSON:
    """List the versions of a dataset, newest first. Each change of examples makes one."""
    dataset = await get_dataset(caller.store, dataset_id)
    versions = await versions_of(caller.store, dataset, limit=offset + limit)
    shown = [_version_json(dataset, version) for version in versions]
    return ExactJSON((shown or [{"as_of": format_time(dataset.updated_at), "tags": ["latest"]}])[offset:])


async def read_version(
    caller: Reader, dataset_id: UUID, tag: str | None = None, as_of: Annotated[str | None, Query()] = None
) -> ExactJSON:
    """Return the current version of a dataset, the version with a number as tag, or the version at a time."""
    dataset = await get_dataset(caller.store, dataset_id)
    moment = _as_of(as_of)
    number = dataset.version if moment is None else await version_at(caller.store, dataset, moment)
    if tag not in (None, "latest"):
        number = int(tag) if tag.isascii() and tag.isdigit() else 0
    version = next(iter(await versions_of(caller.store, dataset, limit=1, before=number + 1)), None)
    if version is not None and version.number == number:
        return ExactJSON(_version_json(dataset, version))
    if tag not in (None, "latest"):
        raise NotFound(f"Dataset {dataset.name} has no version {tag}. Use latest or a number up to {dataset.version}.")
    return ExactJSON({"as_of": format_time(dataset.updated_at), "tags": ["latest"]})


def _version_json(dataset: Dataset, version: DatasetVersion) -> Json:
    latest = ["latest"] if version.number == dataset.version else []
    return {"as_of": format_time(version.created_at), "tags": [*latest, str(version.number)]}


# Examples


async def list_examples(
    request: Request,
    caller: Reader,
    dataset: UUID | None = None,
    id: Annotated[list[UUID] | None, Query(max_length=1000)] = None,
    as_of: str | None = None,
    splits: Annotated[list[str] | None, Query()] = None,
    metadata: str | None = None,
    filter: str | None = None,
    select: Annotated[list[str] | None, Query(max_length=100)] = None,
    limit: Annotated[int, Query(ge=1, le=1000)] = _PAGE,
    offset: Annotated[int, Query(ge=0, le=1_000_000)] = 0,
) -> ExactJSON:
    """List examples in the order of their creation. The client selects `attachment_urls` to get files."""
    store = caller.store
    where = [Where("project", "=", store.project)]
    moment = _as_of(as_of)
    past: list[Example] | None = None
    if dataset is not None:
        stored = await get_dataset(store, dataset)
        where.append(Where("dataset_id", "=", dataset))
        if moment is not None:
            past = await examples_of(store, stored, await version_at(store, stored, moment))
            past = [example for example in past if id is None or example.id in id]
    if id is not None:
        where.append(Where("id", "in", sorted(set(id))))
    if moment is not None:
        where.append(Where("created_at", "<=", moment))
    wanted, expression = parsed_metadata(metadata), parsed_filter(filter)
    paged = not (splits or wanted or expression or past is not None)
    examples = (
        await store.examples.find(
            *where, order=("created_at", "id"), limit=limit if paged else None, offset=offset if paged else 0
        )
        if past is None
        else past
    )
    if not paged:
        examples = [
            example
            for example in examples
            if (not splits or set(splits) & set(example.splits or [_BASE]))
            and wanted.items() <= example.metadata.items()
            and (expression is None or expression.matches(_as_span(example)))
        ][offset : offset + limit]
    with_files = "attachment_urls" in (select or ())
    return ExactJSON(await _shown(request, caller, examples, with_files=with_files))


def _as_span(example: Example) -> Json:
    """Return an example in the form that a filter expression reads."""
    value = example_json(example)
    return {**value, "extra": {"metadata": value["metadata"]}, "start_time": value["created_at"]}


def _as_of(text: str | None) -> datetime | None:
    """Return the time of a version of a dataset. None: the current version."""
    if text is None or text == "latest":
        return None
    try:
        return aware(datetime.fromisoformat(text))
    except ValueError as exc:
        raise Problem(422, "Refused", f"as_of must be a time or latest, not {text!r}.") from exc


async def count_examples(caller: Reader, dataset: UUID) -> ExactJSON:
    """Return the number of examples of a dataset."""
    await get_dataset(caller.store, dataset)
    return ExactJSON(await caller.store.examples.count(Where("dataset_id", "=", dataset)))


async def _example(store: Store, example_id: UUID) -> Example:
    for example in await get_examples(store, [example_id]):
        return example
    raise NotFound(f"Example {example_id} not found in project {store.project}.")


async def read_example(request: Request, caller: Reader, example_id: UUID) -> ExactJSON:
    """Return an example."""
    (value,) = await _shown(request, caller, [await _example(caller.store, example_id)])
    return ExactJSON(value)


async def add_example(request: Request, caller: Writer, new: NewExample) -> ExactJSON:
    """Create an example."""
    (example,) = await _create(caller.store, [new], _required(new.dataset_id))
    (value,) = await _shown(request, caller, [example])
    return ExactJSON(value)


async def add_examples(request: Request, caller: Writer, new: list[NewExample]) -> ExactJSON:
    """Create examples of one dataset."""
    if not new or len({each.dataset_id for each in new}) > 1:
        raise Problem(422, "Refused", "The examples must belong to one dataset. Nothing was written.")
    examples = await _create(caller.store, new, _required(new[0].dataset_id))
    return ExactJSON(await _shown(request, caller, examples))


async def change_example(caller: Writer, example_id: UUID, change: NewExample) -> ExactJSON:
    """Change an example."""
    await _change(caller.store, [change.model_copy(update={"id": example_id})])
    return ExactJSON({"message": f"{example_id} updated", "count": 1, "example_ids": [str(example_id)]})


async def change_examples(caller: Writer, changes: list[NewExample]) -> ExactJSON:
    """Change examples."""
    ids = await _change(caller.store, changes)
    return ExactJSON({"message": f"{len(ids)} examples updated", "count": len(ids), "example_ids": ids})


async def upload_examples(request: Request, caller: Writer, dataset_id: UUID) -> ExactJSON:
    """Create examples of a dataset, with files, from a multipart body."""
    new, files = await _from_parts(request, caller.store)
    examples = await _create(caller.store, new, dataset_id, files)
    ids = [str(example.id) for example in examples]
    return ExactJSON({"count": len(ids), "example_ids": ids, "as_of": format_time(caller.store.clock.now())}, 201)


async def update_examples(request: Request, caller: Writer, dataset_id: UUID) -> ExactJSON:
    """Change examples of a dataset and their files, from a multipart body."""
    changes, files = await _from_parts(request, caller.store)
    await get_dataset(caller.store, dataset_id)
    ids = await _change(caller.store, changes, files)
    return ExactJSON({"count": len(ids), "example_ids": ids, "as_of": format_time(caller.store.clock.now())}, 201)


async def remove_example(caller: Writer, example_id: UUID) -> Response:
    """Delete an example."""
    example = await _example(caller.store, example_id)
    await _delete(caller, [example.id])
    return Response(status_code=204)


async def remove_example_of(caller: Writer, dataset_id: UUID, example_id: UUID) -> Response:
    """Delete an example of a dataset."""
    return await remove_example(caller, example_id)


async def remove_examples(caller: Writer, example_ids: Annotated[list[UUID], Query(max_length=1000)]) -> Response:
    """Delete examples."""
    await _delete(caller, example_ids)
    return Response(status_code=204)


async def remove_examples_in_body(caller: Writer, ids: ExampleIds) -> ExactJSON:
    """Delete examples."""
    return ExactJSON({"count": await _delete(caller, ids.example_ids)})


async def _delete(caller: Caller, ids: Sequence[UUID]) -> int:
    number = await delete_examples(caller.store, ids)
    await caller.store.audits.record(caller.actor, "delete examples", f"{number} examples")
    return number


def _required(dataset_id: UUID | None) -> UUID:
    if dataset_id is None:
        raise Problem(422, "Refused", "An example needs a dataset_id. Nothing was written.")
    return dataset_id


Files = dict[UUID, list[ExampleFile]]
"""New files of examples, by the id of the example."""


async def _create(
    store: Store, new: Sequence[NewExample], dataset_id: UUID, files: Files | None = None
) -> list[Example]:
    dataset = await get_dataset(store, dataset_id)
    now = store.clock.now()
    examples: list[Example] = []
    for each in new:
        inputs, outputs = each.inputs, each.outputs
        if each.source_run_id is not None and each.use_source_run_io:
            span = (await read_span(store, str(each.source_run_id))).value
            inputs, outputs = inputs or span["inputs"], outputs or span["outputs"]
        metadata, splits = _splits(each)
        examples.append(
            Example(
                id=each.id or new_id(),
                project=store.project,
                dataset_id=dataset.id,
                inputs=inputs or {},
                outputs=outputs,
                metadata=metadata or {},
                splits=splits or [],
                source_run_id=each.source_run_id,
                created_at=aware(each.created_at) or now,
                updated_at=now,
            )
        )
    taken = await store.examples.find(Where("id", "in", [example.id for example in examples])) if examples else []
    foreign = [example for example in taken if (example.project, example.dataset_id) != (store.project, dataset.id)]
    if foreign:
        raise Conflict(f"The id {foreign[0].id} is already used by another example. Nothing was written.")
    await put_examples(store, dataset, examples, [file for each in (files or {}).values() for file in each])
    return examples


async def _change(store: Store, changes: Sequence[NewExample], files: Files | None = None) -> list[str]:
    stored = {example.id: example for example in await get_examples(store, [each.id for each in changes if each.id])}
    unknown = [each.id for each in changes if each.id not in stored]
    if unknown:
        raise NotFound(f"Example {unknown[0]} not found in project {store.project}. Nothing was changed.")
    by_dataset: dict[UUID, list[Example]] = {}
    for each in changes:
        assert each.id is not None
        example = stored[each.id]
        metadata, splits = _splits(each)
        fields = {"inputs": each.inputs, "outputs": each.outputs, "metadata": metadata, "splits": splits}
        known = {name: value for name, value in fields.items() if value is not None}
        dataset_id = each.dataset_id or example.dataset_id
        changed = example.changed(**example.validate_fields({**known, "updated_at": store.clock.now()}))
        by_dataset.setdefault(dataset_id, []).append(changed.changed(dataset_id=dataset_id))
    datasets = {dataset_id: await get_dataset(store, dataset_id) for dataset_id in by_dataset}
    for each in changes:
        if each.id is not None and each.attachments_operations is not None:
            await _keep_files(store, each.id, each.attachments_operations)
    # An example that moves to another dataset leaves its own, which gets a new version.
    moved = {each.id for id, examples in by_dataset.items() for each in examples if stored[each.id].dataset_id != id}
    table = store.table(ExampleFile)
    kept = await table.find(Where("example_id", "in", sorted(moved))) if moved else []
    await delete_examples(store, moved)
    for dataset_id, examples in by_dataset.items():
        ids = {example.id for example in examples}
        added = [file for id, new in (files or {}).items() if id in ids for file in new]
        added += [file for file in kept if file.example_id in ids]
        await put_examples(store, datasets[dataset_id], examples, added)
    return [str(each.id) for each in changes]


async def _keep_files(store: Store, example_id: UUID, operations: Json) -> None:
    """Delete the files of an example that the client neither retains nor renames."""
    table = store.table(ExampleFile)
    rename: Json = operations.get("rename") or {}
    retain: list[Any] = operations.get("retain") or []
    for file in await table.find(Where("example_id", "=", example_id), Where("project", "=", store.project)):
        if file.name in rename:
            await table.put(file.changed(**file.validate_fields({"name": rename[file.name]})))
        if file.name not in retain:
            await table.delete(example_id=example_id, name=file.name)


def _splits(each: NewExample) -> tuple[Json | None, list[str] | None]:
    """Return the metadata without the splits, and the splits. LangSmith has them in either place."""
    metadata = each.metadata
    split: Any = each.split
    if metadata is not None and _SPLIT in metadata:
        split = split or metadata[_SPLIT]
        metadata = {name: value for name, value in metadata.items() if name != _SPLIT}
    if split is None:
        return metadata, None
    names = [str(name) for name in cast("list[Any]", split)] if isinstance(split, list) else [str(split)]
    return metadata, [name for name in names if name != _BASE]


async def _from_parts(request: Request, store: Store) -> tuple[list[NewExample], Files]:
    """Return the examples and files of a multipart body. A part is named by the example and its field."""
    parts = parts_of(await request.body(), request.headers.get("content-type", ""), "the body", _PART)
    values: dict[str, Json] = {}
    files: Files = {}
    now = store.clock.now()
    for body_part in parts:
        example_id, _, field = body_part.name.partition(".")
        own = as_id(example_id)
        if own is None:
            raise Problem(422, "Refused", f"Part {body_part.name!r} is not named by the id of an example.")
        example = values.setdefault(example_id, {"id": example_id})
        kind, _, name = field.partition(".")
        if kind == "attachment":
            content = body_part.content
            files.setdefault(own, []).append(
                ExampleFile(
                    example_id=own,
                    name=name,
                    project=store.project,
                    media_type=body_part.media_type,
                    size=len(content),
                    content=content,
                    created_at=now,
                )
            )
            continue
        try:
            value: Any = codec.loads(body_part.content)
        except ValueError as exc:
            raise Problem(422, "Refused", f"Part {body_part.name!r} is not JSON: {exc}. Nothing was written.") from exc
        example |= {field: value} if field else value if isinstance(value, dict) else {}
    try:
        return [NewExample.model_validate(value) for value in values.values()], files
    except ValidationError as exc:
        raise Problem(422, "Refused", f"The examples cannot be read: {exc.errors()[0]['msg']}.") from exc


def add_routes(router: APIRouter, platform: str) -> None:
    """Add the routes. `platform` is the prefix of the newer routes of LangSmith, which have multipart bodies."""
    add = router.add_api_route
    dataset, example = responses.LangSmithDataset, responses.LangSmithExample
    add("/datasets", list_datasets, methods=["GET"], response_model=list[dataset])
    add("/datasets", add_dataset, methods=["POST"], response_model=dataset)
    add("/datasets/upload", upload_dataset, methods=["POST"], response_model=dataset)
    add("/datasets/{dataset_id}", read_dataset, methods=["GET"], response_model=dataset)
    add("/datasets/{dataset_id}", change_dataset, methods=["PATCH"], response_model=dataset)
    add("/datasets/{dataset_id}", remove_dataset, methods=["DELETE"], status_code=204, response_class=Response)
    add("/datasets/{dataset_id}/splits", list_splits, methods=["GET"], response_model=list[str])
    add("/datasets/{dataset_id}/splits", change_splits, methods=["PUT"], response_model=list[str])
    add("/datasets/{dataset_id}/versions", list_versions, methods=["GET"], response_model=list[Json])
    add("/datasets/{dataset_id}/version", read_version, methods=["GET"], response_model=responses.LangSmithObject)
    add("/examples", list_examples, methods=["GET"], response_model=list[example])
    add("/examples", add_example, methods=["POST"], response_model=example)
    add("/examples", remove_examples, methods=["DELETE"], status_code=204, response_class=Response)
    add("/examples/bulk", add_examples, methods=["POST"], response_model=list[example])
    add("/examples/bulk", change_examples, methods=["PATCH"], response_model=responses.LangSmithObject)
    add("/examples/count", count_examples, methods=["GET"], response_model=int)
    add("/examples/{example_id}", read_example, methods=["GET"], response_model=example)
    add("/examples/{example_id}", change_example, methods=["PATCH"], response_model=responses.LangSmithObject)
    add("/examples/{example_id}", remove_example, methods=["DELETE"], status_code=204, response_class=Response)
    several = f"{platform}/datasets/{{dataset_id}}/examples"
    add(several, upload_examples, methods=["POST"], status_code=201, response_model=responses.LangSmithObject)
    add(several, update_examples, methods=["PATCH"], status_code=201, response_model=responses.LangSmithObject)
    add(f"{several}/{{example_id}}", remove_example_of, methods=["DELETE"], status_code=204, response_class=Response)
    add(
        f"{platform}/datasets/examples/delete",
        remove_examples_in_body,
        methods=["POST"],
        response_model=responses.LangSmithObject,
    )
