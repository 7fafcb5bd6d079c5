"""The dialect: no statement depends on the settings of its session."""

import re

from lockstitch.backends.postgres.dialect import dialect, qualified
from lockstitch.model import SIDE_RECORDS, Delivery, FakeClock, Run, Stitch, SystemClock, Thread, Worker

TABLES = [kind.table for kind in (Thread, Run, Stitch, Delivery, Worker, *SIDE_RECORDS)] + [
    "text_search",
    "search_mark",
    "settled_days",
    "changed_days",
    "usage_totals",
    "user_totals",
    "call_totals",
]


def test_every_table_has_its_schema() -> None:
    bare = re.compile(rf"\b(?:FROM|JOIN|INTO|UPDATE)\s+(?:{'|'.join(TABLES)}|\{{table\}})(?!\w)")
    for name, text in dialect(SystemClock()).queries.items():
        assert not bare.search(text), name


def test_only_tables_of_lockstitch_get_the_schema() -> None:
    assert (
        qualified("SELECT 1 FROM threads t JOIN head ON true") == "SELECT 1 FROM lockstitch.threads t JOIN head ON true"
    )
    assert qualified("SELECT 1 FROM threads_of_theirs FOR UPDATE") == "SELECT 1 FROM threads_of_theirs FOR UPDATE"
    assert qualified("INSERT INTO {table} VALUES (1)") == "INSERT INTO lockstitch.{table} VALUES (1)"


def test_server_clock_is_used_unless_clock_is_fake() -> None:
    assert "statement_timestamp()" in dialect(SystemClock()).text("give_back")
    fake = dialect(FakeClock())
    statement = fake.statement("give_back", {"worker_id": "w"})
    assert "statement_timestamp()" not in statement.sql
    assert isinstance(statement.parameters, dict)
    assert statement.parameters["now"] == FakeClock().now().isoformat()
