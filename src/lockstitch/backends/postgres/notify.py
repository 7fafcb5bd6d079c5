"""NOTIFY after commit; LISTEN with polling as fallback; how far the log is complete.

Its numbers are drawn in order but become visible out of order, so one that has been seen does not mean that all below
it have. It does once every transaction that was under way when it was seen has ended: only then does the mark move up
to it.

A notification is lost when its process dies between commit and telling, or while nobody is connected. Polling finds
it by log_id, above the mark up to which the log is complete.
"""

import asyncio
import random
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from uuid import UUID

import psycopg

from lockstitch.backend import WATCHING, WORK_READY, ChangeHint
from lockstitch.backends.postgres.connection import Connection, translate
from lockstitch.backends.postgres.pool import Pool
from lockstitch.backends.sql.dialect import Dialect
from lockstitch.backends.sql.queries import Script
from lockstitch.errors import LockstitchError


class LogHorizon:
    """Up to `mark` nothing more will appear in the log. It moves by looking, so by two looks or more."""

    def __init__(self) -> None:
        self.mark = 0
        self.end = 0
        """Where the log ended when it was last found to have grown: what becomes the mark next."""
        self._writing = 0
        """The transaction from which on all began after that was seen."""

    def look(self, dialect: Dialect, *, patient: bool = True) -> Script[bool]:
        """Look once; whether the mark stands where it can. Without patience it passes what does not end."""
        ((end, oldest, own),) = yield dialect.statement("horizon", {"known": self.end})
        if patient and oldest < self._writing:
            return False
        self.mark = self.end
        if own is not None:
            self.end, self._writing = end, own
        return True


PAUSE = 0.020
"""Seconds between two notifications of one process."""

SHORT_PAUSE = 0.005
"""The same, when something has become ready to be claimed."""

MANY = 2000
"""Threads told of in one statement. Whoever writes more at a time is found by polling."""

WORK_PAYLOAD = "work"


class Notifier:
    """Gathers what moved and sends it when the time has come. What cannot be sent is dropped: watchers also poll."""

    def __init__(self, pool: Pool, dialect: Dialect) -> None:
        self._pool = pool
        self._dialect = dialect
        self._moved: dict[UUID, int] = {}
        self._work = False
        self._task: asyncio.Task[None] | None = None
        self._sent = 0.0

    def tell(self, thread_id: UUID, position: int) -> None:
        self._moved[thread_id] = max(position, self._moved.get(thread_id, 0))
        self._start()

    def tell_work(self) -> None:
        """Tell that something has become ready; once for all that did since the last time."""
        self._work = True
        self._start()

    async def flush(self) -> None:
        """Wait until everything is sent, but not long for a server that does not answer."""
        if self._task is not None:
            await asyncio.wait([self._task], timeout=1)

    async def close(self) -> None:
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
                # Somebody waits for work, nobody waits for a stitch: what is ready is told sooner.
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


def heard(payload: str) -> ChangeHint | None:
    """What a notification says, or None when somebody else uses our channel."""
    if payload == WORK_PAYLOAD:
        return WORK_READY
    thread_id, _, position = payload.partition(":")
    try:
        return ChangeHint(UUID(thread_id), int(position))
    except ValueError:
        return None


POLL = 1.0
"""Seconds between two polls, give or take a fifth, so that processes do not poll in step."""

FIRST_PAUSE, LONGEST_PAUSE = 0.1, 2.0
"""Seconds between two attempts to listen again."""

BEFORE = 1000
"""Entries before the end of the log among which some may not be visible yet when watching begins."""

PATIENCE = 60
"""Polls after which the mark moves even past a transaction that does not end."""


class Watcher:
    """One listening connection for all who watch in this process; none while nobody does."""

    def __init__(self, pool: Pool, dialect: Dialect, notifier: Notifier) -> None:
        self._pool = pool
        self._dialect = dialect
        self._notifier = notifier
        self._mailboxes: set[_Mailbox] = set()
        self._task: asyncio.Task[None] | None = None
        self._starting = asyncio.Lock()

    async def watch(self) -> AsyncGenerator[ChangeHint, None]:
        mailbox = _Mailbox()
        self._mailboxes.add(mailbox)
        try:
            await self._start()
            yield WATCHING
            while not mailbox.closed:
                for sighting in await mailbox.take():
                    yield sighting
        finally:
            self._mailboxes.discard(mailbox)
            if not self._mailboxes:
                await self._stop()

    async def close(self) -> None:
        for mailbox in self._mailboxes:
            mailbox.close()
        await self._stop()

    async def _start(self) -> None:
        async with self._starting:
            if self._task is None:
                # What was committed here before is not to be heard of afterwards.
                await self._notifier.flush()
                log = _Log(self._dialect)
                self._task = asyncio.create_task(self._follow(await self._listen(log), log))
                # It must have begun before it can be cancelled, or nobody would close its connection.
                await asyncio.sleep(0)

    async def _stop(self) -> None:
        if self._task is not None:
            task, self._task = self._task, None
            task.cancel()
            await asyncio.wait([task])

    async def _listen(self, log: "_Log") -> Connection:
        connection = await self._pool.connect(listening=True)
        try:
            await connection.execute(b"LISTEN lockstitch")
            # Only now, so that nothing falls between the two.
            self._tell(await log.news(connection))
        except psycopg.Error as exc:
            await connection.close()
            raise translate(exc, self._pool.address.shown) from exc
        except BaseException:
            await connection.close()
            raise
        return connection

    async def _follow(self, connection: Connection, log: "_Log") -> None:
        """Listen, poll in between, and connect again when the connection breaks."""
        while True:
            try:
                while True:
                    await self._hear(connection, log)
                    self._tell(await log.news(connection))
            except psycopg.Error:
                pass
            finally:
                await connection.close()
            connection = await self._listen_again(log)
            # The log tells what moved meanwhile, but not what became ready.
            self._tell([WORK_READY])

    async def _hear(self, connection: Connection, log: "_Log") -> None:
        async with aclosing(connection.notifies(timeout=POLL * random.uniform(0.8, 1.2))) as notifications:
            async for notification in notifications:
                said = heard(notification.payload)
                if said is not None and (said == WORK_READY or log.hear(said)):
                    self._tell([said])

    async def _listen_again(self, log: "_Log") -> Connection:
        pause = FIRST_PAUSE
        while True:
            await asyncio.sleep(pause * random.uniform(0.5, 1.5))
            try:
                return await self._listen(log)
            except LockstitchError:
                pause = min(pause * 2, LONGEST_PAUSE)

    def _tell(self, sightings: list[ChangeHint]) -> None:
        for mailbox in self._mailboxes:
            mailbox.put(sightings)


class _Mailbox:
    """What one watcher has not taken yet: of each thread the last, so a slow one costs no memory."""

    def __init__(self) -> None:
        self.closed = False
        self._waiting: dict[UUID, int] = {}
        self._filled = asyncio.Event()

    def put(self, sightings: list[ChangeHint]) -> None:
        for thread_id, position in sightings:
            self._waiting[thread_id] = max(position, self._waiting.get(thread_id, 0))
        if sightings:
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
    """How far the log has been told of, by polling and by ear."""

    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect
        self._begun = False
        self._horizon = LogHorizon()
        self._polls = 0
        self._told: dict[UUID, int] = {}
        self._heard: dict[UUID, int] = {}
        self._heard_before: dict[UUID, int] = {}
        self._old: dict[UUID, int] = {}
        """Where threads stood when watching began; others may still be telling of that for a moment."""

    def hear(self, sighting: ChangeHint) -> bool:
        """Take note of a notification; whether it tells something new."""
        self._heard[sighting.thread_id] = sighting.position
        return sighting.position > self._old.get(sighting.thread_id, -1)

    async def news(self, connection: Connection) -> list[ChangeHint]:
        """What was committed since the last time. The first time nothing: it only takes note of what is there."""
        begins, self._begun = not self._begun, True
        mark = self._horizon.mark
        await self._look(connection)
        if begins:
            mark = self._horizon.mark = max(0, self._horizon.end - BEFORE)
        rows = await connection.execute_one(self._dialect.statement("sightings", {"mark": mark}))
        news = [] if begins else [ChangeHint(row[0], row[1]) for row in rows if self._is_news(*row)]
        self._old = {thread_id: position for thread_id, position, _ in rows} if begins else {}
        self._told = {thread_id: log_id for thread_id, _, log_id in rows}
        self._heard_before, self._heard = self._heard, {}
        return news

    def _is_news(self, thread_id: UUID, position: int, log_id: int) -> bool:
        if log_id <= self._told.get(thread_id, 0):
            return False
        return position > max(self._heard.get(thread_id, -1), self._heard_before.get(thread_id, -1))

    async def _look(self, connection: Connection) -> None:
        self._polls += 1
        if await connection.alone(self._horizon.look(self._dialect, patient=self._polls <= PATIENCE)):
            self._polls = 0
