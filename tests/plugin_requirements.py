"""Turns passed tests into proofs of requirement lines.

A test says `@pytest.mark.req("S0-077")`; after the run, build/requirements.json says which ids hold
and on which backends. tools/requirements.py counts them.
"""

import json
from collections import defaultdict
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from tools.requirements import BACKENDS, NO_BACKEND, Proof, read_lists

# A test that claims more than this proves none of them well.
MOST_IDS = 5

# Reports carry it to the process that counts.
PROPERTY = "lockstitch.requirements"


def pytest_configure(config: pytest.Config) -> None:
    lists = read_lists(config.rootpath / "docs" / "requirements")
    config.pluginmanager.register(Marks({line.id for requirement_list in lists for line in requirement_list.lines}))
    if not config.option.collectonly:
        config.pluginmanager.register(Proofs(), "requirement-proofs")


def ids_of(item: pytest.Item) -> list[str]:
    """The ids a test carries itself or through its class or module, each once."""
    return list(dict.fromkeys(id for mark in item.iter_markers("req") for id in mark.args))


def backend_of(item: pytest.Item) -> str:
    """The backend a test runs on: its parameter `backend`, or none."""
    callspec = getattr(item, "callspec", None)
    value = callspec.params.get("backend") if callspec else None
    return value if isinstance(value, str) and value in BACKENDS else NO_BACKEND


class Marks:
    """Refuses wrong marks while collecting, and fastens right ones to the reports."""

    def __init__(self, known_ids: set[str]) -> None:
        self._known = known_ids

    @pytest.hookimpl(wrapper=True)
    def pytest_make_collect_report(
        self, collector: pytest.Collector
    ) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
        # Not in pytest_collection_modifyitems: a failed collect report is shown like any other.
        collected = yield
        items = [node for node in collected.result or [] if isinstance(node, pytest.Item)]
        wrong = [f"{item.nodeid}: {fault}" for item in items if (fault := self._fault(item))]
        if wrong:
            collected.outcome = "failed"
            collected.longrepr = "\n".join(wrong)
            collected.result = []
        return collected

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        for item in items:
            if ids := ids_of(item):
                item.user_properties.append((PROPERTY, {"ids": ids, "backend": backend_of(item)}))

    def _fault(self, item: pytest.Item) -> str | None:
        if any(not mark.args or mark.kwargs for mark in item.iter_markers("req")):
            return 'req takes ids and nothing else: req("S0-077")'
        ids = ids_of(item)
        if unknown := [id for id in ids if id not in self._known]:
            return f"not in docs/requirements: {', '.join(map(str, unknown))}"
        if len(ids) > MOST_IDS:
            return f"{len(ids)} requirements, at most {MOST_IDS} are allowed: split the test"
        return None


class Proofs:
    """Gathers reports and writes what they prove.

    An id is proven when every test that carries it passed with every parameter. One that failed,
    was skipped or was expected to fail takes the proof away from all of its ids.
    """

    def __init__(self) -> None:
        self._backends: defaultdict[str, set[str]] = defaultdict(set)
        self._tests: defaultdict[str, set[str]] = defaultdict(set)
        self._broken_ids: set[str] = set()
        self._all_collected = True

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self._all_collected = False

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        test = report.nodeid.split("[", 1)[0]
        properties: dict[str, Any] = dict(report.user_properties)
        claim = properties.get(PROPERTY, {"ids": []})
        is_passed = report.passed and not hasattr(report, "wasxfail")
        for id in claim["ids"]:
            self._tests[id].add(test)
            if not is_passed:
                self._broken_ids.add(id)
            elif report.when == "call":
                self._backends[id].add(claim["backend"])

    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        finished = exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED) and not (
            session.shouldfail or session.shouldstop
        )
        complete = finished and self._all_collected and covers_whole_suite(session.config)
        name = "requirements.json" if complete else "requirements-partial.json"
        write(session.config.rootpath / "build" / name, self.proven())

    def proven(self) -> dict[str, Proof]:
        return {
            id: {"tests": sorted(self._tests[id]), "backends": sorted(self._backends[id])}
            for id in sorted(self._backends)
            if id not in self._broken_ids
        }


def covers_whole_suite(config: pytest.Config) -> bool:
    """True if no option limits the run to a part of the suite."""
    narrowing = ("keyword", "markexpr", "deselect", "ignore", "ignore_glob", "lf", "stepwise")
    return config.args_source is pytest.Config.ArgsSource.TESTPATHS and not any(
        config.getoption(name, None) for name in narrowing
    )


def write(path: Path, proven: dict[str, Proof]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(proven, indent=1) + "\n", encoding="utf-8")
