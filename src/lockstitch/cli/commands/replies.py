"""`approve`, `deny`, `settle` and `answer`: what people say to a thread that waits for them.

A reply needs no code of the agent. Where an app is given the thread goes on at once, as with `resume`.
"""

from collections.abc import Callable
from typing import Annotated

import typer

from lockstitch.cli.options import CallName, NoResume, ThreadName, examples
from lockstitch.cli.render.progress import RunProgress
from lockstitch.cli.runs import drive, finish_command, open_for_app, resuming
from lockstitch.cli.session import Session, session_of
from lockstitch.errors import Refused, ThreadHeld
from lockstitch.sync import SyncStore

app = typer.Typer()

Reply = Callable[[SyncStore], None]


@app.command(epilog=examples("lockstitch approve customer-42 call_1 --app shop:app"))
def approve(context: typer.Context, thread: ThreadName, call: CallName, no_resume: NoResume = False) -> None:
    """Agree to a call that waits for a person.

    If an app is named, by --app or LOCKSTITCH_APP, the thread goes on at once, as with `resume`.
    """
    from lockstitch import sync

    _reply(session_of(context), thread, no_resume, lambda store: sync.approve(store, thread, call))


@app.command(epilog=examples('lockstitch deny customer-42 call_1 --reason "too expensive"'))
def deny(
    context: typer.Context,
    thread: ThreadName,
    call: CallName,
    reason: Annotated[str | None, typer.Option(metavar="TEXT", help="Why; the model is told.")] = None,
    no_resume: NoResume = False,
) -> None:
    """Refuse a call that waits for a person.

    If an app is named, by --app or LOCKSTITCH_APP, the thread goes on at once, as with `resume`.
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
    done: Annotated[str | None, typer.Option(metavar="TEXT", help="It took effect, and this is its result.")] = None,
    redo: Annotated[bool, typer.Option("--redo", help="It did not; it may be made again.")] = False,
    unknown: Annotated[bool, typer.Option("--unknown", help="Nobody knows; the model is told so.")] = False,
    no_resume: NoResume = False,
) -> None:
    """Say what became of a call that was cut off half-way.

    If an app is named, by --app or LOCKSTITCH_APP, the thread goes on at once, as with `resume`.
    """
    from lockstitch import sync

    if (done is not None) + redo + unknown != 1:
        raise Refused("Say either --done with what the call gave, or --redo, or --unknown.")

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
    """Answer what a thread asked in the middle of a run.

    If an app is named, by --app or LOCKSTITCH_APP, the thread goes on at once, as with `resume`.
    """
    from lockstitch import sync

    _reply(session_of(context), thread, no_resume, lambda store: sync.answer(store, thread, text))


def _reply(session: Session, thread: str, no_resume: bool, reply: Reply) -> None:
    if no_resume or not session.app_name:
        with session.open() as store:
            reply(store)
            head = store.thread(thread)
        if session.json_output:
            session.out.json({"id": str(head.id), "status": head.status})
        else:
            session.out.note(f"Noted. `lockstitch resume {thread} --app module:name` goes on with it.")
        return
    code = session.app()
    with open_for_app(session, code) as store:
        head = store.thread(thread)
        # Before anything is said: a reply that cannot be followed up is better refused than half done.
        code.agent(head.agent)
        reply(store)
        try:
            result = drive(store, resuming(code, store.thread(head)), RunProgress(session.out), name=thread)
        except ThreadHeld as exc:
            session.out.note(f"Noted. {exc} It goes on there.")
            return
        finish_command(session, store, result, head, thread)
