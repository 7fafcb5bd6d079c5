"""A store behaves like a simple model for any order of actions of several processes, on every backend.

The examples are the same in every run. `LOCKSTITCH_EXAMPLES=500` runs this number of new examples, and shrinks an
example that fails.
"""

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.fixtures import BACKENDS
from tests.machine.harness import StoreHarness
from tests.machine.machine import Machine

LONG = os.environ.get("LOCKSTITCH_EXAMPLES")

how = settings(
    max_examples=int(LONG or 8),
    stateful_step_count=50,
    deadline=None,
    derandomize=LONG is None,
    # Shrinking an example takes minutes, so it is only for interactive use.
    phases=[Phase.reuse, Phase.generate, Phase.shrink] if LONG else [Phase.generate],
    suppress_health_check=list(HealthCheck),
    print_blob=True,
)


@pytest.mark.req("S3-031", "S3-032", "S3-035", "S3-037", "S3-045")
def test_store_behaves_like_the_model(store_url: str, backend: str) -> None:
    with StoreHarness(store_url, turn=7 * BACKENDS.index(backend)) as harness:
        run_state_machine_as_test(lambda: Machine(harness), settings=how)


@pytest.mark.parametrize(
    ("what", "broken"),
    [
        ("lockstitch.model.delivery.wakes_thread", lambda head, delivery: False),
        # Without the comparison, a thread waits or ends although a delivery has just arrived.
        ("lockstitch.store.transaction.RESTING_STATUSES", frozenset[str]()),
    ],
)
def test_detects_injected_defects(what: str, broken: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(what, broken)
    with StoreHarness(f"sqlite:///{tmp_path / 'store.db'}") as harness, pytest.raises(AssertionError):
        run_state_machine_as_test(lambda: Machine(harness), settings=how)
