"""Where everything stands in the folder. All paths are relative to it and use `/`.

store.json                                   what this folder is
agent_runs/{thread}/{run}.jsonl              the log, one stitch a line: the truth
agent_runs/{thread}/thread.jsonl             stitches that belong to no run
agent_runs/{thread}/{run}.jsonl.gz           a log that was archived
heads/{thread}.json  runs/{thread}/{run}.json
inbox/{thread}/{letter}.{sender and call}.json
workers/{worker}.json
keys/{project and key}.json                  which thread a key names
blobs/{sha256}  blobs/{sha256}.json          content, and what is known of it
shelves/{table}/{key}.json                   every other side record
counters.json                                the last log_id given
agent_config/{thread}.json                   projections, for people: rewritten when a run pauses or ends
conversation_history/{thread}/{turn}.json
journal.jsonl  journal.applied  staging/     commits on their way into the files above
"""

from collections.abc import Sequence
from typing import Any, Final
from uuid import UUID

from lockstitch.backends.files.names import name_of
from lockstitch.records import Blob, Letter, Record, Thread, Worker, codec

STORE: Final = "store.json"
LOCK: Final = ".lock"
JOURNAL: Final = "journal.jsonl"
APPLIED: Final = "journal.applied"
STAGING: Final = "staging"
COUNTERS: Final = "counters.json"

HEADS: Final = "heads"
RUNS: Final = "runs"
LOGS: Final = "agent_runs"
INBOX: Final = "inbox"
WORKERS: Final = "workers"
BLOBS: Final = "blobs"
KEYS: Final = "keys"
SHELVES: Final = "shelves"
CONFIGS: Final = "agent_config"
HISTORIES: Final = "conversation_history"

OUTSIDE_RUNS: Final = "thread"
"""The name of the log of stitches that belong to no run; no run's id looks like it."""


def head(thread_id: UUID) -> str:
    return f"{HEADS}/{thread_id}.json"


def runs(thread_id: UUID) -> str:
    return f"{RUNS}/{thread_id}"


def run(thread_id: UUID, run_id: UUID) -> str:
    return f"{RUNS}/{thread_id}/{run_id}.json"


def logs(thread_id: UUID) -> str:
    return f"{LOGS}/{thread_id}"


def log(thread_id: UUID, run_id: UUID | None) -> str:
    return f"{LOGS}/{thread_id}/{run_id or OUTSIDE_RUNS}.jsonl"


def inbox(thread_id: UUID) -> str:
    return f"{INBOX}/{thread_id}"


def sender(name: str, call_id: str) -> str:
    """The part of a letter's name that tells a second delivery of the same from a new one."""
    return codec.digest([name, call_id])[:32]


def letter(letter: Letter) -> str:
    return f"{INBOX}/{letter.thread_id}/{letter.id}.{sender(letter.sender, letter.call_id)}.json"


def key(project: str, key: str) -> str:
    return f"{KEYS}/{name_of((project, key))}.json"


def blob(sha256: str) -> str:
    return f"{BLOBS}/{name_of((sha256,))}"


def archive(thread_id: UUID, name: str) -> str:
    return f"{LOGS}/{thread_id}/{name}.jsonl.gz"


def shelf(kind: type[Record]) -> str:
    """The folder of a kind whose records are single documents named after their key."""
    if kind is Worker:
        return WORKERS
    if kind is Thread:
        return HEADS
    return BLOBS if kind is Blob else f"{SHELVES}/{kind.table}"


def record(kind: type[Record], key: Sequence[Any]) -> str:
    """The document of such a record."""
    return f"{shelf(kind)}/{name_of(key)}.json"


def config(thread_id: UUID) -> str:
    return f"{CONFIGS}/{thread_id}.json"


def histories(thread_id: UUID) -> str:
    return f"{HISTORIES}/{thread_id}"


def history(thread_id: UUID, turn: int) -> str:
    return f"{HISTORIES}/{thread_id}/{turn:03d}.json"
