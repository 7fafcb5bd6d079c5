"""Replays: run recorded threads and runs again, and compare."""

from typing import Annotated, Literal

from pydantic import Field

from lockstitch.agents.replays import start_replay
from lockstitch.model import Thread
from lockstitch.server.api import responses
from lockstitch.server.api.schemas import Body, ExactJSON, Name, TextParam, ThreadRefParam
from lockstitch.server.auth import Caller, Reader, Writer
from lockstitch.server.middleware import add_log_fields
from lockstitch.server.routing import LazyRouter
from lockstitch.store.replays import recorded_source

router = LazyRouter(prefix="/api/replays", tags=["replays"], default_response_class=ExactJSON)


class NewReplay(Body):
    """A recorded thread or run, and the changes with which it is run again.

    With `live: "safe"`, tools with the effect `safe` run if the record does not have their call.
    """

    source: Name
    agent: Name | None = None
    version: Annotated[int, Field(ge=1, lt=2**53)] | None = None
    model: Name | None = None
    instructions: TextParam | None = None
    at: Annotated[int, Field(ge=1, lt=2**53)] | None = None
    live: Literal["safe"] | None = None
    key: Name | None = None


@router.post("", status_code=202, response_model=responses.Thread)
async def add(caller: Writer, body: NewReplay) -> ExactJSON:
    """Run a recorded thread or run again, with tool results from the record. A worker executes the replay.

    Returns the new thread of the kind `replay`. GET /api/replays/{ref} returns its report.
    """
    return ExactJSON((await started(caller, body)).as_json(), 202)


async def started(caller: Caller, body: NewReplay) -> Thread:
    """Start a replay with an agent of this app. Raises `NotFound` if no agent of this app executes it."""
    source = await recorded_source(caller.store, body.source)
    agent = caller.app.agent(body.agent or source.agent)
    thread = await start_replay(
        source,
        agent,
        store=caller.store,
        model=body.model,
        instructions=body.instructions,
        version=body.version,
        at=body.at,
        live_safe=body.live == "safe",
        key=body.key,
    )
    add_log_fields(thread=thread.id)
    return thread


@router.get("/{ref}", response_model=responses.Replay)
async def report(caller: Reader, ref: ThreadRefParam) -> ExactJSON:
    """Return the state of a replay, and its comparison with the recorded runs."""
    replay_report = await caller.store.replay_report(ref)
    add_log_fields(thread=replay_report.thread.id)
    return ExactJSON(replay_report.as_json())
