"""OTLP, as plain spans that no longer show in which form they came."""

from collections.abc import Iterator
from typing import cast

from lockstitch.bridges.otel import document
from lockstitch.bridges.otel.framing import Frame
from lockstitch.bridges.otel.raw import Span
from lockstitch.bridges.otel.weight import HEAVIEST, weight
from lockstitch.errors import Refused, Unreadable


def checked(frame: Frame) -> Iterator[object]:
    """Yield something for each span of a record: an `Unreadable` that names it if it cannot be read.

    The same as `spans`, but in protobuf the attributes are not read, which takes most of the time.
    """
    return _read(frame, only_check=True)


def spans(frame: Frame) -> Iterator[Span | Unreadable]:
    """The spans of a record; what cannot be read comes as an Unreadable that names it, and the rest goes on."""
    return cast("Iterator[Span | Unreadable]", _read(frame, only_check=False))


def _read(frame: Frame, *, only_check: bool) -> Iterator[object]:
    if weight(frame) > HEAVIEST:
        yield Unreadable(f"{frame.where}: it holds more values than one record may. Export smaller batches.")
        return
    try:
        if frame.form == "json":
            yield from document.json_spans(frame)
        else:
            yield from _protobuf_spans(frame, only_check)
    except Unreadable as exc:
        yield exc
    except Refused:
        raise
    except ValueError as exc:
        yield Unreadable(f"{frame.where}: {exc}.")


def _protobuf_spans(frame: Frame, only_check: bool) -> Iterator[object]:
    try:
        from lockstitch.bridges.otel import protobuf
    except ImportError as exc:
        raise Refused(f"{exc.name} is missing: pip install 'lockstitch[otel]'") from exc
    return protobuf.checked(frame) if only_check else protobuf.spans(frame)
