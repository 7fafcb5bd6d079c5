"""`ThreadClaimer`: claim ready threads for one worker, and isolate suspects.

Each thread that a dead worker held is a suspect: it may have ended that process. A worker executes a suspect alone, and
starts nothing else in its process until the suspect has made progress. So a crash is counted only for the thread that
caused it.

Every wait has a limit. If no idle worker claims a suspect, a busy worker releases its other threads at their next
commit. After `alone` seconds without progress of the suspect, the worker starts other threads again. A suspect that has
waited for `alone` seconds is executed together with other threads. If a process ends then, no crash is counted. The
limit doubles with each loss.
"""

import logging
import random
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final
from uuid import UUID
from weakref import WeakSet

from lockstitch.engine.host import AgentHost
from lockstitch.errors import LockstitchError
from lockstitch.model import Thread
from lockstitch.store import Store
from lockstitch.store.lease_keeper import executing

ALONE: Final = 30.0
"""Seconds that a suspect is executed alone, and that it waits for a process without other threads; see `_patience`."""

DRAIN: Final = 1.0
"""Seconds that a busy worker leaves a suspect to idle workers before it releases its own threads. The value is
multiplied by a random factor between 1 and 2, so that of many workers one is first."""

_log = logging.getLogger("lockstitch")


def _patience(alone: float, losses: int) -> float:
    """Return the seconds that a suspect is executed alone, or waits for that, after this number of losses in a row."""
    return alone * 2 ** min(max(losses - 1, 0), 5)


class ThreadClaimer:
    """Claims threads of a host's agents for one worker. All claimers of a process keep suspects alone in it."""

    def __init__(
        self,
        store: Store,
        host: AgentHost,
        held: Callable[[], int],
        *,
        concurrency: int,
        all_projects: bool,
        poll: float,
        alone: float,
        drain: float,
    ) -> None:
        self._store = store
        self._host = host
        self._held = held
        """Returns the number of threads that the worker executes."""
        self._concurrency = concurrency
        self._all_projects = all_projects
        self._poll = poll
        self._alone = alone
        self._drain = drain
        self._suspects: set[UUID] = set()
        """Suspects in execution here that have made no progress yet."""
        self._alone_until = 0.0
        """Time on the monotonic clock until which the suspect in execution here is alone; 0 if there is none."""
        self._claiming = False
        self.exhausted = False
        """True if the last claim found fewer threads than there were free places."""
        self._draining = False
        """True while threads in execution are released at their next commit, because a suspect waits."""
        self._waiting_since: float | None = None
        """Time since when a suspect has been waiting for this process to have no other threads."""
        self._drain_at = 0.0
        self._suspects_at = 0.0
        _claimers.add(self)

    async def claim(self) -> list[Thread]:
        """Claim ready threads for the free places. Store errors are logged; then the list is empty."""
        self.exhausted = False
        if any(claimer.isolates for claimer in _claimers):
            return []
        self._claiming = True
        try:
            suspects = await self._claim_suspect()
            free = self._concurrency - self._held()
            if suspects or free <= 0 or self._draining:
                return suspects
            claimed = await self._claim_next(limit=free, suspects=False)
            self.exhausted = len(claimed) < free
            return claimed
        except LockstitchError as exc:
            # The store is unreachable, or this process was declared dead and registers again.
            _log.warning("Claim failed: %s", exc)
            return []
        finally:
            self._claiming = False

    async def _claim_next(self, **options: Any) -> list[Thread]:
        agents = self._host.agent_names
        return await self._store.claim_next(agents=agents, all_projects=self._all_projects, **options)

    @property
    def busy(self) -> bool:
        """True while this worker executes threads or claims some."""
        return self._held() > 0 or self._claiming

    @property
    def waits_for_suspect(self) -> bool:
        """True if a suspect was ready at the last claim that left it to other workers, so that `claim` looks again."""
        return self._draining or self._waiting_since is not None

    @property
    def isolates(self) -> bool:
        """True while this worker executes a suspect alone, so that its process must start nothing else."""
        return time.monotonic() < self._alone_until

    async def _claim_suspect(self) -> list[Thread]:
        """Claim a suspect if this process executes nothing else, or if the suspect has waited long enough."""
        now = time.monotonic()
        others_busy = any(claimer.busy for claimer in _claimers if claimer is not self)
        if not self._held() and not executing() and not others_busy:
            return await self._claim_alone(now)
        if now < self._suspects_at:
            return []
        self._suspects_at = now + self._poll / 2
        ready = await self._ready_suspect()
        if ready is None:
            self._draining, self._waiting_since = False, None
            return []
        if self._waiting_since is None:
            self._waiting_since = now
            self._drain_at = now + self._drain * random.uniform(1, 2)
        waited = now - self._waiting_since
        if waited < _patience(self._alone, ready.losses):
            # Healthy threads do not wait for longer than the first limit, however often the suspect was lost.
            self._draining = (self._draining or now >= self._drain_at) and waited < self._alone
            return []
        if self._held() >= self._concurrency:
            # The next free place is for the suspect.
            self._draining = True
            return []
        claimed = await self._claim_next(limit=1, suspects=True)
        if not claimed:
            self._postpone_suspects(now)
        return claimed

    def _postpone_suspects(self, now: float) -> None:
        """Claim healthy threads for a while, because a limit prevents the claim of a suspect."""
        self._draining = False
        self._suspects_at = now + self._alone

    async def _claim_alone(self, now: float) -> list[Thread]:
        """Claim a suspect for a process that executes nothing else."""
        self._waiting_since = None
        # Set first, so that no other worker of this process claims at the same time.
        self._alone_until = now + self._alone
        claimed: list[Thread] = []
        try:
            claimed = await self._claim_next(limit=1, suspects=True, alone=True)
            drained, self._draining = self._draining, False
            if drained and not claimed and await self._ready_suspect() is not None:
                self._postpone_suspects(now)
            if claimed:
                # If another suspect is ready, release this one after its progress. It is held, so suppress errors.
                with suppress(LockstitchError):
                    self._draining = await self._ready_suspect() is not None
        except BaseException:
            # Cancelled after the claim: no task executes the threads that it claimed.
            for head in claimed:
                self._store.execution.request_release(head)
            claimed = []
            raise
        finally:
            self._alone_until = now + _patience(self._alone, claimed[0].losses) if claimed else 0.0
        return claimed

    async def _ready_suspect(self) -> Thread | None:
        project = None if self._all_projects else self._store.project
        return await self._store.execution.ready_suspect(self._host.agent_names, project)

    def on_start(self, head: Thread) -> None:
        """The worker starts to execute a claimed thread."""
        if head.suspect:
            self._suspects.add(head.id)

    def should_release(self, head: Thread) -> bool:
        """True if the worker should release a thread at its next commit, because a suspect waits."""
        return self._draining and head.id not in self._suspects

    def clear(self, head: Thread) -> bool:
        """Allow other threads again, because a suspect made progress or is no longer executed here.

        Return True if the thread was such a suspect, so that the worker can claim again.
        """
        if head.id not in self._suspects:
            return False
        self._suspects.discard(head.id)
        self._alone_until = 0.0
        return True


_claimers: WeakSet[ThreadClaimer] = WeakSet()
"""The claimers of all workers of this process. While one isolates a suspect, none claims another thread."""
