"""Tests of pages look at one backend; each page's smoke test looks at all."""

import pytest


@pytest.fixture(params=["sqlite"])
def backend(request: pytest.FixtureRequest) -> str:
    return request.param
