"""`Datasets` and `Evals`: JSON of stored datasets and evaluations. The client has the same methods."""

import json
from typing import Any

import pytest

from lockstitch.agents.evals.runner import evaluate
from lockstitch.agents.evals.stored_datasets import Datasets, is_plain
from lockstitch.agents.evals.stored_evals import Evals
from lockstitch.errors import Conflict, LockstitchError, NotFound, Refused
from lockstitch.model import Example, new_id
from lockstitch.store import Store
from lockstitch.store.datasets import create_dataset, put_examples
from tests.agents.evals.quiz import Quiz

pytestmark = pytest.mark.anyio

FILE = b'{"id": "sum", "input": "2 + 2?", "expected": "4"}\n{"input": "Capital?", "expected": ["paris"]}\n'


async def change_datasets(store: Store, datasets: Any) -> None:
    """Create and change datasets with `Datasets`, or with the same methods of a client."""
    created = await datasets.create("a/b@c", description="Odd name", rubric=["Polite."])
    assert (created["name"], created["cases"], created["version"]) == ("a/b@c", 0, 0)
    with pytest.raises(Conflict):
        await datasets.create("a/b@c")
    with pytest.raises(Refused, match="rubric"):
        await datasets.edit("a/b@c", rubric="text")
    renamed = await datasets.edit("a/b@c", name="a/b", description=None, rubric=None)
    assert (renamed["name"], renamed["description"], renamed["metadata"]) == ("a/b", None, {})
    assert (await datasets.delete("a/b"))["id"] == created["id"]

    for bad, message in ((b'{"id": "x"}', "line 1: `input` is missing"), (FILE + b"x", "line 3"), (b"\n", "0 cases")):
        with pytest.raises(Refused, match=message):
            await datasets.upload("facts", "facts.jsonl", bad)
    assert (await datasets.list())["datasets"] == []
    first = await datasets.upload("facts", "facts.jsonl", FILE)
    assert (first["version"], first["added"]) == (1, 2)
    assert [case["case"] for case in (await datasets.cases("facts"))["cases"]] == ["sum", "2"]
    assert (await datasets.upload("facts", "facts.csv", b"id,input,expected\nsum,2 + 2?,4\n"))["version"] == 1
    changed = await datasets.put(
        "facts",
        [
            {"id": "sum", "input": "2 + 2?", "expected": "5"},
            {"input": "Why?"},
            {"id": "raw", "inputs": {"question": "Name?", "lang": "en"}, "outputs": {"answer": "Ada"}, "splits": ["t"]},
        ],
    )
    assert (changed["version"], changed["added"], changed["replaced"]) == (2, 2, 1)
    raw = await datasets.case("facts", "raw")
    assert (raw["expected"], raw["splits"], is_plain(raw)) == ("Ada", ["t"], False)
    assert is_plain(await datasets.case("facts", "sum"))
    assert (await datasets.case("facts", "sum"))["expected"] == "5"
    assert (await datasets.case("facts@1", "sum"))["expected"] == "4"
    assert (await datasets.case("facts", raw["id"]))["case"] == "raw"
    names: list[str] = []
    page: Any = {"next": None}
    while names == [] or page["next"]:
        page = await datasets.cases("facts", limit=1, after=page["next"])
        names += [case["case"] for case in page["cases"]]
    assert names == ["sum", "2", "4", "raw"], "a case without an id has a free number"
    assert (await datasets.remove("facts", ["raw", (await datasets.case("facts", "4"))["id"]]))["removed"] == 2
    for call in (
        datasets.remove("facts", ["raw"]),
        datasets.case("facts", "raw"),
        datasets.get("facts@4"),
        datasets.get("nothing"),
    ):
        with pytest.raises(NotFound):
            await call
    assert [version["number"] for version in (await datasets.versions("facts", limit=2))["versions"]] == [3, 2]
    assert (await datasets.versions("facts", before=2))["next"] is None
    with pytest.raises(Refused, match="earlier version"):
        await datasets.put("facts@1", [{"input": "x"}])

    text = await datasets.export("facts@1")
    assert json.loads(text.splitlines()[0]) == json.loads(FILE.splitlines()[0])
    copy = await datasets.upload("copy", "copy.csv", (await datasets.export("facts", form="csv")).encode())
    assert copy["added"] == 2
    assert (await datasets.put("copy", [{"id": "only", "input": "x"}], replace=True))["removed"] == 2

    # A dataset that a LangSmith client wrote.
    dataset = await create_dataset(store, "theirs")
    times: Any = {"created_at": store.clock.now(), "updated_at": store.clock.now()}
    await put_examples(
        store,
        dataset,
        [Example(id=new_id(), dataset_id=dataset.id, inputs={"q": "2 + 2?"}, outputs={"a": "4"}, **times)],
    )
    rows = (await datasets.list(limit=2))["datasets"]
    assert [(row["name"], row["cases"]) for row in rows] == [("copy", 1), ("facts", 2)]
    (row,) = (await datasets.list(after="facts"))["datasets"]
    assert (row["name"], row["cases"]) == ("theirs", 1)
    assert [row["name"] for row in (await datasets.list(search="ACT"))["datasets"]] == ["facts"]


async def read_evals(store: Store, datasets: Any, evals: Any) -> None:
    """Read and compare evaluations with `Evals`, or with the same methods of a client."""
    await datasets.upload("facts", "facts.jsonl", FILE + b'{"id": "unknown", "input": "Why?", "expected": "because"}')
    quiz = Quiz()
    first = await evaluate(quiz.agent, "facts", store=store, graders="contains", name="f/1", trials=2)
    quiz.answers |= {"2 + 2?": "5", "Why?": "because"}
    await evaluate(quiz.agent, "facts", store=store, graders="contains", name="f/1", trials=2)
    page = await evals.list(limit=1, dataset="facts")
    assert [(row["number"], row["trials_done"], row["passed"]) for row in page["evals"]] == [(2, 6, 4)]
    rest = await evals.list(after=page["next"], agent="quiz", status="completed", name="f/1")
    assert ([row["number"] for row in rest["evals"]], rest["next"]) == ([1], None)
    assert (await evals.list(status="running"))["evals"] == []
    value = await evals.get("f/1#1")
    assert (value["id"], value["cases"], value["trials_total"]) == (str(first.id), 3, 6)
    assert (value["score"], value["cost"]) == (pytest.approx(2 / 3), pytest.approx(6 * 0.015))
    assert (await evals.get("f/1"))["number"] == 2
    assert await evals.get(str(first.id)) == value
    for unknown in ("f/1#3", "x", str(new_id())):
        with pytest.raises(NotFound):
            await evals.get(unknown)

    cases = await evals.cases("f/1#1", limit=2)
    assert [(case["case"], case["passed"], len(case["outcomes"])) for case in cases["cases"]] == [
        ("sum", 2, 2),
        ("2", 2, 2),
    ]
    (last,) = (await evals.cases("f/1#1", limit=2, after=cases["next"]))["cases"]
    assert (last["case"], last["score"], last["score_interval"]) == ("unknown", 0.0, None)
    failed = await evals.cases("f/1#2", failed=True, limit=1)
    assert ([case["case"] for case in failed["cases"]], failed["next"]) == (["sum"], None)

    compared = await evals.compare(["f/1#1", "f/1"], changed=True, limit=1)
    (difference,) = compared["differences"]
    assert (difference["better"], difference["worse"], difference["shared"]) == (1, 1, 3)
    assert [(case["case"], case["deltas"][1]["delta"]) for case in compared["cases"]] == [("sum", -1.0)]
    assert compared["total"] == 2
    (case,) = (await evals.compare(["f/1#1", "f/1"], changed=True, after=compared["next"]))["cases"]
    assert [score["score"] for score in case["scores"]] == [0.0, 1.0]
    with pytest.raises(LockstitchError):
        await evals.compare(["f/1"])


async def test_datasets_change_in_versions(store: Store) -> None:
    await change_datasets(store, Datasets(store))


async def test_evaluations_are_read_in_pages_and_compared(store: Store) -> None:
    await read_evals(store, Datasets(store), Evals(store))
