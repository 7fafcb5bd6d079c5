"""Threads of imported traces in lists: name, agent and times of the trace, not of its import."""

import json
from datetime import UTC, datetime, timedelta

import pytest

from lockstitch import Agent, App
from lockstitch.model import Json
from lockstitch.server import Settings
from lockstitch.store import Store
from lockstitch.testing import Scripted
from tests.integrations.importing import import_bytes
from tests.integrations.otel.bodies import START, made, pairs
from tests.integrations.runs import Trace
from tests.server.serving import caller, serving

pytestmark = pytest.mark.anyio

BEGIN = datetime.fromtimestamp(START // 10**9, UTC)
HOUR = timedelta(hours=1)


def span(number: int, hour: int, name: str, attributes: Json | None = None, **fields: str) -> Json:
    """Return a span of trace `number` that starts `hour` hours after the first."""
    start = START + hour * 3_600_000_000_000
    return {
        "traceId": f"{number:032x}",
        "spanId": f"{number:016x}",
        "name": name,
        "startTimeUnixNano": str(start),
        "endTimeUnixNano": str(start + 1_000_000_000),
        "attributes": pairs(attributes or {}),
        **fields,
    }


async def received(store: Store, *spans: Json) -> None:
    document = made({})
    document["resourceSpans"][0]["scopeSpans"][0]["spans"] = list(spans)
    await import_bytes(store, "otel", json.dumps(document).encode())


QUESTION = {"gen_ai.input.messages": json.dumps([{"role": "user", "parts": [{"type": "text", "content": "Why?"}]}])}


async def test_thread_has_agent_and_times_of_its_trace(store: Store) -> None:
    await received(store, span(1, 0, "helper", QUESTION))
    (thread,) = await store.threads()
    assert (thread.agent, thread.title, thread.status) == ("helper", "Why?", "completed")
    assert thread.created_at == thread.last_run_at == thread.active_at == BEGIN
    assert thread.updated_at > BEGIN + HOUR


async def test_parts_in_any_order_give_the_same_thread(store: Store) -> None:
    child = span(1, 1, "chat", spanId="00000000000000aa", parentSpanId=f"{1:016x}")
    await received(store, child)
    (thread,) = await store.threads()
    # The root is not known yet.
    assert (thread.agent, thread.created_at) == (None, BEGIN + HOUR)
    await received(store, span(1, 0, "helper", QUESTION))
    (thread,) = await store.threads()
    assert (thread.agent, thread.title) == ("helper", "Why?")
    assert thread.created_at == thread.last_run_at == thread.active_at == BEGIN


async def test_conversation_has_agent_of_its_last_trace_and_start_of_its_first(store: Store) -> None:
    conversation = {"gen_ai.conversation.id": "c1"}
    await received(store, span(2, 5, "second", conversation))
    await received(store, span(1, 2, "first", conversation))
    (thread,) = await store.threads()
    assert (thread.key, thread.agent) == ("otel:c1", "second")
    assert (thread.created_at, thread.active_at) == (BEGIN + 2 * HOUR, BEGIN + 5 * HOUR)


async def test_threads_are_listed_and_paged_by_the_time_of_their_traces(store: Store) -> None:
    for number, hour in ((1, 3), (2, 9), (3, 1), (4, 7), (5, 5)):
        await received(store, span(number, hour, f"agent-{number}"))
    native = await store.create(key="now")
    threads = await store.threads()
    assert threads[0].id == native.id
    assert [thread.agent for thread in threads[1:]] == ["agent-2", "agent-4", "agent-5", "agent-1", "agent-3"]
    pages: list[str | None] = []
    last = native
    while page := await store.threads(limit=2, after=last):
        pages += [thread.agent for thread in page]
        last = page[-1]
    assert pages == ["agent-2", "agent-4", "agent-5", "agent-1", "agent-3"]
    since = await store.threads(since=BEGIN + 6 * HOUR, kind="trace")
    assert [thread.agent for thread in since] == ["agent-2", "agent-4"]
    assert [thread.agent for thread in await store.threads(agent="agent-3")] == ["agent-3"]
    assert (await store.verify()).ok


async def test_second_import_does_not_change_the_thread(store: Store) -> None:
    await received(store, span(1, 0, "helper", QUESTION))
    before = await store.threads()
    await received(store, span(1, 0, "helper", QUESTION))
    assert await store.threads() == before


async def test_thread_of_langsmith_has_agent_and_times(store: Store) -> None:
    trace = Trace()
    trace.root("Weather?")
    await import_bytes(store, "langsmith", b"\n".join(json.dumps(run).encode() for run in trace.runs))
    (thread,) = await store.threads()
    (run,) = await store.runs(thread)
    assert (thread.agent, thread.title) == (run.agent, "Weather?")
    assert thread.created_at == thread.active_at == run.started_at


@pytest.fixture
async def pages_text(store: Store) -> str:
    await received(store, span(1, 0, "helper"), span(2, 1, "asked", QUESTION))
    async with serving(store, settings=Settings()) as url, caller(url) as http:
        return (await http.get("/", headers={"accept": "text/html"})).text


async def test_page_shows_name_agent_and_start_of_traces(pages_text: str) -> None:
    assert pages_text.index("Why?") < pages_text.index(">helper</a>")
    assert '<span class="soft">asked</span>' in pages_text
    assert "Trace from otel, 1 stitch" in pages_text
    assert "1 stitches" not in pages_text
    assert pages_text.count(f"{BEGIN:%Y-%m-%dT%H}") >= 1


async def test_page_of_a_running_trace_is_read_only_if_the_app_has_its_agent(store: Store) -> None:
    await received(store, span(1, 0, "helper", endTimeUnixNano="0"))
    (thread,) = await store.threads()
    assert (thread.agent, thread.status) == ("helper", "running")
    app = App([Agent("helper", model=Scripted(["Hi."]), title=False)])
    async with serving(store, app, Settings(work=False)) as url, caller(url) as http:
        text = (await http.get(f"/threads/{thread.id}", headers={"accept": "text/html"})).text
    assert "Imported trace, read-only" in text
    assert 'aria-label="Write to the thread"' not in text
