"""LangSmith projects and experiments.

A LangSmith project is a name in the state of runs. An experiment also has a record, which names its dataset.
"""

from datetime import datetime
from typing import Annotated, Any, Final, cast
from uuid import UUID

from fastapi import APIRouter, Query
from pydantic import BaseModel, ConfigDict
from starlette.responses import Response

from lockstitch.errors import Conflict, NotFound
from lockstitch.model import Experiment, Json, as_id, codec, format_time
from lockstitch.server.api import responses
from lockstitch.server.api.schemas import ExactJSON, Name, TextParam
from lockstitch.server.auth import Ingester, Reader, Writer
from lockstitch.server.ingest.langsmith.aggregates import Aggregate
from lockstitch.server.ingest.langsmith.feedback import feedback_on, feedback_stats, project_feedback
from lockstitch.server.ingest.langsmith.query import RunQuery, aware, find_spans, runs_of_session
from lockstitch.server.ingest.langsmith.runs import SETTLING
from lockstitch.server.ingest.langsmith.spans import session_id, session_of
from lockstitch.server.problems import Problem
from lockstitch.store import Store, Where
from lockstitch.store.datasets import create_experiment, get_dataset, get_experiment

TENANT: Final = str(UUID(int=0))
"""Id of the workspace. This server has one."""

_PAGE: Final = 100
_SESSIONS: Final = 5_000
"""Number of newest runs whose projects are listed. A project with older runs only is found by its name."""


class NewSession(BaseModel):
    """A new LangSmith project or experiment."""

    model_config = ConfigDict(extra="allow")

    name: Name
    description: TextParam | None = None
    extra: Json | None = None
    reference_dataset_id: UUID | None = None
    start_time: datetime | None = None
    end_time: datetime | None = None


class SessionChange(BaseModel):
    """Changed fields of a LangSmith project. None: unchanged."""

    model_config = ConfigDict(extra="allow")

    name: Name | None = None
    description: TextParam | None = None
    extra: Json | None = None
    end_time: datetime | None = None


async def sessions(store: Store) -> list[Json]:
    """Return the LangSmith projects: those of the newest runs, most recently used first, then experiments."""
    first: dict[str, datetime] = {}
    last: dict[str, datetime] = {}
    for run in await store.statistics.runs(limit=_SESSIONS):
        name = session_of(store, run)
        first[name] = min(run.started_at, first.get(name, run.started_at))
        last.setdefault(name, run.started_at)
    records = await store.experiments.find(Where("project", "=", store.project), order=("-started_at", "-id"))
    by_name = {record.name: record for record in records}
    found = [_session(store, name, began, last[name], by_name.pop(name, None)) for name, began in first.items()]
    return found + [_session(store, record.name, record.started_at, None, record) for record in by_name.values()]


def _session(store: Store, name: str, began: datetime, last: datetime | None, record: Experiment | None) -> Json:
    dataset = record.dataset_id if record else None
    return {
        "id": session_id(store.project, name),
        "name": name,
        "start_time": format_time(min(began, record.started_at) if record else began),
        "end_time": format_time(record.ended_at) if record and record.ended_at else None,
        "last_run_start_time": format_time(last) if last else None,
        "description": record.description if record else None,
        "extra": {"metadata": record.metadata} if record else {},
        "tenant_id": TENANT,
        "reference_dataset_id": str(dataset) if dataset else None,
    }


async def _older_session(store: Store, session: str) -> Json | None:
    """Return a LangSmith project that has none of the newest runs, or None if it has no run at all."""
    times: list[datetime] = []
    name = ""
    async for run in runs_of_session(store, session):
        name = session_of(store, run)
        times.append(run.started_at)
    return _session(store, name, min(times), max(times), None) if times else None


async def _with_stats(store: Store, session: Json) -> Json:
    """Return a LangSmith project with the statistics of its traces."""
    query = RunQuery(sessions=frozenset({session["id"]}), is_root=True)
    spans = [found.span async for found in find_spans(store, query)]
    total = Aggregate()
    for span in spans:
        total.add(span.value)
    feedback = [item for items in (await feedback_on(store, spans)).values() for item in items]
    stats = total.as_json(feedback_stats(feedback))
    own = feedback_stats(await project_feedback(store, session["id"]))
    return {**session, **stats, "session_feedback_stats": own}


async def list_sessions(
    caller: Reader,
    name: str | None = None,
    name_contains: str | None = None,
    id: Annotated[list[str] | None, Query()] = None,
    reference_dataset: Annotated[list[str] | None, Query()] = None,
    reference_free: bool | None = None,
    metadata: str | None = None,
    include_stats: bool = False,
    limit: Annotated[int, Query(ge=1, le=1000)] = _PAGE,
    offset: Annotated[int, Query(ge=0)] = 0,
) -> ExactJSON:
    """List LangSmith projects and experiments."""
    await caller.state.intake.settled(SETTLING)
    wanted = parsed_metadata(metadata)
    matches = [
        item
        for item in await sessions(caller.store)
        if name in (None, item["name"])
        and (name_contains or "").lower() in str(item["name"]).lower()
        and (id is None or item["id"] in id)
        and (reference_dataset is None or item["reference_dataset_id"] in reference_dataset)
        and (reference_free is None or reference_free == (item["reference_dataset_id"] is None))
        and wanted.items() <= (item["extra"].get("metadata") or {}).items()
    ]
    if name is not None and not matches and offset == 0:
        older = await _older_session(caller.store, session_id(caller.project, codec.check_text(name, "The name")))
        matches = [older] if older is not None and reference_dataset is None and not wanted else []
    page = matches[offset : offset + limit]
    return ExactJSON([await _with_stats(caller.store, item) for item in page] if include_stats else page)


def parsed_metadata(text: str | None) -> Json:
    """Return the metadata that a client filters by. Raises a problem 422."""
    if text is None:
        return {}
    try:
        value: Any = codec.loads(text)
    except ValueError:
        value = None
    wanted = cast("Json", value) if isinstance(value, dict) else None
    if wanted is None or not all(isinstance(each, str | int | float | None) for each in wanted.values()):
        raise Problem(422, "Refused", "metadata must be a JSON object with texts and numbers.")
    return wanted


async def find_session(store: Store, session: str) -> Json:
    """Return a LangSmith project by its id. Raises `NotFound`."""
    own = as_id(codec.check_text(session, "The id"))
    record = await get_experiment(store, own) if own else None
    if record is not None:
        return _session(store, record.name, record.started_at, None, record)
    for item in await sessions(store):
        if item["id"] == session:
            return item
    older = await _older_session(store, session)
    if older is not None:
        return older
    raise NotFound(f"LangSmith project {session} not found.")


async def read_session(caller: Reader, session: str, include_stats: bool = False) -> ExactJSON:
    """Return a LangSmith project or experiment."""
    await caller.state.intake.settled(SETTLING)
    value = await find_session(caller.store, session)
    return ExactJSON(await _with_stats(caller.store, value) if include_stats else value)


async def create_session(caller: Ingester, new: NewSession, upsert: bool = False) -> ExactJSON:
    """Create a LangSmith project, or an experiment on a dataset."""
    store = caller.store
    if new.reference_dataset_id is not None:
        await get_dataset(store, new.reference_dataset_id)
    fields: dict[str, Any] = {
        "dataset_id": new.reference_dataset_id,
        "description": new.description,
        "metadata": _metadata(new.extra),
        "ended_at": aware(new.end_time),
    }
    if new.start_time is not None:
        fields["started_at"] = aware(new.start_time)
    try:
        record = await create_experiment(store, new.name, **fields)
    except Conflict:
        if not upsert:
            raise
        record = await get_experiment(store, UUID(session_id(store.project, new.name)))
        assert record is not None
        kept = {name: value for name, value in fields.items() if value not in (None, {})}
        record = record.changed(**record.validate_fields({**kept, "updated_at": store.clock.now()}))
        await store.experiments.put(record)
    return ExactJSON(_session(store, record.name, record.started_at, None, record))


async def change_session(caller: Ingester, session: str, change: SessionChange) -> ExactJSON:
    """Change the description, the metadata or the end of a LangSmith project."""
    store = caller.store
    value = await find_session(store, session)
    if change.name not in (None, value["name"]):
        raise Problem(
            501,
            "Not supported",
            "This server does not implement renaming a project: its runs have its name. Nothing was changed.",
        )
    record = await get_experiment(store, UUID(value["id"]))
    if record is None:
        record = await create_experiment(store, value["name"], started_at=datetime.fromisoformat(value["start_time"]))
    fields: dict[str, Any] = {"updated_at": store.clock.now()}
    if change.description is not None:
        fields["description"] = change.description
    if change.extra is not None:
        fields["metadata"] = {**record.metadata, **_metadata(change.extra)}
    if change.end_time is not None:
        fields["ended_at"] = aware(change.end_time)
    record = record.changed(**record.validate_fields(fields))
    await store.experiments.put(record)
    return ExactJSON(_session(store, record.name, record.started_at, None, record))


async def delete_session(caller: Writer, session: str) -> Response:
    """Delete the record of an experiment or project without runs. Runs are deleted with their threads."""
    store = caller.store
    value = await find_session(store, session)
    query = RunQuery(sessions=frozenset({value["id"]}), is_root=True)
    async for _ in find_spans(store, query):
        raise Problem(
            501,
            "Not supported",
            f"This server does not delete the runs of a project. Project {value['name']} has runs: delete "
            "their threads with `lockstitch delete`. Nothing was deleted.",
        )
    await store.experiments.delete(id=UUID(value["id"]), project=store.project)
    await store.audits.record(caller.actor, "delete project", str(value["name"]))
    return Response(status_code=202)


def _metadata(extra: Json | None) -> Json:
    metadata = (extra or {}).get("metadata")
    other = {name: value for name, value in (extra or {}).items() if name != "metadata"}
    return {**other, **metadata} if isinstance(metadata, dict) else other


async def settings(caller: Reader) -> ExactJSON:
    """Return the workspace of the caller. Its name is the project of the token."""
    return ExactJSON(
        {"id": TENANT, "display_name": caller.project, "created_at": "2026-01-01T00:00:00Z", "tenant_handle": None}
    )


def add_routes(router: APIRouter) -> None:
    add = router.add_api_route
    refused: dict[int | str, dict[str, Any]] = {501: {"description": "A change that this server does not implement"}}
    add("/sessions", list_sessions, methods=["GET"], response_model=list[responses.LangSmithProject])
    add("/sessions", create_session, methods=["POST"], response_model=responses.LangSmithProject)
    add("/sessions/{session}", read_session, methods=["GET"], response_model=responses.LangSmithProject)
    add(
        "/sessions/{session}",
        change_session,
        methods=["PATCH"],
        response_model=responses.LangSmithProject,
        responses=refused,
    )
    add(
        "/sessions/{session}",
        delete_session,
        methods=["DELETE"],
        status_code=202,
        response_class=Response,
        responses=refused,
    )
    add("/settings", settings, methods=["GET"], response_model=responses.LangSmithObject)
