"""Running members: each call of `delegate` is a run of its own, driven by the same loop in a lane of its own."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any

from lockstitch.engine.config import RunConfig, config_for_ending
from lockstitch.engine.decision.delegation import member_of, task_of
from lockstitch.engine.decision.in_doubt import of_inner, sentence, with_doubts
from lockstitch.engine.decision.snapshot import Call
from lockstitch.engine.session.run_context import RunContext
from lockstitch.engine.session.run_session import RunSession
from lockstitch.engine.session.start import restore_request_settings, start_nested_run
from lockstitch.model import Json, Run, Stitch, new_id, tool_result
from lockstitch.model.context import injected_message

Drive = Callable[[RunContext], Awaitable[str]]
"""The loop, which this module cannot know: it is one of its acts."""


async def run_members(stage: RunContext, calls: Sequence[Call], drive: Drive) -> None:
    """Have members work on these calls as far as they come, and note the answers of those that have one."""
    if stage.should_release():
        return
    ready = [(call, await _ready(stage, call)) for call in calls]
    # One commit for all that begin, with the response that asks for them.
    await stage.journal.commit()
    if len(ready) == 1:
        await _work(stage, *ready[0], drive)
        return
    places = asyncio.Semaphore(stage.setup.definition.parallel_tools)

    async def one(call: Call, run: Run | RunContext) -> None:
        async with places:
            await _work(stage, call, run, drive)

    tasks = [asyncio.create_task(one(call, run)) for call, run in ready]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
        for task in done:
            # What ends one lane without ending its run ends the drive: the thread is another's, or the store is away.
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def compile_answer(stage: RunContext, drive: Drive) -> None:
    """Have the leader answer from what its members said, in a further run of the same lane."""
    journal, run = stage.journal, stage.journal.open_run
    last = journal.snapshot.compile_run()
    lane = _lane(journal, last) if last is not None and last.open else None
    inner = stage.for_nested_run(lane or RunSession(journal.ledger), stage.setup, stage.system)
    if lane is None:
        earlier = [run, *(one for one in journal.snapshot.nested_runs if one.compiles)]
        kept = {name: run.state[name] for name in ("context_from", "without", "container_id") if name in run.state}
        state: Json = {"compiles": True, "asked_before": sum(one.steps for one in earlier), **kept}
        if run.lane is not None:
            state["lane"] = str(run.lane)
        await start_nested_run(inner, run, new_id(), state, journal.stitches)
        await inner.journal.commit()
    else:
        await restore_request_settings(inner)
    compiled = await _drive(stage, inner, drive)
    if not compiled.open and (doubts := of_inner(compiled)):
        journal.change_run(state=with_doubts(journal.open_run, doubts))
    journal.share_context(inner.journal)


async def _ready(stage: RunContext, call: Call) -> Run | RunContext:
    """A member at its place, with a run that begins or goes on; or its run, if that has ended."""
    run = stage.journal.snapshot.member_run(call)
    if run is None:
        return await _begun(stage, call)
    if not run.open:
        return run
    inner = stage.for_nested_run(_lane(stage.journal, run), await _setup_of(stage, run), None)
    await restore_request_settings(inner)
    return inner


async def _work(stage: RunContext, call: Call, run: Run | RunContext, drive: Drive) -> None:
    """Drive a member, and answer the call that asked for it once its run has ended."""
    if isinstance(run, RunContext):
        run = await _drive(stage, run, drive)
    if not run.open:
        await _answer(stage, call, run)


async def _begun(stage: RunContext, call: Call) -> RunContext:
    """A member whose run begins with the next commit."""
    name, journal = member_of(call), stage.journal
    assert stage.setup.members is not None
    setup, system = await stage.setup.members.setup(name, None)
    before = [one for one in journal.snapshot.nested_runs if not one.compiles]
    state: Json = {"call": call.id, "step": call.step}
    asked = journal.ledger.steps_of(name)
    if asked:
        state["asked_before"] = asked
    run_id = new_id()
    log: list[Stitch] = []
    team = stage.setup.definition.team
    if team is not None and team.mode == "sequence":
        told = {
            one.output_position: str(one.agent)
            for one in before
            if one.state.get("step") == call.step and one.output_position is not None
        }
        if told:
            state["injected"] = [{"position": position, "agent": agent} for position, agent in told.items()]
        for position, agent in told.items():
            found = await journal.store.stitches(journal.head, position, position)
            log += [injected_message(one, run_id, agent) for one in found]
    stage.emit("tool_call", {"id": call.id, "name": call.name, "input": call.input})
    inner = stage.for_nested_run(RunSession(journal.ledger), _limited(setup, stage.setup), system)
    await start_nested_run(inner, journal.open_run, run_id, state, log, task_of(call))
    return inner


async def _drive(stage: RunContext, inner: RunContext, drive: Drive) -> Run:
    """Drive a run within another as far as it goes; the run as it is then."""
    ledger = stage.journal.ledger
    ledger.resting_runs.pop(inner.journal.open_run.id, None)
    stage.within.append(inner)
    try:
        ended = await drive(inner)
    finally:
        stage.within.remove(inner)
    if ended == "finished":
        ledger.end(inner.journal)
    return inner.journal.open_run


async def _answer(stage: RunContext, call: Call, run: Run) -> None:
    """The answer of a member as the result of the call that asked for it."""
    journal = stage.journal
    failed = run.status != "completed"
    content = await _said(stage, run)
    doubts = of_inner(run)
    if failed:
        content = f"{run.agent} {run.status}: {run.error or 'it did not come to an answer.'} {sentence(doubts)}".strip()
    if doubts:
        journal.change_run(state=with_doubts(journal.open_run, doubts))
    # From its run's beginning to now, so that what it took covers its run where both are drawn.
    took = (journal.clock.now() - run.started_at).total_seconds()
    journal.record(
        journal.entry(
            "tool_call",
            name=call.name,
            call_id=call.id,
            call_index=call.index,
            reply_to=journal.response_position(call),
            status="error" if failed else "ok",
            message=tool_result(call.id, content, is_error=failed),
            data={"run": str(run.id)},
            duration_ms=max(0, round(took * 1000)),
        )
    )
    stage.emit("tool_result", {"id": call.id, "name": call.name, "content": content, "is_error": failed})


async def _said(stage: RunContext, run: Run) -> str:
    """What a run answered, or was completed with."""
    if run.output_position is not None:
        return await stage.journal.store.execution.answer_text_at(stage.journal.head, run.output_position) or ""
    return str(run.state.get("summary") or "")


async def _setup_of(stage: RunContext, run: Run) -> RunConfig:
    """What an open run of a member goes on by; one whose code is gone can only be ended."""
    crew = stage.setup.members
    if crew is not None and run.agent in crew.names:
        return _limited((await crew.setup(str(run.agent), run))[0], stage.setup)
    return await config_for_ending(stage.journal.store, stage.journal.head, run)


def _limited(member: RunConfig, leader: RunConfig) -> RunConfig:
    """A member's setup within the limits of the thread, which are its leader's."""
    own, all_ = member.definition, leader.definition
    budgets = [one for one in (own.thread_budget, all_.thread_budget) if one is not None]
    limits: dict[str, Any] = {
        "max_stitches": min(own.max_stitches, all_.max_stitches),
        "thread_budget": min(budgets, default=None),
    }
    return replace(member, definition=own.model_copy(update=limits))


def _lane(journal: RunSession, run: Run) -> RunSession:
    return next(
        one
        for one in journal.ledger.lanes
        if isinstance(one, RunSession) and one.run is not None and one.run.id == run.id
    )
