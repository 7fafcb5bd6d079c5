"""Valid and invalid requests get documented responses and never 500."""

import asyncio
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode
from schemathesis.core.failures import FailureGroup
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from lockstitch import App
from lockstitch.apps.notebooks import Notebooks
from lockstitch.apps.prioritizer import Prioritizer
from lockstitch.server import Settings
from lockstitch.store import Store, open_store
from tests.server.api import agents
from tests.server.api.test_tenancy import Theirs, fill
from tests.server.serving import serving

EXAMPLES = int(os.environ.get("LOCKSTITCH_FUZZ", "2"))
"""Examples of each operation; by hand a hundred are worth their time."""


class _Elsewhere:
    """A server in a separate event loop, for blocking tests."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()))
        self.url = ""
        self.theirs: Theirs | None = None
        self._leave: Any = None

    def __enter__(self) -> "_Elsewhere":
        self._thread.start()
        assert self._ready.wait(30)
        return self

    def __exit__(self, *_: object) -> None:
        self._leave()
        self._thread.join(30)

    async def _serve(self) -> None:
        loop, leaving = asyncio.get_running_loop(), asyncio.Event()
        self._leave = lambda: loop.call_soon_threadsafe(leaving.set)
        store: Store
        async with open_store(f"sqlite:///{self._folder / 'store.db'}", project="b") as store:
            self.theirs = await fill(store)
            app = App(list(agents.app().agents.values()), plugins=[Notebooks(), Prioritizer()])
            async with serving(store, app, Settings(work=False, sql_seconds=0.5)) as self.url:
                self._ready.set()
                await leaving.wait()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[_Elsewhere]:
    with _Elsewhere(tmp_path) as running:
        yield running


CHECKS = [status_code_conformance, content_type_conformance, response_schema_conformance]


def test_responses_conform_to_the_document(server: _Elsewhere) -> None:
    """No operation returns 500, an undocumented status, or JSON of another schema."""
    assert server.theirs is not None
    document = httpx2.get(f"{server.url}/api/openapi.json", timeout=60).json()
    schema = schemathesis.openapi.from_dict(document)
    known_value = server.theirs.known
    failures: list[str] = []
    with requests.Session() as session:
        for operation in schema.get_all_operations():
            ask(operation.ok(), server.url, session, known_value, failures)
    assert not failures, "\n".join(failures)


def test_json_responses_have_a_schema(server: _Elsewhere) -> None:
    """No JSON response is documented as a string or without a schema."""
    document = httpx2.get(f"{server.url}/api/openapi.json", timeout=60).json()
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            for status, response in operation["responses"].items():
                described = response.get("content", {}).get("application/json")
                assert described is None or described["schema"] not in ({}, {"type": "string"}), (method, path, status)
                assert int(status) < 400 or "application/problem+json" in response["content"], (method, path, status)


def ask(
    operation: Any, url: str, session: requests.Session, known_value: Callable[[str], Any], failures: list[str]
) -> None:
    modes = st.sampled_from([GenerationMode.POSITIVE, GenerationMode.NEGATIVE])

    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        derandomize=True,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=modes.flatmap(lambda mode: operation.as_strategy(generation_mode=mode)), real=st.booleans())
    def examples(case: schemathesis.Case, real: bool) -> None:
        if real:
            # Random values rarely match existing ids, so use known ids.
            for name in case.path_parameters or {}:
                if known_value(name) is not None:
                    case.path_parameters[name] = known_value(name)
        if "/events" in case.path:
            # A stream without a limit would not end.
            case.query = {**(case.query or {}), "until": "now"}
        if isinstance(case.body, dict) and case.body.get("wait"):
            case.body["wait"] = False
        answer = case.call(base_url=url, session=session, timeout=30)
        assert answer.status_code < 500, (case.as_curl_command(), answer.status_code, answer.content)
        try:
            case.validate_response(answer, checks=CHECKS)
        except FailureGroup as exc:
            failures.extend(
                f"{case.method} {case.path} {answer.status_code}: {exception}" for exception in exc.exceptions
            )

    examples()
