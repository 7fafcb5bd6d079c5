"""Tables."""

from typing import Annotated, ClassVar, Final, Literal
from uuid import UUID

from pydantic import Field

from lockstitch.apps.notebooks.readers.reader import Kind, Location
from lockstitch.ext import Count, Extension, Name, Record, Text, Time, new_id

UNTITLED: Final = "Untitled notebook"

FoundBy = Literal["words", "meaning", "words and meaning"]

Title = Annotated[Text, Field(min_length=1, max_length=255)]


class Notebook(Record):
    """A notebook: sources, chats about them, and what the team is to know in every run."""

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
        """Its id, once it is stored."""
        assert self.id is not None
        return self.id


class NotebookSession(Record):
    """That a thread is a chat of a notebook. `session_id` is the thread's key, or its id if it has none."""

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
    """A source of a notebook. Its text stands in its passages, which side by side are the whole of it."""

    table: ClassVar[str] = "notebook_sources"

    id: UUID = Field(default_factory=new_id)
    project: Name = "default"
    notebook_id: Count
    name: Name
    kind: Kind
    title: Text | None = None
    url: Text | None = None
    sha256: Annotated[Text, Field(min_length=64, max_length=64)]
    """Of the bytes that were read: the same are not read twice into one notebook."""
    size: Count
    characters: Count
    pages: Count | None = None
    passages: Count
    embedder: Text | None = None
    """Whose vectors its passages have."""
    created_at: Time


class Passage(Record):
    """A piece of a source: its text, its place there, and from where on it is read with what comes before it."""

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
    """What a passage means to an embedder: numbers of four bytes, the lowest byte first."""

    table: ClassVar[str] = "notebook_vectors"
    primary_key: ClassVar[tuple[str, ...]] = ("source_id", "number")

    source_id: UUID
    number: Count
    vector: bytes


class Finding(Record):
    """A passage that was found in a chat, and the number by which it is cited there from then on.

    When its source is removed the number stays taken, so that no answer comes to cite something else.
    """

    table: ClassVar[str] = "notebook_findings"
    primary_key: ClassVar[tuple[str, ...]] = ("thread_id", "number")

    thread_id: UUID
    number: Count
    source_id: UUID | None
    passage: Count
    run_id: UUID | None = None
    """The run that found it first."""
    query: Text
    found_by: FoundBy
    rank: Count
    """Its place among those that were found with it, from 1."""
    among: Count
    at: Time


class Citation(Record):
    """That an answer cites a finding of its chat; `place` is its order among those of the answer."""

    table: ClassVar[str] = "notebook_citations"
    primary_key: ClassVar[tuple[str, ...]] = ("run_id", "place")

    run_id: UUID
    place: Count
    thread_id: UUID
    number: Count


KINDS: Final = (Notebook, NotebookSession, Source, Passage, PassageVector, Finding, Citation)
"""All of them, those that others refer to first."""


EXTENSION: Final = Extension("notebooks", "lockstitch.apps.notebooks.sql", KINDS)
