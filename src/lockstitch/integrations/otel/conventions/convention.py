"""What one convention of naming attributes knows.

OpenTelemetry says how spans travel; what their attributes mean, several conventions say, and one span often speaks
two or three of them. A dialect does two things, at two times. When a span arrives, it takes its content out of the
attributes (`take`), so that content stands once, parsed, under inputs and outputs. When the merged piece is asked for
its meaning, it tells the facts that stand in the attributes that stayed (`facts`). The dialects of a span are asked in
one order, and what the first of them says holds.
"""

from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from lockstitch.integrations.otel.values import parsed
from lockstitch.integrations.spans.span import SpanData, TokenCounts
from lockstitch.model import Json

Side = Literal["inputs", "outputs"]


@dataclass(slots=True)
class Content:
    """What was taken out of a span's attributes."""

    attributes: Json
    """All of them at first; taken ones are gone."""
    name: str = ""
    scope: str = ""
    """The name of the instrumentation."""
    inputs: Json = field(default_factory=dict[str, Any])
    outputs: Json = field(default_factory=dict[str, Any])
    events: list[Json] = field(default_factory=list[Json])
    metadata: Json = field(default_factory=dict[str, Any])
    tags: list[str] = field(default_factory=list[str])
    extra: Json = field(default_factory=dict[str, Any])
    kind: str | None = None
    thread_id: str | None = None
    user_id: str | None = None
    session_id: str | None = None
    group: str | None = None
    heads: frozenset[str] = frozenset()
    """The first words of the attributes' names; a dialect whose words are missing need not look further."""
    _seen: list[tuple[Side, Any]] = field(default_factory=list[tuple[Side, Any]])

    def put(self, side: Side, key: str, value: Any, attribute: str) -> None:
        """Keeps `value` on a side; what the side has already is not kept again, and nothing is pushed out.

        A second value for a key stands under its attribute's own name.
        """
        if value is None or any(side == other and value == known for other, known in self._seen):
            return
        self._seen.append((side, value))
        bag = self.inputs if side == "inputs" else self.outputs
        bag[attribute if key in bag else key] = value

    def move(self, attribute: str, side: Side, key: str) -> None:
        """Takes an attribute's value, read as JSON where it is JSON."""
        if attribute not in self.attributes:
            return
        value = self.attributes.pop(attribute)
        self.put(side, key, parsed(value) if isinstance(value, str) else value, attribute)

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
        """Whose it is, as far as nobody said before."""
        self.thread_id = self.thread_id or _word(thread_id)
        self.user_id = self.user_id or _word(user_id)
        self.session_id = self.session_id or _word(session_id)
        self.group = self.group or _word(group)


@dataclass(slots=True)
class Facts:
    """What a dialect says about a piece; None and empty where it says nothing."""

    model: str | None = None
    asked_model: str | None = None
    provider: str | None = None
    response_id: str | None = None
    finish_reasons: list[str] = field(default_factory=list[str])
    tokens: TokenCounts | None = None
    total_tokens: int | None = None
    cost: float | None = None
    parameters: Json = field(default_factory=dict[str, Any])
    tool_name: str | None = None
    call_id: str | None = None
    args: Any = None


class Convention(Protocol):
    def take(self, content: Content) -> None:
        """Moves what it knows as content out of the attributes; never raises."""
        ...

    def facts(self, attributes: Json, piece: SpanData) -> Facts:
        """What the attributes that stayed say; never raises."""
        ...


def merged(told: list[Facts]) -> Facts:
    """Several dialects' facts as one: the first one's word holds, and counts fill up what another left out."""
    whole = Facts()
    for facts in told:
        whole.model = whole.model or facts.model
        whole.asked_model = whole.asked_model or facts.asked_model
        whole.provider = whole.provider or facts.provider
        whole.response_id = whole.response_id or facts.response_id
        whole.finish_reasons = whole.finish_reasons or facts.finish_reasons
        whole.total_tokens = whole.total_tokens if whole.total_tokens is not None else facts.total_tokens
        whole.cost = whole.cost if whole.cost is not None else facts.cost
        whole.parameters = {**facts.parameters, **whole.parameters}
        whole.tool_name = whole.tool_name or facts.tool_name
        whole.call_id = whole.call_id or facts.call_id
        whole.args = whole.args if whole.args is not None else facts.args
        if whole.tokens is None or facts.tokens is None:
            whole.tokens = whole.tokens or facts.tokens
        else:
            whole.tokens = TokenCounts(*(mine or other for mine, other in zip(whole.tokens, facts.tokens, strict=True)))
    return whole


def _word(value: Any) -> str | None:
    if isinstance(value, str):
        return value or None
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else None
