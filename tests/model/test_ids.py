"""Identifiers: layout, order, uniqueness, and names that others gave."""

import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from uuid import RFC_4122, UUID, uuid4

import pytest

from lockstitch.model import as_id, foreign_id, ids, new_id


def test_a_new_id_is_a_uuid_of_version_7() -> None:
    before = time.time_ns() // 1_000_000
    made = new_id()
    after = time.time_ns() // 1_000_000

    assert made.version == 7
    assert made.variant == RFC_4122
    # Ids may run ahead of the clock by what was made before them in the same tick.
    assert before <= made.int >> 80 <= after + 1


def test_ids_of_one_process_are_in_the_order_of_their_making() -> None:
    made = [new_id() for _ in range(20_000)]

    assert made == sorted(made)
    assert [str(id) for id in made] == sorted(str(id) for id in made)
    assert len(set(made)) == len(made)


def test_a_clock_that_stands_still_or_goes_back_does_not_break_the_order(monkeypatch: pytest.MonkeyPatch) -> None:
    now = time.time_ns() + 10**9
    moments = iter([now, now, now - 5 * 10**9, now - 1, now])
    monkeypatch.setattr(ids, "time", SimpleNamespace(time_ns=lambda: next(moments)))

    made = [new_id() for _ in range(5)]

    assert made == sorted(set(made))
    assert {id.version for id in made} == {7}


def test_ids_are_unique_across_threads() -> None:
    with ThreadPoolExecutor(8) as pool:
        batches = list(pool.map(lambda _: [new_id() for _ in range(2_000)], range(8)))

    assert len({id for batch in batches for id in batch}) == 16_000
    # Within a thread they are in order too, whatever the others do.
    assert all(batch == sorted(batch) for batch in batches)


_FORK = """
import os, threading
from lockstitch.model import new_id

stop = threading.Event()
def make():
    while not stop.is_set():
        new_id()
# Somebody may be making an id at the very moment of the fork.
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
    # In a process of its own, because forking one that runs threads is asking for trouble.
    command = [sys.executable, "-W", "ignore", "-c", _FORK]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, timeout=30)

    made = [UUID(line) for line in done.stdout.split()]
    assert len(made) == 2_000
    assert len(set(made)) == 2_000


def test_a_foreign_id_is_stable_and_of_its_project_and_source() -> None:
    # A literal, so that a change of the rule is noticed: ids already stored depend on it.
    assert foreign_id("default", "langsmith", "run-1") == UUID("86a2b917-7b16-57d1-a7a0-15ebad56fb06")
    assert foreign_id("default", "langsmith", "run-1").version == 5


def test_foreign_ids_differ_wherever_one_part_differs() -> None:
    parts = [("a", "b", "c"), ("x", "b", "c"), ("a", "x", "c"), ("a", "b", "x"), ("ab", "", "c"), ("a", "bc", "")]
    made = [foreign_id(*part) for part in parts]

    assert len(set(made)) == len(parts)
    assert made == [foreign_id(*part) for part in parts]


def test_as_id_reads_the_usual_form_and_nothing_else() -> None:
    id = uuid4()

    assert as_id(id) == id
    assert as_id(str(id)) == id
    assert as_id(str(id).upper()) == id
    for key in ("", "customer-42", id.hex, f"{{{id}}}", f"urn:uuid:{id}", "x" * 36, f"{id} "):
        assert as_id(key) is None


def test_a_key_that_only_resembles_an_id_is_a_key() -> None:
    # Dashes in other places: UUID() would read it, but it is not how anybody writes one.
    assert as_id("12345678-12-34123412341-3-4123456789") is None
    assert as_id("12345678-1-234123412341-2341234567-8") is None
