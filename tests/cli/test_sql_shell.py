"""The shell of `sql`."""

import io
import re
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest

from lockstitch import sync
from lockstitch.cli.render.output import Output
from lockstitch.cli.services.sql_shell import QueryOptions, Shell
from tests.cli.story import Story, tell
from tests.cli.test_terminal import COLOUR, run_in_terminal


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return tmp_path


def typed(url: str, *lines: str | type[BaseException], lens: str | None = None) -> tuple[list[str], str, list[str]]:
    """Type these lines. Return the results, the notes and the prompts."""
    coming: Iterator[str | type[BaseException]] = iter([*lines, EOFError])
    prompts: list[str] = []

    def ask(prompt: str) -> str:
        prompts.append(prompt)
        line = next(coming)
        if isinstance(line, str):
            return line
        raise line

    out, beside = io.TextIOWrapper(io.BytesIO(), write_through=True), io.StringIO()
    with redirect_stdout(out), redirect_stderr(beside), sync.open_store(url) as store:
        Shell(Output(as_json=False), store, QueryOptions(lens, 2, 5.0, "table"), ask).run()
    assert isinstance(out.buffer, io.BytesIO)
    return out.buffer.getvalue().decode().splitlines(), beside.getvalue(), prompts


def test_statement_can_span_lines(store_url: str, story: Story) -> None:
    output, _, prompts = typed(
        store_url, "", "SELECT count(*) AS n", "  -- a comment;", "FROM threads;", "SELECT 1 AS one;"
    )
    assert [line.strip() for line in output[:4]] == ["n", "5", "one", "1"]
    assert prompts == [
        "lockstitch=> ",
        "lockstitch=> ",
        "lockstitch-> ",
        "lockstitch-> ",
        "lockstitch=> ",
        "lockstitch=> ",
    ]


def test_error_does_not_end_shell(store_url: str, story: Story) -> None:
    wrong = ("nonsense;", "DELETE FROM threads;", "\\lens nothing", "\\what", "SELECT", KeyboardInterrupt)
    output, beside, _ = typed(store_url, *wrong, "SELECT count(*) AS n FROM threads;")
    assert "n" in output
    assert "5" in [line.strip() for line in output]
    assert "Lens 'nothing' not found" in beside
    assert "\\what is not a command" in beside


def test_lens_command_changes_lens(store_url: str, story: Story) -> None:
    lines = (
        "\\lens three_table",
        "SELECT count(*) AS n FROM agent_config;",
        "\\lens",
        "SELECT count(*) FROM agent_config;",
    )
    output, beside, prompts = typed(store_url, *lines)
    assert [line.strip() for line in output[:2]] == ["n", "5"]
    assert prompts[1:4] == ["three_table=> ", "three_table=> ", "lockstitch=> "]
    assert "agent_config" in beside


def test_tables_command_lists_tables(store_url: str, story: Story) -> None:
    core, _, _ = typed(store_url, "\\tables", "\\q", "never read")
    assert any(line.startswith("threads: id, key, project") for line in core)
    through, _, _ = typed(store_url, "\\tables", lens="agentic_threads")
    assert [line.partition(":")[0] for line in through if ":" in line] == ["threads", "stitches"]
    assert "thread_result_summary" in "".join(through)
    help_, _, _ = typed(store_url, "\\?")
    assert any(".lens [NAME]" in line for line in help_)


def test_dot_commands_list_tables_and_columns(store_url: str, story: Story) -> None:
    names, _, _ = typed(store_url, ".tables", ".quit", "never read")
    assert names[:3] == ["threads", "runs", "stitches"]
    columns, beside, _ = typed(store_url, ".schema runs", ".schema nothing", ".schema runs;")
    assert columns[:2] == ["id  uuid", "thread_id  uuid"]
    assert "Table nothing does not exist. The tables are: threads, runs, stitches" in beside
    of_lens, _, _ = typed(store_url, ".tables", ".schema threads", lens="agentic_threads")
    assert of_lens[:3] == ["threads", "stitches", "id"]


def test_unknown_table_is_answered_with_known_ones(store_url: str, story: Story) -> None:
    _, beside, _ = typed(store_url, "SELECT * FROM thread;", ".lens agentic_threads", "SELECT * FROM unicorns;")
    assert "Table thread does not exist. The tables are: threads, runs, stitches" in beside
    assert "Table unicorns does not exist. The tables of lens agentic_threads are: threads, stitches." in beside


def test_shell_reports_omitted_rows(store_url: str, story: Story) -> None:
    output, beside, _ = typed(store_url, "SELECT id FROM threads;")
    assert len([line for line in output if re.fullmatch(r"[0-9a-f-]{36}", line)]) == 2
    assert "Only the first 2 rows." in beside


def test_shell_works_at_terminal(tmp_path: Path, state: Path) -> None:
    url = f"sqlite:///{tmp_path / 'store.db'}"
    tell(url)
    keys = "SELECT count(*) AS number\nFROM agent_config;\n\\q\n"
    code, screen = run_in_terminal("sql", "--store", url, "--lens", "three_table", keys=keys, XDG_STATE_HOME=str(state))
    assert code == 0
    assert re.search(r"number\s+5", COLOUR.sub("", screen))
    history = (state / "lockstitch" / "sql_history").read_text()
    assert "FROM agent_config;" in history
