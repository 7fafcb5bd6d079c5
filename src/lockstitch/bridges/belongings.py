"""What hangs off spans: attachments and feedback, as the record keeps them."""

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from hashlib import sha256
from uuid import UUID

from lockstitch.bridges.joining import Joined
from lockstitch.bridges.rows import Names, part
from lockstitch.bridges.span import Attachment, Remark
from lockstitch.records import Blob, BlobUse, Feedback, File, Record, Stitch, parse_time


def attached(attachment: Attachment, row: Stitch, now: datetime) -> list[Record]:
    """A file of the span's thread, its bytes by their hash."""
    digest = sha256(attachment.content).hexdigest()
    size = len(attachment.content)
    name, media_type = _kept(attachment.name), _kept(attachment.media_type)
    return [
        Blob(sha256=digest, size=size, media_type=media_type, content=attachment.content, created_at=now),
        BlobUse(thread_id=row.thread_id, sha256=digest),
        File(
            thread_id=row.thread_id,
            file_id=part(f"{attachment.span_id}/{name}") or digest,
            filename=name or "",
            storage_path=f"blob:{digest}",
            size=size,
            mime_type=media_type,
            created_in_run=row.run_id,
            last_updated_run=row.run_id,
            created_at=now,
            last_updated_at=now,
        ),
    ]


def feedback(remark: Remark, names: Names, project: str, source: str, row: Stitch | None, now: datetime) -> Feedback:
    """What was said about a span; of one that is not known yet it is kept all the same."""
    at = parse_time(remark.at) if remark.at else now
    return Feedback(
        id=names.remark(remark.id),
        project=project,
        thread_id=row.thread_id if row else None,
        run_id=row.run_id if row else None,
        stitch_id=row.id if row else None,
        name=part(remark.key) or "feedback",
        score=remark.score,
        value=remark.value,
        comment=remark.comment,
        source=source,
        created_at=at,
        updated_at=at,
    )


def amended(remark: Remark, known: Feedback, now: datetime) -> Feedback:
    """Feedback as it is after somebody has thought better of it: what is not said again stays."""
    changes = {"score": remark.score, "value": remark.value, "comment": remark.comment}
    return known.changed(updated_at=now, **{name: value for name, value in changes.items() if value is not None})


def moved(records: Iterable[Record], joined: Joined, traces: Mapping[UUID, str], names: Names) -> list[Record]:
    """Return side records of dissolved threads as they belong to the threads that have their spans now.

    `traces` are the traces of the rows of spans. A record that names no such row goes with the run that it names.
    """
    found: list[Record] = []
    threads: dict[UUID, set[UUID]] = {}

    def trace_of(row_id: UUID | None, run_id: UUID | None) -> str | None:
        trace = traces.get(row_id) if row_id else None
        return trace or (joined.merged[run_id][1] if run_id and run_id in joined.merged else None)

    def home_of(trace: str | None, thread_id: UUID) -> UUID:
        # Without a trace: the thread that has the same id, else any that has spans of the dissolved one.
        home = joined.homes.get(trace) if trace else None
        return home or next(iter(sorted(threads.get(thread_id, ()))), thread_id)

    for run_id, (_, trace) in joined.merged.items():
        if trace in joined.homes:
            threads.setdefault(joined.origin[run_id], set()).add(joined.homes[trace])
    for record in records:
        if isinstance(record, Blob):
            found.append(record)
        elif isinstance(record, Feedback):
            trace = trace_of(record.stitch_id, record.run_id)
            run_id = names.run(trace) if trace and record.run_id else record.run_id
            thread_id = record.thread_id and home_of(trace, record.thread_id)
            found.append(record.changed(thread_id=thread_id, run_id=run_id))
        elif isinstance(record, File):
            row_id = next((row for row in _rows_named(record.file_id, names) if row in traces), None)
            trace = trace_of(row_id, record.created_in_run)
            run_id = names.run(trace) if trace else record.created_in_run
            home = home_of(trace, record.thread_id)
            found.append(record.changed(thread_id=home, created_in_run=run_id, last_updated_run=run_id))
            if (record.storage_path or "").startswith("blob:"):
                found.append(BlobUse(thread_id=home, sha256=(record.storage_path or "").removeprefix("blob:")))
    return found


def _rows_named(file_id: str, names: Names) -> Iterator[UUID]:
    """The rows of the spans that a file may be attached to: its id is that of the span, a slash, and its name."""
    for place, character in enumerate(file_id):
        if character == "/":
            yield names.span(file_id[:place])


def _kept(name: str | None) -> str | None:
    """A name out of a header, with what no column keeps replaced."""
    return None if name is None else name.encode(errors="replace").decode().replace("\0", "\ufffd")
