"""Runs: filters, conditions, statistics, costs and attachments."""

from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import urlsplit
from uuid import UUID, uuid4

import httpx2
import pytest

from lockstitch import Agent, tool
from lockstitch.server import Settings
from lockstitch.server.ingest.langsmith import sessions
from lockstitch.server.ingest.langsmith.attachments import UrlSigner
from lockstitch.store import Store
from lockstitch.testing import Scripted
from tests.server.ingest.agents import client_of
from tests.server.ingest.langsmith.conftest import Calling
from tests.server.ingest.langsmith.sample_runs import START, order_of, send
from tests.server.ingest.sending import requests_of, settled
from tests.server.serving import caller, serving

pytestmark = pytest.mark.anyio


async def test_filter_expressions_select_runs(client: Any, calling: Calling) -> None:
    def work() -> None:
        plain = send(client, "shop", tags=("beta",), thread="ada-1")
        failed = send(client, "shop", minute=1, question="Any refund?", error="ValueError('no aisle')")
        client.create_feedback(plain.root, "helpful", score=1, comment="good", trace_id=plain.root)
        client.create_feedback(failed.root, "helpful", score=0, trace_id=failed.root)
        client.flush()

        def names(**conditions: Any) -> list[str]:
            return sorted(str(run.id) for run in client.list_runs(project_name="shop", **conditions))

        def ids(*wanted: object) -> list[str]:
            return sorted(map(str, wanted))

        assert names(filter='eq(run_type, "llm")') == ids(plain.model, failed.model)
        assert names(filter='and(eq(run_type, "chain"), gt(latency, 3))') == ids(plain.root, failed.root)
        assert names(filter="gt(latency, 3)", error=False) == ids(plain.root)
        assert names(filter='has(tags, "beta")') == ids(plain.root)
        assert names(filter="neq(error, null)") == ids(failed.root)
        assert names(filter='search("refund")', is_root=True) == ids(failed.root)
        assert names(filter='and(eq(metadata_key, "shop"), eq(metadata_value, "corner"))', is_root=True) == ids(
            plain.root, failed.root
        )
        assert names(filter='and(eq(metadata_key, "thread_id"), eq(metadata_value, "corner"))') == []
        assert names(filter='eq(thread_id, "ada-1")', is_root=True) == ids(plain.root)
        assert names(filter='and(eq(feedback_key, "helpful"), eq(feedback_score, 0))') == ids(failed.root)
        assert names(filter='and(eq(input_key, "aisle"), eq(input_value, 3))') == ids(plain.tool, failed.tool)
        after = (START + timedelta(seconds=30)).isoformat()
        assert names(filter=f'gt(start_time, "{after}")', is_root=True) == ids(failed.root)
        assert names(filter="gt(total_tokens, 1000)", run_type="llm") == ids(plain.model, failed.model)
        assert names(filter='eq(name, "look")', trace_filter="eq(error, null)") == ids(plain.tool)
        assert names(filter='eq(run_type, "tool")', trace_filter='eq(status, "error")') == ids(failed.tool)
        assert names(is_root=True, tree_filter='search("refund")', filter='eq(name, "answer")') == ids(failed.root)
        assert names(filter='or(eq(name, "look"), not(gt(latency, 1)))', error=False) == ids(plain.tool, failed.tool)
        assert names(filter=f'eq(trace_id, "{plain.root}")') == ids(plain.root, plain.model, plain.tool)

    await calling(work)


async def test_wrong_filters_are_refused_with_a_sentence(client: Any, calling: Calling) -> None:
    def work() -> None:
        send(client, "shop")
        for text, sentence in (
            ('fuzzy(name, "x")', "Function fuzzy is not supported in a filter"),
            ('eq(colour, "x")', "Field colour is not known"),
            ("eq(name", "The filter cannot be read at its end"),
            ("eq(latency, true, 2)", "eq needs a field and a value"),
        ):
            with pytest.raises(Exception, match="400") as caught:
                list(client.list_runs(project_name="shop", filter=text))
            assert sentence in str(caught.value)

    await calling(work)


async def test_list_runs_takes_all_conditions(client: Any, calling: Calling) -> None:
    def work() -> None:
        first, second = send(client, "shop", tags=("x",)), send(client, "shop", minute=2)
        send(client, "other", minute=3)
        both = client.list_runs(project_name=["shop", "other"], is_root=True)
        assert len(list(both)) == 3
        assert [run.id for run in client.list_runs(project_name="shop", is_root=True)] == [second.root, first.root]
        assert [run.id for run in client.list_runs(project_name="shop", is_root=True, order="asc")] == [
            first.root,
            second.root,
        ]
        later = START + timedelta(minutes=1)
        assert [run.id for run in client.list_runs(project_name="shop", start_time=later, is_root=True)] == [
            second.root
        ]
        assert {run.id for run in client.list_runs(parent_run_id=first.root)} == {first.model, first.tool}
        assert {run.id for run in client.list_runs(trace_id=first.root)} == {first.root, first.model, first.tool}
        assert [run.id for run in client.list_runs(run_ids=[first.tool, second.model])] == [first.tool, second.model]
        (chosen,) = client.list_runs(project_name="shop", filter='has(tags, "x")', select=["outputs"])
        assert (chosen.outputs, chosen.inputs) == ({"answer": "Yes."}, {})
        assert len(list(client.list_runs(project_name="shop", limit=4))) == 4

    await calling(work)


async def test_runs_have_their_costs_and_those_of_their_descendants(client: Any, calling: Calling) -> None:
    def work() -> None:
        trace = send(client, "shop")
        model = client.read_run(trace.model)
        assert (model.prompt_tokens, model.completion_tokens, model.total_tokens) == (1000, 100, 1100)
        assert model.total_cost == model.prompt_cost + model.completion_cost
        assert float(model.prompt_cost) == pytest.approx(0.00015)
        assert model.first_token_time is not None
        root = client.read_run(trace.root)
        assert (root.total_tokens, root.total_cost) == (1100, model.total_cost)
        assert client.read_run(trace.tool).total_cost is None
        listed = {run.id: run for run in client.list_runs(project_name="shop")}
        assert listed[trace.model].total_cost == listed[trace.root].total_cost == model.total_cost

    await calling(work)


async def test_run_stats_count_tokens_once(client: Any, calling: Calling) -> None:
    def work() -> None:
        trace = send(client, "shop")
        send(client, "shop", minute=1, error="no")
        client.create_feedback(trace.root, "helpful", score=1, trace_id=trace.root)
        client.flush()
        stats = client.get_run_stats(project_names=["shop"])
        assert (stats["run_count"], stats["total_tokens"]) == (6, 2200)
        stats = client.get_run_stats(project_names=["shop"], is_root=True)
        assert (stats["run_count"], stats["total_tokens"], stats["error_rate"]) == (2, 2200, 0.5)
        assert (stats["latency_p50"], stats["latency_p99"]) == (4, 4)
        assert stats["feedback_stats"]["helpful"]["avg"] == 1
        assert client.get_run_stats(project_names=["shop"], filter='eq(name, "look")')["run_count"] == 2
        project = client.read_project(project_name="shop", include_stats=True)
        assert (project.run_count, project.total_tokens) == (2, 2200)

    await calling(work)


async def test_threads_are_listed_and_read(client: Any, calling: Calling) -> None:
    def work() -> None:
        first = send(client, "shop", thread="ada-1")
        second = send(client, "shop", minute=1, thread="ada-1")
        send(client, "shop", minute=2, thread="bob-1")
        send(client, "shop", minute=3)
        threads = client.list_threads(project_name="shop")
        assert [(thread["thread_id"], thread["count"]) for thread in threads] == [("bob-1", 1), ("ada-1", 2)]
        turns = list(client.read_thread(thread_id="ada-1", project_name="shop"))
        assert [run.id for run in turns] == [first.root, second.root]

    await calling(work)


async def test_attachments_are_downloaded_with_signed_urls(store: Store, calling: Calling) -> None:
    _, secret = await store.in_project("a/b c").tokens.create("app", ["ingest", "read"])
    run_id = uuid4()
    async with serving(store, settings=Settings(tokens_needed=True)) as url:
        client: Any = client_of(url, api_key=secret)

        def work() -> str:
            client.create_run(
                "look",
                {"q": 1},
                "chain",
                id=run_id,
                trace_id=run_id,
                dotted_order=order_of(START, run_id),
                attachments={"my note": ("text/plain", b"a note"), "picture": ("image/png", b"\x89PNG")},
                outputs={},
            )
            client.flush()
            run = client.read_run(run_id)
            assert {name: file["reader"].read() for name, file in run.attachments.items()} == {
                "my note": b"a note",
                "picture": b"\x89PNG",
            }
            assert run.attachments["picture"]["mime_type"] == "image/png"
            (listed,) = client.list_runs(run_ids=[run_id])
            assert listed.attachments["my note"]["reader"].read() == b"a note"
            client.close()
            return run.attachments["my note"]["presigned_url"]

        signed = await calling(work)
        async with caller(url) as http:
            assert (await http.get(signed)).content == b"a note"
            assert (await http.get(signed[:-1] + ("0" if signed[-1] != "0" else "1"))).status_code == 401
            assert (await http.get(signed.replace("expires=", "expires=9"))).status_code == 401
            assert (await http.get(signed.partition("?")[0] + "?project=a%2Fb+c")).status_code == 401
            assert (await http.get(signed.replace("project=a%2Fb+c", "project=other"))).status_code == 401
            # The holder of a token without the scope `read` cannot sign.
            token, _ = await store.in_project("a/b c").tokens.create("ingests", ["ingest"])
            later = datetime.now(UTC) + timedelta(hours=1)
            kind, owner, name = urlsplit(signed).path.split("/")[-3:]
            forged = UrlSigner(url, "a/b c", token.sha256, later).url(kind, UUID(owner), name)
            assert (await http.get(forged)).status_code == 401
            await store.in_project("a/b c").tokens.revoke("app")
            assert (await http.get(signed)).status_code == 401


async def test_project_with_old_runs_only_is_found_by_name(
    client: Any, calling: Calling, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "_SESSIONS", 2)

    def work() -> None:
        old = send(client, "old")
        for minute in (1, 2, 3):
            send(client, "new", minute=minute)
        assert [project.name for project in client.list_projects()] == ["new"]
        project = client.read_project(project_name="old")
        assert client.read_project(project_id=project.id).name == "old"
        assert [run.id for run in client.list_runs(project_name="old", is_root=True)] == [old.root]
        assert not client.has_project("never")

    await calling(work)


async def test_runs_of_agents_and_of_opentelemetry_are_read_with_the_same_calls(
    store: Store, client: Any, http: httpx2.AsyncClient, calling: Calling
) -> None:
    script = [{"calls": [{"name": "look", "input": {"aisle": 3}}]}, "There is tea."]

    @tool(effect="safe")
    async def look(aisle: int) -> str:
        """Look into an aisle."""
        return "tea"

    helper = Agent("helper", model=Scripted(script), tools=[look], title=False)
    result = await helper.run("Is there tea?", store=store, thread="ada-7")
    for sent in requests_of("otel", "oi_openai"):
        await http.request(sent.method, sent.path, headers=sent.headers, content=sent.body)
    await settled(http)

    def work() -> None:
        root = client.read_run(result.run_id, load_child_runs=True)
        assert (root.name, root.run_type, root.status) == ("helper", "chain", "success")
        assert [child.run_type for child in root.child_runs or []] == ["llm", "tool", "llm"]
        (called,) = client.list_runs(
            project_name="default", filter='eq(name, "look")', trace_filter='eq(name, "helper")'
        )
        assert called.inputs == {"aisle": 3}
        assert root.total_tokens == sum(
            run.total_tokens or 0 for run in client.list_runs(trace_id=root.id, run_type="llm")
        )
        token = client.share_run(called.id).split("/")[-2]
        assert client.read_shared_run(token).id == root.id
        dataset = client.create_dataset("questions")
        example = client.create_example(dataset_id=dataset.id, source_run_id=root.id, use_source_run_io=True)
        assert example.source_run_id == root.id
        traces = [
            run for project in client.list_projects() for run in client.list_runs(project_id=project.id, is_root=True)
        ]
        foreign = [run for run in traces if run.id != root.id]
        assert foreign
        for run in foreign:
            client.create_feedback(run.id, "helpful", score=1, trace_id=run.id)
            assert client.read_run(run.id).trace_id == run.trace_id
        client.flush()
        assert [item.score for item in client.list_feedback(run_ids=[foreign[0].id])] == [1]
        assert client.read_run(foreign[0].id).feedback_stats["helpful"]["n"] == 1

    await calling(work)
