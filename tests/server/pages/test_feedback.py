"""Feedback on the answer of a run: thumbs and a comment of two people, on both pages, and the annotation queue."""

import pytest
from playwright.async_api import Page, expect

from lockstitch.server import Settings
from lockstitch.server.auth import TOKEN_COOKIE
from lockstitch.store import Store
from lockstitch.store.annotation import find_feedback, give_feedback
from tests.samples import turn
from tests.server.looking import look
from tests.server.pages.runs import HOSTILE
from tests.server.serving import serving

pytestmark = pytest.mark.anyio


async def test_people_rate_answers_and_see_what_others_gave(store: Store, page: Page) -> None:
    head = await turn(store, await store.create(key="k", agent="helper"), "Where is it?", "In the depot.")
    (run,) = await store.runs(head)
    await give_feedback(store, "correct", run=run.id, score=0.5, comment=f"Half. {HOSTILE}", user_id="bob")
    _, secret = await store.tokens.create("ada", ["read", "write"])
    async with serving(store, settings=Settings(tokens_needed=True)) as url:
        await page.context.add_cookies([{"name": TOKEN_COOKIE, "value": secret, "url": url}])
        await page.goto(f"{url}/threads/k")
        answer = page.locator("#seam .feedback")
        up, down = answer.get_by_role("button", name="Helpful", exact=True), answer.get_by_label("Not helpful")
        await up.click()
        await expect(up).to_have_attribute("aria-pressed", "true")
        await answer.locator(".comment summary").click()
        await answer.get_by_role("textbox").fill("Fast and right.")
        await answer.get_by_role("button", name="Save").click()
        await expect(answer.locator(".comment summary")).to_have_text("Fast and right.")
        await down.click()
        await expect(down).to_have_attribute("aria-pressed", "true")
        await expect(up).to_have_attribute("aria-pressed", "false")
        await answer.get_by_text("1 other").click()
        await expect(answer.locator("li")).to_contain_text(f"bob correct 0.5 Half. {HOSTILE}")
        (own,) = await find_feedback(store, run=run.id, user_id="ada")
        assert (own.name, own.score, own.comment) == ("helpful", 0.0, "Fast and right.")
        await look(page, "thread-feedback", "#seam")

        # The run page shows the same feedback. Without JavaScript the form returns to its page.
        await page.goto(f"{url}/run/{run.id}")
        section = page.locator(".feedback")
        await expect(section.get_by_label("Not helpful")).to_have_attribute("aria-pressed", "true")
        await look(page, "run-feedback")
        await section.locator(".comment summary").click()
        await section.get_by_role("textbox").fill("")
        await section.get_by_role("button", name="Save").click()
        await expect(section.locator(".comment summary")).to_have_text("Comment")
        await section.get_by_label("Not helpful").click()
        await expect(section.get_by_label("Not helpful")).to_have_attribute("aria-pressed", "false")
        assert [item.user_id for item in await find_feedback(store, run=run.id)] == ["bob"]
        acts = [(audit.actor, audit.act, audit.subject) for audit in await store.audits.latest()]
        assert acts[0] == ("ada", "delete feedback", str(run.id))
        assert ("ada", "give feedback", str(run.id)) in acts

        # A reader sees the feedback and has no form. A request without the token of the form is refused.
        _, reading = await store.tokens.create("eve", ["read"])
        csrf_missing = await page.request.post(f"{url}/run/{run.id}/feedback", form={"thumb": "up"})
        assert csrf_missing.status == 403
        await page.context.add_cookies([{"name": TOKEN_COOKIE, "value": reading, "url": url}])
        await page.goto(f"{url}/threads/k")
        await expect(answer.get_by_text("1 other")).to_be_visible()
        await expect(answer.locator("form")).to_have_count(0)


async def test_people_annotate_runs_by_keyboard(store: Store, page: Page) -> None:
    for number in range(3):
        head = await store.create(key=f"k{number}", agent="helper" if number else "other")
        await turn(store, head, f"Question {number}? {HOSTILE}", f"**Answer {number}.**")
    (last,), (first,) = await store.runs("k2"), await store.runs("k1")
    await give_feedback(store, "correct", run=last.id, score=0.5, comment=f"Half. {HOSTILE}", user_id="bob")

    async def press(key: str) -> None:
        # The shortcuts work once the scripts of the page are loaded.
        await page.wait_for_load_state()
        await page.keyboard.press(key)

    async with serving(store) as url:
        # The queue has the threads of the list, the latest first.
        await page.goto(f"{url}/?agent=helper")
        await page.get_by_role("link", name="Annotate").click()
        answer, given = page.locator(".annotate .say").nth(1), page.locator(".annotate li")
        await expect(answer).to_have_text("Answer 2.")
        await expect(given).to_contain_text(f"bob correct 0.5 Half. {HOSTILE}")
        await look(page, "annotate")
        await press("a")
        await page.keyboard.type("Hard cases")
        await press("Enter")
        await page.wait_for_url("**dataset=Hard+cases**")
        await press("a")
        await expect(page.locator("#toasts")).to_contain_text("Added to Hard cases, version 1")
        await press("c")
        await page.keyboard.type("Too short.")
        await press("Control+Enter")
        await expect(page.locator("#toasts")).to_contain_text("Feedback saved")
        # A comment is feedback. The run stays until it has a score.
        await press("2")
        await expect(answer).to_have_text("Answer 1.")
        await press("k")
        await expect(page.get_by_role("button", name="Not helpful")).to_have_attribute("aria-pressed", "true")
        await expect(page.get_by_label("Your comment")).to_have_value("Too short.")
        await press("ArrowRight")
        await expect(answer).to_have_text("Answer 1.")
        await press("u")
        await expect(page.get_by_role("heading", name="End of the queue")).to_be_visible()
        await look(page, "annotate-end")
        ratings = [(item.run_id, item.score, item.comment) for item in await find_feedback(store, name="helpful")]
        assert ratings == [(last.id, 0.0, "Too short."), (first.id, 1.0, None)]

        # Another name has its own queue, and its score is a digit.
        await page.goto(f"{url}/evals")
        await page.get_by_role("navigation", name="Evaluation").get_by_role("link", name="Annotation").click()
        await expect(answer).to_have_text("Answer 0.")
        await page.get_by_label("Criterion").fill("tone")
        await page.get_by_role("button", name="Apply").click()
        await press("7")
        await expect(page.get_by_role("heading", name="End of the queue")).to_be_visible()
        assert [item.score for item in await find_feedback(store, name="tone")] == [7.0]
        await page.get_by_role("link", name="Start of the queue").click()
        await expect(answer).to_have_text("Answer 2.")
        await press("s")
        await expect(answer).to_have_text("Answer 1.")
