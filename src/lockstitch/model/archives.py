"""`archived_text`, `pack` and `unpack`: the content of archives."""

import gzip
import zlib
from collections.abc import Sequence
from hashlib import sha256
from typing import Literal

from lockstitch.errors import StoreDamaged
from lockstitch.model import codec
from lockstitch.model.side_records import Archive
from lockstitch.model.stitch import Stitch


def archived_text(stitches: Sequence[Stitch]) -> bytes:
    """Return stitches as the text of an archive: one line of JSON each."""
    return b"".join(codec.dumps(stitch.as_json()) + b"\n" for stitch in stitches)


def pack(text: bytes, encoding: Literal["gzip", "none"]) -> bytes:
    """Return the text in an encoding that SQL of the backend can read."""
    return text if encoding == "none" else gzip.compress(text, mtime=0)


def unpack(archive: Archive) -> list[Stitch]:
    """Return the stitches of an archive that no lake has. Raises `StoreDamaged` if its hash does not match."""
    try:
        content = archive.content
        text = content if archive.encoding == "none" else gzip.decompress(content)
    except (OSError, EOFError, zlib.error) as exc:
        raise damaged(archive) from exc
    if sha256(text).hexdigest() != archive.sha256:
        raise damaged(archive)
    return [Stitch.from_json(codec.loads(line)) for line in text.splitlines()]


def damaged(archive: Archive) -> StoreDamaged:
    """Return the error for an archive without the stitches that it had."""
    place = f"in the lake {archive.lake} " if archive.lake else ""
    return StoreDamaged(
        f"The archive of thread {archive.thread_id}, positions {archive.first_position} to {archive.last_position}, "
        f"{place}is damaged. Restore it from a backup."
    )
