"""The tables of LangGraph in a store: checkpoints, values of channels, pending writes, items."""

from typing import ClassVar, Final
from uuid import UUID

from pydantic import Field

from lockstitch.extension import Extension
from lockstitch.model import Json, Record, new_id
from lockstitch.model.record import Count, Text, Time


class Checkpoint(Record):
    """A checkpoint of a graph, without the values of its channels."""

    table: ClassVar[str] = "langgraph_checkpoints"
    primary_key: ClassVar[tuple[str, ...]] = ("thread_id", "ns", "checkpoint_id")
    thread_field: ClassVar[str | None] = "thread_id"

    thread_id: UUID
    ns: Text
    """Namespace of the graph: empty for the root graph."""
    checkpoint_id: Text
    project: Text
    parent_id: Text | None = None
    run_id: Text | None = None
    """Id that LangGraph gave the run."""
    encoding: Text
    content: bytes
    """The checkpoint and its small values."""
    metadata: Json


class Successor(Record):
    """The right to write the checkpoint after another one, for savers that refuse concurrent runs."""

    table: ClassVar[str] = "langgraph_successors"
    primary_key: ClassVar[tuple[str, ...]] = ("thread_id", "ns", "parent_id")
    thread_field: ClassVar[str | None] = "thread_id"

    thread_id: UUID
    ns: Text
    parent_id: Text


class ChannelValue(Record):
    """The value of a channel at one version: a whole one, or the difference to an earlier version.

    The bytes of a difference are the first `head` bytes of `content`, then `common` bytes of the version `base` from
    `skip` on, then the rest of `content`.
    """

    table: ClassVar[str] = "langgraph_values"
    primary_key: ClassVar[tuple[str, ...]] = ("thread_id", "ns", "channel", "version")
    thread_field: ClassVar[str | None] = "thread_id"

    thread_id: UUID
    ns: Text
    channel: Text
    version: Text
    encoding: Text
    base: Text | None = None
    """Version that the difference refers to. None: the value is whole."""
    root: Text
    """Version of the whole value on which the differences are based. Versions between it and this one sort between."""
    depth: Count = 0
    """Number of differences since the whole value."""
    skip: Count = 0
    common: Count = 0
    head: Count = 0
    content: bytes


class Writes(Record):
    """The writes of one call of `put_writes`."""

    table: ClassVar[str] = "langgraph_writes"
    primary_key: ClassVar[tuple[str, ...]] = ("thread_id", "ns", "checkpoint_id", "id")
    thread_field: ClassVar[str | None] = "thread_id"

    thread_id: UUID
    ns: Text
    checkpoint_id: Text
    id: UUID = Field(default_factory=new_id)
    """A UUIDv7: calls sort by time."""
    task_id: Text
    task_path: Text
    content: bytes


class StoredItem(Record):
    """An item of the long-term memory."""

    table: ClassVar[str] = "langgraph_items"
    primary_key: ClassVar[tuple[str, ...]] = ("project", "namespace", "key")

    project: Text
    namespace: Text
    """The labels of the namespace, each with `SEPARATOR` behind it."""
    key: Text
    value: Json
    created_at: Time
    updated_at: Time


OF_THREADS: Final[tuple[type[Record], ...]] = (Checkpoint, Successor, ChannelValue, Writes)
"""Kinds with records of one thread."""

EXTENSION: Final = Extension("langgraph", "lockstitch.integrations.langgraph.tables", kinds=(*OF_THREADS, StoredItem))
"""The tables, for `Store.extend`."""
