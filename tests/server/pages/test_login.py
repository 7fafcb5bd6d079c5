"""Login and logout. All invalid tokens get the same response."""

import re

import httpx2
import pytest
from fastapi import FastAPI
from playwright.async_api import Page, expect

from lockstitch.server import Settings, create_app, router
from lockstitch.server.auth import TOKEN_COOKIE
from lockstitch.server.pages.login import inside
from lockstitch.store import Store
from tests.server.looking import look
from tests.server.serving import caller, serving

pytestmark = pytest.mark.anyio

GUARDED = Settings(tokens_needed=True)


@pytest.fixture(params=["sqlite"])
def backend(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.mark.parametrize(
    "path",
    [
        *("https://evil.example/", "//evil.example/", "/\\evil.example", "\\\\evil.example", "javascript:alert(1)"),
        *("evil.example", "", "/login?next=/", "/logout", "/a\nb", "/\t/evil.example", "http:evil.example", "///evil"),
    ],
)
def test_login_does_not_redirect_to_another_site(path: str) -> None:
    assert inside(path) == "/"


def test_login_redirects_to_the_requested_path() -> None:
    assert inside("/threads/x?tab=todo&next=//a") == "/threads/x?tab=todo&next=//a"


async def test_browser_without_token_is_redirected_to_the_login(store: Store) -> None:
    _, secret = await store.tokens.create("ada", ["read"])
    async with serving(store, settings=GUARDED) as url, caller(url) as http:
        people = {"Accept": "text/html"}
        response = await http.get("/stats?range=7d", headers=people)
        assert (response.status_code, response.headers["location"]) == (303, "/login?next=%2Fstats%3Frange%3D7d")
        htmx = {"HX-Request": "true", "HX-Current-URL": f"{url}/stats?by=agent"}
        part = await http.get("/stats/panel/cost", headers=htmx)
        assert (part.status_code, part.headers["hx-redirect"]) == (401, "/login?next=%2Fstats%3Fby%3Dagent")
        for path in ("/api/threads/x", "/stats"):
            assert (await http.get(path)).status_code == 401
        assert (await http.get("/api/threads/x", headers=people)).status_code == 401

        page = await http.get("/login", params={"next": "https://evil.example"}, headers=people)
        assert 'name="next" value="/"' in page.text
        form = {"csrf": http.cookies["lockstitch_csrf"], "next": "/stats"}
        _, revoked = await store.tokens.create("bob", ["read"])
        await store.tokens.revoke("bob")
        messages = set()
        for wrong in ("", "lst_nonsense", revoked, "\ud800", secret[:-1]):
            refused = await http.post("/login", data={**form, "token": wrong.encode("utf-8", "replace").decode()})
            assert refused.status_code == 401
            assert TOKEN_COOKIE not in http.cookies
            messages.add(re.sub(r"lockstitch_csrf|\s+", " ", refused.text))
        assert len(messages) == 1
        assert (await http.post("/login", data={"token": secret})).status_code == 403
        entered = await http.post("/login", data={**form, "token": f" {secret}\n", "next": "//evil.example"})
        assert (entered.status_code, entered.headers["location"]) == (303, "/")
        cookie = entered.headers["set-cookie"]
        assert "HttpOnly" in cookie
        assert "SameSite=strict" in cookie
        assert "Secure" not in cookie
        assert (await http.get("/stats", headers=people)).status_code == 200
        assert [(audit.actor, audit.act) for audit in await store.audits.latest()] == [("ada", "login")]


async def test_cookie_is_secure_behind_https(store: Store) -> None:
    _, secret = await store.tokens.create("ada", ["read"])
    transport = httpx2.ASGITransport(create_app(store, settings=GUARDED))
    async with httpx2.AsyncClient(transport=transport, base_url="https://localhost") as http:
        await http.get("/login", headers={"Accept": "text/html"})
        answer = await http.post("/login", data={"csrf": http.cookies["lockstitch_csrf"], "token": secret})
        assert "Secure" in answer.headers["set-cookie"]


async def test_login_works_below_a_prefix(store: Store) -> None:
    """The login and all pages are below the prefix."""
    _, secret = await store.tokens.create("ada", ["read"])
    outer = FastAPI()
    outer.include_router(router(store, settings=GUARDED), prefix="/agents")
    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(outer), base_url="http://localhost") as http:
        people = {"Accept": "text/html"}
        response = await http.get("/agents/stats?by=agent", headers=people)
        assert response.headers["location"] == "/agents/login?next=%2Fstats%3Fby%3Dagent"
        page = await http.get(response.headers["location"], headers=people)
        assert 'action="/agents/login"' in page.text
        form = {"csrf": http.cookies["lockstitch_csrf"], "token": secret, "next": "/stats?by=agent"}
        entered = await http.post("/agents/login", data=form)
        assert entered.headers["location"] == "/agents/stats?by=agent"
        assert "Path=/agents/;" in entered.headers["set-cookie"]
        assert (await http.get(entered.headers["location"], headers=people)).status_code == 200


async def test_login_redirects_when_no_token_is_required(http: httpx2.AsyncClient) -> None:
    answer = await http.get("/login", params={"next": "/stats"})
    assert (answer.status_code, answer.headers["location"]) == (303, "/stats")


async def test_user_logs_in_and_out(store: Store, page: Page) -> None:
    _, secret = await store.tokens.create("<b>ada</b>", ["read", "write"])
    async with serving(store, settings=GUARDED) as url:
        await page.goto(f"{url}/workers")
        await page.wait_for_url("**/login?next=%2Fworkers")
        await look(page, "login")
        await page.get_by_label("Token").fill(secret)
        await page.keyboard.press("Enter")
        await page.wait_for_url(f"{url}/workers")
        await expect(page.get_by_text("<b>ada</b>")).to_be_visible()
        assert await page.evaluate("document.cookie.includes('lst_')") is False
        assert await page.get_by_role("heading", name="Tokens").count() == 0
        await page.get_by_role("button", name="Log out").click()
        await page.wait_for_url(f"{url}/login")
        await page.goto(f"{url}/workers")
        await page.wait_for_url("**/login?next=%2Fworkers")
