"""`threads`: which threads there are and how they stand."""

from collections.abc import Sequence
from typing import Annotated

import typer
from rich.text import Text

from lockstitch.cli import times
from lockstitch.cli.forest import COLUMNS, name_of, rows
from lockstitch.cli.parameters import Limit, Since, examples
from lockstitch.cli.session import Session, now, session_of
from lockstitch.cli.status import status as status_of
from lockstitch.cli.table import Column
from lockstitch.cli.text import age, cost, one_line
from lockstitch.errors import Refused
from lockstitch.records import Thread
from lockstitch.store import forest
from lockstitch.store.overview import Overview

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
            _show_trees(session, store.portal.call(forest.trees(store.awaited.backend, [store.thread(thread)])))
            return
        anywhere = status or kind or user or agent
        found = store.threads(
            limit=limit,
            after=store.thread(after) if after else None,
            since=times.moment_or_none(since, now(), "--since"),
            all_projects=all_projects,
            status=status,
            kind=kind,
            user_id=user,
            agent=agent,
            # Roots alone are counted, unless what is looked for may be one of their descendants.
            depth=0 if tree and not anywhere else None,
        )
        if tree:
            _show_trees(session, store.portal.call(forest.whole_trees(store.awaited.backend, found)))
        else:
            _show_list(session, store.overview(found), projects=all_projects)
    if len(found) == limit:
        session.out.note(f"There may be more: --after {found[-1].id}, or a larger --limit.")


def _show_trees(session: Session, nodes: Sequence[forest.Node]) -> None:
    if session.as_json:
        session.out.json([node.as_json() for node in nodes])
    elif nodes:
        session.out.table(COLUMNS, list(rows(nodes, now())))
    else:
        session.out.note("No threads.")


def _one_of(option: str, value: str | None, known: Sequence[str]) -> None:
    if value is not None and value not in known:
        raise Refused(f"{option} {value!r} is unknown; it is one of {', '.join(known)}.")


def _show_list(session: Session, found: Sequence[Overview], *, projects: bool) -> None:
    if session.as_json:
        session.out.json([row.as_json() for row in found])
        return
    if not found:
        session.out.note("No threads.")
        return
    moment = now()
    columns = [
        Column("THREAD"),
        *([Column("PROJECT")] if projects else []),
        Column("STATUS"),
        Column("RUNS", right=True),
        Column("COST", right=True, from_width=100),
        Column("AGE", right=True),
        Column("AGENT", flexible=True, from_width=100),
        Column("NAME", flexible=True),
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
