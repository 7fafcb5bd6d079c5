"""Faults for a crew and its database, chosen by a seeded random generator."""

import contextlib
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import psycopg

from tests.chaos.crew import Crew
from tests.servers import PostgresServer

OUTAGE = 10.0
"""Seconds between two outages of the store: its server is killed, or its disk is full."""

LONGEST = 2.0
"""Maximum seconds of an outage."""


@dataclass
class FaultCounts:
    kills: int = 0
    stops: int = 0
    cuts: int = 0
    restarts: int = 0
    full_disks: int = 0
    killed: set[int] = field(default_factory=set[int])
    """The pids of the killed workers. Other workers that end were ended by a thread."""

    @property
    def outages(self) -> int:
        return self.restarts + self.full_disks


def inject_faults(
    crew: Crew, url: str, seconds: float, seed: int, server: PostgresServer | None, feed: Callable[[], bool]
) -> FaultCounts:
    """Kill, stop past the lease and continue, cut connections, and make the store unreachable, for this number of
    seconds.

    On a busy machine it takes longer, until each fault has happened at least once. It ends early if `feed` returns
    True.
    """
    outages = server is None or server.own
    die, counts = random.Random(seed), FaultCounts()
    end = time.monotonic() + seconds
    outage_at = time.monotonic() + min(OUTAGE, seconds / 2)
    fed = 0.0
    while time.monotonic() < end or counts.kills < 2 or not counts.stops or (outages and not counts.outages):
        crew.muster()
        crew.wake()
        # Not while a worker is stopped, perhaps during a write: feeding would block, and no code would wake the worker.
        if not crew.stopped and time.monotonic() - fed > 1.0:
            if feed():
                break
            fed = time.monotonic()
        time.sleep(die.uniform(0.1, 0.5))
        if outages and time.monotonic() >= outage_at:
            _make_unreachable(crew, server, die, counts)
            outage_at = time.monotonic() + OUTAGE
            continue
        act = die.choices(("kill", "stop", "cut"), (3, 4, 2 if server is not None else 0))[0]
        if act == "cut":
            counts.cuts += _cut(url, die)
        elif act == "kill" and len(crew.awake) > 1:
            victim = die.choice(crew.awake)
            crew.kill(victim)
            counts.kills += 1
            counts.killed.add(victim)
        elif act == "stop" and len(crew.awake) > 1 and crew.stoppable:
            crew.stop(die.choice(crew.stoppable), crew.lease * die.uniform(1.2, 2.0))
            counts.stops += 1
    crew.wake(all_of_them=True)
    crew.muster()
    return counts


def _make_unreachable(crew: Crew, server: PostgresServer | None, die: random.Random, counts: FaultCounts) -> None:
    """Make the store unreachable for a while."""
    seconds = die.uniform(0.0, LONGEST)
    if server is None:
        with crew.disk_full():
            time.sleep(seconds)
        counts.full_disks += 1
        return
    if die.random() < 0.5:
        server.kill()
    else:
        server.stop("immediate")
    time.sleep(seconds)
    server.start()
    counts.restarts += 1


def _cut(url: str, die: random.Random) -> int:
    """Close some of the connections to the database."""
    with contextlib.suppress(psycopg.Error), psycopg.connect(url, autocommit=True, connect_timeout=2) as admin:
        rows = admin.execute(
            "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
        ).fetchall()
        chosen = [pid for (pid,) in rows if die.random() < 0.5]
        for pid in chosen:
            admin.execute("SELECT pg_terminate_backend(%s)", (pid,))
        return len(chosen)
    return 0
