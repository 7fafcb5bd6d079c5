"""The annotation queue: finished runs in the order of their threads, without those that a user has rated."""

import pytest

from lockstitch.errors import Refused
from lockstitch.model import FakeClock
from lockstitch.store import Store
from lockstitch.store.annotation import give_feedback, place_of, queue, runs_to_annotate
from tests.samples import begin_turn, turn

pytestmark = pytest.mark.anyio


async def test_queue_has_finished_runs_without_feedback_of_a_user(
    timed_store: Store, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = timed_store
    heads = []
    for key in ("a", "b", "c"):
        head = await store.create(key=key, agent="other" if key == "c" else "helper")
        for number in (1, 2):
            clock.advance(1)
            head = await turn(store, head, f"{key}{number}?", f"{key}{number}.")
        heads.append(head)
    clock.advance(1)
    await begin_turn(store, heads[0], "open?")
    a1, a2, b1, b2, c1, c2 = [run for head in heads for run in (await store.runs(head))[:2]]

    whole = await runs_to_annotate(store)
    assert (whole.runs, whole.next) == ([a2, a1, c2, c1, b2, b1], None)
    for run, name, user_id in ((a2, "helpful", "ada"), (b2, "tone", "ada"), (c2, "helpful", "bob")):
        await give_feedback(store, name, run=run.id, score=1, user_id=user_id)
    unrated = await runs_to_annotate(store, without_feedback_of="ada", name="helpful", agent="helper")
    assert unrated.runs == [a1, b2, b1]
    assert (await runs_to_annotate(store, without_feedback_of="ada", ascending=True)).runs == [b1, c2, c1, a1]

    # Pages of one thread and one run: each run comes once, in both directions. A page can be empty.
    monkeypatch.setattr(queue, "_PAGE", 1)
    monkeypatch.setattr(queue, "_MOST", 1)
    await give_feedback(store, "helpful", run=c1.id, score=1, user_id="bob")
    for start, backwards, user_id, expected in (
        (a2, False, None, [a1, c2, c1, b2, b1]),
        (b1, True, None, [b2, c1, c2, a1, a2]),
        (a2, False, "bob", [a1, b2, b1]),
        (b1, True, "bob", [b2, a1, a2]),
    ):
        runs, after = [], place_of(start)
        while after is not None:
            page = await runs_to_annotate(store, limit=1, after=after, backwards=backwards, without_feedback_of=user_id)
            runs, after = [*runs, *page.runs], page.next
        assert runs == expected
    with pytest.raises(Refused, match="is not valid"):
        await runs_to_annotate(store, after=f"{a1.thread_id}:{10**16}")
    rows = (await (await runs_to_annotate(store, limit=1)).as_json(store))["runs"]
    assert [(row["run"]["id"], row["inputs"], row["outputs"]) for row in rows] == [
        (str(a2.id), {"input": "a2?"}, {"output": "a2."})
    ]
    with pytest.raises(Refused, match="place 'x' is not valid"):
        await runs_to_annotate(store, after="x")
