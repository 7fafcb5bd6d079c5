"""Identifiers: layout, order, uniqueness, and ids of other systems."""

import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from uuid import RFC_4122, UUID, uuid4

import pytest

from lockstitch.model import as_id, foreign_id, ids, new_id


def test_new_id_is_uuid7() -> None:
    before = time.time_ns() // 1_000_000
    generated_id = new_id()
    after = time.time_ns() // 1_000_000

    assert generated_id.version == 7
    assert generated_id.variant == RFC_4122
    # Ids may be ahead of the clock by the number of ids created before in the same tick.
    assert before <= generated_id.int >> 80 <= after + 1


def test_ids_of_one_process_are_ordered() -> None:
    ids = [new_id() for _ in range(20_000)]

    assert ids == sorted(ids)
    assert [str(id) for id in ids] == sorted(str(id) for id in ids)
    assert len(set(ids)) == len(ids)


def test_ids_stay_ordered_when_clock_stops_or_goes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    now = time.time_ns() + 10**9
    moments = iter([now, now, now - 5 * 10**9, now - 1, now])
    monkeypatch.setattr(ids, "time", SimpleNamespace(time_ns=lambda: next(moments)))

    generated_ids = [new_id() for _ in range(5)]

    assert generated_ids == sorted(set(generated_ids))
    assert {id.version for id in generated_ids} == {7}


def test_ids_are_unique_across_threads() -> None:
    with ThreadPoolExecutor(8) as pool:
        batches = list(pool.map(lambda _: [new_id() for _ in range(2_000)], range(8)))

    assert len({id for batch in batches for id in batch}) == 16_000
    # Within a thread they are in order too, independent of other threads.
    assert all(batch == sorted(batch) for batch in batches)


_FORK = """
import os, threading
from lockstitch.model import new_id

stop = threading.Event()
def make():
    while not stop.is_set():
        new_id()
# A thread creates ids at the moment of the fork.
thread = threading.Thread(target=make)
thread.start()
child = os.fork()
made = [str(new_id()) for _ in range(1000)]
if child:
    assert os.waitpid(child, 0)[1] == 0
print(*made, flush=True)
if not child:
    os._exit(0)
stop.set()
"""


def test_ids_are_unique_after_a_fork() -> None:
    # In a separate process, because forking a process with threads is not safe.
    command = [sys.executable, "-W", "ignore", "-c", _FORK]
    process = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, timeout=30)

    ids = [UUID(line) for line in process.stdout.split()]
    assert len(ids) == 2_000
    assert len(set(ids)) == 2_000


def test_foreign_id_depends_on_project_and_source() -> None:
    # A literal, so that a change of the rule is noticed: stored ids depend on it.
    assert foreign_id("default", "langsmith", "run-1") == UUID("86a2b917-7b16-57d1-a7a0-15ebad56fb06")
    assert foreign_id("default", "langsmith", "run-1").version == 5


def test_foreign_ids_differ_when_any_part_differs() -> None:
    parts = [("a", "b", "c"), ("x", "b", "c"), ("a", "x", "c"), ("a", "b", "x"), ("ab", "", "c"), ("a", "bc", "")]
    ids = [foreign_id(*part) for part in parts]

    assert len(set(ids)) == len(parts)
    assert ids == [foreign_id(*part) for part in parts]


def test_as_id_accepts_only_canonical_form() -> None:
    id = uuid4()

    assert as_id(id) == id
    assert as_id(str(id)) == id
    assert as_id(str(id).upper()) == id
    for key in ("", "customer-42", id.hex, f"{{{id}}}", f"urn:uuid:{id}", "x" * 36, f"{id} "):
        assert as_id(key) is None


def test_key_similar_to_id_is_not_an_id() -> None:
    # Dashes in other places: UUID() would accept it, but it is not the canonical form.
    assert as_id("12345678-12-34123412341-3-4123456789") is None
    assert as_id("12345678-1-234123412341-2341234567-8") is None
