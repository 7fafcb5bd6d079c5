"""The pages of notebooks in a browser, without JavaScript, and with hostile input."""

import re
from collections.abc import AsyncIterator
from pathlib import Path

import httpx2
import pytest
from playwright.async_api import Browser, Page, expect

from lockstitch.apps.notebooks import notebooks, sources
from lockstitch.apps.notebooks.pages import chat
from lockstitch.apps.notebooks.pages.views import Highlight, statements
from lockstitch.cli.demo.notebook import sources as shelves
from lockstitch.model import Memory
from lockstitch.server import Settings
from lockstitch.store import Store
from tests.apps.notebooks.library import Library, library
from tests.engine.agents import add, pay, scripted
from tests.engine.test_repeated_ids import numbered
from tests.server.looking import PHONE, WIDE, look, sticks_out
from tests.server.serving import serving

pytestmark = pytest.mark.anyio

IDLE = Settings(work=False)

HOSTILE = (
    "<script>alert(1)</script> <img src=x onerror=alert(2)> [x](javascript:alert(3)) \u202eright to left\u202c "
    + "| wide " * 400
    + "\n\n"
    + "x" * 3_000
)


@pytest.fixture
def backend(request: pytest.FixtureRequest) -> str:
    return getattr(request, "param", "sqlite")


@pytest.fixture
async def http() -> AsyncIterator[httpx2.AsyncClient]:
    async with httpx2.AsyncClient(headers={"Accept": "text/html"}, timeout=30) as client:
        yield client


async def texts(page: Page) -> list[str]:
    """Return the visible text of the chat and the sidebar, without ages."""
    parts = [await page.locator(f"{selector}").inner_text() for selector in ("#seam", "#sources", "#turns", "#place")]
    return [re.sub(r"\s+", " ", part) for part in parts]


async def test_user_creates_notebook_and_gets_cited_answers(
    store: Store, page: Page, browser: Browser, tmp_path: Path
) -> None:
    """Create a notebook, add sources, ask, follow the team, open citations, and ask in a second chat."""
    model = Library()
    _, app = library(model)
    (tmp_path / "Reading ages, notes.md").write_bytes(dict(shelves())["Reading ages, notes.md"])
    (tmp_path / "School library list 2026.pdf").write_bytes(dict(shelves())["School library list 2026.pdf"])
    async with serving(store, app) as url:
        await page.goto(url)
        await page.keyboard.press("g")
        await page.keyboard.press("n")
        await expect(page.get_by_role("heading", name="No notebooks yet")).to_be_visible()
        await page.wait_for_load_state()
        await page.keyboard.press("c")
        await page.get_by_label("Title").fill("Books")
        await page.get_by_label("Description").fill("For reading lists.")
        await page.get_by_label("Instructions for the team").fill("Be brief.")
        await page.keyboard.press("Control+Enter")
        await expect(page.get_by_role("heading", name="No sources yet")).to_be_visible()
        await expect(page.locator(".meta")).to_have_text(re.compile("NotebookLM .*with Researcher and Writer"))

        # Sources: a text, Markdown, a PDF, and an invalid file.
        text = dict(shelves())["Letters from parents.txt"].decode()
        # Without scripts the link opens a separate page.
        await page.wait_for_load_state()
        await page.get_by_role("link", name="Add source").first.click()
        await page.locator("#add summary", has_text="Text").click()
        await page.locator("#add [name=title]").fill("Letters from parents")
        await page.locator("#add [name=text]").fill(text)
        await page.get_by_role("button", name="Add text").click()
        await expect(page.locator("#toasts")).to_contain_text("Added Letters from parents.md: 1 passage")
        for name in ("Reading ages, notes.md", "School library list 2026.pdf"):
            await page.wait_for_load_state()
            await page.keyboard.press("s")
            await page.locator("#add [name=file]").set_input_files(tmp_path / name)
            if name.endswith(".pdf"):
                await look(page, "notebook-add", "#add")
            await page.get_by_role("button", name="Add file").click()
            await expect(page.locator("#toasts")).to_contain_text(f"Added {name}")
        await expect(page.locator("#sources .count")).to_have_text("3")
        await expect(page.locator("#sources")).to_contain_text("5 pages · 5 passages")
        await expect(page.get_by_role("heading", name="Ask your first question")).to_be_visible()

        # A question: the page shows the Researcher writing, then the leader, then the answer in their place.
        finds, compiles = model.hold("Researcher"), model.hold("NotebookLM")
        await page.wait_for_load_state()
        await page.keyboard.press("/")
        await page.keyboard.type("recommend books for a 9yo girl")
        await page.keyboard.press("Control+Enter")
        await page.wait_for_url("**/chats/*")
        await expect(page.locator("#live .by")).to_contain_text(re.compile(r"Researcher\s*writing"))
        await expect(page.locator("#live .say")).to_contain_text("Found in the sources")
        await expect(page.locator("#turns")).to_contain_text("3 searches")
        await expect(page.locator("#chats .pulse")).to_have_count(1)
        finds.set()
        await expect(page.locator("#live .by")).to_contain_text(re.compile(r"NotebookLM\s*writing"))
        await expect(page.locator("#live li")).to_have_count(1)
        await expect(page.get_by_role("button", name="Stop")).to_be_visible()
        await look(page, "notebook-live", "#turns, #chats, main form")
        compiles.set()
        answer = page.locator("#seam > li[data-shape=answered]")
        await expect(answer.locator(".by")).to_contain_text(re.compile(r"NotebookLM\s*with Researcher"))
        await expect(page.locator("#live li")).to_have_count(0)
        await expect(page.locator("#open li")).to_have_count(0)
        await expect(page.get_by_role("button", name="Stop")).to_have_count(0)
        await expect(page.locator("#steps")).to_contain_text("Includes 1 earlier run")
        for words in ("hands on", "3 searches", "compiles"):
            await expect(page.locator("#turns")).to_contain_text(words)
        await expect(page.locator("#turns .count")).to_contain_text("3 runs · $")

        # A citation opens next to the answer, and in its source.
        await expect(page.locator("#place mark")).to_contain_text("The Wild Robot")
        await answer.get_by_text("Front Desk").locator("..").locator("a.cite").first.click()
        await expect(page.locator("#place mark")).to_contain_text("Front Desk")
        await expect(page.locator("a.cite[aria-current]")).to_have_count(1)
        await expect(page.locator("#place .foot")).to_contain_text(re.compile(r"found by .*rank \d of \d"))
        await look(page, "notebook")
        chat_url = page.url
        assert "cited=" in chat_url
        await page.locator("#place").get_by_role("link", name="Open").click()
        await expect(page.locator(".passages .marked mark")).to_contain_text("Front Desk")
        await look(page, "notebook-source")
        await page.go_back()
        await expect(page.locator("#place mark")).to_contain_text("Front Desk")

        # The answer of the Writer is the answer of the team.
        writes = model.hold("Writer")
        await page.get_by_label("Message").fill("summarize each book")
        await page.get_by_role("button", name="Ask").click()
        await expect(page.locator("#live .by")).to_contain_text("Writer")
        await expect(page.locator("#live .by")).to_contain_text("notes")
        writes.set()
        await expect(answer).to_have_count(2)
        await expect(answer.last.locator(".by")).to_contain_text("Writer")
        await expect(answer.last.locator("a.cite").first).to_be_visible()
        positions = await page.locator("#seam > li").evaluate_all("all => all.map(one => Number(one.dataset.position))")
        assert positions == sorted(set(positions))
        await page.keyboard.press("Escape")
        await page.keyboard.press("k")
        await page.keyboard.press("o")
        await expect(page.locator("a.cite[aria-current]")).to_have_count(1)

        # The page is the same after a reload and without JavaScript.
        before = await texts(page)
        await page.reload()
        assert await texts(page) == before
        bare = await browser.new_context(java_script_enabled=False)
        plain = await bare.new_page()
        await plain.goto(page.url)
        assert await texts(plain) == before
        await plain.goto(f"{url}/notebooks/1/new")
        await plain.get_by_label("Message").fill("hello")
        await plain.get_by_role("button", name="Ask").click()
        await plain.wait_for_url("**/chats/*")
        await expect(plain.locator("#chats .count")).to_have_text("2")
        await bare.close()

        await page.goto(f"{url}/notebooks/1")
        await expect(page.locator("#seam")).to_contain_text("Hello! Ask me anything")
        await page.locator("#turns").get_by_role("link", name="NotebookLM").click()
        await expect(page.locator("h1")).to_be_visible()
        await page.goto(f"{url}/notebooks")
        await expect(page.locator(".book")).to_contain_text("3 sources")
        await expect(page.locator(".book")).to_contain_text("2 chats")
        await look(page, "notebooks")


async def test_user_stops_renames_forgets_and_deletes(store: Store, page: Page) -> None:
    model = Library()
    application, app = library(model)
    await application.setup(store)
    notebook = await notebooks.create(store, "Books")
    await application.add_source(store, notebook.number, "a.txt", "Robots are wild.")
    now = store.clock.now()
    await store.memories.put(
        Memory(user_id="local", text="Likes robots.", created_at=now, updated_at=now),
        Memory(user_id="ada", text="A secret of Ada's.", created_at=now, updated_at=now),
    )
    async with serving(store, app) as url:
        await page.goto(f"{url}/notebooks/1")
        gate = model.hold("NotebookLM")
        await page.get_by_label("Message").fill("hello")
        await page.get_by_role("button", name="Ask").click()
        await expect(page.locator("#live .by")).to_contain_text(re.compile(r"NotebookLM\s*writing"))
        await page.get_by_role("button", name="Stop").click()
        await expect(page.locator("#seam > li").last).to_contain_text("Stopped")
        gate.set()
        await expect(page.locator("#live li")).to_have_count(0)
        await expect(page.locator("#turns")).to_contain_text("cancelled")
        await expect(page.locator("#steps")).to_contain_text("No earlier runs included")

        # The same while a member is running.
        gate = model.hold("Researcher")
        await page.get_by_label("Message").fill("recommend books")
        await page.keyboard.press("Control+Enter")
        await expect(page.locator("#live .by")).to_contain_text(re.compile(r"Researcher\s*writing"))
        await page.get_by_role("button", name="Stop").click()
        await expect(page.locator("#seam > li[data-shape=line]")).to_have_count(2)
        gate.set()
        await expect(page.locator("#live li")).to_have_count(0)

        await page.locator("summary[aria-label^='Chat and']").click()
        await page.get_by_label("Chat title").fill("Robots")
        await page.get_by_role("button", name="Rename").click()
        await expect(page.locator("#chats")).to_contain_text("Robots")

        # Without its script the link opens another page instead of the dialog.
        await page.wait_for_load_state()
        await page.get_by_role("link", name="Instructions").click()
        await page.locator("#edit [name=instructions]").fill("Rhyme.")
        await page.locator("#edit [name=title]").fill("Machines")
        await page.get_by_role("button", name="Save").click()
        await expect(page.get_by_role("heading", name="Machines")).to_be_visible()
        assert (await notebooks.get(store, 1)).instructions == "Rhyme."

        await expect(page.get_by_role("link", name="Memories")).to_contain_text("1")
        await page.get_by_role("link", name="Memories").click()
        await expect(page.locator("main")).not_to_contain_text("Ada's")
        assert not await sticks_out(page)
        await page.get_by_role("button", name="Delete").click()
        await expect(page.get_by_role("heading", name="No memories yet")).to_be_visible()
        assert [memory.text for memory in await store.memories.list()] == ["A secret of Ada's."]

        await page.goto(f"{url}/notebooks/1")
        await page.locator("#sources a").first.click()
        await page.get_by_text("Remove…").click()
        await page.get_by_role("button", name="Remove source").click()
        await expect(page.locator("#sources .count")).to_have_text("0")
        await page.locator("summary[aria-label^='Chat and']").click()
        await page.get_by_role("link", name="Delete notebook").click()
        await page.get_by_role("button", name="Delete").click()
        await expect(page.get_by_role("heading", name="No notebooks yet")).to_be_visible()
        assert await store.threads() == []


async def test_page_escapes_text_of_sources(store: Store, page: Page) -> None:
    application, app = library()
    await application.setup(store)
    notebook = await notebooks.create(
        store, f"<b>{HOSTILE[:200]}", description=HOSTILE[:1500], instructions="</textarea><script>"
    )
    await application.add_source(store, notebook.number, "<i>nasty</i>.txt", f"robots {HOSTILE}")
    result = await application.run(store, notebook.number, "<script>alert(4)</script> about robots?")
    async with serving(store, app, IDLE) as url:
        source = (await sources.listed(store, notebook))[0]
        paths = ("", "/edit", "/memories", f"/sources/{source.id}?passage=1&mark=1-9999999999999999", "/sources/new")
        for path in (*paths, f"/chats/{result.thread_id}?cited=9.1.99999999999999999999"):
            await page.goto(f"{url}/notebooks/1{path}")
            assert await page.locator("main script, main img, main b:has-text('script'), main i").count() == 0
            for size in (PHONE, WIDE):
                await page.set_viewport_size(size)  # type: ignore[arg-type]
                assert not await sticks_out(page), path
        await page.goto(f"{url}/notebooks")
        assert not await sticks_out(page)


async def test_page_shows_errors_without_changes(store: Store, http: httpx2.AsyncClient) -> None:
    application, app = library()
    await application.setup(store)
    notebook = await notebooks.create(store, "Books")
    other_notebook = await notebooks.create(store.in_project("theirs"), "Theirs")
    second = await notebooks.create(store, "Second")
    chat = (await application.run(store, notebook.number, "hello")).thread_id
    async with serving(store, app, IDLE) as url:
        csrf = re.findall(r'name="csrf" value="([^"]+)"', (await http.get(f"{url}/notebooks/1")).text)[0]

        async def add(fields: dict[str, str], **more: object) -> httpx2.Response:
            return await http.post(f"{url}/notebooks/1/sources", data={"csrf": csrf, **fields}, **more)  # type: ignore[arg-type]

        for content, name, why in (
            (b"%PDF-1.4 but broken", "a.pdf", "a.pdf"),
            (b"", "empty.txt", "empty"),
            (b"MZ\x00\x01", "a.exe", "not a supported kind"),
        ):
            refused = await add({}, files={"file": (name, content)})
            assert refused.status_code == 422
            assert "The source was not added" in refused.text
            assert why in refused.text
        assert (await add({"title": "nothing"})).status_code == 422
        off = await add({"url": "https://example.org/"})
        assert "disabled" in off.text
        assert await sources.listed(store, notebook) == []

        foreign_paths = (f"/notebooks/{other_notebook.id}", f"/notebooks/{second.id}/chats/{chat}")
        for path in (*foreign_paths, "/notebooks/77", "/notebooks/9999999999999999999"):
            assert (await http.get(url + path)).status_code == 404, path
        for path in ("/notebooks/x", "/notebooks/1/chats/nonsense", "/notebooks/1/sources/nonsense"):
            assert (await http.get(url + path)).status_code == 422, path
        response = await http.post(
            f"{url}/notebooks/{second.id}/chats/{chat}/ask", data={"csrf": csrf, "message": "hi"}
        )
        assert response.status_code == 404
        assert (await http.post(f"{url}/notebooks/1/ask", data={"csrf": csrf, "message": "  "})).status_code == 422
        assert (await http.post(f"{url}/notebooks", data={"title": "Without proof"})).status_code == 403
        assert (await http.post(f"{url}/notebooks", data={"csrf": csrf, "title": "x" * 256})).status_code == 422
    _, reads = await store.tokens.create("looker", ["read"])
    _, elsewhere = await store.in_project("theirs").tokens.create("other", ["read", "write"])
    async with serving(store, app, Settings(work=False, tokens_needed=True)) as url:
        read_response = await http.get(f"{url}/notebooks/1", headers={"Authorization": f"Bearer {reads}"})
        assert "This token is read-only" in read_response.text
        assert "Add source" not in read_response.text
        for path in ("/notebooks/1", f"/notebooks/{other_notebook.id}/chats/{chat}"):
            refused_response = await http.get(url + path, headers={"Authorization": f"Bearer {elsewhere}"})
            assert refused_response.status_code == 404, path
    assert [notebook.title for notebook in await notebooks.listed(store)] == ["Second", "Books"]
    assert len(await store.threads()) == 1


@pytest.mark.parametrize("backend", ["sqlite", "postgres"], indirect=True)
async def test_pages_work_on_every_database(store: Store, http: httpx2.AsyncClient) -> None:
    application, app = library()
    await application.setup(store)
    notebook = await notebooks.create(store, "Books", description="For reading lists.")
    for name, content in shelves():
        await application.add_source(store, notebook.number, name, content)
    session: str | None = None
    for message in ("hello", "recommend books for a 9yo girl", "summarize each book"):
        result = await application.run(store, notebook.number, message, session_id=session)
        session = str(result.thread_id)
    async with serving(store, app, IDLE) as url:
        for path in ("/notebooks", "/notebooks/1/new", "/notebooks/1/memories"):
            assert (await http.get(url + path)).status_code == 200, path
        html = (await http.get(f"{url}/notebooks/1")).text
        names = re.findall(r'data-name="(\w+)"', html)
        leader, looks, writes = "NotebookLM", "Researcher", "Writer"
        assert names == [leader, leader, looks, leader, leader, looks, writes]
        assert "7 runs" in html
        assert "from Researcher\N{RIGHT SINGLE QUOTATION MARK}s notes" in html
        cite = re.findall(r'class="cite" href="([^"]+)"', html)[0]
        place = (await http.get(url + cite, headers={"HX-Request": "true"})).text
        assert "<html" not in place
        assert re.search(r"<mark>[^<]*The Wild Robot", place)
        now = (await http.get(f"{url}/notebooks/1/chats/{session}/now?after=0")).text
        assert now.count('data-shape="asked"') == 3
        earlier = (await http.get(f"{url}/notebooks/1/chats/{session}?before=2")).text
        assert earlier.count('data-shape="asked"') == 1
        assert "Later questions" in earlier
        assert "data-thread=" not in earlier


def test_highlight_reads_and_writes_links() -> None:
    assert Highlight.of("11.2.3") == Highlight(11, 2, 3)
    assert Highlight.of("11.2") == Highlight(11, 2)
    for wrong in ("", "1", "a.b", "1.2.3.4", "-1.2", "1.٣", "1." + "9" * 5000):
        assert Highlight.of(wrong) is None
    answer = "One thing [1][2]. Another [2].\n- A third [3, 1]\n`[1]`"
    assert statements(answer, 1) == ["One thing", "- A third"]
    assert statements(answer, 2) == ["One thing", "Another"]


async def test_chat_names_the_tool_at_work_when_call_ids_repeat(store: Store) -> None:
    agent = scripted(numbered(("add", {"a": 1, "b": 2})), numbered(("pay", {"amount": 1})), "Done.", tools=[add, pay])
    waits = await agent.run("Go", store=store, thread="t")
    head, run = await store.thread("t"), await store.run(waits.run_id)
    assert await chat._doing(store, head, [run]) == {run.id: "calling pay"}
