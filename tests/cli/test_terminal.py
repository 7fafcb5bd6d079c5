"""Output on a terminal with 80 columns."""

import fcntl
import json
import os
import re
import struct
import subprocess
import sys
import termios
from pathlib import Path

import pytest

from tests.cli.calling import environment, run
from tests.cli.story import Story, long_chat, tell, within

COLOUR = re.compile(r"\x1b\[[0-9;]*m")


# One start of Python for many commands.
ONE_AFTER_ANOTHER = """
import json, sys
from lockstitch.cli.entry import run
for line in sys.argv[1:]:
    assert run(json.loads(line)) == 0, line
    print("\\f", flush=True)
"""


def seen(*arguments: str, keys: str = "", columns: int = 80, **more: str) -> tuple[int, str]:
    """Return the exit code and the screen of a command at a terminal. `keys` are typed."""
    return seen_of(["-m", "lockstitch", *arguments], keys=keys, columns=columns, **more)


def seen_of(program: list[str], *, keys: str = "", columns: int = 80, **more: str) -> tuple[int, str]:
    ours, theirs = os.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    plain = {name: value for name, value in environment().items() if name not in ("COLUMNS", "NO_COLOR", "FORCE_COLOR")}
    with subprocess.Popen(
        [sys.executable, *program],
        env={**plain, "TERM": "xterm-256color", **more},
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    ) as process:
        os.close(theirs)
        os.write(ours, keys.encode())
        screen = b""
        while piece := _read(ours):
            screen += piece
        code = process.wait(60)
    os.close(ours)
    return code, screen.decode().replace("\r\n", "\n")


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65536)
    except OSError:
        # A closed terminal ends with this error.
        return b""


@pytest.fixture
def told(tmp_path: Path) -> Story:
    return tell(f"sqlite:///{tmp_path / 'store.db'}")


def test_output_fits_terminal_and_ids_are_complete(told: Story) -> None:
    commands = (
        *(["threads"], ["threads", "--tree"], ["threads", "--all-projects"], ["show", "customer-42"], ["errors"]),
        *(["history", "customer-42"], ["context", "customer-42"], ["log", str(told.charge.id)], ["tail"], ["size"]),
        *(["show", str(told.charge.id)], ["search", "graz"], ["stats", "tokens"], ["doctor", "--verify"]),
        *(["sql", "SELECT id, title, goal, settings, created_at FROM threads"],),
    )
    given = [json.dumps([*command, "--store", told.url]) for command in commands]
    code, screens = seen_of(["-c", ONE_AFTER_ANOTHER, *given])
    assert code == 0, screens
    for command, screen in zip(commands, screens.split("\f\n")[:-1], strict=True):
        assert "\x1b[" in screen, command
        lines = COLOUR.sub("", screen).split("\n")
        assert max(map(len, lines)) <= 80, (command, screen)
        if command[0] in ("threads", "stats", "sql"):
            assert any(line.startswith(str(told.chat.id)) for line in lines), command


def test_wide_terminal_shows_more_columns(told: Story) -> None:
    narrow, wide = (COLOUR.sub("", seen("threads", "--store", told.url, columns=columns)[1]) for columns in (80, 140))
    assert "AGENT" not in narrow
    assert "helper v3" in wide


def test_no_colour_and_pipes_disable_colours(told: Story) -> None:
    assert "\x1b[3" not in seen("threads", "--store", told.url, NO_COLOR="1")[1]
    assert "\x1b" not in run("threads", "--store", told.url).out


def test_json_at_terminal_has_no_colours(told: Story) -> None:
    assert "\x1b" not in seen("threads", "--json", "--store", told.url)[1]


def test_delete_asks_for_confirmation(told: Story) -> None:
    code, screen = seen("delete", "customer-42", "--store", told.url, keys="no\n")
    assert code == 1
    assert f"Delete thread {told.chat.id} (customer-42)? [y/N]" in screen
    assert "Nothing was deleted." in screen
    assert seen("delete", "customer-42", "--store", told.url, keys="\x04")[0] == 1, "end of input is not a yes"
    code, screen = seen("delete", str(told.goal.id), "--store", told.url, keys="y\n")
    assert code == 0
    assert "and 2 descendants?" in screen
    assert "Deleted 3 threads." in screen
    code, screen = seen("purge", "--older-than", "0s", "--store", told.url, keys="yes\n")
    assert (code, "Deleted 1 thread." in screen) == (0, True)


def test_copy_shows_progress(tmp_path: Path) -> None:
    source = f"sqlite:///{tmp_path / 'source.db'}"
    within(source, lambda store: long_chat(store, 5))
    code, screen = seen("copy", source, f"sqlite:///{tmp_path / 'target.db'}")
    assert code == 0
    assert "Copied 10 stitches and 6 other records; verified 1 of 1 thread." in screen
