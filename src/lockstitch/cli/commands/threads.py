"""threads, title, adopt."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, cast

import typer
from rich.text import Text

from lockstitch.cli import options
from lockstitch.cli.options import Limit, Since, ThreadName, examples
from lockstitch.cli.render.output import TableColumn, age, cost, one_line, plural
from lockstitch.cli.render.threads import COLUMNS, name_of, rows
from lockstitch.cli.render.threads import status as status_of
from lockstitch.cli.session import Session, now, session_of
from lockstitch.errors import Refused
from lockstitch.model import Message, Thread, codec
from lockstitch.store.queries import overview
from lockstitch.store.queries.overview import Overview

app = typer.Typer()

STATUSES = ("pending", "running", "waiting", "completed", "failed", "cancelled")
KINDS = ("chat", "goal", "task", "trace")


@app.command(
    epilog=examples(
        "lockstitch threads --status failed --since 12h",
        "lockstitch threads --tree --status running",
        "lockstitch threads --tree customer-42",
        "lockstitch threads --json | jq -r '.[].id'",
    )
)
def threads(
    context: typer.Context,
    thread: Annotated[
        str | None,
        typer.Argument(metavar="THREAD", help="With --tree: only this one and what is below it.", show_default=False),
    ] = None,
    status: Annotated[str | None, typer.Option(metavar="S", help=f"One of {', '.join(STATUSES)}.")] = None,
    since: Since = None,
    kind: Annotated[str | None, typer.Option(metavar="K", help=f"One of {', '.join(KINDS)}.")] = None,
    user: Annotated[str | None, typer.Option(metavar="U", help="Only this user's.")] = None,
    agent: Annotated[str | None, typer.Option(metavar="A", help="Only this agent's.")] = None,
    limit: Limit = 50,
    after: Annotated[str | None, typer.Option(metavar="THREAD", help="The last one of the page before.")] = None,
    tree: Annotated[bool, typer.Option("--tree", help="Whole trees, children below their parents.")] = False,
    all_projects: Annotated[bool, typer.Option("--all-projects", help="Of every project.")] = False,
) -> None:
    """List threads, the most recently active first.

    With --tree the roots with everything below them; what is asked for may stand anywhere in a tree. In JSON every row
    then has its children in it.
    """
    session = session_of(context)
    _one_of("--status", status, STATUSES)
    _one_of("--kind", kind, KINDS)
    if thread is not None and not tree:
        raise Refused("A thread is named with --tree only; `lockstitch show` tells of one.")
    with session.open() as store:
        if thread is not None:
            _show_trees(session, store.trees([store.thread(thread)]))
            return
        anywhere = status or kind or user or agent
        found = store.threads(
            limit=limit,
            after=store.thread(after) if after else None,
            since=options.moment_or_none(since, now(), "--since"),
            all_projects=all_projects,
            status=status,
            kind=kind,
            user_id=user,
            agent=agent,
            # Roots alone are counted, unless what is looked for may be one of their descendants.
            depth=0 if tree and not anywhere else None,
        )
        if tree:
            _show_trees(session, store.whole_trees(found))
        else:
            _show_list(session, store.overview(found), projects=all_projects)
    if len(found) == limit:
        session.out.note(f"There may be more: --after {found[-1].id}, or a larger --limit.")


def _show_trees(session: Session, nodes: Sequence[overview.Node]) -> None:
    if session.json_output:
        session.out.json([node.as_json() for node in nodes])
    elif nodes:
        session.out.table(COLUMNS, list(rows(nodes, now())))
    else:
        session.out.note("No threads.")


def _one_of(option: str, value: str | None, known: Sequence[str]) -> None:
    if value is not None and value not in known:
        raise Refused(f"{option} {value!r} is unknown; it is one of {', '.join(known)}.")


def _show_list(session: Session, found: Sequence[Overview], *, projects: bool) -> None:
    if session.json_output:
        session.out.json([row.as_json() for row in found])
        return
    if not found:
        session.out.note("No threads.")
        return
    moment = now()
    columns = [
        TableColumn("THREAD"),
        *([TableColumn("PROJECT")] if projects else []),
        TableColumn("STATUS"),
        TableColumn("RUNS", right=True),
        TableColumn("COST", right=True, from_width=100),
        TableColumn("AGE", right=True),
        TableColumn("AGENT", flexible=True, from_width=100),
        TableColumn("NAME", flexible=True),
    ]
    session.out.table(
        columns,
        [
            [
                str(row.thread.id),
                *([one_line(row.thread.project)] if projects else []),
                status_of(row.thread),
                f"{row.runs:,}",
                cost(row.total_cost),
                age(row.thread.updated_at, moment),
                _agent(row.thread),
                Text(name_of(row.thread)),
            ]
            for row in found
        ],
    )


def _agent(thread: Thread) -> str:
    version = f" v{thread.version}" if thread.version else ""
    return f"{one_line(thread.agent)}{version}" if thread.agent else ""


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
    if session.json_output:
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
        thread = store.import_messages(messages, key=key, user_id=user, agent=agent, title=title)
    if session.json_output:
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
