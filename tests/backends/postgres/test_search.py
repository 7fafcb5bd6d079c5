"""Search: words wherever they stand, by the indexes."""

import psycopg
import pytest

from lockstitch.backend import Hit
from lockstitch.backends.postgres.backend import PostgresBackend
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
async def test_words_inside_of_larger_ones(postgres: PostgresBackend, text: str, found: str) -> None:
    await grown(postgres, await created(postgres, title=text), said(text))
    assert await places(postgres, found) == [None, 1]
    assert await places(postgres, f"{found} unheard") == []


async def test_a_nul_in_the_text(postgres: PostgresBackend) -> None:
    await grown(postgres, await created(postgres), said("before\x00after"), answered("\\u0000 \x00 word"))
    assert await places(postgres, "word") == [2]
    assert await places(postgres, "before") == [1]
    assert await places(postgres, "wo\x00rd") == []


async def test_the_best_comes_first(postgres: PostgresBackend) -> None:
    thread = await created(postgres)
    thread = await grown(postgres, thread, said("once tea and much else besides"), answered("tea tea tea"))
    hits = await postgres.search("default", "tea", 10)
    assert [hit.position for hit in hits] == [2, 1]
    assert hits[0].score > hits[1].score
    assert await postgres.search("default", "tea", 1) == [Hit(thread.id, 2, hits[0].score)]


async def test_the_indexes_are_used(postgres: PostgresBackend, admin: psycopg.Connection) -> None:
    threads = [a_thread(title=f"title{n}") for n in range(300)]
    await postgres.put(threads)
    for number, thread in enumerate(threads[:50]):
        await postgres.put(stitched(thread, *(said(f"word{60 * number + n} and more") for n in range(60))))
    admin.execute("ANALYZE lockstitch.threads, lockstitch.stitches")
    query = postgres._dialect.text("search")  # pyright: ignore[reportPrivateUsage]
    for name, value in {"text": "'word3'", "project": "'default'", "limit": "10"}.items():
        query = query.replace(f"${{{name}}}", value)
    plan = str(admin.execute(f"EXPLAIN {query}".encode()).fetchall())
    assert "stitches_text_search" in plan
    assert "threads_title_search" in plan
