"""Passages of a text: their borders and locations."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lockstitch.apps.notebooks.passages import split
from lockstitch.apps.notebooks.readers.reader import Document, Heading
from lockstitch.errors import Refused

TEXTS = st.lists(
    st.sampled_from(["word ", "Sentence. ", "A question? ", "\n\n", "\n", "longword" * 9, "。", " "]), max_size=300
)


def test_passages_end_at_paragraphs_and_sentences() -> None:
    text = "First paragraph, with two sentences. Here is the second.\n\n" * 3 + "The last one."
    passages = split(Document("text", text), size=130, overlap=40)
    assert [passage.text(Document("text", text)).strip()[-1] for passage in passages] == ["."] * len(passages)
    assert len(passages) == 2
    assert passages[1].with_lead(Document("text", text)).startswith("Here is the second.\n\nFirst paragraph")


def test_passage_starts_at_a_heading() -> None:
    text = "Introduction. " * 8 + "\n# Shelf C\n" + "Robots. " * 5
    document = Document("markdown", text, headings=[Heading(text.index("# Shelf"), 1, "Shelf C")])
    passages = split(document, size=200, overlap=20)
    assert [(passage.place.heading, passage.place.line) for passage in passages] == [(None, 1), ("Shelf C", 2)]


def test_passages_have_page_numbers() -> None:
    document = Document("pdf", "a" * 100 + "b" * 100, pages=[0, 100])
    for size in (120, 400, 1000):
        assert [passage.place.words for passage in split(document, size=size, overlap=0)] == ["page 1", "page 2"]
    # Very short pages become one passage.
    assert [passage.place.words for passage in split(document, size=2000, overlap=0)] == ["pages 1 to 2"]


@settings(max_examples=60, deadline=None)
@given(
    parts=TEXTS, size=st.integers(50, 200), overlap=st.integers(0, 49), firm=st.lists(st.integers(0, 500), max_size=5)
)
def test_joined_passages_are_the_text(parts: list[str], size: int, overlap: int, firm: list[int]) -> None:
    text = "".join(parts)
    pages = sorted({0, *(place for place in firm if place < len(text))})
    document = Document("text", text, pages=pages)
    passages = split(document, size=size, overlap=overlap)
    assert "".join(passage.text(document) for passage in passages).strip() == text.strip()
    assert [passage.number for passage in passages] == list(range(1, len(passages) + 1))
    end = passages[0].place.start if passages else 0
    for passage in passages:
        assert passage.place.start == end
        end = passage.place.end
        assert len(passage.text(document).strip()) <= size
        assert passage.text(document).strip()
        assert max(0, passage.place.start - overlap) <= passage.lead <= passage.place.start
        assert passage.place.page == sum(page <= passage.place.start for page in pages)


def test_rejects_invalid_passage_size() -> None:
    with pytest.raises(Refused):
        split(Document("text", "x"), size=100, overlap=100)
