"""`retry`, `cancel`, `approve` and `delete` on several threads: preview, confirmation and results."""

import pytest

from lockstitch.cli.exit_codes import ExitCode
from lockstitch.errors import LockstitchError
from lockstitch.store import Store
from tests.cli.calling import Call
from tests.cli.story import within
from tests.cli.test_invalid_arguments import check

APP = ("--app", "tests.cli.shop:app")


@pytest.fixture
def goals(lockstitch: Call) -> Call:
    """A store with two failed goals, a failed child and a completed goal."""
    for number, agent in enumerate(("failing", "failing", "echo")):
        assert lockstitch("start", agent, "--goal", f"Goal {number}", "--key", f"g{number}", *APP).code == 0
        lockstitch("resume", f"g{number}", *APP)
    return lockstitch


def statuses(lockstitch: Call) -> dict[str, str]:
    return {row["key"]: row["status"] for row in lockstitch("threads", "--json").json}


def test_dry_run_lists_threads_and_changes_nothing(goals: Call) -> None:
    before = statuses(goals)
    assert before == {"g0": "failed", "g1": "failed", "g2": "completed"}
    result = goals("retry", "--status", "failed", "--since", "1h", "--dry-run")
    assert [line.split()[3:] for line in result.lines[1:]] == [[key, "No", "such", "model."] for key in ("g1", "g0")]
    assert result.err == "Dry run: retry 2 threads. Nothing was changed.\n"
    preview = goals("delete", "g0", "--dry-run", "--json").json
    assert (preview["dry_run"], [row["key"] for row in preview["threads"]]) == (True, ["g0"])
    assert statuses(goals) == before
    assert goals("retry", "--status", "cancelled", "--dry-run").err == "No threads match. Nothing was changed.\n"


def test_several_threads_need_confirmation(goals: Call) -> None:
    for command in (["retry", "g0", "g1", *APP], ["cancel", "g0", "g1"], ["delete", "g0", "g1"]):
        result = goals(*command)
        assert result.code == 2
        assert result.err.endswith("2 threads? Not a terminal: pass --yes to confirm.\n")
    assert statuses(goals)["g0"] == "failed"


def test_retry_executes_several_threads_here(goals: Call) -> None:
    result = goals("retry", "--status", "failed", "--yes", *APP)
    assert (result.code, sorted(result.lines)) == (0, ["g0  completed", "g1  completed"])
    assert result.err == "Retried 2 threads.\n"
    assert set(statuses(goals).values()) == {"completed"}


def test_retry_reports_threads_that_fail(goals: Call) -> None:
    result = goals("retry", "g0", "g2", "--yes", "--json", *APP)
    assert result.code == ExitCode.PARTLY
    assert '"key":"g0","status":"completed"}' in result.out
    assert "Only failed and cancelled runs are retried." in result.out
    assert goals("retry", "g2", "g2", "unknown", "--yes", *APP).code == 3


def test_retry_detach_leaves_run_to_worker(goals: Call) -> None:
    assert goals("retry", "g0", "--detach", *APP).lines == ["g0  pending"]
    assert goals("worker", "--until-idle", *APP).code == 0
    assert statuses(goals)["g0"] == "completed"


def test_cancel_and_delete_several_threads(lockstitch: Call) -> None:
    for number in range(3):
        lockstitch("start", "echo", "--goal", "g", "--key", f"g{number}", *APP)
    lockstitch("run", "echo", "Hi", "--thread", "idle", *APP)
    result = lockstitch("cancel", "--status", "pending", "--yes", "--json").json
    assert [row["key"] for row in result["threads"]] == ["g2", "g1", "g0"]
    lockstitch("worker", "--until-idle", *APP)
    assert lockstitch("cancel", "--status", "waiting", "--yes").err == "No threads match. Nothing was changed.\n"
    assert lockstitch("delete", "--status", "cancelled", "--yes").err == "Deleted 3 threads.\n"
    assert statuses(lockstitch) == {"idle": "waiting"}


def test_filter_of_retry_leaves_out_children_and_traces(lockstitch: Call, store_url: str) -> None:
    async def tell(store: Store) -> None:
        root = await store.create(key="root", kind="goal", goal="g", status="failed", result={"error": "it broke"})
        await store.create(key="child", kind="task", goal="g", status="failed", result={}, parent_id=root.id)
        await store.create(key="trace", kind="trace", status="failed")

    within(store_url, tell)
    result = lockstitch("retry", "--status", "failed", "--dry-run")
    assert len(result.lines) == 2
    assert result.lines[1].endswith("root  it broke"), "a thread without a run has its reason in the result"
    assert len(lockstitch("delete", "--status", "failed", "--dry-run").lines) == 4
    assert lockstitch("delete", "--status", "failed", "--yes").code == 0, "the child is deleted with its parent"


def test_selection_needs_names_or_status(lockstitch: Call, store_url: str) -> None:
    for arguments in ([], ["a", "--status", "failed"], ["--since", "1h"], ["--status", "waiting"], ["--status", "x"]):
        check(lockstitch("retry", *arguments, *APP), 2)
    check(lockstitch("approve", "--status", "failed"), 2)


def test_approves_one_call_of_each_thread(lockstitch: Call) -> None:
    for name in ("a", "b"):
        assert lockstitch("run", "payer", "Pay", "--thread", name, *APP).code == 4
    lockstitch("run", "echo", "Hi", "--thread", "idle", *APP)
    preview = lockstitch("approve", "--status", "waiting", "--dry-run")
    assert [line.split()[-2:] for line in preview.lines[1:]] == [["b", 'pay({"amount":5})'], ["a", 'pay({"amount":5})']]
    result = lockstitch("approve", "a", "b", "--yes", *APP)
    assert (result.code, result.lines) == (0, ["a  completed", "b  completed"])
    assert result.err == "Approved the calls of 2 threads.\n"


def test_exit_codes_of_errors_are_in_the_table(lockstitch: Call) -> None:
    classes = [LockstitchError]
    for error in classes:
        ExitCode(error.exit_code)
        classes += error.__subclasses__()
    help_text = lockstitch("--help").out
    assert all(f"{code.value} " in help_text for code in ExitCode)
    assert all(code.meaning.endswith(".") for code in ExitCode)
