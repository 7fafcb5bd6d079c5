"""Definitions of agents: a new version only where something has changed."""

import asyncio

import pytest

from lockstitch.errors import NotFound, Refused
from lockstitch.model import FakeClock, Json, codec
from lockstitch.store import Store
from lockstitch.store.reports.definitions import version_changes

pytestmark = pytest.mark.anyio

FIRST = {"model": "m", "tools": ["look"], "instructions": "Be größer.", "limit": 2**70}
SECOND = {**FIRST, "model": "n"}


async def test_registers_definition_once(timed_store: Store, clock: FakeClock) -> None:
    agents = timed_store.agents
    first = await agents.register("default", "helper", FIRST)
    clock.advance(5)
    same_version = await agents.register("default", "helper", dict(FIRST))
    second = await agents.register("default", "helper", SECOND, role="team")

    assert first == same_version
    assert (first.version, second.version) == (1, 2)
    assert (first.definition, first.digest) == (FIRST, codec.digest(FIRST))
    assert await agents.versions("default", "helper") == [first, second]
    agent = await agents.get("default", "helper")
    assert (agent.version, agent.role) == (2, "team")
    assert agent.created_at == first.created_at < agent.updated_at == clock.now()


async def test_old_definition_gets_its_old_version(store: Store) -> None:
    for definition in (FIRST, SECOND):
        await store.agents.register("default", "helper", definition)

    assert (await store.agents.get("default", "helper")).version == 2
    assert (await store.agents.register("default", "helper", FIRST, current=False)).version == 1
    assert (await store.agents.get("default", "helper")).version == 2
    assert (await store.agents.register("default", "helper", FIRST)).version == 1
    assert (await store.agents.get("default", "helper")).version == 1
    assert len(await store.agents.versions("default", "helper")) == 2


async def test_concurrent_definitions_get_different_versions(store: Store) -> None:
    """Two releases start at the same time. A run of one must not continue with the definition of the other."""
    parameters = [{"model": f"m{number}"} for number in range(4)]
    versions = await asyncio.gather(
        *(store.agents.register("default", "helper", item) for item in [*parameters, *parameters])
    )
    assert [agent_version.definition for agent_version in versions] == [*parameters, *parameters]
    assert {agent_version.version for agent_version in versions} == {1, 2, 3, 4}
    for version in versions:
        assert (await store.agents.version("default", "helper", version.version)).definition == version.definition


async def test_separates_agents_by_project_and_name(store: Store) -> None:
    for project, name in (("default", "b"), ("default", "a"), ("elsewhere", "a")):
        assert (await store.agents.register(project, name, FIRST)).version == 1

    assert [agent.name for agent in await store.agents.list(project="default")] == ["a", "b"]
    with pytest.raises(NotFound, match="Agent elsewhere b"):
        await store.agents.get("elsewhere", "b")
    assert await store.agents.versions("elsewhere", "b") == []


async def test_new_version_keeps_metadata_of_agent(store: Store) -> None:
    await store.agents.register("default", "helper", FIRST)
    agent = (await store.agents.get("default", "helper")).changed(metadata={"team": "blue"})
    await store.agents.put(agent)
    await store.agents.register("default", "helper", SECOND)

    assert (await store.agents.get("default", "helper")).metadata == {"team": "blue"}


async def test_compares_versions_by_field(store: Store) -> None:
    def tool(name: str, description: str) -> Json:
        return {"name": name, "description": description, "input_schema": {"type": "object"}}

    definitions: list[Json] = [
        {"model": "m", "instructions": "Be brief.\nBe kind.", "tools": [], "timeout": 60},
        {"model": "m", "instructions": "Be brief.\nBe exact.", "tools": [tool("look", "Look."), tool("buy", "Buy.")]},
        {"model": "n", "instructions": "Be brief.\nBe exact.", "tools": [tool("look", "Look up.\nOnce.")]},
    ]
    agents = store.agents
    for definition in definitions:
        await agents.register("default", "helper", definition)
    other = await agents.register("default", "other", FIRST)
    assert [each.version for each in await agents.versions("default", "helper", newest=2)] == [2, 3]
    assert [each.version for each in await agents.versions("default", "helper", newest=2, before=2)] == [1]
    current = await agents.current_versions(await agents.list(project="default"))
    assert sorted((each.name, each.version) for each in current) == [("helper", 3), ("other", other.version)]

    first = await version_changes(agents, "default", "helper", 1)
    assert (first.since, first.changes) == (None, [])
    latest = await version_changes(agents, "default", "helper", 3)
    assert [(change.name, change.lines) for change in latest.changes if change.name != "tool buy"] == [
        ("model", ["@@ -1 +1 @@", "-m", "+n"]),
        ("tool look", ["@@ -1,2 +1,3 @@", "-Look.", "+Look up.", "+Once.", " {"]),
    ]
    (removed,) = [change for change in latest.changes if change.name == "tool buy"]
    assert removed.b is None
    assert {line[0] for line in removed.lines or []} == {"@", "-"}
    whole = await version_changes(agents, "default", "helper", 2, 1)
    assert [change.name for change in whole.changes] == ["instructions", "tool look", "tool buy", "timeout"]
    assert whole.changes[0].lines == ["@@ -1,2 +1,2 @@", " Be brief.", "-Be kind.", "+Be exact."]
    assert whole.as_json()["since"] == 1
    with pytest.raises(NotFound, match="Version 9 of agent helper"):
        await version_changes(agents, "default", "helper", 3, 9)


async def test_rejects_invalid_definition(store: Store) -> None:
    for name, definition, role in (("", FIRST, "agent"), ("a", {"x": float("nan")}, "agent"), ("a", FIRST, "king")):
        with pytest.raises(Refused):
            await store.agents.register("default", name, definition, role=role)
    assert await store.agents.list() == []
    assert await store.agents.versions("default", "a") == []
