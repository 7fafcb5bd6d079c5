"""`ActionMethods`: the calls of `Client` that start, answer, change and delete."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from datetime import datetime
from types import EllipsisType
from typing import Any
from uuid import UUID

from lockstitch.client.connection import as_json, part, without_none
from lockstitch.client.models import (
    RunResult,
    StreamEvent,
)
from lockstitch.client.read_methods import Ref, name_of, thread_path
from lockstitch.client.replay_methods import ReplayMethods
from lockstitch.errors import NotFound
from lockstitch.model import Feedback, Json, SavedView, Thread
from lockstitch.model.figures import ThreadSort


class ActionMethods(ReplayMethods):
    """The write operations of `Client`."""

    async def start(
        self,
        agent: str,
        goal: str,
        *,
        key: str | None = None,
        title: str | None = None,
        user_id: str | None = None,
        tasks: Sequence[Json | str] = (),
        priority: int = 0,
        at: datetime | None = None,
        extras: Json | None = None,
    ) -> Thread:
        """Create a thread with a goal and return it. A worker executes it.

        Args:
            agent: Name of the agent that executes the thread.
            goal: Task of the thread, in words.
            key: Name of the thread, unique within the project.
            title: Title of the thread for lists.
            user_id: Id of the user that the thread belongs to.
            tasks: Task list, as texts or as objects with a `description`. The first request contains it.
            priority: Claim priority. Higher values first.
            at: Time before which no worker starts the thread, with a time zone.
            extras: Additional data of an application.

        Raises:
            KeyTaken: If the key is in use.
            Refused: If a value is not valid.
        """
        body = without_none(
            agent=agent,
            goal=goal,
            key=key,
            title=title,
            user_id=user_id,
            tasks=list(tasks),
            priority=priority,
            at=at,
            extras=extras,
        )
        return Thread.from_json(await self._connection.post("/api/threads", body))

    async def begin(
        self,
        agent: str,
        input: str | list[Json],
        *,
        thread: Ref | None = None,
        user_id: str | None = None,
        metadata: Json | None = None,
        tags: Sequence[str] = (),
        extras: Json | None = None,
        message_id: str | None = None,
    ) -> RunResult:
        """Start a run and return its state at once. The server executes it.

        If the thread has an open run, the message is queued and the status is `pending`.

        Args:
            agent: Name of the agent.
            input: Message of the user: a text, or a list of content blocks.
            thread: Thread, its id or its key. An unknown key creates a thread. None: a new thread.
            user_id: Id of the user that the thread belongs to.
            metadata: Metadata of the run.
            tags: Tags of the run.
            extras: Additional data of an application, stored with the run.
            message_id: Id of the message that you choose, unique per thread. If the thread has accepted it before, no
                run starts, and the result is that of the first message.

        Raises:
            NotFound: If the server has no such agent.
            Conflict: If the thread cannot take the message, for example because it has ended, or if the first message
                with this id has another content.
            Refused: If a value is not valid.
        """
        body = _run_body(input, thread, user_id, metadata, tags, extras, message_id)
        return await self._begin(agent, {**body, "wait": False})

    async def run_agent(
        self,
        agent: str,
        input: str | list[Json],
        *,
        thread: Ref | None = None,
        user_id: str | None = None,
        metadata: Json | None = None,
        tags: Sequence[str] = (),
        extras: Json | None = None,
        message_id: str | None = None,
    ) -> RunResult:
        """Start a run and return its result when it has ended or waits for a reply.

        Args:
            agent: Name of the agent.
            input: Message of the user: a text, or a list of content blocks.
            thread: Thread, its id or its key. An unknown key creates a thread. None: a new thread.
            user_id: Id of the user that the thread belongs to.
            metadata: Metadata of the run.
            tags: Tags of the run.
            extras: Additional data of an application, stored with the run.
            message_id: Id of the message that you choose, unique per thread. If the thread has accepted it before, no
                run starts, and the result is that of the first message.

        Raises:
            NotFound: If the server has no such agent.
            Conflict: If the thread cannot take the message, for example because it has ended, or if the first message
                with this id has another content.
            Refused: If a value is not valid.
        """
        body = _run_body(input, thread, user_id, metadata, tags, extras, message_id)
        return await self._begin(agent, {**body, "wait": True})

    async def stream(
        self,
        agent: str,
        input: str | list[Json],
        *,
        thread: Ref | None = None,
        user_id: str | None = None,
        metadata: Json | None = None,
        tags: Sequence[str] = (),
        extras: Json | None = None,
        message_id: str | None = None,
    ) -> AsyncGenerator[StreamEvent]:
        """Start a run and yield its events. If the caller stops early, the run continues.

        Args:
            agent: Name of the agent.
            input: Message of the user: a text, or a list of content blocks.
            thread: Thread, its id or its key. An unknown key creates a thread. None: a new thread.
            user_id: Id of the user that the thread belongs to.
            metadata: Metadata of the run.
            tags: Tags of the run.
            extras: Additional data of an application, stored with the run.
            message_id: Id of the message that you choose, unique per thread. If the thread has accepted it before, no
                run starts, and the result is that of the first message.

        Raises:
            NotFound: If the server has no such agent.
            Conflict: If the thread cannot take the message, for example because it has ended, or if the first message
                with this id has another content.
            Refused: If a value is not valid.
        """
        before = await self._position(thread) if thread is not None else 0
        body = _run_body(input, thread, user_id, metadata, tags, extras, message_id)
        run_result = await self._begin(agent, {**body, "wait": False})
        if message_id is not None and run_result.status != "pending":
            # The thread has accepted the message before. Its events start with its run.
            before = (await self.run(run_result.run_id)).first_position - 1
        async with aclosing(self.events(run_result.thread_id, after=before, until="idle")) as events:
            async for event in events:
                yield event

    async def fork(
        self,
        ref: Ref,
        *,
        at: int | None = None,
        before_turn: int | None = None,
        key: str | None = None,
        take_key: bool = False,
        title: str | None = None,
        user_id: str | None = None,
    ) -> Thread:
        """Create a thread from a position of another thread and return it. Calls that are open there get an error.

        Args:
            ref: Thread, its id or its key in the project.
            at: Last position to include. None: the end of the log.
            before_turn: Number of the first turn to leave out, instead of `at`.
            key: Name of the fork, unique within the project.
            take_key: Give the key of the thread to the fork, in the same commit.
            title: Title of the fork.
            user_id: Id of the user that the fork belongs to. None: the user of the thread.

        Raises:
            NotFound: If the project has no such thread.
            KeyTaken: If the key is in use.
            Conflict: With `take_key`, if a worker holds the thread or the thread changes at the same time.
            Refused: If there is no such position or turn, or if the thread is an imported trace.
        """
        values: Json = {"at": at, "before_turn": before_turn, "key": key, "take_key": take_key or None}
        return Thread.from_json(await self._act(ref, "fork", **values, title=title, user_id=user_id))

    async def regenerate(
        self,
        ref: Ref,
        *,
        turn: int | None = None,
        input: str | list[Json] | None = None,
        wait: bool = False,
        message_id: str | None = None,
    ) -> RunResult:
        """Answer the last turn of a thread again, in a fork that takes the key of the thread.

        Args:
            ref: Thread, its id or its key in the project.
            turn: Number of the turn to answer again. Later turns are left out. None: the last turn.
            input: Message to send instead of the message of the turn. None: the same message.
            wait: Wait until the run has ended or waits for a person.
            message_id: Id of the request that you choose, unique per thread. A repeated request creates no second fork.

        Returns:
            The result of the new run. Its `thread_id` is the id of the fork.

        Raises:
            NotFound: If the project has no such thread.
            Conflict: If the state of the thread does not allow it.
            Refused: If there is no such turn, or if the turn has no message.
        """
        values: Json = {"turn": turn, "input": input, "wait": wait or None, "message_id": message_id}
        return RunResult.from_json(await self._act(ref, "regenerate", **values))

    async def edit(
        self,
        ref: Ref,
        *,
        title: str | EllipsisType | None = ...,
        extras: Json | EllipsisType = ...,
        priority: int | EllipsisType = ...,
        expires_at: datetime | EllipsisType | None = ...,
    ) -> Thread:
        """Set fields of a thread and return it. `...` leaves a field unchanged.

        Args:
            ref: Thread, its id or its key in the project.
            title: Title for lists. None removes it.
            extras: Additional data of an application.
            priority: Claim priority. Higher values first.
            expires_at: Time after which a purge deletes the thread. None removes it.

        Raises:
            NotFound: If the project has no such thread.
            Refused: If a value is not valid.
        """
        values = {"title": title, "extras": extras, "priority": priority, "expires_at": expires_at}
        body = {name: as_json(value) for name, value in values.items() if value is not ...}
        return Thread.from_json(await self._connection.ask("PATCH", thread_path(ref), body=body))

    async def delete(self, ref: Ref, *, force: bool = False) -> int:
        """Delete a thread with its descendants and return the number of deleted threads.

        Args:
            ref: Thread, its id or its key in the project.
            force: Delete the threads also if a worker holds one of them.

        Raises:
            NotFound: If the project has no such thread.
            ThreadBusy: If a worker holds one of the threads and `force` is False.
        """
        return (await self._connection.ask("DELETE", thread_path(ref), parameters={"force": force}))["deleted"]

    async def cancel(self, ref: Ref) -> Json:
        """Request the end of the open run and of its children. Return the status of the thread.

        Args:
            ref: Thread, its id or its key in the project.

        Raises:
            NotFound: If the project has no such thread.
            Conflict: If the state of the thread does not allow it.
        """
        return await self._act(ref, "cancel")

    async def retry(self, ref: Ref) -> Json:
        """Start a new run for a failed or cancelled one, with the same context. Return the status and the run_id.

        Args:
            ref: Thread, its id or its key in the project.

        Raises:
            NotFound: If the project has no such thread.
            Conflict: If the state of the thread does not allow it.
        """
        return await self._act(ref, "retry")

    async def resume(self, ref: Ref) -> Json:
        """Resume an interrupted or waiting thread. Return the status and the run_id.

        Args:
            ref: Thread, its id or its key in the project.

        Raises:
            NotFound: If the project has no such thread.
            Conflict: If the state of the thread does not allow it.
        """
        return await self._act(ref, "resume")

    async def approve(self, ref: Ref, call_id: str) -> Json:
        """Approve a call. Return the status of the thread.

        Args:
            ref: Thread, its id or its key in the project.
            call_id: Id or key of the call.

        Raises:
            NotFound: If the project has no such thread.
            Conflict: If the state of the thread does not allow it.
        """
        return await self._act(ref, "approve", call_id=call_id)

    async def deny(self, ref: Ref, call_id: str, *, reason: str | None = None) -> Json:
        """Deny a call. Return the status of the thread.

        Args:
            ref: Thread, its id or its key in the project.
            call_id: Id or key of the call.
            reason: Reason, which the model receives.

        Raises:
            NotFound: If the project has no such thread.
            Conflict: If the state of the thread does not allow it.
        """
        return await self._act(ref, "deny", call_id=call_id, reason=reason)

    async def settle(
        self, ref: Ref, call_id: str, *, done: str | None = None, redo: bool = False, unknown: bool = False
    ) -> Json:
        """Settle a call with an unknown outcome. Return the status of the thread.

        Pass exactly one of `done`, `redo` and `unknown`.

        Args:
            ref: Thread, its id or its key in the project.
            call_id: Id or key of the call.
            done: Result of the call, if it completed.
            redo: Run the call again.
            unknown: Report the unknown outcome to the model.

        Raises:
            NotFound: If the project has no such thread.
            Conflict: If the state of the thread does not allow it.
        """
        return await self._act(ref, "settle", call_id=call_id, done=done, redo=redo, unknown=unknown)

    async def answer(self, ref: Ref, text: str, *, call_id: str | None = None) -> Json:
        """Answer a question of a thread. Return the status of the thread.

        Args:
            ref: Thread, its id or its key in the project.
            text: The answer.
            call_id: Id or key of the call that asked. None: the first question.

        Raises:
            NotFound: If the project has no such thread.
            Conflict: If the state of the thread does not allow it.
        """
        return await self._act(ref, "answer", text=text, call_id=call_id)

    async def submit_results(self, ref: Ref, results: Sequence[Json]) -> Json:
        """Submit the results of all frontend calls that the thread waits for. Return the status of the thread.

        Args:
            ref: Thread, its id or its key in the project.
            results: One `tool_result` block for each call.

        Raises:
            NotFound: If the project has no such thread.
            Conflict: If the state of the thread does not allow it.
        """
        return await self._act(ref, "tool_results", results=list(results))

    async def deliver(self, ref: Ref, input: str | list[Json], *, id: str | None = None) -> Json:
        """Send a message to a thread. A worker answers it. Return the status and the run_id of the answer.

        Args:
            ref: Thread, its id or its key in the project.
            input: Message of the user: a text, or a list of content blocks.
            id: Id of the message. Repeating a message with the same id has no effect.

        Raises:
            NotFound: If the project has no such thread.
            Conflict: If another message has this id, or if the thread has ended.
        """
        return await self._act(ref, "deliver", input=input, id=id)

    async def save_view(
        self,
        name: str,
        *,
        filters: Mapping[str, str] | None = None,
        columns: Sequence[str] = (),
        sort: ThreadSort = "time",
        ascending: bool = False,
        is_default: bool = False,
    ) -> SavedView:
        """Store a view of the list of threads. Return it. It replaces the view with this name.

        Args:
            name: Name of the view, without a slash.
            filters: Filters, by the name of their URL parameter on the page.
            columns: Names of the columns. Empty: the default columns.
            sort: `time`, `latency`, `tokens`, `cost` or `model`.
            ascending: True if the lowest value comes first.
            is_default: True if the list opens with this view.

        Raises:
            Refused: If a value is not valid.
        """
        body: Json = {"filters": dict(filters or {}), "columns": list(columns), "sort": sort}
        body |= {"ascending": ascending, "is_default": is_default}
        return SavedView.from_json(await self._connection.ask("PUT", f"/api/views/{part(name)}", body=body))

    async def rename_view(self, name: str, new_name: str) -> SavedView:
        """Give a view another name. Return it.

        Args:
            name: Name of the view.
            new_name: The new name.

        Raises:
            NotFound: If the project has no such view.
            Conflict: If the project has a view with the new name.
        """
        path = f"/api/views/{part(name)}"
        return SavedView.from_json(await self._connection.ask("PATCH", path, body={"name": new_name}))

    async def delete_view(self, name: str) -> None:
        """Delete a view.

        Args:
            name: Name of the view.

        Raises:
            NotFound: If the project has no such view.
        """
        await self._connection.ask("DELETE", f"/api/views/{part(name)}")

    async def give_feedback(
        self,
        name: str,
        *,
        thread: Ref | None = None,
        run: UUID | str | None = None,
        stitch: UUID | str | None = None,
        score: float | None = None,
        value: Json | None = None,
        comment: str | None = None,
        user_id: str | None = None,
        source: str = "native",
    ) -> Feedback:
        """Store feedback on a thread, a run or a stitch. Return it.

        With `user_id`, it replaces the feedback with this name that the user has given on the same subject.

        Args:
            name: Name of the feedback, such as `helpful`.
            thread: Thread, its id or its key.
            run: Id of the run.
            stitch: Id of the stitch.
            score: Numeric value.
            value: Value as JSON.
            comment: Text of a person.
            user_id: Id of the user that gives the feedback.
            source: Name of the system that the feedback comes from.

        Raises:
            NotFound: If the project has no such thread, run or stitch.
            Refused: If a value is not valid.
        """
        body = without_none(
            name=name,
            thread=None if thread is None else name_of(thread),
            run=run,
            stitch=stitch,
            score=score,
            value=value,
            comment=comment,
            user_id=user_id,
            source=source,
        )
        return Feedback.from_json(await self._connection.post("/api/feedback", body))

    async def remove_feedback(self, feedback_id: UUID | str) -> None:
        """Delete feedback.

        Args:
            feedback_id: Id of the feedback.

        Raises:
            NotFound: If the project has no such feedback.
        """
        await self._connection.ask("DELETE", f"/api/feedback/{part(feedback_id)}")

    async def retry_body(self, body_id: UUID | str) -> None:
        """Put a body from quarantine into the ingest queue again. Needs the scope `admin`.

        Args:
            body_id: Id of the body.

        Raises:
            NotFound: If no such body is in quarantine.
        """
        await self._connection.post(f"/api/arrivals/{part(body_id)}/retry")

    async def create_token(self, name: str, scopes: Sequence[str], *, expires_at: datetime | None = None) -> Json:
        """Create a token of the project. Needs the scope `admin`.

        Args:
            name: Name of the token.
            scopes: Scopes of the token: `read`, `write`, `ingest`, `admin`.
            expires_at: Time after which the token is not valid, with a time zone.

        Returns:
            The token as JSON. `token` is the secret, which the server does not show again.

        Raises:
            Refused: If a scope is unknown, or if the project has a valid token with this name.
        """
        body = without_none(name=name, scopes=list(scopes), expires_at=expires_at)
        return await self._connection.post("/api/tokens", body)

    async def revoke_token(self, name: str) -> Json:
        """Revoke a token of the project and return it. Needs the scope `admin`.

        Args:
            name: Name of the token.

        Raises:
            NotFound: If the project has no valid token with this name.
        """
        return await self._connection.ask("DELETE", f"/api/tokens/{part(name)}")

    async def _act(self, ref: Ref, act: str, **body: Any) -> Any:
        return await self._connection.post(f"{thread_path(ref)}/{act}", without_none(**body) or None)

    async def _begin(self, agent: str, body: Json) -> RunResult:
        path = f"/api/agents/{part(agent)}/runs"
        return RunResult.from_json(await self._connection.post(path, body, patient=body["wait"]))

    async def _position(self, ref: Ref) -> int:
        try:
            return (await self.thread(ref)).position
        except NotFound:
            return 0


def _run_body(
    input: str | list[Json],
    thread: Ref | None,
    user_id: str | None,
    metadata: Json | None,
    tags: Sequence[str],
    extras: Json | None,
    message_id: str | None,
) -> Json:
    """Return the body of a request that starts a run."""
    name = None if thread is None else name_of(thread)
    options: Json = {"user_id": user_id, "metadata": metadata, "tags": list(tags), "extras": extras}
    return without_none(input=input, thread=name, message_id=message_id, **options)
