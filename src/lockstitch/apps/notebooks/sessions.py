"""The chats of a notebook: threads, each with a link that is made with it and goes with it."""

from typing import Any, Final
from uuid import UUID

from lockstitch.apps.notebooks import shelf
from lockstitch.apps.notebooks.reader import clean
from lockstitch.apps.notebooks.records import Notebook, NotebookSession
from lockstitch.backend import Find, Where
from lockstitch.errors import Conflict, NotFound, Refused
from lockstitch.records import Thread, as_id, codec, new_id
from lockstitch.store import Store

_TITLE: Final = 80
"""Characters of the first message that a chat is called by."""


async def ensure(
    store: Store, notebook: Notebook, session_id: str | None, *, user_id: str | None, agent: str, message: str
) -> Thread:
    """The thread of a chat: a known one goes on, an unknown one is made with its link, in one transaction.

    Refused for a chat of another notebook, of another user, or a thread that belongs to no notebook.
    """
    if session_id is not None:
        known = await _known(store, session_id)
        if known is not None:
            return await _checked(store, notebook, known, user_id)
    try:
        return await _create(store, notebook, session_id, user_id, agent, message)
    except (Conflict, Refused):
        # Somebody else made it in between, so it is a known one now; or the notebook was removed.
        await shelf.get(store, notebook.number)
        known = await _known(store, session_id) if session_id is not None else None
        if known is None:
            raise
        return await _checked(store, notebook, known, user_id)


async def link_of(store: Store, thread: Thread) -> NotebookSession | None:
    """The link of a thread to its notebook, if it is a chat of one."""
    return await store.backend.get(NotebookSession, (thread.id,))


async def chat(store: Store, notebook: Notebook, session_id: str, *, user_id: str | None = None) -> Thread:
    """A chat of this notebook. NotFound when there is no such thread, Refused when it is not its own."""
    return await _checked(store, notebook, await store.thread(session_id), user_id)


async def unlink(store: Store, notebook: Notebook, session_id: str) -> Thread:
    """Take a chat out of its notebook; it stays as a thread."""
    thread = await chat(store, notebook, session_id)
    await store.backend.delete(Find(NotebookSession, (Where("thread_id", "=", thread.id),)))
    return thread


async def _known(store: Store, session_id: str) -> Thread | None:
    codec.check_text(session_id, "The session_id")
    if not 0 < len(session_id) <= 255:
        raise Refused("A session_id has 1 to 255 characters.")
    try:
        return await store.thread(session_id)
    except NotFound:
        return None


async def _checked(store: Store, notebook: Notebook, thread: Thread, user_id: str | None) -> Thread:
    link = await link_of(store, thread)
    named = thread.key or str(thread.id)
    if link is None:
        raise Refused(f"Session {named} is a thread that belongs to no notebook; nothing was done.")
    if link.notebook_id != notebook.number:
        raise Refused(f"Session {named} belongs to another notebook; nothing was done.")
    if user_id is not None and thread.user_id != user_id:
        raise Refused(f"Session {named} belongs to another user; nothing was done.")
    return thread


async def _create(
    store: Store, notebook: Notebook, session_id: str | None, user_id: str | None, agent: str, message: str
) -> Thread:
    wanted: UUID | None = as_id(session_id) if session_id is not None else new_id()
    thread_id = wanted or new_id()
    name: dict[str, Any] = {"id": thread_id, "key": session_id if wanted is None else None}
    link = NotebookSession(
        project=store.project,
        notebook_id=notebook.number,
        session_id=name["key"] or str(thread_id),
        thread_id=thread_id,
        created_at=store.clock.now(),
    )
    title = " ".join(clean(message).split())
    title = title if len(title) <= _TITLE else f"{title[: _TITLE - 1].rstrip()}…"
    return await store.create(**name, agent=agent, user_id=user_id, title=title or None, records=[link])
