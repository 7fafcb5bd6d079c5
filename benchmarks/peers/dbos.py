"""DBOS with the same thread: a workflow with a step for each model call and each tool, in its own database.

Workflows are started directly, concurrently in separate OS threads. Its queue is polled and slower, and so are its
asynchronous workflows.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from dbos import DBOS

from benchmarks.goals import RESULT, STEPS, TEXT
from benchmarks.places import sqlite_path


@DBOS.step()
def model(step: int) -> dict[str, Any]:
    if step == STEPS:
        return {"role": "assistant", "content": "Done."}
    call = {"type": "tool_use", "id": f"call_{step}", "name": "look", "input": {}}
    return {"role": "assistant", "content": [{"type": "text", "text": TEXT}, call]}


@DBOS.step()
def look(call_id: str) -> dict[str, Any]:
    return {"role": "user", "content": [{"type": "tool_result", "tool_use_id": call_id, "content": RESULT}]}


@DBOS.workflow()
def thread(goal: str) -> str:
    step = 0
    while True:
        step += 1
        response = model(step)
        if isinstance(response["content"], str):
            return response["content"]
        look(response["content"][-1]["id"])


def threads(backend: str, url: str, concurrency: int) -> Callable[[int], Callable[[], None]]:
    """Prepare the execution of this number of threads."""
    database = f"sqlite:///{sqlite_path(url)}" if backend == "sqlite" else url
    DBOS(
        config={
            "name": "bench",
            "system_database_url": database,
            "log_level": "ERROR",
            "run_admin_server": False,
            "max_executor_threads": 64,
        }
    )
    DBOS.launch()
    places = ThreadPoolExecutor(concurrency)

    def ready(number: int) -> Callable[[], None]:
        def execute() -> None:
            if set(places.map(thread, ["Go"] * number)) != {"Done."}:
                raise RuntimeError("a workflow did not finish")

        return execute

    return ready
