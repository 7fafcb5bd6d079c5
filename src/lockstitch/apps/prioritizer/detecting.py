"""Which task waits for which, found by rules in what the tasks say: no model, no network, always the same.

1. One that names another after "after", "needs", "depends on", "blocked by" and the like waits for it; after "before"
   or "blocks" it is the other that waits.
2. One that names another otherwise is related to it.
3. Of two that do something to the same thing, what comes first in any work comes first here: deciding before making,
   making before trying, trying before publishing.
"""

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from lockstitch.apps.prioritizer.models import RelationshipType, Task, TaskDependency

_AFTER: Final = re.compile(
    r"\b(?:after|once|needs?|depends? on|depending on|requires?|blocked by|waits? (?:for|on)|following|based on)\b",
    re.IGNORECASE,
)
_BEFORE: Final = re.compile(r"\b(?:before|blocks?|unblocks?|enables?|prerequisite (?:for|of))\b", re.IGNORECASE)
_CLAUSE: Final = re.compile(r"[.;:!?()\n]")
_WORD: Final = re.compile(r"[^\W_]+(?:-[^\W_]+)*")
_STAGES: Final[Mapping[str, int]] = {
    verb: stage
    for stage, verbs in enumerate(
        (
            "research investigate explore interview survey audit analyse analyze collect gather clarify scope",
            "choose decide define select pick agree specify design plan draft sketch outline model prototype approve",
            "write build implement create make develop prepare setup set configure install add integrate migrate "
            "produce record paint draw code order buy hire book",
            "test check verify validate review proofread measure benchmark rehearse try fix",
            "deploy launch release publish ship open announce send roll present deliver host hold celebrate",
            "monitor evaluate retire follow",
        )
    )
    for verb in verbs.split()
}
"""How far in any work a verb stands."""
_EMPTY: Final = frozenset(
    word
    for words in (
        "a an and the of for to in on at by with from into our your their its all new up out over it is are be as or",
        "until about this that these those",
    )
    for word in words.split()
)
_NAMED: Final = 0.6
"""The share of a task's words that must be there for it to be named."""
_FAR: Final = 24
"""Tasks that may share a word before it says nothing about any of them."""


@dataclass(frozen=True, slots=True)
class _Read:
    """A task as the rules see it."""

    task: Task
    words: frozenset[str]
    things: frozenset[str]
    """Its words without what is done to them."""
    stage: int | None


def detected(tasks: Sequence[Task]) -> list[TaskDependency]:
    """The dependencies among these tasks, each pair once in one direction, in the order of the tasks."""
    read = [_read(task) for task in tasks]
    found: dict[tuple[str, str], TaskDependency] = {}
    told, mentioned = _told(read)
    for one in (*told, *_in_course(read), *mentioned):
        pair = one.source_task_id, one.target_task_id
        turned = pair[1], pair[0]
        if pair not in found and turned not in found:
            found[pair] = one
    place = {task.id: number for number, task in enumerate(tasks)}
    return sorted(found.values(), key=lambda one: (place[one.source_task_id], place[one.target_task_id]))


def _told(read: Sequence[_Read]) -> tuple[list[TaskDependency], list[TaskDependency]]:
    """What the tasks say themselves: which waits for which, and which speaks of which."""
    ids = {one.task.id.casefold(): one for one in read}
    by_word: dict[str, list[_Read]] = defaultdict(list)
    for one in read:
        for word in one.words:
            by_word[word].append(one)
    told: list[TaskDependency] = []
    mentioned: list[TaskDependency] = []
    for one in read:
        for clause, way in _clauses(one.task.text):
            for other, sure in _named(clause, ids, by_word):
                if other.task.id == one.task.id:
                    continue
                if way == "after":
                    told.append(_dependency(one, other, "prerequisite", sure))
                elif way == "before":
                    told.append(_dependency(other, one, "blocks", sure))
                elif sure > 0.9 or clause in one.task.details:
                    # Two titles that share words are no more than alike.
                    mentioned.append(_dependency(one, other, "related", round(sure - 0.35, 2)))
    return told, mentioned


def _clauses(text: str) -> Iterator[tuple[str, str | None]]:
    """What follows a word that orders, up to the clause's end; and what stands before one, or without."""
    for sentence in _CLAUSE.split(text):
        marks = sorted(
            [(found.start(), found.end(), "after") for found in _AFTER.finditer(sentence)]
            + [(found.start(), found.end(), "before") for found in _BEFORE.finditer(sentence)]
        )
        ends = [*(start for start, _, _ in marks[1:]), len(sentence)] if marks else []
        yield sentence[: marks[0][0]] if marks else sentence, None
        for (_, start, way), end in zip(marks, ends, strict=True):
            yield sentence[start:end], way


def _named(
    clause: str, ids: Mapping[str, _Read], by_word: Mapping[str, Sequence[_Read]]
) -> Iterator[tuple[_Read, float]]:
    """The tasks that a clause names, by id or by most of their words, and how sure that is."""
    spelled = [word.casefold() for word in _WORD.findall(clause)]
    words = frozenset(map(_root, spelled)) - _EMPTY
    seen: set[str] = set()
    for word in spelled:
        if word in ids and word not in seen and any(letter.isdigit() for letter in word):
            seen.add(word)
            yield ids[word], 0.95
    shared: dict[str, int] = defaultdict(int)
    candidates: dict[str, _Read] = {}
    for word in words:
        for other in by_word.get(word, ()):
            shared[other.task.id] += 1
            candidates[other.task.id] = other
    for id, count in shared.items():
        other = candidates[id]
        share = count / len(other.words)
        things = other.things and other.things <= words
        if id.casefold() not in seen and (
            (share >= _NAMED and count > 1) or (things and (count > 1 or len(words) < 3))
        ):
            yield other, round(0.6 + 0.3 * share, 2)


def _in_course(read: Sequence[_Read]) -> Iterator[TaskDependency]:
    """Tasks about the same thing, in the course that work takes."""
    by_thing: dict[str, list[_Read]] = defaultdict(list)
    for one in read:
        for thing in one.things:
            by_thing[thing].append(one)
    pairs: dict[tuple[str, str], tuple[_Read, _Read]] = {}
    for sharing in by_thing.values():
        if len(sharing) > _FAR:
            continue
        for place, one in enumerate(sharing):
            pairs |= {(one.task.id, other.task.id): (one, other) for other in sharing[place + 1 :]}
    for one, other in pairs.values():
        if one.stage is None or other.stage is None or one.stage == other.stage:
            continue
        count = len(one.things & other.things)
        alike = count / len(one.things | other.things)
        if alike >= 0.5 or count >= 2:
            late, early = (one, other) if one.stage > other.stage else (other, one)
            yield _dependency(late, early, "prerequisite", round(min(0.75, 0.4 + 0.35 * alike), 2))


def _dependency(source: _Read, target: _Read, kind: RelationshipType, confidence: float) -> TaskDependency:
    return TaskDependency(
        source_task_id=source.task.id,
        target_task_id=target.task.id,
        relationship_type=kind,
        confidence=confidence,
        detection_method="ai_inference",
    )


def _read(task: Task) -> _Read:
    title = _AFTER.split(_BEFORE.split(task.title)[0])[0] or task.title
    spelled = [word.casefold() for word in _WORD.findall(title)]
    roots = [_root(word) for word in spelled]
    words = frozenset(roots) - _EMPTY
    stages = [(root, _STAGE_ROOTS[root]) for root in roots[:3] if root in _STAGE_ROOTS]
    verbs = {root for root, _ in stages[:1]}
    return _Read(task, words or frozenset(roots), words - verbs, stages[0][1] if stages else None)


def _root(word: str) -> str:
    """A word without its ending, so that "tests", "testing" and "tested" are one."""
    for ending in ("ings", "ing", "ions", "ion", "ed", "es", "s", "e"):
        if word.endswith(ending) and len(word) - len(ending) >= 3 and not word.endswith("ss"):
            root = word.removesuffix(ending)
            return root[:-1] if len(root) > 3 and root[-1] == root[-2] and ending in ("ing", "ed") else root
    return word


_STAGE_ROOTS: Final[Mapping[str, int]] = {_root(verb): stage for verb, stage in _STAGES.items()}
