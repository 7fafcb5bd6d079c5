"""`LockstitchSaver`: the checkpoints of LangGraph in a store."""

import random
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Sequence
from typing import Any, Final, Literal

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    BaseCheckpointSaver,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
)
from langgraph.checkpoint.serde.base import SerializerProtocol

from lockstitch.errors import Refused
from lockstitch.integrations.langgraph.checkpoints import CheckpointLog
from lockstitch.integrations.loops import LoopBound
from lockstitch.store import Store

NAMESPACE: Final = "langgraph"
"""Namespace of the keys of threads: the thread `1` of LangGraph has the key `langgraph:1`."""

OnConflict = Literal["langgraph", "raise"]


class LockstitchSaver(LoopBound, BaseCheckpointSaver[str]):
    """A checkpointer of LangGraph. State is in tables of the store, the conversation in the log of a thread.

    Both are written in the same commit. Its methods work from any thread and from any loop. A sync method must not be
    called on the loop of the store itself.
    """

    def __init__(
        self,
        store: Store,
        *,
        serde: SerializerProtocol | None = None,
        record: bool = True,
        on_conflict: OnConflict = "langgraph",
    ) -> None:
        """Create a saver for the project of a store.

        Args:
            store: Open store.
            serde: Serializer of LangGraph. None: the default one. With an encrypting one, each value is stored whole.
            record: Record the messages of the graph as a conversation.
            on_conflict: If two runs continue one checkpoint, `langgraph` lets the later one win, as LangGraph's own
                savers do. With `raise`, the later one gets a `Conflict`.

        Raises:
            Refused: If no loop runs. Use `open` then.
        """
        if on_conflict not in ("langgraph", "raise"):
            raise Refused(f"on_conflict is `langgraph` or `raise`, not {on_conflict!r}.")
        LoopBound.__init__(self, store)
        BaseCheckpointSaver.__init__(self, serde=serde)  # pyright: ignore[reportUnknownMemberType]
        self._log = CheckpointLog(
            store.in_namespace(NAMESPACE), self.serde, record=record, exclusive=on_conflict == "raise"
        )

    async def setup(self) -> None:
        """Create the tables. The first call of another method does it, too."""
        await self._on_loop(self._log.setup())

    def get_next_version(self, current: str | None, channel: None) -> str:
        """Return a new version of a channel. Its random part makes the versions of two forks differ.

        Args:
            current: Current version.
            channel: Not used.
        """
        number = 0 if current is None else int(str(current).partition(".")[0])
        return f"{number + 1:012}.{random.getrandbits(48):012x}"

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """Return the checkpoint that a config names, or the latest one of its thread.

        Args:
            config: Config with a `thread_id`.
        """
        return await self._on_loop(self._log.get(config))

    async def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        """Yield checkpoints, newest first.

        Args:
            config: Config with a `thread_id`. None: all threads of the project.
            filter: Values of the metadata.
            before: Config of a checkpoint. Only older ones are returned.
            limit: Maximum number of checkpoints. None: all.
        """
        pages = self._log.pages(config, filter, before, limit)
        try:
            while page := await self._on_loop(_next_page(pages)):
                for checkpoint in page:
                    yield checkpoint
        finally:
            await self._on_loop(_close(pages))

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Store a checkpoint and the messages that it adds, in one commit.

        Args:
            config: Config of the parent checkpoint.
            checkpoint: The checkpoint.
            metadata: Its metadata.
            new_versions: Versions of the channels that it changes.

        Returns:
            The config of the checkpoint.

        Raises:
            Conflict: With `on_conflict="raise"`, if another run has continued the parent checkpoint.
        """
        return await self._on_loop(self._log.put(config, checkpoint, metadata, new_versions))

    async def aput_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        """Store the writes of a task.

        Args:
            config: Config of the checkpoint.
            writes: Channels and values.
            task_id: Id of the task.
            task_path: Path of the task.
        """
        await self._on_loop(self._log.put_writes(config, writes, task_id, task_path))

    async def adelete_thread(self, thread_id: str) -> None:
        """Delete a thread with its conversation.

        Args:
            thread_id: Id of the thread in LangGraph.
        """
        await self._on_loop(self._log.delete_thread(str(thread_id)))

    async def adelete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Delete the checkpoints of runs, in one commit. The conversation stays.

        Args:
            run_ids: Ids that LangGraph gave the runs.
        """
        await self._on_loop(self._log.delete_for_runs(run_ids))

    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Copy the checkpoints of a thread. The conversation is not copied: the next run of the target records it.

        Args:
            source_thread_id: Id of the thread.
            target_thread_id: Id of the thread that gets the checkpoints.
        """
        await self._on_loop(self._log.copy_thread(str(source_thread_id), str(target_thread_id)))

    async def aprune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """Delete old checkpoints of threads, one commit per thread.

        Args:
            thread_ids: Ids of the threads.
            strategy: `keep_latest`: the latest checkpoint of each namespace stays, with those that its delta channels
                need. `delete`: delete the threads.

        Raises:
            Refused: If the strategy is unknown.
        """
        if strategy not in ("keep_latest", "delete"):
            raise Refused(f"The strategy is `keep_latest` or `delete`, not {strategy!r}.")
        for thread_id in thread_ids:
            delete = self._log.prune if strategy == "keep_latest" else self._log.delete_thread
            await self._on_loop(delete(str(thread_id)))

    # Without await

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """Return the result of `aget_tuple`.

        Args:
            config: Config with a `thread_id`.
        """
        return self._wait(self._log.get(config))

    def list(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        """Yield the checkpoints of `alist`.

        Args:
            config: Config with a `thread_id`. None: all threads of the project.
            filter: Values of the metadata.
            before: Config of a checkpoint. Only older ones are returned.
            limit: Maximum number of checkpoints. None: all.
        """
        pages = self._log.pages(config, filter, before, limit)
        try:
            while page := self._wait(_next_page(pages)):
                yield from page
        finally:
            self._wait(_close(pages))

    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Store a checkpoint, see `aput`.

        Args:
            config: Config of the parent checkpoint.
            checkpoint: The checkpoint.
            metadata: Its metadata.
            new_versions: Versions of the channels that it changes.
        """
        return self._wait(self._log.put(config, checkpoint, metadata, new_versions))

    def put_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        """Store the writes of a task, see `aput_writes`.

        Args:
            config: Config of the checkpoint.
            writes: Channels and values.
            task_id: Id of the task.
            task_path: Path of the task.
        """
        self._wait(self._log.put_writes(config, writes, task_id, task_path))

    def delete_thread(self, thread_id: str) -> None:
        """Delete a thread with its conversation.

        Args:
            thread_id: Id of the thread in LangGraph.
        """
        self._wait(self.adelete_thread(thread_id))

    def delete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Delete the checkpoints of runs, see `adelete_for_runs`.

        Args:
            run_ids: Ids that LangGraph gave the runs.
        """
        self._wait(self.adelete_for_runs(run_ids))

    def copy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Copy the checkpoints of a thread, see `acopy_thread`.

        Args:
            source_thread_id: Id of the thread.
            target_thread_id: Id of the thread that gets the checkpoints.
        """
        self._wait(self.acopy_thread(source_thread_id, target_thread_id))

    def prune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """Delete old checkpoints of threads, see `aprune`.

        Args:
            thread_ids: Ids of the threads.
            strategy: `keep_latest` or `delete`.
        """
        self._wait(self.aprune(thread_ids, strategy=strategy))


_Pages = AsyncGenerator[Sequence[CheckpointTuple], None]


async def _next_page(pages: _Pages) -> Sequence[CheckpointTuple] | None:
    return await anext(pages, None)


async def _close(pages: _Pages) -> None:
    await pages.aclose()
