"""What a compactor may be made of."""

from lockstitch.errors import Refused


def at_least(least: int, value: object, name: str) -> int:
    """`value`, if it is a whole number and not too small."""
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise Refused(f"{name} must be a whole number of at least {least}, not {value!r}.")
    return value
