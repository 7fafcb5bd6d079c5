"""File stores by URL."""

from pathlib import Path

import pytest

from lockstitch.agents.file_stores import LocalFileStore
from lockstitch.agents.registry import file_store
from lockstitch.agents.s3_file_store import S3FileStore
from lockstitch.errors import Refused


def test_url_opens_its_kind_of_store() -> None:
    local = file_store("file:///srv/agent%20files/#1?")
    relative = file_store("file:made")
    s3 = file_store("s3://bucket/some/prefix/?region=eu-west-1")

    assert file_store("none").name == file_store("none:").name == "none"
    assert isinstance(local, LocalFileStore)
    assert local.base == Path("/srv/agent files/#1?")
    assert isinstance(relative, LocalFileStore)
    assert relative.base == Path.cwd() / "made"
    assert isinstance(s3, S3FileStore)
    assert (s3.name, s3.bucket, s3.prefix) == ("s3", "bucket", "some/prefix")


@pytest.mark.parametrize(
    "url",
    [
        "",
        "ftp://x",
        "file:",
        "file:///",
        "file://host/x",
        "s3://",
        "s3:bucket",
        "s3://b/p?secret=x",
        "http://[",
        "local",
    ],
)
def test_rejects_other_urls(url: str) -> None:
    with pytest.raises(Refused):
        file_store(url)
