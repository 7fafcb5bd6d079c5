"""Notebooks on both databases."""

from collections.abc import AsyncIterator

import pytest

from lockstitch.apps.notebooks import Notebooks
from lockstitch.apps.notebooks import notebooks as repository
from lockstitch.apps.notebooks.records import Notebook
from lockstitch.store import Store


@pytest.fixture(params=("sqlite", "postgres"))
def backend(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
async def notebooks(store: Store) -> AsyncIterator[Notebooks]:
    """The plugin without a model, with its tables."""
    application = Notebooks()
    await application.setup(store)
    yield application
    await application.team.close()


@pytest.fixture
async def books(notebooks: Notebooks, store: Store) -> Notebook:
    """A notebook about books."""
    return await repository.create(store, "Books", description="For reading lists.", instructions="Be brief.")
