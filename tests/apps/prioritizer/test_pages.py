"""The pages of plans in a browser, without JavaScript, and on small screens."""

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest
from playwright.async_api import Browser, Page, expect

from lockstitch.agents import App
from lockstitch.agents.providers.scripted import Scripted
from lockstitch.apps.prioritizer import Prioritizer, repository
from lockstitch.apps.prioritizer.records import Document, Outcome, Session
from lockstitch.backend import Find
from lockstitch.server import Settings
from lockstitch.store import Store
from tests.apps.prioritizer.planners import STEPS, TEN, Gated, answer
from tests.server.looking import PHONE, look, problems, sticks_out
from tests.server.serving import caller, serving

pytestmark = pytest.mark.anyio
on_sqlite = pytest.mark.parametrize("backend", ["sqlite"])


async def plan(store: Store, text: str, outcome: str = "Open the shop", **options: Any) -> tuple[App, str]:
    """A planned list of tasks and its app."""
    prioritizer = Prioritizer(**options)
    await prioritizer.setup(store)
    await repository.add_file(store, "ada", text, "tasks.md")
    stored_outcome = await repository.add_outcome(store, "ada", outcome)
    session = await prioritizer.prioritize(store, "ada", stored_outcome.id)
    assert session.status == "completed", session.metadata
    return App(plugins=[prioritizer]), f"/plans/{session.thread_id}"


@asynccontextmanager
async def asking(store: Store, app: App, settings: Settings | None = None) -> AsyncIterator[httpx2.AsyncClient]:
    """A client with the headers and cookies of a browser, without JavaScript."""
    html = {"Accept": "text/html"}
    async with (
        serving(store, app, settings) as url,
        caller(url, headers=html, follow_redirects=True) as http,
    ):
        yield http


async def send(http: httpx2.AsyncClient, path: str, data: dict[str, str], **more: Any) -> httpx2.Response:
    """Post a form with its CSRF token."""
    html = (await http.get("/plans/new")).text
    (proof,) = set(re.findall(r'name="csrf" value="([^"]+)"', html))
    return await http.post(path, data={"csrf": proof, **data}, **more)


@pytest.mark.req("S1-089")
async def test_creates_plan_without_javascript(store: Store) -> None:
    app = App(plugins=[Prioritizer(model=Scripted(STEPS))])
    async with asking(store, app) as http:
        assert "No plans yet" in (await http.get("/plans")).text
        for wrong, message in (
            ({"outcome": " ", "tasks": TEN, "user": "ada"}, "Enter an outcome"),
            ({"outcome": "x", "tasks": " ", "user": "ada"}, "Enter tasks"),
            ({"outcome": "x", "tasks": TEN, "user": " "}, "Enter a user name"),
            ({"outcome": "x", "tasks": "nothing to do", "user": "ada"}, "no tasks found"),
            ({"outcome": "x", "tasks": "- [ ] A1: a (after: A1)", "user": "ada"}, "cannot wait for itself"),
            ({"outcome": "x" * 2_001, "tasks": TEN, "user": "ada"}, "Enter an outcome"),
        ):
            refused = await send(http, "/plans", wrong)
            assert refused.status_code == 422, message
            assert message in refused.text
            assert 'href="/workers"' in refused.text, "the page has navigation"
            assert wrong["tasks"][:20] in refused.text, "the form keeps its values"
        odd = await send(http, "/plans", {"outcome": "x", "user": "ada"}, files={"file": ("a.csv", b"\xff\xfe\x00")})
        assert odd.status_code == 422
        for kind in (Session, Document, Outcome):
            assert await store._backend.count(Find(kind)) == 0, "nothing was changed"
        assert (await http.post("/plans", data={"outcome": "x", "tasks": TEN, "user": "ada"})).status_code == 403

        response = await send(http, "/plans", {"outcome": "Open the checkout", "tasks": TEN, "user": "ada"})
        path = response.url.path
        async with http.stream("GET", f"/api/threads/{path.removeprefix('/plans/')}/events") as events:
            async for line in events.aiter_lines():
                if line == "event: end":
                    break
        html = (await http.get(path)).text
        for message in (
            *("Open the checkout", "10 tasks from 3 documents", "completed", "Start with the payment provider."),
            *("T7 after T3 (0.41) was removed", "get-document-context failed", "Which tasks speak of money?"),
            "2 of at most 10 steps",
        ):
            assert message in html, message
        chosen = (await http.get(f"{path}?task=T3")).text
        assert "T3 Receipts and invoices" in chosen
        assert "Invoices must name the seller&#39;s law" in chosen
        assert "Legal review, line 11" in chosen
        exported = (await http.get(f"{path}/plan.md")).text
        assert "- [ ] **T3** Receipts and invoices (5 h; confidence 0.75; after T2, T7)" in exported
        listed = (await http.get("/plans")).text
        assert "Open the checkout" in listed
        for unknown in (f"{path}/task?task=T99", "/plans/none", f"/plans?after={path[7:-2]}ff"):
            assert (await http.get(unknown)).status_code == 404, unknown
        elsewhere = {"Lockstitch-Project": "other"}
        assert "Open the checkout" not in (await http.get("/plans", headers=elsewhere)).text
        for hidden in (path, f"{path}/task?task=T3", f"{path}/trace", f"{path}/plan.md"):
            assert (await http.get(hidden, headers=elsewhere)).status_code == 404, hidden


@on_sqlite
async def test_redirects_to_the_running_plan(store: Store) -> None:
    """Two tabs send the form. No worker executes the session, so it is still running for the second tab."""
    application = Prioritizer()
    await application.setup(store)
    first = await application.start_from_list(store, "ada", "Open the checkout", TEN)
    await application.run(store, first)
    async with asking(store, App(plugins=[application]), Settings(work=False)) as http:
        response = await send(http, f"/plans/{first}/again", {})
        assert response.url.path != f"/plans/{first}"
        second_response = await send(http, f"{response.url.path}/again", {})
        assert (second_response.url.path, second_response.status_code) == (response.url.path, 200)
        assert "This plan is still running" in second_response.text


@on_sqlite
@pytest.mark.req("S1-093")
async def test_page_follows_a_running_plan(store: Store, page: Page) -> None:
    model = Gated()
    async with serving(store, App(plugins=[Prioritizer(model=model)])) as url:
        await page.goto(url)
        await page.keyboard.press("g")
        await page.keyboard.press("p")
        await page.get_by_role("link", name="Create the first plan").click()
        await look(page, "plan-new")
        await page.get_by_label("Outcome").fill("Open the checkout")
        await page.get_by_label("Tasks").fill(TEN)
        await page.get_by_role("button", name="Plan", exact=True).click()
        await expect(page.get_by_text("Working on the first step.")).to_be_visible()
        steps = page.locator("#steps > li:not(.live-text)")
        model.gate.release()
        await expect(steps).to_have_count(1)
        await expect(steps.first).to_contain_text("query “payment”")
        await look(page, "plan-running", ignore=("scrollable-region-focusable",))
        model.gate.release()
        await expect(steps).to_have_count(2)
        await expect(steps.last).to_contain_text("failed")
        assert await page.locator(".task[data-row]").count() == 0
        address = page.url
        model.gate.release()
        await expect(page.locator(".chip")).to_have_text("completed")
        assert page.url == address
        await expect(page.locator(".task[data-row]")).to_have_count(10)

        await page.locator("#task-8").click()
        chosen = page.locator("#chosen")
        title = page.locator("#chosen-title")
        await expect(title).to_have_text("T3 Receipts and invoices")
        await expect(chosen.get_by_role("row")).to_contain_text(["After", "T2", "T7"])
        await expect(page).to_have_url(f"{address}?task=T3")
        assert await page.locator("path.hot").count() == 3
        await expect(page.locator("path.broken")).to_have_count(1)
        await page.keyboard.press("j")
        await page.keyboard.press("Enter")
        await expect(title).not_to_contain_text("T3")
        await chosen.locator("[data-choose]").first.click()
        await expect(page.locator(".task[aria-current]")).to_be_focused()
        await look(page, "plan")

        await page.set_viewport_size(PHONE)
        await page.locator("#task-5").click()
        await expect(page.locator("#task-5 + #chosen")).to_contain_text("removed: cycle")
        await expect(page.locator("#task-5 .then")).to_have_text("after Write the refund policy")

        await page.get_by_role("button", name="Keep this dependency instead").click()
        await expect(page.locator("#plan[data-live-plan]")).to_be_visible()
        for _ in STEPS:
            model.gate.release()
        await expect(page.locator(".note.failed")).to_contain_text("T3 after T7 (0.76) was removed")


def many(count: int = 200) -> str:
    """Return tasks. Each task after the sixtieth waits for three tasks."""
    waits = {number: {number - 60, max(1, number - 83), max(1, number - 97)} for number in range(61, count + 1)}
    return "\n".join(
        f"- [ ] K{number}: Task number {number} of a long list (2h)"
        + (f" (after: {', '.join(f'K{source}' for source in sorted(waits[number]))})" if number in waits else "")
        for number in range(1, count + 1)
    )


@on_sqlite
async def test_two_hundred_tasks_can_be_read(store: Store, page: Page) -> None:
    app, path = await plan(store, many())
    async with serving(store, app, Settings(work=False)) as url:
        await page.goto(f"{url}{path}?task=K125")
        await expect(page.locator(".task")).to_have_count(200)
        assert await page.locator(".graph path").count() == 3 + await page.locator("[data-side=before]").count()
        await expect(page.locator("[data-side=after]")).to_have_count(3)
        await page.keyboard.press("/")
        await page.keyboard.type("number 12")
        await expect(page.locator("#found")).to_have_text("12 of 200")
        await expect(page.locator(".task:visible")).to_have_count(12)
        await page.keyboard.press("Enter")
        await page.keyboard.press("j")
        await page.keyboard.press("Enter")
        await expect(page.locator("#chosen-title")).to_contain_text("K112")
        await page.locator("[data-search]").fill("")
        assert await problems(page, ".graph, #chosen, .task[aria-current]") == []
        for width in (1280, 820, 390):
            await page.set_viewport_size({"width": width, "height": 900})
            assert await sticks_out(page) == []


HOSTILE = (
    "<script>document.body.dataset.hit=1</script><img src=x onerror=alert(1)>",
    "W" * 1_900,
    "\u202eenod si siht \u2066 \u05e9\u05dc\u05d5\u05dd \u0645\u0631\u062d\u0628\u0627",
    "'\"}}{{ 7*7 }}{% raw %} &amp; \u0000".replace("\u0000", "\ufffd"),
)


@on_sqlite
async def test_page_escapes_hostile_titles(store: Store, page: Page, browser: Browser) -> None:
    lines = [f"- [ ] H{number}: {title}" for number, title in enumerate(HOSTILE)]
    text = "\n".join([*lines, "- [ ] Last (after: H0, H1, H2, H3)", f"  {'details ' * 1_250}"])
    app, path = await plan(store, text, outcome=HOSTILE[0] + HOSTILE[2])
    async with serving(store, app, Settings(work=False)) as url:
        await page.goto(url + path)
        await expect(page.locator(".task b").filter(has_text="<script>")).to_be_visible()
        for number in range(1, 6):
            await page.locator(f"#task-{number}").click()
            await expect(page.locator(f"#task-{number}[aria-current]")).to_be_visible()
        await expect(page.locator("#chosen")).to_contain_text("details")
        assert await page.locator("body[data-hit]").count() == 0
        await look(page, "plan-hostile", "#chosen, .task")
        await page.goto(f"{url}/plans")
        await look(page, "plans-hostile")
        plain = await browser.new_context(java_script_enabled=False, viewport=PHONE)  # type: ignore[arg-type]
        without = await plain.new_page()
        await without.goto(url + path)
        await without.locator("#task-5").click()
        await expect(without.locator("#chosen-title")).to_contain_text("Last")
        await expect(without.locator("#task-5[aria-current]")).to_be_visible()
        assert (await without.locator("#task-5 .then").inner_text()).endswith("and 1 more")
        await plain.close()


@on_sqlite
async def test_filters_tasks_without_javascript(store: Store) -> None:
    app, path = await plan(store, many(70), model=Scripted([answer([f"K{number}" for number in range(1, 71)])]))
    async with asking(store, app, Settings(work=False)) as http:
        html = (await http.get(f"{path}?q=number+7")).text
        assert "8 of 70" in html
        assert html.count("<li hidden>") == 62
