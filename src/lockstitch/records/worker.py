"""A worker: one process that may hold threads, and how to know that it is dead."""

import os
import socket
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import ClassVar
from uuid import UUID

from pydantic import Field

from lockstitch.records.ids import new_id
from lockstitch.records.record import Json, Number, Record, Text, Time


class Worker(Record):
    """A process's right to act until its lease runs out, renewed by its beat. A new id at each start."""

    table: ClassVar[str] = "workers"

    id: UUID = Field(default_factory=new_id)
    host: Text = ""
    boot_id: Text = ""
    pid: int = 0
    process_started: Text = ""
    lease_seconds: Number = 30.0
    started_at: Time
    beat_at: Time
    dead: bool = False
    doing: Json = {}


def this_process(now: datetime, lease_seconds: float = 30.0) -> Worker:
    """A worker record for the process that calls."""
    pid = os.getpid()
    return Worker(
        host=socket.gethostname(),
        boot_id=boot_id(),
        pid=pid,
        process_started=process_started(pid) or "",
        lease_seconds=lease_seconds,
        started_at=now,
        beat_at=now,
    )


def provably_dead(worker: Worker) -> bool:
    """Whether the process behind `worker` surely exists no more: only known for processes of this host.

    A pid may have been given to another process since, so its start time must be the same too.
    """
    if worker.host != socket.gethostname() or not worker.boot_id:
        return False
    if worker.boot_id != boot_id():
        return True
    return process_started(worker.pid) != worker.process_started


@cache
def boot_id() -> str:
    """A name for this boot of the machine; empty where the system has none, and then nothing is provable."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def process_started(pid: int) -> str | None:
    """When the process with this pid began, in clock ticks since boot; None when there is none or it is a zombie."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    # The command's name stands in parentheses and may contain anything; what follows is fixed.
    fields = stat.rpartition(")")[2].split()
    state, started = fields[0], fields[19]
    return None if state in "ZX" else started
