"""Detect dependencies by rules, merge them, and break cycles.

1. A task that names another after "after", "needs", "depends on" or "blocked by" waits for it. After "before" or
   "blocks" the other task waits.
2. A task that names another in another way is related to it.
3. If two tasks have the same object, the usual order of work applies: decide, make, test, publish.
"""

import re
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pydantic import ValidationError

from lockstitch import Refused
from lockstitch.apps.prioritizer.models import BrokenCycle, DetectionMethod, RelationshipType, Task, TaskDependency
from lockstitch.ext import Json

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
"""The stage of work of each verb."""
_EMPTY: Final = frozenset(
    word
    for words in (
        "a an and the of for to in on at by with from into our your their its all new up out over it is are be as or",
        "until about this that these those",
    )
    for word in words.split()
)
_NAMED: Final = 0.6
"""Share of the words of a task that a clause must contain to name it."""
_FAR: Final = 24
"""Number of tasks with a word above which the word is ignored."""


@dataclass(frozen=True, slots=True)
class _TaskWords:
    """A task with the words that the rules use."""

    task: Task
    words: frozenset[str]
    things: frozenset[str]
    """Its words without the verb."""
    stage: int | None


def detected(tasks: Sequence[Task]) -> list[TaskDependency]:
    """Return the dependencies of these tasks, at most one for each pair, in task order."""
    read = [_read(task) for task in tasks]
    task_dependencies: dict[tuple[str, str], TaskDependency] = {}
    stated, mentioned = _stated(read)
    for task_dependency in (*stated, *_by_stage(read), *mentioned):
        pair = task_dependency.source_task_id, task_dependency.target_task_id
        reverse = pair[1], pair[0]
        if pair not in task_dependencies and reverse not in task_dependencies:
            task_dependencies[pair] = task_dependency
    place = {task.id: number for number, task in enumerate(tasks)}
    return sorted(
        task_dependencies.values(),
        key=lambda task_dependency: (place[task_dependency.source_task_id], place[task_dependency.target_task_id]),
    )


def _stated(read: Sequence[_TaskWords]) -> tuple[list[TaskDependency], list[TaskDependency]]:
    """Return the dependencies that the texts state, and the related tasks that they mention."""
    ids = {entry.task.id.casefold(): entry for entry in read}
    by_word: dict[str, list[_TaskWords]] = defaultdict(list)
    for item in read:
        for word in item.words:
            by_word[word].append(item)
    task_dependencies: list[TaskDependency] = []
    mentioned: list[TaskDependency] = []
    for item in read:
        for clause, way in _clauses(item.task.text):
            for other, confidence in _named(clause, ids, by_word):
                if other.task.id == item.task.id:
                    continue
                if way == "after":
                    task_dependencies.append(_dependency(item, other, "prerequisite", confidence))
                elif way == "before":
                    task_dependencies.append(_dependency(other, item, "blocks", confidence))
                elif confidence > 0.9 or clause in item.task.details:
                    # Titles with the same words are only similar.
                    mentioned.append(_dependency(item, other, "related", round(confidence - 0.35, 2)))
    return task_dependencies, mentioned


def _clauses(text: str) -> Iterator[tuple[str, str | None]]:
    """Yield the text after each ordering word, up to the end of the clause, and the text before the first one."""
    for sentence in _CLAUSE.split(text):
        marks = sorted(
            [(match.start(), match.end(), "after") for match in _AFTER.finditer(sentence)]
            + [(match.start(), match.end(), "before") for match in _BEFORE.finditer(sentence)]
        )
        ends = [*(start for start, _, _ in marks[1:]), len(sentence)] if marks else []
        yield sentence[: marks[0][0]] if marks else sentence, None
        for (_, start, way), end in zip(marks, ends, strict=True):
            yield sentence[start:end], way


def _named(
    clause: str, ids: Mapping[str, _TaskWords], by_word: Mapping[str, Sequence[_TaskWords]]
) -> Iterator[tuple[_TaskWords, float]]:
    """Yield the tasks that a clause names by id or by most of their words, with a confidence."""
    spelled = [word.casefold() for word in _WORD.findall(clause)]
    words = frozenset(map(_root, spelled)) - _EMPTY
    seen: set[str] = set()
    for word in spelled:
        if word in ids and word not in seen and any(letter.isdigit() for letter in word):
            seen.add(word)
            yield ids[word], 0.95
    shared: dict[str, int] = defaultdict(int)
    candidates: dict[str, _TaskWords] = {}
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


def _by_stage(read: Sequence[_TaskWords]) -> Iterator[TaskDependency]:
    """Yield dependencies of tasks with the same object, in the usual order of work."""
    by_thing: dict[str, list[_TaskWords]] = defaultdict(list)
    for entry in read:
        for thing in entry.things:
            by_thing[thing].append(entry)
    pairs: dict[tuple[str, str], tuple[_TaskWords, _TaskWords]] = {}
    for sharing in by_thing.values():
        if len(sharing) > _FAR:
            continue
        for place, entry in enumerate(sharing):
            pairs |= {(entry.task.id, other.task.id): (entry, other) for other in sharing[place + 1 :]}
    for entry, other in pairs.values():
        if entry.stage is None or other.stage is None or entry.stage == other.stage:
            continue
        count = len(entry.things & other.things)
        alike = count / len(entry.things | other.things)
        if alike >= 0.5 or count >= 2:
            late, early = (entry, other) if entry.stage > other.stage else (other, entry)
            yield _dependency(late, early, "prerequisite", round(min(0.75, 0.4 + 0.35 * alike), 2))


def _dependency(source: _TaskWords, target: _TaskWords, kind: RelationshipType, confidence: float) -> TaskDependency:
    return TaskDependency(
        source_task_id=source.task.id,
        target_task_id=target.task.id,
        relationship_type=kind,
        confidence=confidence,
        detection_method="rules",
    )


def _read(task: Task) -> _TaskWords:
    title = _AFTER.split(_BEFORE.split(task.title)[0])[0] or task.title
    spelled = [word.casefold() for word in _WORD.findall(title)]
    roots = [_root(word) for word in spelled]
    words = frozenset(roots) - _EMPTY
    stages = [(root, _STAGE_ROOTS[root]) for root in roots[:3] if root in _STAGE_ROOTS]
    verbs = {root for root, _ in stages[:1]}
    return _TaskWords(task, words or frozenset(roots), words - verbs, stages[0][1] if stages else None)


def _root(word: str) -> str:
    """Return a word without its ending, so that "tests", "testing" and "tested" are equal."""
    for ending in ("ings", "ing", "ions", "ion", "ed", "es", "s", "e"):
        if word.endswith(ending) and len(word) - len(ending) >= 3 and not word.endswith("ss"):
            root = word.removesuffix(ending)
            return root[:-1] if len(root) > 3 and root[-1] == root[-2] and ending in ("ing", "ed") else root
    return word


_STAGE_ROOTS: Final[Mapping[str, int]] = {_root(verb): stage for verb, stage in _STAGES.items()}


@dataclass(frozen=True, slots=True)
class AcyclicGraph:
    """Dependencies without a cycle, and the dependencies that were removed."""

    dependencies: list[TaskDependency]
    broken: list[BrokenCycle]


def untangled(tasks: Sequence[str], dependencies: Sequence[TaskDependency]) -> AcyclicGraph:
    """Remove the dependencies that close a cycle.

    Dependencies are added by descending confidence, so the weakest dependency of a cycle is removed. With equal
    confidence, stored dependencies come before inferred ones, and then earlier ones before later ones.
    """
    place = {task: number for number, task in enumerate(tasks)}
    # For every task a bit set of itself and of all tasks that it waits for, directly or indirectly.
    waits_for = [1 << number for number in range(len(tasks))]
    targets: dict[str, list[str]] = {task: [] for task in tasks}
    dropped: dict[tuple[str, str, str], BrokenCycle] = {}
    ordering = [dependency for dependency in dependencies if dependency.orders]
    for task_dependency in sorted(
        ordering,
        key=lambda task_dependency: (
            -task_dependency.confidence,
            task_dependency.detection_method != "stored_relationship",
        ),
    ):
        source, target = place[task_dependency.source_task_id], place[task_dependency.target_task_id]
        if waits_for[target] >> source & 1:
            circle = _path(targets, task_dependency.target_task_id, task_dependency.source_task_id)
            dropped[task_dependency.key] = BrokenCycle(task_ids=circle, dropped=task_dependency)
            continue
        targets[task_dependency.source_task_id].append(task_dependency.target_task_id)
        inherited = waits_for[target]
        if waits_for[source] & inherited != inherited:
            for number, bits in enumerate(waits_for):
                if bits >> source & 1:
                    waits_for[number] = bits | inherited
    task_dependencies = [dependency for dependency in dependencies if dependency.key not in dropped]
    return AcyclicGraph(
        task_dependencies,
        [dropped[task_dependency.key] for task_dependency in ordering if task_dependency.key in dropped],
    )


def depths(tasks: Sequence[str], dependencies: Sequence[TaskDependency]) -> dict[str, int]:
    """Return the depth of each task: 1 without a prerequisite, otherwise one more than its deepest prerequisite."""
    waiting = dict.fromkeys(tasks, 0)
    followers: dict[str, list[str]] = {task: [] for task in tasks}
    for dependency in dependencies:
        if dependency.orders:
            waiting[dependency.source_task_id] += 1
            followers[dependency.target_task_id].append(dependency.source_task_id)
    depth = dict.fromkeys(tasks, 1)
    ready = deque(task for task in tasks if not waiting[task])
    while ready:
        task = ready.popleft()
        for follower in followers[task]:
            depth[follower] = max(depth[follower], depth[task] + 1)
            waiting[follower] -= 1
            if not waiting[follower]:
                ready.append(follower)
    return depth


def dependents(tasks: Sequence[str], dependencies: Sequence[TaskDependency]) -> dict[str, int]:
    """Return the number of direct and indirect dependents of each task. The dependencies have no cycle."""
    place = {task: number for number, task in enumerate(tasks)}
    followers: dict[str, list[str]] = {task: [] for task in tasks}
    for dependency in dependencies:
        if dependency.orders:
            followers[dependency.target_task_id].append(dependency.source_task_id)
    bits: dict[str, int] = {}
    depth = depths(tasks, dependencies)
    # Deepest first, because dependents are deeper than the task.
    for task in sorted(tasks, key=lambda task: -depth[task]):
        bits[task] = 0
        for follower in followers[task]:
            bits[task] |= bits[follower] | 1 << place[follower]
    return {task: bits[task].bit_count() for task in tasks}


def _path(targets: Mapping[str, Sequence[str]], first: str, last: str) -> list[str]:
    """Return the shortest path between two tasks along their prerequisites."""
    before: dict[str, str | None] = {first: None}
    waiting = deque([first])
    while last not in before:
        task = waiting.popleft()
        for target in targets[task]:
            if target not in before:
                before[target] = task
                waiting.append(target)
    way: list[str] = []
    step: str | None = last
    while step is not None:
        way.append(step)
        step = before[step]
    return way[::-1]


_METHODS: Final[Mapping[str, DetectionMethod]] = {
    "ai": "ai_inference",
    "manual": "stored_relationship",
}
"""Detection methods by their names in other formats."""


def normalised(values: Mapping[str, Any], *, method: DetectionMethod | None = None) -> TaskDependency:
    """Return a dependency from JSON. Raises `Refused` if it is not valid.

    There are two formats. In ours the source waits for the target. The other has `confidence_score`, or `ai` or
    `manual` as the method, and its source comes before the target, so the two are swapped. `method` overrides the
    method in the JSON.
    """
    value: Json = dict(values)
    is_swapped = "confidence_score" in value or value.get("detection_method") in _METHODS
    confidence = value.get("confidence", value.get("confidence_score", 0.5))
    source, target = value.get("source_task_id"), value.get("target_task_id")
    if is_swapped:
        source, target = target, source
    text = str(value.get("detection_method"))
    try:
        return TaskDependency(
            source_task_id=str(source or ""),
            target_task_id=str(target or ""),
            relationship_type=value.get("relationship_type", "prerequisite"),
            confidence=confidence,
            detection_method=method or _METHODS.get(text, "ai_inference" if text == "None" else text),  # pyright: ignore[reportArgumentType]
        )
    except ValidationError as exc:
        problems = "; ".join(str(error["msg"]).removeprefix("Value error, ") for error in exc.errors())
        raise Refused(f"This is not a dependency: {problems}.") from exc


def merged(dependencies: Iterable[TaskDependency], tasks: Iterable[str]) -> list[TaskDependency]:
    """Return the distinct dependencies between these tasks, in order of their first occurrence.

    Duplicates are merged: the highest confidence wins, and the strongest method: stored, then the model, then rules.
    """
    known = set(tasks)
    task_dependencies: dict[tuple[str, str, str], TaskDependency] = {}
    for dependency in dependencies:
        if dependency.source_task_id not in known or dependency.target_task_id not in known:
            continue
        before = task_dependencies.get(dependency.key)
        task_dependencies[dependency.key] = dependency if before is None else _stronger(before, dependency)
    return list(task_dependencies.values())


def _stronger(task_dependency: TaskDependency, other: TaskDependency) -> TaskDependency:
    methods = (task_dependency.detection_method, other.detection_method)
    return task_dependency.model_copy(
        update={
            "confidence": max(task_dependency.confidence, other.confidence),
            "detection_method": min(methods, key=_STRENGTH.index),
        }
    )


_STRENGTH: Final[Sequence[DetectionMethod]] = ("stored_relationship", "ai_inference", "rules")
"""Detection methods, the strongest first."""
