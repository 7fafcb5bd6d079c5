"""Applications in a store: their tables, their records in the commits of the record, their queries and lens parts."""

import asyncio
import sqlite3
from datetime import timedelta
from pathlib import Path
from typing import Any, ClassVar
from uuid import UUID

import pytest

from lockstitch.agents.agent import Agent
from lockstitch.agents.providers.scripted import Scripted
from lockstitch.backend import Find, Where
from lockstitch.engine.ports.provider import ModelRequest
from lockstitch.errors import Conflict, NotFound, Refused, SchemaMismatch, ThreadBusy
from lockstitch.extension import Extension, register
from lockstitch.integrations.export.lens_tables import export_lens
from lockstitch.model import Json, Record, Run, Thread
from lockstitch.model.record import Text, Time
from lockstitch.store import Store, open_store

pytestmark = pytest.mark.anyio


class Order(Record):
    table: ClassVar[str] = "orders"
    generated: ClassVar[frozenset[str]] = frozenset({"id"})

    id: int | None = None
    thread_id: UUID
    customer: Text
    state: Text = "open"
    paid: bool = False
    items: list[Json] = []
    ordered_at: Time


SHOP = Extension("test_shop", "tests.store.tables", kinds=(Order,))


@pytest.fixture(params=["sqlite", "postgres"])
def backend(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
async def shop(store: Store) -> Store:
    await store.extend(SHOP)
    return store


def order(store: Store, thread_id: UUID, customer: str = "Ada", **fields: object) -> Order:
    return Order(thread_id=thread_id, customer=customer, ordered_at=store.clock.now(), **fields)


async def orders(store: Store) -> list[Order]:
    return await store._backend.find(Find(Order, order=("id",)))


async def test_creates_tables_once_for_concurrent_callers(store: Store) -> None:
    await asyncio.gather(*(store.extend(SHOP) for _ in range(3)))
    await store.extend(SHOP)
    assert await orders(store) == []


async def test_creates_thread_and_record_in_one_commit(shop: Store) -> None:
    thread = shop.new_thread(agent="clerk")
    result = await shop.create(id=thread.id, agent="clerk", records=[order(shop, thread.id, items=[{"what": "tea"}])])
    (stored,) = await orders(shop)
    assert stored.thread_id == result.id
    assert (stored.items, stored.paid, stored.id) == ([{"what": "tea"}], False, 1)
    with pytest.raises(Conflict):
        await shop.create(key="second", agent="clerk", records=[order(shop, result.id)])
    with pytest.raises(Refused):
        await shop.create(key="third", agent="clerk", records=[order(shop, result.id, "Bea", state="lost")])
    for key in ("second", "third"):
        with pytest.raises(NotFound):
            await shop.thread(key)
    assert await orders(shop) == [stored]


async def test_create_replaces_another_thread_in_one_commit(shop: Store) -> None:
    old_thread = await shop.create(agent="clerk")
    await shop._backend.put([order(shop, old_thread.id)])
    held_thread = shop.new_thread(agent="clerk")
    await shop.create(
        id=held_thread.id, agent="clerk", records=[order(shop, held_thread.id)], delete_threads=[old_thread]
    )
    assert [order.thread_id for order in await orders(shop)] == [held_thread.id]
    with pytest.raises(NotFound):
        await shop.thread(old_thread.id)


async def test_create_rejects_replacing_a_held_thread(shop: Store) -> None:
    await shop.register_worker()
    held_thread = await shop.claim(await shop.create(agent="clerk"))
    with pytest.raises(ThreadBusy):
        await shop.create(key="new", agent="clerk", delete_threads=[held_thread])
    with pytest.raises(NotFound):
        await shop.thread("new")


async def test_runs_queries_that_read_and_write(shop: Store) -> None:
    for customer in ("Ada", "Bea"):
        thread = await shop.create(agent="clerk")
        await shop._backend.put([order(shop, thread.id, customer)])
    (result,) = await shop.query(SHOP, "of_customer", record_type=Order, customer="Bea")
    assert isinstance(result, Order)
    assert await shop.execute(SHOP, "pay", thread_id=result.thread_id) == [("Bea",)]
    early = shop.clock.now() - timedelta(hours=1)
    assert await shop.query(SHOP, "since", moment=early, paid=True) == [("Bea", "paid")]
    assert await shop.query(SHOP, "since", moment=early, paid=False) == [("Ada", "open")]
    with pytest.raises(Refused, match="has no query nothing"):
        await shop.query(SHOP, "nothing")


async def test_last_commit_of_run_writes_records_of_application(shop: Store) -> None:
    async def ending(store: Store, head: Thread, run: Run, value: Json) -> list[Record]:
        (order,) = await store._backend.find(Find(Order, (Where("thread_id", "=", head.id),)))
        assert run.status == "completed"
        return [order.changed(state="paid", paid=True, items=[{"said": value["text"]}])]

    clerk = Agent("clerk", model=Scripted(["Thank you"]), on_finish=ending)
    thread = shop.new_thread(agent="clerk", kind="goal", goal="Pay")
    fields = {"id": thread.id, "agent": "clerk", "kind": "goal", "goal": "Pay"}
    await shop.create(**fields, records=[order(shop, thread.id)])
    await clerk.resume(thread.id, store=shop)
    (stored,) = await orders(shop)
    assert (stored.state, stored.items) == ("paid", [{"said": "Thank you"}])


@pytest.mark.parametrize("wrong", ["raises", "unfit"])
async def test_run_completes_when_application_fails(shop: Store, wrong: str) -> None:
    async def ending(store: Store, head: Thread, run: Run, value: Json) -> list[Record]:
        if wrong == "raises":
            raise RuntimeError("out of paper")
        return [order(store, head.id, state="lost")]

    clerk = Agent("clerk", model=Scripted(["Thank you"]), on_finish=ending)
    result = await clerk.run("Pay", store=shop)
    assert (result.status, result.output_text) == ("completed", "Thank you")
    stitches = [stitch for stitch in await shop.log(result.run_id) if stitch.type == "error"]
    assert [stitch.data["where"] for stitch in stitches] == ["ending"]
    assert await orders(shop) == []


async def test_failed_run_ends_when_application_fails(shop: Store) -> None:
    requested: list[int] = []

    def model(request: ModelRequest) -> Any:
        requested.append(request.step)
        return {"fail": "request"} if len(requested) == 1 else "It continues."

    async def ending(store: Store, head: Thread, run: Run, value: Json) -> list[Record]:
        return [order(store, head.id, state="lost")]

    clerk = Agent("clerk", model=Scripted(model), on_finish=ending)
    result = await clerk.run("Pay", store=shop)
    assert (result.status, result.output_text, requested) == ("failed", None, [1])


async def test_instructions_get_their_thread(shop: Store) -> None:
    async def instructions(deps: object, occasion: object) -> str:
        return f"You serve {occasion.thread.key}."  # type: ignore[attr-defined]

    model = Scripted(["Yes"])
    await Agent("clerk", model=model, instructions=instructions).run("Tea?", store=shop, thread="table 4")
    llm = next(stitch for stitch in await shop.stitches("table 4") if stitch.type == "llm_call")
    assert (await shop.request(llm.id))["system"] == "You serve table 4."


async def test_lens_shows_tables_of_application(shop: Store, tmp_path: Path) -> None:
    thread = await shop.create(agent="clerk")
    await shop._backend.put([order(shop, thread.id)])
    answer = await shop.sql("SELECT customer FROM shop_orders", lens="agno")
    assert answer.rows == [("Ada",)]
    answer = await shop.sql("SELECT version, table_name FROM agno_schema_versions", lens="agno")
    assert ("ours", "Ada") in answer.rows
    assert "agno_sessions" in [table for _, table in answer.rows], "what the lens itself has is still there"
    assert (await shop.sql("SELECT count(*) FROM agno_sessions", lens="agno")).rows == [(1,)]
    await export_lens(shop, "agno", tmp_path / "agno.db")
    with sqlite3.connect(tmp_path / "agno.db") as connection:
        assert connection.execute("SELECT customer FROM shop_orders").fetchall() == [("Ada",)]


async def test_copies_tables_of_applications(shop: Store, tmp_path: Path) -> None:
    thread = await shop.create(agent="clerk")
    await shop._backend.put([order(shop, thread.id)])
    async with open_store(f"sqlite:///{tmp_path}/copy.db") as copy:
        copied = await shop.copy_to(copy)
        assert await orders(copy) == await orders(shop)
        assert copied.skipped_extensions == []
        assert (await shop.copy_to(copy)).total == 0
    async with open_store(f"file://{tmp_path}/files") as files:
        assert (await shop.copy_to(files)).skipped_extensions == ["test_shop"]


async def test_older_code_does_not_change_newer_tables(shop: Store, store_url: str) -> None:
    await shop.execute(SHOP, "newer")
    async with open_store(store_url) as older:
        with pytest.raises(SchemaMismatch, match="has version 9 of the tables of test_shop"):
            await older.extend(SHOP)


async def test_file_backend_rejects_extensions(tmp_path: Path) -> None:
    async with open_store(f"file://{tmp_path}/files") as store:
        with pytest.raises(Refused, match="Use SQLite or PostgreSQL"):
            await store.extend(SHOP)
        with pytest.raises(Refused, match="no table of Order"):
            await store.create(agent="clerk", records=[order(store, UUID(int=1))])


def test_rejects_two_extensions_with_the_same_name() -> None:
    register(SHOP)
    with pytest.raises(Refused, match="Two extensions are named test_shop"):
        register(Extension("test_shop", "tests.elsewhere"))


async def test_rejects_purge_of_user_when_application_code_is_missing(
    shop: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    await shop.create(agent="clerk", user_id="ada")
    monkeypatch.setattr("lockstitch.extension._registered", {})
    with pytest.raises(Refused, match="test_shop may have records of this user"):
        await shop.purge(user_id="ada")
    assert await shop.count() == 1
    assert await shop.purge(user_id="ada", force=True) == 1
