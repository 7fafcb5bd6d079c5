"""Dependencies from several sources, made one list: in one direction, each once, between tasks that there are."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from pydantic import ValidationError

from lockstitch.apps.prioritizer.models import DetectionMethod, TaskDependency
from lockstitch.errors import Refused
from lockstitch.records import Json

_METHODS: Final[Mapping[str, DetectionMethod]] = {
    "ai": "ai_inference",
    "manual": "stored_relationship",
}
"""How others name where a dependency is known from."""


def normalised(given: Mapping[str, Any], *, method: DetectionMethod | None = None) -> TaskDependency:
    """A dependency as somebody else tells of it, in our words and our direction. Refused when it is none.

    There are two ways to tell of one. Ours says that the source waits for the target. The other has confidence_score
    and ai or manual for ours, and says that the source comes before the target: that one is turned round. `method`
    is what is known for sure of where it comes from, whatever is told.
    """
    told: Json = dict(given)
    other = "confidence_score" in told or told.get("detection_method") in _METHODS
    confidence = told.get("confidence", told.get("confidence_score", 0.5))
    source, target = told.get("source_task_id"), told.get("target_task_id")
    if other:
        source, target = target, source
    said = str(told.get("detection_method"))
    try:
        return TaskDependency(
            source_task_id=str(source or ""),
            target_task_id=str(target or ""),
            relationship_type=told.get("relationship_type", "prerequisite"),
            confidence=confidence,
            detection_method=method or _METHODS.get(said, "ai_inference" if said == "None" else said),  # pyright: ignore[reportArgumentType]
        )
    except ValidationError as exc:
        problems = "; ".join(str(error["msg"]).removeprefix("Value error, ") for error in exc.errors())
        raise Refused(f"This is no dependency: {problems}.") from exc


def merged(dependencies: Iterable[TaskDependency], tasks: Iterable[str]) -> list[TaskDependency]:
    """Each dependency between these tasks once, in the order in which they were first told.

    Of one that was told several times the highest confidence is kept, and that it is stored if it is.
    """
    known = set(tasks)
    found: dict[tuple[str, str, str], TaskDependency] = {}
    for one in dependencies:
        if one.source_task_id not in known or one.target_task_id not in known:
            continue
        before = found.get(one.key)
        found[one.key] = one if before is None else _stronger(before, one)
    return list(found.values())


def _stronger(one: TaskDependency, other: TaskDependency) -> TaskDependency:
    stored = "stored_relationship" in (one.detection_method, other.detection_method)
    return one.model_copy(
        update={
            "confidence": max(one.confidence, other.confidence),
            "detection_method": "stored_relationship" if stored else "ai_inference",
        }
    )
