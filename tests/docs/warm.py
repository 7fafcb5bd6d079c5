"""`python` and `lockstitch` for pages and tests of commands, forked from an interpreter that has loaded the package.

Loading the package takes most of the time of a short command. `warm_commands()` writes two scripts. A script sends its
arguments, its environment and its files to the warm interpreter, which forks a process for it, and ends with the
exit code or the signal of that process. A process that loses its script ends too.
"""

import atexit
import gc
import os
import runpy
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import NoReturn

from lockstitch.cli import entry

ROOT = Path(__file__).parents[2]

SECONDS = 120.0
"""Time that the start may take."""

_STARTED: list[subprocess.Popen[bytes]] = []
"""The warm interpreter. A forked process must not lose the object: it would warn of a process that still runs."""

LOADED = (
    "anthropic",
    "importlib.resources.readers",
    "lockstitch.agents",
    "lockstitch.agents.providers.scripted",
    "lockstitch.backends.files.backend",
    "lockstitch.backends.postgres.backend",
    "lockstitch.backends.sqlite.backend",
    "lockstitch.cli.app",
    "lockstitch.cli.references",
    "lockstitch.cli.runs",
    "lockstitch.cli.selection",
    "lockstitch.cli.services.chat",
    "lockstitch.cli.services.models",
    "lockstitch.cli.services.worker",
    "lockstitch.server",
    "lockstitch.sync",
    "lockstitch.testing",
    "openai",
    "pytest",
    "rich.live",
    "uvicorn",
)
"""The modules that commands use."""

_SCRIPT = """#!{python} -IS
import os, signal, socket, sys
with socket.socket(socket.AF_UNIX) as server:
    server.connect({address!r})
    socket.send_fds(server, [b"!"], [0, 1, 2])
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda received, _: server.send(bytes([received])))
    values = [os.getcwd(), *sys.argv, "", *(f"{{name}}={{value}}" for name, value in os.environ.items())]
    order = "\\0".join(values).encode(errors="surrogateescape")
    server.sendall(len(order).to_bytes(4, "big") + order)
    code = int(server.makefile().read() or -signal.SIGKILL)
    if code < 0:
        for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    sys.exit(code)
"""


def warm_commands() -> Path:
    """Wait until the warm interpreter is ready, and return the folder of its scripts."""
    folder = start_warm_commands()
    deadline = time.monotonic() + SECONDS
    while not (folder / "ready").exists():
        assert time.monotonic() < deadline, "The warm interpreter does not start."
        time.sleep(0.02)
    return folder


@cache
def start_warm_commands() -> Path:
    """Start the warm interpreter and return the folder of its scripts. Both end with this process; forks share them."""
    folder = Path(tempfile.mkdtemp(prefix="lockstitch-warm-"))
    address = str(folder / "socket")
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.docs.warm", address],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        start_new_session=True,
    )
    for name in ("python", "lockstitch"):
        script = folder / name
        script.write_text(_SCRIPT.format(python=sys.executable, address=address), encoding="utf-8")
        script.chmod(0o755)

    _STARTED.append(process)

    def end() -> None:
        process.communicate()  # closes its standard input and waits
        shutil.rmtree(folder)

    atexit.register(end)
    return folder


def main() -> None:
    """Fork a process for every script, until the standard input ends."""
    for module in LOADED:
        import_module(module)
    gc.freeze()  # a collection in a child would copy all pages
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(sys.argv[1])
        listening.listen()
        Path(sys.argv[1]).with_name("ready").touch()
        while listening in select.select([0, listening], [], [])[0]:
            script, _ = listening.accept()
            if os.fork() == 0:
                listening.close()
                os.setsid()
                _serve(script)
            script.close()
            with suppress(ChildProcessError):
                while os.waitpid(-1, os.WNOHANG)[0]:
                    pass


def _serve(script: socket.socket) -> NoReturn:
    """Fork the process of a script. Forward signals to it and send its exit code."""
    _, files, _, _ = socket.recv_fds(script, 1, 3)
    reading = script.makefile("rb")
    order = reading.read(int.from_bytes(reading.read(4), "big")).decode(errors="surrogateescape").split("\0")
    process = os.fork()
    if process == 0:
        script.close()
        _execute(order, files)
    for file in files:
        os.close(file)
    running = os.pidfd_open(process)
    while running not in (ready := select.select([running, script], [], [])[0]):
        assert script in ready
        received = script.recv(1)
        os.kill(process, received[0] if received else signal.SIGKILL)
        if not received:
            break
    code = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    with suppress(OSError):
        script.sendall(str(code).encode())
    os._exit(0)


def _execute(order: Sequence[str], files: Sequence[int]) -> NoReturn:
    """Become the process of a script."""
    end = order.index("", 1)
    os.chdir(order[0])
    os.environ.clear()
    for variable in order[end + 1 :]:
        key, _, value = variable.partition("=")
        os.environ[key] = value
    tempfile.tempdir = None
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    # The streams know whether their old files were seekable.
    sys.stdin, sys.stdout, sys.stderr = (os.fdopen(number, mode, closefd=False) for number, mode in enumerate("rww"))
    paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    sys.path[1:1] = [path for path in paths if path and path not in sys.path[1:]]
    name, *arguments = order[1:end]
    try:
        code = _lockstitch(name, arguments) if os.path.basename(name) == "lockstitch" else _python(arguments)
    except SystemExit as exc:
        code = exc.code if isinstance(exc.code, int) else int(exc.code is not None)
        if isinstance(exc.code, str):
            print(exc.code, file=sys.stderr)
    except BaseException:
        traceback.print_exc()
        code = 1
    # As the interpreter does it, except that it would also release all modules, which takes longer than loading them.
    threading._shutdown()  # pyright: ignore[reportAttributeAccessIssue]
    atexit._run_exitfuncs()
    sys.stdout.flush()
    os._exit(code)


def _lockstitch(name: str, arguments: Sequence[str]) -> int:
    sys.argv = [name, *arguments]
    sys.path[0] = os.path.dirname(name)
    return entry.run(arguments)


def _python(arguments: Sequence[str]) -> int:
    match arguments:
        case ["-c", code, *rest]:
            sys.argv, sys.path[0] = ["-c", *rest], ""
            sys.modules["__main__"] = program = ModuleType("__main__")
            exec(compile(code, "<string>", "exec"), program.__dict__)
        case ["-m", module, *rest]:
            sys.argv, sys.path[0] = [module, *rest], os.getcwd()
            runpy.run_module(module, run_name="__main__", alter_sys=True)
        case [file, *rest]:
            sys.argv, sys.path[0] = [file, *rest], os.path.dirname(os.path.abspath(file))
            if not os.path.exists(file):
                print(f"can't open file {file!r}", file=sys.stderr)
                return 2
            runpy.run_path(file, run_name="__main__")
        case _:
            raise ValueError("The warm interpreter cannot read a program from its input.")
    return 0


if __name__ == "__main__":
    main()
