"""The tools that change threads: only with --act and, on a server, with the scope write."""

import pytest

from lockstitch.server import Settings
from lockstitch.store import Store, open_store
from tests.cli import shop
from tests.integrations.mcp.sessions import Session, on_http, on_stdio
from tests.server.serving import serving

pytestmark = pytest.mark.anyio

ACTS = {"approve", "deny", "answer", "fork", "retry"}


async def prepare(store: Store) -> None:
    """Create threads that wait for replies, and a thread whose run failed."""
    for key, name in {"payment": "payer", "refused": "payer", "question": "questioner", "failed": "failing"}.items():
        await shop.app.agent(name).run("Go", store=store, thread=key)


async def check_acts(session: Session, store: Store, actor: str) -> None:
    tools = await session.tools()
    assert tools.keys() >= ACTS
    assert all(
        tools[name]["annotations"] == {"destructiveHint": True, "openWorldHint": False, "readOnlyHint": False}
        for name in ACTS
    )
    calls = {row["key"]: row["replies"][0]["call"] for row in await session.rows("waiting", "threads")}
    assert calls.keys() == {"payment", "refused", "question"}

    assert "NotFound" in await session.rejected("approve", thread="payment", call=calls["refused"])
    await session.call("approve", thread="payment", call=calls["payment"])
    assert "Conflict: Call" in await session.rejected("deny", thread="payment", call=calls["payment"])
    await session.call("deny", thread="refused", call=calls["refused"], reason="Too expensive")
    await session.call("answer", thread="question", text="Blue", call=calls["question"])
    await shop.app.agent("questioner").resume("question", store=store)
    await session.call("answer", thread="question", text="Large")
    fork = await session.call("fork", thread="payment", before_turn=1, key="again")
    assert fork["key"] == "again"
    assert (await session.call("retry", thread="failed"))["status"] == "pending"

    texts = {}
    for key in ("payment", "refused", "question", "failed"):
        head = await store.thread(key)
        result = await shop.app.agent(head.agent).resume(head, store=store)
        assert result is not None
        texts[key] = result.output_text
    assert texts == {"payment": "Done.", "refused": "Done.", "question": "Thanks.", "failed": "Fine."}
    assert "only failed and cancelled runs" in (await session.rejected("retry", thread="payment")).lower()
    log = await store.stitches("payment")
    assert [stitch.data["by"] for stitch in log if stitch.type == "permission"] == [actor]


async def test_acts_on_stdio_need_the_option(store_url: str) -> None:
    async with open_store(store_url) as store:
        await prepare(store)
        async with on_stdio(store_url) as session:
            assert not ACTS & (await session.tools()).keys()
        async with on_stdio(store_url, "--act", "--app", "tests.cli.shop:app") as session:
            await check_acts(session, store, "mcp")


async def test_acts_over_http_need_the_option_and_the_scope(store: Store) -> None:
    await prepare(store)
    _, reader = await store.tokens.create("reader", ["read"])
    _, writer = await store.tokens.create("writer", ["read", "write"])
    closed = Settings(tokens_needed=True, work=False)
    async with serving(store, shop.app, closed) as url, on_http(url, writer) as session:
        assert not ACTS & (await session.tools()).keys()
    acting = Settings(tokens_needed=True, work=False, mcp_acts=True)
    async with serving(store, shop.app, acting) as url:
        async with on_http(url, reader) as session:
            assert not ACTS & (await session.tools()).keys()
            assert "Unknown tool" in await session.rejected("retry", thread="failed")
        async with on_http(url, writer) as session:
            await check_acts(session, store, "writer")
