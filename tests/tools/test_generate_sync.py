"""The generator of the blocking API: signatures, docstrings, types, overrides, and the check of its files."""

import ast
from pathlib import Path

import pytest

from tools import generate_sync
from tools.generate_sync import ClassInput, FileInput, FunctionInput, blocking_docstring, generate, main

STORE = '''
from collections.abc import AsyncGenerator, Awaitable
from typing import Any, Literal

from lockstitch.backend import Where
from lockstitch.store import names
from lockstitch.store.table import Table

class Store:
    """A store."""

    def __init__(self, project: str) -> None:
        self.project = project
        """The project of the store."""
        self.table = Table()
        self._private = 1

    async def find(
        self, *where: Where, order: Literal["old", "new"] = names.ORDER, limit: int | None = None, **equal: Any
    ) -> "list[names.Row]":
        """Return rows, as `await store.find()` does."""
        return []

    async def ping(self) -> None: ...

    def new(self, key: str) -> dict[str, Any]:
        return {}

    def watch(self, after: int = 0) -> AsyncGenerator[str, None]: ...

    def in_project(self, project: str) -> "Store":
        """Return a view."""
        return self

    async def _hidden(self) -> None: ...
'''

NAMES = """
from collections.abc import Awaitable, Callable

ORDER = "old"
Hook = Callable[[str], Awaitable[None]]

class Row: ...

class Cursor:
    async def next(self) -> int: ...

class Queue(Cursor): ...
"""

FILES = {
    "src/lockstitch/backend.py": "class Where: ...\n",
    "src/lockstitch/store/__init__.py": (
        "from lockstitch.backend import Where\nfrom lockstitch.store.store import Store\n"
    ),
    "src/lockstitch/store/names.py": NAMES,
    "src/lockstitch/store/table.py": "class Table:\n    async def get(self) -> int: ...\n",
    "src/lockstitch/store/store.py": STORE,
    "src/lockstitch/reply.py": (
        "from lockstitch.store import Store\n"
        "async def reply(store: Store, text: str, *, by: str | None = None) -> int:\n"
        '    """Reply with a text."""\n'
        "async def execute(store: Store) -> None: ...\n"
    ),
    "tools/sync_overrides.py": (
        "from copy import copy\n"
        "class SyncStoreOverrides:\n"
        "    def in_project(self, project):\n"
        "        # Views share the portal.\n"
        "        view = copy(self)\n"
        "        # The project differs.\n"
        "        return view\n"
    ),
}

INPUTS = (
    FileInput("tables", "Tables.", [ClassInput("SyncTable", ["lockstitch.store.table:Table"], "_table")]),
    FileInput(
        "store",
        "The store.",
        [
            ClassInput("SyncStore", ["lockstitch.store.store:Store"], "_store", base="lockstitch.sync.base:Base"),
            FunctionInput("lockstitch.reply:reply"),
            FunctionInput("lockstitch.reply:execute", executes=True),
        ],
    ),
)

TYPES = {
    "collections.abc:AsyncGenerator": "collections.abc:Generator",
    "lockstitch.store:Store": "lockstitch.sync.store:SyncStore",
    "lockstitch.store.table:Table": "lockstitch.sync.tables:SyncTable",
}


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a small repository with one async store, one table, two functions and one override."""
    monkeypatch.setattr(generate_sync, "FILES", INPUTS)
    monkeypatch.setattr(generate_sync, "TYPES", TYPES)
    for name, text in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (tmp_path / "src" / "lockstitch" / "sync").mkdir()
    return tmp_path


def change(checkout: Path, name: str, old: str, new: str) -> None:
    path = checkout / "src" / "lockstitch" / name
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def functions(text: str) -> dict[str, str]:
    """Return the source of each function of a module, methods included."""
    nodes = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef)]
    return {node.name: ast.unparse(node) for node in nodes}


def test_generates_one_call_per_method(checkout: Path) -> None:
    text = generate(checkout)["src/lockstitch/sync/store.py"]
    methods = functions(text)
    assert methods["find"].splitlines() == [
        "def find(self, *where: Where, order: Literal['old', 'new']=names.ORDER, limit: int | None=None, "
        "**equal: Any) -> list[Row]:",
        '    """Return rows, as `store.find()` does."""',
        "    return self._portal.call(self._store.find(*where, order=order, limit=limit, **equal))",
    ]
    assert methods["ping"].splitlines()[-1] == "    self._portal.call(self._store.ping())"
    assert methods["new"].splitlines()[-1] == "    return self._store.new(key)"
    assert methods["watch"].splitlines() == [
        "def watch(self, after: int=0) -> Generator[str, None, None]:",
        "    return self._portal.iterate(self._store.watch(after))",
    ]
    assert methods["table"].splitlines()[1:] == [
        "def table(self) -> SyncTable:",
        "    return SyncTable(self._store.table, self._portal)",
    ]
    assert '"""The project of the store."""' in methods["project"]
    assert "_hidden" not in methods


def test_imports_only_what_the_layers_allow(checkout: Path) -> None:
    text = generate(checkout)["src/lockstitch/sync/store.py"]
    imports = [line for line in text.splitlines() if line.startswith("from lockstitch")]
    assert imports == [
        "from lockstitch.reply import execute as execute_async",
        "from lockstitch.reply import reply as reply_async",
        "from lockstitch.store import Where, names",
        "from lockstitch.store.names import Row",
        "from lockstitch.sync.base import Base",
        "from lockstitch.sync.tables import SyncTable",
    ]


def test_functions_pass_the_async_store(checkout: Path) -> None:
    by_name = functions(generate(checkout)["src/lockstitch/sync/store.py"])
    assert by_name["reply"].splitlines() == [
        "def reply(store: SyncStore, text: str, *, by: str | None=None) -> int:",
        '    """Reply with a text."""',
        "    return store.portal.call(reply_async(store.async_store, text, by=by))",
    ]
    assert "store.portal.run(lambda: execute_async(store.async_store))" in by_name["execute"]


def test_override_replaces_only_the_body(checkout: Path) -> None:
    text = generate(checkout)["src/lockstitch/sync/store.py"]
    assert functions(text)["in_project"].splitlines() == [
        "def in_project(self, project: str) -> 'SyncStore':",
        '    """Return a view."""',
        "    view = copy(self)",
        "    return view",
    ]
    assert "from copy import copy\n" in text
    assert "# Views share the portal." in text
    assert "# The project differs." in text


def test_order_of_methods_follows_the_source_and_output_is_deterministic(checkout: Path) -> None:
    texts = generate(checkout)
    assert texts == generate(checkout)
    store = next(
        node for node in ast.parse(texts["src/lockstitch/sync/store.py"]).body if isinstance(node, ast.ClassDef)
    )
    names = [node.name for node in store.body if isinstance(node, ast.FunctionDef)]
    assert names == ["project", "table", "find", "ping", "new", "watch", "in_project"]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("async def ping(self) -> None", "async def ping(self) -> names.Cursor", "names.Cursor is async"),
        ("-> dict[str, Any]", "-> dict[str, names.Queue]", "names.Queue is async"),
        ("after: int = 0", "after: names.Hook", "names.Hook is async"),
        ("AsyncGenerator[str, None]", "'Awaitable[str]'", "collections.abc.Awaitable is async"),
        ("after: int = 0", "after: Listener = 0", "cannot find the definition of Listener"),
        ("async def ping", "@cached\n    async def ping", "the decorator cached is not in DECORATORS"),
        ("class Store:", "class Mixin: ...\nclass Store(Mixin):", "store.store.Mixin is a base class"),
        ("def in_project", "def within_project", "in_project not found"),
        (
            "in_project(self, project: str)",
            "in_project(self, name: str)",
            "in_project has the parameters project, self",
        ),
        ("self.project = project", "self.project = project or ''", "cannot infer the type of the attribute project"),
    ],
)
def test_unmapped_source_is_an_error(
    checkout: Path, old: str, new: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    change(checkout, "store/store.py", old, new)
    assert main([], checkout) == 1
    assert message in capsys.readouterr().err
    assert not (checkout / "src/lockstitch/sync/store.py").exists()


def test_check_fails_and_prints_a_diff_when_a_file_is_stale(checkout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([], checkout) == 0
    assert main(["--check"], checkout) == 0
    change(checkout, "store/store.py", "def new(self, key: str)", "def new(self, key: str, goal: str)")
    before = (checkout / "src/lockstitch/sync/store.py").read_text()
    capsys.readouterr()
    assert main(["--check"], checkout) == 1
    output = capsys.readouterr()
    assert "+        return self._store.new(key, goal)\n" in output.out
    assert "make sync" in output.err
    assert (checkout / "src/lockstitch/sync/store.py").read_text() == before
    assert main([], checkout) == 0
    assert main(["--check"], checkout) == 0


def test_generated_files_name_their_source(checkout: Path) -> None:
    for text in generate(checkout).values():
        assert text.startswith("# Generated by tools/generate_sync.py from store/")
        assert "Do not edit; run make sync.\n" in text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Open it with `async with open_store()`.", "Open it with `with open_store()`."),
        ("Call `await run()` for those who await it.", "Call `run()` for those who await it."),
        ("Example:\n\n    async for row in await rows():\n        await use(row)", None),
        (">>> await store.count()\n3", ">>> store.count()\n3"),
        ("A psycopg.AsyncConnection.", "A psycopg.Connection."),
        ("Returns:\n    An async generator of events.", "Returns:\n    A generator of events."),
        ("No code at all.", "No code at all."),
    ],
)
def test_docstrings_lose_await_in_code(text: str, expected: str | None) -> None:
    assert blocking_docstring(text) == (expected or "Example:\n\n    for row in rows():\n        use(row)")
