"""Options that are given by keyword: one that is misspelt is refused, since passing it over would do something else."""

from collections.abc import Mapping
from difflib import get_close_matches

from lockstitch.errors import Refused


def check_options(given: Mapping[str, object], known: type, whose: str) -> None:
    """Refused names what of `given` is no field of the TypedDict `known`, and what may have been meant."""
    names = list(known.__annotations__)
    for name in given:
        if name not in names:
            near = get_close_matches(name, names, 1)
            meant = f"did you mean {near[0]}?" if near else f"there are {', '.join(sorted(names))}."
            raise Refused(f"{whose} has no option {name!r}; {meant}")
