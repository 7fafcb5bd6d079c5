"""`run`, `start`, `resume`, `retry`, `cancel` and `fork`."""

import io
import json
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.cli.calling import Call, begin, run
from tests.cli.test_invalid_arguments import UNKNOWN, check

ROOT = Path(__file__).parents[2]
RESULT = [
    *("thread_id", "run_id", "status", "stop_reason", "output_text", "steps", "usage", "total_cost", "in_doubt"),
]
USAGE = ["input_tokens", "output_tokens", "cache_creation_input_tokens", "cache_read_input_tokens"]


@pytest.fixture(autouse=True)
def app(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCKSTITCH_APP", "tests.cli.shop:app")


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'store.db'}"


# run


def test_run_prints_result_in_last_line(lockstitch: Call) -> None:
    command_result = lockstitch("run", "adder", "How much?", "--thread", "k", "--user", "ada", "--json")
    result = json.loads(command_result.lines[-1])
    assert list(result)[: len(RESULT)] == RESULT
    assert list(result["usage"]) == USAGE
    assert (result["status"], result["stop_reason"], result["output_text"]) == ("completed", "end_turn", "It is 3.")
    assert (result["steps"], result["in_doubt"], command_result.err) == (2, [], "")
    assert result["total_cost"] > 0
    thread = lockstitch("show", "k", "--json").json
    assert (thread["id"], thread["user_id"], thread["agent"]) == (result["thread_id"], "ada", "adder")
    assert thread["total_cost"] == pytest.approx(result["total_cost"])
    assert lockstitch("run", "adder", "Mine?", "--thread", "k", "--user", "bob").code == 2


def test_run_with_a_repeated_message_id_prints_the_first_answer(lockstitch: Call) -> None:
    arguments = ("run", "adder", "How much?", "--thread", "k", "--message-id", "m-1", "--json")
    first, second = (json.loads(lockstitch(*arguments).lines[-1]) for _ in range(2))
    assert (second["run_id"], second["output_text"]) == (first["run_id"], "It is 3.")
    assert lockstitch(*arguments[:-1]).out == "It is 3.\n"
    other = lockstitch("run", "adder", "How much more?", "--thread", "k", "--message-id", "m-1")
    assert (other.code, "another message with the id m-1" in other.err) == (4, True)
    unnamed = [
        json.loads(lockstitch("run", "adder", "Hi", "--message-id", "m-2", "--json").lines[-1]) for _ in range(2)
    ]
    assert unnamed[0]["thread_id"] == unnamed[1]["thread_id"]


def test_run_prints_answer_to_stdout_and_progress_to_stderr(lockstitch: Call) -> None:
    command_result = lockstitch("run", "adder", "How much?")
    assert command_result.out == "It is 3.\n"
    call, result, sums = command_result.err.splitlines()
    assert call == '→ add({"a":1,"b":2})'
    assert result == "← 3"
    assert "2 steps" in sums
    assert "tokens in" in sums
    assert "$" in sums


def test_run_continues_known_thread(lockstitch: Call) -> None:
    first = lockstitch("run", "echo", "one", "--thread", "k", "--json").json
    second = lockstitch("run", "echo", "two", "--thread", first["thread_id"], "--json").json
    assert second["thread_id"] == first["thread_id"]
    assert [turn["user_message"] for turn in lockstitch("history", "k", "--json").json] == ["two", "one"]
    thread_id = "0198c0de-0000-7000-8000-00000000000a"
    assert lockstitch("run", "echo", "x", "--thread", thread_id, "--json").json["thread_id"] == thread_id


def test_run_reads_prompt_from_stdin(call: Call, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def set_stdin(content: bytes) -> None:
        monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(content), isatty=lambda: False))

    set_stdin("Größe\nzwei\n".encode())
    assert call("run", "echo", "-", "--store", url).out == "You said: Größe\nzwei\n"
    for content in (b"", b" \n", b"\xff"):
        set_stdin(content)
        check(call("run", "echo", "-", "--store", url), 2)


def test_run_reports_retries(lockstitch: Call) -> None:
    result = lockstitch("run", "retrying", "Hi")
    assert result.out == "At last.\n"
    assert result.err.count("Next attempt in") == 2


@pytest.mark.req("S0-013")
def test_run_reports_answer_that_was_cut(lockstitch: Call) -> None:
    result = lockstitch("run", "cut-off", "Hi")
    assert (result.code, result.out) == (0, "Once upon a\n")
    assert result.err.endswith("The answer was cut at max_tokens.\n")
    assert lockstitch("run", "cut-off", "Hi", "--json").json["stop_reason"] == "max_tokens"
    assert "max_tokens" not in lockstitch("run", "echo", "Hi").err


def test_run_reports_failure(lockstitch: Call) -> None:
    command_result = lockstitch("run", "failing", "Hi", "--thread", "k", "--json")
    assert command_result.code == 1
    result = json.loads(command_result.out)
    assert (result["status"], result["error"]) == ("failed", "No such\nmodel.")
    assert lockstitch("resume", "k").code == 0, "there is nothing to resume"
    assert lockstitch("retry", "k").out == "Fine.\n"
    assert lockstitch("retry", "k").code == 4, "it completed"
    command_result = lockstitch("run", "failing", "Hi", "--thread", "other")
    assert (command_result.code, command_result.out) == (1, "")
    assert "The run failed: No such model. Run `lockstitch retry other` to try again." in command_result.err


def test_run_reports_what_thread_waits_for(lockstitch: Call) -> None:
    result = lockstitch("run", "payer", "Pay", "--thread", "my key")
    assert result.code == 4
    expected = "`lockstitch approve 'my key' call_1_1_0` or `lockstitch deny 'my key' call_1_1_0`"
    assert f"Approval needed for pay call_1_1_0: {expected}." in result.err
    for command in (["resume", "my key"], ["run", "payer", "More", "--thread", "my key"]):
        result = lockstitch(*command)
        assert result.code == 4
        assert expected in result.err
    result = lockstitch("run", "payer", "More", "--thread", "my key", "--json")
    assert (result.code, json.loads(result.err)["error"]) == (4, "ThreadWaiting")
    result = lockstitch("run", "payer", "Pay", "--json")
    assert result.code == 4
    assert json.loads(result.out)["waiting_for"][0]["kind"] == "approval"
    result = lockstitch("run", "looker", "Look")
    assert (result.code, "`lockstitch submit " in result.err) == (4, True)


def test_run_rejects_missing_apps_and_agents(call: Call, url: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    (tmp_path / "broken.py").write_text("import os\nos.environ['NO SUCH VARIABLE']\n")
    (tmp_path / "unreadable.py").write_text("def (:\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    result = call("run", "nobody", "Hi", "--store", url)
    check(result, 3)
    assert "Agents: adder, charger, cut-off, echo" in result.err
    for wrong in (
        "nonsense",
        "nonsense:app",
        "tests.cli.shop:nothing",
        "tests.cli.shop:",
        ":app",
        "tests.cli.shop:pay",
    ):
        check(call("run", "echo", "Hi", "--app", wrong, "--store", url), 2)
    for wrong in ("broken:app", "unreadable:app"):
        result = call("run", "echo", "Hi", "--app", wrong, "--store", url)
        check(result, 2)
        assert wrong.partition(":")[0] in result.err
    monkeypatch.delenv("LOCKSTITCH_APP")
    for command in (["run", "echo", "Hi"], ["start", "echo", "--goal", "g"], ["chat", "echo"]):
        result = call(*command, "--store", url)
        check(result, 2)
        assert "--app module:name" in result.err
    assert not (tmp_path / "store.db").exists()


def test_run_rejects_missing_models(call: Call, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    result = call("run", "keyless", "Hi", "--thread", "k", "--store", url)
    check(result, 1)
    assert "ANTHROPIC_API_KEY" in result.err
    result = call("run", "nowhere", "Hi", "--thread", "k", "--store", url, "--json")
    assert (result.code, json.loads(result.err)["error"]) == (1, "ProviderError")
    assert call("threads", "--store", url, "--json").json == [], "no thread was created"
    check(call("run", "echo", "", "--store", url), 2)


# start, resume, fork, cancel


def test_start_creates_goals_that_resume_executes(lockstitch: Call) -> None:
    result = lockstitch("start", "adder", "--goal", "Add it up", "--count", "3")
    assert len(set(result.lines)) == 3
    assert [row["status"] for row in lockstitch("threads", "--json").json] == ["pending"] * 3
    thread = json.loads(lockstitch("start", "adder", "--goal", "g", "--key", "k", "--user", "ada", "--json").out)
    assert (thread["key"], thread["status"]) == ("k", "pending")
    assert lockstitch("start", "adder", "--goal", "g", "--key", "k").code == 4
    for wrong in (["--count", "0"], ["--count", "2", "--key", "x"], ["--goal", " "]):
        check(lockstitch("start", "adder", "--goal", "g", *wrong), 2)
    result = lockstitch("resume", "k")
    assert (result.code, result.out) == (0, "It is 3.\n")
    result = lockstitch("resume", "k")
    assert (result.code, result.out) == (0, "")
    assert "Nothing to do" in result.err
    assert "is completed" in result.err
    assert lockstitch("resume", "k", "--json").json["output_text"] == "It is 3."


@pytest.mark.req("S0-042")
def test_resume_reports_nothing_to_do(lockstitch: Call) -> None:
    lockstitch("run", "echo", "Hi", "--thread", "k")
    result = lockstitch("resume", "k")
    assert (result.code, "is idle" in result.err) == (0, True)
    before = lockstitch("threads", "--json").json
    check(lockstitch("resume", "nobody"), 3)
    check(lockstitch("resume", UNKNOWN), 3)
    assert lockstitch("threads", "--json").json == before


def test_cancel_ends_thread_that_no_process_executes(lockstitch: Call) -> None:
    lockstitch("run", "payer", "Pay", "--thread", "k")
    result = lockstitch("cancel", "k")
    assert (result.code, "is idle" in result.out) == (0, True)
    check(lockstitch("cancel", "k"), 2)
    goal = lockstitch("start", "adder", "--goal", "g").out.strip()
    assert lockstitch("cancel", goal, "--json").json == {"id": goal, "status": "cancelled", "cancel_requested": False}
    check(lockstitch("cancel", goal), 4)
    result = lockstitch("resume", goal)
    assert (result.code, f"Run `lockstitch retry {goal}`" in result.err) == (0, True)


def test_fork_continues_separately(lockstitch: Call) -> None:
    lockstitch("run", "adder", "How much?", "--thread", "k")
    fork_id = lockstitch("fork", "k", "--at", "3").out.strip()
    forked = lockstitch("fork", "k", "--key", "other", "--json").json
    assert (forked["key"], forked["forked_from"]["position"]) == (
        "other",
        lockstitch("show", "k", "--json").json["position"],
    )
    assert lockstitch("context", fork_id, "--json").json[-1]["content"][0]["is_error"]
    assert lockstitch("run", "echo", "And?", "--thread", fork_id).out == "You said: And?\n"
    for wrong in ("0", "-1", "999", "x"):
        check(lockstitch("fork", "k", "--at", wrong), 2)
    check(lockstitch("fork", "nobody"), 3)


# Real processes


@contextmanager
def charger(url: str, bank: Path, *more: str, fresh: bool = False) -> Iterator["subprocess.Popen[str]"]:
    """A process in the middle of a call that must happen only once."""
    arguments = ("run", "charger", "Go", "--thread", "k", "--store", url, *more)
    with begin(*arguments, cwd=ROOT, env={"BANK": str(bank)}, fresh=fresh) as process:
        try:
            while not (bank.exists() and bank.read_text()):
                assert process.poll() is None, process.communicate()
                time.sleep(0.01)
            yield process
        finally:
            process.kill()


@pytest.fixture
def charging(url: str, tmp_path: Path) -> Iterator["subprocess.Popen[str]"]:
    with charger(url, tmp_path / "bank") as process:
        yield process


def test_resume_of_held_thread_names_holder(call: Call, url: str, tmp_path: Path) -> None:
    with charger(url, tmp_path / "bank", fresh=True) as process:
        for command in (["run", "charger", "More", "--thread", "k"], ["resume", "k"]):
            result = call(*command, "--store", url)
            check(result, 4)
            assert f"held by process {process.pid} on " in result.err
            assert "Its lease expires in " in result.err


def test_cancel_ends_run_of_another_process(charging: "subprocess.Popen[str]", call: Call, url: str) -> None:
    result = call("cancel", "k", "--store", url)
    assert (result.code, "Cancelled." in result.out) == (0, True)
    _, err = charging.communicate(timeout=60)
    assert charging.returncode == 1
    assert "The run was cancelled." in err


def test_retry_waits_when_call_of_cancelled_run_has_unknown_outcome(
    charging: "subprocess.Popen[str]", call: Call, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BANK", str(tmp_path / "bank"))
    doubts = [{"call_id": "call_1_1_0", "name": "charge"}]
    assert call("cancel", "k", "--store", url, "--json").json["in_doubt"] == doubts
    _, err = charging.communicate(timeout=60)
    assert "charge call_1_1_0 was interrupted and its outcome is unknown." in err
    result = call("retry", "k", "--store", url)
    assert result.code == 4
    assert '`lockstitch settle k call_1_1_0 --done "result"`' in result.err
    waiting = call("resume", "k", "--store", url, "--json")
    assert (waiting.code, json.loads(waiting.out)["in_doubt"]) == (4, doubts)
    assert call("settle", "k", "call_1_1_0", "--unknown", "--no-resume", "--store", url).code == 0
    check(call("settle", "k", "call_1_1_0", "--redo", "--store", url), 4)
    assert len((tmp_path / "bank").read_text().splitlines()) == 1


def test_settle_continues_killed_run(
    charging: "subprocess.Popen[str]", call: Call, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BANK", str(tmp_path / "bank"))
    charging.kill()
    charging.communicate()
    began = time.monotonic()
    result = call("resume", "k", "--store", url)
    assert time.monotonic() - began < 25, "not after its lease"
    assert result.code == 4
    assert '`lockstitch settle k call_1_1_0 --done "result"`' in result.err
    waiting = call("resume", "k", "--store", url, "--json")
    assert json.loads(waiting.out)["in_doubt"] == [{"call_id": "call_1_1_0", "name": "charge"}]
    for wrong in ([], ["--done", "x", "--redo"]):
        check(call("settle", "k", "call_1_1_0", *wrong, "--store", url), 2)
    check(call("settle", "k", "nonsense", "--redo", "--store", url), 3)
    result = call("settle", "k", "call_1_1_0", "--done", "charged 7", "--store", url)
    assert (result.code, result.out) == (0, "Charged.\n")
    assert len((tmp_path / "bank").read_text().splitlines()) == 1
    check(call("settle", "k", "call_1_1_0", "--redo", "--store", url), 4)


def test_settle_with_redo_repeats_interrupted_call(
    charging: "subprocess.Popen[str]", call: Call, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BANK", str(tmp_path / "bank"))
    charging.kill()
    charging.communicate()
    assert call("resume", "k", "--store", url).code == 4
    result = call("settle", "k", "call_1_1_0", "--redo", "--store", url, "--json").json
    assert result["output_text"] == "Charged."
    first, second = (tmp_path / "bank").read_text().splitlines()
    assert first == second, "under the same key"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_interrupt_releases_thread(url: str, call: Call, number: signal.Signals) -> None:
    with begin("run", "teller", "Tell", "--thread", "k", "--store", url, cwd=ROOT) as process:
        assert process.stdout is not None
        assert process.stdout.read(20) == "Once upon a time the"
        process.send_signal(number)
        _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert err == "lockstitch: Interrupted. The thread was released. Run `lockstitch resume k` to continue.\n"
    thread = call("show", "k", "--store", url, "--json").json
    assert (thread["status"], thread["worker_id"]) == ("pending", None)


def test_interrupt_prints_json_error(url: str, tmp_path: Path) -> None:
    with charger(url, tmp_path / "bank", "--json") as process:
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (130, "")
    assert json.loads(err)["error"] == "Interrupted"


def test_run_continues_after_reader_is_gone(url: str, call: Call) -> None:
    arguments = ("run", "teller", "Tell", "--thread", "k", "--store", url)
    with begin(*arguments, cwd=ROOT, env={"STORY_PAUSE": "0.004"}) as process:
        assert process.stdout is not None
        process.stdout.read(5)
        process.stdout.close()
        assert process.wait(120) == 0
    assert call("resume", "k", "--store", url, "--json").json["status"] == "completed"


def test_real_process_prints_same_output(url: str) -> None:
    result = run("run", "adder", "Hi", "--store", url, "--json", cwd=ROOT)
    assert result.json["status"] == "completed"
    check(run("resume", "nobody", "--store", url, cwd=ROOT), 3)


def test_regenerate_answers_turn_again_under_same_key(lockstitch: Call) -> None:
    lockstitch("run", "echo", "One", "--thread", "k")
    lockstitch("run", "echo", "Two", "--thread", "k")
    source = lockstitch("show", "k", "--json").json["id"]
    assert lockstitch("regenerate", "k").out == "You said: Two\n"
    assert f"forked from  {source} at position" in lockstitch("show", "k").out
    assert lockstitch("regenerate", "k", "--message", "Zwei").out == "You said: Zwei\n"
    history = lockstitch("history", "k", "--json").json
    assert [(turn["user_message"], turn["inherited_from"]) for turn in history] == [("Zwei", None), ("One", source)]
    assert f"inherited from thread {source}" in lockstitch("history", "k").out
    assert lockstitch("regenerate", "k", "--turn", "1", "--message", "Eins", "--json").json["output_text"] == (
        "You said: Eins"
    )
    fork = lockstitch("fork", "k", "--before-turn", "1", "--take-key", "--json").json
    assert fork["key"] == "k"
    check(lockstitch("regenerate", "k", "--turn", "9"), 2)
    check(lockstitch("regenerate", "unknown"), 3)
