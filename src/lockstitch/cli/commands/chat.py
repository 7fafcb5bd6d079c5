"""`chat`: talking with an agent."""

from typing import Annotated

import typer

from lockstitch.cli.parameters import AgentName, User, examples
from lockstitch.cli.running import at_work
from lockstitch.cli.session import session_of
from lockstitch.records import new_id

app = typer.Typer()


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
    from lockstitch.cli.chatting import Chat

    session = session_of(context)
    code = session.app()
    chosen = code.agent(agent)
    # A name before the first word, so that a conversation cut off in its first answer is found again.
    name = thread or str(new_id())
    with at_work(session, code, create=True) as store:
        if thread is None:
            session.out.note(f"Thread {name}; `lockstitch chat {agent} --thread {name}` comes back to it.")
        left = Chat(session, store, code, chosen, name).talk(user)
    if left:
        raise typer.Exit(left)
