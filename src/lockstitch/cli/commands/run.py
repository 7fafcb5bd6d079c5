"""`run`, `start`, `resume`, `retry`, `cancel`, `fork`, `chat`."""

import asyncio
import sys
import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lockstitch.cli.actions import actions_of
from lockstitch.cli.agent_choice import AgentChoice, app_or_stored
from lockstitch.cli.options import (
    AgentName,
    AgentOrModel,
    ApiKey,
    BaseUrl,
    MaxTokens,
    Mcp,
    System,
    ThreadName,
    User,
    Yes,
    examples,
)
from lockstitch.cli.references import find_thread, new_or_known
from lockstitch.cli.render.output import plural
from lockstitch.cli.render.progress import RunProgress
from lockstitch.cli.runs import (
    Listener,
    answers_in_text,
    execute,
    finish_command,
    open_for_app,
    prompting,
    report,
    resuming,
    show_doubts,
)
from lockstitch.cli.selection import (
    DryRun,
    Outcome,
    Selection,
    SinceFilter,
    StatusFilter,
    ThreadNames,
    execute_all,
    finish,
)
from lockstitch.cli.session import now, session_of
from lockstitch.errors import Refused
from lockstitch.model import Json, Thread, new_id
from lockstitch.model.message import user
from lockstitch.model.moment import later
from lockstitch.model.wait import without_next_message
from lockstitch.store import Store
from lockstitch.sync import SyncStore

if TYPE_CHECKING:
    from lockstitch.agents import Result

app = typer.Typer()

AT_ONCE = 50
"""Number of threads that `start` creates concurrently, so that they share commits."""

PATIENCE = 5.0
"""Seconds to wait until another process has ended the cancelled run."""


@app.command(
    epilog=examples(
        'lockstitch run helper "Write to Ada" --app shop:app',
        'lockstitch run helper "And to Bob" --thread customer-42 --json',
        "git diff | lockstitch run reviewer -",
        'lockstitch run openai:llama3 "Hi" --base-url http://localhost:11434/v1',
    )
)
def run(
    context: typer.Context,
    agent: AgentOrModel,
    prompt: Annotated[str, typer.Argument(metavar="PROMPT", help="The prompt. - reads stdin.", show_default=False)],
    thread: Annotated[
        str | None, typer.Option(metavar="THREAD", help="Thread to continue, by id or key. Created if new.")
    ] = None,
    user: User = None,
    message_id: Annotated[
        str | None,
        typer.Option(
            metavar="ID", help="Id of the message. A repeated id sends no second message.", show_default=False
        ),
    ] = None,
    base_url: BaseUrl = None,
    api_key: ApiKey = None,
    mcp: Mcp = None,
    system: System = None,
    max_tokens: MaxTokens = None,
) -> None:
    """Send a prompt to an agent and execute the run here to its end.

    AGENT is an agent of your app, or a model such as openai:gpt-5, which needs no app.

    The answer goes to stdout, progress to stderr. Exit code 4 means that the thread waits for you, and the message
    shows the command to reply with. Ctrl-C releases the thread, and `resume` continues it.
    """
    session = session_of(context)
    choice = AgentChoice(session, agent, base_url, api_key, mcp, system, max_tokens)
    text = _prompt(prompt)
    with open_for_app(session, choice.app, create=True) as store:
        thread = thread and new_or_known(store, thread)
        chosen = choice.agent(store, thread)
        act = prompting(chosen, text, thread=thread, user_id=user, message_id=message_id)
        progress = RunProgress(session.out, markdown=answers_in_text(chosen))
        result = execute(store, act, progress, name=thread)
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
    goal: Annotated[str, typer.Option(metavar="G", help="The goal of the thread.", show_default=False)],
    count: Annotated[int, typer.Option(min=1, max=100_000, metavar="N", help="Number of threads.")] = 1,
    key: Annotated[str | None, typer.Option(metavar="K", help="The key, for a single thread.")] = None,
    at: Annotated[
        str | None, typer.Option(metavar="TIME", help="Start not before: in 90s, 15m, 12h, 7d, or a date.")
    ] = None,
    priority: Annotated[int, typer.Option(metavar="N", help="Higher priorities come first.")] = 0,
    user: User = None,
) -> None:
    """Create threads with a goal and print their ids. A worker or `resume` executes them."""
    session = session_of(context)
    if key is not None and count > 1:
        raise Refused("--key cannot be combined with --count above 1.")
    if not goal.strip():
        raise Refused("The goal is empty.")
    when = None if at is None else later(at, now(), "--at")
    code = session.app()
    chosen = code.agent(agent)
    wanted: dict[str, Any] = {"goal": goal, "key": key, "user_id": user, "at": when, "priority": priority}
    with open_for_app(session, code, create=True) as store:
        for done in range(0, count, AT_ONCE):

            async def make(number: int) -> list[Thread]:
                making = (chosen.start(store=store.async_store, **wanted) for _ in range(number))
                return list(await asyncio.gather(*making))

            for thread in store.portal.call(make(min(AT_ONCE, count - done))):
                if session.json_output:
                    session.out.json({"id": str(thread.id), "key": thread.key, "status": thread.status})
                else:
                    session.out.line(str(thread.id))
    session.out.note(f"Started {plural(count, 'thread')}. `lockstitch worker` executes them, `lockstitch resume` one.")


@app.command(epilog=examples("lockstitch resume customer-42 --app shop:app", "lockstitch resume customer-42 --json"))
def resume(
    context: typer.Context,
    thread: ThreadName,
    take_over: Annotated[
        bool,
        typer.Option("--take-over", help="Take the thread from its holder at once. Use it only if the holder is dead."),
    ] = False,
    base_url: BaseUrl = None,
    api_key: ApiKey = None,
    mcp: Mcp = None,
) -> None:
    """Resume an interrupted thread, or a thread that has its reply.

    Without --app, the agent runs with its stored definition. --base-url, --api-key and --mcp are for this case.
    """
    session = session_of(context)
    code = app_or_stored(session, base_url, api_key, mcp)
    with open_for_app(session, code) as store:
        head = find_thread(store, thread)
        result = execute(store, resuming(code, head, take_over=take_over), RunProgress(session.out), name=thread)
        finish_command(session, store, result, head, thread)


@app.command(
    epilog=examples(
        "lockstitch retry customer-42 --app shop:app",
        "lockstitch retry --status failed --since 12h --dry-run",
        "lockstitch retry --status failed --since 12h --detach --yes --app shop:app",
    )
)
def retry(
    context: typer.Context,
    threads: ThreadNames = None,
    status: StatusFilter = None,
    since: SinceFilter = None,
    detach: Annotated[bool, typer.Option("--detach", help="Leave the new runs to a worker.")] = False,
    dry_run: DryRun = False,
    yes: Yes = False,
) -> None:
    """Retry failed or cancelled runs, each as a new run with its context.

    Several threads are executed here, 10 at once, unless --detach is set. The filter selects no child threads: their
    parents decide about them.
    """
    session = session_of(context)
    selection = Selection(threads or [], status, since, dry_run, yes, allowed=("failed", "cancelled"), roots=True)
    if selection.dry_run:
        with session.open() as store:
            selection.confirmed(session, store, "Retry")
        return
    code = app_or_stored(session)
    with open_for_app(session, code) as store:
        if selection.single is None or detach:

            async def retry_one(inner: Store, head: Thread) -> "Result | None":
                return await code.agent(head.agent).retry(head, store=inner, detach=detach)

            heads = selection.threads(store) if selection.single else selection.confirmed(session, store, "Retry")
            if heads:
                finish(session, "Retried", execute_all(session, store, heads, retry_one))
            return
        head = find_thread(store, selection.single)
        chosen = code.agent(head.agent)

        async def again(inner: Store, listener: Listener) -> None:
            await chosen.retry(head, store=inner, listener=listener)

        result = execute(store, again, RunProgress(session.out), name=selection.single)
        finish_command(session, store, result, head, selection.single)


@app.command(
    epilog=examples(
        "lockstitch regenerate customer-42 --app shop:app",
        "lockstitch regenerate customer-42 --turn 3 --message 'And in euros?'",
    )
)
def regenerate(
    context: typer.Context,
    thread: ThreadName,
    turn: Annotated[int | None, typer.Option(metavar="N", help="The turn to answer again. Default: the last.")] = None,
    message: Annotated[
        str | None, typer.Option(metavar="TEXT", help="The message to send instead; - reads stdin.")
    ] = None,
    base_url: BaseUrl = None,
    api_key: ApiKey = None,
    mcp: Mcp = None,
) -> None:
    """Answer the last turn again, in a fork that takes the thread's key.

    The old answer stays in the old thread, which has no key then. With --message, the edited message is sent instead.
    Without --app, the agent runs with its stored definition. --base-url, --api-key and --mcp are for this case.
    """
    session = session_of(context)
    code = app_or_stored(session, base_url, api_key, mcp)
    with open_for_app(session, code) as store:
        old = find_thread(store, thread)
        chosen = code.agent(old.agent)
        queued = store.regenerate(old, turn=turn, message=None if message is None else user(_prompt(message)))
        head, name = queued.thread, queued.thread.key or str(queued.thread.id)

        async def answer(inner: Store, listener: Listener) -> None:
            await chosen.resume(head, store=inner, listener=listener)

        result = execute(store, answer, RunProgress(session.out), name=name)
        finish_command(session, store, result, head, name)


@app.command(
    epilog=examples("lockstitch cancel customer-42", "lockstitch cancel --status pending --since 12h --dry-run")
)
def cancel(
    context: typer.Context,
    threads: ThreadNames = None,
    status: StatusFilter = None,
    since: SinceFilter = None,
    dry_run: DryRun = False,
    yes: Yes = False,
) -> None:
    """Cancel the open run of threads, also in another process. Streamed text is stored."""
    session = session_of(context)
    selection = Selection(
        threads or [], status, since, dry_run, yes, allowed=("pending", "running", "waiting"), only=_has_work
    )
    with session.open() as store:
        actions = actions_of(store)
        if selection.single is None:
            heads = selection.confirmed(session, store, "Cancel")
            if heads:
                outcomes = [Outcome.of(head, lambda head=head: actions.cancel(head).status) for head in heads]
                open_threads = any(outcome.status in selection.allowed for outcome in outcomes)
                finish(session, "Requested the cancel of" if open_threads else "Cancelled", outcomes)
            return
        head = actions.cancel(find_thread(store, selection.single))
        until = time.monotonic() + PATIENCE
        while head.cancel_requested and time.monotonic() < until:
            time.sleep(0.05)
            head = store.thread(head)
        doubts = _doubts(store, head)
    if session.json_output:
        cancel_requested = head.cancel_requested
        value: Json = {"id": str(head.id), "status": head.status, "cancel_requested": cancel_requested}
        session.out.json({**value, "in_doubt": doubts} if doubts else value)
    elif head.cancel_requested:
        session.out.line(f"Requested the cancel of thread {head.id}. Its holder has not ended the run yet.")
    else:
        session.out.line(f"Cancelled. Thread {head.id} {_state(head)}.")
        show_doubts(RunProgress(session.out), doubts)


@app.command(epilog=examples("lockstitch fork customer-42 --at 17", "lockstitch fork customer-42 --key what-if"))
def fork(
    context: typer.Context,
    thread: ThreadName,
    at: Annotated[int | None, typer.Option(metavar="POS", help="The last position to include. Default: all.")] = None,
    before_turn: Annotated[
        int | None, typer.Option(metavar="N", help="The first turn to leave out, instead of --at.")
    ] = None,
    key: Annotated[str | None, typer.Option(metavar="K", help="The new thread's key.")] = None,
    take_key: Annotated[bool, typer.Option("--take-key", help="Give the thread's key to the new thread.")] = False,
) -> None:
    """Create a thread from a position of another thread.

    Prints the new id. The other thread keeps its turns, and the history of the new thread shows them too. Calls that
    were open there get an error as their result.
    """
    session = session_of(context)
    with session.open() as store:
        result = store.fork(
            find_thread(store, thread), at=at, before_turn=before_turn, key=key or None, take_key=take_key
        )
    if session.json_output:
        session.out.json({"id": str(result.id), "key": result.key, "forked_from": result.state["forked_from"]})
    else:
        session.out.line(str(result.id))


def _has_work(head: Thread) -> bool:
    """True if the thread has an open run or is queued. An idle chat has nothing to cancel."""
    return head.status != "waiting" or bool(without_next_message(head.waits))


def _doubts(store: SyncStore, head: Thread) -> list[Json]:
    """Return the calls of the last run with an unknown outcome, if the run has ended."""
    from lockstitch.engine.decision.in_doubt import shown

    runs = [run for run in store.runs(head) if run.parent_run_id is None]
    return shown(runs[-1]) if runs and not runs[-1].open else []


def _prompt(value: str) -> str:
    text = value
    if value == "-":
        try:
            text = sys.stdin.buffer.read().decode()
        except UnicodeDecodeError as exc:
            raise Refused(f"stdin is not valid UTF-8: {exc.reason} at byte {exc.start}.") from exc
    if not text.strip():
        raise Refused("The prompt is empty.")
    return text


def _state(head: Thread) -> str:
    return "is idle" if head.status == "waiting" else f"is {head.status}"


@app.command(
    epilog=examples(
        "lockstitch chat helper --app shop:app",
        "lockstitch chat helper --thread customer-42 --user ada",
        "lockstitch chat openai:llama3 --base-url http://localhost:11434/v1",
        "printf 'Hello\\nAnd now?\\n' | lockstitch chat helper",
    )
)
def chat(
    context: typer.Context,
    agent: Annotated[
        str | None,
        typer.Argument(
            metavar="AGENT",
            help="An agent of your app, or a model like openai:gpt-5. Default: the agent of --thread.",
            show_default=False,
        ),
    ] = None,
    thread: Annotated[
        str | None, typer.Option(metavar="THREAD", help="The thread, by id or key. Created if new.")
    ] = None,
    user: User = None,
    base_url: BaseUrl = None,
    api_key: ApiKey = None,
    mcp: Mcp = None,
    system: System = None,
    max_tokens: MaxTokens = None,
) -> None:
    """Chat with an agent or a model, line by line.

    A model such as openai:gpt-5 needs no app. Type /help for the commands of a chat. Ctrl-C during an answer cancels
    the answer and stores its text so far. Ctrl-C at the prompt, or Ctrl-D, leaves. The command asks you about calls
    that need a reply. After a crash, the same command first finishes the interrupted run. With --json it prints one
    object per turn, as `run` does.
    """
    from lockstitch.cli.services.chat import ChatLoop

    session = session_of(context)
    if agent is None and thread is None:
        raise Refused("The chat needs an agent or a model, or the thread of an earlier chat (--thread).")
    choice = AgentChoice(session, agent, base_url, api_key, mcp, system, max_tokens)
    # A name before the first message, so that a conversation that crashes in its first answer can be found.
    name = thread or str(new_id())
    with open_for_app(session, choice.app, create=agent is not None) as store:
        name = new_or_known(store, name)
        chosen = choice.agent(store, thread and name)
        if thread is None:
            session.out.note(f"Thread {name}. Continue later with `{choice.command} --thread {name}`.")
        left = ChatLoop(session, store, choice.app, chosen, name).talk(user)
    if left:
        raise typer.Exit(left)
