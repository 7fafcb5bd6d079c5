"""Replies to a thread that changes between the check and the delivery."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from lockstitch.agents.agent import Agent
from lockstitch.agents.tools.threads import ask_for_input
from lockstitch.backend import Commit
from lockstitch.engine.cancel import cancel
from lockstitch.engine.replies import answer, approve, submit_results
from lockstitch.errors import ThreadWaiting
from lockstitch.model import Delivery
from lockstitch.store import Store, open_store
from tests.engine.agents import assert_can_continue, calls, confirm, log, pay, scripted

pytestmark = pytest.mark.anyio

CALL = "call_1_1_0"

REPLIES: dict[str, tuple[Any, Any, Callable[[Store], Awaitable[None]]]] = {
    "results": (confirm, {}, lambda store: submit_results(store, "t", [{"tool_use_id": CALL, "content": "yes"}])),
    "approval": (pay, {"amount": 1}, lambda store: approve(store, "t", CALL)),
    "answer": (ask_for_input, {"question": "?"}, lambda store: answer(store, "t", "yes")),
}


class ActsBeforeAppend:
    """A backend that calls a function right before deliveries arrive."""

    def __init__(self, backend: Any, action: Callable[[], Awaitable[Any]]) -> None:
        self._backend = backend
        self._action: Callable[[], Awaitable[Any]] | None = action

    def __getattr__(self, name: str) -> Any:
        return getattr(self._backend, name)

    async def append(self, commit: Commit) -> Any:
        if self._action is not None and any(isinstance(step, Delivery) for step in commit.steps):
            action, self._action = self._action, None
            await action()
        return await self._backend.append(commit)


def asking(kind: str) -> Agent:
    tool, arguments, _ = REPLIES[kind]
    return scripted(calls(tool.name, **{tool.name: arguments}), "Done.", tools=[tool])


async def replying(store: Store, kind: str, action: Callable[[], Awaitable[Any]]) -> None:
    """Reply to a held thread. The action happens between the check of the reply and its arrival."""
    meanwhile = ActsBeforeAppend(store._backend, action)
    await REPLIES[kind][2](Store(meanwhile, clock=store.clock, project=store.project))  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", REPLIES)
async def test_ignores_reply_to_answered_call(store: Store, store_url: str, kind: str):
    """The holder releases the thread, and its run is cancelled, which answers the call."""
    await asking(kind).run("Go", store=store, thread="t")
    async with open_store(store_url) as other_store:
        await other_store.claim("t")

        async def action() -> None:
            await other_store.close()
            await cancel(store, "t")

        await replying(store, kind, action)
    assert [stitch.status for stitch in await log(store, "tool_call", "permission")] == ["cancelled"]
    await assert_can_continue(store)
    [late] = await log(store, "error")
    assert late.data["type"] == "LateAnswer"


@pytest.mark.parametrize("kind", REPLIES)
async def test_accepts_reply_after_holder_released_thread(store: Store, store_url: str, kind: str):
    clerk = asking(kind)
    await clerk.run("Go", store=store, thread="t")
    async with open_store(store_url) as other_store:
        await other_store.claim("t")
        await replying(store, kind, other_store.close)
    result = await clerk.resume("t", store=store)
    assert result is not None
    assert (result.status, result.output_text) == ("completed", "Done.")
    assert [stitch.status for stitch in await log(store, "tool_call")] == ["ok"]
    await assert_can_continue(store)


@pytest.mark.parametrize("kind", REPLIES)
async def test_raises_when_replying_to_ended_thread(store: Store, store_url: str, kind: str):
    clerk = asking(kind)
    await clerk.start(store=store, goal="g", key="t")
    await clerk.resume("t", store=store)
    async with open_store(store_url) as other_store:
        await other_store.claim("t")

        async def action() -> None:
            await other_store.close()
            await cancel(store, "t")

        with pytest.raises(ThreadWaiting, match="no open run"):
            await replying(store, kind, action)
    assert (await store.verify()).ok
