"""Extensions of a folder: the tables of applications whose extensions have no queries.

A document has the version of an extension, and for each of its tables the field with the thread of a record. So a
process without the code of the application deletes its records with their threads.
"""

from collections.abc import Iterator
from typing import Any, Final

from lockstitch.backends.files import disk
from lockstitch.backends.files.transaction import Folder, Transaction
from lockstitch.errors import Refused, SchemaMismatch
from lockstitch.extension import Extension
from lockstitch.model import Record

_DIRECTORY: Final = f"{disk.SIDE_RECORDS}/extension_versions"


def extend(transaction: Transaction, extension: Extension) -> None:
    """Store the extension. Raises `Refused` if it needs SQL, and `SchemaMismatch` if newer code has stored it."""
    if extension.needs_sql:
        raise Refused(
            f"{extension.name} has queries or generated keys, which the file backend does not support. "
            "Use SQLite or PostgreSQL."
        )
    path = _path(extension.name)
    version = extension.migrations("sqlite")[-1][0]
    stored = transaction.document(path)
    if stored is not None and stored["version"] > version:
        raise SchemaMismatch(
            f"This store has version {stored['version']} of {extension.name}, but this code supports {version}. "
            f"Upgrade {extension.name} here, or use the version that wrote it."
        )
    tables = {kind.table: {"key": kind.primary_key, "thread": kind.thread_field} for kind in extension.kinds}
    document = {"name": extension.name, "version": version, "tables": tables}
    if stored != document:
        transaction.put(path, document)


def names(folder: Folder) -> list[str]:
    """Return the names of the extensions, sorted."""
    return sorted(str(document["name"]) for document in _documents(folder))


def owned_tables(folder: Folder) -> Iterator[tuple[str, str, bool]]:
    """Yield the directory of each table with records of threads, the field with the thread, and True if the key starts
    with it."""
    for document in _documents(folder):
        for table, about in document["tables"].items():
            if about["thread"] is not None:
                yield f"{disk.SIDE_RECORDS}/{table}", about["thread"], about["key"][0] == about["thread"]


def require_table(folder: Folder, kind: type[Record]) -> None:
    """Raise `Refused` if no extension of this folder has the table of a class."""
    if not any(kind.table in document["tables"] for document in _documents(folder)):
        raise Refused(
            f"This store has no table of {kind.__name__}. Call `extend` with its extension first. The file backend "
            "supports extensions without queries. SQLite and PostgreSQL support all. Nothing was written."
        )


def _path(name: str) -> str:
    return f"{_DIRECTORY}/{disk.name_of((name,))}.json"


def _documents(folder: Folder) -> Iterator[dict[str, Any]]:
    for name in folder.names(_DIRECTORY):
        document = folder.document(f"{_DIRECTORY}/{name}")
        if document is not None:
            yield document
