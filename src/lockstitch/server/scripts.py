"""URLs of scripts that browsers cache forever, also those of imports, and the scripts to load in advance."""

import hashlib
import posixpath
import re
from collections.abc import Iterator
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Final

_IMPORT: Final = re.compile(r'\b(from|import) "(\.\.?/[\w./-]+\.js)"')


@cache
def scripts_digest(packages: tuple[str, ...]) -> str:
    """Return one digest of all scripts of these packages.

    All have one digest, because each import of a script must have the same URL: a browser runs a script with two URLs
    twice.
    """
    total = hashlib.sha256()
    for package in packages:
        for name, content in _scripts(files(package).joinpath("static"), ""):
            total.update(f"{package}/{name} {len(content)}\n".encode() + content)
    return total.hexdigest()[:12]


def with_digests(source: str, digest: str) -> str:
    """Return a script that imports other scripts with this digest in their URLs."""
    return _IMPORT.sub(rf'\1 "\2?{digest}"', source)


@cache
def imported_scripts(packages: tuple[tuple[str, str], ...], name: str) -> tuple[str, ...]:
    """Return the names of the scripts that a script imports, directly or through other scripts.

    Args:
        packages: Pairs of the first part of a name and its package. The empty part is the package of all other names.
        name: The path of the script below `/static`.
    """
    by_part, found, waiting = dict(packages), list[str](), [name]
    while waiting:
        here = waiting.pop()
        part, _, rest = here.partition("/")
        package, path = (by_part[part], rest) if part in by_part else (by_part[""], here)
        source = files(package).joinpath("static", path).read_text("utf-8")
        imports = [posixpath.normpath(posixpath.join(here, "..", match[2])) for match in _IMPORT.finditer(source)]
        new = [one for one in dict.fromkeys(imports) if one not in found]
        found += new
        waiting += new
    return tuple(found)


def _scripts(folder: Traversable, path: str) -> Iterator[tuple[str, bytes]]:
    for entry in sorted(folder.iterdir(), key=lambda entry: entry.name):
        if entry.is_dir():
            yield from _scripts(entry, f"{path}{entry.name}/")
        elif entry.name.endswith(".js"):
            yield f"{path}{entry.name}", entry.read_bytes()
