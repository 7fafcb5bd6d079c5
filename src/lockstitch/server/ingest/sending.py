"""Accepting a request's body: it is read within limits, checked, redacted and stored before the answer."""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Final, TypeVar

from fastapi import Request
from starlette.requests import ClientDisconnect

from lockstitch.bridges.budget import Budget
from lockstitch.bridges.langsmith.redacting import redacted_body
from lockstitch.bridges.otel.screening import screen
from lockstitch.records import Json
from lockstitch.server.access import Caller
from lockstitch.server.ingest.arrivals import Intake
from lockstitch.server.ingest.bodies import OTEL
from lockstitch.server.problems import Problem

_KEPT: Final = ("content-type", "content-encoding", "user-agent")
_LONGEST: Final = 500
_SMALL: Final = 2 << 10
"""Bytes of a body that is looked at in the thread of the event loop, if it is not packed."""

_Found = TypeVar("_Found")


async def accept(request: Request, caller: Caller, source: str) -> list[str]:
    """Store what a caller sends. It is durable when this returns.

    Return what is wrong with parts of it that cannot be read, one entry for each. Of LangSmith's bodies this is not
    known yet. Raises Problem 400 if an OTLP request cannot be read at all, and `BodyTooExpensive` if reading it costs
    too much. Values that redaction hides are not stored.
    """
    intake = caller.house.intake
    length = request.headers.get("content-length", "")
    # Before the body is read: a client that has to come back need not send it all first.
    intake.check_room(int(length) if length.isdecimal() else 0)
    try:
        body = await request.body()
    except ClientDisconnect as exc:
        raise Problem(400, "Cut off", "The caller left before the body was whole.") from exc
    headers: Json = {name: request.headers[name][:_LONGEST] for name in _KEPT if name in request.headers}
    headers["path"] = request.url.path[-_LONGEST:]
    settings = caller.house.settings
    hide = frozenset(name.lower() for name in settings.redact)
    budget = Budget(settings.body_cost)
    problems: list[str] = []
    if source == OTEL:
        looking = partial(screen, body, budget, keep_secrets=settings.keep_secrets, hide=hide)
        found = await _apart(intake, body, budget, looking)
        if found.malformed:
            raise Problem(400, "Not OTLP", f"Nothing was stored: {'; '.join(found.problems)}")
        body = found.body
        problems = found.problems + [""] * (found.rejected - len(found.problems))
    elif not settings.keep_secrets:
        body = await _apart(intake, body, budget, partial(redacted_body, body, headers, budget, hide))
    await intake.take(caller.project, source, headers, body)
    return problems


async def _apart(intake: Intake, body: bytes, budget: Budget, look: Callable[[], _Found]) -> _Found:
    """Look at a body in a thread, unless it is small. If the caller leaves, the thread stops at its next step.

    Few threads look at once: each holds a body unpacked, and they share the processor with the event loop.
    """
    if len(body) <= _SMALL and not body.startswith((b"\x1f\x8b", b"\x28\xb5\x2f\xfd")):
        return look()
    async with intake.looking:
        try:
            return await asyncio.to_thread(look)
        except asyncio.CancelledError:
            budget.stop()
            raise
