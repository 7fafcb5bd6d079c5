"""The count of proven requirements: the lists, the evidence, the report and the pytest plugin."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.docs.warm import warm_commands
from tools.requirements import Evidence, Proof, Requirement, main, read_list, read_lists, report

ROOT = Path(__file__).resolve().parents[2]

LIST = """# Requirements: a small one

- S0-001 [E] Something is kept. {1}
  → A decision about it.
- S0-002 [I] Something follows. {2 (lens 4, files 1)}
- S0-003 [O] Something is wanted later. {5}
- S0-004 [E] Something is fast. {1}
  → [P] proved by `make bench`, not by a timed test.
- S0-005 [E] Something holds {on "every" backend}. {1}
- S0-006 [E] Something else. {6}

## Where the document contradicts itself

- X0-01 The document says this and that → this.
"""


def proof(*backends: str) -> Proof:
    return {"tests": ["tests/test_it.py::test_it"], "backends": list(backends)}


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Return a small repository with one list, one suite folder and no tests."""
    (tmp_path / "docs" / "requirements").mkdir(parents=True)
    (tmp_path / "docs" / "requirements" / "0-small.md").write_text(LIST, encoding="utf-8")
    (tmp_path / "docs" / "requirements" / "decisions.md").write_text("- S9-999 is not a list's line\n")
    (tmp_path / "suite").mkdir()
    (tmp_path / "pytest.ini").write_text(
        "[pytest]\ntestpaths = suite\naddopts = --strict-markers\nmarkers =\n  req(*ids): proves\n"
    )
    return tmp_path


def run_pytest(checkout: Path, suite: str, *args: str) -> subprocess.CompletedProcess[str]:
    """Run the plugin in a separate process, on a suite written to one file."""
    (checkout / "suite" / "test_it.py").write_text("import os, pytest\n" + suite)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    # Without other plugins these runs take half the time.
    environment |= {"PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    return subprocess.run(
        [
            *(warm_commands() / "python", "-m", "pytest"),
            *("-p", "tests.plugin_requirements", "-p", "tests.plugin_processes", *args),
        ],
        cwd=checkout,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def written(checkout: Path, name: str = "requirements.json") -> Any:
    return json.loads((checkout / "build" / name).read_text())


class TestLists:
    def test_reads_413_counted_lines_of_five_lists(self) -> None:
        lists = read_lists(ROOT / "docs" / "requirements")
        counts = [sum(line.counts for line in requirement_list.lines) for requirement_list in lists]
        assert counts == [143, 89, 58, 65, 58]
        assert sum(counts) == 413
        assert sum(line.kind == "X" for requirement_list in lists for line in requirement_list.lines) == 84
        by_bench = {line.id for requirement_list in lists for line in requirement_list.lines if line.by_bench}
        assert {"S0-154", "S3-068"} <= by_bench

    def test_reads_kind_owner_and_decision_of_lines(self, checkout: Path) -> None:
        assert read_list(checkout / "docs" / "requirements" / "0-small.md").lines == [
            Requirement("S0-001", "E", "1"),
            Requirement("S0-002", "I", "2 (lens 4, files 1)"),
            Requirement("S0-003", "O", "5"),
            Requirement("S0-004", "E", "1", by_bench=True),
            Requirement("S0-005", "E", "1"),
            Requirement("S0-006", "E", "6"),
            Requirement("X0-01", "X", ""),
        ]

    @pytest.mark.parametrize(
        "text", ["- S0-001 [Q] Odd kind. {1}", "- S0-001 [E] No owner.", "- S0-1 [E] Short. {1}", "- X0-1 a → b"]
    )
    def test_raises_when_line_cannot_be_parsed(self, tmp_path: Path, text: str) -> None:
        path = tmp_path / "0-odd.md"
        path.write_text(f"# Odd\n\n{text}\n", encoding="utf-8")
        with pytest.raises(ValueError, match=r"0-odd\.md:3"):
            read_list(path)

    def test_raises_when_id_occurs_twice(self, tmp_path: Path) -> None:
        for name in ("0-one.md", "1-two.md"):
            (tmp_path / name).write_text("- S0-001 [E] The same. {1}\n", encoding="utf-8")
        with pytest.raises(ValueError, match="S0-001 occurs twice"):
            read_lists(tmp_path)


class TestEvidence:
    @pytest.mark.parametrize(
        ("backends", "lack"),
        [
            (["-"], None),
            (["files", "postgres", "sqlite"], None),
            (["-", "files", "postgres", "sqlite"], None),
            (["files", "sqlite"], "not postgres"),
            (["-", "sqlite"], "not files, not postgres"),
        ],
    )
    def test_requires_all_backends_when_tested_per_backend(self, backends: list[str], lack: str | None) -> None:
        evidence = Evidence(proofs={"S0-001": proof(*backends)})
        assert evidence.lack(Requirement("S0-001", "E", "1")) == lack

    def test_requires_only_sql_backends_for_plugins(self) -> None:
        line = Requirement("S0-001", "E", "4+6")
        assert Evidence(proofs={"S0-001": proof("postgres", "sqlite")}).lack(line) is None
        assert Evidence(proofs={"S0-001": proof("sqlite")}).lack(line) == "not postgres"

    def test_requires_only_sql_backends_for_decisions(self) -> None:
        line = Requirement("X0-01", "X", "")
        assert Evidence(proofs={"X0-01": proof("postgres", "sqlite")}).lack(line) is None
        assert Evidence(proofs={"X0-01": proof("sqlite")}).lack(line) == "not postgres"

    def test_reports_no_evidence_without_test(self) -> None:
        assert Evidence().lack(Requirement("S0-001", "E", "1")) == ""

    @pytest.mark.parametrize(
        ("rows", "lack"),
        [
            ([], "bench"),
            ([{"req": "S0-004", "met": True}], None),
            ([{"req": ["S0-001", "S0-004"], "met": True}, {"name": "another", "met": False}], None),
            ([{"req": "S0-004", "met": True}, {"req": "S0-004", "met": False}], "bench"),
            ([{"req": "S0-004", "met": None}], "bench"),
        ],
    )
    def test_requires_benchmarks_for_timed_line(self, rows: list[dict[str, Any]], lack: str | None) -> None:
        evidence = Evidence(proofs={"S0-004": proof("-")}, bench=rows)
        assert evidence.lack(Requirement("S0-004", "E", "1", by_bench=True)) == lack


class TestReport:
    def test_counts_lines_and_lists_unproven_by_owner(self, checkout: Path) -> None:
        lists = read_lists(checkout / "docs" / "requirements")
        evidence = Evidence(
            proofs={"S0-001": proof("-"), "S0-003": proof("-"), "S0-005": proof("files", "sqlite")},
            bench=[{"req": "S0-004", "met": True}],
        )
        text = report(lists, evidence)
        assert [line.split() for line in text.splitlines()[1:3]] == [
            ["0-small", "2/5", "0/1", "1/1"],
            ["all", "2/5", "0/1", "1/1"],
        ]
        assert "  {1} 1:\n    S0-005 (not postgres)" in text
        assert "  {2 (lens 4, files 1)} 1:\n    S0-002" in text
        assert "decided [X], not proven:\n    X0-01\n" in text
        assert "extra [O]," not in text
        assert text.splitlines()[-1] == "proven 2/5"

    def test_lists_optional_lines_separately(self, checkout: Path) -> None:
        text = report(read_lists(checkout / "docs" / "requirements"), Evidence())
        assert "extra [O], not proven and not counted:\n  {5} 1:\n    S0-003\n" in text
        assert text.splitlines()[-1] == "proven 0/5"

    def test_reports_missing_results(self, checkout: Path, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(checkout) == 0
        out = capsys.readouterr().out
        assert "build/requirements.json not found." in out
        assert out.splitlines()[-1] == "proven 0/5"


MIXED = """
@pytest.fixture(params=["files", "sqlite", "postgres"])
def backend(request):
    return request.param

@pytest.mark.req("S0-001", "S0-005")
def test_on_all(backend): pass

@pytest.mark.req("S0-001")
def test_on_none(): pass

@pytest.mark.req("S0-002")
def test_fails_on_one(backend): assert backend != "sqlite"

@pytest.mark.req("S0-002")
def test_another_that_passes(): pass

@pytest.mark.req("S0-003")
def test_skips_on_one(backend):
    if backend == "postgres": pytest.skip("no server")

@pytest.mark.req("S0-006")
@pytest.mark.xfail(reason="not yet")
def test_expected_to_fail(): assert False
"""


class TestPlugin:
    @pytest.mark.parametrize("processes", ["0", "2"])
    def test_proves_only_lines_that_passed_everywhere(self, checkout: Path, processes: str) -> None:
        result = run_pytest(checkout, MIXED, "--processes", processes)
        assert result.returncode == pytest.ExitCode.TESTS_FAILED, result.stdout + result.stderr
        assert written(checkout) == {
            "S0-001": {
                "tests": ["suite/test_it.py::test_on_all", "suite/test_it.py::test_on_none"],
                "backends": ["-", "files", "postgres", "sqlite"],
            },
            "S0-005": {
                "tests": ["suite/test_it.py::test_on_all"],
                "backends": ["files", "postgres", "sqlite"],
            },
        }

    def test_reads_ids_of_class_and_module(self, checkout: Path) -> None:
        suite = """
pytestmark = pytest.mark.req("S0-001")

@pytest.mark.req("S0-002")
class TestIt:
    @pytest.mark.req("S0-003", "S0-001")
    def test_it(self): pass
"""
        assert run_pytest(checkout, suite).returncode == 0
        assert list(written(checkout)) == ["S0-001", "S0-002", "S0-003"]

    def test_drops_proof_when_teardown_fails(self, checkout: Path) -> None:
        suite = """
@pytest.fixture
def leaking():
    yield
    raise RuntimeError("left something behind")

@pytest.mark.req("S0-001")
def test_it(leaking): pass
"""
        assert run_pytest(checkout, suite).returncode == pytest.ExitCode.TESTS_FAILED
        assert written(checkout) == {}

    def test_drops_proof_when_process_dies(self, checkout: Path) -> None:
        suite = """
@pytest.mark.req("S0-001")
@pytest.mark.parametrize("backend", ["files", "sqlite", "postgres"])
def test_it(backend):
    if backend == "sqlite": os._exit(1)

@pytest.mark.req("S0-002")
def test_untouched(): pass
"""
        result = run_pytest(checkout, suite, "--processes", "2")
        assert "crashed" in result.stdout, result.stdout + result.stderr
        assert list(written(checkout)) == ["S0-002"]

    @pytest.mark.parametrize("processes", ["0", "2"])
    def test_fails_collection_when_mark_is_invalid(self, checkout: Path, processes: str) -> None:
        suite = """
@pytest.mark.req("S0-001", "S0-099")
def test_unknown(): pass

@pytest.mark.req("H12")
def test_not_a_line(): pass

@pytest.mark.req("S0-001", "S0-002", "S0-003", "S0-004", "S0-005", "S0-006")
def test_too_many(): pass

@pytest.mark.req()
def test_none(): pass

@pytest.mark.req("S0-001")
def test_good(): pass
"""
        result = run_pytest(checkout, suite, "--processes", processes)
        assert result.returncode in (pytest.ExitCode.TESTS_FAILED, pytest.ExitCode.INTERRUPTED)
        assert "ERROR suite/test_it.py" in result.stdout
        assert "test_it.py::test_unknown: not in docs/requirements: S0-099\n" in result.stdout
        assert "test_it.py::test_not_a_line: not in docs/requirements: H12\n" in result.stdout
        assert "test_it.py::test_too_many: 6 requirements, at most 5 are allowed" in result.stdout
        assert "test_it.py::test_none: req takes ids and nothing else" in result.stdout
        assert "test_good" not in result.stdout
        assert not (checkout / "build" / "requirements.json").exists()

    def test_keeps_full_result_when_only_part_runs(self, checkout: Path) -> None:
        suite = """
@pytest.mark.req("S0-001")
def test_one(): pass

def test_fails(): assert False

@pytest.mark.req("S0-002")
def test_two(): pass
"""
        run_pytest(checkout, suite)
        complete = written(checkout)
        assert list(complete) == ["S0-001", "S0-002"]
        partial = checkout / "build" / "requirements-partial.json"
        for selection in ("-k one", "suite/test_it.py", "-m req", "--ignore suite/other", "-x"):
            partial.unlink(missing_ok=True)
            run_pytest(checkout, suite, *selection.split())
            assert written(checkout) == complete, selection
            assert "S0-001" in json.loads(partial.read_text()), selection

    def test_writes_nothing_when_only_collecting(self, checkout: Path) -> None:
        result = run_pytest(checkout, '@pytest.mark.req("S0-001")\ndef test_it(): pass\n', "--collect-only")
        assert result.returncode == 0
        assert not (checkout / "build").exists()

    def test_replaces_result_of_previous_full_run(self, checkout: Path) -> None:
        run_pytest(checkout, '@pytest.mark.req("S0-001")\ndef test_it(): pass\n')
        run_pytest(checkout, '@pytest.mark.req("S0-002")\ndef test_it(): pass\n')
        assert list(written(checkout)) == ["S0-002"]
