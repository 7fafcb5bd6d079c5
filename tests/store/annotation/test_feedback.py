"""Feedback: one per user, name and subject; average scores."""

import pytest

from lockstitch.errors import NotFound, Refused
from lockstitch.model import FakeClock
from lockstitch.model.scores import Score, average_score
from lockstitch.store import Store
from lockstitch.store.annotation import feedback_scores, find_feedback, give_feedback, remove_feedback
from tests.samples import turn

pytestmark = pytest.mark.anyio


async def test_feedback_of_a_user_replaces_earlier_feedback_on_the_same_subject(
    timed_store: Store, clock: FakeClock
) -> None:
    store = timed_store
    head = await turn(store, await store.create(key="k"), "q", "a")
    other = await store.create(key="other")
    (run,) = await store.runs(head)
    first = await give_feedback(store, "helpful", run=run.id, score=0, comment="No.", user_id="ada")
    clock.advance(60)
    second = await give_feedback(store, "helpful", run=run.id, score=1, user_id="ada")
    assert (second.id, second.created_at, second.score, second.comment) == (first.id, first.created_at, 1.0, None)
    assert second.updated_at > first.updated_at
    # Another user, another name, another subject, and feedback without a user are separate.
    await give_feedback(store, "helpful", run=run.id, score=0, user_id="bob")
    await give_feedback(store, "quality", run=run.id, score=4, user_id="ada")
    await give_feedback(store, "helpful", thread="k", score=1, user_id="ada")
    stitch = (await store.stitches(head))[-1]
    for _ in range(2):
        await give_feedback(store, "checked", stitch=stitch.id, score=0.5)
    assert len(await find_feedback(store, thread="k")) == 6
    assert [item.user_id for item in await find_feedback(store, run=run.id, name="helpful")] == ["ada", "bob"]
    assert len(await find_feedback(store, user_id="ada", limit=2)) == 2

    scores = await feedback_scores(store, [head.id, other.id])
    assert scores == {head.id: {"checked": Score(0.5, 2), "helpful": Score(2 / 3, 3), "quality": Score(4.0, 1)}}
    assert average_score(scores[head.id]) == pytest.approx(7 / 6)
    assert await feedback_scores(store, [head.id], name="quality") == {head.id: {"quality": Score(4.0, 1)}}
    overviews = await store.overview([head, other])
    assert [overview.scores for overview in overviews] == [scores[head.id], {}]

    theirs = store.in_project("theirs")
    with pytest.raises(NotFound):
        await remove_feedback(theirs, second.id)
    with pytest.raises(NotFound):
        await give_feedback(theirs, "helpful", run=run.id, score=1)
    with pytest.raises(Refused, match="all of the same thread"):
        await give_feedback(store, "helpful", run=run.id, thread="other", score=1)
    assert (await remove_feedback(store, second.id)).name == "helpful"
    assert [item.user_id for item in await find_feedback(store, run=run.id, name="helpful")] == ["bob"]
    await store.delete("k")
    assert await feedback_scores(store, [head.id]) == {}
