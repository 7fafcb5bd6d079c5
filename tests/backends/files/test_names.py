"""The file of a key stays inside its folder, no matter what the key contains."""

from pathlib import PurePosixPath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockstitch.backends.files.disk import name_of, prefix_of

parts = st.text(st.characters(exclude_categories=["Cs"]), max_size=400) | st.sampled_from(
    ["..", ".", "", "a/b", "../../etc/passwd", "A", "a", "é", ",", "~", "x" * 255]
)


@given(st.lists(parts, min_size=1, max_size=4))
def test_file_name_is_one_visible_path_part(key: list[str]) -> None:
    name = f"{name_of(key)}.json"
    assert PurePosixPath(name).parts == (name,)
    assert not name.startswith(".")
    assert "/" not in name
    assert "\0" not in name
    assert len(f".{name}.tmp".encode()) <= 255


@given(st.lists(parts, min_size=2, max_size=2), st.lists(parts, min_size=2, max_size=2))
def test_different_keys_have_different_file_names_ignoring_case(one: list[str], other: list[str]) -> None:
    assert (one == other) == (name_of(one).casefold() == name_of(other).casefold())


@given(st.lists(parts, min_size=2, max_size=3))
def test_file_names_start_like_their_keys(key: list[str]) -> None:
    assert name_of(key).startswith(prefix_of(key[:1]))


@pytest.mark.parametrize(
    ("key", "name"),
    [
        (("default", "customer-42"), "default,customer-42"),
        (("default", "2026-01-01", "", ""), "default,2026-01-01,,"),
        (("..",), "_..~"),
        (("Ada",), "Ada~"),
    ],
)
def test_file_names_are_readable(key: tuple[str, ...], name: str) -> None:
    assert name_of(key).startswith(name)
    assert (name_of(key) == name) == ("~" not in name)
