"""An application adds agents, a page, a route, a section and files to servers of its app only."""

import re
from typing import Any

import pytest
import uvicorn
from fastapi import APIRouter, FastAPI
from playwright.async_api import Page, expect

from lockstitch.agents import Agent, App
from lockstitch.errors import NotFound, Refused
from lockstitch.server import NavLink, ServerExtension, Settings, create_app, router
from lockstitch.server.extensions import server_extensions_of
from lockstitch.store import Store
from tests.server.larder import Larder
from tests.server.serving import caller, listening, serving

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["sqlite"])
def backend(request: pytest.FixtureRequest) -> str:
    return request.param


async def test_extension_is_served_only_by_servers_of_its_app(store: Store) -> None:
    larder = Larder(3)
    app = App(plugins=[larder])
    assert app.agent("cook").name == "cook"
    assert app.plugin(Larder) is larder
    async with (
        serving(store, app, Settings(work=False)) as url,
        serving(store) as other_url,
        serving(store, App(plugins=[Larder(40)]), Settings(work=False)) as third,
        caller("", headers={"Accept": "text/html"}) as http,
    ):
        assert larder.stores == [store]
        html = (await http.get(f"{url}/larder")).text
        assert "<h1>3 jars</h1>" in html
        assert 'data-key="l" aria-current="page">Larder</a>' in html
        assert [*re.findall(r'data-key="(.)"', html)] == ["t", "s", "a", "e", "q", "c", "l", "w"]
        assert (await http.get(f"{url}/api/larder")).json() == {"jars": 3, "project": "default"}
        assert "/api/larder" in (await http.get(f"{url}/api/openapi.json")).json()["paths"]
        (script,) = re.findall(r'src="(/static/larder/[^"]+)"', html)
        script_response = await http.get(url + script)
        assert script_response.status_code == 200
        assert "immutable" in script_response.headers["cache-control"]
        assert (await http.get(f"{url}/static/keys.js")).status_code == 200, "ours are still where they were"

        assert "Larder" not in (await http.get(f"{other_url}/")).text
        for path in ("/larder", "/api/larder", script):
            assert (await http.get(other_url + path)).status_code == 404, path
        assert "<h1>40 jars</h1>" in (await http.get(f"{third}/larder")).text


async def test_extension_works_below_a_prefix_in_a_browser(store: Store, page: Page) -> None:
    larder = Larder()
    outer = FastAPI()
    outer.include_router(router(store, App(plugins=[larder]), Settings(work=False)), prefix="/agents")
    async with listening(uvicorn.Config(outer, log_config=None, lifespan="on")) as url:
        assert larder.stores == [store]
        await page.goto(f"{url}/agents/")
        await page.keyboard.press("g")
        await page.keyboard.press("l")
        await page.wait_for_url(f"{url}/agents/larder")
        await page.keyboard.press("z")
        await expect(page.locator("body")).to_have_attribute("data-pressed", "z")
        await page.get_by_role("textbox", name="Jars").fill("2")
        await page.get_by_role("button", name="Add").click()
        await expect(page.get_by_role("heading", name="2 jars")).to_be_visible()
        await expect(page.get_by_role("status")).to_contain_text("local added 2.")
        assert page.url == f"{url}/agents/larder"


async def test_extension_form_requires_csrf_token_and_scope(store: Store) -> None:
    larder = Larder()
    _, secret = await store.tokens.create("looker", ["ingest"])
    app = App(plugins=[larder])
    async with serving(store, app, Settings(work=False)) as url, caller("") as http:
        assert (await http.post(f"{url}/larder", data={"jars": "2"})).status_code == 403
    async with serving(store, app, Settings(work=False, tokens_needed=True)) as url, caller("") as http:
        assert (await http.get(f"{url}/api/larder")).status_code == 401
        response = await http.get(f"{url}/api/larder", headers={"Authorization": f"Bearer {secret}"})
        assert response.status_code == 403
    assert larder.jars == 0


class Odd(Larder):
    """An application with an invalid extension."""

    def __init__(self, name: str = "larder", **extension: Any) -> None:
        super().__init__()
        self.name = name
        self._extension = ServerExtension(**extension)

    @property
    def server_extension(self) -> ServerExtension:
        return self._extension


async def test_conflicting_extension_is_rejected(store: Store) -> None:
    loose = APIRouter()
    loose.get("/jars")(lambda: None)
    for odd, message in (
        (Odd("threads"), "name 'threads' is not valid or is used by the server"),
        (Odd("../static"), "is not valid or is used by the server"),
        (Odd(sections=[NavLink("Larder", "/larder", "t")]), "the shortcut key g t"),
        (Odd(sections=[NavLink("Stats", "/larder", "l")]), "a section named as one of"),
        (Odd(api=[loose]), "API route /jars of the application larder"),
    ):
        with pytest.raises(Refused, match=re.escape(message)):
            create_app(store, App(plugins=[odd]))


async def test_names_of_extensions_are_unique() -> None:
    with pytest.raises(Refused, match="Two plugins of this app have the name larder"):
        App(plugins=[Larder(), Larder()])
    with pytest.raises(Refused, match="Two agents of this app have the name cook"):
        App([Agent("cook", model="scripted:Done.")], plugins=[Larder()])
    with pytest.raises(NotFound, match="Plugin Larder not found"):
        App().plugin(Larder)


@pytest.mark.parametrize(
    ("extension", "reason"),
    [
        ("nonsense", "Use module:NAME"),
        (":EXTENSION", "Use module:NAME"),
        ("no.such.module:EXTENSION", "The module no.such.module of the application larder cannot be imported"),
        ("tests.server.larder:NOTHING", "which is not a ServerExtension"),
        ("tests.server.larder:programs", "which is not a ServerExtension"),
    ],
)
def test_extension_is_rejected_when_it_cannot_be_loaded(extension: str, reason: str) -> None:
    larder = Larder()
    larder.server_extension = extension
    with pytest.raises(Refused, match=re.escape(reason)):
        server_extensions_of(App(plugins=[larder]))
