"""`Client.datasets` and `Client.evals`: the same results as with the store."""

import pytest

from lockstitch import Client
from lockstitch.store import Store
from tests.agents.evals.test_stored import change_datasets, read_evals
from tests.client.test_client import backend, client

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
