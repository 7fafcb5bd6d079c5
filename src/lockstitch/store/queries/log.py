"""`LogQueries`: context, turns, run logs and exact requests. `LogWatcher`: stitches as they are committed."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final, NamedTuple
from uuid import UUID, uuid5

from lockstitch.backend import WORK_READY, Find, FullBackend, Where
from lockstitch.errors import NotFound, StoreDamaged
from lockstitch.model import (
    ERROR_TYPES,
    TERMINAL_STATUSES,
    Blob,
    File,
    Json,
    Message,
    Run,
    Stitch,
    Thread,
    answer_of,
    codec,
    context,
    format_time,
    generated_files,
    history,
    text_of,
)
from lockstitch.model.context import injected_message, kept_positions, replaced_positions, visible_stitches
from lockstitch.model.message import blocks, build
from lockstitch.model.stitch import passes_on_failure
from lockstitch.store.writes.archive import Archives
from lockstitch.store.writes.media import Media


@dataclass(frozen=True, slots=True)
class Turn:
    """One finished turn of a conversation."""

    run: Run
    """The top-level run of the turn, with status, usage, cost and times."""
    user_message: str
    """Text of the input, or an empty string."""
    final_response: str | None
    """Text of the answer. None if the run ended without one."""
    generated_files: list[Json]
    """Files that the run created or changed, as JSON."""
    inherited_from: UUID | None = None
    """Id of the thread that contains the turn, if a fork inherited it. Its usage and cost belong to that thread."""

    @property
    def inherited(self) -> bool:
        """True if the turn belongs to the thread that this thread was forked from."""
        return self.inherited_from is not None

    @property
    def partial(self) -> bool:
        """True if a cancel stopped the run, and `final_response` is its answer so far."""
        return self.run.status == "cancelled" and bool(self.final_response)

    def as_json(self) -> Json:
        """Return the columns of conversation_history in the documented format, without the messages."""
        run = self.run
        return {
            "conversation_id": str(run.id),
            "agent_uuid": str(run.thread_id),
            "run_id": str(run.id),
            "started_at": format_time(run.started_at),
            "completed_at": format_time(run.completed_at) if run.completed_at else None,
            "user_message": self.user_message,
            "final_response": self.final_response,
            "stop_reason": run.stop_reason,
            "total_steps": run.steps,
            "usage": run.usage,
            "generated_files": self.generated_files,
            "cost": run.known_cost,
            "extras": run.extras,
            "sequence_number": run.turn,
            "partial": self.partial,
            "inherited_from": str(self.inherited_from) if self.inherited_from else None,
        }


@dataclass(frozen=True, slots=True)
class HistoryPage:
    """One page of turns."""

    turns: list[Turn]
    """Turns, newest first."""
    has_more: bool
    """True if older turns follow."""


class LogQueries:
    """Reads the log of one thread, archived turns included."""

    def __init__(self, backend: FullBackend, archives: Archives, media: Media) -> None:
        self._backend = backend
        self._archives = archives
        self._media = media

    async def stitches(self, head: Thread, ranges: Sequence[tuple[int, int | None]]) -> list[Stitch]:
        """Return the stitches in these ranges of positions, with their media in place."""
        return await self._media.restore(await self._archives.read(head, ranges))

    async def for_context(self, head: Thread, until: int | None = None, lane: UUID | None = None) -> list[Stitch]:
        """Return the stitches that the context is built from: since the last compaction, and those that it keeps."""
        if lane is not None:
            return await self.lane_stitches(head, lane, until)
        start = head.context_from
        if until is not None and start > until:
            # An earlier compaction applies at that position. This is rare, so read the whole log.
            return await self.stitches(head, [(1, until)])
        log = await self.stitches(head, [(max(start, 1), until)])
        if not start or not log or log[0].type != "compaction":
            return log
        remaining = kept_positions(log[0])
        remaining += [(position, position) for position in replaced_positions(log[0])]
        return [*(await self.stitches(head, remaining)), *log] if remaining else log

    async def lane_stitches(self, head: Thread, lane: UUID, until: int | None = None) -> list[Stitch]:
        """Return the stitches of a member's lane, after the answers of other members that were injected into it."""
        run = await self._backend.get(Run, (lane,))
        if run is None or run.thread_id != head.id:
            return []
        values: list[Json] = run.state.get("injected") or []
        named = {int(item["position"]): str(item["agent"]) for item in values}
        answers = await self.stitches(head, [(position, position) for position in named]) if named else []
        log = await self.stitches(head, [(run.first_position, until)])
        return [
            *(injected_message(answer, lane, named[answer.position]) for answer in answers),
            *(stitch for stitch in log if stitch.lane == lane),
        ]

    async def context(self, head: Thread, lane: UUID | None = None, until: int | None = None) -> list[Message]:
        """Return the messages of a context, at the end of the log or at the position `until`."""
        return context(await self.for_context(head, until, lane), lane)

    async def last_linked(self, head: Thread, tip_id: UUID) -> Stitch | None:
        """Return the stitch with this id, also if it is archived."""
        stitches = await self._backend.find(Find(Stitch, (Where("id", "=", tip_id),), limit=1))
        if stitches:
            return (await self._media.restore(stitches))[0]
        log = await self.stitches(head, [(1, None)])
        return next((stitch for stitch in reversed(log) if stitch.id == tip_id), None)

    async def log(self, head: Thread, run: Run) -> list[Stitch]:
        """Return the stitches of a run in the order of their positions."""
        if run.first_position >= head.first_position:
            stitches = await self._backend.find(Find(Stitch, (Where("run_id", "=", run.id),), order=("position",)))
            return [*(await self._earlier_input(head, run)), *(await self._media.restore(stitches))]
        log = await self.stitches(head, [(run.first_position, None)])
        return [stitch for stitch in log if stitch.run_id == run.id]

    async def calls(self, head: Thread, run: Run) -> list[Stitch]:
        """Return the model calls and tool calls of a run and its `run_started`. Large media stay in blobs."""
        kinds = ("run_started", "llm_call", "tool_call")
        if run.first_position >= head.first_position:
            where = (Where("run_id", "=", run.id), Where("type", "in", kinds))
            return await self._backend.find(Find(Stitch, where, order=("position",)))
        log = await self._archives.read(head, [(run.first_position, None)])
        return [stitch for stitch in log if stitch.run_id == run.id and stitch.type in kinds]

    async def _earlier_input(self, head: Thread, run: Run) -> list[Stitch]:
        """Return the input of a run if it was delivered before the run started, while no worker held the thread."""
        if run.input_position is None or run.input_position >= run.first_position:
            return []
        stitches = await self.stitches(head, [(run.input_position, run.input_position)])
        return [stitch.changed(run_id=run.id) for stitch in stitches]

    async def messages(self, head: Thread, run: Run) -> list[Message]:
        """Return all messages of a run."""
        return history(await self.log(head, run), run.id)

    async def turns(self, head: Thread, limit: int, offset: int, before: int | None) -> HistoryPage:
        """Return a page of finished turns, newest first. `before` is the number of the oldest turn already seen.

        The turns that a fork inherited come after its own turns. A fork continues the numbers of its origin, so the
        numbers of both are one sequence.
        """
        where = [*_own_turns(head.id), Where("status", "in", sorted(TERMINAL_STATUSES))]
        if before is not None:
            where.append(Where("turn", "<", before))
        runs = await self._backend.find(Find(Run, where, order=("-turn",), limit=limit + 1, offset=offset))
        turns = await self._as_turns(head, runs[:limit])
        inherited = inherited_turns(head)
        if len(runs) > limit or not inherited:
            return HistoryPage(turns, len(runs) > limit)
        skipped = max(0, offset - await self._backend.count(Find(Run, where))) if offset and not runs else 0
        last = inherited[0].last_turn if before is None else min(inherited[0].last_turn, before - 1)
        more = await self._inherited(head, inherited, last - skipped, limit - len(turns) + 1)
        turns += more[: limit - len(turns)]
        return HistoryPage(turns, len(more) > limit - len(runs))

    async def _inherited(self, head: Thread, parts: Sequence["InheritedTurns"], last: int, limit: int) -> list[Turn]:
        """Return inherited turns, newest first, starting with the number `last`.

        If a thread that contains them was deleted, they come from the context in the fork stitch, as far as it has
        them.
        """
        turns: list[Turn] = []
        for part in parts:
            if part.first_turn > last or len(turns) >= limit:
                continue
            source = await self._backend.get(Thread, (part.thread_id,))
            if source is None:
                derived = _derived(head, parts, await self.stitches(head, [(1, 1)]))
                turns += [turn for turn in derived if part.first_turn <= turn.run.turn <= min(last, part.last_turn)]
                continue
            where = [*_own_turns(source.id), Where("turn", "<=", min(last, part.last_turn))]
            runs = await self._backend.find(Find(Run, where, order=("-turn",), limit=limit - len(turns)))
            turns += [
                replace(turn, inherited_from=source.id)
                for turn in await self._as_turns(source, runs, until=part.position)
            ]
        return turns[:limit]

    async def request(self, stitch: Stitch, head: Thread) -> Json:
        """Return the request of a model call, also of a failed one. It is rebuilt and compared with the stored hash."""
        own: Json | None = stitch.data.get("request")
        if stitch.type not in ("llm_call", "api_error") or own is None:
            raise NotFound(f"Stitch {stitch.id} of type {stitch.type} has no request.")
        stored: Json = {**(await self._common_request(stitch, head)), **own}
        system = await self._optional_text(stored.get("system"))
        tools_text = await self._optional_text(stored.get("tools"))
        tools: list[Json] = codec.loads(tools_text) if tools_text is not None else []
        log = await self.for_context(head, stitch.position - 1, stitch.lane)
        request = build(
            stored.get("parameters") or {}, system, tools, context(visible_stitches(log, stored), stitch.lane)
        )
        if codec.digest(request) != stored.get("sha256"):
            raise StoreDamaged(
                f"The request of stitch {stitch.id} cannot be rebuilt to the bytes that were sent, "
                "because a part of it has changed. Run `lockstitch doctor --verify`."
            )
        return request

    async def _common_request(self, stitch: Stitch, head: Thread) -> Json:
        """Return the part that all requests of a run have in common. The `run_started` stitch stores it once."""
        run = await self._backend.get(Run, (stitch.run_id,)) if stitch.run_id else None
        if run is None:
            return {}
        stitches = await self.stitches(head, [(run.first_position, run.first_position + 1)])
        started = next(
            (stitch for stitch in stitches if stitch.type == "run_started" and stitch.run_id == run.id), None
        )
        return (started.data.get("request") or {}) if started is not None else {}

    async def latest(self, project: str, limit: int, since: datetime | None = None) -> list[Stitch]:
        """Return the latest stitches of the threads of a project, newest first."""
        return await self._newest(project, limit, since)

    async def errors(self, project: str, limit: int, since: datetime | None = None) -> list[Stitch]:
        """Return the latest failures of the threads of a project, newest first, each once."""
        types = Where("type", "in", sorted(ERROR_TYPES))
        stitches = await self._newest(project, limit, since, [types], _causes)
        stitches += await self._newest(project, limit, since, FAILED_SPAN, self._failed_first)
        return sorted(stitches, key=lambda stitch: stitch.log_id or 0, reverse=True)[:limit]

    async def _newest(
        self,
        project: str,
        limit: int,
        since: datetime | None,
        where: Sequence[Where] = (),
        select: Callable[[Sequence[Stitch]], Awaitable[list[Stitch]]] | None = None,
    ) -> list[Stitch]:
        """Return the newest stitches that meet the conditions. `select` returns the wanted ones of a page."""
        conditions = [*where, *([] if since is None else [Where("at", ">=", since)])]
        stitches: list[Stitch] = []
        mark: int | None = None
        while len(stitches) < limit:
            after = None if mark is None else (mark,)
            rows = await self._backend.find(Find(Stitch, conditions, order=("-log_id",), after=after, limit=limit))
            projects = await self._projects({row.thread_id for row in rows})
            ours = [row for row in rows if projects.get(row.thread_id) == project]
            stitches += ours if select is None else await select(ours)
            if len(rows) < limit:
                break
            mark = rows[-1].log_id
        return stitches[:limit]

    async def _failed_first(self, spans: Sequence[Stitch]) -> list[Stitch]:
        """Return the failed spans without those that only pass on the failure of a span below them."""
        parents = sorted(span.id for span in spans)
        children = Find(Stitch, (Where("parent_id", "in", parents), *FAILED_SPAN))
        below: dict[UUID | None, list[Stitch]] = {}
        for child in await self._backend.find(children) if parents else ():
            below.setdefault(child.parent_id, []).append(child)
        return [span for span in spans if not passes_on_failure(span, below.get(span.id, ()))]

    async def _projects(self, ids: set[UUID]) -> dict[UUID, str]:
        if not ids:
            return {}
        threads = await self._backend.find(Find(Thread, (Where("id", "in", sorted(ids)),)))
        return {thread.id: thread.project for thread in threads}

    async def _as_turns(self, head: Thread, runs: Sequence[Run], until: int | None = None) -> list[Turn]:
        """Return the turns of these runs. `until` is the last position that a fork inherited."""
        positions = {position for run in runs for position in (run.input_position, run.output_position) if position}
        if until is not None:
            positions = {position for position in positions if position <= until}
        log = await self.stitches(head, [(position, position) for position in positions]) if positions else []
        body = {stitch.position: stitch.message for stitch in log}
        files = await self.files(head, runs)
        return [
            Turn(
                run,
                run.imported_input if run.is_trace else text_of(body.get(run.input_position or 0)),
                answer_of(body.get(run.output_position))
                if run.output_position in positions
                else run.imported_answer or None,
                files[run.id],
            )
            for run in runs
        ]

    async def files(self, head: Thread, runs: Sequence[Run]) -> dict[UUID, list[Json]]:
        """Return the files that these runs created or changed, as JSON, by run id."""
        if not runs:
            return {}
        where = (
            Where("thread_id", "=", head.id),
            Where("last_updated_run", "in", [run.id for run in runs]),
        )
        files = await self._backend.find(Find(File, where))
        return {run.id: generated_files(run, files) for run in runs}

    async def _optional_text(self, digest: str | None) -> str | None:
        return None if digest is None else await self.text(digest)

    async def text(self, digest: str) -> str:
        """Return a text that requests refer to by its sha256. Raises `StoreDamaged` if it is missing."""
        blob = await self._backend.get(Blob, (digest,))
        if blob is None:
            raise StoreDamaged(f"The text with sha256 {digest}, part of a request, is missing from this store.")
        return blob.content.decode()


class InheritedTurns(NamedTuple):
    """The turns that a fork inherited from one thread: those with the numbers `first_turn` to `last_turn`.

    Positions after `position` are not part of the fork.
    """

    thread_id: UUID
    position: int
    first_turn: int
    last_turn: int

    def as_json(self) -> Json:
        """Return the turns as the state of the fork stores them."""
        return {**self._asdict(), "thread_id": str(self.thread_id)}


def inherited_turns(head: Thread) -> list[InheritedTurns]:
    """Return the turns that a fork inherited, newest first. Empty if the thread is no fork.

    A fork of a fork names every thread that contains some of its turns, so no other thread has to be read.
    """
    parts: list[Json] = head.state.get("inherited") or []
    return [
        InheritedTurns(UUID(part["thread_id"]), part["position"], part["first_turn"], part["last_turn"])
        for part in parts
    ]


def first_own_turn(head: Thread) -> int:
    """Return the number of the first turn that a thread has or will have itself. A fork inherits the turns before."""
    inherited = inherited_turns(head)
    return inherited[0].last_turn + 1 if inherited else 1


def _own_turns(thread_id: UUID) -> list[Where]:
    return [Where("thread_id", "=", thread_id), Where("parent_run_id", "is null")]


def _derived(head: Thread, parts: Sequence[InheritedTurns], stitches: Sequence[Stitch]) -> list[Turn]:
    """Return the turns of the context in a fork stitch, newest first. Their usage and their real times are unknown."""
    if not stitches or stitches[0].type != "fork":
        return []
    fork = stitches[0]
    messages: list[Message] = fork.data.get("messages") or []
    turns: list[Turn] = []
    answer = ""
    for message in reversed(messages):
        if message.get("role") == "assistant":
            answer = answer or answer_of(message)
        elif not any(block.get("type") == "tool_result" for block in blocks(message)):
            number = parts[0].last_turn - len(turns)
            part = next((part for part in parts if part.first_turn <= number), None)
            if part is None:
                break
            run = Run(
                id=uuid5(fork.id, str(number)),
                thread_id=part.thread_id,
                sequence=number,
                turn=number,
                first_position=0,
                status="completed",
                source="inherited",
                started_at=head.created_at,
            )
            turns.append(Turn(run, text_of(message), answer or None, [], part.thread_id))
            answer = ""
    return turns


_IN_FLIGHT = 500
"""Upper bound of the stitches that are being committed at one moment."""


class LogWatcher:
    """Reads the stitches for the hints of a backend, each once and in order within its thread."""

    def __init__(self, backend: FullBackend, reading: LogQueries) -> None:
        self._backend = backend
        self._reading = reading

    async def thread(self, thread_id: UUID, after: int) -> AsyncGenerator[Stitch, None]:
        """Yield the stitches of one thread after a position: stored ones first, then new ones."""
        async with aclosing(self._backend.watch()) as hints:
            # Watch before reading: a stitch that is committed in between is hinted twice rather than never.
            await anext(hints)
            for stitch in await self._after(thread_id, after):
                after = stitch.position
                yield stitch
            async for hint in hints:
                if hint.thread_id != thread_id or hint.position <= after:
                    continue
                for stitch in await self._after(thread_id, after):
                    after = stitch.position
                    yield stitch

    async def project(self, project: str, recent: int) -> AsyncGenerator[Stitch, None]:
        """Yield the latest stitches of all threads of a project, then new ones."""
        async with aclosing(self._backend.watch()) as hints:
            await anext(hints)
            mark, old = await self._newest()
            for stitch in reversed(await self._reading.latest(project, recent) if recent else []):
                # The loop below yields newer stitches in their order.
                if stitch.id in old or (stitch.log_id or 0) <= mark:
                    yield stitch
            seen: dict[UUID, int] = {}
            async for hint in hints:
                if hint == WORK_READY:
                    continue
                last = seen.get(hint.thread_id, 0)
                if hint.position <= last or not await self._belongs(hint.thread_id, project):
                    continue
                for stitch in await self._since(hint.thread_id, last, mark):
                    seen[stitch.thread_id] = stitch.position
                    if stitch.id not in old:
                        yield stitch

    async def _after(self, thread_id: UUID, position: int) -> list[Stitch]:
        """Return the stitches of a thread after a position, with archived turns and media."""
        head = await self._backend.get(Thread, (thread_id,))
        return [] if head is None else await self._reading.stitches(head, [(position + 1, None)])

    async def _newest(self) -> tuple[int, set[UUID]]:
        """Return a log_id up to which all stitches are old, and the ids of the old stitches after it.

        Concurrent writers do not commit log_ids in order: a new stitch may have a lower log_id than an old one. The
        distance is at most the number of stitches in flight.
        """
        newest = await self._backend.find(Find(Stitch, order=("-log_id",), limit=_IN_FLIGHT))
        mark = (newest[-1].log_id or 0) if len(newest) == _IN_FLIGHT else 0
        return mark, {stitch.id for stitch in newest}

    async def _belongs(self, thread_id: UUID, project: str) -> bool:
        head = await self._backend.get(Thread, (thread_id,))
        return head is not None and head.project == project

    async def _since(self, thread_id: UUID, position: int, mark: int) -> list[Stitch]:
        where = (
            Where("thread_id", "=", thread_id),
            Where("position", ">", position),
            Where("log_id", ">", mark),
        )
        return await self._backend.find(Find(Stitch, where, order=("position",)))


FAILED_SPAN: Final = (Where("parent_id", "is not null"), Where("status", "in", ["error"]))
"""Conditions of the failed spans of imported traces."""


async def _causes(stitches: Sequence[Stitch]) -> list[Stitch]:
    """Return the stitches without the ends of runs that failed because of another error stitch."""
    return [stitch for stitch in stitches if stitch.type != "run_failed" or "cause" not in stitch.data]
