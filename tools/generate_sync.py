"""Write the blocking API in src/lockstitch/sync from the async classes and functions.

    python tools/generate_sync.py            write the files
    python tools/generate_sync.py --check    print a diff and exit 1 if a file is not current

Each generated function has the signature and the docstring of its async source, and a body of one call through the
portal. `TYPES` maps async types. tools/sync_overrides.py has the bodies that cannot be generated.
"""

import argparse
import ast
import builtins
import difflib
import re
import subprocess
import sys
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).resolve().parents[1]
OVERRIDES: Final = "tools.sync_overrides"


class GenerationError(Exception):
    """The async source has something that the generator cannot map. The message says what to change."""


class Symbol(NamedTuple):
    """The module that defines a name, and the name."""

    module: str
    name: str

    def __str__(self) -> str:
        return f"{self.module}.{self.name}"


# Inputs


@dataclass(frozen=True)
class ClassInput:
    """A class to generate. `sources` are `module:Class`. The async object is in the attribute `attribute`."""

    name: str
    sources: Sequence[str]
    attribute: str
    base: str | None = None
    """`module:Class` of the base class, which has the constructor. Without it, bases and constructor are generated."""
    docstring: str | None = None
    """None: the docstring of the last source."""
    skip: Sequence[str] = ()
    """Public members that the blocking API does not have."""


@dataclass(frozen=True)
class FunctionInput:
    """A function to generate from `module:function`, or from `module:Class.method`: then the object comes first."""

    source: str
    executes: bool = False
    """The function executes runs, so that an interrupt waits until they have released their threads."""
    lazy: bool = False
    """Import the module of the source when the function is called."""

    @property
    def name(self) -> str:
        return re.split("[:.]", self.source)[-1]


@dataclass(frozen=True)
class FileInput:
    """A file of src/lockstitch/sync."""

    name: str
    docstring: str
    items: Sequence[ClassInput | FunctionInput]
    additions: Sequence[str] = ()
    """Functions of tools/sync_overrides.py that have no async source."""

    @property
    def module(self) -> str:
        return f"lockstitch.sync.{self.name}"

    @property
    def path(self) -> str:
        return f"src/lockstitch/sync/{self.name}.py"


FILES: Final = (
    FileInput(
        "tables",
        "`SyncTable`, `SyncAgents`, `SyncSchedules` and `SyncStatistics`: records and statistics without await.",
        [
            ClassInput("SyncTable", ["lockstitch.store.tables:RecordTable"], "_table"),
            ClassInput("SyncAgents", ["lockstitch.store.tables:Agents"], "_agents", skip=["registered"]),
            ClassInput("SyncSchedules", ["lockstitch.store.schedules:Schedules"], "_schedules"),
            ClassInput("SyncStatistics", ["lockstitch.store.reports.statistics:Statistics"], "_statistics"),
        ],
    ),
    FileInput(
        "core",
        "`SyncStoreCore`: threads, commits, deliveries, leases, runs and stitches without await.",
        [
            ClassInput(
                "SyncStoreCore",
                ["lockstitch.store.threads:ThreadsApi", "lockstitch.store.core:StoreCore"],
                "_store",
                base="lockstitch.sync.base:SyncStoreBase",
                docstring="The methods of `StoreCore` and `ThreadsApi` without await.",
                skip=["execution", "lease_keeper", "mirrors"],
            )
        ],
    ),
    FileInput(
        "store",
        "`SyncStore` and `open_store`: the store without await.",
        [
            FunctionInput("lockstitch.store.open:open_store"),
            ClassInput(
                "SyncStore",
                ["lockstitch.store.store:Store"],
                "_store",
                base="lockstitch.sync.core:SyncStoreCore",
                docstring="One durable record, without await. Safe for many threads; open one per process.",
                skip=["audits", "ingest_queue", "ingest_queue_of_all", "tokens"],
            ),
        ],
    ),
    FileInput(
        "agents",
        "Functions that run agents and reply to threads, without await.",
        [
            FunctionInput("lockstitch.agents.agent:Agent.run", executes=True),
            FunctionInput("lockstitch.agents.agent:Agent.stream", executes=True),
            FunctionInput("lockstitch.agents.agent:Agent.start"),
            FunctionInput("lockstitch.agents.agent:Agent.resume", executes=True),
            FunctionInput("lockstitch.agents.agent:Agent.submit", executes=True),
            FunctionInput("lockstitch.agents.agent:Agent.retry", executes=True),
            FunctionInput("lockstitch.engine.replies:approve"),
            FunctionInput("lockstitch.engine.replies:deny"),
            FunctionInput("lockstitch.engine.replies:settle"),
            FunctionInput("lockstitch.engine.replies:submit_results"),
            FunctionInput("lockstitch.engine.replies:answer"),
            FunctionInput("lockstitch.engine.cancel:cancel", executes=True),
            FunctionInput("lockstitch.engine.result:result_for"),
            FunctionInput("lockstitch.agents.evals.runner:evaluate", executes=True),
            FunctionInput("lockstitch.agents.replays:replay", executes=True),
            FunctionInput("lockstitch.agents.replays:start_replay"),
            FunctionInput("lockstitch.agents.replays:resume_replay", executes=True),
            FunctionInput("lockstitch.integrations.importer:import_traces", lazy=True),
        ],
        additions=["close", "messages"],
    ),
)

TYPES: Final = {
    "collections.abc:AsyncGenerator": "collections.abc:Generator",
    "lockstitch.engine.events:EventStream": "collections.abc:Generator",
    "lockstitch.store:Store": "lockstitch.sync.store:SyncStore",
    "lockstitch.store.reports.statistics:Statistics": "lockstitch.sync.tables:SyncStatistics",
    "lockstitch.store.schedules:Schedules": "lockstitch.sync.tables:SyncSchedules",
    "lockstitch.store.tables:Agents": "lockstitch.sync.tables:SyncAgents",
    "lockstitch.store.tables:RecordTable": "lockstitch.sync.tables:SyncTable",
    # These are the same in both APIs. The loop of the store calls the async methods of agents and graders.
    "lockstitch.agents.agent:Agent": "lockstitch.agents.agent:Agent",
    "lockstitch.agents.evals.grader:Grader": "lockstitch.agents.evals.grader:Grader",
    "lockstitch.agents.evals.recorded_runs:RecordedRuns": "lockstitch.agents.evals.recorded_runs:RecordedRuns",
    "lockstitch.agents.evals.runner:GraderLike": "lockstitch.agents.evals.runner:GraderLike",
    "lockstitch.engine.result:Result": "lockstitch.engine.result:Result",
}
"""Async types, and their types in the blocking API."""

GENERATOR: Final = Symbol("collections.abc", "AsyncGenerator")
DECORATORS: Final = {"asynccontextmanager": "contextmanager", "property": "property"}
REPLACEMENTS: Final = {
    "psycopg.AsyncConnection": "psycopg.Connection",
    "An async generator": "A generator",
    "an async generator": "a generator",
    "The stream. Await it to start the run before the first iteration.": "A generator of the events.",
}
"""Words in docstrings that differ in the blocking API."""

FACADES: Final = {"lockstitch.backend": "lockstitch.store"}
"""Modules that `lockstitch.sync` must not import, and the package that exports their names."""


# Sources


@dataclass
class Module:
    """A parsed module: where its names come from."""

    name: str
    path: Path
    tree: ast.Module
    imports: dict[str, tuple[str, str | None]] = field(default_factory=dict[str, tuple[str, str | None]])
    """For each imported name: the module, and the name in it. None: the name is the module."""
    definitions: dict[str, ast.stmt] = field(default_factory=dict[str, ast.stmt])

    def __post_init__(self) -> None:
        for statement in _flat(self.tree.body):
            match statement:
                case ast.ImportFrom(module=str(module), names=names, level=0):
                    self.imports |= {name.asname or name.name: (module, name.name) for name in names}
                case ast.Import(names=names):
                    self.imports |= {name.asname or name.name: (name.name, None) for name in names}
                case ast.ClassDef(name=name) | ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                    self.definitions[name] = statement
                case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
                    self.definitions[name] = statement
                case _:
                    pass


def _flat(body: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield the statements of a module and those below `if TYPE_CHECKING`."""
    for statement in body:
        if isinstance(statement, ast.If):
            yield from _flat(statement.body)
        else:
            yield statement


class Sources:
    """The modules of a checkout, parsed when they are needed."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._modules: dict[str, Module | None] = {}

    def module(self, name: str) -> Module | None:
        """Return a module of the checkout. None if it has no module of this name."""
        if name not in self._modules:
            self._modules[name] = self._parse(name)
        return self._modules[name]

    def required(self, name: str) -> Module:
        module = self.module(name)
        if module is None:
            raise GenerationError(f"Module {name} not found.")
        return module

    def _parse(self, name: str) -> Module | None:
        base = self._root.joinpath("" if name.startswith("tools.") else "src", *name.split("."))
        for path in (base.with_suffix(".py"), base / "__init__.py"):
            if path.is_file():
                tree = ast.parse(path.read_text(encoding="utf-8"))
                return Module(name, path, tree)
        return None

    def place(self, module: Module, node: ast.expr) -> Symbol | None:
        """Return where a module gets the name or `module.name` of an expression from. None for a builtin."""
        match node:
            case ast.Name(id=name) if name in module.definitions:
                return Symbol(module.name, name)
            case ast.Name(id=name) if name in module.imports:
                origin, original = module.imports[name]
                return Symbol(origin, original or "")
            case ast.Name(id=name) if hasattr(builtins, name):
                return None
            case ast.Attribute(value=ast.Name(id=name), attr=attribute) if name in module.imports:
                origin, original = module.imports[name]
                return Symbol(f"{origin}.{original}" if original else origin, attribute)
            case _:
                raise GenerationError(f"{module.name}: cannot find the definition of {ast.unparse(node)}.")

    def resolve(self, symbol: Symbol) -> Symbol:
        """Return the symbol at its definition, through the imports of packages."""
        module = self.module(symbol.module)
        if module is None or symbol.name in module.definitions or symbol.name not in module.imports:
            return symbol
        origin, original = module.imports[symbol.name]
        return self.resolve(Symbol(origin, original or ""))

    def named(self, reference: str) -> Symbol:
        """Return the symbol of `module:name`, at its definition."""
        module, _, name = reference.partition(":")
        return self.resolve(Symbol(module, name))

    def definition(self, symbol: Symbol) -> tuple[Module, ast.stmt] | None:
        symbol = self.resolve(symbol)
        module = self.module(symbol.module)
        statement = module.definitions.get(symbol.name) if module else None
        return (module, statement) if module and statement else None

    def is_async(self, symbol: Symbol, seen: frozenset[Symbol] = frozenset()) -> bool:
        """True if objects of a type are awaited, or have public methods that are."""
        symbol = self.resolve(symbol)
        if symbol in seen:
            return False
        definition = self.definition(symbol)
        if definition is None:
            names = ("Async", "AbstractAsync", "Awaitable", "Coroutine")
            return symbol.module.partition(".")[0] == "asyncio" or symbol.name.startswith(names)
        module, statement = definition
        parts: list[ast.expr]
        match statement:
            case ast.ClassDef(body=body, bases=bases):
                if any(isinstance(member, ast.AsyncFunctionDef) and _is_public(member.name) for member in body):
                    return True
                parts = bases
            case ast.Assign(value=value) | ast.AnnAssign(value=ast.expr() as value):
                parts = [value]
            case _:
                return False
        places = [self.place(module, node) for part in parts for node in _references(part, module)]
        return any(self.is_async(place, seen | {symbol}) for place in places if place is not None)


def _references(expression: ast.expr, module: Module) -> list[ast.expr]:
    """Return the names of types in an expression: `Name` and `module.Name`."""
    references: list[ast.expr] = []
    for node in ast.walk(expression):
        match node:
            case ast.Name(id=name) if name in module.definitions or name in module.imports:
                references.append(node)
            case ast.Attribute(value=ast.Name(id=name)) if name in module.imports:
                references.append(node)
            case _:
                pass
    return references


def _is_public(name: str) -> bool:
    return not name.startswith("_")


# Docstrings

_CODE = re.compile(r"`[^`]+`")
_EXAMPLE = re.compile(r" {4}|>>> |\.\.\. ")
_AWAIT = re.compile(r"\bawait (?=[\w(\[])")
_ASYNC = re.compile(r"\basync (?=with\b|for\b|def\b)")


def blocking_docstring(text: str) -> str:
    """Return a docstring without `await` and `async` in its code: in backticks and in indented examples."""
    for name, replacement in REPLACEMENTS.items():
        text = text.replace(name, replacement)
    return "\n".join(
        _blocking(line) if _EXAMPLE.match(line) else _CODE.sub(lambda code: _blocking(code[0]), line)
        for line in text.splitlines()
    )


def _blocking(code: str) -> str:
    return _ASYNC.sub("", _AWAIT.sub("", code))


def _docstring_lines(text: str | None) -> list[str]:
    if text is None:
        return []
    text = text.replace("\\", "\\\\").replace('"""', '\\"\\"\\"')
    *lines, last = f'"""{blocking_docstring(text)}'.splitlines()
    return [*lines, f'{last}"""'] if not lines else [*lines, last, '"""']


# Output

Function = ast.FunctionDef | ast.AsyncFunctionDef


class Attribute(NamedTuple):
    """A public attribute of an async class. The type is None if it is unknown."""

    name: str
    annotation: ast.expr | None
    docstring: str | None


class Output:
    """One generated file: maps types, and collects the imports that they need."""

    def __init__(self, sources: Sources, file: FileInput) -> None:
        self._sources = sources
        self._file = file
        self._types = {sources.named(source): target for source, target in TYPES.items()}
        self._overrides = _Overrides(sources.required(OVERRIDES))
        self._imports: dict[str, Symbol] = {}
        self._lazy_imports: dict[str, Symbol] = {}
        self._pending = {item.name for item in file.items if isinstance(item, ClassInput)}
        """Classes of this file that are not complete yet: annotations quote their names."""
        self._lazy_package: str | None = None
        """The package that the function being generated imports when it is called."""

    def text(self) -> str:
        parts = [
            self._class(item) if isinstance(item, ClassInput) else self._function(item) for item in self._file.items
        ]
        parts += [self._addition(name) for name in self._file.additions]
        lazy = [f"    {line}" for line in _import_lines(self._lazy_imports)]
        if lazy:
            self._import(Symbol("typing", "TYPE_CHECKING"))
            lazy.insert(0, "if TYPE_CHECKING:")
        docstring = f'"""{self._file.docstring}"""'
        return "\n".join([self._header(), docstring, *_import_lines(self._imports), *lazy, *parts])

    def _header(self) -> str:
        modules = dict.fromkeys(source.partition(":")[0] for item in self._file.items for source in _of(item))
        paths = [f"{module.removeprefix('lockstitch.').replace('.', '/')}.py" for module in modules]
        text = f"Generated by tools/generate_sync.py from {', '.join(paths)}. Do not edit; run make sync."
        return textwrap.fill(text, 120, initial_indent="# ", subsequent_indent="# ", break_on_hyphens=False)

    # Types

    def _annotation(self, expression: ast.expr, module: Module) -> ast.expr:
        mapped = _Annotation(self, module).visit(deepcopy(expression))
        names = {node.id for node in ast.walk(mapped) if isinstance(node, ast.Name)}
        if names & (self._pending | self._lazy_imports.keys()):
            return ast.Constant(ast.unparse(mapped))
        return mapped

    def map_type(self, node: ast.expr, module: Module) -> ast.expr:
        """Return the name for a type in the output, and import it."""
        place = self._sources.place(module, node)
        if place is None:
            return node
        symbol = self._sources.resolve(place)
        target = self._types.get(symbol)
        if target is not None:
            wanted = Symbol(*target.split(":"))
            place = place if self._sources.resolve(wanted) == symbol else wanted
        elif self._sources.is_async(symbol):
            raise GenerationError(
                f"{module.name}: {symbol} is async and has no blocking type. Add it to TYPES in "
                "tools/generate_sync.py, or to `skip` of its class."
            )
        return ast.Name(self._import(place))

    def _import(self, place: Symbol, name: str | None = None) -> str:
        """Import a symbol into the output, as `name` if it is given. Return its name there."""
        name = name or place.name
        if place.module == self._file.module:
            return name
        if not _is_public(place.name):
            raise GenerationError(f"{place} is private, so lockstitch.sync cannot import it. Make it public.")
        if place.module in FACADES:
            facade = Symbol(FACADES[place.module], place.name)
            if self._sources.resolve(facade) != self._sources.resolve(place):
                raise GenerationError(f"{facade.module} does not export {place}, which lockstitch.sync needs.")
            place = facade
        lazy = self._lazy_package is not None and f"{place.module}.".startswith(f"{self._lazy_package}.")
        imports = self._lazy_imports if lazy else self._imports
        known = imports.get(name, place)
        if self._sources.resolve(known) != self._sources.resolve(place):
            raise GenerationError(f"{self._file.path}: {known} and {place} have the same name.")
        imports[name] = min(known, place, key=lambda symbol: (symbol.module.count("."), symbol.module))
        return name

    def _import_names(self, node: ast.AST, module: Module, local: Iterable[str] = ()) -> None:
        """Import the names that an expression or a body uses."""
        for name in dict.fromkeys(part.id for part in ast.walk(node) if isinstance(part, ast.Name)):
            if name in local or hasattr(builtins, name):
                continue
            generated = _generated().get(name)
            if generated is not None and module.name == OVERRIDES:
                self._import(Symbol(generated, name))
            elif name in module.imports:
                origin, original = module.imports[name]
                self._import(Symbol(origin, original or ""), name)
            elif name in module.definitions:
                self._import(Symbol(module.name, name))

    # Classes

    def _class(self, item: ClassInput) -> str:
        attributes: dict[str, tuple[Attribute, Module]] = {}
        methods: dict[str, tuple[Function, Module]] = {}
        sources = [self._find_class(source) for source in item.sources]
        for module, definition in sources:
            self._check_bases(item, module, definition)
            for attribute in _attributes(definition):
                attributes.setdefault(attribute.name, (attribute, module))
            methods |= {
                name: (method, module) for name, method in _functions(definition.body).items() if _is_public(name)
            }
        for name in [*item.skip, *self._overrides.names(item.name)]:
            if name not in attributes and name not in methods:
                raise GenerationError(f"{' and '.join(item.sources)}: {name} not found.")
        members = [self._attribute(item, *attributes[name]) for name in attributes if name not in item.skip]
        members += [self._method(item, *methods[name]) for name in methods if name not in item.skip]
        module, definition = sources[-1]
        if item.base is None:
            bases = [self._annotation(base, module) for base in definition.bases]
            members.insert(0, self._constructor(item, module, definition))
        else:
            bases = [ast.Name(self._import(Symbol(*item.base.split(":"))))]
        docstring = item.docstring or ast.get_docstring(definition)
        head = f"class {item.name}({', '.join(map(ast.unparse, bases))}):" if bases else f"class {item.name}:"
        self._pending.discard(item.name)
        return _block(head, [*_docstring_lines(docstring), "", *members])

    def _find_class(self, source: str) -> tuple[Module, ast.ClassDef]:
        match self._sources.definition(self._sources.named(source)):
            case (module, ast.ClassDef() as definition):
                return module, definition
            case _:
                raise GenerationError(f"Class {source} not found.")

    def _check_bases(self, item: ClassInput, module: Module, definition: ast.ClassDef) -> None:
        """Raise if a class inherits methods that no input has."""
        inputs = {self._sources.named(source) for file in FILES for each in file.items for source in _of(each)}
        for base in definition.bases:
            place = self._sources.place(module, base.value if isinstance(base, ast.Subscript) else base)
            if place and self._sources.definition(place) and self._sources.resolve(place) not in inputs:
                raise GenerationError(f"{item.name}: {place} is a base class and no input of tools/generate_sync.py.")

    def _constructor(self, item: ClassInput, module: Module, definition: ast.ClassDef) -> str:
        """Return `__init__`, which takes the async object and the portal."""
        self._import(Symbol(module.name, definition.name))
        self._import(Symbol("lockstitch.store.portal", "Portal"))
        generic = next((base for base in definition.bases if ast.unparse(base).startswith("Generic[")), None)
        kind = ast.unparse(generic).replace("Generic", definition.name, 1) if generic else definition.name
        parameter = item.attribute.removeprefix("_")
        inherits = any(ast.unparse(base).partition("[")[0] != "Generic" for base in definition.bases)
        return _block(
            f"def __init__(self, {parameter}: {kind}, portal: Portal) -> None:",
            [
                f"super().__init__({parameter}, portal)" if inherits else "self._portal = portal",
                f"self.{item.attribute} = {parameter}",
            ],
        )

    def _attribute(self, item: ClassInput, attribute: Attribute, module: Module) -> str:
        name, annotation, docstring = attribute
        if annotation is None:
            raise GenerationError(f"{module.name}: cannot infer the type of the attribute {name}. Annotate it.")
        value = self._value(f"self.{item.attribute}.{name}", annotation, module, "self._portal", awaited=False)
        head = f"@property\ndef {name}(self) -> {ast.unparse(self._annotation(annotation, module))}:"
        return _block(head, [*_docstring_lines(docstring), f"return {value}"])

    def _method(self, item: ClassInput, member: Function, module: Module) -> str:
        decorators = [self._decorator(decorator, member, module) for decorator in member.decorator_list]
        body = self._override(item.name, member)
        if body is None:
            call = f"self.{item.attribute}.{member.name}"
            if "property" not in decorators:
                call += f"({', '.join(self._arguments(member, module, skip_first=True))})"
            body = self._body(call, member, module, "self._portal")
        signature = f"def {member.name}({self._parameters(member, module)}){self._returns(member, module)}:"
        head = "\n".join([*(f"@{decorator}" for decorator in decorators), signature])
        return _block(head, [*_docstring_lines(ast.get_docstring(member)), *body])

    def _decorator(self, decorator: ast.expr, member: Function, module: Module) -> str:
        name = ast.unparse(decorator)
        if name not in DECORATORS:
            raise GenerationError(f"{module.name}.{member.name}: the decorator {name} is not in DECORATORS.")
        if DECORATORS[name] == "contextmanager":
            self._import(Symbol("contextlib", "contextmanager"))
        return DECORATORS[name]

    # Functions

    def _function(self, item: FunctionInput) -> str:
        module_name, _, path = item.source.partition(":")
        module = self._sources.required(module_name)
        self._lazy_package = module_name.rpartition(".")[0] if item.lazy else None
        function, owner = self._find_function(item, module, path)
        body = self._override(None, function) or self._function_body(item, function, module, owner)
        head = f"def {function.name}({self._parameters(function, module, owner)}){self._returns(function, module)}:"
        self._lazy_package = None
        docstring = ast.get_docstring(function) or ""
        if owner is not None:
            # The first parameter replaces `self`.
            docstring = docstring.replace("Args:\n", f"Args:\n    {owner.lower()}: {owner} of the call.\n", 1)
        return _block(head, [*_docstring_lines(docstring), *body])

    def _find_function(self, item: FunctionInput, module: Module, path: str) -> tuple[Function, str | None]:
        owner, _, name = path.rpartition(".")
        container = module.definitions.get(owner) if owner else module.tree
        functions = _functions(container.body) if isinstance(container, ast.ClassDef | ast.Module) else {}
        if name not in functions:
            raise GenerationError(f"Function {item.source} not found.")
        return functions[name], owner or None

    def _function_body(
        self, item: FunctionInput, function: Function, module: Module, owner: str | None
    ) -> Sequence[str]:
        store = next((name for name, kind in _typed(function) if self._is_store(kind, module)), None)
        if store is None:
            raise GenerationError(f"{item.source} has no parameter of the type Store. Write an override.")
        arguments = ", ".join(self._arguments(function, module, skip_first=owner is not None))
        imports: list[str] = []
        if owner is not None:
            call = f"{owner.lower()}.{function.name}({arguments})"
        else:
            alias = f"{function.name}_async"
            call = f"{alias}({arguments})"
            if item.lazy:
                imports = [f"from {module.name} import {function.name} as {alias}"]
            else:
                self._import(Symbol(module.name, function.name), alias)
        return [*imports, *self._body(call, function, module, f"{store}.portal", executes=item.executes)]

    def _addition(self, name: str) -> str:
        function = self._overrides.find(None, name)
        if function is None:
            raise GenerationError(f"{OVERRIDES} has no function {name}.")
        self._import_names(function, self._overrides.module, _local_names(function))
        return self._overrides.source(function)

    # Signatures and bodies

    def _parameters(self, function: Function, module: Module, owner: str | None = None) -> str:
        arguments = deepcopy(function.args)
        for argument in _each_argument(arguments):
            if argument.annotation is not None:
                argument.annotation = self._annotation(argument.annotation, module)
        for default in [*arguments.defaults, *(default for default in arguments.kw_defaults if default)]:
            self._import_names(default, module)
        if owner is not None:
            first = arguments.args[0]
            first.arg, first.annotation = owner.lower(), self._annotation(ast.Name(owner), module)
        return ast.unparse(arguments)

    def _returns(self, function: Function, module: Module) -> str:
        if function.returns is None:
            raise GenerationError(f"{module.name}.{function.name} has no return annotation.")
        return f" -> {ast.unparse(self._annotation(function.returns, module))}"

    def _arguments(self, function: Function, module: Module, *, skip_first: bool) -> list[str]:
        """Return the arguments that pass all parameters on. A blocking store is passed as its async store."""
        kinds = dict(_typed(function))

        def value(name: str) -> str:
            return f"{name}.async_store" if name in kinds and self._is_store(kinds[name], module) else name

        arguments = function.args
        positional = [argument.arg for argument in [*arguments.posonlyargs, *arguments.args]][skip_first:]
        values = [value(name) for name in positional]
        if arguments.vararg:
            values.append(f"*{arguments.vararg.arg}")
        values += [f"{argument.arg}={value(argument.arg)}" for argument in arguments.kwonlyargs]
        if arguments.kwarg:
            values.append(f"**{arguments.kwarg.arg}")
        return values

    def _body(
        self, call: str, function: Function, module: Module, portal: str, *, executes: bool = False
    ) -> Sequence[str]:
        assert function.returns is not None
        if any(ast.unparse(decorator) == "asynccontextmanager" for decorator in function.decorator_list):
            raise GenerationError(f"{module.name}.{function.name} is a context manager. Write an override.")
        awaited = isinstance(function, ast.AsyncFunctionDef)
        value = self._value(call, function.returns, module, portal, awaited=awaited, executes=executes)
        returns_none = isinstance(function.returns, ast.Constant) and function.returns.value is None
        return [value if returns_none else f"return {value}"]

    def _value(
        self, call: str, annotation: ast.expr, module: Module, portal: str, *, awaited: bool, executes: bool = False
    ) -> str:
        """Return the expression for the blocking value of a call or an attribute."""
        annotation = _unquoted(annotation)
        outer = annotation.value if isinstance(annotation, ast.Subscript) else annotation
        if self._type_symbol(outer, module) == GENERATOR:
            return f"{portal}.iterate({call})"
        blocking = self._blocking_type(outer, module)
        if blocking is not None and not awaited and not self._is_store(outer, module):
            return f"{blocking.name}({call}, {portal})"
        if not awaited:
            return call
        return f"{portal}.run(lambda: {call})" if executes else f"{portal}.call({call})"

    def _blocking_type(self, node: ast.expr, module: Module) -> Symbol | None:
        """Return the type in the blocking API. None if it is the same type."""
        symbol = self._type_symbol(node, module)
        target = self._types.get(symbol) if symbol else None
        return Symbol(*target.split(":")) if target and self._sources.named(target) != symbol else None

    def _type_symbol(self, node: ast.expr, module: Module) -> Symbol | None:
        if not isinstance(node, ast.Name | ast.Attribute):
            return None
        place = self._sources.place(module, node)
        return place and self._sources.resolve(place)

    def _is_store(self, annotation: ast.expr, module: Module) -> bool:
        return self._type_symbol(_unquoted(annotation), module) == self._sources.named("lockstitch.store:Store")

    def _override(self, owner: str | None, function: Function) -> Sequence[str] | None:
        override = self._overrides.find(owner, function.name)
        if override is None:
            return None
        names, expected = ({argument.arg for argument in _each_argument(node.args)} for node in (override, function))
        if names - {"agent"} != expected - ({"self", "agent"} if owner is None else {"agent"}):
            raise GenerationError(
                f"{OVERRIDES}: {function.name} has the parameters {', '.join(sorted(names))}, but its source has "
                f"{', '.join(sorted(expected))}. Change the override."
            )
        for statement in override.body:
            self._import_names(statement, self._overrides.module, _local_names(override))
        return self._overrides.body(override)


class _Annotation(ast.NodeTransformer):
    """Maps the types of one annotation."""

    def __init__(self, output: Output, module: Module) -> None:
        self._output = output
        self._module = module

    def visit_Constant(self, node: ast.Constant) -> ast.expr:
        return self.visit(_unquoted(node)) if isinstance(node.value, str) else node

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return self._output.map_type(node, self._module)

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        return self._output.map_type(node, self._module)

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        outer = ast.unparse(node.value)
        if outer == "AsyncGenerator":
            items = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
            none = ast.Constant(None)
            node.slice = ast.Tuple([items[0], none, none])
        node.value = self.visit(node.value)
        if outer != "Literal":
            node.slice = self.visit(node.slice)
        return node


class _Overrides:
    """The functions of tools/sync_overrides.py, by class. `XOverrides` has the methods of the generated class X."""

    def __init__(self, module: Module) -> None:
        self.module = module
        self._lines = module.path.read_text(encoding="utf-8").splitlines()
        self._functions: dict[str | None, dict[str, Function]] = {None: _functions(module.tree.body)}
        for name, statement in module.definitions.items():
            if isinstance(statement, ast.ClassDef):
                self._functions[name.removesuffix("Overrides")] = _functions(statement.body)
        generated = [None, *_generated(), *(name for file in FILES for name in file.additions)]
        for name in [*self._functions, *self._functions[None]]:
            if name not in generated:
                raise GenerationError(f"{OVERRIDES}: {name} is not generated.")

    def names(self, owner: str) -> list[str]:
        return list(self._functions.get(owner, {}))

    def find(self, owner: str | None, name: str) -> Function | None:
        return self._functions.get(owner, {}).get(name)

    def body(self, function: Function) -> list[str]:
        """Return the lines of a body, with its comments."""
        column, start = function.body[0].col_offset, function.body[0].lineno - 1
        while self._lines[start - 1].lstrip().startswith("#"):
            start -= 1
        return [line[column:] for line in self._lines[start : function.end_lineno]]

    def source(self, function: Function) -> str:
        return "\n".join(self._lines[function.lineno - 1 : function.end_lineno])


def _functions(body: Sequence[ast.stmt]) -> dict[str, Function]:
    return {statement.name: statement for statement in body if isinstance(statement, Function)}


def _generated() -> dict[str, str]:
    """Return the module of each generated class and function."""
    return {item.name: file.module for file in FILES for item in file.items}


def _of(item: ClassInput | FunctionInput) -> Sequence[str]:
    return item.sources if isinstance(item, ClassInput) else [item.source]


def _unquoted(annotation: ast.expr) -> ast.expr:
    if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
        return ast.parse(annotation.value, mode="eval").body
    return annotation


def _each_argument(arguments: ast.arguments) -> list[ast.arg]:
    others = [argument for argument in (arguments.vararg, arguments.kwarg) if argument]
    return [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, *others]


def _typed(function: Function) -> list[tuple[str, ast.expr]]:
    return [(argument.arg, argument.annotation) for argument in _each_argument(function.args) if argument.annotation]


def _local_names(function: Function) -> set[str]:
    """Return the parameters of a function and the names that it assigns."""
    stored = {node.id for node in ast.walk(function) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    return stored | {node.arg for node in ast.walk(function) if isinstance(node, ast.arg)}


def _attributes(definition: ast.ClassDef) -> Iterator[Attribute]:
    """Yield the public attributes that a class declares or sets in `__init__`."""
    init = next((node for node in definition.body if isinstance(node, Function) and node.name == "__init__"), None)
    parameters = dict(_typed(init)) if init else {}
    statements = [*definition.body, *(init.body if init else ())]
    for statement, following in zip(statements, [*statements[1:], None], strict=True):
        annotation: ast.expr | None
        match statement:
            case ast.AnnAssign(target=ast.Name(id=name) | ast.Attribute(attr=name), annotation=annotation):
                pass
            case ast.Assign(targets=[ast.Attribute(value=ast.Name(id="self"), attr=name)], value=value):
                annotation = _type_of(value, parameters)
            case _:
                continue
        if _is_public(name):
            match following:
                case ast.Expr(value=ast.Constant(value=str(docstring))):
                    yield Attribute(name, annotation, docstring)
                case _:
                    yield Attribute(name, annotation, None)


def _type_of(value: ast.expr, parameters: dict[str, ast.expr]) -> ast.expr | None:
    """Return the type of the value of an attribute: of a parameter, or of `Class(...)`. None if it is unknown."""
    match value:
        case ast.Name(id=name):
            return parameters.get(name)
        case ast.Call(func=ast.Name(id="RecordTable"), args=[*_, ast.Name() as kind]):
            return ast.Subscript(ast.Name("RecordTable"), kind)
        case ast.Call(func=ast.Name(id=name)) if name[:1].isupper():
            return ast.Name(name)
        case _:
            return None


def _import_lines(imports: dict[str, Symbol]) -> list[str]:
    return [
        f"from {symbol.module} import {symbol.name}" + ("" if name == symbol.name else f" as {name}")
        for name, symbol in sorted(imports.items())
    ]


def _block(head: str, lines: Iterable[str]) -> str:
    body = "\n".join(lines)
    return head + "\n" + "\n".join(f"    {line}" if line else "" for line in body.splitlines()) + "\n"


# Files


def generate(root: Path = ROOT) -> dict[str, str]:
    """Return the text of every generated file, by its path."""
    sources = Sources(root)
    return {file.path: _formatted(Output(sources, file).text(), file.path) for file in FILES}


def _formatted(text: str, path: str) -> str:
    """Return a file with sorted imports and formatted by ruff, with the settings of pyproject.toml."""
    for command in (["check", "--select=I", "--fix-only", "--quiet"], ["format", "--quiet"]):
        ruff = [sys.executable, "-m", "ruff", *command, f"--stdin-filename={path}", "-"]
        done = subprocess.run(ruff, input=text, capture_output=True, text=True, cwd=ROOT, check=False)
        if done.returncode:
            raise GenerationError(f"{path}: {done.stderr.strip()}")
        text = done.stdout
    return text


def main(arguments: Sequence[str], root: Path = ROOT) -> int:
    parser = argparse.ArgumentParser(description="Write src/lockstitch/sync from the async classes.")
    parser.add_argument("--check", action="store_true", help="print a diff and exit 1 if a file is not current")
    options = parser.parse_args(arguments)
    try:
        texts = generate(root)
    except GenerationError as exc:
        print(f"generate_sync: {exc}", file=sys.stderr)
        return 1
    stale = 0
    for name, text in texts.items():
        path = root / name
        current = path.read_text(encoding="utf-8") if path.exists() else ""
        if current == text:
            continue
        stale += 1
        if options.check:
            diff = difflib.unified_diff(current.splitlines(True), text.splitlines(True), name, f"{name} (generated)")
            sys.stdout.writelines(diff)
        else:
            path.write_text(text, encoding="utf-8")
            print(f"wrote {name}")
    if options.check and stale:
        print(f"{stale} generated files are not current. Run: make sync", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
