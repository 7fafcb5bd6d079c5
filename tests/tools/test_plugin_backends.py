"""The option `--spread-backends` of the suite."""

import os
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from tests.docs.warm import warm_commands

ROOT = Path(__file__).resolve().parents[2]

BACKENDS = ("files", "sqlite", "postgres")

TESTS = """
import pytest

@pytest.fixture(params=["files", "sqlite", "postgres"])
def backend(request):
    return request.param

@pytest.mark.parametrize("number", range(12))
def test_numbers(backend, number): pass

@pytest.mark.req("S0-001")
def test_requirement(backend): pass

def test_plain(): pass

def test_store(backend): pass
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    (tmp_path / "docs" / "requirements").mkdir(parents=True)
    (tmp_path / "docs" / "requirements" / "0-small.md").write_text("- S0-001 [E] Something is stored. {1}\n")
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = --strict-markers\nmarkers =\n  req(*ids): proves\n")
    for folder in ("cli", "store"):
        (tmp_path / "suite" / folder).mkdir(parents=True)
        (tmp_path / "suite" / folder / f"test_{folder}.py").write_text(TESTS)
    return tmp_path


def collected_ids(checkout: Path, *options: str) -> list[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    plugins = ["-p", "tests.plugin_requirements", "-p", "tests.plugin_backends"]
    result = subprocess.run(
        [warm_commands() / "python", "-m", "pytest", "-q", "--collect-only", *plugins, *options],
        cwd=checkout,
        env=environment | {"PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    return [line for line in result.stdout.splitlines() if "::" in line]


def collected(checkout: Path, *options: str) -> Counter[tuple[str, str]]:
    """Return the number of collected tests by file and function."""
    ids = [id.partition("::") for id in collected_ids(checkout, *options)]
    return Counter((Path(path).stem, name.partition("[")[0]) for path, _, name in ids)


def test_all_backends_without_the_option(checkout: Path) -> None:
    counts = collected(checkout)
    assert counts["test_cli", "test_numbers"] == counts["test_store", "test_numbers"] == 36


def test_callers_of_the_store_run_on_one_backend_each(checkout: Path) -> None:
    counts = collected(checkout, "--spread-backends")
    assert counts["test_cli", "test_numbers"] == 12
    assert counts["test_cli", "test_store"] == 1
    assert counts["test_store", "test_store"] == 3, "the store is tested on every backend"
    assert counts["test_cli", "test_requirement"] == 3, "a requirement is proven on every backend"
    assert counts["test_cli", "test_plain"] == 1


@pytest.mark.parametrize("file", ["test_cli.py", "test_store.py"])
def test_each_value_of_a_parameter_runs_on_one_of_all_backends(checkout: Path, file: str) -> None:
    ids = [id for id in collected_ids(checkout, "--spread-backends") if f"{file}::test_numbers[" in id]
    per_backend = Counter(backend for id in ids for backend in BACKENDS if backend in id)
    assert per_backend == dict.fromkeys(BACKENDS, 4)
    assert len({int(id.rstrip("]").split("-")[-1]) for id in ids}) == 12
