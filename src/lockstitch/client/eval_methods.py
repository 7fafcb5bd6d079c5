"""`RemoteDatasets` and `RemoteEvals`: the datasets and evaluations of a server, `Client.datasets` and `Client.evals`.

The methods and their results are those of `lockstitch.agents.evals.stored_datasets.Datasets` and `stored_evals.Evals`.
"""

from collections.abc import Collection, Sequence
from types import EllipsisType
from typing import Any, Final
from uuid import UUID

from lockstitch.client.connection import Connection, part, without_none
from lockstitch.errors import NotFound
from lockstitch.model import Json, Run, Thread

_PAGE: Final = 1000


class RemoteDatasets:
    """The datasets of a server.

    A dataset is named by its name or id. `name@3` is its version 3, for calls that read.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def list(self, *, search: str | None = None, limit: int = 50, after: str | None = None) -> Json:
        """Return `datasets` by name, each with the number of its `cases`, and the name after which the list continues.

        Args:
            search: Only datasets whose name contains this text.
            limit: Maximum number of datasets.
            after: Name of the last dataset of the previous page.
        """
        return await self._connection.get("/api/datasets", search=search, limit=min(limit, _PAGE), after=after)

    async def get(self, ref: str) -> Json:
        """Return a dataset with the number of its cases.

        Args:
            ref: Name or id, or `name@version`.

        Raises:
            NotFound: If the project has no such dataset, or the dataset no such version.
        """
        return await self._connection.get(await self._path(ref))

    async def create(self, name: str, *, description: str | None = None, rubric: Any = None) -> Json:
        """Create a dataset and return it.

        Args:
            name: Name, unique within the project.
            description: Description.
            rubric: Criteria of cases without their own: texts, or objects with `criterion`, `name` and `weight`.

        Raises:
            Conflict: If the project has a dataset with this name.
        """
        body = {"name": name, "description": description, "rubric": rubric}
        return await self._connection.post("/api/datasets", body)

    async def edit(
        self, ref: str, *, name: str | None = None, description: str | EllipsisType | None = ..., rubric: Any = ...
    ) -> Json:
        """Change the name, the description or the rubric of a dataset, and return it. The version stays.

        Args:
            ref: Name or id.
            name: New name. None: unchanged.
            description: New description. Ellipsis: unchanged.
            rubric: New rubric of cases without their own. None: no rubric. Ellipsis: unchanged.

        Raises:
            Conflict: If another dataset has the name.
        """
        values = {"name": ... if name is None else name, "description": description, "rubric": rubric}
        body = {key: value for key, value in values.items() if value is not ...}
        return await self._connection.ask("PATCH", await self._path(ref), body=body)

    async def delete(self, ref: str) -> Json:
        """Delete a dataset with all versions. Evaluations stay. Return its `id` and `name`.

        Args:
            ref: Name or id.
        """
        return await self._connection.ask("DELETE", await self._path(ref))

    async def versions(self, ref: str, *, limit: int = 50, before: int | None = None) -> Json:
        """Return the `versions` of a dataset, newest first, and the number before which the list continues.

        Args:
            ref: Name or id.
            limit: Maximum number of versions.
            before: Number of the last version of the previous page.
        """
        return await self._connection.get(await self._path(ref, "versions"), limit=min(limit, _PAGE), before=before)

    async def experiments(self, ref: str, *, limit: int = 50) -> Json:
        """Return the `experiments` on a dataset that LangSmith clients created, newest first.

        Args:
            ref: Name or id.
            limit: Maximum number of experiments.
        """
        return await self._connection.get(await self._path(ref, "experiments"), limit=min(limit, _PAGE))

    async def cases(self, ref: str, *, limit: int = 50, after: str | None = None) -> Json:
        """Return the `cases` of one version, oldest first, its number, and the text after which the list continues.

        Args:
            ref: Name or id, or `name@version`.
            limit: Maximum number of cases.
            after: `next` of the previous page.
        """
        return await self._connection.get(await self._path(ref, "cases"), limit=min(limit, _PAGE), after=after)

    async def case(self, ref: str, case: str) -> Json:
        """Return one case.

        Args:
            ref: Name or id of the dataset, or `name@version`.
            case: Name or id of the case.

        Raises:
            NotFound: If this version of the dataset has no such case.
        """
        return await self._connection.get(await self._path(ref, "cases", case))

    async def put(self, ref: str, cases: Sequence[Json], *, create: bool = False, replace: bool = False) -> Json:
        """Add or replace cases as one new version. Return the version and the numbers of changed cases.

        A case has the fields of a dataset file: `id`, `input`, `expected`, `schema`, `rubric`, `metadata`. Or it has
        `inputs` and `outputs` as objects, as LangSmith's clients write them, and `splits`. A case with the id of a
        stored case replaces it. A case without an id gets the next free number.

        Args:
            ref: Name or id of the dataset.
            cases: The cases.
            create: Create the dataset if the project has none with this name.
            replace: Remove all other cases.

        Raises:
            Refused: If a case is not valid. Nothing was written.
        """
        body = {"cases": [*cases], "create": create, "replace": replace}
        return await self._connection.post(await self._path(ref, "cases", create=create), body)

    async def upload(
        self, ref: str, file_name: str, content: bytes, *, create: bool = True, replace: bool = False
    ) -> Json:
        """Add or replace the cases of a JSONL or CSV file as one new version. See `put`.

        Args:
            ref: Name or id of the dataset.
            file_name: Name of the file. It ends in `.csv` if the file is CSV.
            content: Content of the file.
            create: Create the dataset if the project has none with this name.
            replace: Remove all other cases.

        Raises:
            Refused: If a line is not valid. Nothing was written.
        """
        form = "csv" if file_name.lower().endswith(".csv") else "jsonl"
        return await self._connection.ask(
            "PUT",
            await self._path(ref, "file", create=create),
            parameters={"format": form, "create": create, "replace": replace},
            content=content,
        )

    async def remove(self, ref: str, cases: Collection[str]) -> Json:
        """Remove cases as one new version. Earlier versions still have them. See `put` for the result.

        Args:
            ref: Name or id of the dataset.
            cases: Names or ids of cases.

        Raises:
            NotFound: If the dataset does not have one of the cases. Nothing was written.
        """
        return await self._connection.post(await self._path(ref, "remove"), {"cases": [*cases]})

    async def add(self, ref: str, sources: Collection[str], *, create: bool = True) -> Json:
        """Add runs to a dataset as cases, with their answers as expected outputs.

        Args:
            ref: Name or id of the dataset.
            sources: Threads (ids or keys) and runs (ids). A thread means its last finished run.
            create: Create the dataset if the project has none with this name.
        """
        body = {"sources": [str(source) for source in sources], "create": create}
        return await self._connection.post(await self._path(ref, "runs", create=create), body)

    async def export(self, ref: str, *, form: str = "jsonl") -> str:
        """Return the cases of one version as the text of a JSONL or CSV file.

        Args:
            ref: Name or id, or `name@version`.
            form: `jsonl` or `csv`.
        """
        return (await self._connection.read("GET", await self._path(ref, "file"), parameters={"format": form})).decode()

    async def _path(self, ref: str, *parts: str, create: bool = False) -> str:
        """Return the path of a dataset. A path cannot contain a name with a slash, so its id is looked up."""
        name, version = ref, ""
        if "/" in ref or not ref.strip("."):
            named = await self._id(ref)
            if named is None:
                name, _, version = ref.rpartition("@")
                named, version = await self._id(name), f"@{version}"
            if named is None and create:
                named = (await self.create(ref))["id"]
            if named is None:
                raise NotFound(f"Dataset {ref} not found on the server.")
            name = named
        return "/".join(("/api/datasets", part(f"{name}{version}"), *map(part, parts)))

    async def _id(self, name: str) -> str | None:
        rows: Sequence[Json] = (await self.list(search=name, limit=_PAGE))["datasets"] if name else []
        return next((row["id"] for row in rows if row["name"] == name), None)


class RemoteEvals:
    """The evaluations of a server. An evaluation is named by its id, by `name#number`, or by its name: the last one."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

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
        filters = {"name": name, "dataset": dataset, "agent": agent, "status": status}
        return await self._connection.get("/api/evals", **filters, limit=min(limit, _PAGE), after=after)

    async def start(
        self,
        agent: str,
        dataset: str | None,
        graders: Sequence[str],
        *,
        name: str | None = None,
        version: int | None = None,
        model: str | None = None,
        instructions: str | None = None,
        sources: Sequence[Thread | Run | UUID | str] = (),
        where: Sequence[str] = (),
        limit: int = 100,
        replay: bool = False,
        live_safe: bool = False,
        trials: int = 1,
        concurrency: int = 4,
        judge: str | None = None,
        criteria: str | None = None,
        pass_at: float | None = None,
    ) -> Json:
        """Start an evaluation on the server and return it at once. A server that restarts continues it.

        Args:
            agent: Name of an agent of the server.
            dataset: Name or id of a stored dataset, or `name@version`. None: recorded runs.
            graders: Names of graders.
            name: Name of the evaluation. None: made from the agent and the dataset.
            version: Stored version of the agent's definition. None: the definition of the code.
            model: Model of the agent. None: that of the definition.
            instructions: Instructions of the agent. None: those of the definition.
            sources: Recorded runs as cases, instead of a dataset: threads (ids or keys) and runs (ids).
            where: Filters that select recorded runs, see `lockstitch.RecordedRuns`.
            limit: Maximum number of threads that `where` selects.
            replay: Replay the recorded run of each case, see `lockstitch.evaluate`.
            live_safe: In replays, run tools with the effect `safe` if the record does not have their call.
            trials: Number of runs of each case.
            concurrency: Number of cases that run at once.
            judge: Model or agent of the graders `judge` and `rubric`. None: the model of the agent.
            criteria: Criteria for the grader `judge`.
            pass_at: Minimum score of these graders for a pass.

        Raises:
            NotFound: If the server does not have the agent or the dataset.
            Refused: If a value is not valid.
        """
        body = without_none(
            agent=agent,
            dataset=dataset,
            graders=[*graders],
            name=name,
            version=version,
            model=model,
            instructions=instructions,
            sources=[str(each.id if isinstance(each, Thread | Run) else each) for each in sources],
            where=[*where],
            limit=limit,
            replay=replay,
            live="safe" if live_safe else None,
            trials=trials,
            concurrency=concurrency,
            judge=judge,
            criteria=criteria,
            pass_at=pass_at,
        )
        return await self._connection.post("/api/evals", body)

    async def get(self, ref: str) -> Json:
        """Return an evaluation with its totals. While it runs, they are those of the trials that are done.

        Args:
            ref: Id, `name#number`, or name.

        Raises:
            NotFound: If the project has no such evaluation.
        """
        return await self._connection.get(await self._path(ref))

    async def cases(self, ref: str, *, failed: bool = False, limit: int = 50, after: int | None = None) -> Json:
        """Return the `cases` with their trials, in their order, and the number after which the list continues.

        Args:
            ref: Id, `name#number`, or name.
            failed: Only cases with a trial that did not pass.
            limit: Maximum number of cases.
            after: `next` of the previous page.
        """
        return await self._connection.get(
            f"{await self._path(ref)}/cases", failed=failed, limit=min(limit, _PAGE), after=after
        )

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
        return await self._connection.get(
            "/api/evals/compare", id=[*refs], changed=changed, limit=min(limit, _PAGE), after=after
        )

    async def _path(self, ref: str) -> str:
        """Return the path of an evaluation. A path cannot contain a name with a slash, so its id is looked up."""
        if "/" in ref or not ref.strip("."):
            name, _, number = ref.rpartition("#")
            rows: Sequence[Json] = (await self.list(name=ref, limit=1))["evals"]
            if not rows and name:
                numbered = (await self.list(name=name, limit=_PAGE))["evals"]
                rows = [row for row in numbered if str(row["number"]) == number]
            if not rows:
                raise NotFound(f"Evaluation {ref} not found on the server.")
            ref = rows[0]["id"]
        return f"/api/evals/{part(ref)}"
