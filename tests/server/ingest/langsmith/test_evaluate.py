"""`evaluate()` and `aevaluate()`: experiments with runs and feedback."""

import asyncio
from typing import Any

import pytest
from langsmith import aevaluate, evaluate, traceable

from lockstitch.store import Store, Where
from tests.server.ingest.langsmith.conftest import Calling

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["sqlite", "postgres", "files"])
def backend(request: pytest.FixtureRequest) -> str:
    return request.param


@traceable(run_type="llm")
def model(question: str) -> dict[str, Any]:
    usage = {"input_tokens": 9, "output_tokens": 1, "total_tokens": 10}
    return {"content": "yes" if "tea" in question else "no", "usage_metadata": usage}


def answer(inputs: dict[str, Any]) -> dict[str, Any]:
    return {"answer": model(inputs["question"])["content"]}


def correct(outputs: dict[str, Any], reference_outputs: dict[str, Any]) -> bool:
    return outputs["answer"] == reference_outputs["answer"]


def share(outputs: list[dict[str, Any]], reference_outputs: list[dict[str, Any]]) -> dict[str, Any]:
    pairs = list(zip(outputs, reference_outputs, strict=True))
    return {"key": "share", "score": sum(a["answer"] == b["answer"] for a, b in pairs) / len(pairs)}


def fill(client: Any) -> Any:
    dataset = client.create_dataset("shop")
    client.create_examples(
        dataset_id=dataset.id,
        inputs=[{"question": "tea?"}, {"question": "jam?"}, {"question": "more tea?"}],
        outputs=[{"answer": "yes"}, {"answer": "no"}, {"answer": "no"}],
    )
    return dataset


async def test_evaluate_stores_an_experiment_with_feedback(store: Store, client: Any, calling: Calling) -> None:
    def work() -> str:
        dataset = fill(client)
        results = evaluate(
            answer,
            data="shop",
            evaluators=[correct],
            summary_evaluators=[share],
            experiment_prefix="first",
            metadata={"model": "rules"},
            description="Rules only",
            client=client,
        )
        assert len(results) == 3
        client.flush()
        name = results.experiment_name
        project = client.read_project(project_name=name, include_stats=True)
        assert (project.reference_dataset_id, project.description) == (dataset.id, "Rules only")
        assert project.metadata["model"] == "rules"
        assert (project.run_count, project.total_tokens) == (3, 30)
        assert project.feedback_stats["correct"]["avg"] == pytest.approx(2 / 3)
        assert project.session_feedback_stats["share"]["avg"] == 0.6667  # rounded by the client
        runs = list(client.list_runs(project_name=name, is_root=True))
        examples = {example.id: example for example in client.list_examples(dataset_id=dataset.id)}
        assert {run.reference_example_id for run in runs} == set(examples)
        for run in runs:
            expected = examples[run.reference_example_id].outputs["answer"]
            assert run.feedback_stats["correct"]["avg"] == float(run.outputs["answer"] == expected)
        (only,) = client.list_runs(project_name=name, reference_example_id=runs[0].reference_example_id, is_root=True)
        assert only.id == runs[0].id
        assert [item.name for item in client.list_projects(reference_dataset_id=dataset.id)] == [name]
        assert client.read_dataset(dataset_id=dataset.id).session_count == 1
        found = client.get_experiment_results(name=name)
        rows = list(found["examples_with_runs"])
        assert [len(row.runs) for row in rows] == [1, 1, 1]
        assert found["feedback_stats"]["share"]["n"] == 1
        again = evaluate(project.id, evaluators=[lambda outputs: {"key": "short", "score": 1}], client=client)
        assert len(again) == 3
        client.flush()
        assert client.get_run_stats(project_names=[name], is_root=True)["feedback_stats"]["short"]["n"] == 3
        pages = client._get_langsmith_api_sync().datasets.experiment_runs
        items = list(pages.query(str(dataset.id), selects=["ID", "OUTPUTS"], page_size=2))
        assert [[run.outputs for run in item.runs] for item in items] == [
            [{"answer": "yes"}],
            [{"answer": "no"}],
            [{"answer": "yes"}],
        ]
        return name

    name = await calling(work)
    (record,) = await store.experiments.find(Where("name", "=", name))
    assert record.metadata["model"] == "rules"


async def test_aevaluate_stores_an_experiment(store: Store, client: Any, calling: Calling) -> None:
    async def target(inputs: dict[str, Any]) -> dict[str, Any]:
        return answer(inputs)

    async def evaluated() -> str:
        results = await aevaluate(target, data="shop", evaluators=[correct], experiment_prefix="second", client=client)
        rows = [row async for row in results]
        assert [row["evaluation_results"]["results"][0].key for row in rows] == ["correct"] * 3
        return results.experiment_name

    def work() -> None:
        fill(client)
        # The client blocks its event loop, so it needs another loop than the server.
        name = asyncio.run(evaluated())
        client.flush()
        project = client.read_project(project_name=name, include_stats=True)
        assert (project.run_count, project.feedback_stats["correct"]["n"]) == (3, 3)

    await calling(work)


async def test_projects_are_created_changed_and_deleted(client: Any, calling: Calling) -> None:
    def work() -> None:
        made = client.create_project("plan", description="first", metadata={"a": 1})
        with pytest.raises(Exception, match="already exists"):
            client.create_project("plan")
        again = client.create_project("plan", description="second", upsert=True)
        assert (again.id, again.description, again.metadata) == (made.id, "second", {"a": 1})
        changed = client.update_project(made.id, metadata={"b": 2}, end_time=made.start_time)
        assert (changed.metadata, changed.end_time) == ({"a": 1, "b": 2}, made.start_time)
        with pytest.raises(Exception, match="does not implement renaming"):
            client.update_project(made.id, name="other")
        assert [project.name for project in client.list_projects(name_contains="pla")] == ["plan"]
        client.delete_project(project_name="plan")
        assert not client.has_project("plan")

    await calling(work)
