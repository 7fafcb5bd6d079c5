"""Create, list, change and delete notebooks, and find or create their chats."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple
from uuid import UUID

from lockstitch import Conflict, NotFound, Refused, Store, Thread
from lockstitch.apps.notebooks.readers.reader import clean
from lockstitch.apps.notebooks.records import EXTENSION, UNTITLED, Notebook, NotebookSession
from lockstitch.ext import Where, as_id, codec, new_id, parse_time

_LARGEST = 2**63
_CHANGEABLE = ("title", "description", "instructions")


class CountedNotebook(NamedTuple):
    """A notebook with the numbers of its sources and chats."""

    notebook: Notebook
    sources: int
    chats: int
    last_chat_at: datetime | None
    """Time of the last message in one of its chats."""


async def create(
    store: Store, title: str | None = None, *, description: str | None = None, instructions: str | None = None
) -> Notebook:
    """Create a notebook. Raises `Refused` if the title is not valid."""
    now = store.clock.now()
    new = Notebook(
        project=store.project,
        title=title if title is not None else UNTITLED,
        description=description,
        instructions=instructions,
        created_at=now,
        updated_at=now,
    )
    return await _execute(store, "notebook_new", new)


async def get(store: Store, notebook_id: int) -> Notebook:
    """Return a notebook of this project. Raises `NotFound` if it does not exist."""
    where = (Where("id", "=", notebook_id), Where("project", "=", store.project))
    notebook = await store.table(Notebook).first(*where) if 0 < notebook_id < _LARGEST else None
    if notebook is None:
        raise missing(store, notebook_id)
    return notebook


async def listed(store: Store, *, limit: int | None = 100, offset: int = 0) -> list[Notebook]:
    """Return the notebooks of this project, most recently updated first."""
    where = (Where("project", "=", store.project),)
    return await store.table(Notebook).find(*where, order=("-updated_at", "-id"), limit=limit, offset=offset)


async def counted(store: Store, *, limit: int | None = 100, offset: int = 0) -> list[CountedNotebook]:
    """Return the notebooks of this project with their counts, most recently updated first."""
    notebooks = await listed(store, limit=limit, offset=offset)
    rows: Sequence[Any] = await store.query(EXTENSION, "notebook_counts", project=store.project)
    known = {int(row[0]): row for row in rows}
    result: list[CountedNotebook] = []
    for notebook in notebooks:
        _, sources, chats, last = known.get(notebook.number, (0, 0, 0, None))
        result.append(CountedNotebook(notebook, int(sources), int(chats), _time(last)))
    return result


async def change(store: Store, notebook_id: int, **fields: Any) -> Notebook:
    """Change the title, description or instructions. Raises `Refused` for other fields."""
    wrong = fields.keys() - set(_CHANGEABLE)
    if wrong:
        raise Refused(f"These fields of a notebook cannot be changed: {', '.join(sorted(wrong))}.")
    before = await get(store, notebook_id)
    notebook = before.changed(**before.validate_fields({**fields, "updated_at": store.clock.now()}))
    named = {f"with_{name}": int(name in fields) for name in _CHANGEABLE}
    return await _execute(store, "notebook_change", notebook, id=notebook_id, **named)


async def touch(store: Store, notebook_id: int) -> None:
    """Set the time of the last update to now."""
    await store.execute(EXTENSION, "notebook_touch", id=notebook_id, project=store.project, now=store.clock.now())


async def remove(store: Store, notebook_id: int, *, keep_sessions: bool = False, force: bool = False) -> int:
    """Delete a notebook with its sources and chats. Return the number of deleted chats.

    With `keep_sessions` the chats stay as threads without a notebook. Raises `ThreadBusy` if a worker holds one of
    the chats, unless `force` is set. Nothing is deleted then. Chats that start after these chats were deleted are
    deleted too, also if a worker holds them: the removal came first.
    """
    await get(store, notebook_id)
    removed = 0
    while True:
        if not keep_sessions:
            ids = [session.thread_id for session in await sessions(store, notebook_id)]
            if ids:
                removed += await store.delete_threads(ids, force=force or removed > 0)
        deleted_rows: Sequence[Any] = await store.execute(
            EXTENSION, "notebook_remove", id=notebook_id, project=store.project, keep_sessions=int(keep_sessions)
        )
        if deleted_rows:
            return removed
        # Another caller has started a chat or removed the notebook since.
        await get(store, notebook_id)


async def sessions(store: Store, notebook_id: int) -> list[NotebookSession]:
    """Return the links to the chats of a notebook, in order of their creation."""
    where = (Where("notebook_id", "=", notebook_id), Where("project", "=", store.project))
    return await store.table(NotebookSession).find(*where, order=("id",))


async def notebook_of(store: Store, thread: Thread) -> Notebook | None:
    """Return the notebook of a chat, or None if the thread is not a chat."""
    notebooks: Sequence[Notebook] = await store.query(
        EXTENSION, "notebook_of_thread", record_type=Notebook, thread=thread.id
    )
    return notebooks[0] if notebooks else None


def missing(store: Store, notebook_id: int) -> NotFound:
    return NotFound(f"Notebook {notebook_id} not found in project {store.project}.")


async def _execute(store: Store, query: str, notebook: Notebook, **parameters: int) -> Notebook:
    values: dict[str, Any] = {name: getattr(notebook, name) for name in _CHANGEABLE}
    notebooks: Sequence[Notebook] = await store.execute(
        EXTENSION, query, record_type=Notebook, project=store.project, now=notebook.updated_at, **values, **parameters
    )
    if not notebooks:
        raise missing(store, notebook.number)
    return notebooks[0]


def _time(value: Any) -> datetime | None:
    return parse_time(value) if isinstance(value, str) else value


_TITLE: Final = 80
"""Maximum number of characters of the first message that become the title of a chat."""


async def ensure(
    store: Store, notebook: Notebook, session_id: str | None, *, user_id: str | None, agent: str, message: str
) -> Thread:
    """Return the thread of a chat. A missing thread is created with its link in one transaction.

    Raises `Refused` if the thread belongs to another notebook, to another user or to no notebook.
    """
    if session_id is not None:
        thread = await _known(store, session_id)
        if thread is not None:
            return await _checked(store, notebook, thread, user_id)
    try:
        return await _create(store, notebook, session_id, user_id, agent, message)
    except (Conflict, Refused):
        # Another caller created the thread or removed the notebook since.
        await get(store, notebook.number)
        thread = await _known(store, session_id) if session_id is not None else None
        if thread is None:
            raise
        return await _checked(store, notebook, thread, user_id)


async def link_of(store: Store, thread: Thread) -> NotebookSession | None:
    """Return the link of a thread to its notebook, or None if the thread is not a chat."""
    return await store.table(NotebookSession).get_or_none(thread.id)


async def chat(store: Store, notebook: Notebook, session_id: str, *, user_id: str | None = None) -> Thread:
    """Return a chat of this notebook.

    Raises `NotFound` if the thread does not exist and `Refused` if it is not a chat of this notebook.
    """
    return await _checked(store, notebook, await store.thread(session_id), user_id)


async def unlink(store: Store, notebook: Notebook, session_id: str) -> Thread:
    """Remove a chat from its notebook. The thread stays."""
    thread = await chat(store, notebook, session_id)
    await store.table(NotebookSession).delete(Where("thread_id", "=", thread.id))
    return thread


async def _known(store: Store, session_id: str) -> Thread | None:
    codec.check_text(session_id, "The session_id")
    if not 0 < len(session_id) <= 255:
        raise Refused("A session_id must have 1 to 255 characters.")
    try:
        return await store.thread(session_id)
    except NotFound:
        return None


async def _checked(store: Store, notebook: Notebook, thread: Thread, user_id: str | None) -> Thread:
    link = await link_of(store, thread)
    named = thread.key or str(thread.id)
    if link is None:
        raise Refused(f"Session {named} is a thread without a notebook. Nothing was written.")
    if link.notebook_id != notebook.number:
        raise Refused(f"Session {named} belongs to another notebook. Nothing was written.")
    if user_id is not None and thread.user_id != user_id:
        raise Refused(f"Session {named} belongs to another user. Nothing was written.")
    return thread


async def _create(
    store: Store, notebook: Notebook, session_id: str | None, user_id: str | None, agent: str, message: str
) -> Thread:
    wanted: UUID | None = as_id(session_id) if session_id is not None else new_id()
    thread_id = wanted or new_id()
    key = session_id if wanted is None else None
    link = NotebookSession(
        project=store.project,
        notebook_id=notebook.number,
        session_id=key or str(thread_id),
        thread_id=thread_id,
        created_at=store.clock.now(),
    )
    title = " ".join(clean(message).split())
    title = title if len(title) <= _TITLE else f"{title[: _TITLE - 1].rstrip()}…"
    return await store.create(id=thread_id, key=key, agent=agent, user_id=user_id, title=title or None, records=[link])
