"""A change is one statement, one round trip and one commit, and its update changes no index."""

import asyncio
from typing import Any

import psycopg
import pytest

from lockstitch.backend import Commit, Find, Where
from lockstitch.backends.postgres.append import ROWS
from lockstitch.backends.postgres.backend import PostgresBackend
from lockstitch.errors import Conflict, Refused
from lockstitch.model import Run, Stitch, SystemClock, Thread, codec, new_id
from tests.backends.postgres.wire import Wire, option
from tests.conformance.contract import (
    a_delivery,
    a_run,
    a_thread,
    change,
    commit,
    created,
    deliveries_of,
    grown,
    held,
    log_of,
)
from tests.samples import answered, asked, result, said

pytestmark = pytest.mark.anyio


def rows_of_one_transaction(admin: psycopg.Connection, thread: Thread) -> list[Any]:
    """Return the ids of the transactions that wrote the current rows of a thread."""
    return admin.execute(
        """SELECT DISTINCT xmin::text FROM lockstitch.threads WHERE id = %(id)s
           UNION SELECT xmin::text FROM lockstitch.runs WHERE thread_id = %(id)s
           UNION SELECT xmin::text FROM lockstitch.stitches WHERE thread_id = %(id)s
           UNION SELECT xmin::text FROM lockstitch.inbox WHERE thread_id = %(id)s""",
        {"id": thread.id},
    ).fetchall()


async def test_change_is_one_statement(wired: PostgresBackend, wire: Wire, admin: psycopg.Connection) -> None:
    thread = await held(wired, await created(wired))
    delivery = a_delivery(thread)
    await commit(wired, delivery)
    run = a_run(thread)
    entries = [said("Hi"), asked("c1", run_id=run.id), result("c1", 0, 2, run_id=run.id)]
    wire.forget()
    (receipt,) = await commit(
        wired,
        change(
            thread,
            *entries,
            new_runs=[run],
            runs=[(run.id, {"steps": 1}), (run.id, {"steps": 2, "model": "m"})],
            consumed=[(delivery.id, 1)],
            delivered=1,
            head={"title": "A title", "state": {"a": 1}},
        ),
    )
    assert [text.partition(" AS")[0] for text in wire.said] == ["WITH head"]
    assert wire.turns == 1
    assert (receipt.position, receipt.delivered) == (3, 1)
    assert len(rows_of_one_transaction(admin, thread)) == 1
    assert await log_of(wired, thread) == [
        stitch.changed(log_id=number) for number, stitch in enumerate(change(thread, *entries).stitches, start=1)
    ]
    assert await wired.get(Run, (run.id,)) == run.changed(steps=2, model="m")
    assert [(delivery.position, delivery.entry) for delivery in await deliveries_of(wired, thread)] == [(1, None)]


async def test_new_thread_and_its_first_change_are_one_statement(
    wired: PostgresBackend, wire: Wire, admin: psycopg.Connection
) -> None:
    await wired.count(Find(Thread))
    thread = a_thread()
    run = a_run(thread)
    wire.forget()
    first = change(thread, said("Hi", run_id=run.id), answered("Ho", run_id=run.id), new_runs=[run])
    await wired.append(Commit([first], [thread]))
    assert [text.partition(" AS")[0] for text in wire.said] == ["WITH head"]
    assert wire.turns == 1
    assert len(rows_of_one_transaction(admin, thread)) == 1
    assert [stitch.log_id for stitch in await log_of(wired, thread)] == [1, 2]


async def test_statement_shape_is_prepared_once(postgres: PostgresBackend, wire: Wire) -> None:
    """NULLs and large numbers do not change the statement."""
    thread = await created(postgres)
    wired = PostgresBackend(option(wire.url, "pool=1"), SystemClock())
    await wired.count(Find(Thread))
    for number in range(8):
        wire.forget()
        entry = answered(
            "x",
            input_tokens=None if number % 2 else 10**number,
            name=None if number % 3 else "n",
            data={"n": number},
        )
        thread = await grown(wired, thread, entry)
        appends = [text for text in wire.said if text.startswith("WITH head")]
        assert len(appends) == 1
        # The head is read too. At its second use a statement is prepared, which takes a separate round trip.
        assert wire.turns == (4 if number == 1 else 2)
    await wired.close()


async def test_hundred_appends_are_a_hundred_commits(postgres: PostgresBackend, admin: psycopg.Connection) -> None:
    thread = await grown(postgres, await created(postgres), said("first"))
    for _ in range(100):
        (receipt,) = await commit(postgres, change(thread, answered("x"), head={"updated_at": thread.updated_at}))
        tip = (await log_of(postgres, thread))[-1].id
        thread = thread.changed(position=receipt.position, tip_id=tip)
    written = admin.execute(
        "SELECT count(DISTINCT xmin::text), count(*) FROM lockstitch.stitches WHERE position > 1"
    ).fetchone()
    assert written == (100, 100)


@pytest.mark.usefixtures("unused_database")
async def test_updates_of_heads_are_hot(postgres: PostgresBackend, admin: psycopg.Connection) -> None:
    """No index contains a column that an append changes, and the page has free space.

    A page is full if a snapshot of another session, such as that of autovacuum, needs its old rows. Then an update
    moves a row to another page. An index of a changed column would prevent all HOT updates.
    """
    threads = [await created(postgres) for _ in range(5)]

    async def append(thread: Thread) -> None:
        for _ in range(100):
            thread = await grown(postgres, thread, said("x"), head={"updated_at": thread.updated_at})

    await asyncio.gather(*(append(thread) for thread in threads))
    admin.execute("SELECT pg_stat_force_next_flush()")
    async with asyncio.timeout(30):
        while True:
            # Sessions report their statistics within about a second, or when they end.
            await asyncio.sleep(0.1)
            updated, hot = admin.execute(
                "SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables WHERE relname = 'threads'"
            ).fetchone() or (0, 0)
            if updated >= 500:
                break
            await asyncio.gather(*(postgres.count(Find(Thread)) for _ in range(10)))
    assert hot >= 0.9 * updated


async def test_one_of_many_concurrent_changes_succeeds(postgres: PostgresBackend) -> None:
    thread = await created(postgres)

    async def one() -> bool:
        run = a_run(thread)
        try:
            await commit(postgres, change(thread, said("me", run_id=run.id), new_runs=[run]))
        except Conflict:
            return False
        return True

    assert sum(await asyncio.gather(*(one() for _ in range(50)))) == 1
    assert len(await log_of(postgres, thread)) == 1
    assert len(await postgres.find(Find(Run, (Where("thread_id", "=", thread.id),)))) == 1


@pytest.mark.parametrize("number", [ROWS - 1, ROWS, ROWS + 1, 3 * ROWS])
async def test_append_writes_any_number_of_stitches(postgres: PostgresBackend, number: int) -> None:
    thread = await created(postgres)
    stale = change(thread.changed(position=7), *(said(str(n)) for n in range(number)))
    with pytest.raises(Conflict):
        await commit(postgres, stale)
    assert await log_of(postgres, thread) == []
    (receipt,) = await commit(postgres, change(thread, *(said(str(n)) for n in range(number))))
    assert receipt.position == number
    messages = [(stitch.message or {})["content"] for stitch in await log_of(postgres, thread)]
    assert messages == [str(n) for n in range(number)]


async def test_missing_run_rejects_whole_change(postgres: PostgresBackend) -> None:
    thread = await created(postgres)
    with pytest.raises(Refused, match="not in this store"):
        await commit(postgres, change(thread, said("x", run_id=new_id())))
    assert await postgres.get(Thread, (thread.id,)) == thread
    assert await postgres.count(Find(Stitch)) == 0


async def test_content_is_exact_to_the_byte(postgres: PostgresBackend, admin: psycopg.Connection) -> None:
    deep: Any = "end"
    for _ in range(200):
        deep = [deep]
    data = {"z": 2**70, "a": [1.0, 1e-7, -0.0, '\x00 \\u0000 "quoted" %s $1 :name', "é😀\u2028"], "deep": deep}
    thread = await grown(postgres, await created(postgres), said("\x00", data=data))
    (stitch,) = await log_of(postgres, thread)
    assert stitch.data == data
    assert list(stitch.data) == ["z", "a", "deep"]
    assert admin.execute("SELECT data::text FROM lockstitch.stitches").fetchone() == (codec.dumps(data).decode(),)
