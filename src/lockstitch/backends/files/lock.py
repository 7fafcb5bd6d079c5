"""The one lock of a folder, between processes and within one."""

import fcntl
import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from lockstitch.backends.files import disk, layout


@contextmanager
def locked(root: Path, *, shared: bool = False) -> Generator[None]:
    """Hold the folder's lock, alone or with others who only read; waits for it.

    The file is opened anew each time: a lock belongs to the open file, and one kept open would be shared with
    every child that this process forks. The system lets go of it when the process dies, however it dies.
    """
    path = root / layout.LOCK
    # A copy made with `cp store/* …` has no hidden files; a store that may only be read can still be locked.
    missing = not path.exists() and (root / layout.STORE).exists()
    with disk.opened(path, os.O_RDWR | os.O_CREAT if missing else os.O_RDONLY) as file:
        fcntl.flock(file, fcntl.LOCK_SH if shared else fcntl.LOCK_EX)
        try:
            yield
        finally:
            # Closing alone would not let go while a child that was forked meanwhile has the file open too.
            fcntl.flock(file, fcntl.LOCK_UN)
