"""Tests of pages use one backend. The smoke test of each page uses all."""

import pytest


@pytest.fixture(params=["sqlite"])
def backend(request: pytest.FixtureRequest) -> str:
    return request.param
