"""Write the `agent_config` and `conversation_history` files.

The store never reads them. A lost or stale file is rebuilt from the log.
"""

import re
import shutil
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Final, cast
from uuid import UUID

from lockstitch.backends.files import disk, log, tables
from lockstitch.backends.files.disk import locate
from lockstitch.backends.files.transaction import Folder
from lockstitch.model import (
    TERMINAL_STATUSES,
    File,
    FrontendToolWait,
    Json,
    Run,
    Stitch,
    Thread,
    answer_of,
    codec,
    context,
    format_time,
    generated_files,
    history,
    open_calls,
    text_of,
)
from lockstitch.model.context import frontend_calls, kept_positions, replaced_positions, replaces_context

_DEFAULTS: Final[Mapping[str, Any]] = {
    "max_steps": 50,
    "thinking_tokens": 0,
    "max_tokens": 2048,
    "tool_schemas": [],
    "server_tools": [],
    "beta_headers": [],
    "api_kwargs": {},
    "formatter": "json",
    "stream_meta_history_and_tool_results": False,
    "compactor_type": "none",
    "memory_store_type": "none",
    "max_retries": 5,
    "base_delay": 1.0,
}


_SHA256: Final = re.compile("[0-9a-f]{64}")


def agent_config_of(folder: Folder, head: Thread) -> Json:
    """Return the agent_config document of a thread, with its keys in the usual order."""
    stitches = _context_stitches(folder, head)
    facts = tables.facts_of_runs(folder, head.id)
    newest = max(facts, key=lambda run_id: facts[run_id].sequence, default=None)
    last_run = tables.run(folder, head.id, newest) if newest else None
    open_runs = [
        run for run_id in facts if not facts[run_id].ended and (run := tables.run(folder, head.id, run_id)) is not None
    ]
    settings = {**head.settings, **_texts(folder, head)}
    setting = {name: _or_default(settings.get(name), default) for name, default in _DEFAULTS.items()}
    state = _state(head, open_runs)
    answered = [stitch for stitch in stitches if stitch.type == "llm_call" and stitch.input_tokens is not None]
    return {
        "agent_uuid": str(head.id),
        "system_prompt": settings.get("system_prompt") or "",
        "model": _model(head, last_run),
        "max_steps": setting["max_steps"],
        "thinking_tokens": setting["thinking_tokens"],
        "max_tokens": setting["max_tokens"],
        "container_id": state.get("container_id"),
        "messages": context(stitches),
        "tool_schemas": setting["tool_schemas"],
        "tool_names": [schema.get("name") for schema in setting["tool_schemas"]],
        "server_tools": setting["server_tools"],
        "beta_headers": setting["beta_headers"],
        "api_kwargs": setting["api_kwargs"],
        "formatter": setting["formatter"],
        "stream_meta_history_and_tool_results": setting["stream_meta_history_and_tool_results"],
        "compactor_type": setting["compactor_type"],
        "memory_store_type": setting["memory_store_type"],
        "file_registry": {file.file_id: _registered(file) for file in tables.files(folder, head.id)},
        "max_retries": setting["max_retries"],
        "base_delay": setting["base_delay"],
        "last_known_input_tokens": (answered[-1].input_tokens or 0) if answered else 0,
        "last_known_output_tokens": (answered[-1].output_tokens or 0) if answered else 0,
        **_relay(folder, head, open_runs, stitches, state),
        "title": head.title,
        "extras": head.extras,
        "created_at": format_time(head.created_at),
        "updated_at": format_time(head.updated_at),
        "last_run_at": _time(head.last_run_at),
        "total_runs": head.total_runs,
    }


def _context_stitches(folder: Folder, head: Thread) -> list[Stitch]:
    """Return the stitches of the context: those from its start on, and those that its compaction keeps."""
    stitches = log.read(folder, head.id, [(head.context_from, None)])
    start = next((stitch for stitch in reversed(stitches) if stitch.lane is None and replaces_context(stitch)), None)
    if start is None or start.type == "fork":
        return stitches
    replaced = [(position, position) for position in replaced_positions(start)]
    return log.read(folder, head.id, [(head.context_from, None), *kept_positions(start), *replaced])


def _relay(folder: Folder, head: Thread, open_runs: Sequence[Run], stitches: Sequence[Stitch], state: Json) -> Json:
    """Return the state of a wait for frontend tools, from the log. Empty if the thread does not wait for them."""
    awaiting = head.status == "waiting" and any(isinstance(wait, FrontendToolWait) for wait in head.waits)
    pending: list[Json] = []
    results: list[Json] = []
    lines: list[Json] = []
    if awaiting:
        lanes = {stitch.lane for stitch in stitches}
        open_ = [open_call for lane in lanes for open_call in open_calls(stitches, lane)]
        pending = frontend_calls(stitches, head.waits)
        responses = {response.position for response, _ in open_}
        answers = [stitch for stitch in stitches if stitch.type == "tool_call" and stitch.reply_to in responses]
        results = [answer.message for answer in answers if answer.message is not None]
        lines = [
            message
            for run in open_runs
            if run.parent_run_id is None
            for message in history(tables.stitches_of_run(folder, run), run.id)
        ]
    steps = max((run.steps for run in open_runs), default=0)
    return {
        "pending_frontend_tools": pending,
        "pending_backend_results": results,
        "awaiting_frontend_tools": awaiting,
        "current_step": state.get("current_step", steps),
        "conversation_history": lines,
    }


def _state(head: Thread, open_runs: Sequence[Run]) -> Json:
    """Return the engine's state: that of the thread, overridden by that of the open top-level run."""
    top = [run for run in open_runs if run.parent_run_id is None]
    return {**head.state, **(top[-1].state if top else {})}


def _texts(folder: Folder, head: Thread) -> Json:
    """Return the instructions and tools of the latest run. Threads refer to them by hash."""
    digests: Any = head.settings.get("texts")
    result: Json = {}
    for name, key in (("system", "system_prompt"), ("tools", "tool_schemas")):
        digest = str(cast("Json", digests).get(name)) if isinstance(digests, dict) else ""
        # Callers can write settings, and a file name is built from this value.
        content = folder.content(disk.blob(digest)) if _SHA256.fullmatch(digest) else None
        if content is not None:
            result[key] = content.decode() if name == "system" else codec.loads(content)
    return result


def _model(head: Thread, last_run: Run | None) -> str:
    model = head.settings.get("model") or (last_run.model if last_run else None) or ""
    return str(model).rpartition(":")[2]


def _or_default(value: Any, default: Any) -> Any:
    return default if value is None else value


def _registered(file: File) -> Json:
    return {
        "filename": file.filename,
        "storage_path": file.storage_path,
        "size": file.size,
        "mime_type": file.mime_type,
        "created_in_run": str(file.created_in_run) if file.created_in_run else None,
        "last_updated_run": str(file.last_updated_run) if file.last_updated_run else None,
        "last_updated_at": format_time(file.last_updated_at),
    }


def _time(moment: datetime | None) -> str | None:
    return format_time(moment) if moment else None


def conversation_history_of(folder: Folder, run: Run) -> Json:
    """Return the conversation_history document of a finished top-level run."""
    stitches = tables.stitches_of_run(folder, run)
    body = {stitch.position: stitch.message for stitch in stitches}
    outside = [position for position in (run.input_position, run.output_position) if position and position not in body]
    # An input that came as a delivery may be outside the file of the run.
    for stitch in log.read(folder, run.thread_id, [(position, position) for position in outside]):
        body[stitch.position] = stitch.message
    answer = body.get(run.output_position or 0)
    return {
        "conversation_id": str(run.id),
        "agent_uuid": str(run.thread_id),
        "run_id": str(run.id),
        "started_at": format_time(run.started_at),
        "completed_at": format_time(run.completed_at) if run.completed_at else None,
        "user_message": text_of(body.get(run.input_position or 0)),
        "final_response": answer_of(answer) if answer else None,
        "messages": history(stitches, run.id),
        "stop_reason": run.stop_reason,
        "total_steps": run.steps,
        "usage": run.usage,
        "generated_files": generated_files(run, tables.files(folder, run.thread_id)),
        "cost": run.known_cost,
        "extras": run.extras,
        "sequence_number": run.turn,
        "created_at": format_time(run.completed_at or run.started_at),
    }


def recorded_turns(folder: Folder, thread_id: UUID) -> list[int]:
    """Return the turns that have a record, in order. Only numeric file names are records."""
    names = (name.removesuffix(".json") for name in folder.names(disk.histories(thread_id)))
    return sorted(int(name) for name in names if name.isascii() and name.isdigit())


KINDS = frozenset({"chat", "goal", "task"})
"""Kinds of threads that have projections. Traces were not executed by an agent of this store."""


def show(folder: Folder, thread_id: UUID, run_ids: Sequence[UUID]) -> None:
    """Write a thread's agent_config, and the conversation record of each of these runs that has one."""
    head = tables.head(folder, thread_id)
    if head is None or head.kind not in KINDS:
        return
    _write(folder, disk.config(thread_id), agent_config_of(folder, head))
    for run_id in run_ids:
        run = tables.run(folder, thread_id, run_id)
        if run is not None and has_record(run):
            _write(folder, disk.history(thread_id, run.turn), conversation_history_of(folder, run))
    turns = recorded_turns(folder, thread_id)
    if turns:
        index = {"last_sequence": turns[-1], "total_conversations": len(turns)}
        _write(folder, f"{disk.histories(thread_id)}/index.json", index)


def show_all(folder: Folder, thread_id: UUID) -> bool:
    """Rewrite all projections of a thread and remove those of deleted runs. Return True if the thread has any."""
    head = tables.head(folder, thread_id)
    if head is None or head.kind not in KINDS:
        return False
    finished = {run.turn: run.id for run in tables.runs(folder, thread_id) if has_record(run)}
    for turn in recorded_turns(folder, thread_id):
        if turn not in finished:
            locate(folder.root, disk.history(thread_id, turn)).unlink()
    # The messages of an archived run are still in its record, but no longer in the log.
    shown = [run_id for turn, run_id in finished.items() if not _is_archived(folder, head, run_id, turn)]
    show(folder, thread_id, shown)
    return True


def sweep(folder: Folder) -> None:
    """Remove the projections of deleted threads."""
    known = {str(thread_id) for thread_id in tables.ids_in(folder, disk.HEADS)}
    for name in folder.names(disk.CONFIGS):
        if name.removesuffix(".json") not in known:
            locate(folder.root, f"{disk.CONFIGS}/{name}").unlink()
    for name in folder.names(disk.HISTORIES):
        if name not in known:
            shutil.rmtree(locate(folder.root, f"{disk.HISTORIES}/{name}"))


def has_record(run: Run) -> bool:
    """True if the run is a finished turn of the conversation. Nested runs are part of their leader's turn."""
    return run.parent_run_id is None and run.status in TERMINAL_STATUSES


def files(root: Path, thread_id: UUID) -> list[str]:
    """Return the existing projections of a thread."""
    histories = sorted((root / disk.histories(thread_id)).glob("*.json"))
    return [disk.config(thread_id), *(str(path.relative_to(root)) for path in histories)]


def _is_archived(folder: Folder, head: Thread, run_id: UUID, turn: int) -> bool:
    return not folder.exists(disk.log(head.id, run_id)) and folder.exists(disk.history(head.id, turn))


def _write(folder: Folder, path: str, value: Mapping[str, Any]) -> None:
    disk.replace(locate(folder.root, path), codec.dumps(value) + b"\n")
