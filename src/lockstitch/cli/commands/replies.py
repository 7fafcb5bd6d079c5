"""`approve`, `deny`, `settle`, `answer` and `submit`: reply to a waiting thread.

A reply needs no agent code. If an app is set, the thread continues at once, as with `resume`.
"""

from collections.abc import Callable
from typing import Annotated

import typer

from lockstitch.cli.options import CallName, NoResume, ThreadName, examples
from lockstitch.cli.render.progress import RunProgress
from lockstitch.cli.runs import execute, finish_command, open_for_app, resuming
from lockstitch.cli.session import Session, session_of
from lockstitch.errors import Refused, ThreadHeld
from lockstitch.sync import SyncStore

app = typer.Typer()

Reply = Callable[[SyncStore], None]


@app.command(epilog=examples("lockstitch approve customer-42 call_1 --app shop:app"))
def approve(context: typer.Context, thread: ThreadName, call: CallName, no_resume: NoResume = False) -> None:
    """Approve a call that needs approval.

    If an app is set with --app or LOCKSTITCH_APP, the thread continues at once, as with `resume`.
    """
    from lockstitch import sync

    _reply(session_of(context), thread, no_resume, lambda store: sync.approve(store, thread, call))


@app.command(epilog=examples('lockstitch deny customer-42 call_1 --reason "too expensive"'))
def deny(
    context: typer.Context,
    thread: ThreadName,
    call: CallName,
    reason: Annotated[str | None, typer.Option(metavar="TEXT", help="The reason, which the model receives.")] = None,
    no_resume: NoResume = False,
) -> None:
    """Deny a call that needs approval.

    If an app is set with --app or LOCKSTITCH_APP, the thread continues at once, as with `resume`.
    """
    from lockstitch import sync

    _reply(session_of(context), thread, no_resume, lambda store: sync.deny(store, thread, call, reason=reason))


@app.command(
    epilog=examples(
        'lockstitch settle customer-42 call_1 --done "charged, receipt 4711"',
        "lockstitch settle customer-42 call_1 --redo --app shop:app",
    )
)
def settle(
    context: typer.Context,
    thread: ThreadName,
    call: CallName,
    done: Annotated[str | None, typer.Option(metavar="TEXT", help="It completed, with this result.")] = None,
    redo: Annotated[bool, typer.Option("--redo", help="It did not happen. Run it again.")] = False,
    unknown: Annotated[bool, typer.Option("--unknown", help="Mark as unknown. The model is informed.")] = False,
    no_resume: NoResume = False,
) -> None:
    """Settle a call that was interrupted and has an unknown outcome.

    If an app is set with --app or LOCKSTITCH_APP, the thread continues at once, as with `resume`.
    """
    from lockstitch import sync

    if (done is not None) + redo + unknown != 1:
        raise Refused("Pass exactly one of --done TEXT, --redo or --unknown.")

    def reply(store: SyncStore) -> None:
        sync.settle(store, thread, call, done=done, redo=redo, unknown=unknown)

    _reply(session_of(context), thread, no_resume, reply)


@app.command(epilog=examples('lockstitch answer customer-42 "The blue one"'))
def answer(
    context: typer.Context,
    thread: ThreadName,
    text: Annotated[str, typer.Argument(metavar="TEXT", help="The answer.", show_default=False)],
    no_resume: NoResume = False,
) -> None:
    """Answer a question that a thread asked during a run.

    If an app is set with --app or LOCKSTITCH_APP, the thread continues at once, as with `resume`.
    """
    from lockstitch import sync

    _reply(session_of(context), thread, no_resume, lambda store: sync.answer(store, thread, text))


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
    from lockstitch import sync

    if len(calls) != len(result):
        raise Refused(f"Pass one --result for each call: {len(calls)} calls, {len(result)} results.")
    results = [
        {"tool_use_id": call, "content": text, "is_error": error} for call, text in zip(calls, result, strict=True)
    ]
    _reply(session_of(context), thread, no_resume, lambda store: sync.submit_results(store, thread, results))


def _reply(session: Session, thread: str, no_resume: bool, reply: Reply) -> None:
    if no_resume or not session.app_name:
        with session.open() as store:
            reply(store)
            head = store.thread(thread)
        if session.json_output:
            session.out.json({"id": str(head.id), "status": head.status})
        else:
            session.out.note(f"Reply stored. Run `lockstitch resume {thread} --app module:name` to continue.")
        return
    code = session.app()
    with open_for_app(session, code) as store:
        head = store.thread(thread)
        # Check the agent first: without it, the reply would be stored but the thread could not continue.
        code.agent(head.agent)
        reply(store)
        try:
            result = execute(store, resuming(code, store.thread(head)), RunProgress(session.out), name=thread)
        except ThreadHeld as exc:
            session.out.note(f"Reply stored. {exc} That worker continues the thread.")
            return
        finish_command(session, store, result, head, thread)
