"""`LockstitchSession`: the conversation of an OpenAI agent in a thread of a store."""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Coroutine
from importlib import import_module
from typing import Any, Final, Self, TypeVar, cast
from weakref import WeakKeyDictionary

from lockstitch.errors import NotFound, Refused, StalePosition, ThreadDeleted, ThreadWaiting
from lockstitch.integrations.loops import OnStoreLoop
from lockstitch.integrations.openai_agents.recording import (
    OWN_RUN,
    OpenRun,
    Plan,
    open_run,
    plan_interruption,
    plan_items,
    plan_pause,
)
from lockstitch.integrations.openai_agents.records import EXTENSION, SavedState
from lockstitch.integrations.openai_agents.transcript import Item, Transcript, values, without_calls
from lockstitch.model import Json, Run, Thread
from lockstitch.store import Store, ThreadUpdate, Transaction, Where

T = TypeVar("T")

SdkItem = Any
"""An item of the SDK: a JSON object. The SDK is imported only for its own classes, because that takes seconds."""

NAMESPACE: Final = "openai-agents"
"""Namespace of the keys of threads: the session `ada` has the thread `openai-agents:ada`."""

_OPEN: Final = ("pending", "running", "waiting")


class _Known:
    """The part of a thread that this process has read. All sessions of the thread share it."""

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.transcript: Transcript | None = None
        self.open_run: OpenRun | None = None
        self.open_run_at: int | None = None
        """Position of the thread for which `open_run` is valid."""


_REMEMBERED: Final = 64
"""Maximum number of threads of one store that are remembered. A session object keeps its own."""

_known_threads: WeakKeyDictionary[object, OrderedDict[tuple[str, str], _Known]] = WeakKeyDictionary()


def _known(store: Store, key: tuple[str, str]) -> _Known:
    """Return the known part of a thread. Web servers create a session for each request."""
    threads = _known_threads.setdefault(store.identity, OrderedDict())
    known = threads.setdefault(key, _Known())
    threads.move_to_end(key)
    if len(threads) > _REMEMBERED:
        threads.popitem(last=False)
    return known


class LockstitchSession(OnStoreLoop):
    """A session of OpenAI Agents. Its items are the log of a thread, and each call of `add_items` is one commit.

    Its methods work from any loop. Many sessions may use one store, and many processes one session.
    """

    session_settings: Any = None
    """Settings of the SDK, such as the limit of `get_items`."""

    def __init__(
        self,
        session_id: str,
        *,
        store: Store,
        namespace: str | None = NAMESPACE,
        user_id: str | None = None,
        model: str | None = None,
        session_settings: Any = None,
    ) -> None:
        """Create a session for the project of a store. The first item creates the thread.

        Args:
            session_id: Id of the session.
            store: Open store.
            namespace: Namespace of the key of the thread. None: the id of the session is the key of the thread, so that
                a session continues a thread of a Lockstitch agent.
            user_id: Id of the user that the thread belongs to.
            model: Name of the model, for the costs. The SDK does not tell it to sessions.
            session_settings: Settings of the SDK, such as the limit of `get_items`.

        Raises:
            Refused: If no loop runs. Use `open` then.
        """
        super().__init__(store)
        self.session_id = session_id
        """Id of the session."""
        self.session_settings = _settings(session_settings)
        self._view = store if namespace is None else store.in_namespace(namespace)
        self._user_id = user_id
        self._model = model
        self._known = _known(store, (store.project, self.thread))

    @classmethod
    def open(cls, session_id: str, url: str, *, project: str = "default", **options: Any) -> Self:
        """Open a store on a loop in a background thread, for programs that use no loop. Close it with `close`.

        Args:
            session_id: Id of the session.
            url: URL of the store.
            project: Project of the thread.
            options: Options of the constructor.

        Returns:
            The session, which is also a context manager.

        Raises:
            StoreUnreachable: If the store cannot be opened.
        """
        return cls._open(url, project, lambda store: cls(session_id, store=store, **options))

    @property
    def _limit(self) -> int | None:
        settings = self.session_settings
        return cast("Json", settings).get("limit") if isinstance(settings, dict) else getattr(settings, "limit", None)

    @property
    def thread(self) -> str:
        """Key of the thread, for the methods of the store and for Lockstitch agents."""
        return self._view.full_key(self.session_id)

    async def get_items(self, limit: int | None = None, *, wrapper: Any = None) -> list[SdkItem]:
        """Return the items of the session, oldest first.

        Args:
            limit: Maximum number of items, the newest ones. None: the limit of the settings. Negative: all.
            wrapper: Not used.
        """
        wanted = self._limit if limit is None else limit
        return await self._on_loop(self._get_items(None if wanted is None or wanted < 0 else wanted))

    async def add_items(self, items: list[SdkItem], *, wrapper: Any = None) -> None:
        """Append items, in one commit.

        Args:
            items: The items.
            wrapper: Context of the run. The SDK passes it. It has the tokens of the responses.

        Raises:
            ThreadHeld: If a worker holds the thread.
            ThreadWaiting: If a run of a Lockstitch agent is open.
            Refused: If an item is not JSON.
        """
        if items:
            await self._settled(self._add_items(items, wrapper))

    async def pop_item(self, *, wrapper: Any = None) -> SdkItem | None:
        """Remove the last item from the session and return it. The log still has it.

        Args:
            wrapper: Not used.

        Raises:
            ThreadHeld: If a worker holds the thread.
            ThreadWaiting: If a run of a Lockstitch agent is open.
        """
        return await self._settled(self._pop_item())

    async def clear_session(self, *, wrapper: Any = None) -> None:
        """Remove all items from the session. The log still has them; `Store.delete` deletes it.

        Args:
            wrapper: Not used.

        Raises:
            ThreadHeld: If a worker holds the thread.
            ThreadWaiting: If a run of a Lockstitch agent is open.
        """
        await self._settled(self._clear())

    async def rewind(self) -> bool:
        """Return True if the last run has no answer, because its process ended. It can then be continued with
        `Runner.run(agent, [], session=session)`.

        Calls without a result are removed, as the SDK does not send them to the model. Call `load_state` first: a run
        that waits for an approval has such calls.

        Raises:
            ThreadHeld: If a worker holds the thread.
            ThreadWaiting: If a run of a Lockstitch agent is open.
        """
        return await self._settled(self._rewind())

    async def save_state(self, state: Any, **options: Any) -> None:
        """Store the state of a run that waits for an approval. It replaces the last one of the session.

        Args:
            state: State of the run, from `result.to_state()`.
            options: Options of `RunState.to_json`.

        Raises:
            ThreadHeld: If a worker holds the thread.
            ThreadWaiting: If a run of a Lockstitch agent is open.
            Refused: If the state is not JSON.
        """
        await self._settled(self._save_state(state.to_json(**options), _interruptions(state)))

    async def load_state(self, agent: Any, **options: Any) -> Any:
        """Return the state of the run that waits, or None if no run waits. Any process can continue it.

        Args:
            agent: Agent with which the run started.
            options: Options of `RunState.from_json`.
        """
        stored = await self._on_loop(self._load_state())
        return None if stored is None else await import_module("agents").RunState.from_json(agent, stored, **options)

    # For compaction by the SDK

    async def _get_compaction_snapshot(
        self, limit: int, *, prune_prefix: Callable[[SdkItem], bool] | None = None
    ) -> Any:
        snapshot_class: Any = getattr(import_module("agents.memory.session"), "_CompactionSnapshot", None)
        # The name is not public. Without a snapshot, the SDK replaces all items.
        return None if snapshot_class is None else snapshot_class(*await self._snapshot(limit, prune_prefix))

    async def _snapshot(
        self, limit: int, prune_prefix: Callable[[SdkItem], bool] | None = None
    ) -> tuple[list[SdkItem], bool, Callable[[int, list[SdkItem]], Awaitable[bool]]]:
        """Return the last items, True if these are all, and a function that replaces the end of them.

        The function returns False and writes nothing if the items have changed since then.
        """
        items, complete = await self._on_loop(self._last_items(limit))

        async def replace_suffix(start: int, output: list[SdkItem]) -> bool:
            expected = items[start:]

            async def plan(transcript: Transcript, run: OpenRun | None) -> Plan | None:
                await transcript.load(self._view, None)
                kept, suffix = transcript.items[: -len(expected)], transcript.items[-len(expected) :]
                if suffix != expected:
                    return None
                while prune_prefix is not None and kept and prune_prefix(values(kept[:1])[0]):
                    del kept[0]
                entry = transcript.compaction("replace", kept, output)
                return Plan(ThreadUpdate(transcript.head, [entry]), run)

            return bool(expected) and await self._settled(self._commit(plan)) is not None

        return values(items), complete, replace_suffix

    async def _atomic_replace_items(self, items: list[SdkItem]) -> bool:
        """Replace all items, in one commit."""
        await self._settled(self._replace(items))
        return True

    # On the loop of the store

    async def _get_items(self, limit: int | None) -> list[SdkItem]:
        async with self._known.lock:
            transcript = await self._current()
            if transcript is None or limit == 0:
                return []
            await transcript.load(self._view, limit)
            return values(transcript.items if limit is None else transcript.items[-limit:])

    async def _last_items(self, limit: int) -> tuple[list[Item], bool]:
        async with self._known.lock:
            transcript = await self._current()
            if transcript is None:
                return [], True
            await transcript.load(self._view, limit + 1)
            return transcript.items[-limit:], transcript.complete and len(transcript.items) <= limit

    async def _add_items(self, items: list[Json], wrapper: Any) -> None:
        async def plan(transcript: Transcript, run: OpenRun | None) -> Plan:
            update = ThreadUpdate(transcript.head)
            return plan_items(self._view, update, run, items, wrapper=wrapper, model=self._model)

        await self._commit(plan, create=True)

    async def _pop_item(self) -> SdkItem | None:
        popped: list[Item] = []

        async def plan(transcript: Transcript, run: OpenRun | None) -> Plan | None:
            await transcript.load(self._view, None)
            popped[:] = transcript.items[-1:]
            if not popped:
                return None
            return Plan(ThreadUpdate(transcript.head, [transcript.compaction("pop_item", transcript.items[:-1])]), run)

        await self._commit(plan)
        return values(popped)[0] if popped else None

    async def _clear(self) -> None:
        async def plan(transcript: Transcript, run: OpenRun | None) -> Plan | None:
            await transcript.load(self._view, 1)
            if not transcript.items:
                return None
            update = ThreadUpdate(transcript.head, [transcript.compaction("clear_session", [])])
            return plan_interruption(self._view, update, run)

        await self._commit(plan)

    async def _replace(self, items: list[Json]) -> None:
        async def plan(transcript: Transcript, run: OpenRun | None) -> Plan | None:
            await transcript.load(self._view, 1)
            if transcript.items:
                entry = transcript.compaction("replace", [], items)
                return Plan(ThreadUpdate(transcript.head, [entry]), run)
            return plan_items(self._view, ThreadUpdate(transcript.head), run, items) if items else None

        await self._commit(plan, create=bool(items))

    async def _save_state(self, state: Json, calls: list[Json]) -> None:
        await self._view.extend(EXTENSION)

        async def plan(transcript: Transcript, run: OpenRun | None) -> Plan:
            return plan_pause(self._view, ThreadUpdate(transcript.head), run, state, calls)

        await self._commit(plan, create=True)

    async def _rewind(self) -> bool:
        is_open = False

        async def plan(transcript: Transcript, run: OpenRun | None) -> Plan | None:
            nonlocal is_open
            is_open = run is not None
            if run is None or not run.calls:
                return None
            await transcript.load(self._view, None)
            kept = without_calls(transcript.items, run.calls)
            return Plan(ThreadUpdate(transcript.head, [transcript.compaction("rewind", kept)]), run)

        await self._commit(plan)
        return is_open

    async def _load_state(self) -> Json | None:
        await self._view.extend(EXTENSION)
        async with self._known.lock:
            transcript = await self._current()
            if transcript is None or await self._run_at(transcript) is None:
                return None
            saved = await self._view.table(SavedState).first(Where("thread_id", "=", transcript.head.id))
            # If items follow, the run has continued, and the state is no longer the current one.
            await transcript.load(self._view, 1)
            return saved.state if saved is not None and saved.position > transcript.last_position else None

    async def _commit(
        self, plan: Callable[[Transcript, OpenRun | None], Awaitable[Plan | None]], *, create: bool = False
    ) -> Thread | None:
        """Commit a planned update. If another process appended first, plan it again.

        Return the thread, or None if nothing was planned.
        """
        async with self._known.lock:
            while True:
                transcript = await self._current()
                if transcript is None:
                    if not create:
                        return None
                    head = await self._view.ensure(self.session_id, user_id=self._user_id, extras=OWN_RUN)
                    transcript = self._known.transcript = Transcript(head)
                planned = await plan(transcript, await self._run_at(transcript))
                if planned is None:
                    return None
                try:
                    (committed,) = await self._view.commit(Transaction([planned.update], records=[*planned.records]))
                except (StalePosition, ThreadDeleted):
                    self._known.open_run_at = None
                    continue
                transcript.add(committed.head, committed.stitches)
                removes = any(entry.type == "compaction" for entry in planned.update.entries)
                self._known.open_run = planned.open_run
                self._known.open_run_at = None if removes else committed.head.position
                return committed.head

    async def _current(self) -> Transcript | None:
        """Return the items at the end of the log, or None if the thread does not exist."""
        try:
            known = self._known.transcript
            head = await self._view.thread(self.session_id if known is None else known.head)
            if self._user_id is not None and head.user_id != self._user_id:
                raise Refused(f"Thread {self.thread} belongs to another user.")
            if self._known.transcript is None:
                self._known.transcript = Transcript(head)
            else:
                await self._known.transcript.update(self._view, head)
        except NotFound:
            if self._known.transcript is None:
                return None
            # The thread was deleted. There may be a new one with the same key.
            self._known.transcript = self._known.open_run_at = None
            return await self._current()
        return self._known.transcript

    async def _run_at(self, transcript: Transcript) -> OpenRun | None:
        """Return the open run of the thread. Raises `ThreadWaiting` if it is not a run of a session."""
        head = transcript.head
        if self._known.open_run_at != head.position:
            runs = await self._view.find_runs(head.id, Where("status", "in", _OPEN), order=("-sequence",), limit=1)
            self._known.open_run = await self._state_of(transcript, runs[0]) if runs else None
            self._known.open_run_at = head.position
        if self._known.open_run is not None and self._known.open_run.run.extras != OWN_RUN:
            raise ThreadWaiting(
                f"Thread {self.thread} has an open run of a Lockstitch agent. Wait until it ends, or cancel it. "
                "Nothing was written.",
                thread_id=head.id,
            )
        return self._known.open_run

    async def _state_of(self, transcript: Transcript, run: Run) -> OpenRun:
        stitches = await self._view.stitches(transcript.head, run.first_position)
        if transcript.head.context_from >= run.first_position:
            await transcript.load(self._view, None)
            remaining = {item.position for item in transcript.items}
            stitches = [stitch for stitch in stitches if stitch.position in remaining]
        return open_run(run, stitches)

    async def _settled(self, work: Coroutine[Any, Any, T]) -> T:
        """Return the result of a write. If the caller is cancelled, wait for the outcome first."""
        task = asyncio.ensure_future(self._on_loop(work))
        cancelled: asyncio.CancelledError | None = None
        while not task.done():
            try:
                await asyncio.wait([task])
            except asyncio.CancelledError as exc:
                cancelled = cancelled or exc
        if cancelled is not None:
            if not task.cancelled():
                task.exception()
            raise cancelled
        return task.result()


def _interruptions(state: Any) -> list[Json]:
    """Return the calls that wait for an approval."""
    return [
        {"kind": "approval", "id": getattr(item.raw_item, "call_id", None), "name": item.name}
        for item in state.get_interruptions()
    ]


def _settings(value: Any) -> Any:
    """Return settings of the SDK. Without the SDK, they stay unchanged."""
    try:
        module = import_module("agents.memory.session_settings")
    except ModuleNotFoundError:
        return value
    return module.SessionSettings() if value is None else module.coerce_session_settings(value)
