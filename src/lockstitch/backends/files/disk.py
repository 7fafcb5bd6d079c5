"""The few ways in which bytes reach the disk."""

import os
import shutil
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

# What a commit waits for: the data and the length, not the times. Not every system has it.
sync_data = getattr(os, "fdatasync", os.fsync)

_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT


@contextmanager
def opened(path: Path, flags: int) -> Generator[int]:
    """Open a file and yield its descriptor. Missing folders of a new file are created.

    A file that is opened for writing must not be a symbolic link: the link could lead out of the store.
    """
    if flags & _WRITING:
        flags |= os.O_NOFOLLOW
    try:
        file = os.open(path, flags | os.O_CLOEXEC, 0o666)
    except FileNotFoundError:
        if not flags & os.O_CREAT:
            raise
        path.parent.mkdir(parents=True, exist_ok=True)
        file = os.open(path, flags | os.O_CLOEXEC, 0o666)
    try:
        yield file
    finally:
        os.close(file)


def write(file: int, content: bytes, offset: int) -> None:
    """Write all of `content`; the system may take it in parts."""
    rest = memoryview(content)
    while rest:
        written = os.pwrite(file, rest, offset)
        rest, offset = rest[written:], offset + written


def temporary(path: Path) -> Path:
    """Where a file is prepared that will replace `path`. The name is always the same, so a leftover is overwritten."""
    return path.with_name(f".{path.name}.tmp")


def replace(path: Path, content: bytes, *, durably: bool = False) -> None:
    """Replace a file in one step: whoever opens it finds the old content or the new."""
    beside = temporary(path)
    with opened(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC) as file:
        write(file, content, 0)
        if durably:
            os.fsync(file)
    beside.replace(path)
    if durably:
        sync(path.parent)


def copy(source: Path, target: Path) -> None:
    """Write the content of one file into another. Neither may be a symbolic link."""
    with (
        opened(source, os.O_RDONLY | os.O_NOFOLLOW) as reading,
        opened(target, os.O_WRONLY | os.O_CREAT | os.O_TRUNC) as writing,
        os.fdopen(reading, "rb", closefd=False) as content,
        os.fdopen(writing, "wb", closefd=False) as file,
    ):
        shutil.copyfileobj(content, file, 1 << 20)


def sync(path: Path) -> None:
    """Wait until a file or a folder is on the disk; one that is gone has nothing to wait for."""
    with suppress(FileNotFoundError, NotADirectoryError), opened(path, os.O_RDONLY) as file:
        os.fsync(file)
