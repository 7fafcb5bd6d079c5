"""The contract of a provider: a request goes out, pieces come back, and at the end one response.

Messages are in our vocabulary on both sides (records.message); a provider maps them both ways, and what it needs back
verbatim (signatures, encrypted reasoning) rides in the blocks. A provider keeps no state and retries nothing: retries
are the runtime's, so that each is recorded.

A model may write arguments that are no JSON object. The input of the tool_use block is then `{INVALID_JSON: "what it
wrote"}`: the call stands in the record as it was made, the runtime answers it with is_error, and a provider whose calls
are texts sends back that text.
"""

from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, NamedTuple, Protocol, get_args

from lockstitch.errors import LockstitchError
from lockstitch.model import Json, Message
from lockstitch.model.message import build

StopReason = Literal["end_turn", "tool_use", "max_tokens", "stop_sequence", "refusal", "pause_turn"]
"""Why a response ended, in one vocabulary; pause_turn asks to be called again with what there is."""

INVALID_JSON: Final = "__invalid_json"
"""The only key of a tool_use's input when what the model wrote is no JSON object; its value is that text."""


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """One call of a model. Its JSON, by which it is known and rebuilt, has the messages last.

    `turn`, `step`, `attempt` and `purpose` say where in a thread it stands; they are not part of what is sent.
    """

    model: str
    messages: Sequence[Message]
    system: str | None = None
    tools: Sequence[Json] = ()
    """[{name, description, input_schema}]"""
    tool_choice: Literal["auto", "none"] = "auto"
    """Whether the model may call tools. They are named in any case: a provider may refuse their results otherwise."""
    max_tokens: int = 2048
    thinking_tokens: int = 0
    server_tools: Sequence[Json] = ()
    """Tools the provider executes, passed on unchanged after the others."""
    beta_headers: Sequence[str] = ()
    container_id: str | None = None
    output_schema: Json | None = None
    """The JSON schema that the answer must follow."""
    api_kwargs: Json = field(default_factory=dict[str, Any])
    """Passed on unchanged: temperature, top_p, stop_sequences, …"""
    timeout: float = 600.0
    """Seconds without a word from the provider after which the call has failed. A long answer may take longer."""
    turn: int = 1
    step: int = 1
    """0 for a call beside the loop."""
    attempt: int = 0
    """0 at first, then one more with every retry."""
    purpose: str | None = None
    """What a call beside the loop is for: title, summary, memory, …"""

    @property
    def parameters(self) -> Json:
        """All but system text, tools and messages, without what is not set: what an llm_call keeps."""
        optional: Json = {
            "tool_choice": self.tool_choice if self.tool_choice != "auto" else None,
            "thinking_tokens": self.thinking_tokens,
            "server_tools": list(self.server_tools),
            "beta_headers": list(self.beta_headers),
            "container_id": self.container_id,
            "output_schema": self.output_schema,
            "api_kwargs": self.api_kwargs,
        }
        return {
            "model": self.model,
            "max_tokens": self.max_tokens,
            **{name: value for name, value in optional.items() if value},
        }

    def as_json(self) -> Json:
        return build(self.parameters, self.system, self.tools, self.messages)


class Usage(NamedTuple):
    """Tokens of one call. input_tokens includes those read from and written to the cache; none is counted twice."""

    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0


NO_USAGE: Final = Usage()


@dataclass(frozen=True, slots=True)
class Response:
    """What a model said: one assistant message, why it ended and what it took."""

    message: Message
    stop_reason: StopReason
    usage: Usage = NO_USAGE
    finish_reason: str | None = None
    """The provider's own word for stop_reason."""
    response_id: str | None = None
    model: str | None = None
    """The model that answered, as the provider names it."""
    container_id: str | None = None


PieceKind = Literal["text", "thinking", "citation", "tool_call", "server_tool_call", "server_tool_result", "raw"]


class Chunk(NamedTuple):
    """A part of a response on its way: a delta of text or thinking, or a whole block once it is complete."""

    kind: PieceKind
    text: str = ""
    data: Json = {}
    """tool_call, server_tool_call and server_tool_result: the block; citation: the citation; raw: the event."""


class Download(NamedTuple):
    """A file that a provider holds."""

    filename: str
    content: bytes
    mime_type: str | None = None


class Provider(Protocol):
    """Speaks to one model API. Every failure is a ProviderError."""

    name: str

    def stream(self, request: ModelRequest) -> AsyncGenerator[Chunk | Response, None]:
        """The pieces of an answer as they come, and last the Response. Closing the iterator ends the call.

        The raw events of the provider are among the pieces only if `raw_events` is set on the provider.
        """
        ...

    async def download(self, file_id: str) -> Download:
        """A file that the provider's tools made. ProviderError where the provider has no files."""
        ...

    async def close(self) -> None: ...


Passing = Literal["rate_limit", "overloaded", "timeout", "connection", "server", "garbled"]
"""Errors that may pass, so that trying again is worth it."""

ErrorKind = Passing | Literal["request", "auth", "setup"]


class ProviderError(LockstitchError):
    """The model's provider did not answer."""

    def __init__(
        self, message: str, kind: ErrorKind, *, status: int | None = None, retry_after: float | None = None
    ) -> None:
        super().__init__(message)
        self.kind: ErrorKind = kind
        self.status = status
        self.retry_after = retry_after

    @property
    def retryable(self) -> bool:
        return self.kind in get_args(Passing)
