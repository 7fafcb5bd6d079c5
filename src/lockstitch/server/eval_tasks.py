"""`EvalTasks`: the evaluations that this server executes. A server that starts continues those that it finds."""

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Final

from lockstitch.agents import App
from lockstitch.agents.evals.requests import EvalRequest, prepare_request, request_of, unfinished
from lockstitch.agents.evals.runner import PreparedEvaluation
from lockstitch.agents.evals.stored_evals import Evals
from lockstitch.errors import NotFound, Refused, StoreError, StoreUnreachable
from lockstitch.model import Eval, Json
from lockstitch.store import Store

_FIRST_PAUSE: Final = 1.0
_LONGEST_PAUSE: Final = 60.0
"""Seconds until an evaluation is tried again after an error of the store. The pause doubles with each error."""

_log: Final = logging.getLogger("lockstitch.server")


class EvalTasks:
    """The tasks of evaluations on this server."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    async def begin(self, app: App, store: Store, request: EvalRequest) -> Json:
        """Start an evaluation, or continue the one that was interrupted. Return it as it was before that."""
        prepared = await prepare_request(app.agent(request.agent), app.agents, store, request)
        if prepared.record.result["status"] == "stopped":
            prepared = await prepared.restarted()
        shown = await Evals(store).get(str(prepared.record.id))
        self._start(prepared, request.concurrency)
        return shown

    async def _continue(self, app: App, store: Store, record: Eval) -> None:
        """Continue an evaluation. If its agent, its dataset or a grader has changed, it stays stopped."""
        request = request_of(record)
        try:
            prepared = await prepare_request(app.agent(request.agent), app.agents, store, request, continues=record)
        except (NotFound, Refused) as exc:
            _log.warning("Evaluation %s was not continued: %s", record.id, exc)
            await _stop(store, record, str(exc))
        else:
            self._start(prepared, request.concurrency)

    def _start(self, prepared: PreparedEvaluation, concurrency: int) -> None:
        if any(task.get_name() == str(prepared.record.id) for task in self._tasks):
            return
        task = asyncio.create_task(_execute(prepared, concurrency), name=str(prepared.record.id))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    @asynccontextmanager
    async def running(self, app: App | None, store: Store) -> AsyncGenerator[None]:
        """Continue unfinished evaluations of the agents of the app.

        On exit, the evaluations stop, and the next server continues them.
        """
        if app is not None:
            for record in await unfinished(store):
                if record.agent in app.agents:
                    await self._continue(app, store.in_project(record.project), record)
        try:
            yield
        finally:
            tasks = list(self._tasks)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


async def _execute(prepared: PreparedEvaluation, concurrency: int) -> None:
    """Run an evaluation until it has finished or stopped. After an error of the store, it is tried again.

    It stops if the errors of a reachable store continue and no trial finishes in between.
    """
    record, pause, reason = prepared.record, _FIRST_PAUSE, ""

    def progress(*_: object) -> None:
        nonlocal pause
        pause = _FIRST_PAUSE

    try:
        while True:
            try:
                if reason:
                    await _stop(prepared.work.store, record, reason)
                else:
                    await prepared.run(concurrency=concurrency, progress=progress)
                return
            except StoreError as exc:
                _log.warning("Evaluation %s is tried again in %.0f s: %s", record.id, pause, exc)
                if pause == _LONGEST_PAUSE and not isinstance(exc, StoreUnreachable):
                    reason = reason or str(exc)
                await asyncio.sleep(pause)
                pause = min(2 * pause, _LONGEST_PAUSE)
            except Exception as exc:
                if reason:
                    raise
                _log.exception("Evaluation %s stopped. The same request continues it.", record.id)
                reason = str(exc) or type(exc).__name__
    finally:
        for grader in prepared.work.graders:
            await grader.close()


async def _stop(store: Store, record: Eval, reason: str) -> None:
    stopped = record.changed(result={"status": "stopped", "reason": reason}, updated_at=store.clock.now())
    await store.evals.put(stopped)
