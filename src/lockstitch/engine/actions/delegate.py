"""Run team members: each call of `delegate` is a nested run with its own lane, executed by the same loop."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any

from lockstitch.engine.config import RunConfig, config_for_ending
from lockstitch.engine.decision.delegation import member_of, task_of
from lockstitch.engine.decision.in_doubt import of_inner, sentence, with_doubts
from lockstitch.engine.decision.snapshot import Call
from lockstitch.engine.session.replay_source import without_effects
from lockstitch.engine.session.run_context import RunContext
from lockstitch.engine.session.run_session import RunSession
from lockstitch.engine.session.start import restore_request_settings, start_nested_run
from lockstitch.model import Json, Run, Stitch, new_id, tool_result
from lockstitch.model.context import injected_message

Loop = Callable[[RunContext], Awaitable[str]]
"""`run_loop`, passed as an argument because the loop imports this module."""


async def run_members(context: RunContext, calls: Sequence[Call], loop: Loop) -> None:
    """Execute the member runs of these calls until they end or pause, and record the answers of those that have
    ended."""
    if context.should_release():
        return
    ready = [(call, await _prepare(context, call)) for call in calls]
    # One commit starts all new member runs, together with the response that requests them.
    await context.session.commit()
    if len(ready) == 1:
        await _work(context, *ready[0], loop)
        return
    places = asyncio.Semaphore(context.config.definition.parallel_tools)

    async def execute(call: Call, run: Run | RunContext) -> None:
        async with places:
            await _work(context, call, run, loop)

    tasks = [asyncio.create_task(execute(call, run)) for call, run in ready]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
        for task in done:
            # An error that leaves the run open ends the whole execution: the thread is lost or the store unreachable.
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def compile_answer(context: RunContext, loop: Loop) -> None:
    """Let the leader answer from the results of its members, in a further run of the same lane."""
    session, run = context.session, context.session.open_run
    last = session.snapshot.compile_run()
    lane = _lane(session, last) if last is not None and last.open else None
    inner = context.for_nested_run(lane or RunSession(session.thread_session), context.config, context.system)
    if lane is None:
        earlier = [run, *(nested_run for nested_run in session.snapshot.nested_runs if nested_run.compiles)]
        stored = {name: run.state[name] for name in ("context_from", "without", "container_id") if name in run.state}
        state: Json = {"compiles": True, "asked_before": sum(run.steps for run in earlier), **stored}
        if run.lane is not None:
            state["lane"] = str(run.lane)
        await start_nested_run(inner, run, new_id(), state, session.stitches)
        await inner.session.commit()
    else:
        await restore_request_settings(inner)
    compiled = await _execute(context, inner, loop)
    if not compiled.open and (doubts := of_inner(compiled)):
        session.change_run(state=with_doubts(session.open_run, doubts))
    session.share_context(inner.session)


async def _prepare(context: RunContext, call: Call) -> Run | RunContext:
    """Return the context of a member run that starts or continues; or the run, if it has ended."""
    run = context.session.snapshot.member_run(call)
    if run is None:
        return await _new_run(context, call)
    if not run.open:
        return run
    inner = context.for_nested_run(_lane(context.session, run), await _config_of(context, run), None)
    await restore_request_settings(inner)
    return inner


async def _work(context: RunContext, call: Call, run: Run | RunContext, loop: Loop) -> None:
    """Execute a member run. If it has ended, record its answer as the result of the call."""
    if isinstance(run, RunContext):
        run = await _execute(context, run, loop)
    if not run.open:
        await _answer(context, call, run)


async def _new_run(context: RunContext, call: Call) -> RunContext:
    """Return the context of a member run that starts with the next commit."""
    name, session = member_of(call), context.session
    assert context.config.members is not None
    config, system = await context.config.members.run_config(name, None)
    before = [nested_run for nested_run in session.snapshot.nested_runs if not nested_run.compiles]
    state: Json = {"call": call.id, "step": call.step}
    steps_of = session.thread_session.steps_of(name)
    if steps_of:
        state["asked_before"] = steps_of
    run_id = new_id()
    log: list[Stitch] = []
    team = context.config.definition.team
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
    inner = context.for_nested_run(RunSession(session.thread_session), _limited(config, context), system)
    await start_nested_run(inner, session.open_run, run_id, state, log, task_of(call))
    return inner


async def _execute(context: RunContext, inner: RunContext, loop: Loop) -> Run:
    """Execute a nested run until it ends or pauses, and return it."""
    ledger = context.session.thread_session
    ledger.resting_runs.pop(inner.session.open_run.id, None)
    context.nested.append(inner)
    try:
        ended = await loop(inner)
    finally:
        context.nested.remove(inner)
    if ended == "finished":
        ledger.end(inner.session)
    return inner.session.open_run


async def _answer(context: RunContext, call: Call, run: Run) -> None:
    """Record the answer of a member as the result of the call that requested it."""
    session = context.session
    failed = run.status != "completed"
    content = await _answer_text(context, run)
    doubts = of_inner(run)
    if failed:
        content = f"{run.agent} {run.status}: {run.error or 'it returned no answer.'} {sentence(doubts)}".strip()
    if doubts:
        session.change_run(state=with_doubts(session.open_run, doubts))
    # Measured from the start of the run, so that the bar of the call covers the bar of the run in timelines.
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


async def _answer_text(context: RunContext, run: Run) -> str:
    """Return the answer of a run, or the summary passed to `complete_thread`."""
    if run.output_position is not None:
        return await context.session.store.execution.answer_text_at(context.session.head, run.output_position) or ""
    return str(run.state.get("summary") or "")


async def _config_of(context: RunContext, run: Run) -> RunConfig:
    """Return the config of an open member run. A run without code in this process can only be ended."""
    members = context.config.members
    if members is not None and run.agent in members.names:
        return _limited((await members.run_config(str(run.agent), run))[0], context)
    return await config_for_ending(context.session.store, context.session.head, run)


def _limited(member: RunConfig, context: RunContext) -> RunConfig:
    """Return the config of a member with the limits of the thread, which are those of the leader."""
    if context.recorded is not None:
        member = without_effects(member, live=context.recorded.live)
    definition, team = member.definition, context.config.definition
    budgets = [item for item in (definition.thread_budget, team.thread_budget) if item is not None]
    limits: dict[str, Any] = {
        "max_stitches": min(definition.max_stitches, team.max_stitches),
        "thread_budget": min(budgets, default=None),
    }
    return replace(member, definition=definition.model_copy(update=limits))


def _lane(session: RunSession, run: Run) -> RunSession:
    return next(
        lane
        for lane in session.thread_session.lanes
        if isinstance(lane, RunSession) and lane.run is not None and lane.run.id == run.id
    )
