"""Links that show one run to readers without a token, until they expire."""

import re
from datetime import timedelta
from uuid import uuid4

import pytest
from playwright._impl._api_structures import SetCookieParam
from playwright.async_api import Page, expect

from lockstitch.model import FakeClock, ShareLink
from lockstitch.server import Settings
from lockstitch.server.auth import TOKEN_COOKIE
from lockstitch.server.pages.run.panel import panel_of
from lockstitch.server.pages.run.parts import text_at
from lockstitch.store import Store
from tests.samples import turn
from tests.server.looking import look
from tests.server.pages import runs
from tests.server.serving import caller, serving

pytestmark = pytest.mark.anyio


async def test_shared_run_is_readable_until_its_link_expires(store: Store, page: Page) -> None:
    first, second = (run for run in await runs.two_turns(store) if run.parent_run_id is None)
    _, secret = await store.tokens.create("ada", ["read", "write"])
    settings = Settings(tokens_needed=True)
    async with serving(store, settings=settings) as url, caller(url) as stranger:
        cookie: SetCookieParam = {"name": TOKEN_COOKIE, "value": secret, "url": url}
        await page.context.add_cookies([cookie])
        await page.goto(f"{url}/run/{second.id}")
        await page.get_by_text("Share", exact=True).click()
        menu = page.locator(".drop.shares")
        await menu.get_by_label("Works for").select_option(label="1 day")
        await menu.get_by_role("button", name="Create link").click()
        address = await menu.get_by_label("Link of ada").input_value()
        await menu.get_by_role("button", name="Create link").click()
        await expect(menu.get_by_label("Link of ada")).to_have_count(2)
        await look(page, "run-share")

        # A browser without a token reads the waterfall, each row and its texts, and finds no way to other pages.
        await page.context.clear_cookies()
        await page.goto(address)
        await page.wait_for_selector("#waterfall[data-ready]")
        await page.locator("#rows .wf", has_text="lookup_order").click()
        await expect(page.locator("#panel")).to_contain_text("10482")
        await page.locator("#rows .wf", has_text="list_charges").click()
        await page.get_by_role("tab", name="Result").click()
        more = page.locator("#part-result").get_by_text(re.compile("Show all, "))
        await more.click()
        await expect(more).to_have_count(0)
        hrefs = await page.locator("a[href]").evaluate_all("links => links.map((link) => link.getAttribute('href'))")
        path = address.removeprefix(url)
        outside = [
            href for href in hrefs if href not in ("/", "#main", path) and not href.startswith((f"{path}?", f"{path}/"))
        ]
        assert outside == []
        assert await page.locator("form").count() == 0
        await look(page, "run-shared")

        # Rows of other runs, other pages and other tokens are refused.
        other = await turn(store, await store.create(key="other", agent="helper"), "Secret?", "Secret.")
        for place in (f"run-{first.id}", f"{other.id}.1", "99999", "nonsense"):
            for part in ("panel", "text"):
                assert (await stranger.get(f"{path}/{part}", params={"at": place})).status_code == 404, place
        assert (await stranger.get(path, params={"at": f"{other.id}.1"})).status_code == 404
        assert (await stranger.get(f"/run/{second.id}")).status_code == 401
        assert (await stranger.get(f"/share/{uuid4()}")).status_code == 404
        assert (await stranger.post(f"/run/{second.id}/shares", data={"days": "1"})).status_code == 401

        # One link is revoked, the other one expires.
        token = path.removeprefix("/share/")
        (stored,) = [link for link in await store.table(ShareLink).list() if str(link.token) != token]
        await page.context.add_cookies([cookie])
        await page.goto(f"{url}/run/{second.id}")
        await page.get_by_text("Share", exact=True).click()
        row = page.locator(".drop.shares form", has=page.locator(f"input[value$='{stored.token}']"))
        await row.get_by_role("button", name="Revoke").click()
        await expect(menu.get_by_label("Link of ada")).to_have_count(1)
        assert (await stranger.get(f"/share/{stored.token}")).status_code == 404
        assert [(audit.act, audit.subject) for audit in await store.audits.latest()][:3] == [
            ("unshare run", str(second.id)),
            ("share run", str(second.id)),
            ("share run", str(second.id)),
        ]
    clock = FakeClock(store.clock.now() + timedelta(days=1))
    later = Store(store._backend, clock=clock, project=store.project, migrate=False)
    async with serving(later, settings=settings) as url, caller(url) as stranger:
        answer = await stranger.get(path)
        assert (answer.status_code, "has expired" in answer.text) == (404, True)
        assert (await stranger.get(f"{path}/rows")).status_code == 404
        assert (await stranger.get(f"/public/{token}/run")).status_code == 404


async def test_arguments_of_tools_in_children_are_read_from_their_thread(store: Store) -> None:
    second = next(run for run in reversed(await runs.two_turns(store)) if run.parent_run_id is None)
    (child,) = await store.children("customer-42")
    call = next(stitch for stitch in await store.stitches(child.id) if stitch.type == "tool_call")
    panel = await panel_of(store, second, f"{child.id}.{call.position}")
    (arguments,) = panel.tabs[0].parts
    text = await text_at(store, second, arguments["at"], arguments["of"], arguments["pointer"])
    assert "no fraud" in text
