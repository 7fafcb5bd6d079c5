"""The stats page: figures, charts and tables, panel errors, and the threads of a day."""

import re
from datetime import timedelta
from html import unescape
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest
from playwright.async_api import Page, expect

from lockstitch.engine.alerts import AlertChecker
from lockstitch.errors import Refused, StoreUnreachable
from lockstitch.model import Alert, FakeClock, Thread
from lockstitch.server import Settings
from lockstitch.server.pages.stats import charts
from lockstitch.server.pages.stats.charts import moments, range_of
from lockstitch.store import Store
from tests.server.looking import look, problems
from tests.server.serving import caller, serving
from tests.store.test_thread_list import ended
from tests.store.worlds import NOW, world

pytestmark = pytest.mark.anyio

HOSTILE = "<img src=x onerror=alert(1)>"


@pytest.fixture(params=["sqlite"])
def backend(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(NOW)


@pytest.fixture
async def busy(timed_store: Store) -> Store:
    """Create five days of runs in two projects, with names that contain HTML."""
    records = world(3, trees=40)
    records.threads = [thread.changed(title=f"{HOSTILE} {place}") for place, thread in enumerate(records.threads)]
    records.runs = [run.changed(agent=HOSTILE) if run.agent == "scout" else run for run in records.runs]
    await records.put(timed_store)
    return timed_store


def cells(html: str, table: str) -> dict[str, list[str]]:
    """Return the values of a table by the first cell of each row."""
    body = html.partition(f'id="table-{table}"')[2].partition("</table>")[0]
    rows: dict[str, list[str]] = {}
    for row in re.findall(r"<tr data-at.*?</tr>", body, re.DOTALL):
        label = re.search(r"<a[^>]*>(.*?)</a>", row)
        assert label is not None
        rows[label[1]] = re.findall(r'data-value="(.*?)"', row)
    return rows


@pytest.mark.parametrize("backend", ["files", "sqlite", "postgres"], indirect=True)
async def test_tables_have_the_figures_of_the_store(busy: Store) -> None:
    async with serving(busy) as url, caller(url) as http:
        html = (await http.get("/stats", params={"range": "7d", "whole": "true"})).text
        agents = (await http.get("/stats", params={"range": "7d", "by": "agent", "whole": "true"})).text
    statistics = busy.statistics
    since, until = NOW.replace(hour=0) - timedelta(days=6), NOW.replace(hour=0) + timedelta(days=1)
    only: Any = {"since": since, "until": until}
    days = {row.group[0]: row for row in (await statistics.usage("day", **only)).rows}
    latencies = {row.name: row for row in await statistics.latency("model", "day", **only)}
    total = (await statistics.usage(**only)).total
    for ago in range(7):
        day = (until - timedelta(days=ago + 1)).date()
        figures, latency = days.get(day.isoformat()), latencies.get(day.isoformat())
        label = f"{day:%-d %b}"
        costs = [float(value) for value in cells(html, "cost")[label]]
        assert sum(costs) == pytest.approx(figures.cost or 0 if figures else 0)
        assert sum(map(float, cells(agents, "cost")[label])) == pytest.approx(sum(costs))
        cache, new, output = map(float, cells(html, "tokens")[label])
        assert cache + new == max(figures.input_tokens, figures.cache_read_tokens) if figures else not cache + new
        assert output == (figures.output_tokens if figures else 0)
        (failed,) = map(float, cells(html, "failed")[label])
        assert failed == pytest.approx(figures.failed_runs / figures.runs if figures and figures.runs else 0)
        percentiles = cells(html, "latency")[label]
        assert (
            percentiles == [str(value) for value in (latency.p50_ms, latency.p95_ms, latency.p99_ms)]
            if latency
            else ["", "", ""]
        )
    assert f"{total.runs:,} <small>" in html
    for tool in await statistics.tools(**only):
        assert f"p50 {tool.p50_ms} ms, p95 {tool.p95_ms} ms" in html
        assert f"{100 * tool.error_rate:.1f} %" in html
    assert HOSTILE not in html + agents
    for other_thread in await busy.in_project("elsewhere").threads(limit=None):
        assert str(other_thread.id) not in html


async def test_agent_filters_every_panel_and_stays_in_links(busy: Store) -> None:
    agent = next(row.group[0] for row in (await busy.statistics.usage("agent")).rows if row.group[0])
    span = range_of("7d", "", "", NOW)
    only: Any = {"since": span.since, "until": span.until, "agent": agent}
    async with serving(busy) as url, caller(url) as http:
        for by in ("model", "user", "tag", "version", "agent"):
            html = (await http.get("/stats", params={"range": "7d", "by": by, "agent": agent, "whole": "true"})).text
            days = {row.group[0]: row.cost or 0 for row in (await busy.statistics.usage("day", **only)).rows}
            shown = sum(sum(map(float, cells(html, "cost")[f"{moments(day)[0]:%-d %b}"])) for day in span.spans)
            assert by == "tag" or shown == pytest.approx(sum(days.values()))
            links = re.findall(r'href="(/stats\?[^"]*|/stats/threads/[^"]*)"', html)
            assert len(links) > 10
            assert all(dict(parse_qsl(urlsplit(unescape(link)).query))["agent"] == agent for link in links), by
        total = (await busy.statistics.usage(**only)).total
        assert f"{total.runs:,} <small>" in html
        none = (await http.get("/stats", params={"agent": "missing", "whole": "true"})).text
        assert "<dd>0 <small>0 completed" in none


async def test_range_limits_the_figures() -> None:
    day = range_of("24h", "", "", NOW + timedelta(minutes=5))
    assert (len(day.spans), day.spans[-1], day.per) == (24, "2026-03-10T12", "hour")
    month = range_of("30d", "", "", NOW)
    assert (month.spans[0], month.spans[-1], len(month.spans)) == ("2026-02-09", "2026-03-10", 30)
    assert (month.before.spans[-1], len(month.before.spans)) == ("2026-02-08", 30)
    custom = range_of("custom", "2026-03-01", "2026-03-03", NOW)
    assert custom.spans == ["2026-03-01", "2026-03-02", "2026-03-03"]
    assert range_of("custom", "2026-03-03", "2026-03-03", NOW).per == "hour"
    for wrong in (
        ("week", "", ""),
        ("custom", "2026-03-04", "2026-03-03"),
        ("custom", "x", ""),
        ("custom", "0001-01-01", ""),
    ):
        with pytest.raises(Refused):
            range_of(*wrong, NOW)
    assert [charts.compact(number) for number in (0, 9_999, 10_000, 1_280_000, 1.28e9)] == [
        *("0", "9,999", "10.0 k", "1.28 M", "1.28 bn")
    ]


async def test_invalid_parameters_are_rejected(busy: Store) -> None:
    async with serving(busy) as url, caller(url) as http:
        for path in (
            "/stats?range=week",
            "/stats?by=status",
            "/stats?range=custom&since=nonsense",
            "/stats/threads/nonsense",
        ):
            assert (await http.get(path)).status_code == 422, path
        assert (await http.get("/stats/panel/nonsense")).status_code == 404
    _, secret = await busy.tokens.create("reader", ["read"])
    headers = {"Authorization": f"Bearer {secret}"}
    guarded = serving(busy, settings=Settings(tokens_needed=True))
    async with guarded as url, caller(url, headers=headers) as http:
        assert (await http.get("/stats")).status_code == 200
        assert (await http.get("/stats?by=project")).status_code == 422
        assert "by=project" not in (await http.get("/stats")).text


async def test_failing_panel_does_not_affect_other_panels(
    busy: Store, page: Page, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def away(*_: object, **__: object) -> None:
        raise StoreUnreachable("The store is away.")

    monkeypatch.setattr(type(busy.statistics), "latency", away)
    async with serving(busy) as url:
        await page.goto(f"{url}/stats?range=7d")
        await expect(page.locator("#panel-latency .note")).to_contain_text("The store is away.")
        await expect(page.locator("#panel-cost canvas")).to_be_visible()
        monkeypatch.undo()
        await page.get_by_role("button", name="Try again").click()
        await expect(page.locator("#panel-latency canvas")).to_be_visible()


async def test_charts_work_in_a_browser(busy: Store, page: Page) -> None:
    """Charts are drawn and redrawn in dark mode, and a day lists its threads, with mouse and keyboard."""
    async with serving(busy) as url:
        await page.goto(f"{url}/stats?range=7d")
        for name in ("cost", "tokens", "latency", "failed"):
            await page.evaluate("id => document.getElementById(id).scrollIntoView()", f"panel-{name}")
            await expect(page.locator(f"#panel-{name} canvas")).to_be_visible()
        await page.evaluate("document.getElementById('panel-dearest').scrollIntoView()")
        await expect(page.locator("#panel-dearest td").first).to_contain_text(HOSTILE)
        assert await page.locator("#main img").count() == 0
        light = await page.evaluate(_COLOURS, "#panel-cost canvas")
        assert len(light) > 3
        await look(page, "stats")
        await page.evaluate("scrollTo(0, 0)")
        await page.keyboard.press("t")
        await expect(page.locator("#panel-cost [data-plot]")).to_have_attribute("data-drawn", "dark")
        dark = await page.evaluate(_COLOURS, "#panel-cost canvas")
        ramp = await page.evaluate("getComputedStyle(document.querySelector('.swatch.c-m1')).backgroundColor")
        assert ramp in dark
        assert ramp not in light

        plot = page.locator("#panel-cost [data-plot]")
        await plot.focus()
        await page.keyboard.press("End")
        await expect(plot.locator(".tip")).to_contain_text("10 Mar")
        line, tip = (
            await page.locator("#panel-cost .u-cursor-x").bounding_box(),
            await plot.locator(".tip").bounding_box(),
        )
        assert line is not None
        assert tip is not None
        assert 0 <= line["x"] - (tip["x"] + tip["width"]) < 30, "the tooltip ends beside the cursor"
        crosshair = page.locator("#panel-tokens .u-cursor-x")
        assert await crosshair.evaluate("line => line.style.transform !== '' || line.getBoundingClientRect().x > 0")
        await page.keyboard.press("Enter")
        table = page.locator("#span-threads")
        await expect(table).to_contain_text("Threads of 10 March 2026")
        expected = await busy.statistics.usage("tree", since=NOW.replace(hour=0), until=NOW + timedelta(days=1))
        await expect(table.locator("tbody tr")).to_have_count(len(expected.rows))
        heads: dict[str, Thread] = {str(thread.id): thread for thread in await busy.threads(limit=None)}
        first = heads[str(expected.rows[0].group[0])]
        await expect(table.locator("tbody tr a").first).to_have_text(str(first.title))
        await page.keyboard.press("?")
        sheet = page.locator("#keys")
        for group in ("Anywhere", "Stats", "Threads page", "Thread page", "Run page", "SQL page"):
            await expect(sheet.get_by_role("heading", name=group, exact=True)).to_be_visible()
        assert await problems(page, "#keys") == []
        await page.keyboard.press("Escape")
        await page.get_by_text("Custom…").click()
        await page.keyboard.press("Escape")
        await expect(page.locator(".menu > .pop").first).to_be_hidden()
        await page.get_by_role("link", name="Agent", exact=True).click()
        await page.wait_for_url("**by=agent")
        await expect(page.locator("#panel-cost canvas")).to_be_visible()


async def test_tables_are_shown_without_javascript(busy: Store, browser: Any) -> None:
    context = await browser.new_context(java_script_enabled=False)
    page = await context.new_page()
    async with serving(busy) as url:
        await page.goto(f"{url}/stats?range=7d")
        await page.wait_for_url("**whole=true")
        await expect(page.locator("#table-cost tbody tr")).to_have_count(7)
        await expect(page.locator("#table-cost")).to_be_visible()
    await context.close()


_COLOURS = """selector => {
  const canvas = document.querySelector(selector), drawn = canvas.getContext("2d");
  const { data } = drawn.getImageData(0, 0, canvas.width, canvas.height);
  const found = new Map();
  for (let at = 0; at < data.length; at += 4) {
    if (data[at + 3] < 255) continue;
    const colour = `rgb(${data[at]}, ${data[at + 1]}, ${data[at + 2]})`;
    found.set(colour, (found.get(colour) || 0) + 1);
  }
  return [...found].filter(([, count]) => count > 20).map(([colour]) => colour);
}"""


async def test_alerts_are_set_and_shown(store: Store, page: Page) -> None:
    head = await store.create(key="k", agent="helper")
    await ended(store, head, 1, total_cost=3.5)
    async with serving(store) as url:
        await page.goto(f"{url}/stats")
        section = page.locator("#alerts")
        await section.get_by_text("New alert").click()
        await section.get_by_label("Name").fill(HOSTILE)
        await section.get_by_label("Above").fill("2")
        await section.get_by_label("Webhook").fill("https://hooks.example.com/secret")
        await section.get_by_role("button", name="Save").click()
        row = section.get_by_role("row", name=HOSTILE)
        await expect(row).to_contain_text("not checked")
        await expect(section).not_to_contain_text("secret")
        checker = AlertChecker(store)
        await store.table(Alert).put((await store.table(Alert).get("default", HOSTILE)).changed(webhook=None))
        await checker.check_due()
        await page.reload()
        await expect(row).to_contain_text("firing")
        note = page.get_by_role("alert").filter(has_text="the cost in 60 minutes is above $2.00")
        await expect(note).to_contain_text(f"{HOSTILE}: $3.50")
        await look(page, "stats-alerts")
        await row.get_by_role("button", name="Remove").click()
        await expect(section).to_contain_text("No alerts.")
    assert [audit.act for audit in await store.audits.latest()][:2] == ["delete alert", "set alert"]


async def test_most_expensive_threads_have_a_cost(store: Store) -> None:
    for number, cost in enumerate((None, 0.0, 0.25)):
        head = await store.create(key=f"k{number}", agent="helper", title=f"Thread {number}")
        await ended(store, head, 1, total_cost=cost)
    async with serving(store) as url, caller(url) as http:
        panel = (await http.get("/stats/panel/dearest", headers={"HX-Request": "true"})).text
    assert re.findall(r"Thread \d", panel) == ["Thread 2"]
