"""What a person does to threads from a page. Nothing is driven here: a worker goes on, in this process or another."""

from dataclasses import replace
from typing import TypeVar
from uuid import UUID

from fastapi import Request
from starlette.responses import Response

from lockstitch.errors import Refused, ThreadEnded
from lockstitch.records import Thread
from lockstitch.server.access import Caller
from lockstitch.server.pages.frame import back, base_of, is_part

T = TypeVar("T")


def changed(record: T, **fields: object) -> T:
    return replace(record, **fields)  # type: ignore[type-var]


def agents_of(caller: Caller) -> list[str]:
    """The agents whose code this server has."""
    return sorted(caller.house.app.agents) if caller.house.app else []


def done(request: Request, path: str, said: str = "") -> Response:
    """After an act: look there. htmx is told to go, everybody else is sent."""
    if is_part(request):
        return Response(status_code=204, headers={"HX-Redirect": base_of(request) + path})
    return back(request, path, said)


async def begin(caller: Caller, agent: str, message: str, *, key: str | None, kind: str) -> UUID:
    """Give an agent something to do in a thread of its own."""
    who = caller.app.agent(agent)
    if kind == "goal":
        return (await who.start(store=caller.store, goal=message, key=key)).id
    return (await who.run(message, store=caller.store, thread=key, detach=True)).thread_id


async def say(caller: Caller, head: Thread, message: str) -> None:
    """Say something to a thread: it begins a run, or waits in line behind the open one."""
    if head.kind == "trace":
        raise Refused("This is a mirror of what happened in another system; nobody there reads this.")
    if head.ended:
        raise ThreadEnded(f"Thread {head.id} is {head.status} and takes no more; fork it to go on.", thread_id=head.id)
    await caller.app.agent(head.agent).run(message, store=caller.store, thread=head, detach=True)


async def retry(caller: Caller, head: Thread) -> None:
    """Try a failed or cancelled run again."""
    await caller.app.agent(head.agent).retry(head, store=caller.store, detach=True)


async def resume(caller: Caller, head: Thread) -> None:
    """Have a thread that was cut off, or that waits for time or for code, be looked at now."""
    await caller.app.agent(head.agent).resume(head, store=caller.store, detach=True)
