"""The pages of workers and of schedules, without data of other projects."""

from datetime import timedelta
from uuid import uuid4

import httpx2
import pytest
from playwright.async_api import Page, expect

from lockstitch.model import Limit, Worker, format_time, new_id
from lockstitch.model.side_records import IngestBody
from lockstitch.server import Settings
from lockstitch.store import Store
from tests.server.looking import look
from tests.server.serving import caller, serving

pytestmark = pytest.mark.anyio

HOSTILE = "<script>alert(1)</script>"


@pytest.fixture(params=["sqlite"])
def backend(request: pytest.FixtureRequest) -> str:
    return request.param


async def crowd(store: Store) -> dict[str, Worker]:
    """Create a busy, an idle, a silent and a dead worker, and queued threads."""
    now = store.clock.now()
    acts, idle = (
        Worker(host="loom-1", pid=11, started_at=now, beat_at=now),
        Worker(host="loom-2", pid=22, started_at=now, beat_at=now),
    )
    ago = now - timedelta(minutes=5)
    silent = Worker(host="loom-3", pid=33, started_at=ago, beat_at=ago)
    dead = Worker(host="loom-4", pid=44, started_at=ago, beat_at=ago, dead=True)
    old = Worker(host="loom-5", pid=55, started_at=ago, beat_at=now - timedelta(hours=2), dead=True)
    held = new_id()
    doing = {str(held): {"act": f"model {HOSTILE}", "since": format_time(ago)}}
    await store._backend.put([acts.changed(doing=doing), idle, silent, dead, old])
    common = {"kind": "goal", "goal": "go", "worker_id": acts.id, "fence": 1, "status": "running"}
    await store._create({**common, "id": held, "agent": "weaver", "title": f"Held {HOSTILE}"})
    hidden = {**common, "agent": "secret-agent", "title": "Not for others"}
    await store.in_project("elsewhere")._create(hidden)
    for number in range(3):
        await store.create(agent="weaver", kind="goal", goal=f"Wait {number}", status="pending")
    await store.in_project("elsewhere").create(agent="secret-agent", kind="goal", goal="Hidden", status="pending")
    later = now + timedelta(hours=2)
    await store.create(agent="weaver", title="Later", status="waiting", wake_at=later, waiting_for=[])
    await store._backend.put([Limit(name="few weavers", at_most=2, agents=["weaver"])])
    body = IngestBody(source="langsmith", body=b"\x00odd", parsed=True, problem=f"No JSON {HOSTILE}", at=ago)
    await store._backend.put([body, body.changed(id=uuid4(), project="elsewhere", problem="Not for others")])
    return {"acts": acts, "idle": idle, "silent": silent, "dead": dead}


@pytest.mark.parametrize("backend", ["files", "sqlite", "postgres"], indirect=True)
async def test_page_shows_workers_queue_and_quarantine(store: Store, http: httpx2.AsyncClient) -> None:
    await crowd(store)
    html = (await http.get("/workers")).text
    for word in ("loom-1", "loom-2", "loom-3", "loom-4", "busy", "idle", "silent", "dead", "few weavers", "No JSON"):
        assert word in html
    for word in ("loom-5", "Not for others", "secret-agent", "Hidden", HOSTILE):
        assert word not in html
    measured = (await http.get("/workers/store")).text
    assert "Schema version" in measured
    assert "On disk" in measured


async def test_limits_tokens_and_audit_log_require_the_admin_scope(store: Store) -> None:
    await crowd(store)
    await store.tokens.create("maker", ["admin"])
    _, secret = await store.tokens.create("reader", ["read"])
    await store.audits.record("ada", "sql", "lockstitch", query="SELECT 1")
    async with serving(store, settings=Settings(tokens_needed=True)) as url:
        headers = {"Authorization": f"Bearer {secret}", "Accept": "text/html"}
        async with caller(url, headers=headers) as http:
            html = (await http.get("/workers")).text
            assert "loom-1" in html
            for word in ("maker", "SELECT 1", "few weavers", "No JSON"):
                assert word not in html
            assert (await http.get("/workers/store")).status_code == 403


async def test_workers_page_works_in_a_browser(store: Store, url: str, page: Page) -> None:
    workers = await crowd(store)
    await store.tokens.create("<i>robot</i>", ["ingest"])
    await page.goto(f"{url}/workers")
    row = page.locator(f'[data-row="{workers["acts"].id}"]')
    await expect(row.get_by_role("link", name=f"Held {HOSTILE}")).to_be_visible()
    await expect(row).to_contain_text(f"model {HOSTILE}, 5 m")
    await expect(row).to_contain_text("1 thread in other projects")
    await expect(page.get_by_text("<i>robot</i>")).to_be_visible()
    await expect(page.get_by_role("row", name="weaver 3")).to_be_visible()
    await page.get_by_role("link", name="Measure").click()
    await expect(page.locator("#store")).to_contain_text("Stitches")
    await look(page, "workers")

    await store._backend.put([workers["idle"].changed(host="loom-9")])
    await expect(page.get_by_text("loom-9")).to_be_visible()


async def test_schedules_page_works_in_a_browser(store: Store, url: str, page: Page) -> None:
    await store.in_project("elsewhere").schedules.add("secret-agent", "Hidden", every=60)
    await page.goto(f"{url}/schedules")
    await expect(page.get_by_text("No schedules")).to_be_visible()
    form = page.locator("#add")
    await form.get_by_label("Agent", exact=True).fill("weaver")
    await form.get_by_label("Goal of each thread").fill(f"Weave {HOSTILE}")
    await form.get_by_label("Cron expression").fill("0 25 * * *")
    await form.get_by_label("Time zone").fill("Europe/Berlin")
    await form.get_by_role("button", name="Add schedule").click()
    await expect(page.get_by_role("alert")).to_contain_text("Bad hour")
    await expect(form.get_by_label("Goal of each thread")).to_have_value(f"Weave {HOSTILE}")
    await form.get_by_label("Cron expression").fill("0 7 * * 1-5")
    await form.get_by_label("Name").fill("dawn")
    await form.get_by_role("button", name="Add schedule").click()
    row = page.locator('[data-row="dawn"]')
    await expect(row).to_contain_text(f"weaver: Weave {HOSTILE}")
    await expect(row).to_contain_text("0 7 * * 1-5 Europe/Berlin")

    await row.get_by_role("button", name="Run now: dawn").click()
    await expect(page.locator("#side")).to_contain_text("dawn")
    await page.get_by_role("link", name="dawn", exact=True).click()
    await expect(row).to_contain_text("pending")
    await row.get_by_role("button", name="Pause: dawn").click()
    await expect(row).to_contain_text("paused")
    assert (await store.schedules.get("dawn")).next_tick is None
    await store.schedules.add("weaver", "Look for work", name="often", every=90, missed="skip")
    await page.reload()
    await expect(page.locator('[data-row="often"]')).to_contain_text("every 90s")
    await expect(page.get_by_text("Hidden")).to_have_count(0)
    await look(page, "schedules")

    await row.get_by_role("link", name="Edit: dawn").click()
    await expect(form.get_by_label("Goal of each thread")).to_have_value(f"Weave {HOSTILE}")
    await form.get_by_label("Cron expression").fill("30 6 * * *")
    await store.schedules.edit("dawn", priority=1)
    await form.get_by_role("button", name="Save schedule").click()
    await expect(page.get_by_role("alert")).to_contain_text("was changed since you read it")
    await page.get_by_role("link", name="Edit: dawn").click()
    await form.get_by_label("Cron expression").fill("30 6 * * *")
    await form.get_by_role("button", name="Save schedule").click()
    await expect(row).to_contain_text("30 6 * * * Europe/Berlin")

    await row.get_by_role("button", name="Resume: dawn").click()
    await expect(row.get_by_role("button", name="Pause: dawn")).to_be_visible()
    await row.locator("summary").click()
    await row.get_by_role("button", name="Delete schedule").click()
    await expect(row).to_have_count(0)
    assert [schedule.name for schedule in await store.schedules.all()] == ["often"]
