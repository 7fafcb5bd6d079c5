"""`replay`: run a recorded thread or run again, with tool results from the record."""

from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from lockstitch.agents.agent import Agent
from lockstitch.agents.stored import StoredAgent
from lockstitch.agents.versions import changed_version
from lockstitch.engine.events import Listener
from lockstitch.engine.executor import has_open_waits, retry_until_free
from lockstitch.errors import KeyTaken, NotFound, Refused, ThreadEnded
from lockstitch.model import AgentVersion, Json, Run, Thread
from lockstitch.store import Store
from lockstitch.store.replays import ReplayReport, plan_of, recorded_source
from lockstitch.store.threads import ThreadRef


async def replay(
    source: ThreadRef | Run,
    agent: Agent | None = None,
    *,
    store: Store,
    model: str | None = None,
    instructions: str | None = None,
    version: int | None = None,
    at: int | None = None,
    live_safe: bool = False,
    key: str | None = None,
    deps: Any = None,
    listener: Listener | None = None,
) -> ReplayReport:
    """Run a recorded thread or run again, and compare both. The record does not change, and no tool has an effect.

    The replay is a new thread of the kind `replay`. It gets the recorded messages of the user. The model is called. A
    call of a tool gets the recorded result of the same call: the same tool with equal arguments, in the same turn. A
    call that the record does not have ends the replay, and the report says which one.

    After a crash, `resume_replay`, a worker, or the same call with the same `key` continues the replay.

    Args:
        source: Recorded thread, its id or its key, or a run or its id. Of a thread, all turns are run again.
        agent: Agent or team that answers. None: the agent of the record, by its stored definition.
        store: Store of the record.
        model: Model of the replay. None: the model of the agent.
        instructions: Instructions of the replay. None: those of the agent.
        version: Stored version of the agent's definition. None: the definition of `agent`. Without `agent`, the version
            of the recorded run.
        at: Position of the recorded thread. The responses up to it come from the record, too.
        live_safe: Run tools with the effect `safe` if the record does not have their call.
        key: Name of the new thread, unique within the project. If it is a replay already, that replay is continued.
        deps: Object that instructions and `safe` tools receive. None: the `deps` of the agent.
        listener: Function that receives each event.

    Returns:
        The report. The status of its thread is `completed`, or `failed` if a call had no recorded result.

    Raises:
        NotFound: If the project has no such thread, run or version.
        Refused: If the source cannot be replayed, or a value is not valid. Nothing was written.
    """
    head = None if key is None else await _replay_of_key(store, key)
    if head is None:
        setup = await _setup(source, agent, store, version, {"model": model, "instructions": instructions})
        await setup.ready()
        agent = setup.agent
        try:
            head = await setup.start(store, at, live_safe, key)
        except KeyTaken:
            # Another process has just started this replay.
            head = None if key is None else await _replay_of_key(store, key)
            if head is None:
                raise
    return await resume_replay(head, agent, store=store, deps=deps, listener=listener)


async def start_replay(
    source: ThreadRef | Run,
    agent: Agent | None = None,
    *,
    store: Store,
    model: str | None = None,
    instructions: str | None = None,
    version: int | None = None,
    at: int | None = None,
    live_safe: bool = False,
    key: str | None = None,
) -> Thread:
    """Create the thread of a replay and leave it to workers. The parameters and errors are those of `replay`.

    Args:
        source: Recorded thread, its id or its key, or a run or its id.
        agent: Agent or team that answers. None: the agent of the record.
        store: Store of the record.
        model: Model of the replay.
        instructions: Instructions of the replay.
        version: Stored version of the agent's definition.
        at: Position of the recorded thread. The responses up to it come from the record, too.
        live_safe: Run tools with the effect `safe` if the record does not have their call.
        key: Name of the new thread, unique within the project.

    Returns:
        The new thread, with the status `pending`.
    """
    setup = await _setup(source, agent, store, version, {"model": model, "instructions": instructions})
    return await setup.start(store, at, live_safe, key)


async def resume_replay(
    ref: ThreadRef, agent: Agent | None = None, *, store: Store, deps: Any = None, listener: Listener | None = None
) -> ReplayReport:
    """Execute a replay until it ends or waits, and return its report. If a worker executes it, wait for the worker.

    Args:
        ref: Thread of the replay, its id or its key.
        agent: Agent that executes it. None: the agent of the thread, by its stored definition.
        store: Store of the thread.
        deps: Object that instructions and `safe` tools receive. None: the `deps` of the agent.
        listener: Function that receives each event.

    Returns:
        The report.

    Raises:
        NotFound: If the project has no such thread.
        Refused: If the thread is no replay.
    """
    head = await store.thread(ref)
    if plan_of(head) is None:
        raise Refused(f"Thread {head.id} is no replay.")
    executor = (agent or StoredAgent(head)).executor(store, deps, listener)
    while not head.ended and not has_open_waits(head):
        with suppress(ThreadEnded):
            await retry_until_free(store, head, executor.resume)
        head = await store.thread(head.id)
    return await store.replay_report(head)


@dataclass(frozen=True, slots=True)
class _Setup:
    """A recorded thread or run, and the agent and the definition that run it again."""

    source: Thread | Run
    agent: Agent
    version: AgentVersion

    async def ready(self) -> None:
        """Load the tools and the provider, so that their errors are raised before anything is written."""
        await self.agent.spec.load_tools()
        self.agent.spec.provider(self.version.definition["model"])

    async def start(self, store: Store, at: int | None, live_safe: bool, key: str | None) -> Thread:
        name, number = self.agent.name, self.version.version
        return await store.start_replay(self.source, agent=name, version=number, at=at, live_safe=live_safe, key=key)


async def _setup(
    source: ThreadRef | Run, agent: Agent | None, store: Store, version: int | None, values: Json
) -> _Setup:
    """Return the agent and the stored version of its definition with other values."""
    recorded = await recorded_source(store, source)
    if agent is None:
        if recorded.agent is None:
            raise Refused(f"{source} has no agent. Pass the agent that answers.")
        agent, version = StoredAgent(recorded.agent), recorded.version if version is None else version
    return _Setup(recorded, agent, await changed_version(agent, store, version=version, **values))


async def _replay_of_key(store: Store, key: str) -> Thread | None:
    """Return the replay with this key; None if there is none. Raises `KeyTaken` if another thread has the key."""
    try:
        head = await store.thread(key)
    except NotFound:
        return None
    if plan_of(head) is None:
        raise KeyTaken(f"The key {key} is used by a thread that is no replay.", thread_id=head.id)
    return head
