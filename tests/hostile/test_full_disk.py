"""A full disk: the append that does not fit raises one clear error, and acknowledged commits are complete."""

import subprocess
import sys
from pathlib import Path

import pytest

from lockstitch.store import open_store
from tests.docs.warm import warm_commands

pytestmark = pytest.mark.anyio

FILL = """
import asyncio, resource, signal, sys
from lockstitch.errors import LockstitchError
from lockstitch.store import open_store
from tests.samples import said

def limit(size):
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))

async def main(url, then):
    unlimited = resource.getrlimit(resource.RLIMIT_FSIZE)[0]
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    async with open_store(url) as store:
        head = await store.create(key="k")
        limit(3_000_000)
        try:
            while True:
                head = (await store.append(head, [said(f"{head.position + 1} " + "x" * 100_000)])).head
                print("acknowledged", head.position)
        except LockstitchError as exc:
            print("refused", type(exc).__name__, exc.exit_code, exc)
        print("readable", len(await store.stitches("k")))
        if then == "continues":
            limit(unlimited)
            head = (await store.append(await store.thread("k"), [said(f"{head.position + 1} after")])).head
            print("acknowledged", head.position)

asyncio.run(main(*sys.argv[1:]))
"""


@pytest.mark.parametrize("then", ["continues", "leaves"])
@pytest.mark.parametrize("backend", ["files", "sqlite"])
async def test_commit_on_full_disk_writes_nothing(backend: str, store_url: str, then: str) -> None:
    command = [warm_commands() / "python", "-c", FILL, store_url, then]
    process = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert process.returncode == 0, process.stderr
    lines = [line.split(" ", 3) for line in process.stdout.splitlines()]
    acknowledged = [int(line[1]) for line in lines if line[0] == "acknowledged"]
    (refused,) = [line for line in lines if line[0] == "refused"]
    assert len(acknowledged) > 3
    assert refused[1] in ("StoreFull", "StoreError")
    assert refused[2] == "5"
    assert "not written" in refused[3] or "Nothing was written" in refused[3]
    assert "try again" in refused[3]
    assert ["readable", str(len(acknowledged) - (then == "continues"))] in lines, "the rejected append stored nothing"
    async with open_store(store_url) as store:
        texts = [str((stitch.message or {})["content"]) for stitch in await store.stitches("k")]
        assert [int(text.split()[0]) for text in texts] == acknowledged == list(range(1, len(texts) + 1))
        report = await store.verify()
        assert report.ok, report.problems


async def test_creating_store_on_full_disk_raises_store_full(tmp_path: Path) -> None:
    script = (
        "import asyncio, resource, signal, sys\n"
        "from lockstitch.errors import LockstitchError\n"
        "from lockstitch.store import open_store\n"
        "async def main():\n"
        "    try:\n"
        "        async with open_store(sys.argv[1]):\n"
        "            print('opened')\n"
        "    except LockstitchError as exc:\n"
        "        print(exc.exit_code, exc)\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (10, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))\n"
        "asyncio.run(main())\n"
    )
    for url in (f"sqlite:///{tmp_path}/store.db", f"file://{tmp_path}/store"):
        command = [sys.executable, "-B", "-c", script, url]
        process = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert process.returncode == 0, process.stderr
        assert process.stdout.startswith("5 "), process.stdout
        assert str(tmp_path) in process.stdout
        async with open_store(url) as store:
            await store.create()
