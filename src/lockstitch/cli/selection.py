"""`Selection`: the threads that a command acts on, with preview and confirmation. `finish`: the results of each thread.

`retry`, `cancel`, `approve` and `delete` act on one thread, on several named threads, or on all threads with a status.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Final
from uuid import UUID

import typer
from rich.text import Text

from lockstitch.cli.actions import actions_of
from lockstitch.cli.exit_codes import ExitCode, of_several
from lockstitch.cli.options import confirm
from lockstitch.cli.references import find_thread
from lockstitch.cli.render.output import TableColumn, age, one_line, plural
from lockstitch.cli.render.progress import RunProgress
from lockstitch.cli.render.threads import name_of, reason_of, shown_id, status_word
from lockstitch.cli.runs import Interrupted, Listener, execute
from lockstitch.cli.session import Session, now
from lockstitch.errors import LockstitchError, Refused
from lockstitch.model import Json, Thread
from lockstitch.model.moment import moment_or_none
from lockstitch.store import Store
from lockstitch.sync import SyncStore

if TYPE_CHECKING:
    from lockstitch.agents import Result

STATUSES: Final = ("pending", "running", "waiting", "completed", "failed", "cancelled")

AT_ONCE: Final = 10
"""Number of threads that are executed concurrently."""

ThreadNames = Annotated[
    list[str] | None,
    typer.Argument(metavar="THREAD", help="Threads, by key, id or short id.", show_default=False),
]
StatusFilter = Annotated[
    str | None, typer.Option("--status", metavar="S", help="Instead of THREAD: all threads with this status.")
]
SinceFilter = Annotated[
    str | None, typer.Option("--since", metavar="TIME", help="With --status: only threads active since, like 12h.")
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show what the command would do, and change nothing.")]


@dataclass(frozen=True, slots=True)
class Selection:
    """The threads that a user names, or the filter that selects them."""

    names: Sequence[str]
    status: str | None = None
    since: str | None = None
    dry_run: bool = False
    yes: bool = False
    allowed: Sequence[str] = STATUSES
    """Statuses that the command accepts as a filter."""
    roots: bool = False
    """The filter selects no child threads, because their parents decide about them."""
    traces: bool = False
    """The filter also selects imported traces."""
    only: Callable[[Thread], bool] | None = None
    """Condition of the threads that the filter selects."""

    def __post_init__(self) -> None:
        if self.since is not None and self.status is None:
            raise Refused("--since needs --status.")
        if bool(self.names) == (self.status is not None):
            raise Refused("Pass the names of threads, or --status S. Nothing was changed.")
        if self.status is not None and self.status not in self.allowed:
            raise Refused(f"--status {self.status!r} is not valid here. Use one of: {', '.join(self.allowed)}.")

    @property
    def single(self) -> str | None:
        """The name, if the user names one thread and wants no preview."""
        return self.names[0] if len(self.names) == 1 and not self.dry_run else None

    def threads(self, store: SyncStore) -> list[Thread]:
        """Return the selected threads, each once: in the order of their names, or the latest first."""
        if self.names:
            named = [find_thread(store, name, complete=self.yes) for name in self.names]
            return list({thread.id: thread for thread in named}.values())
        selected = store.threads(
            status=self.status,
            since=moment_or_none(self.since, now(), "--since"),
            depth=0 if self.roots else None,
            limit=None,
        )
        native = [thread for thread in selected if self.traces or thread.kind != "trace"]
        return [thread for thread in native if self.only is None or self.only(thread)]

    def confirmed(
        self,
        session: Session,
        store: SyncStore,
        verb: str,
        describe: Callable[[Thread], str] | None = None,
        amount: Callable[[Sequence[Thread]], str] | None = None,
    ) -> list[Thread]:
        """Show the selected threads and return them after the user has confirmed; nothing in a dry run.

        Args:
            session: Session of the command.
            store: Open store.
            verb: Action for the question, for example "Retry".
            describe: Function that returns the text of the last column. None: the reason of a failure.
            amount: Function that returns the number of threads for the question. None: the selected threads.

        Raises:
            typer.Exit: If the user declines.
        """
        heads = self.threads(store)
        number = plural(len(heads), "thread") if amount is None else amount(heads)
        if self.dry_run:
            if session.json_output:
                session.out.json({"dry_run": True, "threads": [_row(head) for head in heads]})
            elif heads:
                _show(session, store, heads, describe)
                session.out.note(f"Dry run: {verb.lower()} {number}. Nothing was changed.")
        if not heads:
            if session.json_output and not self.dry_run:
                session.out.json({"threads": []})
            session.out.note("No threads match. Nothing was changed.")
        if not heads or self.dry_run:
            return []
        if not self.yes and not session.json_output:
            _show(session, store, heads, describe)
        if not confirm(f"{verb} {number}?", yes=self.yes):
            session.out.note("Nothing was changed.")
            raise typer.Exit(ExitCode.FAILED)
        return heads


def _row(head: Thread) -> Json:
    return {"id": str(head.id), "key": head.key, "status": head.status}


def _show(
    session: Session, store: SyncStore, heads: Sequence[Thread], describe: Callable[[Thread], str] | None
) -> None:
    moment = now()
    columns = [TableColumn("THREAD"), TableColumn("STATUS"), TableColumn("AGE", right=True)]
    columns += [
        TableColumn("NAME", flexible=True),
        TableColumn("REASON" if describe is None else "CALL", flexible=True),
    ]
    texts = [reason_of(overview) for overview in store.overview(heads)] if describe is None else [*map(describe, heads)]
    rows: list[list[str | Text]] = [
        [
            shown_id(session.out, head.id),
            status_word(head.status),
            age(head.active_at, moment),
            Text(name_of(head)),
            text,
        ]
        for head, text in zip(heads, texts, strict=True)
    ]
    session.out.table(columns, rows)


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of the action for one thread."""

    thread: Thread
    status: str
    error: str | None = None

    @classmethod
    def of(cls, thread: Thread, act: Callable[[], str]) -> "Outcome":
        """Return the outcome of `act`, which returns the new status. An error of Lockstitch is an outcome."""
        try:
            return cls(thread, act())
        except LockstitchError as exc:
            return cls(thread, thread.status, str(exc))


def finish(session: Session, done: str, outcomes: Sequence[Outcome]) -> None:
    """Print the outcomes and exit with the exit code: 6 if some failed, 1 if all failed.

    Args:
        session: Session of the command.
        done: Participle for the last line, for example "Retried".
        outcomes: One outcome per thread.
    """
    failed = [outcome for outcome in outcomes if outcome.error is not None]
    if session.json_output:
        rows = [
            {**_row(outcome.thread), "status": outcome.status, **({"error": outcome.error} if outcome.error else {})}
            for outcome in outcomes
        ]
        session.out.json({"threads": rows})
    else:
        for outcome in outcomes:
            name = Text(name_of(outcome.thread) or shown_id(session.out, outcome.thread.id))
            parts = [name, status_word(outcome.status)]
            session.out.line(Text("  ").join([*parts, *([Text(one_line(outcome.error))] if outcome.error else [])]))
        problems = f" {plural(len(failed), 'thread')} failed." if failed else ""
        session.out.note(f"{done} {plural(len(outcomes), 'thread')}.{problems}")
    code = of_several(len(outcomes) - len(failed), len(failed))
    if code:
        raise typer.Exit(code)


Execute = Callable[[Store, Thread], Awaitable["Result | None"]]
"""Executes a thread. None, or a run that is still running: a worker executes it."""


def execute_all(session: Session, store: SyncStore, heads: Sequence[Thread], act: Execute) -> list[Outcome]:
    """Execute several threads here, some at once, and return their outcomes. Ctrl-C releases all of them."""
    outcomes: dict[UUID, Outcome] = {}

    async def work(inner: Store, _: Listener) -> None:
        room = asyncio.Semaphore(AT_ONCE)

        async def one(head: Thread) -> None:
            async with room:
                try:
                    result = await act(inner, head)
                except LockstitchError as exc:
                    outcomes[head.id] = Outcome(head, head.status, str(exc))
                    return
            if result is None or result.status == "running":
                outcomes[head.id] = Outcome(head, (await inner.thread(head)).status)
                return
            failed = result.status in ("failed", "cancelled")
            outcomes[head.id] = Outcome(
                head, result.status, (result.error or "the reason is unknown") if failed else None
            )

        await asyncio.gather(*map(one, heads))

    try:
        execute(store, work, RunProgress(session.out))
    except Interrupted as exc:
        raise Interrupted(actions_of(store).interrupted_text(None)) from exc
    return [outcomes[head.id] for head in heads]
