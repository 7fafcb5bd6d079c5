"""A plugin of pytest: LangGraph's own tests use the saver and the memory of Lockstitch instead of those of LangGraph.

The names of the tests stay. `SqliteSaver`, `AsyncSqliteSaver` and `InMemoryStore` are replaced where the fixtures of
the tests create them, before these are imported.
"""

import tempfile
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from importlib import import_module
from typing import Any

from langgraph.checkpoint.serde.encrypted import EncryptedSerializer

from lockstitch import open_store
from lockstitch.integrations.langgraph import LockstitchSaver, LockstitchStore


@contextmanager
def url() -> Generator[str]:
    with tempfile.TemporaryDirectory() as folder:
        yield f"sqlite:///{folder}/store.db"


@contextmanager
def saver(**options: Any) -> Generator[LockstitchSaver]:
    with url() as place, LockstitchSaver.open(place, **options) as opened:
        yield opened


@contextmanager
def encrypting_saver() -> Generator[LockstitchSaver]:
    with saver(serde=EncryptedSerializer.from_pycryptodome_aes(key=b"1234567890123456")) as opened:
        yield opened


@asynccontextmanager
async def async_saver() -> AsyncGenerator[LockstitchSaver]:
    with url() as place:
        async with open_store(place) as store:
            yield LockstitchSaver(store)


@contextmanager
def memory() -> Generator[LockstitchStore]:
    with url() as place, LockstitchStore.open(place) as opened:
        yield opened


replaced: dict[str, dict[str, Any]] = {
    "tests.conftest_checkpointer": {
        "_checkpointer_sqlite": saver,
        "_checkpointer_sqlite_aes": encrypting_saver,
        "_checkpointer_sqlite_aio": async_saver,
    },
    "tests.conftest_store": {"_store_memory": memory},
}
for name, functions in replaced.items():
    module = import_module(name)
    for function, replacement in functions.items():
        assert hasattr(module, function), f"{name} has no {function}"
        setattr(module, function, replacement)
