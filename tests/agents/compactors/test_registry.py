"""Compactors by name, including the names in older records."""

from typing import Any

import pytest

from lockstitch.agents.registry import COMPACTOR_NAMES, compactor
from lockstitch.errors import Refused


@pytest.mark.parametrize("name", COMPACTOR_NAMES)
def test_name_and_parameters_make_the_same_compactor(name: str) -> None:
    registered = compactor(name)

    assert registered.name == name
    assert compactor(name, **registered.parameters).parameters == registered.parameters


@pytest.mark.parametrize(
    ("alias", "name"),
    [
        ("placeholder", "none"),
        ("ToolResultRemovalCompactor", "tool_result_removal"),
        ("SlidingWindowCompactor", "sliding_window"),
        ("SummarizingCompactor", "summarizing"),
    ],
)
def test_accepts_older_names(alias: str, name: str) -> None:
    assert compactor(alias).name == name


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("summarising", {}),
        ("", {}),
        ("none", {"threshold": 3}),
        ("tool_result_removal", {"threshold": "many"}),
        ("tool_result_removal", {"keep": -1}),
        ("sliding_window", {"keep_turns": 0}),
        ("summarizing", {"keep_turns": True}),
        ("summarizing", {"tone": "friendly"}),
    ],
)
def test_rejects_unknown_name_or_parameter(name: str, parameters: dict[str, Any]) -> None:
    with pytest.raises(Refused):
        compactor(name, **parameters)
