"""`difference`: compare two runs, as a whole and step by step. Pure, except `compare_runs`, which reads the runs."""

# The modules of this package share the backend of a store.
# pyright: reportPrivateUsage=false

from bisect import bisect
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any, Final, NamedTuple, cast

from lockstitch.model import Json, Run, Stitch, codec, tool_uses
from lockstitch.store.core import StoreCore
from lockstitch.store.reports.alignment import Allowance, align, changed_lines
from lockstitch.store.reports.traces import answer_text, arguments, cost_of, error_summary, outcome

_LINES: Final = 2_000
"""Maximum lines of a text that is compared line by line."""


@dataclass(frozen=True, slots=True)
class Step:
    """A model call or a tool call."""

    kind: str
    """`model` or `tool`."""
    name: str | None
    """Name of the model or tool."""
    values: Json
    """Values that are compared, by name."""
    details: Json = field(default_factory=dict[str, Any])
    """Times and counts. They are shown but not compared, because they differ between any two runs."""
    calls: tuple[str, ...] = ()
    """Names of the tools that a response requests. Model calls with the same requests count as the same step."""

    @property
    def key(self) -> tuple[str, ...]:
        """Key for the alignment of two runs: steps with equal keys are paired."""
        return (self.kind, *self.calls) if self.kind == "model" else (self.kind, self.name or "")


class Change(NamedTuple):
    """A value that differs. Texts with several lines have their difference line by line."""

    name: str
    """Name of the value."""
    a: Any
    """Value in the first run."""
    b: Any
    """Value in the second run."""
    lines: list[str] | None = None
    """Lines of a unified diff, or None."""

    def as_json(self) -> Json:
        return {"name": self.name, "a": self.a, "b": self.b, **({"lines": self.lines} if self.lines else {})}


@dataclass(frozen=True, slots=True)
class Pair:
    """Two steps at the same place, or a step that only one run has."""

    a: Step | None
    """Step of the first run, or None."""
    b: Step | None
    """Step of the second run, or None."""
    changes: list[Change]
    """Values that differ."""

    @property
    def same(self) -> bool:
        """True if both runs have the step and no value differs."""
        return self.a is not None and self.b is not None and not self.changes

    def as_json(self) -> Json:
        def shown(step: Step | None) -> Json | None:
            return None if step is None else {"kind": step.kind, "name": step.name, **step.details}

        return {"a": shown(self.a), "b": shown(self.b), "changes": [change.as_json() for change in self.changes]}


@dataclass(frozen=True, slots=True)
class Difference:
    """The differences between two runs."""

    a: Run
    """The first run."""
    b: Run
    """The second run."""
    changes: list[Change]
    """Values of the runs that differ."""
    pairs: list[Pair]
    """All steps of both runs, in order."""

    @property
    def same(self) -> bool:
        """True if both runs did the same. Times, tokens and costs may differ."""
        return all(pair.same for pair in self.pairs) and not any(change.name in _BEHAVIOUR for change in self.changes)

    def as_json(self) -> Json:
        def shown(run: Run) -> Json:
            return {"id": str(run.id), "foreign_id": run.foreign_id, "source": run.source, **_facts(run)}

        return {
            "a": shown(self.a),
            "b": shown(self.b),
            "same": self.same,
            "changes": [change.as_json() for change in self.changes],
            "steps": [pair.as_json() for pair in self.pairs],
        }


_OPTIONAL: Final = frozenset({"parameters", "system", "tools", "prompt"})
"""Values that not every source has. They differ only if both runs have them."""

_BEHAVIOUR: Final = frozenset({"status", "stop_reason", "model", "agent", "error"})
"""Values of a run that must be equal for `Difference.same`."""


def difference(a: Run, log_a: Sequence[Stitch], b: Run, log_b: Sequence[Stitch]) -> Difference:
    """Return the differences between two runs. The logs contain at least the calls of the runs."""
    facts_a, facts_b = _facts(a), _facts(b)
    changes = [Change(name, facts_a[name], facts_b[name]) for name in facts_a if facts_a[name] != facts_b[name]]
    allowance = Allowance()
    aligned = _aligned(steps_of(log_a), steps_of(log_b))
    pairs = [Pair(step, other, _changes(step, other, allowance)) for step, other in aligned]
    return Difference(a, b, changes, pairs)


async def compare_runs(core: StoreCore, a: Run, b: Run) -> Difference:
    """Return the differences between two stored runs. See `Store.difference`."""
    logs = [await core._reading.calls(await core.thread(run.thread_id), run) for run in (a, b)]
    return difference(a, logs[0], b, logs[1])


def steps_of(log: Sequence[Stitch]) -> list[Step]:
    """Return the calls of a run in order: each response, then its tool calls in the order of the response."""
    common: Json = next((stitch.data.get("request") for stitch in log if stitch.type == "run_started"), None) or {}
    mirrored = any(stitch.parent_id is not None for stitch in log)
    began: list[tuple[Any, ...]] = []
    places: dict[int, int] = {}
    responses: dict[int, Stitch] = {}
    for response in sorted(
        (stitch for stitch in log if stitch.type == "llm_call"), key=lambda stitch: _began(stitch, mirrored)
    ):
        places[response.position] = len(began)
        responses[response.position] = response
        began.append(_began(response, mirrored))

    def place(stitch: Stitch) -> tuple[int, ...]:
        if stitch.type == "llm_call":
            return (places[stitch.position], 0)
        if stitch.reply_to in places:
            return (places[stitch.reply_to], 1, stitch.call_index or 0, stitch.position)
        # No response requested it. It comes after the last response that started before it.
        return (bisect(began, _began(stitch, mirrored)) - 1, 2, stitch.position)

    calls = sorted((stitch for stitch in log if stitch.type in ("llm_call", "tool_call")), key=place)
    return [
        _model(call, common) if call.type == "llm_call" else _tool(call, responses.get(call.reply_to or 0))
        for call in calls
    ]


def _began(stitch: Stitch, mirrored: bool) -> tuple[Any, ...]:
    """Return the sort key of a stitch. Spans arrive in any order; a native log is in order."""
    return (stitch.at, stitch.position) if mirrored else (stitch.position,)


def _model(stitch: Stitch, common: Json) -> Step:
    request: Json = {**common, **(stitch.data.get("request") or {})}
    uses = tool_uses(stitch.message)
    extra: Any = stitch.data.get("extra")
    invocation: Any = cast("Json", extra).get("invocation_params") if isinstance(extra, dict) else None
    inputs: Any = stitch.data.get("inputs")
    return Step(
        "model",
        stitch.name,
        {
            "model": stitch.name,
            "purpose": stitch.data.get("purpose"),
            "parameters": request.get("parameters") or stitch.data.get("parameters") or invocation or {},
            "system": request.get("system"),
            "tools": request.get("tools"),
            # An imported span contains its inputs.
            "prompt": codec.digest(inputs) if inputs else None,
            "answer": answer_text(stitch),
            "calls": [[use.get("name"), use.get("input")] for use in uses],
            "finish": stitch.status,
            "error": error_summary(stitch),
        },
        _details(stitch),
        tuple(str(use.get("name")) for use in uses),
    )


def _tool(stitch: Stitch, asking: Stitch | None) -> Step:
    values = {
        "args": arguments(stitch, asking),
        "result": outcome(stitch),
        "status": stitch.status,
        "error": error_summary(stitch),
    }
    return Step("tool", stitch.name, values, _details(stitch))


def _details(stitch: Stitch) -> Json:
    counts: Json = {
        "position": stitch.position,
        "input_tokens": stitch.input_tokens,
        "output_tokens": stitch.output_tokens,
        "duration_ms": stitch.duration_ms,
        "total_cost": cost_of(stitch),
    }
    return counts


def _facts(run: Run) -> Json:
    took = None if run.completed_at is None else run.completed_at - run.started_at
    return {
        "agent": run.agent,
        "version": run.version,
        "status": run.status,
        "stop_reason": run.stop_reason,
        "model": run.model,
        "steps": run.steps,
        **run.usage,
        "total_cost": run.total_cost,
        "duration_ms": None if took is None else round(took.total_seconds() * 1000),
        "error": run.error,
    }


def _aligned(
    a: Sequence[Step], b: Sequence[Step], allowance: Allowance | None = None
) -> Iterator[tuple[Step | None, Step | None]]:
    aligned_ranges = align([step.key for step in a], [step.key for step in b], allowance or Allowance())
    if aligned_ranges is None:
        # The best alignment costs too much: the steps are paired by their number.
        yield from zip_longest(a, b)
        return
    for aligned_range in aligned_ranges:
        yield from _step_pairs(
            a[aligned_range.start_a : aligned_range.end_a], b[aligned_range.start_b : aligned_range.end_b]
        )


def _step_pairs(a: Sequence[Step], b: Sequence[Step]) -> Iterator[tuple[Step | None, Step | None]]:
    """Yield the steps of an aligned range in pairs of the same kind. A step without a counterpart is alone."""
    left, right = deque(a), deque(b)
    while left and right:
        if left[0].kind == right[0].kind:
            yield left.popleft(), right.popleft()
        elif left[0].kind == "tool":
            yield left.popleft(), None
        else:
            yield None, right.popleft()
    yield from ((step, None) for step in left)
    yield from ((None, step) for step in right)


def _changes(a: Step | None, b: Step | None, allowance: Allowance) -> list[Change]:
    if a is None or b is None:
        return []
    changes = [] if a.name == b.name or a.kind == "model" else [Change("name", a.name, b.name)]
    for name, value in a.values.items():
        other_value = b.values.get(name)
        unknown = name in _OPTIONAL and (not value or not other_value)
        if value != other_value and not unknown:
            changes.append(Change(name, value, other_value, _lines(value, other_value, allowance)))
    return changes


def _lines(a: Any, b: Any, allowance: Allowance) -> list[str] | None:
    """Return the difference of two texts line by line if one of them has several lines and it is not too costly."""
    if not isinstance(a, str) or not isinstance(b, str) or "\n" not in a + b:
        return None
    left, right = a.splitlines(), b.splitlines()
    if max(len(left), len(right)) > _LINES:
        return None
    return changed_lines(left, right, allowance)
