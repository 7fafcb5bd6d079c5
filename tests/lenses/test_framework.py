"""The framework's tables of the lens agno, filled by the engine: agents, memories and metrics."""

import asyncio
from collections import Counter
from datetime import UTC, datetime
from typing import Any

import psycopg
import pytest

from lockstitch import Agent, Team
from lockstitch.agents.memories import RecordMemoryStore
from lockstitch.agents.providers.scripted import Scripted
from lockstitch.engine.ports.provider import ModelRequest
from lockstitch.model import FakeClock, Json, Memory, codec, text_of
from lockstitch.store import Store
from tests.engine.agents import until
from tests.engine.books import delegate
from tests.lenses.looking import look
from tests.lenses.story import agent, says

pytestmark = pytest.mark.anyio


def read(value: Any) -> Any:
    return codec.loads(value) if isinstance(value, str) else value


def crew(instructions: str = "Lead.", *members: Agent, **options: Any) -> Team:
    """Return a leader that delegates to all members at once."""
    chosen = members or (agent("a", [says("From a.")]), agent("b", [says("From b.", tokens=(50, 7))]))
    asks = {"calls": [delegate(member.name, "Go.") for member in chosen], "usage": {"input_tokens": 10}}
    model = Scripted({"replies": [[asks, says("Both said it.", tokens=(70, 3))]]})
    agent_options: dict[str, Any] = {"title": False, "base_delay": 0.0, **options}
    return Team("crew", model=model, members=chosen, instructions=instructions, **agent_options)


async def session_runs(store: Store, session: str) -> list[Json]:
    (row,) = await look(store, "agno", f"SELECT runs FROM agno_sessions WHERE session_id = '{session}'")
    return read(row["runs"])


@pytest.mark.req("S4-018", "S4-043", "S4-045")
async def test_members_that_end_at_the_same_time_are_both_stored(store: Store) -> None:
    meeting = asyncio.Barrier(2)

    def waits(name: str) -> Agent:
        async def reply(_: ModelRequest) -> Json:
            await meeting.wait()
            return says(f"From {name}.")

        return Agent(name, model=Scripted(reply), title=False, base_delay=0.0)

    async with asyncio.timeout(60):
        result = await crew("Lead.", waits("a"), waits("b"), mode="parallel").run("Go", store=store, thread="t")
    assert result.status == "completed"
    runs = await session_runs(store, "t")
    assert sorted(run["content"] for run in runs if run["agent_id"]) == ["From a.", "From b."]
    assert [run["run_id"] for run in runs] == [str(run.id) for run in await store.runs("t")]
    assert {run["status"] for run in runs} == {"COMPLETED"}
    answers = [response["content"] for response in runs[0]["member_responses"] if response["agent_id"]]
    assert sorted(answers) == ["From a.", "From b."]


@pytest.mark.req("S4-018", "X4-07")
async def test_concurrent_messages_cause_two_runs(store: Store) -> None:
    started, all_there = asyncio.Event(), asyncio.Event()

    async def reply(request: ModelRequest) -> str:
        started.set()
        await all_there.wait()
        return text_of(request.messages[-1])

    async def waiting() -> bool:
        return (await store.thread("t")).delivered == 3

    echo = Agent("echo", model=Scripted(reply), title=False, on_busy="queue")
    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        group.create_task(echo.run("first", store=store, thread="t"))
        await started.wait()
        for number in range(3):
            group.create_task(echo.run(f"message {number}", store=store, thread="t"))
        await until(waiting)
        all_there.set()
    runs = await session_runs(store, "t")
    assert Counter(run["content"] for run in runs) == Counter(["first", *(f"message {n}" for n in range(3))])
    for run in runs:
        assert codec.loads(run["input"]) == {"input_content": run["content"]}, "none was overwritten by another"


@pytest.mark.req("S4-019", "S4-020", "S4-021")
async def test_changed_team_becomes_new_version_with_own_links(store: Store) -> None:
    await crew("Lead.").run("Go", store=store, thread="one")
    await crew("Lead.").run("Go", store=store, thread="same")
    three = (*(agent(name, [says("x")]) for name in ("b", "a")), agent("c", [says("y")], instructions="New here."))
    await crew("Lead better.", *three).run("Go", store=store, thread="two")
    components = await look(store, "agno", "SELECT * FROM agno_components ORDER BY component_id")
    assert [
        (component["component_id"], component["component_type"], component["current_version"])
        for component in components
    ] == [
        ("a", "agent", 1),
        ("b", "agent", 1),
        ("c", "agent", 1),
        ("crew", "team", 2),
    ]
    configs = await look(
        store, "agno", "SELECT version, config FROM agno_component_configs WHERE component_id = 'crew' ORDER BY version"
    )
    assert [(config["version"], read(config["config"])["instructions"]) for config in configs] == [
        (1, "Lead."),
        (2, "Lead better."),
    ]
    links = await look(
        store,
        "agno",
        "SELECT l.* FROM agno_component_links l JOIN agno_component_configs c "
        "ON c.component_id = l.parent_component_id AND c.version = l.parent_version "
        "ORDER BY l.parent_version, l.position",
    )
    assert [(link["parent_version"], link["child_component_id"], link["child_version"]) for link in links] == [
        (1, "a", 1),
        (1, "b", 1),
        (2, "b", 1),
        (2, "a", 1),
        (2, "c", 1),
    ]
    keys = {tuple(link[name] for name in ("parent_version", "link_kind", "link_key")) for link in links}
    assert len(keys) == 5
    (session,) = await look(store, "agno", "SELECT * FROM agno_sessions WHERE session_id = 'two'")
    assert (session["session_type"], session["team_id"], session["agent_id"]) == ("team", "crew", None)


@pytest.mark.req("S4-022", "S4-023", "S4-032")
async def test_memories_of_one_user_are_hidden_from_another(store: Store) -> None:
    prompts: list[str] = []

    def reply(request: ModelRequest) -> str:
        prompts.append(" ".join(text_of(message) for message in request.messages))
        return "Noted."

    memory = RecordMemoryStore(extract=lambda messages: [text_of(messages[0])])
    helper = Agent("helper", model=Scripted(reply), memory=memory, title=False)
    await helper.run("My code word is plum", store=store, thread="a1", user_id="ada")
    await helper.run("My code word is pear", store=store, thread="b1", user_id="bob")
    await helper.run("What is my code word?", store=store, thread="a2", user_id="ada")
    await helper.run("What is my code word?", store=store, thread="b2", user_id="bob")
    await helper.run("What is my code word?", store=store, thread="nobody")
    assert "plum" in prompts[2]
    assert "pear" not in prompts[2]
    assert "pear" in prompts[3]
    assert "plum" not in prompts[3]
    assert "plum" not in prompts[4]
    assert "pear" not in prompts[4]
    for user, fruit in (("ada", "plum"), ("bob", "pear")):
        rows = await look(store, "agno", f"SELECT memory FROM agno_memories WHERE user_id = '{user}'")
        assert {word for row in rows for word in ("plum", "pear") if word in row["memory"]} == {fruit}
    now = store.clock.now()
    for name in ("helper", "other"):
        learned = Memory(kind="learning", agent=name, text=f"{name} asks first", created_at=now, updated_at=now)
        await store.memories.put(learned)
    (learning,) = await look(store, "agno", "SELECT * FROM agno_learnings WHERE agent_id = 'helper'")
    assert read(learning["content"])["text"] == "helper asks first"
    assert [memory.text for memory in await store.memories.list(kind="learning", agent="other")] == ["other asks first"]


@pytest.mark.req("S4-025", "S4-031")
async def test_daily_metrics_equal_runs_before_and_after_purge(store: Store) -> None:
    await crew().run("Go", store=store, thread="t", user_id="ada")
    await agent("a", [says("Alone.", tokens=(30, 4))]).run("Go", store=store, thread="s", user_id="bob")
    runs = [run for thread in ("t", "s") for run in await store.runs(thread)]
    counts = Counter(run.role for run in runs)
    tokens = {
        "input_tokens": sum(run.input_tokens for run in runs),
        "output_tokens": sum(run.output_tokens for run in runs),
        "total_tokens": sum(run.input_tokens + run.output_tokens for run in runs),
    }
    models = Counter(run.model for run in runs)
    query = "SELECT * FROM agno_metrics"
    for purged in (None, "ada", "bob"):
        if purged is not None:
            assert await store.purge(user_id=purged) == 1
        (day,) = await look(store, "agno", query)
        assert (day["agent_runs_count"], day["team_runs_count"]) == (counts["agent"], counts["team"]), purged
        assert tokens.items() <= read(day["token_metrics"]).items(), purged
        assert {metric["model_id"]: metric["count"] for metric in read(day["model_metrics"])} == models, purged
        assert str(day["date"]) == runs[0].started_at.date().isoformat()
        assert (day["aggregation_period"], bool(day["completed"])) == ("daily", False)
    assert await store.count() == 0


@pytest.mark.req("S4-031")
async def test_days_of_metrics_are_those_of_utc(
    timed_store: Store, clock: FakeClock, store_url: str, backend: str
) -> None:
    """Also for a client with another time zone."""
    clock.advance((datetime(2030, 1, 1, 23, 30, tzinfo=UTC) - clock.now()).total_seconds())
    for text in ("One.", "Two."):
        await agent("a", [says(text)]).run("Go", store=timed_store)
        clock.advance(3600)
    query = "SELECT date, agent_runs_count FROM agno_metrics ORDER BY date"
    if backend == "postgres":
        with psycopg.connect(store_url, autocommit=True) as connection:
            connection.execute("SET search_path TO agno")
            connection.execute("SET TimeZone TO 'Pacific/Kiritimati'")
            rows = connection.execute(query.encode()).fetchall()
    else:
        rows = (await timed_store.sql(query, lens="agno")).rows
    assert [(str(day), count) for day, count in rows] == [("2030-01-01", 1), ("2030-01-02", 1)]
