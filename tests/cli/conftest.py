"""Fixtures for the tests of the command line."""

import shutil
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from tests.cli.calling import Call
from tests.cli.story import Story, tell


@pytest.fixture
def lockstitch(call: Call, store_url: str, monkeypatch: pytest.MonkeyPatch) -> Call:
    """`lockstitch` in this process, on an empty store of each backend."""
    monkeypatch.setenv("LOCKSTITCH_STORE", store_url)
    return call


@pytest.fixture(scope="session")
def story_template(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], tuple[Path, Story]]:
    """A folder with the story in a file store and a SQLite store. Tests copy it."""

    @cache
    def template(backend: str) -> tuple[Path, Story]:
        folder = tmp_path_factory.mktemp(f"story-{backend}")
        return folder, tell(f"file:///{folder}/store" if backend == "files" else f"sqlite:///{folder}/store.db")

    return template


@pytest.fixture
def story(store_url: str, backend: str, story_template: Callable[[str], tuple[Path, Story]], tmp_path: Path) -> Story:
    if backend == "postgres":
        return tell(store_url)
    folder, template = story_template(backend)
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    return replace(template, url=store_url)
