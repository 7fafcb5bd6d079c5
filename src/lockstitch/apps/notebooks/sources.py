"""Add, list and remove the sources of a notebook. One commit stores a source with its passages and vectors."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Final
from uuid import UUID

from lockstitch import Conflict, NotFound, Refused, Store, Transaction
from lockstitch.apps.notebooks import notebooks
from lockstitch.apps.notebooks.passages import Passage as TextPassage
from lockstitch.apps.notebooks.passages import split
from lockstitch.apps.notebooks.readers.reader import Document, Kind, Limits
from lockstitch.apps.notebooks.readers.registry import kind_of, read
from lockstitch.apps.notebooks.records import Notebook, Passage, PassageVector, Source
from lockstitch.apps.notebooks.search import packed
from lockstitch.ext import Embedder, Where, codec

_BATCH: Final = 16
"""Number of passages in one call of the embedder."""

_LONGEST_NAME: Final = 255


@dataclass(frozen=True, slots=True)
class Raw:
    """A source before it is parsed: its name, its bytes and its origin."""

    name: str
    content: bytes
    kind: Kind | None = None
    media_type: str | None = None
    url: str | None = None


@dataclass(frozen=True, slots=True)
class Indexing:
    """Settings for reading, splitting and embedding sources."""

    limits: Limits = field(default_factory=Limits)
    size: int = 1_200
    overlap: int = 200
    embedder: Embedder | None = None


async def add(store: Store, notebook: Notebook, raw: Raw, indexing: Indexing) -> Source:
    """Add a source. Raises `Refused` if it cannot be read. Nothing is written then."""
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
        # Another caller added the same source or removed the notebook since.
        await notebooks.get(store, notebook.number)
        await _refuse_known(store, notebook, name, digest)
        raise
    await notebooks.touch(store, notebook.number)
    return source


async def listed(store: Store, notebook: Notebook) -> list[Source]:
    """Return the sources of a notebook, oldest first."""
    where = (Where("notebook_id", "=", notebook.number), Where("project", "=", store.project))
    return await store.table(Source).find(*where, order=("created_at", "id"))


async def get(store: Store, notebook: Notebook, source_id: UUID) -> Source:
    """Return a source of a notebook. Raises `NotFound` if it does not exist."""
    source = await store.table(Source).get_or_none(source_id)
    if source is None or source.notebook_id != notebook.number or source.project != store.project:
        raise NotFound(f"Notebook {notebook.id} has no source {source_id}.")
    return source


async def passages(store: Store, source: Source, *, after: int = 0, limit: int | None = None) -> list[Passage]:
    """Return passages of a source in order. Joined they are its text."""
    where = (Where("source_id", "=", source.id), Where("number", ">", after))
    return await store.table(Passage).find(*where, order=("number",), limit=limit)


async def text(store: Store, source: Source) -> str:
    """Return the text of a source."""
    return "".join(passage.text for passage in await passages(store, source))


async def remove(store: Store, notebook: Notebook, source_id: UUID) -> None:
    """Remove a source. Citations of it then show that the source was removed."""
    source = await get(store, notebook, source_id)
    await store.table(Source).delete(Where("id", "=", source.id))
    await notebooks.touch(store, notebook.number)


async def _refuse_known(store: Store, notebook: Notebook, name: str, digest: str) -> None:
    where = (Where("notebook_id", "=", notebook.number), Where("sha256", "=", digest))
    source = await store.table(Source).first(*where)
    if source is not None:
        raise Refused(f"{name} is already a source of this notebook, named {source.name}. Nothing was added.")


async def _vectors(document: Document, passages: Sequence[TextPassage], embedder: Embedder | None) -> list[bytes]:
    """Return the stored vectors of the passages, each computed with its lead."""
    if embedder is None:
        return []
    matches: list[bytes] = []
    for first in range(0, len(passages), _BATCH):
        texts = [passage.with_lead(document) for passage in passages[first : first + _BATCH]]
        matches += [packed(vector) for vector in await embedder.embed(texts)]
        # An embedder that only computes never yields, so yield here.
        await asyncio.sleep(0)
    return matches


def _passage(source: Source, document: Document, passage: TextPassage) -> Passage:
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
    """Return the last part of the path as the name of the source."""
    short = codec.check_text(name, "The name of a source").replace("\\", "/").rstrip("/").rpartition("/")[2].strip()
    if not short:
        raise Refused("A source needs a name. Nothing was added.")
    if len(short) > _LONGEST_NAME:
        raise Refused(f"The name of a source has at most {_LONGEST_NAME} characters. Nothing was added.")
    return short
