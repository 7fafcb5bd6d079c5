"""Search: words at any place, with the indexes."""

import asyncio
from contextlib import suppress

import psycopg
import pytest
from psycopg import sql

from lockstitch.backend import SearchHit
from lockstitch.backends.postgres import query as query_module
from lockstitch.backends.postgres.backend import PostgresBackend
from lockstitch.model import Entry, SystemClock
from tests.backends.postgres.until import until
from tests.conformance.contract import a_thread, created, grown, stitched
from tests.samples import answered, said

pytestmark = pytest.mark.anyio


async def places(backend: PostgresBackend, text: str) -> list[int | None]:
    return [hit.position for hit in await backend.search("default", text, 10)]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("see src/lockstitch/main.py:12", "main.py"),
        ("see src/lockstitch/main.py:12", "lockstitch"),
        ("write to ada@example.com today", "example"),
        ("write to ada@example.com today", "ada@example.com"),
        ("it is at https://example.com/a/b?c=d", "https://example.com"),
        ("customer-42 called", "customer 42"),
        ("customer-42 called", "42"),
        ("between -5 and +7.25", "25 5 7"),
        ("<b>bold</b> &amp; brave", "bold"),
        ("CamelCase and snake_case", "SNAKE camelcase"),
        ("Überraschung für Zoë", "überraschung zoë"),
        ("v1.2.3-rc1", "rc1"),
    ],
)
async def test_search_finds_words_inside_larger_ones(postgres: PostgresBackend, text: str, found: str) -> None:
    await grown(postgres, await created(postgres, title=text), said(text))
    assert await places(postgres, found) == [None, 1]
    assert await places(postgres, f"{found} unheard") == []


async def test_search_accepts_nul_in_text(postgres: PostgresBackend) -> None:
    await grown(postgres, await created(postgres), said("before\x00after"), answered("\\u0000 \x00 word"))
    assert await places(postgres, "word") == [2]
    assert await places(postgres, "before") == [1]
    assert await places(postgres, "wo\x00rd") == []


async def test_best_match_comes_first(postgres: PostgresBackend) -> None:
    thread = await created(postgres)
    thread = await grown(postgres, thread, said("once tea and much else besides"), answered("tea tea tea"))
    hits = await postgres.search("default", "tea", 10)
    assert [hit.position for hit in hits] == [2, 1]
    assert hits[0].score > hits[1].score
    assert await postgres.search("default", "tea", 1) == [SearchHit(thread.id, 2, hits[0].score)]


async def test_search_uses_indexes(postgres: PostgresBackend, admin: psycopg.Connection) -> None:
    """Searches titles and the filled index. Of the log it reads only later stitches."""
    threads = [a_thread(title=f"title{n}") for n in range(300)]
    await postgres.put(threads)
    for number, thread in enumerate(threads[:50]):
        await postgres.put(stitched(thread, *(said(f"word{60 * number + n} and more") for n in range(60))))
    assert await places(postgres, "word3") == [4]
    mark = filled(admin)
    assert mark == 3000
    admin.execute("VACUUM ANALYZE lockstitch.threads, lockstitch.stitches, lockstitch.text_search")
    limits = {"limit": "10", "ranked": "100", "many": "300", "titles": "100", "recent": "1000"}
    query = postgres._dialect.text("search", **limits)  # pyright: ignore[reportPrivateUsage]
    for number, name in enumerate(("text", "project", "mark"), 1):
        query = query.replace(f"${{{name}}}", f"${number}")
    # A statement that is used often is planned without its values.
    admin.execute("SET plan_cache_mode = force_generic_plan")
    admin.execute(f"PREPARE asked (text, text, bigint) AS {query}".encode())
    plan = str(admin.execute(f"EXPLAIN EXECUTE asked ('word3', 'default', {mark})".encode()).fetchall())
    assert "threads_title_search" in plan
    assert "text_search_words" in plan
    assert "stitches_log" in plan


async def test_search_reads_newest_texts_of_frequent_word(
    postgres: PostgresBackend, admin: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Few and many matches give the same result: the newest texts of the project."""
    thread, elsewhere = a_thread(), a_thread(project="elsewhere")
    await postgres.put([thread, elsewhere])
    await postgres.put(stitched(thread, *(said(f"word{n} and more") for n in range(40))))
    await postgres.put(stitched(elsewhere, *(said(f"word{n} and more") for n in range(10))))
    monkeypatch.setattr(query_module, "RANKED", 5)
    few = [await places(postgres, word) for word in ("more", "word30")]
    monkeypatch.setattr(query_module, "_MANY", 20)
    assert [await places(postgres, word) for word in ("more", "word30")] == few == [[36, 37, 38, 39, 40], [31]]
    assert filled(admin)


def filled(admin: psycopg.Connection) -> int:
    return (admin.execute("SELECT log_id FROM lockstitch.search_mark").fetchone() or (-1,))[0]


def indexed(admin: psycopg.Connection) -> int:
    return (admin.execute("SELECT count(*) FROM lockstitch.text_search").fetchone() or (-1,))[0]


async def test_append_does_not_fill_search_index(postgres: PostgresBackend, admin: psycopg.Connection) -> None:
    thread = await grown(postgres, await created(postgres), said("tea"), answered("tea"))
    assert indexed(admin) == 0
    assert await places(postgres, "tea") == [1, 2]
    assert indexed(admin) == 2
    await grown(postgres, thread, said("tea"))
    assert (filled(admin), indexed(admin)) == (2, 2)


async def test_search_index_is_filled_in_batches(
    postgres: PostgresBackend, admin: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lockstitch.backends.postgres.query.BATCH", 3)
    for numbers in (range(1, 9), range(9, 13)):
        thread = await created(postgres)
        await grown(postgres, thread, *(said(f"tea {n}") for n in numbers), Entry(type="span"))
        assert len(await postgres.search("default", "tea", 100)) == numbers[-1]
        assert indexed(admin) == numbers[-1]
    assert filled(admin) == 14


async def test_late_visible_stitches_are_found(
    postgres: PostgresBackend, postgres_url: str, admin: psycopg.Connection
) -> None:
    """Its log_id is lower than those of indexed stitches, no matter which transaction started first."""
    for order in ("slow first", "slow last"):
        late, early = await created(postgres), await created(postgres)
        with psycopg.connect(postgres_url) as slow, psycopg.connect(postgres_url) as quick:
            # A transaction has its id before it draws a log_id, like all transactions of the backend.
            for session in (slow, quick) if order == "slow first" else (quick, slow):
                session.execute("SELECT pg_current_xact_id()")
            slow.execute(TEA, [late.id])
            quick.execute(TEA, [early.id])
            quick.commit()
            for _ in range(2):
                assert [hit.thread_id for hit in await postgres.search("default", order, 10)] == []
                assert early.id in [hit.thread_id for hit in await postgres.search("default", "tea", 10)]
            slow.commit()
        thread_ids = [hit.thread_id for hit in await postgres.search("default", "tea", 10)]
        assert late.id in thread_ids, order
        assert early.id in thread_ids, order
    assert indexed(admin) == 4, "once it has ended, all of it is filled"


TEA = """INSERT INTO lockstitch.stitches (thread_id, position, id, fence, type, message, data, at)
         VALUES (%s, 1, gen_random_uuid(), 0, 'input', '{"role": "user", "content": "tea"}', '{}', now())"""


async def test_search_works_while_another_process_fills_index(
    postgres: PostgresBackend, postgres_url: str, admin: psycopg.Connection
) -> None:
    """The search does not wait long, and finds everything."""
    thread = await grown(postgres, await created(postgres), said("tea"))
    assert await places(postgres, "tea") == [1]
    await grown(postgres, thread, said("tea"))
    with psycopg.connect(postgres_url) as connection:
        connection.execute("SELECT pg_advisory_xact_lock(7167303524108317285)")
        assert await places(postgres, "tea") == [1, 2]
        assert indexed(admin) == 1
    assert await places(postgres, "tea") == [1, 2]
    assert indexed(admin) == 2


@pytest.mark.parametrize("filler", ["first", "last"])
async def test_search_finds_stitch_replaced_during_fill(
    postgres: PostgresBackend, postgres_url: str, admin: psycopg.Connection, filler: str
) -> None:
    """In either order, the index contains the new words and not the old ones."""
    thread = await created(postgres, kind="trace")
    (stitch,) = stitched(thread, said("tea"))
    await postgres.put([stitch])
    replaced = stitch.changed(message=said("coffee").message)
    with psycopg.connect(postgres_url) as connection:
        if filler == "first":
            connection.execute("SELECT pg_advisory_xact_lock(7167303524108317285)")
            replacing = asyncio.create_task(postgres.put([replaced]))
            await until(lambda: bool(admin.execute(WAITING).fetchall()))
            # The two wait for each other, and PostgreSQL cancels one of them. The store repeats a cancelled write.
            with suppress(psycopg.errors.DeadlockDetected):
                connection.execute(FILL)
            connection.commit()
            await replacing
        else:
            connection.execute(REPLACE)
            filling = asyncio.create_task(places(postgres, "tea"))
            await until(lambda: bool(admin.execute(WAITING).fetchall()) or filling.done())
            connection.commit()
            await filling
    assert await places(postgres, "tea") == []
    assert await places(postgres, "coffee") == [1]
    assert admin.execute("SELECT words::text FROM lockstitch.text_search").fetchall() == [("'coffee':1",)]


WAITING = """SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted
             AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"""
FILL = """WITH filled AS (
              INSERT INTO lockstitch.text_search
              SELECT thread_id, position, log_id, lockstitch.stitch_words(type, message, data) FROM lockstitch.stitches)
          UPDATE lockstitch.search_mark SET log_id = 1"""
REPLACE = """UPDATE lockstitch.stitches SET message = '{"role": "user", "content": "coffee"}'"""


async def test_search_works_for_read_only_user(
    postgres: PostgresBackend, postgres_url: str, admin: psycopg.Connection
) -> None:
    """Finds stitches in the index and stitches that are not yet in it."""
    thread = await grown(postgres, await created(postgres, title="tea"), said("tea"))
    assert await places(postgres, "tea") == [None, 1]
    await grown(postgres, thread, answered("tea"))
    name = (admin.execute("SELECT current_database() || '_reader'").fetchone() or ("",))[0]
    role = sql.Identifier(name)
    admin.execute(sql.SQL("CREATE ROLE {} LOGIN PASSWORD 'secret'").format(role))
    admin.execute(sql.SQL("GRANT USAGE ON SCHEMA lockstitch TO {}").format(role))
    admin.execute(sql.SQL("GRANT SELECT ON ALL TABLES IN SCHEMA lockstitch TO {}").format(role))
    try:
        url = postgres_url.replace("//", f"//{name}:secret@", 1).replace("@postgres:@", "@", 1)
        reader = PostgresBackend(url, SystemClock())
        assert await places(reader, "tea") == [None, 1, 2]
        assert indexed(admin) == 1
        await reader.close()
    finally:
        admin.execute(sql.SQL("DROP OWNED BY {} CASCADE").format(role))
        admin.execute(sql.SQL("DROP ROLE {}").format(role))
