"""Mischief: what may happen to a crew and its database in a minute, drawn by a seeded die."""

import contextlib
import random
import time
from collections.abc import Callable
from dataclasses import dataclass

import psycopg

from tests.chaos.crew import Crew
from tests.servers import PostgresServer

RESTART = 15.0
"""Seconds between two crashes of the database server."""


@dataclass
class Toll:
    kills: int = 0
    stops: int = 0
    cuts: int = 0
    restarts: int = 0


def make_mischief(
    crew: Crew, seconds: float, seed: int, server: PostgresServer | None, feed: Callable[[], None]
) -> Toll:
    """Kill, stop past the lease and continue, cut connections, crash the server, for so many seconds.

    On a machine that is busy it takes longer: until at least each of these has happened.
    """
    crashes = server is not None and server.own
    die, toll = random.Random(seed), Toll()
    end = time.monotonic() + seconds
    crash_at = time.monotonic() + min(RESTART, seconds / 2)
    fed = 0.0
    while time.monotonic() < end or toll.kills < 2 or not toll.stops or (crashes and not toll.restarts):
        crew.muster()
        crew.wake()
        # Not while somebody stands still, perhaps in the middle of a write: feeding would wait, and nobody wake it.
        if not crew.stopped and time.monotonic() - fed > 1.0:
            feed()
            fed = time.monotonic()
        time.sleep(die.uniform(0.1, 0.5))
        if server is not None and crashes and time.monotonic() >= crash_at:
            server.stop("immediate")
            time.sleep(die.uniform(0.0, 0.5))
            server.start()
            toll.restarts += 1
            crash_at = time.monotonic() + RESTART
            continue
        act = die.choices(("kill", "stop", "cut"), (3, 4, 2 if server is not None else 0))[0]
        if act == "cut":
            toll.cuts += _cut(crew.url, die)
        elif len(crew.awake) > 1:
            victim = die.choice(crew.awake)
            if act == "kill":
                crew.kill(victim)
                toll.kills += 1
            else:
                crew.stop(victim, crew.lease * die.uniform(1.2, 2.0))
                toll.stops += 1
    crew.wake(all_of_them=True)
    crew.muster()
    return toll


def _cut(url: str, die: random.Random) -> int:
    """End some of the connections to the database, in the middle of whatever they do."""
    with contextlib.suppress(psycopg.Error), psycopg.connect(url, autocommit=True, connect_timeout=2) as admin:
        rows = admin.execute(
            "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
        ).fetchall()
        chosen = [pid for (pid,) in rows if die.random() < 0.5]
        for pid in chosen:
            admin.execute("SELECT pg_terminate_backend(%s)", (pid,))
        return len(chosen)
    return 0
