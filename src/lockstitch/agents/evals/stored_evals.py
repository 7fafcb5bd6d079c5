"""`Evals`: list, read and compare the evaluations of a project. Results are JSON, as in the HTTP API."""

from bisect import bisect_right
from collections.abc import Sequence
from typing import Final

from lockstitch.agents.evals.comparison import (
    ComparedCase,
    ComparedEvaluation,
    ComparedPage,
    EvaluationScores,
    Place,
    Shown,
    compare,
    compared_case,
)
from lockstitch.agents.evals.records import TYPE, evaluation_of, outcome_of, outcomes_of, scores_of, trials_of
from lockstitch.agents.evals.results import CaseSummary, Totals, summaries_of
from lockstitch.errors import NotFound, Refused
from lockstitch.model import Eval, Json, as_id, foreign_id
from lockstitch.store import Store, Where
from lockstitch.store.datasets import find_dataset

MAX_COMPARED: Final = 8
"""Maximum number of evaluations in one comparison."""

_COUNTED: Final = 2_000
"""Up to this number of trials, an evaluation that runs has totals of the trials that are done."""

_Tables = list[dict[str, CaseSummary]]
"""Alias: inside `Evals`, the method `list` hides the type."""


class Evals:
    """The evaluations of the project of a store.

    An evaluation is named by its id, by `name#number`, or by its name, which means the last one of that name.

    Args:
        store: The store.
    """

    def __init__(self, store: Store) -> None:
        self._store = store

    async def list(
        self,
        *,
        name: str | None = None,
        dataset: str | None = None,
        agent: str | None = None,
        status: str | None = None,
        limit: int = 50,
        after: str | None = None,
    ) -> Json:
        """Return `evals`, newest first, each with its totals, and the id after which the list continues.

        Args:
            name: Only evaluations of this name.
            dataset: Only evaluations of this stored dataset: its name or id.
            agent: Only evaluations of this agent.
            status: Only `running`, `completed` or `stopped` evaluations.
            limit: Maximum number of evaluations.
            after: Id of the last evaluation of the previous page.
        """
        where = [Where("project", "=", self._store.project), Where("type", "=", TYPE)]
        where += [Where("name", "=", name)] if name else []
        if dataset:
            where.append(Where("dataset_id", "=", (await find_dataset(self._store, dataset)).dataset.id))
        where += [Where("agent", "=", agent)] if agent else []
        where += [Where("result", "=", status, ("status",))] if status else []
        last = None if after is None else await self.record(after)
        found = await self._store.evals.find(
            *where,
            order=("-created_at", "-id"),
            after=None if last is None else (last.created_at, last.id),
            limit=limit + 1,
        )
        records = found[:limit]
        return {
            "evals": [await self._shown(record) for record in records],
            "next": str(records[-1].id) if len(found) > limit else None,
        }

    async def get(self, ref: str) -> Json:
        """Return an evaluation with its totals. While it runs, they are those of the trials that are done.

        Args:
            ref: Id, `name#number`, or name.

        Raises:
            NotFound: If the project has no such evaluation.
        """
        return await self._shown(await self.record(ref), partial=True)

    async def cases(self, ref: str, *, failed: bool = False, limit: int = 50, after: int | None = None) -> Json:
        """Return the `cases` with their trials, in their order, and the number after which the list continues.

        Args:
            ref: Id, `name#number`, or name.
            failed: Only cases with a trial that did not pass.
            limit: Maximum number of cases.
            after: `next` of the previous page.
        """
        record = await self.record(ref)
        summaries, last = await self.summaries(record, failed=failed, limit=limit, after=after)
        return {"cases": [summary.as_json() for summary in summaries], "next": last}

    async def compare(
        self, refs: Sequence[str], *, changed: bool = False, limit: int = 100, after: str | None = None
    ) -> Json:
        """Compare evaluations case by case, the worst differences first. The first evaluation is the baseline.

        Args:
            refs: Two or more evaluations: ids, `name#number`, or names.
            changed: Only cases with another score than in the baseline.
            limit: Maximum number of cases.
            after: `next` of the previous page.
        """
        records = await self.compared(refs)
        page = await self.comparison(records, "changed" if changed else "all", limit=limit, after=after)
        return {
            "evals": [await self.shown(record) for record in records],
            "differences": [difference.as_json() for difference in page.comparison.differences],
            "cases": [case.as_json() for case in page.cases],
            "total": page.total,
            "next": page.next,
        }

    async def record(self, ref: str) -> Eval:
        """Return the record of an evaluation. Raises `NotFound` if the project has none.

        Args:
            ref: Id, `name#number`, or name.
        """
        project = self._store.project
        name, _, number = ref.rpartition("#")
        id = as_id(ref)
        if id is None and name and number.isascii() and number.isdigit():
            id = foreign_id(project, "eval", f"{name}\x1f{int(number)}")
        record = None if id is None else await self._store.evals.get_or_none(id)
        if id is None:
            where = (Where("project", "=", project), Where("name", "=", ref), Where("type", "=", TYPE))
            record = await self._store.evals.first(*where, order=("-created_at", "-id"))
        if record is None or record.project != project or record.type != TYPE:
            raise NotFound(f"Evaluation {ref} not found in project {project}.")
        return record

    async def summaries(
        self, record: Eval, *, failed: bool = False, limit: int = 50, after: int | None = None
    ) -> tuple[Sequence[CaseSummary], int | None]:
        """Return a page of the cases of an evaluation, and the number after which the list continues. See `cases`."""
        trials = trials_of(record)
        of_evaluation = Where("parent_id", "=", record.id)
        # The trials of a case have consecutive positions.
        first = Where("position", ">=", 0 if after is None else (after + 1) * trials)
        places: Sequence[int]
        if failed:
            not_passed = Where("result", "=", False, ("passed",))
            found = await self._store.evals.find(
                of_evaluation, first, not_passed, order=("position", "id"), limit=(limit + 1) * trials
            )
            places = list(dict.fromkeys(_place(each, trials) for each in found))[: limit + 1]
            positions = [place * trials + trial for place in places[:limit] for trial in range(trials)]
            records = await self._store.evals.find(of_evaluation, Where("position", "in", positions)) if places else []
            records.sort(key=lambda each: each.position or 0)
        else:
            records = await self._store.evals.find(
                of_evaluation, first, order=("position", "id"), limit=(limit + 1) * trials
            )
            places = list(dict.fromkeys(_place(each, trials) for each in records))
        shown = set(places[:limit])
        page = summaries_of([outcome_of(each) for each in records if _place(each, trials) in shown])
        return page, places[limit - 1] if len(places) > limit else None

    async def compared(self, refs: Sequence[str]) -> Sequence[Eval]:
        """Return the records of the evaluations of a comparison. Raises `Refused` if there are too few or too many."""
        if not 2 <= len(set(refs)) <= MAX_COMPARED:
            raise Refused(f"A comparison needs 2 to {MAX_COMPARED} different evaluations.")
        return tuple({record.id: record for record in [await self.record(ref) for ref in refs]}.values())

    async def comparison(
        self, records: Sequence[Eval], show: Shown, *, limit: int, after: str | None = None
    ) -> ComparedPage:
        """Compare evaluations and return a page of their cases. See `compare`."""
        scores = [EvaluationScores(record.id, await scores_of(self._store, record)) for record in records]
        result = compare(scores)
        numbers = result.numbers(show)
        first = 0
        if after is not None:
            first = bisect_right(numbers, Place.of(after), key=lambda number: result.place(show, number))
        page = numbers[first : first + limit]
        cases = await self._compared_cases(records, scores, [result.cases[number] for number in page])
        differences = [
            await self._only_case(records, scores, difference) if difference.shared == 1 else difference
            for difference in result.differences
        ]
        following = str(result.place(show, page[-1])) if first + limit < len(numbers) else None
        return ComparedPage(result._replace(differences=differences), cases, len(numbers), following)

    async def _only_case(
        self, records: Sequence[Eval], scores: Sequence[EvaluationScores], difference: ComparedEvaluation
    ) -> ComparedEvaluation:
        """Return a difference of a single case, with the interval of its trials. They are the only units."""
        at = next(at for at, record in enumerate(records) if record.id == difference.id)
        case = next(case for case in scores[at].scores if case in scores[0].scores)
        (compared,) = await self._compared_cases([records[0], records[at]], [scores[0], scores[at]], [case])
        return difference._replace(interval=compared.deltas[1].interval if compared.deltas[1] else None)

    async def _compared_cases(
        self, records: Sequence[Eval], scores: Sequence[EvaluationScores], cases: Sequence[str]
    ) -> Sequence[ComparedCase]:
        tables: _Tables = []
        for record, (_, own) in zip(records, scores, strict=True):
            trials, wanted = trials_of(record), {case for case in cases if case in own}
            if record.result.get("status") == "completed":
                places = [place for place, case in enumerate(own) if case in wanted]
                positions = [place * trials + trial for place in places for trial in range(trials)]
                where = (Where("parent_id", "=", record.id), Where("position", "in", positions))
                found = await self._store.evals.find(*where, order=("position", "id")) if positions else []
                outcomes = [outcome_of(each) for each in found]
            else:
                outcomes = [each for each in await outcomes_of(self._store, record) if each.case in wanted]
            tables.append({summary.case: summary for summary in summaries_of(outcomes)})
        return [compared_case(case, [table.get(case) for table in tables]) for case in cases]

    async def shown(self, record: Eval) -> Json:
        """Return a record as `get` returns it."""
        return await self._shown(record, partial=True)

    async def _shown(self, record: Eval, *, partial: bool = False) -> Json:
        evaluation, all_trials = evaluation_of(record), int(record.input.get("cases") or 0) * trials_of(record)
        done, totals = all_trials, record.result
        if evaluation.status != "completed":
            done = await self._store.evals.count(Where("parent_id", "=", record.id))
            totals = {}
            if partial and done <= _COUNTED:
                totals = Totals.of(await outcomes_of(self._store, record))._asdict()
        return {
            **evaluation.about(),
            **{field: totals.get(field) for field in Totals._fields},
            "cases": int(record.input.get("cases") or 0),
            "trials_done": done,
            "trials_total": all_trials,
            "reason": record.result.get("reason"),
        }


def _place(record: Eval, trials: int) -> int:
    """Return the number of the case of a trial, from 0."""
    return (record.position or 0) // trials
