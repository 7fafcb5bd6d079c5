"""Whatever fits the OpenAPI, or does not, is answered: never with a 500."""

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

from lockstitch.server import Settings
from lockstitch.store import Store, open_store
from tests.server.api import agents
from tests.server.api.test_tenancy import Theirs, fill
from tests.server.serving import serving

EXAMPLES = int(os.environ.get("LOCKSTITCH_FUZZ", "3"))
"""Examples of each operation; by hand a hundred are worth their time."""


class _Elsewhere:
    """A server on a loop of its own, for a test that waits for every answer."""

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
            async with serving(store, agents.app(), Settings(work=False, sql_seconds=0.5)) as self.url:
                self._ready.set()
                await leaving.wait()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[_Elsewhere]:
    with _Elsewhere(tmp_path) as running:
        yield running


def test_no_operation_answers_with_500(server: _Elsewhere) -> None:
    assert server.theirs is not None
    document = httpx2.get(f"{server.url}/api/openapi.json").json()
    schema = schemathesis.openapi.from_dict(document)
    known = server.theirs.known
    with requests.Session() as session:
        for found in schema.get_all_operations():
            ask(found.ok(), server.url, session, known)


def ask(operation: Any, url: str, session: requests.Session, known: Callable[[str], Any]) -> None:
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
            # What is there is reached by chance only if chance is helped.
            for name in case.path_parameters or {}:
                if known(name) is not None:
                    case.path_parameters[name] = known(name)
        if "/events" in case.path:
            # A stream would go on for as long as somebody listens.
            case.query = {**(case.query or {}), "until": "now"}
        if isinstance(case.body, dict) and case.body.get("wait"):
            case.body["wait"] = False
        answer = case.call(base_url=url, session=session, timeout=30)
        assert answer.status_code < 500, (case.as_curl_command(), answer.status_code, answer.content)

    examples()
