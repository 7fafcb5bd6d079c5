"""`token`: who may call a server, for which project and for what."""

from typing import Annotated

import typer
from rich.text import Text

from lockstitch.cli.parameters import examples
from lockstitch.cli.session import now, session_of
from lockstitch.cli.table import Column
from lockstitch.cli.text import one_line, time
from lockstitch.cli.times import later
from lockstitch.records import Json
from lockstitch.records.shelves import Token
from lockstitch.store.tokens import SCOPES

app = typer.Typer()
token = typer.Typer(
    name="token",
    help="Make, list and revoke the tokens of a project.",
    rich_markup_mode=None,
)
app.add_typer(token)

_ACTOR = "command line"


@token.command(
    epilog=examples(
        "lockstitch token create ci --scope ingest",
        "lockstitch token create ada --scope read --scope write --expires 90d --project acme",
    )
)
def create(
    context: typer.Context,
    name: Annotated[str, typer.Argument(metavar="NAME", help="What it is for.", show_default=False)],
    scope: Annotated[
        list[str], typer.Option(metavar="|".join(SCOPES), help="What it allows; may be given several times.")
    ],
    expires: Annotated[
        str | None, typer.Option(metavar="TIME", help="When it ends: 90d, or 2027-01-31.", show_default=False)
    ] = None,
) -> None:
    """Make a token for the project and show it, this once: only its hash is kept.

    read looks, write acts on threads and starts runs, ingest sends traces in, admin does all of it and asks in SQL.
    """
    session = session_of(context)
    until = None if expires is None else later(expires, now(), "--expires")
    with session.open(create=True) as store:
        made, secret = store.portal.call(store.awaited.tokens.make(name, scope, expires_at=until))
        store.portal.call(store.awaited.audits.note(_ACTOR, "token created", made.name, scopes=made.scopes))
    if session.as_json:
        session.out.json({**_shown(made), "token": secret})
        return
    session.out.line(secret)
    session.out.note(f"Token {made.name} of project {made.project}: {', '.join(made.scopes)}. It is not shown again.")


@token.command("list", epilog=examples("lockstitch token list --project acme"))
def list_(context: typer.Context) -> None:
    """List the tokens of the project. What they are cannot be shown, only what they allow."""
    session = session_of(context)
    with session.open() as store:
        found = store.portal.call(store.awaited.tokens.listed())
    if session.as_json:
        session.out.json([_shown(one) for one in found])
        return
    if not found:
        session.out.note(f"Project {session.project} has no tokens.")
        return
    columns = [Column("NAME", flexible=True), Column("SCOPES"), Column("MADE"), Column("ENDS"), Column("STATE")]
    session.out.table(columns, [_row(one) for one in found])


@token.command(epilog=examples("lockstitch token revoke ci"))
def revoke(
    context: typer.Context,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The token's name.", show_default=False)],
) -> None:
    """Have a token open nothing any more, from the next request on."""
    session = session_of(context)
    with session.open() as store:
        revoked = store.portal.call(store.awaited.tokens.revoke(name))
        store.portal.call(store.awaited.audits.note(_ACTOR, "token revoked", revoked.name))
    if session.as_json:
        session.out.json(_shown(revoked))
    else:
        session.out.line(f"Token {one_line(revoked.name)} of project {one_line(revoked.project)} is revoked.")


def _shown(one: Token) -> Json:
    """A token without its hash: nobody needs that."""
    return {name: value for name, value in one.as_json().items() if name != "sha256"}


def _row(one: Token) -> list[str | Text]:
    state = "live"
    if one.revoked_at is not None:
        state = "revoked"
    elif one.expires_at is not None and one.expires_at <= now():
        state = "expired"
    scopes = ", ".join(one.scopes)
    shown = Text(state, style="green" if state == "live" else "dim")
    return [one_line(one.name), scopes, time(one.created_at, seconds=False), time(one.expires_at, seconds=False), shown]
