"""Kill points and disabled safeguards are injected by tests: the package itself has no switch for them."""

from pathlib import Path

import pytest

import lockstitch
from lockstitch import Agent, Refused, tool
from lockstitch.store import Store
from lockstitch.testing import KillPoints, Scripted
from tests.faults import VARIABLE

pytestmark = pytest.mark.anyio


def test_package_reads_no_switch_of_the_tests() -> None:
    package = Path(lockstitch.__file__).parent
    names = (VARIABLE, "LOCKSTITCH_KILL", "LOCKSTITCH_POINTS")
    texts = {path: path.read_text() for path in package.rglob("*.py")}
    assert len(texts) > 100
    assert [path for path, text in texts.items() if any(name in text for name in names)] == []


async def test_kill_points_are_traced_in_the_order_of_a_run(store: Store, tmp_path: Path) -> None:
    points = KillPoints(trace=tmp_path / "points")

    @tool
    def look(item: str) -> str:
        """Look at an item."""
        return item

    model = Scripted([{"calls": [{"name": "look", "input": {"item": "door"}}]}, "Seen."])
    agent = Agent("looker", model=points.provider(model), tools=[points.tool(look)], title=False)
    result = await agent.run("Look.", store=points.store(store), thread="t")
    assert result.output_text == "Seen."
    passed = (tmp_path / "points").read_text().split()
    runs = [point for point in passed if not point.startswith(("append", "claim"))]
    assert runs == [
        *("provider.before:1", "provider.after:1", "tool.before:1", "tool.after:1"),
        *("provider.before:2", "provider.after:2"),
    ]
    commits = [point for point in passed if point.startswith("append")]
    assert commits == [f"append.{when}:{number}" for number in range(1, 5) for when in ("before", "after")]


@pytest.mark.parametrize("name", ["tool.after", "tool.after:0", "tool.around:1", "sleep.before:1", ""])
def test_unknown_kill_point_is_refused(name: str) -> None:
    with pytest.raises(Refused, match="is not a kill point"):
        KillPoints(name)


def test_tool_without_code_keeps_its_definition() -> None:
    @tool(frontend=True)
    def confirm(text: str) -> str:
        """Confirm in the browser."""
        raise AssertionError

    assert KillPoints().tool(confirm) is confirm
