"""The API v2: runs, traces and threads."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest

from tests.server.ingest.agents import client_of
from tests.server.ingest.langsmith.conftest import Calling
from tests.server.ingest.langsmith.sample_runs import START, send

pytestmark = pytest.mark.anyio

Work = Callable[[Any], Awaitable[None]]
Asking = Callable[[Work], Awaitable[None]]


@pytest.fixture
def asking(url: str, calling: Calling) -> Asking:
    """Run a function with async calls of a new client in the loop of another thread."""

    async def ask(work: Work) -> None:
        async def closing() -> None:
            client: Any = client_of(url)
            try:
                await work(client)
            finally:
                await client._get_langsmith_api().close()
                client.close()

        await calling(lambda: asyncio.run(closing()))

    return ask


async def test_runs_are_queried_and_retrieved(asking: Asking) -> None:
    async def work(client: Any) -> None:
        trace = send(client, "shop", tags=("beta",))
        failed = send(client, "shop", minute=1, error="no")
        project = str(client.read_project(project_name="shop").id)

        async def ids(**conditions: Any) -> list[str | None]:
            return [run.id async for run in client.runs.query(project_ids=[project], **conditions)]

        assert await ids(is_root=True) == [str(failed.root), str(trace.root)]
        assert await ids(is_root=True, page_size=1) == [str(failed.root), str(trace.root)]
        assert await ids(run_type="TOOL", has_error=False, trace_id=str(trace.root)) == [str(trace.tool)]
        assert await ids(filter='has(tags, "beta")') == [str(trace.root)]
        assert await ids(filter='eq(name, "look")', trace_filter='eq(status, "error")') == [str(failed.tool)]
        assert await ids(ids=[str(trace.model)]) == [str(trace.model)]
        assert await ids(is_root=True, max_start_time=START + timedelta(seconds=5)) == [str(trace.root)]
        with pytest.raises(Exception, match="Field colour is not known"):
            await ids(filter='eq(colour, "red")')
        run = await client.runs.retrieve(str(trace.model), project_id=project)
        assert (run.id, run.name) == (str(trace.model), None)
        selects: Any = ["NAME", "RUN_TYPE", "STATUS", "LATENCY_SECONDS", "TOTAL_COST", "PROMPT_COST", "PROJECT_ID"]
        selects += ["INPUTS_PREVIEW", "IS_ROOT", "TRACE_ID", "METADATA", "SHARE_URL"]
        run = await client.runs.retrieve(str(trace.model), project_id=project, selects=selects)
        assert (run.name, run.run_type, run.status, run.latency_seconds) == ("model", "LLM", "SUCCESS", 2)
        assert (run.project_id, run.is_root, run.trace_id) == (project, False, str(trace.root))
        assert (run.metadata or {})["shop"] == "corner"
        assert run.total_cost is not None
        assert run.prompt_cost is not None
        assert 0 < run.prompt_cost < run.total_cost
        url = await client.runs.get_url(str(trace.root), project_id=project, trace_id=str(trace.root))
        assert (url.url or "").endswith(f"/run/{client.read_run(trace.root).app_path.split('/')[-1]}")
        with pytest.raises(Exception, match="404"):
            await client.runs.retrieve(str(trace.model), project_id=str(trace.root))
        streamed = [run.id async for run in client.runs.streaming.query_v2_items(project_ids=[project], is_root=True)]
        assert streamed == [str(failed.root), str(trace.root)]

    await asking(work)


async def test_links_are_created_and_deleted(asking: Asking) -> None:
    async def work(client: Any) -> None:
        trace = send(client, "shop")
        project = str(client.read_project(project_name="shop").id)
        share = await client.runs.share.create(str(trace.root), session_id=project, trace_id=str(trace.root))
        assert share.share_token
        run = await client.runs.retrieve(str(trace.root), project_id=project, selects=["SHARE_URL"])
        assert share.share_token in (run.share_url or "")
        shared = await client._get_langsmith_api().public.runs.query(share.share_token, selects=["NAME"])
        assert {run.name for run in shared.items or []} == {"answer", "model", "look"}
        one = await client._get_langsmith_api().public.runs.retrieve(
            str(trace.tool), share_token=share.share_token, selects=["NAME", "OUTPUTS"], start_time=START
        )
        assert (one.name, one.outputs) == ("look", {"output": "tea"})
        await client.runs.share.delete(str(trace.root), session_id=project)
        assert not client.run_is_shared(trace.root)

    await asking(work)


async def test_traces_are_queried(asking: Asking) -> None:
    async def work(client: Any) -> None:
        trace = send(client, "shop")
        failed = send(client, "shop", minute=1, error="no")
        project = str(client.read_project(project_name="shop").id)
        traces = [each async for each in client.traces.query(project_id=project, selects=["NAME"], page_size=1)]
        assert [each.root_run.id for each in traces if each.root_run] == [str(failed.root), str(trace.root)]
        assert [each.trace_aggregates.total_tokens for each in traces if each.trace_aggregates] == [1100, 1100]
        found = [each async for each in client.traces.query(project_id=project, trace_filter="neq(error, null)")]
        assert [each.root_run.id for each in found if each.root_run] == [str(failed.root)]
        runs = await client.traces.list_runs(str(trace.root), project_id=project, selects=["NAME"])
        assert [run.name for run in runs.items or []] == ["answer", "model", "look"]

    await asking(work)


async def test_threads_are_queried(asking: Asking) -> None:
    async def work(client: Any) -> None:
        first = send(client, "shop", thread="ada-1", question="First?")
        second = send(client, "shop", minute=1, thread="ada-1", error="no")
        send(client, "shop", minute=2, thread="bob-1")
        send(client, "shop", minute=3)
        project = str(client.read_project(project_name="shop").id)
        threads = [thread async for thread in client.threads.query(project_id=project, page_size=1)]
        assert [(thread.thread_id, thread.count) for thread in threads] == [("bob-1", 1), ("ada-1", 2)]
        ada = threads[1]
        assert (ada.first_inputs, ada.total_tokens, ada.num_errored_turns) == ("First?", 2200, 1)
        assert (ada.first_trace_id, ada.last_trace_id) == (str(first.root), str(second.root))
        failing = [thread async for thread in client.threads.query(project_id=project, filter="neq(error, null)")]
        assert [(thread.thread_id, thread.count) for thread in failing] == [("ada-1", 2)]
        selects: Any = ["NAME", "TURN_NUMBER", "LATENCY", "ERROR"]
        traces = [each async for each in client.threads.list_traces("ada-1", project_id=project, selects=selects)]
        assert [(each.trace_id, each.turn_number, each.latency, each.error) for each in traces] == [
            (str(first.root), 1, 4.0, None),
            (str(second.root), 2, 4.0, "no"),
        ]
        stats = await client.threads.stats(
            "ada-1", session_id=project, selects=["TURNS", "TOTAL_TOKENS", "LATENCY_P50"]
        )
        assert (stats.turns, stats.total_tokens, stats.latency_p50_seconds) == (2, 2200, 4.0)
        every: Any = ["THREAD_COUNT", "TRACE_COUNT", "ERROR_RATE", "TOTAL_COST"]
        total = await client.threads.aggregate_stats(project_id=project, select=every)
        assert (total.thread_count, total.trace_count, total.error_rate) == (2, 3, pytest.approx(1 / 3))

    await asking(work)
