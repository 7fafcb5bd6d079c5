"""Plans that people make on a page: of a list of tasks, or once more of the same."""

from typing import Final
from uuid import UUID

from lockstitch.apps.prioritizer import keeping
from lockstitch.apps.prioritizer.application import Prioritizer
from lockstitch.apps.prioritizer.models import TaskDependency
from lockstitch.apps.prioritizer.records import Session
from lockstitch.store import Store

PASTED: Final = "Tasks.md"
"""What a list is called that somebody wrote into the page. The next one takes its place, as with a file."""


async def make_plan(
    prioritizer: Prioritizer, store: Store, user: str, outcome: str, content: bytes, name: str, *, replace: bool
) -> UUID:
    """Begin a session for the tasks of a list. Its outcome, its documents and it are there together, or none is."""
    read = await keeping.read_file(store, user, content, name)
    wanted = keeping.new_outcome(store, user, outcome)
    session = await prioritizer.start(
        store,
        user,
        wanted,
        documents=[one.id for one in read.documents],
        replace=replace,
        records=[wanted, *read.records],
        task_count=read.task_count,
    )
    await keeping.drop_stale(store, read)
    return session.thread_id


async def keep_dependency(prioritizer: Prioritizer, store: Store, session: Session, dropped: TaskDependency) -> UUID:
    """Store a dependency as one that somebody is sure of, and plan again."""
    ends = dropped.source_task_id, dropped.target_task_id
    await keeping.add_relationship(store, session.user_id, *ends, dropped.relationship_type)
    return await make_again(prioritizer, store, session)


async def make_again(prioritizer: Prioritizer, store: Store, session: Session) -> UUID:
    """Begin another session for the same outcome and the same documents, as they stand now."""
    named = (await store.thread(session.thread_id)).extras.get("documents")
    documents = None if named is None else [UUID(str(one)) for one in named]
    begun = await prioritizer.start(store, session.user_id, session.outcome_id, documents=documents)
    return begun.thread_id
