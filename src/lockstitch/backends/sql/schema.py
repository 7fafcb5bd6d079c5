"""The rule about versions of the schema."""

from lockstitch.errors import SchemaMismatch


def refuse_newer(found: int, known: int, store: str) -> None:
    """A store that newer code has changed is not touched by older code."""
    if found > known:
        raise SchemaMismatch(
            f"{store} has schema version {found}, this Lockstitch knows {known}. "
            "Upgrade Lockstitch here, or use the version that wrote the store."
        )
