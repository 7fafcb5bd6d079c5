"""What the system says is told as what to do."""

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
        (errno.ENOSPC, StoreFull, "Free some"),
        (errno.EDQUOT, StoreFull, "nothing was written"),
        (errno.EFBIG, StoreFull, "no room"),
        (errno.EACCES, StoreReadOnly, "permissions"),
        (errno.EROFS, StoreReadOnly, "permissions"),
        (errno.ENOENT, StoreUnreachable, "Check the URL"),
        (errno.EMFILE, StoreUnreachable, "try again"),
        (errno.EIO, StoreDamaged, "restore a backup"),
        (errno.EINVAL, StoreError, "/data/store"),
    ],
)
def test_errors_of_the_system(number: int, kind: type[LockstitchError], says: str) -> None:
    found = translate(OSError(number, os.strerror(number), "/data/store/heads"), Path("/data/store"))
    assert type(found) is kind
    assert says in str(found)


def test_our_own_errors_stay_what_they_are() -> None:
    own = StoreFull()
    assert translate(own, Path("/data/store")) is own
