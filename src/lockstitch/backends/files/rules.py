"""What a database refuses by its constraints, refused here: rules of the record that hold whoever writes."""

from collections.abc import Iterable
from uuid import UUID

from lockstitch.backends.files import layout
from lockstitch.backends.files.folder import Folder
from lockstitch.backends.files.memory import Facts
from lockstitch.errors import Conflict, Refused
from lockstitch.records import Blob, Stitch, Thread


def check_head(head: Thread) -> None:
    """A goal or task has a goal, and a result exactly when it has ended, unless it was cancelled."""
    if head.parent_id == head.id:
        raise Refused(f"Thread {head.id} cannot be its own parent; nothing was written.")
    if head.kind not in ("goal", "task"):
        return
    if not head.goal:
        raise Refused(f"Thread {head.id} is a {head.kind} and needs a goal; nothing was written.")
    if head.status != "cancelled" and (head.status in ("completed", "failed")) != (head.result is not None):
        raise Refused(
            f"Thread {head.id} is {head.status}: a {head.kind} has a result exactly when it is completed or failed. "
            "Nothing was written."
        )


def require_blob(folder: Folder, sha256: str) -> None:
    """What is used must be there."""
    if not folder.exists(layout.record(Blob, (sha256,))):
        raise Refused(f"There is no blob {sha256} in this store; nothing was written.")


def check_stitch(stitch: Stitch) -> None:
    """A tool call names its tool and its call, a thread's result the thread; and nothing follows itself."""
    if stitch.previous_id == stitch.id:
        raise Refused(f"Stitch {stitch.id} cannot follow itself; nothing was written.")
    if stitch.type == "thread_result" and stitch.child_id is None:
        raise Refused(f"Stitch {stitch.id} is a thread_result and names no child_id; nothing was written.")
    if stitch.type == "tool_call" and (stitch.name is None or stitch.call_id is None):
        raise Refused(f"Stitch {stitch.id} is a tool_call and needs a name and a call_id; nothing was written.")


def check_runs(thread_id: UUID, runs: Iterable[Facts]) -> None:
    """The runs of one thread have each their sequence, and a turn has one run of the top lane."""
    sequences: set[int] = set()
    turns: set[int | None] = set()
    for sequence, turn, _ in runs:
        if sequence in sequences or (turn is not None and turn in turns):
            raise Conflict(
                f"Thread {thread_id} has another run with sequence {sequence} or turn {turn}; nothing was written.",
                thread_id=thread_id,
            )
        sequences.add(sequence)
        turns.add(turn)


def require_thread(folder: Folder, thread_id: UUID | None) -> None:
    if thread_id is not None and not folder.exists(layout.head(thread_id)):
        raise Refused(f"There is no thread {thread_id} in this store to which this belongs; nothing was written.")


def require_run(folder: Folder, thread_id: UUID, run_id: UUID | None) -> None:
    if run_id is not None and not folder.exists(layout.run(thread_id, run_id)):
        raise Refused(f"There is no run {run_id} of thread {thread_id} in this store; nothing was written.")
