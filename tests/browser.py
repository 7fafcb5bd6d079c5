"""Fixtures of a real browser: one Chromium per test process, and one connection to it per module."""

import re
import subprocess
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from playwright.async_api import Browser, ConsoleMessage, Error, Page, ViewportSize, async_playwright, expect

from tools.browser import find

QUIET = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--hide-scrollbars"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
)

# The default of five seconds is too short on a busy machine.
expect.set_options(timeout=30_000)


@pytest.fixture(scope="session")
def browser_path() -> str:
    """The path of the browser. `make test` installs one, a plain pytest does not."""
    path = find()
    if path is None:
        pytest.fail("The page tests need Chromium. Run `python -m tools.browser` to install it.")
    return path


@pytest.fixture(scope="session")
def browser_endpoint(browser_path: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a browser process. One per test process, because its start takes longer than most tests."""
    folder = tmp_path_factory.mktemp("browser")
    log = folder / "log"
    # A pipe would stop the browser as soon as it is full of messages.
    with log.open("wb") as stderr:
        arguments = (*QUIET, f"--user-data-dir={folder / 'profile'}", "--remote-debugging-port=0")
        process = subprocess.Popen([browser_path, *arguments], stderr=stderr)
    try:
        yield _endpoint(process, log)
    finally:
        process.terminate()
        try:
            process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _endpoint(process: "subprocess.Popen[bytes]", log: Path) -> str:
    """Wait until a browser writes its address to its log, and return the address."""
    while process.poll() is None:
        if found := re.search(r"DevTools listening on (\S+)", log.read_text(errors="replace")):
            return found[1]
        time.sleep(0.02)
    pytest.fail(f"The browser ended with exit code {process.returncode}.\n{log.read_text(errors='replace')}")


@pytest.fixture(scope="module")
async def browser(browser_endpoint: str) -> AsyncIterator[Browser]:
    """A connection to the browser. One per module, because each module has an event loop."""
    async with async_playwright() as playwright:
        connected = await playwright.chromium.connect_over_cdp(browser_endpoint)
        yield connected
        await connected.close()


WIDE: ViewportSize = {"width": 1280, "height": 900}


@pytest.fixture(scope="module")
async def shared_page(browser: Browser) -> AsyncIterator[Page]:
    """One page per module, because a new one starts two processes. The server of each test is another origin."""
    context = await browser.new_context(viewport=WIDE, reduced_motion="reduce", timezone_id="UTC")
    yield await context.new_page()
    await context.close()


def _to_blame(messages: list[str]) -> list[str]:
    """Return the errors of a page, without the connection errors that appear when a test stops its server."""
    disconnected = any("net::ERR_" in text for text in messages)
    excused = ("htmx:sendError", "htmx:afterRequest", "undefined") if disconnected else ()
    return [text for text in messages if "net::ERR_" not in text and not text.startswith(excused)]


@pytest.fixture
async def page(shared_page: Page) -> AsyncIterator[Page]:
    """A page of a real browser. Script errors and violations of the content security policy fail the test."""
    complaints: list[str] = []

    def on_error(error: Error) -> None:
        complaints.append(str(error))

    def on_message(message: ConsoleMessage) -> None:
        if message.type == "error":
            complaints.append(message.text)

    shared_page.on("pageerror", on_error)
    shared_page.on("console", on_message)
    yield shared_page
    shared_page.remove_listener("pageerror", on_error)
    shared_page.remove_listener("console", on_message)
    await shared_page.goto("about:blank")
    await shared_page.context.clear_cookies()
    await shared_page.emulate_media(color_scheme="light")
    await shared_page.set_viewport_size(WIDE)
    assert _to_blame(complaints) == []
