"""What hangs off spans: attachments and feedback, as the record keeps them."""

from datetime import datetime
from hashlib import sha256

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


def _kept(name: str | None) -> str | None:
    """A name out of a header, with what no column keeps replaced."""
    return None if name is None else name.encode(errors="replace").decode().replace("\0", "\ufffd")
