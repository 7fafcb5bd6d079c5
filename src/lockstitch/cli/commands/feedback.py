"""`feedback`: list, add and delete feedback on threads, runs and stitches."""

from typing import Annotated, Any, cast
from uuid import UUID

import typer
from rich.text import Text

from lockstitch.cli.actions import actions_of
from lockstitch.cli.options import Limit, Yes, confirm, examples
from lockstitch.cli.references import find_run, find_thread
from lockstitch.cli.render.output import TableColumn, age, one_line
from lockstitch.cli.render.threads import shown_id
from lockstitch.cli.session import Session, now, session_of
from lockstitch.errors import LockstitchError, Refused
from lockstitch.model import Feedback, Json, codec
from lockstitch.model.ids import as_id

app = typer.Typer()
feedback = typer.Typer(
    name="feedback", help="List, add and delete feedback on threads, runs and stitches.", rich_markup_mode=None
)
app.add_typer(feedback)

ThreadOption = Annotated[
    str | None, typer.Option("--thread", metavar="THREAD", help="A thread's key, id or short id.", show_default=False)
]
RunOption = Annotated[
    str | None, typer.Option("--run", metavar="RUN", help="A run's id or short id. A thread: its last run.")
]
UserOption = Annotated[str | None, typer.Option("--user", metavar="U", help="The user that gave the feedback.")]


@feedback.command("list", epilog=examples("lockstitch feedback list customer-42", "lockstitch feedback list --json"))
def list_(
    context: typer.Context,
    thread: Annotated[
        str | None,
        typer.Argument(metavar="THREAD", help="A thread's key, id or short id. Default: all.", show_default=False),
    ] = None,
    run: RunOption = None,
    name: Annotated[str | None, typer.Option(metavar="NAME", help="Only feedback with this name.")] = None,
    user: UserOption = None,
    source: Annotated[str | None, typer.Option(metavar="S", help="Only feedback from this system.")] = None,
    limit: Limit = 100,
) -> None:
    """List feedback, oldest first."""
    session = session_of(context)
    with session.open() as store:
        found = actions_of(store).feedback(
            thread=None if thread is None else find_thread(store, thread),
            run=None if run is None else find_run(store, run).id,
            name=name,
            user_id=user,
            source=source,
            limit=limit,
        )
    if session.json_output:
        session.out.json([item.as_json() for item in found])
        return
    if not found:
        session.out.note("No feedback found. Add one with `lockstitch feedback add`.")
        return
    columns = [TableColumn("ID"), TableColumn("THREAD"), TableColumn("ABOUT"), TableColumn("NAME", flexible=True)]
    columns += [TableColumn("SCORE"), TableColumn("COMMENT", flexible=True), TableColumn("USER"), TableColumn("AGE")]
    session.out.table(columns, [_row(session, item) for item in found])


@feedback.command(
    epilog=examples(
        "lockstitch feedback add helpful --thread customer-42 --score 1 --user ada",
        'lockstitch feedback add correct --run 2f0c9d1e --score 0 --comment "Wrong order number"',
    )
)
def add(
    context: typer.Context,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the rated property.", show_default=False)],
    thread: ThreadOption = None,
    run: RunOption = None,
    stitch: Annotated[UUID | None, typer.Option(metavar="ID", help="Id of a stitch.", show_default=False)] = None,
    score: Annotated[float | None, typer.Option(metavar="X", help="Score.", show_default=False)] = None,
    value: Annotated[str | None, typer.Option(metavar="JSON", help="A value as a JSON object.")] = None,
    comment: Annotated[str | None, typer.Option(metavar="TEXT", help="Comment in words.")] = None,
    user: UserOption = None,
) -> None:
    """Add feedback on a thread, a run or a stitch.

    With --user, it replaces the feedback with this name that the user has given on the same subject.
    """
    session = session_of(context)
    with session.open() as store:
        given = actions_of(store).give_feedback(
            name,
            thread=None if thread is None else find_thread(store, thread),
            run=None if run is None else find_run(store, run).id,
            stitch=stitch,
            score=score,
            value=None if value is None else _object(value),
            comment=comment,
            user_id=user,
        )
    if session.json_output:
        session.out.json(given.as_json())
    else:
        session.out.line(str(given.id))


@feedback.command(epilog=examples("lockstitch feedback delete 01a1f376-1137-7385-9d38-703aea679257 --yes"))
def delete(
    context: typer.Context,
    id: Annotated[str, typer.Argument(metavar="ID", help="Id of the feedback.", show_default=False)],
    yes: Yes = False,
) -> None:
    """Delete feedback."""
    session = session_of(context)
    feedback_id = as_id(id)
    if feedback_id is None:
        raise Refused(f"{id!r} is not the id of feedback. `lockstitch feedback list --json` prints the ids.")
    with session.open() as store:
        if not confirm(f"Delete feedback {feedback_id}?", yes=yes):
            session.out.note("Nothing was deleted.")
            return
        actions_of(store).remove_feedback(feedback_id)
    if session.json_output:
        session.out.json({"deleted": 1})
    else:
        session.out.line(f"Feedback {feedback_id} deleted.")


def _object(text: str) -> Json:
    try:
        value: Any = codec.loads(text)
    except (ValueError, LockstitchError) as exc:
        raise Refused(f"--value is not valid JSON: {exc}") from exc
    if not isinstance(value, dict):
        raise Refused("--value is not a JSON object.")
    return cast("Json", value)


def _row(session: Session, item: Feedback) -> list[str | Text]:
    about = "stitch" if item.stitch_id else "run" if item.run_id else "thread"
    return [
        str(item.id),
        shown_id(session.out, item.thread_id) if item.thread_id else "",
        about,
        one_line(item.name),
        "" if item.score is None else f"{item.score:g}",
        one_line(item.comment or ""),
        one_line(item.user_id or ""),
        age(item.created_at, now()),
    ]
