"""Memories by name, including the names in older records."""

from typing import Any

import pytest

from lockstitch.agents.registry import MEMORY_NAMES, memory_store
from lockstitch.engine.ports.memory import Retrieved
from lockstitch.errors import Refused

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("name", MEMORY_NAMES)
def test_name_and_parameters_make_the_same_memory(name: str) -> None:
    registered = memory_store(name)

    assert registered.name == name
    assert memory_store(name, **registered.parameters).parameters == registered.parameters


@pytest.mark.parametrize("alias", ["placeholder", "PlaceholderMemoryStore", "NoMemoryStore"])
async def test_older_names_mean_no_memory(alias: str) -> None:
    none = memory_store(alias)
    scope: Any = None

    assert none.name == "none"
    assert await none.retrieve(scope, {"role": "user", "content": "hello"}) == Retrieved()
    assert await none.update(scope, []) is None
    assert await none.before_compact(scope, []) is None
    assert await none.after_compact(scope, []) is None


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("elephant", {}),
        ("none", {"limit": 1}),
        ("record", {"limit": 0}),
        ("record", {"limit": "x"}),
        ("record", {"a": 1}),
    ],
)
def test_rejects_unknown_name_or_parameter(name: str, parameters: dict[str, Any]) -> None:
    with pytest.raises(Refused):
        memory_store(name, **parameters)
