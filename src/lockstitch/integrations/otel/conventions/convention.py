"""`Convention`: the interface of one naming convention for attributes.

OpenTelemetry defines the transport of spans. Several conventions define the meaning of attributes, and one span often
uses two or three of them. A convention has two tasks. When a span arrives, `take` moves its content out of the
attributes, so that content is stored once, parsed, as inputs and outputs. When the facts of merged span data are
computed, `facts` reads the remaining attributes. The conventions are applied in one order, and the first value wins.

The shape of a span decides which conventions apply. That is decided once per shape, because the spans of one
instrumentation have few shapes.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Literal, NamedTuple, Protocol

from lockstitch.integrations.otel.values import parsed
from lockstitch.integrations.spans.span import SpanData, TokenCounts
from lockstitch.model import Json
from lockstitch.model.record import new_dict, new_list

Side = Literal["inputs", "outputs"]


class Shape(NamedTuple):
    """The part of a span that decides which conventions apply."""

    attributes: tuple[str, ...]
    """The names of the attributes."""
    scope: str = ""
    """The name of the instrumentation."""
    name: str = ""

    @property
    def heads(self) -> frozenset[str]:
        """The first words of the attribute names."""
        return heads_of(self.attributes)


@dataclass(slots=True)
class Content:
    """The content that was moved out of the attributes of a span."""

    attributes: Json
    """The remaining attributes. At first, all of them."""
    name: str = ""
    scope: str = ""
    """The name of the instrumentation."""
    inputs: Json = field(default_factory=new_dict)
    outputs: Json = field(default_factory=new_dict)
    events: list[Json] = field(default_factory=new_list)
    metadata: Json = field(default_factory=new_dict)
    tags: list[str] = field(default_factory=new_list)
    extra: Json = field(default_factory=new_dict)
    kind: str | None = None
    thread_id: str | None = None
    user_id: str | None = None
    session_id: str | None = None
    group: str | None = None
    trace_name: str | None = None
    """The name of the trace, if it differs from the name of its root."""
    error: str | None = None
    """The error, if an attribute names one. The status of the span comes first."""
    _seen: list[tuple[Side, Any]] = field(default_factory=new_list)

    @property
    def shape(self) -> Shape:
        return Shape(tuple(self.attributes), self.scope, self.name)

    def put(self, side: Side, key: str, value: Any, attribute: str) -> None:
        """Store `value` as input or output, unless that side already has an equal value. Nothing is overwritten.

        A second value for a key is stored under the name of its attribute.
        """
        if value is None or (self._seen and (side, value) in self._seen):
            return
        self._seen.append((side, value))
        bag = self.inputs if side == "inputs" else self.outputs
        bag[attribute if key in bag else key] = value

    def move(self, attribute: str, side: Side, key: str) -> None:
        """Move the value of an attribute. JSON text is parsed."""
        if attribute in self.attributes:
            self.put(side, key, parsed(self.attributes.pop(attribute)), attribute)

    def is_named(self, kind: str | None) -> None:
        self.kind = self.kind or kind or None

    def belongs(
        self,
        *,
        thread_id: Any = None,
        user_id: Any = None,
        session_id: Any = None,
        group: Any = None,
    ) -> None:
        """Set the conversation, user, session and group, unless they are already set."""
        if thread_id is not None:
            self.thread_id = self.thread_id or _word(thread_id)
        if user_id is not None:
            self.user_id = self.user_id or _word(user_id)
        if session_id is not None:
            self.session_id = self.session_id or _word(session_id)
        if group is not None:
            self.group = self.group or _word(group)


@dataclass(slots=True)
class Facts:
    """The facts that a convention finds in span data. Unknown values are None or empty."""

    model: str | None = None
    requested_model: str | None = None
    provider: str | None = None
    response_id: str | None = None
    finish_reasons: list[str] = field(default_factory=new_list)
    tokens: TokenCounts | None = None
    total_tokens: int | None = None
    cost: float | None = None
    parameters: Json = field(default_factory=new_dict)
    tool_name: str | None = None
    call_id: str | None = None
    args: Any = None


@lru_cache(maxsize=2_000)
def heads_of(names: tuple[str, ...]) -> frozenset[str]:
    """Return the first words of attribute names. Cached, because the spans of one instrumentation have the same."""
    return frozenset(name.partition(".")[0] for name in names)


class Convention(Protocol):
    def has_content(self, shape: Shape) -> bool:
        """True if arrived spans of a shape can have content of the convention. Only then `take` is called."""
        ...

    def take(self, content: Content) -> None:
        """Move the content that it knows out of the attributes. Never raises."""
        ...

    def has_facts(self, shape: Shape) -> bool:
        """True if the remaining attributes of a shape have facts of the convention. Only then `facts` is called."""
        ...

    def facts(self, attributes: Json, span: SpanData) -> Facts:
        """Return the facts in the remaining attributes. Never raises."""
        ...


def merged(every: Sequence[Facts]) -> Facts:
    """Merge the facts of several conventions. The first value wins. A count of 0 is filled from later conventions."""
    if len(every) == 1:
        return every[0]
    result = Facts()
    for facts in every:
        result.model = result.model or facts.model
        result.requested_model = result.requested_model or facts.requested_model
        result.provider = result.provider or facts.provider
        result.response_id = result.response_id or facts.response_id
        result.finish_reasons = result.finish_reasons or facts.finish_reasons
        result.total_tokens = result.total_tokens if result.total_tokens is not None else facts.total_tokens
        result.cost = result.cost if result.cost is not None else facts.cost
        result.parameters = {**facts.parameters, **result.parameters}
        result.tool_name = result.tool_name or facts.tool_name
        result.call_id = result.call_id or facts.call_id
        result.args = result.args if result.args is not None else facts.args
        if result.tokens is None or facts.tokens is None:
            result.tokens = result.tokens or facts.tokens
        else:
            result.tokens = TokenCounts(
                *(mine or other for mine, other in zip(result.tokens, facts.tokens, strict=True))
            )
    return result


def _word(value: Any) -> str | None:
    if isinstance(value, str):
        return value or None
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else None
