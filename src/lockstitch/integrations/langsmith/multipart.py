"""`multipart`: multipart bodies with runs in parts, attachments and feedback.

Only the boundary separates parts. The lengths that clients send differ and are not needed.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from io import BytesIO
from typing import Any, Final, NamedTuple

from lockstitch.errors import Unreadable
from lockstitch.integrations.langsmith.runs import as_object, parse_feedback, spans_of_run
from lockstitch.integrations.langsmith.stream import ByteSource
from lockstitch.integrations.spans.budget import Budget
from lockstitch.integrations.spans.span import Attachment, Item
from lockstitch.integrations.spans.values import name as bounded
from lockstitch.integrations.spans.values import parse
from lockstitch.model import Json

_BOUNDARY: Final = re.compile(r'boundary="?([^";,]+)"?', re.IGNORECASE)
_NAME: Final = re.compile(r'[;\s]name="([^"]*)"|[;\s]name=([^;\s]+)', re.IGNORECASE)
_HEADERS: Final = 1 << 16


class BodyPart(NamedTuple):
    name: str
    media_type: str | None
    content: bytes


def boundary_of(source: ByteSource, headers: Mapping[str, str]) -> bytes | None:
    """Return the boundary from the header or the start of the body, or None if it is not a multipart body."""
    start = source.peek(512)
    declared = next((value for key, value in headers.items() if key.lower() == "content-type"), "")
    match = _BOUNDARY.search(declared)
    if match and f"--{match[1]}".encode() in start:
        return match[1].encode()
    line = start.split(b"\r\n", 1)[0]
    return line[2:] if line.startswith(b"--") and 2 < len(line) < 200 and b"\r\n" in start else None


def multipart(
    source: ByteSource, boundary: bytes, name: str, limit: int, on_bad: Callable[[Unreadable], None] | None = None
) -> Iterator[Item]:
    """Yield the items of a multipart body in order. The parts of one run become one span.

    `on_bad` is called with each part that is not JSON, and the other parts are read. Without it, the error is raised.
    """
    run = _Run(source.budget)
    for part in _parts(source, boundary, name, limit):
        kind, _, suffix = part.name.partition(".")
        if kind in ("post", "patch"):
            run_id, _, field = suffix.partition(".")
            if not run.takes(kind, run_id):
                yield from run.done()
                run.begin(kind, run_id)
            source.budget.weigh(part.content)
            run.add(field, _json(part, name, on_bad))
            continue
        yield from run.done()
        if kind == "attachment":
            run_id, _, title = suffix.partition(".")
            yield Attachment(bounded(run_id) or "", bounded(title) or "attachment", part.media_type, part.content)
        elif kind == "feedback":
            span_feedback = parse_feedback({"id": suffix, **as_object(_json(part, name, on_bad))})
            if span_feedback is not None:
                yield span_feedback
    yield from run.done()


def parts_of(body: bytes, content_type: str, name: str, limit: int) -> list[BodyPart]:
    """Return the parts of a multipart body in order. Raises `Unreadable`."""
    source = ByteSource(BytesIO(body).read).unpacked()
    boundary = boundary_of(source, {"content-type": content_type})
    if boundary is None:
        raise Unreadable(name, "this is not a multipart body")
    return list(_parts(source, boundary, name, limit))


class _Run:
    """The run in progress. Its parts follow each other. A part in another place becomes separate span data."""

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self._key: tuple[str, str] | None = None
        self._fields: Json = {}

    def takes(self, kind: str, run_id: str) -> bool:
        return self._key == (kind, run_id)

    def begin(self, kind: str, run_id: str) -> None:
        self._key, self._fields = (kind, run_id), {"id": run_id}

    def add(self, field: str, value: Any) -> None:
        if field:
            self._fields[field] = value
        else:
            # In place, because a run can have many parts.
            self._fields.update({key: each for key, each in as_object(value).items() if each is not None})

    def done(self) -> Iterator[Item]:
        key, self._key = self._key, None
        if key is not None:
            yield from spans_of_run(self._fields, parsed=True, budget=self._budget)


def _json(part: BodyPart, name: str, on_bad: Callable[[Unreadable], None] | None) -> Any:
    try:
        return parse(part.content)
    except (ValueError, RecursionError) as exc:
        wrong = Unreadable(name, f"this is not JSON: {exc}", where=f"part {part.name}")
        if on_bad is None:
            raise wrong from exc
        on_bad(wrong)
        return None


def _parts(source: ByteSource, boundary: bytes, name: str, limit: int) -> Iterator[BodyPart]:
    delimiter = b"\r\n--" + boundary
    buffer = bytearray(b"\r\n")
    searched = number = 0
    inside = False
    while True:
        end = buffer.find(delimiter, searched)
        if end >= 0 and len(buffer) < end + len(delimiter) + 2 and (chunk := source.read()):
            buffer += chunk
            continue
        if end < 0:
            if len(buffer) > limit + _HEADERS:
                raise Unreadable(name, f"one part is larger than {limit >> 20} MB", where=f"part {number}")
            searched = max(0, len(buffer) - len(delimiter))
            chunk = source.read()
            if not chunk:
                reason = source.failure or "it ends in the middle of a part; earlier parts were read"
                raise Unreadable(name, reason, where=f"part {number}", cut=True)
            buffer += chunk
            continue
        if inside:
            source.budget.record()
            yield part_of(bytes(buffer[:end]))
        inside = True
        number += 1
        after = end + len(delimiter)
        if buffer.startswith(b"--", after):
            return
        del buffer[:after]
        searched = 0


def part_of(data: bytes) -> BodyPart:
    """Return the part between two boundaries."""
    head, _, content = data.partition(b"\r\n\r\n")
    lines = head.decode(errors="replace").split("\r\n")
    headers = {key.strip().lower(): value.strip() for key, _, value in (line.partition(":") for line in lines)}
    match = _NAME.search(headers.get("content-disposition", ""))
    media_type = headers.get("content-type", "").partition(";")[0].strip()
    return BodyPart((match[1] or match[2] or "") if match else "", bounded(media_type), content)
