"""Evaluations of recorded runs: selections, replays with changes, divergence, and a kill in the middle."""

import asyncio
import signal
from typing import Any

import pytest

from lockstitch.agents.evals.grader import Case
from lockstitch.agents.evals.recorded_runs import RecordedRuns
from lockstitch.agents.evals.runner import evaluate
from lockstitch.agents.evals.stored_evals import Evals
from lockstitch.errors import Refused
from lockstitch.store import Store
from lockstitch.store.datasets import add_to_dataset
from tests.agents.replay_victim import SELECTION, SOURCE, Shop
from tests.agents.test_replays import ROOT
from tests.docs.warm import warm_commands

pytestmark = pytest.mark.anyio


async def recorded(store: Store) -> Shop:
    """Record two threads with the tag `vip`, and one without. Return the shop, which has run no tool since then."""
    shop = Shop()
    for thread, tags in ((SOURCE, ["vip"]), ("second", ["vip"]), ("third", [])):
        await shop.agent().run("Charge 5 twice.", store=store, thread=thread, tags=tags)
    shop.ran.clear()
    return shop


async def test_replays_recorded_runs_with_changes_and_shows_divergence(store: Store) -> None:
    shop = await recorded(store)
    first = await evaluate(shop.agent(), SELECTION, store=store, graders="exact", replay=True)
    assert (first.title, first.replay, first.score) == ("shop-recorded-runs#1", True, 1.0)
    assert [(outcome.case, outcome.diverged) for outcome in first.outcomes] == [("second#1", None), ("source#1", None)]
    replays: list[Any] = [outcome.replay for outcome in first.outcomes]
    assert [replay["same"] for replay in replays] == [True, True]

    # A dataset made of the same runs, with another prompt and a model that makes another call.
    await add_to_dataset(store, "regressions", [SOURCE, "third"])
    other = Shop({"calls": [{"name": "charge", "input": {"amount": 6}}]}, "Never.")
    changes: dict[str, Any] = {"instructions": "Charge more.", "trials": 2, "replay": True}
    second = await evaluate(other.agent(), "regressions", store=store, graders="exact", **changes)
    assert (second.title, second.totals.diverged, second.totals.incomplete) == ("shop-regressions-replay#1", 4, 4)
    assert "Charge more." in str(other.requests[0].system)
    assert not shop.ran
    assert not other.ran, "a replay runs no tool"
    (case, _) = (await Evals(store).cases(second.title))["cases"]
    outcome = case["outcomes"][0]
    run = await store.run(outcome["run_id"])
    assert (run.stop_reason, run.version, outcome["replay"]["source_run_id"]) == (
        "diverged",
        second.version,
        str((await store.runs(SOURCE))[0].id),
    )
    assert (outcome["replay"]["diverged"]["name"], outcome["replay"]["diverged"]["step"]) == ("charge", 1)
    assert outcome["reason"].startswith('The replay stopped at the call charge({"amount":6})')
    shown = await Evals(store).get(second.title)
    assert (shown["replay"], shown["diverged"], shown["score"]) == (True, 4, 0.0)
    assert (await store.agents.get(store.project, "shop")).version == first.version, (
        "the changed version is not current"
    )

    # A deleted run is an outcome. Without `replay`, the same cases are new conversations.
    await store.delete(SOURCE)
    third = await evaluate(shop.agent(), "regressions", store=store, graders="exact", replay=True)
    assert [outcome.status for outcome in third.outcomes] == ["refused", "completed"]
    assert not shop.ran
    runs = RecordedRuns([(await store.runs("third"))[0].id])
    fourth = await evaluate(shop.agent(), runs, store=store, graders="contains", name="again")
    assert (fourth.replay, fourth.score, len(shop.ran)) == (False, 1.0, 3)


@pytest.mark.parametrize(
    ("dataset", "message"),
    [
        ([Case("a", "Hello.")], "case a has no recorded run"),
        (RecordedRuns(), "either by threads and runs or by filters"),
        (RecordedRuns(["source"], ["tag=vip"]), "either by threads and runs or by filters"),
        (RecordedRuns(where=["colour=red"]), "'colour=red' is not a filter"),
        (RecordedRuns(where=["version=x"]), "'x' is not a number"),
        (RecordedRuns(where=["since=x"]), "since 'x' is not a time"),
        (RecordedRuns(where=["tag=none"]), "No thread with a finished run matches"),
        (RecordedRuns(where=["tag=vip"], limit=1_001), "1 to 1,000 runs"),
    ],
)
async def test_rejects_cases_that_cannot_be_replayed(store: Store, dataset: Any, message: str) -> None:
    with pytest.raises(Refused, match=message):
        await evaluate(Shop().agent(), dataset, store=store, graders="exact", replay=True)


async def test_continues_the_selected_replays_after_kill(store_url: str, store: Store) -> None:
    shop = await recorded(store)
    arguments = ("-m", "tests.agents.replay_victim", store_url, "eval")
    process = await asyncio.create_subprocess_exec(warm_commands() / "python", *arguments, cwd=ROOT)
    assert await process.wait() == -signal.SIGKILL
    # A later thread matches the filters. It is not part of the interrupted evaluation.
    await shop.agent().run("Charge 5 twice.", store=store, thread="later", tags=["vip"])
    shop.ran.clear()
    done = await evaluate(shop.agent(), SELECTION, store=store, graders="exact", replay=True)
    assert [outcome.case for outcome in done.outcomes] == ["second#1", "source#1"]
    assert (done.title, done.score, await store.count(kind="replay")) == ("shop-recorded-runs#1", 1.0, 2)
    assert not shop.ran
    after = await evaluate(shop.agent(), SELECTION, store=store, graders="exact", replay=True)
    assert (after.number, len(after.outcomes)) == (2, 3)
