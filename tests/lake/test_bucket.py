"""A lake in a bucket: sync, lenses, archive and restore."""

from collections.abc import Iterator

import boto3
import pytest

from lockstitch.errors import Refused
from lockstitch.lake.query import LakeReader
from lockstitch.model import FakeClock
from lockstitch.store import LakeArchiveReport, Store
from tests.lake.lakes import compare, write
from tests.s3 import s3_server
from tests.samples import turn
from tests.store.test_archive import old_goal, read_all

pytestmark = pytest.mark.anyio


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The URL of an empty bucket."""
    with s3_server() as url:
        for name, value in (("ACCESS_KEY_ID", "key"), ("SECRET_ACCESS_KEY", "secret"), ("REGION", "us-east-1")):
            monkeypatch.setenv(f"AWS_{name}", value)
        monkeypatch.setenv("AWS_ENDPOINT_URL", url)
        monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
        client = boto3.client("s3", endpoint_url=url, region_name="us-east-1")
        client.create_bucket(Bucket="history")
        client.close()
        yield "s3://history/lake"


@pytest.mark.parametrize("backend", ["sqlite"], indirect=True)
async def test_lake_in_bucket(timed_store: Store, clock: FakeClock, bucket: str) -> None:
    store = timed_store
    await turn(store, await store.create(), "Where is the order?", "It left today.")
    thread = await old_goal(store, clock)
    expected = await read_all(store, thread)
    assert (await write(store, bucket)).stitches
    assert await compare(store, bucket, lenses=["langsmith"])
    query = "SELECT model_name, count(*) AS calls, sum(input_tokens) FROM llm_calls GROUP BY model_name ORDER BY 1, 2"
    with LakeReader(bucket, "langsmith") as reader:
        assert sorted(reader.query(query).rows, key=repr) == sorted(
            (await store.sql(query, lens="langsmith")).rows, key=repr
        )
        with pytest.raises(Refused, match="disabled"):
            reader.query("SELECT * FROM read_text('/etc/hostname')")

    assert await store.archive_to_lake(bucket, clock.now()) == LakeArchiveReport(2, 0)
    assert await read_all(store, thread) == expected
    assert not (await write(store, bucket)).stitches
    assert await store.restore(thread) == 2
    assert await read_all(store, thread) == expected
