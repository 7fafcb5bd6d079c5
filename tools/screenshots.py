"""Take screenshots of every page of `lockstitch serve --demo`: light and dark, desktop and phone.

    python -m tools.screenshots [--out build/screenshots] [--only stats] [--chromium PATH]
    python -m tools.screenshots --readme

They are for reviews. With --readme the tool writes the images of the README instead. No test compares them.
"""

import argparse
import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from playwright.async_api import Browser, Page, async_playwright, expect

from tools.browser import ensure

SIZES: Final = {"1280": {"width": 1280, "height": 900}, "390": {"width": 390, "height": 844}}
README_IMAGES: Final = {
    "threads": {"width": 1180, "height": 640},
    "run": {"width": 1280, "height": 760},
    "plan": {"width": 1280, "height": 860},
    "notebook": {"width": 1280, "height": 753},
}
"""The images of the README, with their sizes."""

THEMES: Final = ("light", "dark")
FLAGS: Final = ("--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--no-first-run")

COMING: Final = ".htmx-request, [aria-busy=true]"
"""Selector of elements that are still loading."""

QUERY: Final = """SELECT model_name, status, count(*) AS runs, sum(total_tokens) AS tokens, sum(total_cost) AS cost,
       max(run_id) AS latest_run_id
FROM agent_runs
GROUP BY model_name, status
ORDER BY cost DESC"""


@asynccontextmanager
async def demonstration(log: Path) -> AsyncIterator[str]:
    """Start a server with the demo data and return its URL. Its log goes to a file."""
    command = (sys.executable, "-m", "lockstitch", "--json", "serve", "--demo", "--no-work", "--port", "0")
    with log.open("wb") as log_file:
        process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE, stderr=log_file)
    try:
        assert process.stdout is not None
        line = await asyncio.wait_for(process.stdout.readline(), 120)
        if not line:
            raise SystemExit(f"The server did not start:\n{log.read_text()[-2000:]}")
        yield json.loads(line)["url"]
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


async def links(page: Page, url: str) -> dict[str, str]:
    """Return the path of every page by name. Threads and runs are found through links on the pages."""
    found = {
        "threads": "/",
        "stats": "/stats?range=30d",
        "agents": "/agents",
        "workers": "/workers",
        "sql": "/sql?lens=langsmith",
    }
    found |= {"notebooks": "/notebooks", "notebook": "/notebooks/1"}
    await page.goto(url)
    for name, text in (("thread", "Refund"), ("thread-tree", "supplier"), ("thread-doubt", "certificate")):
        if path := await _first(page, f'a[href*="/threads/"]:has-text("{text}")'):
            found[name] = path
    for name in ("thread", "thread-tree"):
        if name in found:
            await page.goto(url + found[name])
            if path := await _first(page, 'a[href*="/run/"]'):
                found[name.replace("thread", "run")] = path
    await page.goto(f"{url}/evals")
    found |= {"evals": "/evals", "datasets": "/evals/datasets"}
    for name, selector in (("eval", 'main a:has-text("#2")'), ("eval-compare", 'a:has-text("Compare with")')):
        if path := await _first(page, selector):
            found[name] = path
            await page.goto(url + path)
    await page.goto(f"{url}/plans")
    found |= {"plans": "/plans", "plan-new": "/plans/new"}
    for name, text, task in (("plan", "checkout", "T3"), ("plan-200", "platform", "K126")):
        if path := await _first(page, f'a[href*="/plans/"]:has-text("{text}")'):
            found[name] = f"{path}?task={task}"
    return found


async def _first(page: Page, selector: str) -> str | None:
    link = page.locator(selector).first
    return await link.get_attribute("href") if await link.count() else None


async def settle(page: Page) -> None:
    """Scroll through the page and back, so that lazy content is loaded."""
    for _ in range(40):
        await page.wait_for_timeout(60)
        below = "document.documentElement.scrollHeight - innerHeight - scrollY > 1"
        if not await page.evaluate(below) and not await page.locator(COMING).count():
            break
        await page.evaluate("scrollBy(0, 500)")
    await expect(page.locator(COMING)).to_have_count(0, timeout=10_000)
    await page.evaluate("scrollTo(0, 0)")


async def ask(page: Page) -> None:
    """Run the query, so that the page shows a result."""
    await page.locator("#query").fill(QUERY)
    await page.keyboard.press("Control+Enter")
    await page.locator("#result table").wait_for()
    await page.keyboard.press("Escape")


async def picture(browser: Browser, url: str, out: Path, only: str) -> int:
    """Take all screenshots. Return their number."""
    context = await browser.new_context()
    pages = await links(await context.new_page(), url)
    await context.close()
    count = 0
    for theme in THEMES:
        for width, size in SIZES.items():
            context = await browser.new_context(viewport=size, color_scheme=theme, reduced_motion="reduce")  # type: ignore[arg-type]
            for name, path in pages.items():
                if only and not name.startswith(only):
                    continue
                page = await context.new_page()
                answer = await page.goto(url + path)
                if answer is None or not answer.ok:
                    raise SystemExit(f"{path} answered {answer.status if answer else 'nothing'}.")
                await settle(page)
                if name == "sql":
                    await ask(page)
                # The bar on a phone is fixed. On a screenshot of the whole page it would be in the middle.
                await page.screenshot(path=out / f"{name}-{theme}-{width}.png", full_page=width == "1280")
                count += 1
                if name == "threads" and width == "1280":
                    await page.keyboard.press("?")
                    await page.screenshot(path=out / f"keys-{theme}-{width}.png")
                    count += 1
                await page.close()
            await context.close()
    return count


async def readme_images(browser: Browser, url: str, out: Path) -> int:
    """Take the screenshots of the README. Return their number."""
    context = await browser.new_context(color_scheme="light", reduced_motion="reduce")
    page = await context.new_page()
    pages = await links(page, url)
    for name, size in README_IMAGES.items():
        await page.set_viewport_size(size)  # type: ignore[arg-type]
        await page.goto(url + pages[name])
        await settle(page)
        await page.screenshot(path=out / f"{name}.png")
    await context.close()
    return len(README_IMAGES)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--readme", action="store_true", help="write the images of the README to docs/images")
    parser.add_argument("--only", default="", help="only pages with this prefix of their name")
    parser.add_argument("--chromium", help="path of the browser")
    options = parser.parse_args()
    out = options.out or Path("docs/images" if options.readme else "build/screenshots")
    out.mkdir(parents=True, exist_ok=True)
    count = asyncio.run(take_all(options.chromium or ensure(), out, options.only, readme=options.readme))
    print(f"{count} screenshots in {out}")


async def take_all(browser_path: str, out: Path, only: str, *, readme: bool) -> int:
    """Start the demo server and the browser. Return the number of screenshots."""
    log = Path("build/screenshots/server.log")
    log.parent.mkdir(parents=True, exist_ok=True)
    async with demonstration(log) as url, async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=browser_path, args=list(FLAGS))
        try:
            return await (readme_images(browser, url, out) if readme else picture(browser, url, out, only))
        finally:
            await browser.close()


if __name__ == "__main__":
    main()
