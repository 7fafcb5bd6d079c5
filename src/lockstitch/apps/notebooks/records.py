"""Record classes and the store extension of notebooks."""

from typing import Annotated, ClassVar, Final, Literal
from uuid import UUID

from pydantic import Field

from lockstitch.apps.notebooks.readers.reader import Kind, Location
from lockstitch.ext import Count, Extension, Name, Record, Text, Time, new_id

UNTITLED: Final = "Untitled notebook"

FoundBy = Literal["words", "meaning", "words and meaning"]

Title = Annotated[Text, Field(min_length=1, max_length=255)]


class Notebook(Record):
    """A notebook: its title and the text that the team receives in every run."""

    table: ClassVar[str] = "notebooks"
    generated: ClassVar[frozenset[str]] = frozenset({"id"})

    id: Count | None = None
    project: Name = "default"
    title: Title = UNTITLED
    description: Text | None = None
    instructions: Text | None = None
    created_at: Time
    updated_at: Time

    @property
    def number(self) -> int:
        """The id of a stored notebook."""
        assert self.id is not None
        return self.id


class NotebookSession(Record):
    """Links a thread to its notebook. `session_id` is the key of the thread, or its id if it has no key."""

    table: ClassVar[str] = "notebook_sessions"
    primary_key: ClassVar[tuple[str, ...]] = ("thread_id",)
    generated: ClassVar[frozenset[str]] = frozenset({"id"})

    id: Count | None = None
    project: Name = "default"
    notebook_id: Count
    session_id: Name
    thread_id: UUID
    created_at: Time


class Source(Record):
    """A source of a notebook. Its passages, joined in order, are its text."""

    table: ClassVar[str] = "notebook_sources"

    id: UUID = Field(default_factory=new_id)
    project: Name = "default"
    notebook_id: Count
    name: Name
    kind: Kind
    title: Text | None = None
    url: Text | None = None
    sha256: Annotated[Text, Field(min_length=64, max_length=64)]
    """Digest of the bytes. A notebook does not accept the same bytes twice."""
    size: Count
    characters: Count
    pages: Count | None = None
    passages: Count
    embedder: Text | None = None
    """Name of the embedder that computed the vectors of its passages."""
    created_at: Time


class Passage(Record):
    """A part of a source: its text and its location. Its lead starts at `lead_at`: see `passages`."""

    table: ClassVar[str] = "notebook_passages"
    primary_key: ClassVar[tuple[str, ...]] = ("source_id", "number")

    source_id: UUID
    number: Count
    start_at: Count
    end_at: Count
    lead_at: Count
    line: Count
    page: Count | None = None
    last_page: Count | None = None
    heading: Text | None = None
    text: Text

    @property
    def place(self) -> Location:
        return Location(self.start_at, self.end_at, self.line, self.page, self.last_page, self.heading)


class PassageVector(Record):
    """The embedding of a passage: little-endian 32-bit floats."""

    table: ClassVar[str] = "notebook_vectors"
    primary_key: ClassVar[tuple[str, ...]] = ("source_id", "number")

    source_id: UUID
    number: Count
    vector: bytes


class Finding(Record):
    """A passage that a search in a chat found, and the number that cites it in this chat.

    If the source is removed, the number stays reserved, so that no answer cites another passage with it.
    """

    table: ClassVar[str] = "notebook_findings"
    primary_key: ClassVar[tuple[str, ...]] = ("thread_id", "number")

    thread_id: UUID
    number: Count
    source_id: UUID | None
    passage: Count
    run_id: UUID | None = None
    """The first run that found it."""
    query: Text
    found_by: FoundBy
    rank: Count
    """Its rank in the results of the search, from 1."""
    among: Count
    at: Time


class Citation(Record):
    """A citation of a finding in an answer. `place` is its order in the answer, from 1."""

    table: ClassVar[str] = "notebook_citations"
    primary_key: ClassVar[tuple[str, ...]] = ("run_id", "place")

    run_id: UUID
    place: Count
    thread_id: UUID
    number: Count


KINDS: Final = (Notebook, NotebookSession, Source, Passage, PassageVector, Finding, Citation)
"""The record classes, referenced classes first."""


EXTENSION: Final = Extension("notebooks", "lockstitch.apps.notebooks.sql", KINDS)
