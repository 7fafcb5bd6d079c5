"""`turn_of()`: the question, the answer and the agent that the run of a trace shows.

The root of a trace often has neither messages nor the name of an agent: it is a request of a web server, or a function.
Then the earliest span that has the value decides. `state["below"]` has the start of that span, so that the result does
not depend on the order of arrival.
"""

import re
from collections.abc import Callable, Sequence
from typing import Any, Final, cast

from lockstitch.integrations.spans.rows import part
from lockstitch.integrations.spans.span import NewSpan, SpanData
from lockstitch.model import Json, Run

_LONGEST: Final = 4_000
"""Characters of a question or an answer in the state of a run. The spans have the whole text."""

_AGENTS: Final = ("gen_ai.agent.name", "agent.name", "agent_name", "gen_ai.agent.id", "gen_ai.workflow.name")
_FUNCTIONS: Final = ("traceloop.workflow.name", "ai.telemetry.functionId")
"""The name of the function that the application traces. A root can be one."""
_OPERATION: Final = re.compile(r"(?:invoke_agent|create_agent|invoke_workflow|Agent run:) '?(.+?)'?")
_TEMPLATE: Final = "PromptTemplate("
"""LlamaIndex records the Python object of a template. The model call has the text."""
_LATEST: Final = "~"
"""Later than every time."""


def turn_of(run: Run, shown: NewSpan | None, is_root: bool, spans: Sequence[NewSpan]) -> tuple[str | None, Json]:
    """Return the agent and the state of a run.

    Args:
        run: The run, with the values of its root except these.
        shown: The span with new data that the run shows as its root.
        is_root: False if `shown` has a parent that has not arrived.
        spans: All spans with new data, the earliest first.
    """
    state, below = dict(run.state), dict[str, str](run.state.get("below") or {})
    root = shown if is_root else None
    said = _first("said", root and _question_of_root(root), state.get("said"), below, spans, _question)
    agent = _first("agent", root and _name_of_root(root.data), run.agent, below, spans, _agent)
    if shown is not None and (agent is None or below.get("agent") == _LATEST):
        agent, below["agent"] = _plain_name(shown.data), _LATEST
    # A model call whose text is the answer comes first, see `place`.
    if root is not None and run.output_position is None and (answer := root.facts.answer):
        state["answer"] = _cut(answer)
    state |= {"said": _cut(said)} if said else {}
    state.pop("below", None)
    return part(agent), {**state, "below": below} if below else state


def _first(
    name: str,
    own: str | None,
    known: str | None,
    below: dict[str, str],
    spans: Sequence[NewSpan],
    read: Callable[[NewSpan], str | None],
) -> str | None:
    """Return the value of the root, else that of the earliest span that has one."""
    if own:
        below.pop(name, None)
        return own
    if known and name not in below:
        return known
    for new_span in spans:
        at = new_span.data.get("start") or _LATEST
        if known and at >= below[name]:
            break
        if value := read(new_span):
            below[name] = at
            return value
    return known


def _question(new_span: NewSpan) -> str | None:
    return new_span.facts.input_text if new_span.facts.role == "llm" else None


def _question_of_root(root: NewSpan) -> str | None:
    text = root.facts.input_text
    return None if text and text.startswith(_TEMPLATE) else text


def _agent(new_span: NewSpan) -> str | None:
    return _agent_of(new_span.data)


def _agent_of(span: SpanData) -> str | None:
    """Return the agent that a span names."""
    attributes = _attributes(span)
    for key in _AGENTS:
        if (name := attributes.get(key)) and isinstance(name, str):
            return name
    agent: Any = (span.get("metadata") or {}).get("lc_agent_name")
    return agent if agent and isinstance(agent, str) else None


def _attributes(span: SpanData) -> Json:
    """Return the attributes of OpenTelemetry, also of a span that was exported as a run of LangSmith."""
    extra: Json = span.get("extra") or {}
    attributes = extra.get("attributes")
    if attributes is None and isinstance(otel := extra.get("otel"), dict):
        attributes = cast("Json", otel).get("attributes")
    return cast("Json", attributes) if isinstance(attributes, dict) else {}


def _name_of_root(root: SpanData) -> str | None:
    attributes = _attributes(root)
    functions: tuple[Any, ...] = tuple(attributes.get(key) for key in _FUNCTIONS)
    function = next((name for name in functions if name and isinstance(name, str)), None)
    return root.get("trace_name") or _agent_of(root) or function


def _plain_name(root: SpanData) -> str | None:
    """Return the name of a root without the name of its operation."""
    name = root.get("name") or ""
    match = _OPERATION.fullmatch(name)
    return (match[1] if match else name.removesuffix(".run")) or None


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"
