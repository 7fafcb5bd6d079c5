"""Whatever processes do to a store in whatever order: it holds what a simple model says, on every backend.

The examples are the same in every run. `LOCKSTITCH_EXAMPLES=500` looks at so many others, new ones each time, and makes
one that fails as small as it can.
"""

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.fixtures import BACKENDS
from tests.machine.bench import Bench
from tests.machine.machine import Machine

LONG = os.environ.get("LOCKSTITCH_EXAMPLES")

how = settings(
    max_examples=int(LONG or 8),
    stateful_step_count=50,
    deadline=None,
    derandomize=LONG is None,
    # To make an example smaller takes minutes, which only a person at work on it has.
    phases=[Phase.reuse, Phase.generate, Phase.shrink] if LONG else [Phase.generate],
    suppress_health_check=list(HealthCheck),
    print_blob=True,
)


@pytest.mark.req("S3-031", "S3-032", "S3-035", "S3-037", "S3-045")
def test_a_store_is_as_the_model_says(store_url: str, backend: str) -> None:
    with Bench(store_url, turn=7 * BACKENDS.index(backend)) as bench:
        run_state_machine_as_test(lambda: Machine(bench), settings=how)


@pytest.mark.parametrize(
    ("what", "broken"),
    [
        ("lockstitch.model.delivery.wakes_thread", lambda head, letter: False),
        # Then going to wait and to an end compare nothing, and a letter that has just come is overlooked.
        ("lockstitch.store.transaction.RESTING_STATUSES", frozenset[str]()),
    ],
)
def test_it_notices_what_is_broken(what: str, broken: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(what, broken)
    with Bench(f"sqlite:///{tmp_path / 'store.db'}") as bench, pytest.raises(AssertionError):
        run_state_machine_as_test(lambda: Machine(bench), settings=how)
