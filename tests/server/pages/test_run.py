"""The run page in a browser."""

import re
from hashlib import sha256

import httpx2
import pytest
from playwright.async_api import Page, expect

from lockstitch.model import call_key, codec, new_id
from lockstitch.store import Store
from tests.engine.agents import scripted
from tests.integrations.importing import import_path
from tests.integrations.langsmith import recorded
from tests.integrations.otel.test_clients import path_of
from tests.server.looking import PHONE, look, sticks_out
from tests.server.pages import runs

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["sqlite"])
def backend(request: pytest.FixtureRequest) -> str:
    return request.param


async def opened(page: Page, url: str) -> None:
    await page.goto(url)
    await page.wait_for_selector("#waterfall[data-ready]")


async def names(page: Page) -> list[str]:
    """Return the levels and names of the visible rows in order."""
    row_names: list[str] = await page.evaluate(
        """() => [...document.querySelectorAll('#rows > .wf:not([hidden])')]
            .sort((a, b) => a.getAttribute('aria-rowindex') - b.getAttribute('aria-rowindex'))
            .map((one) => [one.getAttribute('aria-level') - 1, one.querySelector('.what').textContent.trim()])
            .map(([level, name]) => '  '.repeat(level) + name)"""
    )
    return row_names


async def test_run_page_works_with_the_keyboard(store: Store, url: str, page: Page) -> None:
    first, second = (run for run in await runs.two_turns(store) if run.parent_run_id is None)
    await opened(page, f"{url}/run/{second.id}")
    assert await names(page) == [
        "Run 2",
        "  Step 1",
        "    scripted",
        "    list_charges",
        "    lookup_order",
        "  Step 2",
        "    overloaded",
        "    scripted",
        "    create_thread",
        "      Check for fraud",
        "        fraud",
        "          Step 1",
        "            scripted",
        "            complete_thread",
        "    broken",
        "      tool error",
        "  pause",
        "  Step 3",
        "    scripted",
    ]
    assert await page.locator("#rows").get_attribute("aria-rowcount") == "19"
    strip = await page.locator(".strip").inner_text()
    assert "+ 1 in the child" in strip
    assert re.search(r"21k\s+88 % from cache", strip)
    assert re.search(r"1\s+and\s+1", strip)

    # The comparison shows and marks the differences. The previous run has another input, so the user asks for it.
    line = page.locator("#against")
    await expect(line).to_have_count(0)
    await page.get_by_role("link", name="Compare with the previous run").click()
    await expect(line).to_contain_text("first difference: list_charges got limit 50, was 20")
    await expect(line).to_contain_text("1 step more")
    chosen = page.locator("#rows .wf[aria-selected=true]")
    await page.get_by_role("button", name="Next difference").click()
    await expect(chosen.locator(".what")).to_have_text("scripted")
    await page.keyboard.press("x")
    await expect(chosen.locator(".what")).to_have_text("list_charges")
    await expect(chosen.locator(".delta")).to_have_attribute("title", "limit 50, was 20; different result")

    # The focus moves with the row, and the panel follows.
    await page.keyboard.press("Home")
    await expect(chosen).to_be_focused()
    for key in ("j", "ArrowDown"):
        await page.keyboard.press(key)
    await expect(chosen.locator(".what")).to_have_text("scripted")
    panel = page.locator("#panel")
    await expect(panel).to_contain_text("rebuilt from the record, identical bytes")
    await expect(panel.locator(".seal")).to_have_text("from cache above, 5,100 tokens")
    await page.keyboard.press("2")
    await expect(panel.get_by_role("tab", name="Response")).to_have_attribute("aria-selected", "true")
    await expect(panel).to_contain_text("I look at the charges.")
    await page.keyboard.press("3")
    await expect(panel).to_contain_text("Cost without caching")
    await expect(panel.locator("tbody tr").nth(2)).to_contain_text("900")
    await page.keyboard.press("4")
    await expect(panel).to_contain_text('"type": "llm_call"')
    await page.keyboard.press("1")

    # A tool call: input, result, effect and key. The selected tab stays.
    await page.keyboard.press("j")
    await expect(panel.get_by_role("tab", name="Input")).to_have_attribute("aria-selected", "true")
    await expect(panel.locator("#part-input")).to_contain_text('"limit": 50')
    await page.keyboard.press("3")
    log = await store.stitches(second.thread_id)
    call = next(stitch for stitch in log if stitch.type == "llm_call" and stitch.run_id == second.id and stitch.calls)
    await expect(panel).to_contain_text(call_key(call.id, 0))
    await expect(panel.locator("#part-call")).to_contain_text("safe")
    await page.keyboard.press("2")
    show_all = panel.get_by_role("link", name="show all")
    await show_all.click()
    await expect(panel.locator("#part-result [data-text]")).to_have_text(f"50 charges. {runs.LONG}")

    # Errors, folding, zoom and search.
    await page.keyboard.press("Home")
    await page.keyboard.press("e")
    await expect(chosen.locator(".what")).to_have_text("overloaded")
    await page.keyboard.press("e")
    await expect(chosen.locator(".what")).to_have_text("broken")
    await expect(panel).to_contain_text(f"no such luck {runs.HOSTILE}")
    for _ in ("fold what it says", "to the step", "fold that"):
        await page.keyboard.press("ArrowLeft")
    await expect(chosen.locator(".what")).to_have_text("Step 2")
    await expect(chosen).to_have_attribute("aria-expanded", "false")
    await expect(page.locator("#rows")).to_have_attribute("aria-rowcount", "9")
    await page.keyboard.press("ArrowRight")
    await expect(page.locator("#rows")).to_have_attribute("aria-rowcount", "18")
    before = await page.locator("#axis text").all_text_contents()
    await page.keyboard.press("+")
    assert await page.locator("#axis text").all_text_contents() != before
    await page.keyboard.press("0")
    assert await page.locator("#axis text").all_text_contents() == before
    await page.keyboard.press("/")
    await page.keyboard.type("fraud")
    await page.keyboard.press("Enter")
    await expect(chosen.locator(".what")).to_have_text("Check for fraud")
    await expect(page.locator("#found")).to_have_text("1 of 2")
    await page.keyboard.press("Escape")
    child = page.locator("#panel [data-go]")
    await expect(child).to_have_attribute("href", re.compile(r"/threads/"))

    # The URL names the row, so it can be shared.
    at = page.url.partition("at=")[2]
    await opened(page, f"{url}/run/{second.id}?at={at}")
    await expect(chosen.locator(".what")).to_have_text("Check for fraud")
    await look(page, "run")
    assert await page.get_by_role("link", name="Run 1", exact=True).get_attribute("href") == f"/run/{first.id}"


async def test_stored_content_is_shown_as_text(store: Store, url: str, page: Page) -> None:
    """Names, arguments, results and answers, on both pages."""
    first, second = (run for run in await runs.two_turns(store) if run.parent_run_id is None)
    for path in (f"/run/{second.id}?at=run", f"/run/{second.id}?at=12", f"/run/{first.id}/difference/{second.id}"):
        await page.goto(f"{url}{path}")
        assert await page.locator("img").count() == 0
    differs = page.locator(".pair")
    await expect(differs.first).to_contain_text("list_charges", ignore_case=False)
    await expect(page.locator("ins").filter(has_text="twice")).to_have_count(1)
    await expect(page.locator("del").filter(has_text="once")).to_have_count(1)
    await expect(page.locator(".both tr", has_text="Steps")).to_contain_text("Δ")
    await expect(page.locator("main")).to_contain_text(runs.HOSTILE)
    await look(page, "difference")


async def test_run_routes_return_requests_files_and_errors(store: Store, http: httpx2.AsyncClient) -> None:
    """Requests have identical bytes, downloads have names, and runs of other projects are not found."""
    first, second = (run for run in await runs.two_turns(store) if run.parent_run_id is None)
    assert f'href="/run/{first.id}?against={second.id}"' in (await http.get(f"/run/{first.id}")).text
    at = f"/run/{second.id}"
    log = await store.log(second.id)
    call = next(stitch for stitch in log if stitch.type == "llm_call")
    request_text = (await http.get(f"{at}/text", params={"at": call.position, "of": "request"})).content
    assert sha256(request_text).hexdigest() == call.data["request"]["sha256"]

    response = await http.get(f"{at}/export/langsmith")
    assert response.headers["content-disposition"] == f'attachment; filename="run-{second.id}.langsmith.json"'
    assert response.json()[0]["id"] == str(second.id)
    lines = (await http.get(f"{at}/export/log")).content.splitlines()
    assert [codec.loads(line)["position"] for line in lines] == [stitch.position for stitch in log]
    assert (await http.get(f"{at}/export/bundle")).content[:2] == b"PK"
    assert (await http.get(f"{at}/export/csv")).status_code == 404

    missing = await http.get(f"{at}/panel", params={"at": "9999"})
    assert "No stitch at position 9999" in missing.text
    for odd in ("../x", "run-nobody", "99999999999", f"{second.id}.3"):
        answer = await http.get(f"{at}/panel", params={"at": odd})
        assert (answer.status_code, "cannot be shown" in answer.text) == (200, True), odd
    assert "Run nobody not found" in (await http.get(f"{at}/against/nobody")).text
    headers = {"lockstitch-project": "elsewhere"}
    for path in ("", "/rows", "/panel?at=1", "/text?at=1", "/export/log", f"/difference/{second.id}", "/against/x"):
        assert (await http.get(f"{at}{path}", headers=headers)).status_code == 404, path


async def test_waiting_run_shows_that_it_needs_a_person(store: Store, url: str, page: Page) -> None:
    run = await runs.waiting(store)
    await opened(page, f"{url}/run/{run.id}")
    await expect(page.locator(".head .chip")).to_have_text("needs you")
    row = page.locator("#rows .wf[aria-level='3']", has_text="pay")
    await expect(row.locator(".note-of")).to_have_text("approval")
    await row.click()
    await expect(page.locator("#panel [data-go]")).to_have_attribute("href", f"/threads/{run.thread_id}")


async def test_run_page_collapses_long_waits(store: Store, url: str, page: Page) -> None:
    run = await runs.long_wait(store)
    await opened(page, f"{url}/run/{run.id}")
    axis, waits = page.locator("#axis text"), page.get_by_role("button", name="Waits")
    last = page.locator("#rows .wf", has_text="call 3")
    width = "node => node.querySelector('rect:not([hidden])').getBoundingClientRect().width"
    assert "⋯ 3h 00m" in await axis.all_text_contents()
    assert await last.evaluate(width) > 100
    await page.keyboard.press("w")
    await expect(waits).to_have_attribute("aria-pressed", "false")
    assert "1h 30m" in await axis.all_text_contents()
    assert await last.evaluate(width) < 5
    await last.locator(".what").click()
    await page.keyboard.press("z")
    assert await last.evaluate(width) > 100
    await waits.click()
    await expect(waits).to_have_attribute("aria-pressed", "true")
    await page.keyboard.press("0")

    await last.locator(".bars").hover()
    await expect(page.locator(".row-tip")).to_contain_text("3h 00m")
    line, name = page.get_by_role("separator", name="Width of the names"), last.locator(".name")
    before = await name.evaluate("node => node.offsetWidth")
    await line.focus()
    await page.keyboard.press("ArrowRight")
    assert await name.evaluate("node => node.offsetWidth") == before + 20
    await opened(page, page.url)
    assert await name.evaluate("node => node.offsetWidth") == before + 20
    await last.locator(".bars").hover()
    await look(page, "long-wait")


@pytest.mark.req("S2-055")
async def test_imported_run_is_found_by_its_source_id(store: Store, url: str, page: Page) -> None:
    await import_path(store, "langsmith", recorded.FIXTURES / "zstd_traceable")
    thread = (await store.threads())[0]
    run = (await store.runs(thread))[0]
    await opened(page, f"{url}/run/{run.foreign_id}")
    row_names = await names(page)
    assert len(row_names) == len(await store.log(run.id)) + 1
    await page.locator("#rows .wf").nth(1).click()
    panel = page.locator("#panel")
    await expect(panel.get_by_role("tab").first).to_have_text(re.compile("Inputs|Request|Input"))
    await page.keyboard.press("4")
    await expect(panel).to_contain_text('"parent_id"')


async def test_imported_thread_is_shown_as_conversation(store: Store, url: str, page: Page) -> None:
    """The question, the calls and the answer come first. Spans are in the waterfall, and requests look like native."""
    await import_path(store, "langsmith", recorded.FIXTURES / "prov_openai")
    await import_path(store, "otel", path_of("smolagents"))
    threads = {thread.agent: thread for thread in await store.threads(kind="trace")}
    await page.goto(f"{url}/threads/{threads['ToolCallingAgent'].id}")
    seam = page.locator("#seam")
    await expect(seam.locator(".bubble")).to_have_text("Weather in Paris?")
    await expect(seam.locator(".runline").first).to_contain_text("ToolCallingAgentgpt-4o-mini")
    # The answer is the result of a tool, which the root repeats.
    await expect(seam.locator(".say.pre")).to_have_text("It is 21C in Paris.")
    await look(page, "imported-thread")
    await page.goto(f"{url}/threads/{threads['weather_agent'].id}")
    await expect(seam.locator("li")).to_have_count(4)
    await expect(seam).not_to_contain_text("span model")
    await expect(seam.locator("li").last).to_contain_text("It is 21C in Paris.")
    await page.get_by_role("link", name="Waterfall").click()
    await page.wait_for_selector("#waterfall[data-ready]")
    await page.locator("#rows .wf").last.click()
    panel = page.locator("#panel")
    await expect(panel.locator("summary")).to_contain_text(
        ["parameters", "You know weather.", "1: get_weather", "Weather in Paris?", "get_weather(…)", "1 tool result"]
    )
    await look(page, "imported-request", within="#panel")


async def test_waterfall_shows_ten_thousand_rows_with_few_nodes(store: Store, url: str, page: Page) -> None:
    """The number of nodes stays small, and the ARIA attributes stay correct."""
    run = await runs.many(store, 10_000)
    await opened(page, f"{url}/run/{run.id}")
    grid, rows = page.locator("#rows"), page.locator("#rows > .wf")
    await expect(grid).to_have_attribute("aria-rowcount", "10001")
    await page.keyboard.press("End")
    chosen = page.locator("#rows .wf[aria-selected=true]")
    await expect(chosen).to_have_attribute("aria-rowindex", "10001")
    await expect(chosen.locator(".what")).to_have_text("span 10000")
    await expect(chosen).to_be_in_viewport()
    await expect(page.locator("#panel")).to_contain_text("position 10,000")
    assert await rows.count() <= 120
    await page.keyboard.press("/")
    await page.keyboard.type("span 2345")
    await page.keyboard.press("Enter")
    await expect(chosen.locator(".what")).to_have_text("span 2345")
    await expect(chosen).to_be_in_viewport()
    await page.keyboard.press("Escape")
    await page.keyboard.press("e")
    await expect(chosen.locator(".what")).to_have_text("span 3000")
    for _ in range(5):
        await page.mouse.wheel(0, 5_000)
    assert await rows.count() <= 120
    await page.get_by_role("button", name="Fold").click()
    await expect(grid).to_have_attribute("aria-rowcount", "2")
    await page.set_viewport_size(PHONE)  # type: ignore[arg-type]
    assert await sticks_out(page) == []
    await expect(page.locator("#rows > .wf:visible").first).to_be_in_viewport()


async def test_takeover_is_shown_on_the_pages_of_run_and_thread(store: Store, http: httpx2.AsyncClient) -> None:
    agent = scripted("Done.", name="helper")
    goal = await agent.start(store=store, goal="g")
    await agent.executor(store, detach=True).resume(goal)
    await store._backend.put([(await store.thread(goal)).changed(losses=1, lost_by=new_id())])
    await agent.executor(store).resume(await store.thread(goal))
    (takeover,) = [stitch for stitch in await store.stitches(goal) if stitch.type == "thread_taken_over"]
    assert takeover.name is not None
    assert takeover.name.endswith("continues the thread")

    rows = await http.get(f"/run/{takeover.run_id}/rows")
    assert "thread taken over" in rows.text
    assert takeover.name in rows.text
    thread = await http.get(f"/threads/{goal.id}")
    assert "Taken over" in thread.text
    assert takeover.name in thread.text
