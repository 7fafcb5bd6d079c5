"""File stores of every kind, and the S3 server behind one of them."""

import logging
from collections.abc import Iterator
from pathlib import Path

import boto3
import pytest
from moto.server import ThreadedMotoServer

from lockstitch.agents.registry import file_store
from lockstitch.engine.ports.file_store import FileStore
from tests.agents.file_stores.bucket import BUCKET, Bucket


@pytest.fixture(scope="session")
def s3_server() -> Iterator[str]:
    """moto's server on loopback."""
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def bucket(s3_server: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bucket]:
    """An empty bucket and its credentials."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "access-key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "anything")
    client = boto3.client("s3", endpoint_url=s3_server, region_name="us-east-1")
    client.create_bucket(Bucket=BUCKET)
    s3_bucket = Bucket(client, s3_server)
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
