"""`ReplayReport`: the comparison of a replay with the recorded runs."""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple
from uuid import UUID

from lockstitch.backend import Where
from lockstitch.errors import Refused
from lockstitch.model import Json, Run, Thread
from lockstitch.store.core import StoreCore
from lockstitch.store.replays.start import plan_of, replayed_run
from lockstitch.store.reports.diff import Difference, Pair, Step, compare_runs
from lockstitch.store.threads import ThreadRef

DIVERGED: Final = "ReplayDiverged"
"""`type` of the error entry of a call without a recorded result. It ends the replay."""

_SETUP: Final = frozenset({"model", "parameters", "system", "tools", "prompt"})
"""Values of a step that come from the definition of the agent, not from the behaviour of the model."""


class Divergence(NamedTuple):
    """The call at which a replay stopped, because the record has no result for it."""

    run_id: UUID
    """Id of the run of the replay."""
    position: int
    """Position of the error entry."""
    step: int
    """Number of the step that requested the call."""
    name: str
    """Name of the tool."""
    input: Any
    """Arguments of the call."""
    message: str
    """Reason, as text."""

    def as_json(self) -> Json:
        return {**self._asdict(), "run_id": str(self.run_id)}


class ReplayedTurn(NamedTuple):
    """A run of a replay, and its recorded run."""

    run: Run
    """The run of the replay."""
    source: Run | None
    """The recorded run; None if it was deleted."""
    difference: Difference | None
    """The comparison of both; None if the recorded run was deleted."""


@dataclass(frozen=True, slots=True)
class ReplayReport:
    """The state of a replay, and its comparison with the recorded runs."""

    thread: Thread
    """The thread of the replay."""
    source_thread_id: UUID
    """Id of the recorded thread."""
    turns: Sequence[ReplayedTurn]
    """The runs of the replay, in order."""
    until: int
    """Last position of the recorded thread of which the responses come from the record. 0: none."""
    divergence: Divergence | None
    """The call at which the replay stopped; None if all calls had a result."""

    @property
    def same(self) -> bool:
        """True if the replay completed with the recorded calls and answers. Model, tokens and costs may differ."""
        return self.thread.status == "completed" and all(map(_behaves_equally, self._pairs()))

    @property
    def same_calls(self) -> bool:
        """True if the replay completed with the recorded calls. The answers may differ."""
        calls = [pair for pair in self._pairs() if "tool" in {step.kind for step in (pair.a, pair.b) if step}]
        return self.thread.status == "completed" and all(map(_behaves_equally, calls))

    def _pairs(self) -> Iterator[Pair]:
        """Yield the steps of all turns, without side calls such as titles, which replays do not make."""
        for turn in self.turns:
            for pair in turn.difference.pairs if turn.difference is not None else [Pair(None, None, [])]:
                step = pair.a or pair.b
                if step is None or step.values.get("purpose") in (None, "final_summary"):
                    yield pair

    @property
    def output_text(self) -> str | None:
        """The last answer, if the replay completed."""
        return (self.thread.result or {}).get("summary")

    def totals(self) -> dict[str, Json]:
        """Return the sums of the model calls of the recorded runs and of the replay, as `source` and `replay`.

        Responses that the replay took from the record are left out of both. `model_ms` is the duration of the calls.
        """
        pairs = [pair for pair in self._pairs() if pair.a is None or pair.a.details["position"] > self.until]
        return {"source": _sums(pair.a for pair in pairs), "replay": _sums(pair.b for pair in pairs)}

    def as_json(self) -> Json:
        """Return the report as JSON."""
        return {
            "thread_id": str(self.thread.id),
            "source_thread_id": str(self.source_thread_id),
            "status": self.thread.status,
            "same": self.same,
            "same_calls": self.same_calls,
            "output_text": self.output_text,
            "error": (self.thread.result or {}).get("error"),
            "diverged": None if self.divergence is None else self.divergence.as_json(),
            "totals": self.totals(),
            "turns": [
                {
                    "run_id": str(turn.run.id),
                    "source_run_id": None if turn.source is None else str(turn.source.id),
                    "difference": None if turn.difference is None else turn.difference.as_json(),
                }
                for turn in self.turns
            ],
        }


def _behaves_equally(pair: Pair) -> bool:
    changed = {change.name for change in pair.changes}
    return pair.a is not None and pair.b is not None and changed <= _SETUP


async def report(core: StoreCore, ref: ThreadRef) -> ReplayReport:
    """Return the report of a replay in its current state. Raises `Refused` if the thread is no replay."""
    head = await core.thread(ref)
    plan = plan_of(head)
    if plan is None:
        raise Refused(f"Thread {head.id} is no replay.")
    turns: list[ReplayedTurn] = []
    for run in await core.find_runs(head.id, Where("parent_run_id", "is null"), order=("sequence",)):
        source = await replayed_run(core, run)
        compared = None if source is None else await compare_runs(core, source, run)
        turns.append(ReplayedTurn(run, source, compared))
    return ReplayReport(head, plan.thread_id, turns, plan.until, await _divergence(core, head))


async def _divergence(core: StoreCore, head: Thread) -> Divergence | None:
    errors = await core.find_stitches(head.id, Where("type", "=", "error"), order=("-position",), limit=1)
    stitch = errors[0] if errors else None
    if stitch is None or stitch.run_id is None or stitch.data.get("type") != DIVERGED:
        return None
    step, message, call = stitch.step_number or 0, str(stitch.data["message"]), stitch.data["call"]
    return Divergence(stitch.run_id, stitch.position, step, call["name"], call["input"], message)


def _sums(steps: Iterable[Step | None]) -> Json:
    calls = [step.details for step in steps if step is not None and step.kind == "model"]
    costs = [details["total_cost"] for details in calls if details["total_cost"] is not None]
    sums: Json = {name: sum(details[name] or 0 for details in calls) for name in ("input_tokens", "output_tokens")}
    duration = sum(details["duration_ms"] or 0 for details in calls)
    return {"steps": len(calls), **sums, "total_cost": math.fsum(costs) if costs else None, "model_ms": duration}
