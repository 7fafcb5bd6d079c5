"""`title` and `adopt`: a name for a thread, and a thread for a conversation that was kept elsewhere."""

import sys
from pathlib import Path
from typing import Annotated, Any, cast

import typer

from lockstitch.cli.parameters import ThreadName, examples
from lockstitch.cli.session import session_of
from lockstitch.cli.text import plural
from lockstitch.errors import Refused
from lockstitch.records import Message, codec

app = typer.Typer()


@app.command(epilog=examples('lockstitch title customer-42 "The lost parcel"'))
def title(
    context: typer.Context,
    thread: ThreadName,
    text: Annotated[str, typer.Argument(metavar="TEXT", help="The title; empty takes it away.", show_default=False)],
) -> None:
    """Give a thread a title."""
    session = session_of(context)
    with session.open() as store:
        head = store.thread(thread)
        store.edit(head, title=text or None)
    if session.as_json:
        session.out.json({"id": str(head.id), "title": text or None})


@app.command(
    epilog=examples("lockstitch adopt conversation.json --key customer-42", "export-chat | lockstitch adopt -")
)
def adopt(
    context: typer.Context,
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="A JSON list of messages; - reads stdin.", show_default=False)
    ],
    key: Annotated[str | None, typer.Option(metavar="K", help="The new thread's key.")] = None,
    user: Annotated[str | None, typer.Option(metavar="U", help="Whose conversation it is.")] = None,
    agent: Annotated[str | None, typer.Option(metavar="A", help="The agent that will go on with it.")] = None,
    title: Annotated[str | None, typer.Option(metavar="TEXT", help="Its title.")] = None,
) -> None:
    """Make a thread of an existing conversation, and print its id.

    Messages are {"role": "user" or "assistant", "content": a text or a list of blocks}.
    """
    session = session_of(context)
    messages = _messages(file)
    with session.open(create=True) as store:
        thread = store.adopt(messages, key=key, user_id=user, agent=agent, title=title)
    if session.as_json:
        session.out.json(
            {"id": str(thread.id), "key": thread.key, "runs": thread.last_sequence, "position": thread.position}
        )
    else:
        session.out.line(str(thread.id))
        session.out.note(f"Adopted {plural(len(messages), 'message')} as {plural(thread.last_sequence, 'turn')}.")


def _messages(file: str) -> list[Message]:
    try:
        text = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
    except (OSError, ValueError) as exc:
        raise Refused(f"{file} cannot be read: {getattr(exc, 'strerror', None) or exc}.") from exc
    try:
        value: Any = codec.loads(text)
    except ValueError as exc:
        raise Refused(f"{file} is no JSON: {exc}.") from exc
    if not isinstance(value, list) or not value:
        raise Refused(f"{file} holds no list of messages.")
    for number, message in enumerate(cast("list[Any]", value)):
        if not isinstance(message, dict):
            raise Refused(f"Message {number} of {file} is no object with role and content.")
    return cast("list[Message]", value)
