"""`inbox`, `approve`, `deny`, `settle`, `answer` and `submit`: find the threads that wait for a person, and reply.

A reply needs no agent code. If an app is set, the thread continues at once, as with `resume`.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated
from uuid import UUID

import typer
from rich.text import Text

from lockstitch.cli.actions import AgentNotOnServer, ThreadActions, actions_of
from lockstitch.cli.options import CallName, Limit, NoResume, ThreadName, Yes, examples
from lockstitch.cli.references import command_name, find_thread
from lockstitch.cli.render.messages import arguments_line
from lockstitch.cli.render.output import age, one_line, plural
from lockstitch.cli.render.progress import RunProgress
from lockstitch.cli.render.threads import name_of, reply_commands, shown_id, status_line
from lockstitch.cli.runs import execute, finish_command, open_for_app, resuming
from lockstitch.cli.selection import (
    DryRun,
    Outcome,
    Selection,
    SinceFilter,
    StatusFilter,
    execute_all,
    finish,
)
from lockstitch.cli.session import Session, now, session_of
from lockstitch.errors import NotFound, Refused, ThreadHeld, ThreadWaiting
from lockstitch.model import ApprovalWait, InDoubtWait, Json, QuestionWait, Thread
from lockstitch.store import Store
from lockstitch.sync import SyncStore

if TYPE_CHECKING:
    from lockstitch.agents import App, Result
    from lockstitch.engine.replies import PendingReply

app = typer.Typer()

Reply = Callable[[ThreadActions, Thread], None]

_NOUNS = {ApprovalWait.KIND: "approval", InDoubtWait.KIND: "its outcome", QuestionWait.KIND: "an answer"}
_WORDS = {
    ApprovalWait.KIND: "approval of",
    InDoubtWait.KIND: "outcome of",
    QuestionWait.KIND: "answer for",
    "frontend_tools": "frontend result of",
}


@app.command(epilog=examples("lockstitch inbox", "lockstitch inbox --json | jq -r '.[].commands[0]'"))
def inbox(context: typer.Context, limit: Limit = 50) -> None:
    """List the calls and questions that wait for a person, with the commands that reply. The longest wait comes first.

    With --json, it prints a list with one object per call.
    """
    session = session_of(context)
    with session.open() as store:
        waiting, number = actions_of(store).inbox(limit)
    if session.json_output:
        session.out.json([row for thread, replies in waiting for row in _rows(thread, replies)])
        return
    for place, (thread, replies) in enumerate(waiting):
        if place:
            session.out.line()
        _show(session, thread, replies)
    if not waiting:
        session.out.note("No thread waits for a person.")
    if number > len(waiting):
        session.out.note(f"Not shown: {plural(number - len(waiting), 'thread')}. Use a larger --limit.")


def _rows(thread: Thread, replies: "Sequence[PendingReply]") -> list[Json]:
    head: Json = {"thread_id": str(thread.id), "key": thread.key, "title": thread.title, "goal": thread.goal}
    return [
        {**head, "user_id": thread.user_id, "agent": thread.agent, **reply.as_json(), "commands": commands}
        for reply, commands in zip(replies, _commands(thread, replies), strict=True)
    ]


def _commands(thread: Thread, replies: "Sequence[PendingReply]") -> list[list[str]]:
    """Return the commands that reply to each call. A command names the call only if it must."""
    name = command_name(thread)
    ids = [reply.call_id for reply in replies]
    commands: list[list[str]] = []
    for reply in replies:
        alone = sum(other.kind == reply.kind for other in replies) == 1 and reply.kind != "frontend_tools"
        call = None if alone else reply.call_id if ids.count(reply.call_id) == 1 else reply.key
        commands.append(reply_commands(name, reply.kind, call))
    return commands


def _show(session: Session, thread: Thread, replies: "Sequence[PendingReply]") -> None:
    out = session.out
    parts = [Text(shown_id(out, thread.id), style="dim"), Text(name_of(thread), style="bold")]
    parts += [Text(part, style="dim") for part in (one_line(thread.agent), one_line(thread.user_id)) if part]
    out.line(Text("  ").join(part for part in parts if part.plain))
    moment = now()
    for reply, commands in zip(replies, _commands(thread, replies), strict=True):
        since = f", waits {age(reply.since, moment)}" if reply.since else ""
        member = f" of {one_line(reply.member)}" if reply.member else ""
        line = Text(f"{_WORDS.get(reply.kind, reply.kind)} ", style="yellow")
        out.line(line + Text(f"{arguments_line(reply.name, reply.input)}{member}{since}"), indent=2)
        if reply.question:
            out.line(one_line(reply.question), indent=4, mark=Text("? ", style="bold cyan"))
        for command in commands:
            out.line(command, indent=4)


@app.command(
    epilog=examples(
        "lockstitch approve customer-42",
        "lockstitch approve customer-42 call_1 --app shop:app",
        "lockstitch approve --status waiting --since 12h --dry-run",
    )
)
def approve(
    context: typer.Context,
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="THREAD [CALL]",
            help="A thread and a call, if several calls wait. Or several threads with one call each.",
            show_default=False,
        ),
    ] = None,
    status: StatusFilter = None,
    since: SinceFilter = None,
    no_resume: NoResume = False,
    dry_run: DryRun = False,
    yes: Yes = False,
) -> None:
    """Approve the call that waits for approval, of one thread or of several.

    If an app is set with --app or LOCKSTITCH_APP, the threads continue at once, as with `resume`.
    """
    session = session_of(context)
    names = names or []
    if len(names) in (1, 2) and status is None and not dry_run:
        with session.open() as store:
            call = _call_of(store, *names)
        if call is not None or len(names) == 1:

            def reply(actions: ThreadActions, head: Thread) -> None:
                actions.approve(head, call or _only(head, actions.pending(head), ApprovalWait.KIND))

            _reply(session, names[0], no_resume, reply)
            return
    selection = Selection(names, status, since, dry_run, yes, allowed=("waiting",), only=_needs_approval)
    _approve_several(session, selection, no_resume)


def _needs_approval(thread: Thread) -> bool:
    return any(isinstance(wait, ApprovalWait) for wait in thread.waits)


def _call_of(store: SyncStore, thread: str, second: str | None = None) -> str | None:
    """Return the second name if it is a call, or None if it is another thread."""
    if second is None:
        return None
    head = find_thread(store, thread)
    if any(second in (reply.call_id, reply.key) for reply in actions_of(store).pending(head)):
        return second
    try:
        find_thread(store, second)
    except NotFound:
        return second
    return None


def _only(head: Thread, replies: "Sequence[PendingReply]", kind: str) -> str:
    """Return the key of the only call that waits for a reply of this kind.

    Raises `Refused` with the commands to type if several calls wait, and `ThreadWaiting` if none waits.
    """
    matches = [reply for reply in replies if reply.kind == kind]
    if len(matches) == 1:
        return matches[0].key
    if not matches:
        raise ThreadWaiting(
            f"No call of thread {command_name(head)} waits for {_NOUNS[kind]}. The thread is {status_line(head)}.",
            thread_id=head.id,
        )
    commands = [
        f"`{commands[0]}` for {arguments_line(reply.name, reply.input)}"
        for reply, commands in zip(replies, _commands(head, replies), strict=True)
        if reply.kind == kind
    ]
    raise Refused(f"{len(matches)} calls of thread {command_name(head)} wait. Choose one: {', '.join(commands)}.")


def _approve_several(session: Session, selection: Selection, no_resume: bool) -> None:
    resumes = session.has_app and not no_resume and not selection.dry_run
    code = session.app() if resumes else None
    with session.open() if code is None else open_for_app(session, code) as store:
        actions = actions_of(store)
        shown: dict[UUID, list[PendingReply]] = {}

        def pending(thread: Thread) -> "list[PendingReply]":
            # Read once: the user confirms the calls that the table shows, and no later ones.
            if thread.id not in shown:
                shown[thread.id] = actions.pending(thread)
            return shown[thread.id]

        def describe(thread: Thread) -> str:
            calls = [reply for reply in pending(thread) if reply.kind == ApprovalWait.KIND]
            return ", ".join(arguments_line(call.name, call.input) for call in calls)

        def approve_call(head: Thread) -> str:
            actions.approve(head, _only(head, pending(head), ApprovalWait.KIND))
            return store.thread(head).status

        heads = selection.confirmed(session, store, "Approve the calls of", describe)
        outcomes = [Outcome.of(head, lambda head=head: approve_call(head)) for head in heads]
        if outcomes and code is not None:
            approved = [outcome.thread for outcome in outcomes if outcome.error is None]
            results = {outcome.thread.id: outcome for outcome in _resume_all(session, store, code, approved)}
            outcomes = [results.get(outcome.thread.id, outcome) for outcome in outcomes]
    if outcomes:
        finish(session, "Approved the calls of", outcomes)


def _resume_all(session: Session, store: SyncStore, code: "App", heads: Sequence[Thread]) -> list[Outcome]:
    async def resume(inner: Store, head: Thread) -> "Result | None":
        try:
            return await code.resume(await inner.thread(head), store=inner)
        except AgentNotOnServer:
            # A worker with this agent continues the thread.
            return None

    return execute_all(session, store, heads, resume)


@app.command(
    epilog=examples("lockstitch deny customer-42", 'lockstitch deny customer-42 call_1 --reason "too expensive"')
)
def deny(
    context: typer.Context,
    thread: ThreadName,
    call: CallName = None,
    reason: Annotated[str | None, typer.Option(metavar="TEXT", help="The reason, which the model receives.")] = None,
    no_resume: NoResume = False,
) -> None:
    """Deny the call that waits for approval.

    If an app is set with --app or LOCKSTITCH_APP, the thread continues at once, as with `resume`.
    """

    def reply(actions: ThreadActions, head: Thread) -> None:
        actions.deny(head, call or _only(head, actions.pending(head), ApprovalWait.KIND), reason=reason)

    _reply(session_of(context), thread, no_resume, reply)


@app.command(
    epilog=examples(
        'lockstitch settle customer-42 --done "charged, receipt 4711"',
        "lockstitch settle customer-42 call_1 --redo --app shop:app",
    )
)
def settle(
    context: typer.Context,
    thread: ThreadName,
    call: CallName = None,
    done: Annotated[str | None, typer.Option(metavar="TEXT", help="It completed, with this result.")] = None,
    redo: Annotated[bool, typer.Option("--redo", help="It did not happen. Run it again.")] = False,
    unknown: Annotated[bool, typer.Option("--unknown", help="Mark as unknown. The model is informed.")] = False,
    no_resume: NoResume = False,
) -> None:
    """Settle the call that was interrupted and has an unknown outcome.

    If an app is set with --app or LOCKSTITCH_APP, the thread continues at once, as with `resume`.
    """
    if (done is not None) + redo + unknown != 1:
        raise Refused("Pass exactly one of --done TEXT, --redo or --unknown.")

    def reply(actions: ThreadActions, head: Thread) -> None:
        name = call or _only(head, actions.pending(head), InDoubtWait.KIND)
        actions.settle(head, name, done=done, redo=redo, unknown=unknown)

    _reply(session_of(context), thread, no_resume, reply)


@app.command(epilog=examples('lockstitch answer customer-42 "Blue, please"'))
def answer(
    context: typer.Context,
    thread: ThreadName,
    text: Annotated[str, typer.Argument(metavar="TEXT", help="The answer.", show_default=False)],
    call: Annotated[
        str | None,
        typer.Option(metavar="CALL", help="The id or key of the call that asks, if several wait.", show_default=False),
    ] = None,
    no_resume: NoResume = False,
) -> None:
    """Answer the question that a thread asked during a run.

    If an app is set with --app or LOCKSTITCH_APP, the thread continues at once, as with `resume`.
    """

    def reply(actions: ThreadActions, head: Thread) -> None:
        replies = actions.pending(head)
        # Without a call, the same answer can be repeated after the run has continued.
        if call is None and sum(pending.kind == QuestionWait.KIND for pending in replies) > 1:
            _only(head, replies, QuestionWait.KIND)
        actions.answer(head, text, call_id=call)

    _reply(session_of(context), thread, no_resume, reply)


@app.command(
    epilog=examples(
        'lockstitch submit customer-42 call_1 --result "yes"',
        'lockstitch submit customer-42 call_1 call_2 --result "yes" --result "no" --app shop:app',
    )
)
def submit(
    context: typer.Context,
    thread: ThreadName,
    calls: Annotated[
        list[str],
        typer.Argument(metavar="CALL…", help="The ids of all calls that wait for a frontend.", show_default=False),
    ],
    result: Annotated[
        list[str], typer.Option(metavar="TEXT", help="The result of a call. Repeat it, in the order of the calls.")
    ],
    error: Annotated[bool, typer.Option("--error", help="The calls failed. The results describe the error.")] = False,
    no_resume: NoResume = False,
) -> None:
    """Submit the results of calls that a frontend executes.

    If an app is set with --app or LOCKSTITCH_APP, the thread continues at once, as with `resume`.
    """
    if len(calls) != len(result):
        raise Refused(f"Pass one --result for each call: {len(calls)} calls, {len(result)} results.")
    results = [
        {"tool_use_id": call, "content": text, "is_error": error} for call, text in zip(calls, result, strict=True)
    ]
    _reply(session_of(context), thread, no_resume, lambda actions, head: actions.submit_results(head, results))


def _reply(session: Session, thread: str, no_resume: bool, reply: Reply) -> None:
    if no_resume or not session.has_app:
        with session.open() as store:
            actions, head = actions_of(store), find_thread(store, thread)
            reply(actions, head)
            head = store.thread(head)
        if session.json_output:
            session.out.json({"id": str(head.id), "status": head.status})
        else:
            session.out.note(actions.reply_text(thread))
        return
    code = session.app()
    with open_for_app(session, code) as store:
        head = find_thread(store, thread)
        # Check the agent first: without it, the reply would be stored but the thread could not continue.
        code.agent(head.agent)
        reply(actions_of(store), head)
        try:
            result = execute(store, resuming(code, store.thread(head)), RunProgress(session.out), name=thread)
        except ThreadHeld as exc:
            session.out.note(f"Reply stored. {exc} That worker continues the thread.")
            return
        except AgentNotOnServer as exc:
            session.out.note(f"Reply stored. {exc} A worker with this agent continues the thread.")
            return
        finish_command(session, store, result, head, thread)
