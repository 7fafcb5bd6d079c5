"""LangSmith's bulk exports: Parquet files with one row per run, whose objects are columns of JSON text."""

from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from shutil import copyfileobj
from tempfile import TemporaryFile
from typing import IO, Any, Final, cast

from lockstitch.bridges.langsmith.opening import CHUNK, Source
from lockstitch.errors import Unreadable
from lockstitch.records import Json

MAGIC: Final = b"PAR1"
_ROWS: Final = 64


def rows(where: Path | Source, name: str) -> Iterator[Json]:
    """The runs of a Parquet file, a few rows in memory at a time."""
    try:
        reader: Any = import_module("pyarrow.parquet")
    except ImportError as exc:
        raise Unreadable(name, "Parquet needs pyarrow: pip install 'lockstitch[parquet]'") from exc
    if isinstance(where, Path):
        yield from _rows(reader, str(where), name)
        return
    # Its index stands at its end, so what only streams is laid down first.
    with TemporaryFile() as laid:
        copyfileobj(cast("IO[bytes]", where), laid, CHUNK)
        laid.seek(0)
        yield from _rows(reader, laid, name)


def _rows(reader: Any, file: Any, name: str) -> Iterator[Json]:
    number = 0
    try:
        with reader.ParquetFile(file, buffer_size=CHUNK, pre_buffer=False) as opened:
            for batch in opened.iter_batches(batch_size=_ROWS, use_threads=False):
                for row in batch.to_pylist():
                    number += 1
                    yield {key: value for key, value in row.items() if value is not None}
    except (OSError, ValueError) as exc:
        # pyarrow's errors are these two
        if isinstance(exc, Unreadable):
            raise
        raise Unreadable(name, f"this is no Parquet file, or a damaged one: {exc}", where=f"row {number + 1}") from exc
