"""Readers of a server that is killed repeatedly get each stitch once."""

from pathlib import Path

import pytest

from lockstitch import Client, open_store
from lockstitch.model import text_of
from tests.engine.agents import until
from tests.server.killing import Server, killing

pytestmark = pytest.mark.anyio


async def test_reader_gets_each_stitch_once_when_the_server_is_killed(tmp_path: Path) -> None:
    report = await killing(f"sqlite:///{tmp_path / 'store.db'}", kills=2, seed=6)
    assert report.kills == 2
    assert report.deltas
    wrong = (report.lost, report.repeated, report.different, report.unfinished, report.failed)
    assert wrong == (0, 0, 0, 0, 0), str(report)


@pytest.mark.parametrize("backend", ["sqlite", "postgres"])
async def test_queued_messages_are_answered_after_a_kill(store_url: str) -> None:
    """Messages behind an interrupted run are answered once and in order."""
    server = Server(store_url)
    await server.start()
    texts = ["one", "two", "three"]
    try:
        async with Client(server.url) as client:
            for text in texts:
                await client.begin("storyteller", text, thread="line")
            async for stitch in client.watch("line"):
                if stitch.type == "llm_call":
                    break
        await server.kill()
        await server.start()
        async with open_store(store_url) as store:
            await until(lambda: store.count(key="line", status="waiting"))
            log = await store.stitches("line")
            assert [text_of(stitch.message) for stitch in log if stitch.type == "input"] == texts
            assert [run.status for run in await store.runs("line")] == ["completed"] * len(texts)
            assert (await store.verify()).problems == []
    finally:
        await server.kill()
