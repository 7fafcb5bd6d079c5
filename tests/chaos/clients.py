"""Clients: chats whose users send every request twice, with one id, and sometimes ask for another answer.

The tools and the instructions get the user from a deps factory, in every worker that continues a run. A client writes
its requests to a file. A request that failed is sent again with the same id until it is acknowledged. At the end the
chat must have each message once, in the order of the requests.
"""

import json
import random
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from examples.ledger import write
from lockstitch import Agent, ToolContext, tool
from lockstitch.engine.config import RunStart
from lockstitch.engine.ports.provider import ModelRequest
from lockstitch.errors import LockstitchError, NotFound, ThreadEnded
from lockstitch.model import Json
from lockstitch.model.message import user
from lockstitch.store import Store
from lockstitch.testing import Scripted

CHATS: Final = 8
"""Number of chats at the same time."""

AGAIN: Final = "again"
"""First word of the id of a request for another answer."""


@dataclass
class Client:
    """One user of one chat."""

    key: str
    sent: list[str] = field(default_factory=list[str])
    """Texts of the messages that the store has acknowledged."""
    requests: int = 0
    """Number of requests so far."""
    open: str | None = None
    """Id of the request without an acknowledgement."""
    ended: bool = False
    """True if the thread of the chat has failed."""


def _deps(start: RunStart) -> Json:
    return {"user": start.user_id}


@tool(effect="once")
async def charge(what: str, ctx: ToolContext) -> str:
    """Charge the user of the chat."""
    assert what.startswith(ctx.deps["user"])
    return await write(ctx)


def _reply(request: ModelRequest) -> Any:
    """Charge once per message."""
    content = request.messages[-1]["content"]
    if isinstance(content, str):
        return {"calls": [{"name": "charge", "input": {"what": content}}]}
    return "Charged."


clerk = Agent(
    "clerk",
    model=Scripted(_reply),
    instructions=lambda deps: f"Serve {deps['user']}.",
    tools=[charge],
    deps=_deps,
    title=False,
)


async def send_requests(store: Store, die: random.Random, folder: Path, *, new: bool = True) -> bool:
    """Let every client send its open request again, or a new one. Return True if all requests are acknowledged."""
    clients = read_clients(folder)
    for client in clients:
        if client.ended or (client.open is None and not new):
            continue
        if client.open is None:
            client.requests += 1
            again = bool(client.sent) and die.random() < 0.3
            client.open = f"{AGAIN if again else client.key} {client.requests}"
            # A client that is killed here sends the request later.
            _write_clients(folder, clients)
        # The store may be unreachable, or the chat may not be at rest. The next round tries again.
        with suppress(LockstitchError):
            try:
                await _send_twice(store, client)
            except ThreadEnded:
                client.ended = True
    _write_clients(folder, clients)
    return all(client.open is None or client.ended for client in clients)


async def _send_twice(store: Store, client: Client) -> None:
    assert client.open is not None
    if client.open.startswith(AGAIN):
        runs = [(await store.regenerate(client.key, message_id=client.open)).run_id for _ in range(2)]
    else:
        runs = [
            (
                await store.enqueue(
                    "clerk", user(client.open), thread=client.key, user_id=client.key, message_id=client.open
                )
            ).run_id
            for _ in range(2)
        ]
        client.sent.append(client.open)
    assert runs[0] == runs[1], "a repeated request started another run"
    client.open = None


async def problems_of_clients(store: Store, folder: Path) -> list[tuple[str, str, str]]:
    """Return kind, thread and text of each problem."""
    problems: list[tuple[str, str, str]] = []
    for client in read_clients(folder):
        try:
            turns = (await store.history(client.key, limit=1000)).turns
        except NotFound:
            turns = []
        if client.ended:
            continue
        shown = [str(turn.user_message) for turn in reversed(turns)]
        if shown != client.sent:
            kind = "doubled" if len(shown) > len(client.sent) else "lost"
            problems.append((kind, client.key, f"its messages are {shown} instead of {client.sent}"))
        if client.open is not None:
            problems.append(("unfinished", client.key, f"the request {client.open} was never accepted"))
        unfinished = [turn.run for turn in turns if turn.run.status != "completed"]
        problems += [("unfinished", client.key, f"turn {run.turn} is {run.status}") for run in unfinished]
    return problems


def read_clients(folder: Path) -> list[Client]:
    path = folder / "clients.json"
    if not path.exists():
        return [Client(f"client-{number}") for number in range(CHATS)]
    return [Client(**stored) for stored in json.loads(path.read_text())]


def _write_clients(folder: Path, clients: list[Client]) -> None:
    (folder / "clients.json").write_text(json.dumps([asdict(client) for client in clients]))
