"""The S3 file store: different errors for different causes."""

from uuid import UUID

import pytest

from lockstitch.agents.s3_file_store import S3FileStore
from lockstitch.errors import StoreUnreachable
from tests.agents.file_stores.bucket import BUCKET, Bucket

pytestmark = pytest.mark.anyio

THREAD = UUID(int=7)


async def test_missing_bucket_is_not_a_missing_file(bucket: Bucket) -> None:
    files = S3FileStore("no-such-bucket", endpoint=bucket.endpoint, region="us-east-1")

    for act in (
        files.store(THREAD, "f", "a.txt", b"x"),
        files.retrieve(f"s3://no-such-bucket/{THREAD}/f_a.txt"),
        files.delete(f"s3://no-such-bucket/{THREAD}/f_a.txt"),
    ):
        with pytest.raises(StoreUnreachable):
            await act


async def test_missing_server_is_unreachable(bucket: Bucket) -> None:
    files = S3FileStore(BUCKET, endpoint="http://127.0.0.1:9", region="us-east-1")

    with pytest.raises(StoreUnreachable):
        await files.store(THREAD, "f", "a.txt", b"x")


async def test_large_file_is_sent_in_parts_and_read_completely(bucket: Bucket) -> None:
    files = S3FileStore(BUCKET, "big", endpoint=bucket.endpoint, region="us-east-1")
    content = bytes(range(256)) * 50_000

    path = await files.store(THREAD, "f", "a.bin", content)

    assert path
    assert await files.retrieve(path) == content
