"""`LockstitchSessionStore`: the transcripts of the Claude Agent SDK in a store."""

import asyncio
import json
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from hashlib import sha256
from importlib import import_module
from typing import Any, Final, cast
from urllib.parse import quote

from lockstitch.errors import Conflict, NotFound, Refused, ThreadEnded, ThreadHeld
from lockstitch.integrations.claude_agents.conversation import NewEntry, plan
from lockstitch.integrations.claude_agents.transcript import ABOUT, Recorded, entries_of
from lockstitch.integrations.loops import checked_store
from lockstitch.model import Json, Run, Thread, codec
from lockstitch.store import Store, Transaction, Where

NAMESPACE: Final = "claude"
"""Namespace of the keys of threads."""

MOST_SESSIONS: Final = 100
"""Transcripts whose recorded part stays in memory."""

ATTEMPTS: Final = 50
"""Attempts of a commit while other processes write to the same thread."""

_LONGEST_KEY: Final = 240
_LONGEST_TITLE: Final = 255

SessionKey = Mapping[str, Any]
"""`project_key`, `session_id` and, for a sub-agent, `subpath`."""


class _Session:
    """The recorded part of a transcript in the memory of this process. A commit compares it with the store."""

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.forget()

    def forget(self) -> None:
        self.head: Thread | None = None
        self.recorded = Recorded()
        self.run: Run | None = None


class LockstitchSessionStore:
    """A `session_store` of the Claude Agent SDK. A session is a thread with its turns, a sub-agent a child thread.

    Call it in the event loop of the store. Sessions of one project of the store are separate from those of another one.
    """

    def __init__(self, store: Store) -> None:
        """Create a session store for the project of a store.

        Args:
            store: Open store.

        Raises:
            Refused: If `store` is no open store.
        """
        self.store = checked_store(store)
        """The store."""
        self._threads = store.in_namespace(NAMESPACE)
        self._sessions: OrderedDict[str, _Session] = OrderedDict()

    async def append(self, key: SessionKey, entries: Sequence[Mapping[str, Any]]) -> None:
        """Append entries of a transcript, in one commit. Entries with a known `uuid` are ignored.

        Args:
            key: Key of the transcript.
            entries: Entries, in order.

        Raises:
            Conflict: If the thread has ended, or if a worker holds it.
            Refused: If an entry cannot be stored.
        """
        if not entries:
            return
        session = self._session(thread_key(key))
        values = [cast("Json", entry) for entry in entries]
        async with session.lock:
            is_exact = True
            for attempt in range(ATTEMPTS):
                new = session.recorded.new_entries(values)
                if session.head is None or (attempt == 0 and len(new) < len(values)):
                    # The thread may have been deleted since this process read it.
                    await self._read(session, key)
                    new = session.recorded.new_entries(values)
                if not new:
                    return
                try:
                    await self._write(
                        session, key, [NewEntry(entry) if is_exact else _readable(entry) for entry in new]
                    )
                    return
                except Refused:
                    if not is_exact:
                        raise
                    # Texts of JavaScript can end with half of a character.
                    is_exact = False
                except (Conflict, NotFound) as exc:
                    if isinstance(exc, ThreadEnded | ThreadHeld) or attempt == ATTEMPTS - 1:
                        raise
                    # Another process has written, or has deleted the thread.
                    await self._read(session, key)

    async def load(self, key: SessionKey) -> list[Json] | None:
        """Return the entries of a transcript in their order, or None if there is none.

        Args:
            key: Key of the transcript.
        """
        head = await self._find(key)
        if head is None or not head.position:
            return None
        return entries_of(await self._threads.stitches(head)) or None

    async def list_sessions(self, project_key: str) -> list[Json]:
        """Return `session_id` and `mtime` of the sessions of a project, without sub-agents.

        Args:
            project_key: Project of the sessions in Claude.
        """
        return [
            {"session_id": thread.extras["session_id"], "mtime": thread.state[ABOUT]["mtime"]}
            for thread in await self._listed(project_key)
        ]

    async def list_session_summaries(self, project_key: str) -> list[Json]:
        """Return the summaries of the sessions of a project. A session that was written without the SDK has none.

        Args:
            project_key: Project of the sessions in Claude.
        """
        return [
            {"session_id": thread.extras["session_id"], **thread.state[ABOUT]}
            for thread in await self._listed(project_key)
            if "data" in thread.state[ABOUT]
        ]

    async def delete(self, key: SessionKey) -> None:
        """Delete a transcript with its thread. The transcripts of the sub-agents of a session are deleted with it.

        Args:
            key: Key of the transcript.

        Raises:
            ThreadBusy: If a worker holds the thread.
        """
        head = await self._find(key)
        self._sessions.pop(thread_key(key), None)
        if head is not None:
            with suppress(NotFound):
                await self._threads.commit(Transaction(delete_threads=[head.id]))

    async def list_subkeys(self, key: SessionKey) -> list[str]:
        """Return the `subpath` of each transcript of a sub-agent of a session.

        Args:
            key: Key of the session.
        """
        head = await self._find(_main(key))
        if head is None:
            return []
        return [
            thread.extras["subpath"] for thread in await self._threads.children(head) if self._is_transcript(thread)
        ]

    # Threads

    def _session(self, key: str) -> _Session:
        session = self._sessions.setdefault(key, _Session())
        self._sessions.move_to_end(key)
        if len(self._sessions) > MOST_SESSIONS:
            idle = (other for other, held in self._sessions.items() if held is not session and not held.lock.locked())
            self._sessions.pop(next(idle, ""), None)
        return session

    async def _find(self, key: SessionKey) -> Thread | None:
        try:
            return await self._threads.thread(thread_key(key))
        except NotFound:
            return None

    async def _listed(self, project_key: str) -> list[Thread]:
        found = await self._threads.find_threads(
            Where("extras", "=", project_key, path=("project_key",)), Where("parent_id", "is null")
        )
        return [thread for thread in found if self._is_transcript(thread)]

    def _is_transcript(self, thread: Thread) -> bool:
        """True if a session has written to the thread. A fork of a thread has its data, but not its key."""
        about = thread.extras
        return (
            ABOUT in thread.state
            and "session_id" in about
            and self._threads.key_in_namespace(thread) == thread_key(about)
        )

    async def _read(self, session: _Session, key: SessionKey) -> None:
        """Read the thread of a session, and the stitches since the last time."""
        head = await self._find(key)
        if head is None or session.head is None or head.id != session.head.id:
            session.forget()
        if head is not None and head.position > session.recorded.position:
            stitches = await self._threads.stitches(head, session.recorded.position + 1, head.position)
            runs = await self._threads.find_runs(head.id, order=("-sequence",), limit=1)
            for stitch in stitches:
                session.recorded.add(stitch)
            session.run = runs[0] if runs else None
        session.head = head

    async def _write(self, session: _Session, key: SessionKey, entries: Sequence[NewEntry]) -> None:
        """Append new entries. Create the thread in the same commit if there is none."""
        transaction = Transaction()
        head = session.head
        if head is None:
            head = await self._new_thread(key, transaction)
        update, run = plan(self._threads, head, session.recorded, session.run, entries)
        update.fields = self._fields(head, key, [entry.entry for entry in entries], is_new=not session.recorded.count)
        transaction.updates.append(update)
        (committed,) = await self._threads.commit(transaction)
        session.head, session.run = committed.head, run
        for stitch in committed.stitches:
            session.recorded.add(stitch)

    async def _new_thread(self, key: SessionKey, transaction: Transaction) -> Thread:
        """Add the thread of a transcript, and that of its session, to a transaction. Return the first one."""
        parent: Thread | None = None
        if key.get("subpath"):
            parent = await self._find(_main(key)) or await self._new_thread(_main(key), transaction)
        extras = {name: key[name] for name in ("project_key", "session_id", "subpath") if key.get(name)}
        thread = self._threads.new_thread(
            key=thread_key(key),
            parent_id=None if parent is None else parent.id,
            depth=0 if parent is None else parent.depth + 1,
            extras={"framework": "claude-agents", **extras},
        )
        transaction.new_threads.append(thread)
        return thread

    def _fields(self, head: Thread, key: SessionKey, entries: Sequence[Json], *, is_new: bool) -> Json:
        """Return the fields of a thread that change with new entries: its title, and the summary of the session."""
        earlier: Json = head.state.get(ABOUT, {})
        about: Json = {"mtime": max(int(self.store.clock.now().timestamp() * 1000), earlier.get("mtime", 0) + 1)}
        old_title = new_title = None
        if key.get("subpath"):
            titles = [entry.get("description") for entry in entries if entry.get("type") == "agent_metadata"]
            new_title = titles[-1] if titles else None
        else:
            fold = _fold()
            if fold is not None and (is_new or "data" in earlier):
                summary = {"session_id": key["session_id"], **earlier} if earlier else None
                about["data"] = fold(summary, key, list(entries))["data"]
                old_title, new_title = _title(earlier.get("data", {})), _title(about["data"])
        fields: Json = {"state": {**head.state, ABOUT: about}}
        if isinstance(new_title, str) and new_title != old_title:
            fields["title"] = new_title.replace("\x00", "")[:_LONGEST_TITLE]
        return fields


def thread_key(key: SessionKey) -> str:
    """Return the key of the thread of a transcript, in the namespace: `project/session` or `project/session/subpath`.

    Args:
        key: Key of the transcript.

    Raises:
        Refused: If a store cannot keep its characters.
    """
    parts = [key["project_key"], key["session_id"], *([key["subpath"]] if key.get("subpath") else ())]
    text = "/".join(
        # Only a subpath has slashes, so two keys never have the same text.
        quote(codec.check_text(str(part), "The key"), safe=" !$&'()*+,;=:@" + "/" * (place == 2))
        for place, part in enumerate(parts)
    )
    return text if len(text) <= _LONGEST_KEY else sha256(text.encode()).hexdigest()


def _title(summary: Json) -> Any:
    found = (summary.get(name) for name in ("custom_title", "ai_title", "first_prompt"))
    return next((title for title in found if title), None)


def _main(key: SessionKey) -> Json:
    return {"project_key": key["project_key"], "session_id": key["session_id"]}


def _readable(entry: Json) -> NewEntry:
    """Return an entry with replacement characters, and its exact text, if a store cannot keep its characters."""
    try:
        codec.dumps(entry)
    except Refused:
        text = codec.storable_text(json.dumps(entry, ensure_ascii=False))
        return NewEntry(json.loads(text, parse_constant=lambda _: None), json.dumps(entry))
    return NewEntry(entry)


def _fold() -> Callable[..., Any] | None:
    """Return the function of the SDK that derives the summary of a session, or None without the SDK."""
    try:
        return import_module("claude_agent_sdk").fold_session_summary
    except ModuleNotFoundError:
        return None
