"""The pages of datasets, evaluations and agents: create, add a run, edit, upload, versions, trials and comparison."""

import re
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Browser, Page, expect

from lockstitch import Agent, App
from lockstitch.agents.evals.grader import Case
from lockstitch.agents.evals.runner import evaluate
from lockstitch.agents.evals.stored_datasets import Datasets
from lockstitch.agents.providers.scripted import Scripted
from lockstitch.agents.replays import replay
from lockstitch.agents.tools.function import tool
from lockstitch.model import Example, new_id
from lockstitch.server.pages import agents
from lockstitch.server.pages.evals import evaluations
from lockstitch.server.pages.threads import counts
from lockstitch.server.pages.threads.filters import Filters
from lockstitch.server.pages.threads.reader import matching
from lockstitch.store import Store
from lockstitch.store.annotation import runs_to_annotate
from lockstitch.store.datasets import create_dataset, create_experiment, put_examples
from tests.agents.evals.quiz import Quiz
from tests.agents.replay_victim import Shop
from tests.server.looking import look
from tests.server.serving import serving
from tests.store.test_thread_list import ended

pytestmark = pytest.mark.anyio

HOSTILE = "<img src=x onerror=alert(1)>"


async def test_datasets_are_created_and_changed_on_their_pages(store: Store, page: Page, tmp_path: Path) -> None:
    quiz = Quiz()
    result = await quiz.agent.run("Capital?", store=store, thread="asked")
    theirs = await create_dataset(store, "theirs")
    times: Any = {"created_at": store.clock.now(), "updated_at": store.clock.now()}
    inputs = {"question": HOSTILE, "lang": "en"}
    await put_examples(store, theirs, [Example(id=new_id(), dataset_id=theirs.id, inputs=inputs, **times)])
    await create_experiment(store, "first-try", dataset_id=theirs.id)
    file = tmp_path / "facts.jsonl"
    file.write_text('{"id": "sum", "input": "2 + 2?", "expected": "4"}\n{"id": "why", "input": "Why?"}\n')
    async with serving(store) as url:
        await page.goto(f"{url}/evals/datasets")
        await page.get_by_role("link", name="New dataset").click()
        dialog = page.get_by_role("dialog", name="New dataset")
        await dialog.get_by_label("Name").fill("Facts / <b>")
        await dialog.get_by_label("Description").fill("Known facts")
        await dialog.get_by_label("Cases").set_input_files(file)
        await dialog.get_by_role("button", name="Create").click()
        await expect(page.get_by_role("heading", level=1)).to_have_text("Facts / <b>")
        await expect(page.get_by_text("2 cases · version 1")).to_be_visible()

        # One click on the page of a run.
        await page.goto(f"{url}/run/{result.run_id}")
        await page.get_by_text("Add to dataset").click()
        await page.get_by_role("button", name="Facts / <b>").click()
        await expect(page.get_by_text("Added to Facts / <b>, version 2.")).to_be_visible()
        await page.locator(".said").get_by_role("link", name="Open").click()
        await expect(page.get_by_role("row", name="It is Paris.")).to_be_visible()

        await page.get_by_role("link", name="why").click()
        await page.get_by_label("Expected answer").fill('["because"]')
        await page.get_by_label("Rubric").fill("Names a reason.\nIs short.")
        await page.get_by_label("Metadata").fill('{"topic": "reasons"}')
        await look(page, "case")
        await page.get_by_role("button", name="Save").click()
        await expect(page.get_by_text("3 cases · version 3")).to_be_visible()
        why = await Datasets(store).case("Facts / <b>", "why")
        assert (why["expected"], why["rubric"], why["metadata"]) == (
            ["because"],
            ["Names a reason.", "Is short."],
            {"topic": "reasons"},
        )
        await page.get_by_role("link", name="Add case").click()
        await page.get_by_label("Input").fill("Shape?")
        await page.get_by_role("button", name="Save").click()
        await expect(page.get_by_text("4 cases · version 4")).to_be_visible()
        await page.get_by_role("link", name="sum", exact=True).click()
        await page.get_by_role("button", name="Remove case").click()
        await expect(page.get_by_text("Version 5: 1 removed")).to_be_visible()
        await look(page, "dataset")
        await page.get_by_role("link", name=re.compile("^1 2 cases")).click()
        await expect(page.get_by_text("This is version 1.")).to_be_visible()
        await expect(page.get_by_role("link", name="sum", exact=True)).to_be_visible()
        await expect(page.get_by_role("link", name="Add case")).to_have_count(0)
        async with page.expect_download() as download:
            await page.get_by_text("Export").click()
            await page.get_by_role("link", name="CSV").click()
        saved = Path(await (await download.value).path()).read_text()
        assert saved.startswith("id,input,expected,schema,rubric,metadata\nsum,2 + 2?,4,,,\n")

        # A dataset of a LangSmith client keeps its fields.
        await page.goto(f"{url}/evals/datasets/{theirs.id}")
        await expect(page.get_by_text("first-try")).to_be_visible()
        await page.locator(".c-case a").click()
        await page.get_by_label("Expected outputs (JSON)").fill('{"answer": "Ada"}')
        await page.get_by_role("button", name="Save").click()
        await expect(page.get_by_role("cell", name="Ada")).to_be_visible()
        (case,) = (await Datasets(store).cases("theirs"))["cases"]
        assert (case["inputs"], case["outputs"]) == (inputs, {"answer": "Ada"})
        await page.get_by_text("Edit", exact=True).click()
        await page.get_by_text("Delete dataset…").click()
        await page.get_by_role("button", name="Delete").click()
        await expect(page.get_by_role("row")).to_have_count(2)
        await look(page, "datasets")


async def test_rejected_forms_keep_their_values(store: Store, browser: Browser) -> None:
    page = await browser.new_page()
    await Datasets(store).create("facts")
    await Datasets(store).create("places")
    async with serving(store, App([Quiz().agent])) as url:
        await page.goto(f"{url}/evals/datasets")
        await page.get_by_role("link", name="New dataset").click()
        dialog = page.get_by_role("dialog", name="New dataset")
        await dialog.get_by_label("Name").fill("facts")
        await dialog.get_by_label("Description").fill("Known facts")
        await dialog.get_by_role("button", name="Create").click()
        await expect(dialog.get_by_role("alert")).to_contain_text("facts")
        await dialog.get_by_role("button", name="Create").click()
        await expect(dialog.get_by_role("alert")).to_have_count(1)
        await look(page, "dataset-refused", within="#new")
        await expect(dialog.get_by_label("Description")).to_have_value("Known facts")
        await dialog.get_by_label("Name").fill("new facts")
        await dialog.get_by_role("button", name="Create").click()
        await expect(page.get_by_role("heading", level=1)).to_have_text("new facts")
        await expect(page.get_by_text("Dataset created")).to_be_visible()

        await page.get_by_text("Edit", exact=True).click()
        await page.get_by_label("Name").fill("places")
        await page.get_by_label("Description").fill("Other facts")
        await page.get_by_role("button", name="Save").click()
        await expect(page.get_by_role("alert")).to_contain_text("places")
        await expect(page.get_by_label("Description")).to_have_value("Other facts")

        await Datasets(store).put("facts", [{"id": "sum", "input": "2 + 2?"}])
        await page.goto(f"{url}/evals/datasets")
        await page.get_by_role("link", name="facts", exact=True).click()
        await page.get_by_text("Evaluate", exact=True).click()
        await page.get_by_label("exact").uncheck()
        await page.get_by_label("Prompt").fill("Answer briefly.")
        await page.get_by_role("button", name="Start").click()
        await expect(page.get_by_role("alert")).to_contain_text("grader")
        await expect(page.get_by_label("Prompt")).to_have_value("Answer briefly.")
        await look(page, "evaluate-refused")
    await page.close()


async def test_evaluate_form_has_the_judge(store: Store, page: Page) -> None:
    grades = Scripted(lambda request: {"data": {"score": 0.75, "reason": "Nearly."}})
    schema = {"type": "object", "properties": {"score": {"type": "number"}, "reason": {"type": "string"}}}
    schema |= {"required": ["score", "reason"], "additionalProperties": False}
    strict = Agent("strict", model=grades, output=schema, title=False)
    await Datasets(store).put("facts", [{"id": "sum", "input": "2 + 2?"}], create=True)
    async with serving(store, App([Quiz().agent, strict])) as url:
        await page.goto(f"{url}/evals/datasets")
        await page.get_by_role("link", name="facts").click()
        await page.get_by_text("Evaluate", exact=True).click()
        await page.get_by_label("Agent").select_option("quiz")
        await page.get_by_label("exact").uncheck()
        await page.get_by_label("judge", exact=True).check()
        await page.get_by_label("Model of the judge").fill("strict")
        await page.get_by_role("button", name="Start").click()
        await expect(page.get_by_role("heading", level=1)).to_have_text("quiz-facts#1")
        await expect(page.get_by_text("graded by judge")).to_be_visible()
        # The page follows the evaluation.
        await expect(page.locator("main")).to_contain_text("Nearly.")
        await expect(page.locator("main")).to_contain_text("0.750")
    assert await store.count(agent="strict") == 1


async def test_evaluations_are_shown_with_trials_and_compared(
    store: Store, page: Page, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(evaluations, "CASES", 2)
    rows = [
        {"id": "sum", "input": "2 + 2?", "expected": "4"},
        {"id": "capital", "input": "Capital?", "expected": "Paris"},
    ]
    rows += [{"id": HOSTILE, "input": "Why?", "expected": "because"}]
    await Datasets(store).put("facts", rows, create=True)
    quiz = Quiz()
    for answer in ("4", "5", "22"):
        quiz.answers |= {"2 + 2?": answer, "Why?": "because it is so " * 10 if answer != "4" else "?"}
        await evaluate(quiz.agent, "facts", store=store, graders="contains", name="f", trials=3)
    await Shop().agent().run("Charge 5 twice.", store=store, thread="order")
    await Datasets(store).add("orders", ["order"])
    other = Shop({"calls": [{"name": "charge", "input": {"amount": 6}}]}, "Never.")
    async with serving(store, App([quiz.agent, other.agent()])) as url:
        await page.goto(f"{url}/evals/datasets")
        await page.get_by_role("link", name="facts").click()
        await page.get_by_text("Evaluate", exact=True).click()
        await page.get_by_label("contains").check()
        await page.get_by_role("button", name="Start").click()
        await expect(page.get_by_role("heading", level=1)).to_have_text("quiz-facts#1")
        # The Evaluate form replays a dataset made of runs, with another prompt.
        await page.goto(f"{url}/evals/datasets")
        await page.get_by_role("link", name="orders").click()
        await page.get_by_text("Evaluate", exact=True).click()
        await expect(page.get_by_label("Agent")).to_have_value("shop")
        await page.get_by_label("Prompt").fill("Charge more.")
        await page.get_by_label("Replay the recorded runs").check()
        await look(page, "evaluate")
        await page.get_by_role("button", name="Start").click()
        await expect(page.get_by_role("heading", level=1)).to_have_text("shop-orders-replay#1")
        row = page.get_by_role("row", name="diverged")
        while not await row.count():
            await page.reload()
        await expect(row).to_contain_text('The replay stopped at the call charge({"amount":6})')
        await expect(page.get_by_text("The runs of 1 trial did not complete, 1 of them diverged")).to_be_visible()
        await look(page, "eval-replay")
        await row.get_by_role("link", name="recorded run").click()
        await expect(page.get_by_role("heading", level=1)).to_have_text("Run 1")
        await page.go_back()
        await page.get_by_role("link", name=re.compile("trial 1: diverged")).click()
        await expect(page.get_by_role("region", name="Comparison")).to_be_visible()

        await page.goto(f"{url}/evals?name=f")
        await expect(page.get_by_role("row")).to_have_count(4)
        await look(page, "evals")
        await page.get_by_role("link", name="f#2").click()
        await expect(page.locator(".strip")).to_contain_text("0.667")
        await expect(page.locator(".strip")).to_contain_text("6 of 9 trials, 3 trials each".partition(",")[0])
        await expect(page.get_by_role("row")).to_have_count(4)
        await page.get_by_role("link", name="More").click()
        await expect(page.get_by_role("row", name=HOSTILE)).to_be_visible()
        await look(page, "eval")
        await page.get_by_role("link", name="Not passed", exact=True).click()
        await expect(page.get_by_role("row")).to_have_count(2)
        await expect(page.get_by_role("row", name="sum")).to_contain_text("lacks")
        await page.get_by_role("link", name=re.compile("trial 3: not passed")).click()
        await expect(page.get_by_role("heading", level=1)).to_have_text("Run 1")
        await page.goto(f"{url}/evals?name=f")
        for number in (1, 2, 3):
            await page.get_by_label(f"Select f#{number}").check()
        await page.get_by_role("button", name="Compare selected").click()
        await expect(page.get_by_role("heading", level=1)).to_have_text("Comparison")
        await look(page, "compare")
        # Long answers wrap in their column.
        answers = await page.locator(".answer").evaluate_all(
            "all => all.map(one => one.scrollWidth <= one.clientWidth)"
        )
        assert answers
        assert all(answers)
        # On a phone, each row is a card that needs no sideways scrolling.
        await page.set_viewport_size({"width": 390, "height": 844})
        for name in ("Totals", "Cases"):
            region = page.get_by_role("region", name=name)
            assert await region.evaluate("one => one.scrollWidth <= one.clientWidth"), name
        await expect(page.locator(".compared td[data-label='f#3']").first).to_contain_text("passed")
        await page.set_viewport_size({"width": 1280, "height": 900})
        await page.get_by_role("link", name="Worse", exact=True).click()
        await expect(page.get_by_role("region", name="Cases").get_by_role("row")).to_have_count(2)
        await expect(page.get_by_role("row", name="sum")).to_contain_text("-1.000")
        await expect(page.get_by_role("row", name="sum")).to_contain_text("2 + 2?")
        await page.goto(f"{url}/evals/compare?id={new_id()}")
        await expect(page.get_by_text("Select 2 to 8 evaluations.")).to_be_visible()


@tool(description="Look up a word. " * 20)
def look_up(word: str) -> str:
    return word


async def test_agents_are_shown_with_versions_and_changes(
    store: Store, page: Page, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agents, "VERSIONS", 2)
    monkeypatch.setattr(agents, "PAGE", 1)
    await Datasets(store).put("facts", [{"id": "sum", "input": "2 + 2?", "expected": "4"}], create=True)
    for number, instructions in enumerate((f"Answer.\n{HOSTILE}", "Answer.\nBe brief.", "Answer."), 1):
        agent = Quiz(instructions=instructions, max_steps=number, tools=[look_up]).agent
        await evaluate(agent, "facts", store=store, graders="contains", name="f")
    await store.agents.register(store.project, "a/b ?", {"tools": "odd"})
    thread = await store.create(key="imported", agent=HOSTILE)
    await ended(store, thread, 1, "failed", error="Timeout", total_cost=2.0)
    async with serving(store) as url:
        await page.goto(url)
        await page.get_by_role("navigation", name="Main").get_by_role("link", name="Agents").click()
        await page.get_by_role("link", name="More").click()
        await expect(page.get_by_role("row", name="quiz")).to_contain_text("scripted")
        await expect(page.get_by_role("row", name=HOSTILE)).to_contain_text("no stored definition")
        await look(page, "agents")
        await page.get_by_role("link", name="a/b ?").click()
        await expect(page.get_by_text("This is the first version.")).to_be_visible()
        await page.goto(f"{url}/agents/quiz")
        await page.get_by_role("link", name="Older").click()
        await expect(page.get_by_role("row")).to_have_count(4)
        await expect(page.get_by_role("row", name="Version 3")).to_contain_text("0.0 %")
        await page.get_by_role("link", name="Version 2", exact=True).click()
        changes = page.get_by_role("region", name="Version 2 compared with version 1")
        await expect(changes.locator("del")).to_have_text([f"-{HOSTILE}", "-1"])
        await expect(changes.locator("ins")).to_have_text(["+Be brief.", "+2"])
        await page.locator("details.tool summary").click()
        await look(page, "agent")
        await page.get_by_label("Compare with version").select_option("3")
        await expect(page.get_by_role("heading", name="Version 2 compared with version 3")).to_be_visible()
        await page.get_by_role("link", name="Compare versions 3 and 2").click()
        await expect(page.get_by_role("heading", level=1)).to_have_text("Comparison")
        await page.go_back()
        await page.get_by_role("link", name="Threads of version 2").click()
        await expect(page).to_have_url(f"{url}/?agent=quiz&version=2&evaluations=true")
        await expect(page.locator("tr[data-row]")).to_have_count(1)


async def test_list_of_threads_leaves_out_replays_and_evaluations(store: Store, page: Page) -> None:
    quiz = Quiz()
    await evaluate(quiz.agent, [Case("sum", "2 + 2?", expected="4")], store=store, graders="contains", name="f")
    async with serving(store) as url:
        rows = page.locator("tr[data-row]")
        await page.goto(url)
        await expect(page.get_by_text("Replays and threads of evaluations need the filter")).to_be_visible()
        asked = await quiz.agent.run("Capital?", store=store, thread="asked")
        again = await replay("asked", quiz.agent, store=store)
        counts.forget()
        await page.goto(url)
        await expect(rows).to_have_count(1)
        await expect(page.locator("#tabs a").first).to_have_text("All 1")
        await page.get_by_label("Evaluations, replays").check()
        await expect(rows).to_have_count(3)
        await expect(page).to_have_url(re.compile("evaluations=true"))
        await look(page, "threads-evaluations")
        await page.get_by_role("link", name=re.compile("Waiting")).click()
        await expect(rows).to_have_count(2)
        await page.get_by_label("Evaluations").uncheck()
        await expect(rows).to_have_count(1)
        await page.goto(f"{url}/?kind=replay")
        await expect(rows).to_have_count(1)
        await expect(rows).to_have_attribute("data-row", str(again.thread.id))
        # The annotation queue has the other run only.
        queue = await runs_to_annotate(store, **await matching(store, Filters()))
        assert [run.id for run in queue.runs] == [asked.run_id]
        # A search finds them, too.
        await page.goto(f"{url}/?q=eval/f/1/sum")
        await expect(rows).to_have_count(1)
        await page.get_by_role("searchbox").fill("2 + 2")
        await expect(rows).to_contain_text("2 + 2?")
        # A thread of an evaluation that needs a person is shown.
        head = await store.thread("eval/f/1/sum")
        await store._backend.put([head.changed(awaiting_person_since=store.clock.now())])
        await page.goto(f"{url}/?status=person")
        await expect(rows).to_have_count(1)
