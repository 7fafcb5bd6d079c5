"""Alerts on cost, error rate and latency: checked about once a minute, reported to a webhook until it accepts."""

import asyncio
from typing import Any

import pytest

from lockstitch.engine.alerts import AlertChecker
from lockstitch.errors import NotFound, Refused
from lockstitch.model import Alert, FakeClock
from lockstitch.store import Store
from lockstitch.store.alerts import Alerts, Measure, condition_text, measure_text
from tests.engine.receiver import Receiver
from tests.store.test_thread_list import ended

pytestmark = pytest.mark.anyio


@pytest.fixture
def store(timed_store: Store) -> Store:
    return timed_store


async def checked(store: Store, clock: FakeClock, seconds: float = 60) -> dict[str, tuple[bool, Any, Any]]:
    """Check the alerts after some time. Return whether they fire, their values and their numbers of runs."""
    clock.advance(seconds)
    await AlertChecker(store).check_due()
    return {
        alert.name: (alert.firing, alert.value, alert.runs)
        for alert in await Alerts(store).list()
        if alert.checked_at is not None
    }


async def test_alerts_measure_the_runs_of_their_window(store: Store, clock: FakeClock) -> None:
    """The cost, the error rate and the latency of the runs that started in the window, of one agent or of all."""
    await Alerts(store).set("spent", "cost", 2.5, window_minutes=60)
    await Alerts(store).set("helper", "cost", 2.5, window_minutes=60, agent="helper")
    await Alerts(store).set("errors", "error_rate", 0.1, window_minutes=10, minimum_runs=3)
    await Alerts(store).set("slow", "latency", 5, window_minutes=10)
    await Alerts(store.in_project("quiet")).set("spent", "cost", 0)
    free, unknown = (False, 0.0, 0), (False, None, 0)
    assert await checked(store, clock) == {"spent": free, "helper": free, "errors": unknown, "slow": unknown}

    head = await store.create(key="k", agent="helper")
    for seconds in (*[1] * 18, 4, 9):
        head = await ended(store, head, seconds, total_cost=0.1)
    other = await store.create(key="o", agent="other")
    assert await checked(store, clock) == {
        "spent": (False, 2.0, 20),
        "helper": (False, 2.0, 20),
        "errors": (False, 0.0, 20),
        # 19 of 20 runs took at most four seconds.
        "slow": (False, 4.0, 20),
    }
    for _ in range(3):
        other = await ended(store, other, 8, "failed", total_cost=0.2)
    open_run = store.new_run(other)
    await store.append(other, new_runs=[open_run])
    assert await checked(store, clock) == {
        "spent": (True, pytest.approx(2.6), 24),
        "helper": (False, 2.0, 20),
        "errors": (True, pytest.approx(3 / 23), 23),
        "slow": (True, 8.0, 23),
    }
    assert [alert.name for alert in await Alerts(store).list()] == ["errors", "slow", "spent", "helper"]

    # The runs leave the shorter windows, then the longer ones. Another project has its own runs.
    after = await checked(store, clock, 600)
    assert [after[name][0] for name in ("spent", "errors", "slow")] == [True, False, False]
    assert (await checked(store, clock, 3600))["spent"] == (False, 0.0, 0)
    assert [alert.firing for alert in await Alerts(store.in_project("quiet")).list()] == [False]


async def test_error_rate_leaves_out_deleted_runs(store: Store, clock: FakeClock) -> None:
    """The status of deleted runs is unknown, so they count neither as ended nor as failed."""
    await Alerts(store).set("errors", "error_rate", 0.5, window_minutes=2 * 1440)
    await ended(store, await store.create(key="deleted", agent="helper"), 1, "failed")
    clock.advance(1)
    assert await store.purge(before=clock.now()) == 1
    assert (await store.statistics.usage(agent="helper")).total.failed_runs == 1
    await ended(store, await store.create(key="completed", agent="helper"), 1)
    assert await checked(store, clock) == {"errors": (False, 0.0, 1)}


async def test_changes_are_reported_until_the_webhook_accepts(
    store: Store, clock: FakeClock, receiver: Receiver
) -> None:
    await Alerts(store).set("spent", "cost", 1, webhook=receiver.url)
    head = await store.create(key="k", agent="helper")
    await checked(store, clock)
    assert receiver.got == []
    await ended(store, head, 1, total_cost=1.5)
    receiver.status = 500
    clock.advance(60)
    # Of two processes that check at the same time, one reports the change.
    await asyncio.gather(AlertChecker(store).check_due(), AlertChecker(store).check_due())
    receiver.status = 200
    # Another process repeats the delivery with the same key, and does not report the change again.
    await checked(store, clock)
    await checked(store, clock)
    (first, body), (second, repeated) = receiver.got
    assert (first, body) == (second, repeated)
    assert {name: body[name] for name in ("event", "name", "firing", "measure", "value", "above", "runs")} == {
        "event": "alert",
        "name": "spent",
        "firing": True,
        "measure": "cost",
        "value": 1.5,
        "above": 1.0,
        "runs": 1,
    }
    await checked(store, clock, 3600)
    ((third, over),) = receiver.got[2:]
    assert (over["firing"], third != first) == (False, True)

    # A checker asks the store at most once a minute, and skips alerts that another one has just checked.
    checker = AlertChecker(store)
    stored = await store.table(Alert).get("default", "spent")
    clock.advance(59)
    await checker.check_due()
    assert await store.table(Alert).get("default", "spent") == stored
    clock.advance(1)
    await checker.check_due()
    assert await store.table(Alert).get("default", "spent") == stored
    clock.advance(60)
    await checker.check_due()
    assert (await store.table(Alert).get("default", "spent")).checked_at == clock.now()


async def test_invalid_alerts_are_refused(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    wrong: list[dict[str, Any]] = [
        {"measure": "speed"},
        {"above": float("nan")},
        {"above": -1},
        {"measure": "error_rate", "above": 1},
        {"window_minutes": 0},
        {"window_minutes": 43_201},
        {"minimum_runs": 0},
        {"webhook": "file:///etc/passwd"},
        {"webhook": "https://"},
        {"webhook": "https://[hooks"},
        {"name": ""},
        {"agent": "a\x00"},
    ]
    for fields in wrong:
        with pytest.raises(Refused):
            await Alerts(store).set(**{"name": "n", "measure": "cost", "above": 1, **fields})
    assert await Alerts(store).list() == []
    with pytest.raises(NotFound):
        await Alerts(store).remove("n")
    await Alerts(store).set("n", "cost", 1)
    monkeypatch.setattr("lockstitch.store.alerts.MOST", 1)
    with pytest.raises(Refused, match="1 alerts"):
        await Alerts(store).set("other", "cost", 1)
    await Alerts(store).set("n", "cost", 2)
    await Alerts(store).remove("n")
    assert await Alerts(store).list() == []


@pytest.mark.parametrize(
    ("measure", "value", "text"),
    [
        ("latency", 0.001, "0.001 s"),
        ("latency", 0.5, "0.5 s"),
        ("latency", 0.9999, "1.0 s"),
        ("latency", 1234.56, "1,234.6 s"),
        ("latency", 0.0, "0.0 s"),
        ("cost", 0.5, "$0.50"),
        ("cost", 0.00123, "$0.00123"),
        ("cost", 1e-300, "$0.00"),
        ("error_rate", 0.0005, "0.05 %"),
        ("error_rate", 1, "100.0 %"),
    ],
)
def test_texts_of_measures_have_the_digits_of_small_values(measure: Measure, value: float, text: str) -> None:
    assert measure_text(measure, value) == text
    now = FakeClock().now()
    times: Any = {"created_at": now, "updated_at": now}
    alert = Alert(name="small", measure=measure, above=value, window_minutes=60, minimum_runs=1, **times)
    assert condition_text(alert).endswith(f" is above {text}")
