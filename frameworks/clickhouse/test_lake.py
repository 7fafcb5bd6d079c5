"""ClickHouse reads the files of a lake, and its aggregates equal those of the record. It runs in process: `chdb`."""

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from frameworks.environments import python_of
from lockstitch.store import open_store
from tests.lake.lakes import plain, write
from tests.store.worlds import world

pytestmark = pytest.mark.anyio

QUERIES = (
    "SELECT type, name, count(*), sum(input_tokens), sum(output_tokens) FROM stitches GROUP BY type, name",
    "SELECT status, count(*), sum(total_cost), sum(steps) FROM runs GROUP BY status",
    "SELECT t.project, count(*), max(s.log_id), min(s.position), avg(s.duration_ms) "
    "FROM stitches s JOIN threads t ON t.id = s.thread_id GROUP BY t.project",
    "SELECT count(DISTINCT thread_id), count(DISTINCT run_id), count(message) FROM stitches",
)
READER = """
import json, sys
import chdb
for query in json.loads(sys.stdin.read()):
    print(json.dumps([json.loads(line) for line in str(chdb.query(query, "JSONCompactEachRow")).splitlines()]))
"""


async def test_clickhouse_has_the_aggregates_of_the_record(tmp_path: Path) -> None:
    async with open_store(f"sqlite:///{tmp_path / 'store.db'}") as store:
        await world(3, trees=6).put(store)
        await write(store, tmp_path / "lake")
        expected = [(await store.sql(query)).rows for query in QUERIES]
    files = rf"\1 deltaLakeLocal('{tmp_path}/lake/\2')"
    texts = [re.sub(r"\b(FROM|JOIN) (stitches|runs|threads)", files, query) for query in QUERIES]
    # ClickHouse reads files only in its folder.
    command = [python_of("chdb", ["chdb"]), "-c", READER]
    result = subprocess.run(command, cwd=tmp_path, input=json.dumps(texts), capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    answers = [json.loads(line) for line in result.stdout.splitlines()]
    assert [_sorted(rows) for rows in answers] == [_sorted(rows) for rows in expected]
    assert all(answers)


def _sorted(rows: list[Any]) -> list[str]:
    # ClickHouse returns large integers as text.
    return sorted(repr([plain(int(value) if str(value).isdecimal() else value) for value in row]) for row in rows)
