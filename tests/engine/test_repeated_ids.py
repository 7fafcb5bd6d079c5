"""Models that number their calls from 0 in each response, as Ollama, vLLM and LM Studio do."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from typing import Any
from uuid import UUID

import pytest

from lockstitch.agents.agent import Agent
from lockstitch.agents.providers.scripted import Scripted
from lockstitch.agents.team import Team
from lockstitch.agents.tools.function import tool
from lockstitch.agents.tools.threads import ask_for_input
from lockstitch.engine.cancel import cancel
from lockstitch.engine.ports.provider import ModelRequest
from lockstitch.engine.ports.tool import ToolContext
from lockstitch.engine.replies import answer, approve, deny, settle, submit_results
from lockstitch.errors import Conflict, Refused
from lockstitch.model import Stitch, call_key, text_of
from lockstitch.store import Store, open_store
from tests.engine.agents import confirm, log, pay, scripted
from tests.engine.books import delegate
from tests.engine.test_late_replies import ActsBeforeAppend

pytestmark = pytest.mark.anyio


def numbered(*calls: Any) -> dict[str, Any]:
    """Return a reply with these calls, numbered from call_0. Each is a name, or a name and its input."""
    pairs = [(call, {}) if isinstance(call, str) else call for call in calls]
    return {
        "calls": [{"name": name, "id": f"call_{at}", "input": arguments} for at, (name, arguments) in enumerate(pairs)]
    }


class Backend:
    """A service that performs each idempotency key once."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self.calls: list[tuple[str, str]] = []

    @property
    def put(self) -> Any:
        @tool(effect="keyed")
        async def put(item: str, ctx: ToolContext) -> str:
            """Put something away."""
            if ctx.key not in {key for _, key in self.calls}:
                self.done.append(item)
            self.calls.append((ctx.call_id, ctx.key))
            return "ok"

        return put


async def test_executes_keyed_calls_of_all_responses_and_runs(store: Store):
    service = Backend()
    turns = [
        [numbered(("put", {"item": "a"}), ("put", {"item": "b"})), numbered(("put", {"item": "c"})), "Done."],
        [numbered(("put", {"item": "d"}), ("put", {"item": "e"})), "Done."],
    ]
    agent = scripted(turns=turns, tools=[service.put])
    for text in ("One", "Two"):
        await agent.run(text, store=store, thread="t")
    assert sorted(service.done) == ["a", "b", "c", "d", "e"]
    assert sorted(call for call, _ in service.calls) == ["call_0"] * 3 + ["call_1"] * 2, "the ids are the model's"
    assert all(key.isascii() and key.isprintable() and len(key) <= 64 for _, key in service.calls)


@pytest.mark.parametrize("ids", [["call_0", "call_0", "call_0"], ["call_1_1", "call_1_1", "call_1_2"]])
async def test_distinguishes_calls_with_same_id_in_one_response(store: Store, ids: list[str]):
    service = Backend()
    reply = {"calls": [{"name": "put", "id": id, "input": {"item": str(at)}} for at, id in enumerate(ids)]}
    await scripted(reply, "Done.", tools=[service.put]).run("Go", store=store, thread="t")
    assert sorted(service.done) == ["0", "1", "2"]
    question_message, answer_message = (await store.context("t"))[1:3]
    block_ids = [block["id"] for block in question_message["content"]]
    assert len(set(block_ids)) == 3
    assert [block["tool_use_id"] for block in answer_message["content"]] == block_ids


async def test_calls_of_leader_and_members_have_different_keys(store: Store):
    service = Backend()
    settings: dict[str, Any] = {"tools": [service.put], "title": False}
    members = [
        Agent(
            name,
            model=Scripted([numbered(("put", {"item": name})), numbered(("put", {"item": name * 2})), "Ok"]),
            **settings,
        )
        for name in ("a", "b")
    ]
    asks = numbered(*(tuple(delegate(name, "Do it").values()) for name in ("a", "b")))
    script = [numbered(("put", {"item": "c"})), asks, "Done."]
    crew = Team("crew", model=Scripted(script), members=members, mode="parallel", **settings)
    await crew.run("Go", store=store, thread="t")
    assert sorted(service.done) == ["a", "aa", "b", "bb", "c"]


async def test_key_is_unchanged_when_interrupted_call_runs_again(store: Store, store_url: str):
    keys: list[str] = []

    @tool(effect="keyed")
    async def put(ctx: ToolContext) -> str:
        """Put."""
        keys.append(ctx.key)
        if len(keys) == 2:
            first.cancel()
            await asyncio.sleep(10)
        return "ok"

    script = (numbered("put"), numbered("put"), "Done.")
    first = asyncio.create_task(scripted(*script, tools=[put]).run("Go", store=store, thread="t"))
    with pytest.raises(asyncio.CancelledError):
        await first
    async with open_store(store_url) as other_store:
        assert (await scripted(*script, tools=[put]).resume("t", store=other_store)) is not None
    assert keys[0] != keys[1] == keys[2]
    assert keys[:2] == [call_key(stitch.id, 0) for stitch in await log(store, "llm_call") if stitch.calls]


async def test_key_is_unchanged_in_copy_of_store(store: Store, tmp_path: Any):
    """A copy continues the same call, so the service gets a key that it may already know."""
    keys: list[str] = []

    @tool(effect="keyed")
    async def put(ctx: ToolContext) -> str:
        """Put."""
        keys.append(ctx.key)
        if len(keys) == 1:
            first.cancel()
            await asyncio.sleep(10)
        return "ok"

    agent = scripted(numbered("put"), "Done.", tools=[put])
    first = asyncio.create_task(agent.run("Go", store=store, thread="t"))
    with pytest.raises(asyncio.CancelledError):
        await first
    async with open_store(f"sqlite:///{tmp_path}/copy.db") as copy:
        await store.copy_to(copy)
        await agent.resume("t", store=copy)
    assert len(keys) == 2
    assert keys[0] == keys[1]


async def test_retry_and_fork_make_new_calls_with_new_keys(store: Store):
    keys: list[str] = []

    @tool(effect="keyed")
    async def put(ctx: ToolContext) -> str:
        """Put."""
        keys.append(ctx.key)
        return "ok"

    replies: list[Any] = [numbered("put"), {"fail": "request"}]
    agent = scripted(turns=[replies, [numbered("put"), "Done."]], tools=[put])
    failed = await agent.run("Go", store=store, thread="t")
    assert failed.status == "failed"
    await agent.retry("t", store=store)
    fork = await store.fork("t", key="fork")
    await agent.run("Again", store=store, thread=fork)
    assert len(keys) == 3
    assert len(set(keys)) == 3


async def test_approval_does_not_apply_to_later_call_with_same_id(store: Store):
    agent = scripted(numbered(("pay", {"amount": 1})), numbered(("pay", {"amount": 2})), "Done.", tools=[pay])
    first = (await agent.run("Go", store=store, thread="t")).waiting_for[0]
    await approve(store, "t", "call_0")
    waits = await agent.resume("t", store=store)
    assert waits is not None
    assert waits.stop_reason == "awaiting_approval"
    second = waits.waiting_for[0]
    assert (first["id"], second["id"]) == ("call_0", "call_0")
    assert first["key"] != second["key"]
    # The same reply to the first call changes nothing. A different one is refused.
    await approve(store, "t", first["key"])
    with pytest.raises(Conflict):
        await deny(store, "t", first["key"])
    assert (await store.thread("t")).waiting_for[0]["key"] == second["key"]
    assert [text_of(stitch.message) for stitch in await log(store, "tool_call")] == ["paid 1"]
    await deny(store, "t", second["key"])
    await agent.resume("t", store=store)
    assert [stitch.status for stitch in await log(store, "tool_call")] == ["ok", "denied"]


Late = tuple[Any, dict[str, Any], Callable[[Store], Awaitable[None]], Callable[[Store], Awaitable[None]]]

LATE: dict[str, Late] = {
    "approval": (pay, {"amount": 1}, lambda s: approve(s, "t", "call_0"), lambda s: approve(s, "t", "call_0")),
    "denial": (pay, {"amount": 1}, lambda s: deny(s, "t", "call_0"), lambda s: approve(s, "t", "call_0")),
    "answer": (ask_for_input, {"question": "?"}, lambda s: answer(s, "t", "old"), lambda s: answer(s, "t", "new")),
    "results": (
        confirm,
        {},
        lambda s: submit_results(s, "t", [{"tool_use_id": "call_0", "content": "old"}]),
        lambda s: submit_results(s, "t", [{"tool_use_id": "call_0", "content": "new"}]),
    ),
}


async def _late(store: Store, other_store: Store, kind: str, *, held: bool) -> None:
    """Check a reply while the first call waits, and deliver it when the second call with the same id waits."""
    function, arguments, late, reply = LATE[kind]
    call = numbered((function.name, arguments))
    agent = scripted(call, call, "Done.", tools=[function])
    await agent.run("Go", store=store, thread="t")
    await other_store.claim("t")

    async def moved_on() -> None:
        await other_store.close()
        await reply(store)
        waits = await agent.resume("t", store=store)
        assert waits is not None
        assert waits.status == "waiting"
        if held:
            await store.claim("t")

    backend: Any = ActsBeforeAppend(store._backend, moved_on)
    # The first call takes one reply. The same reply again succeeds and changes nothing, a different one is a conflict.
    with nullcontext() if kind == "approval" else pytest.raises(Conflict):
        await late(Store(backend, clock=store.clock, project=store.project))
    if held:
        await store.append(await store.thread("t"), fields={"status": "pending"})
    second_result = await agent.resume("t", store=store)
    assert second_result is None or second_result.status == "waiting", "the second call is still open"
    assert len(await log(store, "tool_call")) == 1, "and has no result"
    await reply(store)
    final_result = await agent.resume("t", store=store)
    assert final_result is not None
    assert (final_result.status, final_result.output_text) == ("completed", "Done.")
    results = await log(store, "tool_call")
    assert [stitch.reply_to for stitch in results] == [
        stitch.position for stitch in await log(store, "llm_call") if stitch.calls
    ]
    assert not (await store.verify()).problems


@pytest.mark.parametrize("held", [False, True])
@pytest.mark.parametrize("kind", LATE)
async def test_late_reply_does_not_reach_later_call_with_same_id(store: Store, store_url: str, kind: str, held: bool):
    async with open_store(store_url) as other_store:
        await _late(store, other_store, kind, held=held)


async def test_refuses_results_for_key_of_earlier_call(store: Store):
    agent = scripted(numbered("confirm"), numbered("confirm"), "Done.", tools=[confirm])
    first = (await agent.run("Go", store=store, thread="t")).waiting_for[0]["key"]
    await submit_results(store, "t", [{"tool_use_id": first, "content": "yes"}])
    waits = await agent.resume("t", store=store)
    assert waits is not None
    with pytest.raises(Refused, match="exactly these calls"):
        await submit_results(store, "t", [{"tool_use_id": first, "content": "yes"}])
    await submit_results(store, "t", [{"tool_use_id": waits.waiting_for[0]["key"], "content": "no"}])
    final_result = await agent.resume("t", store=store)
    assert final_result is not None
    assert final_result.status == "completed"
    assert [result["content"] for result in _results(await log(store, "tool_call"))] == ["yes", "no"]


async def test_answer_by_key_reaches_only_its_question(store: Store):
    asks = numbered(("ask_for_input", {"question": "?"}))
    agent = scripted(asks, asks, "Done.", tools=[ask_for_input])
    first = (await agent.run("Go", store=store, thread="t")).waiting_for[0]["key"]
    await answer(store, "t", "one", call_id=first)
    await agent.resume("t", store=store)
    await answer(store, "t", "one", call_id=first)
    with pytest.raises(Conflict):
        await answer(store, "t", "other", call_id=first)
    await answer(store, "t", "two")
    await agent.resume("t", store=store)
    assert [result["content"] for result in _results(await log(store, "tool_call"))] == ["one", "two"]


async def test_reply_by_key_reaches_member_that_asked(store: Store):
    """Two members wait at once for an approval of their call_0."""
    paid: list[int] = []

    @tool(approval=True, name="pay")
    async def pay_(amount: int) -> str:
        """Pay."""
        paid.append(amount)
        return f"paid {amount}"

    members = [
        Agent(name, model=Scripted([numbered(("pay", {"amount": amount})), "Ok"]), tools=[pay_], title=False)
        for name, amount in (("a", 1), ("b", 2))
    ]
    asks = numbered(*(tuple(delegate(name, "Pay").values()) for name in ("a", "b")))
    crew = Team("crew", model=Scripted([asks, "Done."]), members=members, mode="parallel", title=False)
    result = await crew.run("Go", store=store, thread="t")
    runs = {run.id: run.agent for run in await store.runs("t")}
    keys = {runs[UUID(wait["run"])]: wait["key"] for wait in result.waiting_for}
    assert {wait["id"] for wait in result.waiting_for} == {"call_0"}
    await deny(store, "t", keys["a"])
    await approve(store, "t", keys["b"])
    await crew.resume("t", store=store)
    assert paid == [2]


async def test_team_announces_next_wait_of_member(store: Store):
    """The member waits for its call_0 again, which is another call: the leader must not repeat its old pause."""
    script = [numbered(("pay", {"amount": 1})), numbered(("pay", {"amount": 2})), "Ok"]
    member = Agent("a", model=Scripted(script), tools=[pay], title=False)
    asks = numbered(tuple(delegate("a", "Pay").values()))
    crew = Team("crew", model=Scripted([asks, "Done."]), members=[member], title=False)
    await crew.run("Go", store=store, thread="t")
    (first,) = (await store.thread("t")).waiting_for
    await approve(store, "t", first["key"])
    await crew.resume("t", store=store)
    (second,) = (await store.thread("t")).waiting_for
    responses = [stitch for stitch in await log(store, "llm_call") if stitch.lane is not None and stitch.calls]
    assert [first["key"], second["key"]] == [call_key(response.id, 0) for response in responses]
    leader = [stitch for stitch in await log(store, "run_paused") if stitch.lane is None]
    assert [stitch.data["waiting_for"][0]["key"] for stitch in leader] == [first["key"], second["key"]]
    await approve(store, "t", second["key"])
    final_result = await crew.resume("t", store=store)
    assert final_result is not None
    assert final_result.status == "completed"


async def test_settles_interrupted_call_only(store: Store):
    @tool(effect="once", on_doubt="ask")
    async def charge(ctx: ToolContext) -> str:
        """Charge."""
        if ctx.step == 2:
            first.cancel()
            await asyncio.sleep(10)
        return "charged"

    agent = scripted(numbered("charge"), numbered("charge"), "Done.", tools=[charge])
    first = asyncio.create_task(agent.run("Go", store=store, thread="t"))
    with pytest.raises(asyncio.CancelledError):
        await first
    waits = await agent.resume("t", store=store)
    assert waits is not None
    await settle(store, "t", waits.waiting_for[0]["key"], done="by hand")
    await agent.resume("t", store=store)
    results = await log(store, "tool_call")
    assert [(stitch.status, stitch.message["content"]) for stitch in results] == [
        ("ok", "charged"),
        ("settled", "by hand"),
    ]  # type: ignore[index]


async def test_stores_two_files_for_two_calls_with_same_id(store: Store, tmp_path: Any):
    @tool
    def draw(ctx: ToolContext) -> str:
        """Draw."""
        ctx.save_file("a.txt", f"step {ctx.step}".encode())
        return "drawn"

    agent = scripted(numbered("draw"), numbered("draw"), "Done.", tools=[draw], files=f"file:{tmp_path}")
    result = await agent.run("Go", store=store, thread="t")
    assert [generated_file["step"] for generated_file in result.generated_files] == [1, 2]
    assert len({generated_file["file_id"] for generated_file in result.generated_files}) == 2


async def test_creates_two_children_for_two_calls_with_same_id(store: Store):
    @tool
    def build(ctx: ToolContext) -> str:
        """Have something built."""
        return str(ctx.spawn(f"step {ctx.step}", wait=True))

    turns = [[numbered("build"), numbered("build"), "Done."], ["Built."]]
    agent = scripted(turns=turns, tools=[build])
    parent = await agent.start(store=store, goal="g", key="t")
    await agent.resume("t", store=store)
    children = await store.children(parent)
    assert {child.goal for child in children if child.parent_id == parent.id} >= {"step 1"}
    assert len({child.branching_stitch_id for child in children}) == len(children)
    root = (await store.trace((await store.runs("t"))[0].id)).root
    tools = [node for node, _ in root.walk() if node.kind == "tool" and node.thread_id == parent.id]
    assert [[child.kind for child in node.children] for node in tools] == [["thread"]] * len(children)


def _results(stitches: list[Stitch]) -> list[Any]:
    return [stitch.message for stitch in stitches]


class Crew:
    """A team with two members. Each makes one payment, with the id call_0, and works until it is cancelled."""

    def __init__(self) -> None:
        self.paid: list[str] = []
        self.told: list[list[Any]] = []
        self.started = asyncio.Event()

        @tool(effect="once")
        async def charge(who: str) -> str:
            """Charge."""
            self.paid.append(who)
            if len(self.paid) == 2:
                self.started.set()
            await asyncio.Event().wait()
            return "never"

        members = [
            Agent(name, model=Scripted([numbered(("charge", {"who": name})), "Ok"]), tools=[charge], title=False)
            for name in ("a", "b")
        ]
        asks = numbered(*(tuple(delegate(name, "Pay").values()) for name in ("a", "b")))

        def model(request: ModelRequest) -> Any:
            self.told.append(list(request.messages))
            return asks if len(self.told) == 1 else "Done."

        self.team = Team("crew", model=Scripted(model), members=members, mode="parallel", title=False)

    async def cancelled(self, store: Store) -> None:
        task = asyncio.create_task(self.team.run("Go", store=store, thread="t"))
        await asyncio.wait_for(self.started.wait(), 60)
        await cancel(store, "t")
        assert (await asyncio.wait_for(task, 60)).status == "cancelled"


async def test_settles_calls_of_two_members_one_after_the_other(store: Store):
    crew = Crew()
    await crew.cancelled(store)
    waits = await crew.team.retry("t", store=store)
    assert waits is not None
    assert [(wait["id"], wait["agent"]) for wait in waits.waiting_for] == [("call_0", "a"), ("call_0", "b")]
    assert [call["agent"] for call in waits.in_doubt] == ["a", "b"]
    first, second = (wait["key"] for wait in waits.waiting_for)
    await settle(store, "t", first, done="charged 5")
    await settle(store, "t", second, redo=True)
    final_result = await crew.team.resume("t", store=store)
    assert final_result is not None
    assert (final_result.status, sorted(crew.paid)) == ("completed", ["a", "b"])
    assert [text_of(item) for item in crew.told[-1][-2:]] == [
        "[call_settled charge call_0 of a] It took effect. Its result: charged 5",
        "[call_settled charge call_0 of b] It did not take effect. You may make this call again.",
    ]


async def test_refuses_reply_by_id_of_two_waiting_calls(store: Store):
    crew = Crew()
    await crew.cancelled(store)
    waits = await crew.team.retry("t", store=store)
    assert waits is not None
    first, second = (wait["key"] for wait in waits.waiting_for)
    with pytest.raises(Refused, match=f"{first}.*{second}"):
        await settle(store, "t", "call_0", redo=True)
    assert await log(store, "permission") == []
    await settle(store, "t", first, redo=True)
    await settle(store, "t", "call_0", done="charged 5")
    assert [stitch.status for stitch in await log(store, "permission")] == ["redo", "settled"]


async def test_next_message_to_team_includes_calls_in_doubt(store: Store):
    crew = Crew()
    await crew.cancelled(store)
    await crew.team.run("What now?", store=store, thread="t")
    answers = str(crew.told[-1][2]["content"])
    assert answers.count("whether they took effect is unknown: charge (call_0)") == 2
