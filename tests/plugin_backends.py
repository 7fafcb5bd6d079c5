"""The option `--spread-backends`: tests of code above the store run on one backend each instead of three.

The code in `CALLERS` uses the store through its public methods, so a test there seldom depends on the backend. With the
option, each test without a requirement id runs on one of its backends. The name of the test chooses it, so every folder
still uses all backends. Tests of the backends, the store, the lenses, races and crashes run on all of them.
"""

import re
from collections import defaultdict
from zlib import crc32

import pytest

from tests.plugin_requirements import backend_of, ids_of
from tools.requirements import NO_BACKEND

CALLERS = frozenset({"agents", "apps", "cli", "client", "engine", "hostile", "integrations", "server"})


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--spread-backends",
        action="store_true",
        help="run each test of code above the store on one backend, unless it proves a requirement",
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not config.getoption("spread_backends"):
        return
    variants: defaultdict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        folder = item.path.relative_to(config.rootpath).parts[1]
        if folder in CALLERS and backend_of(item) != NO_BACKEND and not ids_of(item):
            variants[name_without_backend(item)].append(item)
    left_out = {
        item
        for name, same in variants.items()
        for number, item in enumerate(same)
        if number != crc32(name.encode()) % len(same)
    }
    items[:] = [item for item in items if item not in left_out]
    config.hook.pytest_deselected(items=list(left_out))


def name_without_backend(item: pytest.Item) -> str:
    """Return the node id without the backend, which the variants of one test have in common."""
    return re.sub(rf"([\[-]){backend_of(item)}([\]-])", r"\1\2", item.nodeid, count=1)
