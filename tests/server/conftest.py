"""What tests of the server share: a server over a fresh store, and somebody who asks it."""

from collections.abc import AsyncIterator

import httpx2
import pytest
from playwright.async_api import Browser, BrowserContext, Page, async_playwright, expect

from lockstitch.store import Store
from tests.server.serving import caller, serving
from tools.browser import find

QUIET = (
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
)

# On a busy machine five seconds, which is what is given otherwise, may pass without anything wrong.
expect.set_options(timeout=30_000)


@pytest.fixture(scope="session")
def browser_path() -> str:
    """The path of the browser. `make test` installs one, a plain pytest does not."""
    path = find()
    if path is None:
        pytest.fail("The page tests need Chromium. Run `python -m tools.browser` to install it.")
    return path


@pytest.fixture
async def url(store: Store) -> AsyncIterator[str]:
    """A server for one person, as on loopback by default."""
    async with serving(store) as address:
        yield address


@pytest.fixture
async def http(url: str) -> AsyncIterator[httpx2.AsyncClient]:
    async with caller(url) as client:
        yield client


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    """Of a wider scope than elsewhere: what a module shares lives in one loop with its tests."""
    return "asyncio"


@pytest.fixture(scope="module")
async def browser(browser_path: str) -> AsyncIterator[Browser]:
    """One for the tests of a module, which have contexts of their own: its start costs more than most of them do."""
    async with async_playwright() as playwright:
        opened = await playwright.chromium.launch(executable_path=browser_path, args=list(QUIET))
        yield opened
        await opened.close()


@pytest.fixture
async def context(browser: Browser) -> AsyncIterator[BrowserContext]:
    opened = await browser.new_context(viewport={"width": 1280, "height": 900}, reduced_motion="reduce")
    yield opened
    await opened.close()


def _to_blame(said: list[str]) -> list[str]:
    """What a page is to blame for. That a server has gone, with streams open, is what tests do when they end; htmx then
    tells of requests that were under way."""
    gone = any("net::ERR_" in text for text in said)
    excused = ("htmx:sendError", "htmx:afterRequest", "undefined") if gone else ()
    return [text for text in said if "net::ERR_" not in text and not text.startswith(excused)]


@pytest.fixture
async def page(context: BrowserContext) -> AsyncIterator[Page]:
    """A page of a real browser. Whatever it complains about, of scripts or of the content policy, fails the test."""
    opened = await context.new_page()
    complaints: list[str] = []
    opened.on("pageerror", lambda error: complaints.append(str(error)))
    opened.on("console", lambda said: complaints.append(said.text) if said.type == "error" else None)
    yield opened
    assert _to_blame(complaints) == []
