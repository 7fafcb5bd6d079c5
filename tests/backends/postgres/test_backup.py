"""Point-in-time restore as docs/howto/deploying.md describes it: a base backup, archived WAL, and a restore point."""

import shutil
import tempfile
from pathlib import Path

import psycopg
import pytest

from lockstitch.store import open_store
from tests.samples import turn
from tests.servers import PostgresServer

pytestmark = pytest.mark.anyio


async def test_restores_store_to_a_point_between_two_commits() -> None:
    # PostgreSQL is another user if the tests run as root, so the folder is not below the one of pytest.
    folder = Path(tempfile.mkdtemp(prefix="lockstitch-backup-"))
    folder.chmod(0o777)
    archive = folder / "wal"
    archive.mkdir(mode=0o777)
    archive.chmod(0o777)
    server = PostgresServer(archive_mode="on", archive_command=f"test ! -f {archive}/%f && cp %p {archive}/%f")
    try:
        if not server.own:
            pytest.skip("needs a server of the tests")
        url = server.create_database()
        async with open_store(url) as store:
            head = await turn(store, await store.create(key="ada"), "before", "the backup")
            server.execute(
                "pg_basebackup", "--checkpoint", "fast", "--pgdata", str(folder / "base"), "--dbname", server.url()
            )
            await turn(store, head, "after", "the backup")
            with psycopg.connect(server.url(), autocommit=True) as connection:
                connection.execute("SELECT pg_create_restore_point('before_the_mistake')")
            await store.delete(await store.thread("ada"))
        # A server archives all of its WAL before it stops.
        server.stop("fast")

        lost = folder / "lost"
        server.data.rename(lost)
        (folder / "base").rename(server.data)
        # The server of the tests has its socket in the data folder.
        for lock in server.data.glob(".s.PGSQL.*"):
            lock.unlink()
        with (server.data / "postgresql.auto.conf").open("a") as settings:
            settings.write(f"restore_command = 'cp {archive}/%f %p'\n")
            settings.write("recovery_target_name = 'before_the_mistake'\nrecovery_target_action = 'promote'\n")
        (server.data / "recovery.signal").touch()
        server.start()
        # A server accepts connections that read while it recovers. It is promoted after that.
        server.wait_until_promoted()

        async with open_store(url) as store:
            report = await store.verify()
            assert (report.ok, report.threads) == (True, 1)
            messages = [block["content"] for block in await store.context("ada")]
            assert len(messages) == 4
            # The restored store continues.
            await turn(store, await store.thread("ada"), "and", "on")
            assert (await store.verify()).ok
    finally:
        server.close()
        shutil.rmtree(folder, ignore_errors=True)
