"""OTLP, as plain spans that no longer show in which form they came."""

from collections.abc import Iterator

from lockstitch.bridges.otel import document
from lockstitch.bridges.otel.framing import Frame
from lockstitch.bridges.otel.raw import Span
from lockstitch.bridges.otel.weight import HEAVIEST, weight
from lockstitch.errors import Refused, Unreadable


def spans(frame: Frame) -> Iterator[Span | Unreadable]:
    """The spans of a record; what cannot be read comes as an Unreadable that names it, and the rest goes on."""
    if weight(frame) > HEAVIEST:
        yield Unreadable(f"{frame.where}: it holds more values than one record may. Export smaller batches.")
        return
    try:
        if frame.form == "json":
            yield from document.spans(frame)
        else:
            yield from _protobuf_spans(frame)
    except Unreadable as exc:
        yield exc
    except Refused:
        raise
    except ValueError as exc:
        yield Unreadable(f"{frame.where}: {exc}.")


def _protobuf_spans(frame: Frame) -> Iterator[Span | Unreadable]:
    try:
        from lockstitch.bridges.otel import protobuf
    except ImportError as exc:
        raise Refused(f"{exc.name} is missing: pip install 'lockstitch[otel]'") from exc
    return protobuf.spans(frame)
