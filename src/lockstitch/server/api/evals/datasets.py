"""Datasets: their cases, versions and files. The work is done by `lockstitch.agents.evals.stored_datasets`."""

from typing import Annotated, Any, Literal

from fastapi import Path, Query, Request
from pydantic import Field
from starlette.responses import Response

from lockstitch.agents.evals.stored_datasets import MAX_CASES, Datasets
from lockstitch.model import Json
from lockstitch.server.api import responses
from lockstitch.server.api.schemas import Body, ExactJSON, Limit, Name, TextParam
from lockstitch.server.auth import Caller, Reader, Writer
from lockstitch.server.routing import LazyRouter

router = LazyRouter(prefix="/api/datasets", tags=["datasets"], default_response_class=ExactJSON)

Ref = Annotated[TextParam, Path(max_length=300, description="Name or id of a dataset. To read version 3, add `@3`.")]
CaseRef = Annotated[TextParam, Path(max_length=300, description="Name or id of a case.")]
Cursor = Annotated[TextParam | None, Query(max_length=300, description="`next` of the previous page.")]
MAX_SOURCES = 1_000
FORMATS = {"jsonl": "application/x-ndjson", "csv": "text/csv; charset=utf-8"}


class NewDataset(Body):
    """A new dataset without cases."""

    name: Name
    description: TextParam | None = None
    rubric: Any = None


class ChangedDataset(Body):
    """Changed fields of a dataset. Absent fields do not change."""

    name: Name | None = None
    description: TextParam | None = None
    rubric: Any = None


class NewCases(Body):
    """Cases with the fields of a dataset file, or with `inputs` and `outputs`."""

    cases: Annotated[list[Json], Field(min_length=1, max_length=MAX_CASES)]
    create: bool = False
    replace: bool = False


class CaseNames(Body):
    """Names or ids of cases."""

    cases: Annotated[list[TextParam], Field(min_length=1, max_length=MAX_CASES)]


class Sources(Body):
    """Threads (ids or keys) and runs (ids) to make cases of."""

    sources: Annotated[list[TextParam], Field(min_length=1, max_length=MAX_SOURCES)]
    create: bool = True


def datasets_of(caller: Caller) -> Datasets:
    """Return the datasets of the caller's project."""
    return Datasets(caller.store)


@router.get("", response_model=responses.Datasets)
async def datasets(
    caller: Reader,
    search: Annotated[TextParam | None, Query(max_length=300)] = None,
    limit: Limit = 50,
    after: Annotated[TextParam | None, Query(max_length=300, description="Name of the last dataset.")] = None,
) -> ExactJSON:
    """List the datasets of the project by name."""
    return ExactJSON(await datasets_of(caller).list(search=search, limit=limit, after=after))


@router.post("", status_code=201, response_model=responses.Dataset)
async def create(caller: Writer, body: NewDataset) -> ExactJSON:
    """Create a dataset."""
    return ExactJSON(await datasets_of(caller).create(**body.model_dump()), 201)


@router.get("/{ref}", response_model=responses.Dataset)
async def read(caller: Reader, ref: Ref) -> ExactJSON:
    """Return a dataset with the number of its cases."""
    return ExactJSON(await datasets_of(caller).get(ref))


@router.patch("/{ref}", response_model=responses.Dataset)
async def edit(caller: Writer, ref: Ref, body: ChangedDataset) -> ExactJSON:
    """Change the name, the description or the rubric of a dataset."""
    return ExactJSON(await datasets_of(caller).edit(ref, **body.model_dump(exclude_unset=True)))


@router.delete("/{ref}", response_model=responses.DeletedDataset)
async def delete(caller: Writer, ref: Ref) -> ExactJSON:
    """Delete a dataset with all its versions. Evaluations stay."""
    deleted = await datasets_of(caller).delete(ref)
    await caller.store.audits.record(caller.actor, "delete dataset", deleted["id"], name=deleted["name"])
    return ExactJSON(deleted)


@router.get("/{ref}/versions", response_model=responses.DatasetVersions)
async def versions(
    caller: Reader, ref: Ref, limit: Limit = 50, before: Annotated[int | None, Query(ge=0)] = None
) -> ExactJSON:
    """List the versions of a dataset, newest first."""
    return ExactJSON(await datasets_of(caller).versions(ref, limit=limit, before=before))


@router.get("/{ref}/experiments", response_model=responses.Experiments)
async def experiments(caller: Reader, ref: Ref, limit: Limit = 50) -> ExactJSON:
    """List the experiments on a dataset that LangSmith clients created, newest first."""
    return ExactJSON(await datasets_of(caller).experiments(ref, limit=limit))


@router.get("/{ref}/cases", response_model=responses.DatasetCases)
async def cases(caller: Reader, ref: Ref, limit: Limit = 50, after: Cursor = None) -> ExactJSON:
    """List the cases of one version of a dataset, oldest first."""
    return ExactJSON(await datasets_of(caller).cases(ref, limit=limit, after=after))


@router.get("/{ref}/cases/{case}", response_model=responses.DatasetCase)
async def case(caller: Reader, ref: Ref, case: CaseRef) -> ExactJSON:
    """Return a case."""
    return ExactJSON(await datasets_of(caller).case(ref, case))


@router.post("/{ref}/cases", response_model=responses.DatasetChange)
async def put(caller: Writer, ref: Ref, body: NewCases) -> ExactJSON:
    """Add or replace cases as one new version. A case with the id of a stored case replaces it."""
    return ExactJSON(await datasets_of(caller).put(ref, **body.model_dump()))


@router.post("/{ref}/remove", response_model=responses.DatasetChange)
async def remove(caller: Writer, ref: Ref, body: CaseNames) -> ExactJSON:
    """Remove cases as one new version. Earlier versions still have them."""
    return ExactJSON(await datasets_of(caller).remove(ref, body.cases))


@router.post("/{ref}/runs", response_model=responses.AddedCases)
async def add(caller: Writer, ref: Ref, body: Sources) -> ExactJSON:
    """Add runs to a dataset as cases, with their answers as expected outputs. A thread means its last finished run."""
    return ExactJSON(await datasets_of(caller).add(ref, body.sources, create=body.create))


@router.put("/{ref}/file", response_model=responses.DatasetChange)
async def upload(
    request: Request,
    caller: Writer,
    ref: Ref,
    format: Literal["jsonl", "csv"] = "jsonl",
    create: bool = True,
    replace: bool = False,
) -> ExactJSON:
    """Add or replace the cases of a JSONL or CSV file, which is the body, as one new version."""
    content = await request.body()
    return ExactJSON(await datasets_of(caller).upload(ref, f"file.{format}", content, create=create, replace=replace))


@router.get(
    "/{ref}/file",
    response_class=Response,
    responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}},
)
async def export(caller: Reader, ref: Ref, format: Literal["jsonl", "csv"] = "jsonl") -> Response:
    """Return the cases of one version as a JSONL or CSV file."""
    return Response(await datasets_of(caller).export(ref, form=format), media_type=FORMATS[format])
