"""Fixtures: a fake server for each test, and agents that call it with the real SDK."""

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from lockstitch.agents.agent import Agent
from lockstitch.agents.providers.anthropic import AnthropicProvider
from tests.agents.fake_api import FakeApi, fake_api

Claude = Callable[..., Agent]
"""Creates agents that use Anthropic's SDK."""


@pytest.fixture
async def api() -> AsyncIterator[FakeApi]:
    async with fake_api() as api:
        yield api


@pytest.fixture
async def claude(api: FakeApi) -> AsyncIterator[Claude]:
    providers: list[AnthropicProvider] = []

    def make(**options: Any) -> Agent:
        model = options.pop("model", "claude-opus-4-6")
        provider = AnthropicProvider(model, base_url=api.url, api_key="k", name="anthropic")
        providers.append(provider)
        return Agent("helper", model=provider, **{"title": False, "base_delay": 0.0, **options})

    yield make
    for provider in providers:
        await provider.close()
