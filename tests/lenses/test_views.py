"""Views of lenses in DuckDB leave out columns and joins that no statement reads."""

import pytest

from lockstitch.lenses.duckdb import script
from lockstitch.lenses.views import View
from lockstitch.model.sql_script import statements

VIEWS = {view.name: view for text in statements(script("langsmith")) if (view := View.parse(text))}


def reduced(name: str, *names: str) -> tuple[str, set[str]]:
    view = VIEWS[name]
    return view.reduced(set(names), dict.fromkeys(view.columns, "VARCHAR"))


def test_joins_only_tables_that_are_read() -> None:
    assert "JOIN" not in reduced("lens_llm_calls", "model_name", "input_tokens")[0]
    # The provider of a run is only in the row of the run.
    text, _ = reduced("lens_llm_calls", "model_provider")
    assert text.count("LEFT JOIN") == 1
    assert "JOIN lockstitch.runs r ON r.id = s.run_id" in text
    assert reduced("lens_llm_calls", "run_id")[0].count("LEFT JOIN") == 2
    # Every run has a thread, so a join with it changes only columns.
    assert "lockstitch.threads" not in reduced("lens_agent_runs", "model_name")[0]
    assert "lockstitch.threads" in reduced("lens_agent_runs", "user_id")[0]


def test_keeps_joins_that_select_rows() -> None:
    text, _ = reduced("lens_tool_calls", "tool_name")
    finished, _, unfinished = text.partition("UNION ALL")
    assert "JOIN" not in finished
    assert "JOIN lockstitch.runs r ON r.thread_id = root.thread_id" in unfinished
    assert "asked.block" in unfinished


def test_left_out_columns_are_null_and_are_not_read() -> None:
    text, read = reduced("llm_calls", "model_name")
    assert 'CAST(NULL AS VARCHAR) AS "prompt_text"' in text
    assert read >= {"model_name", "lens_llm_calls"}
    assert "prompt_text" not in read


@pytest.mark.parametrize("form", ["DISTINCT a FROM t", "a FROM t GROUP BY a", "a, sum(b) AS b FROM t ORDER BY a"])
def test_does_not_change_views_whose_rows_depend_on_their_columns(form: str) -> None:
    view = View.parse(f"CREATE VIEW example AS\nSELECT {form};")
    assert view is not None
    assert view.reduced({"b"}, {})[0] == view.text
