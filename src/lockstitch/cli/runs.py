"""Execute threads from the command line: print progress, release on interrupt, and set the exit code."""

import signal
import threading
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

import typer

from lockstitch.cli.actions import actions_of
from lockstitch.cli.errors import warnings_to_stderr
from lockstitch.cli.exit_codes import ExitCode
from lockstitch.cli.render.output import one_line
from lockstitch.cli.render.progress import RunProgress, sums
from lockstitch.cli.render.threads import explain
from lockstitch.cli.session import Session
from lockstitch.errors import ThreadEnded, ThreadWaiting
from lockstitch.model import Json, Thread, parse_waits
from lockstitch.model.wait import without_next_message
from lockstitch.store import Store
from lockstitch.store.portal import CLOSE_TIMEOUT, PortalTask
from lockstitch.sync import SyncStore

if TYPE_CHECKING:
    from lockstitch.agents import Agent, App, Event

Listener = Callable[["Event"], None]
Act = Callable[[Store, Listener], Awaitable[object]]
"""Executes a thread on the store's event loop and reports its events to the listener."""

WAITING: Final = ExitCode.WAITING
CODES: Final = {"completed": ExitCode.OK, "waiting": WAITING}
"""Exit codes by the status of a run. Every other status is a failure."""

_NOT_STARTED: Final = "Interrupted before a run started."


class Interrupted(KeyboardInterrupt):
    """A signal asks this process to end."""


@contextmanager
def open_for_app(session: Session, app: "App", *, create: bool = False) -> Generator[SyncStore, None, None]:
    """Open the store for the agents of an app. Close the app's connections when the context ends."""
    with session.open(create=create) as store:
        try:
            yield store
        finally:
            with suppress(TimeoutError):
                store.portal.call(app.close(), CLOSE_TIMEOUT)


def answers_in_text(agent: "Agent") -> bool:
    """True if the answers of an agent are text, not JSON."""
    return agent.spec.static_definition.output_schema is None


def prompting(agent: "Agent", prompt: str, **call: Any) -> Act:
    """Return an action that sends a prompt to an agent."""

    async def act(store: Store, listener: Listener) -> None:
        async for event in agent.stream(prompt, store=store, **call):
            listener(event)

    return act


def resuming(app: "App", head: Thread, *, take_over: bool = False) -> Act:
    """Return an action that resumes a thread. It does nothing if the thread has ended."""

    async def act(store: Store, listener: Listener) -> None:
        with suppress(ThreadEnded):
            await app.resume(head, store=store, listener=listener, take_over=take_over)

    return act


def execute(
    store: SyncStore,
    act: Act,
    progress: RunProgress,
    *,
    name: str | None = None,
    stop: Callable[[], bool] | None = None,
) -> Json | None:
    """Execute the action and return the result as JSON, or None if there was nothing to do.

    An interrupt releases the thread. With `stop`, the first Ctrl-C calls `stop` instead. If `stop` returns True, this
    function continues to print events until the run ends.
    """
    result: Json | None = None
    thread: UUID | None = None
    with terminable(), warnings_to_stderr(as_json=progress.as_json, print_line=progress.warn):
        work: PortalTask[Event, object] = store.portal.begin(
            lambda listener: _awaited(act(store.async_store, listener))
        )
        try:
            while True:
                try:
                    for event in work:
                        thread = event.thread_id
                        progress.on_event(event)
                        if event.type == "finished":
                            result = event.data
                    work.result()
                    return result
                except KeyboardInterrupt as exc:
                    if stop is None or isinstance(exc, Interrupted) or not stop():
                        raise
                    stop = None
        except KeyboardInterrupt as exc:
            work.end()
            text = actions_of(store).interrupted_text(name or thread) if name or thread else _NOT_STARTED
            raise Interrupted(text) from exc
        except ThreadWaiting as exc:
            raise _reworded(store, exc, name) from exc
        finally:
            work.end()
            progress.end_line()
            progress.print_warnings()


def finish_command(session: Session, store: SyncStore, result: Json | None, head: Thread, name: str) -> None:
    """Print the result of a resumed thread and exit with its exit code. `result` is None if nothing was to do."""
    if result is None:
        _say_nothing_to_do(session, store, head)
    else:
        report(session, result, name)


def report(session: Session, result: Json, name: str) -> None:
    """Print the result of a run and exit with its exit code."""
    status = str(result["status"])
    if session.json_output:
        session.out.json({key: value for key, value in result.items() if key != "title"})
    else:
        progress = RunProgress(session.out)
        show_doubts(progress, result["in_doubt"] if status != "waiting" else [])
        progress.aside(f"thread {result['thread_id']} · {sums(result)}")
        if status == "waiting":
            session.out.note(explain(name, without_next_message(parse_waits(result["waiting_for"]))))
        elif text := outcome(result, name):
            session.out.note(text)
    code = CODES.get(status, ExitCode.FAILED)
    if code:
        raise typer.Exit(code)


def show_doubts(progress: RunProgress, doubts: list[Json]) -> None:
    """Print the calls with an unknown outcome."""
    for doubt in doubts:
        what = f"{one_line(str(doubt.get('name')))} {one_line(str(doubt.get('call_id')))}"
        progress.aside(f"{what} was interrupted and its outcome is unknown.", "yellow")


def outcome(result: Json, name: str) -> str | None:
    """Describe how a run ended. Return None if its answer is complete."""
    if result["status"] == "completed":
        return "The answer was cut at max_tokens." if result["stop_reason"] == "max_tokens" else None
    if result["status"] == "cancelled":
        return "The run was cancelled."
    text = one_line(str(result.get("error") or "the reason is unknown"))
    return f"The run failed: {text.rstrip('.')}. Run `lockstitch retry {one_line(name)}` to try again."


def _say_nothing_to_do(session: Session, store: SyncStore, head: Thread) -> None:
    """Print that there is nothing to do, and the status of the thread. As JSON, print the last run."""
    head = store.thread(head)
    runs = store.runs(head)
    if session.json_output:
        last = actions_of(store).result(runs[-1]) if runs else {"run_id": None}
        session.out.json({"thread_id": str(head.id), **last})
        return
    again = f" Run `lockstitch retry {head.id}` to try again." if head.status in ("failed", "cancelled") else ""
    state = "is idle" if head.status == "waiting" else f"is {head.status}"
    session.out.note(f"Nothing to do: thread {head.id} {state}.{again}")


async def _awaited(work: Awaitable[object]) -> object:
    return await work


def _reworded(store: SyncStore, exc: ThreadWaiting, name: str | None) -> ThreadWaiting:
    """Return the error with a message that names the commands for the open waits."""
    if exc.thread_id is None:
        return exc
    waits = without_next_message(store.thread(exc.thread_id).waits)
    text = explain(name or str(exc.thread_id), waits) if waits else None
    return type(exc)(text, thread_id=exc.thread_id) if text else exc


@contextmanager
def terminable() -> Generator[None, None, None]:
    """Turn SIGTERM and SIGHUP into `Interrupted`, so that the process can release the threads it holds."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {item: signal.signal(item, _interrupt) for item in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for signals, handler in before.items():
            signal.signal(signals, handler)


def _interrupt(number: int, _frame: object) -> None:
    # Ignore further signals: a second one would interrupt the release.
    signal.signal(number, signal.SIG_IGN)
    raise Interrupted
