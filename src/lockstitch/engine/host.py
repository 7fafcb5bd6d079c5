"""`AgentHost` and `WorkerHost`: protocols of the object that has the agents, for an executor and a worker."""

from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import Any, Protocol

from lockstitch.engine.config import RunConfig, RunStart
from lockstitch.model import Run, Thread
from lockstitch.store import Store


class AgentHost(Protocol):
    """The agents whose threads an `Executor` executes. `App` is one, `SingleAgentHost` another."""

    @property
    def agent_names(self) -> Sequence[str]:
        """The names of the agents."""
        ...

    @property
    def webhook_names(self) -> Sequence[str]:
        """The webhooks to call when a thread fails or starts to wait for a person."""
        ...

    async def run_config(
        self, start: RunStart, run: Run | None, resources: AsyncExitStack, deps: Any = None
    ) -> tuple[RunConfig, str | None]:
        """Return the config of a thread's open run, or of a new run if `run` is None.

        The second value is the instructions of a new run. If `deps` is None, the deps of the agent are used. If these
        are a context manager, `resources` exits it. Raises `NotFound` if the host has no code of the thread's agent.
        """
        ...

    def on_run_end(self, store: Store, head: Thread, run: Run) -> None:
        """Called after a run has ended, with its last state."""
        ...


class WorkerHost(AgentHost, Protocol):
    """The agents whose threads a worker executes, and the webhooks that it calls. `App` is one."""

    async def register(self, store: Store) -> None:
        """Prepare a store before its first claim."""
        ...

    async def deliver_webhooks(self, store: Store) -> None:
        """Deliver the webhook events that are due."""
        ...

    def deliver_webhooks_soon(self, store: Store) -> None:
        """Deliver the webhook events that are due in the background."""
        ...
