"""`prepare_request` and `unfinished`: evaluations that a server starts from a request and continues after a restart."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from lockstitch.agents.agent import Agent
from lockstitch.agents.evals.grader import Grader
from lockstitch.agents.evals.graders import grader
from lockstitch.agents.evals.recorded_runs import RecordedRuns
from lockstitch.agents.evals.records import TYPE
from lockstitch.agents.evals.runner import PreparedEvaluation, Variant, prepare, selected
from lockstitch.agents.evals.stored_cases import PREFIX, load_source
from lockstitch.engine.ports.provider import ProviderError
from lockstitch.errors import Refused
from lockstitch.model import Eval, Json
from lockstitch.store import Store, Where

_JUDGES = ("judge", "rubric")


class EvalRequest(NamedTuple):
    """An evaluation of a stored dataset, or of recorded runs, with an agent of an app."""

    agent: str
    dataset: str | None
    """Name or id of a stored dataset, or `name@version`. None: `sources` or `where` selects recorded runs."""
    graders: Sequence[str]
    """Names of graders."""
    name: str | None = None
    version: int | None = None
    trials: int = 1
    concurrency: int = 4
    judge: str | None = None
    """Model or agent of the graders `judge` and `rubric`. None: the model of the agent."""
    criteria: str | None = None
    """Criteria for the grader `judge`."""
    pass_at: float | None = None
    """Minimum score of these graders for a pass."""
    sources: Sequence[str] = ()
    """Threads and runs, see `RecordedRuns`."""
    where: Sequence[str] = ()
    """Filters of threads, see `RecordedRuns`."""
    limit: int = 100
    """Maximum number of threads that `where` selects."""
    model: str | None = None
    """Model of the agent. None: that of its definition."""
    instructions: str | None = None
    """Instructions of the agent. None: those of its definition."""
    replay: bool = False
    """True if each case is a replay of its recorded run."""
    live_safe: bool = False
    """True if replays run `safe` tools for calls that the record does not have."""


async def prepare_request(
    agent: Agent, agents: Mapping[str, Agent], store: Store, request: EvalRequest, *, continues: Eval | None = None
) -> PreparedEvaluation:
    """Check the evaluation of a request and create or find its record. No case has run. See `prepare`.

    `agents` are those that can be judges.

    Raises:
        NotFound: If the project does not have the dataset.
        Refused: If a value is not valid.
    """
    if (request.dataset is None) != bool(request.sources or request.where):
        raise Refused("An evaluation needs either a dataset or recorded runs.")
    if request.dataset is None:
        selection = RecordedRuns(request.sources, request.where, request.limit)
        source = await selected(store, agent, selection, request.name)
    else:
        source = await load_source(store, f"{PREFIX}{request.dataset}")
    try:
        return await prepare(
            agent,
            source,
            store=store,
            graders=[_grader(name, agents, agent.model, request) for name in request.graders],
            name=request.name,
            variant=Variant(request.version, request.model, request.instructions, request.replay, request.live_safe),
            trials=request.trials,
            request=request._asdict(),
            continues=continues,
        )
    except ProviderError as exc:
        # The model of the agent or of a judge is not usable here.
        raise Refused(str(exc)) from exc


def _grader(name: str, agents: Mapping[str, Agent], model: Any, request: EvalRequest) -> Grader:
    if ":" in name:
        raise Refused("A server grades with the graders that it knows, not with functions.")
    if name not in _JUDGES:
        return grader(name)
    parameters: Json = {"judge": model if request.judge is None else agents.get(request.judge, request.judge)}
    if request.pass_at is not None:
        parameters["pass_at"] = request.pass_at
    if name == "judge" and request.criteria is not None:
        parameters["criteria"] = request.criteria
    return grader(name, **parameters)


async def unfinished(store: Store) -> list[Eval]:
    """Return the evaluations of all projects that a server has started and not finished, oldest first."""
    where = (Where("type", "=", TYPE), Where("result", "=", "running", ("status",)))
    records = await store.evals.find(*where, order=("created_at", "id"))
    return [record for record in records if record.input.get("request")]


def request_of(record: Eval) -> EvalRequest:
    """Return the request of an evaluation, with its runs and its versions of the dataset and of the agent."""
    values: Json = {**record.input["request"], "name": record.name, "version": record.input["version"]}
    if record.dataset_id is not None:
        values["dataset"] = f"{record.dataset_id}@{record.input['dataset_version']}"
    if runs := record.input.get("runs"):
        values |= {"sources": runs, "where": ()}
    # The version has the model and the instructions.
    values |= {"model": None, "instructions": None}
    return EvalRequest(**values)
