"""`LockstitchConversationStore`: the conversations of pydantic-ai in a store."""

from collections.abc import Sequence
from typing import Final

from pydantic import TypeAdapter
from pydantic_ai.conversation_store import (
    ConversationConflict,
    ConversationEntry,
    ConversationRecord,
    ConversationStore,
)
from pydantic_ai.messages import ModelMessage, ModelMessagesTypeAdapter, ModelRequest, ModelResponse, ToolReturnPart

from lockstitch.errors import Conflict, NotFound, ThreadBusy, ThreadEnded
from lockstitch.integrations.loops import checked_store
from lockstitch.integrations.pydantic_ai.recorder import Recorder, messages_of
from lockstitch.integrations.pydantic_ai.records import EXTENSION, StoredConversation, StoredMessage
from lockstitch.model import Entry, Json, Run, Thread
from lockstitch.store import Condition, Store, Transaction, Where
from lockstitch.store.conversations import inherited_by_fork

NAMESPACE: Final = "pydantic-ai"
"""Namespace of the keys of threads: the conversation `1` has the key `pydantic-ai:1`."""

ATTEMPTS: Final = 20
"""Attempts of a commit while other processes write to the same thread."""

SPARE: Final = 20
"""Messages that are read besides a limited number of wanted ones, because some may be of other branches."""

_RECORDS: Final = TypeAdapter(ConversationRecord)


class LockstitchConversationStore(ConversationStore):
    """A `ConversationStore` of pydantic-ai. Each conversation is a thread, each message one or more stitches.

    A save is one commit. The scope of a conversation is the user of its thread. `delete` deletes the thread with all of
    its messages; forks have copies of those that they inherit. Safe to use from many tasks and processes.
    """

    def __init__(self, store: Store) -> None:
        """Create a conversation store for the project of a store.

        Args:
            store: Open store.

        Raises:
            Refused: If `store` is no open store.
        """
        self._store = checked_store(store).in_namespace(NAMESPACE)

    # The five methods of the contract

    async def read_record(self, conversation_id: str) -> ConversationRecord | None:
        """Return the record of a conversation, or None.

        Args:
            conversation_id: Id of the conversation.
        """
        await self._store.extend(EXTENSION)
        stored = await self._stored(conversation_id)
        return None if stored is None else _RECORDS.validate_json(stored.content)

    async def read_records(self, *, scope: str | None = None, limit: int | None = None) -> Sequence[ConversationRecord]:
        """Return the records of conversations, the latest saved first.

        Args:
            scope: Scope of the conversations. None: all.
            limit: Maximum number of records. None: all.
        """
        await self._store.extend(EXTENSION)
        where: list[Condition] = [Where("project", "=", self._store.project)]
        if scope is not None:
            where.append(Where("scope", "=", scope))
        table = self._store.table(StoredConversation)
        rows = await table.find(*where, order=("-updated_at", "-thread_id"), limit=limit)
        return [_RECORDS.validate_json(row.content) for row in rows]

    async def write_record(
        self,
        record: ConversationRecord,
        *,
        new_entries: Sequence[ConversationEntry] = (),
        expected_revision: str | None,
    ) -> None:
        """Store a record with its new messages, in one commit.

        Args:
            record: The record.
            new_entries: The new messages.
            expected_revision: Revision of the stored record. None: there is none.

        Raises:
            ConversationConflict: If the stored record has another revision, or if a message that the record or a new
                message refers to does not exist.
            ThreadBusy: If a worker holds the thread.
            ThreadEnded: If the thread of the conversation was ended.
        """
        await self._store.extend(EXTENSION)
        for attempt in range(ATTEMPTS):
            head, stored = await self._current(record.conversation_id)
            if (None if stored is None else stored.revision) != expected_revision:
                raise ConversationConflict(record.conversation_id)
            try:
                await self._store.commit(await self._transaction(head, stored, record, new_entries))
            except Conflict as exc:
                if isinstance(exc, ThreadBusy | ThreadEnded) or attempt == ATTEMPTS - 1:
                    raise
                continue
            return

    async def delete_record(self, conversation_id: str, *, expected_revision: str) -> None:
        """Delete a conversation with its thread and its messages, in one commit.

        Args:
            conversation_id: Id of the conversation.
            expected_revision: Revision of the stored record.

        Raises:
            ConversationConflict: If the stored record has another revision, or if there is none.
            ThreadBusy: If a worker holds the thread.
        """
        await self._store.extend(EXTENSION)
        for attempt in range(ATTEMPTS):
            head, stored = await self._current(conversation_id)
            if head is None or stored is None or stored.revision != expected_revision:
                raise ConversationConflict(conversation_id)
            try:
                await self._store.commit(Transaction(delete_threads=[head]))
            except Conflict as exc:
                if isinstance(exc, ThreadBusy) or attempt == ATTEMPTS - 1:
                    raise
                continue
            return

    async def read_entry(self, entry_id: str) -> ConversationEntry:
        """Return a message with its id.

        Args:
            entry_id: Id of the message.

        Raises:
            KeyError: If the store has no such message.
        """
        return (await self.read_history(entry_id, limit=1))[0]

    async def read_history(self, head_id: str | None, *, limit: int | None = None) -> list[ConversationEntry]:
        """Return the messages up to one of them, oldest first.

        Args:
            head_id: Id of the last message. None: no messages.
            limit: Maximum number of messages, the last ones. None: all.

        Raises:
            KeyError: If the store has no such message.
        """
        if head_id is None or limit == 0:
            return []
        await self._store.extend(EXTENSION)
        rows = await self._rows(head_id, limit)
        return [
            ConversationEntry(id=row.entry_id, parent_id=row.parent_id, message=message)
            for row, message in zip(rows, _messages(rows), strict=True)
        ]

    # Reading

    async def _stored(self, conversation_id: str) -> StoredConversation | None:
        return await self._store.table(StoredConversation).get_or_none(self._store.project, conversation_id)

    async def _current(self, conversation_id: str) -> tuple[Thread | None, StoredConversation | None]:
        """Return the thread and the record of a conversation. The thread is not newer than the record.

        So a commit that compares the position of the thread fails if the record has changed since.
        """
        head = await self._thread(conversation_id)
        stored = await self._stored(conversation_id)
        while stored is not None and (head is None or head.id != stored.thread_id):
            # The thread was created since, or another one has its key.
            head = await self._thread_by_id(stored)
            stored = await self._stored(conversation_id)
        return head, stored

    async def _thread(self, conversation_id: str) -> Thread | None:
        try:
            return await self._store.thread(conversation_id)
        except NotFound:
            return None

    async def _thread_by_id(self, stored: StoredConversation) -> Thread | None:
        try:
            return await self._store.thread(stored.thread_id)
        except NotFound:
            return None

    async def _rows(self, entry_id: str, limit: int | None = None) -> list[StoredMessage]:
        """Return the stored messages up to one of them, oldest first. Raises `KeyError` if there is none.

        A message of a fork is in several threads. One of them may be deleted at the same time.
        """
        table = self._store.table(StoredMessage)
        here = (Where("entry_id", "=", entry_id), Where("project", "=", self._store.project))
        for last in await table.find(*here, order=("thread_id",)):
            rows: list[StoredMessage] = []
            wanted: str | None = entry_id
            below = last.number + 1
            while wanted is not None and (limit is None or len(rows) < limit) and below > 1:
                page = await table.find(
                    Where("thread_id", "=", last.thread_id),
                    Where("number", "<", below),
                    order=("-number",),
                    limit=None if limit is None else limit - len(rows) + SPARE,
                )
                for row in page:
                    if row.entry_id == wanted and (limit is None or len(rows) < limit):
                        rows.append(row)
                        wanted = row.parent_id
                below = page[-1].number if page else 1
            if wanted is None or len(rows) == limit:
                return rows[::-1]
        raise KeyError(entry_id)

    # Writing

    async def _transaction(
        self,
        head: Thread | None,
        stored: StoredConversation | None,
        record: ConversationRecord,
        new_entries: Sequence[ConversationEntry],
    ) -> Transaction:
        """Return the transaction that writes a record and its new messages.

        The commit compares the position of the thread, so each transaction appends a stitch.
        """
        transaction = Transaction()
        parent_id = new_entries[0].parent_id if new_entries else record.head_id
        branches = parent_id != (None if stored is None else stored.head_id)
        rows: list[StoredMessage] = []
        if parent_id is not None and (branches or _has_results(new_entries)):
            try:
                rows = await self._rows(parent_id)
            except KeyError:
                raise ConversationConflict(record.conversation_id) from None
        if head is None:
            head = self._store.new_thread(key=record.conversation_id, user_id=record.scope)
            if rows:
                head = await self._as_fork(head, rows[-1])
            transaction.new_threads.append(head)
        recorder = Recorder(self._store, head, await self._open_run(stored))
        transaction.updates.append(recorder.update)
        number = 0 if stored is None else stored.messages
        if branches and rows and rows[-1].thread_id != head.id:
            position = recorder.next_position
            messages = messages_of(self._store, _messages(rows))
            recorder.update.entries.append(Entry(type="fork", data={**_origin(rows[-1]), "messages": messages}))
            for row in rows:
                number += 1
                copied = {"thread_id": head.id, "number": number, "first": position, "last": position}
                transaction.records.append(row.changed(**copied, inherited=True))
        elif branches:
            recorder.update.entries.append(Entry(type="compaction", data=self._kept(rows)))
        _expect_results(recorder, rows)
        for entry in new_entries:
            number += 1
            first, last = recorder.record(entry.message)
            transaction.records.append(
                StoredMessage(
                    thread_id=head.id,
                    number=number,
                    project=self._store.project,
                    entry_id=entry.id,
                    parent_id=entry.parent_id,
                    first=first,
                    last=last,
                    content=ModelMessagesTypeAdapter.dump_json([entry.message])[1:-1],
                )
            )
        if not recorder.update.entries:
            recorder.update.entries.append(Entry(type="pydantic_ai_saved"))
        recorder.end(waits=record.deferred_tool_requests is not None)
        transaction.records.append(
            StoredConversation(
                project=self._store.project,
                conversation_id=record.conversation_id,
                thread_id=head.id,
                scope=record.scope,
                revision=record.revision,
                head_id=record.head_id,
                updated_at=record.updated_at,
                messages=number,
                open_run_id=None if recorder.open_run is None else recorder.open_run.id,
                content=_RECORDS.dump_json(record),
            )
        )
        return transaction

    async def _as_fork(self, head: Thread, row: StoredMessage) -> Thread:
        """Return a new thread as a fork that continues a message."""
        source = await self._store.thread(row.thread_id)
        inherited = await inherited_by_fork(self._store, source, row.last)
        state: Json = {**_origin(row), "inherited": [part.as_json() for part in inherited]}
        return head.changed(state=state, last_turn=inherited[0].last_turn if inherited else 0)

    async def _open_run(self, stored: StoredConversation | None) -> Run | None:
        if stored is None or stored.open_run_id is None:
            return None
        run = await self._store.run(stored.open_run_id)
        return run if run.open else None

    def _kept(self, rows: Sequence[StoredMessage]) -> Json:
        """Return the data of a compaction that makes these messages the context."""
        inherited = [row for row in rows if row.inherited]
        keep = [[row.first, row.last] for row in rows if not row.inherited and row.first <= row.last]
        replace: Json = {}
        if inherited:
            replace[str(inherited[0].first)] = messages_of(self._store, _messages(inherited))
        return {"applied": True, "reason": "pydantic_ai", "keep": keep, "replace": replace}


def _messages(rows: Sequence[StoredMessage]) -> list[ModelMessage]:
    return ModelMessagesTypeAdapter.validate_json(b"[" + b",".join(row.content for row in rows) + b"]")


def _origin(row: StoredMessage) -> Json:
    return {"forked_from": {"thread_id": str(row.thread_id), "position": row.last}}


def _has_results(entries: Sequence[ConversationEntry]) -> bool:
    """True if the first message may answer calls of a stored response."""
    message = entries[0].message if entries else None
    return isinstance(message, ModelRequest) and any(isinstance(part, ToolReturnPart) for part in message.parts)


def _expect_results(recorder: Recorder, rows: Sequence[StoredMessage]) -> None:
    """Let new results answer the calls of the last stored response. One in the stitch of a fork cannot be answered."""
    for row in reversed(rows):
        (message,) = _messages([row])
        if isinstance(message, ModelResponse):
            if not row.inherited:
                recorder.expect(message, row.first)
            return
