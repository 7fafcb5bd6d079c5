"""`CheckpointReader`: checkpoints with the values of their channels and their pending writes."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Final, cast
from uuid import UUID

import ormsgpack
from langgraph.checkpoint.base import CheckpointTuple
from langgraph.checkpoint.serde.base import SerializerProtocol

from lockstitch.integrations.langgraph.conversation import Conversation
from lockstitch.integrations.langgraph.deltas import LatestValue, Place, decode
from lockstitch.integrations.langgraph.records import ChannelValue, Checkpoint, Writes
from lockstitch.model import Json, Thread
from lockstitch.store import Condition, Store, Where

_DELTA_COUNTERS: Final = "counters_since_delta_snapshot"
"""Key of the metadata that names the delta channels of a checkpoint."""


class ThreadState:
    """The state of one thread in the memory of this process."""

    def __init__(self, head: Thread) -> None:
        self.head = head
        self.values: dict[tuple[str, str], LatestValue] = {}
        """Latest values, by namespace and channel."""
        self.conversation: Conversation | None = None
        self.lock = asyncio.Lock()

    def forget(self) -> None:
        """Forget all but the head."""
        self.values.clear()
        self.conversation = None


class CheckpointReader:
    """Reads checkpoints from the tables."""

    def __init__(self, store: Store, serde: SerializerProtocol) -> None:
        self._store = store
        self._serde = serde

    async def tuples(
        self, rows: Sequence[Checkpoint], thread_ids: Mapping[UUID, str], latest: ThreadState | None = None
    ) -> list[CheckpointTuple]:
        """Return the checkpoints of rows, in the same order.

        Args:
            rows: Rows of the checkpoints.
            thread_ids: Ids of the threads in LangGraph.
            latest: State of the thread, if the only row is its latest checkpoint. Its values are remembered.
        """
        bodies = [self._body(row) for row in rows]
        values = await self._values(rows, bodies, latest)
        writes = await self._pending_writes(rows)
        tuples: list[CheckpointTuple] = []
        for row, (body, small) in zip(rows, bodies, strict=True):
            channels = {
                channel: self._serde.loads_typed((value.row.encoding, value.content))
                for channel, version in body["channel_versions"].items()
                if (value := values.get((Place(row.thread_id, row.ns, channel), as_written(version)))) is not None
            }
            parent = None if row.parent_id is None else _config(thread_ids[row.thread_id], row.ns, row.parent_id)
            tuples.append(
                CheckpointTuple(
                    _config(thread_ids[row.thread_id], row.ns, row.checkpoint_id),
                    cast("Any", {**body, "channel_values": {**channels, **small}}),
                    cast("Any", row.metadata),
                    parent,
                    writes.get((row.thread_id, row.ns, row.checkpoint_id), []),
                )
            )
        return tuples

    async def thread_ids(self, rows: Sequence[Checkpoint]) -> dict[UUID, str]:
        """Return the ids that the threads of these rows have in LangGraph."""
        threads = await self._store.threads_by_id({row.thread_id for row in rows})
        return {id: self._store.key_in_namespace(thread) or str(id) for id, thread in threads.items()}

    def needed(self, rows: Sequence[Checkpoint]) -> list[Checkpoint]:
        """Return the newest of these rows, and the ancestors from which its delta channels are computed."""
        by_id = {row.checkpoint_id: row for row in rows}
        needed = [rows[0]]
        missing = set(rows[0].metadata.get(_DELTA_COUNTERS) or ())
        while missing and needed[-1].parent_id in by_id:
            needed.append(by_id[needed[-1].parent_id])
            counters: Json = needed[-1].metadata.get(_DELTA_COUNTERS) or {}
            versions = self._body(needed[-1])[0]["channel_versions"]
            missing -= {channel for channel in missing if counters.get(channel, (0, 0))[0] == 0 and channel in versions}
        return needed

    async def whole_values(self, rows: Sequence[Checkpoint]) -> list[ChannelValue]:
        """Return the values of these checkpoints as rows that need no other row."""
        values = await self._values(rows, [self._body(row) for row in rows], None)
        return [
            ChannelValue(
                **place._asdict(), version=version, root=version, encoding=value.row.encoding, content=value.content
            )
            for (place, version), value in values.items()
        ]

    def _body(self, row: Checkpoint) -> tuple[Json, Json]:
        """Return a checkpoint without the values of its channels, and its small values."""
        body, small = self._serde.loads_typed((row.encoding, row.content))
        return body, small

    async def _values(
        self, rows: Sequence[Checkpoint], bodies: Sequence[tuple[Json, Json]], latest: ThreadState | None
    ) -> dict[tuple[Place, str], LatestValue]:
        """Return the values of channels, by place and version. Versions of several channels can be equal."""
        wanted = {
            (Place(row.thread_id, row.ns, channel), as_written(version))
            for row, (body, small) in zip(rows, bodies, strict=True)
            for channel, version in body["channel_versions"].items()
            if channel not in small
        }
        values: dict[tuple[Place, str], LatestValue] = {}
        for place, version in wanted if latest else ():
            known = latest.values.get((place.ns, place.channel)) if latest else None
            if known is not None and known.row.version == version:
                values[place, version] = known
        missing = sorted(wanted - values.keys())
        for start in range(0, len(missing), 500):
            values |= await self._read_values(missing[start : start + 500])
        if latest is not None:
            for place, version in missing:
                if (value := values.get((place, version))) is not None:
                    latest.values.setdefault((place.ns, place.channel), value)
        return values

    async def _read_values(self, wanted: Sequence[tuple[Place, str]]) -> dict[tuple[Place, str], LatestValue]:
        table = self._store.table(ChannelValue)
        keys = [(*place, version) for place, version in wanted]
        direct = await table.find(Where(("thread_id", "ns", "channel", "version"), "in", keys))
        last: dict[tuple[Place, str], str] = {}
        for row in direct:
            if row.base is not None:
                key = (_place(row), row.root)
                last[key] = max(last.get(key, row.version), row.version)
        chains = [
            (
                Where("thread_id", "=", place.thread_id),
                Where("ns", "=", place.ns),
                Where("channel", "=", place.channel),
                Where("version", ">=", root),
                Where("version", "<=", version),
                Where("root", "=", root),
            )
            for (place, root), version in last.items()
        ]
        between = [row for chain in chains for row in await table.find(*chain)]
        by_place: dict[Place, dict[str, ChannelValue]] = {}
        for row in (*direct, *between):
            by_place.setdefault(_place(row), {})[row.version] = row
        values: dict[tuple[Place, str], LatestValue] = {}
        contents: dict[Place, dict[str, bytes]] = {}
        # Each value is computed from the one before it.
        for row in sorted(direct, key=lambda row: row.version):
            place = _place(row)
            value = decode(row, by_place[place], contents.setdefault(place, {}))
            contents[place][row.version] = value.content
            values[place, row.version] = value
        return values

    async def _pending_writes(
        self, rows: Sequence[Checkpoint]
    ) -> dict[tuple[UUID, str, str], list[tuple[str, str, Any]]]:
        """Return the writes of checkpoints, ordered by path, task and number.

        Of two writes with the same task and number, the first counts, and of special ones the last.
        """
        keys = [(row.thread_id, row.ns, row.checkpoint_id) for row in rows]
        found = await self._store.table(Writes).find(Where(("thread_id", "ns", "checkpoint_id"), "in", keys))
        merged: dict[tuple[UUID, str, str], dict[tuple[str, int], tuple[str, str, str, bytes]]] = {}
        for row in sorted(found, key=lambda row: row.id):
            special, writes = ormsgpack.unpackb(row.content)
            of_checkpoint = merged.setdefault((row.thread_id, row.ns, row.checkpoint_id), {})
            for number, channel, encoding, content in writes:
                if special or (row.task_id, number) not in of_checkpoint:
                    of_checkpoint[row.task_id, number] = (row.task_path, channel, encoding, content)
        return {
            key: [
                (task_id, channel, self._serde.loads_typed((encoding, content)))
                for (task_id, _), (_, channel, encoding, content) in sorted(
                    of_checkpoint.items(), key=lambda item: (item[1][0], *item[0])
                )
            ]
            for key, of_checkpoint in merged.items()
        }


def as_written(version: object) -> str:
    """Return a version of a channel as text. Savers of other versions wrote numbers."""
    return str(version)


def split_filter(field: str, wanted: Mapping[str, Any]) -> tuple[list[Condition], Json]:
    """Return the conditions that the store can compare, and the other values."""
    conditions: list[Condition] = []
    rest: Json = {}
    for key, value in wanted.items():
        plain = key.isprintable() and not set(key) & {'"', "\\"}
        if plain and value is None:
            conditions.append(Where(field, "is null", None, (key,)))
        elif plain and isinstance(value, str | int | float):
            conditions.append(Where(field, "=", value, (key,)))
        else:
            rest[key] = value
    return conditions, rest


def matches_rest(values: Json, rest: Json) -> bool:
    """True if the values contain the rest of a filter."""
    return all(values.get(key) == value for key, value in rest.items())


def _place(row: ChannelValue) -> Place:
    return Place(row.thread_id, row.ns, row.channel)


def _config(thread_id: str, ns: str, checkpoint_id: str) -> Any:
    return {"configurable": {"thread_id": thread_id, "checkpoint_ns": ns, "checkpoint_id": checkpoint_id}}
