"""Orders: what a call wants to happen together with its result, in the one commit that keeps it.

A tool that only orders has done nothing before that commit, and all of it after. So it may run again after a crash
without a thought, and yet a child is made exactly once.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal
from uuid import UUID

from lockstitch.records import Json, Thread, format_time

Mode = Literal["all", "any"]
EndStatus = Literal["completed", "failed"]


@dataclass(slots=True)
class Orders:
    """What one call ordered."""

    children: list[Thread] = field(default_factory=list[Thread])
    tasks: list[Json] | None = None
    wait: Json | None = None
    end: Json | None = None

    def wait_for(self, ids: Iterable[UUID], mode: Mode = "all", until: datetime | None = None) -> None:
        """Wait for these threads before the model is called again."""
        before: list[str] = self.wait["ids"] if self.wait else []
        names = [*before, *(name for one in ids if (name := str(one)) not in before)]
        self.wait = {"ids": names, "mode": mode, "until": format_time(until) if until else None}

    def end_with(self, status: EndStatus, summary: str, data: Any = None) -> None:
        """End the thread once all calls of this response are answered."""
        self.end = {"status": status, "summary": summary, "data": data}

    @property
    def data(self) -> Json:
        """What the call's result tells of them, for `decide`."""
        told: Json = {}
        if self.children:
            told["children"] = [str(child.id) for child in self.children]
        if self.wait is not None:
            told["wait"] = self.wait
        if self.end is not None:
            told["end"] = self.end
        return told
