"""Deliveries that race with their receiver: none is lost, none is duplicated, every receiver is woken."""

import asyncio
import os

import pytest

from lockstitch.store import Store
from tests.races.deliveries import DELIVERIES, play
from tests.races.fan_in import fan_in

pytestmark = pytest.mark.anyio

LONG = os.environ.get("LOCKSTITCH_ROUNDS")
ROUNDS = int(LONG or 12)

CHILDREN = 20


@pytest.mark.req("S3-007", "S3-035")
async def test_delivers_20_concurrent_deliveries_while_receiver_appends_and_waits(store: Store, store_url: str) -> None:
    faults = await asyncio.to_thread(play, store_url, ROUNDS)
    assert not faults
    assert await store.count(status="waiting") == ROUNDS
    report = await store.verify()
    assert report.problems == []
    assert report.stitches > ROUNDS * DELIVERIES


@pytest.mark.req("S3-034", "S3-035", "S3-036")
async def test_20_children_that_end_concurrently_report_once_and_wake_parent(store: Store, store_url: str) -> None:
    # A store of files has one host and one writer at a time: fewer rounds meet everything that can meet there.
    rounds = 6 if store_url.startswith("file:") else 14
    assert not await fan_in(store_url, int(LONG or rounds), CHILDREN)
    assert await store.count() == 0, "they were judged and deleted, each with its children"
