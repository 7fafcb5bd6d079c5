"""A server as the store of commands: `open_remote`, the agents of the server, and the actions on its threads.

The agents run on the server. A command sends the message and prints the events of the thread until the run ends or
waits for a person. If the command is interrupted, the server continues the run.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
from contextlib import aclosing
from dataclasses import fields
from typing import Any, ClassVar, Final, NamedTuple, TypeVar, cast
from uuid import UUID

from lockstitch.agents import App, Event, Result, StoredAgent
from lockstitch.agents.evals.stored_datasets import Datasets
from lockstitch.agents.evals.stored_evals import Evals
from lockstitch.cli.actions import AgentNotOnServer, Ref, SnapshotReader, ThreadActions
from lockstitch.client import RunResult
from lockstitch.client.remote_store import RemoteStore
from lockstitch.engine.replay import EventReplay
from lockstitch.engine.replies import PendingReply
from lockstitch.errors import NotFound, Refused, ThreadHeld, ThreadWaiting
from lockstitch.model import ChildrenWait, Feedback, FrontendToolWait, Json, Run, Stitch, Thread, tool_uses
from lockstitch.model.wait import Wait, without_next_message
from lockstitch.store import Store
from lockstitch.store.alerts import Alerts
from lockstitch.store.reports.dashboard import Dashboard
from lockstitch.sync import SyncStore

T = TypeVar("T")
Listener = Callable[[Event], None]

_PAUSE: Final = 0.2
"""Seconds before the events of a thread are read again, if its run has not started."""

_UNFINISHED: Final = ("pending", "running")

_RECENT: Final = 200
"""Number of recent stitches to search for open calls."""


def open_remote(url: str, *, token: str | None, project: str | None) -> SyncStore:
    """Return the record of a server, for `with`.

    Args:
        url: Address of the server.
        token: API token.
        project: Project that the user named. None: the project of the token, or the default of the server.
    """
    return RemoteSyncStore(lambda: cast("Store", RemoteStore(url, token=token, project=project)))


class RemoteActions(ThreadActions):
    """The actions on threads of a server."""

    def __init__(self, store: SyncStore) -> None:
        super().__init__(store)
        self._remote = remote_of(store.async_store)

    def pending(self, head: Thread) -> list[PendingReply]:
        return [PendingReply.from_json(row) for row in self._call(self._remote.client.replies(head))]

    def inbox(self, limit: int) -> tuple[list[tuple[Thread, list[PendingReply]]], int]:
        inbox = self._call(self._remote.client.inbox(limit=min(limit, 1000)))
        waiting = [(row.thread, [PendingReply.from_json(reply) for reply in row.replies]) for row in inbox.threads]
        return waiting, inbox.total

    def approve(self, ref: Ref, call_id: str) -> None:
        self._call(self._remote.client.approve(self._seen(ref), call_id))

    def deny(self, ref: Ref, call_id: str, *, reason: str | None) -> None:
        self._call(self._remote.client.deny(self._seen(ref), call_id, reason=reason))

    def settle(
        self, ref: Ref, call_id: str, *, done: str | None = None, redo: bool = False, unknown: bool = False
    ) -> None:
        self._call(self._remote.client.settle(self._seen(ref), call_id, done=done, redo=redo, unknown=unknown))

    def answer(self, ref: Ref, text: str, *, call_id: str | None = None) -> None:
        self._call(self._remote.client.answer(self._seen(ref), text, call_id=call_id))

    def submit_results(self, ref: Ref, results: Sequence[Json]) -> None:
        self._call(self._remote.client.submit_results(self._seen(ref), results))

    def cancel(self, ref: Ref) -> Thread:
        head = self._store.thread(ref)
        self._call(self._remote.client.cancel(head))
        return self._store.thread(head)

    def result(self, run: Run) -> Json:
        return _as_json(self._call(self._remote.client.result(run.id)))

    def export_run(self, run_id: UUID) -> list[Json]:
        return self._call(self._remote.client.export_run(run_id))

    def dashboard(self, *, all_projects: bool, thread_id: UUID | None) -> SnapshotReader:
        return _RemoteSnapshots(self._remote, thread_id)

    def feedback(
        self,
        *,
        thread: Thread | None,
        run: UUID | None,
        name: str | None,
        user_id: str | None,
        source: str | None,
        limit: int,
    ) -> list[Feedback]:
        client = self._remote.client
        return self._call(
            client.feedback(thread, run=run, name=name, user_id=user_id, source=source, limit=min(limit, 1000))
        )

    def give_feedback(self, name: str, **fields: Any) -> Feedback:
        return self._call(self._remote.client.give_feedback(name, **fields))

    def remove_feedback(self, feedback_id: UUID) -> None:
        self._call(self._remote.client.remove_feedback(feedback_id))

    def alerts(self) -> Alerts:
        return cast("Alerts", self._remote.client.alerts)

    def datasets(self) -> Datasets:
        return cast("Datasets", self._remote.client.datasets)

    def evals(self) -> Evals:
        return cast("Evals", self._remote.client.evals)

    def reply_text(self, name: str) -> str:
        return "Reply stored. The server continues the thread."

    def interrupted_text(self, name: object | None) -> str:
        if name is None:
            return "Interrupted. The server continues the runs. `lockstitch watch` shows them."
        return f"Interrupted. The server continues the run. Run `lockstitch resume {name}` to follow it."

    def _seen(self, ref: Ref) -> Thread:
        """Return the thread, and remember its position before the reply. The events after it are those of the reply."""
        head = ref if isinstance(ref, Thread) else self._store.thread(ref)
        self._remote.positions.setdefault(head.id, head.position)
        return head

    def _call(self, work: Coroutine[Any, Any, T]) -> T:
        return self._store.portal.call(work)


class RemoteSyncStore(SyncStore):
    """The blocking methods of a store, on a server."""

    actions: ClassVar[type[ThreadActions]] = RemoteActions


def remote_of(store: object) -> RemoteStore:
    """Return the store of a server from its type for commands."""
    assert isinstance(store, RemoteStore)
    return store


class _RemoteSnapshots(NamedTuple):
    remote: RemoteStore
    thread_id: UUID | None

    async def read(self) -> Dashboard:
        return await self.remote.dashboard(self.thread_id)


class RemoteApp(App):
    """The agents of a server, for commands."""

    def agent(self, name: str | None) -> "RemoteAgent":
        """Return the agent with this name. A run raises `NotFound` if the server does not have it."""
        if name is None:
            raise NotFound("This thread has no agent. Name an agent of the server.")
        if name not in self.agents:
            self.agents[name] = RemoteAgent(name)
        return cast("RemoteAgent", self.agents[name])

    async def resume(self, ref: Any, **options: Any) -> Result | None:
        """Follow the run of a thread on the server, or let the server resume it."""
        head = await options["store"].thread(ref)
        given = ref if isinstance(ref, Thread) else head
        return await self.agent(head.agent).resume(given, **options)

    async def close(self) -> None:
        """Do nothing: the agents have no connections of this process."""


class RemoteAgent(StoredAgent):
    """An agent of a server. Its methods follow the events of runs that the server executes."""

    def stream(self, prompt: Any, **options: Any) -> Any:
        """Send a message and yield the events of its run."""
        return self._stream(prompt, **options)

    async def _stream(
        self,
        prompt: Any,
        *,
        store: Store,
        thread: str | None = None,
        user_id: str | None = None,
        message_id: str | None = None,
    ) -> AsyncGenerator[Event]:
        remote = remote_of(store)
        after = 0
        if thread is not None:
            try:
                head = await remote.thread(thread)
            except NotFound:
                pass
            else:
                if _is_paused(head):
                    raise ThreadWaiting(thread_id=head.id)
                after = head.position
        started = await remote.client.begin(self.name, prompt, thread=thread, user_id=user_id, message_id=message_id)
        if started.status not in _UNFINISHED:
            # The thread had accepted the message before, and its run has ended or waits.
            yield self._finished(started)
            return
        async with aclosing(self._follow(remote, started.thread_id, started.run_id, after)) as events:
            async for event in events:
                yield event

    async def start(self, *, store: Store, goal: str, **options: Any) -> Thread:
        """Create a thread with a goal on the server."""
        remote = remote_of(store)
        if remote.agent_names:
            self._check(remote)
        return await remote.client.start(self.name, goal, **options)

    async def retry(
        self,
        thread: Any,
        *,
        store: Store,
        deps: Any = None,
        listener: Listener | None = None,
        detach: bool = False,
    ) -> Result | None:
        """Let the server retry a run, and follow it unless `detach` is set."""
        remote = remote_of(store)
        head: Thread = thread
        state = await remote.client.retry(head)
        if detach:
            return None
        return await self._report(remote, head.id, state["run_id"], head.position, listener)

    async def resume(
        self,
        thread: Any,
        *,
        store: Store,
        deps: Any = None,
        listener: Listener | None = None,
        take_over: bool = False,
        detach: bool = False,
    ) -> Result | None:
        """Follow the run of a thread, or let the server resume it. Return None if the thread has no run to continue."""
        if take_over:
            raise Refused("--take-over needs the database URL of the store, not the URL of a server.")
        remote = remote_of(store)
        head: Thread = thread
        after = remote.positions.pop(head.id, head.position)
        now = await remote.client.thread(head)
        run_id: object = None
        if now.status == "pending":
            self._check(remote)
        if now.position <= after and not _waits_for_reply(now):
            if now.status == "waiting" and not without_next_message(now.waits):
                return None
            try:
                state = await remote.client.resume(head)
            except ThreadHeld:
                # A worker of the server executes it.
                pass
            else:
                run_id = state["run_id"]
                if run_id is None and state["status"] not in _UNFINISHED:
                    return None
        return await self._report(remote, head.id, run_id, after, listener)

    def _check(self, remote: RemoteStore) -> None:
        if self.name not in remote.agent_names:
            known = ", ".join(remote.agent_names) or "none"
            raise AgentNotOnServer(f"Agent {self.name} not found on the server. Agents: {known}.")

    async def _report(
        self, remote: RemoteStore, thread_id: UUID, run_id: object, after: int, listener: Listener | None
    ) -> Result | None:
        """Report the events of a run to the listener and return its result."""
        finished: Json | None = None
        async with aclosing(self._follow(remote, thread_id, run_id, after)) as events:
            async for event in events:
                finished = event.data if event.type == "finished" else finished
                if listener is not None:
                    listener(event)
        return None if finished is None else _result(finished, cast("Store", remote))

    async def _follow(self, remote: RemoteStore, thread_id: UUID, run_id: object, after: int) -> AsyncGenerator[Event]:
        """Yield the events of a thread after a position until its run ends or waits. The last event is `finished`.

        `run_id` is the id of the run. None: the last run of the thread.
        """
        head = await remote.client.thread(thread_id)
        replay = _RemoteReplay(cast("Store", remote), head)
        await replay.read_open_calls(after)
        while True:
            async with aclosing(replay.events(_items(remote, thread_id, after))) as events:
                async for event in events:
                    if event is not None and event.type != "finished":
                        yield event
            after = remote.positions.get(thread_id, after)
            result = await remote.client.result(str(run_id or (await remote.client.last_run(thread_id)).id))
            if result.status not in _UNFINISHED:
                break
            if _is_paused(await remote.client.thread(thread_id)):
                raise ThreadWaiting(thread_id=thread_id)
            await asyncio.sleep(_PAUSE)
        yield self._finished(result)

    def _finished(self, result: RunResult) -> Event:
        return Event("finished", result.thread_id, result.run_id, self.name, result.steps, _as_json(result))


class _Item(NamedTuple):
    """An item of an event stream, for `EventReplay`."""

    kind: str
    data: Json
    stitch: Stitch | None


async def _items(remote: RemoteStore, thread_id: UUID, after: int) -> AsyncGenerator[_Item]:
    async with aclosing(remote.client.events(thread_id, after=after, until="idle")) as events:
        async for event in events:
            remote.positions[thread_id] = max(after, event.position)
            yield _Item(event.type, event.data, event.stitch)


class _RemoteReplay(EventReplay):
    """Converts the events of a server to events of a run, with the calls and retries that a local run would report."""

    def __init__(self, store: Store, head: Thread) -> None:
        super().__init__(store, head)
        self._remote = remote_of(store)
        self._calls: dict[str, Json] = {}
        """Calls that have not started, by their ids. A local run reports a call when it starts."""
        self._is_paused = False
        """True while the run waits. A result that arrives then is a reply, which a local run does not report."""

    async def read_open_calls(self, after: int) -> None:
        """Read the calls before a position that have no result yet."""
        for stitch in await self._remote.stitches(self._head, max(1, after - _RECENT), after) if after else []:
            self._follow_pause(stitch)
            if stitch.type == "llm_call":
                self._calls |= {str(call.get("id")): _call_data(call) for call in tool_uses(stitch.message)}
            elif stitch.type == "tool_call":
                self._calls.pop(str(stitch.call_id), None)

    async def _stitch(self, stitch: Stitch, run_id: UUID) -> list[Event]:
        step = stitch.step_number or 0
        self._follow_pause(stitch)
        if stitch.type == "api_retry":
            return [self._event("retry", run_id, step, stitch.data)]
        events = await super()._stitch(stitch, run_id)
        if stitch.type in ("tool_started", "tool_call"):
            call = self._calls.pop(str(stitch.call_id), None)
            if self._is_paused:
                events = []
            elif call is not None:
                events = [self._event("tool_call", run_id, step, call), *events]
        elif any(event.type == "tool_call" for event in events):
            now = await self._remote.client.thread(self._head)
            if now.position > stitch.position:
                # The next stitches show whether the calls have started or wait.
                self._calls |= {event.data["id"]: event.data for event in events if event.type == "tool_call"}
                events = [event for event in events if event.type != "tool_call"]
        return events

    def _follow_pause(self, stitch: Stitch) -> None:
        if stitch.type in ("run_paused", "run_resumed", "run_started"):
            self._is_paused = stitch.type == "run_paused"

    async def result(self, run: Run) -> Result:
        return _result(_as_json(await self._remote.client.result(run.id)), self._store)

    async def pending(self) -> list[Json]:
        return []


def _call_data(call: Json) -> Json:
    return {name: call.get(name) for name in ("id", "name", "input")}


def _waits(head: Thread) -> list[Wait]:
    return without_next_message(head.waits) if head.status == "waiting" else []


def _waits_for_reply(head: Thread) -> bool:
    """True if the thread waits for a person or a frontend."""
    return any(wait.needs_person or isinstance(wait, FrontendToolWait) for wait in _waits(head))


def _is_paused(head: Thread) -> bool:
    """True if the thread waits for more than its next message or its children."""
    return any(not isinstance(wait, ChildrenWait) for wait in _waits(head))


def _as_json(result: RunResult) -> Json:
    values = {field.name: getattr(result, field.name) for field in fields(result)}
    return {name: str(value) if isinstance(value, UUID) else value for name, value in values.items()}


def _result(value: Json, store: Store) -> Result:
    known = {name: item for name, item in value.items() if name != "partial"}
    known |= {name: UUID(value[name]) for name in ("thread_id", "run_id")}
    return Result(**known, output=None, cost={}, container_id=None, title=None, store=store)
