"""Start a replay from the run page."""

from typing import Annotated

from fastapi import Form, Request
from starlette.responses import Response

from lockstitch.model import Run, Thread
from lockstitch.server.api.replays import NewReplay, started
from lockstitch.server.auth import Caller, FormWriter
from lockstitch.server.pages.common import forms
from lockstitch.server.pages.navbar import page_router
from lockstitch.server.pages.threads.counts import forget

router = page_router()


def can_replay(caller: Caller, run: Run, head: Thread) -> bool:
    """True if this server can run a run again."""
    app = caller.state.app
    known = app is not None and run.agent in app.agents
    return known and caller.may("write") and run.parent_run_id is None and head.kind != "replay"


@router.post("/run/{ref}/replay")
async def replay_run(
    request: Request,
    caller: FormWriter,
    ref: str,
    model: Annotated[str, Form(max_length=255)] = "",
    version: Annotated[str, Form(max_length=10, pattern=r"^\d*$")] = "",
    live: Annotated[str, Form(max_length=10)] = "",
) -> Response:
    """Run a recorded run again, with tool results from the record, and open the thread of the replay."""
    run = await caller.store.run(ref)
    number = int(version) if version else None
    replay = NewReplay(source=str(run.id), model=model.strip() or None, version=number, live="safe" if live else None)
    thread = await started(caller, replay)
    forget()
    return forms.done(request, f"/threads/{thread.id}", "Replay started. Calls of tools get the recorded results.")
