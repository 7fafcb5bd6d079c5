"""Errors of the operating system become errors that say what to do."""

import errno
import os
from pathlib import Path

import pytest

from lockstitch.backends.files.disk import translate
from lockstitch.errors import (
    LockstitchError,
    StoreDamaged,
    StoreError,
    StoreFull,
    StoreReadOnly,
    StoreUnreachable,
)


@pytest.mark.parametrize(
    ("number", "kind", "says"),
    [
        (errno.ENOSPC, StoreFull, "Free disk space"),
        (errno.EDQUOT, StoreFull, "Nothing was written"),
        (errno.EFBIG, StoreFull, "No space"),
        (errno.EACCES, StoreReadOnly, "permissions"),
        (errno.EROFS, StoreReadOnly, "permissions"),
        (errno.ENOENT, StoreUnreachable, "Check the URL"),
        (errno.EMFILE, StoreUnreachable, "try again"),
        (errno.EIO, StoreDamaged, "restore a backup"),
        (errno.EINVAL, StoreError, "/data/store"),
    ],
)
def test_os_errors_are_translated(number: int, kind: type[LockstitchError], says: str) -> None:
    error = translate(OSError(number, os.strerror(number), "/data/store/heads"), Path("/data/store"))
    assert type(error) is kind
    assert says in str(error)


def test_lockstitch_errors_are_not_translated() -> None:
    error = StoreFull()
    assert translate(error, Path("/data/store")) is error
