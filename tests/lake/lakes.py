"""A lake and its record, compared through every lens."""

import asyncio
import json
from collections.abc import Sequence
from datetime import date, datetime
from decimal import Decimal
from itertools import zip_longest
from pathlib import Path
from typing import Any
from uuid import UUID

from lockstitch.lake.query import LakeReader
from lockstitch.lake.sync import SyncReport, sync
from lockstitch.lenses import catalog
from lockstitch.model import format_time
from lockstitch.store import Store
from lockstitch.store.store import open_lens


async def write(store: Store, target: Path | str) -> SyncReport:
    async with open_lens(store, "three_table", blocking=True) as connection:
        return await asyncio.to_thread(sync, connection, str(target))


async def compare(
    store: Store, target: Path | str, ignoring: tuple[str, ...] = (), lenses: Sequence[str] = catalog.NAMES
) -> int:
    """Compare the rows of lenses, without those that contain a text in `ignoring`. Return their number."""
    number = 0
    for lens in lenses:
        with LakeReader(str(target), lens) as reader:
            for table in catalog.tables(lens):
                query = f"SELECT * FROM {table}"
                answer = await store.sql(query, lens=lens, limit=100_000, seconds=60)
                columns = ", ".join(f'"{name}"' for name in answer.columns)
                found = reader.query(f"SELECT {columns} FROM {table}", limit=100_000, seconds=60)
                expected, stored = (_texts(result.rows, ignoring) for result in (answer, found))
                wrong = [pair for pair in zip_longest(stored, expected) if pair[0] != pair[1]]
                assert not wrong, (lens, table, wrong[0])
                number += len(expected)
    return number


def _texts(rows: Sequence[Sequence[Any]], ignoring: Sequence[str]) -> list[str]:
    texts = (json.dumps([plain(value) for value in row]) for row in rows)
    return sorted(text for text in texts if not any(part in text for part in ignoring))


def plain(value: Any) -> Any:
    """Return a value that is equal for all databases."""
    if isinstance(value, datetime):
        return format_time(value)
    if isinstance(value, date | UUID):
        return str(value)
    if isinstance(value, Decimal | float | int):
        return round(float(value), 6)
    if isinstance(value, dict):
        # SQLite computes this one from days, with an error of up to 2 ms.
        return {key: plain(value[key]) for key in sorted(value) if key != "duration"}
    if isinstance(value, list):
        return [plain(item) for item in value]
    if isinstance(value, str) and value[:1] in ("{", "[", '"'):
        try:
            return plain(json.loads(value))
        except ValueError:
            return value
    return value
