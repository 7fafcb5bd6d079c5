"""`WorkerProcess`: open the store, run the worker loop, print progress, stop on a signal."""

import asyncio
import gc
import random
import signal
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, Final

from rich.text import Text

from lockstitch.cli import stdio
from lockstitch.cli.errors import warnings_to_stderr
from lockstitch.cli.exit_codes import ExitCode
from lockstitch.cli.render.output import cost, one_line, plural
from lockstitch.cli.render.threads import reasons, status_word
from lockstitch.cli.session import Session
from lockstitch.errors import StoreUnreachable, wire_name_of
from lockstitch.model import Json
from lockstitch.store import Store, open_store

if TYPE_CHECKING:
    from lockstitch.agents import App
    from lockstitch.engine.worker import ThreadExecution, WorkerLoop

PAUSE: Final = 1.0
"""Average seconds between two attempts to open an unreachable store. Each pause varies by half."""

_STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class WorkerProcess:
    """Runs a worker until it is idle (with `until_idle`) or a signal stops it."""

    def __init__(self, session: Session, app: "App", *, grace: float, **options: Any) -> None:
        self._session = session
        self._app = app
        self._grace = grace
        self._options = options
        self._log = WorkerLog(session)
        self._loop: WorkerLoop | None = None
        self._task: asyncio.Task[None] | None = None
        self._stopping = False
        self._code = 0

    async def work(self) -> int:
        """Run the worker and return the exit code after all threads are released."""
        self._task = asyncio.current_task()
        loop = asyncio.get_running_loop()
        for item in _STOP_SIGNALS:
            loop.add_signal_handler(item, self._stop, item)
        try:
            with warnings_to_stderr(as_json=self._session.json_output):
                await self._work()
        except asyncio.CancelledError:
            # All threads are released at this point.
            if not self._stopping:
                raise
        finally:
            for item in _STOP_SIGNALS:
                loop.remove_signal_handler(item)
        return self._code

    async def _work(self) -> None:
        from lockstitch.engine.worker import WorkerLoop

        session = self._session
        async with self._opened() as store:
            everywhere = not session.project_named
            self._loop = WorkerLoop(
                self._app, store, all_projects=everywhere, on_progress=self._log.of_thread, **self._options
            )
            project = None if everywhere else session.project
            self._log.started(sorted(self._app.agents), self._options["concurrency"], project)
            # As in `Service`: a collection would search the loaded modules each time.
            gc.freeze()
            try:
                await self._loop.run()
            finally:
                self._log.end(self._loop.executed_count)
                with suppress(asyncio.CancelledError):
                    await self._app.close()

    @asynccontextmanager
    async def _opened(self) -> AsyncGenerator[Store, None]:
        """Open the store. Retry while it is unreachable."""
        session = self._session
        while True:
            store = open_store(session.url, project=session.project)
            try:
                await store.__aenter__()
                break
            except StoreUnreachable as exc:
                self._log.waiting(str(exc))
            await asyncio.sleep(PAUSE * random.uniform(0.5, 1.5))
        try:
            yield store
        finally:
            # If the store is unreachable, other workers take the threads after the lease expires.
            with suppress(StoreUnreachable):
                await store.close()

    def _stop(self, number: int) -> None:
        if number == signal.SIGINT:
            self._code = ExitCode.INTERRUPTED
        assert self._task is not None
        if self._stopping or self._loop is None:
            self._stopping = True
            self._task.cancel()
            return
        self._stopping = True
        self._log.stopping(self._loop.held, self._grace)
        self._loop.stop()
        asyncio.get_running_loop().call_later(self._grace, self._task.cancel)


class WorkerLog:
    """Prints one line when a thread starts and one when it ends. If the reader is gone, the worker continues."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._out = session.out
        self._silent = False
        self._waits = False
        self._stopping = False

    def waiting(self, why: str) -> None:
        """Print once that the store is unreachable."""
        if not self._waits:
            self._waits = True
            stdio.print_error(f"lockstitch: {one_line(why)} Retrying.")

    def started(self, agents: list[str], concurrency: int, project: str | None) -> None:
        shown = self._session.shown
        scope = f"project {project}" if project else "all projects"
        names = ", ".join(agents) or "none"
        self._print(
            {"event": "works", "agents": agents, "concurrency": concurrency, "store": shown, "project": project},
            Text(f"Worker started: agents {names}, {scope}, concurrency {concurrency}, store {shown}"),
        )

    def of_thread(self, drive: "ThreadExecution") -> None:
        head, result = drive.head, drive.result
        who: Json = {"thread_id": str(head.id), "key": head.key, "project": head.project, "agent": head.agent}
        name = Text(f"{one_line(head.key) or head.id}  {one_line(head.agent)}")
        if drive.seconds is None:
            goal = Text(f"  {one_line(head.title or head.goal)}", style="dim")
            self._print({"event": "begins", **who}, Text("→ ", style="dim") + name + goal)
            return
        status, why = self._outcome(drive)
        spent = result.total_cost if result is not None else None
        took = {"status": status, "seconds": round(drive.seconds, 3), "total_cost": spent, "error": why}
        waits = {"waiting_for": result.waiting_for if result is not None else []}
        messages = [
            status_word(status),
            Text(f"{drive.seconds:.1f} s"),
            Text(cost(spent)),
            Text(why or "", style="dim"),
        ]
        line = Text("  ").join([Text("← ", style="dim") + name, *(part for part in messages if part.plain)])
        self._print({"event": "ends", **who, **took, **waits}, line)

    def stopping(self, held: int, grace: float) -> None:
        self._stopping = True
        seconds = f"{grace:g} s"
        text = f"Stopping: releasing {plural(held, 'thread')} at their next commit (at most {seconds})"
        self._print({"event": "leaves", "held": held, "grace": grace}, Text(text))

    def end(self, driven: int) -> None:
        self._print({"event": "left", "driven": driven}, Text(f"Stopped after {plural(driven, 'thread')}", style="dim"))

    def _outcome(self, drive: "ThreadExecution") -> tuple[str, str | None]:
        """Return how an execution ended, in one word, and the reason if there is one."""
        if drive.error is not None:
            return "released", one_line(f"{wire_name_of(drive.error)}: {drive.error}")
        if drive.result is None:
            return "released" if self._stopping else "nothing to do", None
        waits = drive.result.waits if drive.result.status == "waiting" else ()
        return drive.result.status, one_line(drive.result.error) or reasons(waits) or None

    def _print(self, value: Json, line: Text) -> None:
        if self._silent:
            return
        try:
            if self._session.json_output:
                self._out.json(value)
            else:
                self._out.cropped(line)
            stdio.flush()
        except BrokenPipeError:
            stdio.discard_output()
            self._silent = True
