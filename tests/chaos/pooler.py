"""A real PgBouncer in transaction mode in front of the PostgreSQL of a test. The program is not part of the project."""

import os
import shutil
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from urllib.parse import quote, urlsplit

import psycopg

from tests.servers import PostgresServer

POOL = 16
"""Number of connections of the pooler to PostgreSQL. All processes share them."""


class Pooler:
    """A PgBouncer process."""

    def __init__(self, server: PostgresServer, program: str = "pgbouncer") -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="lockstitch-pooler-"))
        self._folder.chmod(0o755)
        self._socket = psycopg.conninfo.conninfo_to_dict(server.url())["host"]
        with socket.create_server(("127.0.0.1", 0)) as listener:
            self.port = listener.getsockname()[1]
        settings = {
            "listen_addr": "127.0.0.1",
            "listen_port": self.port,
            "unix_socket_dir": "",
            "auth_type": "any",
            "pool_mode": "transaction",
            "default_pool_size": POOL,
            "max_client_conn": 1000,
        }
        lines = ["[databases]", f"* = host={self._socket} user=postgres", "[pgbouncer]"]
        lines += [f"{name} = {value}" for name, value in settings.items()]
        path = self._folder / "pgbouncer.ini"
        path.write_text("\n".join(lines) + "\n")
        # PgBouncer refuses to run as root. The user of PostgreSQL can read the folder of its socket.
        user = ["-u", server.data.owner()] if os.geteuid() == 0 else []
        self._log = (self._folder / "log").open("w")
        self._process = subprocess.Popen([program, "-q", *user, str(path)], stdout=self._log, stderr=self._log)
        end = time.monotonic() + 10
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > end:
                text = (self._folder / "log").read_text()
                self.close()
                raise RuntimeError(f"PgBouncer does not answer: {text}")
            time.sleep(0.05)

    def url(self, database: str) -> str:
        """Return the URL of a database through the pooler. Notifications do not use the pooler."""
        name = urlsplit(database).path
        return (
            f"postgresql://postgres@127.0.0.1:{self.port}{name}?prepare=off&listen={quote(self._socket, safe='')}:5432"
        )

    def _answers(self) -> bool:
        try:
            psycopg.connect(f"postgresql://postgres@127.0.0.1:{self.port}/postgres", connect_timeout=2).close()
        except psycopg.OperationalError:
            return False
        return True

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        self._log.close()
        shutil.rmtree(self._folder, ignore_errors=True)
