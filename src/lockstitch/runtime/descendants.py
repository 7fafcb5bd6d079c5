"""Descendants: a wish to end a thread reaches everything that it made."""

from uuid import UUID

from lockstitch.records import Thread
from lockstitch.store import Store


async def wish_to_cancel(store: Store, head: Thread) -> list[Thread]:
    """Wish that a thread and all its descendants end; those that have not ended, parents before children.

    All that are known are told in one commit. A thread that is told makes no more children, so looking again until
    nothing new is found reaches those that were made in between.
    """
    told: set[UUID] = set()
    while True:
        tree = [one for one in await store.tree(head) if not one.ended]
        new = [one for one in tree if one.id not in told]
        if not new:
            return tree
        await store.desk.wish_to_cancel(new)
        told.update(one.id for one in new)


async def cancel_children(store: Store, head: Thread) -> None:
    """Wish that all children of a thread end, and theirs."""
    for child in await store.children(head):
        if not child.ended:
            await wish_to_cancel(store, child)
