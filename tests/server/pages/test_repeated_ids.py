"""Pages of threads whose model numbers its calls from 0 in each response."""

import asyncio
import re
from typing import Any

import pytest

from lockstitch.agents import App
from lockstitch.agents.agent import Agent
from lockstitch.agents.providers.scripted import Scripted
from lockstitch.agents.team import Team
from lockstitch.agents.tools.function import tool
from lockstitch.engine.ports.tool import ToolContext
from lockstitch.engine.replies import approve, submit_results
from lockstitch.server import Settings
from lockstitch.server.pages.common.open_calls import load_open_calls
from lockstitch.server.pages.common.rows import StatusLine
from lockstitch.server.pages.run.panel import Panel, panel_of
from lockstitch.server.pages.run.waterfall import waterfall
from lockstitch.store import Store
from tests.engine.agents import add, confirm, log, pay, scripted
from tests.engine.books import delegate
from tests.engine.test_repeated_ids import numbered
from tests.server.pages.test_waterfall import read
from tests.server.serving import caller, serving

pytestmark = pytest.mark.anyio

PAGE = {"Accept": "text/html"}


def hidden(page: str, name: str) -> str:
    """Return the value of a hidden field of a page."""
    match = re.search(rf'<input type="hidden" name="{re.escape(name)}" value="([^"]*)"', page)
    assert match is not None, name
    return match[1]


async def test_each_question_has_its_own_element(store: Store):
    """The page keeps a form while its request has the same id. The next call must not use the old form."""
    agent = scripted(numbered(("pay", {"amount": 1})), numbered(("pay", {"amount": 2})), "Done.", tools=[pay])
    await agent.run("Go", store=store, thread="t")
    first = await load_open_calls(store, await store.thread("t"))
    await approve(store, "t", "call_0")
    await agent.resume("t", store=store)
    second = await load_open_calls(store, await store.thread("t"))
    assert first.mark != second.mark
    assert [ask.calls[0].input for ask in (*first.requests, *second.requests)] == [{"amount": 1}, {"amount": 2}]
    assert second.requests[0].calls[0].key == (await store.thread("t")).waiting_for[0]["key"]


@pytest.mark.parametrize("act", ["approve", "results"])
async def test_form_of_an_earlier_call_does_not_answer_a_later_one(store: Store, act: str):
    function = pay if act == "approve" else confirm
    call = numbered((function.name, {"amount": 1} if act == "approve" else {}))
    agent = scripted(call, call, "Done.", tools=[function])
    await agent.run("Go", store=store, thread="t")
    async with serving(store, App([agent]), Settings(work=False)) as url, caller(url) as http:
        page = (await http.get("/threads/t", headers=PAGE)).text
        field = "call" if act == "approve" else "call.0"
        form = {field: hidden(page, field), "csrf": http.cookies["lockstitch_csrf"], "raw.0": "yes"}
        headers = {"Origin": url, **PAGE}
        assert (await http.post(f"/threads/t/{act}", data=form, headers=headers)).status_code in (200, 303)
        await agent.resume("t", store=store)
        late = await http.post(f"/threads/t/{act}", data=form, headers=headers)
        # The same approval again succeeds and changes nothing. Results of an answered call are rejected.
        assert late.status_code in ((200, 303) if act == "approve" else (404, 422)), late.text
    assert (await store.thread("t")).status == "waiting"
    assert len(await log(store, "tool_call")) == 1
    assert len(await log(store, "permission")) == (act == "approve")


async def test_list_names_the_running_tool(store: Store):
    """The running call has the id of one that has a result."""
    lines: list[Any] = []

    @tool
    async def work(ctx: ToolContext) -> str:
        """Work."""
        if ctx.step == 2:
            head = await store.thread("t")
            lines.append(await (await StatusLine.of(store, [head])).line(head, None))
        return "ok"

    await scripted(numbered("work"), numbered("work"), "Done.", tools=[work]).run("Go", store=store, thread="t")
    assert [kind for kind, _ in lines[0]] == ["", "code", ""]
    assert lines[0][1] == ("code", "work")


async def test_list_shows_the_arguments_of_the_waiting_call(store: Store):
    """The leader's own call has the same id as the member's."""
    crew = waiting_team()
    await crew.run("Go", store=store, thread="t")
    head = await store.thread("t")
    assert "17" in "".join(text for _, text in await (await StatusLine.of(store, [head])).line(head, None))


def waiting_team() -> Team:
    """Create a team. The first member waits for an approval of its call_0, the second has ended."""
    member = Agent("a", model=Scripted([numbered(("pay", {"amount": 17})), "Ok"]), tools=[pay], title=False)
    asks = numbered(tuple(delegate("a", "Pay").values()))
    return Team("crew", model=Scripted([asks, "Done."]), members=[member], title=False)


async def test_waterfall_marks_only_the_waiting_call(store: Store):
    crew = waiting_team()
    result = await crew.run("Go", store=store, thread="t")
    run = await store.run(result.run_id)
    drawing = waterfall(await store.trace(run.id), await store.thread("t"), store.clock.now())
    rows = read(drawing.packed())
    names = [rows["names"][name] for name in rows["name"]]
    looks = [rows["looks"][look] for look in rows["look"]]
    waits = [name for name, look in zip(names, looks, strict=True) if look == "wait" and name != "pause"]
    assert waits == ["pay"], "and not the leader's open call of delegate"


def facts(panel: Panel) -> dict[str, Any]:
    return dict(next(tab for tab in panel.tabs if tab.id == "call").parts[0]["facts"])


async def test_panel_shows_input_key_and_attempts_of_its_own_call(store: Store):
    keys: list[str] = []

    @tool(effect="once")
    async def charge(amount: int, ctx: ToolContext) -> str:
        """Charge."""
        keys.append(ctx.key)
        return f"charged {amount}"

    agent = scripted(numbered(("charge", {"amount": 1})), numbered(("charge", {"amount": 2})), "Done.", tools=[charge])
    result = await agent.run("Go", store=store, thread="t")
    run = await store.run(result.run_id)
    for number, stitch in enumerate(await log(store, "tool_call")):
        panel = await panel_of(store, run, str(stitch.position))
        panel_facts = facts(panel)
        assert (panel_facts["Call"], panel_facts["Idempotency key"], panel_facts["Attempts"]) == (
            "call_0",
            keys[number],
            1,
        )
        assert panel.tabs[0].parts[0]["value"] == {"amount": number + 1}


async def test_tree_shows_arguments_and_errors_of_its_own_call(store: Store):
    @tool
    async def work(n: int) -> str:
        """Work."""
        if n == 2:
            raise ValueError("broken")
        return f"did {n}"

    agent = scripted(numbered(("work", {"n": 1})), numbered(("work", {"n": 2}), ("add", {"a": 1, "b": 2})), "Done.",
                     tools=[work, add])  # fmt: skip
    result = await agent.run("Go", store=store, thread="t")
    root = (await store.trace(result.run_id)).root
    tools = [node for node, _ in root.walk() if node.kind == "tool"]
    assert [(node.args, node.text, [child.type for child in node.children]) for node in tools] == [
        ('{"n":1}', "did 1", []),
        ('{"n":2}', "ValueError: broken", ["tool_error"]),
        ('{"a":1,"b":2}', "3", []),
    ]


async def test_results_by_page_and_by_key_are_the_same(store: Store):
    agent = scripted(numbered("confirm"), "Done.", tools=[confirm])
    await agent.run("Go", store=store, thread="t")
    asks = (await load_open_calls(store, await store.thread("t"))).requests
    await submit_results(store, "t", [{"tool_use_id": asks[0].calls[0].key, "content": "yes"}])
    done = await asyncio.wait_for(agent.resume("t", store=store), 30)
    assert done is not None
    assert done.status == "completed"
