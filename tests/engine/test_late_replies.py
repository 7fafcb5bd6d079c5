"""Replies to a thread that changes between the check and the delivery."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from lockstitch.agents.agent import Agent
from lockstitch.agents.tools.threads import ask_for_input
from lockstitch.backend import Commit
from lockstitch.engine.cancel import cancel
from lockstitch.engine.control import answer, approve, submit_results
from lockstitch.errors import ThreadWaiting
from lockstitch.model import Delivery
from lockstitch.store import Store, open_store
from tests.engine.agents import calls, confirm, goes_on, log, pay, scripted

pytestmark = pytest.mark.anyio

CALL = "call_1_1_0"

REPLIES: dict[str, tuple[Any, Any, Callable[[Store], Awaitable[None]]]] = {
    "results": (confirm, {}, lambda store: submit_results(store, "t", [{"tool_use_id": CALL, "content": "yes"}])),
    "approval": (pay, {"amount": 1}, lambda store: approve(store, "t", CALL)),
    "answer": (ask_for_input, {"question": "?"}, lambda store: answer(store, "t", "yes")),
}


class Meanwhile:
    """A backend that calls a function right before deliveries arrive."""

    def __init__(self, backend: Any, deed: Callable[[], Awaitable[Any]]) -> None:
        self._backend = backend
        self._deed: Callable[[], Awaitable[Any]] | None = deed

    def __getattr__(self, name: str) -> Any:
        return getattr(self._backend, name)

    async def append(self, commit: Commit) -> Any:
        if self._deed is not None and any(isinstance(step, Delivery) for step in commit.steps):
            deed, self._deed = self._deed, None
            await deed()
        return await self._backend.append(commit)


def asking(kind: str) -> Agent:
    tool, given, _ = REPLIES[kind]
    return scripted(calls(tool.name, **{tool.name: given}), "Done.", tools=[tool])


async def replying(store: Store, kind: str, deed: Callable[[], Awaitable[Any]]) -> None:
    """Reply to a held thread. The action happens between the check of the reply and its arrival."""
    meanwhile = Meanwhile(store._backend, deed)
    await REPLIES[kind][2](Store(meanwhile, clock=store.clock, project=store.project))  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", REPLIES)
async def test_ignores_reply_to_answered_call(store: Store, store_url: str, kind: str):
    """The holder releases the thread, and its run is cancelled, which answers the call."""
    await asking(kind).run("Go", store=store, thread="t")
    async with open_store(store_url) as there:
        await there.claim("t")

        async def deed() -> None:
            await there.close()
            await cancel(store, "t")

        await replying(store, kind, deed)
    assert [one.status for one in await log(store, "tool_call", "permission")] == ["cancelled"]
    await goes_on(store)
    [late] = await log(store, "error")
    assert late.data["type"] == "LateAnswer"


@pytest.mark.parametrize("kind", REPLIES)
async def test_accepts_reply_after_holder_released_thread(store: Store, store_url: str, kind: str):
    clerk = asking(kind)
    await clerk.run("Go", store=store, thread="t")
    async with open_store(store_url) as there:
        await there.claim("t")
        await replying(store, kind, there.close)
    result = await clerk.resume("t", store=store)
    assert result is not None
    assert (result.status, result.output_text) == ("completed", "Done.")
    assert [one.status for one in await log(store, "tool_call")] == ["ok"]
    await goes_on(store)


@pytest.mark.parametrize("kind", REPLIES)
async def test_raises_when_replying_to_ended_thread(store: Store, store_url: str, kind: str):
    clerk = asking(kind)
    await clerk.start(store=store, goal="g", key="t")
    await clerk.resume("t", store=store)
    async with open_store(store_url) as there:
        await there.claim("t")

        async def deed() -> None:
            await there.close()
            await cancel(store, "t")

        with pytest.raises(ThreadWaiting, match="no open run"):
            await replying(store, kind, deed)
    assert (await store.verify()).ok
