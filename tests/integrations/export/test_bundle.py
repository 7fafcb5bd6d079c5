"""Attacks with bundles: a rejected import changes nothing, inside or outside of the store."""

import asyncio
import gzip
import json
import shutil
import stat
import struct
import subprocess
import sys
import textwrap
import zipfile
from collections.abc import AsyncIterator, Callable
from hashlib import sha256
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest

from lockstitch.errors import Conflict, NotFound, Refused
from lockstitch.integrations.export import bundle_archive
from lockstitch.integrations.export.bundle import export_bundle, import_bundle
from lockstitch.model import new_id
from lockstitch.store import Store, open_store
from tests.cli.calling import Call, environment
from tests.conformance.contract import everything
from tests.hostile.contents import assert_same
from tests.hostile.test_copies import full_of_it, without_leases
from tests.integrations.export import bundles
from tests.integrations.export.bundles import Bundle, unchanged

pytestmark = pytest.mark.anyio

Spoil = Callable[[Bundle], object]
OTHER = "01a1e8f7-6957-72f0-a6f4-1939e5f5c63b"


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A valid bundle."""
    folder = tmp_path_factory.mktemp("exported")
    asyncio.run(bundles.good(folder))
    return folder / "good.zip"


@pytest.fixture
def bundle(exported: Path) -> Bundle:
    return bundles.read(exported)


@pytest.fixture
async def home(tmp_path: Path, sqlite_template: Path) -> AsyncIterator[Store]:
    shutil.copy(sqlite_template, tmp_path / "home.db")
    async with open_store(f"sqlite:///{tmp_path / 'home.db'}") as store:
        yield store


async def refused(home: Store, path: Path) -> str:
    """Return the reason why a bundle is rejected. The store must stay unchanged."""
    before = await everything(home._backend)
    with pytest.raises(Refused) as caught:
        await import_bundle(home, path)
    assert await everything(home._backend) == before
    return str(caught.value)


async def test_imports_bundle_with_every_kind_of_document(store: Store, bundle: Bundle, tmp_path: Path) -> None:
    """Also documents of older exports: an empty journal and its mark."""
    bundle.documents |= {"store/journal.jsonl": b"", "store/journal.applied": b'{"boot":"x"}'.ljust(127) + b"\n"}
    copied = await import_bundle(store, bundle.write(tmp_path / "b.zip"))
    assert (copied.threads, copied.stitches) == (2, 5)
    assert (await import_bundle(store, tmp_path / "b.zip")).total == 0
    report = await store.verify()
    assert report.ok, report.problems
    assert len(await store.messages((await store.runs("boss"))[1].id)) == 3


async def test_imports_hostile_content_exactly(store: Store, home: Store, tmp_path: Path) -> None:
    head = await full_of_it(store)
    await export_bundle(store, head, tmp_path / "b.zip")
    await import_bundle(home, tmp_path / "b.zip")
    here, imported = await without_leases(store), await without_leases(home)
    for table in ("stitches", "runs", "files", "blobs"):
        rows = [row for row in here[table] if row.get("thread_id", str(head.id)) == str(head.id)]
        assert_same(imported[table], rows, table)


async def test_export_leaves_out_journal_and_lock(bundle: Bundle) -> None:
    assert not [name for name in bundle.documents if "journal" in name or "lock" in name or "staging" in name]


def journal(operations: list[Any]) -> bytes:
    body = b'"do":%b,"show":{}}' % json.dumps(operations).encode()
    return b'{"crc":"%08x",' % crc32(body) + body + b"\n"


async def test_replays_no_journal_of_bundle(home: Store, bundle: Bundle, tmp_path: Path) -> None:
    """The attack of the issue: it wrote a script next to the store and removed a folder, and exited with 0."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "precious.txt").write_text("precious")
    for path in (str(outside), "../../../../../../../../" + str(outside)):
        attack = [{"put": f"{path}/script.sh", "value": "x"}, {"delete": f"{path}/precious.txt"}, {"delete": path}]
        bundle.documents["store/journal.jsonl"] = journal(attack)
        with unchanged(outside):
            assert "journal" in await refused(home, bundle.write(tmp_path / "b.zip"))


def test_command_exits_with_2_and_writes_nothing(call: Call, bundle: Bundle, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.mkdir()
    (victim / "precious.txt").write_text("precious")
    bundle.documents["store/journal.jsonl"] = journal([{"put": f"{victim}/x.sh", "value": 1}, {"delete": str(victim)}])
    home = f"sqlite:///{tmp_path / 'home.db'}"
    with unchanged(victim):
        result = call("import", "bundle", str(bundle.write(tmp_path / "b.zip")), "--store", home)
    assert result.code == 2
    assert "Nothing was written" in result.err
    assert call("threads", "--store", home, "--json").json == []


NAMES = [
    "../outside.txt",
    "store/../../outside.txt",
    "/etc/outside.txt",
    "store//heads/x.json",
    "store/heads/../../../outside.json",
    "store\\heads\\x.json",
    "C:\\outside.txt",
    "C:store/x",
    "store/heads/CON.json",
    "store/heads/x.json\n",
    "store/heads/\u2024\u2024/x.json",
    "store/\uff0e\uff0e/\uff0e\uff0e/x.json",
    "store/heads/\u202egnp.json",
    "store/staging/x",
    "store/.lock",
    "store/shelves/tokens/x.json",
    "store/shelves/live_deltas/x.json",
    "store/shelves/agents/x.json",
    "store/workers/x.json",
    "store/unknown.json",
    "store/heads/.hidden.json",
    "store/journal.jsonl/x",
    "STORE/store.json",
    "store",
    "x",
    f"store/heads/{OTHER.upper()}.json",
    f"store/heads/{OTHER}.json.exe",
]


@pytest.mark.parametrize("name", NAMES)
async def test_rejects_document_with_unknown_name(home: Store, bundle: Bundle, tmp_path: Path, name: str) -> None:
    bundle.documents[name] = b"{}"
    await refused(home, bundle.write(tmp_path / "b.zip"))
    assert not list(tmp_path.rglob("outside*"))


def entry(name: str, mode: int = stat.S_IFREG | 0o644) -> zipfile.ZipInfo:
    zip_entry = zipfile.ZipInfo(name)
    zip_entry.external_attr = mode << 16
    return zip_entry


@pytest.mark.parametrize(
    ("name", "mode"),
    [
        ("store/heads/", stat.S_IFDIR | 0o755),
        ("store/store.json", stat.S_IFREG),
        (f"store/heads/{OTHER}.json", stat.S_IFLNK | 0o777),
        (f"store/heads/{OTHER}.json", stat.S_IFIFO | 0o644),
        (f"store/heads/{OTHER}.json", stat.S_IFCHR | 0o644),
        (f"store/heads/{OTHER}.json", stat.S_IFREG | 0o644),
    ],
    ids=["folder", "duplicate", "link", "pipe", "device", "unlisted"],
)
@pytest.mark.filterwarnings("ignore:Duplicate name")
async def test_rejects_entry_that_is_not_a_listed_file(
    home: Store, bundle: Bundle, tmp_path: Path, name: str, mode: int
) -> None:
    bundle.extra = [(entry(name, mode), b"/etc/passwd")]
    await refused(home, bundle.write(tmp_path / "b.zip"))


def patched(path: Path, signature: bytes, offset: int, value: bytes, nth: int = 1) -> Path:
    """Overwrite bytes of the nth header of a zip."""
    content = bytearray(path.read_bytes())
    place = -1
    for _ in range(nth):
        place = content.index(signature, place + 1)
    content[place + offset : place + offset + len(value)] = value
    path.write_bytes(content)
    return path


LOCAL, CENTRAL, END = b"PK\x03\x04", b"PK\x01\x02", b"PK\x05\x06"


@pytest.mark.parametrize(
    ("signature", "offset", "value"),
    [
        (CENTRAL, 8, b"\x01\x00"),
        (CENTRAL, 10, struct.pack("<H", 12)),
        (CENTRAL, 10, struct.pack("<H", 14)),
        (CENTRAL, 10, struct.pack("<H", 99)),
        (CENTRAL, 24, struct.pack("<I", 5)),
        (CENTRAL, 24, struct.pack("<I", 0xFFFFFFFF)),
        (CENTRAL, 16, struct.pack("<I", 1)),
        (CENTRAL, 42, struct.pack("<I", 0x7FFFFFFF)),
        (LOCAL, 30, b"x"),
        (END, 12, struct.pack("<I", 0xFFFFFFF0)),
        (END, 16, struct.pack("<I", 0xFFFFFFFE)),
    ],
    ids=[
        *("encrypted", "bzip2", "lzma", "unknown method", "short", "zip64 without extra"),
        *("checksum", "place", "other local name", "large directory", "place of directory"),
    ],
)
async def test_rejects_zip_with_false_headers(
    home: Store, bundle: Bundle, tmp_path: Path, signature: bytes, offset: int, value: bytes
) -> None:
    path = bundle.write(tmp_path / "b.zip")
    await refused(home, patched(path, signature, offset, value, 1 if signature == END else 3))


@pytest.mark.parametrize(
    "content",
    [b"", b"nothing", b"PK", b"PK\x05\x06" + bytes(18), b"PK\x03\x04" * 100, bytes(100_000)],
    ids=["empty", "text", "start", "no entries", "local headers", "zeros"],
)
async def test_rejects_file_that_is_not_a_bundle(home: Store, tmp_path: Path, content: bytes) -> None:
    (tmp_path / "b.zip").write_bytes(content)
    await refused(home, tmp_path / "b.zip")


async def test_rejects_incomplete_bundle(home: Store, bundle: Bundle, tmp_path: Path) -> None:
    data = bundle.write(tmp_path / "b.zip").read_bytes()
    for cut in range(0, len(data), 997):
        (tmp_path / "b.zip").write_bytes(data[:cut])
        await refused(home, tmp_path / "b.zip")


def sized(size: Any) -> Callable[[dict[str, Any]], object]:
    def spoil(manifest: dict[str, Any]) -> None:
        manifest["files"]["store/store.json"]["size"] = size

    return spoil


@pytest.mark.parametrize(
    "spoil",
    [
        *(sized(size) for size in (-1, -(10**30), 10**30, 1.5, "36", None, True, [], 35, 37, 1 << 62)),
        lambda manifest: manifest["files"]["store/store.json"].update(sha256="0" * 64),
        lambda manifest: manifest["files"]["store/store.json"].update(sha256=None),
        lambda manifest: manifest["files"]["store/store.json"].update(sha256="../.."),
        lambda manifest: manifest["files"].pop("store/store.json"),
        lambda manifest: manifest["files"].update({"store/store.json": None}),
        lambda manifest: manifest["files"].update({"store/x.json": {"size": 0, "sha256": "0" * 64}}),
        lambda manifest: manifest.update(files=[]),
        lambda manifest: manifest.update(files={}),
        lambda manifest: manifest.update(files=None),
        lambda manifest: manifest.update(files=[["store/store.json", {}]]),
        lambda manifest: manifest.update(thread=OTHER),
        lambda manifest: manifest.update(thread="boss"),
        lambda manifest: manifest.update(thread="../.."),
        lambda manifest: manifest.update(thread=None),
        lambda manifest: manifest.pop("thread"),
        lambda manifest: manifest.update(format="other"),
        lambda manifest: manifest.update(version=1),
        lambda manifest: manifest.update(version="2"),
        lambda manifest: manifest.pop("version"),
        lambda manifest: manifest.pop("counts"),
        lambda manifest: manifest.update(counts=[]),
        lambda manifest: manifest["counts"].update(threads=1),
        lambda manifest: manifest["counts"].update(runs=10**9),
        lambda manifest: manifest["counts"].update(stitches=-1),
    ],
)
async def test_rejects_false_manifest(
    home: Store, bundle: Bundle, tmp_path: Path, spoil: Callable[[dict[str, Any]], object]
) -> None:
    await refused(home, bundle.write(tmp_path / "b.zip", spoil))


DEEP = b'{"a":' * 100_000 + b"1" + b"}" * 100_000
LARGE_NUMBER = b'{"a": 1' + b"0" * 10_000 + b"}"


@pytest.mark.parametrize(
    "content",
    [b"", b"[]", b"null", b"5", b'"x"', b"{", b"\xff\xfe", b"{}", DEEP, b"[" * 200_000, LARGE_NUMBER, b'{"id": NaN}'],
    ids=["empty", "list", "null", "number", "text", "cut", "binary", "object", "deep", "open", "large", "nan"],
)
@pytest.mark.parametrize(
    "start", ["store/heads/", "store/runs/", "store/inbox/", "store/shelves/archives", "store/store.json", "manifest"]
)
async def test_rejects_document_that_is_not_a_record(
    home: Store, bundle: Bundle, tmp_path: Path, start: str, content: bytes
) -> None:
    path = tmp_path / "b.zip"
    if start != "manifest":
        bundle.documents[bundle.name(start)] = content
        bundle.write(path)
    else:
        with zipfile.ZipFile(path, "w") as target:
            target.writestr("manifest.json", content)
    await refused(home, path)


@pytest.mark.parametrize("content", [b"", b"{}\n", b"x\n", b"[]\n", DEEP + b"\n", b"\0\n", b"null\n", b'{"a":1}'])
async def test_rejects_log_without_stitches(home: Store, bundle: Bundle, tmp_path: Path, content: bytes) -> None:
    bundle.documents[bundle.name("store/agent_runs/", ".jsonl")] = content
    await refused(home, bundle.write(tmp_path / "b.zip"))


HEADS, RUNS, LETTERS, LOGS = "store/heads/", "store/runs/", "store/inbox/", "store/agent_runs/"
FILES, FEEDBACK, USES, ARCHIVES = (f"store/shelves/{name}/" for name in ("files", "feedback", "blob_uses", "archives"))
HUGE = 2**63 - 1


@pytest.mark.parametrize(
    ("start", "fields"),
    [
        (HEADS, {"id": OTHER}),
        (HEADS, {"id": "../../x"}),
        (HEADS, {"project": "other"}),
        (HEADS, {"project": ""}),
        (HEADS, {"parent_id": OTHER}),
        (HEADS, {"fence": HUGE}),
        (HEADS, {"fence": -1}),
        (HEADS, {"fence": 2**70}),
        (HEADS, {"fence": 1.5}),
        (HEADS, {"delivered": HUGE}),
        (HEADS, {"position": HUGE}),
        (HEADS, {"position": 10**9}),
        (HEADS, {"position": 1}),
        (HEADS, {"first_position": 0}),
        (HEADS, {"first_position": 2}),
        (HEADS, {"first_position": 10**9}),
        (HEADS, {"status": "hacked"}),
        (HEADS, {"kind": "other"}),
        (HEADS, {"unknown": 1}),
        (HEADS, {"created_at": "yesterday"}),
        (HEADS, {"created_at": None}),
        (HEADS, {"key": "x" * 300}),
        (HEADS, {"title": "\0"}),
        (HEADS, {"settings": []}),
        (HEADS, {"priority": 2**40}),
        (RUNS, {"thread_id": OTHER}),
        (RUNS, {"id": OTHER}),
        (RUNS, {"sequence": HUGE}),
        (RUNS, {"sequence": -1}),
        (RUNS, {"status": None}),
        (RUNS, {"total_cost": "free"}),
        (LETTERS, {"thread_id": OTHER}),
        (LETTERS, {"id": OTHER}),
        (LETTERS, {"sender": "somebody else"}),
        (LETTERS, {"entry": {"type": ""}}),
        (LETTERS, {"entry": {"unknown": 1}}),
        (LETTERS, {"position": HUGE}),
        (FILES, {"thread_id": OTHER}),
        (FILES, {"file_id": "other"}),
        (FEEDBACK, {"thread_id": OTHER}),
        (FEEDBACK, {"thread_id": None}),
        (FEEDBACK, {"project": "other"}),
        (FEEDBACK, {"id": OTHER}),
        (USES, {"thread_id": OTHER}),
        (USES, {"sha256": "0" * 64}),
        (ARCHIVES, {"thread_id": OTHER}),
        (ARCHIVES, {"run_id": OTHER}),
        (ARCHIVES, {"first_position": 2}),
        (ARCHIVES, {"last_position": HUGE}),
        (ARCHIVES, {"sha256": "0" * 64}),
        (ARCHIVES, {"encoding": "zstd"}),
        (ARCHIVES, {"encoding": "lzma"}),
        (ARCHIVES, {"file": "/etc/passwd"}),
        (ARCHIVES, {"file": "../../etc/passwd"}),
        (ARCHIVES, {"file": "store.json"}),
        (ARCHIVES, {"file": None}),
        ("store/store.json", {"version": 1}),
        ("store/store.json", {"format": "other"}),
    ],
)
async def test_rejects_record_with_false_field(
    home: Store, bundle: Bundle, tmp_path: Path, start: str, fields: dict[str, Any]
) -> None:
    bundle.change(bundle.name(start, ".json"), **fields)
    await refused(home, bundle.write(tmp_path / "b.zip"))


@pytest.mark.parametrize(
    "fields",
    [
        {"agent_uuid": OTHER},
        {"run_id": OTHER},
        {"run_id": None},
        {"position": 0},
        {"position": 2},
        {"position": 100},
        {"position": HUGE},
        {"position": -1},
        {"fence": HUGE},
        {"fence": "x"},
        {"id": "x"},
        {"action_type": ""},
        {"action_data": None},
        {"action_data": []},
        {"timestamp": "yesterday"},
        {"timestamp": None},
        {"child_id": "../x"},
        {"reply_to": 1},
        {"message": "text"},
        {"estimated_tokens": -1},
    ],
)
async def test_rejects_stitch_with_false_field(
    home: Store, bundle: Bundle, tmp_path: Path, fields: dict[str, Any]
) -> None:
    bundle.change_line(bundle.name(LOGS, ".jsonl"), 0, **fields)
    await refused(home, bundle.write(tmp_path / "b.zip"))


def twice(bundle: Bundle) -> None:
    name = bundle.name(LOGS, ".jsonl")
    bundle.documents[name] += bundle.documents[name]


def same_key(bundle: Bundle) -> None:
    for name in [name for name in bundle.documents if name.startswith(HEADS)]:
        bundle.change(name, key="same")


def loop(bundle: Bundle) -> None:
    child = next(name for name in bundle.documents if name.startswith(HEADS) and b'"depth":1' in bundle.documents[name])
    bundle.change(child, parent_id=Path(child).stem)


def added(start: str, name: str) -> Spoil:
    def spoil(bundle: Bundle) -> None:
        bundle.documents[name] = bundle.documents[bundle.name(start)]

    return spoil


def removed(start: str, ending: str = "") -> Spoil:
    return lambda bundle: bundle.documents.pop(bundle.name(start, ending))


@pytest.mark.parametrize(
    "spoil",
    [
        twice,
        same_key,
        loop,
        added(HEADS, f"{HEADS}{OTHER}.json"),
        added(RUNS, f"{RUNS}{OTHER}/{OTHER}.json"),
        added(LOGS, f"{LOGS}{OTHER}/thread.jsonl"),
        added(FILES, f"{FILES}other.json"),
        added("store/blobs/", "store/blobs/" + "0" * 64),
        removed(HEADS),
        removed(RUNS),
        removed(LOGS, ".jsonl"),
        removed(LOGS, ".gz"),
        removed(ARCHIVES),
        removed("store/blobs/", ".json"),
        removed("store/blobs/"),
        removed("store/store.json"),
        lambda bundle: bundle.documents.update({bundle.name("store/blobs/"): b"other"}),
        lambda bundle: bundle.documents.update({bundle.name(LOGS, ".gz"): b"no gzip"}),
        lambda bundle: bundle.documents.update({bundle.name(LOGS, ".gz"): gzip.compress(b"{}\n")}),
        lambda bundle: bundle.documents.update(
            {(name := bundle.name(LOGS, ".gz")): bundle.documents[name] + gzip.compress(b"more\n")}
        ),
        lambda bundle: bundle.documents.update({(name := bundle.name(LOGS, ".gz")): bundle.documents[name][:-9]}),
    ],
)
async def test_rejects_records_that_do_not_fit_together(
    home: Store, bundle: Bundle, tmp_path: Path, spoil: Spoil
) -> None:
    spoil(bundle)
    await refused(home, bundle.write(tmp_path / "b.zip"))


def archive_of(bundle: Bundle, change: Callable[[list[dict[str, Any]]], object]) -> None:
    """Rewrite the first archive with a correct checksum."""
    name = bundle.name(ARCHIVES)
    file = "store/" + json.loads(bundle.documents[name])["file"]
    lines = [json.loads(line) for line in gzip.decompress(bundle.documents[file]).splitlines()]
    change(lines)
    text = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
    bundle.documents[file] = gzip.compress(text)
    bundle.change(name, sha256=sha256(text).hexdigest())


@pytest.mark.parametrize(
    "change",
    [
        lambda lines: lines[0].update(thread_id=OTHER),
        lambda lines: lines[0].update(run_id=OTHER),
        lambda lines: lines[0].update(position=5),
        lambda lines: lines[0].update(unknown=1),
        lambda lines: lines[0].update(data=[]),
        lambda lines: lines[0].update(id="x"),
        lambda lines: lines.pop(),
        lambda lines: lines.append(lines[0]),
    ],
)
async def test_rejects_archive_with_false_stitch(
    home: Store, bundle: Bundle, tmp_path: Path, change: Callable[[list[dict[str, Any]]], object]
) -> None:
    archive_of(bundle, lambda lines: None)
    await import_bundle(home, bundle.write(tmp_path / "good.zip"))
    archive_of(bundle, change)
    await refused(home, bundle.write(tmp_path / "b.zip"))


async def test_rejects_bundle_of_other_project(bundle: Bundle, tmp_path: Path) -> None:
    async with open_store(f"sqlite:///{tmp_path / 'home.db'}", project="mine") as home:
        with pytest.raises(NotFound, match="project default"):
            await import_bundle(home, bundle.write(tmp_path / "b.zip"))
        assert not any((await everything(home._backend)).values())


async def test_overwrites_no_thread_of_other_project(store: Store, bundle: Bundle, tmp_path: Path) -> None:
    """An attacker who knows the id of a thread must not replace it or its records."""
    path = bundle.write(tmp_path / "b.zip")
    root = Path(bundle.name(HEADS)).stem
    victim = Store(store._backend, clock=store.clock, project="victim")
    await store._backend.put([victim.new_thread(title="Mine").changed(id=new_id().__class__(root))])
    before = await everything(store._backend)
    with pytest.raises(Conflict, match="project victim"):
        await import_bundle(store, path)
    assert await everything(store._backend) == before


async def test_overwrites_no_run_of_other_thread(store: Store, bundle: Bundle, tmp_path: Path) -> None:
    path = bundle.write(tmp_path / "b.zip")
    run_id = new_id().__class__(Path(bundle.name(RUNS)).stem)
    victim = await store.create(title="Mine")
    await store._backend.put([store.new_run(victim, input_position=1).changed(id=run_id, model="mine")])
    before = await everything(store._backend)
    with pytest.raises(Conflict):
        await import_bundle(store, path)
    assert await everything(store._backend) == before


# Bombs


def zeros(path: Path, name: str, size: int, declared: int) -> None:
    """Write a zip with one document of zeros and a manifest with another size."""
    entry = zipfile.ZipInfo(name)
    entry.compress_type = zipfile.ZIP_DEFLATED
    manifest = {"format": "lockstitch-bundle", "version": 2, "thread": OTHER, "counts": {}}
    digest = sha256()
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as bundle:
        with bundle.open(entry, "w", force_zip64=True) as file:
            for _ in range(size >> 20):
                digest.update(bytes(1 << 20))
                file.write(bytes(1 << 20))
        manifest["files"] = {name: {"size": declared, "sha256": digest.hexdigest()}}
        bundle.writestr("manifest.json", json.dumps(manifest))


MEASURED = """
import asyncio, resource, sys
from pathlib import Path
from lockstitch.integrations.export.bundle import import_bundle
from lockstitch.errors import Refused
from lockstitch.store import open_store

async def main():
    async with open_store("sqlite:///:memory:") as store:
        try:
            await import_bundle(store, Path(sys.argv[1]))
        except Refused as exc:
            print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024, exc)

asyncio.run(main())
"""


def measured(path: Path) -> int:
    """Return the peak memory in MiB of a process that rejects a bundle."""
    program = [sys.executable, "-c", textwrap.dedent(MEASURED), str(path)]
    output = subprocess.run(program, env=environment(), capture_output=True, text=True, check=True, timeout=300).stdout
    assert output, "it was imported"
    return int(output.split()[0])


@pytest.fixture(scope="module")
def idle(tmp_path_factory: pytest.TempPathFactory) -> int:
    """Return the peak memory in MiB of a process that rejects a file at its first byte."""
    path = tmp_path_factory.mktemp("idle") / "b.zip"
    path.write_bytes(b"nothing")
    return measured(path)


@pytest.mark.parametrize(
    ("name", "declared"),
    [
        (f"store/heads/{OTHER}.json", -(1 << 33)),
        (f"store/heads/{OTHER}.json", 100 << 20),
        ("store/blobs/" + "0" * 64, 100),
        ("store/blobs/" + "0" * 64, 100 << 20),
    ],
    ids=["negative", "head", "short", "blob"],
)
def test_bomb_costs_no_memory(tmp_path: Path, idle: int, name: str, declared: int) -> None:
    """A large document of zeros, with any size in the manifest. Before the fix, a negative size disabled the limit."""
    zeros(tmp_path / "b.zip", name, 100 << 20, declared)
    assert (tmp_path / "b.zip").stat().st_size < 3 << 20
    assert measured(tmp_path / "b.zip") < idle + 64


def test_bomb_in_manifest_costs_little_memory(tmp_path: Path, idle: int) -> None:
    with zipfile.ZipFile(tmp_path / "b.zip", "w", zipfile.ZIP_DEFLATED) as bundle:
        bundle.writestr("manifest.json", b"[" + b"1," * (20 << 20))
    assert measured(tmp_path / "b.zip") < idle + 128


async def test_rejects_archive_that_unpacks_to_too_much(
    home: Store, bundle: Bundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bundle_archive, "LONGEST_CONTENT", 1 << 20)
    name = bundle.name(LOGS, ".gz")
    bundle.documents[name] = gzip.compress(b"[" * (2 << 20))
    assert "unpacks to more" in await refused(home, bundle.write(tmp_path / "b.zip"))


@pytest.mark.parametrize(
    ("limit", "value", "reason"),
    [
        ("MOST", 5, "documents"),
        ("LARGEST", 1000, "size|unpacks"),
        ("LONGEST_MANIFEST", 100, "manifest"),
        ("LONGEST_TEXT", 100, "longer"),
        ("LONGEST_CONTENT", 1000, "allowed"),
        ("MOST_VALUES", 10, "values"),
        ("_LONGEST_READ", 100, "directory"),
    ],
)
async def test_rejects_bundle_beyond_limit(
    home: Store, bundle: Bundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str, value: int, reason: str
) -> None:
    path = bundle.write(tmp_path / "b.zip")
    monkeypatch.setattr(bundle_archive, limit, value)
    with pytest.raises(Refused, match=reason):
        await import_bundle(home, path)
    assert not any((await everything(home._backend)).values())


async def test_rejects_bundle_with_implausible_compression_ratio(
    home: Store, bundle: Bundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bundle_archive, "RATIO_FROM", 1000)
    monkeypatch.setattr(bundle_archive, "RATIO", 2)
    assert "unpacks to" in await refused(home, bundle.write(tmp_path / "b.zip"))
