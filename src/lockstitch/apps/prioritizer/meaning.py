"""What texts mean, as vectors; those that were asked for before are remembered."""

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Final

from lockstitch.apps.prioritizer.models import Task
from lockstitch.runtime.embedder import Embedder, Vector, similarity

_REMEMBERED: Final = 5_000


class Meaning:
    """An embedder with a memory, so that the tools of one session ask for each task once."""

    def __init__(self, embedder: Embedder) -> None:
        self.embedder = embedder
        self._known: OrderedDict[str, Vector] = OrderedDict()

    @property
    def threshold(self) -> float:
        """The similarity from which on two texts are alike."""
        return self.embedder.threshold

    @property
    def close(self) -> float:
        """The same for a group, which is a little closer than a pair that is merely alike."""
        return min(0.75, round(1.2 * self.threshold, 4))

    async def of(self, texts: Sequence[str]) -> list[Vector]:
        new = [text for text in dict.fromkeys(texts) if text not in self._known]
        vectors = dict(zip(new, await self.embedder.embed(new), strict=True)) if new else {}
        found = [vectors[text] if text in vectors else self._known[text] for text in texts]
        self._known.update(vectors)
        while len(self._known) > _REMEMBERED:
            self._known.popitem(last=False)
        return found

    async def of_tasks(self, tasks: Sequence[Task]) -> dict[str, Vector]:
        vectors = await self.of([task.text for task in tasks])
        return {task.id: vector for task, vector in zip(tasks, vectors, strict=True)}

    async def relevance(self, text: str, vectors: Mapping[str, Vector]) -> dict[str, float]:
        """How close each of these is to a text."""
        (wanted,) = await self.of([text])
        return {id: similarity(wanted, vector) for id, vector in vectors.items()}
