"""Whoever reads from a server that is killed again and again ends with the whole log, each stitch once."""

from pathlib import Path

import pytest

from lockstitch import Client, open_store
from lockstitch.model import text_of
from tests.engine.agents import until
from tests.server.killing import Server, killing

pytestmark = pytest.mark.anyio


async def test_a_reader_outlives_the_kills_of_its_server(tmp_path: Path) -> None:
    report = await killing(f"sqlite:///{tmp_path / 'store.db'}", kills=2, seed=6)
    assert report.kills == 2
    assert report.deltas
    wrong = (report.lost, report.repeated, report.different, report.unfinished, report.failed)
    assert wrong == (0, 0, 0, 0, 0), str(report)


@pytest.mark.parametrize("backend", ["sqlite", "postgres"])
async def test_messages_in_line_outlive_the_kill_of_their_server(store_url: str) -> None:
    """Of those behind a run that is cut off, each is answered once, and after what came before it."""
    server = Server(store_url)
    await server.start()
    said = ["one", "two", "three"]
    try:
        async with Client(server.url) as client:
            for text in said:
                await client.begin("storyteller", text, thread="line")
            async for one in client.watch("line"):
                if one.type == "llm_call":
                    break
        await server.kill()
        await server.start()
        async with open_store(store_url) as store:
            await until(lambda: store.count(key="line", status="waiting"))
            log = await store.stitches("line")
            assert [text_of(one.message) for one in log if one.type == "input"] == said
            assert [run.status for run in await store.runs("line")] == ["completed"] * len(said)
            assert (await store.verify()).problems == []
    finally:
        await server.kill()
