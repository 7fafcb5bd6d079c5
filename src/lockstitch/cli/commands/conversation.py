"""`context` and `history`: what the model would get now, and what was said turn by turn."""

import typer
from rich.text import Text

from lockstitch.cli import messages
from lockstitch.cli.output import Output
from lockstitch.cli.parameters import Before, Limit, Offset, ThreadName, examples
from lockstitch.cli.session import session_of
from lockstitch.cli.status import status
from lockstitch.cli.text import cost, one_line, plural, time
from lockstitch.store import Turn

app = typer.Typer()


@app.command(epilog=examples("lockstitch context customer-42", "lockstitch context customer-42 --json | jq length"))
def context(context: typer.Context, thread: ThreadName) -> None:
    """Show the messages that the model would get now."""
    session = session_of(context)
    with session.open() as store:
        found = store.context(thread)
    if session.as_json:
        session.out.json(found)
    elif found:
        messages.show(session.out, found)
    else:
        session.out.note("The context is empty.")


@app.command(
    epilog=examples(
        "lockstitch history customer-42 --limit 5",
        "lockstitch history customer-42 --before 96 --json",
    )
)
def history(
    context: typer.Context,
    thread: ThreadName,
    limit: Limit = 20,
    offset: Offset = 0,
    before: Before = None,
) -> None:
    """Show finished turns, the newest first."""
    session = session_of(context)
    with session.open() as store:
        page = store.history(thread, limit=limit, offset=offset, before=before)
    if session.as_json:
        session.out.json([turn.as_json() for turn in page.turns])
        return
    for number, turn in enumerate(page.turns):
        if number:
            session.out.line()
        _show(session.out, turn)
    if not page.turns:
        session.out.note("No finished turns.")
    if page.more:
        session.out.note(f"There is more: --before {page.turns[-1].run.turn}")


def _show(out: Output, turn: Turn) -> None:
    run = turn.run
    amounts = [plural(run.steps, "step"), plural(run.input_tokens + run.output_tokens, "token"), cost(run.total_cost)]
    head = Text("  ").join(
        [
            Text(f"#{run.turn}", style="bold"),
            Text(time(run.started_at), style="dim"),
            status(run),
            Text(", ".join(amount for amount in amounts if amount), style="dim"),
        ]
    )
    out.line(head)
    out.line(f"run {run.id}", style="dim", indent=4)
    out.line(one_line(turn.user_message), indent=4, mark=Text("> ", style="bold cyan"))
    if turn.final_response is not None:
        out.line(one_line(turn.final_response), indent=4, mark=Text("< ", style="bold green"))
    if run.error:
        out.line(one_line(run.error), indent=4, mark=Text("! ", style="bold red"))
    for file in turn.generated_files:
        out.line(one_line(str(file["filename"])), indent=4, mark=Text("+ ", style="bold"))
