"""`append`: fields that the store derives, and updates that it rejects."""

from typing import Any

import pytest

from lockstitch.errors import Refused, StalePosition, ThreadEnded
from lockstitch.model import Entry, FakeClock, Run, Thread, new_id
from lockstitch.model.thread import MAX_CRASHES
from lockstitch.store import Store
from tests.samples import asked, begin_turn, finish_turn, result, said, turn
from tests.waits import waiting

pytestmark = pytest.mark.anyio

DONE: dict[str, Any] = {"status": "completed", "result": {"summary": "done"}}


async def goal(store: Store, **fields: Any) -> Thread:
    return await store.create(**{"kind": "goal", "goal": "g", **fields})


async def assert_head(store: Store, head: Thread) -> None:
    """`append` returns the new head without reading it."""
    assert await store.thread(head.id) == head


# Derived fields


async def test_append_returns_the_stored_head(timed_store: Store, clock: FakeClock) -> None:
    head = await goal(timed_store)
    clock.advance(1)
    head = await timed_store.claim(head)
    run = timed_store.new_run(head, model="m")
    for entries in ([said("go", run_id=run.id)], [asked("a", "b")], [result("a", 0, 2), result("b", 1, 2)]):
        clock.advance(1)
        fresh = [] if head.last_sequence else [run]
        appended = await timed_store.append(head, entries, new_runs=fresh)
        head = appended.head
        await assert_head(timed_store, head)
        assert [stitch.position for stitch in appended.stitches] == list(
            range(head.position - len(entries) + 1, head.position + 1)
        )
        assert head.updated_at == clock.now()
    final_fields = {"status": "completed", "completed_at": clock.now()}
    await assert_head(
        timed_store, (await timed_store.append(head, fields=DONE, run_updates=[(run, final_fields)])).head
    )


async def test_context_starts_at_last_compaction_of_the_threads_own_lane(store: Store) -> None:
    head = await turn(store, await store.create(), "Hello", "Hi")
    assert head.context_from == 0
    lane = new_id()
    checked = Entry(type="compaction", data={"applied": False})
    lane_compaction = Entry(type="compaction", lane=lane, data={"applied": True})
    head = (await store.append(head, [checked, lane_compaction])).head
    assert head.context_from == 0

    applied = Entry(type="compaction", data={"applied": True, "keep": [[1, 1]]})
    head = (await store.append(head, [said("more"), applied, said("even more")])).head
    assert head.context_from == 6
    head = (await store.append(head, [Entry(type="fork", data={"messages": []})])).head
    assert head.context_from == 8
    await assert_head(store, head)


async def test_numbers_runs_and_turns_separately(timed_store: Store, clock: FakeClock) -> None:
    committed, leader = await begin_turn(timed_store, await timed_store.create(), "Hello")
    started = clock.now()
    clock.advance(1)
    members = [timed_store.new_run(committed.head, parent_run_id=leader.id)]
    members.append(timed_store.new_run(committed.head, parent_run_id=leader.id).changed(sequence=3))
    entries = [said("part", run_id=run.id, lane=run.id) for run in members]
    head = (await timed_store.append(committed.head, entries, new_runs=members)).head

    assert (head.last_sequence, head.last_turn, head.total_runs) == (3, 1, 0)
    assert [(run.sequence, run.turn) for run in await timed_store.runs(head)] == [(1, 1), (2, 1), (3, 1)]
    assert head.last_run_at == clock.now() > started
    second = timed_store.new_run(head)
    assert (second.sequence, second.turn, second.first_position) == (4, 2, head.position + 1)


async def test_counts_finished_run_once(store: Store) -> None:
    committed, run = await begin_turn(store, await store.create(), "Hello")
    member = store.new_run(committed.head, parent_run_id=run.id)
    head = (
        await store.append(committed.head, [said("part", run_id=member.id, lane=member.id)], new_runs=[member])
    ).head
    pause = {"status": "waiting", "waiting_for": [waiting("frontend_tools", store.clock.now(), "c1")]}
    head = (
        await store.append(head, [asked("c1", run_id=run.id)], fields=pause, run_updates=[(run, {"status": "waiting"})])
    ).head
    assert head.total_runs == 0
    run = await store.run(run.id)
    head = (await store.append(head, fields={"status": "pending"}, run_updates=[(run, {"status": "running"})])).head
    head = (await store.append(head, run_updates=[(member, {"status": "completed"})])).head
    assert head.total_runs == 0

    finished_thread = (await finish_turn(store, head, await store.run(run.id), "Hi")).head
    assert finished_thread.total_runs == 1
    head = (
        await store.append(
            finished_thread, run_updates=[(await store.run(run.id), {"status": "completed", "extras": {"a": 1}})]
        )
    ).head
    assert head.total_runs == 1
    await assert_head(store, head)
    failed = await begin_turn(store, head, "Again")
    head = (await finish_turn(store, failed[0].head, failed[1], "no", status="failed", error="e")).head
    assert head.total_runs == 2


@pytest.mark.parametrize("rest", ["waiting", "pending", "completed", "failed", "cancelled"])
async def test_waiting_or_ending_releases_thread(timed_store: Store, clock: FakeClock, rest: str) -> None:
    head = await timed_store.claim(await goal(timed_store))
    clock.advance(3)
    fields: dict[str, Any] = {"status": rest}
    if rest in ("completed", "failed"):
        fields["result"] = {"summary": "s"}
    head = (await timed_store.append(head, [said("go")], fields=fields)).head

    assert (head.status, head.worker_id, head.fence) == (rest, None, 1)
    await assert_head(timed_store, head)
    if rest == "pending":
        assert head.wake_at == clock.now()


async def test_append_without_status_keeps_thread_held(store: Store) -> None:
    held_thread = await store.claim(await goal(store))
    head = (await store.append(held_thread, [said("go")], fields={"state": {"step": 1}})).head

    assert (head.worker_id, head.status, head.state) == (held_thread.worker_id, "running", {"step": 1})
    await assert_head(store, head)


async def test_clears_suspicion_when_the_holder_makes_progress(timed_store: Store, clock: FakeClock) -> None:
    """A delivery, a change without entries and the note of a takeover are no progress."""
    suspect = {"losses": 2, "crashes": 1, "lost_by": new_id(), "alone": True}
    await timed_store._backend.put([(await goal(timed_store)).changed(**suspect, wake_at=clock.now())])
    (head,) = await timed_store.claim_next(suspects=True, alone=True)
    assert (head.losses, head.crashes, head.alone) == (2, 1, True)

    for entries in ([], [Entry(type="thread_taken_over")]):
        head = (await timed_store.append(head, entries, fields={"state": {"n": len(entries)}})).head
        assert (head.losses, head.crashes, head.lost_by, head.alone) == (2, 1, suspect["lost_by"], True)
        await assert_head(timed_store, head)
    head = (await timed_store.append(head, [said("go")])).head

    assert (head.losses, head.crashes, head.lost_by, head.alone) == (0, 0, None, False)
    await assert_head(timed_store, head)


async def test_poisonous_thread_stays_a_suspect_until_it_ends(store: Store) -> None:
    """Runs of members fail before the run that caused them. Its executor must know the reason by then."""
    suspect = {"losses": 4, "crashes": MAX_CRASHES, "lost_by": new_id()}
    await store._backend.put([(await goal(store)).changed(**suspect, wake_at=store.clock.now())])
    (head,) = await store.claim_next(suspects=True, alone=True)

    head = (await store.append(head, [said("a member has failed")])).head
    assert head.poisonous
    await assert_head(store, head)
    head = (
        await store.append(head, [said("failed")], fields={"status": "failed", "result": {"status": "failed"}})
    ).head

    assert (head.losses, head.crashes, head.lost_by) == (0, 0, None)
    await assert_head(store, head)


# Rejected updates


@pytest.mark.req("S3-006", "S3-012", "X3-12")
async def test_thread_has_result_if_and_only_if_it_ended(store: Store) -> None:
    head = await goal(store)
    assert head.result is None
    for status in ("completed", "failed"):
        with pytest.raises(Refused):
            await store.append(head, fields={"status": status})
    for status in ("pending", "waiting"):
        with pytest.raises(Refused):
            await store.append(head, fields={"status": status, "result": {"early": True}})
    await assert_head(store, head)

    completed = (await store.append(head, fields=DONE)).head
    failed = (await store.append(await goal(store), fields={"status": "failed", "result": {"error": "e"}})).head
    assert (completed.result, failed.result) == (DONE["result"], {"error": "e"})
    # One that was cancelled may have something to show or not.
    for result_of in (None, {"cancelled": True}):
        fields = {"status": "cancelled", "result": result_of}
        assert (await store.append(await goal(store), fields=fields)).head.result == result_of


@pytest.mark.req("S3-012")
async def test_rejects_completed_chat(store: Store) -> None:
    chat = await store.create()
    with pytest.raises(Refused, match="cannot be completed"):
        await store.append(chat, [said("Hello")], fields={"status": "completed"})
    await assert_head(store, chat)


@pytest.mark.req("S3-056")
async def test_only_claim_makes_thread_running(store: Store) -> None:
    thread = await goal(store)
    with pytest.raises(Refused, match="Only claim"):
        await store.append(thread, [said("go")], fields={"status": "running"})
    await assert_head(store, thread)
    held = await store.claim(thread)
    released = (await store.append(held, [said("go")], fields={"status": "pending"})).head
    assert (held.status, released.status, released.worker_id) == ("running", "pending", None)
    with pytest.raises(Refused, match="Only claim"):
        await store.append(released, fields={"status": "running"})


async def test_rejects_append_when_thread_ended(store: Store) -> None:
    thread = (await store.append(await goal(store), fields=DONE)).head

    for fields in ({}, {"status": "running"}, {"status": "pending", "result": None}):
        with pytest.raises(ThreadEnded):
            await store.append(thread, [said("more")], fields=fields)
    with pytest.raises(ThreadEnded):
        await store.claim(thread)
    with pytest.raises(ThreadEnded):
        await store.deliver(thread, said("more"), kind="input", sender="ada")
    await assert_head(store, thread)


@pytest.mark.parametrize("status", ["failed", "cancelled"])
async def test_only_retry_reopens_failed_or_cancelled_thread(store: Store, status: str) -> None:
    fields = {"status": status, "result": {"error": "e"}}
    head = (await store.append(await goal(store), [said("go")], fields=fields)).head
    with pytest.raises(ThreadEnded):
        await store.append(head, [said("more")])

    restarted = (await store.append(head, fields={"status": "pending", "result": None})).head
    assert (restarted.status, restarted.result) == ("pending", None)
    assert (await store.claim(restarted)).id == restarted.id


@pytest.mark.parametrize(
    "fields",
    [
        {"position": 9},
        {"fence": 9},
        {"id": new_id()},
        {"key": "k"},
        {"project": "p"},
        {"pending_children": 3},
        {"created_at": None},
        {"colour": "red"},
        {"title": "t" * 256},
        {"state": [1]},
        {"extras": {"a": float("nan")}},
    ],
    ids=lambda fields: next(iter(fields)),
)
async def test_rejects_derived_and_fixed_fields(store: Store, fields: dict[str, Any]) -> None:
    head = await goal(store)
    with pytest.raises(Refused):
        await store.append(head, [said("go")], fields=fields)
    await assert_head(store, head)
    assert await store.stitches(head) == []


def call(run: Run, tokens: int, cost: float | None = None, purpose: str | None = None) -> Entry:
    data = {"cost": cost} if purpose is None else {"cost": cost, "purpose": purpose}
    usage = {"input_tokens": tokens, "output_tokens": 1, "cache_read_tokens": 2}
    message = None if purpose else {"role": "assistant", "content": "ok"}
    return Entry(type="llm_call", run_id=run.id, name="m", message=message, data=data, **usage)


async def test_store_sums_the_stitches_of_runs_if_asked(store: Store) -> None:
    head = await store.create()
    run = store.new_run(head)
    entries = [said("hi", run_id=run.id), call(run, 10, 0.1), call(run, 5, 0.2, "title")]
    head = (await store.append(head, entries, new_runs=[run], sum_runs=True)).head
    (stored,) = await store.runs(head)
    assert (stored.input_tokens, stored.output_tokens, stored.cache_read_tokens, stored.steps) == (15, 2, 4, 1)
    assert stored.total_cost == pytest.approx(0.3)
    # A writer that knows only its own calls, for example after a restart.
    ended = {"status": "completed", "completed_at": store.clock.now(), "input_tokens": 1}
    other_run = store.new_run(head)
    await store.append(
        head,
        [call(run, 7), call(other_run, 100)],
        run_updates=[(run, ended)],
        new_runs=[other_run],
        sum_runs=True,
    )
    first, second = await store.runs(head)
    assert (first.status, first.input_tokens, first.output_tokens, first.steps) == ("completed", 22, 3, 2)
    assert first.total_cost == pytest.approx(0.3)
    assert (second.input_tokens, second.steps, second.total_cost) == (100, 1, None)


async def test_store_sums_no_stitches_of_a_stale_writer(store: Store) -> None:
    head = await store.create()
    run = store.new_run(head)
    await store.append(head, [call(run, 10)], new_runs=[run])
    with pytest.raises(StalePosition):
        await store.append(head, [call(run, 5)], run_updates=[(run, {"status": "failed"})], sum_runs=True)
    assert [stored.input_tokens for stored in await store.runs(head)] == [0]
