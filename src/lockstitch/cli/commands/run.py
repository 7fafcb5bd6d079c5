"""run, start, resume, retry, cancel, fork, chat."""

import asyncio
import sys
import time
from typing import Annotated, Any

import typer

from lockstitch.cli import options
from lockstitch.cli.options import AgentName, ThreadName, User, examples
from lockstitch.cli.render.output import plural
from lockstitch.cli.render.progress import RunProgress
from lockstitch.cli.runs import Listener, drive, finish_command, open_for_app, prompting, report, resuming, tell_doubts
from lockstitch.cli.session import now, session_of
from lockstitch.errors import Refused
from lockstitch.model import Json, Thread, new_id
from lockstitch.store import Store
from lockstitch.sync import SyncStore

app = typer.Typer()

AT_ONCE = 50
"""Threads that `start` makes at the same time: they share commits."""

PATIENCE = 5.0
"""Seconds in which another process is expected to notice that its run is to end."""


@app.command(
    epilog=examples(
        'lockstitch run helper "Write to Ada" --app shop:app',
        'lockstitch run helper "And to Bob" --thread customer-42 --json',
        "git diff | lockstitch run reviewer -",
    )
)
def run(
    context: typer.Context,
    agent: AgentName,
    prompt: Annotated[str, typer.Argument(metavar="PROMPT", help="What to do; - reads stdin.", show_default=False)],
    thread: Annotated[
        str | None, typer.Option(metavar="THREAD", help="Go on with this thread, by id or key; made if unknown.")
    ] = None,
    user: User = None,
) -> None:
    """Give an agent something to do, and drive it here to its end.

    The answer goes to stdout, what happens on the way to stderr. Exit code 4: it waits for somebody; the message says
    which command answers. Ctrl-C gives the thread back, and `resume` goes on with it.
    """
    session = session_of(context)
    code = session.app()
    chosen = code.agent(agent)
    text = _prompt(prompt)
    with open_for_app(session, code, create=True) as store:
        act = prompting(chosen, text, thread=thread, user_id=user)
        result = drive(store, act, RunProgress(session.out), name=thread)
        assert result is not None
        report(session, result, thread or str(result["thread_id"]))


@app.command(
    epilog=examples(
        'lockstitch start clerk --goal "Close the day" --app shop:app',
        'lockstitch start clerk --goal "Tidy up" --count 100 --json',
        'lockstitch start clerk --goal "Open the shop" --at 2026-01-31T07:00Z --priority 5',
    )
)
def start(
    context: typer.Context,
    agent: AgentName,
    goal: Annotated[str, typer.Option(metavar="G", help="What is to be reached.", show_default=False)],
    count: Annotated[int, typer.Option(min=1, max=100_000, metavar="N", help="So many threads.")] = 1,
    key: Annotated[str | None, typer.Option(metavar="K", help="The thread's key, for one thread.")] = None,
    at: Annotated[
        str | None, typer.Option(metavar="TIME", help="Not before then: in 90s, 15m, 12h, 7d, or at a date.")
    ] = None,
    priority: Annotated[int, typer.Option(metavar="N", help="Those with a higher one come first.")] = 0,
    user: User = None,
) -> None:
    """Make threads with a goal, and print their ids. Nothing runs yet: a worker or `resume` drives them."""
    session = session_of(context)
    if key is not None and count > 1:
        raise Refused("--key names one thread, and --count asks for several.")
    if not goal.strip():
        raise Refused("The goal is empty.")
    when = None if at is None else options.later(at, now(), "--at")
    code = session.app()
    chosen = code.agent(agent)
    wanted: dict[str, Any] = {"goal": goal, "key": key, "user_id": user, "at": when, "priority": priority}
    with open_for_app(session, code, create=True) as store:
        for done in range(0, count, AT_ONCE):

            async def make(number: int) -> list[Thread]:
                making = (chosen.start(store=store.async_store, **wanted) for _ in range(number))
                return list(await asyncio.gather(*making))

            for made in store.portal.call(make(min(AT_ONCE, count - done))):
                if session.json_output:
                    session.out.json({"id": str(made.id), "key": made.key, "status": made.status})
                else:
                    session.out.line(str(made.id))
    session.out.note(f"Started {plural(count, 'thread')}; `lockstitch worker` drives them, `lockstitch resume` one.")


@app.command(epilog=examples("lockstitch resume customer-42 --app shop:app", "lockstitch resume customer-42 --json"))
def resume(
    context: typer.Context,
    thread: ThreadName,
    take_over: Annotated[
        bool, typer.Option("--take-over", help="Even from a holder whose lease has not run out: you know it is dead.")
    ] = False,
) -> None:
    """Go on with a thread that was cut off, or got what it waited for."""
    session = session_of(context)
    code = session.app()
    with open_for_app(session, code) as store:
        head = store.thread(thread)
        result = drive(store, resuming(code, head, take_over=take_over), RunProgress(session.out), name=thread)
        finish_command(session, store, result, head, thread)


@app.command(epilog=examples("lockstitch retry customer-42 --app shop:app"))
def retry(context: typer.Context, thread: ThreadName) -> None:
    """Try a failed or cancelled run again: a new run on the same context."""
    session = session_of(context)
    code = session.app()
    with open_for_app(session, code) as store:
        head = store.thread(thread)
        chosen = code.agent(head.agent)

        async def again(inner: Store, listener: Listener) -> None:
            await chosen.retry(head, store=inner, listener=listener)

        result = drive(store, again, RunProgress(session.out), name=thread)
        finish_command(session, store, result, head, thread)


@app.command(epilog=examples("lockstitch cancel customer-42"))
def cancel(context: typer.Context, thread: ThreadName) -> None:
    """End a thread's open run, whoever drives it. What was streamed so far is kept."""
    from lockstitch import sync

    session = session_of(context)
    with session.open() as store:
        head = sync.cancel(store, thread)
        until = time.monotonic() + PATIENCE
        while head.cancel_requested and time.monotonic() < until:
            time.sleep(0.05)
            head = store.thread(head)
        doubts = _doubts(store, head)
    if session.json_output:
        asked = head.cancel_requested
        told: Json = {"id": str(head.id), "status": head.status, "cancel_requested": asked}
        session.out.json({**told, "in_doubt": doubts} if doubts else told)
    elif head.cancel_requested:
        session.out.line(f"Asked the holder of thread {head.id} to end its run; it has not done so yet.")
    else:
        session.out.line(f"Cancelled. Thread {head.id} {_state(head)}.")
        tell_doubts(RunProgress(session.out), doubts)


@app.command(epilog=examples("lockstitch fork customer-42 --at 17", "lockstitch fork customer-42 --key what-if"))
def fork(
    context: typer.Context,
    thread: ThreadName,
    at: Annotated[
        int | None, typer.Option(metavar="POS", help="The last position that the fork knows of; else all.")
    ] = None,
    key: Annotated[str | None, typer.Option(metavar="K", help="The new thread's key.")] = None,
) -> None:
    """Make a thread that goes on from a position of another.

    Its id is printed. The other thread is not touched; calls that were open there are answered with an error.
    """
    session = session_of(context)
    with session.open() as store:
        made = store.fork(thread, at=at, **({"key": key} if key else {}))
    if session.json_output:
        session.out.json({"id": str(made.id), "key": made.key, "forked_from": made.state["forked_from"]})
    else:
        session.out.line(str(made.id))


def _doubts(store: SyncStore, head: Thread) -> list[Json]:
    """Return the calls in doubt of the last run, if it has ended."""
    from lockstitch.engine.decision.in_doubt import shown

    runs = [run for run in store.runs(head) if run.parent_run_id is None]
    return shown(runs[-1]) if runs and not runs[-1].open else []


def _prompt(given: str) -> str:
    text = given
    if given == "-":
        try:
            text = sys.stdin.buffer.read().decode()
        except UnicodeDecodeError as exc:
            raise Refused(f"What stdin holds is not valid UTF-8: {exc.reason} at byte {exc.start}.") from exc
    if not text.strip():
        raise Refused("The prompt is empty.")
    return text


def _state(head: Thread) -> str:
    return "waits for input" if head.status == "waiting" else f"is {head.status}"


@app.command(
    epilog=examples(
        "lockstitch chat helper --app shop:app",
        "lockstitch chat helper --thread customer-42 --user ada",
        "printf 'Hello\\nAnd now?\\n' | lockstitch chat helper",
    )
)
def chat(
    context: typer.Context,
    agent: AgentName,
    thread: Annotated[
        str | None, typer.Option(metavar="THREAD", help="The thread to talk in, by id or key; made if unknown.")
    ] = None,
    user: User = None,
) -> None:
    """Talk with an agent, line by line.

    Ctrl-C during an answer ends the answer and keeps what was said of it; Ctrl-C at the prompt, or Ctrl-D, leaves.
    Calls that need a person are asked about here. Killed in the middle, the same command first finishes what was
    begun. With --json an object per turn, as `run` gives it.
    """
    from lockstitch.cli.services.chat import ChatLoop

    session = session_of(context)
    code = session.app()
    chosen = code.agent(agent)
    # A name before the first word, so that a conversation cut off in its first answer is found again.
    name = thread or str(new_id())
    with open_for_app(session, code, create=True) as store:
        if thread is None:
            session.out.note(f"Thread {name}; `lockstitch chat {agent} --thread {name}` comes back to it.")
        left = ChatLoop(session, store, code, chosen, name).talk(user)
    if left:
        raise typer.Exit(left)
