"""The list of threads: threads that need a person first, trees, filters, keyboard and live rows."""

import asyncio
import html
import json
import re
import sys
from datetime import timedelta
from pathlib import Path

import pytest
from playwright.async_api import Page, expect

from lockstitch.agents import Agent, App
from lockstitch.agents.providers.scripted import Scripted
from lockstitch.model import Entry
from lockstitch.server import Settings
from lockstitch.server.pages.threads import reader
from lockstitch.store import Store, open_store
from lockstitch.store.queries.thread_list import STATUSES
from tests.server.looking import PHONE, look
from tests.server.pages.office import fill, office
from tests.server.serving import caller, serving
from tests.waits import waiting

pytestmark = pytest.mark.anyio

IDLE = Settings(work=False)


async def test_first_thread_replaces_the_empty_page(store: Store, page: Page, tmp_path: Path):
    async with serving(store, App([Agent("helper", model=Scripted(["Hello."]), title=False)])) as url:
        await page.goto(url)
        await expect(page.get_by_role("heading", name="No threads yet")).to_be_visible()
        await look(page, "first")
        # The code of the page works when it is pasted. Only the model is another one.
        code = await page.locator(".way code").nth(1).inner_text()
        (tmp_path / "script.json").write_text('["Dear Ada."]')
        code = code.replace("anthropic:claude-sonnet-4-5", "scripted:script.json")
        pasted = await asyncio.create_subprocess_exec(sys.executable, "-c", code, cwd=tmp_path)
        assert await pasted.wait() == 0
        async with open_store(f"sqlite:///{tmp_path}/lockstitch.db") as pasted_store:
            assert [thread.key for thread in await pasted_store.threads()] == ["customer-42"]
        await page.keyboard.press("c")
        await page.get_by_role("textbox", name="Message").fill("Write to Ada")
        await page.keyboard.press("Control+Enter")
        await page.wait_for_url("**/threads/**")
        await expect(page.locator("#seam")).to_contain_text("Hello.")
        [thread] = await store.threads()
        assert (thread.agent, thread.kind) == ("helper", "chat")


async def test_pages_threads_that_need_a_person(store: Store, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(reader, "NEEDING", 1)
    monkeypatch.setattr(reader, "PAGE", 2)
    now = store.clock.now()
    for number in range(3):
        head = await store.create(title=f"Person {number}", agent="a")
        waits = [waiting("approval", now + timedelta(minutes=number), "c1")]
        await store.append(head, fields={"status": "waiting", "waiting_for": waits})
    async with serving(store, settings=IDLE) as url, caller(url, headers={"Accept": "text/html"}) as client:
        first = (await client.get("/?status=")).text
        assert (_titles(first), "2 more" in first) == (["Person 0"], True)
        for filters in ("status=person", "status=person&agent=a"):
            page = (await client.get(f"/?{filters}")).text
            assert _titles(page) == ["Person 0", "Person 1"]
            more = html.unescape(re.findall(r'href="(/\?[^"]*after=[^"]*)"', page)[0])
            rest = (await client.get(more, headers={"HX-Request": "true"})).text
            assert (_titles(rest), "after=" in rest) == (["Person 2"], False)
        threads = await store.awaiting_person()
        for thread, following in zip(threads, [*threads[1:], threads[0]], strict=True):
            assert (await client.get(f"/next?after={thread.id}")).headers[
                "location"
            ] == f"/threads/{following.id}#needs"


def _titles(text: str) -> list[str]:
    return re.findall(r"Person \d(?=</a>)", text)


@pytest.mark.req("S3-069")
async def test_threads_that_need_a_person_are_first(store: Store, page: Page):
    """The list works with the keyboard alone: move, open, search, filter, act."""
    app = office()
    await fill(app, store)
    async with serving(store, app, IDLE) as url:
        await page.goto(url)
        titles = page.locator("tr[data-row] .title a")
        await expect(page.locator("#wants")).to_contain_text("2")
        assert (await titles.all_inner_texts())[:2] == ["lease", "Refund for order 10482, charged twice"]
        statuses = [text.strip() for text in await page.locator("tr[data-row] .c-status").all_inner_texts()]
        assert statuses[:2] == ["needs you", "needs you"]
        assert {"idle", "last run failed", "pending"} <= set(statuses[2:])
        # The tab of failed runs has chats, too, whose own status is `waiting`.
        failures = await store.threads(error=True)
        assert any(thread.status == "waiting" for thread in failures)
        await page.goto(f"{url}/?status=failed")
        await expect(page.locator(".tabs [aria-current]")).to_have_text(re.compile(rf"Failed runs\s+{len(failures)}"))
        await expect(titles).to_have_count(len(failures))
        await page.goto(url)
        await expect(page.locator("[data-live-word]")).to_have_text("live")
        await look(page, "threads")

        # One tab stop, then keyboard shortcuts.
        stops = await page.locator('tr[data-row][tabindex="0"]').count()
        assert stops == 1
        await page.keyboard.press("j")
        await page.keyboard.press("End")
        await expect(page.locator("tr[data-row]:focus")).to_contain_text("suppliers")
        await page.keyboard.press("ArrowRight")
        await expect(page.locator('tr[aria-level="2"]')).to_have_count(3)
        await expect(page.locator("tr[data-row]:focus")).to_have_attribute("aria-expanded", "true")
        await page.keyboard.press("ArrowRight")
        await expect(page.locator("tr[data-row]:focus")).to_have_attribute("aria-level", "2")
        await look(page, "threads-open", 'tr[aria-level="2"]')
        await page.keyboard.press("ArrowLeft")
        await page.keyboard.press("ArrowLeft")
        await expect(page.locator('tr[aria-level="2"]')).to_have_count(0)

        # Search for words of messages. The URL has the filters.
        await page.keyboard.press("/")
        await page.keyboard.type("Norrland")
        await expect(titles).to_have_count(1)
        await expect(page).to_have_url(f"{url}/?q=Norrland")
        await page.keyboard.press("Escape")
        assert await page.evaluate("document.activeElement === document.body")
        # The best matches are first until a column is chosen.
        await expect(page.locator("th[aria-sort]")).to_have_count(0)
        await page.get_by_role("link", name="Last stitch").click()
        await expect(page.locator('th[aria-sort="descending"]')).to_have_text("Last stitch")
        await page.goto(url)
        await page.get_by_role("link", name="Status", exact=True).click()
        await expect(page.locator('th[aria-sort="descending"]')).to_contain_text("Status")
        shown = await page.locator("tr[data-row]").evaluate_all("(rows) => rows.map((row) => row.dataset.status)")
        assert shown == sorted(shown, key=STATUSES.index)
        await page.goto(f"{url}/?status=failed")
        await expect(titles).to_have_text(["Nightly triage of 214 issues", "notes", "Vela Coatings"])
        await page.get_by_label("Kind", exact=True).select_option("task")
        await expect(titles).to_have_text(["Vela Coatings"])
        assert "status=failed" in page.url
        assert "kind=task" in page.url

        # Columns, an order and a filter of the menu. The URL has them, also for rows that change.
        await page.goto(url)
        size = page.viewport_size
        await page.set_viewport_size({"width": 1024, "height": 800})
        elements = "[document.documentElement, document.getElementById('rows')]"
        assert await page.evaluate(f"{elements}.map((each) => each.scrollWidth - each.clientWidth)") == [0, 0]
        await page.set_viewport_size(size or {"width": 1280, "height": 900})
        await page.locator("summary", has_text="Columns").click()
        await page.get_by_label("Output").check()
        await page.get_by_label("Waiting for").uncheck()
        await expect(page.get_by_role("columnheader", name="Output")).to_be_visible()
        await page.keyboard.press("Escape")
        await page.get_by_role("link", name="Tokens").click()
        await expect(titles).to_have_text(["suppliers", "thanks", "Nightly triage of 214 issues", "notes"])
        await expect(page).to_have_url(f"{url}/?sort=tokens&columns=agent,output,latency,tokens,cost,at")
        await expect(page.locator("tr[data-row]").nth(1).locator(".c-output")).to_have_text("You are welcome.")
        await look(page, "threads-columns")
        await page.get_by_role("link", name="Tokens").click()
        await expect(page.get_by_role("columnheader", name="Tokens")).to_have_attribute("aria-sort", "ascending")
        await page.locator("summary", has_text="More filters").click()
        await page.get_by_label("Error contains").fill("TOKENS IS LONGER")
        await look(page, "threads-filters")
        await page.keyboard.press("Enter")
        await expect(titles).to_have_text(["Vela Coatings", "notes", "Nightly triage of 214 issues"])
        assert "error=TOKENS" in page.url
        await page.reload()
        await expect(titles).to_have_count(3)
        await expect(page.get_by_label("Error contains")).to_have_value("TOKENS IS LONGER")

        # A view keeps the filters, the columns and the order. The default view opens the list.
        await page.locator("#views summary").click()
        await page.get_by_label("Name of the view").fill("Long contexts")
        await page.get_by_label("Open the list with this view").check()
        await page.get_by_role("button", name="Save view").click()
        await expect(page.locator("#views summary")).to_have_text("Long contexts")
        await page.goto(f"{url}/?status=")
        await expect(titles.first).to_have_text("lease")
        await page.goto(url)
        await expect(titles).to_have_count(3)
        await expect(page.get_by_role("columnheader", name="Tokens")).to_have_attribute("aria-sort", "ascending")
        await page.locator("#views summary").click()
        await look(page, "threads-views")
        await page.get_by_role("button", name="Delete view Long contexts").click()
        await page.wait_for_url(f"{url}/?status=")

        # Actions on selected threads.
        await page.goto(f"{url}/?status=failed&columns=agent,at")
        await page.keyboard.press("j")
        await page.keyboard.press("x")
        await expect(page.locator("#bulk output")).to_have_text("1 selected")
        await page.set_viewport_size(PHONE)  # type: ignore[arg-type]
        selected, navigation = "#bulk').getBoundingClientRect().bottom", ".nav').getBoundingClientRect().top"
        assert await page.evaluate(f"document.querySelector('{selected} <= document.querySelector('{navigation}")
        await page.set_viewport_size(size or {"width": 1280, "height": 900})
        await page.get_by_label("Select all shown threads").check()
        await look(page, "threads-selected")
        await page.get_by_label("Dataset").fill("failures")
        await page.get_by_role("button", name="Add to dataset").click()
        await expect(page.locator("#toasts")).to_contain_text("Added 3 cases to failures, version 1.")
        await expect(page).to_have_url(f"{url}/?status=failed&columns=agent,at")

        # Retry in the row.
        await page.goto(f"{url}/?status=failed")
        await page.keyboard.press("j")
        await page.keyboard.press("a")
        await expect(page.locator("#toasts")).to_contain_text("Retrying")
        await expect(page.locator("tr[data-row]").first).to_contain_text("pending")
        assert (await store.thread("triage")).status == "pending"

        # The next thread that needs a person, and the one after it.
        await page.keyboard.press("n")
        await expect(page.get_by_role("heading", level=1)).to_have_text("lease")
        await expect(page.locator("#needs")).to_be_focused()
        await page.keyboard.press("n")
        await expect(page.get_by_role("heading", level=1)).to_have_text("Refund for order 10482, charged twice")

        # Threads that refuse an action do not stop it.
        await page.goto(f"{url}/?status=person")
        await page.get_by_label("Select all shown threads").check()
        await page.get_by_role("button", name="Approve calls").click()
        await expect(page.locator("#toasts")).to_contain_text(
            "Approved the calls of 1 thread. 1 unchanged. lease: no call"
        )
        await page.goto(f"{url}/?q=Norrland")
        await page.get_by_label("Select all shown threads").check()
        await page.get_by_role("button", name="Delete…").click()
        await look(page)
        await page.get_by_role("button", name="Delete 1 thread").click()
        await expect(page.locator("#toasts")).to_contain_text("Deleted 1 thread.")


async def test_list_shows_the_answer_when_a_memory_call_follows(store: Store):
    facts = '{"facts": ["likes tea"]}'
    helper = Agent("helper", model=Scripted(["Tea it is.", facts]), memory="record", title=False)
    await helper.run("I like tea.", store=store, thread="tea", user_id="ada")
    last = (await store.stitches("tea"))[-3:]
    assert [(stitch.type, stitch.message) for stitch in last[:2]] == [("llm_call", None), ("memory_update", None)]
    async with serving(store, App([helper]), IDLE) as url, caller(url) as http:
        listed = (await http.get("/")).text
    assert "Tea it is." in listed
    assert "No messages yet" not in listed


async def test_list_shows_the_names_of_a_json_answer(store: Store):
    plan = {"summary": "Roof\nfirst.", "waves": [{"n": 1}, {"n": 2}], "best_confidence": 0.9, "note": None, "rest": {}}
    planner = Agent("planner", model=Scripted([json.dumps(plan)]), title=False)
    await planner.run("Plan.", store=store, thread="plan")
    await Agent("b", model=Scripted(['{"not json']), title=False).run("Say.", store=store, thread="half")
    async with serving(store, App([planner]), IDLE) as url, caller(url) as http:
        listed = (await http.get("/")).text
    assert "summary Roof first. · waves 2 · best confidence 0.9 · rest 0" in listed
    assert "{&#34;not json" in listed


async def test_rows_change_in_place(store: Store, page: Page):
    first = await store.create(title="First", kind="goal", goal="x", status="pending")
    await store.create(title="Second", kind="goal", goal="y", status="pending")
    async with serving(store) as url:
        await page.goto(url)
        await expect(page.locator("[data-live-word]")).to_have_text("live")
        rows = page.locator("tr[data-row] .title a")
        await expect(rows).to_have_text(["Second", "First"])
        await page.keyboard.press("j")
        await page.keyboard.press("j")
        await store.append(first, [Entry(type="error", data={"message": "It broke."})], fields={"status": "cancelled"})
        await expect(page.locator(f"#t-{first.id}")).to_contain_text("cancelled")
        await expect(rows).to_have_text(["Second", "First"])
        await expect(page.locator("tr[data-row]:focus")).to_have_attribute("data-row", str(first.id))
        await store.create(title="Third", kind="goal", goal="z", status="pending")
        newer = page.get_by_role("button", name="1 newer")
        await expect(newer).to_be_visible()
        await expect(rows).to_have_count(2)
        await newer.click()
        await expect(rows).to_have_text(["Third", "Second", "First"])


async def test_older_rows_are_loaded_and_the_project_is_switched(store: Store, page: Page):
    for number in range(55):
        await store.create(title=f"Number {number}", kind="goal", goal="x", status="pending")
    await store.in_project("other").create(title="Elsewhere", kind="goal", goal="x", status="pending")
    async with serving(store) as url:
        await page.goto(url)
        rows = page.locator("tr[data-row]")
        await expect(rows).to_have_count(50)
        await page.get_by_role("link", name="Older").click()
        await expect(rows).to_have_count(55)
        oldest = rows.last
        await oldest.focus()
        await page.keyboard.press("Enter")
        await page.wait_for_url("**/threads/*")
        await page.go_back()
        await expect(rows).to_have_count(55)
        await expect(oldest).to_be_focused()
        await page.get_by_label("Project").select_option("other")
        await expect(rows.locator(".title a")).to_have_text(["Elsewhere"])
