"""Sources of a notebook: storage, search and citations."""

from collections.abc import Sequence
from uuid import uuid4

import pytest

from lockstitch.apps.notebooks import Notebooks, citations, sources
from lockstitch.apps.notebooks import notebooks as repository
from lockstitch.apps.notebooks.readers.reader import Limits
from lockstitch.apps.notebooks.records import Citation, Notebook, Passage, PassageVector, Source
from lockstitch.apps.notebooks.search import fused, search_terms
from lockstitch.backend import Find
from lockstitch.engine.ports.provider import ProviderError
from lockstitch.errors import NotFound, Refused
from lockstitch.model import Record
from lockstitch.store import Store
from tests.apps.notebooks.papers import pdf

pytestmark = pytest.mark.anyio

LIBRARY = """# School library

## Shelf C

Shelf C, ages 8 to 11. BROWN, Peter: The Wild Robot. 80 short chapters, many under three pages. First of three.

## Shelf D

Two copies, one on loan. YANG, Kelly: Front Desk. A ten-year-old runs the desk of a motel.
"""


async def counts(store: Store) -> list[int]:
    kinds: Sequence[type[Record]] = (Source, Passage, PassageVector)
    return [await store._backend.count(Find(kind)) for kind in kinds]


@pytest.mark.req("S4-065")
async def test_stores_a_source_once_and_completely(notebooks: Notebooks, store: Store, books: Notebook) -> None:
    source = await notebooks.add_source(store, books.number, "folder/library.md", LIBRARY.encode())
    assert (source.name, source.kind, source.title, source.pages) == ("library.md", "markdown", "School library", None)
    assert await sources.text(store, source) == LIBRARY
    assert [source.id for source in await sources.listed(store, books)] == [source.id]
    assert (await repository.get(store, books.number)).updated_at > books.updated_at
    paper = await notebooks.add_source(store, books.number, "list.pdf", pdf(["Roller Girl", "The Penderwicks"]))
    passages = await sources.passages(store, paper)
    assert [(passage.page, passage.place.words) for passage in passages] == [(1, "pages 1 to 2")]


@pytest.mark.req("S4-065")
async def test_unreadable_source_changes_nothing(notebooks: Notebooks, store: Store, books: Notebook) -> None:
    await notebooks.add_source(store, books.number, "library.md", LIBRARY.encode())
    before = (await counts(store), await repository.get(store, books.number))
    for name, content, message in (
        ("broken.pdf", b"%PDF-1.7 nonsense", "damaged"),
        ("empty.txt", b"", "is empty"),
        ("binary.txt", bytes(range(256)), "is not text"),
        ("again.md", LIBRARY.encode(), "is already a source of this notebook, named library.md"),
        ("", b"text", "needs a name"),
        ("x" * 300 + ".txt", b"text", "at most 255 characters"),
        ("a\x00.txt", b"text", "NUL"),
    ):
        with pytest.raises(Refused, match=message):
            await notebooks.add_source(store, books.number, name, content)
    with pytest.raises(NotFound):
        await notebooks.add_source(store, 99, "a.txt", "text")
    with pytest.raises(Refused, match="disabled"):
        await notebooks.add_url(store, books.number, "http://example.org/")
    small = Notebooks(limits=Limits(bytes=10))
    with pytest.raises(Refused, match="The limit is 10"):
        await small.add_source(store, books.number, "a.txt", "x" * 11)
    assert (await counts(store), await repository.get(store, books.number)) == before
    assert notebooks.sources_in_progress(books.number) == []


async def test_failing_embedder_changes_nothing(store: Store, books: Notebook) -> None:
    class Broken:
        name = "broken"
        threshold = 0.5

        async def embed(self, texts: Sequence[str]) -> list[list[float]]:
            raise ProviderError("No such model.", "request")

        async def close(self) -> None: ...

    with pytest.raises(ProviderError):
        await Notebooks(embedder=Broken()).add_source(store, books.number, "a.txt", "text")
    assert await counts(store) == [0, 0, 0]


@pytest.mark.req("S4-065")
async def test_finds_passages_by_words_and_meaning(notebooks: Notebooks, store: Store, books: Notebook) -> None:
    await notebooks.add_source(store, books.number, "library.md", LIBRARY.encode())
    filler = "\n\n".join(f"Paragraph {number} is about gardening and the weather in spring." for number in range(400))
    await notebooks.add_source(store, books.number, "garden.txt", filler)
    other_notebook = await repository.create(store, "Other")
    await notebooks.add_source(store, other_notebook.number, "robots.txt", "Robots, robots, wild robots everywhere.")
    hits = await notebooks.search(store, books.number, "which books about robots are there?")
    assert (hits[0].source.name, hits[0].rank) == ("library.md", 1)
    assert hits[0].found_by == "words and meaning"
    assert {hit.source.name for hit in hits} <= {"library.md", "garden.txt"}
    assert "Wild Robot" in hits[0].passage.text
    assert await notebooks.search(store, books.number, "?!") == []
    assert await notebooks.search(store, books.number, "zzzqqq") == []
    for odd in ('"', "a*b:c|d&!()", "NEAR(a b)", "x" * 3000, "robot' OR 1=1 --", "機器人", "\x00"):
        await notebooks.search(store, books.number, odd)


async def test_finds_passages_by_words_without_embedder(store: Store, books: Notebook) -> None:
    plain = Notebooks(embedder=None)
    await plain.add_source(store, books.number, "library.md", LIBRARY.encode())
    assert await counts(store) == [1, 1, 0]
    (hit,) = await plain.search(store, books.number, "motels")
    assert hit.found_by == "words"
    # Vectors of another embedder are ignored.
    assert [hit.found_by for hit in await Notebooks().search(store, books.number, "motels")] == ["words"]


def test_merges_two_rankings() -> None:
    a, b, c = ((uuid4(), number) for number in (1, 2, 3))
    assert fused([a, b], [b, c])[0] == b
    assert fused([], []) == []
    assert search_terms("The wild Robots, of 9 ladies!") == '"the"|"wild"*|"robot"*|"of"|"9"|"lad"*'


async def cited_in(notebooks: Notebooks, store: Store, books: Notebook, query: str) -> list[int]:
    thread = await repository.ensure(store, books, "chat", user_id=None, agent="NotebookLM", message="hello")
    hits = await notebooks.search(store, books.number, query)
    return await citations.number(store, thread, uuid4(), query, hits)


@pytest.mark.req("S4-065")
async def test_citation_has_its_location(notebooks: Notebooks, store: Store, books: Notebook) -> None:
    small = Notebooks(passage_size=120, passage_overlap=40)
    source = await small.add_source(store, books.number, "library.md", LIBRARY.encode())
    first = await cited_in(notebooks, store, books, "wild robot chapters")
    second_text = await cited_in(notebooks, store, books, "wild robot chapters")
    assert first[0] == 1
    assert second_text == first
    thread = await store.thread("chat")
    citation = await citations.cited(store, thread, 1)
    assert citation.source == source
    assert citation.place is not None
    assert LIBRARY[citation.place.start : citation.place.end] == citation.quote
    assert "The Wild Robot" in citation.quote
    assert citation.before + citation.quote + citation.after in LIBRARY.replace("… ", "")
    assert (citation.place.heading, citation.where) == ("School library / Shelf C", "School library / Shelf C, line 5")
    assert citation.search_summary.startswith("found by words and meaning, rank 1 of ")
    for unknown in (0, 99, 2**40):
        with pytest.raises(NotFound):
            await citations.cited(store, thread, unknown)


async def test_number_stays_reserved_when_source_is_removed(
    notebooks: Notebooks, store: Store, books: Notebook
) -> None:
    source = await notebooks.add_source(store, books.number, "library.md", LIBRARY.encode())
    assert await cited_in(notebooks, store, books, "wild robot") == [1]
    await sources.remove(store, books, source.id)
    assert await counts(store) == [0, 0, 0]
    citation = await citations.cited(store, await store.thread("chat"), 1)
    assert (citation.source, citation.quote, citation.where) == (None, "", "This source was removed.")
    await notebooks.add_source(store, books.number, "library.md", LIBRARY.encode())
    assert await cited_in(notebooks, store, books, "wild robot") == [2]
    with pytest.raises(NotFound):
        await sources.remove(store, books, source.id)


async def test_answer_cites_only_found_passages(notebooks: Notebooks, store: Store, books: Notebook) -> None:
    await notebooks.add_source(store, books.number, "library.md", LIBRARY.encode())
    await cited_in(notebooks, store, books, "wild robot")
    head = await store.thread("chat")
    run = store.new_run(head)
    assert await citations.citations(store, run, "Robots [1], dragons [7], and [99999] or [2].") == [
        Citation(run_id=run.id, place=1, thread_id=head.id, number=1)
    ]


async def test_sources_of_another_notebook_or_project_are_not_found(
    notebooks: Notebooks, store: Store, books: Notebook
) -> None:
    source = await notebooks.add_source(store, books.number, "library.md", LIBRARY.encode())
    other_notebook = await repository.create(store, "Other")
    with pytest.raises(NotFound):
        await sources.get(store, other_notebook, source.id)
    with pytest.raises(NotFound):
        await sources.remove(store, other_notebook, source.id)
    with pytest.raises(NotFound):
        await notebooks.search(store.in_project("other"), books.number, "robot")
    assert await counts(store) == [1, 1, 1]
    await repository.remove(store, books.number)
    assert await counts(store) == [0, 0, 0]
