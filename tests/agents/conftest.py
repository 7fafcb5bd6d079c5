"""The fake server for each test, and agents that speak to it through the real SDK."""

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from lockstitch.agents.agent import Agent
from lockstitch.agents.providers.anthropic import AnthropicProvider
from tests.agents.fake_api import FakeApi, fake_api

Claude = Callable[..., Agent]
"""Makes agents on Anthropic's SDK."""


@pytest.fixture
async def api() -> AsyncIterator[FakeApi]:
    async with fake_api() as api:
        yield api


@pytest.fixture
async def claude(api: FakeApi) -> AsyncIterator[Claude]:
    made: list[AnthropicProvider] = []

    def make(**options: Any) -> Agent:
        provider = AnthropicProvider(base_url=api.url, api_key="k")
        provider.model = options.pop("model", "claude-opus-4-6")  # type: ignore[attr-defined]
        made.append(provider)
        return Agent("helper", model=provider, **{"title": False, "base_delay": 0.0, **options})

    yield make
    for provider in made:
        await provider.close()
