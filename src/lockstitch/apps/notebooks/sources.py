"""The sources of a notebook: read, cut into passages, indexed and kept in one commit, or not at all."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Final
from uuid import UUID

from lockstitch import Conflict, NotFound, Refused, Store, Transaction
from lockstitch.apps.notebooks import notebooks
from lockstitch.apps.notebooks.passages import Passage as Piece
from lockstitch.apps.notebooks.passages import split
from lockstitch.apps.notebooks.readers.reader import Document, Kind, Limits
from lockstitch.apps.notebooks.readers.registry import kind_of, read
from lockstitch.apps.notebooks.records import Notebook, Passage, PassageVector, Source
from lockstitch.apps.notebooks.search import packed
from lockstitch.ext import Embedder, Where, codec

_BATCH: Final = 16
"""Passages that an embedder is given at once."""

_LONGEST_NAME: Final = 255


@dataclass(frozen=True, slots=True)
class Raw:
    """A source before it is read: what it is called, its bytes, and what is known of where it comes from."""

    name: str
    content: bytes
    kind: Kind | None = None
    media_type: str | None = None
    url: str | None = None


@dataclass(frozen=True, slots=True)
class Indexing:
    """How sources are read, cut and understood."""

    limits: Limits = field(default_factory=Limits)
    size: int = 1_200
    overlap: int = 200
    embedder: Embedder | None = None


async def add(store: Store, notebook: Notebook, raw: Raw, indexing: Indexing) -> Source:
    """Add a source. Refused says what is wrong with it, and then nothing was changed."""
    name = _name(raw.name)
    digest = sha256(raw.content).hexdigest()
    await _refuse_known(store, notebook, name, digest)
    kind = raw.kind or kind_of(name, raw.content, raw.media_type)
    document = await read(name, raw.content, kind, limits=indexing.limits)
    pieces = split(document, size=indexing.size, overlap=indexing.overlap)
    vectors = await _vectors(document, pieces, indexing.embedder)
    source = Source(
        project=store.project,
        notebook_id=notebook.number,
        name=name,
        kind=kind,
        title=document.title,
        url=raw.url,
        sha256=digest,
        size=len(raw.content),
        characters=len(document.text),
        pages=len(document.pages) or None,
        passages=len(pieces),
        embedder=indexing.embedder.name if indexing.embedder is not None else None,
        created_at=store.clock.now(),
    )
    passages = [_passage(source, document, passage) for passage in pieces]
    passage_vectors = [
        PassageVector(source_id=source.id, number=passage.number, vector=vector)
        for passage, vector in zip(pieces, vectors, strict=False)
    ]
    try:
        await store.commit(Transaction(records=[source, *passages, *passage_vectors]))
    except (Conflict, Refused):
        # Somebody else added the same, or removed the notebook, while this was read.
        await notebooks.get(store, notebook.number)
        await _refuse_known(store, notebook, name, digest)
        raise
    await notebooks.touch(store, notebook.number)
    return source


async def listed(store: Store, notebook: Notebook) -> list[Source]:
    """The sources of a notebook, in the order in which they were added."""
    where = (Where("notebook_id", "=", notebook.number), Where("project", "=", store.project))
    return await store.table(Source).find(*where, order=("created_at", "id"))


async def get(store: Store, notebook: Notebook, source_id: UUID) -> Source:
    """One source of a notebook. NotFound when it has none of this id."""
    source = await store.table(Source).get_or_none(source_id)
    if source is None or source.notebook_id != notebook.number or source.project != store.project:
        raise NotFound(f"Notebook {notebook.id} has no source {source_id}.")
    return source


async def passages(store: Store, source: Source, *, after: int = 0, limit: int | None = None) -> list[Passage]:
    """The passages of a source in their order; side by side they are its text."""
    where = (Where("source_id", "=", source.id), Where("number", ">", after))
    return await store.table(Passage).find(*where, order=("number",), limit=limit)


async def text(store: Store, source: Source) -> str:
    """The whole text that was read of a source."""
    return "".join(passage.text for passage in await passages(store, source))


async def remove(store: Store, notebook: Notebook, source_id: UUID) -> None:
    """Remove a source. Answers that cite it say from then on that it is gone."""
    source = await get(store, notebook, source_id)
    await store.table(Source).delete(Where("id", "=", source.id))
    await notebooks.touch(store, notebook.number)


async def _refuse_known(store: Store, notebook: Notebook, name: str, digest: str) -> None:
    where = (Where("notebook_id", "=", notebook.number), Where("sha256", "=", digest))
    source = await store.table(Source).first(*where)
    if source is not None:
        raise Refused(f"{name} is a source of this notebook already, as {source.name}. Nothing was added.")


async def _vectors(document: Document, passages: Sequence[Piece], embedder: Embedder | None) -> list[bytes]:
    """What the passages mean, each read with what comes before it."""
    if embedder is None:
        return []
    matches: list[bytes] = []
    for first in range(0, len(passages), _BATCH):
        texts = [passage.with_lead(document) for passage in passages[first : first + _BATCH]]
        matches += [packed(vector) for vector in await embedder.embed(texts)]
        # One that only computes never waits, and others want their turn too.
        await asyncio.sleep(0)
    return matches


def _passage(source: Source, document: Document, passage: Piece) -> Passage:
    place = passage.place
    return Passage(
        source_id=source.id,
        number=passage.number,
        start_at=place.start,
        end_at=place.end,
        lead_at=passage.lead,
        line=place.line,
        page=place.page,
        last_page=place.last_page,
        heading=place.heading,
        text=passage.text(document),
    )


def _name(name: str) -> str:
    """What a source is called: the last part of whatever path came with it."""
    short = codec.check_text(name, "The name of a source").replace("\\", "/").rstrip("/").rpartition("/")[2].strip()
    if not short:
        raise Refused("A source has a name. Nothing was added.")
    if len(short) > _LONGEST_NAME:
        raise Refused(f"The name of a source has at most {_LONGEST_NAME} characters. Nothing was added.")
    return short
