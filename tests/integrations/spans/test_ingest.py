"""Spans of foreign traces in the record."""

import asyncio
import random
from itertools import pairwise

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lockstitch.backend import Find
from lockstitch.errors import Refused
from lockstitch.integrations.langsmith import LangSmith
from lockstitch.integrations.spans.ingest import SpanIngest
from lockstitch.integrations.spans.span import Attachment, SpanFeedback
from lockstitch.model import Blob, Entry, Feedback, File, Json, Thread, tool_uses
from lockstitch.store import Store, open_store
from tests.integrations.importing import lens
from tests.integrations.runs import Trace, agent_trace, ai, items, moment, post_and_patch, tool_message, uid
from tests.integrations.seeing import fences, rows_of, seen

pytestmark = pytest.mark.anyio


def ingest(store: Store, **options: bool) -> SpanIngest:
    return SpanIngest(store, LangSmith(), **options)


@pytest.mark.req("S2-042", "S2-045", "S2-034", "S2-026")
async def test_trace_is_one_run_with_model_calls_and_tools(store: Store) -> None:
    await ingest(store).write(items(*agent_trace(thread="conv-1").runs))

    (thread,) = await store.threads(kind="trace")
    (run,) = await store.runs(thread)
    assert (thread.key, thread.status, thread.title) == ("langsmith:conv-1", "completed", "hello")
    assert (run.foreign_id, run.role, run.status, run.steps) == (uid(1000), "trace", "completed", 2)
    assert (run.input_tokens, run.output_tokens, run.model) == (200, 40, "gpt-4o-mini")
    asking, answering = await rows_of(store, "llm_call")
    search, price = await rows_of(store, "tool_call")
    assert [call["name"] for call in tool_uses(asking.message)] == ["search", "price"]
    assert (search.reply_to, search.call_index, price.reply_to, price.call_index) == (
        *(asking.position, 0),
        *(asking.position, 1),
    )
    assert (search.status, search.duration_ms, search.message) == (
        "ok",
        500,
        {"type": "tool_result", "tool_use_id": "call_a", "content": "found"},
    )
    assert (answering.step_number, answering.status) == (2, "end_turn")
    assert (await store.verify()).ok


@pytest.mark.req("S2-048")
async def test_writing_twice_changes_nothing(store: Store) -> None:
    runs = agent_trace(thread="conv").runs
    await ingest(store).write(items(*runs))
    before, raised = await seen(store), await fences(store)

    second_outcome = await ingest(store).write(items(*runs))

    assert await seen(store) == before
    assert await fences(store) == raised
    assert sum(row.type == "llm_call" for row in second_outcome.rows) == 2


@pytest.mark.req("S2-048", "X2-11")
async def test_changed_span_is_updated_in_place(store: Store) -> None:
    runs = agent_trace().runs
    await ingest(store).write(items(*runs))
    before = {row.id: row.position for row in await rows_of(store, "tool_call")}

    runs[3] = {**runs[3], "outputs": {"output": {"type": "tool", "content": "43", "tool_call_id": "call_b"}}}
    await ingest(store).write(items(*runs))

    after = await rows_of(store, "tool_call")
    assert {row.id: row.position for row in after} == before
    assert (after[1].message or {})["content"] == "43"


@settings(
    max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(seed=st.integers(0, 10**9))
def test_result_does_not_depend_on_order_of_arrival(seed: int) -> None:
    """Posts and patches of two turns, one with an id that is used twice, in random batches."""
    chance = random.Random(seed)
    bodies: list[Json] = []
    for number in (1, 2):
        trace = agent_trace(number, thread="conv")
        trace.model(5, calls=[("call_a", "search", {"q": "again"})], heard=[tool_message("call_a", "found")])
        trace.tool(6, "search", "call_a", "found again")
        trace.model(7, "Done.")
        for run in trace.runs:
            bodies += post_and_patch(run)

    async def come(order: list[Json], sizes: list[int]) -> tuple[Json, bool]:
        async with open_store("sqlite:///:memory:") as store:
            while order:
                size = sizes.pop() if sizes else len(order)
                await ingest(store).write(items(*order[:size]))
                order = order[size:]
            return await seen(store), (await store.verify()).ok

    shuffled = chance.sample(bodies, len(bodies))
    expected, _ = asyncio.run(come(bodies, []))
    result, complete = asyncio.run(come(shuffled, [chance.randint(1, 6) for _ in range(20)]))

    assert complete
    assert result == expected


@pytest.mark.req("S2-048")
@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 10**9))
def test_duplicates_and_tools_do_not_depend_on_order_of_arrival(seed: int) -> None:
    """Two spans describe every model call, in one trace or in two. Tools have no call ids, and ids are reused."""
    chance = random.Random(seed)
    trace, other_trace = Trace(1, thread="conv"), Trace(2, thread="conv")
    trace.root()
    other_trace.root()
    messages: list[Json] = []
    for at in (1, 5, 9):
        response = {"response_metadata": {"id": f"chatcmpl-{at % 2}", "model_provider": "openai"}}
        calls: list[tuple[str, str, Json]] = [("call_0", "search", {"at": at}), (f"call_{at}", "search", {})]
        asking = trace.model(at, calls=calls, heard=list(messages), kwargs=response)
        trace.model(at + 0.1, "", kwargs=response, parent=asking["id"])
        other_trace.model(at - 0.1, "more" if at == 5 else "", calls=calls if at == 5 else None, kwargs=response)
        trace.tool(at + 1, "search", None, f"first {at}")
        trace.tool(at + 2, "search", f"call_{at}" if at == 9 else None, f"second {at}")
        failed = tool_message("call_0", f"first {at}", status="error" if at == 5 else "success")
        messages += [asking["outputs"]["generations"][0][0]["message"], failed, tool_message(f"call_{at}", "seen")]
    trace.model(13, "Done.", heard=messages)
    spans = trace.runs + other_trace.runs

    async def come(*parts: list[Json]) -> tuple[Json, bool]:
        async with open_store("sqlite:///:memory:") as store:
            for runs in parts:
                await ingest(store).write(items(*runs))
            return await seen(store), (await store.verify()).ok

    shuffled = chance.sample(spans, len(spans))
    cuts = [0, *sorted(chance.sample(range(1, len(spans)), 4)), len(spans)]
    expected, _ = asyncio.run(come(spans))
    assert asyncio.run(come(*(shuffled[a:b] for a, b in pairwise(cuts)))) == (expected, True)


@pytest.mark.req("S2-048", "S2-036")
async def test_patch_can_arrive_before_post(store: Store) -> None:
    trace = agent_trace()
    halves = [post_and_patch(run) for run in trace.runs]
    for _, patch in halves:
        await ingest(store).write(items(patch))
    for post, _ in halves:
        await ingest(store).write(items(post))

    async with open_store("sqlite:///:memory:") as reference:
        await ingest(reference).write(items(*trace.runs))
        assert await seen(store) == await seen(reference)


@pytest.mark.req("S2-035")
async def test_stores_request_without_result_and_result_without_request(store: Store) -> None:
    trace = Trace()
    trace.root()
    trace.model(1, calls=[("call_a", "search", {"q": "x"})])
    trace.model(2, "ok", heard=[tool_message("call_z", "from nowhere", name="ghost")])
    await ingest(store).write(items(*trace.runs))

    first, second = await rows_of(store, "tool_call")
    assert (first.call_id, first.status, first.message, first.reply_to is None) == ("call_a", None, None, False)
    assert (second.call_id, second.name, second.reply_to, second.status) == ("call_z", "ghost", None, "ok")
    assert (second.message or {})["content"] == "from nowhere"
    assert (await store.verify()).ok
    asked, told = (await lens(store))["tool_calls"]
    assert (asked["tool_call_id"], asked["tool_args"], asked["llm_call_id"]) == ("call_a", {"q": "x"}, "msg-1-1")
    assert (asked["tool_status"], asked["tool_response"], asked["is_tool_error"]) == (None, None, 0)
    assert (told["tool_call_id"], told["tool_args"], told["llm_call_id"]) == ("call_z", None, None)
    assert (told["tool_status"], told["tool_response"]) == ("success", "from nowhere")


@pytest.mark.req("S2-036", "S2-034")
async def test_finds_results_in_messages_of_later_calls(store: Store) -> None:
    trace = Trace()
    trace.root()
    asking = trace.model(1, calls=[("call_a", "search", {"q": "x"}), ("call_b", "look", {})])
    answer = asking["outputs"]["generations"][0][0]["message"]
    messages = [answer, tool_message("call_a", "found"), tool_message("call_b", "no", status="error")]
    trace.model(2, "ok", heard=messages)
    await ingest(store).write(items(*trace.runs))

    first, second = await rows_of(store, "tool_call")
    assert (first.status, (first.message or {})["content"]) == ("ok", "found")
    assert (second.status, (second.message or {})["is_error"]) == ("error", True)
    assert len(await rows_of(store, "tool_call")) == 2


async def test_earlier_conversation_is_not_part_of_trace(store: Store) -> None:
    """The messages contain calls and results of an earlier turn. They count in the trace where they happened."""
    earlier = [ai("", [{"id": "call_old", "name": "search", "args": {}}], "m-old"), tool_message("call_old", "then")]
    trace = Trace()
    trace.root()
    trace.model(1, "ok", heard=earlier)
    await ingest(store).write(items(*trace.runs))

    assert await rows_of(store, "tool_call") == []


async def test_reused_id_answers_last_call_before_it(store: Store) -> None:
    trace = Trace()
    trace.root()
    for at, result in ((1, "first"), (3, "second"), (5, "third")):
        trace.model(at, calls=[("call_0", "search", {"n": at})])
        trace.tool(at + 1, "search", "call_0", result)
    late = trace.runs.pop(3)
    await ingest(store).write(items(*trace.runs))
    await ingest(store).write(items(late))

    steps = {row.position: row.step_number for row in await rows_of(store, "llm_call")}
    results = [(steps[row.reply_to or 0], (row.message or {})["content"]) for row in await rows_of(store, "tool_call")]
    assert sorted(results) == [(1, "first"), (2, "second"), (3, "third")]
    assert (await store.verify()).ok


async def test_tool_without_call_id_is_matched_by_name(store: Store) -> None:
    trace = Trace()
    trace.root()
    trace.model(1, calls=[("call_a", "search", {"q": "x"})])
    trace.tool(2, "search", None, "found")
    await ingest(store).write(items(*trace.runs))

    (row,) = await rows_of(store, "tool_call")
    assert (row.call_id, row.call_index, (row.message or {})["content"]) == ("call_a", 0, "found")


async def test_tools_without_call_ids_are_matched_in_order(store: Store) -> None:
    trace = Trace()
    trace.root()
    trace.model(1, calls=[("call_a", "search", {"q": "x"}), ("call_b", "search", {"q": "y"})])
    trace.tool(2, "search", None, "x found")
    trace.tool(2.1, "search", None, "y found")
    await ingest(store).write(items(*trace.runs))

    contents = {row.call_id: (row.message or {})["content"] for row in await rows_of(store, "tool_call")}
    assert contents == {"call_a": "x found", "call_b": "y found"}


@pytest.mark.req("S2-048")
async def test_span_with_content_replaces_duplicate_without(store: Store) -> None:
    """The first span requested a tool that ran. The enclosing span arrives later, in a separate trace."""
    response = {"response_metadata": {"id": "chatcmpl-1", "model_name": "gpt-4o-mini", "model_provider": "openai"}}
    trace, second = Trace(1), Trace(2)
    trace.root()
    trace.model(1, calls=[("call_a", "search", {})], kwargs=response)
    trace.tool(2, "search", "call_a", "found")
    second.root()
    believed = second.model(0.9, calls=[("call_a", "search", {})], kwargs=response)
    await ingest(store).write(items(*trace.runs))
    await ingest(store).write(items(*second.runs))

    (stitch,) = await rows_of(store, "llm_call")
    runs = {run.foreign_id: run for thread in await store.threads(kind="trace") for run in await store.runs(thread)}
    tools = [(row.run_id, row.reply_to, row.status) for row in await rows_of(store, "tool_call")]
    assert stitch.data["id"] == believed["id"]
    assert [(run.steps, run.input_tokens, run.model) for _, run in sorted(runs.items())] == [
        (0, 0, None),
        (1, 100, "gpt-4o-mini"),
    ]
    assert sorted(tools, key=str) == sorted(
        [(runs[trace.id].id, None, "ok"), (runs[second.id].id, stitch.position, None)], key=str
    )
    assert (await store.verify()).ok


@pytest.mark.req("S2-013", "S2-050")
async def test_several_answers_of_one_call_count_once(store: Store) -> None:
    trace = Trace()
    trace.root()
    run = trace.model(1, "one")
    run["outputs"]["generations"] = [
        [{"text": text, "message": ai(text, [], message_id)} for text, message_id in (("one", None), ("two", "m-2"))]
    ]
    await ingest(store).write(items(*trace.runs))
    await ingest(store).write(items(*trace.runs))

    first, second = await rows_of(store, "llm_call")
    assert (first.input_tokens, second.input_tokens) == (100, None)
    assert (first.step_number, second.step_number, second.call_id) == (1, 2, "m-2")
    (run_row,) = await store.runs((await store.threads(kind="trace"))[0])
    assert (run_row.input_tokens, run_row.steps) == (100, 2)


@pytest.mark.req("S2-047", "X2-09")
async def test_totals_count_model_calls_and_not_chains(store: Store) -> None:
    """The root has its own totals, or the sum of its model calls. Totals of chains below it are never added."""
    costs = {"prompt_tokens": 400, "completion_tokens": 100, "total_tokens": 500, "total_cost": 2.5}
    for number, totals in ((1, {"total_tokens": 999, "total_cost": 0.25}), (2, {})):
        trace = agent_trace(number)
        trace.runs[0] |= totals
        trace.run("chain", "plan", 5, {"messages": []}, {"messages": []}, **costs)
        for run in trace.runs:
            if run["run_type"] == "llm":
                run |= {"total_cost": 0.5}
        await ingest(store).write(items(*trace.runs))
    for thread in await store.threads(kind="trace"):
        (run,) = await store.runs(thread)
        assert run.input_tokens + run.output_tokens == 240
    shown = {run["run_id"]: (run["total_tokens"], run["total_cost"]) for run in (await lens(store))["agent_runs"]}
    assert shown == {uid(1000): (999, 0.25), uid(2000): (240, 1.0)}


@pytest.mark.req("S4-037", "X4-04")
@pytest.mark.parametrize("status", ["ERROR", "error", "FAILED"])
async def test_error_of_another_system_is_failed(store: Store, status: str) -> None:
    trace = Trace()
    trace.root(status=status)
    await ingest(store).write(items(*trace.runs))
    (run,) = await store.runs((await store.threads(kind="trace"))[0])
    assert run.status == "failed"


@pytest.mark.req("S2-001")
async def test_projects_stay_separate_with_equal_ids(store: Store) -> None:
    """The same ids in two projects are two traces. Neither sees, changes or completes the other."""
    runs = agent_trace(thread="shared").runs
    other_store = store.in_project("other")
    await ingest(store).write(items(*runs))
    stolen = [{**run, "name": "stolen", "outputs": {"output": "stolen"}} for run in runs]
    before = await seen(store)
    await ingest(other_store).write(items(*stolen[1:]))

    assert await seen(store) == before
    (other_thread,) = await other_store.threads(kind="trace")
    assert other_thread.key == "langsmith:shared"
    assert {run.agent for run in await other_store.runs(other_thread)} == {"stolen"}
    assert len(await store.threads(kind="trace", all_projects=True)) == 2


async def test_native_thread_keeps_its_key(store: Store) -> None:
    native = await store.create(key="langsmith:conv")
    await ingest(store).write(items(*agent_trace(thread="conv").runs))

    (mirror,) = await store.threads(kind="trace")
    assert mirror.key is None
    assert (await store.thread("langsmith:conv")).id == native.id


async def test_imported_trace_cannot_be_executed(store: Store) -> None:
    await ingest(store).write(items(agent_trace().runs[1]))
    (mirror,) = await store.threads(kind="trace")

    assert mirror.status == "completed"
    assert await store.claim_next() == []
    with pytest.raises(Refused, match="imported trace"):
        await store.claim(mirror)
    with pytest.raises(Refused, match="imported trace"):
        await store.fork(mirror)
    with pytest.raises(Refused, match="imported trace"):
        await store.deliver(mirror.id, Entry(type="input", message={}), kind="input", sender="me")


async def test_concurrent_writers_lose_nothing(store: Store) -> None:
    trace = agent_trace(thread="conv")
    bodies = [body for run in trace.runs for body in post_and_patch(run)]

    await asyncio.gather(*(ingest(store).write(items(body)) for body in bodies))

    async with open_store("sqlite:///:memory:") as reference:
        await ingest(reference).write(items(*trace.runs))
        assert await seen(store) == await seen(reference)
    assert (await store.verify()).ok


async def test_duplicate_spans_of_model_call_count_once(store: Store) -> None:
    """Two instrumentations, nested or in separate traces, with the provider's id of the response."""
    response = {"response_metadata": {"id": "chatcmpl-1", "model_name": "gpt-4o-mini", "model_provider": "openai"}}
    trace, second = Trace(1), Trace(2)
    trace.root()
    outer = trace.model(1, "hi", kwargs=response)
    trace.model(1.1, "hi", kwargs=response, parent=outer["id"])
    second.root()
    second.model(1, "hi", kwargs=response)
    await ingest(store).write(items(*trace.runs))
    await ingest(store).write(items(*second.runs))

    (stitch,) = await rows_of(store, "llm_call")
    duplicates = [row for row in await rows_of(store, "span") if row.data.get("duplicate_of")]
    assert stitch.data["id"] == outer["id"]
    assert {row.data["duplicate_of"] for row in duplicates} == {str(stitch.id)}
    assert len(duplicates) == 2


async def test_changed_cost_is_not_added_twice(store: Store) -> None:
    trace = agent_trace()
    await ingest(store).write(items(*trace.runs))
    (first,) = await store.runs((await store.threads(kind="trace"))[0])
    usage = {"input_tokens": 1000, "output_tokens": 20, "total_tokens": 1020}
    trace.runs[1]["outputs"]["generations"][0][0]["message"]["kwargs"]["usage_metadata"] = usage
    await ingest(store).write(items(*trace.runs))

    async with open_store("sqlite:///:memory:") as reference:
        await ingest(reference).write(items(*trace.runs))
        (expected,) = await reference.runs((await reference.threads(kind="trace"))[0])
    (run,) = await store.runs((await store.threads(kind="trace"))[0])
    assert first.total_cost is not None
    assert (run.input_tokens, run.cost) == (1100, expected.cost)
    assert (run.total_cost or 0) > first.total_cost


@pytest.mark.req("S2-054", "S2-010")
async def test_secrets_in_metadata_are_not_stored(store: Store) -> None:
    secret = "sk-" + "a1b2c3d4" * 4
    metadata = {"openai_api_key": "plain", "note": f"use {secret}", "customer": "ada", "max_tokens": 100}
    for keep in (False, True):
        trace = agent_trace(2 if keep else 1, metadata=metadata)
        await ingest(store, keep_secrets=keep).write(items(*trace.runs))
    runs = {run.foreign_id: run for thread in await store.threads(kind="trace") for run in await store.runs(thread)}

    assert runs[uid(1000)].metadata == {
        "openai_api_key": "[redacted]",
        "note": "[redacted]",
        "customer": "ada",
        "max_tokens": 100,
    }
    assert runs[uid(2000)].metadata == metadata
    redacted = [thread.id for thread in await store.threads(kind="trace") if thread.key == f"langsmith:{uid(1000)}"]
    stitches = await store.stitches(redacted[0])
    assert secret not in str([stitch.data for stitch in stitches])


async def test_links_feedback_that_arrives_before_its_span(store: Store) -> None:
    trace = agent_trace()
    span = trace.runs[1]["id"]
    await ingest(store).write([SpanFeedback("f1", span, None, "helpful", score=1)])
    (early,) = await store._backend.find(Find(Feedback))
    await ingest(store).write(items(*trace.runs))

    (row,) = [row for row in await rows_of(store, "llm_call") if row.data["id"] == span]
    (feedback,) = await store._backend.find(Find(Feedback))
    assert (early.stitch_id, early.thread_id) == (row.id, None)
    assert (feedback.stitch_id, feedback.run_id, feedback.thread_id) == (row.id, row.run_id, row.thread_id)
    await store.delete(row.thread_id)
    assert await store._backend.find(Find(Feedback)) == []


async def test_stores_feedback_and_attachments_of_span(store: Store) -> None:
    trace = agent_trace()
    span = trace.runs[1]["id"]
    remark = SpanFeedback("f1", span, None, "helpful", score=0.5, comment="fine", value={"value": "yes"})
    attachment = Attachment(span, "chart.png", "image/png", b"\x89PNG")
    for _ in range(2):
        outcome = await ingest(store).write([*items(*trace.runs), remark, attachment])
        assert outcome.refused == []

    (row,) = [row for row in await rows_of(store, "llm_call") if row.data["id"] == span]
    (feedback,) = await store._backend.find(Find(Feedback))
    (file,) = await store._backend.find(Find(File))
    blob = await store._backend.get(Blob, ((file.storage_path or "").removeprefix("blob:"),))
    assert (feedback.stitch_id, feedback.run_id, feedback.score, feedback.name) == (row.id, row.run_id, 0.5, "helpful")
    assert (file.filename, file.mime_type, file.created_in_run, blob and blob.content) == (
        *("chart.png", "image/png", row.run_id),
        b"\x89PNG",
    )
    await store.delete((await store.threads(kind="trace"))[0])
    assert await store._backend.find(Find(File)) == []


@pytest.mark.req("S2-049")
async def test_reports_spans_that_cannot_be_stored_and_stores_others(store: Store) -> None:
    deep: Json = {}
    for _ in range(300):
        deep = {"deeper": deep}
    good = items(*agent_trace().runs)
    bad = [{**good[1], "id": "bad", "inputs": deep}, {"trace_id": "no id"}]
    outcome = await ingest(store).write([*good, *bad])  # type: ignore[list-item]

    assert {span_id for span_id, _ in outcome.refused} == {"bad", ""}
    assert len(await rows_of(store, "llm_call")) == 2


@pytest.mark.parametrize("first", ["post", "patch"])
async def test_patch_without_trace_finds_its_trace(store: Store, first: str) -> None:
    """PATCH /runs/{id} with only the changed members."""
    trace = agent_trace(thread="conv")
    post, patch = post_and_patch(trace.runs[4])
    bare = {key: patch[key] for key in ("id", "end_time", "outputs")}
    await ingest(store).write(items(*trace.runs[:4]))
    for half in (post, bare) if first == "post" else (bare, post):
        await ingest(store).write(items(half))

    async with open_store("sqlite:///:memory:") as reference:
        await ingest(reference).write(items(*trace.runs))
        assert await seen(store) == await seen(reference)
    assert (await store.verify()).ok


async def test_late_root_completes_trace(store: Store) -> None:
    runs = agent_trace(thread="conv").runs
    await ingest(store).write(items(*runs[1:]))
    (mirror,) = await store.threads(kind="trace")
    (run,) = await store.runs(mirror)
    assert (run.foreign_id, run.status, run.agent, mirror.status) == (
        *(runs[1]["id"], "completed"),
        *("ChatOpenAI", "completed"),
    ), "the first run is the substitute of the root"
    await ingest(store).write(items(runs[0]))

    (run,) = await store.runs(mirror)
    assert (run.foreign_id, run.status, run.agent) == (runs[0]["id"], "completed", "agent")
    assert run.started_at.isoformat() == moment(0)
    assert (await store.thread(mirror.id)).status == "completed"
    history = await store.history(mirror)
    assert [(turn.user_message, turn.final_response) for turn in history.turns] == [("hello", "It costs 42.")]


async def test_removes_spans_only_from_complete_traces(store: Store) -> None:
    trace = agent_trace()
    await ingest(store).write(items(*trace.runs))
    removed_ids = {trace.runs[1]["id"], trace.runs[2]["id"]}
    removed = await ingest(store).drop_others(trace.id, lambda span_id: span_id not in removed_ids)

    (run,) = await store.runs((await store.threads(kind="trace"))[0])
    (call,) = await rows_of(store, "llm_call")
    assert removed >= 2
    assert (run.input_tokens, run.steps, call.step_number) == (100, 1, 1)
    assert (await store.verify()).ok
    await ingest(store).write(items(*trace.runs))
    assert [row.step_number for row in await rows_of(store, "llm_call")] == [1, 2]
    (run,) = await store.runs((await store.threads(kind="trace"))[0])
    assert (run.input_tokens, run.steps) == (200, 2)


async def test_threads_of_traces_are_ordered_by_last_turn(store: Store) -> None:
    for number in (1, 2):
        trace = agent_trace(number, thread="conv")
        for run in trace.runs:
            run["start_time"], run["end_time"] = moment(number * 100), moment(number * 100 + 1)
        await ingest(store).write(items(*trace.runs))

    (mirror,) = await store.threads(kind="trace")
    runs = await store.runs(mirror)
    assert [(run.sequence, run.turn) for run in runs] == [(1, 1), (2, 2)]
    assert mirror.last_run_at == runs[1].started_at
    assert (mirror.total_runs, mirror.last_sequence) == (2, 2)
    assert isinstance(mirror, Thread)


async def test_imported_trace_is_not_archived(store: Store) -> None:
    runs = agent_trace(thread="conv").runs
    await ingest(store).write(items(*runs))
    before = await seen(store)

    assert await store.archive(store.clock.now()) == 0
    await ingest(store).write(items(*runs))

    assert await seen(store) == before


async def test_links_feedback_on_a_trace(store: Store) -> None:
    trace = agent_trace()
    early, late = (SpanFeedback(name, None, trace.runs[0]["trace_id"], name, score=1) for name in ("early", "late"))
    await ingest(store).write([early])
    (waiting,) = await store._backend.find(Find(Feedback))
    await ingest(store).write([*items(*trace.runs), late])
    row = (await rows_of(store, "llm_call"))[0]
    assert waiting.thread_id is None
    for feedback in await store._backend.find(Find(Feedback)):
        assert (feedback.stitch_id, feedback.run_id, feedback.thread_id) == (None, row.run_id, row.thread_id)
