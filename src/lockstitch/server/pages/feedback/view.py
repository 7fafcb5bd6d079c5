"""`RunFeedback`: the feedback of a person and of other people on runs."""

from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from uuid import UUID

from lockstitch.model import Feedback, Json, Run
from lockstitch.server.auth import Caller
from lockstitch.store import Where
from lockstitch.store.annotation.feedback import FeedbackSubject, own_feedback_id

THUMBS = "helpful"
"""Name of the feedback that the buttons of the pages give: 1 or 0."""

_SHOWN = 50
"""Maximum number of feedback of other people that a page shows for a run."""


@dataclass(frozen=True, slots=True)
class RunFeedback:
    """The feedback on one run and its stitches."""

    run_id: UUID
    """Id of the run."""
    own: Feedback | None
    """The person's own feedback from the buttons."""
    of_other_people: Sequence[Feedback]
    """All other feedback, the oldest first."""

    @property
    def thumb(self) -> str:
        """The pressed button: `up`, `down` or empty."""
        score = self.own.score if self.own is not None else None
        return "" if score is None else "up" if score > 0 else "down"

    @property
    def comment(self) -> str:
        """The person's own comment."""
        return (self.own.comment if self.own is not None else None) or ""

    @property
    def shown(self) -> list[tuple[Feedback, str]]:
        """The feedback of other people that fits on a page, each with its value as text."""
        return [(feedback, _text(feedback.value)) for feedback in self.of_other_people[:_SHOWN]]


def own_id(caller: Caller, thread_id: UUID, run_id: UUID) -> UUID:
    """Return the id of the caller's feedback on a run, which need not exist."""
    return own_feedback_id(caller.project, FeedbackSubject(thread_id, run_id), caller.actor, THUMBS)


async def feedback_on_runs(caller: Caller, thread_id: UUID, run_ids: Collection[UUID]) -> dict[UUID, RunFeedback]:
    """Return the feedback on runs of a thread, by the id of the run. One query reads all of it."""
    by_run: defaultdict[UUID | None, list[Feedback]] = defaultdict(list)
    if run_ids:
        where = (Where("thread_id", "=", thread_id), Where("run_id", "in", list(run_ids)))
        for feedback in await caller.store.feedback.find(*where, order=("created_at", "id")):
            by_run[feedback.run_id].append(feedback)
    return {run_id: _view(caller, thread_id, run_id, by_run[run_id]) for run_id in run_ids}


async def feedback_on_run(caller: Caller, run: Run) -> RunFeedback:
    """Return the feedback on a run."""
    return (await feedback_on_runs(caller, run.thread_id, [run.id]))[run.id]


def _view(caller: Caller, thread_id: UUID, run_id: UUID, feedback: Sequence[Feedback]) -> RunFeedback:
    mine = own_id(caller, thread_id, run_id)
    own = next((item for item in feedback if item.id == mine), None)
    return RunFeedback(run_id, own, [item for item in feedback if item is not own])


def _text(value: Json | None) -> str:
    return ", ".join(str(part) for part in value.values()) if value else ""
