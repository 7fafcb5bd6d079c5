"""The option `--spread-backends`: distribute tests over the backends instead of running each of them on all three.

The code in `CALLERS` uses the store through its public methods, so a test there seldom depends on the backend. With the
option, each test there without a requirement id runs on one of its backends. The name of the test chooses it, so every
folder still uses all backends.

A test with at least as many other values of parameters as there are backends runs on every backend and with every
value, but not with every pair. Outside `CALLERS`, a test with a requirement id runs with every pair.
"""

import re
from collections import defaultdict
from zlib import crc32

import pytest

from tests.plugin_requirements import backend_of, ids_of
from tools.requirements import BACKENDS, NO_BACKEND

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
    functions: defaultdict[str, defaultdict[str, list[pytest.Item]]] = defaultdict(lambda: defaultdict(list))
    for item in items:
        if backend_of(item) != NO_BACKEND:
            functions[item.nodeid.partition("[")[0]][name_without_backend(item)].append(item)
    left_out: set[pytest.Item] = set()
    for variants in functions.values():
        first = next(iter(variants.values()))
        folder = first[0].path.relative_to(config.rootpath).parts[1]
        has_ids = bool(ids_of(first[0]))
        if len(variants) >= len(BACKENDS) and (folder in CALLERS or not has_ids):
            shuffled = sorted(variants, key=lambda variant: crc32(variant.encode()))
            chosen = {variant: number for number, variant in enumerate(shuffled)}
        elif folder in CALLERS and not has_ids:
            chosen = {variant: crc32(variant.encode()) for variant in variants}
        else:
            continue
        for variant, same in variants.items():
            left_out.update(item for number, item in enumerate(same) if number != chosen[variant] % len(same))
    items[:] = [item for item in items if item not in left_out]
    config.hook.pytest_deselected(items=list(left_out))


def name_without_backend(item: pytest.Item) -> str:
    """Return the node id without the backend, which the variants of one test have in common."""
    return re.sub(rf"([\[-]){backend_of(item)}([\]-])", r"\1\2", item.nodeid, count=1)
