"""What tests of the command line share."""

import pytest

from lockstitch.cli.entry import run
from tests.cli.calling import Call, Told
from tests.cli.story import Story, tell


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Call:
    """`lockstitch` in this process."""
    monkeypatch.delenv("LOCKSTITCH_STORE", raising=False)
    monkeypatch.delenv("LOCKSTITCH_APP", raising=False)

    def called(*arguments: str) -> Told:
        capsys.readouterr()
        code = run(arguments)
        said = capsys.readouterr()
        return Told(code, said.out, said.err)

    return called


@pytest.fixture
def lockstitch(call: Call, store_url: str, monkeypatch: pytest.MonkeyPatch) -> Call:
    """`lockstitch` in this process on a fresh store of every backend."""
    monkeypatch.setenv("LOCKSTITCH_STORE", store_url)
    return call


@pytest.fixture
def story(store_url: str) -> Story:
    return tell(store_url)
