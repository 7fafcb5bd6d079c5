"""`verify`: an intact store has no problems, and every kind of damage is reported."""

from collections.abc import Callable
from typing import Any

import pytest

from lockstitch.model import Entry, Thread, new_id
from lockstitch.store import Store, Transaction, open_store
from lockstitch.store.maintenance import doctor
from tests.samples import answered, asked, begin_turn, finish_turn, result, said, turn
from tests.store.damage import Damage
from tests.store.test_media import base64, media_entry, picture

pytestmark = pytest.mark.anyio


async def conversation(store: Store) -> Thread:
    """Two turns under two fences: positions 1 input, 2 answer, 3 input, 4 two calls, 5 and 6 results, 7 answer."""
    head = await turn(store, await store.create(), "one", "first")
    head = await store.claim(head)
    run = store.new_run(head, input_position=3)
    head = (await store.append(head, [said("two", run_id=run.id)], new_runs=[run])).head
    head = (await store.append(head, [asked("a", "b", run_id=run.id)])).head
    head = (await store.append(head, [result("b", 1, 4, run_id=run.id), result("a", 0, 4, run_id=run.id)])).head
    return (await finish_turn(store, head, run, "second")).head


async def test_reports_no_problems_for_intact_store(store: Store) -> None:
    assert (await store.verify()).as_json() == {"ok": True, "threads": 0, "stitches": 0, "problems": []}
    head = await conversation(store)
    goal = await store.create(kind="goal", goal="g")
    child = await store.in_project("default").create(kind="task", goal="part", parent_id=goal.id)
    report = Entry(type="thread_result", child_id=child.id, message={"role": "user", "content": "done"})
    await store.deliver(goal, report, kind="children", sender=str(child.id))
    await store.append(child, [media_entry(picture(base64(40_000)))])
    keep = {"applied": True, "keep": [[1, 1]], "replace": {"2": {"role": "user", "content": "s"}}}
    head = (await store.append(head, [Entry(type="compaction", data=keep), Entry(type="compaction")])).head
    committed, run = await begin_turn(store, await store.in_project("elsewhere").create(), "open")
    await store.append(committed.head, [asked("a", run_id=run.id)])

    report_of = await store.verify()
    assert report_of.as_json() == {"ok": True, "threads": 4, "stitches": 13, "problems": []}


async def test_reports_second_result_but_not_open_call(store: Store) -> None:
    head = (await store.append(await store.create(), [said("go"), asked("a")])).head
    assert (await store.verify()).ok
    head = (await store.append(head, [result("a", 0, 2), result("a", 0, 2), result("x", 1, 2), result("y", 0, 1)])).head

    problems = (await store.verify()).problems
    assert [problem["kind"] for problem in problems] == ["answers"] * 3
    assert [problem["detail"].split(" answer")[0] for problem in problems] == [
        *("position 4 is a second", "position 5", "position 6")
    ]


Break = Callable[[Damage, Thread], None]

BROKEN: dict[str, tuple[str, Break]] = {
    "the head is ahead": ("positions", lambda damage, head: damage.head(head.id, position=9)),
    "the head is behind": ("positions", lambda damage, head: damage.head(head.id, position=5)),
    "the head is empty": ("positions", lambda damage, head: damage.head(head.id, position=0, tip_id=None)),
    "far behind": ("positions", lambda damage, head: damage.head(head.id, position=1)),
    "a stitch is missing": ("positions", lambda damage, head: damage.drop_stitch(head.id, 3)),
    "the last is missing": ("positions", lambda damage, head: damage.drop_stitch(head.id, 7)),
    "a fence has fallen": ("fence", lambda damage, head: damage.stitch(head.id, 5, fence=0)),
    "a fence is not known": ("fence", lambda damage, head: damage.stitch(head.id, 7, fence=8)),
    "the head's fence has fallen": ("fence", lambda damage, head: damage.head(head.id, fence=0)),
    "an answer to nothing": ("answers", lambda damage, head: damage.stitch(head.id, 5, reply_to=2)),
    "an answer beyond": ("answers", lambda damage, head: damage.stitch(head.id, 5, call_index=2)),
    "two answers": ("answers", lambda damage, head: damage.stitch(head.id, 5, call_index=0)),
    "another tip": ("list", lambda damage, head: damage.head(head.id, tip_id=str(new_id()))),
    "another list": ("list", lambda damage, head: damage.stitch(head.id, 6, previous_id=str(new_id()))),
    "another start": ("context", lambda damage, head: damage.head(head.id, context_from=3)),
    "another count": ("runs", lambda damage, head: damage.head(head.id, last_sequence=1)),
}


@pytest.mark.parametrize("case", BROKEN)
async def test_reports_damage_by_kind(store_url: str, backend: str, case: str) -> None:
    async with open_store(store_url) as store:
        thread, broken = await conversation(store), await conversation(store)
    kind, damage = BROKEN[case]
    damage(Damage(backend, store_url), broken)

    async with open_store(store_url) as store:
        report = await store.verify()

    assert not report.ok
    assert kind in {problem["kind"] for problem in report.problems}
    assert {problem["thread"] for problem in report.problems} == {str(broken.id)}
    assert all(problem["detail"] for problem in report.problems)
    assert (report.threads, thread.id != broken.id) == (2, True)


REPAIRED = {
    "the head is behind",
    "far behind",
    "another tip",
    "another start",
    "another count",
    "the head's fence has fallen",
}
"""Damage that the log itself answers. In all other cases, stitches or runs may be lost."""


@pytest.mark.parametrize("case", [*sorted(REPAIRED), "the head is ahead", "the last is missing", "two answers"])
async def test_repairs_heads_that_are_behind_their_logs(store_url: str, backend: str, case: str) -> None:
    async with open_store(store_url) as store:
        head = await conversation(store)
        context = await store.context(head)
    kind, damage = BROKEN[case]
    damage(Damage(backend, store_url), head)

    async with open_store(store_url) as store:
        damaged = await store.thread(head.id)
        report = await store.verify(repair=True)
        assert report.repaired is not None
        if case not in REPAIRED:
            assert (report.ok, report.repaired) == (False, [])
            assert await store.thread(head.id) == damaged
            return
        assert report.ok
        assert kind in {problem["kind"] for problem in report.repaired}
        assert (await store.verify()).ok
        assert await store.thread(head.id) == head
        assert await store.context(head.id) == context
        await turn(store, await store.thread(head.id), "three", "third")
        assert (await store.verify(repair=True)).as_json()["repaired"] == []


async def test_reports_missing_run(store_url: str, backend: str) -> None:
    async with open_store(store_url) as store:
        head = await conversation(store)
        run = (await store.runs(head))[0]
    Damage(backend, store_url).drop_run(head.id, run.id)

    async with open_store(store_url) as store:
        report = await store.verify()
    assert "runs" in {problem["kind"] for problem in report.problems}


async def test_reports_missing_blob(store_url: str, backend: str) -> None:
    async with open_store(store_url) as store:
        head = (await store.append(await store.create(), [said("look"), media_entry(picture(base64(40_000)))])).head
    Damage(backend, store_url).drop_blobs()

    async with open_store(store_url) as store:
        (problem,) = (await store.verify()).problems
    assert (problem["kind"], problem["thread"]) == ("unreadable", str(head.id))
    assert "blob" in problem["detail"]


@pytest.mark.parametrize("data", [{"applied": True, "keep": "nonsense"}, {"applied": True, "replace": {"x": 1}}])
async def test_reports_context_that_cannot_be_built(store: Store, data: dict[str, Any]) -> None:
    head = (
        await store.append(await store.create(), [said("go"), answered("yes"), Entry(type="compaction", data=data)])
    ).head

    (problem,) = (await store.verify()).problems
    assert (problem["kind"], problem["thread"]) == ("fold", str(head.id))


async def test_reads_many_threads_and_long_logs_in_pages(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "_PAGE", 5)
    for length in (0, 4, 5, 6, 15):
        head = await store.create()
        if length:
            await store.append(head, [Entry(type="span", data={"n": number}) for number in range(length)])
    await store.commit(Transaction(new_threads=[store.new_thread() for _ in range(7)]))

    report = await store.verify()
    assert (report.ok, report.threads, report.stitches) == (True, 12, 30)
