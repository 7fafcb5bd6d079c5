"""Start a replay from the run page."""

from typing import Annotated

from fastapi import Form, Request
from starlette.responses import Response

from lockstitch.errors import NotFound
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


async def prompt_of(caller: Caller, run: Run) -> str:
    """Return the instructions of the version of the agent that executed a run. Empty: they are unknown."""
    if run.agent is None or run.version is None:
        return ""
    try:
        version = await caller.store.agents.version(caller.store.project, run.agent, run.version)
    except NotFound:
        return ""
    return str(version.definition.get("instructions") or "")


@router.post("/run/{ref}/replay")
async def replay_run(
    request: Request,
    caller: FormWriter,
    ref: str,
    model: Annotated[str, Form(max_length=255)] = "",
    prompt: Annotated[str, Form(max_length=100_000)] = "",
    version: Annotated[str, Form(max_length=10, pattern=r"^\d*$")] = "",
    live: Annotated[str, Form(max_length=10)] = "",
) -> Response:
    """Run a recorded run again, with tool results from the record, and open the thread of the replay."""
    run = await caller.store.run(ref)
    instructions = prompt.replace("\r\n", "\n").strip()
    if instructions == (await prompt_of(caller, run)).strip():
        # The form shows the recorded prompt. Unchanged, it does not replace that of the chosen version.
        instructions = ""
    replay = NewReplay(
        source=str(run.id),
        model=model.strip() or None,
        instructions=instructions or None,
        version=int(version) if version else None,
        live="safe" if live else None,
    )
    thread = await started(caller, replay)
    forget()
    return forms.done(request, f"/threads/{thread.id}", "Replay started. Calls of tools get the recorded results.")
