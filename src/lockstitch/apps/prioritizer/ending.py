"""The end of a session: what its run's last commit writes of it, and what is said of one that ended otherwise."""

import logging
from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final, cast

from lockstitch.apps.prioritizer.concluding import NO_TASKS, Known, concluded
from lockstitch.apps.prioritizer.meaning import Meaning
from lockstitch.apps.prioritizer.models import ExecutionMetadata, ReasoningStep, as_json
from lockstitch.apps.prioritizer.parsing import metadata, parsed
from lockstitch.apps.prioritizer.records import Session
from lockstitch.apps.prioritizer.tasks import TaskBase, base_of
from lockstitch.records import Json, Record, Run, Stitch, Thread
from lockstitch.runtime.blocking import run_blocking
from lockstitch.runtime.provider import ProviderError
from lockstitch.store import Store

BUDGET_MS: Final = 30_000
"""Milliseconds that a session should take at most; a longer one is told of, and no worse for it."""

_log: Final = logging.getLogger("lockstitch.prioritizer")


class Ending:
    """Writes what came of a session, in the last commit of its run."""

    def __init__(self, meaning: Meaning) -> None:
        self._meaning = meaning

    async def __call__(self, store: Store, head: Thread, run: Run, told: Json) -> Sequence[Record]:
        session = await store.backend.get(Session, (head.id,))
        if session is None or session.status != "running":
            return []
        stitches = {stitch.id: stitch for stitch in await store.stitches(head, run.first_position)}
        stitches |= {stitch.id: stitch for stitch in cast("list[Stitch]", told["noted"])}
        own = [stitch for stitch in stitches.values() if stitch.run_id == run.id]
        return [await self.ended(store, head, run, session, own, told)]

    async def ended(
        self, store: Store, head: Thread, run: Run, session: Session, stitches: Sequence[Stitch], told: Json
    ) -> Session:
        """The session as it is after a run that ended so. Everything in it is checked before it is written."""
        found = parsed(stitches, run.output_position)
        moment = run.completed_at or store.clock.now()
        more: Json = {"warnings": [*_slow(found.steps)]}
        figures = metadata(found, run.started_at, moment)
        if figures.total_time_ms >= BUDGET_MS:
            said = f"The session took {figures.total_time_ms / 1000:.1f} s; {BUDGET_MS / 1000:g} s are its budget."
            _log.warning("%s Session %s.", said, head.id)
            more["warnings"].append(said)
        plan: Json | None = None
        base = await base_of(store, head)
        if run.status != "completed":
            more["status_note"] = why_failed(run.status, told.get("error"))
        elif not base.tasks:
            more["status_note"] = NO_TASKS
        else:
            known = await self.known(base)
            said = str(told.get("text") or "")
            end = await run_blocking(lambda: concluded(known, said, found.steps, figures.failed_tools))
            plan = as_json(end.plan)
            more["status_note"] = end.note
            more["warnings"] += end.warnings
            more["broken_cycles"] = end.broken
        return over(session, plan, metadata(found, run.started_at, moment, **more), moment)

    async def known(self, base: TaskBase) -> Known:
        """What is known of the tasks. Without an embedder that answers there is no likeness, and still a plan."""
        tasks = list(base.tasks.values())
        try:
            vectors = await self._meaning.of_tasks(tasks)
            outcome = base.outcome.statement if base.outcome is not None else ""
            relevance = await self._meaning.relevance(outcome, vectors)
        except ProviderError as exc:
            _log.warning("The embedder does not answer: %s", exc)
            return Known(tasks, base.dependencies)
        return Known(tasks, base.dependencies, vectors, relevance, self._meaning.close)


def over(session: Session, plan: Json | None, figures: ExecutionMetadata, moment: datetime) -> Session:
    """A session that is over: completed with a plan, or failed."""
    values: dict[str, Any] = {
        **session.__dict__,
        "status": "failed" if plan is None else "completed",
        "plan": plan,
        "metadata": as_json(figures),
        "steps_taken": figures.steps_taken,
        "updated_at": moment,
    }
    return Session(**values)


def why_failed(status: str, error: str | None) -> str:
    """What is said of a session without a plan."""
    if status == "cancelled":
        return error or "The session was cancelled. Start it again."
    return error or "The session ended without a plan. Start it again."


def _slow(steps: Sequence[ReasoningStep]) -> list[str]:
    said = [(step.tool_output or {}).get("performance_warning") for step in steps]
    return [one for one in said if isinstance(one, str)]
