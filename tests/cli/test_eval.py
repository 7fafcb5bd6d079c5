"""`eval`: output, comparison and exit codes."""

import json
import os
import signal
import time
from pathlib import Path

import pytest

from tests.cli.calling import Call, begin
from tests.cli.test_nonsense import check

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
    told = ask("quiz", "--grader", "contains", "--name", "facts")
    assert told.code == 0, told
    assert told.lines[0].split() == ["CASE", "PASSED", "SCORE", "TIME", "COST", "REASON"]
    assert [line.split()[:3] for line in told.lines[1:4]] == [
        ["sum", "yes", "1.000"],
        ["capital", "yes", "1.000"],
        ["colour", "no", "0.000"],
    ]
    assert "lacks “Blue”" in told.lines[3]
    assert "facts #1: quiz version 1, graded by contains" in told.out
    assert "2 of 3 cases passed, score 0.667" in told.out
    assert "Before" not in told.out
    monkeypatch.setenv("SKY", "blue")
    again = ask("quiz", "--grader", "contains", "--name", "facts", "--at-least", "0.9")
    assert again.code == 0, again
    assert "colour   yes, better" in again.out
    assert "Before (#1, quiz version 1): 2 of 3, 0.667; 0.333 better." in again.out
    assert "Now pass: colour" in again.out
    monkeypatch.delenv("SKY")
    worse = ask("quiz", "--grader", "contains", "--name", "facts", "--at-least", "0.9")
    assert worse.code == 1
    assert "No longer pass: colour" in worse.out
    assert "The score 0.667 is below 0.9." in worse.out


def test_eval_prints_json_in_last_line(ask: Call, url: str) -> None:
    told = ask("quiz", "--grader", "contains", "--grader", "judge", "--judge", "referee", "--at-least", "0.9", "--json")
    assert told.code == 1
    made = json.loads(told.out.splitlines()[-1])
    assert (made["name"], made["number"], made["agent"], made["version"]) == ("quiz-questions", 1, "quiz", 1)
    assert (made["cases"], made["passed"], made["met"], made["at_least"]) == (3, 2, False, 0.9)
    assert made["score"] == pytest.approx((0.95 + 0.95 + 0.45) / 3)
    assert made["grading_cost"] > 0
    assert made["previous"] is None
    one = made["results"][0]
    assert (one["case"], one["passed"], [grade["grader"] for grade in one["grades"]]) == (
        "sum",
        True,
        ["contains", "judge"],
    )
    assert one["run_id"]
    assert one["latency_ms"] >= 0
    assert told.err == ""
    own = ask("quiz", "--grader", "judge", "--name", "own", "--json")
    assert own.code == 0, own
    assert "no verdict" in json.loads(own.out)["results"][0]["reason"], "the quiz's own model judges badly"


def test_eval_exit_code_reports_incomplete_runs(ask: Call) -> None:
    told = ask("broken", "--grader", "exact")
    assert told.code == 1
    assert "The runs of 3 cases did not complete." in told.out
    assert "No key." in told.out
    assert ask("moody", "--grader", "exact").code == 6


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
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
    ],
)
def test_eval_rejects_invalid_arguments(ask: Call, arguments: list[str], code: int, said: str) -> None:
    told = ask(*arguments)
    check(told, code)
    assert said in told.err


def test_unusable_judge_causes_no_run(ask: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    told = ask("quiz", "--grader", "judge", "--judge", "anthropic:claude-sonnet-5")
    check(told, 1)
    assert "ANTHROPIC_API_KEY" in told.err
    assert not (tmp_path / "asked").exists()
    assert not (tmp_path / "store.db").exists()


def test_killed_eval_continues(ask: Call, url: str, tmp_path: Path) -> None:
    """A real process is killed during the second case. Finished cases are not run again."""
    asked = tmp_path / "asked"
    arguments = ("eval", QUESTIONS, "--agent", "slow", "--grader", "contains", "--concurrency", "1")
    env = {"LOCKSTITCH_STORE": url, "LOCKSTITCH_APP": "tests.cli.quiz:app", "ASKED": str(asked), "STUCK": "capital"}
    with begin(*arguments, cwd=ROOT, env=env) as process:
        until = time.monotonic() + 60
        while process.poll() is None and time.monotonic() < until:
            if asked.exists() and "capital" in asked.read_text():
                break
            time.sleep(0.02)
        os.kill(process.pid, signal.SIGKILL)
        process.communicate()
    assert len(asked.read_text().splitlines()) == 2
    told = ask("slow", "--grader", "contains", "--concurrency", "1", "--json")
    assert (told.json["passed"], told.json["went_on"], told.json["number"]) == (2, 1, 1)
    lines = asked.read_text().splitlines()
    assert [sum(word in line for line in lines) for word in ("2 + 2", "capital", "colour")] == [1, 2, 1]
