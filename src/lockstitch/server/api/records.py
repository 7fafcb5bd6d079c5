"""Memories and files. Each route checks the project of the record."""

from typing import Annotated, Literal
from urllib.parse import quote

from fastapi import Path, Query
from pydantic import Field
from starlette.responses import Response

from lockstitch.errors import NotFound
from lockstitch.model import File, Json, Memory
from lockstitch.server.api import responses
from lockstitch.server.api.schemas import Body, ExactJSON, Id, Limit, Name, TextParam, ThreadRefParam, rows
from lockstitch.server.auth import Caller, Reader, Writer
from lockstitch.server.routing import LazyRouter

router = LazyRouter(prefix="/api", tags=["shelves"], default_response_class=ExactJSON)

User = Annotated[TextParam, Field(max_length=255)]


class NewMemory(Body):
    """A new memory of a user or a project, or a learning of a run."""

    text: Annotated[TextParam, Field(min_length=1)]
    user_id: User | None = None
    agent: Name | None = None
    thread: Name | None = None
    kind: Literal["memory", "learning"] = "memory"
    tags: list[TextParam] = []
    metadata: Json = {}


@router.get("/memories", response_model=list[responses.Memory])
async def memories(
    caller: Reader,
    user_id: Annotated[TextParam | None, Query()] = None,
    agent: Annotated[TextParam | None, Query()] = None,
    limit: Limit = 100,
) -> ExactJSON:
    """List the memories of the project, oldest first."""
    equal = {name: value for name, value in (("user_id", user_id), ("agent", agent)) if value is not None}
    return ExactJSON(rows(await caller.store.memories.list(limit=limit, project=caller.project, **equal)))


@router.post("/memories", status_code=201, response_model=responses.Memory)
async def remember(caller: Writer, memory: NewMemory) -> ExactJSON:
    """Create a memory."""
    now = caller.store.clock.now()
    head = await caller.store.thread(memory.thread) if memory.thread is not None else None
    result = Memory(
        **memory.model_dump(exclude={"thread"}),
        project=caller.project,
        thread_id=head.id if head is not None else None,
        created_at=now,
        updated_at=now,
    )
    await caller.store.memories.put(result)
    return ExactJSON(result.as_json(), 201)


@router.delete("/memories/{id}", response_model=responses.Deleted)
async def forget(caller: Writer, id: Id) -> ExactJSON:
    """Delete a memory."""
    deleted = await caller.store.memories.delete(id=id, project=caller.project)
    if not deleted:
        raise NotFound(f"Memory {id} not found in project {caller.project}.")
    return ExactJSON({"deleted": deleted})


@router.get("/threads/{ref}/files", response_model=list[responses.File])
async def files(caller: Reader, ref: ThreadRefParam, limit: Limit = 1000) -> ExactJSON:
    """List the files that the runs of a thread created or changed."""
    head = await caller.store.thread(ref)
    return ExactJSON(rows(await caller.store.files.list(limit=limit, thread_id=head.id)))


@router.get(
    "/files/{ref}/{file_id:path}",
    response_class=Response,
    responses={200: {"content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}}},
)
async def content(caller: Reader, ref: ThreadRefParam, file_id: Annotated[Name, Path()]) -> Response:
    """Download the content of a file, if the agent that created it stores the content."""
    head = await caller.store.thread(ref)
    file = await caller.store.files.get(head.id, file_id)
    stored = await _read(caller, file, head.agent)
    name = quote(file.filename.rsplit("/", 1)[-1] or "file", safe="")
    return Response(
        stored,
        headers={"Content-Disposition": f"attachment; filename*=UTF-8''{name}"},
        media_type="application/octet-stream",
    )


async def _read(caller: Caller, file: File, agent: str | None) -> bytes:
    if file.storage_path is None:
        raise NotFound(f"The content of file {file.file_id} is not stored.")
    return await caller.app.agent(agent).read_file(file.storage_path)
