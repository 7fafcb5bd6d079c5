"""Feedback on threads, runs and stitches: give, find and remove it, and average its scores.

The table `store.feedback` reads and writes single records of all projects. The functions of this module check the
subject and keep one feedback per user, name and subject.
"""

from collections import defaultdict
from collections.abc import Collection, Sequence
from typing import Any, NamedTuple
from uuid import UUID

from lockstitch.backend import Where
from lockstitch.errors import NotFound, Refused
from lockstitch.model import Feedback, Json, Run, foreign_id, new_id
from lockstitch.model.scores import Score, scores_of
from lockstitch.store.store import Store
from lockstitch.store.threads import ThreadRef

_PAGE = 500
"""Number of threads per query."""


class FeedbackSubject(NamedTuple):
    """The thread, the run or the stitch that feedback is about."""

    thread_id: UUID
    """Id of the thread."""
    run_id: UUID | None = None
    """Id of the run. None: the feedback is about the whole thread."""
    stitch_id: UUID | None = None
    """Id of the stitch. None: the feedback is about the whole run."""


async def find_subject(
    store: Store,
    *,
    thread: ThreadRef | None = None,
    run: UUID | str | None = None,
    stitch: UUID | str | None = None,
) -> FeedbackSubject:
    """Return the subject that these references name.

    Args:
        store: The store. Subjects of other projects are not found.
        thread: Thread, its id or its key.
        run: Id of a run, also its id in another system.
        stitch: Id of a stitch.

    Raises:
        NotFound: If the project has no such thread, run or stitch.
        Refused: If no reference is set, or if the references belong to different threads.
    """
    found_stitch = await store.stitch(stitch) if stitch is not None else None
    run_id = run if run is not None else found_stitch.run_id if found_stitch is not None else None
    found_run = await store.run(run_id) if run_id is not None else None
    head = await store.thread(thread) if thread is not None else None
    threads = {
        thread_id
        for thread_id in (
            found_stitch and found_stitch.thread_id,
            found_run and found_run.thread_id,
            head and head.id,
        )
        if thread_id
    }
    if len(threads) != 1:
        raise Refused("Set thread, run or stitch, all of the same thread.")
    return FeedbackSubject(threads.pop(), found_run and found_run.id, found_stitch and found_stitch.id)


async def give_feedback(
    store: Store,
    name: str,
    *,
    thread: ThreadRef | None = None,
    run: UUID | str | None = None,
    stitch: UUID | str | None = None,
    score: float | None = None,
    value: Json | None = None,
    comment: str | None = None,
    user_id: str | None = None,
    source: str = "native",
    metadata: Json | None = None,
) -> Feedback:
    """Store feedback on a thread, a run or a stitch, and return it.

    With a user, it replaces the feedback with the same name that this user has given on the same subject. Without a
    user, each call adds feedback. Safe to call from many processes: the last writer wins.

    Args:
        store: The store. The feedback belongs to its project.
        name: Name of the rated property, such as `helpful`.
        thread: Thread, its id or its key.
        run: Id of a run, also its id in another system.
        stitch: Id of a stitch.
        score: Score.
        value: Value, if a score is not enough.
        comment: Comment in words.
        user_id: Id of the user that gives the feedback.
        source: System that the feedback comes from.
        metadata: Additional data.

    Raises:
        NotFound: If the project has no such thread, run or stitch.
        Refused: If no subject is set, or if a value is not valid.
    """
    subject = await find_subject(store, thread=thread, run=run, stitch=stitch)
    own_id = new_id() if user_id is None else own_feedback_id(store.project, subject, user_id, name, source)
    earlier = None if user_id is None else await store.feedback.get_or_none(own_id)
    now = store.clock.now()
    feedback = Feedback(
        id=own_id,
        project=store.project,
        **subject._asdict(),
        user_id=user_id,
        name=name,
        score=score,
        value=value,
        comment=comment,
        source=source,
        created_at=now if earlier is None else earlier.created_at,
        updated_at=now,
        metadata=metadata or {},
    )
    await store.feedback.put(feedback)
    return feedback


def own_feedback_id(project: str, subject: FeedbackSubject, user_id: str, name: str, source: str = "native") -> UUID:
    """Return the id of a user's feedback on a subject. It is also known before the feedback exists."""
    names = [str(part) for part in (*subject, user_id, name)]
    return foreign_id(project, source, "\x1f".join(["own feedback", *names]))


async def get_feedback(store: Store, id: UUID) -> Feedback:
    """Return feedback of the project.

    Args:
        store: The store. Feedback of other projects is not found.
        id: Id of the feedback.

    Raises:
        NotFound: If the project has no such feedback.
    """
    feedback = await store.feedback.get_or_none(id)
    if feedback is None or feedback.project != store.project:
        raise NotFound(f"Feedback {id} not found in project {store.project}.")
    return feedback


async def remove_feedback(store: Store, id: UUID) -> Feedback:
    """Delete feedback of the project and return it.

    Args:
        store: The store. Feedback of other projects stays.
        id: Id of the feedback.

    Raises:
        NotFound: If the project has no such feedback.
    """
    feedback = await get_feedback(store, id)
    await store.feedback.delete(id=feedback.id)
    return feedback


async def find_feedback(
    store: Store,
    *,
    thread: ThreadRef | None = None,
    run: UUID | str | None = None,
    name: str | None = None,
    user_id: str | None = None,
    source: str | None = None,
    limit: int | None = None,
) -> list[Feedback]:
    """Return feedback of the project, oldest first.

    Args:
        store: The store.
        thread: Only feedback on this thread, its runs and its stitches.
        run: Only feedback on this run and its stitches.
        name: Only feedback with this name.
        user_id: Only feedback of this user.
        source: Only feedback from this system.
        limit: Maximum number of records. None: all.

    Raises:
        NotFound: If the project has no such thread or run.
    """
    equal: dict[str, Any] = {"name": name, "user_id": user_id, "source": source}
    if thread is not None:
        equal["thread_id"] = (await store.thread(thread)).id
    where = [Where(field, "=", value) for field, value in equal.items() if value is not None]
    if run is not None:
        found = await store.run(run)
        # The index has the thread.
        where += [Where("thread_id", "=", found.thread_id), Where("run_id", "=", found.id)]
    return await store.feedback.find(
        Where("project", "=", store.project), *where, order=("created_at", "id"), limit=limit
    )


async def feedback_of_run(store: Store, run: Run) -> list[Feedback]:
    """Return the feedback on a run and its stitches, oldest first.

    Args:
        store: The store.
        run: The run.
    """
    where = (Where("thread_id", "=", run.thread_id), Where("run_id", "=", run.id))
    return await store.feedback.find(*where, order=("created_at", "id"))


async def feedback_scores(
    store: Store, thread_ids: Collection[UUID], *, name: str | None = None
) -> dict[UUID, dict[str, Score]]:
    """Return the average scores of threads by name: of feedback on the threads, their runs and their stitches.

    One query reads the feedback of 500 threads. Threads without scores are left out. `average_score` in
    `lockstitch.model.scores` joins the scores of a thread into one number.

    Args:
        store: The store.
        thread_ids: Ids of threads of the project.
        name: Only scores with this name.
    """
    ids = list(thread_ids)
    found: defaultdict[UUID, list[Feedback]] = defaultdict(list)
    for start in range(0, len(ids), _PAGE):
        for feedback in await _scored(store, ids[start : start + _PAGE], name):
            if feedback.thread_id is not None:
                found[feedback.thread_id].append(feedback)
    return {thread_id: scores_of(items) for thread_id, items in found.items()}


async def _scored(store: Store, thread_ids: Sequence[UUID], name: str | None) -> list[Feedback]:
    where = [Where("thread_id", "in", thread_ids), Where("score", "is not null")]
    if name is not None:
        where.append(Where("name", "=", name))
    return await store.feedback.find(*where)
