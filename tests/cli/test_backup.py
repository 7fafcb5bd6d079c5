"""`backup`: snapshots of a store that is in use, and a restore to a time between two commits."""

import threading
from datetime import UTC, datetime
from pathlib import Path

import pytest

from lockstitch import sync
from lockstitch.model import Entry, Thread, format_time
from tests.cli.calling import Call


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'store.db'}"


def say(store: sync.SyncStore, head: Thread, text: str) -> Thread:
    return store.append(head, [Entry(type="input", message={"role": "user", "content": text})]).head


def texts(url: str) -> list[str]:
    with sync.open_store(url, create=False) as store:
        assert store.verify().ok
        return [str(stitch.message and stitch.message["content"]) for stitch in store.stitches("ada")]


def test_restores_store_to_a_point_between_two_commits(call: Call, tmp_path: Path, url: str) -> None:
    folder, restored = tmp_path / "snapshots", tmp_path / "restored.db"
    with sync.open_store(url) as store:
        head = say(store, store.claim(store.create(key="ada")), "before")
        assert call("backup", "create", str(folder), "--store", url).code == 0
        before = format_time(datetime.now(UTC))
        say(store, head, "the mistake")
        # A process that was killed during a snapshot leaves a part of a file.
        partial = folder / "lockstitch-20260101T000000.000000Z.db.partial"
        partial.write_bytes(b"SQLite format 3")
        done = call("backup", "create", str(folder), "--store", url, "--json")
        assert (done.code, done.json["deleted"]) == (0, [])
        assert not partial.exists()
        store.delete(store.thread("ada"), force=True)
    assert len(call("backup", "list", str(folder), "--json").json) == 2

    done = call("backup", "restore", str(folder), str(restored), "--at", before)
    assert done.code == 0, done
    assert texts(f"sqlite:///{restored}") == ["before"]
    assert call("backup", "restore", str(folder), str(tmp_path / "last.db")).code == 0
    assert texts(f"sqlite:///{tmp_path / 'last.db'}") == ["before", "the mistake"]

    again = call("backup", "restore", str(folder), str(restored))
    assert (again.code, "Nothing was restored" in again.err) == (2, True)
    early = call("backup", "restore", str(folder), str(tmp_path / "early.db"), "--at", "2020-01-01")
    assert (early.code, "The oldest one is of" in early.err) == (3, True)
    assert not (tmp_path / "early.db").exists()
    kept = call("backup", "create", str(folder), "--store", url, "--keep", "0s", "--json").json
    assert len(kept["deleted"]) == 2
    assert [each["file"] for each in call("backup", "list", str(folder), "--json").json] == [kept["file"]]


def test_snapshots_of_a_store_in_use_have_no_commit_after_their_time(call: Call, tmp_path: Path, url: str) -> None:
    folder, stop = tmp_path / "snapshots", threading.Event()
    committed: list[datetime] = []

    def write() -> None:
        with sync.open_store(url) as store:
            head = store.claim(store.thread("ada"))
            while not stop.is_set():
                head = say(store, head, str(len(committed)))
                committed.append(datetime.now(UTC))

    with sync.open_store(url) as store:
        store.create(key="ada")
    writer = threading.Thread(target=write)
    writer.start()
    try:
        command = ("backup", "create", str(folder), "--store", url, "--json")
        taken = [(len(committed), call(*command).json) for _ in range(5)]
    finally:
        stop.set()
        writer.join()
    for number, (least, snapshot) in enumerate(taken):
        path = tmp_path / f"{number}.db"
        assert call("backup", "restore", str(folder), str(path), "--at", snapshot["at"]).code == 0
        said = texts(f"sqlite:///{path}")
        assert said == [str(place) for place in range(len(said))]
        until = datetime.fromisoformat(snapshot["at"])
        # The last commit has ended for SQLite before the writer notes its time.
        assert least <= len(said) <= sum(at <= until for at in committed) + 1


def test_backup_refuses_other_backends(call: Call, tmp_path: Path) -> None:
    url = f"file:///{tmp_path / 'store'}"
    assert call("migrate", "--store", url).code == 0
    result = call("backup", "create", str(tmp_path / "snapshots"), "--store", url)
    assert (result.code, "use tar" in result.err) == (2, True)
    assert not (tmp_path / "snapshots").exists()
