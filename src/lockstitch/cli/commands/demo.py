"""`demo`: what all this is for, in less than a minute."""

import tempfile
from pathlib import Path
from typing import Annotated

import typer

from lockstitch.cli.parameters import examples
from lockstitch.cli.session import session_of

app = typer.Typer()


@app.command(epilog=examples("lockstitch demo", "lockstitch demo --model anthropic:claude-sonnet-5"))
def demo(
    context: typer.Context,
    model: Annotated[
        str | None,
        typer.Option(metavar="MODEL", help="A real model, with its key in the environment; else a scripted one."),
    ] = None,
) -> None:
    """Kill an agent in the middle of a payment, and go on with it.

    Needs no key and no store: everything happens in a temporary folder, which is gone afterwards.
    """
    from lockstitch.cli.demo.story import Story

    session = session_of(context)
    if model:
        _require(model)
    with tempfile.TemporaryDirectory(prefix="lockstitch-demo-") as folder:
        facts = Story(Path(folder), model, quiet=session.as_json).tell()
    if session.as_json:
        session.out.json(facts)


def _require(model: str) -> None:
    """Say what is missing before anything begins: the key, the SDK, or a model of this name."""
    import asyncio

    from lockstitch.runtime.providers.resolving import provider_for

    async def close_again() -> None:
        provider, _ = provider_for(model)
        await provider.close()

    asyncio.run(close_again())
