"""Routes below /api/notebooks, and the server extension."""

from typing import Annotated, Any, Final
from urllib.parse import quote
from uuid import UUID

from fastapi import APIRouter, File, Path, Query, Request, UploadFile
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from lockstitch import NotFound, Refused, Thread
from lockstitch.apps.notebooks import activity, citations, pages, sources
from lockstitch.apps.notebooks import notebooks as repository
from lockstitch.apps.notebooks.plugin import Notebooks
from lockstitch.apps.notebooks.records import Notebook, Source
from lockstitch.ext import Json
from lockstitch.server import (
    Caller,
    ExactJSON,
    IdempotencyKey,
    MessageId,
    NavLink,
    Reader,
    ResponseModel,
    ResultModel,
    ServerExtension,
    Writer,
    event_stream_content,
    one_message_id,
    plugin_of,
    position_before,
    response_model,
    stream_run,
    wait_for_run,
)

router = APIRouter(prefix="/api/notebooks", tags=["notebooks"], default_response_class=ExactJSON)

TheNotebooks = Annotated[Notebooks, plugin_of(Notebooks)]
Id = Annotated[int, Path(ge=1, lt=2**63, description="A notebook's id.")]
SourceId = Annotated[UUID, Path(description="A source's id.")]
SessionId = Annotated[str, Path(max_length=300, description="A session_id: a thread's key or id.")]
Limit = Annotated[int, Query(ge=1, le=1000)]
Offset = Annotated[int, Query(ge=0, lt=2**53)]

_NOTEBOOK: Any = response_model(Notebook)
_COUNTED: Any = response_model(Notebook, "NotebookInList", sources=int, sessions=int)
_SOURCE: Any = response_model(Source, "NotebookSource", status=str)


class _AnySource(ResponseModel):
    """A source. While its file is read, only some fields are known."""

    name: str
    status: str


class _Session(ResponseModel):
    """A chat in a list."""

    session_id: str
    thread_id: UUID
    notebook_id: int
    title: str | None
    summary: Json | None
    status: str
    runs: int


class _Chat(ResponseModel):
    """A chat, turn by turn."""

    session_id: str
    thread_id: UUID
    notebook_id: int
    title: str | None
    summary: Json | None
    status: str
    total_cost: float | None
    turns: list[Json]


class _Citation(ResponseModel):
    number: int
    source_id: UUID | None
    source: str | None


class _Found(ResponseModel):
    """A passage that a search found."""

    source_id: UUID
    source: str
    passage: int
    start: int
    end: int
    text: str


class _Turn(ResultModel):
    """The answer to a message, with its turn."""

    session_id: str
    notebook_id: int


_EVENTS: Final[dict[int | str, dict[str, Any]]] = {
    200: {"description": "The turn, or server-sent events", **event_stream_content()},
    202: {"description": "The unfinished turn, if the caller or the server leaves before its end", "model": _Turn},
}


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid")


class NewNotebook(_Body):
    """A new notebook. The default title is "Untitled notebook"."""

    title: str | None = None
    description: str | None = None
    instructions: str | None = None


class NewSource(_Body):
    """A text, or the URL of a source."""

    name: str | None = None
    text: str | None = None
    url: str | None = None


class QuestionBody(_Body):
    """A message to the team, in an existing chat or in a new one."""

    message: str
    stream: bool = False
    session_id: Annotated[str, Field(min_length=1, max_length=255)] | None = None
    user_id: Annotated[str, Field(max_length=255)] | None = None
    message_id: MessageId | None = None


@router.get("", response_model=list[_COUNTED])
async def listed(caller: Reader, _: TheNotebooks, limit: Limit = 100, offset: Offset = 0) -> ExactJSON:
    """Return the notebooks of the project, most recently updated first."""
    counted_notebooks = await repository.counted(caller.store, limit=limit, offset=offset)
    return ExactJSON([_counted(counted) for counted in counted_notebooks])


@router.post("", status_code=201, response_model=_NOTEBOOK)
async def create(caller: Writer, _: TheNotebooks, new: NewNotebook) -> ExactJSON:
    """Create a notebook."""
    notebook = await repository.create(
        caller.store, new.title, description=new.description, instructions=new.instructions
    )
    return ExactJSON(notebook.as_json(), 201)


@router.get("/{id}", response_model=_NOTEBOOK)
async def get(caller: Reader, _: TheNotebooks, id: Id) -> ExactJSON:
    """Return a notebook."""
    return ExactJSON((await repository.get(caller.store, id)).as_json())


@router.put("/{id}", response_model=_NOTEBOOK)
async def change(caller: Writer, _: TheNotebooks, id: Id, wanted: NewNotebook) -> ExactJSON:
    """Change a notebook. Missing fields stay unchanged."""
    fields = wanted.model_dump(exclude_unset=True)
    if "title" in fields and fields["title"] is None:
        raise Refused("A notebook needs a title. Leave the field out to keep the current title.")
    return ExactJSON((await repository.change(caller.store, id, **fields)).as_json())


@router.delete("/{id}", status_code=204, response_class=Response)
async def remove(
    caller: Writer,
    _: TheNotebooks,
    id: Id,
    keep_sessions: Annotated[bool, Query(description="If true, the chats stay as threads without a notebook.")] = False,
) -> Response:
    """Delete a notebook with its sources and chats."""
    await repository.remove(caller.store, id, keep_sessions=keep_sessions)
    return Response(status_code=204)


@router.get("/{id}/sessions", response_model=list[_Session])
async def sessions_of(
    caller: Reader, _: TheNotebooks, id: Id, user_id: Annotated[str | None, Query(max_length=255)] = None
) -> ExactJSON:
    """Return the chats of a notebook, most recently active first."""
    notebook = await repository.get(caller.store, id)
    return ExactJSON([chat.as_json() for chat in await activity.chats(caller.store, notebook, user_id=user_id)])


@router.get("/{id}/sessions/{session_id}", response_model=_Chat)
async def session(caller: Reader, _: TheNotebooks, id: Id, session_id: SessionId) -> ExactJSON:
    """Return the turns of a chat with runs, answers and citations."""
    thread = await _chat(caller, id, session_id)
    chat_turns = await activity.turns(caller.store, thread)
    return ExactJSON(
        {
            "session_id": thread.key or str(thread.id),
            "thread_id": str(thread.id),
            "notebook_id": id,
            "title": thread.title,
            "summary": thread.summary,
            "user_id": thread.user_id,
            "status": thread.status,
            "total_cost": activity.total_cost(chat_turns),
            "turns": [turn.as_json() for turn in chat_turns],
        }
    )


@router.delete("/{id}/sessions/{session_id}", status_code=204, response_class=Response)
async def remove_session(caller: Writer, _: TheNotebooks, id: Id, session_id: SessionId) -> Response:
    """Delete a chat with all its runs."""
    await caller.store.delete(await _chat(caller, id, session_id))
    return Response(status_code=204)


@router.get("/{id}/sessions/{session_id}/citations/{number}", response_model=_Citation)
async def citation(
    caller: Reader, _: TheNotebooks, id: Id, session_id: SessionId, number: Annotated[int, Path(ge=1, lt=2**31)]
) -> ExactJSON:
    """Return the passage that a number cites in a chat: source, location and text."""
    return ExactJSON((await citations.cited(caller.store, await _chat(caller, id, session_id), number)).as_json())


@router.get("/{id}/sources", response_model=list[_AnySource])
async def sources_of(caller: Reader, notebooks: TheNotebooks, id: Id) -> ExactJSON:
    """Return the sources of a notebook, including sources that this server is reading."""
    notebook = await repository.get(caller.store, id)
    ready = [_source(source) for source in await sources.listed(caller.store, notebook)]
    reading = [{"name": in_progress.name, "status": "reading"} for in_progress in notebooks.sources_in_progress(id)]
    return ExactJSON(ready + reading)


@router.post("/{id}/sources", status_code=201, response_model=_SOURCE)
async def add_source(caller: Writer, notebooks: TheNotebooks, id: Id, new: NewSource) -> ExactJSON:
    """Add a text or, if enabled, a URL."""
    if (new.text is None) == (new.url is None):
        raise Refused("Pass either a text or a url.")
    if new.url is not None:
        return ExactJSON(_source(await notebooks.add_url(caller.store, id, new.url, name=new.name)), 201)
    if not new.name:
        raise Refused("A text needs a name, such as notes.md.")
    return ExactJSON(_source(await notebooks.add_source(caller.store, id, new.name, new.text or "")), 201)


@router.post("/{id}/sources/upload", status_code=201, response_model=_SOURCE)
async def upload(
    caller: Writer, notebooks: TheNotebooks, id: Id, file: Annotated[UploadFile, File(description="The file.")]
) -> ExactJSON:
    """Add a file: text, Markdown, HTML or PDF."""
    # One byte more than the limit shows that the file is too large.
    content = await file.read(notebooks.limits.bytes + 1)
    source = await notebooks.add_source(
        caller.store, id, file.filename or "upload", content, media_type=file.content_type
    )
    return ExactJSON(_source(source), 201)


@router.get("/{id}/sources/{source_id}", response_model=_SOURCE)
async def source(caller: Reader, _: TheNotebooks, id: Id, source_id: SourceId) -> ExactJSON:
    """Return a source."""
    notebook = await repository.get(caller.store, id)
    return ExactJSON(_source(await sources.get(caller.store, notebook, source_id)))


@router.delete("/{id}/sources/{source_id}", status_code=204, response_class=Response)
async def remove_source(caller: Writer, _: TheNotebooks, id: Id, source_id: SourceId) -> Response:
    """Remove a source. Citations of it then show that the source was removed."""
    await sources.remove(caller.store, await repository.get(caller.store, id), source_id)
    return Response(status_code=204)


@router.get("/{id}/sources/{source_id}/passages", response_model=list[Json])
async def passages(
    caller: Reader, _: TheNotebooks, id: Id, source_id: SourceId, after: Offset = 0, limit: Limit = 100
) -> ExactJSON:
    """Return the passages of a source with their locations."""
    notebook = await repository.get(caller.store, id)
    source = await sources.get(caller.store, notebook, source_id)
    page = await sources.passages(caller.store, source, after=after, limit=limit)
    return ExactJSON([{**passage.as_json(), "where": passage.place.words} for passage in page])


@router.get("/{id}/search", response_model=list[_Found])
async def search(
    caller: Reader,
    notebooks: TheNotebooks,
    id: Id,
    query: Annotated[str, Query(min_length=1, max_length=2000)],
    limit: Annotated[int, Query(ge=1, le=50)] = 6,
) -> ExactJSON:
    """Return the passages that the Researcher would find."""
    matches = await notebooks.search(caller.store, id, query, limit=limit)
    return ExactJSON(
        [
            {
                "source_id": str(match.source.id),
                "source": match.source.name,
                "passage": match.passage.number,
                "where": match.passage.place.words,
                "start": match.passage.start_at,
                "end": match.passage.end_at,
                "text": match.passage.text,
                "found_by": match.found_by,
                "rank": match.rank,
            }
            for match in matches
        ]
    )


@router.post("/{id}/run", responses=_EVENTS, response_model=_Turn)
async def run(
    request: Request,
    caller: Writer,
    notebooks: TheNotebooks,
    id: Id,
    question: QuestionBody,
    idempotency_key: IdempotencyKey = None,
) -> Response:
    """Send a message to the team of a notebook.

    With `stream` the response is a stream of events until the turn ends. Otherwise it is the turn: the answer, its
    citations and the runs. Without a `session_id` a new chat starts. If the chat has accepted `message_id` (or the
    header Idempotency-Key) before, no run starts, and the response is that of the first message.
    """
    message_id = one_message_id(question.message_id, idempotency_key)
    before = await notebooks.chat(
        caller.store,
        id,
        question.message,
        session_id=question.session_id,
        user_id=question.user_id,
        message_id=message_id,
    )
    started = await notebooks.team.run(
        question.message,
        store=caller.store,
        thread=before,
        user_id=question.user_id,
        detach=True,
        message_id=message_id,
    )
    if question.stream:
        answer = stream_run(caller, started, await position_before(caller, started))
        # A key can have characters that a header must not have.
        answer.headers["Session-Id"] = quote(before.key or str(before.id))
        return answer
    result, idle = await wait_for_run(request, caller, started)
    chat_turns = await activity.turns(caller.store, await caller.store.thread(before.id))
    turn = next((chat_turn for chat_turn in chat_turns if any(run.id == result.run_id for run in chat_turn.runs)), None)
    body: Json = {
        **result.as_json(),
        "session_id": before.key or str(before.id),
        "notebook_id": id,
        **(turn.as_json() if turn is not None else {}),
    }
    return ExactJSON(body, 200 if idle else 202)


async def _chat(caller: Caller, notebook_id: int, session_id: str) -> Thread:
    """Return a chat of a notebook. Raises `NotFound` for other threads."""
    notebook = await repository.get(caller.store, notebook_id)
    try:
        return await repository.chat(caller.store, notebook, session_id)
    except Refused as exc:
        raise NotFound(f"Notebook {notebook_id} has no session {session_id}.") from exc


def _counted(counted: repository.CountedNotebook) -> Json:
    return {**counted.notebook.as_json(), "sources": counted.sources, "sessions": counted.chats}


def _source(source: Source) -> Json:
    return {**source.as_json(), "status": "ready"}


EXTENSION: Final = ServerExtension(
    api=(router,),
    pages=pages.routers(),
    sections=(NavLink("Notebooks", "/notebooks", "n"),),
    package="lockstitch.apps.notebooks",
)
