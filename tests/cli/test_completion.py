"""Shell completion, and commands that are loaded late."""

import subprocess
import sys
from pathlib import Path

import pytest

from lockstitch import Agent, sync
from lockstitch.cli.app import COMMANDS, SECTIONS, command
from lockstitch.testing import Scripted
from tests.cli.calling import Call, environment, run


def words(call: Call, *typed: str) -> list[str]:
    return [line.partition("\t")[0] for line in call("--complete", *typed).lines]


@pytest.fixture
def url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    address = f"sqlite:///{tmp_path / 'store.db'}"
    agent = Agent("helper", model=Scripted(["Hi."] * 3), title=False)
    with sync.open_store(address) as store:
        for key in ("customer-1", "customer-2", "order-1"):
            sync.run(agent, "Hi", store=store, thread=key)
    return address


def test_completes_commands_and_options(call: Call) -> None:
    assert words(call, "re") == ["resume", "retry", "regenerate", "replay", "request", "restore"]
    assert set(words(call, "")) == set(COMMANDS)
    assert words(call, "token", "") == ["create", "list", "revoke"]
    assert words(call, "token", "--project", "p", "create", "--pro") == ["--project"]
    assert {"--thread", "--store"} <= set(words(call, "run", "helper", "--"))
    assert words(call, "--st") == ["--store"]
    assert words(call, "completion", "z") == ["zsh"]
    assert words(call, "nonsense", "") == words(call, "threads", "--store", "") == []


def test_completes_thread_keys(call: Call, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert sorted(words(call, "show", "--store", url, "cust")) == ["customer-1", "customer-2"]
    assert words(call, f"--store={url}", "run", "helper", "Hi", "--thread", "o") == ["order-1"]
    monkeypatch.setenv("LOCKSTITCH_STORE", url)
    assert len(words(call, "context", "")) == 3
    assert words(call, "show", "--project", "other", "") == []
    assert words(call, "show", "--store", "sqlite:///nowhere/none.db", "") == []


def test_bash_script_completes(call: Call, url: str) -> None:
    script = call("completion", "bash").out
    line = f'{script}\nCOMP_WORDS=(lockstitch show customer-) COMP_CWORD=2\n_lockstitch\necho "${{COMPREPLY[@]}}"'
    scripts = f"{Path(sys.executable).parent}:/usr/bin:/bin"
    done = subprocess.run(
        ["bash", "-c", line],
        env=environment(PATH=scripts, LOCKSTITCH_STORE=url),
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert sorted(done.stdout.split()) == ["customer-1", "customer-2"]


def test_completion_prints_a_script_for_each_shell(call: Call) -> None:
    for shell in ("bash", "zsh", "fish"):
        assert "lockstitch --complete" in call("completion", shell).out
        assert call("completion", shell, "--json").json["shell"] == shell
    assert call("completion", "pwsh").code == 2


def test_help_has_the_first_sentence_of_every_command(call: Call) -> None:
    context = command.make_context("lockstitch", ["threads"], resilient_parsing=True)
    for section in SECTIONS.values():
        for name, (_, text) in section.items():
            loaded = command.get_command(context, name)  # type: ignore[attr-defined]
            assert loaded.get_short_help_str(100) == text, name


def test_version_and_help_load_no_store() -> None:
    loaded = "import sys; from lockstitch.cli.entry import run; run([sys.argv[1]]); print(*sys.modules)"
    for option, absent in (
        ("--version", {"typer", "rich", "pydantic"}),
        ("--help", {"lockstitch.store", "rich.console"}),
    ):
        done = subprocess.run(
            [sys.executable, "-c", loaded, option], env=environment(), capture_output=True, text=True, check=True
        )
        assert not absent & set(done.stdout.split()), option


def test_unknown_command_names_the_closest(call: Call) -> None:
    result = call("thread")
    assert (result.code, "Did you mean 'threads'?" in result.err) == (2, True)


@pytest.mark.parametrize(
    ("module", "code", "extra"),
    [
        ("httpx2", "from lockstitch import Client", "client"),
        ("fastapi", "import lockstitch.server", "server"),
        ("fastapi", "import lockstitch.cli.entry as e; raise SystemExit(e.run(['serve']))", "server"),
        (
            "grpc",
            "import lockstitch.cli.entry as e; raise SystemExit(e.run(['serve', '--port', '0', '--otlp-grpc', '0']))",
            "grpc",
        ),
    ],
)
def test_missing_extra_is_named_with_its_command(module: str, code: str, extra: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.modules[{module!r}] = None\n{code}"],
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    last = done.stderr.strip().splitlines()[-1]
    assert f"needs the package {module}. Run: pip install 'lockstitch[{extra}]'" in last
    assert done.returncode in (1, 2)


# The file of an app

APP = "from names import NAME\nfrom lockstitch import Agent, App\nfrom lockstitch.testing import Scripted\n"
APP += "app = App([Agent(NAME, model=Scripted(['Hi.']), title=False)])\n"


def test_app_can_be_a_file(tmp_path: Path) -> None:
    folder = tmp_path / "code"
    folder.mkdir()
    (folder / "json.py").write_text(APP)
    (folder / "names.py").write_text("NAME = 'greeter'\n")
    store = f"sqlite:///{tmp_path / 'store.db'}"
    for path in ("./code/json.py:app", f"{folder}/json.py:app"):
        result = run("run", "greeter", "Hi", "--app", path, "--store", store, cwd=tmp_path)
        assert (result.code, result.out) == (0, "Hi.\n"), result.err


def test_unusable_app_file_is_refused(call: Call, tmp_path: Path) -> None:
    (tmp_path / "broken_app.py").write_text("1 / 0\n")
    (tmp_path / "empty_app.py").write_text("app = 1\n")
    cases = {
        "missing.py:app": "does not exist",
        "broken_app.py:app": "cannot be imported: ZeroDivisionError: division by zero.",
        "empty_app.py:app": "is not an App",
        "empty_app.py": "is not an app reference",
    }
    for name, message in cases.items():
        result = call("run", "a", "Hi", "--app", f"{tmp_path}/{name}")
        assert (result.code, message in result.err) == (2, True), result.err
