"""`eval`: output, comparison and exit codes."""

import json
import os
import re
import signal
import time
from pathlib import Path

import pytest

from tests.cli import quiz
from tests.cli.calling import Call, begin
from tests.cli.remote import ServerThread
from tests.cli.test_invalid_arguments import check

QUESTIONS = str(Path(__file__).with_name("questions.jsonl"))
ROOT = Path(__file__).parents[2]


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'store.db'}"


@pytest.fixture
def ask(call: Call, url: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Call:
    monkeypatch.setenv("LOCKSTITCH_STORE", url)
    monkeypatch.setenv("LOCKSTITCH_APP", "tests.cli.quiz:app")
    monkeypatch.setenv("ASKED", str(tmp_path / "asked"))
    return lambda *more: call("eval", QUESTIONS, "--agent", *more)


def test_eval_prints_table_and_comparison(ask: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    result = ask("quiz", "--grader", "contains", "--name", "facts")
    assert result.code == 0, result
    assert result.lines[0].split() == ["CASE", "PASSED", "SCORE", "TIME", "COST", "REASON"]
    assert [line.split()[:3] for line in result.lines[1:4]] == [
        ["sum", "yes", "1.000"],
        ["capital", "yes", "1.000"],
        ["colour", "no", "0.000"],
    ]
    assert "lacks “Blue”" in result.lines[3]
    assert "facts #1: quiz version 1, graded by contains" in result.out
    assert "2 of 3 cases passed, score 0.667" in result.out
    assert "Before" not in result.out
    monkeypatch.setenv("SKY", "blue")
    second_result = ask("quiz", "--grader", "contains", "--name", "facts", "--at-least", "0.9")
    assert second_result.code == 0, second_result
    assert "colour   yes, better" in second_result.out
    assert "Before (#1, quiz version 1): 2 of 3, 0.667; 0.333 better." in second_result.out
    assert "Now pass: colour" in second_result.out
    monkeypatch.delenv("SKY")
    worse = ask("quiz", "--grader", "contains", "--name", "facts", "--at-least", "0.9")
    assert worse.code == 1
    assert "No longer pass: colour" in worse.out
    assert "The score 0.667 is below 0.9." in worse.out


def test_eval_prints_json_in_last_line(ask: Call, url: str) -> None:
    result = ask(
        "quiz", "--grader", "contains", "--grader", "judge", "--judge", "referee", "--at-least", "0.9", "--json"
    )
    assert result.code == 1
    evaluation = json.loads(result.out.splitlines()[-1])
    assert (evaluation["name"], evaluation["number"], evaluation["agent"], evaluation["version"]) == (
        "quiz-questions",
        1,
        "quiz",
        1,
    )
    assert (evaluation["cases"], evaluation["passed"], evaluation["met"], evaluation["at_least"]) == (3, 2, False, 0.9)
    assert evaluation["score"] == pytest.approx((0.95 + 0.95 + 0.45) / 3)
    assert evaluation["grading_cost"] > 0
    assert evaluation["previous"] is None
    case = evaluation["results"][0]
    assert (case["case"], case["passed"], [grade["grader"] for grade in case["grades"]]) == (
        "sum",
        True,
        ["contains", "judge"],
    )
    assert case["run_id"]
    assert case["latency_ms"] >= 0
    assert result.err == ""
    third_result = ask("quiz", "--grader", "judge", "--name", "own", "--json")
    assert third_result.code == 0, third_result
    assert "no verdict" in json.loads(third_result.out)["results"][0]["reason"], "the quiz's own model judges badly"


def test_eval_exit_code_reports_incomplete_runs(ask: Call) -> None:
    result = ask("broken", "--grader", "exact")
    assert result.code == 1
    assert "The runs of 3 cases did not complete." in result.out
    assert "No key." in result.out
    assert ask("moody", "--grader", "exact").code == 6


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["nobody", "--grader", "exact"], 3, "Agent nobody not found"),
        (["quiz", "--grader", "best"], 2, "Unknown grader 'best'"),
        (["quiz", "--grader", "json_schema"], 2, "line 1: `schema` is missing"),
        (["quiz", "--grader", "json_schema", "--schema", "/none.json"], 3, "not found"),
        (["quiz", "--grader", "json_schema", "--schema", QUESTIONS], 2, "is not JSON"),
        (["quiz", "--grader", "exact", "--schema", QUESTIONS], 2, "--schema is for --grader json_schema"),
        (["quiz", "--grader", "exact", "--judge", "referee"], 2, "--judge is for --grader judge"),
        (["quiz", "--grader", "judge", "--judge", "nonsense"], 2, "--judge 'nonsense' is not a model"),
        (["quiz", "--grader", "judge", "--judge", "nobody:knows"], 1, "is not a model"),
        (["quiz", "--grader", "judge", "--judge", "referee", "--criteria", "x"], 2, "by its instructions"),
        (["quiz", "--grader", "judge", "--pass-at", "3"], 2, "at most 1"),
        (["quiz", "--grader", "exact", "--at-least", "2"], 2, "at-least"),
        (["quiz", "--grader", "exact", "--version", "9"], 3, "Version 9 of agent"),
        (["quiz", "--grader", "exact", "--name", ""], 2, "1 to 100"),
        (["quiz"], 2, "--grader"),
        (["quiz", "--grader", "exact", "--replay"], 2, "case sum has no recorded run"),
        (["quiz", "--grader", "exact", "--where", "tag=x"], 2, "either a DATASET, or recorded runs"),
        (["quiz", "--grader", "exact", "--live", "all"], 2, "--live 'all' is unknown"),
        (["quiz", "--grader", "exact", "--live", "safe"], 2, "Only replays run safe tools"),
        (["quiz", "--grader", "exact", "--model", "best"], 2, "'best' is not a model"),
    ],
)
def test_eval_rejects_invalid_arguments(ask: Call, arguments: list[str], code: int, message: str) -> None:
    result = ask(*arguments)
    check(result, code)
    assert message in result.err


def test_unusable_judge_causes_no_run(ask: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    result = ask("quiz", "--grader", "judge", "--judge", "anthropic:claude-sonnet-5")
    check(result, 1)
    assert "ANTHROPIC_API_KEY" in result.err
    assert not (tmp_path / "asked").exists()
    assert not (tmp_path / "store.db").exists()


def test_eval_replays_recorded_runs_without_app(ask: Call, call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    assert call("run", "quiz", "What is 2 + 2?", "--thread", "sum").code == 0
    replay = ("eval", "--replay", "--thread", "sum", "--agent", "quiz", "--grader")
    result = call(*replay, "exact")
    assert [line.split()[:3] for line in result.lines[1:2]] == [["sum#1", "yes", "1.000"]], result
    monkeypatch.delenv("LOCKSTITCH_APP")
    check(call(*replay, "judge"), 2)
    # The stored model has no code here.
    check(call(*replay, "exact", "--name", "stored"), 2)


def test_eval_on_server_reports_like_a_local_one(
    ask: Call, call: Call, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = ("eval", "facts", "--agent", "quiz", "--grader", "contains", "--trials", "2")
    assert call("dataset", "create", "facts", "--file", QUESTIONS).code == 0
    assert call("run", "quiz", "What is 2 + 2?", "--thread", "sum").code == 0

    def report(text: str) -> str:
        # Latencies differ, and so do the widths of their columns.
        return re.sub(r" +", " ", re.sub(r"[\d.]+ m?s\b", "T", text)).replace("remote", "local")

    local = [call(*run, "--name", "local"), call(*run, "--name", "local", "--at-least", "0.9")]
    with ServerThread(url, quiz.app) as server:
        monkeypatch.setenv("LOCKSTITCH_STORE", server.url)
        monkeypatch.delenv("LOCKSTITCH_APP")
        remote = [call(*run, "--name", "remote"), call(*run, "--name", "remote", "--at-least", "0.9")]
        assert [report(result.out) for result in remote] == [report(result.out) for result in local]
        assert [(result.code, result.err) for result in remote] == [(0, ""), (1, "")]
        assert "Before (#1, quiz version 1): 4 of 6, 0.667; unchanged." in remote[1].out
        moody = call("eval", "facts", "--agent", "moody", "--grader", "exact", "--json")
        values = json.loads(moody.out)
        assert (moody.code, values["incomplete"], len(values["results"])) == (6, 2, 3)
        replay = call("eval", "--replay", "--thread", "sum", "--agent", "quiz", "--grader", "exact")
        assert replay.lines[1].split()[:3] == ["sum#1", "yes", "1.000"]
        for arguments, message in (
            ((QUESTIONS, "--grader", "exact"), "is a file of this computer"),
            (("facts", "--grader", "tests.cli.quiz:is_short"), "is a function of this computer"),
            (("facts", "--grader", "json_schema", "--schema", QUESTIONS), "--schema is a file of this computer"),
            (("facts", "--grader", "exact", "--judge", "referee"), "--judge is for --grader judge"),
            (("facts", "--grader", "judge", "--judge", "nonsense"), "is not a model"),
        ):
            refused = call("eval", *arguments, "--agent", "quiz")
            check(refused, 2)
            assert message in refused.err
            assert refused.err.count("\n") == 1
        check(call(*run[:3], "absent", *run[4:]), 3)


def test_killed_eval_continues(ask: Call, url: str, tmp_path: Path) -> None:
    """A real process is killed during the second case. Finished cases are not run again."""
    asked_file = tmp_path / "asked"
    arguments = ("eval", QUESTIONS, "--agent", "slow", "--grader", "contains", "--concurrency", "1")
    env = {
        "LOCKSTITCH_STORE": url,
        "LOCKSTITCH_APP": "tests.cli.quiz:app",
        "ASKED": str(asked_file),
        "STUCK": "capital",
    }
    with begin(*arguments, cwd=ROOT, env=env) as process:
        until = time.monotonic() + 60
        while process.poll() is None and time.monotonic() < until:
            if asked_file.exists() and "capital" in asked_file.read_text():
                break
            time.sleep(0.02)
        os.kill(process.pid, signal.SIGKILL)
        process.communicate()
    assert len(asked_file.read_text().splitlines()) == 2
    result = ask("slow", "--grader", "contains", "--concurrency", "1", "--json")
    assert (result.json["passed"], result.json["went_on"], result.json["number"]) == (2, 1, 1)
    lines = asked_file.read_text().splitlines()
    assert [sum(word in line for line in lines) for word in ("2 + 2", "capital", "colour")] == [1, 2, 1]


def test_datasets_and_evals_have_same_output_on_database_and_server(
    call: Call, url: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("ASKED", str(tmp_path / "asked"))
    monkeypatch.setenv("LOCKSTITCH_APP", "tests.cli.quiz:app")
    made = call("dataset", "create", "facts", "--file", QUESTIONS, "--description", "Facts", "--store", url)
    assert made.out == "Created dataset facts with 3 cases.\n", made
    run = ("eval", "facts", "--agent", "quiz", "--grader", "contains", "--name", "f", "--store", url)
    first = call(*run, "--trials", "2")
    assert "4 of 6 trials passed, score 0.667" in first.out, first
    with ServerThread(url, quiz.app, work=False) as server:

        def same(*arguments: str) -> str:
            local = call(*arguments, "--store", url)
            remote = call(*arguments, "--store", server.url)
            assert (local.code, local.out, local.err) == (remote.code, remote.out, remote.err)
            assert remote.out or remote.code == 3
            return remote.out

        def on_server(*arguments: str) -> str:
            result = call(*arguments, "--store", server.url)
            assert result.code == 0, result
            return result.out

        assert on_server("dataset", "put", "facts", "colour", "--expected", "grey") == (
            "facts version 2: 0 added, 1 changed, 0 removed.\n"
        )
        assert call(*run, "--grader", "tests.cli.quiz:is_short", "--trials", "2").code == 0
        listed = same("dataset", "list").splitlines()
        assert listed[1].split()[:3] == ["facts", "3", "2"]
        assert "facts version 1: 3 cases." in same("dataset", "show", "facts@1")
        assert json.loads(same("dataset", "show", "facts", "--case", "colour", "--json"))["expected"] == "grey"
        assert [line.split()[0] for line in same("dataset", "versions", "facts").splitlines()[1:]] == ["2", "1"]
        exported = tmp_path / "facts.csv"
        exported.write_text(same("dataset", "export", "facts", "--format", "csv"))
        assert on_server("dataset", "upload", "facts", str(exported)) == "facts is unchanged, version 2.\n"
        for arguments in (("dataset", "show", "x"), ("dataset", "remove", "facts", "x"), ("evals", "show", "f#9")):
            assert same(*arguments, "--json") == ""
        thread = json.loads(call("threads", "--limit", "1", "--json", "--store", url).out)[0]["id"]
        assert "Added 1 case to runs, version 1." in on_server("dataset", "add", "runs", "--thread", thread)
        assert "1 run was a case already." in on_server("dataset", "add", "runs", "--thread", thread)
        assert json.loads(on_server("dataset", "edit", "runs", "--name", "r", "--rubric", "Short.", "--json"))["cases"]
        assert on_server("dataset", "delete", "r", "--yes") == "Deleted dataset r.\n"

        rows = same("evals", "list", "--dataset", "facts").splitlines()
        assert [row.split()[0] for row in rows[1:]] == ["f#2", "f#1"]
        shown = same("evals", "show", "f#1", "--failed")
        assert "colour" in shown
        assert "sum" not in shown
        assert "score 0.667 (0.000 to 1.000), 67% of 6 trials passed (" in shown
        compared = same("evals", "compare", "f#1", "f")
        assert compared.splitlines()[1].split() == ["colour", "0.000", "1.000", "+1.000"]
        assert "f#2 against f#1: score +0.333" in compared
        assert "1 better, 0 worse" in compared
