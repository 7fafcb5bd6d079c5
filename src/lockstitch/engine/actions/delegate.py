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


async def run_members(context: RunContext, calls: Sequence[Call], drive: Drive) -> None:
    """Have members work on these calls as far as they come, and note the answers of those that have one."""
    if context.should_release():
        return
    ready = [(call, await _ready(context, call)) for call in calls]
    # One commit for all that begin, with the response that asks for them.
    await context.journal.commit()
    if len(ready) == 1:
        await _work(context, *ready[0], drive)
        return
    places = asyncio.Semaphore(context.setup.definition.parallel_tools)

    async def one(call: Call, run: Run | RunContext) -> None:
        async with places:
            await _work(context, call, run, drive)

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


async def compile_answer(context: RunContext, drive: Drive) -> None:
    """Have the leader answer from what its members said, in a further run of the same lane."""
    session, run = context.journal, context.journal.open_run
    last = session.snapshot.compile_run()
    lane = _lane(session, last) if last is not None and last.open else None
    inner = context.for_nested_run(lane or RunSession(session.ledger), context.setup, context.system)
    if lane is None:
        earlier = [run, *(nested_run for nested_run in session.snapshot.nested_runs if nested_run.compiles)]
        stored = {name: run.state[name] for name in ("context_from", "without", "container_id") if name in run.state}
        state: Json = {"compiles": True, "asked_before": sum(run.steps for run in earlier), **stored}
        if run.lane is not None:
            state["lane"] = str(run.lane)
        await start_nested_run(inner, run, new_id(), state, session.stitches)
        await inner.journal.commit()
    else:
        await restore_request_settings(inner)
    compiled = await _drive(context, inner, drive)
    if not compiled.open and (doubts := of_inner(compiled)):
        session.change_run(state=with_doubts(session.open_run, doubts))
    session.share_context(inner.journal)


async def _ready(context: RunContext, call: Call) -> Run | RunContext:
    """A member at its place, with a run that begins or goes on; or its run, if that has ended."""
    run = context.journal.snapshot.member_run(call)
    if run is None:
        return await _begun(context, call)
    if not run.open:
        return run
    inner = context.for_nested_run(_lane(context.journal, run), await _setup_of(context, run), None)
    await restore_request_settings(inner)
    return inner


async def _work(context: RunContext, call: Call, run: Run | RunContext, drive: Drive) -> None:
    """Drive a member, and answer the call that asked for it once its run has ended."""
    if isinstance(run, RunContext):
        run = await _drive(context, run, drive)
    if not run.open:
        await _answer(context, call, run)


async def _begun(context: RunContext, call: Call) -> RunContext:
    """A member whose run begins with the next commit."""
    name, session = member_of(call), context.journal
    assert context.setup.members is not None
    config, system = await context.setup.members.setup(name, None)
    before = [nested_run for nested_run in session.snapshot.nested_runs if not nested_run.compiles]
    state: Json = {"call": call.id, "step": call.step}
    steps_of = session.ledger.steps_of(name)
    if steps_of:
        state["asked_before"] = steps_of
    run_id = new_id()
    log: list[Stitch] = []
    team = context.setup.definition.team
    if team is not None and team.mode == "sequence":
        body = {
            run.output_position: str(run.agent)
            for run in before
            if run.state.get("step") == call.step and run.output_position is not None
        }
        if body:
            state["injected"] = [{"position": position, "agent": agent} for position, agent in body.items()]
        for position, agent in body.items():
            stitches = await session.store.stitches(session.head, position, position)
            log += [injected_message(stitch, run_id, agent) for stitch in stitches]
    context.emit("tool_call", {"id": call.id, "name": call.name, "input": call.input})
    inner = context.for_nested_run(RunSession(session.ledger), _limited(config, context.setup), system)
    await start_nested_run(inner, session.open_run, run_id, state, log, task_of(call))
    return inner


async def _drive(context: RunContext, inner: RunContext, drive: Drive) -> Run:
    """Drive a run within another as far as it goes; the run as it is then."""
    ledger = context.journal.ledger
    ledger.resting_runs.pop(inner.journal.open_run.id, None)
    context.within.append(inner)
    try:
        ended = await drive(inner)
    finally:
        context.within.remove(inner)
    if ended == "finished":
        ledger.end(inner.journal)
    return inner.journal.open_run


async def _answer(context: RunContext, call: Call, run: Run) -> None:
    """The answer of a member as the result of the call that asked for it."""
    session = context.journal
    failed = run.status != "completed"
    content = await _said(context, run)
    doubts = of_inner(run)
    if failed:
        content = f"{run.agent} {run.status}: {run.error or 'it did not come to an answer.'} {sentence(doubts)}".strip()
    if doubts:
        session.change_run(state=with_doubts(session.open_run, doubts))
    # From its run's beginning to now, so that what it took covers its run where both are drawn.
    took = (session.clock.now() - run.started_at).total_seconds()
    session.record(
        session.entry(
            "tool_call",
            name=call.name,
            call_id=call.id,
            call_index=call.index,
            reply_to=session.response_position(call),
            status="error" if failed else "ok",
            message=tool_result(call.id, content, is_error=failed),
            data={"run": str(run.id)},
            duration_ms=max(0, round(took * 1000)),
        )
    )
    context.emit("tool_result", {"id": call.id, "name": call.name, "content": content, "is_error": failed})


async def _said(context: RunContext, run: Run) -> str:
    """What a run answered, or was completed with."""
    if run.output_position is not None:
        return await context.journal.store.execution.answer_text_at(context.journal.head, run.output_position) or ""
    return str(run.state.get("summary") or "")


async def _setup_of(context: RunContext, run: Run) -> RunConfig:
    """What an open run of a member goes on by; one whose code is gone can only be ended."""
    crew = context.setup.members
    if crew is not None and run.agent in crew.names:
        return _limited((await crew.setup(str(run.agent), run))[0], context.setup)
    return await config_for_ending(context.journal.store, context.journal.head, run)


def _limited(member: RunConfig, leader: RunConfig) -> RunConfig:
    """A member's setup within the limits of the thread, which are its leader's."""
    definition, all_ = member.definition, leader.definition
    budgets = [item for item in (definition.thread_budget, all_.thread_budget) if item is not None]
    limits: dict[str, Any] = {
        "max_stitches": min(definition.max_stitches, all_.max_stitches),
        "thread_budget": min(budgets, default=None),
    }
    return replace(member, definition=definition.model_copy(update=limits))


def _lane(session: RunSession, run: Run) -> RunSession:
    return next(
        lane
        for lane in session.ledger.lanes
        if isinstance(lane, RunSession) and lane.run is not None and lane.run.id == run.id
    )
