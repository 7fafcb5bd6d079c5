"""The replay of a run from its page: the form, the thread of the replay, and the comparison with the recorded run."""

import re
from typing import Any

import pytest
from playwright.async_api import Page, expect

from lockstitch import App
from lockstitch.store import Store
from tests.agents.replay_victim import REPLIES, SOURCE, Shop
from tests.server.looking import look
from tests.server.serving import serving

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["sqlite"])
def backend(request: pytest.FixtureRequest) -> str:
    return request.param


def careful(request: Any) -> Any:
    """Reply as the recorded model, but charge 6 if the prompt says so."""
    if "careful" in str(request.system):
        return {"calls": [{"name": "charge", "input": {"amount": 6}}]}
    return "Charged 5 two times." if request.step == 3 else REPLIES[request.step - 1]


async def test_replays_run_with_another_prompt_from_its_page(store: Store, page: Page) -> None:
    prompt = "Charge cards.\nAsk no questions."
    await Shop().agent(instructions=prompt).run("Charge 5 twice.", store=store, thread=SOURCE)
    run = (await store.runs(SOURCE))[0]
    shop = Shop(reply=careful)
    async with serving(store, App([shop.agent(instructions=prompt)])) as url:
        await page.goto(f"{url}/run/{run.id}")
        await page.get_by_text("Replay", exact=True).click()
        # The form has the recorded prompt. Unchanged, the replay has the version of the code.
        await expect(page.get_by_label("Prompt")).to_have_value(prompt)
        await look(page, "replay-form")
        await page.get_by_role("button", name="Replay run").click()
        await expect(page.locator("#state")).to_contain_text("completed")
        await look(page, "replay-thread")
        await page.get_by_role("link", name="Compare with the recorded run").click()
        comparison = page.get_by_role("region", name="Comparison")
        await expect(comparison).to_contain_text("first difference: scripted: different answer")
        await look(page, "replay-compared")
        await comparison.get_by_role("link", name=re.compile("^Side by")).click()
        await expect(page.get_by_text("Charged twice.").first).to_be_visible()
        await expect(page.get_by_text("Charged 5 two times.").first).to_be_visible()
        await look(page, "replay-difference")

        await page.goto(f"{url}/run/{run.id}")
        await page.get_by_text("Replay", exact=True).click()
        await page.get_by_label("Prompt").fill("Be careful.")
        await page.get_by_role("button", name="Replay run").click()
        await expect(page.locator("#state")).to_contain_text("failed")
        await page.get_by_role("link", name="Compare with the recorded run").click()
        await expect(page.locator(".note.failed.after-head")).to_contain_text("The replay stopped at the call charge")
        await expect(comparison).to_contain_text("first difference")
        await look(page, "replay-diverged")

        # A replay cannot be retried.
        await page.goto(f"{url}/?kind=replay")
        await expect(page.locator("tr[data-row]")).to_have_count(2)
        await expect(page.locator("tr[data-row] .btn")).to_have_count(0)
    replays = await store.threads(kind="replay")
    assert sorted(head.version or 0 for head in replays) == [1, 2]
    assert not shop.ran, "a replay runs no tool"
