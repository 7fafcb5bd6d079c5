"""Making everything anew that is made of the record: projections and the index of keys."""

from collections.abc import Iterable
from contextlib import suppress
from uuid import UUID

from lockstitch.backends.files import heads, layout, projection, tables
from lockstitch.backends.files.guard import Guard
from lockstitch.errors import StoreDamaged


def rebuild(guard: Guard) -> int:
    """Restore what the journal can restore, index all keys, rewrite all projections and remove those of nobody.

    Returns how many threads have projections now. One that cannot be shown is passed over: reading it says why.
    """
    guard.restore()
    with suppress(StoreDamaged):
        guard.write(heads.index)
    guard.tend(projection.sweep)
    return show(guard, guard.read(lambda folder: tables.ids_in(folder, layout.HEADS)))


def show(guard: Guard, thread_ids: Iterable[UUID]) -> int:
    """Rewrite all projections of these threads; how many have some."""
    number = 0
    for thread_id in thread_ids:
        try:
            number += guard.tend(lambda folder, thread_id=thread_id: projection.show_all(folder, thread_id))
        except OSError:
            raise
        except Exception:  # made of whatever people and models have said: one that cannot be shown hides no other
            continue
    return number
