"""LangGraph's own tests of graphs, with the newest version and that of the tests: pregel, time travel, subgraphs."""

import pytest

from frameworks.environments import python_of
from frameworks.langgraph.repository import PACKAGES, VERSION, outcomes

ATTEMPTS = 3
VERSIONS = {"newest": ("langgraph", *PACKAGES), "repository": (f"langgraph=={VERSION}", *PACKAGES)}


@pytest.mark.parametrize("versions", VERSIONS)
def test_no_test_fails_that_passes_with_the_savers_of_langgraph(versions: str) -> None:
    python = python_of(f"langgraph-tests-{versions}", VERSIONS[versions])
    own, failed_with_own = outcomes(python, swapped=False)
    run, failed = outcomes(python, swapped=True)
    print(f"langgraph, {versions}: {len(run)} tests, {len(failed)} failed, with its own savers {len(failed_with_own)}")
    assert run == own
    assert len(run) > 500
    different = failed - failed_with_own
    for _ in range(ATTEMPTS):
        if different:
            # Some tests need a task to end within 10 ms. On a busy machine they fail at times, with any saver.
            different &= outcomes(python, swapped=True, only=sorted(different))[1]
    assert different == set()
