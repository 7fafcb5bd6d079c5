"""Token estimates: fast, and independent of the length of base64."""

import pytest

from lockstitch.engine.usage import estimate, estimate_all, estimate_json


def test_estimates_one_token_per_four_bytes() -> None:
    assert 1_000 <= estimate({"role": "user", "content": "abcd" * 1_000}) <= 1_020
    assert estimate_json({"a": 1}) == 2
    assert estimate_all([]) == 0


@pytest.mark.parametrize("kind", ["image", "document"])
def test_estimates_fixed_tokens_for_media(kind: str) -> None:
    def tokens(size: int) -> tuple[int, int]:
        block = {"type": kind, "source": {"type": "base64", "data": "A" * size}}
        result = {"type": "tool_result", "tool_use_id": "c", "content": [block]}
        return estimate({"role": "user", "content": [block]}), estimate({"role": "user", "content": [result]})

    assert tokens(10) == tokens(1_000_000)
    assert all(1_000 < count < 5_000 for count in tokens(10))


def test_estimates_text_and_text_block_equally() -> None:
    text = {"role": "user", "content": "hello"}

    assert estimate(text) == estimate({"role": "user", "content": [{"type": "text", "text": "hello"}]})
    assert estimate({"role": "user", "content": None}) == estimate({"role": "user"}) > 0
