"""Contexts and histories in SQL equal those in Python, for any log."""

import random
from typing import Any

import pytest

from lockstitch.model import Entry, Json, Thread, tool_result
from lockstitch.store import Store
from tests.lenses.looking import look
from tests.lenses.story import Story

pytestmark = pytest.mark.anyio

STRANGE: list[Any] = [
    "plain",
    "",
    "NUL \x00 and a backslash with it \\u0000 \\\x00 \\\\\x00",
    "a pair \U0001f9f5, quotes \" ' and a line\nbreak",
    "\\ud83d is a word",
    {"big": 2**70, "small": 1e-300, "nested": [[[{"x": [None, True]}]]]},
]


LIKELY = {
    "input": 3,
    "llm_call": 3,
    "calls": 4,
    "result": 12,
    "compaction": 2,
    "unapplied": 1,
    "memory_retrieval": 1,
    "lane": 2,
    "fork": 0.3,
    "note": 1,
}
"""Possible next entries and their frequency."""


def deep(levels: int) -> Any:
    value: Any = "deep"
    for _ in range(levels):
        value = [value]
    return value


class Writer:
    """Writes a random log in which each entry can follow the previous ones."""

    def __init__(self, store: Store, lot: random.Random) -> None:
        self.store = store
        self.lot = lot
        self.run: Any = None
        self.open: list[tuple[int, int, str, Any]] = []
        self.types: dict[int, str] = {}

    async def write(self, length: int) -> Thread:
        head = await self.store.create()
        self.run = self.store.new_run(head, input_position=1)
        head = (await self.store.append(head, [self.entry("input")], new_runs=[self.run])).head
        self.types[1] = "input"
        entries: list[Entry] = []
        for position in range(2, length + 2):
            entries.append(self.next(position))
            self.types[position] = entries[-1].type
        while entries:
            some = self.lot.randint(1, 10)
            head = (await self.store.append(head, entries[:some])).head
            entries = entries[some:]
        return head

    def entry(self, kind: str, **fields: Any) -> Entry:
        if "message" not in fields and kind != "compaction":
            role = "assistant" if kind == "llm_call" else "user"
            content = self.lot.choice([self.words(), [{"type": "text", "text": str(self.words())}]])
            fields["message"] = {"role": role, "content": content}
        return Entry(type=kind, run_id=self.run.id, **fields)

    def words(self) -> Any:
        return self.lot.choice([*STRANGE, deep(100)])

    def next(self, position: int) -> Entry:
        kind = self.lot.choices(list(LIKELY), list(LIKELY.values()))[0]
        if kind == "result" and not self.open:
            kind = "calls"
        return getattr(self, f"_{kind}", lambda _: self.entry(kind))(position)

    def _calls(self, position: int) -> Entry:
        lane = self.lot.choice([None, None, None, self.run.id])
        ids = [f"c{position}_{index}" for index in range(self.lot.randint(1, 3))]
        self.open += [(position, index, call_id, lane) for index, call_id in enumerate(ids)]
        blocks = [{"type": "tool_use", "id": call_id, "name": "look", "input": {"of": self.words()}} for call_id in ids]
        text = [{"type": "text", "text": "Let me see."}]
        return self.entry("llm_call", lane=lane, message={"role": "assistant", "content": text + blocks})

    def _result(self, _: int) -> Entry:
        reply_to, index, call_id, lane = self.open.pop(self.lot.randrange(len(self.open)))
        block = tool_result(call_id, self.words(), is_error=self.lot.random() < 0.2)
        place = {"reply_to": reply_to, "call_index": index, "call_id": call_id, "lane": lane}
        return self.entry("tool_call", name="look", message=block, **place)

    def _lane(self, _: int) -> Entry:
        return self.entry("llm_call", lane=self.run.id)

    def _note(self, _: int) -> Entry:
        return self.entry("api_retry", message=None)

    def _unapplied(self, _: int) -> Entry:
        return self.entry("compaction", data={"applied": False, "keep": [[1, 1]]})

    def _fork(self, _: int) -> Entry:
        messages = [{"role": "user", "content": self.words()} for _ in range(self.lot.randint(0, 2))]
        return self.entry("fork", message=None, data={"messages": messages})

    def _compaction(self, position: int) -> Entry:
        positions = sorted(self.lot.sample(range(1, position), min(position - 1, 6)))
        keep = [[first, last] for first, last in zip(positions[::2], positions[1::2], strict=False)]
        replace: Json = {}
        for place in self.lot.sample(range(1, position), min(position - 1, 2)):
            if self.types[place] == "tool_call":
                replace[str(place)] = tool_result("again", self.words())
            else:
                new = {"role": "user", "content": self.words()}
                replace[str(place)] = self.lot.choice([new, [new, new], []])
        return self.entry("compaction", data={"applied": True, "keep": keep, "replace": replace})


def shown(value: Any) -> Any:
    """Return content as PostgreSQL can show it."""
    if isinstance(value, str):
        return value.replace("\x00", "\ufffd")
    if isinstance(value, dict):
        return {name: shown(item) for name, item in value.items()}
    return [shown(item) for item in value] if isinstance(value, list) else value


@pytest.mark.req("S0-015", "S0-061", "S0-062")
@pytest.mark.parametrize("seed", range(2))
async def test_sql_contexts_and_histories_equal_python_for_any_log(store: Store, backend: str, seed: int) -> None:
    lot = random.Random(seed)
    threads = [await Writer(store, lot).write(lot.randint(0, 40)) for _ in range(12)]
    contexts = {row["agent_uuid"]: row["messages"] for row in await look(store, "three_table", CONTEXTS)}
    normalize = (lambda value: value) if backend != "postgres" else shown
    compacted = 0
    for head in threads:
        expected = normalize(await store.context(head))
        assert contexts[str(head.id)] == expected, (seed, head.id)
        compacted += head.context_from > 0
    assert compacted > 5
    if backend == "postgres":
        histories = {row["id"]: row["messages"] for row in await look(store, "three_table", HISTORIES_POSTGRES)}
    else:
        histories = {row["id"]: row["messages"] for row in await look(store, "three_table", HISTORIES_SQLITE)}
    for head in threads:
        (run,) = await store.runs(head)
        assert histories[str(run.id)] == normalize(await store.messages(run.id)), (seed, head.id)


CONTEXTS = "SELECT agent_uuid, messages FROM agent_config"
HISTORIES_POSTGRES = "SELECT id, lockstitch.safe_jsonb(lockstitch.history(id)) AS messages FROM lockstitch.runs"
HISTORIES_SQLITE = "SELECT run_id AS id, messages FROM lens_history"


@pytest.mark.req("S0-015", "S0-061", "S0-002")
async def test_sql_contexts_and_histories_equal_those_of_python(story_store: Store, story: Story, backend: str) -> None:
    contexts = {row["agent_uuid"]: row["messages"] for row in await look(story_store, "three_table", CONTEXTS)}
    assert str(story.elsewhere.id) in contexts
    for head in await story_store.threads(limit=None, all_projects=True):
        if head.first_position == 1:
            assert contexts[str(head.id)] == await story_store.context(head), head.key
    rows = await look(story_store, "three_table", "SELECT run_id, agent_uuid, messages FROM conversation_history")
    assert len(rows) > 10
    for row in rows:
        if row["agent_uuid"] != str(story.archived.id):
            project = "elsewhere" if row["agent_uuid"] == str(story.elsewhere.id) else "default"
            assert row["messages"] == await story_store.in_project(project).messages(row["run_id"])


async def test_input_of_retried_run_is_part_of_its_history(store: Store) -> None:
    """The input existed before the run and caused it."""
    head = await store.create()
    first = store.new_run(head, input_position=1)
    message = {"role": "user", "content": "Go."}
    head = (await store.append(head, [Entry(type="input", message=message, run_id=first.id)], new_runs=[first])).head
    changes = {"status": "failed", "completed_at": store.clock.now(), "stop_reason": "error"}
    head = (await store.append(head, [], run_updates=[(first, changes)])).head
    second = store.new_run(head, input_position=1)
    answer = {"role": "assistant", "content": [{"type": "text", "text": "Gone."}]}
    entry = Entry(type="llm_call", message=answer, run_id=second.id)
    head = (await store.append(head, [entry], new_runs=[second])).head
    done = {"status": "completed", "completed_at": store.clock.now(), "output_position": 2}
    await store.append(head, [], run_updates=[(second, done)])
    sql = "SELECT user_message, final_response, messages FROM conversation_history WHERE sequence_number = 2"
    assert await look(store, "three_table", sql) == [
        {"user_message": "Go.", "final_response": "Gone.", "messages": [message, answer]}
    ]
    assert await store.messages(second.id) == [message, answer]


SURROGATES = (
    r"""SELECT lockstitch.safe_jsonb(e'["\\ud83d\\ude00 \\ud83d \\ude00 \\\\ud83d """
    r"""\\u0000\\u0000 \\\\u0000"]'::json) ->> 0"""
)


async def test_characters_that_jsonb_rejects_are_replaced(store: Store, backend: str) -> None:
    if backend != "postgres":
        return
    answer = await store.sql(SURROGATES)
    assert answer.rows == [("\U0001f600 \ufffd \ufffd \\ud83d \ufffd\ufffd \\u0000",)]
    broken = r"""SELECT lockstitch.safe_jsonb(e'["\\uDC00\\uD800", "\\\\\\ud800x"]'::json)"""
    assert (await store.sql(broken)).rows == [(["\ufffd\ufffd", "\\\ufffdx"],)]


@pytest.mark.req("S0-061")
async def test_lens_shows_blob_as_reference(store: Store) -> None:
    data = "A" * 40_000
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": data}}
    head = await store.create()
    run = store.new_run(head, input_position=1)
    entry = Entry(type="input", message={"role": "user", "content": [image]}, run_id=run.id)
    await store.append(head, [entry], new_runs=[run])
    ((row,),) = [await look(store, "three_table", CONTEXTS)]
    source = row["messages"][0]["content"][0]["source"]
    assert source["type"] == "lockstitch:blob"
    assert data not in str(row)
    assert (await store.context(head))[0]["content"] == [image]
