"""Pages of a team: authors, requests of members to a person, and members below their calls."""

import pytest
from playwright.async_api import Page, expect

from lockstitch import Agent, App, Team, tool
from lockstitch.store import Store
from lockstitch.testing import Scripted
from tests.engine.books import delegate
from tests.server.serving import serving

pytestmark = pytest.mark.anyio


@tool(effect="once", approval=True)
async def pay(amount: int) -> str:
    """Pay."""
    return f"Paid {amount}."


def shop() -> Team:
    plain = {"title": False}
    call = {"calls": [{"name": "pay", "id": "p1", "input": {"amount": 5}}]}
    payer = Agent("Payer", model=Scripted([call, "It is paid."]), tools=[pay], **plain)  # type: ignore[arg-type]
    looker = Agent("Looker", model=Scripted(["It looks fine."]), **plain)  # type: ignore[arg-type]
    leader = [{"text": "I ask both.", "calls": [delegate("Payer", "Pay 5."), delegate("Looker", "Look.")]}, "All done."]
    return Team("Shop", model=Scripted(leader), members=[payer, looker], mode="parallel", **plain)


async def test_turn_continues_after_a_person_approves_the_call_of_a_member(store: Store, page: Page) -> None:
    crew = shop()
    result = await crew.run("Buy it", store=store, thread="shop", user_id="ada")
    worker = next(run for run in await store.runs("shop") if run.agent == "Payer")
    async with serving(store, App([crew])) as url:
        await page.goto(f"{url}/threads/shop")
        await expect(page.locator("[data-live-word]")).to_have_text("live")
        await expect(page.locator(".ask h2")).to_have_text(["Approve pay?"])
        seam = page.locator("#seam")
        await expect(seam.locator("li[data-type=input] .by b")).to_have_text(["ada", "Shop", "Shop"])
        await expect(seam.locator("li.member[data-type=llm_call] .by b")).to_have_text(["Payer", "Looker"])
        await page.get_by_role("button", name="Approve").click()
        await expect(seam).to_contain_text("All done.")
        await expect(page.locator(".ask h2")).to_have_count(0)

        await page.goto(f"{url}/run/{result.run_id}")
        rows = page.locator("[role=row][aria-level]")
        below = rows.filter(has_text="Payer")
        await expect(below).to_have_count(1)
        delegation = rows.filter(has_text="delegate").first
        assert (
            int(await below.get_attribute("aria-level") or 0)
            == int(await delegation.get_attribute("aria-level") or 0) + 1
        )
        await page.goto(f"{url}/run/{worker.id}")
        await expect(rows.filter(has_text="pay").first).to_be_visible()
