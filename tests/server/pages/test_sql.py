"""The SQL page: all lenses on both databases, positions of errors, and the admin scope."""

import re
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import httpx2
import pytest
from playwright.async_api import Page, expect

from lockstitch.lenses import catalog
from lockstitch.model import short_id
from lockstitch.server import Settings
from lockstitch.server.pages.sql.result import explain_query_error
from lockstitch.server.pages.sql.routes import LENSES
from lockstitch.server.pages.sql.schema import RECORD, examples, read_schema
from lockstitch.store import Store
from tests.samples import turn
from tests.server.looking import look
from tests.server.serving import caller, serving

pytestmark = pytest.mark.anyio

DOCS = Path(__file__).parents[3] / "docs" / "reference" / "lenses"
HOSTILE = "<img src=x onerror=alert(1)>'\"--"


@pytest.fixture(params=["sqlite"])
def backend(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
async def talked(store: Store) -> Store:
    """Create a chat with three turns."""
    head = await store.create(key="customer-42", agent="helper", title=HOSTILE)
    for number in range(3):
        head = await turn(store, head, f"Where is parcel {number}?", "In Graz.", model="large-1", total_cost=0.25)
    return store


@pytest.mark.parametrize("lens", catalog.NAMES)
def test_examples_are_those_of_the_documentation(lens: str) -> None:
    text = (DOCS / f"{lens}.md").read_text()
    for dialect in ("sqlite", "postgres"):
        lens_examples = examples(lens, dialect)
        assert len(lens_examples) == len(re.findall("^### ", text.partition("## Queries")[2], re.MULTILINE))
        for example in lens_examples:
            section = text.partition(f"### {example.title}\n")[2]
            assert f"```sql {dialect}\n{example.sql}```" in section, example.title


@pytest.mark.parametrize("backend", ["sqlite", "postgres"], indirect=True)
async def test_every_example_returns_rows(talked: Store, http: httpx2.AsyncClient) -> None:
    for lens in LENSES:
        schema = await read_schema(talked, lens)
        assert list(schema.tables)[: len(catalog.tables(lens)) if lens != RECORD else 3] == (
            ["threads", "runs", "stitches"] if lens == RECORD else catalog.tables(lens)
        )
        assert all(columns for columns in schema.tables.values())
        for number, example in enumerate(examples(lens, schema.dialect)):
            page = await http.get("/sql", params={"lens": lens, "example": str(number)})
            assert page.status_code == 200
            match = re.search(r"<textarea[^>]*>(.*?)</textarea>", page.text, re.DOTALL)
            assert match is not None
            query = (
                match[1].replace("&#39;", "'").replace("&gt;", ">").replace("&lt;", "<").replace("&#34;", '"').strip()
            )
            assert not re.search(r"(?<!:):[a-z]", query), query
            token = http.cookies["lockstitch_csrf"]
            answer = await http.post(
                "/sql", data={"csrf": token, "lens": lens, "q": query}, headers={"HX-Request": "true"}
            )
            assert answer.status_code == 200
            assert " row" in answer.text, (lens, example.title, answer.text)
        plan = await http.post("/sql", data={"csrf": token, "lens": lens, "q": query, "act": "explain"})
        assert plan.status_code == 200, lens
    audits = await talked.audits.latest(1000)
    assert {audit.subject for audit in audits} == {"record", *catalog.NAMES}
    assert all(audit.actor == "local" and audit.act == "sql" and audit.data["query"] for audit in audits)


@pytest.mark.req("S2-057")
@pytest.mark.parametrize("backend", ["sqlite", "postgres"], indirect=True)
async def test_errors_show_their_position(talked: Store, http: httpx2.AsyncClient) -> None:
    await http.get("/sql")
    token = http.cookies["lockstitch_csrf"]

    async def query_page(query: str, lens: str = "langsmith") -> str:
        answer = await http.post("/sql", data={"csrf": token, "lens": lens, "q": query})
        assert answer.status_code == 422
        return answer.text

    wrong = await query_page("-- model\nSELECT 'model',\n       model\nFROM agent_runs")
    assert "Line 3, column 8." in wrong
    assert "<code>model_name</code>" in wrong
    assert "SELECT+%27model%27%2C%0A+++++++model_name%0AFROM" in wrong
    assert "<code>tool_calls</code>" in await query_page("SELECT * FROM tool_cals")
    assert "Line 1, column 10." in await query_page("SELECT * FORM agent_runs")
    assert "Only reading" in await query_page("DELETE FROM threads", RECORD)
    assert "The query is empty" in await query_page("  ")
    assert len(await talked.threads()) == 1
    strict = serving(talked, settings=Settings(sql_rows=2, sql_seconds=0.2))
    async with strict as url, caller(url) as few:
        assert "0.2 s, 2 rows" in (await few.get("/sql")).text
        form = {"csrf": few.cookies["lockstitch_csrf"], "lens": RECORD}
        assert "First 2 rows" in (await few.post("/sql", data={**form, "q": "SELECT id FROM runs"})).text
        endless = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT max(i) FROM n"
        assert "took longer than 0.2 s" in (await few.post("/sql", data={**form, "q": endless})).text


def test_error_position_is_found_in_the_query() -> None:
    tables = {"agent_runs": ["run_id", "model_name"], "tool_calls": ["tool_name"]}
    error = explain_query_error(
        "PostgreSQL refused the query: column r.modelname does not exist.",
        "SELECT\n r.modelname\nFROM agent_runs r",
        tables,
    )
    assert (error.message, error.line, error.column, error.meant) == (
        "column r.modelname does not exist",
        2,
        4,
        "model_name",
    )
    assert error.mended == "SELECT\n r.model_name\nFROM agent_runs r"
    near = explain_query_error('SQLite refused the query: near "FORM": syntax error.', "SELECT *\nFORM x", tables)
    assert (near.line, near.column, near.meant) == (2, 1, "")
    assert explain_query_error("The query took longer than 5 s and was stopped.", "SELECT 1", tables).line == 0


async def test_result_is_downloaded_in_every_format(talked: Store, http: httpx2.AsyncClient) -> None:
    await http.get("/sql")
    form = {"csrf": http.cookies["lockstitch_csrf"], "lens": RECORD}
    query = "SELECT title, 9223372036854775807 AS big, NULL AS none, 9e999 AS much FROM threads"
    files = {
        form_: await http.post("/sql/download", data={**form, "q": query, "as": form_})
        for form_ in ("csv", "json", "markdown")
    }
    assert (
        files["csv"].text
        == f'title,big,none,much\n"{HOSTILE.replace(chr(34), chr(34) * 2)}",9223372036854775807,,inf\n'
    )
    assert files["json"].json() == [{"title": HOSTILE, "big": 9223372036854775807, "none": None, "much": "inf"}]
    assert files["markdown"].text.startswith("| title | big | none | much |\n| --- | ---: | --- | ---: |\n| <img")
    assert files["csv"].headers["content-disposition"] == 'attachment; filename="lockstitch.csv"'
    assert files["csv"].headers["content-type"].startswith("text/csv")
    refused = await http.post("/sql/download", data={**form, "q": "SELECT nothing", "as": "csv"})
    assert refused.status_code == 422
    assert (await http.post("/sql", data={"q": "SELECT 1"})).status_code == 403


async def test_sql_page_requires_the_admin_scope(talked: Store) -> None:
    _, secret = await talked.tokens.create("reader", ["read", "write"])
    async with serving(talked, settings=Settings(tokens_needed=True)) as url:
        headers = {"Authorization": f"Bearer {secret}", "Accept": "text/html"}
        async with caller(url, headers=headers) as http:
            page = await http.get("/sql")
            assert page.status_code == 403
            assert "needs admin" in page.text
            home = await http.get("/")
            assert 'href="/sql"' not in home.text
            token = http.cookies["lockstitch_csrf"]
            for path in ("/sql", "/sql/download"):
                answer = await http.post(path, data={"csrf": token, "q": "SELECT 1", "as": "csv"})
                assert answer.status_code == 403
    assert await talked.audits.latest() == []


async def test_id_redirects_to_its_page(talked: Store, http: httpx2.AsyncClient) -> None:
    (head,) = await talked.threads()
    run = (await talked.runs(head))[0]
    stitch = (await talked.stitches(head))[1]
    elsewhere = await talked.in_project("elsewhere").create()
    for ref, path in (
        (head.id, f"/threads/{head.id}"),
        (run.id, f"/run/{run.id}"),
        (stitch.id, f"/threads/{head.id}#p{stitch.position}"),
    ):
        answer = await http.get(f"/go/{ref}")
        assert (answer.status_code, answer.headers["location"]) == (303, path)
    for ref in (elsewhere.id, "nonsense", "0"):
        assert (await http.get(f"/go/{ref}")).status_code == 404


async def test_sql_page_works_in_a_browser(talked: Store, url: str, page: Page) -> None:
    """Choose a lens and an example, run it with the keyboard, sort, fix an error, use the history."""
    await page.goto(f"{url}/sql")
    await page.get_by_role("radio", name="langsmith").check()
    await page.wait_for_url("**/sql?lens=langsmith")
    await page.get_by_role("link", name="Runs, newest first").click()
    field = page.get_by_label("SQL", exact=True)
    await expect(page.locator(".editor pre b")).to_have_text(["SELECT", "FROM", "ORDER", "BY", "DESC", "LIMIT"])
    assert "FROM agent_runs" in await field.input_value()
    await field.focus()
    await page.keyboard.press("Control+Enter")
    rows = page.locator("#result tbody tr")
    await expect(rows).to_have_count(3)
    await look(page, "sql", ignore=())

    await field.fill(f"SELECT 10 AS n, '{HOSTILE.replace(chr(39), chr(39) * 2)}' AS said UNION ALL SELECT 9, NULL")
    await page.keyboard.press("Control+Enter")
    await expect(rows).to_have_count(2)
    assert parse_qs(urlsplit(page.url).query) == {"lens": ["langsmith"], "q": [await field.input_value()]}
    await expect(page.get_by_role("cell", name=HOSTILE)).to_have_count(1)
    assert await page.locator("#result img").count() == 0
    assert await page.locator(".editor pre img").count() == 0
    header = page.locator("#result th").first
    await header.get_by_role("button").click()
    await expect(header).to_have_attribute("aria-sort", "ascending")
    assert await rows.locator("td:first-child").all_inner_texts() == ["9", "10"]
    await header.get_by_role("button").click()
    await expect(rows.locator("td:first-child")).to_have_text(["10", "9"])

    await field.fill("SELECT model FROM agent_runs")
    await page.keyboard.press("Control+Enter")
    await page.get_by_role("link", name="Replace").click()
    await expect(rows).to_have_count(3)
    await expect(field).to_have_value("SELECT model_name FROM agent_runs")

    await field.focus()
    await page.keyboard.press("Escape")
    await page.keyboard.press("j")
    await page.keyboard.press("j")
    await expect(rows.nth(1)).to_be_focused()
    await page.locator("#history summary").click()
    await expect(page.locator("#history li")).to_have_count(4)
    await page.locator("#history li").nth(2).get_by_role("button").click()
    assert HOSTILE.replace("'", "''") in await field.input_value()

    await field.fill("SELECT thread_id FROM agent_runs LIMIT 1")
    await page.keyboard.press("Control+Enter")
    (head,) = await talked.threads()
    link = page.get_by_role("link", name=short_id(head.id))
    await expect(link).to_have_attribute("href", f"/go/{head.id}")
