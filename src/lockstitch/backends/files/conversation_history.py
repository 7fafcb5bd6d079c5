"""The projection `conversation_history/{thread}/{turn}.json`: what was said in one turn, and how it ended."""

from uuid import UUID

from lockstitch.backends.files import layout, log, tables
from lockstitch.backends.files.folder import Folder
from lockstitch.records import File, Json, Run, answer_of, format_time, history, text_of


def conversation_history_of(folder: Folder, run: Run) -> Json:
    """The record of a finished run of the top lane."""
    stitches = tables.stitches_of_run(folder, run)
    said = {stitch.position: stitch.message for stitch in stitches}
    outside = [position for position in (run.input_position, run.output_position) if position and position not in said]
    # An input that came as a letter may stand outside the run's own file.
    for stitch in log.read(folder, run.thread_id, [(position, position) for position in outside]):
        said[stitch.position] = stitch.message
    files = [file for file in tables.files(folder, run.thread_id) if file.last_updated_run == run.id]
    answer = said.get(run.output_position or 0)
    return {
        "conversation_id": str(run.id),
        "agent_uuid": str(run.thread_id),
        "run_id": str(run.id),
        "started_at": format_time(run.started_at),
        "completed_at": format_time(run.completed_at) if run.completed_at else None,
        "user_message": text_of(said.get(run.input_position or 0)),
        "final_response": answer_of(answer) if answer else None,
        "messages": history(stitches, run.id),
        "stop_reason": run.stop_reason,
        "total_steps": run.steps,
        "usage": run.usage,
        "generated_files": [_generated(file) for file in files],
        "cost": run.cost,
        "extras": run.extras,
        "sequence_number": run.turn,
        "created_at": format_time(run.completed_at or run.started_at),
    }


def recorded_turns(folder: Folder, thread_id: UUID) -> list[int]:
    """The turns that have a record, in order. Only numbers are records, and they are compared as numbers."""
    names = (name.removesuffix(".json") for name in folder.names(layout.histories(thread_id)))
    return sorted(int(name) for name in names if name.isascii() and name.isdigit())


def _generated(file: File) -> Json:
    return {
        "file_id": file.file_id,
        "filename": file.filename,
        "storage_path": file.storage_path,
        "size": file.size,
        "mime_type": file.mime_type,
        "step": file.step,
        "timestamp": format_time(file.last_updated_at),
    }
