"""`Notifier` sends NOTIFY after commits. `Watcher` listens and polls. `LogHorizon` knows how far the log is complete.

Transactions get values of `log_id` in order but become visible out of order. So a visible `log_id` does not mean that
all lower ones are visible. They are visible once every transaction that was open at that time has ended. Only then the
mark moves up.

A notification is lost if its process dies between commit and NOTIFY, or while the receiver is not connected. Polling
finds these changes by `log_id`, above the mark up to which the log is complete.
"""

import asyncio
import random
import time
from collections.abc import AsyncGenerator
from uuid import UUID

import psycopg

from lockstitch.backend import WATCHING, WORK_READY, ChangeHint
from lockstitch.backends.postgres.connection import Connection, translate
from lockstitch.backends.postgres.pool import Pool
from lockstitch.backends.sql.dialect import Dialect
from lockstitch.backends.sql.queries import Rows, Script
from lockstitch.errors import LockstitchError


class LogHorizon:
    """The position up to which the log is complete (`mark`).

    It advances with calls of `look`, and needs at least two of them.
    """

    def __init__(self) -> None:
        self.mark = 0
        self.end = 0
        """End of the log when it was last found to have grown: the next mark."""
        self._writing = 0
        """Transaction id. All transactions from this id on started after that end was read."""

    def look(self, dialect: Dialect, *, patient: bool = True) -> Script[bool]:
        """Read the end of the log once. Return True if the mark is as high as possible.

        Without `patient`, the mark passes transactions that do not end.
        """
        ((end, oldest, own),) = yield dialect.statement("horizon", {"known": self.end})
        if patient and oldest < self._writing:
            return False
        self.mark = self.end
        if own is not None:
            self.end, self._writing = end, own
        return True


PAUSE = 0.050
"""Seconds between two notifications of one process. The first one after a pause is sent at once."""

SHORT_PAUSE = 0.005
"""Seconds between two notifications if a thread has become ready."""

MANY = 2000
"""Maximum number of threads in one notification statement. Polling finds further ones."""

WORK_PAYLOAD = "work"


class Notifier:
    """Collects changed threads and sends notifications.

    Notifications that cannot be sent are dropped: watchers also poll.
    """

    def __init__(self, pool: Pool, dialect: Dialect) -> None:
        self._pool = pool
        self._dialect = dialect
        self._moved: dict[UUID, int] = {}
        self._work = False
        self._task: asyncio.Task[None] | None = None
        self._sent = 0.0

    def notify(self, thread_id: UUID, position: int) -> None:
        """Notify watchers that a thread has changed."""
        self._moved[thread_id] = max(position, self._moved.get(thread_id, 0))
        self._start()

    def notify_ready(self) -> None:
        """Notify watchers that threads have become ready."""
        self._work = True
        self._start()

    async def flush(self) -> None:
        """Wait until everything is sent, but at most one second."""
        if self._task is not None:
            await asyncio.wait([self._task], timeout=1)

    async def close(self) -> None:
        """Send the remaining notifications and stop."""
        await self.flush()
        if self._task is not None:
            task = self._task
            task.cancel()
            await asyncio.wait([task])

    def _start(self) -> None:
        if self._task is None:
            self._task = asyncio.create_task(self._send_all())

    async def _send_all(self) -> None:
        try:
            while self._moved or self._work:
                # Workers wait for ready threads, but no process waits for a single stitch, so ready threads are
                # notified sooner.
                pause = SHORT_PAUSE if self._work else PAUSE
                await asyncio.sleep(max(0.0, self._sent + pause - time.monotonic()))
                moved, self._moved = self._moved, {}
                payloads = [WORK_PAYLOAD] * self._work
                payloads += [f"{thread_id}:{position}" for thread_id, position in list(moved.items())[:MANY]]
                self._work = False
                self._sent = time.monotonic()
                try:
                    await self._pool.alone(lambda payloads=payloads: self._notify(payloads), repeatable=True)
                except LockstitchError:
                    continue
        finally:
            self._task = None

    def _notify(self, payloads: list[str]) -> Script[None]:
        yield self._dialect.statement("notify", {"payloads": " ".join(payloads)})


def parse_notification(payload: str) -> ChangeHint | None:
    """Return the hint of a notification, or None if another application uses the channel."""
    if payload == WORK_PAYLOAD:
        return WORK_READY
    thread_id, _, position = payload.partition(":")
    try:
        return ChangeHint(UUID(thread_id), int(position))
    except ValueError:
        return None


POLL = 1.0
"""Seconds between two polls, varied by a fifth, so that processes do not poll at the same time."""

FIRST_PAUSE, LONGEST_PAUSE = 0.1, 2.0
"""Seconds between two attempts to listen again."""

BEFORE = 1000
"""Stitches before the end of the log among which some may not be visible yet when watching starts."""

PATIENCE = 60
"""Number of polls after which the mark passes a transaction that does not end."""


class Watcher:
    """One listening connection for all watchers of this process. It is open only while there are watchers.

    The connection listens to changes of threads, and polls the log, only while a watcher wants the hints of threads. A
    worker does not: it polls for work itself.
    """

    def __init__(self, pool: Pool, dialect: Dialect, notifier: Notifier) -> None:
        self._pool = pool
        self._dialect = dialect
        self._notifier = notifier
        self._mailboxes: set[_Mailbox] = set()
        self._task: asyncio.Task[None] | None = None
        self._starting = asyncio.Lock()
        self._log: _Log | None = None
        """The log, from the first watcher that wants hints of threads to the last one."""
        self._log_ready = asyncio.Event()
        """Set while no commit can be missed by polling."""
        self._wake = asyncio.Event()
        """Set when the listening task must look at more than its connection."""

    async def watch(self, *, work_only: bool = False) -> AsyncGenerator[ChangeHint, None]:
        """Yield `WATCHING` first, then hints; with `work_only` those for workers."""
        mailbox = _Mailbox(work_only)
        self._mailboxes.add(mailbox)
        try:
            await self._start()
            if not work_only:
                self._wake.set()
                await self._log_ready.wait()
            yield WATCHING
            while not mailbox.closed:
                for hint in await mailbox.take():
                    yield hint
        finally:
            self._mailboxes.discard(mailbox)
            if not self._mailboxes:
                await self._stop()

    async def close(self) -> None:
        """End all watches and close the connection."""
        for mailbox in self._mailboxes:
            mailbox.close()
        self._log_ready.set()
        await self._stop()

    async def _start(self) -> None:
        async with self._starting:
            if self._task is None:
                # Watchers must not get hints for earlier commits of this process.
                await self._notifier.flush()
                self._log = None
                self._log_ready.clear()
                self._task = asyncio.create_task(self._follow(await self._listen()))
                # The task must have started before it can be cancelled, or its connection would stay open.
                await asyncio.sleep(0)

    async def _stop(self) -> None:
        if self._task is not None:
            task, self._task = self._task, None
            task.cancel()
            await asyncio.wait([task])

    async def _listen(self) -> Connection:
        connection = await self._pool.connect(listening=True)
        try:
            await connection.execute(b"LISTEN lockstitch_work")
            if self._log is not None:
                await connection.execute(b"LISTEN lockstitch")
            # After LISTEN, so that no change is missed between the two.
            await self._poll_log(connection)
        except psycopg.Error as exc:
            await connection.close()
            raise translate(exc, self._pool.address.shown) from exc
        except BaseException:
            await connection.close()
            raise
        return connection

    async def _follow(self, connection: Connection) -> None:
        """Listen, poll in between, and reconnect when the connection breaks."""
        while True:
            try:
                while True:
                    await self._receive(connection)
                    await self._poll_log(connection)
            except psycopg.Error:
                pass
            finally:
                await connection.close()
            connection = await self._listen_again()
            # The log contains changes in between, but not which threads became ready.
            self._emit([WORK_READY])

    async def _receive(self, connection: Connection) -> None:
        """Emit the hints of notifications, until it is time to poll the log."""
        poll_at = time.monotonic() + POLL * random.uniform(0.8, 1.2)
        while time.monotonic() < poll_at and (self._log is not None or not self._wants_log):
            for payload in await connection.notifications(self._wake, poll_at - time.monotonic()):
                hint = parse_notification(payload)
                if hint is None:
                    continue
                if hint == WORK_READY or (self._log is not None and self._log.receive(hint)):
                    self._emit([hint])

    @property
    def _wants_log(self) -> bool:
        return any(not mailbox.work_only for mailbox in self._mailboxes)

    async def _poll_log(self, connection: Connection) -> None:
        """Emit the commits since the last poll. The first poll after a watcher wants them reads where the log ends."""
        if not self._wants_log:
            if self._log is not None:
                await connection.execute(b"UNLISTEN lockstitch")
            self._log = None
            self._log_ready.clear()
            return
        log = self._log
        if log is None:
            await connection.execute(b"LISTEN lockstitch")
            log = _Log(self._dialect)
        self._emit(await log.new_hints(connection))
        self._log = log
        self._log_ready.set()

    async def _listen_again(self) -> Connection:
        pause = FIRST_PAUSE
        while True:
            await asyncio.sleep(pause * random.uniform(0.5, 1.5))
            try:
                return await self._listen()
            except LockstitchError:
                pause = min(pause * 2, LONGEST_PAUSE)

    def _emit(self, hints: list[ChangeHint]) -> None:
        for mailbox in self._mailboxes:
            mailbox.put(hints)


class _Mailbox:
    """Hints that one watcher has not read yet: the last one of each thread, so a slow watcher needs no memory."""

    def __init__(self, work_only: bool) -> None:
        self.closed = False
        self.work_only = work_only
        self._waiting: dict[UUID, int] = {}
        self._filled = asyncio.Event()

    def put(self, hints: list[ChangeHint]) -> None:
        if self.work_only:
            hints = [hint for hint in hints if hint == WORK_READY]
        for thread_id, position in hints:
            self._waiting[thread_id] = max(position, self._waiting.get(thread_id, 0))
        if hints:
            self._filled.set()

    async def take(self) -> list[ChangeHint]:
        await self._filled.wait()
        self._filled.clear()
        waiting, self._waiting = self._waiting, {}
        return [ChangeHint(thread_id, position) for thread_id, position in waiting.items()]

    def close(self) -> None:
        self.closed = True
        self._filled.set()


class _Log:
    """The part of the log that has been reported, by polling and by notifications."""

    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect
        self._started = False
        self._horizon = LogHorizon()
        self._polls = 0
        self._reported: dict[UUID, int] = {}
        self._notified: dict[UUID, int] = {}
        self._notified_before: dict[UUID, int] = {}
        self._old: dict[UUID, int] = {}
        """Positions of threads when watching started. Late notifications may still report them."""

    def receive(self, hint: ChangeHint) -> bool:
        """Store a notification. Return True if it contains a new position."""
        self._notified[hint.thread_id] = hint.position
        return hint.position > self._old.get(hint.thread_id, -1)

    async def new_hints(self, connection: Connection) -> list[ChangeHint]:
        """Return the commits since the last call. The first call only reads the current state and returns nothing."""
        begins, self._started = not self._started, True
        mark = self._horizon.mark
        await self._look(connection)
        if begins:
            mark = self._horizon.mark = max(0, self._horizon.end - BEFORE)
        rows = await connection.alone(self._sightings(mark))
        news = [] if begins else [ChangeHint(row[0], row[1]) for row in rows if self._is_new(*row)]
        self._old = {thread_id: position for thread_id, position, _ in rows} if begins else {}
        self._reported = {thread_id: log_id for thread_id, _, log_id in rows}
        self._notified_before, self._notified = self._notified, {}
        return news

    def _is_new(self, thread_id: UUID, position: int, log_id: int) -> bool:
        if log_id <= self._reported.get(thread_id, 0):
            return False
        return position > max(self._notified.get(thread_id, -1), self._notified_before.get(thread_id, -1))

    def _sightings(self, mark: int) -> Script[Rows]:
        return (yield self._dialect.statement("sightings", {"mark": mark}))

    async def _look(self, connection: Connection) -> None:
        self._polls += 1
        if await connection.alone(self._horizon.look(self._dialect, patient=self._polls <= PATIENCE)):
            self._polls = 0
