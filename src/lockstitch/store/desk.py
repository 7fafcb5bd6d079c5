"""The desk: what whoever drives a thread asks of the store, beyond what everybody may ask."""

from collections.abc import Iterable, Mapping, Sequence
from uuid import UUID

from lockstitch.backend import Find, FullBackend, Receipt, Where
from lockstitch.records import TERMINAL, Json, Letter, Message, Run, Stitch, Thread
from lockstitch.store.appending import Appender
from lockstitch.store.leases import Leases
from lockstitch.store.media import Media, holds_media
from lockstitch.store.reading import Reading


class Desk:
    """For holders of threads. Everything here takes heads, since a holder knows its own."""

    def __init__(
        self, backend: FullBackend, reading: Reading, media: Media, leases: Leases, appender: Appender
    ) -> None:
        self._backend = backend
        self._reading = reading
        self._media = media
        self._leases = leases
        self._appender = appender

    async def open_run(self, head: Thread) -> Run | None:
        """The run of a thread's own lane that has not ended, if there is one."""
        last = await self.last_run(head)
        return last if last is not None and last.status not in TERMINAL else None

    async def last_run(self, head: Thread) -> Run | None:
        """The newest run of a thread's own lane."""
        if not head.last_sequence:
            return None
        where = (Where("thread_id", "=", head.id), Where("parent_run_id", "is null"))
        runs = await self._backend.find(Find(Run, where, order=("-sequence",), limit=1))
        return runs[0] if runs else None

    async def hold(self, thread: Thread) -> Thread:
        """A new thread as one that this process holds from its first commit on, so that nobody need claim it."""
        worker = await self._leases.registered()
        return thread.changed(status="running", worker_id=worker.id, fence=1)

    async def make_for(self, thread: Thread, message: Message) -> bool:
        """Make a new thread before its first commit, if that commit needs it to be there; whether it does.

        Media of a message are kept for a thread, so the thread must be there before them.
        """
        if not holds_media(message):
            return False
        await self._appender.commit([], threads=[thread])
        return True

    async def context_stitches(self, head: Thread, *, until: int | None = None) -> list[Stitch]:
        """The stitches that the context is a fold of: from the last compaction on, and what that keeps."""
        return await self._reading.for_context(head, until) if head.position else []

    async def run_log(self, head: Thread, run: Run) -> list[Stitch]:
        """Everything a run did, in order."""
        return await self._reading.log(head, run)

    async def files_of(self, head: Thread, run: Run) -> list[Json]:
        """The files that a run made or changed, as the documents list them."""
        return (await self._reading.files(head, [run])).get(run.id, [])

    async def wishes_to_cancel(self) -> list[UUID]:
        """The threads that this process holds and that somebody wants to end."""
        if self._leases.worker_id is None:
            return []
        where = (Where("worker_id", "=", self._leases.worker_id), Where("cancel_requested", "=", True))
        return [thread.id for thread in await self._backend.find(Find(Thread, where))]

    async def write_texts(self, texts: Mapping[str, str]) -> None:
        """Write texts by their sha256; `note_texts` makes them a thread's own, once it is there."""
        await self._media.write({digest: (text, "text/plain") for digest, text in texts.items()})

    async def note_texts(self, head: Thread, digests: Iterable[str]) -> None:
        """Note that the requests of a thread refer to these texts, so that they stay as long as it does."""
        await self._media.note_uses(head.id, digests)

    async def text(self, digest: str) -> str:
        """A text that was kept. StoreDamaged when it is gone."""
        return await self._reading.text(digest)

    async def deliver_all(self, head: Thread, letters: Sequence[Letter]) -> list[Receipt]:
        """Deliver several letters to one thread, all or none."""
        return await self._appender.deliver([(head.depth, letter) for letter in letters])
