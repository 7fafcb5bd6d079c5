"""Events: what whoever listens to a run is told, as it happens."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal
from uuid import UUID

from lockstitch.records import Json

EventType = Literal[
    "started",
    "text",
    "thinking",
    "citation",
    "tool_call",
    "tool_result",
    "server_tool_call",
    "server_tool_result",
    "raw",
    "retry",
    "compacted",
    "files",
    "member_started",
    "member_finished",
    "paused",
    "finished",
    "failed",
]


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that happened in a run. Whatever an event tells of is committed, except deltas of text.

    `agent` is who acts: of a team the leader, or the member whose run it is; `member` says that it is one of these. The
    texts that no member says are the answer; one that is passed through is the leader's as a whole, once it is there.

    started             {agent, model, user_message, messages: the context so far}
    text, thinking      {text}                     a delta; the whole is in the next llm_call
    citation            {…}                        as the provider gives it
    tool_call           {id, name, input}
    tool_result         {id, name, content, is_error}
    server_tool_call    the block                  executed by the provider
    server_tool_result  the block
    raw                 {…}                        the provider's own event
    retry               {attempt, delay, error}
    compacted           {tokens_before, tokens_after}
    files               {files: [{file_id, filename, storage_path, size, mime_type, step}]}
    member_started      {agent, model, task}       a member of the team begins; the events of its run follow
    member_finished     {agent, status, output_text, error}
    paused              {waiting_for, pending: [{tool_use_id, name, input}]}
    finished            the result as JSON; it may be completed, cancelled or failed
    failed              {error, type}              the run failed; a finished follows
    """

    type: EventType
    thread_id: UUID
    run_id: UUID
    agent: str
    step: int = 0
    data: Json = field(default_factory=dict[str, Any])
    member: bool = False


Listener = Callable[[Event], None]
"""Called with each event, in the task of the run."""
