"""`CheckpointLog`: writes and deletes the checkpoints of a project, with the conversation of each thread."""

from collections import OrderedDict
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final, cast

import ormsgpack
from langchain_core.messages import BaseMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import WRITES_IDX_MAP, CheckpointMetadata, CheckpointTuple
from langgraph.checkpoint.base import Checkpoint as GraphCheckpoint
from langgraph.checkpoint.base import get_serializable_checkpoint_metadata as serializable_metadata
from langgraph.checkpoint.serde.base import SerializerProtocol
from langgraph.checkpoint.serde.types import ERROR

from lockstitch.errors import Conflict, NotFound, ThreadEnded, ThreadHeld
from lockstitch.integrations.langgraph.checkpoint_reader import (
    CheckpointReader,
    ThreadState,
    as_written,
    matches_rest,
    split_filter,
)
from lockstitch.integrations.langgraph.conversation import Conversation, Step
from lockstitch.integrations.langgraph.deltas import LatestValue, Place, encode
from lockstitch.integrations.langgraph.records import EXTENSION, ChannelValue, Checkpoint, Successor, Writes
from lockstitch.model import Entry, codec, new_id
from lockstitch.store import Condition, Store, ThreadUpdate, Transaction, Where

MOST_THREADS: Final = 1000
"""Threads whose latest values stay in memory."""

ATTEMPTS: Final = 20
"""Attempts of a commit while other processes write to the same thread."""

SMALL_TEXT: Final = 64
"""Characters of text that a checkpoint contains itself."""

PAGE: Final = 50
"""Checkpoints that are read at once."""


class CheckpointLog:
    """The checkpoints of one project. Its methods run on the loop of the store."""

    def __init__(self, store: Store, serde: SerializerProtocol, *, record: bool, exclusive: bool) -> None:
        self._store = store
        self._serde = serde
        self._record = record
        self._exclusive = exclusive
        self._reader = CheckpointReader(store, serde)
        self._threads: OrderedDict[str, ThreadState] = OrderedDict()

    async def setup(self) -> None:
        """Create the tables."""
        await self._store.extend(EXTENSION)

    # Writing

    async def put(
        self,
        config: RunnableConfig,
        checkpoint: GraphCheckpoint,
        metadata: CheckpointMetadata,
        new_versions: Mapping[str, Any],
    ) -> RunnableConfig:
        """Store a checkpoint. See `LockstitchSaver.aput`."""
        configurable = _configurable(config)
        thread_id, ns = str(configurable["thread_id"]), str(configurable.get("checkpoint_ns") or "")
        parent_id = configurable.get("checkpoint_id")
        about = cast("dict[str, Any]", serializable_metadata(config, metadata))
        async with self._thread(thread_id) as state:
            for attempt in range(ATTEMPTS):
                if state.conversation is None and self._record and not ns:
                    state.conversation = await Conversation.load(self._store, state.head)
                place = Place(state.head.id, ns, "")
                content, values, messages = self._encoded(state, place, checkpoint, new_versions)
                row = Checkpoint(
                    thread_id=state.head.id,
                    ns=ns,
                    checkpoint_id=checkpoint["id"],
                    project=self._store.project,
                    parent_id=parent_id,
                    run_id=None if about.get("run_id") is None else str(about["run_id"]),
                    encoding=content[0],
                    content=content[1],
                    metadata=about,
                )
                update, conversation = ThreadUpdate(state.head), state.conversation
                if conversation is not None and not ns:
                    step = Step(checkpoint["id"], messages, about.get("source") == "input", _is_last(checkpoint))
                    update, conversation = conversation.plan(self._store, state.head, step)
                transaction = Transaction([update], records=[row, *(value.row for value in values.values())])
                if self._exclusive and about.get("source") in ("input", "loop"):
                    transaction.new_records.append(
                        Successor(thread_id=state.head.id, ns=ns, parent_id=str(parent_id or ""))
                    )
                if await self._commit(state, thread_id, transaction, attempt):
                    state.conversation = conversation
                    state.values.update({(ns, channel): value for channel, value in values.items()})
                    break
        return cast(
            "RunnableConfig",
            {"configurable": {"thread_id": thread_id, "checkpoint_ns": ns, "checkpoint_id": checkpoint["id"]}},
        )

    async def _commit(self, state: ThreadState, thread_id: str, transaction: Transaction, attempt: int) -> bool:
        """Commit a transaction with one update. Return False if the thread has changed since it was planned."""
        try:
            (committed,) = await self._store.commit(transaction)
        except Conflict as exc:
            if exc.thread_id is None:
                message = f"Another run has continued this checkpoint of thread {thread_id}. Nothing was written."
                raise Conflict(message, thread_id=state.head.id) from exc
            if isinstance(exc, ThreadEnded | ThreadHeld) or attempt == ATTEMPTS - 1:
                raise
            # Another process has written. A difference must not refer to a value that it pruned.
            state.forget()
            state.head = await self._store.ensure(thread_id)
            return False
        state.head = committed.head
        return True

    def _encoded(
        self, state: ThreadState, place: Place, checkpoint: GraphCheckpoint, new_versions: Mapping[str, Any]
    ) -> tuple[tuple[str, bytes], dict[str, LatestValue], Sequence[BaseMessage] | None]:
        """Return the content of a checkpoint, the new values of channels, and the messages, if they are new."""
        versions = checkpoint["channel_versions"]
        small: dict[str, Any] = {}
        values: dict[str, LatestValue] = {}
        messages: Sequence[BaseMessage] | None = None
        for channel, value in checkpoint["channel_values"].items():
            version = versions.get(channel)
            if version is None or _is_small(value):
                small[channel] = value
            elif channel in new_versions:
                encoding, content = self._serde.dumps_typed(value)
                latest = state.values.get((place.ns, channel))
                values[channel] = encode(
                    place._replace(channel=channel), as_written(version), encoding, content, latest
                )
                if isinstance(value, list) and value and isinstance(value[-1], BaseMessage):
                    messages = cast("list[BaseMessage]", value)
        body = {name: part for name, part in checkpoint.items() if name != "channel_values"}
        return self._serde.dumps_typed([body, small]), values, messages

    async def put_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str
    ) -> None:
        """Store the writes of a task. An error of the root graph ends the open run."""
        configurable = _configurable(config)
        thread_id, ns = str(configurable["thread_id"]), str(configurable.get("checkpoint_ns") or "")
        special = all(channel in WRITES_IDX_MAP for channel, _ in writes)
        rows = [
            [WRITES_IDX_MAP.get(channel, number), channel, *self._serde.dumps_typed(value)]
            for number, (channel, value) in enumerate(writes)
        ]
        content = ormsgpack.packb([special, rows])
        problem = next((value for channel, value in writes if channel == ERROR), None)
        # With the lock, the writes of a checkpoint are never stored before it.
        async with self._thread(thread_id) as state:
            row = Writes(
                thread_id=state.head.id,
                ns=ns,
                checkpoint_id=str(configurable["checkpoint_id"]),
                task_id=task_id,
                task_path=task_path,
                content=content,
            )
            if problem is None or ns or not self._record:
                await self._store.table(Writes).put(row)
                return
            for attempt in range(ATTEMPTS):
                conversation = state.conversation or await Conversation.load(self._store, state.head)
                update = ThreadUpdate(state.head)
                if conversation.run is not None:
                    text = codec.error_text(problem) if isinstance(problem, BaseException) else str(problem)
                    update, conversation = conversation.failed(self._store, state.head, text.replace("\x00", ""))
                transaction = Transaction([update], records=[row.changed(thread_id=state.head.id)])
                if await self._commit(state, thread_id, transaction, attempt):
                    state.conversation = conversation
                    return

    # Reading

    async def get(self, config: RunnableConfig) -> CheckpointTuple | None:
        """Return a checkpoint, or the latest one. See `LockstitchSaver.aget_tuple`."""
        configurable = _configurable(config)
        thread_id, ns = str(configurable["thread_id"]), str(configurable.get("checkpoint_ns") or "")
        checkpoint_id = configurable.get("checkpoint_id")
        for _ in range(2):
            state = await self._known(thread_id)
            if state is None:
                return None
            where: list[Condition] = [Where("thread_id", "=", state.head.id), Where("ns", "=", ns)]
            if checkpoint_id:
                where.append(Where("checkpoint_id", "=", checkpoint_id))
            row = await self._store.table(Checkpoint).first(*where, order=("-checkpoint_id",))
            if row is not None:
                latest = None if checkpoint_id else state
                return (await self._reader.tuples([row], {row.thread_id: thread_id}, latest))[0]
            # Another process may have created the thread again.
            self._threads.pop(thread_id, None)
        return None

    async def pages(
        self,
        config: RunnableConfig | None,
        filter: Mapping[str, Any] | None,
        before: RunnableConfig | None,
        limit: int | None,
    ) -> AsyncGenerator[Sequence[CheckpointTuple], None]:
        """Yield pages of checkpoints, newest first. No page is empty. See `LockstitchSaver.alist`."""
        where: list[Condition] = [Where("project", "=", self._store.project)]
        configurable = _configurable(config) if config else {}
        await self.setup()
        if config:
            state = await self._known(str(configurable["thread_id"]))
            if state is None:
                return
            where.append(Where("thread_id", "=", state.head.id))
        for name, field in (("checkpoint_ns", "ns"), ("checkpoint_id", "checkpoint_id")):
            if configurable.get(name) is not None:
                where.append(Where(field, "=", configurable[name]))
        if before and (checkpoint_id := _configurable(before).get("checkpoint_id")):
            where.append(Where("checkpoint_id", "<", checkpoint_id))
        conditions, rest = split_filter("metadata", filter or {})
        order = ("-checkpoint_id", "-thread_id", "-ns")
        after: tuple[Any, ...] | None = None
        remaining = limit
        while remaining is None or remaining > 0:
            size = PAGE if remaining is None or rest else min(PAGE, remaining)
            rows = await self._store.table(Checkpoint).find(*where, *conditions, order=order, after=after, limit=size)
            wanted = [row for row in rows if matches_rest(row.metadata, rest)][:remaining]
            if wanted:
                yield await self._reader.tuples(wanted, await self._reader.thread_ids(wanted))
            if len(rows) < size:
                return
            remaining = None if remaining is None else remaining - len(wanted)
            after = tuple(getattr(rows[-1], field.removeprefix("-")) for field in order)

    # Deleting and copying

    async def delete_thread(self, thread_id: str) -> None:
        """Delete a thread with everything that belongs to it."""
        state = await self._known(thread_id)
        self._threads.pop(thread_id, None)
        if state is not None:
            try:
                await self._store.delete(state.head.id)
            except NotFound:
                return

    async def delete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Delete the checkpoints of runs with their writes."""
        await self.setup()
        of_runs = (Where("project", "=", self._store.project), Where("run_id", "in", [str(id) for id in run_ids]))
        rows = await self._store.table(Checkpoint).find(*of_runs)
        if rows:
            # A checkpoint that has lost its successor can be continued again.
            parents = {(row.thread_id, row.ns, row.parent_id or "") for row in rows}
            await self._store.commit(_without(rows, parents))

    async def copy_thread(self, source: str, target: str) -> None:
        """Copy the checkpoints of a thread, in one commit."""
        state = await self._known(source)
        if state is None:
            return
        of_source = Where("thread_id", "=", state.head.id)
        async with self._thread(target) as copy:
            transaction = Transaction()
            for kind in (Checkpoint, ChannelValue):
                rows = await self._store.table(kind).find(of_source)
                transaction.records += [row.changed(thread_id=copy.head.id) for row in rows]
            for row in await self._store.table(Writes).find(of_source, order=("id",)):
                transaction.records.append(row.changed(thread_id=copy.head.id, id=new_id()))
            await self._store.commit(transaction)
            copy.forget()

    async def prune(self, thread_id: str) -> None:
        """Delete all checkpoints except the latest of each namespace and those that its delta channels need."""
        if await self._known(thread_id) is None:
            return
        async with self._thread(thread_id) as state:
            for attempt in range(ATTEMPTS):
                where = Where("thread_id", "=", state.head.id)
                rows = await self._store.table(Checkpoint).find(where, order=("-checkpoint_id",))
                # The stitch tells other processes that the bases of their differences are gone.
                transaction = Transaction([ThreadUpdate(state.head, [Entry(type="checkpoints_pruned")])])
                for ns in {row.ns for row in rows}:
                    of_ns = [row for row in rows if row.ns == ns]
                    needed = self._reader.needed(of_ns)
                    transaction.records += await self._reader.whole_values(needed)
                    transaction.delete(ChannelValue, where, Where("ns", "=", ns))
                    gone = [row for row in of_ns if row not in needed]
                    if gone:
                        transaction.delete_records += _without(gone, set()).delete_records
                if await self._commit(state, thread_id, transaction, attempt):
                    state.values.clear()
                    return

    # Threads

    @asynccontextmanager
    async def _thread(self, thread_id: str) -> AsyncGenerator[ThreadState, None]:
        """Lock a thread in this process, and create it if there is none."""
        state = await self._known(thread_id)
        if state is None:
            head = await self._store.ensure(thread_id, extras={"framework": "langgraph"})
            state = self._threads.setdefault(thread_id, ThreadState(head))
            for old_id, old in [*self._threads.items()][: max(0, len(self._threads) - MOST_THREADS)]:
                if not old.lock.locked() and old is not state:
                    del self._threads[old_id]
        async with state.lock:
            yield state

    async def _known(self, thread_id: str) -> ThreadState | None:
        """Return the state of a thread, or None if there is no such thread."""
        await self.setup()
        state = self._threads.get(thread_id)
        if state is None:
            try:
                head = await self._store.thread(thread_id)
            except NotFound:
                return None
            state = self._threads.setdefault(thread_id, ThreadState(head))
        self._threads.move_to_end(thread_id)
        return state


def _without(rows: Sequence[Checkpoint], parents: set[tuple[Any, str, str]]) -> Transaction:
    """Return a transaction that deletes checkpoints, their writes, and the successors of some parents."""
    keys = [(row.thread_id, row.ns, row.checkpoint_id) for row in rows]
    transaction = Transaction()
    transaction.delete(Checkpoint, Where(("thread_id", "ns", "checkpoint_id"), "in", keys))
    transaction.delete(Writes, Where(("thread_id", "ns", "checkpoint_id"), "in", keys))
    if parents:
        transaction.delete(Successor, Where(("thread_id", "ns", "parent_id"), "in", sorted(parents)))
    return transaction


def _configurable(config: RunnableConfig) -> dict[str, Any]:
    return config.get("configurable", {})


def _is_small(value: Any) -> bool:
    return value is None or isinstance(value, bool | int | float) or (type(value) is str and len(value) < SMALL_TEXT)


def _is_last(checkpoint: GraphCheckpoint) -> bool:
    """True if no task follows. A saver is never told that a run has ended."""
    return not any(
        channel.startswith("branch:to:") or channel in ("__start__", "__pregel_tasks")
        for channel in checkpoint["channel_values"]
    )
