"""The thread page: conversation, all actions, live updates, keyboard, and stored content as text."""

import asyncio
import re
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import httpx2
import pytest
from playwright.async_api import Browser, Page, expect

from lockstitch.agents import Agent, App
from lockstitch.agents.tools.function import tool
from lockstitch.model import Entry, Stitch
from lockstitch.server import Settings
from lockstitch.store import Store, Where
from tests.engine.agents import pay, scripted, until
from tests.samples import turn
from tests.server.looking import look, sticks_out
from tests.server.pages.office import PIXEL, Gated, mail, office, support
from tests.server.serving import serving

pytestmark = pytest.mark.anyio

IDLE = Settings(work=False)

HIDE = """state => {
    Object.defineProperty(document, "visibilityState", { value: state, configurable: true });
    document.dispatchEvent(new Event("visibilitychange"));
}"""
"""Script that hides the tab or shows it."""


async def wait_for_result(store: Store, key: str, name: str) -> Stitch:
    """Return the result of a call when it is stored."""

    async def find_result() -> Stitch | None:
        log = await store.stitches(key)
        return next((stitch for stitch in log if stitch.type == "tool_call" and stitch.name == name), None)

    return await until(find_result, 30)


async def test_user_approves_resolves_and_fills_in(store: Store, page: Page):
    """The thread waits for an approval, an unknown outcome and a form. The user replies to each."""
    app = office()
    await support(app, store)
    mail.sent.clear()
    async with serving(store, app) as url:
        await page.goto(f"{url}/threads/customer-42")
        await expect(page.locator("[data-live-word]")).to_have_text("live")
        await expect(page.locator(".ask h2")).to_have_text(
            ["Approve refund_payment?", "Did send_mail complete?", "ask_address runs in your browser"]
        )
        await expect(page.get_by_text("Fraud check, order 10482").first).to_be_visible()
        assert await page.evaluate("document.activeElement === document.body"), "approve is never focused by default"
        await look(page, "thread")

        # The first key press shows what the second one approves. A held key does not approve.
        await page.keyboard.down("a")
        await expect(page.locator("#needs")).to_be_focused()
        await page.keyboard.down("a")
        await page.keyboard.up("a")
        assert "refund_payment" in await page.locator(".ask h2").first.inner_text()
        await page.keyboard.press("a")
        assert "refunded €129.00" in str((await wait_for_result(store, "customer-42", "refund_payment")).message)
        await expect(page.locator("#toasts")).to_contain_text("Approved refund_payment")
        await expect(page.locator(".ask h2")).to_have_text(
            ["Did send_mail complete?", "ask_address runs in your browser"]
        )
        await expect(page.locator("#seam")).to_contain_text("refund_payment")

        waits = (await store.thread("customer-42")).waiting_for
        key = next(wait["key"] for wait in waits if wait["kind"] == "doubt")
        await expect(page.locator(".ask").first).to_contain_text(key)
        await page.get_by_role("button", name="Run it again").click()
        await wait_for_result(store, "customer-42", "send_mail")
        assert mail.sent == [key]
        await expect(page.locator(".ask h2")).to_have_text(["ask_address runs in your browser"])

        await page.get_by_label("City").fill("Stockholm")
        await page.get_by_label("Floor").fill("3")
        await page.get_by_label("Ring").check()
        await page.get_by_role("button", name="Send result").click()
        message = (await wait_for_result(store, "customer-42", "ask_address")).message
        assert message is not None
        assert message["content"] == (
            '{"street":"Brännkyrkagatan 14","postal_code":"118 20","city":"Stockholm","floor":3,"ring":true}'
        )
        await expect(page.locator("#seam")).to_contain_text("Done: the second charge is on its way back")
        await expect(page.locator("#state")).to_contain_text("idle")
        await expect(page.locator("#wants")).to_be_empty()
        positions = await page.locator("#seam > li").evaluate_all("all => all.map(one => Number(one.dataset.position))")
        assert positions == sorted(set(positions))


async def test_user_denies_resolves_and_sends_an_error(store: Store, page: Page):
    app = office()
    await support(app, store, "a")
    async with serving(store, app) as url:
        await page.goto(f"{url}/threads/a#needs")
        await page.get_by_text("Deny with reason").click()
        await page.get_by_placeholder("Reason for the model").fill("Too much")
        await page.keyboard.press("Enter")
        denied = await wait_for_result(store, "a", "refund_payment")
        assert denied.status == "denied"
        assert "Reason: Too much" in str(denied.message)
        await page.get_by_text("It completed").click()
        await page.get_by_placeholder("Result for the model").fill("It is in their inbox.")
        await page.get_by_role("button", name="Resolve").click()
        settled = await wait_for_result(store, "a", "send_mail")
        assert (settled.status, settled.data["by"]) == ("settled", "local")
        assert "in their inbox" in str(settled.message)
        # The page replaces the forms after the update.
        await expect(page.get_by_role("button", name="Resolve")).to_have_count(0)
        await page.get_by_role("button", name="Send an error").click()
        failed = (await wait_for_result(store, "a", "ask_address")).message
        assert failed is not None
        assert failed["is_error"]


async def test_user_answers_sends_messages_and_forks(store: Store, page: Page):
    story = Gated([{"text": "Once upon a time, **there** was `<b>`. The end.", "chunk": 24}])
    app = office(Agent("teller", model=story, title=False))
    await app.agent("legal").run("Redlines", store=store, thread="lease")
    await app.agent("echo").run("Thank you", store=store, thread="thanks")
    async with serving(store, app) as url:
        await page.goto(f"{url}/threads/lease")
        await page.get_by_role("button", name="Scotland's").click()
        assert "Scotland's" in str((await wait_for_result(store, "lease", "ask_for_input")).message)
        await expect(page.locator("#seam")).to_contain_text("The lease is under the law you chose.")

        await page.goto(f"{url}/threads/thanks")
        await page.keyboard.press("/")
        await page.keyboard.type("Again, please")
        await page.keyboard.press("Control+Enter")
        await expect(page.locator("#seam")).to_contain_text("Always.")
        await expect(page.locator("#composer textarea")).to_have_value("")

        # Fork at a stitch with the keyboard.
        await page.locator("#p3").focus()
        await page.keyboard.press("f")
        await page.wait_for_url(lambda address: "/thanks" not in address)
        fork = await store.thread(page.url.rpartition("/")[2])
        assert fork.state["forked_from"]["position"] == 3
        await expect(page.locator("#seam")).to_contain_text("Forked from another thread at position 3")

        # Streamed text is shown, then its stitch replaces it.
        await page.goto(url)
        await page.keyboard.press("c")
        await page.locator("#begin [name=agent]").select_option("teller")
        await page.get_by_role("textbox", name="Message").fill("Tell me a story")
        await page.get_by_role("button", name="Start thread").click()
        await expect(page.locator(".live-text .say")).to_contain_text("Once upon a time")
        await look(page, "stream", ".live-text")
        story.gate.set()
        await expect(page.locator("#seam > li[data-type=llm_call]")).to_contain_text("The end.")
        await expect(page.locator(".live-text")).to_have_count(0)
        await expect(page.locator("#seam .say b")).to_have_text("there")


async def test_user_cancels_retries_renames_and_deletes(store: Store, page: Page):
    app = office()
    await support(app, store, "a")
    await app.agent("broken").run("Translate", store=store, thread="notes")
    async with serving(store, app, IDLE) as url:
        await page.goto(f"{url}/threads/a")
        await page.get_by_role("button", name="Cancel").click()
        await expect(page.locator("#state")).to_contain_text("idle")
        await expect(page.locator(".ask")).to_have_count(0)
        run = await store.execution.last_run(await store.thread("a"))
        assert run is not None
        assert run.status == "cancelled"

        await page.goto(f"{url}/threads/notes")
        # The error of a run is shown once.
        await expect(page.locator(".note.failed")).to_have_count(1)
        await expect(page.locator(".note.failed")).to_contain_text("214,880 tokens")
        end = page.locator("#seam > li[data-type=run_failed]")
        await expect(end).to_contain_text(re.compile(r"Failed after \d+ step"))
        await expect(page.locator("#state")).to_contain_text("last run failed")
        await page.get_by_role("button", name="Retry").click()
        await expect(page.locator("#state")).to_contain_text("pending")
        await expect(page.get_by_role("button", name="Retry")).to_have_count(0)
        await expect(page.get_by_role("button", name="Fork", exact=True)).to_be_focused()
        assert (await store.thread("notes")).last_turn == 2

        await page.locator(".menu summary").click()
        await page.get_by_placeholder("Title").fill("Notes in Finnish")
        await page.keyboard.press("Enter")
        await expect(page.get_by_role("heading", level=1)).to_have_text("Notes in Finnish")
        await page.locator(".menu summary").click()
        async with page.expect_download() as download:
            await page.get_by_role("link", name="Export bundle").click()
        assert (await (await download.value).path()).stat().st_size > 1000
        await page.get_by_role("link", name="Delete…").click()
        await page.get_by_role("button", name="Delete thread").click()
        await expect(page.locator("#toasts")).to_contain_text("Deleted “Notes in Finnish”")
        assert await store.count(key="notes") == 0


@pytest.mark.req("S3-069", "S3-071")
async def test_tree_page_shows_threads_and_stitches(store: Store, page: Page):
    """The graph shows status and task progress, and works with the keyboard."""
    app = office()
    await app.agent("review-lead").run("Review our suppliers", store=store, thread="suppliers")
    await support(app, store)
    async with serving(store, app, IDLE) as url:
        await page.goto(f"{url}/threads/suppliers/tree")
        lanes = page.locator(".weave [data-lane]")
        await expect(lanes).to_have_count(4)
        statuses = await lanes.evaluate_all("all => all.map(one => one.getAttribute('class').split(' ')[0])")
        assert (statuses[0], sorted(statuses[1:])) == ("parked", ["failed", "pending", "pending"])
        assert await page.locator(".weave .tie").count() == 3
        assert await page.locator(".weave .mark.k-model").count() == 2
        assert await page.locator(".weave .mark.k-fail").count() >= 1
        await look(page, "tree")
        await page.keyboard.press("j")
        await page.keyboard.press("ArrowDown")
        await page.keyboard.press("Enter")
        await expect(page.get_by_role("heading", level=1)).to_have_text(
            re.compile("Norrland Timber|Kestrel Polymers|Vela Coatings")
        )
        await page.goto(f"{url}/threads/customer-42/tree")
        await expect(lanes.first).to_have_attribute(
            "aria-label", re.compile("charged twice: waiting, 11 stitches, 2 of 5 tasks done")
        )


HOSTILE = (
    "<script>document.title='run'</script><img src=x onerror=\"document.title='run'\">"
    "[x](javascript:alert(1)) \u202egnp.exe"
)


async def test_stored_content_is_shown_as_text(store: Store, page: Page):
    """Markup, script links, bidirectional text, a megabyte, unknown types and invalid images."""
    bad = HOSTILE
    thread = await store.create(
        title=bad[:200], key="bad", agent=bad[:100], user_id=bad[:100], tasks=[{"description": bad}]
    )
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PIXEL}}
    svg = {"type": "image", "source": {"type": "base64", "media_type": "image/svg+xml", "data": PIXEL}}
    blocks: list[Any] = [{"type": "text", "text": bad}, image, svg, {"type": bad, "text": bad}]
    entries = [
        Entry(type="input", message={"role": "user", "content": blocks}),
        Entry(
            type="llm_call",
            name=bad[:100],
            message={"role": "assistant", "content": [*blocks, {"type": "thinking", "thinking": bad}]},
        ),
        Entry(
            type="tool_call",
            name=bad[:100],
            call_id="c",
            status=bad[:50],
            message={"type": "tool_result", "tool_use_id": "c", "content": bad * 10_000},
        ),
        Entry(type=bad[:90], data={bad: bad}),
        Entry(type="error", data={"message": bad, "type": bad}),
        Entry(type="thread_spawned", child_id=thread.id, data={"goal": bad}),
        Entry(type="fork", data={"forked_from": {"thread_id": bad, "position": bad}, "messages": []}),
    ]
    await store.append(thread, entries)
    async with serving(store) as url:
        for view in ("", "?view=context", "?view=log", "?view=history", "?view=runs", "/tree", "/delete"):
            await page.goto(f"{url}/threads/bad{view}")
            await page.locator("details").evaluate_all("all => all.forEach(one => { one.open = true })")
            assert await page.title() != "run"
            assert await page.locator("main script, main img:not([src^='/'])").count() == 0
            assert await page.locator("a[href^='javascript']").count() == 0
        await page.goto(f"{url}/threads/bad")
        await page.set_viewport_size({"width": 390, "height": 844})
        assert await sticks_out(page) == []
        assert await page.locator("#seam img").count() == 2, "a picture in what was said and one in the answer"
        answers = [await page.request.get(f"{url}/threads/bad/media/1/{number}") for number in (0, 1)]
        assert [answer.headers["content-type"] for answer in answers] == ["image/png", "application/octet-stream"]
        assert answers[1].headers["content-disposition"].startswith("attachment")
        assert "sandbox" in answers[0].headers["content-security-policy"]
        raw = await page.request.get(f"{url}/threads/bad/raw/3")
        assert raw.headers["content-type"].startswith("text/plain")
        assert len(await raw.body()) > 1_000_000
        await page.goto(f"{url}/")
        assert await page.title() == "Threads · lockstitch"
        await page.goto(f"{url}/?q=%3Cscript%3E")
        assert await page.locator("main script").count() == 0


async def test_long_thread_is_loaded_in_parts(store: Store, page: Page):
    thread = await store.create(key="long")
    for start in range(0, 260, 20):
        texts = [{"role": "user", "content": f"Message {start + number}"} for number in range(20)]
        thread = (await store.append(thread, [Entry(type="input", message=text) for text in texts])).head
    async with serving(store) as url:
        await page.goto(f"{url}/threads/long")
        stitches = page.locator("#seam > li")
        await expect(stitches).to_have_count(100)
        await page.get_by_role("link", name="Earlier: 160 stitches").click()
        await expect(stitches).to_have_count(200)
        await page.get_by_role("link", name="Earlier: 60 stitches").click()
        await expect(stitches).to_have_count(260)
        assert await stitches.first.get_attribute("id") == "p1"
        await expect(page.locator("#earlier")).to_be_hidden()
        # A reader further up sees the number of new stitches and keeps the scroll position.
        await page.evaluate("scrollTo(0, 0)")
        await store.append(thread, [Entry(type="input", message={"role": "user", "content": "Newest"})])
        await expect(page.get_by_role("button", name="1 new")).to_be_visible()
        assert await page.evaluate("scrollY") == 0
        await page.get_by_role("button", name="1 new").click()
        await expect(page.get_by_text("Newest")).to_be_in_viewport()


async def test_long_context_is_loaded_in_parts(store: Store, page: Page):
    thread = await store.create(key="long")
    texts = [{"role": "user", "content": f"{number} " + "x" * 9_000} for number in range(120)]
    await store.append(thread, [Entry(type="input", message=text) for text in texts])
    async with serving(store) as url:
        answer = await page.goto(f"{url}/threads/long?view=context")
        assert answer is not None
        assert len(await answer.body()) < 1_000_000
        await expect(page.get_by_text("120 messages")).to_be_visible()
        messages = page.locator(".msg")
        await expect(messages).to_have_count(50)
        await page.get_by_role("link", name="Earlier: 70 messages").click()
        await expect(messages).to_have_count(100)
        await page.get_by_role("link", name="Earlier: 20 messages").click()
        await expect(messages).to_have_count(120)
        await expect(messages.first).to_contain_text("0 xxx")
        await expect(page.get_by_role("link", name="Earlier")).to_have_count(0)


async def test_cancel_removes_streamed_text_and_the_form(store: Store, page: Page):
    """A streamed call shows its time. After a cancel, the page has no text that is not recorded and no stale form."""
    model = Gated([{"thinking": "Let me think.", "text": "Once upon a time", "chunk": 6}])
    app = App([Agent("teller", model=model, title=False)])
    await store.start("teller", "Tell a story", key="story")
    async with serving(store, app) as url:
        try:
            await page.goto(f"{url}/threads/story")
            await expect(page.locator(".live-text .think")).to_contain_text("Let me")
            await expect(page.locator("#open .model-call time")).to_be_visible()
            field = page.locator("#composer textarea")
            await expect(field).to_have_attribute("placeholder", "Queued until the current run finishes")
            await field.fill("And then?")
            await page.get_by_role("button", name="Cancel").click()
            await expect(page.locator("#seam > li[data-type=run_completed]")).to_contain_text("Cancelled after 0 steps")
            await expect(page.locator(".live-text")).to_have_count(0)
            await expect(page.locator("#composer")).to_have_text("Cancelled. Fork it to continue.")
            await page.get_by_role("button", name="Retry").click()
            await expect(page.locator(".live-text .think")).to_contain_text("Let me")
            await expect(field).to_have_value("")
            model.gate.set()
            await expect(page.locator("#seam")).to_contain_text("Once upon a time")
        finally:
            model.gate.set()


async def test_archived_stitches_are_rendered_one_by_one(store: Store, http: httpx2.AsyncClient) -> None:
    head = await store.create(kind="goal", goal="Write", agent="writer")
    for _ in range(2):
        head = await turn(store, head, "q", "a")
    await store._backend.put([head.changed(status="completed", result={"status": "completed"})])
    assert await store.archive(store.clock.now() + timedelta(days=1)) == 2
    assert (await store.thread(head.id)).first_position > head.position
    answers = [await http.get(f"/threads/{head.id}/stitch/{place}") for place in range(1, head.position + 1)]
    assert [answer.status_code for answer in answers] == [200] * head.position


async def test_running_calls_are_shown_with_their_time(store: Store, page: Page):
    """Safe tools have no stitch for their start. The title counts the threads that need the user."""
    gate = asyncio.Event()

    @tool(effect="safe")
    async def read_archive(year: int) -> str:
        """Read the archive."""
        await gate.wait()
        return str(year)

    model = Gated([{"calls": [{"name": "read_archive", "input": {"year": 1999}}]}, "Read."])
    app = App([Agent("reader", model=model, tools=[read_archive], title=False)])
    await store.start("reader", "Read it", key="archive")
    async with serving(store, app) as url:
        try:
            await page.goto(f"{url}/threads/archive")
            await expect(page.locator("#open .model-call time")).to_have_text(re.compile(r"^\d+ s$"))
            model.gate.set()
            await expect(page.locator("#open .running-call")).to_contain_text("read_archive")
            await expect(page.locator("#open .running-call time")).to_have_text(re.compile(r"^\d+ s$"))
            await expect(page).to_have_title("Read it · lockstitch")
            await page.goto(url)
            await expect(page.locator("tr[data-row]")).to_contain_text("read_archive")
            await office().agent("legal").run("Redlines", store=store, thread="lease")
            await expect(page).to_have_title("(1) Threads · lockstitch")
        finally:
            model.gate.set()
            gate.set()


async def test_times_are_shown_in_the_time_zone_of_the_browser(store: Store, browser: Browser):
    thread = await store.create(key="dated")
    at = datetime(2026, 3, 10, 1, 30, tzinfo=UTC)
    await store.append(thread, [Entry(type="input", message={"role": "user", "content": "Hello"}, at=at)])
    context = await browser.new_context(timezone_id="America/New_York")
    page = await context.new_page()
    async with serving(store) as url:
        await page.goto(f"{url}/threads/dated")
        await expect(page.locator("#p1 time")).to_have_text("21:30:00")
        await expect(page.locator("#p1 time")).to_have_attribute("title", "2026-03-10 01:30:00 UTC")
    await context.close()


async def test_hidden_tabs_leave_their_connections_to_others(store: Store, page: Page):
    """A browser opens six connections to a server. Six hidden tabs must not block the seventh."""
    thread = await store.create(key="shared")
    async with serving(store) as url:
        tabs = [page, *[await page.context.new_page() for _ in range(6)]]
        for tab in tabs:
            await tab.goto(f"{url}/threads/shared", timeout=5_000)
            await expect(tab.locator("[data-live-word]")).to_have_text("live")
            await tab.evaluate(HIDE, "hidden")
        await store.append(thread, [Entry(type="input", message={"role": "user", "content": "Hello"})])
        await page.evaluate(HIDE, "visible")
        await expect(page.locator("#seam")).to_contain_text("Hello")
        await expect(tabs[1].locator("#seam")).not_to_contain_text("Hello")


async def test_visible_tabs_share_the_connections_of_the_browser(store: Store, page: Page):
    """Seven visible windows load and follow the thread. Three of them have a stream, the other ones poll."""
    thread = await store.create(key="shared")
    streams = list[str]()

    async def has_stream() -> bool:
        return any("until=now" not in one for one in streams)

    page.context.on("request", lambda request: streams.append(request.url) if "/events" in request.url else None)
    async with serving(store) as url:
        tabs = [page, *[await page.context.new_page() for _ in range(6)]]
        for tab in tabs:
            await tab.goto(f"{url}/threads/shared", timeout=5_000)
            await expect(tab.locator("[data-live-word]")).to_have_text("live")
        assert len([one for one in streams if "until=now" not in one]) == 3
        await store.append(thread, [Entry(type="input", message={"role": "user", "content": "Hello"})])
        for tab in tabs:
            await expect(tab.locator("#seam")).to_contain_text("Hello")
        # A window that is closed gives its stream to another one.
        await page.goto("about:blank")
        streams.clear()
        await until(has_stream)
        for tab in tabs[1:]:
            await tab.close()


async def is_shown(page: Page, name: str) -> bool | None:
    """Return True if the page has shown a notification with this text, else None."""
    return name in str(await page.evaluate("shown")) or None


async def test_hidden_tab_notifies_of_threads_that_need_the_user(store: Store, browser: Browser):
    payer = scripted({"calls": [{"name": "pay", "input": {"amount": 12}}]}, name="payer", tools=[pay])
    await payer.run("Pay 12.", store=store, thread="first")
    context = await browser.new_context(permissions=["notifications"])
    page = await context.new_page()
    await page.add_init_script("""
        window.shown = [];
        window.Notification = class {
            static permission = "granted";
            static requestPermission = async () => "granted";
            constructor(title, { body }) { window.shown.push(`${title}: ${body}`); }
        };
    """)
    await page.clock.install()
    async with serving(store) as url:
        await page.goto(url)
        toggle = page.get_by_role("button", name="Notifications")
        await expect(toggle).to_have_attribute("aria-pressed", "false")
        await toggle.click()
        await expect(toggle).to_have_attribute("aria-pressed", "true")
        # Hiding the tab asks for the threads that the user has seen.
        async with page.expect_response("**/api/inbox?*"):
            await page.evaluate(HIDE, "hidden")
        for name in ("second", "third"):
            await payer.run("Pay 12.", store=store, thread=name)
            async with page.expect_response("**/api/inbox?*"):
                await page.clock.run_for(20_000)
            await until(partial(is_shown, page, name), 30)
        # Each thread once, and not the one that waited before.
        assert await page.evaluate("shown") == ["Needs you: second, payer", "Needs you: third, payer"]
        await page.evaluate(HIDE, "visible")
        await toggle.click()
        await page.reload()
        await expect(toggle).to_have_attribute("aria-pressed", "false")
    await context.close()


async def test_thread_page_works_without_javascript(store: Store, browser: Browser):
    app = office()
    await support(app, store)
    await app.agent("review-lead").run("Review our suppliers", store=store, thread="suppliers")
    context = await browser.new_context(java_script_enabled=False)
    page = await context.new_page()
    async with serving(store, app) as url:
        await page.goto(url)
        await page.get_by_role("link", name="Refund for order 10482, charged twice", exact=True).click()
        await expect(page.locator("#seam")).to_contain_text("You were charged twice")
        await page.get_by_role("button", name="Approve").click()
        await expect(page.locator("#toasts")).to_contain_text("Approved refund_payment")
        assert "refunded" in str((await wait_for_result(store, "customer-42", "refund_payment")).message)
        for view in ("Context", "Full history", "Runs", "Log"):
            await page.get_by_role("navigation", name="Views").get_by_role("link", name=view).click()
            await expect(page.locator("h1")).to_have_text("Refund for order 10482, charged twice")
        await page.goto(f"{url}/threads/nobody")
        await expect(page.locator("main")).to_contain_text("Thread nobody not found")
    await context.close()


async def test_user_regenerates_answer_and_sees_inherited_turns(store: Store, page: Page):
    app = office()
    for text in ("First question", "Second question"):
        await app.agent("echo").run(text, store=store, thread="thanks")
    source = await store.thread("thanks")
    async with serving(store, app) as url:
        await page.goto(f"{url}/threads/thanks")
        await expect(page.get_by_role("button", name="Regenerate answer")).to_be_visible()
        # A double click sends the form twice. The script finds the form itself, because a live update may replace it.
        await page.evaluate("""() => {
            const form = document.querySelector("button.regenerate").form;
            fetch(form.action, {method: "post", body: new FormData(form), keepalive: true});
            form.requestSubmit();
        }""")
        await page.wait_for_url(lambda address: str(source.id) not in address and "thanks" not in address)
        fork = await store.thread("thanks")
        assert (fork.id != source.id, await store.count()) == (True, 2)
        await expect(page.locator("#seam .inherited")).to_have_count(1)
        await expect(page.locator("#seam .inherited")).to_contain_text("First question")
        await expect(page.locator("#seam .inherited a")).to_have_attribute("href", f"/threads/{source.id}")
        await expect(page.locator("#seam [data-type=input]")).to_contain_text("Second question")
        await expect(page.locator("#seam [data-type=llm_call]")).to_contain_text("Always.")
        await look(page, "fork")
        # The new answer is compared with the one that it replaces.
        (replaced,) = await store.find_runs(source.id, Where("turn", "=", 2))
        (run,) = await store.runs(fork)
        await page.goto(f"{url}/run/{run.id}")
        await expect(page.locator("#against a").first).to_have_attribute(
            "href", f"/run/{replaced.id}/difference/{run.id}"
        )
        await page.goto(f"{url}/threads/thanks?view=history")
        await expect(page.locator(".history > li")).to_have_count(2)
        await expect(page.locator(".history > li").last).to_contain_text("inherited from another thread")
