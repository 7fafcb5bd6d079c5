"""The rules about versions of the schema, and of what applications add to it."""

from lockstitch.errors import SchemaMismatch


def refuse_newer(found: int, known: int, store: str) -> None:
    """A store that newer code has changed is not touched by older code."""
    if found > known:
        raise SchemaMismatch(
            f"{store} has schema version {found}, this Lockstitch knows {known}. "
            "Upgrade Lockstitch here, or use the version that wrote the store."
        )


def refuse_newer_extension(found: int, known: int, extension: str, store: str) -> None:
    """The same for the tables of an application."""
    if found > known:
        raise SchemaMismatch(
            f"{store} has version {found} of the tables of {extension}, this code knows {known}. "
            f"Upgrade {extension} here, or use the version that wrote them."
        )
