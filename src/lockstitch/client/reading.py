"""Reading over HTTP, with the face of the store's reading calls, and following threads."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from datetime import datetime
from typing import Any, Literal
from uuid import UUID

from lockstitch.client.connection import Connection, part
from lockstitch.client.rows import Difference, Followed, History, Hit, Outcome, ThreadRow
from lockstitch.records import Feedback, File, Json, Memory, Message, Run, Stitch, Thread

Ref = Thread | UUID | str
"""A thread, its id, or its key in the project."""


class Reading:
    """What can be read. Methods that the store has too are told of there."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    # Threads

    async def thread(self, ref: Ref) -> Thread:
        return Thread.from_json(await self._get(thread_path(ref)))

    async def threads(self, *, limit: int = 50, after: Ref | None = None, **equal: Any) -> list[ThreadRow]:
        """Threads by last activity, newest first; by status, agent, kind, user_id, since or root_only."""
        marked = None if after is None else name_of(after)
        found = await self._get("/api/threads", limit=limit, after=marked, **equal)
        return [ThreadRow.from_json(row) for row in found["threads"]]

    async def tree(self, ref: Ref) -> ThreadRow:
        """The thread and all its descendants, each below its parent."""
        return ThreadRow.from_json(await self._get(f"{thread_path(ref)}/tree"))

    async def children(self, ref: Ref) -> list[ThreadRow]:
        return [ThreadRow.from_json(row) for row in await self._get(f"{thread_path(ref)}/children")]

    async def context(self, ref: Ref) -> list[Message]:
        return await self._get(f"{thread_path(ref)}/context")

    async def history(self, ref: Ref, *, limit: int = 20, offset: int = 0, before: int | None = None) -> History:
        found = await self._get(f"{thread_path(ref)}/history", limit=limit, offset=offset, before=before)
        return History(found["turns"], found["more"])

    async def stitches(self, ref: Ref, first: int = 1, last: int | None = None) -> list[Stitch]:
        found: list[Stitch] = []
        place: int | None = first
        while place is not None:
            page = await self._get(f"{thread_path(ref)}/stitches", first=place, last=last, limit=1000)
            found += [Stitch.from_json(row) for row in page["stitches"]]
            place = page["next"]
        return found

    async def files(self, ref: Ref) -> list[File]:
        return [File.from_json(row) for row in await self._get(f"{thread_path(ref)}/files")]

    async def size(self, ref: Ref) -> dict[str, int]:
        return await self._get(f"{thread_path(ref)}/size")

    # Runs and stitches

    async def runs(self, ref: Ref, *, limit: int = 1000) -> list[Run]:
        return [Run.from_json(row) for row in await self._get(f"{thread_path(ref)}/runs", limit=limit)]

    async def run(self, run_id: UUID | str) -> Run:
        return Run.from_json(await self._get(run_path(run_id)))

    async def result(self, run_id: UUID | str) -> Outcome:
        """The result of a run in its current state."""
        return Outcome.from_json(await self._get(f"{run_path(run_id)}/result"))

    async def log(self, run_id: UUID | str) -> list[Stitch]:
        return [Stitch.from_json(row) for row in await self._get(f"{run_path(run_id)}/log")]

    async def messages(self, run_id: UUID | str) -> list[Message]:
        return await self._get(f"{run_path(run_id)}/messages")

    async def trace(self, run_id: UUID | str, *, depth: int | None = None, limit: int = 500) -> Json:
        return await self._get(f"{run_path(run_id)}/trace", depth=depth, limit=limit)

    async def difference(self, a: UUID | str, b: UUID | str) -> Difference:
        return await self._get(f"{run_path(a)}/difference/{part(b)}")

    async def stitch(self, stitch_id: UUID | str) -> Stitch:
        return Stitch.from_json(await self._get(f"/api/stitches/{part(stitch_id)}"))

    async def request(self, stitch_id: UUID | str) -> Json:
        return await self._get(f"/api/stitches/{part(stitch_id)}/request")

    # Over many

    async def search(self, text: str, *, limit: int = 20) -> list[Hit]:
        found = await self._get("/api/search", q=text, limit=limit)
        return [Hit(UUID(row["thread_id"]), row["position"], row["score"], row["key"], row["title"]) for row in found]

    async def errors(self, *, limit: int = 50, since: datetime | None = None) -> list[Stitch]:
        return [Stitch.from_json(row) for row in await self._get("/api/errors", limit=limit, since=since)]

    async def statistics(self, *by: str, parts: Sequence[str] = (), **only: Any) -> Json:
        """Usage put together `by` these, and the `parts` that are wanted; without either an overview."""
        return await self._get("/api/stats", by=list(by) or None, parts=list(parts) or None, **only)

    async def agents(self) -> Json:
        return await self._get("/api/agents")

    async def memories(self, *, user_id: str | None = None, limit: int = 100) -> list[Memory]:
        found = await self._get("/api/memories", user_id=user_id, limit=limit)
        return [Memory.from_json(row) for row in found]

    async def feedback(self, ref: Ref | None = None, *, limit: int = 100) -> list[Feedback]:
        thread = None if ref is None else name_of(ref)
        return [Feedback.from_json(row) for row in await self._get("/api/feedback", thread=thread, limit=limit)]

    # Following

    def events(
        self, ref: Ref, *, after: int = 0, until: Literal["end", "idle", "now"] = "end"
    ) -> AsyncGenerator[Followed]:
        """A thread as it goes on: stitches, deltas of what is being said, how it stands, and its end."""
        return self._connection.follow(f"{thread_path(ref)}/events", after, until=until)

    async def watch(self, ref: Ref, *, after: int = 0) -> AsyncGenerator[Stitch]:
        """Stitches as they come: everything after a position, each once, until the thread ends."""
        async with aclosing(self.events(ref, after=after)) as events:
            async for event in events:
                if event.stitch is not None:
                    yield event.stitch

    async def _get(self, path: str, **parameters: Any) -> Any:
        return await self._connection.get(path, **parameters)


def name_of(ref: Ref) -> str:
    return str(ref.id) if isinstance(ref, Thread) else str(ref)


def thread_path(ref: Ref) -> str:
    return f"/api/threads/{part(name_of(ref))}"


def run_path(run_id: UUID | str) -> str:
    return f"/api/runs/{part(run_id)}"
