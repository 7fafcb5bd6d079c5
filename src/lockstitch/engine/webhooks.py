"""Webhook events: created in the commit that they report, delivered at least once.

An event is stored until its webhook has accepted it. A webhook can get an event twice, if a process is killed between
the call and the delete, or if two processes deliver at the same time. The receiver recognises it by its id.
"""

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any, Final, Literal, cast
from uuid import UUID

from lockstitch.engine.concurrency import run_blocking
from lockstitch.engine.decision.action import Finish
from lockstitch.engine.session.run_context import RunContext
from lockstitch.engine.session.run_session import RunSession
from lockstitch.errors import LockstitchError, Refused
from lockstitch.model import Json, Wait, WebhookEvent, codec, format_time
from lockstitch.store import Store, Where

Webhook = str | Callable[[Json], "Awaitable[object] | object"]
"""A URL that receives the event as JSON by POST, or a function that is called with the event."""

TIMEOUT: Final = 10.0
"""Seconds that a webhook may take."""

FIRST_PAUSE, LONGEST_PAUSE = 5.0, 3600.0
"""Seconds until the second attempt, and the maximum. The pause doubles with each attempt."""

BATCH_SIZE: Final = 20
"""Maximum number of events that one call delivers."""

_log = logging.getLogger("lockstitch")


class WebhookDispatcher:
    """The webhooks of an app by name. It delivers their stored events. Safe to use from many tasks of one event
    loop."""

    def __init__(self, hooks: Iterable[Webhook] | Mapping[str, Webhook]) -> None:
        self._hooks: dict[str, Webhook] = (
            dict(cast("Mapping[str, Webhook]", hooks))
            if isinstance(hooks, Mapping)
            else {_name(hook): hook for hook in hooks}
        )
        for name, hook in self._hooks.items():
            if isinstance(hook, str) and not hook.startswith(("http://", "https://")):
                raise Refused(f"Webhook {name} is not a function or an http(s) URL: {hook!r}.")
        self._lock = asyncio.Lock()
        self._soon: set[asyncio.Task[None]] = set()

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the webhooks."""
        return tuple(self._hooks)

    def deliver_soon(self, store: Store) -> None:
        """Deliver the events that are due, in a background task."""
        if self._hooks and not self._soon:
            task = asyncio.create_task(self.deliver_due(store))
            self._soon.add(task)
            task.add_done_callback(self._soon.discard)

    async def close(self) -> None:
        """Wait for the background deliveries."""
        await asyncio.gather(*self._soon, return_exceptions=True)

    async def deliver_due(self, store: Store, thread_id: UUID | None = None) -> None:
        """Deliver the events that are due, or only those of one thread. A failed delivery is retried later."""
        if not self._hooks:
            return
        where = [Where("due_at", "<=", store.clock.now()), Where("hook", "in", list(self._hooks))]
        if thread_id is not None:
            where.append(Where("thread_id", "=", thread_id))
        try:
            async with self._lock:
                await self._deliver_all(store, where)
        except LockstitchError as exc:
            _log.warning("Webhook delivery postponed: %s", exc)

    async def _deliver_all(self, store: Store, where: Sequence[Where]) -> None:
        for webhook_event in await store.table(WebhookEvent).find(*where, order=("due_at", "id"), limit=BATCH_SIZE):
            await self._deliver(store, webhook_event)

    async def _deliver(self, store: Store, webhook_event: WebhookEvent) -> None:
        pause = min(FIRST_PAUSE * 2**webhook_event.tries, LONGEST_PAUSE)
        later = store.clock.now() + timedelta(seconds=pause)
        # Written before the call, so that other processes skip the event, and a webhook that kills the process is not
        # called again at once.
        await store.table(WebhookEvent).put(webhook_event.changed(tries=webhook_event.tries + 1, due_at=later))
        value: Json = {"id": str(webhook_event.id), "at": format_time(webhook_event.at), **webhook_event.body}
        try:
            async with asyncio.timeout(TIMEOUT):
                await _call(self._hooks[webhook_event.hook], value)
        except Exception as exc:  # code or server of the application
            _log.warning("Webhook %s failed, next attempt in %.0f s: %s", webhook_event.hook, pause, exc)
            return
        await store.table(WebhookEvent).delete(Where("id", "=", webhook_event.id))


def _name(hook: Webhook) -> str:
    return hook if isinstance(hook, str) else getattr(hook, "__qualname__", type(hook).__qualname__)


async def _call(hook: Webhook, value: Json) -> None:
    if isinstance(hook, str):
        await run_blocking(lambda: post_json(hook, value))
        return
    answer = hook(value)
    if inspect.isawaitable(answer):
        await answer


def post_json(url: str, value: Json) -> None:
    """Post a body to a webhook. Its `id` is the idempotency key. Raises an error unless the response is a success."""
    # Imported here because it is slow to load, and workers without URLs do not need it.
    import urllib.error
    import urllib.request

    headers = {"Content-Type": "application/json", "Idempotency-Key": str(value["id"])}
    request = urllib.request.Request(url, data=codec.dumps(value), headers=headers, method="POST")
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT) as answer:
            answer.read(1024)
    except urllib.error.HTTPError as exc:
        exc.close()
        raise


def webhook_events_of_wait(context: RunContext, waits: Sequence[Wait]) -> list[WebhookEvent]:
    """Return the events that report that a thread starts to wait for a person."""
    for_person = [wait.as_json() for wait in waits if wait.needs_person]
    if not for_person:
        return []
    return webhook_events(context.session, context.hooks, "waiting", {"waiting_for": for_person})


def webhook_events_of_end(context: RunContext, action: Finish) -> list[WebhookEvent]:
    """Return the events that report that a run has failed."""
    if action.status != "failed":
        return []
    return webhook_events(context.session, context.hooks, "failed", {"error": action.error})


def webhook_events(
    session: RunSession, hooks: Sequence[str], event: Literal["failed", "waiting"], details: dict[str, Any]
) -> list[WebhookEvent]:
    """Return one event for each webhook."""
    head, now = session.head, session.clock.now()
    body: Json = {
        "event": event,
        "thread_id": str(head.id),
        "key": head.key,
        "project": head.project,
        "run_id": str(session.run.id) if session.run is not None else None,
        "agent": head.agent,
        "goal": head.goal,
        "title": head.title,
        **details,
    }
    return [WebhookEvent(thread_id=head.id, hook=hook, event=event, body=body, due_at=now, at=now) for hook in hooks]
