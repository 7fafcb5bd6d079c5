"""`threads`, `title`, `adopt`."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, cast

import typer
from rich.text import Text

from lockstitch.cli.options import Limit, Since, ThreadName, examples
from lockstitch.cli.references import find_thread
from lockstitch.cli.render.output import TableColumn, age, cost, one_line, plural
from lockstitch.cli.render.threads import COLUMNS, name_of, reason_of, rows, shown_id
from lockstitch.cli.render.threads import status as status_of
from lockstitch.cli.selection import STATUSES
from lockstitch.cli.session import Session, now, session_of
from lockstitch.errors import Refused
from lockstitch.model import Message, Thread, codec
from lockstitch.model.figures import ThreadSort
from lockstitch.model.moment import moment_or_none
from lockstitch.store.queries import overview
from lockstitch.store.queries.overview import Overview
from lockstitch.store.queries.thread_list import SORTS, parse_metadata

app = typer.Typer()

KINDS = ("chat", "goal", "task", "trace", "replay")


@app.command(
    epilog=examples(
        "lockstitch threads --status failed --since 12h",
        "lockstitch threads --tree --status running",
        "lockstitch threads --tag nightly --metadata customer=42 --sort cost",
        "lockstitch threads --tree customer-42",
        "lockstitch threads --json | jq -r '.[].id'",
    )
)
def threads(
    context: typer.Context,
    thread: Annotated[
        str | None,
        typer.Argument(metavar="THREAD", help="With --tree: only this thread and its descendants.", show_default=False),
    ] = None,
    status: Annotated[str | None, typer.Option(metavar="S", help=f"One of {', '.join(STATUSES)}.")] = None,
    since: Since = None,
    kind: Annotated[str | None, typer.Option(metavar="K", help=f"One of {', '.join(KINDS)}.")] = None,
    user: Annotated[str | None, typer.Option(metavar="U", help="Only threads of this user.")] = None,
    agent: Annotated[str | None, typer.Option(metavar="A", help="Only threads of this agent.")] = None,
    until: Annotated[
        str | None, typer.Option(metavar="TIME", help="Only threads active before this time, like 12h.")
    ] = None,
    version: Annotated[int | None, typer.Option(metavar="N", help="Only threads of this version of an agent.")] = None,
    model: Annotated[str | None, typer.Option(metavar="M", help="Only threads whose last run had this model.")] = None,
    min_cost: Annotated[
        float | None, typer.Option(metavar="USD", min=0, help="Only threads that cost at least this.")
    ] = None,
    error: Annotated[
        str | None, typer.Option(metavar="TEXT", help="A part of the last error. Empty: any failed run.")
    ] = None,
    tag: Annotated[
        list[str] | None, typer.Option(metavar="TAG", help="Only threads with this tag. Several: all of them.")
    ] = None,
    metadata: Annotated[
        list[str] | None, typer.Option(metavar="KEY=VALUE", help="Only threads with this value in the metadata.")
    ] = None,
    evaluations: Annotated[
        bool, typer.Option("--evaluations/--no-evaluations", help="Include the threads of evaluations.")
    ] = True,
    sort: Annotated[str, typer.Option(metavar="ORDER", help=f"One of {', '.join(SORTS)}.")] = "time",
    ascending: Annotated[bool, typer.Option("--ascending", help="Start with the lowest value.")] = False,
    limit: Limit = 50,
    after: Annotated[str | None, typer.Option(metavar="THREAD", help="The last thread of the previous page.")] = None,
    tree: Annotated[bool, typer.Option("--tree", help="Show whole trees, children below their parents.")] = False,
    all_projects: Annotated[bool, typer.Option("--all-projects", help="Include all projects.")] = False,
) -> None:
    """List threads, the most recently active first.

    --sort selects another order: by the duration or the model of the last run, or by the tokens or the cost of the
    ended runs. Threads without the figure are left out.

    With --tree, list root threads with all their descendants. The filters match any thread of a tree. With --json,
    every row contains its children.
    """
    session = session_of(context)
    _check_choice("--status", status, STATUSES)
    _check_choice("--kind", kind, KINDS)
    _check_choice("--sort", sort, list(SORTS))
    if thread is not None and not tree:
        raise Refused("THREAD needs --tree. Use `lockstitch show` to see one thread.")
    with session.open() as store:
        if thread is not None:
            _show_trees(session, store.trees([find_thread(store, thread)]))
            return
        filters: dict[str, Any] = {
            "until": moment_or_none(until, now(), "--until"),
            "version": version,
            "model": model,
            "min_cost": min_cost,
            "error": True if error == "" else error,
            "tag": tag,
            "metadata": parse_metadata(metadata or ()),
        }
        anywhere = status or kind or user or agent or any(filters.values())
        matches = store.threads(
            limit=limit,
            after=find_thread(store, after) if after else None,
            since=moment_or_none(since, now(), "--since"),
            all_projects=all_projects,
            status=status,
            kind=kind,
            user_id=user,
            agent=agent,
            # Only roots are counted, unless a filter may match one of their descendants.
            depth=0 if tree and not anywhere else None,
            evaluations=evaluations,
            sort=cast("ThreadSort", sort),
            ascending=ascending,
            **filters,
        )
        if tree:
            _show_trees(session, store.trees_of(matches))
        else:
            _show_list(session, store.overview(matches), projects=all_projects)
    if len(matches) == limit:
        session.out.note(f"There may be more. Use --after {matches[-1].id} or a larger --limit.")


def _show_trees(session: Session, nodes: Sequence[overview.Node]) -> None:
    if session.json_output:
        session.out.json([node.as_json() for node in nodes])
    elif nodes:
        session.out.table(COLUMNS, list(rows(session.out, nodes, now())))
    else:
        session.out.note("No threads match.")


def _check_choice(option: str, value: str | None, known: Sequence[str]) -> None:
    if value is not None and value not in known:
        raise Refused(f"{option} {value!r} is not valid. Use one of: {', '.join(known)}.")


def _show_list(session: Session, overviews: Sequence[Overview], *, projects: bool) -> None:
    if session.json_output:
        session.out.json([row.as_json() for row in overviews])
        return
    if not overviews:
        session.out.note("No threads match.")
        return
    moment = now()
    reasons = [reason_of(row) for row in overviews]
    columns = [
        TableColumn("THREAD"),
        *([TableColumn("PROJECT")] if projects else []),
        TableColumn("STATUS"),
        TableColumn("RUNS", right=True),
        TableColumn("COST", right=True, from_width=100),
        TableColumn("AGE", right=True),
        TableColumn("AGENT", flexible=True, from_width=100),
        TableColumn("NAME", flexible=True),
        *([TableColumn("REASON", flexible=True)] if any(reasons) else []),
    ]
    session.out.table(
        columns,
        [
            [
                shown_id(session.out, row.thread.id),
                *([one_line(row.thread.project)] if projects else []),
                status_of(row.thread),
                f"{row.runs:,}",
                cost(row.total_cost),
                age(row.thread.active_at, moment),
                _agent(row.thread),
                Text(name_of(row.thread)),
                *([Text(reason, style="red")] if any(reasons) else []),
            ]
            for row, reason in zip(overviews, reasons, strict=True)
        ],
    )


def _agent(thread: Thread) -> str:
    version = f" v{thread.version}" if thread.version else ""
    return f"{one_line(thread.agent)}{version}" if thread.agent else ""


@app.command(epilog=examples('lockstitch title customer-42 "The lost parcel"'))
def title(
    context: typer.Context,
    thread: ThreadName,
    text: Annotated[
        str, typer.Argument(metavar="TEXT", help="The title. An empty text removes it.", show_default=False)
    ],
) -> None:
    """Set the title of a thread."""
    session = session_of(context)
    with session.open() as store:
        head = find_thread(store, thread)
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
    user: Annotated[str | None, typer.Option(metavar="U", help="The user of the conversation.")] = None,
    agent: Annotated[str | None, typer.Option(metavar="A", help="The agent that continues it.")] = None,
    title: Annotated[str | None, typer.Option(metavar="TEXT", help="The title.")] = None,
) -> None:
    """Create a thread from an existing conversation and print its id.

    A message is {"role": "user" or "assistant", "content": a text or a list of blocks}.
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
        raise Refused(f"{file} is not JSON: {exc}.") from exc
    if not isinstance(value, list) or not value:
        raise Refused(f"{file} does not contain a list of messages.")
    for number, message in enumerate(cast("list[Any]", value)):
        if not isinstance(message, dict):
            raise Refused(f"Message {number} of {file} is not an object with role and content.")
    return cast("list[Message]", value)
