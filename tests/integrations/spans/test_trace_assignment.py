"""Spans that do not name their trace are joined with it, in any order and any split into batches."""

import asyncio
import random
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockstitch.backend import Find
from lockstitch.integrations.langsmith import LangSmith
from lockstitch.integrations.spans import trace_assignment
from lockstitch.integrations.spans.ingest import SpanIngest
from lockstitch.integrations.spans.span import Attachment, SpanFeedback
from lockstitch.integrations.spans.trace import trace_of
from lockstitch.integrations.spans.trace_assignment import ends
from lockstitch.model import Blob, BlobUse, Feedback, File, Json, Run, Thread
from lockstitch.store import Store, open_store
from tests.integrations.runs import Trace, ai, items, moment, uid
from tests.integrations.seeing import seen

pytestmark = pytest.mark.anyio

PLACE = ("trace_id", "dotted_order", "parent_run_id")


def post(number: int, parent: int | None = None, **more: Any) -> Json:
    """A run as `create_run(parent_run_id=…)` sends it: neither trace_id nor dotted_order."""
    run = {"id": uid(number), "name": f"run {number}", "run_type": "chain", "start_time": moment(number), "inputs": {}}
    return run | ({} if parent is None else {"parent_run_id": uid(parent)}) | more


def patch(number: int, **more: Any) -> Json:
    """Return the same run as `update_run` sends it: only new members."""
    return {"id": uid(number), "end_time": moment(number + 0.5), "outputs": {"output": number}, **more}


async def arrive(store: Store, *batches: list[Json]) -> None:
    for runs in batches:
        await SpanIngest(store, LangSmith()).write(items(*runs))


async def trees(store: Store) -> dict[str, Any]:
    """Return each trace with its spans, their parents and its totals. No trace is listed twice."""
    records = await seen(store)
    for trace in records.values():
        trace.pop("thread")
    parents: dict[str, Any] = {}
    for thread in await store.threads(kind="trace", limit=None):
        for run in await store.runs(thread):
            rows = [row for row in await store.stitches(thread) if row.run_id == run.id and row.data.get("id")]
            ids = [row.data["id"] for row in rows]
            assert len(ids) == len(set(ids)), "a span is stored twice"
            assert all(row.data["trace_id"] == trace_of(run) for row in rows if row.data.get("inferred"))
            parents[trace_of(run)] = sorted((row.data["id"], str(row.data.get("parent_id"))) for row in rows)
    assert {"traces": len(parents)} == {"traces": len(records)}
    return {trace: (parents[trace], records[trace]) for trace in records}


async def traces(store: Store) -> dict[str, list[str]]:
    return {trace: [span for span, _ in spans] for trace, (spans, _) in (await trees(store)).items()}


async def test_joins_post_with_parent_and_patch_of_same_run_in_one_batch(store: Store) -> None:
    """The batch of the issue. It was sorted into two traces that both inserted the same stitch."""
    await arrive(store, [post(1), post(2, 1), patch(2), patch(1)])
    assert await traces(store) == {uid(1): [uid(1), uid(2)]}
    assert (await store.verify()).ok


async def test_joins_patch_of_run_with_only_a_parent_in_its_post(store: Store) -> None:
    await arrive(store, [post(1)], [post(2, 1)], [patch(2)], [patch(1)])
    assert await traces(store) == {uid(1): [uid(1), uid(2)]}


@pytest.mark.parametrize("order", [(4, 3, 2, 1), (2, 4, 1, 3), (4, 2, 3, 1), (3, 1, 4, 2)])
async def test_merges_provisional_traces_when_connecting_span_arrives(store: Store, order: tuple[int, ...]) -> None:
    await arrive(store, *([post(number, number - 1 or None)] for number in order))
    assert await traces(store) == {uid(1): [uid(1), uid(2), uid(3), uid(4)]}
    assert len(await store.threads(kind="trace", limit=None)) == 1
    assert (await store.verify()).ok


async def test_moves_descendants_when_parent_names_its_trace(store: Store) -> None:
    await arrive(store, [post(4, 3)], [post(5, 4)], [post(6, 3)], [post(4, 3, trace_id=uid(1))])
    assert await traces(store) == {uid(1): [uid(4), uid(5)], uid(3): [uid(6)]}
    await arrive(store, [patch(3, trace_id=uid(1))])
    assert await traces(store) == {uid(1): [uid(3), uid(4), uid(5), uid(6)]}


@pytest.mark.parametrize("order", [(1, 2, 3), (3, 2, 1), (2, 3, 1)])
async def test_circle_of_parents_is_one_trace(store: Store, order: tuple[int, ...]) -> None:
    parents = {1: 3, 2: 1, 3: 2}
    await arrive(store, *([post(number, parents[number])] for number in order))
    assert await traces(store) == {uid(1): [uid(1), uid(2), uid(3)]}
    assert (await store.verify()).ok


async def test_run_that_is_its_own_parent_is_a_root(store: Store) -> None:
    await arrive(store, [post(1, 1)], [post(2, 1)], [patch(1)])
    assert await traces(store) == {uid(1): [uid(1), uid(2)]}


async def test_merges_traces_of_a_conversation_with_other_traces(store: Store) -> None:
    """The provisional trace is in the thread of a conversation. The other traces of that thread stay unchanged."""
    conversation = {"extra": {"metadata": {"thread_id": "conv"}}}
    await arrive(
        store,
        [post(1, **conversation)],
        [post(3, 2, **conversation)],
        [post(8, **conversation), post(9, 8, **conversation)],
    )
    assert len(await store.threads(kind="trace", limit=None)) == 1
    await arrive(store, [post(2, 1, **conversation)])
    assert await traces(store) == {uid(1): [uid(1), uid(2), uid(3)], uid(8): [uid(8), uid(9)]}
    (thread,) = await store.threads(kind="trace", limit=None)
    assert (thread.key, [run.sequence for run in await store.runs(thread)]) == ("langsmith:conv", [1, 2])
    assert (await store.verify()).ok


async def test_keeps_feedback_and_attachments_of_merged_traces(store: Store) -> None:
    ingest = SpanIngest(store, LangSmith())
    await ingest.write([*items(post(3, 2)), Attachment(uid(3), "a.txt", "text/plain", b"attached")])
    await ingest.write([SpanFeedback("r1", uid(3), None, "good", score=1.0)])
    (before,) = await store.threads(kind="trace", limit=None)
    await arrive(store, [post(2, 1)], [post(1)])

    (thread,) = await store.threads(kind="trace", limit=None)
    (run,) = await store.runs(thread)
    (remark,) = await store._backend.find(Find(Feedback))
    (file,) = await store._backend.find(Find(File))
    (blob,) = await store._backend.find(Find(Blob))
    (use,) = await store._backend.find(Find(BlobUse))
    assert before.id != thread.id
    assert (remark.thread_id, remark.run_id) == (thread.id, run.id)
    assert remark.stitch_id in {row.id for row in await store.stitches(thread)}
    assert (file.thread_id, file.created_in_run, use.thread_id) == (thread.id, run.id, thread.id)
    assert blob.content == b"attached"
    assert (await store.verify()).ok


async def test_counts_model_calls_once_after_merge(store: Store) -> None:
    response = {"response_metadata": {"id": "chatcmpl-1", "model_name": "gpt-4o-mini", "model_provider": "openai"}}
    message = ai("hi", [], None, **response)
    outputs = {"generations": [[{"text": "hi", "message": message}]]}
    call = {"run_type": "llm", "outputs": outputs, "end_time": moment(20)}
    await arrive(store, [post(3, 2, **call)], [post(4, 3, **call)], [post(2, 1)], [post(1)], [patch(1)])
    (run,) = await store._backend.find(Find(Run))
    assert (run.steps, run.input_tokens, run.output_tokens) == (1, 100, 20)


async def test_second_writer_finds_provisional_trace_of_first(store: Store) -> None:
    numbers = list(range(1, 9))
    await asyncio.gather(*(arrive(store, [post(number, number - 1 or None)]) for number in numbers))
    assert await traces(store) == {uid(1): sorted(map(uid, numbers))}
    assert (await store.verify()).ok


async def test_leaves_traces_apart_when_thread_is_too_large_to_rewrite(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trace_assignment, "LARGEST", 2)
    await arrive(store, [post(3, 2), post(4, 3), post(5, 4)], [post(2, 1)], [post(1), patch(3)], [patch(2)])
    assert await traces(store) == {uid(2): [uid(3), uid(4), uid(5)], uid(1): [uid(1), uid(2)]}
    assert (await store.verify()).ok


async def test_writing_again_changes_nothing(store: Store) -> None:
    batches = [[post(4, 3)], [post(3, 2), patch(4)], [patch(2)], [post(2, 1)], [patch(3)], [post(1)]]
    await arrive(store, *batches)
    before = await trees(store)
    fences = {thread.id: thread.fence for thread in await store._backend.find(Find(Thread))}
    await arrive(store, *batches)
    assert await trees(store) == before
    assert {thread.id: thread.fence for thread in await store._backend.find(Find(Thread))} == fences


def test_end_of_circle_is_its_smallest_id() -> None:
    links = {"d": "c", "c": "b", "b": "e", "e": "c", "x": "y", "z": "z"}
    found_ends, circular = ends(links, {"d", "e", "x", "z", "q"})
    assert found_ends == {"d": "b", "e": "b", "x": "y", "z": "z", "q": "q"}
    assert circular == {"b", "c", "e"}


def test_follows_each_link_once() -> None:
    """A chain of a hundred thousand links needs no deep recursion and no quadratic time."""
    links = {str(number): str(number + 1) for number in range(100_000)}
    found_ends, _ = ends(links, links.keys())
    assert set(found_ends.values()) == {"100000"}


# Any forest, any omission, any split, any order


def forest(chance: random.Random) -> list[Json]:
    """Posts and patches of some traces, with random links omitted."""
    bodies: list[Json] = []
    for number in range(1, chance.randint(2, 4)):
        trace = Trace(number, thread=chance.choice([None, None, "conv"]))
        runs = [trace.root()]
        order = {runs[0]["id"]: f"20261101T120000000000Z{runs[0]['id']}"}
        runs[0]["dotted_order"] = order[runs[0]["id"]]
        for place in range(chance.randint(1, 6)):
            parent = chance.choice(runs)["id"]
            at = 1 + place
            kind = chance.choice(["chain", "llm", "tool"])
            if kind == "llm":
                calls = [(f"call_{at}", "search", {"at": at})] if chance.random() < 0.5 else None
                run = trace.model(at, "" if calls else f"answer {at}", calls, parent=parent)
            elif kind == "tool":
                run = trace.tool(at, "search", f"call_{at - 1}", f"found {at}", parent=parent)
            else:
                run = trace.run("chain", f"step {at}", at, {"at": at}, {"at": at}, parent=parent)
            order[run["id"]] = f"{order[parent]}.20261101T1200{at:02d}000000Z{run['id']}"
            run["dotted_order"] = order[run["id"]]
            runs.append(run)
        if chance.random() < 0.1:
            # An invalid link: to itself, or in a circle.
            first, second = chance.choice(runs), chance.choice(runs)
            first["parent_run_id"] = second["id"]
        for run in runs:
            posted = {key: value for key, value in run.items() if key not in ("end_time", "outputs")}
            patched = {key: run[key] for key in ("id", *PLACE, "end_time", "outputs", "extra") if key in run}
            for body in (posted, patched):
                omitted = PLACE if chance.random() < 0.3 else chance.sample(PLACE, chance.randint(0, 3))
                bodies.append({key: value for key, value in body.items() if key not in omitted})
    return bodies


async def compare(store: Store, chance: random.Random) -> None:
    bodies = forest(chance)
    async with open_store("sqlite:///:memory:") as reference:
        await arrive(reference, bodies)
        expected = await trees(reference)
    sent_bodies = bodies + chance.sample(bodies, chance.randint(0, len(bodies) // 3))
    chance.shuffle(sent_bodies)
    cuts = sorted(chance.sample(range(1, len(sent_bodies)), chance.randint(0, len(sent_bodies) - 1)))
    await arrive(store, *(sent_bodies[start:stop] for start, stop in pairwise([0, *cuts, len(sent_bodies)])))
    assert await trees(store) == expected
    assert (await store.verify()).ok


@given(seed=st.integers(0, 10**9))
def test_record_does_not_depend_on_split_and_order_of_arrival(seed: int) -> None:
    async def run() -> None:
        async with open_store("sqlite:///:memory:") as store:
            await compare(store, random.Random(seed))

    asyncio.run(run())


@pytest.mark.parametrize("seed", range(6))
async def test_record_does_not_depend_on_order_of_arrival_on_any_backend(store: Store, seed: int) -> None:
    await compare(store, random.Random(seed))
