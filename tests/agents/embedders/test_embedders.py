"""The offline embedder compares words, with equal results in every process."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockstitch.agents.embedders import HashingEmbedder, similarity, stem
from lockstitch.agents.registry import embedder
from lockstitch.errors import Refused

pytestmark = pytest.mark.anyio

ALIKE = [
    ("Write the API documentation", "Document the API"),
    ("Set up the CI pipeline", "Configure the CI"),
    ("Send invitations to speakers", "Invite the speakers"),
    ("Fix the login bug", "Repair the broken login"),
    ("Die Küche streichen", "Küche neu streichen"),
    ("部署到生产环境", "生产环境部署"),
]
UNLIKE = [
    ("Book a venue for the conference", "Order the coffee"),
    ("Design the database schema", "Paint the kitchen"),
    ("Deploy to production", "Write unit tests"),
    ("Prepare the report", "Print the poster"),
]


async def likeness(text: str, other_text: str) -> float:
    first, second = await embedder("hashing").embed([text, other_text])
    return similarity(first, second)


async def test_threshold_separates_similar_from_different_texts() -> None:
    chosen = embedder("hashing")
    assert chosen.name == "hashing:512"
    for pair in ALIKE:
        assert await likeness(*pair) >= chosen.threshold, pair
    for pair in UNLIKE:
        assert await likeness(*pair) < chosen.threshold, pair


@given(text=st.text())
async def test_every_text_has_a_vector(text: str) -> None:
    (vector,) = await HashingEmbedder(64).embed([text])
    assert len(vector) == 64
    length = similarity(vector, vector)
    assert length == pytest.approx(1) or not any(vector)


async def test_empty_text_is_similar_to_no_text() -> None:
    empty, full = await embedder("hashing").embed([" … ", "Paint the kitchen"])
    assert similarity(empty, full) == 0
    assert await embedder("hashing").embed([]) == []


async def test_vectors_are_equal_in_every_process() -> None:
    """Python's hashes differ between processes. These do not, so vectors can be stored."""
    (vector,) = await embedder("hashing:8").embed(["Plan the launch"])
    assert [round(value, 4) for value in vector] == [0.0306, 0.0516, 0.1772, 0.1772, 0.7432, 0.0, 0.0, -0.6175]


async def test_embeds_two_hundred_texts_fast() -> None:
    texts = [f"Task {number}: write the interface of module {number % 17} and show it" for number in range(200)]
    durations: list[float] = []
    for _ in range(3):
        began = time.process_time()
        await embedder("hashing").embed(texts)
        durations.append(time.process_time() - began)
    assert min(durations) < 0.1


def test_stem_removes_endings() -> None:
    assert {stem(word) for word in ("plan", "plans", "planned", "planning")} == {"plan"}
    assert {stem(word) for word in ("write", "writes", "writing")} == {"writ"}
    assert {stem(word) for word in ("city", "cities")} == {"city"}
    assert [stem(word) for word in ("boss", "red", "is", "s")] == ["boss", "red", "is", "s"]


@pytest.mark.parametrize("name", ["", "hash", "hashing:x", "hashing:0", "hashing:1", "openai", "openai:"])
def test_rejects_unknown_names(name: str) -> None:
    with pytest.raises(Refused):
        embedder(name)


def test_accepts_custom_embedder() -> None:
    hashing_embedder = HashingEmbedder(16)
    assert embedder(hashing_embedder) is hashing_embedder
