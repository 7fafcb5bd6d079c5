"""File stores of every kind, and the S3 server behind one of them."""

from collections.abc import Iterator
from pathlib import Path

import boto3
import pytest

from lockstitch.agents.registry import file_store
from lockstitch.engine.ports.file_store import FileStore
from tests.agents.file_stores.bucket import BUCKET, Bucket
from tests.s3 import s3_server


@pytest.fixture(scope="session")
def s3_url() -> Iterator[str]:
    with s3_server() as url:
        yield url


@pytest.fixture
def bucket(s3_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bucket]:
    """An empty bucket and its credentials."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "access-key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "anything")
    client = boto3.client("s3", endpoint_url=s3_url, region_name="us-east-1")
    client.create_bucket(Bucket=BUCKET)
    s3_bucket = Bucket(client, s3_url)
    yield s3_bucket
    s3_bucket.clear()
    client.delete_bucket(Bucket=BUCKET)
    client.close()


@pytest.fixture(params=["local", "s3"])
def files(request: pytest.FixtureRequest, tmp_path: Path) -> FileStore:
    """A file store of each kind."""
    if request.param == "local":
        return file_store(f"file://{tmp_path}/files")
    return file_store(request.getfixturevalue("bucket").url("some/prefix"))
