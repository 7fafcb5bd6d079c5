"""The tables of pydantic-ai in a store: conversations and their messages."""

from typing import ClassVar, Final
from uuid import UUID

from lockstitch.extension import Extension
from lockstitch.model import Record
from lockstitch.model.record import Count, Text, Time


class StoredConversation(Record):
    """The state of a conversation, besides its messages."""

    table: ClassVar[str] = "pydantic_ai_conversations"
    primary_key: ClassVar[tuple[str, ...]] = ("project", "conversation_id")
    thread_field: ClassVar[str | None] = "thread_id"

    project: Text
    conversation_id: Text
    thread_id: UUID
    scope: Text | None = None
    revision: Text
    head_id: Text | None = None
    """Id of the last message of the current history."""
    updated_at: Time
    messages: Count
    """Number of messages of the thread, those of abandoned branches included."""
    open_run_id: UUID | None = None
    """Run that waits for the results of tools."""
    content: bytes
    """The record of pydantic-ai as JSON."""


class StoredMessage(Record):
    """A message of a conversation. A fork has copies of the messages that it inherits."""

    table: ClassVar[str] = "pydantic_ai_messages"
    primary_key: ClassVar[tuple[str, ...]] = ("thread_id", "number")
    thread_field: ClassVar[str | None] = "thread_id"

    thread_id: UUID
    number: Count
    """Number of the message in its thread, from 1. A message has a higher number than its parent."""
    project: Text
    entry_id: Text
    """Id that pydantic-ai gave the message."""
    parent_id: Text | None = None
    first: Count
    """Position of the first stitch of the message. Of an inherited message: the position of the fork."""
    last: Count
    """Position of the last stitch of the message; below `first` if there is none."""
    inherited: bool = False
    """True if the message is in the stitch of a fork."""
    content: bytes
    """The message as JSON."""


EXTENSION: Final = Extension(
    "pydantic_ai", "lockstitch.integrations.pydantic_ai.tables", kinds=(StoredConversation, StoredMessage)
)
"""The tables, for `Store.extend`."""
