"""Routes below /api/agent, and the server extension."""

from typing import Annotated, Any, Final, Literal
from uuid import UUID

from fastapi import APIRouter, Body, Query
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.requests import Request
from starlette.responses import Response

from lockstitch import NotFound
from lockstitch.apps.prioritizer import pages, repository
from lockstitch.apps.prioritizer.models import (
    AgentSession,
    ExecutionMetadata,
    Model,
    ReasoningTrace,
    SessionStatus,
    Share,
    TaskId,
    as_json,
)
from lockstitch.apps.prioritizer.plugin import NoActiveOutcome, Prioritizer
from lockstitch.apps.prioritizer.records import Document, Outcome, TaskRelationship
from lockstitch.apps.prioritizer.sessions import latest, metadata_of, session_of, sessions, shown, trace_of
from lockstitch.apps.prioritizer.task_lists import MAX_BYTES
from lockstitch.server import ExactJSON, NavLink, Problem, Reader, ServerExtension, Writer, plugin_of, response_model

router = APIRouter(prefix="/api/agent", tags=["prioritizer"])

ThePrioritizer = Annotated[Prioritizer, plugin_of(Prioritizer)]
UserId = Annotated[str, Field(min_length=1, max_length=255, pattern=r"^[^\x00]*$")]
Statement = Annotated[str, Field(min_length=1, max_length=4_000, pattern=r"^[^\x00]*$")]


_OUTCOME: Any = response_model(Outcome)
_DOCUMENT: Any = response_model(Document, without=frozenset({"structured_output"}), tasks=list[Any])
_RELATIONSHIP: Any = response_model(TaskRelationship)


class RequestBody(BaseModel):
    """Base class of request bodies: without additional fields."""

    model_config = ConfigDict(extra="forbid")


class PrioritizeBody(RequestBody):
    outcome_id: UUID
    user_id: UserId
    replace: bool = False
    """If true, a running session of this user is cancelled."""
    documents: Annotated[list[UUID], Field(max_length=1_000)] | None = None
    """The documents with the tasks. Default: all documents of the user."""


class SessionStarted(Model):
    session_id: UUID
    status: SessionStatus
    execution_metadata: ExecutionMetadata


class NewOutcome(RequestBody):
    user_id: UserId
    statement: Statement


class NewRelationship(RequestBody):
    user_id: UserId
    source_task_id: TaskId
    target_task_id: TaskId
    relationship_type: Literal["prerequisite", "blocks", "related"] = "prerequisite"
    confidence: Share = 1.0


@router.post("/prioritize", response_model=SessionStarted)
async def prioritize(request: Request, caller: Writer, application: ThePrioritizer) -> Response:
    """Start a session for an outcome of a user. A worker executes it.

    400 if the body is not valid, 403 if the outcome is not an active outcome of the user, 409 if a session of the user
    is running.
    """
    body = _read(await request.body())
    try:
        session = await application.start(
            caller.store,
            body.user_id,
            body.outcome_id,
            documents=body.documents,
            replace=body.replace,
        )
    except (NoActiveOutcome, NotFound) as exc:
        raise Problem(403, "No active outcome", str(exc)) from exc
    started = SessionStarted(
        session_id=session.thread_id, status=session.status, execution_metadata=metadata_of(session)
    )
    return ExactJSON(as_json(started))


@router.get("/sessions", response_model=list[AgentSession])
async def listed(
    caller: Reader,
    user_id: Annotated[UserId | None, Query()] = None,
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
) -> Response:
    """Return the sessions of a user or of all users, newest first."""
    return ExactJSON([as_json(shown(session)) for session in await sessions(caller.store, user_id, limit=limit)])


@router.get("/sessions/latest", response_model=AgentSession)
async def newest(caller: Reader, user_id: Annotated[UserId, Query()]) -> Response:
    """Return the newest session of a user."""
    return ExactJSON(as_json(shown(await latest(caller.store, user_id))))


@router.get("/sessions/{session_id}", response_model=AgentSession)
async def session(caller: Reader, session_id: UUID) -> Response:
    """Return a session with its plan, if it has one."""
    return ExactJSON(as_json(shown(await session_of(caller.store, session_id))))


@router.get("/sessions/{session_id}/trace", response_model=ReasoningTrace)
async def trace(caller: Reader, session_id: UUID) -> Response:
    """Return the reasoning of a session so far. 404 after it has expired."""
    return ExactJSON(as_json(await trace_of(caller.store, await session_of(caller.store, session_id))))


@router.get("/outcomes", response_model=list[_OUTCOME])
async def outcomes(caller: Reader, user_id: Annotated[UserId | None, Query()] = None) -> ExactJSON:
    """Return the outcomes of a user or of all users, newest first."""
    return ExactJSON([outcome.as_json() for outcome in await repository.outcomes(caller.store, user_id)])


@router.post("/outcomes", status_code=201, response_model=_OUTCOME)
async def add_outcome(caller: Writer, new: NewOutcome) -> Response:
    """Create an outcome."""
    outcome = await repository.add_outcome(caller.store, new.user_id, new.statement)
    return ExactJSON(outcome.as_json(), status_code=201)


@router.patch("/outcomes/{outcome_id}", response_model=_OUTCOME)
async def change_outcome(caller: Writer, outcome_id: UUID, is_active: Annotated[bool, Body(embed=True)]) -> ExactJSON:
    """Activate or deactivate an outcome."""
    return ExactJSON((await repository.set_active(caller.store, outcome_id, is_active)).as_json())


@router.get("/documents", response_model=list[_DOCUMENT])
async def documents(caller: Reader, user_id: Annotated[UserId | None, Query()] = None) -> ExactJSON:
    """Return the documents with their tasks, oldest first."""
    return ExactJSON([_document(document) for document in await repository.documents(caller.store, user_id)])


@router.post("/documents", status_code=201, response_model=list[_DOCUMENT])
async def add_documents(
    request: Request,
    caller: Writer,
    user_id: Annotated[UserId, Query()],
    name: Annotated[str, Query(min_length=1, max_length=255, pattern=r"^[^\x00]*$")] = "tasks.md",
) -> Response:
    """Store a list of tasks: Markdown, or CSV if the name ends in .csv. A list with the same name is replaced."""
    if int(request.headers.get("content-length") or 0) > MAX_BYTES:
        raise Problem(413, "Too large", f"A list of tasks has at most {MAX_BYTES:,} bytes.")
    imported = await repository.add_file(caller.store, user_id, await request.body(), name)
    return ExactJSON([_document(document) for document in imported.documents], status_code=201)


@router.delete("/documents/{document_id}", status_code=204)
async def remove_document(caller: Writer, document_id: UUID) -> Response:
    await repository.remove_document(caller.store, document_id)
    return Response(status_code=204)


@router.post("/relationships", status_code=201, response_model=_RELATIONSHIP)
async def add_relationship(caller: Writer, new: NewRelationship) -> Response:
    """Store a dependency: the source waits for the target."""
    task_relationship = await repository.add_relationship(
        caller.store,
        new.user_id,
        new.source_task_id,
        new.target_task_id,
        new.relationship_type,
        new.confidence,
    )
    return ExactJSON(task_relationship.as_json(), status_code=201)


def _read(body: bytes) -> PrioritizeBody:
    """Parse the body. Raises a problem 400 if it is not valid."""
    try:
        return PrioritizeBody.model_validate_json(body)
    except ValidationError as exc:
        text = "; ".join(f"{'.'.join(map(str, error['loc'])) or 'body'}: {error['msg']}" for error in exc.errors())
        raise Problem(400, "Invalid", text) from exc


def _document(document: Document) -> dict[str, Any]:
    value = document.as_json()
    value["tasks"] = value.pop("structured_output")["tasks"]
    return value


EXTENSION: Final = ServerExtension(
    api=[router],
    pages=[pages.router],
    sections=[NavLink("Plans", "/plans", "p")],
    package="lockstitch.apps.prioritizer.pages",
)
