"""`Worker`, process liveness, `ClaimRequest` and the fair claim order."""

import os
import socket
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import cache
from pathlib import Path
from typing import ClassVar, Literal, NamedTuple
from uuid import UUID

from pydantic import Field

from lockstitch.model.clock import Clock, uptime
from lockstitch.model.ids import new_id
from lockstitch.model.record import Json, Number, Record, Text, Time
from lockstitch.model.side_records import Limit
from lockstitch.model.thread import Thread

EndCause = Literal["stopped", "died", "expired", "taken_over"]
"""How a worker ended: it released its threads itself, its process is gone, its lease expired, or a caller forced a
takeover. Only `died` and `expired` are crashes."""


class Worker(Record):
    """A process's right to act until its lease expires. Heartbeats renew the lease. Every start has a new id."""

    table: ClassVar[str] = "workers"

    id: UUID = Field(default_factory=new_id)
    """Id of the worker, a UUIDv7. Every start of a process has a new one."""
    host: Text = ""
    """Host name."""
    boot_id: Text = ""
    """Id of the machine's boot. Empty if the system has none."""
    pid_namespace: Text = ""
    """Id of the PID namespace. Empty if unknown."""
    time_namespace: Text = ""
    """Id of the time namespace. Empty if unknown."""
    pid: int = 0
    """Process id."""
    process_started: Text = ""
    """Start of the process in clock ticks since boot. Empty if unknown."""
    lease_seconds: Number = 30.0
    """Seconds after a heartbeat in which the lease is valid."""
    started_at: Time
    """Time of registration."""
    beat_at: Time
    """Time of the last heartbeat."""
    uptime: Number | None = None
    """Seconds since boot at the last heartbeat, on the kernel's monotonic clock. Only stores of one host write it."""
    dead: bool = False
    """True once the worker is declared dead. It can hold no threads then."""
    end_cause: Text | None = None
    """An `EndCause`, once the worker is dead."""
    doing: Json = {}
    """Current actions of the worker, by thread id."""


def current_process(now: datetime, lease_seconds: float = 30.0) -> Worker:
    """Return a worker record for the calling process."""
    pid = os.getpid()
    return Worker(
        host=socket.gethostname(),
        boot_id=boot_id(),
        pid_namespace=namespace("pid"),
        time_namespace=namespace("time"),
        pid=pid,
        process_started=process_started(pid) or "",
        lease_seconds=lease_seconds,
        started_at=now,
        beat_at=now,
    )


def is_provably_dead(worker: Worker) -> bool:
    """True if the process of `worker` has certainly ended.

    The caller must see the same processes: same host name, same boot, same PID namespace. A pid may belong to another
    process by now, so the start times must be equal; they are comparable within one time namespace. If any of this is
    different or unknown, nothing is proven, and the lease decides. Another boot under the same host name proves nothing
    either: two machines may have one name.
    """
    known = worker.boot_id and worker.pid_namespace and worker.time_namespace and worker.process_started
    if not known or worker.host != socket.gethostname() or worker.boot_id != boot_id():
        return False
    if (worker.pid_namespace, worker.time_namespace) != (namespace("pid"), namespace("time")):
        return False
    started = process_started(worker.pid)
    if started is not None:
        return started != worker.process_started
    return _ended(worker.pid)


class HostClock(NamedTuple):
    """The monotonic clock of this host as the calling process reads it, with the names that make it comparable."""

    host: str
    boot_id: str
    time_namespace: str
    uptime: float

    def measures(self, worker: Worker) -> bool:
        """True if the uptime of the worker's last heartbeat was read from this clock."""
        same = (worker.boot_id, worker.time_namespace) == (self.boot_id, self.time_namespace)
        return same and bool(self.boot_id) and worker.uptime is not None


def host_clock(clock: Clock) -> HostClock:
    """Return the present reading of the clock by which stores of one host judge leases."""
    return HostClock(socket.gethostname(), boot_id(), namespace("time"), uptime(clock))


def expired_on_host(worker: Worker, now: datetime, here: HostClock) -> bool:
    """True if the lease of a worker has expired, in a store with all processes on one host.

    The monotonic clock of the host decides. A worker of an earlier boot has ended. Where the readings are not
    comparable (another time namespace, or a system without a boot id) the wall clock decides.
    """
    if here.measures(worker):
        assert worker.uptime is not None
        return here.uptime - worker.uptime > worker.lease_seconds
    if worker.boot_id and here.boot_id and worker.host == here.host and worker.boot_id != here.boot_id:
        return True
    return now - worker.beat_at > timedelta(seconds=worker.lease_seconds)


@cache
def boot_id() -> str:
    """Return the id of this boot of the machine. It is empty if the system has none, and then nothing is provable."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def namespace(kind: Literal["pid", "time"]) -> str:
    """Return the id of this process's namespace of a kind; empty if the system does not provide it.

    The id is an inode number, which is unique within one boot. It is also empty if /proc belongs to another PID
    namespace (`unshare --pid` without `--mount-proc`): the pids of this process are those of other processes there.
    """
    try:
        if kind == "pid" and os.readlink("/proc/self") != str(os.getpid()):
            return ""
        return os.readlink(f"/proc/self/ns/{kind}")
    except FileNotFoundError:
        # A kernel without time namespaces has one clock for all processes.
        return "one" if kind == "time" and Path("/proc/self/ns").is_dir() else ""
    except OSError:
        return ""


def process_started(pid: int) -> str | None:
    """Return the start time of a process in clock ticks since boot.

    None if it cannot be read or the process is a zombie.
    """
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    # The command's name is in parentheses and may contain anything; the fields after it are fixed.
    fields = stat.rpartition(")")[2].split()
    state, started = fields[0], fields[19]
    return None if state in "ZX" else started


def _ended(pid: int) -> bool:
    """True if no process has this pid, or only a zombie has it.

    /proc may hide the processes of other users, so a missing file there proves nothing. A signal 0 does.
    """
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except OSError:
        return False
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state in "ZX"


class ClaimRequest(NamedTuple):
    """A worker's request for ready threads.

    In `agents` an empty name selects threads without an agent. None selects all threads.
    """

    worker_id: UUID
    agents: Sequence[str] | None = None
    project: str | None = None
    limit: int = 1
    after: str = ""
    limits: Sequence[Limit] = ()
    suspects: bool | None = None
    alone: bool = False

    def limited_to(self, held: Mapping[str, int], ready: Iterable[str]) -> "ClaimRequest":
        """Return the request reduced to the free slots of its limits.

        `held` is the number of held threads of each agent; `ready` are the agents with ready threads. Agents without a
        free slot are left out. The number of threads is at most the smallest number of free slots among the other
        agents, so any choice of their threads respects the limits.
        """
        room = free_slots(self.limits, held)
        wanted = {agent for agent in ready if self.agents is None or agent in self.agents}
        agents = sorted(agent for agent in wanted if room.get(agent, 1) > 0)
        left = [room[agent] for agent in agents if agent in room]
        return self._replace(agents=agents, limit=min([self.limit, *left]))


def free_slots(limits: Iterable[Limit], held: Mapping[str, int]) -> dict[str, int]:
    """Return the number of further threads that may be held, for each agent that a limit names."""
    room: dict[str, int] = {}
    for limit in limits:
        left = limit.at_most - sum(held.get(agent, 0) for agent in set(limit.agents))
        for agent in limit.agents:
            room[agent] = min(left, room.get(agent, left))
    return room


def limits_covering(limits: Iterable[Limit], agents: Collection[str | None] | None) -> list[Limit]:
    """Return the limits that apply to one of these agents (None: to any agent)."""
    return [limit for limit in limits if agents is None or any(agent in agents for agent in limit.agents)]


def most_suspect(ready: Iterable[Thread]) -> list[Thread]:
    """Return suspects in the order in which they are claimed: those lost most often first."""
    return sorted(
        (head for head in ready if head.suspect),
        key=lambda head: (-head.losses, -head.priority, head.wake_at or head.created_at, head.id),
    )


def in_fair_order(ready: Iterable[Thread], after: str) -> list[Thread]:
    """Return ready threads in the order in which they are claimed.

    Projects take turns: one thread of each project, then the second of each. The first project is the first name after
    `after`; the names before it follow at the end. Within a project, higher priority comes first, then the longest
    ready.
    """
    of_project: dict[str, list[Thread]] = {}
    for head in sorted(ready, key=lambda head: (-head.priority, head.wake_at or head.created_at, head.id)):
        of_project.setdefault(head.project, []).append(head)
    turns = [
        (turn, project <= after, project, head)
        for project, heads in of_project.items()
        for turn, head in enumerate(heads)
    ]
    return [head for *_, head in sorted(turns, key=lambda item: item[:3])]
