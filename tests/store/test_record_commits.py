"""Records of an application on every backend: transactions, deletion with their thread, copies, other processes."""

from collections.abc import Callable
from dataclasses import replace
from typing import ClassVar
from uuid import UUID

import pytest

from lockstitch import (
    Conflict,
    Entry,
    NotFound,
    Refused,
    SchemaMismatch,
    StalePosition,
    ThreadDeleted,
    ThreadHeld,
    ThreadUpdate,
    Transaction,
)
from lockstitch.ext import AnyOf, Extension, Json, Record, Text, Where
from lockstitch.model import Thread
from lockstitch.store import Store, open_store

pytestmark = pytest.mark.anyio


class Note(Record):
    table: ClassVar[str] = "notes"
    primary_key: ClassVar[tuple[str, ...]] = ("thread_id", "name")
    thread_field: ClassVar[str | None] = "thread_id"

    thread_id: UUID
    name: Text
    body: Json = {}
    content: bytes = b""


class Mark(Record):
    table: ClassVar[str] = "note_marks"
    primary_key: ClassVar[tuple[str, ...]] = ("label",)
    thread_field: ClassVar[str | None] = "thread_id"

    label: Text
    thread_id: UUID


NOTES = Extension("test_notes", "tests.store.note_tables", kinds=(Note, Mark))


@pytest.fixture
async def notes(store: Store) -> Store:
    await store.extend(NOTES)
    return store


async def names(store: Store, *where: Where | AnyOf) -> list[str]:
    return [note.name for note in await store.table(Note).find(*where, order=("name",))]


async def test_transaction_writes_and_deletes_records_of_several_kinds(notes: Store) -> None:
    thread = await notes.create()
    old, present = Note(thread_id=thread.id, name="old"), Note(thread_id=thread.id, name="present", content=b"\x00\xff")
    await notes.commit(Transaction(records=[old, present, Mark(label="a", thread_id=thread.id)]))

    transaction = Transaction(
        records=[Note(thread_id=thread.id, name="replaced")],
        new_records=[Note(thread_id=thread.id, name="new"), Mark(label="b", thread_id=thread.id)],
        default_records=[present.changed(content=b"other"), Note(thread_id=thread.id, name="default")],
    )
    transaction.delete(Note, Where("thread_id", "=", thread.id), Where("name", "in", ["old", "unknown"]))
    transaction.delete(Mark, Where("label", "=", "a"))
    assert await notes.commit(transaction) == []

    assert await names(notes) == ["default", "new", "present", "replaced"]
    assert await notes.table(Note).get(thread.id, "present") == present
    assert [mark.label for mark in await notes.table(Mark).find()] == ["b"]


async def test_deletes_before_it_writes(notes: Store) -> None:
    thread = await notes.create()
    note = Note(thread_id=thread.id, name="a", body={"n": 1})
    await notes.table(Note).put(note)
    transaction = Transaction(new_records=[note.changed(body={"n": 2})])
    transaction.delete(Note)
    await notes.commit(transaction)
    assert (await notes.table(Note).get(thread.id, "a")).body == {"n": 2}


async def test_writes_nothing_when_new_record_exists(notes: Store) -> None:
    thread = await notes.create()
    note = Note(thread_id=thread.id, name="a")
    await notes.table(Note).put(note)
    transaction = Transaction(
        [ThreadUpdate(thread, [Entry(type="input", message={"role": "user", "content": "hi"})])],
        new_records=[note.changed(body={"n": 2})],
        default_records=[Note(thread_id=thread.id, name="b")],
    )
    transaction.delete(Mark)
    with pytest.raises(Conflict):
        await notes.commit(transaction)
    assert (await notes.table(Note).find(), (await notes.thread(thread)).position) == ([note], 0)


async def test_writes_and_deletes_no_record_when_thread_has_changed(notes: Store) -> None:
    thread = await notes.create()
    note = Note(thread_id=thread.id, name="a")
    await notes.table(Note).put(note)
    entry = Entry(type="input", message={"role": "user", "content": "hi"})
    transaction = Transaction([ThreadUpdate(thread, [entry])], records=[Note(thread_id=thread.id, name="b")])
    transaction.delete(Note)
    await notes.append(thread, [Entry(type="note")])
    with pytest.raises(StalePosition):
        await notes.commit(transaction)
    assert await notes.table(Note).find() == [note]


async def test_records_of_unknown_thread_are_rejected(notes: Store) -> None:
    thread = await notes.create()
    transaction = Transaction(records=[Note(thread_id=thread.id, name="a"), Note(thread_id=UUID(int=7), name="b")])
    with pytest.raises(Refused):
        await notes.commit(transaction)
    assert await names(notes) == []


async def test_transaction_deletes_no_threads_as_records(notes: Store) -> None:
    transaction = Transaction()
    transaction.delete(Thread)
    with pytest.raises(Refused, match="cannot delete threads"):
        await notes.commit(transaction)


async def test_records_are_deleted_with_their_thread(notes: Store) -> None:
    threads = [await notes.create(user_id=user) for user in ("ada", "bea", "eve")]
    for number, thread in enumerate(threads):
        notes_of_thread = [Note(thread_id=thread.id, name=f"{number}"), Mark(label=f"{number}", thread_id=thread.id)]
        await notes.commit(Transaction(records=list(notes_of_thread)))
    await notes.delete(threads[0])
    assert await names(notes) == ["1", "2"]
    assert await notes.purge(user_id="bea") == 1
    assert await names(notes) == ["2"]
    new = await notes.create(delete_threads=[threads[2]])
    assert [mark.label for mark in await notes.table(Mark).find()] == []
    assert [thread.id for thread in await notes.threads()] == [new.id]
    with pytest.raises(NotFound):
        await notes.table(Note).get(threads[2].id, "2")


async def test_deletes_thread_only_if_it_is_unchanged(notes: Store) -> None:
    thread = await notes.create()
    await notes.table(Note).put(Note(thread_id=thread.id, name="a"))
    changed = (await notes.append(thread, [Entry(type="note")])).head
    with pytest.raises(StalePosition):
        await notes.commit(Transaction(delete_threads=[thread]))
    held = await notes.claim(thread)
    with pytest.raises(ThreadHeld):
        await notes.commit(Transaction(delete_threads=[changed]))
    with pytest.raises(ThreadHeld):
        await notes.commit(Transaction(delete_threads=[held]))
    assert await names(notes) == ["a"]
    await notes.append(held, fields={"status": "waiting", "waiting_for": []})
    await notes.commit(Transaction(delete_threads=[await notes.thread(thread)]))
    assert await names(notes) == []
    with pytest.raises(ThreadDeleted):
        await notes.commit(Transaction(delete_threads=[changed]))


async def test_another_process_finds_and_copies_records(notes: Store, store_url: str, target: Store) -> None:
    thread = await notes.create()
    note = Note(thread_id=thread.id, name="ä/..", body={"a": [1, "x"]}, content=b"\x00")
    await notes.table(Note).put(note)
    async with open_store(store_url) as again:
        assert await again.table(Note).find() == [note]
        copied = await again.copy_to(target)
    assert (copied.skipped_extensions, await target.table(Note).find()) == ([], [note])
    await target.delete(thread.id)
    assert await target.table(Note).find() == []


async def test_older_code_rejects_newer_records(notes: Store, store_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    newer = replace(NOTES)
    migrations: Callable[[Extension, str], list[tuple[int, str, str]]] = Extension.migrations
    monkeypatch.setattr(
        Extension,
        "migrations",
        lambda self, dialect: [*migrations(self, dialect), (2, "0002_later_contract", "CREATE TABLE later (id int)")],
    )
    async with open_store(store_url) as upgraded:
        await upgraded.extend(newer)
    monkeypatch.undo()
    async with open_store(store_url) as older:
        with pytest.raises(SchemaMismatch, match="has version 2 of"):
            await older.extend(NOTES)
