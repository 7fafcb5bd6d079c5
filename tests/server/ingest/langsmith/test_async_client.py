"""The async client of LangSmith."""

from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import pytest
from langsmith import AsyncClient

pytestmark = pytest.mark.anyio


async def test_async_client_writes_and_reads(url: str) -> None:
    async with AsyncClient(api_url=url, api_key="not-a-token") as client:
        run_id = uuid4()
        now = datetime.now(UTC)
        place: Any = {"trace_id": run_id, "dotted_order": f"{now:%Y%m%dT%H%M%S%f}Z{run_id}", "id": run_id}
        await client.create_run("answer", {"q": 1}, "chain", project_name="shop", start_time=now, **place)
        await client.update_run(run_id, outputs={"a": 2}, end_time=now)
        await client.create_feedback(run_id, "helpful", score=1)
        run = await client.read_run(run_id)
        assert (run.name, run.outputs) == ("answer", {"a": 2})
        runs = [run async for run in client.list_runs(project_name="shop", filter='eq(name, "answer")')]
        assert [run.id for run in runs] == [run_id]
        feedback = [item async for item in client.list_feedback(run_ids=[run_id])]
        assert [item.score for item in feedback] == [1]
        dataset = await client.create_dataset("questions")
        example = await client.create_example({"q": 1}, dataset_id=dataset.id, outputs={"a": 2})
        listed = [item async for item in client.list_examples(dataset_id=dataset.id)]
        assert [(item.id, item.outputs) for item in listed] == [(example.id, {"a": 2})]
        link = await client.share_run(run_id)
        assert await client.run_is_shared(run_id)
        assert "/public/" in link
