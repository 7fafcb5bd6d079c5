"""`ReplayMethods`: the calls of `Client` for replays."""

from uuid import UUID

from lockstitch.client.connection import part, without_none
from lockstitch.client.schedule_methods import ScheduleMethods
from lockstitch.model import Json, Run, Thread


class ReplayMethods(ScheduleMethods):
    """The operations of `Client` on replays. See `lockstitch.replay`."""

    async def start_replay(
        self,
        source: Thread | Run | UUID | str,
        *,
        agent: str | None = None,
        version: int | None = None,
        model: str | None = None,
        instructions: str | None = None,
        at: int | None = None,
        live_safe: bool = False,
        key: str | None = None,
    ) -> Thread:
        """Run a recorded thread or run again, with tool results from the record. A worker executes the replay.

        Args:
            source: Recorded thread, its id or its key, or a run or its id. Of a thread, all turns are run again.
            agent: Name of the agent that answers. None: the agent of the record.
            version: Stored version of its definition. None: the definition of the server's code.
            model: Model of the replay. None: the model of the agent.
            instructions: Instructions of the replay. None: those of the agent.
            at: Position of the recorded thread. The responses up to it come from the record, too.
            live_safe: Run tools with the effect `safe` if the record does not have their call.
            key: Name of the new thread, unique within the project.

        Returns:
            The new thread of the kind `replay`, with the status `pending`.

        Raises:
            NotFound: If the project has no such thread, run or version, or the server does not have the agent.
            Refused: If the source cannot be replayed, or a value is not valid.
        """
        body: Json = without_none(
            source=str(source.id if isinstance(source, Thread | Run) else source),
            agent=agent,
            version=version,
            model=model,
            instructions=instructions,
            at=at,
            live="safe" if live_safe else None,
            key=key,
        )
        return Thread.from_json(await self._connection.ask("POST", "/api/replays", body=body))

    async def replay_report(self, ref: Thread | UUID | str) -> Json:
        """Return the state of a replay, and its comparison with the recorded runs: `ReplayReport.as_json()`.

        Args:
            ref: Thread of the replay, its id or its key in the project.

        Raises:
            NotFound: If the project has no such thread.
            Refused: If the thread is no replay.
        """
        return await self._get(f"/api/replays/{part(str(ref.id if isinstance(ref, Thread) else ref))}")
