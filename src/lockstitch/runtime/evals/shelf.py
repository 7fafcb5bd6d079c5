"""Where evaluations stand: a record for each, of type `evaluation`, and one for each case, of the type of its graders.

Ids are made of names, so that whoever goes on after a crash finds what is there, and two who evaluate the same at the
same time write the same records.
"""

from collections.abc import Sequence
from typing import Any, Final
from uuid import UUID

from lockstitch.backend import Find, Where
from lockstitch.errors import Conflict
from lockstitch.records import Eval, Json, codec, foreign_id, text_of
from lockstitch.records.message import user
from lockstitch.runtime.evals.evaluation import Evaluation, Outcome, Totals, evaluation_of
from lockstitch.runtime.grader import Case, Grader
from lockstitch.store import Store

TYPE: Final = "evaluation"
_AT_ONCE: Final = 200
_TEXT: Final = 8_000
"""Characters of a case's input that are kept with its outcome; all of it stands in the thread."""


class EvalShelf:
    """The evaluations of one name in a store's project."""

    def __init__(self, store: Store, name: str) -> None:
        self._store = store
        self.name = name

    async def begin(self, wanted: Json, agent: str) -> Eval:
        """The evaluation to go on with: the last one of the same, if it was cut off; else a new one."""
        while True:
            known = sorted(await self._all(), key=lambda one: int(one.input["number"]))
            same = [one for one in known if _same(one, wanted, agent)]
            if same and same[-1].result.get("status") != "completed":
                return same[-1]
            number = int(known[-1].input["number"]) + 1 if known else 1
            now = self._store.clock.now()
            made = Eval(
                id=foreign_id(self._store.project, "eval", f"{self.name}\x1f{number}"),
                project=self._store.project,
                name=self.name,
                type=TYPE,
                agent=agent,
                input={"number": number, **wanted},
                result={"status": "running"},
                created_at=now,
                updated_at=now,
            )
            try:
                await self._store.backend.put([made], new=True)
            except Conflict:
                # Somebody else has just begun one of this number: it is the same, or ours is the next.
                continue
            return made

    async def outcomes(self, evaluation: Eval, cases: Sequence[str]) -> dict[str, Outcome]:
        """What came of those cases that are done."""
        found: dict[str, Outcome] = {}
        for start in range(0, len(cases), _AT_ONCE):
            ids = [case_id(evaluation, case) for case in cases[start : start + _AT_ONCE]]
            for one in await self._store.backend.find(Find(Eval, (Where("id", "in", ids),))):
                found[str(one.input["case"])] = Outcome.from_json({"case": one.input["case"], **one.result})
        return found

    async def keep(self, evaluation: Eval, case: Case, outcome: Outcome, more: Json) -> None:
        """Write down what came of a case: from here on it is done."""
        now = self._store.clock.now()
        asked = text_of(user(case.input if isinstance(case.input, str) else list(case.input)))[:_TEXT]
        given: Json = {"input": asked, "expected": case.expected, "schema": case.schema, "metadata": case.metadata}
        about: Json = {"case": case.id, "evaluation": str(evaluation.id), "number": evaluation.input["number"]}
        result = {key: value for key, value in outcome.as_json().items() if key != "case"}
        await self._store.evals.put(
            Eval(
                id=case_id(evaluation, case.id),
                project=evaluation.project,
                name=self.name,
                type=" ".join(one["name"] for one in evaluation.input["graders"]),
                agent=evaluation.agent,
                run_id=outcome.run_id,
                input={**about, **{key: value for key, value in given.items() if value not in (None, {})}},
                result={**result, **more},
                created_at=now,
                updated_at=now,
            )
        )

    async def finish(self, evaluation: Eval, outcomes: Sequence[Outcome]) -> None:
        """Write down what came of all of them, and in which order they stood."""
        result: Json = {"status": "completed", **Totals.of(outcomes)._asdict(), "order": [one.case for one in outcomes]}
        await self._store.evals.put(evaluation.changed(result=result, updated_at=self._store.clock.now()))

    async def before(self, evaluation: Eval) -> Evaluation | None:
        """The last evaluation before this one that was finished."""
        number = int(evaluation.input["number"])
        earlier = [one for one in await self._all() if int(one.input["number"]) < number]
        finished = [one for one in earlier if one.result.get("status") == "completed"]
        if not finished:
            return None
        last = max(finished, key=lambda one: int(one.input["number"]))
        order: list[str] = last.result.get("order") or []
        known = await self.outcomes(last, order)
        return evaluation_of(last, [known[case] for case in order if case in known])

    async def _all(self) -> Sequence[Eval]:
        return await self._store.evals.list(project=self._store.project, name=self.name, type=TYPE)


def case_id(evaluation: Eval, case: str) -> UUID:
    return foreign_id(evaluation.project, "eval", f"{evaluation.name}\x1f{evaluation.input['number']}\x1f{case}")


def described(graders: Sequence[Grader]) -> list[dict[str, Any]]:
    """Graders as they are written down."""
    return [{"name": one.name, "pass_at": one.pass_at, "parameters": one.parameters} for one in graders]


def _same(evaluation: Eval, wanted: Json, agent: str) -> bool:
    known = {key: value for key, value in evaluation.input.items() if key != "number"}
    return evaluation.agent == agent and codec.digest(_sorted(known)) == codec.digest(_sorted(wanted))


def _sorted(bag: Json) -> Json:
    return dict(sorted(bag.items()))
