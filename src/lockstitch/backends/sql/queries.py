"""Named queries out of `.sql` files: the shared ones, and a dialect's own where it differs."""

import re
from importlib.resources import files

_NAME = re.compile(r"^-- (?:name|own): (\w+)$", re.MULTILINE)
_OWN = re.compile(r"^-- own: (\w+)$", re.MULTILINE)
_COMMENT = re.compile(r"^\s*--.*\n?", re.MULTILINE)


def load(package: str) -> dict[str, str]:
    """The queries of a package's queries.sql by name, without their comments."""
    parts = _NAME.split(_text(package))
    return {
        name: _COMMENT.sub("", body).strip().removesuffix(";")
        for name, body in zip(parts[1::2], parts[2::2], strict=True)
    }


def load_dialect(package: str) -> dict[str, str]:
    """The shared queries with a dialect's in their place.

    A dialect overrides under `-- name:` and adds under `-- own:`; overriding what is not shared is a mistake.
    """
    shared, dialect = load("lockstitch.backends.sql"), load(package)
    unknown = dialect.keys() - shared.keys() - set(_OWN.findall(_text(package)))
    if unknown:
        raise RuntimeError(f"these queries of {package} override nothing: {', '.join(sorted(unknown))}")
    return {**shared, **dialect}


def _text(package: str) -> str:
    return files(package).joinpath("queries.sql").read_text()


def migrations(package: str) -> list[tuple[int, str, str]]:
    """The numbered migrations of a package in order: number, name, text."""
    found = [entry for entry in files(package).joinpath("migrations").iterdir() if entry.name.endswith(".sql")]
    return sorted((int(entry.name[:4]), entry.name.removesuffix(".sql"), entry.read_text()) for entry in found)
