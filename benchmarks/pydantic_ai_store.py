"""Conversations of pydantic-ai: `LockstitchConversationStore` beside the stores that pydantic-ai has or describes.

    python -m benchmarks.pydantic_ai_store

pydantic-ai has no durable store. The first peer is its store in memory, which copies each message as a durable store
would. The second one is the program of its documentation: the whole conversation as one JSON text, here in SQLite with
the same durability as Lockstitch. Processor time of a turn: load, add a prompt and an answer, save.
"""

import asyncio
import gc
import sqlite3
import tempfile
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from statistics import median

from pydantic_ai import Conversation, ConversationTypeAdapter
from pydantic_ai.conversation_store import ConversationStore, InMemoryConversationStore
from pydantic_ai.messages import ModelRequest, ModelResponse, TextPart, UserPromptPart
from pydantic_ai.usage import RequestUsage

from lockstitch import open_store
from lockstitch.integrations.pydantic_ai import LockstitchConversationStore

TURNS = 300
LARGE_TURNS = 400
TEXT = "A thousand characters of text. " * 33
ROUNDS = 3

Turn = Callable[[int], Awaitable[None]]
Side = Callable[[Path], AbstractAsyncContextManager[Turn]]


def add_turn(conversation: Conversation, number: int) -> None:
    prompt = ModelRequest([UserPromptPart(f"{number} {TEXT}")], run_id=f"run-{number}", conversation_id="1")
    usage = RequestUsage(input_tokens=1000, output_tokens=200)
    answer = ModelResponse([TextPart(f"{number} {TEXT}")], usage=usage, run_id=f"run-{number}", conversation_id="1")
    conversation.messages += [prompt, answer]


def turn_of(conversations: ConversationStore) -> Turn:
    async def turn(number: int) -> None:
        conversation = await conversations.load("1") or Conversation(conversation_id="1")
        add_turn(conversation, number)
        await conversations.save(conversation)

    return turn


@asynccontextmanager
async def lockstitch(folder: Path) -> AsyncGenerator[Turn]:
    async with open_store(f"sqlite:///{folder}/lockstitch.db") as store:
        yield turn_of(LockstitchConversationStore(store))


@asynccontextmanager
async def in_memory(folder: Path) -> AsyncGenerator[Turn]:
    yield turn_of(InMemoryConversationStore())


@asynccontextmanager
async def one_text(folder: Path) -> AsyncGenerator[Turn]:
    database = sqlite3.connect(folder / "text.db", isolation_level=None)
    database.execute("PRAGMA journal_mode = WAL")
    database.execute("PRAGMA synchronous = FULL")
    database.execute("CREATE TABLE conversations (id TEXT PRIMARY KEY, body BLOB NOT NULL)")

    async def turn(number: int) -> None:
        row = database.execute("SELECT body FROM conversations WHERE id = '1'").fetchone()
        conversation = ConversationTypeAdapter.validate_json(row[0]) if row else Conversation(conversation_id="1")
        add_turn(conversation, number)
        body = ConversationTypeAdapter.dump_json(conversation)
        database.execute("INSERT OR REPLACE INTO conversations VALUES ('1', ?)", (body,))

    try:
        yield turn
    finally:
        database.close()


async def spent(side: Side, turns: int) -> tuple[float, int]:
    """Return the milliseconds of processor time per turn, and the bytes of the files."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        async with side(folder) as turn:
            gc.collect()
            started = time.process_time()
            for number in range(turns):
                await turn(number)
            milliseconds = (time.process_time() - started) * 1000 / turns
        return milliseconds, sum(path.stat().st_size for path in folder.iterdir())


async def main() -> None:
    sides: dict[str, Side] = {"lockstitch": lockstitch, "in memory": in_memory, "one text": one_text}
    figures: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(ROUNDS):
        for name, side in sides.items():
            figures[name].append((await spent(side, TURNS))[0])
    own = median(figures["lockstitch"])
    for name, values in figures.items():
        print(f"{name}: {median(values):.2f} ms a turn, {own / median(values):.2f} of it needs Lockstitch")
    content = LARGE_TURNS * 2 * len(TEXT)
    for name in ("lockstitch", "one text"):
        size = (await spent(sides[name], LARGE_TURNS))[1]
        print(f"{name}: {size / 1e6:.1f} MB for {content / 1e6:.1f} MB of text, {size / content:.1f} times as much")


if __name__ == "__main__":
    asyncio.run(main())
