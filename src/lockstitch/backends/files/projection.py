"""Projections: the files that people know, made of the record and rewritten when a run pauses or ends.

Nothing is ever read back from them; one that is lost or stale is made again from the log.
"""

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from uuid import UUID

from lockstitch.backends.files import agent_config, conversation_history, disk, layout, tables
from lockstitch.backends.files.folder import Folder
from lockstitch.backends.files.paths import locate
from lockstitch.records import TERMINAL, Run, Thread, codec

KINDS = frozenset({"chat", "goal", "task"})
"""The kinds of threads that have projections; a trace was no agent of ours."""


def show(folder: Folder, thread_id: UUID, run_ids: Sequence[UUID]) -> None:
    """Write a thread's agent_config, and the conversation record of each of these runs that has one."""
    head = tables.head(folder, thread_id)
    if head is None or head.kind not in KINDS:
        return
    _write(folder, layout.config(thread_id), agent_config.agent_config_of(folder, head))
    for run_id in run_ids:
        run = tables.run(folder, thread_id, run_id)
        if run is not None and has_record(run):
            _write(
                folder, layout.history(thread_id, run.turn), conversation_history.conversation_history_of(folder, run)
            )
    turns = conversation_history.recorded_turns(folder, thread_id)
    if turns:
        index = {"last_sequence": turns[-1], "total_conversations": len(turns)}
        _write(folder, f"{layout.histories(thread_id)}/index.json", index)


def show_all(folder: Folder, thread_id: UUID) -> bool:
    """Write all projections of a thread anew and remove those of runs that are no more; whether it has any."""
    head = tables.head(folder, thread_id)
    if head is None or head.kind not in KINDS:
        return False
    finished = {run.turn: run.id for run in tables.runs(folder, thread_id) if has_record(run)}
    for turn in conversation_history.recorded_turns(folder, thread_id):
        if turn not in finished:
            locate(folder.root, layout.history(thread_id, turn)).unlink()
    # What an archived run has said stands in its record still, but no longer in the log.
    shown = [run_id for turn, run_id in finished.items() if not _is_archived(folder, head, run_id, turn)]
    show(folder, thread_id, shown)
    return True


def sweep(folder: Folder) -> None:
    """Remove the projections of threads that are no more."""
    known = {str(thread_id) for thread_id in tables.ids_in(folder, layout.HEADS)}
    for name in folder.names(layout.CONFIGS):
        if name.removesuffix(".json") not in known:
            locate(folder.root, f"{layout.CONFIGS}/{name}").unlink()
    for name in folder.names(layout.HISTORIES):
        if name not in known:
            shutil.rmtree(locate(folder.root, f"{layout.HISTORIES}/{name}"))


def has_record(run: Run) -> bool:
    """Whether a run is a finished turn of the conversation; members' runs are part of their leader's."""
    return run.parent_run_id is None and run.status in TERMINAL


def files(root: Path, thread_id: UUID) -> list[str]:
    """The projections of a thread that there are."""
    histories = sorted((root / layout.histories(thread_id)).glob("*.json"))
    return [layout.config(thread_id), *(str(path.relative_to(root)) for path in histories)]


def _is_archived(folder: Folder, head: Thread, run_id: UUID, turn: int) -> bool:
    return not folder.exists(layout.log(head.id, run_id)) and folder.exists(layout.history(head.id, turn))


def _write(folder: Folder, path: str, value: Mapping[str, Any]) -> None:
    disk.replace(locate(folder.root, path), codec.dumps(value) + b"\n")
