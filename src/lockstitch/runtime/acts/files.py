"""Keeping files: those that tools made, and those that a provider's tools made and holds for us."""

from collections.abc import Sequence

from lockstitch.records import Entry, File, Json
from lockstitch.runtime.stage import Stage, Stopped
from lockstitch.runtime.tool import GeneratedFile
from lockstitch.runtime.wording import message_of


async def fetch_files(stage: Stage, file_ids: Sequence[str]) -> None:
    """Fetch files from the provider and keep them. One that fails is noted; the others and the run go on."""
    journal = stage.journal
    step = journal.open.steps
    for file_id in file_ids:
        made = journal.entry("file_generated", data={"file_id": file_id})
        try:
            found = await stage.unless_stopped(stage.setup.provider.download(file_id))
        except Stopped:
            raise
        except Exception as exc:  # one file is no reason to give the run up
            journal.note(made, _failed(stage, file_id, exc), first=False)
            continue
        data: Json = {"file_id": file_id, "filename": found.filename, "size": len(found.content)}
        downloaded = journal.entry("file_downloaded", data=data)
        file = GeneratedFile(file_id, found.filename, found.content, found.mime_type)
        stored = await stage.unless_stopped(_stored(stage, file, step))
        journal.note(made, downloaded, *stored, first=False)


async def keep_file(stage: Stage, file: GeneratedFile, *, step: int) -> list[Entry]:
    """Keep a file that a tool made; what is to be noted of it."""
    data: Json = {"file_id": file.file_id, "filename": file.filename, "size": len(file.content)}
    return [stage.journal.entry("file_generated", data=data), *(await _stored(stage, file, step))]


async def _stored(stage: Stage, file: GeneratedFile, step: int) -> list[Entry]:
    journal = stage.journal
    store, head, run = journal.store, journal.head, journal.open
    try:
        path = await stage.setup.files.store(head.id, file.file_id, file.filename, file.content)
        now = journal.clock.now()
        known = await store.files.list(thread_id=head.id, file_id=file.file_id, limit=1)
        record = File(
            thread_id=head.id,
            file_id=file.file_id,
            filename=file.filename,
            storage_path=path,
            size=len(file.content),
            mime_type=file.mime_type,
            step=step,
            created_in_run=known[0].created_in_run if known else run.id,
            last_updated_run=run.id,
            created_at=known[0].created_at if known else now,
            last_updated_at=now,
        )
        # A row of its own, written again with the same values when a crash makes it twice.
        await store.files.put(record)
        made: list[str] = journal.open.state.get("files") or []
        if file.file_id not in made:
            journal.change_run(state={**journal.open.state, "files": [*made, file.file_id]})
    except Exception as exc:  # nor is a file store that breaks
        return [_failed(stage, file.file_id, exc)]
    data: Json = {"file_id": file.file_id, "filename": file.filename, "storage_path": path}
    shown = {**data, "size": len(file.content), "mime_type": file.mime_type, "step": step}
    stage.tell("files", {"files": [shown]})
    return [journal.entry("file_stored", data=data)] if path is not None else []


def _failed(stage: Stage, file_id: str, exc: Exception) -> Entry:
    data: Json = {"file_id": file_id, "type": type(exc).__name__, "message": message_of(exc)}
    return stage.journal.entry("file_error", data=data)
