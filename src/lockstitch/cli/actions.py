"""`ThreadActions`: replies, control and reports of commands that a store does not have as methods.

In a database, the actions run in this process. On a server, `lockstitch.cli.remote` sends them over HTTP.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol
from uuid import UUID

from lockstitch import sync
from lockstitch.errors import NotFound
from lockstitch.model import Feedback, Json, Run, Thread
from lockstitch.sync import SyncStore

if TYPE_CHECKING:
    from lockstitch.agents.evals.stored_datasets import Datasets
    from lockstitch.agents.evals.stored_evals import Evals
    from lockstitch.engine.replies import PendingReply
    from lockstitch.store.alerts import Alerts
    from lockstitch.store.reports.dashboard import Dashboard

Ref = Thread | str
"""A thread, its id or its key."""


class AgentNotOnServer(NotFound):
    """The server does not have the agent of this thread."""

    wire_name = "NotFound"


class SnapshotReader(Protocol):
    """Reads snapshots of open threads and workers."""

    async def read(self) -> "Dashboard":
        """Return a snapshot."""
        ...


class ThreadActions:
    """The actions on threads of a database."""

    def __init__(self, store: SyncStore) -> None:
        self._store = store

    def pending(self, head: Thread) -> "list[PendingReply]":
        """Return the calls of a thread that wait for a reply."""
        from lockstitch.engine.replies import pending_replies

        return self._store.portal.call(pending_replies(self._store.async_store, head))

    def inbox(self, limit: int) -> "tuple[list[tuple[Thread, list[PendingReply]]], int]":
        """Return the threads that wait for a person with their calls, and the number of all such threads."""
        from lockstitch.engine.replies import waiting_calls

        store = self._store
        waiting = [
            (head, store.portal.call(waiting_calls(store.async_store, head)))
            for head in store.awaiting_person(limit=limit)
        ]
        return waiting, store.count_awaiting_person()

    def approve(self, ref: Ref, call_id: str) -> None:
        """Approve a call."""
        sync.approve(self._store, ref, call_id)

    def deny(self, ref: Ref, call_id: str, *, reason: str | None) -> None:
        """Deny a call."""
        sync.deny(self._store, ref, call_id, reason=reason)

    def settle(
        self, ref: Ref, call_id: str, *, done: str | None = None, redo: bool = False, unknown: bool = False
    ) -> None:
        """State the outcome of a call in doubt."""
        sync.settle(self._store, ref, call_id, done=done, redo=redo, unknown=unknown)

    def answer(self, ref: Ref, text: str, *, call_id: str | None = None) -> None:
        """Answer a question."""
        sync.answer(self._store, ref, text, call_id=call_id)

    def submit_results(self, ref: Ref, results: Sequence[Json]) -> None:
        """Submit the results of frontend calls."""
        sync.submit_results(self._store, ref, results)

    def cancel(self, ref: Ref) -> Thread:
        """Cancel the open run. Return the thread afterwards."""
        return sync.cancel(self._store, ref)

    def result(self, run: Run) -> Json:
        """Return the result of a run as JSON."""
        from lockstitch.engine.result import result_from_store

        return self._store.portal.call(result_from_store(self._store.async_store, run)).as_json()

    def export_run(self, run_id: UUID) -> list[Json]:
        """Return a run as LangSmith run objects."""
        from lockstitch.integrations.langsmith.export import export_run

        return self._store.portal.call(export_run(self._store.async_store, str(run_id)))

    def dashboard(self, *, all_projects: bool, thread_id: UUID | None) -> SnapshotReader:
        """Return the reader of the dashboard: of all open threads, or of one thread with its descendants."""
        from lockstitch.store.reports.dashboard import DashboardReader

        return DashboardReader(self._store.async_store, all_projects=all_projects, thread_id=thread_id)

    def feedback(
        self,
        *,
        thread: Thread | None,
        run: UUID | None,
        name: str | None,
        user_id: str | None,
        source: str | None,
        limit: int,
    ) -> list[Feedback]:
        """Return feedback of the project, oldest first."""
        from lockstitch.store.annotation import find_feedback

        store = self._store
        found = find_feedback(
            store.async_store, thread=thread, run=run, name=name, user_id=user_id, source=source, limit=limit
        )
        return store.portal.call(found)

    def give_feedback(self, name: str, **fields: Any) -> Feedback:
        """Store feedback on a thread, a run or a stitch, and return it."""
        from lockstitch.store.annotation import give_feedback

        return self._store.portal.call(give_feedback(self._store.async_store, name, **fields))

    def remove_feedback(self, feedback_id: UUID) -> None:
        """Delete feedback."""
        from lockstitch.store.annotation import remove_feedback

        store = self._store
        removed = store.portal.call(remove_feedback(store.async_store, feedback_id))
        store.portal.call(
            store.async_store.audits.record("command line", "delete feedback", str(removed.id), name=removed.name)
        )

    def alerts(self) -> "Alerts":
        """Return the alerts of the store. Their methods are for the portal of the store."""
        from lockstitch.store.alerts import Alerts

        return Alerts(self._store.async_store)

    def datasets(self) -> "Datasets":
        """Return the datasets of the store. Their methods are for the portal of the store."""
        from lockstitch.agents.evals.stored_datasets import Datasets

        return Datasets(self._store.async_store)

    def evals(self) -> "Evals":
        """Return the evaluations of the store. Their methods are for the portal of the store."""
        from lockstitch.agents.evals.stored_evals import Evals

        return Evals(self._store.async_store)

    def reply_text(self, name: str) -> str:
        """Return the message after a reply without a resume."""
        return f"Reply stored. Run `lockstitch resume {name} --app module:name` to continue."

    def interrupted_text(self, name: object | None) -> str:
        """Return the message after an interrupt of a run, or of several runs if `name` is None."""
        if name is None:
            return "Interrupted. The threads were released. `lockstitch worker` or `lockstitch resume` continues them."
        return f"Interrupted. The thread was released. Run `lockstitch resume {name}` to continue."


def actions_of(store: SyncStore) -> ThreadActions:
    """Return the actions on the threads of a store."""
    remote: type[ThreadActions] | None = getattr(store, "actions", None)
    return ThreadActions(store) if remote is None else remote(store)
