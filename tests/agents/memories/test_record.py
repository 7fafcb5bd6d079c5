"""The memory in the record: by project and user, the same after a repeated call, on every backend."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest

from lockstitch.agents.memories import RecordMemoryStore
from lockstitch.engine.ports.memory import Retrieved, Scope, Updated
from lockstitch.model import FakeClock, Message, foreign_id
from lockstitch.store import Store, open_store
from tests.samples import begin_turn

pytestmark = pytest.mark.anyio


def question(text: str) -> Message:
    return {"role": "user", "content": text}


SAID = [question("I live in Ulm and have a cat."), {"role": "assistant", "content": "Good to know."}]


class Model:
    """A fake model with fixed answers that stores its prompts."""

    def __init__(self, *answers: str) -> None:
        self.answers = list(answers)
        self.asked: list[tuple[str, str]] = []

    async def __call__(self, purpose: str, prompt: str) -> str:
        self.asked.append((purpose, prompt))
        return self.answers.pop(0)


async def scope_of(store: Store, model: Any = None, *, user: str | None = "ada", agent: str = "helper") -> Scope:
    head = await store.create(user_id=user, agent=agent)
    committed, run = await begin_turn(store, head, "hello", agent=agent)
    return Scope(store, committed.head, run, model or Model())


async def test_facts_are_stored_and_known_in_next_thread(timed_store: Store, clock: FakeClock) -> None:
    memory = RecordMemoryStore(limit=2)
    model = Model('["The user lives in Ulm.", "The user has a cat."]')
    scope = await scope_of(timed_store, model)

    assert await memory.update(scope, SAID) == Updated(created=2)

    [(purpose, prompt)] = model.asked
    assert purpose == "memory"
    assert "user: I live in Ulm and have a cat." in prompt
    second_scope = await scope_of(timed_store)
    assert await memory.retrieve(second_scope, question("What does my CAT eat?")) == Retrieved(
        1, ["The user has a cat."]
    )
    assert sorted((await memory.retrieve(second_scope, question("user"))).texts) == [
        "The user has a cat.",
        "The user lives in Ulm.",
    ]
    assert await memory.retrieve(second_scope, question("Bonjour?")) == Retrieved(0, [])
    memories = await timed_store.memories.list(user_id="ada")
    assert {memory.id for memory in memories} == {
        foreign_id("default", "memory", f"{scope.run.id} run {number}") for number in (1, 2)
    }
    assert {(memory.agent, memory.thread_id, memory.created_at) for memory in memories} == {
        ("helper", scope.head.id, clock.now())
    }


async def test_repeated_update_changes_nothing(timed_store: Store, clock: FakeClock) -> None:
    """Like after a crash between the memory write and the end of the run. The model may answer differently."""
    memory = RecordMemoryStore()
    model = Model('["The user lives in Ulm."]', '["Something else.", "And more."]')
    scope = await scope_of(timed_store, model)
    first = await memory.update(scope, SAID)
    before = await timed_store.memories.list()
    clock.advance(60)

    assert await memory.update(scope, SAID) == first
    assert await timed_store.memories.list() == before
    assert len(model.asked) == 1


async def test_known_fact_updates_its_memory(timed_store: Store, clock: FakeClock) -> None:
    memory = RecordMemoryStore()
    await memory.update(await scope_of(timed_store, Model('["The user lives in Ulm."]')), SAID)
    clock.advance(60)
    model = Model('["the user lives  in Ulm", "The user moved in 2020."]')
    scope = await scope_of(timed_store, model)

    assert await memory.update(scope, SAID) == Updated(created=1, updated=1)
    assert await memory.update(scope, SAID) == Updated(created=1, updated=1)

    assert "- The user lives in Ulm." in model.asked[0][1]
    memories = sorted(await timed_store.memories.list(), key=lambda memory: memory.text)
    assert [memory.text for memory in memories] == ["The user lives in Ulm.", "The user moved in 2020."]
    assert memories[0].updated_at - memories[0].created_at == timedelta(seconds=60)


@pytest.mark.req("S4-032")
async def test_memory_belongs_to_user_of_project(store_url: str) -> None:
    memory = RecordMemoryStore(extract=lambda messages: ["The code word is plum."])
    message = question("What is the code word?")
    async with open_store(store_url) as store, open_store(store_url, project="other", migrate=False) as other_store:
        await memory.update(await scope_of(store), SAID)

        assert (await memory.retrieve(await scope_of(store), message)).match_count == 1
        assert (await memory.retrieve(await scope_of(store, user="bob"), message)).match_count == 0
        assert (await memory.retrieve(await scope_of(store, user=None), message)).match_count == 0
        assert (await memory.retrieve(await scope_of(other_store), message)).match_count == 0
        assert (await memory.retrieve(await scope_of(store, agent="writer"), message)).match_count == 1


async def test_agents_can_have_their_own_memories() -> None:
    memory = RecordMemoryStore(by_agent=True, extract=lambda messages: ["The code word is plum."])
    async with open_store("sqlite:///:memory:") as store:
        await memory.update(await scope_of(store), SAID)

        assert (await memory.retrieve(await scope_of(store), question("word?"))).match_count == 1
        assert (await memory.retrieve(await scope_of(store, agent="writer"), question("word?"))).match_count == 0


async def test_stores_facts_of_removed_messages_before_compaction() -> None:
    memory = RecordMemoryStore()
    model = Model('["One."]', '["Two."]', '["Three.", "One."]')
    async with open_store("sqlite:///:memory:") as store:
        scope = await scope_of(store, model)

        assert await memory.before_compact(scope, SAID) == {"memories_created": 1, "memories_updated": 0}
        assert await memory.before_compact(scope, SAID) == {"memories_created": 1, "memories_updated": 0}
        messages = [*SAID, question("More.")]
        assert await memory.before_compact(scope, messages) == {"memories_created": 1, "memories_updated": 0}
        assert await memory.update(scope, messages) == Updated(created=1, updated=1)

        assert len(model.asked) == 3
        assert sorted(memory.text for memory in await store.memories.list()) == ["One.", "Three.", "Two."]
        report = await memory.after_compact(scope, SAID)
        assert report is not None
        assert report["messages"] == 2
        assert report["memories"] == 3
        assert report["tokens"] > 0


async def test_extracts_facts_without_a_model() -> None:
    async def extract(messages: Sequence[Message]) -> list[str]:
        return [f"{len(messages)} messages", "nul\x00 and \ud800 go", "  ", "2 MESSAGES"]

    model = Model()
    async with open_store("sqlite:///:memory:") as store:
        assert await RecordMemoryStore(extract=extract).update(await scope_of(store, model), SAID) == Updated(2)
        assert sorted(memory.text for memory in await store.memories.list()) == ["2 messages", "nul and go"]
    assert model.asked == []


@pytest.mark.parametrize("answer", ["", "I cannot do that.", "[]", "null", '{"facts": "none"}', "[" * 5_000])
async def test_answer_without_facts_stores_nothing(answer: str) -> None:
    async with open_store("sqlite:///:memory:") as store:
        assert await RecordMemoryStore().update(await scope_of(store, Model(answer)), SAID) == Updated()
        assert await store.memories.list() == []


async def test_does_not_call_model_without_text() -> None:
    model = Model()
    async with open_store("sqlite:///:memory:") as store:
        scope = await scope_of(store, model)
        call = {"role": "assistant", "content": [{"type": "tool_use", "id": "c", "name": "look", "input": {}}]}
        assert await RecordMemoryStore().update(scope, [call]) == Updated()
        assert await RecordMemoryStore().update(scope, []) == Updated()
    assert model.asked == []
