"""`Provider`: the interface to a model API. A request goes in; chunks come out, and at the end one `Response`.

Messages have the format of `lockstitch.model.message` in both directions. A provider converts them. Values that it
needs back unchanged, such as signatures and encrypted reasoning, are stored in the blocks. A provider has no state and
does not retry: the engine retries, so that each retry is recorded.

A model may write arguments that are not a JSON object. Then the input of the `tool_use` block is `{INVALID_JSON: "the
text of the model"}`. The record keeps the call, the engine answers it with `is_error`, and a provider that sends
arguments as text sends this text back.
"""

from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, NamedTuple, Protocol, get_args

from lockstitch.errors import LockstitchError
from lockstitch.model import Json, Message
from lockstitch.model.message import build

StopReason = Literal["end_turn", "tool_use", "max_tokens", "stop_sequence", "refusal", "pause_turn"]
"""Why a response ended, the same words for all providers. `pause_turn` asks for another call with the same context."""

INVALID_JSON: Final = "__invalid_json"
"""The only key of a `tool_use` input if the model wrote no JSON object. The value is the text of the model."""


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """One call of a model. Its JSON identifies it; the messages come last in it.

    `turn`, `step`, `attempt` and `purpose` describe its place in the thread. They are not sent.
    """

    model: str
    """Name of the model at the provider."""
    messages: Sequence[Message]
    """The context."""
    system: str | None = None
    """The system text."""
    tools: Sequence[Json] = ()
    """[{name, description, input_schema}]"""
    tool_choice: Literal["auto", "none"] = "auto"
    """`none` if the model must not call tools. The tools are sent in any case, because a provider may refuse their
    results otherwise."""
    max_tokens: int = 2048
    """Maximum number of output tokens."""
    thinking_tokens: int = 0
    """Token budget for thinking; 0 turns it off."""
    server_tools: Sequence[Json] = ()
    """Tools that the provider executes, sent unchanged after the other tools."""
    beta_headers: Sequence[str] = ()
    """Beta features to request."""
    container_id: str | None = None
    """Container of an earlier code execution of the thread."""
    output_schema: Json | None = None
    """The JSON schema of the answer."""
    api_kwargs: Json = field(default_factory=dict[str, Any])
    """Sent unchanged: temperature, top_p, stop_sequences, …"""
    timeout: float = 600.0
    """Seconds without data from the provider after which the call fails. A long answer may take longer in total."""
    turn: int = 1
    """The number of the turn."""
    step: int = 1
    """The number of the step; 0 for a call outside the loop."""
    attempt: int = 0
    """0 at first, plus one with each retry."""
    purpose: str | None = None
    """The purpose of a call outside the loop: title, summary, memory, …"""

    @property
    def parameters(self) -> Json:
        """The request without system text, tools, messages and unset values, as `llm_call` stores it."""
        parameters: Json = {"model": self.model, "max_tokens": self.max_tokens}
        if self.tool_choice != "auto":
            parameters["tool_choice"] = self.tool_choice
        if self.thinking_tokens:
            parameters["thinking_tokens"] = self.thinking_tokens
        if self.server_tools:
            parameters["server_tools"] = list(self.server_tools)
        if self.beta_headers:
            parameters["beta_headers"] = list(self.beta_headers)
        if self.container_id:
            parameters["container_id"] = self.container_id
        if self.output_schema:
            parameters["output_schema"] = self.output_schema
        if self.api_kwargs:
            parameters["api_kwargs"] = self.api_kwargs
        return parameters

    def as_json(self) -> Json:
        """Return the request as JSON."""
        return build(self.parameters, self.system, self.tools, self.messages)


class Usage(NamedTuple):
    """Tokens of one call. `input_tokens` includes tokens read from and written to the cache."""

    input_tokens: int = 0
    """All input tokens."""
    output_tokens: int = 0
    """Output tokens."""
    cache_read_tokens: int = 0
    """Input tokens that were read from the cache."""
    cache_write_tokens: int = 0
    """Input tokens that were written to the cache."""


NO_USAGE: Final = Usage()


@dataclass(frozen=True, slots=True)
class Response:
    """The response of a model: one assistant message, the reason why it ended, and its usage."""

    message: Message
    """The assistant message."""
    stop_reason: StopReason
    """Why the response ended."""
    usage: Usage = NO_USAGE
    """Tokens of the call."""
    finish_reason: str | None = None
    """The provider's own word for `stop_reason`."""
    response_id: str | None = None
    """Id that the provider gave the response."""
    model: str | None = None
    """The model that answered, by the provider's name."""
    container_id: str | None = None
    """Container of a code execution."""


ChunkKind = Literal["text", "thinking", "citation", "tool_call", "server_tool_call", "server_tool_result", "raw"]
"""The kinds of chunks."""


class Chunk(NamedTuple):
    """A part of a response: a delta of text or thinking, or a complete block."""

    kind: ChunkKind
    """Kind of the chunk."""
    text: str = ""
    """The delta of text or thinking."""
    data: Json = {}
    """tool_call, server_tool_call and server_tool_result: the block. citation: the citation. raw: the event."""


class Download(NamedTuple):
    """A file that a provider stores."""

    filename: str
    """Name of the file."""
    content: bytes
    """The content."""
    mime_type: str | None = None
    """Media type, if known."""


class Provider(Protocol):
    """A client of one model API. Its methods raise only `ProviderError`. They are called from many tasks."""

    name: str
    """The prefix of the model names, such as `anthropic`."""

    def stream(self, request: ModelRequest) -> AsyncGenerator[Chunk | Response, None]:
        """Yield the chunks of an answer as they arrive, and the `Response` at the end. Closing the iterator ends the
        call.

        The raw events of the provider are among the chunks only if `raw_events` is set on the provider.

        Args:
            request: The request.

        Raises:
            ProviderError: If the call fails.
        """
        ...

    async def download(self, file_id: str) -> Download:
        """Return a file that the provider's tools created.

        Args:
            file_id: Id of the file at the provider.

        Raises:
            ProviderError: If the provider has no files, or if the download fails.
        """
        ...

    async def close(self) -> None:
        """Close the connections."""
        ...


Passing = Literal["rate_limit", "overloaded", "timeout", "connection", "server", "garbled"]
"""Kinds of errors that may pass. The engine retries them."""

ErrorKind = Passing | Literal["request", "auth", "setup"]
"""All kinds of errors."""


class ProviderError(LockstitchError):
    """A call of a model's provider failed.

    `kind` says why, `status` is the HTTP status, `retry_after` the seconds that the provider asks to wait.
    """

    def __init__(
        self, message: str, kind: ErrorKind, *, status: int | None = None, retry_after: float | None = None
    ) -> None:
        super().__init__(message)
        self.kind: ErrorKind = kind
        self.status = status
        self.retry_after = retry_after

    @property
    def retryable(self) -> bool:
        """True if a retry may succeed."""
        return self.kind in get_args(Passing)
