"""Taking a request's body in, whatever it is."""

from typing import Final

from fastapi import Request
from starlette.requests import ClientDisconnect

from lockstitch.records import Json
from lockstitch.server.access import Caller
from lockstitch.server.problems import Problem

_KEPT: Final = ("content-type", "content-encoding", "user-agent")
_LONGEST: Final = 500


async def accept(request: Request, caller: Caller, source: str) -> None:
    """Keep what a caller sends. It is durable when this returns."""
    intake = caller.house.intake
    length = request.headers.get("content-length", "")
    # Before it is read: whoever has to come back need not send it all first.
    intake.check_room(int(length) if length.isdecimal() else 0)
    try:
        body = await request.body()
    except ClientDisconnect as exc:
        raise Problem(400, "Cut off", "The caller left before the body was whole.") from exc
    headers: Json = {name: request.headers[name][:_LONGEST] for name in _KEPT if name in request.headers}
    headers["path"] = request.url.path[-_LONGEST:]
    await intake.take(caller.project, source, headers, body)
