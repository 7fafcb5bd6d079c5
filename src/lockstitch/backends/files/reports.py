"""Figures over many records."""

import os
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from uuid import UUID

from lockstitch.backend import Sizes, Usage
from lockstitch.backends.files import layout, tables
from lockstitch.backends.files.folder import Folder
from lockstitch.records import BlobUse, Thread


def average_tokens(folder: Folder, project: str, since: datetime) -> list[Usage]:
    """Per thread, what its top-level runs that started since then took on average."""
    usages: list[Usage] = []
    for head in tables.all_in(folder, Thread, layout.HEADS):
        if head.project != project:
            continue
        tokens = [
            run.input_tokens + run.output_tokens
            for run in tables.runs(folder, head.id)
            if run.parent_run_id is None and run.started_at > since
        ]
        if tokens:
            usages.append(Usage(head.id, len(tokens), sum(tokens) / len(tokens)))
    return sorted(usages, key=lambda usage: usage.thread_id)


def size(folder: Folder, thread_id: UUID | None) -> Sizes:
    """Bytes of the files of one thread, or of all; for all also what the whole folder takes on the disk."""
    root = folder.root
    if thread_id is None:
        heads, runs, logs, blobs = layout.HEADS, layout.RUNS, layout.LOGS, [layout.BLOBS]
    else:
        heads, runs, logs = layout.head(thread_id), layout.runs(thread_id), layout.logs(thread_id)
        uses = tables.shelf(folder, BlobUse, (thread_id,))
        blobs = [layout.blob(use.sha256) for use in uses if use.thread_id == thread_id]
    sizes = {
        "heads": _bytes(root / heads, ".json"),
        "runs": _bytes(root / runs, ".json"),
        "stitches": _bytes(root / logs, ".jsonl"),
        "blobs": sum(_bytes(root / path, "") for path in blobs),
        "archives": _bytes(root / logs, ".gz"),
    }
    if thread_id is None:
        sizes["disk"] = sum(max(status.st_size, status.st_blocks * 512) for _, status in _files(root))
    return sizes


def _bytes(path: Path, suffix: str) -> int:
    return sum(status.st_size for file, status in _files(path) if file.suffix == suffix)


def _files(path: Path) -> Iterator[tuple[Path, os.stat_result]]:
    """A file, or all files in a folder."""
    if path.is_file():
        yield path, path.stat()
    for folder, _, names in os.walk(path):
        for name in names:
            file = Path(folder, name)
            yield file, file.stat()
