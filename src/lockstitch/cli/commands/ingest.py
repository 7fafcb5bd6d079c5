"""`ingest`: show the ingest queue and read bodies in quarantine again."""

from typing import Annotated

import typer

from lockstitch.cli.options import examples
from lockstitch.cli.render.output import TableColumn, one_line, plural, time
from lockstitch.cli.session import session_of
from lockstitch.errors import NotFound
from lockstitch.model import Json, as_id, format_time
from lockstitch.store.ingest_queue import Quarantined

app = typer.Typer()
ingest = typer.Typer(
    name="ingest",
    help="Show the ingest queue; read bodies in quarantine again.",
    rich_markup_mode=None,
)
app.add_typer(ingest)

_ACTOR = "command line"
_SHOWN = 20


@ingest.command(epilog=examples("lockstitch ingest status", "lockstitch ingest status --project acme --json"))
def status(context: typer.Context) -> None:
    """Show how many request bodies wait, for how long, and which are in quarantine and why.

    A server acknowledges a body once it is stored, and reads it into the record afterwards. A body that has waited for
    more than a minute is stuck. A body that cannot be read completely is in quarantine.
    """
    session = session_of(context)
    with session.open() as store:
        queue = store.async_store.ingest_queue
        queue_status = store.portal.call(queue.status())
        held = store.portal.call(queue.quarantined(None if session.json_output else _SHOWN))
    if session.json_output:
        session.out.json({**queue_status._asdict(), "quarantine": [_shown(quarantined) for quarantined in held]})
        return
    oldest = "" if queue_status.oldest_seconds is None else f", the oldest for {queue_status.oldest_seconds:,.0f} s"
    waiting = plural(queue_status.waiting, "body", "bodies")
    session.out.line(
        f"Waiting: {waiting}{oldest}. Stuck: {queue_status.stuck:,}. In quarantine: {queue_status.quarantined:,}."
    )
    if held:
        columns = [
            TableColumn("ID"),
            TableColumn("RECEIVED"),
            TableColumn("SOURCE"),
            TableColumn("SIZE", right=True),
            TableColumn("PROBLEM", flexible=True),
        ]
        session.out.table(
            columns,
            [
                [
                    str(quarantined.id),
                    time(quarantined.at),
                    quarantined.source,
                    f"{quarantined.size:,}",
                    one_line(quarantined.problem),
                ]
                for quarantined in held
            ],
        )
    if queue_status.quarantined > len(held):
        session.out.note(f"… and {queue_status.quarantined - len(held):,} more; --json lists them all.")


@ingest.command(
    epilog=examples("lockstitch ingest retry", "lockstitch ingest retry 018f6a3e-7c1d-7b2a-9f00-5d2c1a7e4b11")
)
def retry(
    context: typer.Context,
    body_id: Annotated[
        str | None, typer.Argument(metavar="[ID]", help="The body. Without it: all in quarantine.", show_default=False)
    ] = None,
) -> None:
    """Put bodies from quarantine into the ingest queue again, for example after an upgrade.

    A running server reads them within half a minute, otherwise the next server that starts. Data that is already in the
    record is not duplicated.
    """
    session = session_of(context)
    with session.open() as store:
        queue, audits = store.async_store.ingest_queue, store.async_store.audits
        if body_id is None:
            ids = [quarantined.id for quarantined in store.portal.call(queue.quarantined())]
        elif (wanted := as_id(body_id)) is not None:
            ids = [wanted]
        else:
            raise NotFound(f"Body {body_id} not found in quarantine.")
        for item_id in ids:
            store.portal.call(queue.retry(item_id))
            store.portal.call(audits.record(_ACTOR, "retry arrival", str(item_id)))
    if session.json_output:
        session.out.json({"retried": [str(item_id) for item_id in ids]})
    elif ids:
        session.out.line(f"{plural(len(ids), 'body', 'bodies')} in the ingest queue again.")
    else:
        session.out.note(f"Project {store.project} has no body in quarantine.")


def _shown(quarantined: Quarantined) -> Json:
    return {**quarantined._asdict(), "id": str(quarantined.id), "at": format_time(quarantined.at)}
