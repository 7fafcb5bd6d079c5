"""The runs of experiments by example."""

from collections.abc import Collection, Sequence
from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Request
from pydantic import BaseModel, ConfigDict, Field

from lockstitch.model import Dataset, Example, Json
from lockstitch.server.api import responses
from lockstitch.server.api.schemas import ExactJSON
from lockstitch.server.auth import Caller, Reader
from lockstitch.server.ingest.langsmith.datasets import example_json
from lockstitch.server.ingest.langsmith.query import RunQuery, find_spans
from lockstitch.server.ingest.langsmith.runs import SETTLING, shown
from lockstitch.server.ingest.langsmith.spans import Span
from lockstitch.server.problems import Problem
from lockstitch.store import Store, Where
from lockstitch.store.datasets import get_dataset


class ExampleRunsQuery(BaseModel):
    """Examples of a dataset with their runs in experiments."""

    model_config = ConfigDict(extra="allow")

    session_ids: Annotated[list[UUID], Field(max_length=100)]
    offset: int = Field(default=0, ge=0, le=1_000_000)
    limit: int = Field(default=100, ge=1, le=100)
    filters: Json | None = None
    comparative_experiment_id: UUID | None = None


async def experiment_ids(store: Store, dataset: Dataset) -> list[str]:
    """Return the ids of the experiments on a dataset, newest first."""
    where = (Where("dataset_id", "=", dataset.id), Where("project", "=", store.project))
    return [str(record.id) for record in await store.experiments.find(*where, order=("-started_at", "-id"))]


async def runs_by_example(store: Store, sessions: Collection[str]) -> dict[str, list[Span]]:
    """Return the root spans of experiments by the id of their example, newest first."""
    query = RunQuery(sessions=frozenset(sessions), is_root=True)
    by_example: dict[str, list[Span]] = {}
    async for found in find_spans(store, query):
        by_example.setdefault(str(found.span.value["reference_example_id"]), []).append(found.span)
    return by_example


async def examples_page(
    store: Store, dataset: Dataset, offset: int, limit: int, ids: Sequence[UUID] | None = None
) -> list[Example]:
    """Return examples of a dataset in the order of their creation."""
    where = [Where("dataset_id", "=", dataset.id)]
    if ids is not None:
        where.append(Where("id", "in", sorted(set(ids))))
    return await store.examples.find(*where, order=("created_at", "id"), limit=limit, offset=offset)


def refuse_unserved(**named: object) -> None:
    """Raise a problem 501 if a client uses a filter of experiments that this server does not have."""
    unserved = [name for name, value in named.items() if value]
    if unserved:
        raise Problem(501, "Not supported", f"This server does not implement {' and '.join(unserved)} of experiments.")


async def example_runs(request: Request, caller: Reader, dataset_id: UUID, query: ExampleRunsQuery) -> ExactJSON:
    """List examples of a dataset, each with its runs in the experiments."""
    await caller.state.intake.settled(SETTLING)
    dataset = await get_dataset(caller.store, dataset_id)
    refuse_unserved(filters=query.filters, comparative_experiment_id=query.comparative_experiment_id)
    by_example = await runs_by_example(caller.store, [str(id) for id in query.session_ids])
    examples = await examples_page(caller.store, dataset, query.offset, query.limit)
    return ExactJSON([await _with_runs(request, caller, example, by_example) for example in examples])


async def _with_runs(request: Request, caller: Caller, example: Example, by_example: dict[str, list[Span]]) -> Json:
    spans = by_example.get(str(example.id), [])
    value = {name: each for name, each in example_json(example).items() if name != "attachment_urls"}
    return {**value, "runs": await shown(request, caller, spans)}


def add_routes(router: APIRouter) -> None:
    router.add_api_route(
        "/datasets/{dataset_id}/runs",
        example_runs,
        methods=["POST"],
        response_model=list[responses.LangSmithExample],
        responses={501: {"description": "A filter that this server does not implement"}},
    )
