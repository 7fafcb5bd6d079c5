"""Readers for exported traces: yield the span data of a file, a folder, a stream or a body, in bounded memory."""

import io
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

from lockstitch.errors import Unreadable
from lockstitch.integrations.otel.decode import spans
from lockstitch.integrations.otel.dumps import dumped_spans
from lockstitch.integrations.otel.frames import LIMIT, Frame, frames
from lockstitch.integrations.otel.logs import is_logs, pieces_of, records_of
from lockstitch.integrations.otel.spans import Span, span_data
from lockstitch.integrations.otel.values import as_json, as_text, loads
from lockstitch.integrations.spans.budget import Budget, unlimited
from lockstitch.integrations.spans.share import Share
from lockstitch.integrations.spans.span import SpanData

OnBad = Callable[[Unreadable], None]
"""Called with each part that cannot be read. Without it, the first error is raised."""

_HEADERS = ".headers.json"
_LOGS = "/v1/logs"
_OTHER_SIGNALS = ("/v1/metrics", "/v1/profiles")


def read(source: Path | str, *, on_bad: OnBad | None = None, limit: int = LIMIT) -> Iterator[SpanData]:
    """Yield the span data of a file, of all files in a folder (sorted by path), or of standard input ("-").

    A recorded body `x.body` can have headers in `x.headers.json`. Bodies that were sent to the endpoint of metrics are
    skipped. `Unreadable` names the file, line or part, and span. With `on_bad`, each error is passed to it and
    reading continues. Without it, the first error is raised.
    """
    if source == "-":
        yield from read_stream(sys.stdin.buffer, "standard input", on_bad=on_bad, limit=limit)
        return
    for path in files(Path(source)):
        yield from read_file(path, on_bad=on_bad, limit=limit)


def files(source: Path) -> list[Path]:
    """Return the files that `read` would read, in its order."""
    if not source.is_dir():
        return [source]
    paths = sorted(path for path in source.rglob("*") if path.is_file() and not path.name.startswith("."))
    return [path for path in paths if not path.name.endswith(_HEADERS) and not _is_other_signal(path)]


def read_file(
    path: Path, *, on_bad: OnBad | None = None, limit: int = LIMIT, share: Share | None = None
) -> Iterator[SpanData]:
    """Yield the span data of one file, or of a share of its records."""
    try:
        with path.open("rb") as stream:
            logs = _sent_to(path).endswith(_LOGS)
            yield from read_stream(stream, str(path), on_bad=on_bad, limit=limit, logs=logs, share=share)
    except OSError as exc:
        _report(Unreadable(f"{path}: {exc.strerror or exc}."), on_bad, exc)


def read_stream(
    stream: BinaryIO,
    where: str = "the stream",
    *,
    on_bad: OnBad | None = None,
    limit: int = LIMIT,
    budget: Budget | None = None,
    logs: bool = False,
    share: Share | None = None,
) -> Iterator[SpanData]:
    """Yield the span data of a stream of bytes. `where` names the stream in errors.

    With `logs`, the stream contains log records. JSON names its content itself. Raises `BodyTooExpensive` if the body
    exceeds the budget.
    """
    budget = budget or unlimited()
    records = frames(stream, where, limit, budget)
    for frame in records if share is None else share.of(records, _size):
        if not isinstance(frame, Frame):
            _report(frame, on_bad)
            continue
        for span in records_of(frame) if logs or is_logs(frame) else spans(frame, dumped_spans):
            budget.item()
            if isinstance(span, Unreadable):
                _report(span, on_bad)
            elif isinstance(span, Span):
                yield span_data(span)
            elif span.is_meaningful:
                yield from pieces_of(span)


def read_body(
    body: bytes,
    where: str = "the body",
    *,
    on_bad: OnBad | None = None,
    limit: int = LIMIT,
    budget: Budget | None = None,
) -> Iterator[SpanData]:
    """Yield the span data of one request body: protobuf or JSON, compressed or not. Its bytes decide the format."""
    return read_stream(io.BytesIO(body), where, on_bad=on_bad, limit=limit, budget=budget)


def _size(frame: Frame | Unreadable) -> int:
    return len(frame.body) if isinstance(frame, Frame) else 0


def _report(error: Unreadable, on_bad: OnBad | None, cause: Exception | None = None) -> None:
    if on_bad is None:
        raise error from (cause or error.__cause__)
    on_bad(error)


def _is_other_signal(path: Path) -> bool:
    return _sent_to(path).endswith(_OTHER_SIGNALS)


def _sent_to(path: Path) -> str:
    """Return the path of the URL to which a recorded body was sent, or an empty text."""
    beside = path.with_name(path.name.removesuffix(path.suffix) + _HEADERS)
    if not beside.is_file():
        return ""
    try:
        sent_to = as_text(as_json(loads(beside.read_bytes())).get("path")) or ""
    except (OSError, ValueError):
        return ""
    return sent_to.split("?")[0]
