"""`Client.datasets` and `Client.evals`: the same results as with the store."""

import asyncio
from typing import Any

import pytest

from lockstitch import App, Client, NotFound, Refused
from lockstitch.agents.evals.records import EvaluationStore
from lockstitch.agents.evals.requests import EvalRequest, prepare_request
from lockstitch.errors import StoreFull, StoreUnreachable
from lockstitch.server import eval_tasks
from lockstitch.store import Store
from tests.agents.evals.quiz import Quiz
from tests.agents.evals.test_stored import change_datasets, read_evals
from tests.client.test_client import backend, client
from tests.server.serving import serving

__all__ = ["backend", "client"]

pytestmark = pytest.mark.anyio


async def test_client_changes_datasets_like_the_store(store: Store, client: Client) -> None:
    await change_datasets(store, client.datasets)


async def test_client_reads_evaluations_like_the_store(store: Store, client: Client) -> None:
    await read_evals(store, client.datasets, client.evals)
    done = await client.run_agent("teller", "Tell", thread="story")
    added = await client.datasets.add("stories", ["story", str(done.run_id)])
    assert (len(added["added"]), added["version"]) == (1, 1)
    (case,) = (await client.datasets.cases("stories"))["cases"]
    assert (case["input"], case["expected"], case["source_run_id"]) == ("Tell", "The end.", str(done.run_id))


async def test_server_starts_evaluations_and_continues_them_after_a_restart(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    quiz = Quiz()
    app = App([quiz.agent])

    async def finished(client: Client, ref: str) -> str:
        value = await client.evals.get(ref)
        if value["status"] == "running":
            await asyncio.sleep(0.02)
            return await finished(client, ref)
        if value["status"] == "stopped":
            return "stopped"
        return f"{value['passed']} of {value['trials']} on version {value['dataset_version']}"

    async with serving(store, app) as url, Client(url) as client:
        rows = [
            {"id": "sum", "input": "2 + 2?", "expected": "4"},
            {"id": "why", "input": "Why?", "expected": "because"},
        ]
        await client.datasets.put("facts", rows, create=True)
        started = await client.evals.start("quiz", "facts", ["contains"], trials=2)
        assert (started["name"], started["trials_total"]) == ("quiz-facts", 4)
        assert await finished(client, started["id"]) == "2 of 4 on version 1"
        result = await quiz.agent.run("2 + 2?", store=store, thread="asked")
        replays: dict[str, Any] = {"replay": True, "instructions": "Be brief."}
        started = await client.evals.start("quiz", None, ["exact"], sources=["asked"], **replays)
        assert await finished(client, started["id"]) == "1 of 1 on version None"
        (case,) = (await client.evals.cases(started["id"]))["cases"]
        assert case["outcomes"][0]["replay"]["source_run_id"] == str(result.run_id)
        with pytest.raises(Refused, match="either a dataset or recorded runs"):
            await client.evals.start("quiz", "facts", ["exact"], sources=["asked"])
        with pytest.raises(NotFound):
            await client.evals.start("other", "facts", ["contains"])
        for graders in (["os:getcwd"], ["unknown"]):
            with pytest.raises(Refused):
                await client.evals.start("quiz", "facts", graders)
        # The server stopped before the first case, and the dataset changed.
        waiting = await prepare_request(quiz.agent, {}, store, EvalRequest("quiz", "facts", ["exact"], name="later"))
        changed = await prepare_request(quiz.agent, {}, store, EvalRequest("quiz", "facts", ["exact"], name="other"))
        graders = [{**grader, "pass_at": 0.5} for grader in changed.record.input["graders"]]
        await store.evals.put(changed.record.changed(input={**changed.record.input, "graders": graders}))
        await client.datasets.remove("facts", ["why"])
        request = EvalRequest("quiz", None, ["exact"], name="replays", where=["agent=quiz"], limit=1, replay=True)
        replayed = await prepare_request(quiz.agent, {}, store, request)
        await quiz.agent.run("Why?", store=store, thread="later")
    async with serving(store, app) as url, Client(url) as client:
        assert await finished(client, str(waiting.record.id)) == "1 of 2 on version 1"
        assert await finished(client, str(changed.record.id)) == "stopped"
        assert await finished(client, str(replayed.record.id)) == "1 of 1 on version None"
        assert len((await client.evals.list())["evals"]) == 5
        # A lost connection is waited for. An error that stays stops the evaluation, and so does an unknown error.
        faults: list[Exception] = []
        put = EvaluationStore.put_outcome

        async def fail(*arguments: Any) -> None:
            if faults:
                raise faults[0] if len(faults) == 1 else faults.pop(0)
            await put(*arguments)

        monkeypatch.setattr(EvaluationStore, "put_outcome", fail)
        monkeypatch.setattr(eval_tasks, "_FIRST_PAUSE", eval_tasks._LONGEST_PAUSE / 1e4)
        monkeypatch.setattr(eval_tasks, "_LONGEST_PAUSE", eval_tasks._FIRST_PAUSE)
        for fault, reason in ((StoreFull(), "The disk is full"), (ZeroDivisionError("No cases"), "No cases")):
            faults[:] = [StoreUnreachable(), fault]
            started = await client.evals.start("quiz", "facts", ["contains"], name="faulty")
            assert await finished(client, started["id"]) == "stopped"
            assert reason in (await client.evals.get(started["id"]))["reason"]
        faults.clear()
        await client.evals.start("quiz", "facts", ["contains"], name="faulty")
        assert await finished(client, "faulty#1") == "1 of 1 on version 2"
