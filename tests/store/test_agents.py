"""Definitions of agents: a new version only where something has changed."""

import asyncio

import pytest

from lockstitch.errors import NotFound, Refused
from lockstitch.model import FakeClock, codec
from lockstitch.store import Store

pytestmark = pytest.mark.anyio

FIRST = {"model": "m", "tools": ["look"], "instructions": "Be größer.", "limit": 2**70}
SECOND = {**FIRST, "model": "n"}


async def test_a_definition_gets_a_version_once(timed_store: Store, clock: FakeClock) -> None:
    agents = timed_store.agents
    first = await agents.register("default", "helper", FIRST)
    clock.advance(5)
    again = await agents.register("default", "helper", dict(FIRST))
    second = await agents.register("default", "helper", SECOND, role="team")

    assert first == again
    assert (first.version, second.version) == (1, 2)
    assert (first.definition, first.digest) == (FIRST, codec.digest(FIRST))
    assert await agents.versions("default", "helper") == [first, second]
    agent = await agents.get("default", "helper")
    assert (agent.version, agent.role) == (2, "team")
    assert agent.created_at == first.created_at < agent.updated_at == clock.now()


async def test_going_back_to_an_old_definition_is_its_old_version(store: Store) -> None:
    for definition in (FIRST, SECOND):
        await store.agents.register("default", "helper", definition)

    assert (await store.agents.register("default", "helper", FIRST)).version == 1
    assert len(await store.agents.versions("default", "helper")) == 2


async def test_definitions_that_come_at_once_get_versions_of_their_own(store: Store) -> None:
    """As when two releases start at the same time: a run of one must not be gone on with by the other's definition."""
    wanted = [{"model": f"m{number}"} for number in range(4)]
    got = await asyncio.gather(*(store.agents.register("default", "helper", one) for one in [*wanted, *wanted]))
    assert [one.definition for one in got] == [*wanted, *wanted]
    assert {one.version for one in got} == {1, 2, 3, 4}
    for one in got:
        assert (await store.agents.version("default", "helper", one.version)).definition == one.definition


async def test_agents_are_of_a_project_and_a_name(store: Store) -> None:
    for project, name in (("default", "b"), ("default", "a"), ("elsewhere", "a")):
        assert (await store.agents.register(project, name, FIRST)).version == 1

    assert [agent.name for agent in await store.agents.list(project="default")] == ["a", "b"]
    with pytest.raises(NotFound, match="agent elsewhere b"):
        await store.agents.get("elsewhere", "b")
    assert await store.agents.versions("elsewhere", "b") == []


async def test_what_people_noted_of_an_agent_survives_a_new_version(store: Store) -> None:
    await store.agents.register("default", "helper", FIRST)
    agent = (await store.agents.get("default", "helper")).changed(metadata={"team": "blue"})
    await store.agents.put(agent)
    await store.agents.register("default", "helper", SECOND)

    assert (await store.agents.get("default", "helper")).metadata == {"team": "blue"}


async def test_what_is_no_definition_is_refused(store: Store) -> None:
    for name, definition, role in (("", FIRST, "agent"), ("a", {"x": float("nan")}, "agent"), ("a", FIRST, "king")):
        with pytest.raises(Refused):
            await store.agents.register("default", name, definition, role=role)
    assert await store.agents.list() == []
    assert await store.agents.versions("default", "a") == []
