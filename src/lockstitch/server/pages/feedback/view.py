"""`RunFeedback`: the feedback of a person and of other people on runs."""

from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from uuid import UUID

from lockstitch.model import Feedback, Json, Run
from lockstitch.server.auth import Caller
from lockstitch.store import Where
from lockstitch.store.annotation import give_feedback
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
    """The person's own feedback with the name of the page."""
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


def own_id(caller: Caller, thread_id: UUID, run_id: UUID, name: str = THUMBS) -> UUID:
    """Return the id of the caller's feedback on a run, which need not exist."""
    return own_feedback_id(caller.project, FeedbackSubject(thread_id, run_id), caller.actor, name)


async def feedback_on_runs(
    caller: Caller, thread_id: UUID, run_ids: Collection[UUID], name: str = THUMBS
) -> dict[UUID, RunFeedback]:
    """Return the feedback on runs of a thread, by the id of the run. One query reads all of it."""
    by_run: defaultdict[UUID | None, list[Feedback]] = defaultdict(list)
    if run_ids:
        where = (Where("thread_id", "=", thread_id), Where("run_id", "in", list(run_ids)))
        for feedback in await caller.store.feedback.find(*where, order=("created_at", "id")):
            by_run[feedback.run_id].append(feedback)
    return {run_id: _view(run_id, own_id(caller, thread_id, run_id, name), by_run[run_id]) for run_id in run_ids}


async def feedback_on_run(caller: Caller, run: Run, name: str = THUMBS) -> RunFeedback:
    """Return the feedback on a run."""
    return (await feedback_on_runs(caller, run.thread_id, [run.id], name))[run.id]


async def change_own(caller: Caller, run: Run, changes: Json, name: str = THUMBS) -> str:
    """Change the `score` or the `comment` of the caller's feedback. Without both, remove it. Return a message."""
    stored = await caller.store.feedback.get_or_none(own_id(caller, run.thread_id, run.id, name))
    values: Json = {field: getattr(stored, field, None) for field in ("score", "comment")} | changes
    if values["score"] is None and values["comment"] is None:
        if stored is not None:
            await caller.store.feedback.delete(id=stored.id)
            await caller.store.audits.record(caller.actor, "delete feedback", str(run.id), name=name)
        return "Feedback removed"
    await give_feedback(caller.store, name, run=run.id, **values, user_id=caller.actor)
    await caller.store.audits.record(caller.actor, "give feedback", str(run.id), name=name, score=values["score"])
    return "Feedback saved"


def _view(run_id: UUID, own_id: UUID, feedback: Sequence[Feedback]) -> RunFeedback:
    own = next((item for item in feedback if item.id == own_id), None)
    return RunFeedback(run_id, own, [item for item in feedback if item is not own])


def _text(value: Json | None) -> str:
    return ", ".join(str(part) for part in value.values()) if value else ""
