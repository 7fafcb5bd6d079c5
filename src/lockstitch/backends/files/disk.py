"""The few ways in which bytes reach the disk."""

import os
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

# What a commit waits for: the data and the length, not the times. Not every system has it.
sync_data = getattr(os, "fdatasync", os.fsync)


@contextmanager
def opened(path: Path, flags: int) -> Generator[int]:
    """A file's descriptor; folders on the way to a new file are made."""
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


def sync(path: Path) -> None:
    """Wait until a file or a folder is on the disk; one that is gone has nothing to wait for."""
    with suppress(FileNotFoundError, NotADirectoryError), opened(path, os.O_RDONLY) as file:
        os.fsync(file)
