"""DBOS with the same thread: a workflow with a step for each model call and each tool, in its own database.

Workflows are started directly, concurrently in separate OS threads. Its queue is polled and slower, and so are its
asynchronous workflows.
"""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

from dbos import DBOS

from benchmarks.content import ANSWER, RESULT, TEXT
from benchmarks.peers import Execute, Prepare


@DBOS.step()
def model(step: int, steps: int) -> dict[str, Any]:
    if step == steps:
        return {"role": "assistant", "content": ANSWER}
    call = {"type": "tool_use", "id": f"call_{step}", "name": "look", "input": {}}
    return {"role": "assistant", "content": [{"type": "text", "text": TEXT}, call]}


@DBOS.step()
def look(call_id: str) -> dict[str, Any]:
    return {"role": "user", "content": [{"type": "tool_result", "tool_use_id": call_id, "content": RESULT}]}


@DBOS.workflow()
def thread(goal: str, steps: int) -> str:
    step = 0
    while True:
        step += 1
        response = model(step, steps)
        if isinstance(response["content"], str):
            return response["content"]
        look(response["content"][-1]["id"])


def threads(url: str, concurrency: int) -> Prepare:
    DBOS(
        config={
            "name": "bench",
            "system_database_url": url,
            "log_level": "ERROR",
            "run_admin_server": False,
            "max_executor_threads": 64,
        }
    )
    DBOS.launch()
    places = ThreadPoolExecutor(concurrency)

    def prepare(number: int, steps: int) -> Execute:
        def execute() -> None:
            if set(places.map(thread, ["Go"] * number, [steps] * number)) != {ANSWER}:
                raise RuntimeError("a workflow did not finish")

        return execute

    return prepare
