"""Datasets and examples."""

import io
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from langsmith.schemas import AttachmentsOperations, DataType, ExampleCreate
from langsmith.utils import LangSmithConflictError, LangSmithNotFoundError

from lockstitch.model import ExampleFile
from lockstitch.store import Store
from lockstitch.store.datasets import examples_of, find_dataset
from tests.server.ingest.agents import client_of
from tests.server.ingest.langsmith.conftest import Calling
from tests.server.ingest.langsmith.sample_runs import send

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["sqlite", "postgres", "files"])
def backend(request: pytest.FixtureRequest) -> str:
    return request.param


async def test_datasets_are_created_listed_and_deleted(store: Store, client: Any, calling: Calling) -> None:
    def work() -> None:
        schema = {"type": "object"}
        made = client.create_dataset("shop", description="Questions", metadata={"team": "tea"}, inputs_schema=schema)
        assert (made.name, made.description, made.data_type, made.inputs_schema) == ("shop", "Questions", "kv", schema)
        chat = client.create_dataset("chat", data_type=DataType.chat)
        with pytest.raises(LangSmithConflictError):
            client.create_dataset("shop")
        assert client.read_dataset(dataset_name="shop").id == client.read_dataset(dataset_id=made.id).id == made.id
        assert client.has_dataset(dataset_name="chat")
        assert not client.has_dataset(dataset_name="other")
        assert {dataset.name for dataset in client.list_datasets()} == {"shop", "chat"}
        assert [dataset.name for dataset in client.list_datasets(dataset_name_contains="SHO")] == ["shop"]
        assert [dataset.name for dataset in client.list_datasets(data_type="chat")] == ["chat"]
        assert [dataset.name for dataset in client.list_datasets(metadata={"team": "tea"})] == ["shop"]
        assert [dataset.name for dataset in client.list_datasets(dataset_ids=[chat.id])] == ["chat"]
        client.create_example({"q": 1}, dataset_id=made.id)
        client.delete_dataset(dataset_id=made.id)
        with pytest.raises(LangSmithNotFoundError):
            client.read_dataset(dataset_id=made.id)

    await calling(work)
    assert await store.examples.count() == 0


@pytest.mark.parametrize("prefix", ["", "/api/v1"])
async def test_examples_are_created_changed_and_deleted(url: str, calling: Calling, prefix: str) -> None:
    client: Any = client_of(url + prefix)

    def work() -> None:
        dataset = client.create_dataset("shop")
        ids = [uuid4(), uuid4(), uuid4()]
        answer = client.create_examples(
            dataset_id=dataset.id,
            examples=[
                ExampleCreate(
                    id=ids[0], inputs={"q": "tea?"}, outputs={"a": "yes"}, metadata={"hard": 1}, split="train"
                ),
                ExampleCreate(id=ids[1], inputs={"q": "jam?"}, split=["train", "test"]),
                ExampleCreate(id=ids[2], inputs={"q": "salt?"}),
            ],
        )
        assert (answer["count"], answer["example_ids"]) == (3, [str(id) for id in ids])
        examples = list(client.list_examples(dataset_name="shop"))
        assert [(example.id, example.inputs) for example in examples] == list(
            zip(ids, [{"q": "tea?"}, {"q": "jam?"}, {"q": "salt?"}], strict=True)
        )
        assert examples[0].outputs == {"a": "yes"}
        assert examples[0].metadata == {"hard": 1, "dataset_split": ["train"]}
        assert [example.id for example in client.list_examples(dataset_id=dataset.id, splits=["test"])] == [ids[1]]
        assert [example.id for example in client.list_examples(dataset_id=dataset.id, metadata={"hard": 1})] == [ids[0]]
        hard = 'exists(metadata, "hard")'
        assert [example.id for example in client.list_examples(dataset_id=dataset.id, filter=hard)] == [ids[0]]
        assert [example.id for example in client.list_examples(example_ids=ids[1:])] == ids[1:]
        assert [example.id for example in client.list_examples(dataset_id=dataset.id, limit=1, offset=1)] == [ids[1]]
        assert client.list_dataset_splits(dataset_id=dataset.id) == ["base", "test", "train"]
        client.update_dataset_splits(dataset_id=dataset.id, split_name="test", example_ids=[ids[2]])
        client.update_dataset_splits(dataset_id=dataset.id, split_name="test", example_ids=[ids[1]], remove=True)
        assert [example.id for example in client.list_examples(dataset_id=dataset.id, splits=["test"])] == [ids[2]]
        client.update_example(ids[0], outputs={"a": "no"}, metadata={"hard": 2})
        changed = client.read_example(ids[0])
        assert (changed.inputs, changed.outputs) == ({"q": "tea?"}, {"a": "no"})
        assert changed.metadata == {"hard": 2, "dataset_split": ["train"]}
        client.update_examples(dataset_id=dataset.id, updates=[{"id": ids[1], "inputs": {"q": "jam or tea?"}}])
        assert client.read_example(ids[1]).inputs == {"q": "jam or tea?"}
        assert client.read_dataset(dataset_id=dataset.id).example_count == 3
        assert next(client.list_dataset_versions(dataset_id=dataset.id)).as_of >= changed.modified_at
        client.delete_example(ids[0])
        client.delete_examples([ids[1]])
        client.delete_examples([ids[2]], hard_delete=True)
        assert list(client.list_examples(dataset_id=dataset.id)) == []
        with pytest.raises(LangSmithNotFoundError):
            client.update_example(ids[0], dataset_id=dataset.id, outputs={})
        client.close()

    await calling(work)


async def test_examples_have_files(store: Store, client: Any, calling: Calling) -> None:
    def work() -> None:
        dataset = client.create_dataset("shop")
        files = {"my note": ("text/plain", b"a\r\nnote"), "picture": ("image/png", b"\x89PNG")}
        example = client.create_example({"q": 1}, dataset_id=dataset.id, attachments=files)

        def contents() -> dict[str, bytes]:
            (listed,) = client.list_examples(dataset_id=dataset.id, include_attachments=True)
            return {name: file["reader"].read() for name, file in listed.attachments.items()}

        assert contents() == {"my note": b"a\r\nnote", "picture": b"\x89PNG"}
        operations = AttachmentsOperations(rename={"my note": "note"}, retain=[])
        new = {"more": ("text/plain", b"more")}
        client.update_example(example.id, attachments_operations=operations, attachments=new)
        assert contents() == {"note": b"a\r\nnote", "more": b"more"}
        client.delete_example(example.id)

    await calling(work)
    assert await store.table(ExampleFile).count() == 0


async def test_examples_are_made_from_runs(client: Any, calling: Calling) -> None:
    def work() -> None:
        trace = send(client, "shop")
        dataset = client.create_dataset("shop")
        example = client.create_example_from_run(client.read_run(trace.root), dataset_id=dataset.id)
        assert (example.inputs, example.outputs) == ({"question": "Is there tea?"}, {"answer": "Yes."})
        example = client.create_example(dataset_id=dataset.id, source_run_id=trace.root, use_source_run_io=True)
        assert (example.inputs, example.source_run_id) == ({"question": "Is there tea?"}, trace.root)
        (old,) = client.create_examples(dataset_id=dataset.id, inputs=[{"q": 1}])["example_ids"]
        assert client.read_example(old).outputs is None

    await calling(work)


async def test_writes_make_versions_that_clients_read(store: Store, client: Any, calling: Calling) -> None:
    def work() -> None:
        dataset = client.create_dataset("shop")
        ids = client.create_examples(dataset_id=dataset.id, inputs=[{"q": 1}, {"q": 2}])["example_ids"]
        client.update_example(ids[0], inputs={"q": 10})
        client.delete_example(ids[1])
        other = client.create_dataset("other")
        client.session.patch(f"{client.api_url}/examples/{ids[0]}", json={"dataset_id": str(other.id)})
        versions = list(client.list_dataset_versions(dataset_id=dataset.id))
        assert [version.tags for version in versions] == [["latest", "4"], ["3"], ["2"], ["1"]]
        states = [
            sorted(example.inputs["q"] for example in client.list_examples(dataset_id=dataset.id, as_of=version.as_of))
            for version in versions
        ]
        assert states == [[], [10], [2, 10], [1, 2]]
        assert client.read_dataset_version(dataset_id=dataset.id, tag="2").as_of == versions[2].as_of
        (moved,) = client.list_examples(dataset_id=other.id)
        assert (moved.inputs, moved.dataset_id) == ({"q": 10}, other.id)
        with pytest.raises(LangSmithNotFoundError):
            client.read_dataset_version(dataset_id=dataset.id, tag="5")

    await calling(work)
    dataset, version = await find_dataset(store, "shop@1")
    assert [example.inputs for example in await examples_of(store, dataset, version)] == [{"q": 1}, {"q": 2}]


async def test_csv_and_json_files_become_datasets(client: Any, calling: Calling, tmp_path: Path) -> None:
    def work() -> None:
        path = tmp_path / "questions.csv"
        path.write_text('question,answer\n"tea, please",yes\njam,no\n', encoding="utf-8")
        dataset = client.upload_csv(str(path), ["question"], ["answer"], name="shop", description="d")
        assert (dataset.name, dataset.example_count) == ("shop", 2)
        examples = [(example.inputs, example.outputs) for example in client.list_examples(dataset_id=dataset.id)]
        assert examples == [({"question": "tea, please"}, {"answer": "yes"}), ({"question": "jam"}, {"answer": "no"})]
        lines = io.BytesIO(b'{"question": {"a": 1}, "answer": 2}\n')
        dataset = client.upload_csv(("more.jsonl", lines, "application/jsonl"), ["question"], ["answer"], name="more")
        (example,) = client.list_examples(dataset_id=dataset.id)
        assert (example.inputs, example.outputs) == ({"question": {"a": 1}}, {"answer": 2})
        with pytest.raises(Exception, match="has no column colour"):
            client.upload_csv(str(path), ["colour"], [], name="third")
        assert not client.has_dataset(dataset_name="third")

    await calling(work)
